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

/// How many of the dirty pages, whose first changes are at `rec_lsns` (ascending), to write in the next `tick_s`
/// seconds.
pub(crate) fn pages_due(rec_lsns: &[u64], pace: LogPace, tick_s: f64) -> usize {
    let mut overdue = 0;
    let mut pages_per_s: f64 = 0.0;
    let mut count = 0.0;
    for &rec_lsn in rec_lsns {
        count += 1.0;
        let bytes_left = (rec_lsn + pace.window_bytes).saturating_sub(pace.next_lsn);
        // Precision: byte counts are far below 2^53.
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact byte count")]
        let time_left = bytes_left as f64 / pace.bytes_per_s.max(1.0);
        if time_left <= tick_s {
            overdue += 1;
        } else {
            pages_per_s = pages_per_s.max(count / time_left);
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
    let spread = (pages_per_s * tick_s).ceil() as usize;
    overdue.max(spread).min(rec_lsns.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn a_cluster_is_spread_over_the_time_until_its_deadline() {
        // 1,000 pages dirtied at once at LSN 0; the log grows by 10 MB/s towards a window of 100 MB: 10 s.
        let mut dirty = vec![0u64; 1000];
        let mut most = 0;
        let mut ticks = 0;
        let mut next_lsn = 0;
        while !dirty.is_empty() {
            let pace = LogPace { next_lsn, bytes_per_s: 10.0 * 1048576.0, window_bytes: 100 * MB };
            let due = pages_due(&dirty, pace, 0.05);
            most = most.max(due);
            dirty.drain(..due);
            next_lsn += MB / 2;
            ticks += 1;
        }
        assert!(most <= 8, "1,000 pages over 200 ticks are 5 a tick, not {most}");
        assert!((120..=200).contains(&ticks), "done in {ticks} of 200 ticks");
    }

    #[test]
    fn pages_past_their_deadline_are_due_at_once_and_none_when_the_log_stands_still() {
        let pace = LogPace { next_lsn: 200 * MB, bytes_per_s: 1048576.0, window_bytes: 100 * MB };
        assert_eq!(pages_due(&[0, 0, 50 * MB, 199 * MB], pace, 0.05), 3);
        let still = LogPace { next_lsn: 10, bytes_per_s: 0.0, window_bytes: 100 * MB };
        assert_eq!(pages_due(&[5; 100], still, 0.05), 1, "one page a tick at most");
        assert_eq!(pages_due(&[], pace, 0.05), 0);
    }
}
