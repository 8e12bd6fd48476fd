//! The pages of the documentation: links between them, and the lengths of their lines.

use std::{collections::HashMap, ops::Range};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{Problem, Tree, source::line_at, text::is_test_data};

/// Checks that links to files and headings have targets. Other addresses are not checked.
pub(super) fn links(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (offset, target) in targets(text) {
            if let Some(wrong) = wrong(tree, path, &target) {
                problems.push(Problem::line(
                    path,
                    line_at(text, offset),
                    format!("the link to {target} leads nowhere: {wrong}"),
                ));
            }
        }
    }
    problems
}

/// The targets of links and images, with their offsets in the text.
fn targets(text: &str) -> Vec<(usize, String)> {
    let events = Parser::new_ext(text, options()).into_offset_iter();
    events
        .filter_map(|(event, range)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some((range.start, dest_url.into_string()))
            }
            _ => None,
        })
        .collect()
}

pub(super) fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES
}

/// The fault of a link on a page, if it has one.
fn wrong(tree: &Tree, page: &str, target: &str) -> Option<&'static str> {
    let has_scheme = target.split_once(':').is_some_and(|(scheme, _)| !scheme.contains(['/', '#', '.']));
    if has_scheme || target.starts_with("//") {
        return None;
    }
    let (file, heading) =
        target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let Some(file) = resolve(page, file) else {
        return Some("it leaves the project");
    };
    if !tree.has(&file) {
        return Some("there is no such file");
    }
    match (heading, tree.text(&file)) {
        (Some(heading), Some(text)) if file.ends_with(".md") => {
            (!anchors(text).iter().any(|anchor| anchor == heading)).then_some("there is no such heading")
        }
        _ => None,
    }
}

/// The path from the root of the project. `None` if it leads out of the project.
fn resolve(page: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(page.to_owned());
    }
    let mut segments: Vec<&str> = page.split('/').collect();
    segments.pop();
    for segment in link.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop()?;
            }
            name => segments.push(name),
        }
    }
    Some(segments.join("/"))
}

/// The anchors of a page's headings, as code hosts make them: lower case, blanks as dashes, without
/// punctuation, and with a number from the second heading of one name on.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, options()) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let name: String = heading.take().unwrap_or_default().to_lowercase();
                let keep = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
                let name: String = name
                    .chars()
                    .filter(keep)
                    .map(|letter| if letter == ' ' { '-' } else { letter })
                    .collect();
                let count = seen.entry(name.clone()).or_default();
                anchors.push(if *count == 0 { name } else { format!("{name}-{count}") });
                *count += 1;
            }
            _ => {}
        }
    }
    anchors
}

/// The maximum number of characters of a line. Tables, code and lines that cannot be broken may be longer.
const MAX_CHARACTERS: usize = 120;

/// Checks that no line of a page is too long.
pub(super) fn line_lengths(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.ending(".md").filter(|(path, _)| !is_test_data(path)) {
        let mut exempt: Option<Vec<Range<usize>>> = None;
        let mut offset = 0;
        for (index, line) in text.split('\n').enumerate() {
            let characters = line.chars().count();
            if characters > MAX_CHARACTERS
                && !is_one_link(line)
                && !exempt
                    .get_or_insert_with(|| tables_and_code(text))
                    .iter()
                    .any(|range| range.contains(&offset))
            {
                let message = format!("{characters} characters, more than {MAX_CHARACTERS}: break the line");
                problems.push(Problem::line(path, index, message));
            }
            offset += line.len() + 1;
        }
    }
    problems
}

/// The ranges of the tables and the blocks of code. Each range begins at the beginning of a line.
fn tables_and_code(text: &str) -> Vec<Range<usize>> {
    Parser::new_ext(text, options())
        .into_offset_iter()
        .filter(|(event, _)| matches!(event, Event::Start(Tag::Table(_) | Tag::CodeBlock(_))))
        .map(|(_, range)| text[..range.start].rfind('\n').map_or(0, |end| end + 1)..range.end)
        .collect()
}

/// Whether a line is a link in one word, apart from the marks of a list, a quotation or a definition.
fn is_one_link(line: &str) -> bool {
    let is_mark = |word: &&str| {
        let is_number = word.strip_suffix(['.', ')']).is_some_and(|word| word.parse::<u32>().is_ok());
        is_number || ["-", "*", "+", ">"].contains(word) || (word.starts_with('[') && word.ends_with("]:"))
    };
    let words: Vec<&str> = line.split_whitespace().skip_while(is_mark).collect();
    matches!(words[..], [word] if word.contains("://") || word.contains("]("))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<Problem> {
        links(&Tree::of(&[
            ("docs/a.md", text),
            ("docs/b/c.md", "# What `is` it?\n\n## Twice\n\n## Twice\n"),
            ("src/x.rs", ""),
        ]))
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let text = "[a](b/c.md) [b](../src/x.rs) [c](b/c.md#what-is-it) [d](b/c.md#twice-1) [e](https://example.org/x)\n\
                    [f](mailto:a@example.org) [g](b) [h][i] `[j](nowhere.md)`\n\n[i]: ../src\n";
        assert_eq!(check(text), []);
    }

    #[test]
    fn links_that_lead_nowhere_are_found_with_their_line() {
        for link in ["b/d.md", "c.md", "b/c.md#other", "#other", "../../x.rs", "src/x.rs"] {
            let found = check(&format!("first\n\nthen [a]({link})\n"));
            assert_eq!(found.len(), 1, "{link}");
            assert_eq!(found[0].line, Some(3), "{link}");
        }
        assert_eq!(check("![picture](none.png)\n").len(), 1);
    }

    fn long_lines(text: &str) -> Vec<Option<usize>> {
        let found = line_lengths(&Tree::of(&[("docs/a.md", text)]));
        found.into_iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn long_lines_of_prose_are_found() {
        let fits = "é".repeat(MAX_CHARACTERS);
        assert_eq!(long_lines(&format!("{fits}\n")), []);
        assert_eq!(long_lines(&format!("a\n\n- b {fits}\n")), [Some(3)]);
        assert_eq!(long_lines(&format!("# {fits}\n\n`a` {fits}\n")), [Some(1), Some(3)]);
        assert_eq!(long_lines(&format!("see <https://example.org/{fits}>\n")), [Some(1)]);
        assert_eq!(long_lines(&format!("[a b](https://example.org/{fits})\n")), [Some(1)]);
        assert_eq!(long_lines(&format!("a\n\n| b | {fits}\n")), [Some(3)]);
        let data = Tree::of(&[("crates/a/tests/data/a.md", &*format!("a {fits}\n"))]);
        assert_eq!(line_lengths(&data), []);
    }

    #[test]
    fn tables_code_and_links_of_one_word_may_be_long() {
        let long = "é ".repeat(MAX_CHARACTERS);
        let word = "é".repeat(MAX_CHARACTERS);
        for text in [
            format!("| a | {long} |\n|---|---|\n| {long} | b |\n"),
            format!("- c\n\n  | a | {long} |\n  |---|---|\n  | {long} | b |\n"),
            format!("```console\n$ {long}x\n```\n"),
            format!("a\n\n    {long}x\n"),
            format!("- a\n\n  ```\n  {long}x\n  ```\n"),
            format!("<https://example.org/{word}>\n"),
            format!("1. [a](b/{word}.md).\n"),
            format!("[a]: https://example.org/{word}\n"),
        ] {
            assert_eq!(long_lines(&text), [], "{text}");
        }
    }
}
