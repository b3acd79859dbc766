//! How many frames to keep free: twice the number taken while a lot (batch of pages) is written.
//!
//! The rate at which frames are taken and the duration of a write are recent maxima. They rise at once and fall by a
//! twentieth a tick, so that frames for another burst like the last one are ready.

/// Frames to keep free without any measurement, in a pool that is large enough.
const FLOOR: usize = 64;

/// The largest part of a pool that is kept free, as a divisor.
const SHARE: usize = 20;

/// A device may stop for half a second without a noticeable effect. [`STOP_S`] is half as long again, because some
/// clean pages are dirtied or used before they leave. `CLEAN_SHARE` is the largest part of a pool, as a divisor, kept
/// clean for that: pages that would leave next anyway, written somewhat earlier.
const STOP_S: f64 = 0.75;
const CLEAN_SHARE: usize = 8;

/// Maximum number of pages kept clean in each queue. The keeper scans them, a few at a time.
const CLEAN_MAX: usize = 1024;

/// If the pages taken during a stop exceed the clean ones by this factor, the clean ones are of little use.
const COVERS_LITTLE: f64 = 4.0;

/// Worst case from the ring of the keeper's bell to its first look, in seconds.
const WAKE_S: f64 = 1e-3;

/// Minimum time, in seconds, between two wakes of the keeper for more frames, where the pool may keep as many free as
/// are taken in that time. To wake a thread on an idle CPU takes some 30 us, as long as five reads from the page cache.
const WAKES_APART_S: f64 = 1.5e-3;

/// Remaining part of a recent maximum after a tick.
const FADE: f64 = 0.95;

/// Measurements of the need for frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameNeed {
    taken_per_s: f64,
    write_s: f64,
}

impl FrameNeed {
    /// Records that a lot of pages took `seconds` to write.
    pub(crate) fn written(&mut self, seconds: f64) {
        self.write_s = self.write_s.max(seconds);
    }

    /// A tick: `taken` frames were taken in the last `seconds`.
    pub(crate) fn tick(&mut self, taken: u64, seconds: f64) {
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact count")]
        let rate = taken as f64 / seconds.max(1e-3);
        self.taken_per_s = rate.max(self.taken_per_s * FADE);
        self.write_s *= FADE;
    }

    /// Whether frames were taken recently.
    pub(crate) fn is_taken_from(&self) -> bool {
        self.taken_per_s > 1.0
    }

    /// Frames to keep free in a pool of `frames`: 64 to a twentieth of the pool, or 4 in a smaller one.
    pub(crate) fn target(&self, frames: usize) -> usize {
        count(2.0 * self.taken_per_s * (self.write_s + WAKE_S)).max(FLOOR).min(frames / SHARE).max(4)
    }

    /// The number of free frames at which the keeper is woken. It is three quarters of the [target](Self::target), or
    /// the target less the frames taken between two wakes, whichever is less. But it is at least a quarter, or 48,
    /// because the keeper may be busy with the device. Where a lot takes 2 ms or more to write, it is three quarters.
    pub(crate) fn low(&self, frames: usize) -> usize {
        let target = self.target(frames);
        let batch = count(self.taken_per_s * WAKES_APART_S);
        let least = (target / 4).max(FLOOR / 4 * 3);
        target.saturating_sub(batch).max(least).min(target / 4 * 3)
    }

    /// How many of the pages that leave next to keep clean: the number taken while a device stops, at most an eighth of
    /// a pool of `frames`, and 1,024. If these would be taken in less than a quarter of that time, the number falls by
    /// the square. They help little against a stop then, and such short-lived pages are dirtied again before they leave
    /// (128 MiB, data of four times that, 28,000 updates a second: 7 % more is written with 1,024, nothing with 64).
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
    fn takers_of_clean_pages_wake_the_keeper_every_1500_us() {
        let mut need = FrameNeed::default();
        assert_eq!((need.target(8192), need.low(8192)), (64, 48), "nothing is known");
        need.tick(9_000, 0.05);
        // 180,000 a second for a millisecond, twice: in 1.5 ms, 270 are taken. A smaller pool keeps fewer free.
        assert_eq!((need.target(8192), need.low(8192)), (360, 90));
        assert_eq!((need.target(2048), need.low(2048)), (102, 48));
        need.written(0.001);
        assert_eq!(
            (need.target(65_536), need.low(65_536)),
            (720, 450),
            "in part, where a lot is written in a millisecond"
        );
        need.written(0.01);
        assert_eq!((need.target(65_536), need.low(65_536)), (3_276, 2_457), "not where a write takes longer");
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
        // At 10,000 a second, taking a quarter of either takes more than 1.5 ms.
        assert_eq!((need.low(8192), need.low(2048)), (141, 75));
        // 7,500 leave in 0.75 s, which is 1.83 times 4,096: 1,024 / 1.83 / 1.83. In the smaller pool 256 / 7.3 / 7.3 is
        // too few.
        assert_eq!((need.clean_ahead(8192), need.clean_ahead(2048)), (305, 64));
        (0..200).for_each(|_| need.tick(0, 0.05));
        assert!(need.target(8192) == 64 && !need.is_taken_from(), "forgotten after ten seconds");
        need.tick(50, 0.05);
        assert_eq!((need.clean_ahead(8192), need.clean_ahead(2048), need.clean_ahead(32)), (750, 256, 4));
        need.tick(1300, 0.05);
        assert_eq!(need.clean_ahead(8192), 64, "19,500 leave in that time");
    }
}
