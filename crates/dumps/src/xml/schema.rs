//! The namespaces and versions of exports. They are only reported: elements are read by their names.

use crate::LeftOut;

/// The beginning of the namespace of each version of exports.
const NAMESPACE: &str = "http://www.mediawiki.org/xml/export-";

/// What a root says about the format.
pub(super) struct Schema {
    pub(super) namespace: Option<String>,
    pub(super) version: Option<String>,
}

impl Schema {
    /// Describes a namespace or a version that is not one of MediaWiki's exports.
    pub(super) fn notice(&self) -> Option<String> {
        if let Some(namespace) = self.namespace.as_deref().filter(|namespace| !is_of_exports(namespace)) {
            return Some(format!(
                "the namespace {:?} is not that of an export from 0.1 to 0.11: elements are read as those of 0.11",
                LeftOut::shorten(namespace)
            ));
        }
        let version = self.version.as_deref().filter(|version| !is_known(version))?;
        Some(format!(
            "the version {:?} is not one from 0.1 to 0.11: elements are read as those of 0.11",
            LeftOut::shorten(version)
        ))
    }
}

/// Whether a namespace is that of MediaWiki's exports in a known version.
pub(super) fn is_of_exports(namespace: &str) -> bool {
    let version = namespace.strip_prefix(NAMESPACE).and_then(|rest| rest.strip_suffix('/'));
    version.is_some_and(is_known)
}

fn is_known(version: &str) -> bool {
    let minor = version.strip_prefix("0.").and_then(|minor| minor.parse().ok());
    minor.is_some_and(|minor: u8| (1..=11).contains(&minor))
}
