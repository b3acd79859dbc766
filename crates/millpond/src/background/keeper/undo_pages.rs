//! Gives back undo pages that purge is done with.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::background::keeper::Keeper;
use crate::base::error::Error;
use crate::base::ids::PageId;
use crate::base::page::op::PageOp;
use crate::btree::merge::commit_freeing;
use crate::mtr::{Mtr, RECORD_HEADER};

/// Unneeded pages that are kept for transactions.
const STOCK: usize = 32;

/// Pages given back before the keeper turns to its other duties.
const PAGES_A_STEP: usize = 64;

/// Most bytes of redo for giving one page back.
const REDO_LEN: usize = RECORD_HEADER + 16;

impl Keeper {
    /// Gives back undo pages that are not needed any more. Waits for a page write that is under way.
    pub(super) fn give_undo_back(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        // In a closed database, the next open would have to redo groups behind the last checkpoint.
        if engine.redoing.load(Ordering::Relaxed) || engine.closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        for _ in 0..PAGES_A_STEP {
            let Some(id) = engine.txns.take_unneeded(STOCK) else { return Ok(()) };
            if !self.give_undo_page_back(id)? {
                engine.txns.put_off(id);
                return Ok(());
            }
        }
        engine.bell.ring();
        Ok(())
    }

    /// False: not now.
    fn give_undo_page_back(&mut self, id: PageId) -> Result<bool, Error> {
        let engine = Arc::clone(&self.engine);
        let core = &engine.core;
        // KEEPER-3
        let _nobody_writes = engine.writers.none();
        let Some(pin) = core.pool.fetch(id) else {
            engine.txns.want_read(id);
            return Ok(true);
        };
        let Some(credit) = core.log.try_reserve(REDO_LEN, 1)? else { return Ok(false) };
        // Purge may still be reading the page.
        let Some(page) = pin.try_write() else { return Ok(false) };
        let mut mtr = Mtr::new(&core.log, [page]);
        mtr.apply(0, id, &PageOp::Free)?;
        if commit_freeing(core, mtr, id, credit)? {
            core.store.give_back(id);
        } else {
            self.freed.push(id);
        }
        Ok(true)
    }
}
