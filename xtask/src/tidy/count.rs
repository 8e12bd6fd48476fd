//! `cargo xtask count`: sizes of the project that can be compared between versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Tree,
    imports::{Import, imports},
    modules::{Crate, crates},
    rust::is_test,
    source::{code, without_tests},
};

/// What a newcomer reads before a first change.
const OF_NEWCOMERS: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Documents that programs write.
const GENERATED: [&str; 2] = ["docs/http-api.md", "crates/server/templates/http-api.md"];

/// Folders with tools, and with what tests the program.
const TOOLS: [&str; 3] = ["xtask/", "crates/testing/", "fuzz/"];

/// The document whose tables have the settings, and the heads of these tables.
const SETTINGS: (&str, [&str; 2]) = ("docs/configuration.md", ["| setting ", "| key "]);

/// Counts, and prints one line for each figure.
pub fn run(root: &Path) -> Result<bool> {
    let tree = Tree::load(root)?;
    let lines = |chosen: &dyn Fn(&str) -> bool| -> usize {
        tree.ending(".rs").filter(|(path, _)| chosen(path)).map(|(path, text)| lines_of(path, text)).sum()
    };
    let is_tool = |path: &str| TOOLS.iter().any(|folder| path.starts_with(folder));
    let words = |chosen: &dyn Fn(&str) -> bool| -> usize {
        tree.ending(".md")
            .filter(|(path, _)| chosen(path))
            .map(|(_, text)| text.split_whitespace().count())
            .sum()
    };
    let is_counted = |path: &str| !path.starts_with("docs/decisions/") && !GENERATED.contains(&path);
    let manifests = tree.texts().filter(|(path, _)| path.ends_with("Cargo.toml")).count();
    let (size, crate_name) = largest_circle(&tree);
    println!("lines of Rust without tests: {}", lines(&|_| true));
    println!("  of the program: {}", lines(&|path| !is_tool(path)));
    println!("  of tools (xtask, testing, fuzz): {}", lines(&is_tool));
    println!("manifests (Cargo.toml): {manifests}");
    println!("floors of crates, without fuzz: {}", floors(root)?);
    println!("settings (rows in {}): {}", SETTINGS.0, settings(tree.text(SETTINGS.0).unwrap_or_default()));
    println!("largest import circle of files: {size} (in {crate_name})");
    println!("words of Markdown, without decisions and generated pages: {}", words(&is_counted));
    println!("  of them in {}: {}", OF_NEWCOMERS.join(", "), words(&|path| OF_NEWCOMERS.contains(&path)));
    Ok(true)
}

/// The lines of a file before its tests.
fn lines_of(path: &str, text: &str) -> usize {
    if is_test(path) {
        return 0;
    }
    let lines: Vec<&str> = text.lines().collect();
    let begins_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ");
    lines.windows(2).position(begins_tests).unwrap_or(lines.len())
}

fn settings(document: &str) -> usize {
    let tables = document.split("\n\n").filter(|part| SETTINGS.1.iter().any(|head| part.starts_with(head)));
    tables.map(|table| table.lines().filter(|line| line.starts_with('|')).count().saturating_sub(2)).sum()
}

/// The number of crates in the longest chain of crates that use each other, tests aside.
fn floors(root: &Path) -> Result<usize> {
    let metadata = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    let metadata: Value = serde_json::from_slice(&metadata.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = packages.iter().map(name).collect();
    let uses: BTreeMap<String, Vec<String>> = packages
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().into_iter().flatten();
            let normal = all.filter(|dependency| dependency["kind"].is_null()).map(name);
            (name(package), normal.filter(|used| names.contains(used)).collect())
        })
        .collect();
    fn height(of: &str, uses: &BTreeMap<String, Vec<String>>) -> usize {
        1 + uses[of].iter().map(|used| height(used, uses)).max().unwrap_or(0)
    }
    Ok(uses.keys().map(|name| height(name, &uses)).max().unwrap_or(0))
}

/// The size of the largest set of files of a crate that import each other, and the crate. Names that a `mod.rs` or a
/// root passes on are followed to the file that defines them.
fn largest_circle(tree: &Tree) -> (usize, String) {
    let of = |krate: &Crate<'_>| (largest_circle_of(krate), krate.name.to_owned());
    crates(tree).iter().map(of).max().unwrap_or_default()
}

fn largest_circle_of(krate: &Crate<'_>) -> usize {
    let index: BTreeMap<Vec<String>, usize> = krate
        .files
        .iter()
        .enumerate()
        .map(|(number, file)| (file.names.iter().map(|name| (*name).to_owned()).collect(), number))
        .collect();
    let all: Vec<Vec<Import>> =
        krate.files.iter().map(|file| imports(&without_tests(&code(file.text)), &file.names)).collect();
    let passes_on = |number: usize| {
        ["/mod.rs", "/lib.rs", "/main.rs"].iter().any(|end| krate.files[number].path.ends_with(end))
    };
    let target = |path: &[String]| {
        let mut path = path.to_vec();
        // A name may be passed on through several folders.
        for _ in 0..4 {
            let length = (0..=path.len()).rev().find(|length| index.contains_key(&path[..*length]))?;
            let file = index[&path[..length]];
            let name = path.get(length);
            let next = all[file].iter().find(|import| name.is_some() && import.name.as_ref() == name);
            match next.filter(|_| passes_on(file)) {
                Some(import) if import.path != path => path.clone_from(&import.path),
                _ => return Some(file),
            }
        }
        None
    };
    let edges: Vec<BTreeSet<usize>> = all
        .iter()
        .enumerate()
        .map(|(from, imports)| {
            let counted = imports.iter().filter(|import| import.name.is_none() || !passes_on(from));
            counted.filter_map(|import| target(&import.path)).filter(|to| *to != from).collect()
        })
        .collect();
    let reachable: Vec<BTreeSet<usize>> = (0..edges.len())
        .map(|from| {
            let (mut seen, mut waiting) = (BTreeSet::new(), vec![from]);
            while let Some(next) = waiting.pop() {
                waiting.extend(edges[next].iter().filter(|to| seen.insert(**to)));
            }
            seen
        })
        .collect();
    let circle =
        |file: usize| reachable[file].iter().filter(|other| reachable[**other].contains(&file)).count();
    (0..edges.len()).map(circle).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_up_to_the_tests() {
        assert_eq!(lines_of("a/src/b.rs", "//! A.\n\nfn b() {}\n\n#[cfg(test)]\nmod tests {\n}\n"), 4);
        assert_eq!(lines_of("a/src/b.rs", "fn b() {}\n"), 1);
        assert_eq!(lines_of("a/tests/b.rs", "fn b() {}\n"), 0);
    }

    #[test]
    fn settings_are_the_rows_of_their_tables() {
        let document = "# A\n\n| setting | default |\n|---|---|\n| a | 1 |\n| b | 2 |\n\n| code | x |\n|---|---|\n| 0 | y |\n";
        assert_eq!(settings(document), 2);
    }

    #[test]
    fn circle_leads_through_names_that_a_folder_passes_on() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "mod b;\nmod d;\npub use b::C;\n"),
            ("crates/a/src/b/mod.rs", "mod c;\npub use self::c::C;\n"),
            ("crates/a/src/b/c.rs", "use crate::d::D;\npub struct C(D);\n"),
            ("crates/a/src/d.rs", "use crate::C;\npub struct D(Box<C>);\n"),
        ]);
        assert_eq!(largest_circle(&tree), (2, "crates/a".to_owned()));
    }
}
