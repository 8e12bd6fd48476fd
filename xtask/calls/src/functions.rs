//! The functions in a source file, by their lines.

use xtask_tidy::source::{Token, code, tokens};

/// A function of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceFunction {
    pub(super) name: String,
    /// The line with `fn`, from 1.
    pub(super) first: usize,
    /// The line with the closing brace.
    pub(super) last: usize,
    /// Whether it takes `self`, and its body is one expression without branches, closures, `?` and `await`.
    pub(super) is_short: bool,
}

/// All functions with a body, in the order of their first lines. Functions may contain other functions.
pub(super) fn functions(source: &str) -> Vec<SourceFunction> {
    let code = code(source);
    let tokens = tokens(&code);
    let starts: Vec<usize> =
        std::iter::once(0).chain(code.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let line = |token: &Token| starts.partition_point(|start| *start <= token.offset);
    let mut functions = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        // `fn(u8)` is a type.
        if pair[0].text != "fn" || pair[1].text == "(" {
            continue;
        }
        let Some((open, close)) = body(&tokens, index + 2) else { continue };
        functions.push(SourceFunction {
            name: pair[1].text.to_owned(),
            first: line(&pair[0]),
            last: line(&tokens[close]),
            is_short: takes_self(&tokens[index + 2..open]) && is_one_expression(&tokens[open + 1..close]),
        });
    }
    functions
}

/// Finds a function with this name that is the innermost one around any of the lines. Other lines may belong
/// to a macro.
pub(super) fn find<'f>(
    functions: &'f [SourceFunction],
    lines: impl Iterator<Item = usize>,
    name: &str,
) -> Option<&'f SourceFunction> {
    let innermost = |line: usize| functions.iter().rfind(|each| each.first <= line && line <= each.last);
    lines.filter_map(innermost).find(|function| function.name == name)
}

/// The indices of the braces of a function's body, searched from an index after its name.
fn body(tokens: &[Token], from: usize) -> Option<(usize, usize)> {
    let mut depth = 0_usize;
    let mut open = None;
    for (index, token) in tokens.iter().enumerate().skip(from) {
        match token.text {
            "{" if depth == 0 && open.is_none() => {
                open = Some(index);
                depth = 1;
            }
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                // The end of a pair of brackets around a declaration in a macro.
                depth = depth.checked_sub(1)?;
                if let Some(open) = open
                    && depth == 0
                {
                    return Some((open, index));
                }
            }
            // A declaration without a body, such as in a trait.
            ";" if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn takes_self(signature: &[Token]) -> bool {
    signature.iter().any(|token| token.text == "self")
}

/// Tokens of a body that has more than one expression, or branches.
const LONGER: &[&str] =
    &[";", "{", "?", "if", "match", "for", "while", "loop", "async", "await", "move", "return"];

fn is_one_expression(body: &[Token]) -> bool {
    let begins_closure = |index: usize| {
        let before = index.checked_sub(1).map_or("(", |before| body[before].text);
        body[index].text == "|" && matches!(before, "(" | "," | "=")
    };
    let is_longer = |index: usize| LONGER.contains(&body[index].text) || begins_closure(index);
    !(0..body.len()).any(is_longer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
impl A {
    /// fn not_this() {}
    pub(crate) async fn one<T: Into<[u8; 2]>>(&self, f: fn(u8) -> u8) -> Result<T>
    where
        T: Copy,
    {
        fn inner() {}
        let text = "} fn nor_this() {";
        text
    }

    const fn get(&self) -> &B { &self.b }
}

trait C {
    fn declared(&self) -> [u8; 2];
    fn given(&self) -> bool {
        matches!(self.kind(), Kind::A | Kind::B) || self.0
    }
}
"#;

    #[test]
    fn functions_have_their_lines() {
        let found = functions(SOURCE);
        let found: Vec<_> = found.iter().map(|each| (&*each.name, each.first, each.last)).collect();
        assert_eq!(found, [("one", 4, 11), ("inner", 8, 8), ("get", 13, 13), ("given", 18, 20)]);
    }

    #[test]
    fn functions_are_found_by_lines_and_name() {
        let functions = functions(SOURCE);
        let first = |lines: &[usize], name: &str| {
            find(&functions, lines.iter().copied(), name).map(|function| function.first)
        };
        assert_eq!(first(&[9], "one"), Some(4));
        assert_eq!(first(&[1, 8, 9], "one"), Some(4));
        assert_eq!(first(&[8], "one"), None);
        assert_eq!(first(&[1], "one"), None);
    }

    #[test]
    fn short_functions_take_self_and_have_one_expression() {
        let is_short = |body: &str| functions(&format!("fn a(&self) {body}"))[0].is_short;
        for body in ["{ self.a }", "{ \"a\" }", "{ &self.a.b(1)[2] }", "{ matches!(self, A | B) || self.c }"]
        {
            assert!(is_short(body), "{body}");
        }
        for body in [
            "{ let a = 1; a }",
            "{ self.a?.b }",
            "{ self.a.map(|a| a.b()) }",
            "{ self.a.get_or(|| 1) }",
            "{ if self.a { 1 } else { 2 } }",
            "{ self.a().await }",
        ] {
            assert!(!is_short(body), "{body}");
        }
        assert!(!functions("fn new(a: u8) -> Self { Self(a) }")[0].is_short);
    }
}
