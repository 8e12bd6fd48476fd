//! Reading JSON lines.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, Read},
};

use rashomon_buckets::{PageInfo, PropertyName, Revision, RevisionRecord, Title, excerpt};
use rashomon_clock::Timestamp;
use serde::de::DeserializeOwned;

use super::{
    VERSION,
    line::{
        AnyLine, EndLine, ErasureValue, Fault, Kind, PageLine, PropertyValue, RenderLine, RevisionLine,
        SiteLine,
    },
};
use crate::{
    Event, InputPosition, LeftOut, LeftOutReason, Problem, SourceProperty, SourceRender, SourceRevision,
    format::{FormatReader, ReadLimits},
    input::Input,
    parent, timestamps,
};

/// The maximum number of bytes of renders that are held until their revision is returned. Further renders
/// follow as a continuation of the same revision.
const MAX_RENDERS: usize = 8 << 20;

/// Reads JSON lines, one event after another.
pub(crate) struct JsonLinesReader<R> {
    input: Input<R>,
    limits: ReadLimits,
    buffer: Vec<u8>,
    line: u64,
    offset: u64,
    site_seen: bool,
    page: Option<Page>,
    pending: Option<Pending>,
    counts: EndLine,
}

/// The last page.
struct Page {
    line: u64,
    shown: String,
    title: Result<Title, LeftOutReason>,
    info: Option<PageInfo>,
    left_out: u64,
}

/// The last revision. Further renders of it may follow.
enum Pending {
    /// The revision will be stored.
    Kept { revision: Box<SourceRevision>, bytes: usize },
    /// The revision is left out with its renders.
    LeftOut(LeftOut),
    /// The revision is left out with its whole page.
    WithPage,
}

impl<R: Read> JsonLinesReader<R> {
    pub(crate) const fn new(input: Input<R>, limits: ReadLimits) -> Self {
        Self {
            input,
            limits,
            buffer: Vec::new(),
            line: 1,
            offset: 0,
            site_seen: false,
            page: None,
            pending: None,
            counts: EndLine { kind: Kind::End, pages: 0, revisions: 0, renders: 0 },
        }
    }

    /// Reads a line into the buffer. Returns `false` at the end of the input. The last line need not end with
    /// a line feed.
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
            if self.buffer.len() > self.limits.line {
                return Err(Problem::TooLarge(format!("a line has more than {} bytes", self.limits.line)));
            }
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    fn site(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        // Another version may have other fields, so the version is checked first.
        #[derive(serde::Deserialize)]
        struct Version {
            version: u64,
        }
        let Version { version } = parse(&self.buffer)?;
        if version != VERSION {
            return Err(Problem::Unsupported(format!(
                "version {version} of JSON lines is not supported; only {VERSION} is"
            )));
        }
        let line: SiteLine = parse(&self.buffer)?;
        if self.site_seen {
            return Err(Problem::Malformed("a second line of kind `siteinfo`".to_owned()));
        }
        self.site_seen = true;
        found.extend(line.site.map(Event::Site));
        Ok(())
    }

    fn begin_page(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line: PageLine = parse(&self.buffer)?;
        self.end_page(found);
        self.counts.pages += 1;
        self.page = Some(Page {
            line: self.line,
            shown: LeftOut::shorten(&line.title),
            title: Title::new(&line.title).map_err(LeftOutReason::BadTitle),
            info: line.info,
            left_out: 0,
        });
        Ok(())
    }

    fn revision(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line: RevisionLine = parse(&self.buffer)?;
        self.give_pending(found);
        self.counts.revisions += 1;
        let Some(page) = &mut self.page else {
            return Err(Problem::Malformed(
                "a line of kind `revision` comes before any line of kind `page`".to_owned(),
            ));
        };
        if page.title.is_err() {
            page.left_out += 1;
            self.pending = Some(Pending::WithPage);
            return Ok(());
        }
        let rev = line.rev.to_revision();
        self.pending = Some(match revision_of(line, self.line, self.limits.latest) {
            Ok(revision) => Pending::Kept { revision: Box::new(revision), bytes: 0 },
            Err(Fault::Problem(problem)) => return Err(problem),
            Err(Fault::LeftOut(reason)) => {
                let title = Some(page.shown.clone());
                Pending::LeftOut(LeftOut { line: self.line, title, rev, revisions: 1, reason })
            }
        });
        Ok(())
    }

    fn render(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line: RenderLine = parse(&self.buffer)?;
        self.counts.renders += 1;
        match &mut self.pending {
            None => {
                return Err(Problem::Malformed(
                    "a line of kind `render` comes before any line of kind `revision`".to_owned(),
                ));
            }
            Some(Pending::LeftOut(_) | Pending::WithPage) => {}
            Some(Pending::Kept { revision, bytes }) => match render_of(line, self.limits.latest) {
                Ok(render) => {
                    let full = add_render(revision, bytes, render);
                    if let (Some(full), Some(Ok(title))) = (full, self.page.as_ref().map(|page| &page.title))
                    {
                        found.push_back(Event::Revision(title.clone(), full));
                    }
                }
                Err(Fault::Problem(problem)) => return Err(problem),
                Err(Fault::LeftOut(reason)) => {
                    let title = self.page.as_ref().map(|page| page.shown.clone());
                    let (line, rev) = (revision.line, Some(revision.record.rev));
                    self.pending = Some(Pending::LeftOut(LeftOut { line, title, rev, revisions: 1, reason }));
                }
            },
        }
        Ok(())
    }

    fn end(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line: EndLine = parse(&self.buffer)?;
        if line != self.counts {
            let EndLine { pages, revisions, renders, .. } = &self.counts;
            return Err(Problem::Malformed(format!(
                "the last line counts {} pages, {} revisions, {} renders, but the input has {pages}, \
                 {revisions}, {renders}",
                line.pages, line.revisions, line.renders
            )));
        }
        while self.read_line()? {
            if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                return Err(Problem::Malformed("data follows the line of kind `end`".to_owned()));
            }
        }
        self.end_page(found);
        Ok(())
    }

    fn end_page(&mut self, found: &mut VecDeque<Event>) {
        self.give_pending(found);
        let Some(page) = self.page.take() else { return };
        match page.title {
            Ok(title) => found.push_back(Event::PageEnd(title, page.info)),
            Err(reason) if page.left_out > 0 => found.push_back(Event::LeftOut(LeftOut {
                line: page.line,
                title: Some(page.shown),
                rev: None,
                revisions: page.left_out,
                reason,
            })),
            Err(_) => {}
        }
    }

    fn give_pending(&mut self, found: &mut VecDeque<Event>) {
        match self.pending.take() {
            Some(Pending::Kept { revision, .. }) => {
                if let Some(Ok(title)) = self.page.as_ref().map(|page| &page.title) {
                    found.push_back(Event::Revision(title.clone(), revision));
                }
            }
            Some(Pending::LeftOut(left_out)) => found.push_back(Event::LeftOut(left_out)),
            Some(Pending::WithPage) | None => {}
        }
    }
}

/// The beginning of an export of a key-value bucket.
const ENTRIES: &[u8] = b"{\"bucket\":";

impl<R: Read> FormatReader for JsonLinesReader<R> {
    fn step(&mut self, found: &mut VecDeque<Event>) -> Result<bool, Problem> {
        if !self.read_line()? {
            return Err(Problem::CutShort("there is no line of kind `end`".to_owned()));
        }
        if self.buffer.iter().all(u8::is_ascii_whitespace) {
            return Ok(true);
        }
        if !self.site_seen && self.buffer.trim_ascii_start().starts_with(ENTRIES) {
            let what = "this is an export of the entries of a key-value bucket, and no pages: import it with `rashomon import \
                        --bucket NAME`";
            return Err(Problem::Malformed(what.to_owned()));
        }
        let kind = parse::<AnyLine>(&self.buffer)?.kind;
        if !self.site_seen && kind != Kind::Siteinfo {
            let what = "the first line is not of kind `siteinfo`, which states the version of the format";
            return Err(Problem::Malformed(what.to_owned()));
        }
        match kind {
            Kind::Siteinfo => self.site(found)?,
            Kind::Page => self.begin_page(found)?,
            Kind::Revision => self.revision(found)?,
            Kind::Render => self.render(found)?,
            Kind::End => {
                self.end(found)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn position(&self, _: &Problem) -> InputPosition {
        let revision = match &self.pending {
            Some(Pending::Kept { revision, .. }) => Some(revision.record.rev),
            Some(Pending::LeftOut(left_out)) => left_out.rev,
            Some(Pending::WithPage) | None => None,
        };
        InputPosition {
            page: self.page.as_ref().map(|page| page.shown.clone()),
            revision: revision.map(|rev| rev.to_string()),
            inside: false,
            line: self.line,
            offset: self.offset,
            compressed: None,
        }
    }
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(line).map_err(|error| {
        // The parser sees a single line, so only the column is useful. The position in the input is reported
        // separately.
        let column = error.column();
        // The message may repeat a name or a value of the line, which may be as large as a body.
        let what = excerpt(&error);
        let what = what.rsplit_once(" at line ").map_or(&*what, |(what, _)| what);
        Problem::Malformed(format!("{what} (column {column})"))
    })
}

/// Adds a render to a revision. If the renders become too large, returns the revision with the earlier
/// renders, and `revision` becomes its continuation.
fn add_render(
    revision: &mut Box<SourceRevision>,
    bytes: &mut usize,
    render: SourceRender,
) -> Option<Box<SourceRevision>> {
    let size: usize = render.properties.iter().map(|property| property.body.len()).sum();
    let full = (*bytes + size > MAX_RENDERS && !revision.renders.is_empty()).then(|| {
        let more = SourceRevision {
            continued: true,
            renders: Vec::new(),
            record: revision.record.clone(),
            properties: revision.properties.clone(),
            ..**revision
        };
        *bytes = 0;
        std::mem::replace(revision, Box::new(more))
    });
    *bytes += size;
    revision.renders.push(render);
    full
}

fn revision_of(line: RevisionLine, number: u64, latest: Timestamp) -> Result<SourceRevision, Fault> {
    let record = record_of(&line, latest)?;
    let properties = properties(line.properties, latest)?;
    Ok(SourceRevision { line: number, continued: false, record, properties, renders: Vec::new() })
}

fn render_of(line: RenderLine, latest: Timestamp) -> Result<SourceRender, Fault> {
    let tid = line.tid;
    let kept = timestamps::check(tid.time(), latest).map_err(Fault::LeftOut);
    let properties = kept.and_then(|()| properties(line.properties, latest));
    properties.map(|properties| SourceRender { tid, properties }).map_err(|fault| match fault {
        Fault::LeftOut(reason) => Fault::LeftOut(LeftOutReason::BadRender { tid, reason: Box::new(reason) }),
        problem @ Fault::Problem(_) => problem,
    })
}

fn record_of(line: &RevisionLine, latest: Timestamp) -> Result<RevisionRecord, LeftOutReason> {
    let number = || line.rev.0.map_or_else(|| "not a number".to_owned(), |number| number.to_string());
    let rev: Revision = line.rev.to_revision().ok_or_else(|| LeftOutReason::BadNumber(number()))?;
    let parent = line.parent.map(|number| number.to_string());
    Ok(RevisionRecord {
        rev,
        timestamp: timestamps::of_revision(line.timestamp.as_deref(), latest)?,
        parent: parent::of_revision(rev, parent.as_deref())?,
        user: line.user.clone(),
        comment: line.comment.clone(),
        minor: line.minor,
        export: line.export.clone(),
        erased: line.erased.as_ref().map(ErasureValue::to_erasure),
    })
}

fn properties(
    values: BTreeMap<PropertyName, PropertyValue>,
    latest: Timestamp,
) -> Result<Vec<SourceProperty>, Fault> {
    let properties = values.into_iter().map(|(name, value)| {
        let property = value.into_property(name)?;
        timestamps::check(property.rewritten_at.unwrap_or(Timestamp::MIN), latest)?;
        Ok(property)
    });
    properties.collect()
}
