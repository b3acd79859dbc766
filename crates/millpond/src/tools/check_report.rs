//! What a check found.

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Whole superblocks, of two.
    pub superblocks: u32,
    /// Pages read and verified.
    pub pages: u64,
    /// Trees walked, the catalog and those of tables among them.
    pub trees: u64,
    /// Entries in their leaves.
    pub entries: u64,
    /// Entries of indexes, each compared with what its row says.
    pub index_entries: u64,
    /// Rows that were deleted, and that purge has not removed yet.
    pub deleted_rows: u64,
    /// Undo pages.
    pub undo_pages: u64,
    /// Redo groups after the last checkpoint, replayed in memory.
    pub log_groups: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Spaces that no name leads to: a crash cut short the creation of a tree, a table or an index, or a bulk load. The
    /// next open drops them.
    pub orphan_spaces: u64,
    /// Slots that hold no page's newest image.
    pub free_slots: u64,
    /// Those of them that were never written.
    pub never_written: u64,
    /// Those that hold older images.
    pub older_images: u64,
    /// Everything that is not as it must be; empty: the database is sound.
    pub problems: Vec<String>,
}
