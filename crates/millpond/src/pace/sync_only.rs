//! InnoDB's flushing as in MySQL 5.5 without its heuristics: lazy until the log is three quarters full. The first
//! writer after that flushes twice the excess, from the oldest change on, and all others wait.

use super::classic_flushing::{Flushing, Seen, Settings};

/// Bytes of log since the oldest change at which all writers wait.
pub(crate) fn limit(log_bytes: u64) -> u64 {
    log_bytes / 4 * 3
}

/// The age from which on preventive flushing starts: InnoDB's two limits are 15 and 14 sixteenths of its margin.
pub(crate) fn early(log_bytes: u64) -> u64 {
    limit(log_bytes) / 15 * 14
}

/// Bytes of log, from the oldest change on, whose pages are then flushed.
pub(crate) fn advance(age: u64, limit: u64) -> u64 {
    2 * age.saturating_sub(limit)
}

/// The method's memory.
#[derive(Debug, Default)]
pub(crate) struct SyncOnly {
    lsn: u64,
}

impl Flushing for SyncOnly {
    fn pages(&mut self, seen: &Seen, settings: &Settings, _: &dyn Fn(u64) -> usize) -> usize {
        let is_idle = self.lsn == seen.lsn;
        self.lsn = seen.lsn;
        if is_idle || seen.is_too_dirty(settings) { settings.io_capacity } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    #[test]
    fn all_writers_wait_at_three_quarters_of_the_log() {
        assert_eq!(limit(3800 * MB), 2850 * MB);
        // Observed on a server in that state: the log's end, and its last checkpoint.
        let age = 135_550_126_707 - 132_524_978_607_u64;
        assert!(age > limit(3800 * MB));
        assert_eq!(advance(age, limit(3800 * MB)), 2 * (age - 2850 * MB));
        assert_eq!(advance(2849 * MB, limit(3800 * MB)), 0);
    }

    #[test]
    fn before_it_writes_only_when_idle_or_too_dirty() {
        let settings = Settings::INNODB;
        let mut cleaner = SyncOnly::default();
        let mut pages = |lsn, dirty| {
            let seen = Seen { lsn, dirty, frames: 1000, log_bytes: 1000, ..Seen::default() };
            cleaner.pages(&seen, &settings, &|_| 1_000_000)
        };
        assert_eq!([pages(700, 750), pages(701, 751), pages(701, 10), pages(702, 10)], [0, 200, 200, 0]);
    }
}
