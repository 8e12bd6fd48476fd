//! What is known of properties beforehand: their type, their versions, their size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PropertyName;

/// How many versions of a property a revision has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Versions {
    /// One a render, as `html`.
    Render,
    /// One, whatever its renders, as `wikitext`.
    Revision,
}

/// What is known of a property.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The content type of a body that comes without one.
    pub content_type: String,
    /// Its versions.
    pub versions: Versions,
    /// The most bytes that a body may have.
    pub max_size: u64,
}

/// The definitions of all properties. A name that has none gets `application/octet-stream`, one version a
/// render; one that begins with `slot-` holds a slot of a MediaWiki revision, and is one a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definitions {
    defined: BTreeMap<PropertyName, Definition>,
    fallback: Definition,
    slot: Definition,
}

impl Definitions {
    /// The size limit of a property unless it is defined otherwise: 64 MiB.
    pub const DEFAULT_MAX_SIZE: u64 = 64 << 20;

    /// What is known of a property.
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

    /// All that are defined by name.
    pub fn iter(&self) -> impl Iterator<Item = (&PropertyName, &Definition)> {
        self.defined.iter()
    }
}

impl Default for Definitions {
    /// Those that the notes speak of: `html`, `wikitext`, `data-parsoid`, `meta`, `section-offsets`.
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
            defined: (known.into_iter())
                .map(|(name, definition)| (PropertyName::new(name).expect("a well-formed name"), definition))
                .collect(),
            fallback: define("application/octet-stream", Versions::Render),
            slot: define("application/octet-stream", Versions::Revision),
        }
    }
}
