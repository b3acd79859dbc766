//! How fast the log may grow: as fast as the device can clean pages in time. Without evidence that the device is too
//! slow there is no limit.

use super::envelope::Envelope;
use super::rules::Rules;

/// The part of the device's capacity that the limit relies on.
const TARGET: f64 = 0.95;

/// A deadline counts as at least this many seconds of log away, so that slack absorbs a hiccup of the device.
const FLOOR_S: f64 = 3.0;

/// But as at most this part of the log until the deadline: in a log that fills up sooner, writers would not be slowed
/// down before it is nearly full.
const FLOOR_PART: f64 = 0.3;

/// The floor fades out while the checkpoint age grows from here...
const FLOOR_FADES_FROM: f64 = 0.90;

/// ...to here, in parts of the log's capacity.
const FLOOR_ENDS_AT: f64 = 0.96;

/// The smallest limit, in bytes a second: no writer waits for ever.
const LEAST: f64 = 65536.0;

/// The smallest limit as a part of the sustainable rate, at which pages are dirtied as fast as they are written now.
const LEAST_PART: f64 = 0.5;

/// The brake. With less room than `BRAKE_ROOM`, and a saturated device, the limit fills that room in `BRAKE_S` seconds.
/// So where the device cannot clean pages as fast as they are dirtied, writers slow down gradually before the log is
/// full. (A checkpoint that only waits for a long data sync comes at once or not at all: slower writers would not help
/// it, and may find the log full.)
const BRAKE_ROOM: f64 = 0.2;
const BRAKE_S: f64 = 0.5;

/// In a log that fills up soon, the brake takes this part of that time; otherwise the log would never fill as far as it
/// may.
const BRAKE_PART: f64 = 0.125;

/// The part of the log that the brake leaves for operations in progress.
const UNDER_WAY: f64 = 0.015;

/// Evidence of a device that is too slow: it had a page to write all the time for a while, or the checkpoint age
/// exceeds this part of the log's capacity.
const EVIDENCE_AGE: f64 = 0.80;

/// How long evidence counts, in seconds.
const EVIDENCE_S: f64 = 1.0;

/// The limit's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RedoLimit {
    /// The time for which evidence still counts, in seconds.
    evidence_s: f64,
}

/// The inputs of the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure<'a> {
    /// With the window by whose end pages must be clean.
    pub(super) envelope: Envelope<'a>,
    /// The checkpoint age as a part of the log's capacity.
    pub(super) age: f64,
    /// Bytes until the log is full, and bytes that the log can hold.
    pub(super) room: f64,
    pub(super) full: f64,
    /// Growth of the log, in bytes a second.
    pub(super) redo_per_s: f64,
    /// Growth of the log, in bytes a second, that is sustainable at the recent rate of page writes.
    pub(super) kept_up_per_s: f64,
    /// Capacity of the device, in pages a second.
    pub(super) pages_per_s: f64,
    /// The device had a page to write all the time for a while.
    pub(super) saturated: bool,
}

impl RedoLimit {
    /// The limit, in bytes a second, for the next `seconds`; infinity: none.
    pub(super) fn tick(&mut self, seconds: f64, pressure: Pressure<'_>, rules: Rules) -> f64 {
        let Pressure { envelope, age, room, full, redo_per_s, kept_up_per_s, pages_per_s, saturated } = pressure;
        self.evidence_s = if saturated || age > EVIDENCE_AGE { EVIDENCE_S } else { self.evidence_s - seconds };
        let fading = ((FLOOR_ENDS_AT - age) / (FLOOR_ENDS_AT - FLOOR_FADES_FROM)).clamp(0.0, 1.0);
        let floor = if rules.floor { floor_bytes(redo_per_s, envelope.window_bytes) * fading } else { 0.0 };
        let limit = envelope.redo_per_s(TARGET * pages_per_s, floor).max(LEAST_PART * kept_up_per_s);
        let limit = if rules.brake && saturated { limit.min(brake(room, full, redo_per_s)) } else { limit }.max(LEAST);
        let evidence = self.evidence_s > 0.0 || !rules.evidence;
        if evidence && pages_per_s > 0.0 { limit } else { f64::INFINITY }
    }
}

/// The brake's limit, in bytes a second, in a log of `full` bytes that grows by `redo_per_s` and has `room` left;
/// infinity: enough room.
fn brake(room: f64, full: f64, redo_per_s: f64) -> f64 {
    if room > BRAKE_ROOM * full {
        return f64::INFINITY;
    }
    (room - UNDER_WAY * full).max(0.0) / BRAKE_S.min(BRAKE_PART * full / redo_per_s.max(1.0))
}

/// The least distance, in bytes of log, at which each deadline counts.
fn floor_bytes(redo_per_s: f64, window_bytes: f64) -> f64 {
    (FLOOR_S * redo_per_s).min(FLOOR_PART * window_bytes)
}

/// The inverse of the envelope.
impl Envelope<'_> {
    /// Bytes a second by which the log may grow if the device writes `pages_per_s`, and each deadline counts as at
    /// least `floor_bytes` away.
    pub(super) fn redo_per_s(self, pages_per_s: f64, floor_bytes: f64) -> f64 {
        let limit = |(pages, room): (f64, f64)| pages_per_s * room.max(floor_bytes).max(0.0) / pages.max(1.0);
        self.deadlines().map(limit).fold(f64::INFINITY, f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::envelope::float;

    const MB: u64 = 1 << 20;

    #[test]
    fn a_deadline_is_some_seconds_away_but_in_a_short_log_less() {
        assert!((floor_bytes(1e6, 1e9) - 3e6).abs() < 1.0);
        assert!((floor_bytes(1e8, 2e9) - 3e8).abs() < 1.0, "a log of twenty seconds");
        assert!((floor_bytes(1e9, 1e9) - 3e8).abs() < 1.0, "of one");
    }

    #[test]
    fn nothing_limits_the_log_less_than_the_room_that_is_left() {
        // A log that fills up in 10 s: half a second before it is full, except for the reserve, the rate is halved.
        let full = 1e9;
        assert!((brake(65e6, full, 1e8) - 1e8).abs() < 1.0 && (brake(40e6, full, 1e8) - 5e7).abs() < 1.0);
        assert!(brake(15e6, full, 1e8) == 0.0 && brake(0.0, full, 1e8) == 0.0);
        assert!(brake(201e6, full, 1e8).is_infinite() && brake(199e6, full, 1e8).is_finite());
        // A log that fills up in 1 s: an eighth of that before.
        assert!((brake(140e6, full, 1e9) - 1e9).abs() < 1.0);
        let pressure = |room| Pressure {
            envelope: Envelope { ages: &[], next_lsn: 0, ring_lsn: 0, window_bytes: full, soonest_s: 0.02 },
            age: 0.9,
            room,
            full,
            redo_per_s: 1e8,
            kept_up_per_s: 1e8,
            pages_per_s: 1e3,
            saturated: true,
        };
        let limit = |room, rules| RedoLimit::default().tick(0.02, pressure(room), rules);
        assert!((limit(40e6, Rules::default()) - 5e7).abs() < 1.0, "also less than half of the sustainable rate");
        let idle = Pressure { saturated: false, ..pressure(40e6) };
        assert!(RedoLimit::default().tick(0.02, idle, Rules::default()).is_infinite(), "no page waits for the device");
        assert!(limit(40e6, Rules { brake: false, ..Rules::default() }).is_infinite());
        assert!((limit(0.0, Rules::default()) - LEAST).abs() < 1.0, "but never zero");
    }

    fn envelope(ages: &[(u64, u64)], next_lsn: u64) -> Envelope<'_> {
        Envelope { ages, next_lsn, ring_lsn: 0, window_bytes: float(100 * MB), soonest_s: 0.02 }
    }

    #[test]
    fn the_log_may_grow_as_fast_as_the_tightest_deadline_can_be_met() {
        let ages = [(0, 100), (50 * MB, 100), (90 * MB, 10_000)];
        // 100 pages in 10 MB, 200 in 60 MB, 10,200 in 100 MB: the last number decides.
        let limit = envelope(&ages, 90 * MB).redo_per_s(1000.0, 0.0);
        assert!((limit - 1000.0 * float(100 * MB) / 10_200.0).abs() < 1.0, "{limit}");
        assert!(envelope(&ages, 90 * MB).pages_per_s(limit) <= 1000.1);
        assert!(envelope(&ages, 150 * MB).redo_per_s(1000.0, 0.0) == 0.0, "too late");
        assert!(envelope(&ages, 150 * MB).redo_per_s(1000.0, 1e6) > 0.0, "except for the floor");
        assert!(envelope(&[], 0).redo_per_s(1000.0, 0.0).is_infinite());
    }
}
