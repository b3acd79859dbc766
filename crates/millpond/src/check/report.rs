//! The findings of a check.

/// The findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Undamaged superblocks, of two.
    pub superblocks: u32,
    /// Pages read and verified.
    pub pages: u64,
    /// Trees walked, the catalog and those of tables among them.
    pub trees: u64,
    /// Entries in the leaves of these trees.
    pub entries: u64,
    /// Entries of indexes that agree with their rows.
    pub index_entries: u64,
    /// Rows that were deleted, and that purge has not removed yet.
    pub deleted_rows: u64,
    /// Undo pages.
    pub undo_pages: u64,
    /// Redo groups after the last checkpoint, replayed in memory.
    pub log_groups: u64,
    /// Bytes of these groups.
    pub log_bytes: u64,
    /// Spaces that no name leads to: a crash interrupted the creation of a tree, a table or an index, or a bulk load.
    /// The next open drops them.
    pub orphan_spaces: u64,
    /// Slots that hold no page's newest image.
    pub free_slots: u64,
    /// Free slots that were never written.
    pub never_written: u64,
    /// Free slots that hold older images.
    pub older_images: u64,
    /// All problems found; empty: the database is sound.
    pub problems: Vec<String>,
}
