//! The names of its own crate that a Rust file uses, in `use` and in paths within the code.

use super::source::{Token, tokens};

/// A path below the root of the crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Import {
    /// The offset of the path in the code.
    pub(super) offset: usize,
    /// The module that contains the path.
    pub(super) module: Vec<String>,
    /// The names from the root of the crate. The last one may be `*`.
    ///
    /// A path that begins with neither `crate`, `self` nor `super` is taken for a path of the module itself.
    /// It may be a path of another crate; then its first name is not a module of this crate.
    pub(super) path: Vec<String>,
    /// The name that the path gets in the module. Only `use` gives one.
    pub(super) name: Option<String>,
}

/// All paths of its own crate that the code of a module uses. `code` has no comments and literals.
pub(super) fn imports(code: &str, module: &[&str]) -> Vec<Import> {
    let tokens = tokens(code);
    let module = module.iter().map(|name| (*name).to_owned()).collect();
    let mut scan = Scan { tokens: &tokens, module, found: Vec::new() };
    scan.all();
    scan.found
}

struct Scan<'a> {
    tokens: &'a [Token<'a>],
    /// The module at the current token.
    module: Vec<String>,
    found: Vec<Import>,
}

impl<'a> Scan<'a> {
    /// The text of a token; empty after the last one.
    fn text(&self, index: usize) -> &'a str {
        self.tokens.get(index).map_or("", |token| token.text)
    }

    fn before(&self, index: usize) -> &'a str {
        index.checked_sub(1).map_or("", |before| self.text(before))
    }

    fn all(&mut self) {
        let (mut index, mut depth) = (0, 0_usize);
        // The depths of the braces of the modules within the file.
        let mut inline = Vec::new();
        while index < self.tokens.len() {
            match self.text(index) {
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    if inline.last() == Some(&depth) {
                        inline.pop();
                        self.module.pop();
                    }
                }
                "mod" if self.text(index + 2) == "{" => {
                    self.module.push(self.text(index + 1).to_owned());
                    inline.push(depth);
                }
                // `use<'a>` is a bound.
                "use" if self.text(index + 1) != "<" => {
                    index = self.tree(index + 1, &[]);
                    continue;
                }
                "crate" | "self" | "super" if self.is_path(index) => {
                    index = self.path(index);
                    continue;
                }
                _ => {}
            }
            index += 1;
        }
    }

    /// Whether a path of the code begins here. The path in `pub(in crate::a)` imports nothing.
    fn is_path(&self, index: usize) -> bool {
        let before = self.before(index);
        let is_visibility = before == "in" && self.before(index.saturating_sub(1)) == "(";
        self.text(index + 1) == "::" && before != "::" && !is_visibility
    }

    /// Reads a path, and returns the index of the token after it.
    fn path(&mut self, begin: usize) -> usize {
        let mut path = vec![self.text(begin)];
        let mut index = begin + 1;
        while self.text(index) == "::" && self.text(index + 1).starts_with(super::source::is_word) {
            path.push(self.text(index + 1));
            index += 2;
        }
        self.add(begin, &path, None);
        index
    }

    /// Reads a tree after `use`, or a part of it in braces. Returns the index of the token after it.
    fn tree(&mut self, begin: usize, prefix: &[&'a str]) -> usize {
        let mut path = prefix.to_vec();
        let mut index = begin;
        loop {
            match self.text(index) {
                "{" => {
                    index += 1;
                    while !matches!(self.text(index), "}" | ";" | "") {
                        index = self.tree(index, &path);
                        index += usize::from(self.text(index) == ",");
                    }
                    return index + 1;
                }
                "," | "}" | ";" | "" => {
                    self.add(begin, &path, path.iter().rfind(|name| **name != "self").copied());
                    return index;
                }
                "as" => {
                    self.add(begin, &path, Some(self.text(index + 1)));
                    return index + 2;
                }
                // These tokens are between names, or before the `crate` of a macro.
                "::" | "$" => index += 1,
                name => {
                    path.push(name);
                    index += 1;
                }
            }
        }
    }

    fn add(&mut self, index: usize, path: &[&str], name: Option<&str>) {
        let mut absolute = self.module.clone();
        let mut rest = path;
        if rest.first() == Some(&"crate") {
            absolute.clear();
            rest = &rest[1..];
        }
        for part in rest {
            match *part {
                "self" => {}
                "super" => drop(absolute.pop()),
                part => absolute.push(part.to_owned()),
            }
        }
        self.found.push(Import {
            offset: self.tokens.get(index).map_or(0, |token| token.offset),
            module: self.module.clone(),
            path: absolute,
            name: name.map(str::to_owned),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(code: &str, module: &[&str]) -> Vec<String> {
        imports(code, module).into_iter().map(|import| import.path.join("::")).collect()
    }

    #[test]
    fn trees_of_use_are_read() {
        let code =
            "use crate::{a::{B, c::*}, d::{self, E as F}, G};\npub(crate) use super::h::I;\nuse self::j::K;";
        let expected = ["a::B", "a::c::*", "d", "d::E", "G", "m::h::I", "m::n::j::K"];
        assert_eq!(paths(code, &["m", "n"]), expected);
    }

    #[test]
    fn names_are_those_in_the_module() {
        let code = "use a::{B, c::{self}, D as E}; use super::f;";
        let names: Vec<_> = imports(code, &[]).into_iter().filter_map(|import| import.name).collect();
        assert_eq!(names, ["B", "c", "E", "f"]);
    }

    #[test]
    fn paths_in_the_code_are_read() {
        let code = "fn a(b: crate::c::D<super::E>) -> self::f::G { $crate::h::i(); for j in crate::k() {} }";
        assert_eq!(paths(code, &["m"]), ["c::D", "E", "m::f::G", "h::i", "k"]);
    }

    #[test]
    fn visibility_and_bounds_are_no_imports() {
        let code = "pub(in crate::a) fn b(self) -> impl C + use<'_> { self.d() } pub(crate) struct E; pub(super) mod f;";
        assert_eq!(paths(code, &["m"]), Vec::<String>::new());
    }

    #[test]
    fn super_within_a_module_of_the_file_is_the_file() {
        let code = "mod a { use super::b; mod c { use super::super::d; } } use super::e;";
        assert_eq!(paths(code, &["m"]), ["m::b", "m::d", "e"]);
    }

    #[test]
    fn broken_code_comes_to_an_end() {
        for code in ["use a::{b", "use a::{b; c", "use", "crate::", "}}}", "use a as", "mod"] {
            imports(code, &[]);
        }
    }
}
