//! Values of a record that a block omits, because readers can derive them from other values in the block.

use rashomon_records::{ExportRecord, Parent, PropertyInfo, PropertyName, Revision, rows::Properties};

/// Which export fields of a revision can be derived from the revision: a sum of these flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ExportParts(i64);

impl ExportParts {
    /// The SHA-1 of the revision is that of the text, in MediaWiki's notation.
    const SHA1: i64 = 1;
    /// The SHA-1 of the main slot is that of the text.
    const MAIN_SHA1: i64 = 2;
    /// The main slot has as many bytes as the text.
    const MAIN_BYTES: i64 = 4;
    /// The text of the main slot was first stored with this revision.
    const MAIN_ORIGIN: i64 = 8;

    pub(crate) fn of_code(code: Option<i64>) -> Self {
        Self(code.unwrap_or(0))
    }

    pub(crate) const fn code(self) -> Option<i64> {
        if self.0 == 0 { None } else { Some(self.0) }
    }
}

/// The export fields that are derived from a revision and its bodies.
struct DerivedExport {
    /// `None` if no field has a SHA-1, since it takes a while to make.
    sha1: Option<String>,
    bytes: Option<i64>,
    origin: Option<i64>,
}

impl DerivedExport {
    fn of(rev: Revision, bodies: &Properties, has_sha1: bool) -> Self {
        let text: Option<&PropertyInfo> = bodies.get(&PropertyName::wikitext());
        Self {
            sha1: text.filter(|_| has_sha1).map(|text| text.sha1.to_base36()),
            bytes: text.and_then(|text| i64::try_from(text.size).ok()),
            origin: Some(rev.get()),
        }
    }
}

/// Removes the derivable values from the export fields of a revision. Returns which values it removed.
pub(crate) fn remove_derivable(export: &mut ExportRecord, rev: Revision, bodies: &Properties) -> ExportParts {
    let has_sha1 = export.sha1.is_some() || export.main.as_ref().is_some_and(|main| main.sha1.is_some());
    let expected = DerivedExport::of(rev, bodies, has_sha1);
    let mut parts = ExportParts::default();
    take(&mut export.sha1, &expected.sha1, ExportParts::SHA1, &mut parts);
    if let Some(main) = &mut export.main {
        take(&mut main.sha1, &expected.sha1, ExportParts::MAIN_SHA1, &mut parts);
        take(&mut main.bytes, &expected.bytes, ExportParts::MAIN_BYTES, &mut parts);
        take(&mut main.origin, &expected.origin, ExportParts::MAIN_ORIGIN, &mut parts);
    }
    parts
}

fn take<T: PartialEq>(value: &mut Option<T>, expected: &Option<T>, part: i64, parts: &mut ExportParts) {
    if value.is_some() && value == expected {
        *value = None;
        parts.0 |= part;
    }
}

/// Restores the values that [`remove_derivable`] removed. Returns `None` if a value cannot be derived.
pub(crate) fn restore_derivable(
    export: &mut ExportRecord,
    parts: ExportParts,
    rev: Revision,
    bodies: &Properties,
) -> Option<()> {
    if parts.0 == 0 {
        return Some(());
    }
    let put = |part: i64| parts.0 & part != 0;
    let expected = DerivedExport::of(rev, bodies, put(ExportParts::SHA1 | ExportParts::MAIN_SHA1));
    if put(ExportParts::SHA1) {
        export.sha1 = Some(expected.sha1.clone()?);
    }
    if parts.0 > ExportParts::SHA1 {
        let main = export.main.as_mut()?;
        if put(ExportParts::MAIN_SHA1) {
            main.sha1 = Some(expected.sha1?);
        }
        if put(ExportParts::MAIN_BYTES) {
            main.bytes = Some(expected.bytes?);
        }
        if put(ExportParts::MAIN_ORIGIN) {
            main.origin = expected.origin;
        }
    }
    Some(())
}

/// Encodes the parent of a revision. `above` is the page's previous revision in the block. The code is 0 for
/// no parent, 1 if the parent is `above`, and otherwise the negative number of the parent.
pub(crate) fn parent_to_number(parent: Parent, above: Option<Revision>) -> i64 {
    match parent {
        Parent::Revision(rev) if Some(rev) == above => 1,
        Parent::Revision(rev) => -rev.get(),
        Parent::None => 0,
    }
}

/// Decodes the result of [`parent_to_number`]. Returns `None` if the number is invalid.
pub(crate) fn parent_from_number(number: i64, above: Option<Revision>) -> Option<Parent> {
    match number {
        0 => Some(Parent::None),
        1 => above.map(Parent::Revision),
        _ => number.checked_neg().and_then(Revision::new).map(Parent::Revision),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rev(number: i64) -> Revision {
        Revision::new(number).expect("a valid revision")
    }

    #[test]
    fn parent_numbers_round_trip_and_invalid_ones_are_refused() {
        let parents = [
            Parent::None,
            Parent::Revision(rev(1)),
            Parent::Revision(rev(7)),
            Parent::Revision(Revision::MAX),
        ];
        for parent in parents {
            for above in [None, Some(rev(1)), Some(rev(7)), Some(Revision::MAX)] {
                let number = parent_to_number(parent, above);
                assert_eq!(parent_from_number(number, above), Some(parent), "{number} {above:?}");
            }
        }
        assert_eq!(parent_from_number(1, None), None);
        assert_eq!(parent_from_number(2, Some(rev(1))), None);
        assert_eq!(parent_from_number(i64::MIN, Some(rev(1))), None);
    }
}
