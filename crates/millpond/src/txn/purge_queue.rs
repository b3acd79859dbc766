//! Undo pages that purge has to go through, and those that nobody needs.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use crate::base::ids::{PageId, TxnId};

/// What is left of an undo page that somebody went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Nothing,
    /// Records at which nobody has looked.
    Unread,
    /// Records that cannot be purged while this is the oldest active transaction, or, if it is [`TxnId::END`], before
    /// the keeper's next tick.
    HeldBack(TxnId),
}

/// What is known of a page.
#[derive(Clone, Copy, Debug, Default)]
struct UndoPage {
    /// Records that were gone through.
    purged: usize,
    is_queued: bool,
    /// Somebody is going through it.
    is_under_way: bool,
    /// No slot has it.
    is_left: bool,
}

#[derive(Default)]
pub(super) struct PurgeQueue {
    /// Pages that nobody has been through, or not to their ends.
    pages: HashMap<PageId, UndoPage, FixedState>,
    queue: VecDeque<PageId>,
    /// Those that purge is kept from, by this transaction: they are queued again by the keeper's tick.
    later: VecDeque<(PageId, TxnId)>,
    /// Pages that nobody needs.
    pub(super) unneeded: VecDeque<PageId>,
}

impl PurgeQueue {
    /// Pages that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.later.len()
    }

    /// Pages that wait, but for those that a transaction keeps purge from.
    pub(super) fn ready(&self) -> usize {
        self.queue.len()
    }

    /// Somebody has to go through a page, which has delete marks.
    pub(super) fn enqueue(&mut self, id: PageId) {
        let page = self.pages.entry(id).or_default();
        // Who is going through it puts it into the queue afterwards: nobody else may begin meanwhile.
        if !std::mem::replace(&mut page.is_queued, true) && !page.is_under_way {
            self.queue.push_back(id);
        }
    }

    /// The next page to go through, or, if there is none, the one that was kept from purge for longest, if what was in
    /// its way has ended since the keeper's last tick: another transaction is the `oldest` one.
    pub(super) fn take_any(&mut self, oldest: impl FnOnce() -> TxnId) -> Option<(PageId, usize)> {
        if self.queue.is_empty()
            && let Some(&(id, in_the_way)) = self.later.front()
            && in_the_way < oldest()
        {
            self.later.pop_front();
            self.queue.push_back(id);
        }
        self.take()
    }

    /// The next page to go through, and from which record on.
    pub(super) fn take(&mut self) -> Option<(PageId, usize)> {
        let id = self.queue.pop_front()?;
        let page = self.pages.entry(id).or_default();
        (page.is_queued, page.is_under_way) = (false, true);
        Some((id, page.purged))
    }

    /// Who took a page went through it up to record `purged`.
    pub(super) fn put_back(&mut self, id: PageId, purged: usize, rest: Rest) {
        let Some(page) = self.pages.get_mut(&id) else { return };
        let (was_queued, is_left) = (page.is_queued, page.is_left);
        (page.purged, page.is_under_way) = (purged, false);
        page.is_queued |= rest != Rest::Nothing;
        match rest {
            Rest::Unread => self.queue.push_front(id),
            _ if was_queued => self.queue.push_back(id),
            Rest::HeldBack(in_the_way) => self.later.push_back((id, in_the_way)),
            Rest::Nothing if is_left => self.leave(id),
            Rest::Nothing => {}
        }
    }

    /// What transactions kept purge from may be possible now.
    pub(super) fn look_again(&mut self) {
        self.queue.extend(self.later.drain(..).map(|(id, _)| id));
    }

    /// TXN-4: no slot has the page any more.
    pub(super) fn leave(&mut self, id: PageId) {
        match self.pages.get_mut(&id) {
            Some(page) if (page.is_queued || page.is_under_way) && !planted!("undo_page_left_early") => {
                page.is_left = true;
            }
            _ => {
                self.pages.remove(&id);
                self.unneeded.push_back(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::SpaceId;

    /// A page gets more records, and its slot leaves it, while somebody goes through it: it is given to nobody else
    /// until he is through, and to a slot only when all of it was gone through.
    #[test]
    fn a_page_under_way_is_gone_through_by_nobody_else_and_needed_to_its_end() {
        let (id, other) = (PageId::new(SpaceId::UNDO, 1), PageId::new(SpaceId::UNDO, 2));
        let mut queue = PurgeQueue::default();
        queue.enqueue(id);
        assert_eq!(queue.take(), Some((id, 0)));
        queue.enqueue(id);
        queue.enqueue(other);
        queue.leave(id);
        assert_eq!((queue.len(), queue.take(), queue.take()), (1, Some((other, 0)), None));
        queue.put_back(other, 4, Rest::Unread);
        queue.put_back(id, 3, Rest::Nothing);
        assert_eq!((queue.len(), queue.unneeded.len()), (2, 0));
        assert_eq!((queue.take(), queue.take()), (Some((other, 4)), Some((id, 3))));
        queue.put_back(id, 3, Rest::HeldBack(TxnId(7)));
        assert_eq!((queue.take(), queue.len()), (None, 1));
        assert_eq!(queue.take_any(|| TxnId(7)), None, "nothing has changed");
        assert_eq!(queue.take_any(|| TxnId(8)), Some((id, 3)), "whoever has to go through one");
        queue.put_back(id, 3, Rest::HeldBack(TxnId::END));
        assert_eq!(queue.take_any(|| TxnId(9)), None, "it is for the keeper to say");
        queue.look_again();
        assert_eq!(queue.take(), Some((id, 3)));
        queue.put_back(id, 5, Rest::Nothing);
        assert_eq!((queue.len(), queue.unneeded.front()), (0, Some(&id)));
    }
}
