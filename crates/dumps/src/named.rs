//! Counting, and naming the first.

/// How often something happened, and the first times that it did: so many that one sees what is wrong, and few enough to
/// be read, unless it is said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named<T, const MAX: usize = 20> {
    /// How often.
    pub count: u64,
    /// The first of them, at most [`Self::MAX`].
    pub first: Vec<T>,
}

impl<T, const MAX: usize> Named<T, MAX> {
    /// The most that are named.
    pub const MAX: usize = MAX;

    /// It happened.
    pub fn add(&mut self, item: T) {
        self.add_many(1, item);
    }

    /// It happened to many things at once.
    pub fn add_many(&mut self, count: u64, item: T) {
        self.count += count;
        if self.first.len() < Self::MAX {
            self.first.push(item);
        }
    }

    /// It also happened to others.
    pub fn append(&mut self, other: Self) {
        self.count += other.count;
        let room = Self::MAX.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
    }

    /// Whether it never happened.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0 && self.first.is_empty()
    }
}

impl<T, const MAX: usize> Default for Named<T, MAX> {
    fn default() -> Self {
        Self { count: 0, first: Vec::new() }
    }
}
