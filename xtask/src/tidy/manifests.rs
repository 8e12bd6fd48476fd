//! The manifests of packages.

use toml::{Table, Value};

use super::{Problem, Tree};

/// Checks that every crate uses the lints of the workspace.
pub(super) fn workspace_lints(tree: &Tree) -> Vec<Problem> {
    packages(tree)
        .filter(|(_, manifest)| {
            let lints = manifest.as_ref().ok().and_then(|manifest| manifest.get("lints")?.get("workspace"));
            lints.and_then(Value::as_bool) != Some(true)
        })
        .map(|(path, _)| Problem::file(path, "add `[lints]` with `workspace = true`"))
        .collect()
}

/// The manifests of packages. The workspace's own manifest is not included.
fn packages(tree: &Tree) -> impl Iterator<Item = (&str, Result<Table, toml::de::Error>)> {
    tree.texts()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"))
        .map(|(path, text)| (path, text.parse::<Table>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_the_lints_of_the_workspace_is_named() {
        let without = Tree::of(&[("crates/a/Cargo.toml", "[package]\nname = \"a\"")]);
        assert_eq!(workspace_lints(&without).len(), 1);
        let with = Tree::of(&[("crates/a/Cargo.toml", "[package]\n[lints]\nworkspace = true")]);
        assert!(workspace_lints(&with).is_empty());
    }
}
