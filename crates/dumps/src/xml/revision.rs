//! The `revision` element.

use std::{collections::BTreeMap, io::Read};

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_pages::{ExportRecord, PropertyName, Revision, RevisionRecord, SlotRecord};

use super::{
    content_type::{content_type, content_type_of_slot},
    tokens::{Token, Tokens, attribute, attributes, shorten_name},
    unexpected::{Unexpected, nested_page},
};
use crate::{
    InputPosition, LeftOut, LeftOutReason, MisplacedFault, Problem, SourceProperty, SourceRevision, parent,
    timestamps,
};

/// The role of the main slot, whose elements usually are directly in the revision.
const MAIN_ROLE: &str = "main";

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
    /// The elements of [`FIELDS`] that have occurred.
    seen: Seen,
    /// Why the revision cannot be stored, if an element occurs twice or at an unexpected place.
    fault: Option<LeftOutReason>,
}

/// A set of elements that may occur once, by their indices in a list of names.
#[derive(Debug, Default)]
struct Seen(u32);

impl Seen {
    /// Adds an element. Returns `false` if it has occurred before.
    fn add(&mut self, names: &[&str], name: &str) -> bool {
        let Some(index) = names.iter().position(|known| *known == name) else { return true };
        let bit = 1 << index;
        let is_first = self.0 & bit == 0;
        self.0 |= bit;
        is_first
    }
}

/// The elements that occur once in a revision.
const FIELDS: [&str; 11] = [
    "id",
    "parentid",
    "timestamp",
    "contributor",
    "minor",
    "comment",
    "sha1",
    "origin",
    "model",
    "format",
    "text",
];

/// The elements of a slot. The elements of the main slot are directly in the revision.
#[derive(Debug, Default)]
struct RawSlot {
    role: Option<String>,
    /// Whether any element of the slot occurred.
    present: bool,
    record: SlotRecord,
    text: Option<String>,
}

/// The elements that occur once in a slot.
const SLOT_FIELDS: [&str; 5] = ["role", "origin", "model", "format", "text"];

/// Reads the element that has just begun. Names unknown elements to `unexpected`.
pub(super) fn read<R: Read>(
    tokens: &mut Tokens<R>,
    raw: &mut RawRevision,
    max_text: usize,
    position: &mut InputPosition,
    unexpected: &mut Unexpected,
) -> Result<(), Problem> {
    loop {
        let start = match tokens.next()? {
            Token::Start(start) => start,
            Token::End | Token::Eof => return Ok(()),
            token => {
                let is_space = token.is_space();
                raw.check_characters(is_space, tokens.position().0);
                continue;
            }
        };
        let name = start.name();
        if name.as_ref() == "text" && raw.seen.add(&FIELDS, "text") {
            let attributes = TextAttributes::of(&start)?;
            raw.main.read_text(tokens, attributes, max_text)?;
            continue;
        }
        let deleted = attribute(&start, "deleted")?.is_some();
        let name = name.as_ref().to_owned();
        let line = tokens.position().0;
        if !raw.seen.add(&FIELDS, &name) {
            raw.repeated(&name, line);
            tokens.skip()?;
            continue;
        }
        match name.as_str() {
            "id" => {
                raw.id = tokens.field()?;
                position.revision = raw.id.as_deref().map(LeftOut::shorten);
            }
            "parentid" => raw.parent = tokens.field()?,
            "timestamp" => raw.timestamp = tokens.field()?,
            "contributor" => {
                raw.user_deleted = deleted;
                read_contributor(tokens, raw, unexpected)?;
            }
            "minor" => {
                raw.minor = true;
                unexpected.read_empty(tokens, "minor")?;
            }
            "comment" => {
                raw.comment_deleted = deleted;
                raw.comment = tokens.field()?;
            }
            "sha1" => raw.sha1 = tokens.word()?,
            "content" => {
                if raw.slots.len() == MAX_SLOTS {
                    return Err(Problem::TooLarge(format!("a revision has more than {MAX_SLOTS} slots")));
                }
                let slot = read_content(tokens, raw, max_text, unexpected)?;
                raw.slots.push(slot);
            }
            _ => {
                if !raw.main.read_field(tokens, &name, unexpected)? {
                    raw.skip(tokens, &name, "revision", unexpected)?;
                }
            }
        }
    }
}

fn read_contributor<R: Read>(
    tokens: &mut Tokens<R>,
    raw: &mut RawRevision,
    unexpected: &mut Unexpected,
) -> Result<(), Problem> {
    let (mut seen, mut ip_line) = (Seen::default(), 0);
    loop {
        let name = match tokens.next()? {
            Token::Start(start) => start.name().as_ref().to_owned(),
            Token::End | Token::Eof => break,
            token => {
                let is_space = token.is_space();
                raw.check_characters(is_space, tokens.position().0);
                continue;
            }
        };
        if !seen.add(&["username", "ip", "id"], &name) {
            raw.repeated(&name, tokens.position().0);
            tokens.skip()?;
            continue;
        }
        match name.as_str() {
            "username" => raw.user = tokens.field()?,
            "ip" => {
                ip_line = tokens.position().0;
                raw.ip = tokens.field()?;
            }
            "id" => raw.user_id = unexpected.read_number(tokens, "id", |id| id >= 0)?,
            _ => raw.skip(tokens, &name, "contributor", unexpected)?,
        }
    }
    // A revision is stored with one of them.
    if raw.user.is_some() && raw.ip.is_some() {
        unexpected.add(ip_line, "ip", MisplacedFault::Beside("username"));
    }
    Ok(())
}

fn read_content<R: Read>(
    tokens: &mut Tokens<R>,
    raw: &mut RawRevision,
    max_text: usize,
    unexpected: &mut Unexpected,
) -> Result<RawSlot, Problem> {
    let (mut slot, mut seen) = (RawSlot::default(), Seen::default());
    loop {
        let name = match tokens.next()? {
            Token::Start(start) => {
                let name = start.name();
                if name.as_ref() == "text" && seen.add(&SLOT_FIELDS, "text") {
                    let attributes = TextAttributes::of(&start)?;
                    slot.read_text(tokens, attributes, max_text)?;
                    continue;
                }
                name.as_ref().to_owned()
            }
            Token::End | Token::Eof => return Ok(slot),
            token => {
                let is_space = token.is_space();
                raw.check_characters(is_space, tokens.position().0);
                continue;
            }
        };
        if !seen.add(&SLOT_FIELDS, &name) {
            raw.repeated(&name, tokens.position().0);
            tokens.skip()?;
        } else if name == "role" {
            slot.role = tokens.word()?;
        } else if !slot.read_field(tokens, &name, unexpected)? {
            raw.skip(tokens, &name, "content", unexpected)?;
        }
    }
}

impl RawSlot {
    /// Reads the element that has just begun, if it is a field of a slot. Otherwise reads nothing, and returns `false`.
    fn read_field<R: Read>(
        &mut self,
        tokens: &mut Tokens<R>,
        name: &str,
        unexpected: &mut Unexpected,
    ) -> Result<bool, Problem> {
        match name {
            "model" => self.record.model = tokens.word()?,
            "format" => self.record.format = tokens.word()?,
            "origin" => self.record.origin = unexpected.read_number(tokens, "origin", |origin| origin > 0)?,
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
            "bytes" => found.bytes = value.trim().parse::<i64>().ok().filter(|bytes| *bytes >= 0),
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

    /// Records that an element occurs twice, so it is not clear which one is right.
    fn repeated(&mut self, element: &str, line: u64) {
        let element = shorten_name(element);
        self.fault.get_or_insert(LeftOutReason::Repeated { element, line });
    }

    /// Records characters between the elements of the revision.
    fn check_characters(&mut self, is_space: bool, line: u64) {
        if !is_space {
            self.fault.get_or_insert(LeftOutReason::Characters { line });
        }
    }

    /// Skips the element `name` that has just begun. If it is an element of an export, or has one, the revision is not
    /// complete without it.
    fn skip<R: Read>(
        &mut self,
        tokens: &mut Tokens<R>,
        name: &str,
        within: &str,
        unexpected: &mut Unexpected,
    ) -> Result<(), Problem> {
        if name == "page" {
            return Err(nested_page(tokens, within));
        }
        let line = tokens.position().0;
        let mut inner = Unexpected::of_page(unexpected.page.clone());
        inner.skip(tokens, name, within)?;
        if let Some(element) = unexpected.add_inner(inner) {
            let within = within.to_owned();
            self.fault.get_or_insert(LeftOutReason::MisplacedElement { element, line, within });
        }
        Ok(())
    }

    /// Returns the revision, or its number and why it cannot be stored. A time after `latest` is such a reason.
    pub(super) fn parse(
        mut self,
        latest: Timestamp,
    ) -> Result<SourceRevision, (Option<Revision>, LeftOutReason)> {
        let rev = self.rev();
        if let Some(fault) = self.fault.take() {
            return Err((rev.ok(), fault));
        }
        let rev = rev.map_err(|reason| (None, reason))?;
        let fail = |reason| (Some(rev), reason);
        let timestamp = timestamps::parse_revision_time(self.timestamp.as_deref(), latest).map_err(fail)?;
        let parent = parent::parse_parent(rev, self.parent.as_deref()).map_err(fail)?;
        let mut properties = Vec::new();
        let mut slots = BTreeMap::new();
        for mut slot in std::mem::take(&mut self.slots) {
            let role = slot.role.take().unwrap_or_default();
            if role == MAIN_ROLE && !self.main.present {
                self.main = slot;
                continue;
            }
            let name = slot_property(&role).map_err(fail)?;
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

/// The property of a slot: `slot-` and its role. An error for roles that cannot be part of a property's name, and for a
/// main slot besides the one that is directly in the revision.
fn slot_property(role: &str) -> Result<PropertyName, LeftOutReason> {
    if role == MAIN_ROLE {
        return Err(LeftOutReason::SlotTwice(role.to_owned()));
    }
    let shown = || LeftOut::shorten(role);
    if role.is_empty() {
        return Err(LeftOutReason::NoRole);
    }
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    if let Some(character) = role.chars().find(|c| !is_allowed(*c)) {
        return Err(LeftOutReason::BadSlot { role: shown(), character });
    }
    PropertyName::new(&format!("slot-{role}")).map_err(|_| LeftOutReason::LongRole(shown()))
}
