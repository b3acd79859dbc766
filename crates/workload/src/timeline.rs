//! Figures of a run second by second, in bounded memory: a run of up to an hour keeps each second, a longer one the
//! worst of several seconds.

use crate::canary::Seen;
use crate::engine::Gauges;

/// The most points that are kept. Even, so that points can be joined in pairs.
pub const POINTS_MAX: usize = 3_600;

/// The seconds of a run, in points of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    seconds_each: u64,
    points: Vec<Point>,
    /// Seconds in the last point.
    last_s: u64,
}

/// The worst figures of some seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// The longest latency, in ns.
    pub max_ns: u64,
    /// The worst of each gauge at the end of a second, such as the highest checkpoint age and the fewest free frames.
    pub gauges: Gauges,
    /// Throttled time, in percent of the threads' time.
    pub throttle_percent: f64,
    /// Age of the oldest waiting transaction at the end of a second, in ns.
    pub waiting_ns: u64,
    /// In an open loop: transactions that had arrived and not begun at the end of a second.
    pub queued: u64,
    /// The canaries' worst beats.
    pub machine: Seen,
}

impl Point {
    /// The worse of two, figure by figure.
    #[must_use]
    pub fn worse(self, other: Point) -> Point {
        let (a, b) = (self.gauges, other.gauges);
        Point {
            max_ns: self.max_ns.max(other.max_ns),
            gauges: Gauges {
                age_percent: a.age_percent.max(b.age_percent),
                dirty_percent: a.dirty_percent.max(b.dirty_percent),
                free_frames: a.free_frames.min(b.free_frames),
                throttled_us: a.throttled_us.max(b.throttled_us),
                capacity_pages_per_s: a.capacity_pages_per_s.min(b.capacity_pages_per_s),
                needed_pages_per_s: a.needed_pages_per_s.max(b.needed_pages_per_s),
                log_bytes_per_s: a.log_bytes_per_s.max(b.log_bytes_per_s),
                log_limit_per_s: match (a.log_limit_per_s, b.log_limit_per_s) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                },
            },
            throttle_percent: self.throttle_percent.max(other.throttle_percent),
            waiting_ns: self.waiting_ns.max(other.waiting_ns),
            queued: self.queued.max(other.queued),
            machine: self.machine.worse(other.machine),
        }
    }
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline { seconds_each: 1, points: Vec::new(), last_s: 0 }
    }
}

impl Timeline {
    /// Adds the next second.
    pub fn add_second(&mut self, second: Point) {
        if let Some(last) = self.points.last_mut()
            && self.last_s < self.seconds_each
        {
            *last = last.worse(second);
            self.last_s += 1;
            return;
        }
        if self.points.len() == POINTS_MAX {
            self.points = self.points.chunks(2).map(|pair| pair[0].worse(pair[1])).collect();
            self.seconds_each *= 2;
        }
        self.points.push(second);
        self.last_s = 1;
    }

    /// Adds the latency of a transaction that ended after the last second, in ns.
    pub fn add_late(&mut self, max_ns: u64) {
        if let Some(last) = self.points.last_mut() {
            last.max_ns = last.max_ns.max(max_ns);
        }
    }

    /// Seconds in each point; the last one may have fewer.
    pub fn seconds_each(&self) -> u64 {
        self.seconds_each
    }

    /// The points, from the first second on.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(max_ns: u64) -> Point {
        let gauges = Gauges {
            age_percent: max_ns as f64,
            dirty_percent: 1.0,
            free_frames: 10_000 - max_ns,
            ..Gauges::default()
        };
        Point { max_ns, gauges, ..Point::default() }
    }

    fn timeline(seconds: u64) -> Timeline {
        let mut timeline = Timeline::default();
        (0..seconds).for_each(|second| timeline.add_second(point(second % 10_000)));
        timeline
    }

    #[test]
    fn an_hour_keeps_every_second() {
        let hour = timeline(3_600);
        assert_eq!((hour.seconds_each(), hour.points().len()), (1, 3_600));
        assert_eq!(hour.points()[17], point(17));
    }

    #[test]
    fn longer_runs_join_seconds_and_keep_the_worst_of_them() {
        let longer = timeline(3_601);
        assert_eq!((longer.seconds_each(), longer.points().len()), (2, 1_801));
        assert_eq!(longer.points()[8], point(16).worse(point(17)));
        assert_eq!(longer.points()[8].max_ns, 17);
        assert_eq!(longer.points()[8].gauges.free_frames, 10_000 - 17);
        assert_eq!(longer.points()[1_800], point(3_600));
        let four = timeline(7_205);
        assert_eq!((four.seconds_each(), four.points().len()), (4, 1_802));
        assert_eq!(four.points()[1_800].max_ns, 7_203);
        assert_eq!(four.points()[1_801].max_ns, 7_204);
    }

    #[test]
    fn what_ends_late_belongs_to_the_last_second() {
        let mut late = timeline(2);
        late.add_late(70);
        late.add_late(3);
        assert_eq!(late.points().last().map(|point| point.max_ns), Some(70));
        let mut none = Timeline::default();
        none.add_late(70);
        assert_eq!(none, Timeline::default());
    }
}
