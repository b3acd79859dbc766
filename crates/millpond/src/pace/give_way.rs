//! Work beside the load that gives way to it: backups and checks, which read all of a database.
//!
//! The load waits for the device in its log syncs, and how long these take without the work is not known beforehand.
//! So the work pauses for a tenth of the time. Syncs of the pauses are compared with those beside the work. While the
//! latter take longer by more than a tenth, the work goes slower, and otherwise faster, up to the rate it was given.
//! Without a load there are no syncs, and nothing to give way to.

/// Time between two pauses, in ns.
const WORK_NS: u64 = 90_000_000;

/// Time, in ns, after which syncs no longer wait for transfers of the work that the device had in hand.
const SETTLE_NS: u64 = 2_000_000;

/// Least and greatest length of a pause, in ns. It ends once it has [`ENOUGH`] syncs.
const PAUSE_NS: u64 = 10_000_000;
const PAUSE_MAX_NS: u64 = 100_000_000;

/// Time between two looks at a pause, in ns.
const LOOK_NS: u64 = 2_000_000;

/// Syncs that tell how long one takes.
const ENOUGH: f64 = 16.0;

/// Factor by which syncs may take longer beside the work.
const SLOWER: f64 = 1.1;

/// What is left of earlier sums with each pause: the last ten or so count.
const KEPT: f64 = 0.9;

/// Factors of the rate after a pause.
const FASTER: f64 = 1.1;
const LESS: f64 = 0.75;
const WITHOUT_LOAD: f64 = 2.0;

/// The rate begins with this part of the most, and never falls below another: the work ends some day.
const FIRST: f64 = 1.0 / 64.0;
const LEAST: f64 = 1.0 / 128.0;

/// Syncs of the log so far, and their time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Synced {
    pub(crate) syncs: u64,
    pub(crate) ns: u64,
}

/// Sums of syncs, of which later ones count more.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    syncs: f64,
    ns: f64,
}

impl Sums {
    fn add(&mut self, from: Synced, upto: Synced) {
        self.syncs = self.syncs * KEPT + upto.syncs.saturating_sub(from.syncs) as f64;
        self.ns = self.ns * KEPT + upto.ns.saturating_sub(from.ns) as f64;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Work,
    Settle,
    Pause,
}

/// The rate of such work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GiveWay {
    most: f64,
    per_s: f64,
    phase: Phase,
    since_ns: u64,
    /// At the begin of the phase.
    since: Synced,
    beside: Sums,
    alone: Sums,
}

impl GiveWay {
    /// Work that begins now, at most at the rate `most`.
    pub(crate) fn new(most: f64, now_ns: u64, now: Synced) -> GiveWay {
        let (phase, sums) = (Phase::Work, Sums::default());
        GiveWay { most, per_s: most * FIRST, phase, since_ns: now_ns, since: now, beside: sums, alone: sums }
    }

    /// The current rate.
    pub(crate) fn per_s(&self) -> f64 {
        self.per_s
    }

    /// Goes on to the next phase if the current one has ended. Returns when to look again if the work pauses.
    pub(crate) fn look(&mut self, now_ns: u64, now: Synced) -> Option<u64> {
        let (lasts_ns, syncs) = (now_ns.saturating_sub(self.since_ns), now.syncs.saturating_sub(self.since.syncs));
        match self.phase {
            Phase::Work if lasts_ns >= WORK_NS => {
                self.beside.add(self.since, now);
                self.go_to(Phase::Settle, now_ns, now);
            }
            Phase::Settle if lasts_ns >= SETTLE_NS => self.go_to(Phase::Pause, now_ns, now),
            Phase::Pause
                if lasts_ns >= PAUSE_NS && (syncs == 0 || syncs as f64 >= ENOUGH || lasts_ns >= PAUSE_MAX_NS) =>
            {
                self.alone.add(self.since, now);
                self.judge();
                self.go_to(Phase::Work, now_ns, now);
            }
            Phase::Work | Phase::Settle | Phase::Pause => {}
        }
        (self.phase != Phase::Work).then_some(now_ns + LOOK_NS)
    }

    fn go_to(&mut self, phase: Phase, now_ns: u64, now: Synced) {
        (self.phase, self.since_ns, self.since) = (phase, now_ns, now);
    }

    fn judge(&mut self) {
        let Sums { syncs, ns } = self.alone;
        let factor = if syncs.min(self.beside.syncs) < ENOUGH {
            WITHOUT_LOAD
        } else if self.beside.ns / self.beside.syncs > SLOWER * ns / syncs {
            LESS
        } else {
            FASTER
        };
        self.per_s = (self.per_s * factor).clamp(self.most * LEAST, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs for `seconds`, in steps of a ms, with syncs one after the other, each of `sync_ns(rate)`. Returns the rate
    /// at the end, and the part of the time in which the work did not pause.
    fn run(way: &mut GiveWay, seconds: u64, sync_ns: impl Fn(f64) -> f64) -> (f64, f64) {
        let (mut now, mut works) = (way.since, 0u64);
        let (begin, before, mut syncs) = (way.since_ns, way.since.syncs, 0.0);
        for ms in 1..=seconds * 1000 {
            let rate = if way.phase == Phase::Work { way.per_s() } else { 0.0 };
            let each = sync_ns(rate);
            if each.is_finite() {
                syncs += 1e6 / each;
                now.syncs = before + syncs as u64;
                now.ns += 1_000_000;
            }
            works += u64::from(way.look(begin + ms * 1_000_000, now).is_none());
        }
        (way.per_s(), works as f64 / (seconds * 1000) as f64)
    }

    #[test]
    fn work_without_a_load_has_its_rate_soon() {
        let mut way = GiveWay::new(1e9, 5, Synced::default());
        assert!(way.per_s() < 1e8, "it begins slowly");
        let (rate, part) = run(&mut way, 1, |_| f64::INFINITY);
        assert!(rate >= 1e9 && part > 0.8, "{rate} for {part} of the time");
    }

    #[test]
    fn syncs_beside_work_take_a_tenth_longer_at_most() {
        for limit in [1e8, 3e8, 1e9] {
            let mut way = GiveWay::new(1e9, 5, Synced::default());
            // A tenth longer at `limit`, and twice as long at ten times that.
            let sync_ns = |rate: f64| 100_000.0 * (1.0 + 0.1 * rate / limit);
            run(&mut way, 10, sync_ns);
            let (mut sum, mut most, mut part) = (0.0, 0.0_f64, 0.0);
            for _ in 0..20 {
                let (rate, works) = run(&mut way, 1, sync_ns);
                (sum, most, part) = (sum + rate, most.max(rate), part + works / 20.0);
            }
            assert!((0.6..1.2).contains(&(sum / 20.0 / limit)), "{limit}: {}", sum / 20.0);
            assert!(most < 1.6 * limit && part > 0.8, "{limit}: at most {most}, for {part} of the time");
        }
    }

    #[test]
    fn a_load_that_comes_later_has_its_way_and_a_least_rate_stays() {
        let mut way = GiveWay::new(1e9, 5, Synced::default());
        run(&mut way, 2, |_| f64::INFINITY);
        let worst = |rate: f64| if rate > 0.0 { 1_000_000.0 } else { 100_000.0 };
        let (rate, _) = run(&mut way, 3, worst);
        assert!((7e6..9e6).contains(&rate), "{rate}");
        let (rate, _) = run(&mut way, 8, |_| 100_000.0);
        assert!(rate >= 2e8, "{rate} once it costs nothing");
    }

    #[test]
    fn a_pause_of_a_slow_device_is_longer_and_ends() {
        let mut way = GiveWay::new(1e9, 5, Synced::default());
        let mut now = Synced::default();
        let (mut paused_ms, mut pauses) = (0, 0);
        // A sync takes 20 ms.
        for ms in 1..=4000 {
            if ms % 20 == 0 {
                now = Synced { syncs: now.syncs + 1, ns: now.ns + 20_000_000 };
            }
            let before = way.phase;
            let pauses_now = way.look(5 + ms * 1_000_000, now).is_some();
            paused_ms += u64::from(pauses_now);
            pauses += u64::from(pauses_now && before == Phase::Work);
        }
        assert!(pauses > 10 && paused_ms / pauses <= 110, "{paused_ms} ms in {pauses} pauses");
    }
}
