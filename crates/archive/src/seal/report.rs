//! The result of a seal.

/// The result of a seal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SealReport {
    /// Pages that were examined.
    pub pages: u64,
    /// New blocks.
    pub blocks: u64,
    /// Revisions in the new blocks.
    pub revisions: u64,
    /// Renders of these revisions.
    pub renders: u64,
    /// Uncompressed bytes of the bodies. Bodies in chunks do not count.
    pub raw_bytes: u64,
    /// Bytes of the blocks.
    pub stored_bytes: u64,
    /// Revisions that stay until a later seal: they were written a short time ago, are being changed, or lack
    /// bodies. A page that another process is writing counts once.
    pub left: u64,
    /// Revisions that stay, since they are too large or damaged.
    pub kept: u64,
    /// Revisions among `kept` that are too large.
    pub too_large: u64,
}

impl SealReport {
    /// Returns the number of revisions that stay since they are damaged.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.kept - self.too_large
    }
}

impl std::ops::Add for SealReport {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            blocks: self.blocks + other.blocks,
            revisions: self.revisions + other.revisions,
            renders: self.renders + other.renders,
            raw_bytes: self.raw_bytes + other.raw_bytes,
            stored_bytes: self.stored_bytes + other.stored_bytes,
            left: self.left + other.left,
            kept: self.kept + other.kept,
            too_large: self.too_large + other.too_large,
        }
    }
}
