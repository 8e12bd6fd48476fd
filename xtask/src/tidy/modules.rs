//! The crates of the project, and the modules of their files.

use super::{Tree, rust::is_test};

/// The Rust files of a library or a program, without the files of its tests.
#[derive(Debug)]
pub(super) struct Crate<'a> {
    /// The folder of its package, such as `crates/server`, or else the folder of its root, such as
    /// `crates/a/src/bench`.
    pub(super) name: &'a str,
    pub(super) files: Vec<Module<'a>>,
}

/// A file as a module of its crate.
#[derive(Debug)]
pub(super) struct Module<'a> {
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    /// The names from the root of the crate. The root itself has none.
    pub(super) names: Vec<&'a str>,
}

/// All crates. A library and a program with one root folder count as one crate.
pub(super) fn crates(tree: &Tree) -> Vec<Crate<'_>> {
    let mut roots: Vec<&str> = tree.ending(".rs").filter_map(|(path, _)| root_folder(path)).collect();
    roots.sort_unstable();
    roots.dedup();
    let mut crates: Vec<Crate> = roots
        .iter()
        .map(|root| Crate { name: root.strip_suffix("/src").unwrap_or(root), files: Vec::new() })
        .collect();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| !is_test(path)) {
        // A root may lie within the folder of another root.
        let within = roots.iter().enumerate().filter_map(|(index, root)| {
            let rest = path.strip_prefix(root)?.strip_prefix('/')?;
            Some((root.len(), index, rest))
        });
        if let Some((_, index, rest)) = within.max() {
            crates[index].files.push(Module { path, text, names: names(rest) });
        }
    }
    crates
}

/// The folder of a file that is the root of a library or a program. `None` for any other file.
fn root_folder(path: &str) -> Option<&str> {
    let (folder, file) = path.rsplit_once('/')?;
    let is_root = matches!(file, "lib.rs" | "main.rs");
    (is_root && !is_test(path) && folder.split('/').any(|name| name == "src")).then_some(folder)
}

/// The names of the module in a file. The path of the file is relative to the root folder.
fn names(path: &str) -> Vec<&str> {
    let mut names: Vec<&str> = path.strip_suffix(".rs").unwrap_or(path).split('/').collect();
    if names.last() == Some(&"mod") || matches!(names[..], ["lib" | "main"]) {
        names.pop();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_the_nearest_root() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", ""),
            ("crates/a/src/main.rs", ""),
            ("crates/a/src/b.rs", ""),
            ("crates/a/src/b/c/mod.rs", ""),
            ("crates/a/src/b/tests.rs", ""),
            ("crates/a/src/bench/main.rs", ""),
            ("crates/a/src/bench/d.rs", ""),
            ("crates/a/tests/all/main.rs", ""),
            ("crates/ab/src/main.rs", ""),
        ]);
        let found: Vec<_> = crates(&tree)
            .into_iter()
            .map(|krate| {
                let names: Vec<_> = krate.files.iter().map(|file| file.names.join("::")).collect();
                (krate.name, names.join(" "))
            })
            .collect();
        let expected = [("crates/a", "b b::c  "), ("crates/a/src/bench", "d "), ("crates/ab", "")]
            .map(|(name, files)| (name, files.to_owned()));
        assert_eq!(found, expected);
    }
}
