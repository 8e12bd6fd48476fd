//! The subset of wikitext that the sample wiki uses: headings, lists, indents, paragraphs, bold, italics,
//! links and redirects. Everything else is escaped text.

use std::{collections::BTreeSet, fmt::Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that MediaWiki does not encode in the URL of a title.
const RAW_IN_TITLES: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b';')
    .remove(b':')
    .remove(b'@')
    .remove(b'$')
    .remove(b'!')
    .remove(b'*')
    .remove(b'(')
    .remove(b')')
    .remove(b',')
    .remove(b'/');

/// A title as part of a URL, in its canonical spelling.
pub(crate) fn title_in_url(title: &str) -> String {
    utf8_percent_encode(&title.replace(' ', "_"), &RAW_IN_TITLES).to_string()
}

/// The version of the renderer. As in a real wiki, every page is rendered again with a new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renderer {
    /// The first renderer.
    One,
    /// A renderer with anchors for headings.
    Two,
}

/// Renders a page. Links to titles that are not in `existing` are marked, as MediaWiki does.
pub(crate) fn to_html(title: &str, text: &str, existing: &BTreeSet<String>, renderer: Renderer) -> String {
    let mut page =
        Page { up: "../".repeat(title.matches('/').count()), existing, renderer, html: String::new() };
    for block in text.split("\n\n") {
        page.block(block.trim_matches('\n'));
    }
    let name = escape(&title.replace('_', " "));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{name}</title></head>\n\
         <body>\n<h1>{name}</h1>\n{}</body>\n</html>\n",
        page.html
    )
}

/// Returns the titles that a text links to, in the spelling of titles.
pub(crate) fn links(text: &str) -> BTreeSet<String> {
    text.split("[[").skip(1).filter_map(|rest| rest.split_once("]]")).map(|(link, _)| target(link)).collect()
}

/// The title in a link, from the text between the brackets.
fn target(link: &str) -> String {
    link.split_once('|').map_or(link, |(target, _)| target).replace(' ', "_")
}

struct Page<'a> {
    /// The relative path from the page to the root of all titles. A title may have slashes.
    up: String,
    existing: &'a BTreeSet<String>,
    renderer: Renderer,
    html: String,
}

impl Page<'_> {
    /// Renders the lines between two empty lines: list items and headings, and the rest as a paragraph.
    fn block(&mut self, block: &str) {
        let mut open: Vec<&'static str> = Vec::new();
        for line in block.lines() {
            let (wanted, content) = line_kind(line);
            let shared = open.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
            self.close(&mut open, shared);
            for &element in &wanted[shared..] {
                let _ = writeln!(self.html, "<{element}>");
                open.push(element);
            }
            let content = self.line(content, open.last().copied());
            self.html.push_str(&content);
        }
        self.close(&mut open, 0);
    }

    fn close(&mut self, open: &mut Vec<&'static str>, keep: usize) {
        while open.len() > keep {
            let _ = writeln!(self.html, "</{}>", open.pop().unwrap_or_default());
        }
    }

    fn line(&self, content: &str, container: Option<&str>) -> String {
        let heading = content.strip_prefix("== ").and_then(|rest| rest.strip_suffix(" =="));
        match (container, heading, content.strip_prefix("#REDIRECT ")) {
            (Some("dl"), ..) => format!("<dd>{}</dd>\n", self.inline(content)),
            (Some("ul" | "ol"), ..) => format!("<li>{}</li>\n", self.inline(content)),
            (_, Some(heading), _) => match self.renderer {
                Renderer::One => format!("<h2>{}</h2>\n", self.inline(heading)),
                Renderer::Two => {
                    let id = escape(&heading.replace(' ', "_"));
                    format!("<h2 id=\"{id}\">{}</h2>\n", self.inline(heading))
                }
            },
            (_, _, Some(link)) => format!("<p>Redirect to {}</p>\n", self.inline(link)),
            _ if content.is_empty() => String::new(),
            _ => format!("{}\n", self.inline(content)),
        }
    }

    fn inline(&self, text: &str) -> String {
        let mut html = String::new();
        let mut open: Vec<&'static str> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some((link, after)) = rest.strip_prefix("[[").and_then(|inside| inside.split_once("]]")) {
                html.push_str(&self.link(link));
                rest = after;
            } else if let Some((elements, after)) = quotes(rest) {
                // The element that was opened last is closed first.
                if open.is_empty() {
                    elements.iter().for_each(|element| toggle(&mut html, &mut open, element));
                } else {
                    elements.iter().rev().for_each(|element| toggle(&mut html, &mut open, element));
                }
                rest = after;
            } else {
                // The first character is text. Continue at the next character that may be markup.
                let first = rest.chars().next().map_or(1, char::len_utf8);
                let next = ["[[", "''"].iter().filter_map(|mark| rest[first..].find(mark)).min();
                let (plain, after) = rest.split_at(next.map_or(rest.len(), |at| first + at));
                html.push_str(&escape(plain));
                rest = after;
            }
        }
        while let Some(element) = open.pop() {
            let _ = write!(html, "</{element}>");
        }
        html
    }

    fn link(&self, link: &str) -> String {
        let title = target(link);
        let label = self.inline(link.split_once('|').map_or(link, |(_, label)| label));
        let missing = if self.existing.contains(&title) { "" } else { " class=\"new\"" };
        let up = if self.up.is_empty() { "./" } else { &self.up };
        format!("<a href=\"{up}{}\"{missing}>{label}</a>", title_in_url(&title))
    }
}

/// The elements around a line, from the outermost on, and the rest of the line.
fn line_kind(line: &str) -> (Vec<&'static str>, &str) {
    if let Some(item) = line.strip_prefix("* ") {
        return (vec!["ul"], item);
    }
    if let Some(item) = line.strip_prefix("# ") {
        return (vec!["ol"], item);
    }
    let content = line.trim_start_matches(':');
    let depth = line.len() - content.len();
    if depth > 0 {
        return (vec!["dl"; depth], content.trim_start());
    }
    let alone = line.starts_with("== ") || line.starts_with("#REDIRECT ") || line.is_empty();
    (if alone { vec![] } else { vec!["p"] }, line)
}

/// Parses a run of two, three or five quotes at the beginning of the text. Returns the elements that the run
/// turns on or off, and the text after it.
fn quotes(text: &str) -> Option<(&'static [&'static str], &str)> {
    let rest = text.trim_start_matches('\'');
    match text.len() - rest.len() {
        2 => Some((&["i"], rest)),
        3 => Some((&["b"], rest)),
        5 => Some((&["i", "b"], rest)),
        _ => None,
    }
}

/// Turns an element on. If it is on already, turns it off with everything inside.
fn toggle(html: &mut String, open: &mut Vec<&'static str>, element: &'static str) {
    let Some(at) = open.iter().position(|&one| one == element) else {
        let _ = write!(html, "<{element}>");
        open.push(element);
        return;
    };
    while open.len() > at {
        let _ = write!(html, "</{}>", open.pop().unwrap_or_default());
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(title: &str, text: &str, renderer: Renderer) -> String {
        let html = to_html(title, text, &BTreeSet::from(["A/É".to_owned()]), renderer);
        let (_, rest) = html.split_once("</h1>\n").unwrap();
        rest.strip_suffix("</body>\n</html>\n").unwrap().to_owned()
    }

    #[test]
    fn blocks_become_elements() {
        let text = "One\nline\n\n== H h ==\n* a\n* b\n\n: x\n:: y\n: z\n\n# 1\n";
        let expected = "<p>\nOne\nline\n</p>\n<h2>H h</h2>\n<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n\
                        <dl>\n<dd>x</dd>\n<dl>\n<dd>y</dd>\n</dl>\n<dd>z</dd>\n</dl>\n<ol>\n<li>1</li>\n</ol>\n";
        assert_eq!(body("T", text, Renderer::One), expected);
        assert!(body("T", text, Renderer::Two).contains("<h2 id=\"H_h\">H h</h2>"));
    }

    #[test]
    fn links_work_from_titles_with_slashes_and_to_missing_pages() {
        let text = "[[A/É|''see'']] [[No \"such\"]]";
        let expected = "<p>\n<a href=\"../A/%C3%89\"><i>see</i></a> \
                        <a href=\"../No_%22such%22\" class=\"new\">No &quot;such&quot;</a>\n</p>\n";
        assert_eq!(body("B/C", text, Renderer::One), expected);
        assert_eq!(links(text), BTreeSet::from(["A/É".to_owned(), "No_\"such\"".to_owned()]));
    }

    #[test]
    fn everything_else_is_text() {
        assert_eq!(body("T", "<script> ' & [[x", Renderer::One), "<p>\n&lt;script&gt; ' &amp; [[x\n</p>\n");
        assert_eq!(
            body("T", "'''''Both''''' '''b", Renderer::One),
            "<p>\n<i><b>Both</b></i> <b>b</b>\n</p>\n"
        );
    }
}
