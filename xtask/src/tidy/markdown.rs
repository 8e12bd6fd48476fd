//! Links between the pages of the documentation.

use std::collections::HashMap;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{Problem, Tree};

/// Links to files lead to files, links to headings to headings. Other addresses are not looked at.
pub(super) fn links(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (offset, target) in targets(text) {
            if let Some(wrong) = wrong(tree, path, &target) {
                let line = text[..offset].matches('\n').count();
                problems.push(Problem::line(
                    path,
                    line,
                    format!("the link to {target} leads nowhere: {wrong}"),
                ));
            }
        }
    }
    problems
}

/// Where links and images lead, and where in the text they stand.
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

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES
}

/// What is wrong with a link from a page, if anything is.
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

/// The path from the root of the project; `None` where it leads out of it.
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

/// The names of a page's headings, as code hosts make them: lower case, blanks as dashes, without
/// punctuation, and a number after the second of one name.
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
}
