//! Percona Server's `keep_average` (5.1 and 5.5). Ten times a second it writes a part of the dirty pages, and one page
//! more, less the pages that other threads wrote meanwhile. The part is the log's growth in that time, divided by the
//! growth at which all writers wait.

use super::classic_flushing::{Flushing, Seen, Settings};
use super::sync_only;
use crate::base::aligned::to_u64;

/// The method's memory.
#[derive(Debug, Default)]
pub(crate) struct KeepAverage {
    last: Option<Seen>,
    /// Pages asked for in the last turn.
    asked: u64,
}

impl Flushing for KeepAverage {
    fn interval_ms(&self) -> u64 {
        100
    }

    fn pages(&mut self, seen: &Seen, settings: &Settings, _: &dyn Fn(u64) -> usize) -> usize {
        let Some(last) = self.last.replace(*seen) else { return 0 };
        let grown = seen.lsn.saturating_sub(last.lsn);
        let a_turn = settings.io_capacity.div_ceil(10);
        if grown == 0 {
            self.asked = to_u64(a_turn);
            return a_turn;
        }
        let limit = sync_only::early(seen.log_bytes).max(1);
        let part = u128::from(seen.dirty) * u128::from(grown) / u128::from(limit) + 1;
        // Pages that other threads wrote meanwhile.
        let others = seen.written.saturating_sub(last.written).saturating_sub(self.asked);
        let wanted = u64::try_from(part).unwrap_or(u64::MAX).saturating_sub(others);
        let least = if seen.is_too_dirty(settings) { a_turn } else { 0 };
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).max(least);
        self.asked = to_u64(wanted);
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_as_the_log_has_grown() {
        let settings = Settings::INNODB;
        let mut cleaner = KeepAverage::default();
        let mut pages = |lsn, written| {
            let seen = Seen { lsn, written, dirty: 5_000, frames: 10_000, log_bytes: 4_000, ..Seen::default() };
            cleaner.pages(&seen, &settings, &|_| 0)
        };
        assert_eq!(pages(1_000, 0), 0, "nothing is known yet");
        // A hundredth of the limit, which is 14 fifteenths of three quarters of the log, and one.
        assert_eq!(pages(1_028, 0), 51);
        // Its own 51, and 20 that were written for their frames.
        assert_eq!(pages(1_056, 71), 31);
        assert_eq!(pages(1_056, 102), 20, "idle");
        // These 20 were its own, too.
        assert_eq!(pages(1_084, 122), 51);
    }

    #[test]
    fn too_many_dirty_pages_ask_for_a_tenth_of_io_capacity() {
        let settings = Settings { io_capacity: 205, ..Settings::INNODB };
        let pages = |dirty, grown: u64| {
            let mut cleaner = KeepAverage::default();
            let mut turn = |lsn: u64| {
                let seen = Seen { lsn, dirty, frames: 10_000, log_bytes: 4_000, ..Seen::default() };
                cleaner.pages(&seen, &settings, &|_| 0)
            };
            turn(1_000);
            turn(1_000 + grown)
        };
        // A thousandth of the limit is seven of these pages, or ten; a hundredth is 75. And one.
        assert_eq!([pages(7_500, 3), pages(7_501, 3), pages(10_000, 3)], [9, 21, 21]);
        assert_eq!([pages(7_500, 28), pages(7_501, 28)], [76, 76]);
    }
}
