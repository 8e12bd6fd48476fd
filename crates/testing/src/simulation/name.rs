//! The properties that a world has.

use std::{fmt, sync::LazyLock};

use rashomon_pages::PropertyName;

/// A property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// A property of a render.
    Html,
    /// A property of a render.
    Parsoid,
    /// A property of a render.
    Meta,
    /// A property of the revision.
    Wikitext,
    /// A property of the revision.
    Slot,
}

static NAMES: LazyLock<[PropertyName; 5]> = LazyLock::new(|| {
    ["html", "data-parsoid", "meta", "wikitext", "slot-notes"].map(|name| name.parse().expect("well-formed"))
});

impl Name {
    /// All properties.
    pub const ALL: [Self; 5] = [Self::Html, Self::Parsoid, Self::Meta, Self::Wikitext, Self::Slot];

    /// The name of the property, in the type that the bucket layer uses.
    #[must_use]
    pub fn get(self) -> &'static PropertyName {
        &NAMES[self as usize]
    }

    /// The property of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.get().as_str() == name)
    }

    /// Whether the property belongs to the revision, and not to a render.
    #[must_use]
    pub const fn is_of_revision(self) -> bool {
        matches!(self, Self::Wikitext | Self::Slot)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// A set of properties: one bit for each, the lowest for the first of [`Name::ALL`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Names(pub u8);

impl Names {
    /// Splits the set into the properties of the revision and the properties of a render.
    #[must_use]
    pub const fn by_versions(self) -> (Self, Self) {
        let of_revision = 1 << Name::Wikitext as u8 | 1 << Name::Slot as u8;
        (Self(self.0 & of_revision), Self(self.0 & !of_revision))
    }

    /// The properties in the set.
    pub fn iter(self) -> impl Iterator<Item = Name> {
        Name::ALL.into_iter().filter(move |name| self.0 >> *name as u8 & 1 == 1)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
