//! The versions of a row, as a thread sees them that has the row's leaf latched exclusively. It looks only at undo
//! pages that are in memory, and waits for none. One writer in eight reads some of the missing ones before it latches.
//!
//! A row that is updated often gets a chain of versions, and beside an old snapshot no undo page goes by itself. Most
//! of the versions in the middle are of no use: they came and went between two snapshots. Two rules keep chains short.
//!
//! CHAIN-1  The writer that overwrites a committed version looks at the versions before it. It leaves out those that no
//!          reader looks for: no live snapshot, and none to be taken, is at or after a version's CommitTs and before
//!          that of the next version. For each remaining version down to the last one left out, it appends a record to
//!          its own undo page, of the kind [`Whole`](Kind::Whole) and with that version's transaction, that leads to
//!          the next remaining one. The overwritten version is kept with a stamp that names the first of these records.
//! CHAIN-2  Records are never changed. A change that no version leads to any more is cut out of its page, which is free
//!          once all its changes are ([`PurgeQueue::cut_out`](super::purge_queue::PurgeQueue::cut_out)). A reader with
//!          a copy of a row may miss such a record: then the row has another stamp by now, and is read again.
//!
//! A version that is left out stays unneeded, so no reader need be waited for: each later snapshot is after the
//! overwritten version (SNAP-1). To look at a long chain costs time under the latch. So most writers look at a few
//! versions, and few writers at many: each version is left out soon after its last snapshot has gone, for a bounded
//! cost a write.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::before::{load_record, record_at, undone};
use super::record::{Kind, RECORD_HEAD_MAX, Undo, record_head};
use super::transactions::Transactions;
use crate::base::ids::{Lsn, PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::page::patch::{HEAD_AT, Patch, PatchBuf, find_patch};
use crate::base::row::{HEAD_LEN, Row, Stamp, UNDO_REF_AT, UndoRef};
use crate::core::Core;

/// Versions of a row that most writers look at, at most, the newest included.
const LOOKED_AT: u32 = 4;

/// The same for few writers of one row.
const LOOKED_AT_MOST: u32 = 256;

/// How thoroughly a writer looks: half of the writers 0, a quarter 1, and so on. By a hash of its number: no pattern of
/// transactions spares a row the thorough ones.
fn thoroughness(txn: TxnId) -> u32 {
    txn.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).leading_zeros()
}

/// Versions of a row that a writer of `rows` rows looks at, at most. All of its rows share what one row would have.
pub(crate) fn looks_at(txn: TxnId, rows: usize) -> u32 {
    let of_one = (LOOKED_AT << thoroughness(txn).min(16)).min(LOOKED_AT_MOST);
    (of_one / u32::try_from(rows).unwrap_or(u32::MAX).max(1)).max(LOOKED_AT)
}

/// Number of undo pages that a writer may read before it latches: none for seven in eight; 2, 4 and so on for others.
/// So a writer reads about one in the mean where all are missing.
pub(crate) fn reads_ahead(txn: TxnId) -> u32 {
    thoroughness(txn).checked_sub(3).map_or(0, |more| 2 << more.min(6))
}

/// Bytes of the records of a shortcut with several steps, at most.
const LINKS_LEN_MAX: usize = 4096;

/// Versions that purge looks at, at most.
pub(crate) const PURGE_LOOKS_AT: u32 = 256;

/// A place in an undo page: the page, and its LSN when the record was seen there.
pub(crate) type Seen = (PageId, Lsn);

/// A version of a row.
struct Version<'v> {
    bytes: Cow<'v, [u8]>,
    /// `None`: it has not changed for long.
    stamp: Option<Stamp>,
    /// The earliest and the latest moment at which it may have been committed.
    committed: (Lsn, Lsn),
}

/// The versions of a row that a snapshot may look for, newest first.
pub(crate) struct Versions<'v> {
    versions: SmallVec<[Version<'v>; 3]>,
    /// The records that lead from each version to the next, or to the end.
    records: SmallVec<[Seen; 3]>,
    end: End,
}

/// What comes behind the last version.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// No row.
    NoRow,
    /// Nothing that any snapshot looks for: each sees the last version, or a newer one.
    SeenByAll,
    /// Versions that were not looked at, with a record in this page.
    Unknown(PageId),
}

/// Why there are no versions to look at.
pub(crate) enum NoVersions {
    /// The newest version is of a transaction in flight.
    InFlight,
    /// Each snapshot sees the newest version.
    SeenByAll,
}

impl<'v> Versions<'v> {
    /// The versions of the row of `key` from `value` on, `most` of them at most. No snapshot is older than `oldest`.
    pub(crate) fn of(
        core: &Core,
        txns: &Transactions,
        (space, key): (SpaceId, &[u8]),
        value: &'v [u8],
        oldest: Lsn,
        most: u32,
    ) -> Result<Versions<'v>, NoVersions> {
        let seen_by_all = |latest: Lsn| latest <= oldest;
        let stamp = Row::decode(value).and_then(|row| row.stamp).ok_or(NoVersions::SeenByAll)?;
        let committed = txns.commits.committed(stamp.txn).ok_or(NoVersions::InFlight)?;
        if seen_by_all(committed.1) {
            return Err(NoVersions::SeenByAll);
        }
        let newest = Version { bytes: Cow::Borrowed(value), stamp: Some(stamp), committed };
        let mut chain = Versions { versions: SmallVec::new(), records: SmallVec::new(), end: End::NoRow };
        let mut version = newest;
        loop {
            let stamp = version.stamp;
            let is_last = seen_by_all(version.committed.1);
            chain.versions.push(version);
            let last = &chain.versions[chain.versions.len() - 1];
            let Some(stamp) = stamp.filter(|_| !is_last) else {
                chain.end = End::SeenByAll;
                break;
            };
            let Some(at) = stamp.undo else {
                chain.end = End::NoRow;
                break;
            };
            let page_id = PageId::new(SpaceId::UNDO, at.page);
            chain.end = End::Unknown(page_id);
            if chain.versions.len() >= most as usize {
                break;
            }
            let Some(page) = core.pool.fetch(page_id).and_then(|pin| pin.try_read().ok()) else { break };
            let record = record_at(page.view(), at.record);
            let Some(older) = record.and_then(|record| undone(record, space, key, &last.bytes, stamp)) else { break };
            chain.records.push((page_id, page.lsn()));
            let Some(older) = older else {
                chain.end = End::NoRow;
                break;
            };
            let stamp = Row::decode(&older).and_then(|row| row.stamp);
            let committed = match stamp {
                None => (Lsn::ZERO, Lsn::ZERO),
                // A committed version is never above one that is not.
                Some(stamp) => txns.commits.committed(stamp.txn).ok_or(NoVersions::InFlight)?,
            };
            version = Version { bytes: Cow::Owned(older), stamp, committed };
        }
        Ok(chain)
    }

    /// The latest snapshot that looks for version `index`, which is not the newest.
    fn seen_at(&self, txns: &Transactions, index: usize) -> Option<Lsn> {
        txns.snapshots.latest_within((self.versions[index].committed.0, self.versions[index - 1].committed.1))
    }

    /// For a newest version that is deleted: the latest snapshot that sees a row. `Err`: a page with versions that are
    /// to be looked at is not in memory.
    pub(crate) fn pinned_by(&self, txns: &Transactions) -> Result<Option<Lsn>, PageId> {
        let is_deleted = |version: &Version<'_>| Row::decode(&version.bytes).is_some_and(|row| row.is_deleted);
        if planted!("versions_before_a_deletion_all_go") {
            return Ok(None);
        }
        let older = (1..self.versions.len()).filter(|index| !is_deleted(&self.versions[*index]));
        let seen = older.filter_map(|index| self.seen_at(txns, index)).max();
        match self.end {
            End::Unknown(page) if seen.is_none() => Err(page),
            _ => Ok(seen),
        }
    }

    /// The records of all versions.
    pub(crate) fn records(&self) -> &[Seen] {
        &self.records
    }

    /// The way from the newest version to the remaining ones (CHAIN-1); `None`: as it is.
    fn shortcut(&self, txns: &Transactions, space: SpaceId, key: &[u8]) -> Option<Shortcut> {
        let behind = self.versions.len();
        // The versions that remain. What is behind the last one stays as it is; with nothing behind it, the last step
        // leads to no row.
        let mut remaining: SmallVec<[usize; 4]> = SmallVec::from_slice(&[0]);
        remaining.extend((1..behind).filter(|index| {
            let is_last = *index == behind - 1 && self.end != End::NoRow;
            is_last || self.seen_at(txns, *index).is_some() && !planted!("needed_versions_left_out")
        }));
        remaining.extend((self.end == End::NoRow).then_some(behind));
        // As many steps as are paid for by the versions that they leave out, and as have room in a page or so.
        let mut left_out = 0;
        let is_paid = |step: &usize| {
            let here = remaining[step + 1] - remaining[*step] - 1;
            left_out += here;
            here > 0 && left_out > *step
        };
        let paid: SmallVec<[usize; 4]> = (0..remaining.len() - 1).filter(is_paid).map(|step| step + 1).collect();
        let mut links: SmallVec<[Link; 1]> = SmallVec::new();
        let mut len = 0;
        for pair in remaining[..=*paid.last()?].windows(2) {
            let Some(to) = self.versions.get(pair[1]) else { break };
            let link = Link::between(&self.versions[pair[0]], to, space, key)?;
            len += link.record_len();
            if len > LINKS_LEN_MAX && !links.is_empty() {
                break;
            }
            links.push(link);
        }
        // The last step to no row needs no link.
        let is_there = |steps: &usize| *steps <= links.len() || remaining[*steps] == behind;
        let is_taken = |steps: &usize| *steps == 1 || !planted!("first_step_only");
        let steps = paid.into_iter().rfind(|steps| is_there(steps) && *steps <= links.len() + 1 && is_taken(steps))?;
        links.truncate(steps);
        links.iter_mut().take(steps - 1).for_each(|link| link.is_named = true);
        let cut_out = self.records[..self.records.len().min(remaining[steps])].iter().copied().collect();
        Some(Shortcut { links, cut_out })
    }
}

/// What a writer changes in the chain of the version that it overwrites.
pub(crate) struct Shortcut {
    /// The steps that lead from the overwritten version on, one from each remaining version to the next. Without a step
    /// there is no row before the overwritten version.
    pub(crate) links: SmallVec<[Link; 1]>,
    /// Changes that no reader follows any more.
    pub(crate) cut_out: SmallVec<[Seen; 2]>,
}

impl Shortcut {
    /// The shortcut for a writer that overwrites `value` and looks at `most` versions; `None`: the chain stays as it
    /// is. One load without a snapshot; a look into the commit table if each snapshot sees `value`; else some 100 ns a
    /// version.
    pub(crate) fn find(
        core: &Core,
        txns: &Transactions,
        row: (SpaceId, &[u8]),
        value: &[u8],
        most: u32,
    ) -> Option<Shortcut> {
        // If it is of a snapshot that has gone, more versions are looked at than need be. The last version looked at
        // stays as it is, whatever is behind it.
        let oldest = txns.snapshots.oldest_hint()?;
        let versions = Versions::of(core, txns, row, value, oldest, most).ok()?;
        versions.shortcut(txns, row.0, row.1)
    }
}

/// Reads undo pages with versions of the row of `key`, from `value` on, that are not in memory: at most `reads`, which
/// is lowered by their number. May wait as [`load_record`]. Callers hold nothing but gates.
pub(crate) fn read_ahead(
    core: &Core,
    txns: &Transactions,
    (space, key): (SpaceId, &[u8]),
    value: Vec<u8>,
    reads: &mut u32,
) {
    let Some(oldest) = txns.snapshots.oldest_hint() else { return };
    let mut version = value;
    for _ in 0..LOOKED_AT_MOST {
        let Some(stamp) = Row::decode(&version).and_then(|row| row.stamp) else { break };
        let is_old = txns.commits.committed(stamp.txn).is_none_or(|(_, latest)| latest <= oldest);
        let Some(at) = stamp.undo.filter(|_| !is_old) else { break };
        if core.pool.fetch(PageId::new(SpaceId::UNDO, at.page)).is_none() {
            if *reads == 0 {
                break;
            }
            *reads -= 1;
        }
        // The page may have been given back. Whatever else is wrong with it, the writer does not need it.
        let Ok(Some(record)) = load_record(core, at) else { break };
        match undone(&record, space, key, &version, stamp) {
            Some(Some(older)) => version = older,
            Some(None) | None => break,
        }
    }
}

/// A step to an older version, to be appended as a record of its own.
pub(crate) struct Link {
    /// The transaction of the version from which it leads.
    txn: TxnId,
    /// The encoded change.
    change: Vec<u8>,
    /// Where the change has the record that leads on from the older version.
    names_at: usize,
    /// The record that leads on is that of the next step.
    is_named: bool,
}

impl Link {
    fn between(from: &Version<'_>, to: &Version<'_>, space: SpaceId, key: &[u8]) -> Option<Link> {
        let (from_row, to_row) = (Row::decode(&from.bytes)?, Row::decode(&to.bytes)?);
        let mut patch = PatchBuf::new();
        let heads = (from_row.head_len(), &to.bytes[..to_row.head_len()]);
        let is_patch = find_patch(heads, from_row.payload, to_row.payload, &mut patch);
        let (op, from_end) = match is_patch {
            true => (PageOp::Patch { key, patch: Patch(&patch) }, patch.len() - HEAD_AT),
            false => (PageOp::Replace { key, value: &to.bytes }, to.bytes.len()),
        };
        let mut change = Vec::new();
        Undo { needs_purge: false, space, op }.encode(&mut change);
        let names_at = change.len() - from_end + UNDO_REF_AT;
        Some(Link { txn: from.stamp?.txn, change, names_at, is_named: false })
    }

    /// Bytes of the record.
    pub(crate) fn record_len(&self) -> usize {
        RECORD_HEAD_MAX + self.change.len()
    }

    /// The record, where the next step has the record `next`; `None`: it leads to no row.
    pub(crate) fn record(&mut self, next: Option<UndoRef>) -> Vec<u8> {
        if self.is_named {
            self.change[self.names_at..][..UndoRef::LEN].copy_from_slice(&UndoRef::to_bytes(next));
        }
        [&record_head(Kind::Whole, self.txn)[..], &self.change].concat()
    }
}

/// The head of a version that is overwritten, with another record that leads back from it.
pub(crate) fn head_with(value: &[u8], undo: Option<UndoRef>) -> Option<[u8; HEAD_LEN]> {
    let mut head = *value.first_chunk::<HEAD_LEN>()?;
    head[UNDO_REF_AT..].copy_from_slice(&UndoRef::to_bytes(undo));
    Some(head)
}
