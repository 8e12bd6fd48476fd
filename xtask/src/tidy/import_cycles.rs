//! Import cycles between the folders of a crate.
//!
//! A folder is a top-level module of several files. A cycle is refused if a folder is part of the cycle. Files within
//! one folder may import each other. Top-level modules of a single file may do so, too, because their folder is `src`.
//! A call of a method is not an import, because a method needs no `use`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Problem, Tree,
    imports::{Import, imports},
    modules::{Crate, crates},
    source::{code, line_at, without_tests},
};

/// Imports that are in cycles at present: crate, importing module, imported module. The list may only shrink.
const CYCLES: &[(&str, &str, &str)] = &[];

/// The file with [`CYCLES`].
const THIS_FILE: &str = "xtask/src/tidy/import_cycles.rs";

/// Checks that folders are in cycles only by the listed imports, and that the list has no others.
pub(super) fn between_folders(tree: &Tree) -> Vec<Problem> {
    between_folders_except(tree, CYCLES)
}

fn between_folders_except(tree: &Tree, listed: &[(&str, &str, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut found = BTreeSet::new();
    for krate in crates(tree) {
        let graph = ImportGraph::of(&krate);
        for (from, to, way_back) in graph.cycles() {
            found.insert((krate.name, from, to));
            if listed.contains(&(krate.name, from, to)) {
                continue;
            }
            let (path, line) = graph.places[&(from, to)];
            problems.push(Problem::line(
                path,
                line,
                format!(
                    "`{from}` imports `{to}`, and there is a way back: {}. Move what both need to a module below both",
                    way_back.join(" -> ")
                ),
            ));
        }
    }
    for (krate, from, to) in listed.iter().filter(|entry| !found.contains(*entry)) {
        problems.push(Problem::file(
            THIS_FILE,
            format!(
                "{krate}: the import of `{to}` by `{from}` is in no cycle any more. Remove it from the list"
            ),
        ));
    }
    problems
}

/// The imports between the top-level modules of a crate.
struct ImportGraph<'a> {
    /// The modules of several files.
    folders: BTreeSet<&'a str>,
    /// The first import of each pair: its file and the index of its line.
    places: BTreeMap<(&'a str, &'a str), (&'a str, usize)>,
}

impl<'a> ImportGraph<'a> {
    fn of(krate: &Crate<'a>) -> Self {
        let tops: Vec<&'a str> = krate.files.iter().filter_map(|file| file.names.first().copied()).collect();
        let is_folder = |name: &&'a str| tops.iter().filter(|top| *top == name).count() > 1;
        let folders = tops.iter().copied().filter(is_folder).collect();
        let modules: BTreeSet<&'a str> = tops.iter().copied().collect();
        let files: Vec<(usize, Vec<Import>)> = krate
            .files
            .iter()
            .enumerate()
            .map(|(index, file)| (index, imports(&without_tests(&code(file.text)), &file.names)))
            .collect();

        // An import of a name at the root of the crate is followed to the module that defines the name.
        let mut at_root: BTreeMap<&str, &'a str> = BTreeMap::new();
        for import in files.iter().flat_map(|(_, imports)| imports).filter(|import| import.module.is_empty())
        {
            let module = import.path.first().and_then(|first| modules.get(first.as_str()));
            if let (Some(name), Some(module)) = (&import.name, module) {
                at_root.insert(name, module);
            }
        }

        let mut places = BTreeMap::new();
        for (index, imports) in &files {
            let file = &krate.files[*index];
            for import in imports {
                let Some(from) = import.module.first().and_then(|first| modules.get(first.as_str())) else {
                    continue;
                };
                for to in targets(import, &modules, &at_root).filter(|to| to != from) {
                    places
                        .entry((*from, to))
                        .or_insert_with(|| (file.path, line_at(file.text, import.offset)));
                }
            }
        }
        Self { folders, places }
    }

    /// The imports that begin or end at a folder and are in a cycle, with the shortest path back.
    fn cycles(&self) -> impl Iterator<Item = (&'a str, &'a str, Vec<&'a str>)> {
        let at_folder =
            self.places.keys().filter(|(from, to)| self.folders.contains(from) || self.folders.contains(to));
        at_folder.filter_map(|(from, to)| Some((*from, *to, self.shortest_path(to, from)?)))
    }

    /// The shortest path along imports, with both ends.
    fn shortest_path(&self, from: &'a str, to: &'a str) -> Option<Vec<&'a str>> {
        let mut seen = BTreeSet::from([from]);
        let mut paths = VecDeque::from([vec![from]]);
        while let Some(path) = paths.pop_front() {
            let end = path[path.len() - 1];
            if end == to {
                return Some(path);
            }
            for (_, next) in self.places.keys().filter(|(begin, _)| *begin == end) {
                if seen.insert(next) {
                    paths.push_back([&path[..], &[next]].concat());
                }
            }
        }
        None
    }
}

/// The top-level modules that an import leads to: at most one, except for `*` at the root of the crate.
fn targets<'a>(
    import: &Import,
    modules: &BTreeSet<&'a str>,
    at_root: &BTreeMap<&str, &'a str>,
) -> impl Iterator<Item = &'a str> {
    let first = import.path.first().map(String::as_str);
    let all = if first == Some("*") { at_root.values().copied().collect() } else { Vec::new() };
    let one = first.and_then(|first| modules.get(first).or_else(|| at_root.get(first)).copied());
    all.into_iter().chain(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: (&str, &str) = ("crates/x/src/lib.rs", "mod a; mod b; mod c;\npub use c::Name;\n");

    fn check(files: &[(&str, &str)]) -> Vec<Problem> {
        between_folders_except(&Tree::of(&[&[LIB], files].concat()), &[])
    }

    #[test]
    fn two_folders_that_import_each_other_are_found() {
        let found = check(&[
            ("crates/x/src/a/mod.rs", "mod inner;\n"),
            ("crates/x/src/a/inner.rs", "\nuse crate::b::B;\n"),
            ("crates/x/src/b/mod.rs", "fn f() { super::a::g() }\n"),
            ("crates/x/src/b/inner.rs", "\n"),
        ]);
        let places: Vec<_> = found.iter().map(|problem| (problem.path.as_str(), problem.line)).collect();
        assert_eq!(places, [("crates/x/src/a/inner.rs", Some(2)), ("crates/x/src/b/mod.rs", Some(1))]);
        assert!(found[0].message.contains("`a` imports `b`, and there is a way back: b -> a."), "{found:?}");
    }

    #[test]
    fn a_cycle_through_a_folder_and_a_name_at_the_root_is_found() {
        let found = check(&[
            ("crates/x/src/a.rs", "use crate::b::B;\n"),
            ("crates/x/src/a/inner.rs", "\n"),
            ("crates/x/src/b.rs", "use crate::Name;\n"),
            ("crates/x/src/c.rs", "use super::{a::A};\n"),
        ]);
        let paths: Vec<_> = found.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["crates/x/src/a.rs", "crates/x/src/c.rs"]);
        assert!(found[0].message.contains("b -> c -> a."), "{found:?}");
    }

    #[test]
    fn a_star_at_the_root_imports_all_names_there() {
        let found = check(&[
            ("crates/x/src/a/mod.rs", "use crate::*;\n"),
            ("crates/x/src/a/inner.rs", "\n"),
            ("crates/x/src/c.rs", "use crate::a::A;\n"),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn imports_one_way_and_cycles_within_a_folder_are_fine() {
        let found = check(&[
            ("crates/x/src/a/mod.rs", "use crate::b::B; use inner::C;\n"),
            ("crates/x/src/a/inner.rs", "use super::D; use crate::a::E;\n"),
            ("crates/x/src/b.rs", "use crate::Name;\n"),
            ("crates/x/src/c.rs", "use std::fmt;\n"),
        ]);
        assert_eq!(found, []);
    }

    #[test]
    fn cycles_of_single_files_are_fine() {
        let found = check(&[
            ("crates/x/src/a.rs", "use crate::b::B;\n"),
            ("crates/x/src/b.rs", "use crate::a::A;\n"),
            ("crates/x/src/b/tests.rs", "use crate::a::A;\n"),
        ]);
        assert_eq!(found, []);
    }

    #[test]
    fn tests_comments_and_strings_import_nothing() {
        let found = check(&[
            ("crates/x/src/a/mod.rs", "use crate::b::B;\n"),
            ("crates/x/src/a/inner.rs", "\n"),
            (
                "crates/x/src/b.rs",
                "/// See [`crate::a`].\nconst A: &str = \"crate::a::B\";\n\
                 #[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
            ("crates/x/src/b/tests.rs", "use crate::a::A;\n"),
        ]);
        assert_eq!(found, []);
    }

    #[test]
    fn imports_in_different_crates_form_no_cycle() {
        let found = check(&[
            ("crates/x/src/a/mod.rs", "use crate::b::B;\n"),
            ("crates/x/src/a/inner.rs", "\n"),
            ("crates/y/src/lib.rs", ""),
            ("crates/y/src/b.rs", "use crate::a::A;\n"),
        ]);
        assert_eq!(found, []);
    }

    #[test]
    fn the_list_has_each_import_of_a_cycle_and_no_other() {
        let cycle = [
            ("crates/x/src/a.rs", "use crate::b::B;\n"),
            ("crates/x/src/a/inner.rs", "\n"),
            ("crates/x/src/b.rs", "use crate::a::A;\n"),
        ];
        let tree = Tree::of(&[&[LIB], &cycle[..]].concat());
        let listed = [("crates/x", "a", "b"), ("crates/x", "b", "a")];
        assert_eq!(between_folders_except(&tree, &listed), []);
        assert_eq!(between_folders_except(&tree, &listed[..1]).len(), 1);
        let mended = Tree::of(&[LIB, cycle[0], cycle[1]]);
        let found = between_folders_except(&mended, &listed);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|problem| problem.path == THIS_FILE), "{found:?}");
    }
}
