//! Names of functions as callgrind prints them, and as people write them.

/// Returns a symbol as the source has it: without generic arguments, hashes, and suffixes of closures and recursion.
pub(super) fn simplify(symbol: &str) -> String {
    let symbol = without_hash(without_recursion(symbol));
    let mut name = String::with_capacity(symbol.len());
    let mut rest = symbol;
    while let Some(letter) = rest.chars().next() {
        let skipped = match letter {
            '<' if begins_arguments(&name, rest) => {
                let kept = name.strip_suffix("::").map_or(name.len(), str::len);
                name.truncate(kept);
                closed_length(rest)
            }
            // A crate in the new name format: `name[0123456789abcdef]`.
            '[' => hash_length(rest),
            // `{closure#0}`, or `{{closure}}` in the old name format.
            '{' if name.ends_with("::") => {
                name.truncate(name.len() - 2);
                closed_length(rest)
            }
            _ => 0,
        };
        if skipped > 0 {
            rest = &rest[skipped..];
        } else {
            name.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    inherent(&name).unwrap_or(name)
}

/// Whether the symbol is that of a closure, or of the body of an `async` function.
pub(super) fn is_closure(symbol: &str) -> bool {
    symbol.contains("{closure") || symbol.contains("{async")
}

/// The crate that a simplified name begins with: for `<Type as Trait>::f` the crate of the type, for a path the crate
/// of the path. `None` if there is no crate, as in `main` or `<T as Trait>::f`.
pub(super) fn crate_of(name: &str) -> Option<&str> {
    let mut name = name;
    loop {
        let begin = name.trim_start_matches(['<', '&', '*', '[', '(', ' ']);
        let begin = ["mut ", "const ", "dyn ", "impl "]
            .iter()
            .find_map(|word| begin.strip_prefix(word))
            .unwrap_or(begin);
        if begin.len() == name.len() {
            break;
        }
        name = begin;
    }
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
    name[end..].starts_with("::").then_some(&name[..end])
}

/// The last segment of a path: of a function, a type or a trait.
pub(super) fn last_segment(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// The type and the trait in the name of a trait's function: `<Type as Trait>::function`, or
/// `module::<impl Trait for Type>::function`.
pub(super) fn type_and_trait(name: &str) -> Option<(&str, &str)> {
    let (_, inner) = name.split_once('<')?;
    let inner = &inner[..closed_length(&name[name.len() - inner.len() - 1..]).checked_sub(2)?];
    match inner.strip_prefix("impl ") {
        Some(inner) => inner.rsplit_once(" for ").map(|(its_trait, its_type)| (its_type, its_trait)),
        None => inner.rsplit_once(" as "),
    }
}

/// Removes the suffix that callgrind appends to the name of a recursive function, such as `'2`.
fn without_recursion(symbol: &str) -> &str {
    match symbol.rsplit_once('\'') {
        Some((name, level)) if !level.is_empty() && level.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => symbol,
    }
}

fn without_hash(symbol: &str) -> &str {
    match symbol.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()) => name,
        _ => symbol,
    }
}

/// Whether `rest` begins with generic arguments, and not with a path such as `<Type as Trait>::f` or an `<impl ...>`.
fn begins_arguments(before: &str, rest: &str) -> bool {
    // `module::<impl Trait for Type>::function` in the old name format.
    if rest.starts_with("<impl ") {
        return false;
    }
    before.ends_with(|letter: char| letter.is_alphanumeric() || "_:>".contains(letter))
}

/// The length of a text that begins with a bracket, up to and including the bracket that closes it.
fn closed_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match letter {
            '<' | '{' => depth += 1,
            '>' if before == '-' => {}
            '>' | '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        before = letter;
    }
    text.len()
}

/// The length of a hash in square brackets. Zero if the brackets are those of a slice or an array.
fn hash_length(text: &str) -> usize {
    let hash = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or("", |(hash, _)| hash);
    let is_hash = !hash.is_empty() && hash.len() <= 16 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_hash { hash.len() + 2 } else { 0 }
}

/// Removes the brackets of `<module::Type>::function`. `None` if the name is not of this form.
fn inherent(name: &str) -> Option<String> {
    let inner = name.strip_prefix('<')?;
    let (inner, rest) = inner.split_at(closed_length(name).checked_sub(2)?);
    let is_path = !inner.contains(" as ") && !inner.starts_with(['[', '(', '&', '*']);
    let rest = rest.strip_prefix('>')?;
    is_path.then(|| format!("{inner}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_generic_arguments_are_removed() {
        for (symbol, name) in [
            ("rashomon_a::b::c::h0123456789abcdef", "rashomon_a::b::c"),
            ("rashomon_a::b::c'2", "rashomon_a::b::c"),
            ("rashomon_a::b::hello", "rashomon_a::b::hello"),
            ("rashomon_a[1a2b3c4d5e6f7081]::b::c", "rashomon_a::b::c"),
            ("rashomon_a::b::<core::option::Option<u8>, fn(u8) -> u16>", "rashomon_a::b"),
            ("rashomon_a::Counting<S>::counts", "rashomon_a::Counting::counts"),
            ("<rashomon_a::Counting<rashomon_b::Memory>>::counts", "rashomon_a::Counting::counts"),
            (
                "<rashomon_a::Counting<rashomon_b::Memory<'_>> as rashomon_a::Decorator<u8>>::get::<u8>",
                "<rashomon_a::Counting as rashomon_a::Decorator>::get",
            ),
            ("<[rashomon_a::B] as rashomon_a::C>::d", "<[rashomon_a::B] as rashomon_a::C>::d"),
            ("<T as rashomon_a::C>::d::h0123456789abcdef", "<T as rashomon_a::C>::d"),
            (
                "rashomon_a::b::<impl rashomon_c::D<u8> for rashomon_a::E>::f",
                "rashomon_a::b::<impl rashomon_c::D for rashomon_a::E>::f",
            ),
        ] {
            assert_eq!(simplify(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn closures_have_the_name_of_their_function() {
        for symbol in [
            "rashomon_a::b::{{closure}}::h0123456789abcdef",
            "rashomon_a::b::{{closure}}::{{closure}}::h0123456789abcdef",
            "rashomon_a::b::{closure#0}::{closure#1}",
            "rashomon_a::b::<u8>::{closure#0}::<rashomon_a::c::{closure#2}>",
            "rashomon_a[12ab]::b::{async_block#0}",
        ] {
            assert_eq!(simplify(symbol), "rashomon_a::b", "{symbol}");
            assert!(is_closure(symbol), "{symbol}");
        }
        assert_eq!(simplify("<rashomon_a::B as C>::d::{closure#0}"), "<rashomon_a::B as C>::d");
        assert!(!is_closure("rashomon_a::closure"));
    }

    #[test]
    fn crates_are_those_of_the_type() {
        for (name, expected) in [
            ("rashomon_a::b::c", Some("rashomon_a")),
            ("<rashomon_a::B as core::clone::Clone>::clone", Some("rashomon_a")),
            ("<&mut dyn rashomon_a::B as core::fmt::Debug>::fmt", Some("rashomon_a")),
            ("<[rashomon_a::B] as rashomon_c::D>::e", Some("rashomon_a")),
            ("<T as rashomon_a::B>::c", None),
            ("main", None),
            ("(below main)", None),
        ] {
            assert_eq!(crate_of(name), expected, "{name}");
        }
    }

    #[test]
    fn types_and_traits_are_found() {
        let expected = Some(("rashomon_a::B", "rashomon_c::D"));
        for name in ["<rashomon_a::B as rashomon_c::D>::e", "f::<impl rashomon_c::D for rashomon_a::B>::e"] {
            assert_eq!(type_and_trait(name), expected, "{name}");
            assert_eq!(last_segment(name), "e");
        }
        for name in ["rashomon_a::b", "rashomon_a::<impl rashomon_a::B>::c"] {
            assert_eq!(type_and_trait(name), None, "{name}");
        }
    }
}
