//! Definitions of properties: content type, versions, and maximum size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{PropertyName, StoredHeaders};

/// Whether a property has one version for each render, or one for each revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Versions {
    /// One version for each render, such as `html`.
    Render,
    /// One version for each revision, which all its renders share, such as `wikitext`.
    Revision,
}

/// The definition of a property.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The content type of a body whose request has none.
    pub content_type: String,
    /// The versions of the property.
    pub versions: Versions,
    /// The maximum size of a body, in bytes.
    pub max_size: u64,
}

/// The definitions of all properties.
///
/// A property that is not defined has the content type `application/octet-stream`, and one version for each render. If
/// its name begins with `slot-`, the property is a slot of a MediaWiki revision, and has one version for each revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definitions {
    /// Which headers are stored and returned.
    pub headers: StoredHeaders,
    defined: BTreeMap<PropertyName, Definition>,
    fallback: Definition,
    slot: Definition,
}

impl Definitions {
    /// The definitions with another rule for headers.
    #[must_use]
    pub fn with_headers(self, headers: StoredHeaders) -> Self {
        Self { headers, ..self }
    }

    /// The maximum size of a body, unless the definition of the property has another one: 64 MiB.
    pub const DEFAULT_MAX_SIZE: u64 = 64 << 20;

    /// Returns the definition of a property.
    #[must_use]
    pub fn get(&self, name: &PropertyName) -> &Definition {
        match self.defined.get(name) {
            Some(definition) => definition,
            None if name.as_str().starts_with("slot-") => &self.slot,
            None => &self.fallback,
        }
    }

    /// Defines a property.
    pub fn define(&mut self, name: PropertyName, definition: Definition) {
        self.defined.insert(name, definition);
    }

    /// The properties that are defined by name.
    pub fn iter(&self) -> impl Iterator<Item = (&PropertyName, &Definition)> {
        self.defined.iter()
    }
}

impl Default for Definitions {
    /// Defines the properties that the notes mention: `html`, `wikitext`, `data-parsoid`, `meta`, `section-offsets`.
    fn default() -> Self {
        let define = |content_type: &str, versions| Definition {
            content_type: content_type.to_owned(),
            versions,
            max_size: Self::DEFAULT_MAX_SIZE,
        };
        let known = [
            ("html", define("text/html; charset=utf-8", Versions::Render)),
            ("wikitext", define("text/x-wiki; charset=utf-8", Versions::Revision)),
            ("data-parsoid", define("application/json", Versions::Render)),
            ("meta", define("application/json", Versions::Render)),
            ("section-offsets", define("application/json", Versions::Render)),
        ];
        Self {
            headers: StoredHeaders::default(),
            defined: (known.into_iter())
                .map(|(name, definition)| (PropertyName::new(name).expect("a well-formed name"), definition))
                .collect(),
            fallback: define("application/octet-stream", Versions::Render),
            slot: define("application/octet-stream", Versions::Revision),
        }
    }
}
