//! The check of words that plain English does not need. Some of these words treat a process as a person, others are
//! unusual words for "is stored".
//!
//! The check reads the comments and strings of Rust sources, and the prose of Markdown. Code within comments
//! and within Markdown is not read. `GLOSSARY.md` has the words to use instead.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Parser, Tag, TagEnd};

use super::{
    Problem, Tree,
    markdown::options,
    source::{Kind, is_word, line_at, pieces},
    text::is_test_data,
};

/// The refused words. They are split, so that this file does not contain them.
const REFUSED: &[&str] = &[
    concat!("who", "ever"),
    concat!("an", "ew"),
    concat!("h", "e"),
    concat!("h", "im"),
    concat!("h", "is"),
    concat!("sta", "nd"),
    concat!("sta", "nds"),
    concat!("sto", "od"),
    concat!("stan", "ding"),
    concat!("for ", "good"),
    concat!("seen ", "to"),
];

/// Everyday uses of these words, which are allowed.
const ALLOWED: &[&str] = &[
    concat!("sta", "nd for"),
    concat!("sta", "nds for"),
    concat!("sta", "nd-alone"),
    concat!("sta", "nd-in"),
    concat!("sta", "nd-ins"),
    concat!("long-stan", "ding"),
    concat!("for ", "good reason"),
    concat!("for ", "good reasons"),
    concat!("seen ", "to be"),
];

/// Files with such a word in a sample text: file, word. Files of data for tests are not read at all.
const SAMPLES: &[(&str, &str)] = &[
    // The first half of a greeting.
    ("xtask/bench/src/load/tests.rs", concat!("h", "e")),
];

/// Checks that no file contains a refused word, except in sample texts.
pub(super) fn refused(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !is_test_data(path)) {
        let prose = match path.rsplit_once('.') {
            Some((_, "rs")) => prose_of_rust(text),
            Some((_, "md")) => prose_of_markdown(text),
            _ => continue,
        };
        let found = in_prose(&prose);
        for (offset, word) in found.into_iter().filter(|(_, word)| !SAMPLES.contains(&(path, *word))) {
            problems.push(Problem::line(
                path,
                line_at(text, offset),
                format!("`{word}`: say it plainly. GLOSSARY.md has the words to use instead"),
            ));
        }
    }
    problems
}

/// The refused words of a text, with their offsets.
fn in_prose(prose: &str) -> Vec<(usize, &'static str)> {
    let prose = prose.to_ascii_lowercase();
    let everyday: Vec<_> = ALLOWED.iter().flat_map(|phrase| occurrences(&prose, phrase)).collect();
    let mut found: Vec<_> = REFUSED
        .iter()
        .flat_map(|word| occurrences(&prose, word).into_iter().map(|range| (range, *word)))
        .filter(|(range, _)| {
            !everyday.iter().any(|other| other.start <= range.start && range.end <= other.end)
        })
        .map(|(range, word)| (range.start, word))
        .collect();
    found.sort_unstable();
    found
}

/// Finds the places where the text has all words of the phrase in succession, each as a whole word. Lines may
/// break between them.
fn occurrences(text: &str, phrase: &str) -> Vec<Range<usize>> {
    let mut words = phrase.split(' ');
    let first = words.next().unwrap_or_default();
    let begins = text.match_indices(first).filter(|(at, _)| !text[..*at].ends_with(is_word));
    begins
        .filter_map(|(begin, _)| {
            let mut rest = &text[begin + first.len()..];
            for word in words.clone() {
                let next = rest.trim_start();
                if next.len() == rest.len() {
                    return None;
                }
                rest = next.strip_prefix(word)?;
            }
            (!rest.starts_with(is_word)).then_some(begin..text.len() - rest.len())
        })
        .collect()
}

/// A text in which only prose is left. Offsets are those of the source.
struct Prose(Vec<u8>);

/// The byte that replaces text that is not prose, so that the words on its sides are not in succession.
const NO_PROSE: u8 = 0;

impl Prose {
    /// A text without prose. White space is kept, so that words are in succession over the ends of lines.
    fn nothing_of(source: &str) -> Self {
        Self(source.bytes().map(|byte| if byte.is_ascii_whitespace() { byte } else { NO_PROSE }).collect())
    }

    fn keep(&mut self, source: &str, range: Range<usize>) {
        self.0[range.clone()].copy_from_slice(&source.as_bytes()[range]);
    }

    fn fill(&mut self, range: Range<usize>, with: u8) {
        self.0[range].fill(with);
    }

    fn into_text(self) -> String {
        String::from_utf8(self.0).expect("only whole pieces of the source are kept")
    }
}

/// The comments and strings of a source, without the code in comments.
fn prose_of_rust(source: &str) -> String {
    let mut prose = Prose::nothing_of(source);
    // Comments with only white space between them are treated as one text.
    let mut block: Option<Range<usize>> = None;
    let mut blocks = Vec::new();
    for piece in pieces(source) {
        let text = &source[piece.range.clone()];
        match piece.kind {
            Kind::Comment => {
                prose.keep(source, piece.range.clone());
                let marker = text.len() - text.trim_start_matches(['/', '*', '!']).len();
                prose.fill(piece.range.start..piece.range.start + marker, b' ');
                block = Some(block.map_or(piece.range.start, |block| block.start)..piece.range.end);
                continue;
            }
            Kind::Code if text.trim().is_empty() => continue,
            Kind::Text => {
                prose.keep(source, piece.range.clone());
                for (at, letter) in escapes(text) {
                    let begin = piece.range.start + at;
                    prose.fill(begin..begin + letter, b' ');
                }
            }
            Kind::Code | Kind::Char => {}
        }
        blocks.extend(block.take());
    }
    blocks.extend(block);
    for block in blocks {
        for code in code_spans(&source[block.clone()]) {
            prose.fill(block.start + code.start..block.start + code.end, NO_PROSE);
        }
    }
    prose.into_text()
}

/// The offsets and lengths of the escapes in a string.
fn escapes(text: &str) -> Vec<(usize, usize)> {
    let mut escapes = Vec::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\'
            && let Some((_, escaped)) = letters.next()
        {
            escapes.push((at, 1 + escaped.len_utf8()));
        }
    }
    escapes
}

/// The ranges between backticks, blocks of code included.
fn code_spans(comment: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut at = 0;
    while let Some((begin, after)) = next_ticks(comment, at) {
        at = after;
        // As in Markdown, the same number of backticks ends the code.
        let mut from = after;
        while let Some((end, after_end)) = next_ticks(comment, from) {
            from = after_end;
            if after_end - end == after - begin {
                spans.push(begin..after_end);
                at = after_end;
                break;
            }
        }
    }
    spans
}

/// The range of the next backticks.
fn next_ticks(text: &str, from: usize) -> Option<(usize, usize)> {
    let begin = from + text[from..].find('`')?;
    let length = text[begin..].find(|letter| letter != '`').unwrap_or(text.len() - begin);
    Some((begin, begin + length))
}

fn prose_of_markdown(source: &str) -> String {
    let mut prose = Prose::nothing_of(source);
    // The text of some links is the address itself.
    let (mut in_code, mut in_address) = (false, false);
    for (event, range) in Parser::new_ext(source, options()).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Start(Tag::Link { link_type: LinkType::Autolink | LinkType::Email, .. }) => {
                in_address = true;
            }
            Event::End(TagEnd::Link) => in_address = false,
            Event::Text(_) if !in_code && !in_address => prose.keep(source, range),
            _ => {}
        }
    }
    prose.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<Problem> {
        refused(&Tree::of(&[(path, text)]))
    }

    #[test]
    fn each_word_is_refused_in_comments_strings_and_markdown() {
        for word in REFUSED {
            let shouted = word.to_uppercase();
            for (path, text) in [
                ("a.rs", format!("fn a() {{}}\n/// What {word}, says.\n")),
                ("a.rs", format!("\n/* ({shouted}) */ fn a() {{}}\n")),
                ("a.rs", format!("fn a() {{\n    b(\"\\n{word}\\tsays\");\n}}\n")),
                ("a.md", format!("# A page\n**{word}** says\n")),
                ("a.md", format!("| a |\n|---| \n\n- [{shouted}](b.md)'s\n")),
            ] {
                let found = check(path, &text);
                assert_eq!(found.len(), 1, "{text}");
                assert!(found[0].line > Some(1) && found[0].message.contains(word), "{found:?}");
            }
        }
    }

    #[test]
    fn phrases_are_found_over_the_ends_of_lines() {
        let (one, two) = REFUSED[9].split_once(' ').expect("two words");
        for (path, text) in [
            ("a.rs", format!("    // kept {one}\n    // {two}.\n")),
            ("a.rs", format!("const A: &str = \"kept {one} \\\n    {two}\";\n")),
            ("a.md", format!("kept {one}\n{two}\n")),
        ] {
            assert_eq!(check(path, &text).len(), 1, "{text}");
        }
        assert_eq!(check("a.rs", &format!("// {one}\nfn a() {{}}\n// {two}\n")), []);
    }

    #[test]
    fn parts_of_words_code_and_other_files_are_fine() {
        for word in REFUSED {
            for (path, text) in [
                ("a.rs", format!("// under{word}ing, {word}_x, `{word}`, ``a ` {word}``\n")),
                ("a.rs", format!("/// ```\n/// a({word});\n/// ```\nfn a({word}: u8) {{ {word}() }}\n")),
                ("a.md", format!("`{word}`\n\n```\n{word}\n```\n\n    {word}\n\n[a](<b/{word}>)\n")),
                ("a.md", format!("<https://example.org/{}>\n", word.replace(' ', "-"))),
                ("a.toml", format!("text = \"{word}\"\n")),
                ("crates/a/tests/data/a.md", format!("{word}\n")),
            ] {
                assert_eq!(check(path, &text), [], "{text}");
            }
        }
    }

    #[test]
    fn a_backtick_without_a_second_one_hides_nothing() {
        assert_eq!(check("a.rs", &format!("// a ` b {}\nfn a() {{}}\n// c ` d\n", REFUSED[0])).len(), 1);
    }

    #[test]
    fn everyday_uses_are_fine() {
        for phrase in ALLOWED {
            assert_eq!(check("a.md", &format!("a {phrase} b\n")), [], "{phrase}");
        }
        assert_eq!(check("a.md", &format!("a {} and {}\n", ALLOWED[1], REFUSED[6])).len(), 1);
    }

    #[test]
    fn a_sample_allows_its_word_in_its_file_alone() {
        let (path, word) = SAMPLES[0];
        let text = format!("const A: &str = \"{word}\";\n");
        assert_eq!(check(path, &text), []);
        assert_eq!(check("a.rs", &text).len(), 1);
        assert_eq!(check(path, &format!("// {}\n", REFUSED[0])).len(), 1);
    }
}
