//! The header of a transaction of several groups (TXN-5): its end.

use super::record::{Kind, RECORD_HEAD_MAX, record_head};
use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::row::UndoRef;
use crate::core::Core;
use crate::mtr::{Mtr, RECORD_HEADER, TXN_LEN};
use crate::redo::credits::LogCredit;

/// Bytes of redo that a header, or a change of its state, takes at most.
pub(super) const HEADER_REDO: usize = RECORD_HEADER + 16 + RECORD_HEAD_MAX + TXN_LEN;

/// Marks the header of a transaction as ended, whose changes are all undone.
pub(crate) fn end_header(core: &Core, txn: TxnId, header: UndoRef) -> Result<(), Error> {
    let (mtr, credit) = header_ended(core, txn, header)?;
    mtr.commit(credit).map(drop)
}

/// The mini-transaction that marks a transaction's header as ended.
pub(super) fn header_ended(core: &Core, txn: TxnId, header: UndoRef) -> Result<(Mtr<'_>, LogCredit<'_>), Error> {
    let credit = core.log.reserve(HEADER_REDO, 1)?;
    let page = core.pool.load(PageId::new(SpaceId::UNDO, header.page))?.write();
    let id = page.id();
    let mut mtr = Mtr::new(&core.log, [page]);
    let value = record_head(Kind::Header { is_active: false }, txn);
    mtr.apply(0, id, &PageOp::Replace { key: &header.record.to_be_bytes(), value: &value })?;
    Ok((mtr, credit))
}
