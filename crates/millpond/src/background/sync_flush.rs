//! The synchronous flush of a classic server whose log is three quarters full: the next writer flushes the oldest pages
//! itself, and all other writers queue behind it ([`sync_only`](crate::pace::sync_only)).

use std::sync::atomic::Ordering;

use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::base::waits::WaitClass;
use crate::engine::Engine;
use crate::engine::classic_flushing::ClassicFlushing;
use crate::engine::flush_reason::FlushReason;
use crate::pace::classic_flushing::AdaptiveFlushingMethod;
use crate::pace::sync_only;
use crate::store::lot::LOT_PAGES;

/// Most pages of an instance that one search collects before they are written.
const BATCH: usize = 16 * LOT_PAGES;

/// Most rounds of one writer: pages that other threads hold may stay dirty.
const ROUNDS: usize = 64;

impl Engine {
    /// Waits until the log is less than three quarters full of changes that are in frames only. Callers hold nothing.
    /// May wait on `log_space`.
    pub(crate) fn sync_flush(&self, classic: &ClassicFlushing) {
        if self.over_limit().is_none() {
            return;
        }
        let began_ns = clock::now_ns();
        self.waits.timed(WaitClass::LogSpace, || {
            let _one_at_a_time = classic.sync_flush.lock();
            for _ in 0..ROUNDS {
                let Some(cut) = self.over_limit() else { break };
                // A failure has stopped the log. The writer learns that from the log when it writes.
                if self.core.log.health().is_err() || self.flush_upto(classic, cut).is_err() {
                    break;
                }
            }
        });
        let counters = &self.core.log.counters;
        classic.sync_waits.fetch_add(1, Ordering::Relaxed);
        counters.space_waits.fetch_add(1, Ordering::Relaxed);
        counters.space_wait_us.fetch_add(clock::now_ns().saturating_sub(began_ns) / 1000, Ordering::Relaxed);
    }

    /// The LSN up to which pages are flushed now, if the oldest change is so old that all writers wait.
    fn over_limit(&self) -> Option<Lsn> {
        let oldest = self.core.pool.oldest_change()?;
        let age = self.core.log.positions().next.0.saturating_sub(oldest.0);
        let limit = sync_only::limit(self.log_length());
        (age > limit).then(|| oldest.plus(sync_only::advance(age, limit)))
    }

    /// Writes the pages dirtied before `cut`, or some of them, and has the keeper name their images.
    fn flush_upto(&self, classic: &ClassicFlushing, cut: Lsn) -> Result<(), Error> {
        let pool = &self.core.pool;
        for at in 0..pool.instance_count() {
            let frames = if classic.method.get() == AdaptiveFlushingMethod::SyncOnly {
                let (frames, looked_at) = pool.rescan_dirty(at, cut, BATCH);
                classic.rescanned.fetch_add(to_u64(looked_at), Ordering::Relaxed);
                frames
            } else {
                pool.oldest_dirty(at, cut, BATCH)
            };
            for lot in frames.chunks(LOT_PAGES) {
                let pages = pool.pin_dirty(lot);
                if !pages.is_empty() && self.flush_lot(FlushReason::AtOnce, pages)? == 0 {
                    break;
                }
            }
        }
        // After this sync, pages whose former image was in flight can be written next time.
        self.name_images(WaitClass::LogSpace).map(|_| ())
    }
}
