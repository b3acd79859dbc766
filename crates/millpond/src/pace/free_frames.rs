//! How many frames to keep free: twice as many as are taken while a lot of pages is written.
//!
//! The rate at which frames are taken and the time that a write takes are recent maxima: up at once, down by a
//! twentieth a tick, so that a burst finds ready what the last one needed.

/// What is kept free when nothing is known yet, in a pool that is large enough.
const FLOOR: usize = 64;

/// The largest part of a pool that is kept free, as a divisor.
const SHARE: usize = 20;

/// A device may stand still for half a second without anybody feeling it; half as long again is added, for some of the
/// pages that are clean are dirtied or used before they leave. And the largest part of a pool, as a divisor, that is
/// kept clean for that: pages that would leave next anyway, but are written somewhat earlier.
const STOP_S: f64 = 0.75;
const CLEAN_SHARE: usize = 8;

/// Pages of each queue that are kept clean for that, at most: they are looked at, a few at a time, by the keeper.
const CLEAN_MAX: usize = 1024;

/// Pages that are taken in the time of a stop divided by this cover little of it.
const COVERS_LITTLE: f64 = 4.0;

/// Between the ring of its bell and the keeper's first look, at the worst.
const WAKE_S: f64 = 1e-3;

/// How often who takes frames wakes the keeper for more, at the most, where as many may be free as are taken in that
/// time: to wake a thread whose CPU is idle takes some 30 us, which is five reads from the page cache.
const WAKES_APART_S: f64 = 1.5e-3;

/// What remains of a recent maximum after a tick.
const FADE: f64 = 0.95;

/// What is known about the need of frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameNeed {
    taken_per_s: f64,
    write_s: f64,
}

impl FrameNeed {
    /// A lot of pages took so long to be written.
    pub(crate) fn written(&mut self, seconds: f64) {
        self.write_s = self.write_s.max(seconds);
    }

    /// A tick: so many frames were taken in the last `seconds`.
    pub(crate) fn tick(&mut self, taken: u64, seconds: f64) {
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact count")]
        let rate = taken as f64 / seconds.max(1e-3);
        self.taken_per_s = rate.max(self.taken_per_s * FADE);
        self.write_s *= FADE;
    }

    /// Whether frames were taken lately.
    pub(crate) fn is_taken_from(&self) -> bool {
        self.taken_per_s > 1.0
    }

    /// Frames to keep free in a pool of `frames`: 64 to a twentieth of it, and 4 in a pool that is smaller than that.
    pub(crate) fn target(&self, frames: usize) -> usize {
        count(2.0 * self.taken_per_s * (self.write_s + WAKE_S)).max(FLOOR).min(frames / SHARE).max(4)
    }

    /// Free frames with which more are made, of those that are [kept](Self::target): three quarters, or what is left
    /// after so many as are taken between two wakes of the keeper, but no less than a quarter, or 48: the keeper may be
    /// at the device when it is woken. Where a lot takes 2 ms or more to be written these are three quarters.
    pub(crate) fn low(&self, frames: usize) -> usize {
        let target = self.target(frames);
        let batch = count(self.taken_per_s * WAKES_APART_S);
        let least = (target / 4).max(FLOOR / 4 * 3);
        target.saturating_sub(batch).max(least).min(target / 4 * 3)
    }

    /// Of the pages that are to leave next, how many to keep clean: so many as are taken while a device stands still,
    /// to an eighth of a pool of `frames`, and 1,024. Where those would be taken in less than a quarter of that time,
    /// fewer, by the square: they help little against a stop then, and pages that come and go so fast are dirtied again
    /// before they leave (128 MiB, data of four times that, 28,000 updates a second: 7 % more is written with 1,024,
    /// nothing with 64).
    pub(crate) fn clean_ahead(&self, frames: usize) -> usize {
        #[expect(clippy::cast_precision_loss, reason = "1,024 at most")]
        let most = (frames / CLEAN_SHARE).min(CLEAN_MAX) as f64;
        let taken = self.taken_per_s * STOP_S;
        let part = (COVERS_LITTLE * most / taken).min(1.0);
        count(taken.min(most * part * part)).max(FLOOR.min(frames / SHARE)).max(4)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and bounded")]
fn count(frames: f64) -> usize {
    frames.min(1e9) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_clean_pages_wakes_the_keeper_each_one_and_a_half_milliseconds() {
        let mut need = FrameNeed::default();
        assert_eq!((need.target(8192), need.low(8192)), (64, 48), "nothing is known");
        need.tick(9_000, 0.05);
        // 180,000 a second for a millisecond, twice: 270 of them are taken in 1.5 ms. A smaller pool has fewer free.
        assert_eq!((need.target(8192), need.low(8192)), (360, 90));
        assert_eq!((need.target(2048), need.low(2048)), (102, 48));
        need.written(0.001);
        assert_eq!(
            (need.target(65_536), need.low(65_536)),
            (720, 450),
            "in part, where a lot is written in a millisecond"
        );
        need.written(0.01);
        assert_eq!((need.target(65_536), need.low(65_536)), (3_276, 2_457), "and not where it takes a while");
    }

    #[test]
    fn as_many_as_are_taken_while_a_lot_is_written_twice() {
        let mut need = FrameNeed::default();
        assert_eq!((need.target(8192), need.target(1024), need.target(32)), (64, 51, 4));
        need.written(0.009);
        need.tick(500, 0.05);
        // 10,000 a second for 9.55 ms, twice.
        assert_eq!((need.target(8192), need.target(2048)), (191, 102));
        assert!(need.is_taken_from());
        // 10,000 a second take a quarter of either in more than 1.5 ms.
        assert_eq!((need.low(8192), need.low(2048)), (141, 75));
        // 7,500 leave in 0.75 s, 1.83 times 4,096: 1,024 / 1.83 / 1.83. In the smaller pool 256 / 7.3 / 7.3 is too few.
        assert_eq!((need.clean_ahead(8192), need.clean_ahead(2048)), (305, 64));
        (0..200).for_each(|_| need.tick(0, 0.05));
        assert!(need.target(8192) == 64 && !need.is_taken_from(), "forgotten after ten seconds");
        need.tick(50, 0.05);
        assert_eq!((need.clean_ahead(8192), need.clean_ahead(2048), need.clean_ahead(32)), (750, 256, 4));
        need.tick(1300, 0.05);
        assert_eq!(need.clean_ahead(8192), 64, "19,500 leave in that time");
    }
}
