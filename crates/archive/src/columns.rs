//! The columns of an archive's blocks: one line an entry.
//!
//! An entry has a body, or is the beginning of a revision or of a render, or is both: the first body of a revision is in
//! the entry that the revision begins with. What follows from other entries or from the content is left out, and must
//! be equal when it is computed again. So the values of one entry say little alone. Code that changes blocks reads
//! [`Unit`](super::entries::Unit)s from the old block, and writes them to a new one.

use rashomon_blocks::{Column, Value};

/// A column, in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// See [`Kind`].
    Kind,
    Rev,
    /// The time of a render's tid, in ticks. Absent, as the next, where the tid is that of a history:
    /// [`crate::Tid::imported`] of its revision.
    TidTicks,
    /// The eight bytes of a render's tid that are not its time, in the order of tids.
    Tid,
    /// Of a render, absent where it is that of its revision.
    StoredAt,
    /// Absent where it is `stored_at`.
    WrittenAt,
    /// Absent where it is that of the properties.
    Digest,
    /// All sixteen bytes in the order of tids. Absent where it is that of the revision's first render.
    FirstTid,
    /// As JSON. Absent where they are those of the bodies that follow.
    Properties,
    /// See [`super::derived::parent_to_number`].
    Parent,
    Timestamp,
    User,
    Comment,
    Minor,
    /// What an export says, as JSON, without what follows.
    Export,
    /// Which parts of it follow: see [`super::derived::ExportParts`].
    ExportFollows,
    /// When a body was written, absent where it is when its revision or render was.
    BodyWrittenAt,
    /// Of a body, as JSON.
    Headers,
    /// Of a body. Absent, as its SHA-1, where the content is in the block and is looked at for both.
    Size,
    Sha1,
    RewrittenAt,
    /// The chunks of a body that is not in the block.
    Chunks,
    /// Of a render whose bodies are not kept: 1.
    LeftOut,
    /// Of a revision whose content was erased: when, and by whom, as JSON.
    Erased,
}

/// What an entry is: some of these, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(i64);

impl Kind {
    /// A revision begins here; its page is named by the stream.
    pub(super) const REVISION: Self = Self(1);
    /// Its only render has no body, and all that is known of it follows from the revision.
    pub(super) const IMPORTED: Self = Self(2);
    /// A render of the last revision begins here.
    pub(super) const RENDER: Self = Self(4);
    /// There is a body of the revision or render that begins here, or began last.
    pub(super) const BODY: Self = Self(8);

    const ALL: i64 = 15;

    pub(super) const fn code(self) -> i64 {
        self.0
    }

    pub(super) fn of(code: i64) -> Option<Self> {
        (1..=Self::ALL).contains(&code).then_some(Self(code))
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn is(self, part: Self) -> bool {
        self.0 & part.0 != 0
    }
}

const FIELDS: usize = 24;

/// The fields in their order, each with its column.
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

/// The columns of every block.
pub(super) fn columns() -> Vec<Column> {
    fields().into_iter().map(|(_, column)| column).collect()
}

/// The values of one entry.
#[derive(Debug, Clone)]
pub(super) struct Line(pub(super) Vec<Value>);

impl Line {
    pub(super) fn new() -> Self {
        Self(vec![Value::Absent; FIELDS])
    }

    /// Adds to what the entry is.
    pub(super) fn add(&mut self, kind: Kind) {
        let both = self.kind().map_or(kind, |known| known.and(kind));
        self.int(Field::Kind, both.code());
    }

    pub(super) fn int(&mut self, field: Field, number: i64) {
        self.0[field as usize] = Value::Integer(number);
    }

    pub(super) fn bytes(&mut self, field: Field, bytes: impl Into<Vec<u8>>) {
        self.0[field as usize] = Value::Bytes(bytes.into());
    }

    pub(super) fn has(&self, field: Field) -> bool {
        self.0.get(field as usize).is_some_and(|value| *value != Value::Absent)
    }

    pub(super) fn get_int(&self, field: Field) -> Option<i64> {
        match self.0.get(field as usize)? {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn get_bytes(&self, field: Field) -> Option<&[u8]> {
        match self.0.get(field as usize)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn get_text(&self, field: Field) -> Option<&str> {
        std::str::from_utf8(self.get_bytes(field)?).ok()
    }

    /// Whether the entry is this, too.
    pub(super) fn is(&self, part: Kind) -> bool {
        self.kind().is_some_and(|kind| kind.is(part))
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        Kind::of(self.get_int(Field::Kind)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_at_its_place() {
        for (index, (field, _)) in fields().into_iter().enumerate() {
            assert_eq!(field as usize, index);
        }
    }
}
