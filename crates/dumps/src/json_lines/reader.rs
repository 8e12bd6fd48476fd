//! Reads JSON lines.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, Read},
};

use rashomon_clock::Timestamp;
use rashomon_pages::{PageInfo, PropertyName, Revision, RevisionRecord, Title, excerpt};
use serde::de::DeserializeOwned;

use super::{
    VERSION,
    line::{
        AnyLine, EndLine, ErasureValue, Fault, Kind, PageLine, PropertyValue, RenderLine, RevisionLine,
        SiteLine,
    },
};
use crate::{
    BrokenPage, Event, InputPosition, LeftOut, LeftOutReason, Problem, SourceProperty, SourceRender,
    SourceRevision,
    format::{FormatReader, ReadLimits},
    input::Input,
    parent, timestamps,
};

/// The maximum number of bytes of renders that are returned in one event, unless a single render is larger. A
/// revision with more renders is returned in several parts.
const MAX_RENDER_BYTES: usize = 8 << 20;

/// Reads JSON lines, one event after another.
pub(crate) struct JsonLinesReader<R> {
    input: Input<R>,
    limits: ReadLimits,
    buffer: Vec<u8>,
    line: u64,
    offset: u64,
    site_seen: bool,
    page: Option<CurrentPage>,
    pending: Option<PendingRevision>,
    counts: EndLine,
    skipping: Skipping,
}

/// Whether lines are skipped, since a page is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skipping {
    /// No line was skipped.
    Never,
    /// Lines were skipped, so the counts of the last line cannot be checked.
    Before,
    /// Lines are skipped up to the next page.
    Now,
}

/// The page to which the last line belongs.
struct CurrentPage {
    line: u64,
    shown: String,
    title: Result<Title, LeftOutReason>,
    info: Option<PageInfo>,
    left_out: u64,
}

/// The last revision. Further renders of the revision may follow.
enum PendingRevision {
    /// The revision will be stored.
    Kept { revision: Box<SourceRevision>, bytes: usize },
    /// The revision is left out with its renders, or only its further renders are left out.
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
            skipping: Skipping::Never,
        }
    }

    /// Reads a line into the buffer. Returns `false` at the end of the input. The last line need not end with
    /// a line feed.
    fn read_line(&mut self) -> Result<bool, Problem> {
        self.buffer.clear();
        (self.line, self.offset) = (self.input.line(), self.input.offset());
        loop {
            let available = self.input.fill_buf().map_err(Problem::from_io_error)?;
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

    fn read_site(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        // Another version may have other fields, so the version is checked first.
        #[derive(serde::Deserialize)]
        struct Version {
            version: u64,
        }
        let Version { version } = parse(&self.buffer)?;
        if version != VERSION {
            return Err(Problem::Unsupported(format!(
                "version {version} of JSON lines is not supported: the only supported version is {VERSION}"
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

    fn read_page(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line: PageLine = parse(&self.buffer)?;
        self.end_page(found);
        self.counts.pages += 1;
        self.page = Some(CurrentPage {
            line: self.line,
            shown: LeftOut::shorten(&line.title),
            title: Title::new(&line.title).map_err(LeftOutReason::BadTitle),
            info: line.info,
            left_out: 0,
        });
        Ok(())
    }

    fn read_revision(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line: RevisionLine = parse(&self.buffer)?;
        self.emit_pending(found);
        self.counts.revisions += 1;
        let Some(page) = &mut self.page else {
            return Err(Problem::Malformed(
                "a line of kind `revision` comes before any line of kind `page`".to_owned(),
            ));
        };
        if page.title.is_err() {
            page.left_out += 1;
            self.pending = Some(PendingRevision::WithPage);
            return Ok(());
        }
        let rev = line.rev.to_revision();
        self.pending = Some(match parse_revision(line, self.line, self.limits.latest) {
            Ok(revision) => PendingRevision::Kept { revision: Box::new(revision), bytes: 0 },
            Err(Fault::Problem(problem)) => return Err(problem),
            Err(Fault::LeftOut(reason)) => {
                let title = Some(page.shown.clone());
                PendingRevision::LeftOut(LeftOut { line: self.line, title, rev, revisions: 1, reason })
            }
        });
        Ok(())
    }

    fn read_render(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line: RenderLine = parse(&self.buffer)?;
        self.counts.renders += 1;
        match &mut self.pending {
            None => {
                return Err(Problem::Malformed(
                    "a line of kind `render` comes before the first line of kind `revision` of its page"
                        .to_owned(),
                ));
            }
            Some(PendingRevision::LeftOut(_) | PendingRevision::WithPage) => {}
            Some(PendingRevision::Kept { revision, bytes }) => match parse_render(line, self.limits.latest) {
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
                    let reason = match reason {
                        LeftOutReason::BadRender { tid, reason } if revision.continued => {
                            // Earlier parts have been returned, so the renders before this one are returned too.
                            self.emit_pending(found);
                            LeftOutReason::RemainingRenders { tid, reason }
                        }
                        reason => reason,
                    };
                    self.pending =
                        Some(PendingRevision::LeftOut(LeftOut { line, title, rev, revisions: 1, reason }));
                }
            },
        }
        Ok(())
    }

    fn read_end(&mut self, found: &mut VecDeque<Event>) -> Result<(), Problem> {
        let line: EndLine = parse(&self.buffer)?;
        if line != self.counts && self.skipping == Skipping::Never {
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
        self.emit_pending(found);
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

    fn emit_pending(&mut self, found: &mut VecDeque<Event>) {
        match self.pending.take() {
            Some(PendingRevision::Kept { revision, .. }) => {
                if let Some(Ok(title)) = self.page.as_ref().map(|page| &page.title) {
                    found.push_back(Event::Revision(title.clone(), revision));
                }
            }
            Some(PendingRevision::LeftOut(left_out)) => found.push_back(Event::LeftOut(left_out)),
            Some(PendingRevision::WithPage) | None => {}
        }
    }
}

/// The beginning of an export of a key-value bucket.
const ENTRY_EXPORT_BEGINNING: &[u8] = b"{\"bucket\":";

impl<R: Read> JsonLinesReader<R> {
    fn read_next(&mut self, found: &mut VecDeque<Event>) -> Result<bool, Problem> {
        if !self.read_line()? {
            return Err(Problem::CutShort("there is no line of kind `end`".to_owned()));
        }
        if self.buffer.iter().all(u8::is_ascii_whitespace) {
            return Ok(true);
        }
        if !self.site_seen && self.buffer.trim_ascii_start().starts_with(ENTRY_EXPORT_BEGINNING) {
            let what = "this is an export of the entries of a key-value bucket and has no pages: import it with \
                        `rashomon import --bucket NAME`";
            return Err(Problem::Malformed(what.to_owned()));
        }
        let kind = match parse::<AnyLine>(&self.buffer) {
            Ok(line) => line.kind,
            Err(_) if self.skipping == Skipping::Now => return Ok(true),
            Err(problem) => return Err(problem),
        };
        match kind {
            Kind::Page | Kind::End if self.skipping == Skipping::Now => self.skipping = Skipping::Before,
            _ if self.skipping == Skipping::Now => return Ok(true),
            _ => {}
        }
        if !self.site_seen && kind != Kind::Siteinfo {
            let what = "the first line is not of kind `siteinfo`, which states the version of the format";
            return Err(Problem::Malformed(what.to_owned()));
        }
        match kind {
            Kind::Siteinfo => self.read_site(found)?,
            Kind::Page => self.read_page(found)?,
            Kind::Revision => self.read_revision(found)?,
            Kind::Render => self.read_render(found)?,
            Kind::End => {
                self.read_end(found)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reports the page of the last line as broken. Its revisions before are returned, except the last one, which may
    /// lack renders.
    fn break_page(&mut self, problem: &Problem, found: &mut VecDeque<Event>) {
        self.skipping = Skipping::Now;
        self.pending = None;
        let page = self.page.take();
        found.push_back(Event::Broken(BrokenPage {
            line: page.as_ref().map_or(self.line, |page| page.line),
            title: page.map(|page| page.shown),
            broken_line: self.line,
            problem: problem.to_string(),
        }));
    }

    /// Skips the rest of a line that is too long.
    fn skip_line(&mut self) -> Result<(), Problem> {
        while !self.buffer.ends_with(b"\n") {
            let available = self.input.fill_buf().map_err(Problem::from_io_error)?;
            let end = memchr::memchr(b'\n', available);
            let count = end.map_or(available.len(), |end| end + 1);
            self.input.consume(count);
            if end.is_some() || count == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl<R: Read> FormatReader for JsonLinesReader<R> {
    fn step(&mut self, found: &mut VecDeque<Event>) -> Result<bool, Problem> {
        match self.read_next(found) {
            Err(problem) if self.limits.skip_broken && self.site_seen && problem.concerns_a_part() => {
                self.break_page(&problem, found);
                self.skip_line()?;
                Ok(true)
            }
            result => result,
        }
    }

    fn position(&self, _: &Problem) -> InputPosition {
        let revision = match &self.pending {
            Some(PendingRevision::Kept { revision, .. }) => Some(revision.record.rev),
            Some(PendingRevision::LeftOut(left_out)) => left_out.rev,
            Some(PendingRevision::WithPage) | None => None,
        };
        InputPosition {
            member: None,
            page: self.page.as_ref().map(|page| page.shown.clone()),
            page_line: self.page.as_ref().map(|page| page.line),
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
    let full = (*bytes + size > MAX_RENDER_BYTES && !revision.renders.is_empty()).then(|| {
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

fn parse_revision(line: RevisionLine, number: u64, latest: Timestamp) -> Result<SourceRevision, Fault> {
    let record = parse_record(&line, latest)?;
    let properties = parse_properties(line.properties, latest)?;
    Ok(SourceRevision { line: number, continued: false, record, properties, renders: Vec::new() })
}

fn parse_render(line: RenderLine, latest: Timestamp) -> Result<SourceRender, Fault> {
    let tid = line.tid;
    let is_allowed = timestamps::check_not_future(tid.time(), latest).map_err(Fault::LeftOut);
    let properties = is_allowed.and_then(|()| parse_properties(line.properties, latest));
    properties.map(|properties| SourceRender { tid, properties }).map_err(|fault| match fault {
        Fault::LeftOut(reason) => Fault::LeftOut(LeftOutReason::BadRender { tid, reason: Box::new(reason) }),
        problem @ Fault::Problem(_) => problem,
    })
}

fn parse_record(line: &RevisionLine, latest: Timestamp) -> Result<RevisionRecord, LeftOutReason> {
    let number = || line.rev.0.map_or_else(|| "(not an integer)".to_owned(), |number| number.to_string());
    let rev: Revision = line.rev.to_revision().ok_or_else(|| LeftOutReason::BadNumber(number()))?;
    let parent = line.parent.map(|number| number.to_string());
    Ok(RevisionRecord {
        rev,
        timestamp: timestamps::parse_revision_time(line.timestamp.as_deref(), latest)?,
        parent: parent::parse_parent(rev, parent.as_deref())?,
        user: line.user.clone(),
        comment: line.comment.clone(),
        minor: line.minor,
        export: line.export.clone(),
        erased: line.erased.as_ref().map(ErasureValue::to_erasure),
    })
}

fn parse_properties(
    values: BTreeMap<PropertyName, PropertyValue>,
    latest: Timestamp,
) -> Result<Vec<SourceProperty>, Fault> {
    let properties = values.into_iter().map(|(name, value)| {
        let property = value.into_property(name)?;
        timestamps::check_not_future(property.rewritten_at.unwrap_or(Timestamp::MIN), latest)?;
        Ok(property)
    });
    properties.collect()
}
