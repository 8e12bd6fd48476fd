//! One page of an export.

use std::{collections::BTreeMap, io::Write};

use bytes::Bytes;
use rashomon_buckets::{
    Error, Missing, Page, PageInfo, PropertyInfo, PropertyName, Revision, SlotRecord, StoredRevision,
};

use super::{Export, ExportError, Loss, Sink, Warning, bodies, bodies::Bodies};
use crate::{
    json_lines::WrittenProperty,
    xml::{self, Outcome, WrittenRevision, WrittenSlot, WrittenText},
};

/// Revisions that are asked for at once, and whose bodies are then read ahead: at most a megabyte of each.
const REVISIONS: usize = 64;

/// Writes one page, part by part.
pub(super) struct PageExport<'a, 'b, W> {
    pub(super) export: &'a mut Export<'b, W>,
    page: Page,
    info: Option<PageInfo>,
    after: Option<Revision>,
    bodies: Bodies,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing of it has been written.
    NotBegun,
    Begun,
    /// The format cannot hold it.
    LeftOut,
}

impl<'a, 'b, W: Write + Send + 'static> PageExport<'a, 'b, W> {
    pub(super) async fn new(export: &'a mut Export<'b, W>, page: Page) -> Result<Self, ExportError> {
        let info = export.catalog.page_info(&page).await?;
        let mut this =
            Self { export, page, info, after: None, bodies: Bodies::default(), state: State::NotBegun };
        if !this.export.history {
            this.after = this.before_latest().await?;
        }
        Ok(this)
    }

    /// The number below that of the latest revision, so that it is the first that comes.
    async fn before_latest(&self) -> Result<Option<Revision>, ExportError> {
        match self.export.buckets.latest_render(&self.page).await {
            Ok(render) => Ok(Revision::new(render.record.rev.get() - 1)),
            Err(Error::NotFound(Missing::Page)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the next revisions; `false` where there are no more.
    pub(super) async fn part(&mut self) -> Result<bool, ExportError> {
        let part = match self.export.buckets.history(&self.page, self.after, REVISIONS).await {
            Err(Error::NotFound(Missing::Page)) => return Ok(false),
            part => part?,
        };
        let Some(last) = part.items.last().map(|revision| revision.record.rev) else {
            self.after = part.next;
            return Ok(part.next.is_some());
        };
        for revision in part.items {
            if self.state == State::NotBegun {
                self.begin()?;
            }
            if self.state == State::Begun {
                self.revision(&revision, last).await?;
                self.export.pass_on(false).await?;
            }
        }
        self.after = part.next;
        Ok(part.next.is_some())
    }

    /// The page is written; `false` where there is none.
    pub(super) fn end(self) -> Result<bool, ExportError> {
        if self.state == State::Begun
            && let Sink::Xml(writer) = &mut self.export.sink
            && !writer.end_page()?
        {
            self.export.report.pages -= 1;
        }
        Ok(self.state != State::NotBegun)
    }

    fn begin(&mut self) -> Result<(), ExportError> {
        let title = self.page.title.clone();
        self.state = State::Begun;
        let outcome = match &mut self.export.sink {
            Sink::JsonLines(writer) => {
                writer.page(&title, self.info.as_ref())?;
                Outcome::Written
            }
            Sink::Xml(writer) => {
                let head = xml::page_head(&title, self.info.as_ref(), self.export.site.as_ref());
                match (writer.begin_page(&head)?, self.export.numbers.page(head.page_id)) {
                    (Outcome::Written, Some(loss)) => Outcome::Invalid(loss),
                    (outcome, _) => outcome,
                }
            }
        };
        if matches!(outcome, Outcome::LeftOut(_)) {
            self.state = State::LeftOut;
        } else {
            self.export.report.pages += 1;
        }
        self.note(None, outcome);
        Ok(())
    }

    fn note(&mut self, rev: Option<Revision>, outcome: Outcome) {
        let warning = |loss: Loss| Warning { title: self.page.title.clone(), rev, loss };
        match outcome {
            Outcome::Written => {}
            Outcome::Invalid(loss) => self.export.report.invalid.add(warning(loss)),
            Outcome::LeftOut(loss) => self.export.report.left_out.add(warning(loss)),
        }
    }

    async fn revision(&mut self, revision: &StoredRevision, last: Revision) -> Result<(), ExportError> {
        let rev = revision.record.rev;
        let outcome = match &self.export.sink {
            Sink::JsonLines(_) => self.json_lines(revision, last).await?,
            Sink::Xml(_) => self.xml(revision, last).await?,
        };
        if !matches!(outcome, Outcome::LeftOut(_)) {
            self.export.report.revisions += 1;
        }
        self.note(Some(rev), outcome);
        Ok(())
    }

    async fn json_lines(
        &mut self,
        revision: &StoredRevision,
        last: Revision,
    ) -> Result<Outcome, ExportError> {
        let mut of_revision = Vec::with_capacity(revision.properties.len());
        let mut kept = revision.stored;
        let stored = revision.properties.iter().filter(|_| revision.stored);
        for (name, info) in stored {
            of_revision.push((name, info, self.body(name, revision.record.rev, last).await?));
        }
        if let Sink::JsonLines(writer) = &mut self.export.sink {
            writer.revision(&revision.record, &written(&of_revision))?;
        }
        for render in &revision.renders {
            let mut of_render = Vec::with_capacity(render.properties.len());
            kept &= render.stored;
            for (name, info) in render.properties.iter().filter(|_| render.stored) {
                let body = bodies::of_render(self.export.buckets, &self.page, render.tid, name).await?;
                of_render.push((name, info, body));
            }
            if let Sink::JsonLines(writer) = &mut self.export.sink {
                writer.render(render.tid, &written(&of_render))?;
            }
            self.export.pass_on(false).await?;
        }
        if !kept {
            self.note(Some(revision.record.rev), Outcome::LeftOut(Loss::NotKept));
        }
        Ok(Outcome::Written)
    }

    async fn xml(&mut self, revision: &StoredRevision, last: Revision) -> Result<Outcome, ExportError> {
        let record = &revision.record;
        if !revision.stored {
            return Ok(Outcome::LeftOut(Loss::NotKept));
        }
        let wikitext = PropertyName::wikitext();
        let mut texts = BTreeMap::new();
        for (name, info) in &revision.properties {
            if *name == wikitext || role_of(name).is_some() {
                texts.insert(name, (info, self.body(name, record.rev, last).await?));
            } else {
                self.export.report.properties_left_out += 1;
            }
        }
        let of_renders = revision.renders.iter().map(|render| render.properties.len() as u64);
        self.export.report.properties_left_out += of_renders.sum::<u64>();

        // Slots that the export named, and those that came as properties.
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
        let Sink::Xml(writer) = &mut self.export.sink else { return Ok(Outcome::Written) };
        match writer.revision(&written)? {
            Outcome::Written => {
                Ok(self.export.numbers.revision(record.rev).map_or(Outcome::Written, Outcome::Invalid))
            }
            outcome => Ok(outcome),
        }
    }

    async fn body(
        &mut self,
        name: &PropertyName,
        rev: Revision,
        last: Revision,
    ) -> Result<Bytes, ExportError> {
        let body = self.bodies.of_revision(self.export.buckets, &self.page, name, rev, last).await?;
        body.ok_or_else(|| ExportError::Lost { title: self.page.title.clone(), rev, name: name.clone() })
    }
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
