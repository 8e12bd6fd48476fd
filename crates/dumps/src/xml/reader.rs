//! Reads an export.

use std::{collections::VecDeque, io::Read};

use super::{
    page::PageState,
    revision::{self, RawRevision},
    site_info,
    tokens::{Token, Tokens, attribute, shown},
};
use crate::{
    Event, LeftOut, Place, Problem,
    format::{ReadLimits, Steps},
    input::Input,
};

/// Reads an export of MediaWiki, one event after another.
///
/// An input that begins with `page` rather than with `mediawiki` is read as a sequence of pages. Parts of
/// multi-stream dumps are of this kind.
pub(crate) struct XmlReader<R> {
    tokens: Tokens<R>,
    limits: ReadLimits,
    within: Within,
    root_seen: bool,
    page_seen: bool,
    language: Option<String>,
    page: PageState,
    skipped: Vec<String>,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Nothing,
    Root,
    Page { of_root: bool },
}

/// The meaning of an element in its place.
enum Element {
    Root { language: Option<String> },
    Site,
    Page,
    Revision,
    Title,
    Id,
    Namespace,
    Redirect { title: Option<String> },
    Restrictions,
    Other(String),
}

/// The next part of a document, on the levels above revisions.
enum Step {
    Start(Element),
    End,
    Eof,
    Nothing,
}

impl<R: Read> XmlReader<R> {
    pub(crate) fn new(input: Input<R>, limits: ReadLimits) -> Self {
        Self {
            tokens: Tokens::new(input, limits.text),
            limits,
            within: Within::Nothing,
            root_seen: false,
            page_seen: false,
            language: None,
            page: PageState::default(),
            skipped: Vec::new(),
            place: Place::default(),
        }
    }

    fn next_step(&mut self) -> Result<Step, Problem> {
        let within = self.within;
        Ok(match self.tokens.next()? {
            Token::Start(start) => Step::Start(match (within, start.name().as_ref()) {
                (Within::Nothing, "mediawiki") => Element::Root { language: attribute(&start, "xml:lang")? },
                (Within::Nothing | Within::Root, "page") => Element::Page,
                (Within::Root, "siteinfo") => Element::Site,
                (Within::Page { .. }, "revision") => Element::Revision,
                (Within::Page { .. }, "title") => Element::Title,
                (Within::Page { .. }, "id") => Element::Id,
                (Within::Page { .. }, "ns") => Element::Namespace,
                (Within::Page { .. }, "redirect") => Element::Redirect { title: attribute(&start, "title")? },
                (Within::Page { .. }, "restrictions") => Element::Restrictions,
                (_, name) => Element::Other(shown(name)),
            }),
            Token::End => Step::End,
            Token::Eof => Step::Eof,
            Token::Text(text) if within == Within::Nothing && !text.trim().is_empty() => {
                return Err(Problem::Malformed("a text outside of all elements".to_owned()));
            }
            Token::Text(_) | Token::Char(_) | Token::Nothing => Step::Nothing,
        })
    }

    fn start(&mut self, element: Element, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let of_root = self.within == Within::Root;
        if self.within == Within::Nothing && self.root_seen {
            return Err(Problem::Malformed("data follows the end of the export".to_owned()));
        }
        match element {
            Element::Root { language } => {
                self.root_seen = true;
                self.language = language;
                self.within = Within::Root;
            }
            Element::Other(name) if self.within == Within::Nothing => {
                let what = format!("not a MediaWiki export: its first element is <{name}>, not <mediawiki>");
                return Err(Problem::Unsupported(what));
            }
            Element::Site => {
                let info = site_info::read(&mut self.tokens, self.language.clone(), &mut self.skipped)?;
                found.push_back(Event::Site(info));
            }
            Element::Page => {
                self.page = PageState { line: self.tokens.position().0, ..PageState::default() };
                self.page_seen = true;
                self.place.revision = None;
                self.place.page = None;
                self.within = Within::Page { of_root };
            }
            Element::Revision => self.revision(found)?,
            Element::Title => {
                let title = self.tokens.text(self.limits.text)?;
                self.page.set_title(&title);
                self.place.page.clone_from(&self.page.shown);
            }
            Element::Id => self.page.page_id = number(self.tokens.field()?),
            Element::Namespace => self.page.namespace = number(self.tokens.field()?),
            Element::Redirect { title } => {
                self.tokens.skip()?;
                self.page.redirect = Some(title.unwrap_or_default());
            }
            Element::Restrictions => self.page.restrictions = self.tokens.field()?,
            Element::Other(name) => {
                self.skipped.push(name);
                self.tokens.skip()?;
            }
        }
        Ok(())
    }

    fn revision(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line = self.tokens.position().0;
        self.place.inside = true;
        self.place.revision = Some("without id".to_owned());
        let mut raw = RawRevision::at(line);
        revision::read(&mut self.tokens, &mut raw, self.limits.text, &mut self.place, &mut self.skipped)?;
        self.place.inside = false;
        let Some(Ok(title)) = self.page.title.clone() else {
            self.page.left_out += 1;
            return Ok(());
        };
        match raw.parse(self.limits.latest) {
            Ok(revision) => {
                self.page.kept(revision.record.rev);
                found.push_back(Event::Revision(title, Box::new(revision)));
            }
            Err((rev, reason)) => {
                let title = Some(title.to_text());
                found.push_back(Event::LeftOut(LeftOut { line, title, rev, revisions: 1, reason }));
            }
        }
        Ok(())
    }

    fn end_page(&self, found: &mut VecDeque<Event>) {
        found.extend(self.page.untitled().map(Event::LeftOut));
        if let Some(Ok(title)) = &self.page.title {
            found.push_back(Event::PageEnd(title.clone(), self.page.info()));
        }
    }
}

impl<R: Read> Steps for XmlReader<R> {
    fn step(&mut self, found: &mut VecDeque<Event>) -> Result<bool, Problem> {
        match self.next_step()? {
            Step::Nothing => {}
            Step::Start(element) => {
                let started = self.start(element, found);
                found.extend(self.skipped.drain(..).map(Event::Skipped));
                started?;
            }
            Step::End => match self.within {
                Within::Page { of_root } => {
                    self.end_page(found);
                    self.within = if of_root { Within::Root } else { Within::Nothing };
                }
                Within::Root | Within::Nothing => self.within = Within::Nothing,
            },
            Step::Eof if !self.root_seen && !self.page_seen => {
                return Err(Problem::CutShort("the document has no element".to_owned()));
            }
            Step::Eof => return Ok(false),
        }
        Ok(true)
    }

    fn place(&self, problem: &Problem) -> Place {
        // The position of a malformed part is its beginning. The position of a missing part is where it is
        // missing.
        let (line, offset) = match problem {
            Problem::Malformed(_) | Problem::Unsupported(_) | Problem::TooLarge(_) => self.tokens.position(),
            Problem::Source(_)
            | Problem::Damaged(_)
            | Problem::CutShort(_)
            | Problem::NoRoom(_)
            | Problem::DiskFull(_)
            | Problem::Disk(_) => self.tokens.reached(),
        };
        Place { line, offset, ..self.place.clone() }
    }
}

/// Reads a number. `None` if it is invalid, as if it were absent.
pub(super) fn number(text: Option<String>) -> Option<i64> {
    text?.trim().parse().ok()
}
