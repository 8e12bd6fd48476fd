//! The version of a stored value, compared with the target.

use rashomon_protocol::spec_version::Profile;

/// The result of comparing the version of a stored value with the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredVersion {
    /// An earlier version of the spec. Only such a value is rewritten.
    Earlier,
    /// The version of the target. The patch number is ignored.
    Current,
    /// A later version of the spec.
    Later,
    /// The content type names no version, or a version of another spec.
    Other,
}

impl StoredVersion {
    /// Compares the version that a content type names with the target.
    #[must_use]
    pub fn of(content_type: &str, target: &Profile) -> Self {
        match Profile::of_content_type(content_type) {
            Some(stored) if stored.spec() != target.spec() => Self::Other,
            Some(stored) if target.is_later_than(&stored) => Self::Earlier,
            Some(stored) if stored.is_later_than(target) => Self::Later,
            Some(_) => Self::Current,
            None => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_major_and_minor_number() {
        let target = Profile::parse("https://example.org/html/2.8.0").unwrap();
        for (profile, expected) in [
            ("html/2.7.9", StoredVersion::Earlier),
            ("html/1.9.0", StoredVersion::Earlier),
            ("html/2.8.0", StoredVersion::Current),
            ("html/2.8.5", StoredVersion::Current),
            ("html/2.8", StoredVersion::Current),
            ("html/2.10.0", StoredVersion::Later),
            ("html/3.0.0", StoredVersion::Later),
            ("other/2.7.0", StoredVersion::Other),
            ("html/nonsense", StoredVersion::Other),
        ] {
            let content_type = format!("text/html; profile=\"https://example.org/{profile}\"");
            assert_eq!(StoredVersion::of(&content_type, &target), expected, "{profile}");
        }
        for content_type in ["text/html; charset=utf-8", "nonsense", ""] {
            assert_eq!(StoredVersion::of(content_type, &target), StoredVersion::Other);
        }
    }
}
