//! Separates the operations that the notes count from all other operations.

use std::ops::{AddAssign, Div};

use rashomon_pages::{Fill, Strategy};
use rashomon_tables::{Count, Counts, Kind};
use serde::Serialize;

/// Numbers of reads, writes and deletes, and of read and written bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Operations {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
    /// Deletes.
    pub deletes: f64,
    /// Read bytes.
    pub bytes_read: f64,
    /// Written bytes.
    pub bytes_written: f64,
}

impl AddAssign for Operations {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.deletes += other.deletes;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
    }
}

impl Div<f64> for Operations {
    type Output = Self;

    fn div(self, by: f64) -> Self {
        Self {
            reads: self.reads / by,
            writes: self.writes / by,
            deletes: self.deletes / by,
            bytes_read: self.bytes_read / by,
            bytes_written: self.bytes_written / by,
        }
    }
}

/// The kinds of actions that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ActionKind {
    Create,
    Update,
    Current,
    Recent,
    NearGraceEnd,
    Historical,
    Sweep,
}

impl ActionKind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Create,
        Self::Update,
        Self::Current,
        Self::Recent,
        Self::NearGraceEnd,
        Self::Historical,
        Self::Sweep,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "write the first revision",
            Self::Update => "write a later revision",
            Self::Current => "read current",
            Self::Recent => "read recent",
            Self::NearGraceEnd => "read recent, grace nearly over",
            Self::Historical => "read historical",
            Self::Sweep => "sweep a page",
        }
    }

    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Current | Self::Recent | Self::NearGraceEnd | Self::Historical)
    }
}

/// The tables with permanent bodies, and those with expiring bodies.
pub(crate) const DURABLE_TABLES: [&str; 3] = ["render_content", "revision_content", "current"];
pub(crate) const EXPIRING_TABLES: [&str; 2] = ["historical", "by_rev"];

/// The tables of the timeline. The notes count its operations too.
const TIMELINE: [&str; 2] = ["revision_timeline", "render_timeline"];

/// The counted operations, sorted into three classes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) core: Operations,
    pub(crate) keeping: Operations,
    pub(crate) overhead: Operations,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.core += other.core;
        self.keeping += other.keeping;
        self.overhead += other.overhead;
    }
}

impl Tally {
    /// Sorts the operations that were counted during an action. `properties` is the number of defined properties: a
    /// write or a cull makes one range delete for each property, but the notes count for a single property.
    pub(crate) fn of(what: ActionKind, strategy: Strategy, counts: &Counts, properties: usize) -> Self {
        let mut tally = Self::default();
        for table in counts.tables.keys() {
            let operations = operations(counts, table, properties);
            if DURABLE_TABLES.contains(table) || EXPIRING_TABLES.contains(table) || TIMELINE.contains(table) {
                tally.core += operations;
            } else {
                tally.overhead += operations;
            }
        }
        let copies_are_core = matches!(strategy, Strategy::TablePerQuery(_, Fill::CopyOnRead));
        if what.is_read() && !copies_are_core {
            // The notes count only the reads until the body is found. The other operations keep the value for later
            // readers.
            let all = std::mem::take(&mut tally.core);
            tally.core = count_lookups(what, strategy, counts);
            tally.keeping = minus(all, tally.core);
        }
        tally
    }
}

/// Counts the reads until a value was found or was known to be missing.
fn count_lookups(what: ActionKind, strategy: Strategy, counts: &Counts) -> Operations {
    // Whether the tables were read, whether a row was found, and the bytes of a row in the first read table.
    let lookup_in = |tables: &[&str]| {
        // The latest may be read by a scan, as its first row.
        let all = tables.iter().flat_map(|table| [Kind::Get, Kind::Scan].map(|kind| counts.of(table, kind)));
        let reads = all.filter(|count| count.operations > 0);
        reads.fold((false, false, 0.0), |(asked, found, bytes): (bool, bool, f64), count| {
            let each = count.bytes as f64 / (count.rows.max(1)) as f64;
            (true, found || count.rows > 0, if asked { bytes } else { each })
        })
    };
    let (durable, expiring) = (lookup_in(&DURABLE_TABLES), lookup_in(&["historical"]));
    let (first, second) = match strategy {
        // The latest is requested by title, and read from the permanent tables.
        Strategy::TablePerQuery(..) if what != ActionKind::Current => (expiring, durable),
        _ => (durable, expiring),
    };
    let (asked, found, bytes) = first;
    let mut lookups =
        Operations { reads: f64::from(u8::from(asked)), bytes_read: bytes, ..Operations::default() };
    if !found {
        let (asked, _, bytes) = second;
        lookups.reads += f64::from(u8::from(asked));
        lookups.bytes_read += bytes;
    }
    lookups
}

fn minus(all: Operations, part: Operations) -> Operations {
    Operations { reads: all.reads - part.reads, bytes_read: all.bytes_read - part.bytes_read, ..all }
}

fn operations(counts: &Counts, table: &str, properties: usize) -> Operations {
    let of = |kind| counts.of(table, kind);
    let sum = |kinds: &[Kind], value: fn(Count) -> u64| -> f64 {
        kinds.iter().map(|kind| value(of(*kind))).sum::<u64>() as f64
    };
    let (reads, writes) = ([Kind::Get, Kind::Scan], [Kind::Put, Kind::Swap]);
    let ranges = of(Kind::DeleteRange).operations as f64;
    let is_of_properties = DURABLE_TABLES.contains(&table);
    Operations {
        reads: sum(&reads, |count| count.operations),
        writes: sum(&writes, |count| count.operations),
        deletes: of(Kind::Delete).operations as f64
            + if is_of_properties { ranges / properties as f64 } else { ranges },
        bytes_read: sum(&reads, |count| count.bytes),
        bytes_written: sum(&writes, |count| count.bytes),
    }
}
