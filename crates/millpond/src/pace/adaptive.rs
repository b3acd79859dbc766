//! InnoDB's adaptive flushing, as in MySQL 5.7 and 8.0: once a second, the mean of three numbers of pages, at most
//! `io_capacity_max`.
//! 1. `io_capacity`, scaled by the larger of two percentages: one for the used part of the log, one for the dirty part
//!    of the pool.
//! 2. The recent average of pages written in a second.
//! 3. A third of the pages that must be clean for the log to move on by three seconds of its growth.
//!
//! (MySQL 5.6, which introduced it, takes the mean of the first two.)

use super::classic_flushing::{CleanerLsnAgeFactor, Flushing, Seen, Settings};
use super::sync_only;

/// Below this part of the log, in per cent, the log's age asks for no writes.
const LOW_WATER_PCT: u64 = 10;

/// Seconds over which rates are averaged: `innodb_flushing_avg_loops`.
const AVERAGED: u32 = 30;

/// Seconds of log growth whose space must become free.
const SECONDS_AHEAD: f64 = 3.0;

/// The method's memory.
#[derive(Debug, Default)]
pub(crate) struct Adaptive {
    last: Option<Seen>,
    /// Where the current averaging interval began, and the turns in it.
    since: Option<Seen>,
    turns: u32,
    pages_per_s: f64,
    bytes_per_s: f64,
}

#[expect(clippy::cast_precision_loss, reason = "rates need no exact count")]
fn float(count: u64) -> f64 {
    count as f64
}

/// The percentage of `io_capacity` that the log's age asks for: a power of the ratio of the age to the limit at which
/// all writers wait. After MySQL's manual, "Configuring Buffer Pool Flushing", and Percona Server's, "Improved InnoDB
/// I/O Scalability".
fn for_log(age: u64, log_bytes: u64, settings: &Settings) -> f64 {
    if age < log_bytes / 100 * LOW_WATER_PCT {
        return 0.0;
    }
    let near = float(age) * 100.0 / float(sync_only::early(log_bytes).max(1));
    let most = float(settings.io_capacity_max as u64) / float(settings.io_capacity.max(1) as u64);
    most * match settings.cleaner_lsn_age_factor {
        CleanerLsnAgeFactor::Legacy => near * near.sqrt() / 7.5,
        CleanerLsnAgeFactor::HighCheckpoint => near * near * near.sqrt() / 700.5,
    }
}

/// The percentage of `io_capacity` that dirty pages ask for. Without a low water mark: 100 above the maximum of dirty
/// pages, else 0. With one: the ratio of dirty pages to that maximum, from the mark on.
fn for_dirty(seen: &Seen, settings: &Settings) -> f64 {
    if settings.max_dirty_pages_pct_lwm == 0 {
        return if seen.is_too_dirty(settings) { 100.0 } else { 0.0 };
    }
    let (lwm, most) = (float(settings.max_dirty_pages_pct_lwm as u64), float(settings.max_dirty_pages_pct as u64));
    let dirty = float(seen.dirty) * 100.0 / float(seen.frames.max(1));
    if dirty >= lwm { dirty * 100.0 / (most + 1.0) } else { 0.0 }
}

impl Adaptive {
    fn average(&mut self, seen: &Seen) {
        let since = *self.since.get_or_insert(*seen);
        let seconds = float(seen.now_ns.saturating_sub(since.now_ns)) / 1e9;
        self.turns += 1;
        if seconds >= f64::from(AVERAGED) || self.turns >= AVERAGED {
            let seconds = seconds.max(1e-3);
            self.pages_per_s = f64::midpoint(self.pages_per_s, float(seen.written - since.written) / seconds);
            self.bytes_per_s = f64::midpoint(self.bytes_per_s, float(seen.lsn - since.lsn) / seconds);
            (self.since, self.turns) = (Some(*seen), 0);
        }
    }
}

impl Flushing for Adaptive {
    fn pages(&mut self, seen: &Seen, settings: &Settings, dirtied_before: &dyn Fn(u64) -> usize) -> usize {
        let is_idle = self.last.replace(*seen).is_some_and(|last| last.lsn == seen.lsn);
        self.average(seen);
        if is_idle {
            return settings.io_capacity;
        }
        let per_cent = for_log(seen.age(), seen.log_bytes, settings).max(for_dirty(seen, settings));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
        let ahead = (self.bytes_per_s * SECONDS_AHEAD) as u64;
        let due = dirtied_before(seen.oldest.saturating_add(ahead)).min(2 * settings.io_capacity_max);
        let by_capacity = float(settings.io_capacity as u64) * per_cent / 100.0;
        let mean = (by_capacity + self.pages_per_s + float(due as u64) / SECONDS_AHEAD) / 3.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "capped, and not negative")]
        let pages = mean.min(1e9) as usize;
        pages.min(settings.io_capacity_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings::INNODB;

    #[test]
    fn the_logs_age_asks_for_its_one_and_a_halfth_power() {
        let log = 15_000_000;
        assert!(for_log(1_499_999, log, &SETTINGS).abs() < f64::EPSILON, "below the low water mark");
        // At the limit, ten times 1000 / 7.5 per cent of `io_capacity`; at a quarter of the limit, an eighth of that.
        let limit = 10_500_000;
        assert!((for_log(limit, log, &SETTINGS) - 10_000.0 / 7.5).abs() < 0.1);
        assert!((for_log(limit / 4, log, &SETTINGS) - 10_000.0 / 7.5 / 8.0).abs() < 0.1);
    }

    /// With the 2.5th power: the same at 93 per cent of the limit, less below, more above.
    #[test]
    fn a_high_checkpoint_asks_for_less_at_first() {
        let high = Settings { cleaner_lsn_age_factor: CleanerLsnAgeFactor::HighCheckpoint, ..SETTINGS };
        let at = |pct: u64, settings: &Settings| for_log(10_500_000 / 100 * pct, 15_000_000, settings);
        assert!((at(25, &high) - 10.0 * 3_125.0 / 700.5).abs() < 0.1);
        assert!((at(100, &high) - 10.0 * 100_000.0 / 700.5).abs() < 0.1);
        assert!(at(93, &high) < at(93, &SETTINGS) && at(94, &high) > at(94, &SETTINGS));
        assert!(at(14, &high).abs() < f64::EPSILON, "below the low water mark of the log");
    }

    #[test]
    fn from_the_low_water_mark_on_dirty_pages_ask_for_their_part() {
        let of_8_0 = Settings { max_dirty_pages_pct: 90, max_dirty_pages_pct_lwm: 10, ..SETTINGS };
        let at = |dirty| for_dirty(&Seen { dirty, frames: 1_000, ..Seen::default() }, &of_8_0);
        assert!(at(99).abs() < f64::EPSILON);
        assert!((at(100) - 1_000.0 / 91.0).abs() < 0.01, "11 per cent of io_capacity");
        assert!((at(900) - 9_000.0 / 91.0).abs() < 0.01, "nearly all of it");
        assert!((at(1_000) - 10_000.0 / 91.0).abs() < 0.01);
    }

    #[test]
    fn it_is_the_mean_of_three_and_at_most_io_capacity_max() {
        let mut cleaner = Adaptive::default();
        let log_bytes = 15_000_000;
        let seen = |second: u64, age| Seen {
            now_ns: second * 1_000_000_000,
            lsn: 100_000_000 + 1_000 * second,
            oldest: 100_000_000 + 1_000 * second - age,
            log_bytes,
            dirty: 100,
            frames: 1_000,
            written: 300 * second,
        };
        // 1,333 % of 200 pages, and nothing else: a third of 2,666.
        assert_eq!(cleaner.pages(&seen(1, 10_500_000), &SETTINGS, &|_| 0), 888);
        for second in 2..=31 {
            assert_eq!(cleaner.pages(&seen(second, 0), &SETTINGS, &|_| 0), if second >= 30 { 50 } else { 0 });
        }
        // Averages: half of 300 pages and of 1,000 bytes a second; 600 pages dirtied in the next 3 s of growth.
        let due = |lsn: u64| if lsn == 100_032_000 + 1_500 { 600 } else { 0 };
        assert_eq!(cleaner.pages(&seen(32, 0), &SETTINGS, &due), (150 + 200) / 3);
        assert_eq!(cleaner.pages(&seen(33, 15_000_000), &SETTINGS, &|_| 100_000), 2_000);
        assert_eq!(cleaner.pages(&seen(33, 0), &SETTINGS, &|_| 0), 200, "idle");
    }

    /// A third of the larger of two: `io_capacity`, and the pages that the log's age asks for.
    #[test]
    fn too_many_dirty_pages_ask_for_all_of_io_capacity() {
        let pages = |dirty, age| {
            let (lsn, log_bytes, frames) = (100_000_000, 15_000_000, 1_000);
            let seen = Seen { lsn, oldest: lsn - age, log_bytes, dirty, frames, ..Seen::default() };
            Adaptive::default().pages(&seen, &SETTINGS, &|_| 0)
        };
        assert_eq!([pages(750, 0), pages(751, 0), pages(1_000, 0)], [0, 200 / 3, 200 / 3]);
        // At a seventh of the limit, 72 %: 14.29 to the power of 1.5 is 54, times ten, divided by 7.5.
        assert_eq!([pages(750, 1_500_000), pages(751, 1_500_000)], [143 / 3, 200 / 3]);
        assert_eq!([pages(750, 10_500_000), pages(751, 10_500_000)], [2_666 / 3; 2]);
    }
}
