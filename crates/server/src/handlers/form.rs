//! Receives a write: its fields and its properties. The chunks of a large property go to the store as they arrive.

use std::collections::{BTreeMap, BTreeSet};

use crate::forms::{Field, FormReader, RequestBody};
use bytes::Bytes;
use http::HeaderMap;
use rashomon_pages::{NewProperty, Page, PropertyName, RequestHeaders, Staged};

use crate::{
    Api,
    overload::hold_while,
    problem::{Problem, Result},
    staging::Claim,
    stored_headers::{self, HeaderRules},
};

/// The maximum number of properties in a write.
pub(crate) const MAX_PROPERTIES: usize = 64;

/// The maximum size of a field that is not a property.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// The maximum size of a write without the bodies of its properties: names, headers, and other fields.
/// Headers and single fields have lower limits of their own.
pub(crate) const MAX_FORM_TEXT_BYTES: usize = 256 << 10;

/// The prefix of a field with the headers of a property.
const HTTP_EQUIV: &str = "_http-equiv.";

/// A received write.
#[derive(Debug)]
pub(crate) struct Form {
    texts: BTreeMap<String, String>,
    /// The properties; at least one.
    pub(crate) properties: Vec<NewProperty>,
}

impl Form {
    /// Receives a write to a page. Also returns its claim on staging memory, which must be held until the write is
    /// stored. `known` are the allowed fields besides properties and their headers.
    pub(crate) async fn receive(
        api: &Api,
        page: &Page,
        headers: &HeaderMap,
        body: RequestBody,
        known: &[&str],
    ) -> Result<(Self, Claim)> {
        let mut reader = FormReader::new(headers, body)?;
        let mut claim = api.claim(reader.length()).await?;
        let mut permit = claim.permit.take();
        let mut receiving = FormReceiver::new(claim);
        let room = receiving.claim.room();
        hold_while(&mut permit, &room, receiving.read(api, page, &mut reader, known)).await?;
        receiving.claim.permit = permit;
        receiving.finish()
    }

    /// Takes the text of a field, if the write has it.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.texts.remove(name)
    }
}

/// A received property with its headers.
#[derive(Debug)]
struct ReceivedProperty {
    name: PropertyName,
    headers: RequestHeaders,
    body: Staged,
}

/// A write that is being received. Its fields may come in any order.
#[derive(Debug)]
struct FormReceiver {
    claim: Claim,
    /// The size of everything except the bodies of properties.
    text_bytes: usize,
    seen: BTreeSet<String>,
    texts: BTreeMap<String, String>,
    equivalents: BTreeMap<PropertyName, RequestHeaders>,
    properties: Vec<ReceivedProperty>,
}

impl FormReceiver {
    fn new(claim: Claim) -> Self {
        Self {
            claim,
            text_bytes: 0,
            seen: BTreeSet::new(),
            texts: BTreeMap::new(),
            equivalents: BTreeMap::new(),
            properties: Vec::new(),
        }
    }

    async fn read(&mut self, api: &Api, page: &Page, reader: &mut FormReader, known: &[&str]) -> Result<()> {
        while let Some(field) = reader.next_field().await? {
            if !self.seen.insert(field.name.clone()) {
                return Err(Problem::malformed(format!(
                    "the field '{}' is given twice: send it once",
                    field.name
                )));
            }
            let headers = field.headers.iter().map(|(name, value)| name.len() + value.len());
            self.count(field.name.len() + headers.sum::<usize>())?;
            // At most, a write has all properties, the headers of each, and all known fields.
            if self.seen.len() > 2 * MAX_PROPERTIES + known.len() {
                return Err(too_many());
            }
            if let Some(property) = field.name.strip_prefix(HTTP_EQUIV) {
                let property = PropertyName::new(property)?;
                let text = read_text(reader, &field.name).await?;
                self.count(text.len())?;
                self.equivalents.insert(property, parse_equivalents(&text, HeaderRules::of(api))?);
            } else if known.contains(&field.name.as_str()) {
                let text = read_text(reader, &field.name).await?;
                self.count(text.len())?;
                self.texts.insert(field.name, text);
            } else if field.name.starts_with('_') {
                return Err(Problem::malformed(format!(
                    "unknown field '{}': the fields are {}, {HTTP_EQUIV}NAME, and properties, whose names \
                     begin with a letter",
                    field.name,
                    known.join(", ")
                )));
            } else {
                self.read_property(api, page, reader, field).await?;
            }
        }
        Ok(())
    }

    async fn read_property(
        &mut self,
        api: &Api,
        page: &Page,
        reader: &mut FormReader,
        field: Field,
    ) -> Result<()> {
        let name = PropertyName::new(&field.name)?;
        if self.properties.len() == MAX_PROPERTIES {
            return Err(too_many());
        }
        let headers = field.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers = stored_headers::parse(headers, HeaderRules::of(api))?;
        let mut sink = api.buckets.stage(page, &name);
        while let Some(piece) = reader.chunk().await? {
            reader.hold(self.claim.arrive(piece.len())?);
            sink.write(&piece).await.map_err(|error| Problem::of_page(error, page))?;
        }
        let body = sink.finish().await.map_err(|error| Problem::of_page(error, page))?;
        self.properties.push(ReceivedProperty { name, headers, body });
        self.keep_newest(api, page).await
    }

    /// Keeps the newest body in memory if the claim covers it. Otherwise writes bodies to chunks, the largest
    /// first, until the claim is large enough, or until the newest body itself is in chunks.
    async fn keep_newest(&mut self, api: &Api, page: &Page) -> Result<()> {
        let newest = self.properties.last().map_or(0, |received| received.body.memory());
        while !self.claim.keep(newest) {
            let last = self.properties.len().saturating_sub(1);
            let largest =
                self.properties.iter_mut().enumerate().max_by_key(|(_, received)| received.body.memory());
            let Some((index, ReceivedProperty { body, .. })) = largest else { break };
            let memory = body.memory();
            *body = spill(api, page, body.clone()).await?;
            if index == last {
                break;
            }
            self.claim.release_kept(memory);
        }
        Ok(())
    }

    /// Counts bytes that do not belong to the body of a property.
    fn count(&mut self, bytes: usize) -> Result<()> {
        self.claim.arrive(bytes)?;
        self.text_bytes += bytes;
        if self.text_bytes > MAX_FORM_TEXT_BYTES {
            return Err(Problem::invalid(format!(
                "the field names, the headers, and the fields other than properties have more than \
                 {MAX_FORM_TEXT_BYTES} bytes together: send fewer or shorter ones"
            )));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(Form, Claim)> {
        if self.properties.is_empty() {
            return Err(Problem::malformed(
                "a write must have at least one property, such as html or wikitext",
            ));
        }
        let mut properties = Vec::with_capacity(self.properties.len());
        for ReceivedProperty { name, headers, body } in self.properties {
            let headers = headers.or(self.equivalents.remove(&name).unwrap_or_default());
            let RequestHeaders { content_type, other: other_headers } = headers;
            properties.push(NewProperty { name, content_type, other_headers, body });
        }
        match self.equivalents.keys().next() {
            Some(name) => Err(Problem::malformed(format!(
                "{HTTP_EQUIV}{name} has headers for the property {name}, which the request lacks: send both \
                 or neither"
            ))),
            None => Ok((Form { texts: self.texts, properties }, self.claim)),
        }
    }
}

/// Writes a received body to chunks.
pub(crate) async fn spill(api: &Api, page: &Page, body: Staged) -> Result<Staged> {
    api.buckets.spill(page, body).await.map_err(|error| Problem::of_page(error, page))
}

fn too_many() -> Problem {
    Problem::malformed(format!(
        "a write must have at most {MAX_PROPERTIES} properties, and at most {MAX_PROPERTIES} fields \
         {HTTP_EQUIV}NAME with their headers"
    ))
}

/// Reads the text of a field. The text must be UTF-8 of at most [`MAX_TEXT_BYTES`] bytes.
async fn read_text(reader: &mut FormReader, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    while let Some(piece) = reader.chunk().await? {
        if bytes.len() + Bytes::len(&piece) > MAX_TEXT_BYTES {
            return Err(Problem::invalid(format!(
                "the field '{name}' must have at most {MAX_TEXT_BYTES} bytes"
            )));
        }
        bytes.extend_from_slice(&piece);
    }
    String::from_utf8(bytes).map_err(|_| Problem::malformed(format!("the field '{name}' is not UTF-8")))
}

/// Parses the headers in a field such as `_http-equiv.html`.
fn parse_equivalents(text: &str, rules: HeaderRules<'_>) -> Result<RequestHeaders> {
    let headers: BTreeMap<String, String> = serde_json::from_str(text).map_err(|_| {
        Problem::malformed(format!(
            "{HTTP_EQUIV}NAME must be a JSON object of headers, such as {{\"Content-Type\": \"text/html\"}}"
        ))
    })?;
    stored_headers::parse(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())), rules)
}
