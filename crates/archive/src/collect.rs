//! Blocks that no page names: of a sealing that was cut off, or since they were merged.

use std::{collections::BTreeSet, num::NonZeroUsize, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_tables::{
    Batch, ClusteringRange, Error as StoreError, Key, Outage, Partition, PartitionStream, ReadFrom,
    Result as StoreResult, Row, RowStream, Scan, Value,
};

use super::{
    blocks::{BlockStore, partition},
    index::IndexRow,
    rows::{BlockId, NoteRow},
};
use rashomon_records::{
    Error, INDEX_PAGE_ROWS, Page, Result, Title,
    rows::{ColumnValue, Json, TypedRow, partition_of},
    schemas::{ARCHIVE_BLOCKS, ARCHIVE_INDEX, ARCHIVE_NOTES},
};

const HOUR: Duration = Duration::from_secs(3600);

/// Notes, and hours of them, that are looked at together.
const NOTES: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");

/// Who needs a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Regard {
    /// All its pages name it.
    Named,
    /// Some of its pages name it. The note stays: who erases something of another has to find it.
    NamedBySome,
    Nobodys,
}

/// A block that was noted.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) id: BlockId,
    pub(super) pages: Vec<Page>,
}

impl Note {
    /// The note of a row, and its time. `None` if the row is unreadable.
    fn from_row(row: &Row) -> Option<(Self, Timestamp)> {
        let NoteRow { block, domain, bucket, titles, noted_at } = TypedRow::read(row)?;
        let page = |title| Page { domain: domain.clone(), bucket: bucket.clone(), title };
        Some((Self { id: block, pages: titles.0.into_iter().map(page).collect() }, noted_at))
    }
}

/// Entries that a run of the garbage collector leaves, since a replica does not answer.
#[derive(Debug, Default)]
pub struct Waiting {
    entries: u64,
    outage: Option<Outage>,
}

impl Waiting {
    /// The result of a read that every replica has to answer; `None` where one does not.
    pub fn unless_unavailable<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(Error::Store(StoreError::Unavailable(outage))) => {
                self.entries += 1;
                self.outage = Some(outage);
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Logs once a run that the collector waits.
    pub fn log(self, what: &'static str) {
        let Some(outage) = self.outage else { return };
        tracing::warn!(
            what,
            entries = self.entries,
            %outage,
            "garbage collection waits for a replica: nothing is deleted before all replicas answer"
        );
    }
}

impl BlockStore {
    /// Has somebody look later whether a page names the block. The note is `written_at` then or later: after the
    /// block was settled, if it was.
    pub(super) async fn note(
        &self,
        of: &Page,
        id: BlockId,
        titles: &BTreeSet<Title>,
        now: Timestamp,
        written_at: Timestamp,
    ) -> StoreResult<()> {
        let mut note = Batch::new(vec![Value::Int(now.as_micros().div_euclid(HOUR.as_micros() as i64))]);
        let (domain, bucket) = (of.domain.clone(), of.bucket.clone());
        let row = NoteRow { block: id, domain, bucket, titles: Json(titles.clone()), noted_at: now };
        row.put(&mut note, written_at);
        self.store.write(Vec::new(), note).await
    }

    /// Nobody has to look: all pages that the block was made for name it.
    pub(super) async fn settle(&self, id: BlockId, noted_at: Timestamp) -> StoreResult<()> {
        let mut note = Batch::new(vec![Value::Int(noted_at.as_micros().div_euclid(HOUR.as_micros() as i64))]);
        note.delete(&ARCHIVE_NOTES, vec![id.to_value()], noted_at);
        self.store.write(Vec::new(), note).await
    }

    /// When a block was noted last, if somebody will look whether a page names it.
    pub(super) async fn noted_at(&self, id: BlockId) -> StoreResult<Option<Timestamp>> {
        let notes = self.notes_of(id).await?;
        Ok(notes.iter().filter_map(NoteRow::read).map(|note| note.noted_at).max())
    }

    /// The notes of a block, of whatever hours.
    async fn notes_of(&self, id: BlockId) -> StoreResult<Vec<Row>> {
        let (mut notes, mut hours) = (Vec::new(), self.note_hours());
        while let Some(hour) = hours.next().await? {
            notes.extend(self.store.get(&ARCHIVE_NOTES, &Key::new(hour, vec![id.to_value()])).await?);
        }
        Ok(notes)
    }

    /// The hours that have notes of blocks.
    fn note_hours(&self) -> PartitionStream<'_> {
        PartitionStream::new(&*self.store, &ARCHIVE_NOTES, NOTES)
    }

    fn notes_in(&self, hour: Partition) -> RowStream<'_> {
        RowStream::new(&*self.store, &ARCHIVE_NOTES, Scan::new(hour, NOTES))
    }

    async fn delete_note(&self, note: Row) -> StoreResult<()> {
        let mut done = Batch::new(note.key.partition);
        done.delete(&ARCHIVE_NOTES, note.key.clustering, note.written_at);
        self.store.write(Vec::new(), done).await
    }

    /// Deletes the blocks noted at `due` or before that no page names, and their notes. Returns the number of blocks
    /// deleted. Every replica has to confirm that no page names a block; while one does not answer, the block stays.
    pub(crate) async fn collect(&self, due: Timestamp, now: Timestamp) -> Result<u64> {
        let (mut collected, mut waiting, mut hours) = (0, Waiting::default(), self.note_hours());
        while let Some(hour) = hours.next().await? {
            let mut notes = self.notes_in(hour);
            while let Some(row) = notes.next().await? {
                let Some((note, noted_at)) = Note::from_row(&row) else { continue };
                if noted_at > due {
                    continue;
                }
                match waiting.unless_unavailable(self.settled_regard(&note).await)? {
                    None | Some(Regard::NamedBySome) => continue,
                    Some(Regard::Named) => {}
                    Some(Regard::Nobodys) => {
                        if self.was_left_after(note.id, due).await? {
                            continue;
                        }
                        self.delete_block(&note, now).await?;
                        collected += 1;
                    }
                }
                self.delete_note(row).await?;
            }
        }
        waiting.log("blocks of the archive");
        Ok(collected)
    }

    /// The blocks that were noted of a page, each with the time.
    pub(super) async fn noted_of(&self, of: &Page) -> Result<Vec<(Note, Timestamp)>> {
        let (mut noted, mut hours) = (Vec::new(), self.note_hours());
        while let Some(hour) = hours.next().await? {
            let mut notes = self.notes_in(hour);
            while let Some(row) = notes.next().await? {
                noted.extend(Note::from_row(&row).filter(|(note, _)| note.pages.contains(of)));
            }
        }
        Ok(noted)
    }

    /// Deletes a block of these pages at once, unless one of them names it.
    pub(super) async fn delete_unless_named(
        &self,
        pages: Vec<Page>,
        id: BlockId,
        now: Timestamp,
    ) -> Result<()> {
        let note = Note { id, pages };
        match self.regard(&note).await? {
            Regard::Named | Regard::NamedBySome => Ok(()),
            Regard::Nobodys => self.delete_noted(&note, now).await,
        }
    }

    /// Deletes a block and the notes of it: nobody has to look at it any more.
    pub(super) async fn delete_noted(&self, note: &Note, now: Timestamp) -> Result<()> {
        self.delete_block(note, now).await?;
        for row in self.notes_of(note.id).await? {
            self.delete_note(row).await?;
        }
        Ok(())
    }

    /// Who needs a block. Every replica has confirmed it where nobody does: a batch that names the block may have failed
    /// and have reached one replica only.
    pub(super) async fn regard(&self, note: &Note) -> Result<Regard> {
        match self.regard_from(note, ReadFrom::Quorum).await? {
            Regard::Nobodys => self.regard_from(note, ReadFrom::AllReplicas).await,
            named => Ok(named),
        }
    }

    /// Who needs a block. Every replica has confirmed it where the note can go: also of a block that all pages name, a
    /// batch that leaves it may have reached one replica only.
    async fn settled_regard(&self, note: &Note) -> Result<Regard> {
        match self.regard_from(note, ReadFrom::Quorum).await? {
            Regard::NamedBySome => Ok(Regard::NamedBySome),
            Regard::Named | Regard::Nobodys => self.regard_from(note, ReadFrom::AllReplicas).await,
        }
    }

    async fn regard_from(&self, note: &Note, read_from: ReadFrom) -> Result<Regard> {
        let mut named_by = 0;
        for page in &note.pages {
            named_by += usize::from(self.names_from(page, note.id, read_from).await?);
        }
        Ok(if named_by == note.pages.len() {
            Regard::Named
        } else if named_by > 0 {
            Regard::NamedBySome
        } else {
            Regard::Nobodys
        })
    }

    /// Whether a page left a block after that, or may have, so that somebody may be reading it: it is noted again before
    /// a page leaves it, and other blocks of its pages come and go meanwhile. Asked once no page names it.
    async fn was_left_after(&self, id: BlockId, due: Timestamp) -> Result<bool> {
        Ok(self.noted_at(id).await?.is_some_and(|noted_at| noted_at > due))
    }

    /// Whether a page names a block.
    pub(super) async fn names(&self, page: &Page, id: BlockId) -> Result<bool> {
        self.names_from(page, id, ReadFrom::Quorum).await
    }

    /// The same by the replicas that have to answer. Where all do and the page does not name it, they agree on the whole
    /// index afterwards: a page that left the block names another one by the same batch.
    async fn names_from(&self, page: &Page, id: BlockId, read_from: ReadFrom) -> Result<bool> {
        let scan = Scan { read_from, ..Scan::new(partition_of(page), INDEX_PAGE_ROWS) };
        let mut rows = RowStream::new(&*self.store, &ARCHIVE_INDEX, scan);
        while let Some(row) = rows.next().await? {
            if IndexRow::from_row(&row)?.block == id {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn delete_block(&self, note: &Note, now: Timestamp) -> Result<()> {
        let Some(of) = note.pages.first() else { return Ok(()) };
        let mut pieces = Batch::new(partition(of, note.id));
        pieces.delete_range(&ARCHIVE_BLOCKS, ClusteringRange::all(), now);
        self.store.write(Vec::new(), pieces).await?;
        self.forget(note.id).await;
        Ok(())
    }
}
