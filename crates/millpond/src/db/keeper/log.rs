//! The log, for those who do not write it themselves.

use std::sync::Arc;

use super::Keeper;
use crate::base::error::Error;

impl Keeper {
    /// Background commits, and those who wait for room in the log, or soon will.
    pub(super) fn serve_log(&mut self, now: u64) -> Result<(), Error> {
        let demand = self.engine.core.log.demand();
        let is_due = demand.flush_by_ns.is_some_and(|by| by <= now);
        if self.engine.core.log.pipeline.is_some() {
            if is_due {
                self.engine.core.log.flush_all()?;
            } else if demand.buffer_short {
                self.engine.core.log.write_all()?;
            }
        } else if (is_due || demand.buffer_short || demand.buffer_half_full) && self.log_flusher.is_idle()? {
            // Not here: pages are cleaned meanwhile, and no writer has to do it for others.
            let engine = Arc::clone(&self.engine);
            self.log_flusher.begin(move || engine.core.log.flush_all().map(|_| ()))?;
        }
        if demand.files_short {
            // The wall: the oldest quarter of the log goes first, and all that counts as dirtied with it.
            let log = &self.engine.core.log;
            let cut = log.counts.bucket_end(log.positions().checkpoint.plus(log.capacity() / 4));
            self.clean_before(cut)?;
            self.checkpoint()?;
        }
        Ok(())
    }
}
