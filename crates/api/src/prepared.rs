//! Answers to reads of the latest, with their headers standing ready.

use std::sync::{Arc, Weak};

use moka::sync::Cache;
use rashomon_buckets::{Page, Property, PropertyName};

use crate::representation::{Address, Representation};

/// Headers that stand ready for the properties that the buckets keep in memory.
#[derive(Debug)]
pub(crate) struct PreparedAnswers {
    /// By the property's address in memory. An entry holds on to the address, so that no other property gets
    /// it while the entry stands.
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
    /// Keeps at most so many.
    pub(crate) fn new(capacity: u64) -> Self {
        Self { entries: Cache::new(capacity) }
    }

    /// The representation of a latest property, and whether it stood ready.
    pub(crate) fn of(&self, page: &Page, name: &PropertyName, property: &Arc<Property>) -> (Prepared, bool) {
        let key = Arc::as_ptr(property) as usize;
        if let Some(entry) = self.entries.get(&key) {
            debug_assert!(
                std::ptr::eq(entry.property.as_ptr(), Arc::as_ptr(property)),
                "it holds the address"
            );
            return (Prepared(entry), true);
        }
        let representation = Representation::new(&page.title, name, property, Address::Latest);
        let entry = Arc::new(Entry { property: Arc::downgrade(property), representation });
        // A property that nobody else holds will not come again.
        if Arc::strong_count(property) > 1 {
            self.entries.insert(key, Arc::clone(&entry));
        }
        (Prepared(entry), false)
    }
}
