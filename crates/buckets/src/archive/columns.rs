//! The columns of an archive's blocks: one line an entry.
//!
//! An entry is a revision, a render, or a body. What follows from other entries is left out, and must be equal
//! when it is computed again.

use rashomon_blocks::{Column, Value};

/// A column, in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// The page's title, at its first entry.
    Title,
    /// See [`Kind`].
    Kind,
    Rev,
    /// The time of a render's tid, in ticks. Absent, as the next, where the tid is that of a history:
    /// [`crate::Tid::imported`] of its revision.
    TidTicks,
    /// The eight bytes of a render's tid that are not its time, in the order of tids.
    Tid,
    StoredAt,
    /// Absent where it is that of the row above: `stored_at`, or of a body that of its revision or render.
    WrittenAt,
    /// Absent where it is that of the properties.
    Digest,
    /// All sixteen bytes in the order of tids. Absent where it is that of the revision's first render.
    FirstTid,
    /// As JSON. Absent where they are those of the bodies that follow.
    Properties,
    Parent,
    Timestamp,
    User,
    Comment,
    Minor,
    Export,
    /// Of a body, as JSON.
    Headers,
    /// Of a body that is not in the block.
    Size,
    Sha1,
    RewrittenAt,
    /// The chunks of a body that is not in the block.
    Chunks,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Revision,
    Render,
    /// A body of the revision above.
    RevisionBody,
    /// A body of the render above.
    RenderBody,
}

impl Kind {
    pub(super) const fn code(self) -> i64 {
        self as i64
    }

    pub(super) fn of(code: i64) -> Option<Self> {
        [Self::Revision, Self::Render, Self::RevisionBody, Self::RenderBody]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// The fields in their order, each with its column.
fn fields() -> [(Field, Column); 21] {
    use Field::*;
    let integer = |field, name: &str| (field, Column::integer(name));
    let bytes = |field, name: &str| (field, Column::bytes(name));
    [
        bytes(Title, "title"),
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
        bytes(Headers, "headers"),
        integer(Size, "size"),
        bytes(Sha1, "sha1"),
        integer(RewrittenAt, "rewritten_at"),
        bytes(Chunks, "chunks"),
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
    pub(super) fn new(kind: Kind) -> Self {
        let mut line = Self(vec![Value::Absent; fields().len()]);
        line.int(Field::Kind, kind.code());
        line
    }

    pub(super) fn int(&mut self, field: Field, number: i64) {
        self.0[field as usize] = Value::Integer(number);
    }

    pub(super) fn bytes(&mut self, field: Field, bytes: impl Into<Vec<u8>>) {
        self.0[field as usize] = Value::Bytes(bytes.into());
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
