//! Reads an export in XML.

use std::{collections::VecDeque, io::Read};

use super::{
    page::PageState,
    revision::{self, RawRevision},
    site_info,
    tokens::{Token, Tokens, attribute, shorten_name},
};
use crate::{
    Event, InputPosition, LeftOut, Problem,
    format::{FormatReader, ReadLimits},
    input::Input,
};

/// Reads an export of MediaWiki, one event after another.
///
/// An input that begins with `page` rather than with `mediawiki` is read as a sequence of pages. Parts of
/// multi-stream dumps are of this kind.
pub(crate) struct XmlReader<R> {
    tokens: Tokens<R>,
    limits: ReadLimits,
    open_element: OpenElement,
    root_seen: bool,
    page_seen: bool,
    language: Option<String>,
    page: PageState,
    skipped: Vec<String>,
    position: InputPosition,
}

/// The innermost open element, on the levels above revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenElement {
    None,
    Root,
    Page { in_root: bool },
}

/// An element, by its meaning in the element that contains it.
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
            open_element: OpenElement::None,
            root_seen: false,
            page_seen: false,
            language: None,
            page: PageState::default(),
            skipped: Vec::new(),
            position: InputPosition::default(),
        }
    }

    fn next_step(&mut self) -> Result<Step, Problem> {
        let open_element = self.open_element;
        Ok(match self.tokens.next()? {
            Token::Start(start) => Step::Start(match (open_element, start.name().as_ref()) {
                (OpenElement::None, "mediawiki") => {
                    Element::Root { language: attribute(&start, "xml:lang")? }
                }
                (OpenElement::None | OpenElement::Root, "page") => Element::Page,
                (OpenElement::Root, "siteinfo") => Element::Site,
                (OpenElement::Page { .. }, "revision") => Element::Revision,
                (OpenElement::Page { .. }, "title") => Element::Title,
                (OpenElement::Page { .. }, "id") => Element::Id,
                (OpenElement::Page { .. }, "ns") => Element::Namespace,
                (OpenElement::Page { .. }, "redirect") => {
                    Element::Redirect { title: attribute(&start, "title")? }
                }
                (OpenElement::Page { .. }, "restrictions") => Element::Restrictions,
                (_, name) => Element::Other(shorten_name(name)),
            }),
            Token::End => Step::End,
            Token::Eof => Step::Eof,
            Token::Text(text) if open_element == OpenElement::None && !text.trim().is_empty() => {
                return Err(Problem::Malformed("text outside of all elements".to_owned()));
            }
            Token::Text(_) | Token::Char(_) | Token::Nothing => Step::Nothing,
        })
    }

    fn begin_element(&mut self, element: Element, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let in_root = self.open_element == OpenElement::Root;
        if self.open_element == OpenElement::None && self.root_seen {
            return Err(Problem::Malformed("data follows the end of the export".to_owned()));
        }
        match element {
            Element::Root { language } => {
                self.root_seen = true;
                self.language = language;
                self.open_element = OpenElement::Root;
            }
            Element::Other(name) if self.open_element == OpenElement::None => {
                let what = format!("not a MediaWiki export: <{name}> instead of <mediawiki>");
                return Err(Problem::Unsupported(what));
            }
            Element::Site => {
                let info = site_info::read(&mut self.tokens, self.language.clone(), &mut self.skipped)?;
                found.push_back(Event::Site(info));
            }
            Element::Page => {
                self.page = PageState { line: self.tokens.position().0, ..PageState::default() };
                self.page_seen = true;
                self.position.revision = None;
                self.position.page = None;
                self.open_element = OpenElement::Page { in_root };
            }
            Element::Revision => self.read_revision(found)?,
            Element::Title => {
                let title = self.tokens.text(self.limits.text)?;
                self.page.set_title(&title);
                self.position.page.clone_from(&self.page.shown);
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

    fn read_revision(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line = self.tokens.position().0;
        self.position.inside = true;
        self.position.revision = Some("without id".to_owned());
        let mut raw = RawRevision::at(line);
        revision::read(&mut self.tokens, &mut raw, self.limits.text, &mut self.position, &mut self.skipped)?;
        self.position.inside = false;
        let Some(Ok(title)) = self.page.title.clone() else {
            self.page.left_out += 1;
            return Ok(());
        };
        match raw.parse(self.limits.latest) {
            Ok(revision) => {
                self.page.add_revision(revision.record.rev);
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

impl<R: Read> FormatReader for XmlReader<R> {
    fn step(&mut self, found: &mut VecDeque<Event>) -> Result<bool, Problem> {
        match self.next_step()? {
            Step::Nothing => {}
            Step::Start(element) => {
                let started = self.begin_element(element, found);
                found.extend(self.skipped.drain(..).map(Event::Skipped));
                started?;
            }
            Step::End => match self.open_element {
                OpenElement::Page { in_root } => {
                    self.end_page(found);
                    self.open_element = if in_root { OpenElement::Root } else { OpenElement::None };
                }
                OpenElement::Root | OpenElement::None => self.open_element = OpenElement::None,
            },
            Step::Eof if !self.root_seen && !self.page_seen => {
                return Err(Problem::CutShort("the document has no element".to_owned()));
            }
            Step::Eof => return Ok(false),
        }
        Ok(true)
    }

    fn position(&self, problem: &Problem) -> InputPosition {
        // A malformed part is reported at its beginning, and a missing part at the end of the data that was
        // read.
        let (line, offset) = match problem {
            Problem::Malformed(_) | Problem::Unsupported(_) | Problem::TooLarge(_) => self.tokens.position(),
            Problem::Source(_)
            | Problem::Damaged(_)
            | Problem::Empty
            | Problem::CutShort(_)
            | Problem::NoRoom(_)
            | Problem::DiskFull(_)
            | Problem::Disk(_) => self.tokens.reached(),
        };
        InputPosition { line, offset, ..self.position.clone() }
    }
}

/// Parses a number. Returns `None` if the text is absent or invalid.
pub(super) fn number(text: Option<String>) -> Option<i64> {
    text?.trim().parse().ok()
}
