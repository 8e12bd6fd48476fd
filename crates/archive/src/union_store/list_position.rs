//! Where a list of the partitions of the union continues.

use rashomon_tables::{Cursor, Error as StoreError, Result};

/// The position at which a list of partitions continues.
pub(super) enum ListPosition {
    /// In the table itself.
    InTable(Option<Cursor>),
    /// After the partitions of the table: in the indexes of pages.
    InIndexes(Option<Cursor>),
}

impl ListPosition {
    pub(super) fn encode(self) -> Cursor {
        let (tag, cursor) = match self {
            Self::InTable(cursor) => (0, cursor),
            Self::InIndexes(cursor) => (1, cursor),
        };
        let mut bytes = vec![tag, u8::from(cursor.is_some())];
        bytes.extend(cursor.iter().flat_map(|cursor| cursor.0.iter()));
        Cursor(bytes.into())
    }

    pub(super) fn decode(cursor: &Cursor) -> Result<Self> {
        match &cursor.0[..] {
            [tag @ (0 | 1), is_some @ (0 | 1), rest @ ..] => {
                let cursor = (*is_some == 1).then(|| Cursor(rest.to_vec().into()));
                Ok(if *tag == 0 { Self::InTable(cursor) } else { Self::InIndexes(cursor) })
            }
            _ => Err(StoreError::Invalid("the cursor does not come from this store".to_owned())),
        }
    }
}
