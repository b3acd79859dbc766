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
    /// The record of this transaction cannot be purged before the transaction has ended or, for [`TxnId::END`], before
    /// the keeper's next tick.
    HeldBack(TxnId),
}

/// The state of an undo page, from the moment at which a slot gets it until it is no longer needed.
#[derive(Clone, Copy, Debug, Default)]
struct UndoPage {
    /// Number of records that passes have gone through.
    purged: usize,
    is_queued: bool,
    /// A thread is going through the page.
    is_under_way: bool,
    /// The next pass begins at the first record, whatever the pass under way has gone through.
    from_the_first: bool,
    /// The latest snapshot that kept a row from purge.
    pinned_by: Option<Lsn>,
    /// No slot has the page: snapshots from this moment on see all transactions with records there.
    left_at: Option<Lsn>,
    /// The end of the group that made the page empty for its slot.
    since: Lsn,
    /// Number of changes in its records that readers may follow, once the page is left. Before that, minus the number
    /// of those that no reader follows any more.
    live: i64,
}

#[derive(Default)]
pub(super) struct PurgeQueue {
    /// All pages that are still needed.
    pages: HashMap<PageId, UndoPage, FixedState>,
    queue: VecDeque<PageId>,
    /// Pages that a transaction in flight keeps from purge, by that transaction. The keeper's tick queues them again
    /// once it has ended. [`TxnId::END`]: the next tick does.
    later: BTreeSet<(TxnId, PageId)>,
    /// Pages with rows that a snapshot keeps from purge, by the latest such snapshot. The tick queues them again, from
    /// their first record on, once it is gone.
    pinned: BTreeSet<(Lsn, PageId)>,
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

    /// Notes that a slot has got this page, emptied by the group that ends at `since`.
    pub(super) fn begin(&mut self, id: PageId, since: Lsn) {
        self.pages.insert(id, UndoPage { since, ..UndoPage::default() });
    }

    /// Queues a page with delete marks for a pass.
    pub(super) fn enqueue(&mut self, id: PageId) {
        let page = self.pages.entry(id).or_default();
        // The thread that is going through the page queues it afterwards: no other thread may begin meanwhile.
        if !std::mem::replace(&mut page.is_queued, true) && !page.is_under_way {
            self.queue.push_back(id);
        }
    }

    /// Takes the next page to go through. If there is none, takes one that was kept from purge by a transaction that
    /// `has_ended`.
    pub(super) fn take_any(&mut self, has_ended: impl Fn(TxnId) -> bool) -> Option<(PageId, usize)> {
        if self.queue.is_empty()
            && let Some(&(in_the_way, id)) = self.later.first()
            && in_the_way != TxnId::END
            && has_ended(in_the_way)
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
        (page.is_queued, page.is_under_way, page.from_the_first) = (false, true, false);
        Some((id, page.purged))
    }

    /// Puts back a page that the caller took and went through up to record `purged`. `pinned_by` is the latest snapshot
    /// that kept one of its rows.
    pub(super) fn put_back(&mut self, id: PageId, purged: usize, rest: Rest, pinned_by: Option<Lsn>) {
        let Some(page) = self.pages.get_mut(&id) else { return };
        let was_queued = page.is_queued;
        (page.purged, page.is_under_way) = (if page.from_the_first { 0 } else { purged }, false);
        page.is_queued |= rest != Rest::Nothing;
        if pinned_by > page.pinned_by {
            page.pinned_by.into_iter().for_each(|at| _ = self.pinned.remove(&(at, id)));
            page.pinned_by = pinned_by;
            self.pinned.extend(pinned_by.map(|at| (at, id)));
        }
        match rest {
            Rest::Unread => self.queue.push_front(id),
            _ if was_queued => self.queue.push_back(id),
            Rest::HeldBack(txn) => _ = self.later.insert((txn, id)),
            Rest::Nothing => self.retain(id),
        }
    }

    /// Queues the pages again that a transaction that `has_ended` kept from purge, those that were to wait for this
    /// tick, and those with rows that snapshots kept which are not live any more.
    pub(super) fn look_again(&mut self, has_ended: impl Fn(TxnId) -> bool, is_live: impl Fn(Lsn) -> bool) {
        let due: Vec<_> = self.later.iter().filter(|(txn, _)| *txn == TxnId::END || has_ended(*txn)).copied().collect();
        for page in due {
            self.later.remove(&page);
            self.queue.push_back(page.1);
        }
        let mut next = self.pinned.first().copied();
        while let Some((at, _)) = next {
            let behind = (at.plus(1), PageId(0));
            if !is_live(at) {
                let of_it: Vec<_> = self.pinned.range((at, PageId(0))..behind).copied().collect();
                for page in of_it {
                    self.pinned.remove(&page);
                    self.unpin(page.1);
                }
            }
            next = self.pinned.range(behind..).next().copied();
        }
    }

    /// Queues a page again from its first record on.
    fn unpin(&mut self, id: PageId) {
        let Some(page) = self.pages.get_mut(&id) else { return };
        (page.pinned_by, page.purged, page.from_the_first) = (None, 0, true);
        self.enqueue(id);
    }

    /// Pages whose transactions are all visible at the `horizon` are no longer needed: no snapshot has to look behind
    /// their changes.
    pub(super) fn reap(&mut self, horizon: impl FnOnce() -> Lsn) {
        if self.retained.is_empty() {
            return;
        }
        let horizon = if planted!("undo_pages_not_retained") { Lsn(u64::MAX - 1) } else { horizon() };
        let later = self.retained.split_off(&(horizon.plus(1), PageId(0)));
        for (_, id) in std::mem::replace(&mut self.retained, later) {
            self.pages.remove(&id);
            self.unneeded.push_back(id);
        }
    }

    /// Notes that no slot has the page any more (TXN-4). All transactions with records there have ended, and are
    /// visible from `at` on. Readers may follow `changes` of its changes, apart from those that are
    /// [cut out](Self::cut_out).
    pub(super) fn leave(&mut self, id: PageId, at: Lsn, changes: i64) {
        let page = self.pages.entry(id).or_default();
        page.left_at = Some(at);
        page.live += changes;
        self.retain(id);
    }

    /// Notes that no reader follows a change any more that was in this page when the page had the LSN `seen`.
    pub(super) fn cut_out(&mut self, id: PageId, seen: Lsn) {
        // The page may have been given to another slot since: then the change went before.
        let Some(page) =
            self.pages.get_mut(&id).filter(|page| page.since <= seen || planted!("cut_out_of_an_earlier_life"))
        else {
            return;
        };
        page.live -= 1;
        // Otherwise it stays where it is.
        if page.live <= 0 {
            self.retain(id);
        }
    }

    /// Retains a page for readers that its slot has left and that purge has gone through, if they may need it. If no
    /// version leads to its changes any more, none of its rows is still deleted, and it is not needed for purge either.
    fn retain(&mut self, id: PageId) {
        let Some(page) = self.pages.get(&id) else { return };
        let Some(at) = page.left_at else { return };
        if (page.is_queued || page.is_under_way) && !planted!("undo_page_left_early") {
            return;
        }
        if page.live <= 0 {
            page.pinned_by.into_iter().for_each(|by| _ = self.pinned.remove(&(by, id)));
            self.retained.remove(&(at, id));
            self.pages.remove(&id);
            self.unneeded.push_back(id);
        } else if page.pinned_by.is_none() {
            self.retained.insert((at, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::SpaceId;

    fn page(number: u32) -> PageId {
        PageId::new(SpaceId::UNDO, number)
    }

    /// A page gets more records, and its slot leaves it, while a thread goes through it. No other thread gets the page
    /// until that pass has ended, and no slot until all of it was gone through.
    #[test]
    fn page_under_way_is_purged_by_one_thread_and_kept_to_its_end() {
        let (id, other) = (page(1), page(2));
        let mut queue = PurgeQueue::default();
        queue.enqueue(id);
        assert_eq!(queue.take(), Some((id, 0)));
        queue.enqueue(id);
        queue.enqueue(other);
        queue.leave(id, Lsn(900), 1);
        assert_eq!((queue.len(), queue.take(), queue.take()), (1, Some((other, 0)), None));
        queue.put_back(other, 4, Rest::Unread, None);
        queue.put_back(id, 3, Rest::Nothing, None);
        assert_eq!((queue.len(), queue.unneeded.len()), (2, 0));
        assert_eq!((queue.take(), queue.take()), (Some((other, 4)), Some((id, 3))));
        queue.put_back(id, 3, Rest::HeldBack(TxnId(7)), None);
        assert_eq!((queue.take(), queue.len()), (None, 1));
        assert_eq!(queue.take_any(|_| false), None, "nothing has changed");
        assert_eq!(queue.take_any(|txn| txn == TxnId(7)), Some((id, 3)), "the transaction in its way has ended");
        queue.put_back(id, 3, Rest::HeldBack(TxnId::END), None);
        assert_eq!(queue.take_any(|_| true), None, "only the keeper's tick frees it");
        queue.look_again(|_| false, |_| false);
        assert_eq!(queue.take(), Some((id, 3)));
        queue.put_back(id, 5, Rest::Nothing, None);
        queue.reap(|| Lsn(899));
        assert_eq!((queue.len(), queue.unneeded.front()), (0, None), "a snapshot may still need it");
        queue.reap(|| Lsn(900));
        assert_eq!(queue.unneeded.front(), Some(&id));
    }

    #[test]
    fn page_behind_a_snapshot_is_no_debt_and_waits_for_the_snapshot() {
        let ids = [page(1), page(2)];
        let mut queue = PurgeQueue::default();
        for id in ids {
            queue.enqueue(id);
            assert!(queue.take().is_some());
        }
        queue.put_back(ids[0], 2, Rest::HeldBack(TxnId(7)), None);
        queue.put_back(ids[1], 4, Rest::Nothing, Some(Lsn(50)));
        assert_eq!((queue.len(), queue.kept(), queue.ready()), (1, 1, 0), "one behind a writer, one behind a snapshot");
        queue.look_again(|_| false, |at| at == Lsn(50));
        assert_eq!((queue.len(), queue.kept(), queue.ready()), (1, 1, 0));
        queue.look_again(|txn| txn == TxnId(7), |_| false);
        assert_eq!((queue.take(), queue.take()), (Some((ids[0], 2)), Some((ids[1], 0))), "the second from its begin");
        assert_eq!((queue.kept(), queue.take()), (0, None));
    }

    /// A slot goes on with a page that a snapshot keeps: later records do not wait for the snapshot. The snapshot goes
    /// while a thread is behind the row that it kept: the page is gone through once more.
    #[test]
    fn later_records_of_a_pinned_page_do_not_wait() {
        let id = page(1);
        let mut queue = PurgeQueue::default();
        queue.begin(id, Lsn(10));
        queue.enqueue(id);
        assert_eq!(queue.take(), Some((id, 0)));
        queue.put_back(id, 2, Rest::Nothing, Some(Lsn(50)));
        queue.enqueue(id);
        queue.leave(id, Lsn(90), 5);
        assert_eq!(queue.take(), Some((id, 2)));
        queue.look_again(|_| false, |_| false);
        assert_eq!(queue.take(), None, "a thread is going through it");
        queue.put_back(id, 5, Rest::Nothing, Some(Lsn(60)));
        assert_eq!((queue.take(), queue.kept()), (Some((id, 0)), 1));
        queue.put_back(id, 5, Rest::Nothing, Some(Lsn(60)));
        queue.reap(|| Lsn(900));
        assert_eq!((queue.take(), queue.unneeded.front()), (None, None), "a snapshot keeps one of its rows");
        queue.look_again(|_| false, |_| false);
        assert_eq!(queue.take(), Some((id, 0)));
        queue.put_back(id, 5, Rest::Nothing, None);
        queue.reap(|| Lsn(900));
        assert_eq!((queue.unneeded.front(), queue.kept()), (Some(&id), 0));
    }

    /// A page is free once all of its changes are cut out, and not before its slot has left it. What was cut out of the
    /// page in an earlier life does not count.
    #[test]
    fn page_whose_changes_are_all_cut_out_is_not_retained() {
        let id = page(1);
        let mut queue = PurgeQueue::default();
        queue.begin(id, Lsn(100));
        queue.cut_out(id, Lsn(99));
        queue.cut_out(id, Lsn(120));
        queue.leave(id, Lsn(200), 3);
        queue.cut_out(id, Lsn(130));
        assert_eq!((queue.kept(), queue.unneeded.len()), (1, 0));
        queue.cut_out(id, Lsn(130));
        assert_eq!((queue.kept(), queue.unneeded.pop_front()), (0, Some(id)));
        queue.cut_out(id, Lsn(130));
        queue.begin(id, Lsn(300));
        queue.leave(id, Lsn(400), 1);
        queue.cut_out(id, Lsn(130));
        assert_eq!((queue.kept(), queue.unneeded.len()), (1, 0), "the change was of the page's earlier life");
    }

    /// A snapshot kept a row of the page from purge. The row is there again, and its records are cut out.
    #[test]
    fn pinned_page_whose_changes_are_all_cut_out_goes() {
        let id = page(1);
        let mut queue = PurgeQueue::default();
        queue.begin(id, Lsn(10));
        queue.enqueue(id);
        assert_eq!(queue.take(), Some((id, 0)));
        queue.put_back(id, 1, Rest::Nothing, Some(Lsn(50)));
        queue.leave(id, Lsn(90), 1);
        assert_eq!((queue.kept(), queue.unneeded.len()), (1, 0));
        queue.cut_out(id, Lsn(80));
        assert_eq!((queue.kept(), queue.unneeded.front()), (0, Some(&id)));
    }
}
