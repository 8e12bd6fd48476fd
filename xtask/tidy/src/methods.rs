//! The number of functions that a type has in its inherent `impl` blocks.
//!
//! A method needs no `use`. So a type with methods in many files hides the dependencies between these files.

use std::collections::BTreeMap;

use super::{
    Problem, Tree,
    modules::{Crate, crates},
    source::{Token, code, line_at, tokens, without_tests},
};

/// The maximum number of functions of a type. Private functions count too, but functions of traits do not.
const MAX_FUNCTIONS: usize = 40;

/// Types with more functions at present: crate, type, number. A number must be lowered when its type shrinks.
const EXCEPTIONS: &[(&str, &str, usize)] = &[];

/// The file with [`EXCEPTIONS`].
const THIS_FILE: &str = "xtask/tidy/src/methods.rs";

/// Checks that only listed types have more functions than [`MAX_FUNCTIONS`], and exactly the listed numbers.
pub(super) fn per_type(tree: &Tree) -> Vec<Problem> {
    per_type_except(tree, EXCEPTIONS)
}

fn per_type_except(tree: &Tree, listed: &[(&str, &str, usize)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut missing = listed.to_vec();
    for krate in crates(tree) {
        for found in functions(&krate) {
            let Type { name, path, line, count } = found;
            let entry =
                missing.iter().position(|(in_crate, listed, _)| (*in_crate, *listed) == (krate.name, name));
            let most = entry.map_or(MAX_FUNCTIONS, |entry| missing[entry].2);
            if count > most {
                problems.push(Problem::line(
                    path,
                    line,
                    format!(
                        "`{name}` has {count} functions, more than {most}: move some to a type of their own, or to \
                         functions of a module"
                    ),
                ));
            }
            if let Some(entry) = entry
                && count > MAX_FUNCTIONS
            {
                missing.remove(entry);
                if count < most {
                    let message =
                        format!("{}: `{name}` has {count} functions now. Update the list", krate.name);
                    problems.push(Problem::file(THIS_FILE, message));
                }
            }
        }
    }
    for (krate, name, _) in missing {
        let message =
            format!("{krate}: `{name}` has at most {MAX_FUNCTIONS} functions now. Remove it from the list");
        problems.push(Problem::file(THIS_FILE, message));
    }
    problems
}

/// A type with inherent functions.
struct Type<'a> {
    name: &'a str,
    /// The file of its first `impl` block.
    path: &'a str,
    line: usize,
    count: usize,
}

/// The types of a crate that have inherent functions.
fn functions<'a>(krate: &Crate<'a>) -> Vec<Type<'a>> {
    let codes: Vec<String> = krate.files.iter().map(|file| without_tests(&code(file.text))).collect();
    let files: Vec<Vec<Token>> = codes.iter().map(|code| tokens(code)).collect();

    // Types with the same name in several modules are distinguished by the module that defines them.
    let mut definitions: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, tokens) in files.iter().enumerate() {
        for pair in tokens.windows(2) {
            if matches!(pair[0].text, "struct" | "enum" | "union" | "trait") {
                definitions.entry(pair[1].text).or_default().push(index);
            }
        }
    }

    let mut types: BTreeMap<(&str, usize), Type<'a>> = BTreeMap::new();
    for (index, tokens) in files.iter().enumerate() {
        let file = &krate.files[index];
        for found in blocks(tokens) {
            let defined = definitions.get(found.name).into_iter().flatten().copied();
            let near = |other: &usize| shared_names(&krate.files[*other].names, &file.names);
            let defined_in = defined.max_by_key(|other| (*other == index, near(other))).unwrap_or(usize::MAX);
            let name = &file.text[found.offset..found.offset + found.name.len()];
            let line = line_at(file.text, found.offset);
            types
                .entry((name, defined_in))
                .or_insert(Type { name, path: file.path, line, count: 0 })
                .count += found.functions;
        }
    }
    types.into_values().collect()
}

/// The number of names, from the root, that two modules share.
fn shared_names(one: &[&str], other: &[&str]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// An inherent `impl` block.
struct Block<'a> {
    name: &'a str,
    /// The offset of the name in the code.
    offset: usize,
    functions: usize,
}

fn blocks<'a>(tokens: &[Token<'a>]) -> Vec<Block<'a>> {
    let mut blocks = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let before = index.checked_sub(1).map_or("", |before| tokens[before].text);
        // Where `impl` begins a type, other tokens precede it.
        let is_item = matches!(before, "" | "{" | "}" | ";" | "]" | "unsafe");
        if token.text == "impl"
            && is_item
            && let Some((type_name, body)) = head(&tokens[index + 1..])
        {
            blocks.push(Block { name: type_name.text, offset: type_name.offset, functions: in_body(body) });
        }
    }
    blocks
}

/// The name of the type, and the tokens from the brace on. `None` for the `impl` of a trait and in a macro.
fn head<'a, 't>(tokens: &'t [Token<'a>]) -> Option<(Token<'a>, &'t [Token<'a>])> {
    let (mut angles, mut in_where) = (0_usize, false);
    let mut name = None;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "<" => angles += 1,
            ">" => angles = angles.saturating_sub(1),
            "$" | ";" => return None,
            "{" if angles == 0 => return Some((name?, &tokens[index..])),
            "where" => in_where = true,
            // `for<'a>` is a bound.
            "for" if angles == 0 && !in_where && tokens.get(index + 1)?.text != "<" => return None,
            text if angles == 0 && !in_where && text.starts_with(super::source::is_word) => {
                name = Some(*token);
            }
            _ => {}
        }
    }
    None
}

/// The number of functions that are directly in a block. The first token is the block's brace.
fn in_body(tokens: &[Token]) -> usize {
    let (mut depth, mut count) = (0, 0);
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            // `fn(u8)` is a type.
            "fn" if depth == 1 => {
                count += usize::from(tokens.get(index + 1).is_some_and(|next| next.text != "("));
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions_of(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let tree = Tree::of(&[&[("crates/x/src/lib.rs", "")], files].concat());
        let krate = &crates(&tree)[0];
        functions(krate).into_iter().map(|found| (found.name.to_owned(), found.count)).collect()
    }

    fn found(name: &str, count: usize) -> (String, usize) {
        (name.to_owned(), count)
    }

    #[test]
    fn functions_of_one_type_are_counted_over_all_files() {
        let files = [
            (
                "crates/x/src/a.rs",
                "struct A<T>(T);\nimpl<T: Into<Vec<u8>>> A<T> where T: for<'a> B<'a> { fn a() {} }\n",
            ),
            (
                "crates/x/src/b.rs",
                "impl super::A<u8> {\n    const C: fn(u8) = d;\n    pub async fn e(&self) -> impl F { fn g() {} }\n\
                 #[must_use]\n    const unsafe fn h() {}\n}\n",
            ),
        ];
        assert_eq!(functions_of(&files), [found("A", 3)]);
    }

    #[test]
    fn traits_tests_and_macros_do_not_count() {
        let file = "struct A;\nimpl A { fn a(b: impl Fn() -> u8) {} }\nimpl B<C> for A { fn c() {} }\n\
                    unsafe impl<T> D for E<T> { fn f() {} }\nmacro_rules! g { () => { impl $h { fn i() {} } } }\n\
                    #[cfg(test)]\nimpl A { fn j() {} }\n// impl A { fn k() {} }\n";
        assert_eq!(functions_of(&[("crates/x/src/a.rs", file)]), [found("A", 1)]);
    }

    #[test]
    fn types_with_the_same_name_are_distinguished() {
        let own = "struct A;\nimpl A { fn a() {} }\n";
        let files = [
            ("crates/x/src/a/mod.rs", own),
            ("crates/x/src/b/mod.rs", own),
            ("crates/x/src/b/more.rs", "impl super::A { fn b() {} }\n"),
        ];
        assert_eq!(functions_of(&files), [found("A", 1), found("A", 2)]);
    }

    fn check(count: usize, listed: &[(&str, &str, usize)]) -> Vec<Problem> {
        let text = format!("\nimpl A {{ {} }}\n", "fn a() {} ".repeat(count));
        per_type_except(&Tree::of(&[("crates/x/src/lib.rs", &text)]), listed)
    }

    #[test]
    fn a_type_with_too_many_functions_is_found() {
        assert_eq!(check(MAX_FUNCTIONS, &[]), []);
        let found = check(MAX_FUNCTIONS + 1, &[]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), ("crates/x/src/lib.rs", Some(2)));
    }

    #[test]
    fn a_number_of_the_list_may_neither_be_exceeded_nor_be_out_of_date() {
        let listed = [("crates/x", "A", 50)];
        assert_eq!(check(50, &listed), []);
        assert!(check(51, &listed)[0].message.contains("more than 50"));
        assert!(check(49, &listed)[0].message.contains("Update the list"));
        for count in [0, MAX_FUNCTIONS] {
            let found = check(count, &listed);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].message.contains("Remove it from the list"), "{found:?}");
        }
    }
}
