//! Reads the entries of a block back into units. [`entries`](crate::format::entries) writes the entries.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
};

use rashomon_blocks::{Block, Error as BlockError, Table};
use rashomon_clock::Timestamp;
use rashomon_tables::TimeUuid;

use crate::format::{
    columns::{Field, Kind, StoredLine},
    derived::{ExportParts, parent_from_number, restore_derivable},
    entries::{
        ArchivedBody, Bodies, BodyLocation, Unit, digest_of, infos, render_digest, render_of_import,
        tid_of_import,
    },
};
use rashomon_records::{
    Page, PropertyInfo, PropertyName, Revision, RevisionRecord, Sha1, Tid, Title,
    content::ChunkSet,
    rows::{ColumnValue, Digest, Properties, RenderRow, RevisionRow},
};

/// The pages of a block, with their units.
pub(crate) type Pages = Vec<(Page, Vec<Unit>)>;

/// The size and the SHA-1 of contents, by ordinal.
pub(crate) type Hashes = HashMap<u64, (u64, Sha1)>;

/// Reads the units of a block, page by page, with the computed hashes of its contents. Returns `None` if the
/// entries cannot be understood. `of` is any page of the block's bucket.
///
/// If a body cannot be read because the block is damaged, and the block does not store its size and SHA-1,
/// the body gets the SHA-1 [`Sha1::UNKNOWN`].
pub(crate) fn read_units(of: &Page, block: &Block<'_>) -> Result<Option<(Pages, Hashes)>, BlockError> {
    let tables = (0..block.groups()).map(|group| block.table(group)).collect::<Result<Vec<_>, _>>()?;
    let Some(groups) = entries_by_group(of, &tables) else { return Ok(None) };
    let units = groups.iter().zip(&tables).flat_map(|(pages, table)| {
        pages.iter().flat_map(|(_, units)| units).flat_map(move |unit| unit.hashed(table))
    });
    let hashes = hashes(block, units);
    Ok(units_by_page(groups, &tables, &hashes).map(|pages| (pages, hashes)))
}

/// Like [`read_units`], but decodes the block to its last byte, and checks it with [`Block::verify`]. Returns the hashes
/// of all contents.
pub(crate) fn verify_units(of: &Page, block: &Block<'_>) -> Result<Option<(Pages, Hashes)>, BlockError> {
    let mut hashes = Hashes::with_capacity(block.len());
    let tables = block.verify_with(|content| {
        if let Some(bytes) = &content.bytes {
            hashes.insert(content.ordinal, hash_of(bytes));
        }
    })?;
    let Some(groups) = entries_by_group(of, &tables) else { return Ok(None) };
    Ok(units_by_page(groups, &tables, &hashes).map(|pages| (pages, hashes)))
}

/// The pages of a group, each with the entries of its units.
type GroupEntries = Vec<(Page, Vec<UnitEntries>)>;

/// The pages of each group. `None` if the entries cannot be understood.
fn entries_by_group(of: &Page, tables: &[Table]) -> Option<Vec<GroupEntries>> {
    tables.iter().map(|table| entries_by_page(of, table)).collect()
}

/// Decodes the units of all groups. `None` if they cannot be understood.
fn units_by_page(groups: Vec<GroupEntries>, tables: &[Table], hashes: &Hashes) -> Option<Pages> {
    let mut pages: Pages = Vec::new();
    for (group, table) in groups.into_iter().zip(tables) {
        for (place, (page, units)) in group.into_iter().enumerate() {
            let units =
                units.iter().map(|unit| unit.read(table, &page, hashes)).collect::<Option<Vec<_>>>()?;
            match pages.last_mut().filter(|(last, _)| place == 0 && *last == page) {
                // The page begins in an earlier group.
                Some((_, earlier)) => earlier.extend(units),
                None => pages.push((page, units)),
            }
        }
    }
    Some(pages)
}

/// The pages of a group with the entries of their units. `None` if the entries cannot be understood.
fn entries_by_page(of: &Page, table: &Table) -> Option<GroupEntries> {
    let pages = page_entries(table)?;
    let read = |entries: &PageEntries| {
        let title = Title::new(entries.title(table)?).ok()?;
        Some((Page { title, ..of.clone() }, entries.units(table)?))
    };
    pages.iter().map(read).collect()
}

/// Computes the size and SHA-1 of these contents.
fn hashes(block: &Block<'_>, of: impl Iterator<Item = u64>) -> Hashes {
    let of: BTreeSet<u64> = of.collect();
    let mut hashes = Hashes::with_capacity(of.len());
    let Some(last) = of.last() else { return hashes };
    for content in block.iter().flatten() {
        if content.ordinal > *last {
            break;
        }
        if let Some(bytes) = content.bytes.filter(|_| of.contains(&content.ordinal)) {
            hashes.insert(content.ordinal, hash_of(&bytes));
        }
    }
    hashes
}

/// Returns the size and the SHA-1 of a content.
pub(crate) fn hash_of(content: &[u8]) -> (u64, Sha1) {
    (content.len() as u64, Sha1::of(content))
}

/// Splits the name of a stream into a property and a title. The property is empty for a stream of entries
/// without bodies.
pub(crate) fn name_and_title(stream: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(stream).ok()?.split_once('/')
}

impl StoredLine<'_> {
    fn name_and_title(&self) -> Option<(&str, &str)> {
        name_and_title(self.stream())
    }

    /// Whether the size and SHA-1 of the content have to be computed.
    fn is_hashed(self) -> bool {
        self.is(Kind::BODY) && !self.has(Field::Size) && !self.has(Field::Chunks)
    }
}

/// Where the entries of a page are in a group.
#[derive(Debug, Clone)]
pub(crate) struct PageEntries {
    /// The stream of the first entry, whose name has the title of the page.
    stream: u32,
    entries: Range<u32>,
}

/// Where the entries of a unit are in a group.
#[derive(Debug, Clone)]
pub(crate) struct UnitEntries {
    entries: Range<u32>,
    /// The previous revision of the page in the group.
    above: Option<Revision>,
}

/// The keys and times of a unit. They can be read without contents.
#[derive(Debug, PartialEq)]
pub(crate) struct UnitKeys {
    /// The revision.
    pub rev: Revision,
    /// The time of the edit.
    pub timestamp: Timestamp,
    /// When the revision was written.
    pub written_at: Timestamp,
    /// The renders, each with its write time.
    pub renders: Vec<(Tid, Timestamp)>,
    /// The bodies, each with its render and its write time. The render is `None` for a body of the revision.
    pub bodies: Vec<(PropertyName, Option<Tid>, Timestamp)>,
}

/// Finds the entries of each page of a group. Returns `None` if they cannot be understood.
pub(crate) fn page_entries(table: &Table) -> Option<Vec<PageEntries>> {
    let mut pages: Vec<PageEntries> = Vec::new();
    for index in 0..u32::try_from(table.len()).ok()? {
        let line = StoredLine::new(table, index as usize);
        if line.is(Kind::REVISION) {
            let stream = table.stream(index as usize);
            let title = || line.name_and_title().map(|(_, title)| title);
            let is_same = match pages.last() {
                Some(page) => page.stream == stream || page.title(table)? == title()?,
                None => title().map(|_| false)?,
            };
            if !is_same {
                pages.push(PageEntries { stream, entries: index..index });
            }
        }
        // An entry without a revision before it belongs to no page.
        pages.last_mut()?.entries.end = index + 1;
    }
    Some(pages)
}

impl PageEntries {
    /// The title of the page. `None` if it cannot be read.
    pub(crate) fn title<'t>(&self, table: &'t Table) -> Option<&'t str> {
        name_and_title(table.stream_name(self.stream)).map(|(_, title)| title)
    }

    /// The number of entries.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The units of the page. `None` if they cannot be understood.
    pub(crate) fn units(&self, table: &Table) -> Option<Vec<UnitEntries>> {
        let mut units: Vec<UnitEntries> = Vec::new();
        for index in self.entries.clone() {
            if StoredLine::new(table, index as usize).is(Kind::REVISION) {
                let above = match units.last() {
                    Some(unit) => Some(unit.rev(table)?),
                    None => None,
                };
                units.push(UnitEntries { entries: index..index, above });
            }
            units.last_mut()?.entries.end = index + 1;
        }
        Some(units)
    }
}

impl UnitEntries {
    fn lines<'t>(&self, table: &'t Table) -> impl Iterator<Item = StoredLine<'t>> + Clone + use<'t> {
        self.entries.clone().map(move |index| StoredLine::new(table, index as usize))
    }

    /// The number of the revision. `None` if it cannot be read.
    pub(crate) fn rev(&self, table: &Table) -> Option<Revision> {
        Revision::new(self.lines(table).next()?.get_int(Field::Rev)?)
    }

    /// The index of the first entry in the group.
    pub(crate) const fn first(&self) -> u32 {
        self.entries.start
    }

    /// The time of the edit. `None` if it cannot be read.
    pub(crate) fn timestamp(&self, table: &Table) -> Option<Timestamp> {
        time(self.lines(table).next()?, Field::Timestamp)
    }

    /// The times of the tids of all renders. `None` if the lines cannot be understood. This takes less than to read the
    /// tids with [`Self::keys`].
    pub(crate) fn tid_times(&self, table: &Table) -> Option<Vec<Timestamp>> {
        // An imported tid has the time of the edit.
        let imported_tid = Tid::new(self.timestamp(table)?, 0);
        let mut times = Vec::new();
        for line in self.lines(table) {
            if line.is(Kind::IMPORTED) {
                times.push(imported_tid.time());
            }
            if line.is(Kind::RENDER) {
                times.push(read_tid(line, imported_tid)?.time());
            }
        }
        Some(times)
    }

    /// The ordinals of the contents whose size and SHA-1 have to be computed.
    pub(crate) fn hashed<'t>(&self, table: &'t Table) -> impl Iterator<Item = u64> + use<'t> {
        self.lines(table).filter(|line| line.is_hashed()).map(StoredLine::ordinal)
    }

    /// Returns the keys of the unit, or `None` if the lines cannot be understood.
    pub(crate) fn keys(&self, table: &Table, page: &Page) -> Option<UnitKeys> {
        let first = self.lines(table).next()?;
        let (rev, timestamp) = (self.rev(table)?, self.timestamp(table)?);
        let stored_at = time(first, Field::StoredAt)?;
        let imported_tid = Tid::imported(page, rev, timestamp);
        let (mut renders, mut bodies) = (Vec::new(), Vec::new());
        if first.is(Kind::IMPORTED) {
            renders.push((imported_tid, stored_at));
        }
        let of_revision = written_at(first, stored_at);
        let mut owner = (None, of_revision);
        for line in self.lines(table) {
            if line.is(Kind::RENDER) {
                let (tid, written_at) = (read_tid(line, imported_tid)?, written_at(line, stored_at));
                renders.push((tid, written_at));
                owner = (Some(tid), written_at);
            }
            if line.is(Kind::BODY) {
                let name = PropertyName::new(line.name_and_title()?.0).ok()?;
                bodies.push((name, owner.0, time(line, Field::BodyWrittenAt).unwrap_or(owner.1)));
            }
        }
        Some(UnitKeys { rev, timestamp, written_at: of_revision, renders, bodies })
    }

    /// Decodes the unit. `hashes` has the hashes of the contents that [`Self::hashed`] lists. Returns `None`
    /// if the lines cannot be understood.
    pub(crate) fn read(&self, table: &Table, page: &Page, hashes: &Hashes) -> Option<Unit> {
        read_unit(page, self.above, self.lines(table), hashes)
    }
}

/// The line that begins a revision or a render, with its bodies.
type LineWithBodies<'t> = (StoredLine<'t>, Bodies);

fn read_unit<'t>(
    page: &Page,
    above: Option<Revision>,
    lines: impl Iterator<Item = StoredLine<'t>> + Clone,
    hashes: &Hashes,
) -> Option<Unit> {
    let first = lines.clone().next()?;
    let stored_at = time(first, Field::StoredAt)?;
    let mut owners: Vec<LineWithBodies<'_>> = Vec::new();
    for line in lines {
        line.kind()?;
        if line.is(Kind::REVISION) || line.is(Kind::RENDER) {
            owners.push((line, Bodies::new()));
        }
        if line.is(Kind::BODY) {
            let name = PropertyName::new(line.name_and_title()?.0).ok()?;
            let (owner, bodies) = owners.last_mut()?;
            bodies.insert(name, read_body(line, written_at(*owner, stored_at), hashes)?);
        }
    }
    let is_imported = first.is(Kind::IMPORTED);
    let mut owners = owners.into_iter();
    let (line, bodies) = owners.next()?;
    let mut renders: Vec<(RenderRow, Bodies)> = Vec::new();
    let renders_of: Vec<LineWithBodies<'_>> = owners.collect();
    let revision = read_revision(page, above, line, &bodies, renders_of.first())?;
    if is_imported {
        renders.push((render_of_import(page, &revision), Bodies::new()));
    }
    for (line, bodies) in renders_of {
        renders.push((read_render(page, &revision, line, &bodies)?, bodies));
    }
    Some(Unit { revision, bodies, renders })
}

fn time(line: StoredLine<'_>, field: Field) -> Option<Timestamp> {
    line.get_int(field).map(Timestamp::from_micros)
}

/// Returns when a revision or a render was written. `stored_at` is the time at which the revision was stored.
fn written_at(owner: StoredLine<'_>, stored_at: Timestamp) -> Timestamp {
    time(owner, Field::WrittenAt).or_else(|| time(owner, Field::StoredAt)).unwrap_or(stored_at)
}

fn read_body(line: StoredLine<'_>, owner_written_at: Timestamp, hashes: &Hashes) -> Option<ArchivedBody> {
    let (size, sha1) = if line.is_hashed() {
        hashes.get(&line.ordinal()).copied().unwrap_or((0, Sha1::UNKNOWN))
    } else {
        let size = u64::try_from(line.get_int(Field::Size)?).ok()?;
        (size, Sha1(line.get_bytes(Field::Sha1)?.try_into().ok()?))
    };
    let info = PropertyInfo {
        headers: serde_json::from_slice(line.get_bytes(Field::Headers)?).ok()?,
        size,
        sha1,
        rewritten_at: time(line, Field::RewrittenAt),
    };
    let location = match line.get_bytes(Field::Chunks) {
        Some(set) => BodyLocation::Chunks(ChunkSet::from_bytes(set)?),
        None => BodyLocation::Entry(line.ordinal()),
    };
    let written_at = time(line, Field::BodyWrittenAt).unwrap_or(owner_written_at);
    Some(ArchivedBody { info, written_at, location })
}

fn properties(line: StoredLine<'_>, bodies: &Bodies) -> Option<Properties> {
    match line.get_text(Field::Properties) {
        Some(json) => Properties::from_value(&json.into()),
        None => Some(infos(bodies)),
    }
}

fn read_revision(
    page: &Page,
    above: Option<Revision>,
    line: StoredLine<'_>,
    bodies: &Bodies,
    first: Option<&LineWithBodies<'_>>,
) -> Option<RevisionRow> {
    let infos_of = infos(bodies);
    let record = read_record(line, above, &infos_of)?;
    let imported_tid = Tid::imported(page, record.rev, record.timestamp);
    let first_tid = match (line.get_bytes(Field::FirstTid), first) {
        (Some(bytes), _) => Tid::from(TimeUuid::from_ordered_bytes(bytes.try_into().ok()?)?),
        (None, Some((first, _))) => read_tid(*first, imported_tid)?,
        (None, None) => imported_tid,
    };
    let of_first = first.map(|(_, bodies)| infos(bodies)).unwrap_or_default();
    let stored_at = time(line, Field::StoredAt)?;
    Some(RevisionRow {
        record,
        properties: properties(line, bodies)?,
        first_tid,
        stored_at,
        digest: read_digest(line)?.unwrap_or_else(|| digest_of(&infos_of, &of_first)),
        written_at: written_at(line, stored_at),
    })
}

fn read_record(line: StoredLine<'_>, above: Option<Revision>, bodies: &Properties) -> Option<RevisionRecord> {
    let rev = Revision::new(line.get_int(Field::Rev)?)?;
    let parent = match line.get_int(Field::Parent) {
        Some(number) => Some(parent_from_number(number, above)?),
        None => None,
    };
    let mut export = match line.get_bytes(Field::Export) {
        Some(json) => serde_json::from_slice(json).ok()?,
        None => Default::default(),
    };
    restore_derivable(&mut export, ExportParts::of_code(line.get_int(Field::ExportFollows)), rev, bodies)?;
    let erased = match line.get_bytes(Field::Erased) {
        Some(json) => Some(serde_json::from_slice(json).ok()?),
        None => None,
    };
    Some(RevisionRecord {
        rev,
        parent,
        timestamp: time(line, Field::Timestamp)?,
        user: line.get_text(Field::User).map(str::to_owned),
        comment: line.get_text(Field::Comment).map(str::to_owned),
        minor: line.get_int(Field::Minor).is_some(),
        export,
        erased,
    })
}

fn read_render(
    page: &Page,
    revision: &RevisionRow,
    line: StoredLine<'_>,
    bodies: &Bodies,
) -> Option<RenderRow> {
    let tid = read_tid(line, tid_of_import(page, revision))?;
    Some(RenderRow {
        rev: revision.record.rev,
        tid,
        properties: properties(line, bodies)?,
        stored_at: time(line, Field::StoredAt).unwrap_or(revision.stored_at),
        digest: read_digest(line)?.unwrap_or_else(|| render_digest(revision, tid, &infos(bodies))),
        left_out: line.has(Field::LeftOut),
        written_at: written_at(line, revision.stored_at),
    })
}

/// Reads the tid of a render. `imported_tid` is the tid that an import derives from the revision.
fn read_tid(line: StoredLine<'_>, imported_tid: Tid) -> Option<Tid> {
    let Some(ticks) = line.get_int(Field::TidTicks) else { return Some(imported_tid) };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&ticks.to_be_bytes());
    let last = line.get_bytes(Field::Tid)?;
    (last.len() == 8).then(|| bytes[8..].copy_from_slice(last))?;
    Some(Tid::from(TimeUuid::from_ordered_bytes(bytes)?))
}

#[allow(clippy::option_option)] // `Some(None)` if absent, `None` if damaged.
fn read_digest(line: StoredLine<'_>) -> Option<Option<Digest>> {
    match line.get_bytes(Field::Digest) {
        Some(bytes) => Some(Some(bytes.try_into().ok()?)),
        None => Some(None),
    }
}

#[cfg(test)]
mod tests;
