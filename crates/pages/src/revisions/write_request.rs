//! The properties of a write request, as they will be stored.

use std::collections::BTreeMap;

use rashomon_clock::Timestamp;

use crate::{
    Conflict, Definitions, Error, Headers, NewProperty, PropertyInfo, PropertyName, Result, Versions,
    content::{Bodies, BodyRow},
    rows::{Digest, Properties, digest, index_size},
};

/// The maximum number of bytes that the properties of a render and of its revision take in the indexes:
/// names, headers and sizes. A batch contains these bytes twice: in index rows and in rows of bodies.
pub(super) const MAX_INDEX_BYTES: usize = 96 << 10;

/// The properties of a request, with their bodies, and the digest by which a repeat is recognized.
pub(super) struct WriteRequest {
    pub(super) bodies: Bodies,
    pub(super) digest: Digest,
}

impl WriteRequest {
    pub(super) fn new(properties: Vec<NewProperty>, definitions: &Definitions) -> Result<Self> {
        let mut bodies = BTreeMap::new();
        for property in properties {
            let (name, body) = body_of(property, None, definitions);
            if bodies.insert(name.clone(), body).is_some() {
                return Err(Error::Invalid(format!("property {name} occurs twice in the request")));
            }
        }
        if bodies.is_empty() {
            return Err(Error::Invalid("give at least one property, such as html or wikitext".to_owned()));
        }
        let digest = digest(bodies.iter().map(|(name, body)| (name, &body.info)));
        Ok(Self { bodies, digest })
    }
}

/// Returns the name of a property, and its body as it will be stored.
pub(crate) fn body_of(
    property: NewProperty,
    rewritten_at: Option<Timestamp>,
    definitions: &Definitions,
) -> (PropertyName, BodyRow) {
    let content_type =
        property.content_type.unwrap_or_else(|| definitions.get(&property.name).content_type.clone());
    let headers = Headers { content_type, other: property.other_headers };
    let info = PropertyInfo { headers, size: property.body.size, sha1: property.body.sha1, rewritten_at };
    (property.name, BodyRow { info, stored: property.body.stored })
}

/// Divides the properties into properties of the revision, and properties of the render.
pub(super) fn by_versions(bodies: &Bodies, definitions: &Definitions) -> (Properties, Properties) {
    (bodies.iter())
        .map(|(name, body)| (name.clone(), body.info.clone()))
        .partition(|(name, _)| definitions.get(name).versions == Versions::Revision)
}

/// Returns the size of the properties in the indexes, or an error if the size is above [`MAX_INDEX_BYTES`].
pub(super) fn check_index(of_revision: &Properties, of_render: &Properties) -> Result<usize> {
    let size = index_size(of_revision) + index_size(of_render);
    if size <= MAX_INDEX_BYTES {
        return Ok(size);
    }
    Err(Error::Invalid(format!(
        "the names and headers of a render's properties, including copied properties, take {size} bytes in \
         the index, and the limit is {MAX_INDEX_BYTES}: send fewer properties, or shorter headers"
    )))
}

/// Whether two renders have the same names, headers and bytes.
pub(super) fn same_content(one: &Properties, other: &Properties) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|((name, info), (other_name, other))| {
            name == other_name
                && info.headers == other.headers
                && info.sha1 == other.sha1
                && info.size == other.size
        })
}

/// Returns the properties of a request that the revision does not have yet. The request may repeat an
/// existing property of the revision only with the same bytes. Different bytes are a conflict.
pub(super) fn added_to_revision(existing: &Properties, requested: Properties) -> Result<Properties> {
    let mut added = Properties::new();
    for (name, info) in requested {
        match existing.get(&name) {
            None => {
                added.insert(name, info);
            }
            Some(same) if same.sha1 == info.sha1 && same.size == info.size => {}
            Some(_) => {
                return Err(Conflict::Property { property: name }.into());
            }
        }
    }
    Ok(added)
}

#[cfg(test)]
mod tests;
