//! The `revision` element.

use std::{collections::BTreeMap, io::Read};

use bytes::Bytes;
use rashomon_buckets::{ExportRecord, PropertyName, Revision, RevisionRecord, SlotRecord};
use rashomon_clock::Timestamp;

use super::{
    content_type::{content_type, content_type_of_slot},
    reader::number,
    tokens::{Token, Tokens, attribute, attributes, shorten_name},
};
use crate::{
    InputPosition, LeftOut, LeftOutReason, Problem, SourceProperty, SourceRevision, parent, timestamps,
};

/// The maximum number of slots in addition to the main slot.
const MAX_SLOTS: usize = 64;

/// The content of a `revision` element.
#[derive(Debug, Default)]
pub(super) struct RawRevision {
    line: u64,
    id: Option<String>,
    parent: Option<String>,
    timestamp: Option<String>,
    user: Option<String>,
    ip: Option<String>,
    user_id: Option<i64>,
    user_deleted: bool,
    comment: Option<String>,
    comment_deleted: bool,
    minor: bool,
    sha1: Option<String>,
    main: RawSlot,
    slots: Vec<RawSlot>,
}

/// The elements of a slot. The elements of the main slot are directly in the revision.
#[derive(Debug, Default)]
struct RawSlot {
    role: Option<String>,
    /// Whether any element of the slot occurred.
    present: bool,
    record: SlotRecord,
    text: Option<String>,
}

/// Reads the element that has just begun. `skipped` takes the names of unknown elements.
pub(super) fn read<R: Read>(
    tokens: &mut Tokens<R>,
    raw: &mut RawRevision,
    max_text: usize,
    position: &mut InputPosition,
    skipped: &mut Vec<String>,
) -> Result<(), Problem> {
    loop {
        let (name, deleted) = match tokens.next()? {
            Token::Start(start) => {
                let name = start.name();
                if name.as_ref() == "text" {
                    let attributes = TextAttributes::of(&start)?;
                    raw.main.read_text(tokens, attributes, max_text)?;
                    continue;
                }
                (name.as_ref().to_owned(), attribute(&start, "deleted")?.is_some())
            }
            Token::End | Token::Eof => return Ok(()),
            _ => continue,
        };
        match name.as_str() {
            "id" => {
                raw.id = tokens.field()?;
                position.revision = raw.id.as_deref().map(LeftOut::shorten);
            }
            "parentid" => raw.parent = tokens.field()?,
            "timestamp" => raw.timestamp = tokens.field()?,
            "contributor" => {
                raw.user_deleted = deleted;
                read_contributor(tokens, raw, skipped)?;
            }
            "minor" => {
                raw.minor = true;
                tokens.skip()?;
            }
            "comment" => {
                raw.comment_deleted = deleted;
                raw.comment = tokens.field()?;
            }
            "sha1" => raw.sha1 = tokens.field()?,
            "content" => {
                if raw.slots.len() == MAX_SLOTS {
                    return Err(Problem::TooLarge(format!("a revision has more than {MAX_SLOTS} slots")));
                }
                raw.slots.push(read_content(tokens, max_text, skipped)?);
            }
            _ => {
                if !raw.main.read_field(tokens, &name)? {
                    skipped.push(shorten_name(&name));
                    tokens.skip()?;
                }
            }
        }
    }
}

fn read_contributor<R: Read>(
    tokens: &mut Tokens<R>,
    raw: &mut RawRevision,
    skipped: &mut Vec<String>,
) -> Result<(), Problem> {
    loop {
        let name = match tokens.next()? {
            Token::Start(start) => start.name().as_ref().to_owned(),
            Token::End | Token::Eof => return Ok(()),
            _ => continue,
        };
        match name.as_str() {
            "username" => raw.user = tokens.field()?,
            "ip" => raw.ip = tokens.field()?,
            "id" => raw.user_id = number(tokens.field()?).filter(|id| *id >= 0),
            _ => {
                skipped.push(shorten_name(&name));
                tokens.skip()?;
            }
        }
    }
}

fn read_content<R: Read>(
    tokens: &mut Tokens<R>,
    max_text: usize,
    skipped: &mut Vec<String>,
) -> Result<RawSlot, Problem> {
    let mut slot = RawSlot::default();
    loop {
        let name = match tokens.next()? {
            Token::Start(start) => {
                let name = start.name();
                if name.as_ref() == "text" {
                    let attributes = TextAttributes::of(&start)?;
                    slot.read_text(tokens, attributes, max_text)?;
                    continue;
                }
                name.as_ref().to_owned()
            }
            Token::End | Token::Eof => return Ok(slot),
            _ => continue,
        };
        if name == "role" {
            slot.role = tokens.field()?;
        } else if !slot.read_field(tokens, &name)? {
            skipped.push(shorten_name(&name));
            tokens.skip()?;
        }
    }
}

impl RawSlot {
    /// Reads the element that has just begun, if it is a field of a slot. Otherwise reads nothing, and returns `false`.
    fn read_field<R: Read>(&mut self, tokens: &mut Tokens<R>, name: &str) -> Result<bool, Problem> {
        match name {
            "model" => self.record.model = tokens.field()?,
            "format" => self.record.format = tokens.field()?,
            "origin" => self.record.origin = number(tokens.field()?).filter(|origin| *origin > 0),
            _ => return Ok(false),
        }
        self.present = true;
        Ok(true)
    }

    fn read_text<R: Read>(
        &mut self,
        tokens: &mut Tokens<R>,
        attributes: TextAttributes,
        max_text: usize,
    ) -> Result<(), Problem> {
        let declared = attributes.bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let text = tokens.text_with_size_hint(declared.unwrap_or_default(), max_text)?;
        self.present = true;
        self.text = (!text.is_empty() || attributes.empty_is_a_text()).then_some(text);
        self.record.deleted = attributes.deleted;
        self.record.bytes = attributes.bytes;
        self.record.sha1 = attributes.sha1;
        self.record.id = attributes.id;
        self.record.location = attributes.location;
        Ok(())
    }

    fn property(&mut self, name: PropertyName, content_type: Option<String>) -> Option<SourceProperty> {
        let body = Bytes::from(self.text.take()?);
        Some(SourceProperty {
            name,
            content_type,
            other_headers: BTreeMap::new(),
            rewritten_at: None,
            sha1: None,
            body,
        })
    }
}

/// The attributes of a `text` element.
#[derive(Debug, Default)]
struct TextAttributes {
    deleted: bool,
    bytes: Option<i64>,
    sha1: Option<String>,
    id: Option<String>,
    location: Option<String>,
    preserve: bool,
}

impl TextAttributes {
    fn of(start: &quick_xml::events::BytesStart<'_>) -> Result<Self, Problem> {
        let mut found = Self::default();
        attributes(start, |key, value| match key {
            "deleted" => found.deleted = true,
            "bytes" => found.bytes = number(Some(value)).filter(|bytes| *bytes >= 0),
            "sha1" => found.sha1 = Some(value).filter(|value| !value.is_empty()),
            "id" => found.id = Some(value).filter(|value| !value.is_empty()),
            "location" => found.location = Some(value).filter(|value| !value.is_empty()),
            "xml:space" => found.preserve = value == "preserve",
            _ => {}
        })?;
        Ok(found)
    }

    /// Whether an empty element is a text of no bytes, rather than a text that is missing from the export.
    /// MediaWiki writes `xml:space` for every text that it has. Without that attribute, an element with an
    /// `id`, a `location` or a size above 0 is a stub.
    const fn empty_is_a_text(&self) -> bool {
        let stub = self.id.is_some() || self.location.is_some() || matches!(self.bytes, Some(1..));
        !self.deleted && (self.preserve || !stub)
    }
}

impl RawRevision {
    /// A revision that begins in this line.
    pub(super) fn at(line: u64) -> Self {
        Self { line, ..Self::default() }
    }

    /// Returns the revision, or its number and why it cannot be stored. A time after `latest` is such a reason.
    pub(super) fn parse(
        mut self,
        latest: Timestamp,
    ) -> Result<SourceRevision, (Option<Revision>, LeftOutReason)> {
        let rev = self.rev().map_err(|reason| (None, reason))?;
        let fail = |reason| (Some(rev), reason);
        let timestamp = timestamps::parse_revision_time(self.timestamp.as_deref(), latest).map_err(fail)?;
        let parent = parent::parse_parent(rev, self.parent.as_deref()).map_err(fail)?;
        let mut properties = Vec::new();
        let mut slots = BTreeMap::new();
        for mut slot in std::mem::take(&mut self.slots) {
            let role = slot.role.take().unwrap_or_default();
            let name =
                slot_property(&role).ok_or_else(|| fail(LeftOutReason::BadSlot(LeftOut::shorten(&role))))?;
            let content_type = content_type_of_slot(&slot.record);
            properties.extend(slot.property(name, Some(content_type)));
            if slots.insert(role.clone(), slot.record).is_some() {
                return Err(fail(LeftOutReason::SlotTwice(LeftOut::shorten(&role))));
            }
        }
        let content_type = content_type(&self.main.record);
        properties.extend(self.main.property(PropertyName::wikitext(), content_type));
        let user_is_ip = self.user.is_none() && self.ip.is_some();
        let record = RevisionRecord {
            rev,
            parent,
            timestamp,
            user: self.user.or(self.ip),
            comment: self.comment,
            minor: self.minor,
            export: ExportRecord {
                user_id: self.user_id,
                user_is_ip,
                user_deleted: self.user_deleted,
                comment_deleted: self.comment_deleted,
                sha1: self.sha1,
                main: self.main.present.then_some(self.main.record),
                slots,
            },
            erased: None,
        };
        Ok(SourceRevision { line: self.line, continued: false, record, properties, renders: Vec::new() })
    }

    fn rev(&self) -> Result<Revision, LeftOutReason> {
        let id = self.id.as_deref().ok_or(LeftOutReason::NoNumber)?;
        let number = id.trim().parse().ok().and_then(Revision::new);
        number.ok_or_else(|| LeftOutReason::BadNumber(LeftOut::shorten(id)))
    }
}

/// The property of a slot: `slot-` and its role. `None` for the main slot, and for roles that cannot be part
/// of a property's name.
pub(super) fn slot_property(role: &str) -> Option<PropertyName> {
    let usable = !role.is_empty() && role != "main";
    usable.then(|| PropertyName::new(&format!("slot-{role}")).ok()).flatten()
}
