//! Writes lots of pages from frames, in the caller's thread.

use std::sync::Weak;

use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::FrameId;
use crate::base::waits::WaitClass;
use crate::engine::Engine;
use crate::engine::classic_flushing::ClassicFlushing;
use crate::engine::flush_reason::FlushReason;
use crate::engine::page_writer::{Lot, Moved};
use crate::pool::classic::SinglePageFlush;
use crate::pool::neighbors::FlushNeighbors;
use crate::pool::pin::Pin;
use crate::store::lot::LOT_PAGES;

/// The pool's way to write a page: the pool itself knows neither the log nor the page writers.
pub(crate) struct SinglePage(pub(crate) Weak<Engine>);

impl SinglePageFlush for SinglePage {
    fn flush(&self, frame: FrameId) -> Result<bool, Error> {
        let Some(engine) = self.0.upgrade() else { return Ok(false) };
        engine.flush_single(engine.core.pool.pin_again(frame))
    }
}

impl Engine {
    /// Writes one page and syncs, in the caller's thread. False: not now.
    fn flush_single(&self, page: Pin<'_>) -> Result<bool, Error> {
        let written = self.flush_lot(FlushReason::SinglePage, vec![page])? > 0;
        if written && let Err(error) = self.waits.timed(WaitClass::FreeFrame, || self.core.store.sync()) {
            self.core.log.stop(&error);
            self.bell.ring();
            return Err(error);
        }
        Ok(written)
    }

    /// The pages, each with its neighbours, up to a lot; and the number of neighbours.
    fn beside<'p>(&'p self, classic: &ClassicFlushing, pages: Vec<Pin<'p>>) -> (Vec<Pin<'p>>, usize) {
        match classic.neighbors.get() {
            FlushNeighbors::None => (pages, 0),
            wanted => self.core.pool.with_neighbors(pages, wanted, LOT_PAGES),
        }
    }

    /// Writes a lot of pages of one instance, in the caller's thread. Neighbours, if wanted, displace the last pages.
    /// Returns the number of pages written. 0 for a non-empty lot: not now.
    pub(super) fn flush_lot(&self, why: FlushReason, pages: Vec<Pin<'_>>) -> Result<usize, Error> {
        let classic = self.classic_flushing.as_ref().filter(|_| !matches!(why, FlushReason::SinglePage));
        let (pages, neighbors) = match classic {
            Some(classic) => self.beside(classic, pages),
            None => (pages, 0),
        };
        let Some(first) = pages.first() else { return Ok(0) };
        let instance = self.core.pool.number_of_instance(first.frame_id());
        let mut writing = self.waits.timed(why.waits_on(), || self.writers.lock(instance));
        if self.core.store.unsynced() > self.unsynced_max() / 2 {
            // Only the keeper can name images.
            self.bell.ring();
        }
        let most = self.unsynced_max().saturating_sub(LOT_PAGES);
        let Some(_in_hand) = self.writers.take(pages.len(), most, || self.core.store.unsynced()) else { return Ok(0) };
        let lot = writing.write(&self.core, why, pages, Moved::default(), |_| Ok(false));
        if let Err(error) = &lot {
            // As after a failed write of the keeper, no page is written from here on: the log stops within this turn.
            self.core.log.stop(error);
            self.bell.ring();
        }
        match lot? {
            Lot::Written { pages, .. } => {
                // Pages with an image in flight were left out. Whether these were neighbours is unknown.
                let beside = to_u64(neighbors.min(pages));
                if let Some(classic) = classic.filter(|_| beside > 0) {
                    classic.beside.add(beside);
                }
                Ok(pages)
            }
            Lot::NoSlots => Ok(0),
        }
    }
}
