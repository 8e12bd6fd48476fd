//! Reads an export in XML.

use std::{collections::VecDeque, io::Read};

use super::{
    page::PageState,
    revision::{self, RawRevision},
    schema::Schema,
    site_info,
    tokens::{ROOT, Token, Tokens, attribute, shorten_name},
    unexpected::{Unexpected, nested_page},
};
use crate::{
    BrokenPage, Event, InputPosition, LeftOut, MisplacedFault, Problem,
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
    site_seen: bool,
    language: Option<String>,
    page: PageState,
    unexpected: Unexpected,
    position: InputPosition,
}

/// The innermost open element, on the levels above revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenElement {
    None,
    Root,
    Page { in_root: bool },
}

impl OpenElement {
    /// The name of the element, for messages.
    const fn name(self) -> &'static str {
        match self {
            Self::None | Self::Root => ROOT,
            Self::Page { .. } => "page",
        }
    }
}

/// An element, by its meaning in the element that contains it.
enum Element {
    Root { language: Option<String>, schema: Schema },
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
    /// Characters that are not only spaces.
    Characters,
    Nothing,
}

impl<R: Read> XmlReader<R> {
    pub(crate) fn new(mut input: Input<R>, limits: ReadLimits) -> Self {
        if limits.skip_broken {
            input.split_at_pages();
        }
        Self {
            tokens: Tokens::new(input, limits.text),
            limits,
            open_element: OpenElement::None,
            root_seen: false,
            page_seen: false,
            site_seen: false,
            language: None,
            page: PageState::default(),
            unexpected: Unexpected::default(),
            position: InputPosition::default(),
        }
    }

    fn next_step(&mut self) -> Result<Step, Problem> {
        let open_element = self.open_element;
        Ok(match self.tokens.next()? {
            Token::Start(start) => Step::Start(match (open_element, start.name().as_ref()) {
                (OpenElement::None, ROOT) => Element::Root {
                    language: attribute(&start, "xml:lang")?,
                    schema: Schema {
                        namespace: attribute(&start, "xmlns")?,
                        version: attribute(&start, "version")?,
                    },
                },
                (_, "page") => Element::Page,
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
            token if token.is_space() => Step::Nothing,
            _ => Step::Characters,
        })
    }

    fn begin_element(&mut self, element: Element, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let in_root = self.open_element == OpenElement::Root;
        if self.open_element == OpenElement::None && self.root_seen {
            return Err(Problem::Malformed("data follows the end of the export".to_owned()));
        }
        match element {
            Element::Root { language, schema } => {
                self.root_seen = true;
                self.language = language;
                self.open_element = OpenElement::Root;
                self.tokens.set_root(true);
                found.extend(schema.notice().map(Event::Notice));
            }
            Element::Other(name) if self.open_element == OpenElement::None => {
                let what =
                    format!("not a MediaWiki export: <{name}> instead of <mediawiki>{}", advice(&name));
                return Err(Problem::Unsupported(what));
            }
            Element::Site if self.site_seen => {
                self.unexpected.add(self.tokens.position().0, "siteinfo", MisplacedFault::Repeated);
                self.tokens.skip()?;
            }
            Element::Site => {
                self.site_seen = true;
                let info = site_info::read(&mut self.tokens, self.language.clone(), &mut self.unexpected)?;
                found.push_back(Event::Site(info));
            }
            Element::Page if matches!(self.open_element, OpenElement::Page { .. }) => {
                return Err(nested_page(&mut self.tokens, "page"));
            }
            Element::Page => {
                let line = self.tokens.position().0;
                self.page = PageState { line, ..PageState::default() };
                self.page_seen = true;
                self.position = InputPosition {
                    page_line: Some(line),
                    page: None,
                    revision: None,
                    ..self.position.clone()
                };
                self.open_element = OpenElement::Page { in_root };
            }
            Element::Revision => self.read_revision(found)?,
            Element::Title => {
                if self.is_first("title")? {
                    let title = self.tokens.text(self.limits.text)?;
                    self.page.set_title(&title);
                    self.position.page.clone_from(&self.page.shown);
                    self.unexpected.page.clone_from(&self.page.shown);
                }
            }
            Element::Id => {
                if self.is_first("id")? {
                    self.page.page_id = self.unexpected.read_number(&mut self.tokens, "id", |_| true)?;
                }
            }
            Element::Namespace => {
                if self.is_first("ns")? {
                    self.page.namespace = self.unexpected.read_number(&mut self.tokens, "ns", |_| true)?;
                }
            }
            Element::Redirect { title } => {
                if self.is_first("redirect")? {
                    self.unexpected.read_empty(&mut self.tokens, "redirect")?;
                    self.page.redirect = Some(title.unwrap_or_default());
                }
            }
            Element::Restrictions => {
                if self.is_first("restrictions")? {
                    self.page.restrictions = self.tokens.field()?;
                }
            }
            Element::Other(name) => {
                let within = self.open_element.name();
                self.unexpected.skip(&mut self.tokens, &name, within)?;
            }
        }
        Ok(())
    }

    /// Whether the element that has just begun is the first of its name in the page. If it is not, reports and skips
    /// it.
    fn is_first(&mut self, name: &'static str) -> Result<bool, Problem> {
        if !self.page.seen.contains(&name) {
            self.page.seen.push(name);
            return Ok(true);
        }
        self.unexpected.add(self.tokens.position().0, name, MisplacedFault::Repeated);
        self.tokens.skip()?;
        Ok(false)
    }

    fn read_revision(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line = self.tokens.position().0;
        self.position.inside = true;
        self.position.revision = Some("without id".to_owned());
        let mut raw = RawRevision::at(line);
        revision::read(
            &mut self.tokens,
            &mut raw,
            self.limits.text,
            &mut self.position,
            &mut self.unexpected,
        )?;
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

    fn end_page(&mut self, found: &mut VecDeque<Event>) {
        self.position.page_line = None;
        self.unexpected.page = None;
        found.extend(self.page.untitled().map(Event::LeftOut));
        if let Some(Ok(title)) = &self.page.title {
            found.push_back(Event::PageEnd(title.clone(), self.page.info()));
        }
    }
}

impl<R: Read> XmlReader<R> {
    fn read_next(&mut self, found: &mut VecDeque<Event>) -> Result<bool, Problem> {
        match self.next_step()? {
            Step::Nothing => {}
            Step::Characters => {
                let (line, within) = (self.tokens.position().0, self.open_element.name());
                self.unexpected.check_characters(false, line, within);
            }
            Step::Start(element) => self.begin_element(element, found)?,
            Step::End => match self.open_element {
                OpenElement::Page { in_root } => {
                    self.end_page(found);
                    self.open_element = if in_root { OpenElement::Root } else { OpenElement::None };
                }
                OpenElement::Root | OpenElement::None => {
                    self.open_element = OpenElement::None;
                    self.tokens.set_root(false);
                }
            },
            Step::Eof if self.tokens.is_at_end() && !self.root_seen && !self.page_seen => {
                return Err(Problem::CutShort("the document has no element".to_owned()));
            }
            Step::Eof => return Ok(false),
        }
        Ok(true)
    }

    /// Reports the page that is being read as broken. Its revisions before the problem have been returned.
    fn break_page(&mut self, problem: &Problem, found: &mut VecDeque<Event>) {
        let broken_line = self.position(problem).line;
        let is_in_page = matches!(self.open_element, OpenElement::Page { .. });
        let line = if is_in_page { self.page.line } else { broken_line };
        found.extend(self.page.untitled().filter(|_| is_in_page).map(Event::LeftOut));
        let title = self.page.shown.take().filter(|_| is_in_page);
        found.push_back(Event::Broken(BrokenPage { line, title, broken_line, problem: problem.to_string() }));
        self.page = PageState::default();
        self.position = InputPosition::default();
        self.unexpected.page = None;
    }

    /// Begins the next part of the input. Returns `false` if there is none.
    fn begin_part(&mut self) -> Result<bool, Problem> {
        self.open_element = match self.open_element {
            OpenElement::None | OpenElement::Page { in_root: false } => OpenElement::None,
            OpenElement::Root | OpenElement::Page { in_root: true } => OpenElement::Root,
        };
        self.tokens.next_part()
    }
}

impl<R: Read> FormatReader for XmlReader<R> {
    fn step(&mut self, found: &mut VecDeque<Event>) -> Result<bool, Problem> {
        let result = self.read_next(found);
        found.extend(self.unexpected.take());
        found.extend(self.tokens.take_foreign().map(Event::Notice));
        let is_export = self.root_seen || self.page_seen;
        match result {
            Ok(false) if self.limits.skip_broken => self.begin_part(),
            Err(problem) if self.limits.skip_broken && is_export && problem.concerns_a_part() => {
                self.break_page(&problem, found);
                self.begin_part()
            }
            result => result,
        }
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

/// Says what to do with another document that is often taken for an export.
fn advice(root: &str) -> &'static str {
    if root.eq_ignore_ascii_case("html") {
        ". It is a web page, perhaps with an error message: download the export again"
    } else {
        ""
    }
}
