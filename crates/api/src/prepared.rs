//! Answers to reads of the latest, with prepared headers.

use std::sync::{Arc, Weak};

use moka::sync::Cache;
use rashomon_buckets::{Page, Property, PropertyName};

use crate::representation::{Address, Representation};

/// Prepared headers for the properties that the buckets have cached.
#[derive(Debug)]
pub(crate) struct PreparedAnswers {
    /// Entries by the address of the property in memory. The weak reference in an entry keeps that memory
    /// allocated, so no other property gets the address while the entry exists.
    entries: Cache<usize, Arc<Entry>>,
}

#[derive(Debug)]
struct Entry {
    property: Weak<Property>,
    representation: Representation,
}

/// The representation of a property.
#[derive(Debug, Clone)]
pub(crate) struct Prepared(Arc<Entry>);

impl std::ops::Deref for Prepared {
    type Target = Representation;

    fn deref(&self) -> &Representation {
        &self.0.representation
    }
}

impl PreparedAnswers {
    /// Makes a cache with this maximum number of entries.
    pub(crate) fn new(capacity: u64) -> Self {
        Self { entries: Cache::new(capacity) }
    }

    /// Returns the representation of a property of the latest, and whether it was prepared.
    pub(crate) fn of(&self, page: &Page, name: &PropertyName, property: &Arc<Property>) -> (Prepared, bool) {
        let key = Arc::as_ptr(property) as usize;
        if let Some(entry) = self.entries.get(&key) {
            debug_assert!(
                std::ptr::eq(entry.property.as_ptr(), Arc::as_ptr(property)),
                "an entry keeps the memory of its property allocated"
            );
            return (Prepared(entry), true);
        }
        let representation = Representation::new(&page.title, name, property, Address::Latest);
        let entry = Arc::new(Entry { property: Arc::downgrade(property), representation });
        // A property without other owners is in no cache, so no later request will have the same object.
        if Arc::strong_count(property) > 1 {
            self.entries.insert(key, Arc::clone(&entry));
        }
        (Prepared(entry), false)
    }
}
