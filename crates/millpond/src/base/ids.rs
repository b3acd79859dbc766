//! Newtypes for every id and position: no bare integer crosses a module border.

use std::fmt;

/// A position in the redo log: the number of payload bytes ever written before it. Never reset, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lsn(pub(crate) u64);

impl Lsn {
    /// The LSN of a page that no mini-transaction has changed yet.
    pub(crate) const ZERO: Lsn = Lsn(0);

    /// Bytes from `earlier` to here; 0 if `earlier` is later.
    pub(crate) fn since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The position after `bytes` more bytes.
    pub(crate) fn plus(self, bytes: u64) -> Lsn {
        Lsn(self.0 + bytes)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The place of a commit in the order of all commits. A snapshot sees every commit with its own CommitTs or an earlier
/// one, and no later one. It is the LSN of the log behind the commit's group: ascending, with gaps.
///
/// A CommitTs that was durable never comes again. One of a commit that a crash lost, since it was not durable yet, may
/// be given to another commit afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitTs(u64);

impl From<Lsn> for CommitTs {
    fn from(lsn: Lsn) -> Self {
        CommitTs(lsn.0)
    }
}

impl From<u64> for CommitTs {
    /// The CommitTs of this number, as a caller stored it.
    fn from(number: u64) -> Self {
        CommitTs(number)
    }
}

impl From<CommitTs> for u64 {
    fn from(commit: CommitTs) -> Self {
        commit.0
    }
}

impl fmt::Display for CommitTs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A space: one tree. Space 0 is the catalog, space 1 has the undo pages. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SpaceId(pub(crate) u32);

impl SpaceId {
    /// The space of the catalog tree.
    pub(crate) const CATALOG: SpaceId = SpaceId(0);

    /// The space of the undo pages.
    pub(crate) const UNDO: SpaceId = SpaceId(1);

    /// The first space that a tree may have.
    pub(crate) const FIRST: SpaceId = SpaceId(2);
}

impl fmt::Display for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A page: its space in the upper 32 bits, its number in the space in the lower 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageId(pub(crate) u64);

impl PageId {
    /// The page `number` of `space`.
    pub(crate) fn new(space: SpaceId, number: u32) -> PageId {
        PageId(u64::from(space.0) << 32 | u64::from(number))
    }

    /// The root of the tree in `space`: number 0, for the tree's whole life.
    pub(crate) fn root(space: SpaceId) -> PageId {
        PageId::new(space, 0)
    }

    /// The space that the page belongs to.
    pub(crate) fn space(self) -> SpaceId {
        SpaceId(u32::try_from(self.0 >> 32).expect("IDS-1: 32 bits remain after the shift"))
    }

    /// The page's number in its space.
    pub(crate) fn number(self) -> u32 {
        u32::try_from(self.0 & 0xffff_ffff).expect("IDS-1: 32 bits remain after the mask")
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.space().0, self.number())
    }
}

/// A transaction's id: 48 bits, ascending in the order of first writes, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TxnId(pub(crate) u64);

impl TxnId {
    /// Bytes of an id in rows and in the log.
    pub(crate) const LEN: usize = 6;

    /// The exclusive upper bound of ids.
    pub(crate) const END: TxnId = TxnId(1 << 48);

    /// The id as rows and the log store it.
    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let [a, b, c, d, e, f, ..] = self.0.to_le_bytes();
        [a, b, c, d, e, f]
    }

    /// The id from its stored bytes.
    pub(crate) fn from_bytes([a, b, c, d, e, f]: [u8; Self::LEN]) -> TxnId {
        TxnId(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A place for one page image in the data file, counted in pages from the first slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(pub(crate) u64);

/// A place for one page in the buffer pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FrameId(pub(crate) u32);

impl FrameId {
    /// The frame's index into the pool's arrays.
    pub(crate) fn index(self) -> usize {
        usize::try_from(self.0).expect("IDS-2: a usize has at least 32 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_id_keeps_space_and_number_apart() {
        let id = PageId::new(SpaceId(7), u32::MAX);
        assert_eq!(id.space(), SpaceId(7));
        assert_eq!(id.number(), u32::MAX);
        assert_eq!(id.to_string(), "7:4294967295");
        assert!(PageId::new(SpaceId(7), u32::MAX) < PageId::root(SpaceId(8)));
    }
}
