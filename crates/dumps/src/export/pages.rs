//! The export of one page.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
};

use bytes::Bytes;
use rashomon_pages::{
    Body, Error, Listing, Missing, Page, PageInfo, PropertyInfo, PropertyName, Revision, RevisionStore,
    SealedRange, SlotRecord, StoreError, StoredRevision,
};

use super::{Export, ExportError, Sink, Unreadable, Warning, bodies, bodies::Bodies, report::NewNumber};
use crate::{
    Loss,
    json_lines::WrittenProperty,
    xml::{self, Outcome, WrittenRevision, WrittenSlot, WrittenText},
};

/// The number of revisions that are requested in one call. Their bodies are then read ahead, at most about 4 MiB of
/// each property.
const REVISIONS_PER_CALL: usize = 64;

/// Revisions of a page.
pub(super) type Part = Listing<StoredRevision, Revision>;

/// Reads the first part of a page, or its latest revision, if the page is in blocks of the archive. Reports nothing: a page
/// that is not read in this way is read in its turn.
pub(super) async fn read_first_part(buckets: &RevisionStore, page: &Page, history: bool) -> Option<Part> {
    let range = if history { SealedRange::From(Revision::MIN) } else { SealedRange::Latest };
    buckets.sealed_history(page, range, REVISIONS_PER_CALL).await.ok().flatten()
}

/// Whether no other part follows, and everything that belongs to the revisions was read with them.
pub(super) fn is_whole(part: &Part) -> bool {
    let has_bodies = |revision: &StoredRevision| {
        let of_renders: usize = revision.renders.iter().map(|render| render.properties.len()).sum();
        revision.bodies.len() == revision.properties.len() + of_renders
            && revision.bodies.values().all(|body| matches!(body, Body::Inline(_)))
    };
    part.next.is_none() && part.items.iter().all(has_bodies)
}

/// The number of bytes of the bodies that were read with the revisions.
pub(super) fn body_bytes(part: &Part) -> usize {
    let bodies = part.items.iter().flat_map(|revision| revision.bodies.values());
    bodies.map(|body| if let Body::Inline(body) = body { body.plain.len() } else { 0 }).sum()
}

/// Writes one page, part by part.
pub(super) struct PageExport<'a, 'b, W> {
    pub(super) export: &'a mut Export<'b, W>,
    page: Page,
    info: Option<PageInfo>,
    /// The first part of the page, if it was read already.
    first: Option<Part>,
    after: Option<Revision>,
    bodies: Bodies,
    /// The reasons why bodies of revisions could not be read, until `report_lost` reports them.
    lost: BTreeMap<Revision, String>,
    /// The completely unreadable blocks that have been reported.
    lost_blocks: BTreeSet<String>,
    state: ExportState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExportState {
    /// No part of the page has been written.
    NotBegun,
    Begun,
    /// The format cannot represent the page, or its latest revision is damaged.
    LeftOut,
}

impl<'a, 'b, W: Write + Send + 'static> PageExport<'a, 'b, W> {
    /// `first` is a result of [`read_first_part`].
    pub(super) async fn new(
        export: &'a mut Export<'b, W>,
        page: Page,
        first: Option<Part>,
    ) -> Result<Self, ExportError> {
        let info = match export.catalog.page_info(&page).await {
            Err(Error::Store(StoreError::Corrupt(why))) => {
                export.report.damaged.add(format!("the imported metadata of page {}: {why}", page.title));
                None
            }
            info => info?,
        };
        let mut this = Self {
            export,
            page,
            info,
            first,
            after: None,
            bodies: Bodies::default(),
            lost: BTreeMap::new(),
            lost_blocks: BTreeSet::new(),
            state: ExportState::NotBegun,
        };
        if !this.export.history && this.first.is_none() {
            match this.number_before_latest().await {
                Err(ExportError::Store(Error::Store(StoreError::Corrupt(why)))) => {
                    let what = format!("the latest revision of {} is left out: {why}", this.page.title);
                    this.export.report.damaged.add(what);
                    // No revision follows. The page exists, although none of it is written.
                    this.after = Some(Revision::MAX);
                    this.state = ExportState::LeftOut;
                }
                after => this.after = after?,
            }
        }
        Ok(this)
    }

    /// Returns the number before the number of the latest revision, so that the latest revision is read first.
    async fn number_before_latest(&self) -> Result<Option<Revision>, ExportError> {
        match self.export.buckets.latest_render(&self.page).await {
            Ok(render) => Ok(Revision::new(render.record.rev.get() - 1)),
            Err(Error::NotFound(Missing::Page)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the next revisions. Returns `false` if there are no more.
    pub(super) async fn write_part(&mut self) -> Result<bool, ExportError> {
        let more = self.write_revisions().await?;
        self.report_lost();
        Ok(more)
    }

    async fn write_revisions(&mut self) -> Result<bool, ExportError> {
        let part = match self.first.take() {
            Some(part) => part,
            None => match self.export.buckets.history(&self.page, self.after, REVISIONS_PER_CALL).await {
                Err(Error::NotFound(Missing::Page)) => return Ok(false),
                part => part?,
            },
        };
        let Some(last) = part.items.last().map(|revision| revision.record.rev) else {
            self.after = part.next;
            return Ok(part.next.is_some());
        };
        for revision in part.items {
            if self.state == ExportState::NotBegun {
                self.begin_page()?;
            }
            if self.state == ExportState::Begun {
                self.write_revision(&revision, last).await?;
                self.export.flush_buffer(false).await?;
                if self.export.is_capture_too_large() {
                    return Ok(false);
                }
            }
        }
        self.after = part.next;
        Ok(part.next.is_some())
    }

    /// Completes the page. Returns `false` if no revision of the page was found, and no damage was the reason.
    pub(super) fn end_page(self) -> Result<bool, ExportError> {
        if self.state == ExportState::Begun
            && let Sink::Xml(writer) = &mut self.export.sink
            && !writer.end_page()?
        {
            self.export.report.pages -= 1;
        }
        Ok(self.state != ExportState::NotBegun)
    }

    fn begin_page(&mut self) -> Result<(), ExportError> {
        let title = self.page.title.clone();
        self.state = ExportState::Begun;
        let outcome = match &mut self.export.sink {
            Sink::JsonLines(writer) => {
                writer.page(&title, self.info.as_ref())?;
                Outcome::Written
            }
            Sink::Xml(writer) => {
                let head = xml::page_head(&title, self.info.as_ref(), self.export.site.as_deref());
                let outcome = writer.begin_page(&head)?;
                if !matches!(outcome, Outcome::LeftOut(_)) {
                    self.export.add_number(&title, NewNumber::Page(head.page_id));
                }
                outcome
            }
        };
        if matches!(outcome, Outcome::LeftOut(_)) {
            self.state = ExportState::LeftOut;
        } else {
            self.export.report.pages += 1;
        }
        self.record_outcome(None, outcome);
        Ok(())
    }

    fn record_outcome(&mut self, rev: Option<Revision>, outcome: Outcome) {
        let warning = |loss: Loss| Warning { title: self.page.title.clone(), rev, loss };
        match outcome {
            Outcome::Written => {}
            Outcome::Invalid(loss) => self.export.report.invalid.add(warning(loss)),
            Outcome::LeftOut(loss) => self.export.report.left_out.add(warning(loss)),
        }
    }

    /// Reports the damage that reads have found since the last call.
    fn report_lost(&mut self) {
        let is_beside = self.export.pipe.is_none();
        let skipped = if is_beside { Vec::new() } else { self.export.buckets.maintenance().skipped_damage() };
        for skipped in skipped {
            if skipped.page != self.page {
                continue;
            }
            let (first, last) = skipped.revisions;
            if first == last && skipped.count == 1 {
                // The reason of the skipped block is more precise than the message of a missing body.
                self.lost.insert(first, skipped.why);
            } else if self.lost_blocks.insert(skipped.block) {
                let title = self.page.title.clone();
                let (revisions, count, why) = (skipped.revisions, skipped.count, skipped.why);
                self.export.report.unreadable.add_many(count, Unreadable { title, revisions, count, why });
            }
        }
        let found = if is_beside { Vec::new() } else { self.export.take_found_damage(&self.page) };
        for found in found {
            match found.rev.filter(|_| found.page.as_ref() == Some(&self.page)) {
                Some(rev) => drop(self.lost.insert(rev, found.reason)),
                None => self.export.report.add_damage(&found),
            }
        }
        for (rev, why) in std::mem::take(&mut self.lost) {
            let title = self.page.title.clone();
            self.export.report.unreadable.add(Unreadable { title, revisions: (rev, rev), count: 1, why });
        }
    }

    async fn write_revision(&mut self, revision: &StoredRevision, last: Revision) -> Result<(), ExportError> {
        let rev = revision.record.rev;
        let outcome = match &self.export.sink {
            Sink::JsonLines(_) => self.write_json_lines(revision, last).await?,
            Sink::Xml(_) => self.write_xml(revision, last).await?,
        };
        let Some(outcome) = outcome else { return Ok(()) };
        if !matches!(outcome, Outcome::LeftOut(_)) {
            self.export.report.revisions += 1;
        }
        self.record_outcome(Some(rev), outcome);
        Ok(())
    }

    /// Writes a revision as JSON lines. Returns `None` if a property of the revision cannot be read: the
    /// revision is left out.
    async fn write_json_lines(
        &mut self,
        revision: &StoredRevision,
        last: Revision,
    ) -> Result<Option<Outcome>, ExportError> {
        let mut of_revision = Vec::with_capacity(revision.properties.len());
        let mut kept = revision.stored;
        let stored = revision.properties.iter().filter(|_| revision.stored);
        for (name, info) in stored {
            match self.read_body(name, revision, last).await? {
                BodyRead::Body(body) => of_revision.push((name, info, body)),
                BodyRead::Lost => return Ok(None),
                BodyRead::NotKept => {
                    kept = false;
                    of_revision.clear();
                    break;
                }
            }
        }
        if let Sink::JsonLines(writer) = &mut self.export.sink {
            writer.revision(&revision.record, &written(&of_revision))?;
        }
        'renders: for render in &revision.renders {
            let mut of_render = Vec::with_capacity(render.properties.len());
            kept &= render.stored;
            for (name, info) in render.properties.iter().filter(|_| render.stored) {
                let body = match revision.bodies.get(&(Some(render.tid), name.clone())) {
                    Some(body) => body.clone().whole().await,
                    None => {
                        bodies::read_render_body(&self.export.buckets, &self.page, render.tid, name).await
                    }
                };
                match self.classify_read(revision.record.rev, body)? {
                    BodyRead::Body(body) => of_render.push((name, info, body)),
                    // A render that has lost a property is left out as a whole.
                    BodyRead::Lost => continue 'renders,
                    BodyRead::NotKept => {
                        kept = false;
                        of_render.clear();
                        break;
                    }
                }
            }
            if let Sink::JsonLines(writer) = &mut self.export.sink {
                writer.render(render.tid, &written(&of_render))?;
            }
            self.export.flush_buffer(false).await?;
        }
        if !kept {
            self.record_outcome(Some(revision.record.rev), Outcome::LeftOut(Loss::NotKept));
        }
        Ok(Some(Outcome::Written))
    }

    /// Writes a revision as XML. Returns `None` if one of its texts cannot be read: the revision is left out.
    /// Values that the record lacks, such as the SHA-1 of a text, are computed from the text.
    async fn write_xml(
        &mut self,
        revision: &StoredRevision,
        last: Revision,
    ) -> Result<Option<Outcome>, ExportError> {
        let record = &revision.record;
        if !revision.stored {
            return Ok(Some(Outcome::LeftOut(Loss::NotKept)));
        }
        let wikitext = PropertyName::wikitext();
        let mut texts = BTreeMap::new();
        for (name, info) in &revision.properties {
            if *name == wikitext || role_of(name).is_some() {
                match self.read_body(name, revision, last).await? {
                    BodyRead::Body(body) => drop(texts.insert(name, (info, body))),
                    BodyRead::Lost => return Ok(None),
                    BodyRead::NotKept => return Ok(Some(Outcome::LeftOut(Loss::NotKept))),
                }
            } else {
                self.export.report.properties_left_out += 1;
            }
        }
        let of_renders = revision.renders.iter().map(|render| render.properties.len() as u64);
        self.export.report.properties_left_out += of_renders.sum::<u64>();

        // Slots in the metadata of the export, and slots that are stored as properties.
        let mut roles: BTreeMap<&str, Option<&SlotRecord>> =
            record.export.slots.iter().map(|(role, slot)| (role.as_str(), Some(slot))).collect();
        for role in texts.keys().filter_map(|name| role_of(name)) {
            roles.entry(role).or_default();
        }
        let slot_of = |role: &str, slot| {
            let text = texts.iter().find(|(name, _)| role_of(name) == Some(role));
            written_slot(slot, text.map(|(_, text)| text))
        };
        let written = WrittenRevision {
            record,
            main: written_slot(record.export.main.as_ref(), texts.get(&wikitext)),
            slots: roles.into_iter().map(|(role, slot)| (role, slot_of(role, slot))).collect(),
        };
        let Sink::Xml(writer) = &mut self.export.sink else { return Ok(None) };
        let outcome = writer.revision(&written)?;
        if matches!(outcome, Outcome::Written) {
            self.export.add_number(&self.page.title, NewNumber::Revision(record.rev));
        }
        Ok(Some(outcome))
    }

    /// Reads a body of a property of the revision.
    async fn read_body(
        &mut self,
        name: &PropertyName,
        revision: &StoredRevision,
        last: Revision,
    ) -> Result<BodyRead, ExportError> {
        let rev = revision.record.rev;
        if let Some(body) = revision.bodies.get(&(None, name.clone())) {
            return self.classify_read(rev, body.clone().whole().await);
        }
        let body = self.bodies.read_revision_body(&self.export.buckets, &self.page, name, rev, last).await;
        let found = match body {
            Ok(None) if self.lost.contains_key(&rev) => BodyRead::Lost,
            Ok(None) if self.export.buckets.was_deleted(&self.page, rev, name).await? => BodyRead::NotKept,
            Ok(None) => {
                self.lost.insert(rev, format!("the body of {name} is missing"));
                BodyRead::Lost
            }
            Ok(Some(body)) => BodyRead::Body(body),
            Err(error) => self.classify_read(rev, Err(error))?,
        };
        Ok(found)
    }

    /// Classifies the result of a read: a body, a lost body, or a body that was not kept. Returns any other error.
    fn classify_read(
        &mut self,
        rev: Revision,
        read: rashomon_pages::Result<Bytes>,
    ) -> Result<BodyRead, ExportError> {
        match read {
            Ok(body) => Ok(BodyRead::Body(body)),
            Err(Error::Store(StoreError::Corrupt(why))) => {
                self.lost.entry(rev).or_insert(why);
                Ok(BodyRead::Lost)
            }
            Err(Error::NotFound(Missing::Culled { .. })) => Ok(BodyRead::NotKept),
            Err(error) => Err(error.into()),
        }
    }
}

/// The result of a read of a body.
enum BodyRead {
    Body(Bytes),
    /// Retention has deleted the body, or the archive's policy did not keep it.
    NotKept,
    /// The body cannot be read.
    Lost,
}

fn role_of(name: &PropertyName) -> Option<&str> {
    name.as_str().strip_prefix("slot-")
}

fn written<'a>(properties: &'a [(&PropertyName, &PropertyInfo, Bytes)]) -> Vec<WrittenProperty<'a>> {
    properties.iter().map(|(name, info, body)| WrittenProperty { name, info, body }).collect()
}

fn written_slot<'a>(
    record: Option<&'a SlotRecord>,
    text: Option<&'a (&'a PropertyInfo, Bytes)>,
) -> WrittenSlot<'a> {
    WrittenSlot {
        record,
        content_type: text.map(|(info, _)| info.headers.content_type.as_str()),
        text: text.map(|(info, bytes)| WrittenText {
            bytes,
            sha1: info.sha1,
            rewritten: info.rewritten_at.is_some(),
        }),
    }
}
