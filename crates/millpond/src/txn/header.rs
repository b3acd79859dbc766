//! The header of a transaction of several groups (TXN-5): its end.

use std::sync::atomic::Ordering;

use super::record::{Kind, RECORD_HEAD_MAX, record_head};
use super::transactions::Transactions;
use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::row::UndoRef;
use crate::core::Core;
use crate::mtr::{Mtr, RECORD_HEADER, TXN_LEN};
use crate::pool::pin::{KeptPin, Pin};
use crate::redo::credits::{KeptCredit, LogCredit};

/// Bytes of redo that a header, or a change of its state, takes at most.
pub(super) const HEADER_REDO: usize = RECORD_HEADER + 16 + RECORD_HEAD_MAX + TXN_LEN;

/// What the end of a transaction needs: the page of its header, and room in the log.
pub(crate) struct Ready<'c> {
    header: UndoRef,
    page: Pin<'c>,
    credit: LogCredit<'c>,
}

/// The same, [kept](Ready::keep) from call to call.
#[must_use]
#[derive(Debug)]
pub(crate) struct KeptReady {
    header: UndoRef,
    page: KeptPin,
    credit: KeptCredit,
}

impl<'c> Ready<'c> {
    /// May wait on `log_space`, `page_read` and `free_frame`; callers hold no latch.
    pub(crate) fn of(core: &'c Core, header: UndoRef) -> Result<Ready<'c>, Error> {
        let credit = core.log.reserve(HEADER_REDO, 1)?;
        let page = core.pool.load(PageId::new(SpaceId::UNDO, header.page))?;
        Ok(Ready { header, page, credit })
    }

    /// The mini-transaction that marks the header as ended, and its credit. Waits for the page's latch at most.
    pub(super) fn end(self, core: &'c Core, txn: TxnId) -> Result<(Mtr<'c>, LogCredit<'c>), Error> {
        let Ready { header, page, credit } = self;
        let page = page.write();
        let id = page.id();
        let mut mtr = Mtr::new(&core.log, [page]);
        let value = record_head(Kind::Header { is_active: false }, txn);
        mtr.apply(0, id, &PageOp::Replace { key: &header.record.to_be_bytes(), value: &value })?;
        Ok((mtr, credit))
    }

    /// Keeps it from call to call. `None`: that is not possible.
    fn keep(self) -> Option<KeptReady> {
        let Ready { header, page, credit } = self;
        page.keep().map(|page| KeptReady { header, page, credit: credit.keep() })
    }

    /// What was kept, of the same database.
    fn kept(core: &'c Core, kept: KeptReady) -> Ready<'c> {
        let KeptReady { header, page, credit } = kept;
        Ready { header, page: core.pool.kept(page), credit: core.log.kept(credit) }
    }
}

impl Transactions {
    /// What the commit of a transaction with this header needs, to be kept from call to call: one of `frames` frames,
    /// and room in the log. `None`: as many transactions as may already keep it. May wait as [`Ready::of`] does.
    pub(crate) fn keep_ready(&self, core: &Core, header: UndoRef, frames: usize) -> Result<Option<KeptReady>, Error> {
        let most = frames.min(core.log.credits_to_keep(HEADER_REDO));
        let most = if planted!("nothing_kept_for_the_order") { 0 } else { most };
        // Relaxed: only a count.
        let is_one_more = |kept| (kept < most).then_some(kept + 1);
        if self.kept_ready.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_one_more).is_err() {
            return Ok(None);
        }
        let kept = Ready::of(core, header).map(Ready::keep);
        if !matches!(kept, Ok(Some(_))) {
            self.kept_ready.fetch_sub(1, Ordering::Relaxed);
        }
        kept
    }

    /// What a transaction has kept, back.
    pub(crate) fn take_ready<'c>(&self, core: &'c Core, kept: KeptReady) -> Ready<'c> {
        self.kept_ready.fetch_sub(1, Ordering::Relaxed);
        Ready::kept(core, kept)
    }
}

/// Marks the header of a transaction as ended, whose changes are all undone.
pub(crate) fn end_header(core: &Core, txn: TxnId, header: UndoRef) -> Result<(), Error> {
    let (mtr, credit) = Ready::of(core, header)?.end(core, txn)?;
    mtr.commit(credit).map(drop)
}
