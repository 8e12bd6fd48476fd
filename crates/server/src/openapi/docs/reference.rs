//! Renders the content of `/docs` as Markdown. A test compares the result with `docs/http-api.md`.

use std::path::Path;

use askama::Template as _;
use rashomon_pages::Definitions;

use super::{AnswerView, ChapterView, DocsPage, Item, OperationView, Sample, Span};
use crate::Settings;

/// The longest line of a document, in characters. Tables and code may be wider.
const LINE_CHARACTERS: usize = 120;

#[derive(askama::Template)]
#[template(path = "http-api.md", escape = "none")]
struct Reference {
    page: DocsPage,
}

impl Item {
    fn meaning_as_cell(&self) -> String {
        cell(&self.meaning)
    }
}

impl AnswerView {
    fn meaning_as_cell(&self) -> String {
        cell(&self.meaning)
    }
}

impl OperationView {
    fn description_as_text(&self) -> String {
        text(&self.description)
    }
}

impl ChapterView {
    /// The anchor that Markdown renderers give the heading.
    fn anchor(&self) -> String {
        self.title.to_lowercase().replace(' ', "-")
    }
}

fn text(spans: &[Span]) -> String {
    let of = |span: &Span| if span.is_code { format!("`{}`", span.text) } else { span.text.clone() };
    spans.iter().map(of).collect()
}

/// A text in the cell of a table.
fn cell(spans: &[Span]) -> String {
    text(spans).replace('|', "\\|")
}

/// Breaks the lines that are too long, except those of tables and code.
fn wrap(document: &str) -> String {
    let (mut wrapped, mut is_code) = (String::new(), false);
    for line in document.lines() {
        is_code ^= line.starts_with("```");
        if is_code || line.starts_with('|') {
            wrapped += line;
        } else {
            let mut width = 0;
            for word in line.split(' ') {
                let length = word.chars().count();
                if width > 0 && width + 1 + length > LINE_CHARACTERS {
                    wrapped.push('\n');
                    width = 0;
                } else if width > 0 {
                    wrapped.push(' ');
                    width += 1;
                }
                wrapped += word;
                width += length;
            }
        }
        wrapped.push('\n');
    }
    wrapped
}

#[test]
fn reference_in_the_repository_equals_the_program() {
    const BLESS: &str = "RASHOMON_BLESS";
    let base = "http://127.0.0.1:7231";
    let page = DocsPage::new(base, &Sample::default(), &Definitions::default(), &Settings::default());
    let reference = wrap(&Reference { page }.render().unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http-api.md");
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, &reference).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let line = kept.lines().zip(reference.lines()).position(|(kept, reference)| kept != reference);
    assert!(
        kept == reference,
        "docs/http-api.md differs from the program, first {}: run `{BLESS}=1 cargo test -p rashomon-server \
         --lib openapi`",
        line.map_or_else(
            || "after the end of the shorter text".to_owned(),
            |line| format!("in line {}", line + 1)
        )
    );
}

#[test]
fn lines_are_broken_between_words_except_in_tables_and_code() {
    let word = "x".repeat(59);
    let long = format!("{word} {word} {word}");
    assert_eq!(wrap(&long), format!("{word} {word}\n{word}\n"));
    for kept in [format!("| {long} |\n"), format!("```text\n{long}\n```\n")] {
        assert_eq!(wrap(&kept), kept);
    }
}
