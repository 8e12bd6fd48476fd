//! Writes an export in XML, version 0.11.

use std::io::{self, Write};

use rashomon_clock::rfc3339;
use rashomon_pages::{Parent, RevisionRecord, Sha1, SiteInfo, SlotRecord};

use super::{
    chars,
    content_type::format_and_model,
    escape::{push_attribute, push_text},
    page::normalise_title,
    tokens::MAX_FIELD_BYTES,
};
use crate::{LeftOut, Loss, sha1};

/// The language of an export without one: undetermined, in BCP 47.
const NO_LANGUAGE: &str = "und";

/// The maximum size of a value that is written as an attribute. Several such values fit into a tag that can
/// be read back.
const MAX_ATTRIBUTE_BYTES: usize = MAX_FIELD_BYTES / 8;

/// The values of `case` that the schema allows.
const CASES: [&str; 3] = ["first-letter", "case-sensitive", "case-insensitive"];

/// The elements before a page's first revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageHead<'a> {
    /// The title, with spaces.
    pub title: String,
    /// The number of the namespace, not negative.
    pub namespace: i64,
    /// The page's number, positive.
    pub page_id: i64,
    /// The page that this page redirects to. An empty text if the target is unknown.
    pub redirect: Option<&'a str>,
    /// The restrictions on editing the page.
    pub restrictions: Option<&'a str>,
}

/// A revision to write.
#[derive(Debug, Clone)]
pub struct WrittenRevision<'a> {
    /// The record of the revision.
    pub record: &'a RevisionRecord,
    /// The main slot.
    pub main: WrittenSlot<'a>,
    /// The other slots, in the order of their roles.
    pub slots: Vec<(&'a str, WrittenSlot<'a>)>,
}

/// A slot to write.
#[derive(Debug, Clone)]
pub struct WrittenSlot<'a> {
    /// The record of the slot.
    pub record: Option<&'a SlotRecord>,
    /// The content type of the slot, if it has a text.
    pub content_type: Option<&'a str>,
    /// The text of the slot. `None` if it has none.
    pub text: Option<WrittenText<'a>>,
}

/// A text to write.
#[derive(Debug, Clone)]
pub struct WrittenText<'a> {
    /// The bytes of the text.
    pub bytes: &'a [u8],
    /// The SHA-1 of the bytes.
    pub sha1: Sha1,
    /// Whether the text was replaced, so that the recorded size and SHA-1 are those of another text.
    pub rewritten: bool,
}

/// The outcome of writing an item: a page or a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The item was written.
    Written,
    /// The item was written, but the schema does not allow it.
    Invalid(Loss),
    /// The item was left out, since it could not be read back unchanged.
    LeftOut(Loss),
}

/// Writes an export, piece by piece.
#[derive(Debug)]
pub struct XmlWriter<W> {
    out: W,
    buffer: Vec<u8>,
}

impl XmlWriter<Vec<u8>> {
    /// A writer of further pages of an export, without the beginning of the export.
    pub(crate) const fn for_pages() -> Self {
        Self { out: Vec::new(), buffer: Vec::new() }
    }

    /// Frees the memory that only further pages would need.
    pub(crate) fn shrink(&mut self) {
        self.out.shrink_to_fit();
        self.buffer.shrink_to_fit();
    }
}

impl<W: Write> XmlWriter<W> {
    /// Begins an export. Omits parts of `site` that the schema or XML does not allow.
    pub fn new(out: W, site: Option<&SiteInfo>) -> io::Result<Self> {
        let mut writer = Self { out, buffer: Vec::new() };
        let language = site.and_then(|site| site.language.as_deref()).filter(|text| is_clean(text));
        writer.buffer.extend_from_slice(
            b"<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" \
              xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
              xsi:schemaLocation=\"http://www.mediawiki.org/xml/export-0.11/ \
              http://www.mediawiki.org/xml/export-0.11.xsd\" version=\"0.11\"",
        );
        writer.attribute("xml:lang", language.unwrap_or(NO_LANGUAGE));
        writer.raw(">\n");
        if let Some(site) = site {
            writer.site(site);
        }
        writer.flush_buffer()?;
        Ok(writer)
    }

    fn site(&mut self, site: &SiteInfo) {
        self.raw("  <siteinfo>\n");
        let case = site.case.as_ref().filter(|case| CASES.contains(&case.as_str()));
        for (name, value) in [
            ("sitename", site.name.as_ref()),
            ("dbname", site.database.as_ref()),
            ("base", site.base.as_ref()),
            ("generator", site.generator.as_ref()),
            ("case", case),
        ] {
            if let Some(value) = value.filter(|value| is_clean(value)) {
                self.leaf(2, name, value);
            }
        }
        self.raw("    <namespaces>\n");
        for namespace in site.namespaces.iter().filter(|namespace| is_clean(&namespace.name)) {
            self.raw("      <namespace");
            self.attribute("key", &namespace.key.to_string());
            if let Some(case) = namespace.case.as_deref().filter(|case| CASES.contains(case)) {
                self.attribute("case", case);
            }
            self.content("namespace", &namespace.name);
        }
        self.raw("    </namespaces>\n  </siteinfo>\n");
    }

    /// Begins a page. If the page is left out, it must not be ended, and gets no revisions.
    pub fn begin_page(&mut self, head: &PageHead<'_>) -> io::Result<Outcome> {
        let fields = [("title", Some(head.title.as_str())), ("restrictions", head.restrictions)];
        let loss = first_loss(MAX_FIELD_BYTES, fields)
            .or_else(|| first_loss(MAX_ATTRIBUTE_BYTES, [("redirect", head.redirect)]))
            .or_else(|| {
                let value = LeftOut::shorten(&head.title);
                (normalise_title(&head.title) != head.title).then_some(Loss::Spaces { field: "title", value })
            });
        if let Some(loss) = loss {
            return Ok(Outcome::LeftOut(loss));
        }
        self.raw("  <page>\n");
        self.leaf(2, "title", &head.title);
        self.leaf(2, "ns", &head.namespace.to_string());
        self.leaf(2, "id", &head.page_id.to_string());
        match head.redirect {
            Some("") => self.raw("    <redirect />\n"),
            Some(target) => {
                self.raw("    <redirect");
                self.attribute("title", target);
                self.raw(" />\n");
            }
            None => {}
        }
        if let Some(restrictions) = head.restrictions {
            self.leaf(2, "restrictions", restrictions);
        }
        // The beginning of a page stays in the buffer, since a page without revisions is not written.
        Ok(Outcome::Written)
    }

    /// Writes a revision of the last page.
    pub fn revision(&mut self, revision: &WrittenRevision<'_>) -> io::Result<Outcome> {
        if let Some(loss) = find_loss(revision) {
            return Ok(Outcome::LeftOut(loss));
        }
        let record = revision.record;
        self.raw("    <revision>\n");
        self.leaf(3, "id", &record.rev.to_string());
        if let Some(Parent::Revision(parent)) = record.parent {
            self.leaf(3, "parentid", &parent.to_string());
        }
        self.leaf(3, "timestamp", &rfc3339::format(record.timestamp));
        self.contributor(record);
        if record.minor {
            self.raw("      <minor/>\n");
        }
        if record.comment.is_some() || record.export.comment_deleted {
            self.raw("      <comment");
            if record.export.comment_deleted {
                self.attribute("deleted", "deleted");
            }
            self.content("comment", record.comment.as_deref().unwrap_or_default());
        }
        let mut invalid = self.slot(3, record, &revision.main);
        for (role, slot) in &revision.slots {
            self.raw("      <content>\n");
            self.leaf(4, "role", role);
            invalid = invalid.or_else(|| (!is_name(role, b"-+./")).then(|| Loss::invalid("role", role)));
            let of_slot = self.slot(4, record, slot);
            invalid = invalid.or(of_slot);
            self.raw("      </content>\n");
        }
        self.leaf(3, "sha1", &revision_sha1(revision));
        self.raw("    </revision>\n");
        self.flush_buffer()?;
        Ok(invalid.map_or(Outcome::Written, Outcome::Invalid))
    }

    /// Ends a page. A page without a revision is not written, since an importer could not store it. Returns
    /// whether the page was written.
    pub fn end_page(&mut self) -> io::Result<bool> {
        if !self.buffer.is_empty() {
            self.buffer.clear();
            return Ok(false);
        }
        self.raw("  </page>\n");
        self.flush_buffer()?;
        Ok(true)
    }

    /// Returns the underlying writer. The caller may take written data out of it, and may only write whole pages
    /// of [`XmlWriter::for_pages`] to it.
    pub(crate) const fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Ends the export, and returns the underlying writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.raw("</mediawiki>\n");
        self.flush_buffer()?;
        Ok(self.out)
    }

    fn contributor(&mut self, record: &RevisionRecord) {
        self.raw("      <contributor");
        if record.export.user_deleted {
            self.attribute("deleted", "deleted");
        }
        let user = record.user.as_deref().filter(|user| !user.is_empty());
        let id = record.export.user_id.filter(|id| *id >= 0);
        if user.is_none() && id.is_none() {
            self.raw(" />\n");
            return;
        }
        self.raw(">\n");
        if let Some(user) = user.filter(|_| !record.export.user_is_ip) {
            self.leaf(4, "username", user);
        }
        if let Some(id) = id {
            self.leaf(4, "id", &id.to_string());
        }
        if let Some(user) = user.filter(|_| record.export.user_is_ip) {
            self.leaf(4, "ip", user);
        }
        self.raw("      </contributor>\n");
    }

    /// Writes the elements of a slot. Returns a value that the schema does not allow, if it has one.
    fn slot(&mut self, depth: usize, record: &RevisionRecord, slot: &WrittenSlot<'_>) -> Option<Loss> {
        let recorded = slot.record;
        let origin = recorded.and_then(|slot| slot.origin).filter(|origin| *origin > 0);
        let (format, model) = format_and_model(recorded, slot.content_type);
        self.leaf(depth, "origin", &origin.unwrap_or(record.rev.get()).to_string());
        self.leaf(depth, "model", &model);
        self.leaf(depth, "format", &format);
        self.indent(depth);
        self.raw("<text");
        let unchanged = slot.record.filter(|_| !slot.text.as_ref().is_some_and(|text| text.rewritten));
        let size = slot.text.as_ref().map(|text| text.bytes.len() as i64);
        let bytes = unchanged.and_then(|slot| slot.bytes).filter(|bytes| *bytes >= 0).or(size);
        if let Some(bytes) = bytes {
            self.attribute("bytes", &bytes.to_string());
        }
        if let Some(id) = recorded.and_then(|slot| slot.id.as_deref()) {
            self.attribute("id", id);
        }
        if let Some(location) = recorded.and_then(|slot| slot.location.as_deref()) {
            self.attribute("location", location);
        }
        if let Some(sha1) = slot_sha1(slot) {
            self.attribute("sha1", &sha1);
        }
        if recorded.is_some_and(|slot| slot.deleted) {
            self.attribute("deleted", "deleted");
        }
        match &slot.text {
            Some(text) => {
                self.attribute("xml:space", "preserve");
                // `find_loss` has checked that the text is UTF-8.
                self.content("text", std::str::from_utf8(text.bytes).unwrap_or_default());
            }
            None => self.raw(" />\n"),
        }
        let id = recorded.and_then(|slot| slot.id.as_deref());
        find_schema_violation(&model, &format, id)
    }

    fn raw(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn indent(&mut self, depth: usize) {
        for _ in 0..depth {
            self.raw("  ");
        }
    }

    fn leaf(&mut self, depth: usize, name: &str, value: &str) {
        self.indent(depth);
        self.raw("<");
        self.raw(name);
        self.content(name, value);
    }

    fn attribute(&mut self, name: &str, value: &str) {
        self.raw(" ");
        self.raw(name);
        self.raw("=\"");
        push_attribute(&mut self.buffer, value);
        self.raw("\"");
    }

    /// Ends the open tag, and writes the content and the end of the element.
    fn content(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            self.raw(" />\n");
            return;
        }
        self.raw(">");
        push_text(&mut self.buffer, value);
        self.raw("</");
        self.raw(name);
        self.raw(">\n");
    }

    fn flush_buffer(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

fn is_clean(text: &str) -> bool {
    chars::first_forbidden(text).is_none()
}

/// Returns the loss of the first field that could not be read back unchanged.
fn first_loss<'a>(
    limit: usize,
    fields: impl IntoIterator<Item = (&'static str, Option<&'a str>)>,
) -> Option<Loss> {
    (fields.into_iter()).find_map(|(field, value)| {
        let value = value?;
        if value.len() > limit {
            return Some(Loss::TooLong { field: field.to_owned(), limit });
        }
        let character = chars::first_forbidden(value)?;
        Some(Loss::Character { field: field.to_owned(), character })
    })
}

/// Returns why a revision cannot be written so that it is read back unchanged.
fn find_loss(revision: &WrittenRevision<'_>) -> Option<Loss> {
    let record = revision.record;
    let fields = [
        ("user", record.user.as_deref()),
        ("comment", record.comment.as_deref()),
        ("sha1", record.export.sha1.as_deref()),
    ];
    let main = [("main", &revision.main)];
    let slots = main.into_iter().chain(revision.slots.iter().map(|(role, slot)| (*role, slot)));
    first_loss(MAX_FIELD_BYTES, fields)
        .or_else(|| Loss::of_spaces([("sha1", record.export.sha1.as_deref())]))
        .or_else(|| slots.into_iter().find_map(|(role, slot)| find_slot_loss(role, slot)))
}

fn find_slot_loss(role: &str, slot: &WrittenSlot<'_>) -> Option<Loss> {
    if let Some(record) = slot.record {
        let elements = [("model", record.model.as_deref()), ("format", record.format.as_deref())];
        let attributes = [
            ("text's sha1", record.sha1.as_deref()),
            ("text's id", record.id.as_deref()),
            ("text's location", record.location.as_deref()),
        ];
        let loss = first_loss(MAX_FIELD_BYTES, elements)
            .or_else(|| first_loss(MAX_ATTRIBUTE_BYTES, attributes))
            .or_else(|| Loss::of_spaces(elements));
        if loss.is_some() {
            return loss;
        }
    }
    let deleted = slot.record.is_some_and(|slot| slot.deleted);
    let Some(text) = &slot.text else {
        // A reader takes an empty element as a missing text only if an attribute says so.
        let stub = |slot: &SlotRecord| {
            slot.id.is_some() || slot.location.is_some() || matches!(slot.bytes, Some(1..))
        };
        let is_declared_missing = deleted || slot.record.is_some_and(stub);
        return (!is_declared_missing).then(|| Loss::NoText { slot: role.to_owned() });
    };
    if deleted && text.bytes.is_empty() {
        return Some(Loss::NoText { slot: role.to_owned() });
    }
    let Ok(text) = std::str::from_utf8(text.bytes) else {
        return Some(Loss::NotUtf8 { slot: role.to_owned() });
    };
    let character = chars::first_forbidden(text)?;
    Some(Loss::Character { field: format!("text of slot {role}"), character })
}

/// Returns the SHA-1 of a slot's text: the recorded SHA-1, or the computed SHA-1 if the text was replaced or if none is
/// recorded.
fn slot_sha1(slot: &WrittenSlot<'_>) -> Option<String> {
    let computed = || slot.text.as_ref().map(|text| text.sha1.to_base36());
    let rewritten = slot.text.as_ref().is_some_and(|text| text.rewritten);
    let recorded = slot.record.filter(|_| !rewritten).and_then(|slot| slot.sha1.clone());
    recorded.or_else(computed)
}

/// Returns the SHA-1 of a revision: the recorded SHA-1, or that of its slots if a text was replaced or if none is
/// recorded. Empty if the SHA-1 of a slot is unknown.
fn revision_sha1(revision: &WrittenRevision<'_>) -> String {
    let slots = || {
        std::iter::once(("main", &revision.main))
            .chain(revision.slots.iter().map(|(role, slot)| (*role, slot)))
    };
    let rewritten = slots().any(|(_, slot)| slot.text.as_ref().is_some_and(|text| text.rewritten));
    if let Some(recorded) = revision.record.export.sha1.as_ref().filter(|_| !rewritten) {
        return recorded.clone();
    }
    let of_slots: Option<std::collections::BTreeMap<_, _>> =
        slots().map(|(role, slot)| Some((role, slot.text.as_ref()?.sha1.to_base36()))).collect();
    of_slots.and_then(|of_slots| sha1::combine(of_slots.values().map(String::as_str))).unwrap_or_default()
}

fn find_schema_violation(model: &str, format: &str, id: Option<&str>) -> Option<Loss> {
    if !is_name(model, b"-+./") {
        return Some(Loss::invalid("model", model));
    }
    let is_format =
        format.split_once('/').is_some_and(|(kind, name)| is_name(kind, b"-+.") && is_name(name, b"-+."));
    if !is_format {
        return Some(Loss::invalid("format", format));
    }
    let is_token = |id: &str| {
        !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c) || !c.is_ascii())
    };
    id.filter(|id| !is_token(id)).map(|id| Loss::invalid("text's id", id))
}

fn is_name(text: &str, also: &[u8]) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || also.contains(&byte))
}

#[cfg(test)]
mod tests;
