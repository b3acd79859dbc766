//! By when the log wants to be durable for those who do not wait for it.
//!
//! What is asked for while it is being synced already is not asked for again: nobody would come to take it back, and
//! who writes the log for others would find it due for ever. And what was asked for before a sync says nothing of what
//! came after it, or a log that always grows would be due always.

use std::collections::VecDeque;

use crate::base::ids::Lsn;

/// Who wants it later than another by less than this part of his time has it when that one has: there are few to keep.
const PART: u64 = 8;

/// What was asked for and is not yet begun.
#[derive(Default)]
pub(super) struct FlushBy {
    /// Up to where, and by when: both ascend.
    asked: VecDeque<(Lsn, u64)>,
    /// Somebody has begun to make it durable up to here: it is soon, or the log has failed.
    begun: Lsn,
}

impl FlushBy {
    /// The soonest.
    pub(super) fn at_ns(&self) -> Option<u64> {
        self.asked.front().map(|(_, at_ns)| *at_ns)
    }

    /// The log is to be durable up to `upto`, its end, so long after `now_ns`. True: nothing was wanted so soon.
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

    /// Somebody begins to make the log durable up to `upto`.
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

    /// One asks every millisecond to have it in a second, and each sync covers what was there ten milliseconds before.
    #[test]
    fn a_log_that_always_grows_is_due_about_once_in_the_time_that_was_asked_for() {
        let (mut by, mut syncs, mut kept) = (FlushBy::default(), 0, 0);
        for now in 0..20_000u64 {
            by.ask(Lsn(now + 1), now, 1_000);
            kept = kept.max(by.asked.len());
            if by.at_ns().is_some_and(|at| at <= now) {
                by.begin(Lsn(now.saturating_sub(10)));
                syncs += 1;
                assert!(by.at_ns().is_none_or(|at| at <= now - 10 + 1_000), "nobody has it too late");
            }
        }
        assert!((20..=24).contains(&syncs), "{syncs} syncs in 20 s");
        assert!(kept <= 10, "{kept} are kept");
    }

    #[test]
    fn the_soonest_counts_and_covers_those_before_him() {
        let mut by = FlushBy::default();
        assert!(by.ask(Lsn(10), 0, 1_000));
        assert!(by.ask(Lsn(20), 1, 10), "sooner");
        assert!(!by.ask(Lsn(30), 2, 1_000), "later");
        assert_eq!(by.at_ns(), Some(11));
        by.begin(Lsn(20));
        assert_eq!(by.at_ns(), Some(1_002), "the first was covered, too");
    }
}
