//! The columns of blocks in the archive. Each entry has one line of values: one value for each column.
//!
//! An entry begins a revision or a render, or has a body, or both: the first body of a revision or of a
//! render is in the entry that begins the revision or render. A value is omitted if a reader can derive an
//! equal value from other entries or from the content. So the values of a single entry are incomplete. Code
//! that changes blocks reads [`Unit`](crate::format::entries::Unit)s from the old block, and writes the units to a
//! new block.

use rashomon_blocks::{Column, Table, Value, ValueRef};

/// A column. Its discriminant is the column's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// See [`Kind`].
    Kind,
    Rev,
    /// The time of a render's tid, in ticks. This column and the next are absent if the tid is the one that
    /// an import derives from the revision: [`rashomon_records::Tid::imported`].
    TidTicks,
    /// The eight bytes of a render's tid that are not its time, encoded so that they sort as the tids do.
    Tid,
    /// When a revision or a render was stored. For a render, absent if equal to the time of its revision.
    StoredAt,
    /// When a revision or a render was written. Absent if equal to `stored_at`.
    WrittenAt,
    /// The digest of the request that stored a revision or a render. Absent if equal to the result of
    /// [`super::entries::digest_of`] for a revision, or of [`super::entries::render_digest`] for a render.
    Digest,
    /// The first tid of a revision: all sixteen bytes, encoded so that they sort as the tids do. Absent if
    /// equal to the tid of the revision's first render in the block.
    FirstTid,
    /// The properties of a revision or of a render, as JSON. Absent if equal to the properties of its bodies
    /// in the entries.
    Properties,
    /// See [`super::derived::parent_to_number`].
    Parent,
    Timestamp,
    User,
    Comment,
    Minor,
    /// The export fields as JSON, without derivable values.
    Export,
    /// Which export fields are derivable: see [`super::derived::ExportParts`].
    ExportFollows,
    /// When a body was written. Absent if equal to the write time of its revision or render.
    BodyWrittenAt,
    /// The headers of a body, as JSON.
    Headers,
    /// The size of a body. Size and SHA-1 are absent if the content is in the first 16 MiB of contents of the
    /// block: a reader of the revision computes both.
    Size,
    Sha1,
    RewrittenAt,
    /// The chunks of a body that is not in the block.
    Chunks,
    /// 1 for a render whose bodies were left out.
    LeftOut,
    /// For a revision whose content was erased: the time, the person and the reason, as JSON.
    Erased,
}

/// What an entry contains: a sum of these flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(i64);

impl Kind {
    /// A revision begins here. The name of the stream contains the title of its page.
    pub(crate) const REVISION: Self = Self(1);
    /// The only render of the revision has no body, and all its values can be derived from the revision.
    pub(crate) const IMPORTED: Self = Self(2);
    /// A render of the last revision begins here.
    pub(crate) const RENDER: Self = Self(4);
    /// The entry has a body. The body belongs to the last revision or render that began in this entry or
    /// before.
    pub(crate) const BODY: Self = Self(8);

    const ALL: i64 = 15;

    pub(crate) const fn code(self) -> i64 {
        self.0
    }

    pub(crate) fn of(code: i64) -> Option<Self> {
        (1..=Self::ALL).contains(&code).then_some(Self(code))
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn is(self, part: Self) -> bool {
        self.0 & part.0 != 0
    }
}

const FIELDS: usize = 24;

/// The fields in the order of their columns.
fn fields() -> [(Field, Column); FIELDS] {
    use Field::*;
    let integer = |field, name: &str| (field, Column::integer(name));
    let bytes = |field, name: &str| (field, Column::bytes(name));
    [
        integer(Kind, "kind"),
        integer(Rev, "rev"),
        integer(TidTicks, "tid_ticks"),
        bytes(Tid, "tid"),
        integer(StoredAt, "stored_at"),
        integer(WrittenAt, "written_at"),
        bytes(Digest, "digest"),
        bytes(FirstTid, "first_tid"),
        bytes(Properties, "properties"),
        integer(Parent, "parent"),
        integer(Timestamp, "timestamp"),
        bytes(User, "user"),
        bytes(Comment, "comment"),
        integer(Minor, "minor"),
        bytes(Export, "export"),
        integer(ExportFollows, "export_follows"),
        integer(BodyWrittenAt, "body_written_at"),
        bytes(Headers, "headers"),
        integer(Size, "size"),
        bytes(Sha1, "sha1"),
        integer(RewrittenAt, "rewritten_at"),
        bytes(Chunks, "chunks"),
        integer(LeftOut, "left_out"),
        bytes(Erased, "erased"),
    ]
}

/// The columns of a new block. Blocks of earlier versions lack the last columns.
pub(crate) fn columns() -> Vec<Column> {
    fields().into_iter().map(|(_, column)| column).collect()
}

/// The values of an entry that is being written.
#[derive(Debug, Clone)]
pub(crate) struct Line(pub(crate) Vec<Value>);

impl Line {
    pub(crate) fn new() -> Self {
        Self(vec![Value::Absent; FIELDS])
    }

    /// Adds a flag to the kind of the entry.
    pub(crate) fn add(&mut self, kind: Kind) {
        let known = match self.0[Field::Kind as usize] {
            Value::Integer(code) => Kind::of(code),
            _ => None,
        };
        self.int(Field::Kind, known.map_or(kind, |known| known.and(kind)).code());
    }

    pub(crate) fn int(&mut self, field: Field, number: i64) {
        self.0[field as usize] = Value::Integer(number);
    }

    pub(crate) fn bytes(&mut self, field: Field, bytes: impl Into<Vec<u8>>) {
        self.0[field as usize] = Value::Bytes(bytes.into());
    }
}

/// An entry of a block that was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredLine<'t> {
    table: &'t Table,
    index: usize,
}

impl<'t> StoredLine<'t> {
    pub(crate) fn new(table: &'t Table, index: usize) -> Self {
        Self { table, index }
    }

    pub(crate) fn ordinal(self) -> u64 {
        self.table.ordinal(self.index)
    }

    /// The name of the entry's stream.
    pub(crate) fn stream(self) -> &'t [u8] {
        self.table.stream_name(self.table.stream(self.index))
    }

    fn get(self, field: Field) -> ValueRef<'t> {
        self.table.value(self.index, field as usize)
    }

    pub(crate) fn has(self, field: Field) -> bool {
        self.get(field) != ValueRef::Absent
    }

    pub(crate) fn get_int(self, field: Field) -> Option<i64> {
        match self.get(field) {
            ValueRef::Integer(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn get_bytes(self, field: Field) -> Option<&'t [u8]> {
        match self.get(field) {
            ValueRef::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn get_text(self, field: Field) -> Option<&'t str> {
        std::str::from_utf8(self.get_bytes(field)?).ok()
    }

    /// Whether the kind of the entry includes a flag.
    pub(crate) fn is(self, part: Kind) -> bool {
        self.kind().is_some_and(|kind| kind.is(part))
    }

    pub(crate) fn kind(self) -> Option<Kind> {
        Kind::of(self.get_int(Field::Kind)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_order_matches_column_order() {
        for (index, (field, _)) in fields().into_iter().enumerate() {
            assert_eq!(field as usize, index);
        }
    }
}
