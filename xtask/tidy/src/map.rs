//! The map of the crates in `ARCHITECTURE.md`, made from the table of [`dependencies`](super::dependencies).

use std::{cmp::Reverse, fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result};

use super::{
    Problem, Tree,
    dependencies::{ALLOWED_DEPENDENCIES, reachable},
};

/// The page with the map.
const PAGE: &str = "ARCHITECTURE.md";

/// The lines around the map.
const BEGIN: &str = "<!-- The map of the crates: `cargo xtask tidy --write` writes it. -->";
const END: &str = "<!-- The end of the map. -->";

/// The binary. Crates that it does not use are tests and tools. The client has a place of its own, although the
/// binary uses it.
const BINARY: &str = "rashomon";

/// The library for programs that use the service.
const CLIENT: &str = "rashomon-client";

/// Checks that the map in the page matches the table.
pub(super) fn differences(tree: &Tree) -> Vec<Problem> {
    let text = tree.text(PAGE).unwrap_or_default();
    match with_map(text) {
        None => vec![Problem::file(PAGE, "the two comments around the map of the crates are missing")],
        Some(current) if current != text => {
            let message = "the map of the crates differs from xtask/tidy/src/dependencies.rs: \
                           run `cargo xtask tidy --write`";
            vec![Problem::file(PAGE, message)]
        }
        Some(_) => Vec::new(),
    }
}

/// Writes the map into the page.
pub(super) fn write(root: &Path) -> Result<()> {
    let path = root.join(PAGE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let current =
        with_map(&text).with_context(|| format!("{PAGE} has no place for the map of the crates"))?;
    fs::write(&path, current).with_context(|| format!("cannot write {PAGE}"))
}

/// Returns the page with its map replaced by one that is made from the table. `None` if the comments around the map are
/// missing.
fn with_map(page: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n```text\n{}```\n\n{END}{after}", map()))
}

/// A line for each crate: its layer, its name, and the crates that it may use. A used crate is omitted if
/// another used crate depends on it. The crates of the service come first, with the highest layer at the top.
/// The client, and then tests and tools, follow.
fn map() -> String {
    let mut crates: Vec<_> =
        ALLOWED_DEPENDENCIES.iter().map(|(name, uses)| (layer(name), *name, direct(uses))).collect();
    crates.sort_by_key(|(layer, name, _)| (Reverse(*layer), short(name)));
    let mut map = String::new();
    let part = |name: &str| match name {
        CLIENT => "\nthe client\n",
        _ if reachable(BINARY, name) => "the service\n",
        _ => "\ntests and tools\n",
    };
    for heading in ["the service\n", "\nthe client\n", "\ntests and tools\n"] {
        map.push_str(heading);
        let mut above = None;
        for (layer, name, uses) in crates.iter().filter(|(_, name, _)| part(name) == heading) {
            let shown = if above == Some(layer) { String::new() } else { layer.to_string() };
            let line = format!("{shown:>1} {:<17}{}", short(name), uses.join(", "));
            writeln!(map, "{}", line.trim_end()).expect("a String takes all text");
            above = Some(layer);
        }
    }
    map
}

/// The crates that no other crate of the list depends on.
fn direct(uses: &[&'static str]) -> Vec<&'static str> {
    let is_implied = |used: &str| uses.iter().any(|other| *other != used && reachable(other, used));
    let mut direct: Vec<_> = uses.iter().filter(|used| !is_implied(used)).map(|used| short(used)).collect();
    direct.sort_unstable();
    direct
}

/// The layer of a crate: one above the highest layer of the crates that it uses.
fn layer(name: &str) -> usize {
    let (_, uses) =
        ALLOWED_DEPENDENCIES.iter().find(|(other, _)| *other == name).expect("the table has all crates");
    uses.iter().map(|used| layer(used) + 1).max().unwrap_or(0)
}

/// The name of the crate on the map: without `rashomon-`, and `cli` for the binary.
fn short(name: &str) -> &str {
    if name == BINARY { "cli" } else { name.strip_prefix("rashomon-").unwrap_or(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_has_a_line_for_each_crate() {
        let map = map();
        let position = |line: &str| map.find(line).unwrap_or_else(|| panic!("{line:?} is not in\n{map}"));
        let line = |name: &str| position(&format!(" {name} "));
        assert!(ALLOWED_DEPENDENCIES.iter().all(|(name, _)| map.contains(&format!(" {}", short(name)))));
        assert!(
            line("cli") < line("api") && line("api") < line("buckets") && line("buckets") < line("tables")
        );
        assert!(line("tables") < line("simulation"), "the tools come last:\n{map}");
        // `clock` is implied by `tables`, and `tables` by `records`.
        assert!(position(" archive-format   blocks, records\n") < position(" tables           clock\n"));
        assert!(map.lines().count() <= 60 && map.lines().all(|line| line.len() <= 120), "{map}");
    }

    #[test]
    fn a_map_that_differs_from_the_table_is_a_problem() {
        let check = |page: &str| differences(&Tree::of(&[(PAGE, page)])).len();
        let outdated = format!("# A\n\n{BEGIN}\nold\n{END}\n\nB\n");
        let current = with_map(&outdated).expect("the page has both comments");
        assert!(current.starts_with("# A\n\n<!--") && current.ends_with("-->\n\nB\n"));
        assert_eq!([check(&outdated), check(&current), check("# A\n")], [1, 0, 1]);
    }
}
