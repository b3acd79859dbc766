//! The flush rate: the smallest constant rate that has every dirty page clean before the log reaches its deadline.
//!
//! For each dirty page, the pages at least as old must be written until then: `count / time left`. The largest of these
//! is the rate. A dense cluster of old pages is seen when it is dirtied and spread over all the time there is.

/// What the envelope is computed from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPace {
    /// Where the log stands, in bytes.
    pub(crate) next_lsn: u64,
    /// How fast it grows, in bytes a second.
    pub(crate) bytes_per_s: f64,
    /// A page must be clean when the log has grown by so many bytes since its first change.
    pub(crate) window_bytes: u64,
}

/// How many of the dirty pages to write in the next `tick_s` seconds. `ages` are the LSNs of their first changes, in
/// ascending order, with how many there are at each.
pub(crate) fn pages_due(ages: &[(u64, u64)], pace: LogPace, tick_s: f64) -> u64 {
    let (mut overdue, mut count) = (0, 0);
    let mut pages_per_s: f64 = 0.0;
    for &(rec_lsn, pages) in ages {
        count += pages;
        let bytes_left = (rec_lsn + pace.window_bytes).saturating_sub(pace.next_lsn);
        // Precision: byte counts are far below 2^53.
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact byte count")]
        let (bytes_left, so_far) = (bytes_left as f64, count as f64);
        let time_left = bytes_left / pace.bytes_per_s.max(1.0);
        if time_left <= tick_s {
            overdue = count;
        } else {
            pages_per_s = pages_per_s.max(so_far / time_left);
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
    let spread = (pages_per_s * tick_s).ceil() as u64;
    overdue.max(spread).min(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn a_cluster_is_spread_over_the_time_until_its_deadline() {
        // 1,000 pages dirtied at once at LSN 0; the log grows by 10 MB/s towards a window of 100 MB: 10 s.
        let mut dirty = 1000;
        let mut most = 0;
        let mut ticks = 0;
        let mut next_lsn = 0;
        while dirty > 0 {
            let pace = LogPace { next_lsn, bytes_per_s: 10.0 * 1048576.0, window_bytes: 100 * MB };
            let due = pages_due(&[(0, dirty)], pace, 0.05);
            most = most.max(due);
            dirty -= due;
            next_lsn += MB / 2;
            ticks += 1;
        }
        assert!(most <= 8, "1,000 pages over 200 ticks are 5 a tick, not {most}");
        assert!((120..=200).contains(&ticks), "done in {ticks} of 200 ticks");
    }

    #[test]
    fn pages_past_their_deadline_are_due_at_once_and_none_when_the_log_stands_still() {
        let pace = LogPace { next_lsn: 200 * MB, bytes_per_s: 1048576.0, window_bytes: 100 * MB };
        assert_eq!(pages_due(&[(0, 2), (50 * MB, 1), (199 * MB, 1)], pace, 0.05), 3);
        let still = LogPace { next_lsn: 10, bytes_per_s: 0.0, window_bytes: 100 * MB };
        assert_eq!(pages_due(&[(5, 100)], still, 0.05), 1, "one page a tick at most");
        assert_eq!(pages_due(&[], pace, 0.05), 0);
    }
}
