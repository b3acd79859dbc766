//! Undo pages that purge has to go through, and pages that are no longer needed.

use std::collections::{BTreeSet, HashMap, VecDeque};

use foldhash::fast::FixedState;

use crate::base::ids::{Lsn, PageId, TxnId};

/// The work that a pass through an undo page left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Nothing,
    /// Some records were not looked at.
    Unread,
    /// The record of this transaction cannot be purged before the oldest transaction in the way is a later one or, for
    /// [`TxnId::END`], before the keeper's next tick.
    HeldBack(TxnId),
    /// The same, and it is a snapshot that does not see this transaction.
    Kept(TxnId),
}

/// The state of an undo page.
#[derive(Clone, Copy, Debug, Default)]
struct UndoPage {
    /// Number of records that passes have gone through.
    purged: usize,
    is_queued: bool,
    /// A thread is going through the page.
    is_under_way: bool,
    /// No slot has the page: snapshots from this moment on see all transactions with records there.
    left_at: Option<Lsn>,
}

#[derive(Default)]
pub(super) struct PurgeQueue {
    /// Pages that were queued and are still needed.
    pages: HashMap<PageId, UndoPage, FixedState>,
    queue: VecDeque<PageId>,
    /// Pages that a transaction keeps from purge, by that transaction. The keeper's tick queues them again once it is
    /// not in the way any more. [`TxnId::END`]: the next tick does.
    later: BTreeSet<(TxnId, PageId)>,
    /// Pages that a snapshot keeps from purge, by the transaction that the snapshot does not see. The same tick queues
    /// them again once it does.
    pinned: BTreeSet<(TxnId, PageId)>,
    /// Pages that purge has gone through and that no slot has, by the moment from which on snapshots see all
    /// transactions with records there: readers of earlier snapshots may need them.
    retained: BTreeSet<(Lsn, PageId)>,
    /// Pages that are no longer needed.
    pub(super) unneeded: VecDeque<PageId>,
}

impl PurgeQueue {
    /// Number of pages that wait, without those that snapshots keep from purge.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.later.len()
    }

    /// Number of pages that snapshots keep, from purge or for their readers.
    pub(super) fn kept(&self) -> usize {
        self.pinned.len() + self.retained.len()
    }

    /// Number of pages that wait, without those that a transaction or a snapshot keeps from purge.
    pub(super) fn ready(&self) -> usize {
        self.queue.len()
    }

    /// Queues a page with delete marks for a pass.
    pub(super) fn enqueue(&mut self, id: PageId) {
        let page = self.pages.entry(id).or_default();
        // The thread that is going through the page queues it afterwards: no other thread may begin meanwhile.
        if !std::mem::replace(&mut page.is_queued, true) && !page.is_under_way {
            self.queue.push_back(id);
        }
    }

    /// Takes the next page to go through. If there is none, takes one that was kept from purge by a transaction before
    /// `oldest`.
    pub(super) fn take_any(&mut self, oldest: impl FnOnce() -> TxnId) -> Option<(PageId, usize)> {
        if self.queue.is_empty()
            && let Some(&(in_the_way, id)) = self.later.first()
            && in_the_way < oldest()
        {
            self.later.pop_first();
            self.queue.push_back(id);
        }
        self.take()
    }

    /// Takes the next page to go through, and the number of the record to start from.
    pub(super) fn take(&mut self) -> Option<(PageId, usize)> {
        let id = self.queue.pop_front()?;
        let page = self.pages.entry(id).or_default();
        (page.is_queued, page.is_under_way) = (false, true);
        Some((id, page.purged))
    }

    /// Puts back a page that the caller took and went through up to record `purged`.
    pub(super) fn put_back(&mut self, id: PageId, purged: usize, rest: Rest) {
        let Some(page) = self.pages.get_mut(&id) else { return };
        let (was_queued, left_at) = (page.is_queued, page.left_at);
        (page.purged, page.is_under_way) = (purged, false);
        page.is_queued |= rest != Rest::Nothing;
        match rest {
            Rest::Unread => self.queue.push_front(id),
            _ if was_queued => self.queue.push_back(id),
            Rest::HeldBack(txn) => _ = self.later.insert((txn, id)),
            Rest::Kept(txn) => _ = self.pinned.insert((txn, id)),
            Rest::Nothing => left_at.into_iter().for_each(|at| self.leave(id, at)),
        }
    }

    /// Queues the pages that transactions before `oldest` kept from purge, and those that were to wait for this tick.
    /// `is_kept` says whether it is a snapshot that does not see a transaction: such a page is not read again before
    /// each snapshot does.
    pub(super) fn look_again(&mut self, oldest: impl FnOnce() -> TxnId, is_kept: impl Fn(TxnId) -> bool) {
        if self.later.is_empty() && self.pinned.is_empty() {
            return;
        }
        let from = (oldest(), PageId(0));
        let (mut still, pinned) = (self.later.split_off(&from), self.pinned.split_off(&from));
        let at_tick = still.split_off(&(TxnId::END, PageId(0)));
        let due = [std::mem::replace(&mut self.pinned, pinned), std::mem::take(&mut self.later), at_tick];
        self.queue.extend(due.into_iter().flatten().map(|(_, id)| id));
        for page in still {
            let by = if is_kept(page.0) { &mut self.pinned } else { &mut self.later };
            by.insert(page);
        }
    }

    /// Pages whose transactions are all visible at the `horizon` are no longer needed: no snapshot has to look behind
    /// their changes.
    pub(super) fn reap(&mut self, horizon: impl FnOnce() -> Lsn) {
        if self.retained.is_empty() {
            return;
        }
        let horizon = if planted!("undo_pages_not_retained") { Lsn(u64::MAX - 1) } else { horizon() };
        let later = self.retained.split_off(&(horizon.plus(1), PageId(0)));
        let reaped = std::mem::replace(&mut self.retained, later);
        self.unneeded.extend(reaped.into_iter().map(|(_, id)| id));
    }

    /// Notes that no slot has the page any more (TXN-4). All transactions with records there have ended, and are
    /// visible from `at` on.
    pub(super) fn leave(&mut self, id: PageId, at: Lsn) {
        match self.pages.get_mut(&id) {
            Some(page) if (page.is_queued || page.is_under_way) && !planted!("undo_page_left_early") => {
                page.left_at = Some(at);
            }
            _ => {
                self.pages.remove(&id);
                self.retained.insert((at, id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::SpaceId;

    /// A page gets more records, and its slot leaves it, while a thread goes through it. No other thread gets the page
    /// until that pass has ended, and no slot until all of it was gone through.
    #[test]
    fn page_under_way_is_purged_by_one_thread_and_kept_to_its_end() {
        let (id, other) = (PageId::new(SpaceId::UNDO, 1), PageId::new(SpaceId::UNDO, 2));
        let mut queue = PurgeQueue::default();
        queue.enqueue(id);
        assert_eq!(queue.take(), Some((id, 0)));
        queue.enqueue(id);
        queue.enqueue(other);
        queue.leave(id, Lsn(900));
        assert_eq!((queue.len(), queue.take(), queue.take()), (1, Some((other, 0)), None));
        queue.put_back(other, 4, Rest::Unread);
        queue.put_back(id, 3, Rest::Nothing);
        assert_eq!((queue.len(), queue.unneeded.len()), (2, 0));
        assert_eq!((queue.take(), queue.take()), (Some((other, 4)), Some((id, 3))));
        queue.put_back(id, 3, Rest::HeldBack(TxnId(7)));
        assert_eq!((queue.take(), queue.len()), (None, 1));
        assert_eq!(queue.take_any(|| TxnId(7)), None, "nothing has changed");
        assert_eq!(queue.take_any(|| TxnId(8)), Some((id, 3)), "the transaction in its way has ended");
        queue.put_back(id, 3, Rest::HeldBack(TxnId::END));
        assert_eq!(queue.take_any(|| TxnId(9)), None, "only the keeper's tick frees it");
        queue.look_again(|| TxnId(9), |_| false);
        assert_eq!(queue.take(), Some((id, 3)));
        queue.put_back(id, 5, Rest::Nothing);
        queue.reap(|| Lsn(899));
        assert_eq!((queue.len(), queue.unneeded.front()), (0, None), "a snapshot may still need it");
        queue.reap(|| Lsn(900));
        assert_eq!(queue.unneeded.front(), Some(&id));
    }

    #[test]
    fn page_behind_a_snapshot_is_no_debt_and_waits_for_the_snapshot() {
        let ids = [1, 2].map(|number| PageId::new(SpaceId::UNDO, number));
        let mut queue = PurgeQueue::default();
        for id in ids {
            queue.enqueue(id);
            assert!(queue.take().is_some());
        }
        queue.put_back(ids[0], 0, Rest::HeldBack(TxnId(7)));
        queue.put_back(ids[1], 0, Rest::HeldBack(TxnId(8)));
        queue.look_again(|| TxnId(7), |txn| txn == TxnId(7));
        assert_eq!((queue.len(), queue.kept(), queue.ready()), (1, 1, 0), "one behind a writer, one behind a snapshot");
        queue.look_again(|| TxnId(7), |_| true);
        assert_eq!((queue.len(), queue.kept(), queue.ready()), (0, 2, 0));
        assert_eq!(queue.take_any(|| TxnId(8)), None);
        queue.look_again(|| TxnId(8), |_| true);
        assert_eq!((queue.take(), queue.kept()), (Some((ids[0], 0)), 1));
    }
}
