//! Content that an export lacks, or that its schema does not allow.

use crate::LeftOut;

/// Why an export lacks content, or has content that its schema does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// A character that XML 1.0 forbids, even as a reference.
    #[error("{field}: XML cannot hold the character U+{:04X}", u32::from(*character))]
    Character {
        /// The field with the character.
        field: String,
        /// The character.
        character: char,
    },
    /// A field is longer than exports allow.
    #[error("{field} has more than {limit} bytes")]
    TooLong {
        /// The field.
        field: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// A title has spaces at an end or several in a row, or another field has spaces at an end. Readers leave them out.
    #[error("{field} is {value:?}, and readers of exports leave out some of its spaces")]
    Spaces {
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// A text is not UTF-8.
    #[error("the text of slot {slot} is not UTF-8")]
    NotUtf8 {
        /// The slot.
        slot: String,
    },
    /// There is no text, and no record of why it is missing. Or the text is empty and marked as deleted, so a reader
    /// would take it as missing.
    #[error("there is no text for slot {slot}")]
    NoText {
        /// The slot.
        slot: String,
    },
    /// Bodies of a superseded revision, or of some of its renders, are gone: culled by retention, or left out
    /// by the archive's policy.
    #[error(
        "retention or the archive's policy has removed the bodies of the revision, or those of some of \
         its renders"
    )]
    NotKept,
    /// A value that the schema does not allow.
    #[error("{field} is {value:?}, which the export's schema does not allow")]
    InvalidValue {
        /// The field.
        field: String,
        /// The value.
        value: String,
    },
    /// A number that occurs twice, although the schema requires that numbers are unique in the export.
    #[error("the {field} {number} occurs earlier in this export, and the schema allows it only once")]
    NotUnique {
        /// The kind of number.
        field: &'static str,
        /// The number.
        number: i64,
    },
}

impl Loss {
    /// The loss of the first field that has spaces at an end, if any.
    pub(crate) fn of_spaces<'a>(
        fields: impl IntoIterator<Item = (&'static str, Option<&'a str>)>,
    ) -> Option<Self> {
        let mut fields = fields.into_iter().filter_map(|(field, value)| Some((field, value?)));
        let (field, value) = fields.find(|(_, value)| value.trim_ascii() != *value)?;
        Some(Self::Spaces { field, value: LeftOut::shorten(value) })
    }

    /// Makes the loss for a value that the schema does not allow.
    pub(crate) fn invalid(field: &str, value: &str) -> Self {
        Self::InvalidValue { field: field.to_owned(), value: LeftOut::shorten(value) }
    }
}
