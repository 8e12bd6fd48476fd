//! Counts items, and keeps the first of them.

/// A number of items, and the first of them. The default limit keeps enough items to show a problem, and few enough for
/// a person to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedItems<T, const MAX: usize = 20> {
    /// The number of items.
    pub count: u64,
    /// The first items, at most [`Self::MAX`].
    pub first: Vec<T>,
}

impl<T, const MAX: usize> CountedItems<T, MAX> {
    /// The maximum number of items that are kept.
    pub const MAX: usize = MAX;

    /// Adds an item.
    pub fn add(&mut self, item: T) {
        self.add_many(1, item);
    }

    /// Adds an item that represents `count` items.
    pub fn add_many(&mut self, count: u64, item: T) {
        self.count += count;
        if self.first.len() < Self::MAX {
            self.first.push(item);
        }
    }

    /// Adds the items of another count.
    pub fn append(&mut self, other: Self) {
        self.count += other.count;
        let room = Self::MAX.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
    }

    /// Whether there are no items.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0 && self.first.is_empty()
    }
}

impl<T, const MAX: usize> Default for CountedItems<T, MAX> {
    fn default() -> Self {
        Self { count: 0, first: Vec::new() }
    }
}
