//! Merges the site info of an import with the stored one, so that an empty or older one erases nothing.

use std::fmt;

use crate::{Namespace, SiteInfo, excerpt};

/// A difference between the stored site info and that of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteChange {
    /// The element of the site info, such as `sitename` or `namespace 4`.
    pub field: String,
    /// The value that was stored before. It is shortened.
    pub stored: String,
    /// The value in the input. It is shortened.
    pub input: String,
    /// Whether the value of the input replaced the stored one. It does not if the input is older.
    pub is_replaced: bool,
}

impl fmt::Display for SiteChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, stored, input, is_replaced } = self;
        if *is_replaced {
            write!(f, "the {field} of the wiki was {stored:?} and is now {input:?}")
        } else {
            write!(
                f,
                "the {field} of the wiki stays {stored:?}: {input:?} in the input is older, or of an unknown time"
            )
        }
    }
}

impl SiteInfo {
    /// Adds the values of an input. A value that is missing in the input stays, and a different one is replaced if
    /// `replaces` is set. Returns the differences.
    pub(crate) fn merge(&mut self, input: &Self, replaces: bool) -> Vec<SiteChange> {
        let mut changes = Vec::new();
        let fields = [
            ("sitename", &mut self.name, &input.name),
            ("dbname", &mut self.database, &input.database),
            ("base", &mut self.base, &input.base),
            ("generator", &mut self.generator, &input.generator),
            ("case", &mut self.case, &input.case),
            ("language", &mut self.language, &input.language),
        ];
        for (field, stored, input) in fields {
            merge_value(field, stored, input.as_ref(), replaces, &mut changes);
        }
        for namespace in &input.namespaces {
            self.merge_namespace(namespace, replaces, &mut changes);
        }
        if replaces && input.has_values() {
            self.as_of = self.as_of.max(input.as_of);
        }
        changes
    }

    fn merge_namespace(&mut self, input: &Namespace, replaces: bool, changes: &mut Vec<SiteChange>) {
        let Namespace { key, case, name } = input;
        match self.namespaces.iter_mut().find(|stored| stored.key == *key) {
            None => self.namespaces.push(input.clone()),
            Some(stored) => {
                let field = format!("case of namespace {key}");
                merge_value(&field, &mut stored.case, case.as_ref(), replaces, changes);
                if stored.name != *name {
                    let field = format!("name of namespace {key}");
                    changes.push(change(&field, &stored.name, name, replaces));
                    if replaces {
                        stored.name.clone_from(name);
                    }
                }
            }
        }
    }

    /// Whether there is any value besides the language, which the root of an export always has.
    fn has_values(&self) -> bool {
        let values = [&self.name, &self.database, &self.base, &self.generator, &self.case];
        !self.namespaces.is_empty() || values.into_iter().any(Option::is_some)
    }
}

fn merge_value(
    field: &str,
    stored: &mut Option<String>,
    input: Option<&String>,
    replaces: bool,
    changes: &mut Vec<SiteChange>,
) {
    let Some(input) = input.filter(|input| !input.is_empty()) else { return };
    match stored {
        Some(stored) if stored == input => {}
        Some(stored) => {
            changes.push(change(field, stored, input, replaces));
            if replaces {
                stored.clone_from(input);
            }
        }
        None => *stored = Some(input.clone()),
    }
}

fn change(field: &str, stored: &str, input: &str, is_replaced: bool) -> SiteChange {
    SiteChange { field: field.to_owned(), stored: excerpt(stored), input: excerpt(input), is_replaced }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Revision;

    fn site(name: Option<&str>, namespaces: &[(i64, &str)], as_of: i64) -> SiteInfo {
        let namespaces = namespaces.iter().map(|(key, name)| Namespace {
            key: *key,
            case: None,
            name: (*name).to_owned(),
        });
        SiteInfo {
            name: name.map(str::to_owned),
            database: None,
            base: None,
            generator: None,
            case: None,
            namespaces: namespaces.collect(),
            language: Some("en".to_owned()),
            as_of: Revision::new(as_of),
        }
    }

    #[test]
    fn empty_or_poorer_site_info_changes_nothing() {
        let full = site(Some("A"), &[(0, ""), (1, "Talk")], 5);
        for poorer in [site(None, &[], 6), site(Some(""), &[], 6)] {
            let mut merged = full.clone();
            assert_eq!(merged.merge(&poorer, true), []);
            assert_eq!((&merged.name, &merged.namespaces), (&full.name, &full.namespaces));
        }
        let mut merged = full.clone();
        assert_eq!(merged.merge(&site(None, &[(1, "Talk"), (2, "User")], 6), true), []);
        assert_eq!(merged.namespaces.len(), 3);
        assert_eq!(merged.as_of, Revision::new(6));
    }

    #[test]
    fn differences_are_reported_and_only_newer_values_replace_older_ones() {
        let stored = site(Some("A"), &[(1, "Talk")], 5);
        let other = site(Some("B"), &[(1, "Diskussion")], 7);
        for replaces in [false, true] {
            let mut merged = stored.clone();
            let changes = merged.merge(&other, replaces);
            assert_eq!(changes.len(), 2);
            assert!(changes.iter().all(|change| change.is_replaced == replaces));
            assert_eq!(merged, if replaces { other.clone() } else { stored.clone() });
        }
        let shown = stored.clone().merge(&other, true)[0].to_string();
        assert_eq!(shown, "the sitename of the wiki was \"A\" and is now \"B\"");
    }
}
