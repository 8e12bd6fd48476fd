//! Checks of text of any kind: white space, paths of one machine, and registries of packages.

use super::{Problem, Tree};

/// Whether a file is data for tests. Such files may have any content.
pub(super) fn is_test_data(path: &str) -> bool {
    path.contains("/tests/data/") || path.contains("/snapshots/") || path.starts_with("fuzz/seeds/")
}

/// Checks that no line ends in white space, and that a file ends with one line break.
pub(super) fn white_space(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, text)| !is_test_data(path) && !text.is_empty()) {
        for (index, line) in text.split('\n').enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                problems.push(Problem::line(path, index, "white space at the end of the line"));
            }
        }
        if !text.ends_with('\n') {
            problems.push(Problem::file(path, "the file does not end with a line break"));
        } else if text.ends_with("\n\n") {
            problems.push(Problem::file(path, "empty lines at the end"));
        }
    }
    problems
}

/// The beginnings of folders of people and machines. They are split, so that this file does not contain them.
const MACHINE: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Checks that no path is used that exists on one machine only.
pub(super) fn machine(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            for folder in MACHINE {
                // After a letter, the match is in the middle of a path or of an address.
                let absolute = line.match_indices(folder).any(|(at, _)| {
                    !line[..at].ends_with(|letter: char| letter.is_alphanumeric() || ".}-_".contains(letter))
                });
                if absolute {
                    problems.push(Problem::line(
                        path,
                        index,
                        format!("`{folder}` is a folder of one machine: use another path"),
                    ));
                }
            }
        }
    }
    problems
}

/// The only registry that the lock file may name. Mirrors belong in a machine's own configuration.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Hosts of packages, and words of mirrors. They are split, so that this file does not contain them.
const HOSTS: &[&str] = &[
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("registry.", "npmjs"),
    concat!("registry.", "yarnpkg"),
    concat!("py", "pi.org"),
    concat!("files.", "pythonhosted"),
    concat!("proxy.", "golang"),
    concat!("deb.", "debian.org"),
    concat!("arti", "factory"),
    concat!("replace", "-with"),
];

/// Checks that no file names a host of packages, and that lock files name only the public registry.
pub(super) fn registries(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            if let Some(host) = HOSTS.iter().find(|host| line.contains(**host)) {
                problems.push(Problem::line(
                    path,
                    index,
                    format!("`{host}`: the source of packages belongs in the configuration of the machine"),
                ));
            }
            let source = line.strip_prefix("source = \"").and_then(|rest| rest.strip_suffix('"'));
            if path.ends_with("Cargo.lock") && source.is_some_and(|source| source != REGISTRY) {
                problems.push(Problem::line(path, index, "this package is not from the public registry"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(path: &str, text: &str) -> Tree {
        Tree::of(&[(path, text)])
    }

    #[test]
    fn white_space_at_the_ends_is_found() {
        assert_eq!(white_space(&with("a.md", "a\nb \nc\t\n")).len(), 2);
        assert_eq!(white_space(&with("a.md", "a\r\n")).len(), 1);
        assert_eq!(white_space(&with("a.md", "a")).len(), 1);
        assert_eq!(white_space(&with("a.md", "a\n\n")).len(), 1);
        assert_eq!(white_space(&with("a.md", "a\n\nb\n")), []);
        assert_eq!(white_space(&with("a.md", "")), []);
        assert_eq!(white_space(&with("crates/a/tests/data/a.xml", "a ")), []);
    }

    #[test]
    fn folders_of_one_machine_are_found_and_addresses_are_not() {
        for folder in MACHINE {
            assert_eq!(machine(&with("a.md", &format!("see {folder}a\n"))).len(), 1, "{folder}");
            assert_eq!(machine(&with("a.md", &format!("https://example.org{folder}a\n"))), [], "{folder}");
            assert_eq!(machine(&with("a.md", &format!("docs{folder}a\n"))), [], "{folder}");
        }
    }

    #[test]
    fn registries_are_found() {
        for host in HOSTS {
            assert_eq!(
                registries(&with(".cargo/config.toml", &format!("a = \"{host}\"\n"))).len(),
                1,
                "{host}"
            );
        }
        let lock = format!("source = \"{REGISTRY}\"\n");
        assert_eq!(registries(&with("Cargo.lock", &lock)), []);
        assert_eq!(
            registries(&with("Cargo.lock", "source = \"registry+https://mirror.example/\"\n")).len(),
            1
        );
        assert_eq!(registries(&with("Cargo.lock", "source = \"git+https://example.org/a\"\n")).len(), 1);
    }
}
