//! Reading JSON lines.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, Read},
};

use rashomon_buckets::{PageInfo, Parent, PropertyName, Revision, RevisionRecord, Title};
use serde::de::DeserializeOwned;

use super::{
    VERSION,
    line::{AnyLine, EndLine, Kind, PageLine, PropertyValue, RenderLine, RevisionLine, SiteLine},
};
use crate::{
    Event, LeftOut, LeftOutReason, Place, Problem, ReadError, SourceProperty, SourceRender, SourceRevision,
    input::Input, timestamps,
};

/// The most bytes of renders that are held until a revision is given with them; further ones follow as more of
/// the same revision.
const MAX_RENDERS: usize = 8 << 20;

/// Reads JSON lines, one event after another.
pub struct JsonLinesReader<R> {
    input: Input<R>,
    max_line: usize,
    buffer: Vec<u8>,
    line: u64,
    offset: u64,
    site_seen: bool,
    page: Option<Page>,
    pending: Option<Pending>,
    counts: EndLine,
    ready: VecDeque<Event>,
    over: bool,
}

/// The page that began last.
struct Page {
    line: u64,
    shown: String,
    title: Result<Title, LeftOutReason>,
    info: Option<PageInfo>,
    left_out: u64,
}

/// The revision that came last, which further renders may follow.
enum Pending {
    /// It is kept.
    Kept { revision: Box<SourceRevision>, bytes: usize },
    /// It is left out, and its renders with it.
    LeftOut(LeftOut),
    /// It is left out with all of its page.
    WithPage,
}

impl<R: Read> JsonLinesReader<R> {
    /// Reads an input whose lines have at most `max_line` bytes.
    pub(crate) fn new(input: Input<R>, max_line: usize) -> Self {
        Self {
            input,
            max_line,
            buffer: Vec::new(),
            line: 1,
            offset: 0,
            site_seen: false,
            page: None,
            pending: None,
            counts: EndLine { kind: Kind::End, pages: 0, revisions: 0, renders: 0 },
            ready: VecDeque::new(),
            over: false,
        }
    }

    /// The next event; `None` at the end. Nothing comes after an error.
    #[allow(clippy::should_implement_trait)] // It can fail, and is fused.
    pub fn next(&mut self) -> Result<Option<Event>, ReadError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.over {
                return Ok(None);
            }
            if let Err(problem) = self.step() {
                self.over = true;
                return Err(self.error(problem));
            }
        }
    }

    fn error(&self, problem: Problem) -> ReadError {
        let revision = match &self.pending {
            Some(Pending::Kept { revision, .. }) => Some(revision.record.rev),
            Some(Pending::LeftOut(left_out)) => left_out.rev,
            Some(Pending::WithPage) | None => None,
        };
        let place = Place {
            page: self.page.as_ref().map(|page| page.shown.clone()),
            revision: revision.map(|rev| rev.to_string()),
            inside: false,
            line: self.line,
            offset: self.offset,
            compressed: None,
        };
        ReadError { problem, place }
    }

    /// Reads a line and what follows from it.
    fn step(&mut self) -> Result<(), Problem> {
        if !self.read_line()? {
            return Err(Problem::CutShort("there is no line of kind `end`".to_owned()));
        }
        if self.buffer.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let kind = parse::<AnyLine>(&self.buffer)?.kind;
        if !self.site_seen && kind != Kind::Siteinfo {
            let what = "the first line is not of kind `siteinfo`, which has the version";
            return Err(Problem::Malformed(what.to_owned()));
        }
        match kind {
            Kind::Siteinfo => self.site(),
            Kind::Page => self.begin_page(),
            Kind::Revision => self.revision(),
            Kind::Render => self.render(),
            Kind::End => self.end(),
        }
    }

    /// Reads a line into the buffer; `false` at the end of the input. A last line that no line feed ends is one.
    fn read_line(&mut self) -> Result<bool, Problem> {
        self.buffer.clear();
        (self.line, self.offset) = (self.input.line(), self.input.offset());
        loop {
            let available = self.input.fill_buf().map_err(Problem::of_io)?;
            if available.is_empty() {
                return Ok(!self.buffer.is_empty());
            }
            let end = memchr::memchr(b'\n', available);
            let count = end.map_or(available.len(), |end| end + 1);
            self.buffer.extend_from_slice(&available[..count]);
            self.input.consume(count);
            if self.buffer.len() > self.max_line {
                return Err(Problem::TooLarge(format!("a line has more than {} bytes", self.max_line)));
            }
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    fn site(&mut self) -> Result<(), Problem> {
        // Another version may have other fields, so that is looked at first.
        #[derive(serde::Deserialize)]
        struct Version {
            version: u64,
        }
        let Version { version } = parse(&self.buffer)?;
        if version != VERSION {
            return Err(Problem::Unsupported(format!(
                "version {version} of JSON lines; only {VERSION} is read"
            )));
        }
        let line: SiteLine = parse(&self.buffer)?;
        if self.site_seen {
            return Err(Problem::Malformed("a second line of kind `siteinfo`".to_owned()));
        }
        self.site_seen = true;
        self.ready.extend(line.site.map(Event::Site));
        Ok(())
    }

    fn begin_page(&mut self) -> Result<(), Problem> {
        let line: PageLine = parse(&self.buffer)?;
        self.end_page();
        self.counts.pages += 1;
        self.page = Some(Page {
            line: self.line,
            shown: LeftOut::shown(&line.title),
            title: Title::new(&line.title).map_err(LeftOutReason::BadTitle),
            info: line.info,
            left_out: 0,
        });
        Ok(())
    }

    fn revision(&mut self) -> Result<(), Problem> {
        let line: RevisionLine = parse(&self.buffer)?;
        self.give_pending();
        self.counts.revisions += 1;
        let Some(page) = &mut self.page else {
            return Err(Problem::Malformed("a line of kind `revision` before any of kind `page`".to_owned()));
        };
        if page.title.is_err() {
            page.left_out += 1;
            self.pending = Some(Pending::WithPage);
            return Ok(());
        }
        let rev = line.rev.to_revision();
        self.pending = Some(match record_of(&line) {
            Ok(record) => {
                let properties = properties(line.properties)?;
                let revision = SourceRevision {
                    line: self.line,
                    continued: false,
                    record,
                    properties,
                    renders: Vec::new(),
                };
                Pending::Kept { revision: Box::new(revision), bytes: 0 }
            }
            Err(reason) => {
                let title = Some(page.shown.clone());
                Pending::LeftOut(LeftOut { line: self.line, title, rev, revisions: 1, reason })
            }
        });
        Ok(())
    }

    fn render(&mut self) -> Result<(), Problem> {
        let line: RenderLine = parse(&self.buffer)?;
        self.counts.renders += 1;
        match &mut self.pending {
            None => {
                Err(Problem::Malformed("a line of kind `render` that no revision comes before".to_owned()))
            }
            Some(Pending::LeftOut(_) | Pending::WithPage) => Ok(()),
            Some(Pending::Kept { revision, bytes }) => {
                let render = SourceRender { tid: line.tid, properties: properties(line.properties)? };
                let size: usize = render.properties.iter().map(|property| property.body.len()).sum();
                if *bytes + size > MAX_RENDERS && !revision.renders.is_empty() {
                    let more = SourceRevision {
                        continued: true,
                        renders: Vec::new(),
                        record: revision.record.clone(),
                        properties: revision.properties.clone(),
                        ..**revision
                    };
                    let full = std::mem::replace(revision, Box::new(more));
                    *bytes = 0;
                    if let Some(Ok(title)) = self.page.as_ref().map(|page| &page.title) {
                        self.ready.push_back(Event::Revision(title.clone(), full));
                    }
                }
                *bytes += size;
                revision.renders.push(render);
                Ok(())
            }
        }
    }

    fn end(&mut self) -> Result<(), Problem> {
        let line: EndLine = parse(&self.buffer)?;
        if line != self.counts {
            let EndLine { pages, revisions, renders, .. } = &self.counts;
            return Err(Problem::Malformed(format!(
                "the last line counts {} pages, {} revisions, {} renders, but {pages}, {revisions}, {renders} came",
                line.pages, line.revisions, line.renders
            )));
        }
        while self.read_line()? {
            if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                return Err(Problem::Malformed("something follows the line of kind `end`".to_owned()));
            }
        }
        self.end_page();
        self.over = true;
        Ok(())
    }

    fn end_page(&mut self) {
        self.give_pending();
        let Some(page) = self.page.take() else { return };
        match page.title {
            Ok(title) => self.ready.push_back(Event::PageEnd(title, page.info)),
            Err(reason) if page.left_out > 0 => self.ready.push_back(Event::LeftOut(LeftOut {
                line: page.line,
                title: Some(page.shown),
                rev: None,
                revisions: page.left_out,
                reason,
            })),
            Err(_) => {}
        }
    }

    fn give_pending(&mut self) {
        match self.pending.take() {
            Some(Pending::Kept { revision, .. }) => {
                if let Some(Ok(title)) = self.page.as_ref().map(|page| &page.title) {
                    self.ready.push_back(Event::Revision(title.clone(), revision));
                }
            }
            Some(Pending::LeftOut(left_out)) => self.ready.push_back(Event::LeftOut(left_out)),
            Some(Pending::WithPage) | None => {}
        }
    }
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(line).map_err(|error| {
        // Each line is a document of its own: where in the input it is, the place says.
        let column = error.column();
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default();
        Problem::Malformed(format!("{what} (column {column})"))
    })
}

fn record_of(line: &RevisionLine) -> Result<RevisionRecord, LeftOutReason> {
    let number = || line.rev.0.map_or_else(|| "not a number".to_owned(), |number| number.to_string());
    let rev: Revision = line.rev.to_revision().ok_or_else(|| LeftOutReason::BadNumber(number()))?;
    let timestamp = line.timestamp.as_deref().ok_or(LeftOutReason::NoTimestamp)?;
    let timestamp =
        timestamps::parse(timestamp).ok_or_else(|| LeftOutReason::BadTimestamp(LeftOut::shown(timestamp)))?;
    Ok(RevisionRecord {
        rev,
        parent: line.parent.and_then(Parent::from_number),
        timestamp,
        user: line.user.clone(),
        comment: line.comment.clone(),
        minor: line.minor,
        export: line.export.clone(),
    })
}

fn properties(values: BTreeMap<PropertyName, PropertyValue>) -> Result<Vec<SourceProperty>, Problem> {
    let properties = values.into_iter().map(|(name, value)| value.into_property(name));
    properties.collect::<Result<_, _>>().map_err(Problem::Malformed)
}
