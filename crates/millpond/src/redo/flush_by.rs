//! Deadlines by which the log is to be durable for commits that do not wait for it.
//!
//! A request for a part of the log whose sync has begun is dropped: no later sync would take it back, and `mp-log`
//! would find it due for ever. A request covers the log up to its end at that time, and no further: else a growing log
//! would always be due.

use std::collections::VecDeque;

use crate::base::ids::Lsn;

/// A request that is due less than this part of its term after the previous one joins that one, so that few are kept.
const PART: u64 = 8;

/// Most time without a sync of the log if commits do not wait for one: InnoDB's `flush_log_at_timeout`.
pub(super) const SYNC_EVERY_NS: u64 = 1_000_000_000;

/// Requests whose sync has not begun.
#[derive(Default)]
pub(super) struct FlushBy {
    /// End of the log that is to be durable, and the deadline in ns. Both ascend.
    asked: VecDeque<(Lsn, u64)>,
    /// A thread has begun to make the log durable up to here: it soon is, or the log fails.
    begun: Lsn,
}

impl FlushBy {
    /// The earliest deadline, in ns.
    pub(super) fn at_ns(&self) -> Option<u64> {
        self.asked.front().map(|(_, at_ns)| *at_ns)
    }

    /// Asks for the log to be durable up to `upto`, its end, `within_ns` after `now_ns`. True if this is the earliest
    /// deadline.
    pub(super) fn ask(&mut self, upto: Lsn, now_ns: u64, within_ns: u64) -> bool {
        if upto <= self.begun && !planted!("asked_while_synced") {
            return false;
        }
        let at_ns = now_ns + within_ns;
        while self.asked.back().is_some_and(|(_, later_ns)| *later_ns >= at_ns) {
            self.asked.pop_back();
        }
        match self.asked.back_mut() {
            Some((end, before_ns)) if at_ns - *before_ns < within_ns / PART => *end = upto,
            _ => self.asked.push_back((upto, at_ns)),
        }
        self.at_ns() == Some(at_ns)
    }

    /// Notes that a thread begins to make the log durable up to `upto`.
    pub(super) fn begin(&mut self, upto: Lsn) {
        self.begun = self.begun.max(upto);
        while self.asked.front().is_some_and(|(end, _)| *end <= upto) {
            self.asked.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_synced_is_not_asked_for_again() {
        let mut by = FlushBy::default();
        by.begin(Lsn(100));
        assert!(!by.ask(Lsn(100), 5, 50));
        assert_eq!(by.at_ns(), None);
        assert!(by.ask(Lsn(101), 6, 50));
        assert_eq!(by.at_ns(), Some(56));
        by.begin(Lsn(101));
        assert_eq!(by.at_ns(), None);
    }

    /// A commit each millisecond asks for durability within a second. Each sync covers the log of ten milliseconds
    /// before.
    #[test]
    fn log_that_always_grows_is_due_about_once_in_each_term() {
        let (mut by, mut syncs, mut kept) = (FlushBy::default(), 0, 0);
        for now in 0..20_000u64 {
            by.ask(Lsn(now + 1), now, 1_000);
            kept = kept.max(by.asked.len());
            if by.at_ns().is_some_and(|at| at <= now) {
                by.begin(Lsn(now.saturating_sub(10)));
                syncs += 1;
                assert!(by.at_ns().is_none_or(|at| at <= now - 10 + 1_000), "no deadline is missed");
            }
        }
        assert!((20..=24).contains(&syncs), "{syncs} syncs in 20 s");
        assert!(kept <= 10, "{kept} are kept");
    }

    #[test]
    fn soonest_request_counts_and_covers_those_before_it() {
        let mut by = FlushBy::default();
        assert!(by.ask(Lsn(10), 0, 1_000));
        assert!(by.ask(Lsn(20), 1, 10), "sooner");
        assert!(!by.ask(Lsn(30), 2, 1_000), "later");
        assert_eq!(by.at_ns(), Some(11));
        by.begin(Lsn(20));
        assert_eq!(by.at_ns(), Some(1_002), "the first was covered, too");
    }
}
