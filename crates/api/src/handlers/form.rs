//! Receiving a write: its fields, and its properties, which go to the store as they arrive.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::HeaderMap;
use rashomon_buckets::{GivenHeaders, NewProperty, Page, PropertyName, Staged};

use crate::{
    Api,
    encoding::{FormReader, RequestBody},
    problem::{Problem, Result},
    stored_headers,
};

/// The most properties of one write.
pub(crate) const MAX_PROPERTIES: usize = 64;

/// The most bytes of a field that is no property.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// What stands before a property's name in the field that has its headers.
const HTTP_EQUIV: &str = "_http-equiv.";

/// A write that has been received.
#[derive(Debug)]
pub(crate) struct Form {
    texts: BTreeMap<String, String>,
    /// At least one.
    pub(crate) properties: Vec<NewProperty>,
}

impl Form {
    /// Receives a write to a page. `known` are the fields that it takes beside properties and their headers.
    pub(crate) async fn receive(
        api: &Api,
        page: &Page,
        headers: &HeaderMap,
        body: RequestBody,
        known: &[&str],
    ) -> Result<Self> {
        let mut reader = FormReader::new(headers, body)?;
        let mut receiving = Receiving::default();
        match receiving.read(api, page, &mut reader, known).await {
            Ok(()) => receiving.finish(),
            Err(problem) => {
                reader.into_body().drain().await;
                Err(problem)
            }
        }
    }

    /// The text of a field that was given.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.texts.remove(name)
    }
}

/// A property that has been received, and the headers that came with it.
#[derive(Debug)]
struct Received {
    name: PropertyName,
    headers: GivenHeaders,
    body: Staged,
}

/// A write that is being received: the fields come in any order.
#[derive(Debug, Default)]
struct Receiving {
    seen: BTreeSet<String>,
    texts: BTreeMap<String, String>,
    equivalents: BTreeMap<PropertyName, GivenHeaders>,
    properties: Vec<Received>,
}

impl Receiving {
    async fn read(&mut self, api: &Api, page: &Page, reader: &mut FormReader, known: &[&str]) -> Result<()> {
        while let Some(field) = reader.next_field().await? {
            if !self.seen.insert(field.name.clone()) {
                return Err(Problem::malformed(format!("the field '{}' is given twice", field.name)));
            }
            // Each property, its headers, and the known fields.
            if self.seen.len() > 2 * MAX_PROPERTIES + known.len() {
                return Err(too_many());
            }
            if let Some(property) = field.name.strip_prefix(HTTP_EQUIV) {
                let property = PropertyName::new(property)?;
                let headers = parse_equivalents(&read_text(reader, &field.name).await?)?;
                self.equivalents.insert(property, headers);
            } else if known.contains(&field.name.as_str()) {
                let text = read_text(reader, &field.name).await?;
                self.texts.insert(field.name, text);
            } else if field.name.starts_with('_') {
                return Err(Problem::malformed(format!(
                    "there is no field '{}' here; there are {} and {HTTP_EQUIV}NAME, and properties, whose names \
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
        field: crate::encoding::Field,
    ) -> Result<()> {
        let name = PropertyName::new(&field.name)?;
        if self.properties.len() == MAX_PROPERTIES {
            return Err(too_many());
        }
        let headers = field.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers = stored_headers::parse(headers)?;
        let mut sink = api.buckets.stage(page, &name);
        while let Some(piece) = reader.chunk().await? {
            sink.write(&piece).await.map_err(|error| Problem::of_page(error, page))?;
        }
        let body = sink.finish().await.map_err(|error| Problem::of_page(error, page))?;
        self.properties.push(Received { name, headers, body });
        Ok(())
    }

    fn finish(mut self) -> Result<Form> {
        if self.properties.is_empty() {
            return Err(Problem::malformed("a write has at least one property, such as html or wikitext"));
        }
        let mut properties = Vec::with_capacity(self.properties.len());
        for Received { name, headers, body } in self.properties {
            let headers = headers.or(self.equivalents.remove(&name).unwrap_or_default());
            let GivenHeaders { content_type, other: other_headers } = headers;
            properties.push(NewProperty { name, content_type, other_headers, body });
        }
        match self.equivalents.keys().next() {
            Some(name) => Err(Problem::malformed(format!(
                "{HTTP_EQUIV}{name} has headers for {name}, which is not given: give both or none"
            ))),
            None => Ok(Form { texts: self.texts, properties }),
        }
    }
}

fn too_many() -> Problem {
    Problem::malformed(format!("a write has at most {MAX_PROPERTIES} properties"))
}

/// The text of a field: UTF-8, and not long.
async fn read_text(reader: &mut FormReader, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    while let Some(piece) = reader.chunk().await? {
        if bytes.len() + Bytes::len(&piece) > MAX_TEXT_BYTES {
            return Err(Problem::invalid(format!("the field '{name}' has more than {MAX_TEXT_BYTES} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    String::from_utf8(bytes).map_err(|_| Problem::malformed(format!("the field '{name}' is not UTF-8")))
}

/// The headers in a field such as `_http-equiv.html`.
fn parse_equivalents(text: &str) -> Result<GivenHeaders> {
    let headers: BTreeMap<String, String> = serde_json::from_str(text).map_err(|_| {
        Problem::malformed(format!(
            "{HTTP_EQUIV}NAME is a JSON object of headers, such as {{\"Content-Type\": \"text/html\"}}"
        ))
    })?;
    stored_headers::parse(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}
