//! The device's write capacity, in pages a second, measured while it always had a page to write.
//!
//! No option asks for it. While the queue of pages to write is never empty, the rate of writes is the capacity. Before
//! that has lasted long enough, the duration of whole lots (batches of pages) is the measure. Afterwards lots only
//! raise the measure, slowly. So a quiet night does not lower it.

/// Seconds of a never-empty queue in which the measure follows a change of the device: at most, and, where the log
/// fills up sooner, at least.
const FOLLOW_S: f64 = 8.0;
const FOLLOW_LEAST_S: f64 = 1.0;

/// The part of the time in which the log fills up that is used to follow a change of the device.
const FOLLOW_PART: f64 = 0.5;

/// A measurement of an earlier run counts as this many seconds of this one.
const EARLIER_S: f64 = 0.1;

/// A tick counts for at most this many seconds. A late tick says little: perhaps the whole process stood still, and not
/// the device.
const TICK_MAX_S: f64 = 0.25;

/// Growth of the measure in a second while the queue is empty at times.
const PROBE: f64 = 0.1;

/// The measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteCapacity {
    pages_per_s: f64,
    /// Seconds of measurement, up to [`FOLLOW_S`]. That bound holds also where the device is followed faster: once it
    /// is reached, only a never-empty queue counts.
    measured_s: f64,
    lots_pages_per_s: f64,
}

/// Pages written between two ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(super) pages: f64,
    /// Pages of whole lots, and the seconds that the device took for these.
    pub(super) lots_pages: f64,
    pub(super) lots_s: f64,
    /// The device had a page to write all the time.
    pub(super) saturated: bool,
    /// Seconds in which the log fills up.
    pub(super) lap_s: f64,
}

impl WriteCapacity {
    /// Begins with the measurement of an earlier run; 0: unknown.
    pub(super) fn new(earlier_pages_per_s: f64) -> WriteCapacity {
        let measured_s = if earlier_pages_per_s > 0.0 { EARLIER_S } else { 0.0 };
        WriteCapacity { pages_per_s: earlier_pages_per_s, measured_s, lots_pages_per_s: earlier_pages_per_s }
    }

    /// Records the writes of the last `seconds`.
    pub(super) fn tick(&mut self, seconds: f64, written: Written) {
        let Written { pages, lots_pages, lots_s, saturated, lap_s } = written;
        let follow_s = (lap_s * FOLLOW_PART).clamp(FOLLOW_LEAST_S, FOLLOW_S);
        let follow =
            |known: f64, rate: f64, weight_s: f64, known_s: f64| known + (rate - known) * (weight_s / known_s).min(1.0);
        if lots_s > 0.0 {
            let known_s = if self.lots_pages_per_s > 0.0 { follow_s } else { lots_s };
            self.lots_pages_per_s = follow(self.lots_pages_per_s, lots_pages / lots_s, lots_s, known_s);
        }
        let (rate, weight_s) = if saturated {
            (pages / seconds, seconds.min(TICK_MAX_S))
        } else {
            (lots_pages / lots_s.max(1e-9), lots_s)
        };
        if weight_s > 0.0 && (saturated || self.measured_s < follow_s) {
            self.measured_s = (self.measured_s + weight_s).min(FOLLOW_S);
            // Never 0, which means unknown.
            self.pages_per_s = follow(self.pages_per_s, rate, weight_s, self.measured_s.min(follow_s)).max(1.0);
        } else {
            let probed = self.pages_per_s * (1.0 + PROBE * seconds);
            self.pages_per_s = self.pages_per_s.max(probed.min(self.lots_pages_per_s));
        }
    }

    /// Pages a second; 0 before the first write.
    pub(super) fn pages_per_s(&self) -> f64 {
        self.pages_per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks of 20 ms, each with `pages` pages, and as many in whole lots that took all of it.
    fn ticks(capacity: &mut WriteCapacity, count: u32, pages: f64, saturated: bool) {
        let written =
            Written { pages, lots_pages: pages, lots_s: if saturated { 0.02 } else { 0.01 }, saturated, lap_s: 60.0 };
        (0..count).for_each(|_| capacity.tick(0.02, written));
    }

    #[test]
    fn a_device_that_changes_is_followed_while_it_is_saturated_only() {
        let mut capacity = WriteCapacity::new(0.0);
        ticks(&mut capacity, 1, 10.0, false);
        assert!((capacity.pages_per_s() - 1000.0).abs() < 1.0, "the first guess");
        ticks(&mut capacity, 500, 12.0, true);
        assert!((600.0..610.0).contains(&capacity.pages_per_s()), "the measured rate: {}", capacity.pages_per_s());
        ticks(&mut capacity, 5000, 1.0, false);
        assert!(capacity.pages_per_s() >= 600.0, "a quiet time changes nothing");
        ticks(&mut capacity, 1200, 4.0, true);
        assert!((190.0..230.0).contains(&capacity.pages_per_s()), "slower: {}", capacity.pages_per_s());
        ticks(&mut capacity, 500, 5.0, false);
        assert!((220.0..400.0).contains(&capacity.pages_per_s()), "probed upward: {}", capacity.pages_per_s());
    }

    #[test]
    fn a_device_is_followed_faster_where_the_log_is_filled_sooner() {
        let after_a_second = |lap_s: f64| {
            let mut capacity = WriteCapacity::new(0.0);
            ticks(&mut capacity, 500, 20.0, true);
            let slow = Written { pages: 6.0, lots_pages: 6.0, lots_s: 0.02, saturated: true, lap_s };
            (0..50).for_each(|_| capacity.tick(0.02, slow));
            capacity.pages_per_s()
        };
        assert!((900.0..930.0).contains(&after_a_second(60.0)), "{}", after_a_second(60.0));
        assert!((540.0..580.0).contains(&after_a_second(2.0)), "{}", after_a_second(2.0));
        assert!((after_a_second(0.1) - after_a_second(2.0)).abs() < 1.0, "but not at once");
    }

    #[test]
    fn quiet_time_tells_nothing_even_after_a_log_filled_soon() {
        let mut capacity = WriteCapacity::new(0.0);
        let busy = Written { pages: 20.0, lots_pages: 20.0, lots_s: 0.02, saturated: true, lap_s: 2.0 };
        (0..500).for_each(|_| capacity.tick(0.02, busy));
        // Single lots go into a cache at ten times the speed; later ones are slow.
        for lots_pages in [10.0, 0.1] {
            let quiet = Written { pages: lots_pages, lots_pages, lots_s: 0.001, saturated: false, lap_s: 60.0 };
            (0..100).for_each(|_| capacity.tick(0.02, quiet));
            let found = capacity.pages_per_s();
            assert!((990.0..1_300.0).contains(&found), "probed in two seconds, and no more: {found}");
        }
    }

    #[test]
    fn late_tick_counts_little_and_no_writes_keep_the_estimate() {
        let mut capacity = WriteCapacity::new(0.0);
        ticks(&mut capacity, 500, 20.0, true);
        let stopped = Written { pages: 0.0, lots_pages: 0.0, lots_s: 0.0, saturated: true, lap_s: 60.0 };
        capacity.tick(60.0, stopped);
        assert!(
            (960.0..1000.0).contains(&capacity.pages_per_s()),
            "a process that was stopped: {}",
            capacity.pages_per_s()
        );
        (0..10_000).for_each(|_| capacity.tick(0.02, stopped));
        assert!((1.0..1.1).contains(&capacity.pages_per_s()), "a device that is: {}", capacity.pages_per_s());
        ticks(&mut capacity, 1500, 20.0, true);
        assert!(capacity.pages_per_s() > 900.0, "and goes on: {}", capacity.pages_per_s());
    }

    #[test]
    fn what_an_earlier_run_said_is_soon_corrected() {
        for saturated in [false, true] {
            for earlier in [10.0, 10_000.0] {
                let mut capacity = WriteCapacity::new(earlier);
                ticks(&mut capacity, 200, if saturated { 20.0 } else { 10.0 }, saturated);
                let found = capacity.pages_per_s();
                assert!((500.0..4_100.0).contains(&found), "{found} after 200 ticks");
                ticks(&mut capacity, 3000, 20.0, true);
                assert!((990.0..1010.0).contains(&capacity.pages_per_s()), "{}", capacity.pages_per_s());
            }
        }
    }
}
