//! The case of the first letter of a title, by the rules of the wiki from which the pages come (`siteinfo`).

use rashomon_pages::SiteInfo;

/// The rule of MediaWiki by which a title begins with a capital letter.
const FIRST_LETTER: &str = "first-letter";

/// Whether a wiki could spell a title in another way: the title, or the text after its first colon, begins with a small
/// letter. Costs little, so that most titles need no look at the rules of the wiki.
pub(super) fn may_differ(title: &str) -> bool {
    let after_colon = title.split_once(':').map_or("", |(_, rest)| rest.trim_start_matches('_'));
    [title, after_colon].into_iter().any(|text| capital(text).is_some())
}

/// Returns the spelling of a title in a wiki. `None` if it is the same.
pub(super) fn spelled_by(site: &SiteInfo, title: &str) -> Option<String> {
    let is_first_letter = |case: Option<&str>| case.or(site.case.as_deref()) == Some(FIRST_LETTER);
    let spell = |text: &str, case: Option<&str>| match capital(text).filter(|_| is_first_letter(case)) {
        Some(capital) => capital,
        None => text.to_owned(),
    };
    let namespace = title.split_once(':').and_then(|(name, rest)| {
        let has_name = |known: &str| known.replace(' ', "_").to_lowercase() == name.to_lowercase();
        let found = site.namespaces.iter().find(|known| !known.name.is_empty() && has_name(&known.name))?;
        Some((found, rest.trim_start_matches('_')))
    });
    let spelled = match namespace {
        Some((namespace, rest)) => {
            format!("{}:{}", namespace.name.replace(' ', "_"), spell(rest, namespace.case.as_deref()))
        }
        None => {
            let main = site.namespaces.iter().find(|namespace| namespace.key == 0);
            spell(title, main.and_then(|main| main.case.as_deref()))
        }
    };
    (spelled != title).then_some(spelled)
}

/// Returns a text with a capital first letter. `None` if the letter has no capital form in MediaWiki: for the German
/// sharp s, for example, the capital form has two letters, and Georgian has no capital letters in titles.
fn capital(text: &str) -> Option<String> {
    let first = text.chars().next()?;
    let mut upper = first.to_uppercase();
    let (Some(capital), None) = (upper.next(), upper.next()) else { return None };
    let is_georgian = ('\u{10d0}'..='\u{10ff}').contains(&first);
    (capital != first && !is_georgian).then(|| format!("{capital}{}", &text[first.len_utf8()..]))
}

#[cfg(test)]
mod tests {
    use rashomon_pages::Namespace;

    use super::*;

    fn site(case: &str) -> SiteInfo {
        let namespace = |key, name: &str, case: Option<&str>| Namespace {
            key,
            case: case.map(str::to_owned),
            name: name.to_owned(),
        };
        SiteInfo {
            name: None,
            database: None,
            base: None,
            generator: None,
            case: Some(case.to_owned()),
            namespaces: vec![
                namespace(0, "", None),
                namespace(1, "Talk", None),
                namespace(3, "User talk", Some("first-letter")),
                namespace(828, "Module", Some("case-sensitive")),
            ],
            language: None,
            as_of: None,
        }
    }

    #[test]
    fn titles_begin_with_a_capital_letter_where_the_wiki_says_so() {
        for (title, first_letter, case_sensitive) in [
            ("foo_bar", Some("Foo_bar"), None),
            ("Foo_bar", None, None),
            ("élan", Some("Élan"), None),
            ("ßen", None, None),
            ("საქართველო", None, None),
            ("1a", None, None),
            ("Talk:foo", Some("Talk:Foo"), None),
            ("talk:foo", Some("Talk:Foo"), Some("Talk:foo")),
            ("user_talk:ann", Some("User_talk:Ann"), Some("User_talk:Ann")),
            ("User_talk:_ann", Some("User_talk:Ann"), Some("User_talk:Ann")),
            ("Module:foo", None, None),
            ("Star:foo", None, None),
            ("star:foo", Some("Star:foo"), None),
        ] {
            let spelled = |case| spelled_by(&site(case), title);
            assert_eq!(spelled("first-letter").as_deref(), first_letter, "{title}");
            assert_eq!(spelled("case-sensitive").as_deref(), case_sensitive, "{title}");
            if first_letter.is_some() {
                assert!(may_differ(title), "{title}");
            }
        }
        assert!(!may_differ("Talk:Foo") && !may_differ("Foo") && !may_differ("ß:ß") && !may_differ(":"));
        let without = SiteInfo { case: None, namespaces: Vec::new(), ..site("") };
        assert_eq!(spelled_by(&without, "foo"), None);
    }
}
