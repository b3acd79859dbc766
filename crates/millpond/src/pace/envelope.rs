//! The deadline envelope: the smallest constant rate that cleans every dirty page before the log reaches that page's
//! deadline.
//!
//! For each dirty page, all pages at least as old must be written by its deadline: `pages / time left`. The maximum
//! over all pages is the rate. So a dense cluster of pages counts from the moment it becomes dirty, and its writes are
//! spread over the whole time to its deadline.

/// The dirty pages by age, and the log that they hold back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope<'a> {
    /// Groups of dirty pages, ascending: (LSN before which they were first dirtied, number of pages).
    pub(super) ages: &'a [(u64, u64)],
    /// LSN of the log's end.
    pub(super) next_lsn: u64,
    /// Pages dirtied before this LSN count as dirtied at it.
    pub(super) ring_lsn: u64,
    /// Bytes of log growth, from a page's first change, by which the page must be clean.
    pub(super) window_bytes: f64,
    /// Shortest time, in seconds, in which pages are due: a tick.
    pub(super) soonest_s: f64,
}

impl Envelope<'_> {
    /// For each group: the number of pages at least as old, and the bytes of log until its deadline (negative:
    /// overdue).
    pub(super) fn deadlines(self) -> impl Iterator<Item = (f64, f64)> {
        let mut pages = 0;
        self.ages.iter().map(move |&(lsn, count)| {
            pages += count;
            let grown = self.next_lsn.saturating_sub(lsn.max(self.ring_lsn));
            (float(pages), self.window_bytes - float(grown))
        })
    }

    /// Pages to write in a second while the log grows by `redo_per_s` bytes a second.
    pub(super) fn pages_per_s(self, redo_per_s: f64) -> f64 {
        let rate = |(pages, room): (f64, f64)| pages / (room / redo_per_s.max(1.0)).max(self.soonest_s);
        self.deadlines().map(rate).fold(0.0, f64::max)
    }
}

/// Counts of pages and bytes are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no exact count")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn envelope(ages: &[(u64, u64)], next_lsn: u64) -> Envelope<'_> {
        Envelope { ages, next_lsn, ring_lsn: 0, window_bytes: float(100 * MB), soonest_s: 0.02 }
    }

    #[test]
    fn a_cluster_is_spread_over_the_time_until_its_deadline() {
        // 1,000 pages dirtied at LSN 0; the log grows by 10 MB/s, so there are 10 s for them.
        let (mut dirty, mut next_lsn) = (1000.0, 0);
        for _ in 0..490 {
            let left = [(0, dirty as u64 + 1)];
            let rate = envelope(&left, next_lsn).pages_per_s(10.0 * 1048576.0);
            assert!((90.0..110.0).contains(&rate), "{rate} with {dirty} left");
            dirty -= rate * 0.02;
            next_lsn += MB / 5;
        }
        assert!(dirty < 30.0, "clean in time, except {dirty}");
    }

    #[test]
    fn overdue_pages_are_due_soon_and_a_still_log_needs_none() {
        let ages = [(0, 2), (50 * MB, 1), (199 * MB, 1)];
        assert!((envelope(&ages, 200 * MB).pages_per_s(1048576.0) - 150.0).abs() < 1e-9, "three in a tick");
        assert!(envelope(&ages, 10).pages_per_s(0.0) < 1e-6);
        assert!(envelope(&[], 10).pages_per_s(1e9) == 0.0);
        let other_ring = Envelope { ring_lsn: 150 * MB, ..envelope(&ages, 200 * MB) };
        assert!((other_ring.pages_per_s(1048576.0 * 10.0) - 0.6).abs() < 1e-9, "three in 5 s");
    }
}
