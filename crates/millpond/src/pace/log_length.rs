//! The log's length on the way to a shorter one, for shorter recoveries.
//!
//! The dirty pages of that moment were dirtied for a longer log. To clean them at once, the engine would have to stop
//! writers. So the log shrinks only as fast as the pages are written, which are due earlier now.

use super::envelope::float;

/// While the checkpoint age is below this part of the length, pages are written in time.
const IN_TIME: f64 = 0.75;

/// In that case the log shrinks with this time constant, in seconds...
const SHORTER_S: f64 = 10.0;

/// ...and otherwise with this one.
const SLOWLY_S: f64 = 60.0;

/// The length in force.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogLength {
    /// 0: no tick has set it yet.
    bytes: f64,
}

impl LogLength {
    /// The length `seconds` later. `goal`: bytes wanted; `capacity`: bytes that the log has room for; `age`: the
    /// checkpoint age.
    pub(crate) fn tick(&mut self, seconds: f64, goal: u64, capacity: u64, age: u64) -> u64 {
        let (goal, age) = (float(goal), float(age));
        if self.bytes == 0.0 {
            self.bytes = age / IN_TIME;
        }
        let within_s = if age < IN_TIME * self.bytes { SHORTER_S } else { SLOWLY_S };
        self.bytes = (self.bytes * (-seconds / within_s).exp()).max(goal).min(float(capacity));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let bytes = self.bytes as u64;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_log_is_reached_in_steps_and_a_longer_one_at_once() {
        let mut length = LogLength::default();
        assert_eq!(length.tick(0.02, 1000, 9000, 0), 1000);
        assert_eq!(length.tick(0.02, 4000, 9000, 900), 4000);
        let soon = length.tick(1.0, 1000, 9000, 900);
        assert!((3600..3640).contains(&soon), "{soon}");
        let late = length.tick(1.0, 1000, 9000, 3500);
        assert!((soon - 70..soon - 50).contains(&late), "{late} after {soon}");
        assert_eq!((0..100).map(|_| length.tick(1.0, 1000, 9000, 900)).last(), Some(1000));
        assert_eq!(LogLength::default().tick(0.02, 1000, 9000, 3000), 3998, "opened with more than is wanted");
        assert_eq!(LogLength::default().tick(0.02, 1000, 3100, 3000), 3100, "there is no more room");
    }
}
