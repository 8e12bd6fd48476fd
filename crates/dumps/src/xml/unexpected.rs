//! Elements that are not imported: unknown ones, and elements of an export at a place where an export does not have
//! them. The latter may hold content, so each is reported with its page and its line.

use std::io::Read;

use rashomon_pages::Revision;

use super::tokens::{MAX_FIELD_BYTES, ROOT, Token, Tokens, shorten_name};
use crate::{Event, LeftOut, LeftOutReason, Misplaced, MisplacedFault, Problem};

/// The names of the elements that hold the content of an export.
const NAMES: [&str; 30] = [
    "mediawiki",
    "siteinfo",
    "sitename",
    "dbname",
    "base",
    "generator",
    "case",
    "namespaces",
    "namespace",
    "page",
    "title",
    "ns",
    "id",
    "redirect",
    "restrictions",
    "revision",
    "parentid",
    "timestamp",
    "contributor",
    "username",
    "ip",
    "minor",
    "comment",
    "origin",
    "model",
    "format",
    "text",
    "content",
    "role",
    "sha1",
];

/// Elements of exports that are not supported. They hold elements with the names of others, but no revisions of pages.
const UNSUPPORTED: [&str; 3] = ["upload", "logitem", "discussionthreadinginfo"];

/// The reports of elements that are not imported.
#[derive(Debug, Default)]
pub(super) struct Unexpected {
    /// The title of the page that is being read, as messages show it.
    pub(super) page: Option<String>,
    events: Vec<Event>,
}

/// A page or a revision within an element that is skipped.
struct Inner {
    depth: usize,
    line: u64,
    /// The title of the page, or the number of the revision.
    name: Option<String>,
    has_revisions: bool,
}

impl Unexpected {
    /// No reports yet about the page with this title.
    pub(super) fn of_page(page: Option<String>) -> Self {
        Self { page, events: Vec::new() }
    }

    /// Takes the reports.
    pub(super) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Adds the reports about the content of an incomplete revision, except about its own elements. Returns the name of
    /// the first element of an export, if there is one.
    pub(super) fn add_inner(&mut self, inner: Self) -> Option<String> {
        let mut first = None;
        for event in inner.events {
            match event {
                Event::Misplaced(Misplaced { element, .. }) => {
                    first.get_or_insert(element);
                }
                event => {
                    if matches!(event, Event::LeftOut(_)) {
                        first.get_or_insert("revision".to_owned());
                    }
                    self.events.push(event);
                }
            }
        }
        first
    }

    /// Reports an element, or characters, at an unexpected place.
    pub(super) fn add(&mut self, line: u64, element: &str, fault: MisplacedFault) {
        let (title, element) = (self.page.clone(), shorten_name(element));
        self.events.push(Event::Misplaced(Misplaced { line, title, element, fault }));
    }

    /// Reads the number in the element `name` that has just begun: `None` if the element is empty. Reports a value that
    /// is no number, or that `is_allowed` does not accept.
    pub(super) fn read_number<R: Read>(
        &mut self,
        tokens: &mut Tokens<R>,
        name: &str,
        is_allowed: impl Fn(i64) -> bool,
    ) -> Result<Option<i64>, Problem> {
        let line = tokens.position().0;
        let Some(value) = tokens.word()? else { return Ok(None) };
        let number = value.parse().ok().filter(|number| is_allowed(*number));
        if number.is_none() {
            self.add(line, name, MisplacedFault::BadNumber(LeftOut::shorten(&value)));
        }
        Ok(number)
    }

    /// Reads the rest of the element `name`, which has just begun and should be empty. Reports what is in it.
    pub(super) fn read_empty<R: Read>(&mut self, tokens: &mut Tokens<R>, name: &str) -> Result<(), Problem> {
        loop {
            match tokens.next()? {
                Token::Start(start) => {
                    let inner = start.name().as_ref().to_owned();
                    if inner == "page" {
                        return Err(nested_page(tokens, name));
                    }
                    self.skip(tokens, &inner, name)?;
                }
                Token::End | Token::Eof => return Ok(()),
                token => {
                    let is_space = token.is_space();
                    self.check_characters(is_space, tokens.position().0, name);
                }
            }
        }
    }

    /// Reports characters between the elements of the element `within`.
    pub(super) fn check_characters(&mut self, is_space: bool, line: u64, within: &str) {
        if !is_space {
            self.add(line, "", MisplacedFault::Within(within.to_owned()));
        }
    }

    /// Skips the element `name` that has just begun within the element `within`, and reports it. Reports each revision
    /// in it, and each page without revisions. If it is unknown, also reports each other element of an export in it.
    pub(super) fn skip<R: Read>(
        &mut self,
        tokens: &mut Tokens<R>,
        name: &str,
        within: &str,
    ) -> Result<(), Problem> {
        let (depth, local_name) = (tokens.depth(), local(name));
        let mut position = tokens.position();
        let (mut page, mut revision): (Option<Inner>, Option<Inner>) = (None, None);
        let is_known = NAMES.contains(&local_name);
        let mut reports_others = !UNSUPPORTED.contains(&local_name);
        if is_known && !matches!(local_name, "page" | "revision" | "mediawiki") {
            self.add(position.0, name, MisplacedFault::Within(within.to_owned()));
            reports_others = false;
        } else if !is_known {
            self.events.push(Event::Skipped(shorten_name(name)));
        }
        let shortened = shorten_name(name);
        let within = if is_known { within } else { &*shortened };
        let mut begun = Some(local_name.to_owned());
        loop {
            match begun.take().as_deref() {
                Some("page") if page.is_none() => page = Some(Inner::at(tokens.depth(), position.0)),
                Some("revision") if revision.is_none() => {
                    revision = Some(Inner::at(tokens.depth(), position.0));
                    if let Some(page) = &mut page {
                        page.has_revisions = true;
                    }
                }
                Some("title") if revision.is_none() && Inner::is_unnamed(page.as_ref(), tokens.depth()) => {
                    let title = tokens.text(MAX_FIELD_BYTES)?;
                    page.iter_mut().for_each(|page| page.name = Some(LeftOut::shorten(title.trim())));
                }
                Some("id") if Inner::is_unnamed(revision.as_ref(), tokens.depth()) => {
                    let id = tokens.field()?;
                    revision.iter_mut().for_each(|revision| revision.name.clone_from(&id));
                }
                Some(other)
                    if reports_others
                        && tokens.depth() > depth
                        && page.is_none()
                        && revision.is_none()
                        && NAMES.contains(&other)
                        && other != ROOT =>
                {
                    self.add(position.0, other, MisplacedFault::Within(within.to_owned()));
                }
                _ => {}
            }
            if let Some(ended) = revision.take_if(|revision| revision.depth > tokens.depth()) {
                let title = page.as_ref().map_or_else(|| self.page.clone(), |page| page.name.clone());
                let rev = ended.name.and_then(|id| id.trim().parse().ok()).and_then(Revision::new);
                let reason = LeftOutReason::Misplaced { within: within.to_owned() };
                let left_out = LeftOut { line: ended.line, title, rev, revisions: 1, reason };
                self.events.push(Event::LeftOut(left_out));
            }
            if let Some(ended) = page.take_if(|page| page.depth > tokens.depth())
                && !ended.has_revisions
            {
                let fault = MisplacedFault::Within(within.to_owned());
                let (line, title, element) = (ended.line, ended.name, "page".to_owned());
                self.events.push(Event::Misplaced(Misplaced { line, title, element, fault }));
            }
            if tokens.depth() < depth {
                return Ok(());
            }
            if let Token::Start(start) = tokens.next()? {
                begun = Some(local(start.name().as_ref()).to_owned());
            }
            position = tokens.position();
        }
    }
}

impl Inner {
    const fn at(depth: usize, line: u64) -> Self {
        Self { depth, line, name: None, has_revisions: false }
    }

    /// Whether there is such an element without a name, and its child has just begun.
    fn is_unnamed(inner: Option<&Self>, depth: usize) -> bool {
        inner.is_some_and(|inner| inner.name.is_none() && inner.depth + 1 == depth)
    }
}

/// Returns a name without its prefix.
fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// The problem of a page that begins within another element, which is therefore not closed. Reads the title of the page
/// for the message. The page has just begun.
pub(super) fn nested_page<R: Read>(tokens: &mut Tokens<R>, within: &str) -> Problem {
    let position = tokens.position();
    let title = loop {
        match tokens.next() {
            Ok(Token::Start(start)) if start.name().as_ref() == "title" => {
                break tokens.text(MAX_FIELD_BYTES).ok();
            }
            Ok(Token::Text(text)) if text.trim_ascii().is_empty() => {}
            Ok(Token::Nothing) => {}
            _ => break None,
        }
    };
    tokens.set_position(position);
    let page = title
        .map_or_else(|| "a page".to_owned(), |title| format!("page {:?}", LeftOut::shorten(title.trim())));
    Problem::Malformed(format!("{page} begins within <{within}>, which is not closed"))
}
