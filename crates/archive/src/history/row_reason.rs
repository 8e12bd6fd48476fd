//! Why an import into blocks stores revisions as rows.

/// Why a revision is imported as rows, and not into a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RowReason {
    /// The revision was stored before, and got new renders. On a cluster: the page had revisions before, in the store or
    /// in an earlier part of the input.
    StoredPage,
    /// The input has a revision of the page twice.
    Repeated,
    /// A revision of the page has more bodies, renders or metadata than a block takes of one revision.
    TooLarge,
    /// The revision is the latest of its page, and idle pages are not sealed.
    Latest,
    /// The page has more revisions than an import remembers.
    TooMany,
    /// All revisions were imported as rows, and this one could not be sealed afterwards.
    NotSealed,
}
