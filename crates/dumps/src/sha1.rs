//! SHA-1 in MediaWiki's notation: 31 digits in base 36.

use rashomon_pages::Sha1;

/// Computes the SHA-1 of a revision from the SHA-1 values of its slots, which are in the order of their
/// roles. All values are in base 36. Each further value is appended to the result so far, and both are hashed
/// together (`RevisionSlots::computeSha1` of MediaWiki).
pub(crate) fn combine<'a>(slots: impl IntoIterator<Item = &'a str>) -> Option<String> {
    (slots.into_iter().map(str::to_owned))
        .reduce(|before, slot| Sha1::of(format!("{before}{slot}").as_bytes()).to_base36())
}

/// Whether the SHA-1 that an export declares is the actual SHA-1. Some exports have the value in hex.
pub(crate) fn is_same(declared: &str, actual: Sha1) -> bool {
    if declared.len() == 2 * actual.0.len() {
        return declared.eq_ignore_ascii_case(&actual.to_string());
    }
    is_same_base36(declared, &actual.to_base36())
}

/// Whether two SHA-1 values in base 36 are the same. Leading zeros are missing in some exports.
pub(crate) fn is_same_base36(declared: &str, actual: &str) -> bool {
    declared.trim_start_matches('0').eq_ignore_ascii_case(actual.trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha1_in_base_36_and_in_hex_agree() {
        let sha1 = Sha1::of(b"");
        assert!(is_same("phoiac9h4m842xq45sp7s6u21eteeq1", sha1));
        assert!(is_same("da39a3ee5e6b4b0d3255bfef95601890afd80709", sha1));
        assert!(!is_same("da39a3ee5e6b4b0d3255bfef95601890afd80708", sha1));
        assert!(is_same("1", Sha1([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])));
        assert!(!is_same("phoiac9h4m842xq45sp7s6u21eteeq0", sha1));
    }

    #[test]
    fn slots_are_hashed_in_order() {
        let (one, two) = (Sha1::of(b"one").to_base36(), Sha1::of(b"two").to_base36());
        assert_eq!(combine([one.as_str()]), Some(one.clone()));
        assert_eq!(combine([]), None);
        let both = Sha1::of(format!("{one}{two}").as_bytes()).to_base36();
        assert_eq!(combine([one.as_str(), two.as_str()]), Some(both));
    }
}
