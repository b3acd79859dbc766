//! Work beside the load that gives way to it: backups and checks, which read all of a database.
//!
//! The load waits for the device in its log syncs, and how long these take without the work is not known beforehand.
//! So the work pauses for a tenth of the time. Syncs of the pauses are compared with those beside the work. While the
//! latter take longer by more than a tenth, the work goes slower, and otherwise faster, up to the rate it was given.
//! Without a load there are no syncs, and nothing to give way to.

/// Least time between two pauses, in ns, and how many times a pause's length it is.
const WORK_NS: u64 = 90_000_000;
const WORK_TIMES: u64 = 9;

/// Time, in ns, in which syncs may still wait for transfers of the work that the device had in hand.
const SETTLE_NS: u64 = 2_000_000;

/// Length of a pause in ns: the least; the most, for [`ENOUGH`] syncs; the most, for one that is under way.
const PAUSE_NS: u64 = 10_000_000;
const PAUSE_MAX_NS: u64 = 100_000_000;
const PENDING_MAX_NS: u64 = 1_000_000_000;

/// Time between two looks at a pause, in ns.
const LOOK_NS: u64 = 2_000_000;

/// Syncs that tell how long one takes: in a pause, and in sums of pauses.
const ENOUGH: u64 = 16;
const ENOUGH_IN_SUM: f64 = 4.0;

/// Factor by which syncs may take longer beside the work.
const SLOWER: f64 = 1.1;

/// Where too few syncs can be compared, the work goes no faster if these take so long, in ns.
const LONG_NS: f64 = 20e6;

/// What is left of earlier sums with each pause: the last ten or so count.
const KEPT: f64 = 0.9;

/// Factors of the rate after a pause.
const FASTER: f64 = 1.1;
const LESS: std::ops::RangeInclusive<f64> = 0.25..=0.75;
const WITHOUT_LOAD: f64 = 2.0;

/// The rate begins with this part of the most, and never falls below another, so that the work ends some day. Neither
/// is lower than some MiB a second.
const FIRST: f64 = 1.0 / 64.0;
const LEAST: f64 = 1.0 / 128.0;
const FLOOR: f64 = (4 << 20) as f64;

/// Syncs of the log so far, and their time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Synced {
    pub(crate) syncs: u64,
    pub(crate) ns: u64,
    /// Whether a sync is under way.
    pub(crate) pending: bool,
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

    fn mean_ns(self) -> f64 {
        self.ns / self.syncs.max(1e-3)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Work,
    /// Ends once no sync is under way that began beside the work.
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
    /// Length of the phase of work, in ns.
    work_ns: u64,
    paused_ns: u64,
    beside: Sums,
    alone: Sums,
}

impl GiveWay {
    /// Work that begins now, at most at the rate `most`.
    pub(crate) fn new(most: f64, now_ns: u64, now: Synced) -> GiveWay {
        let (beside, alone) = (Sums::default(), Sums::default());
        let per_s = (most * FIRST).max(FLOOR).min(most);
        let (phase, work_ns) = (Phase::Work, WORK_NS);
        GiveWay { most, per_s, phase, since_ns: now_ns, since: now, work_ns, paused_ns: 0, beside, alone }
    }

    /// The current rate.
    pub(crate) fn per_s(&self) -> f64 {
        self.per_s
    }

    /// Goes on to the next phase if the current one has ended. Returns when to look again if the work pauses.
    pub(crate) fn look(&mut self, now_ns: u64, now: Synced) -> Option<u64> {
        let (lasts_ns, syncs) = (now_ns.saturating_sub(self.since_ns), now.syncs.saturating_sub(self.since.syncs));
        let waits_for_none = !now.pending || lasts_ns >= PENDING_MAX_NS;
        match self.phase {
            Phase::Work if lasts_ns >= self.work_ns => {
                self.beside.add(self.since, now);
                self.go_to(Phase::Settle, now_ns, now);
            }
            Phase::Settle if lasts_ns >= SETTLE_NS && (syncs > 0 || waits_for_none) => {
                self.paused_ns = lasts_ns;
                self.go_to(Phase::Pause, now_ns, now);
            }
            Phase::Pause
                if lasts_ns >= PAUSE_NS
                    && (syncs >= ENOUGH
                        || (syncs == 0 && waits_for_none)
                        || (syncs > 0 && lasts_ns >= PAUSE_MAX_NS)) =>
            {
                self.alone.add(self.since, now);
                self.judge();
                self.work_ns = WORK_NS.max((self.paused_ns + lasts_ns) * WORK_TIMES);
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
        let (beside, alone) = (self.beside, self.alone);
        let factor = if beside.syncs < 1.0 && alone.syncs < 1.0 {
            WITHOUT_LOAD
        } else if beside.syncs.min(alone.syncs) >= ENOUGH_IN_SUM {
            let part = SLOWER * alone.mean_ns() / beside.mean_ns();
            if part < 1.0 { part.clamp(*LESS.start(), *LESS.end()) } else { FASTER }
        } else if beside.mean_ns() < LONG_NS {
            FASTER
        } else {
            1.0
        };
        let least = (self.most * LEAST).max(FLOOR).min(self.most);
        self.per_s = (self.per_s * factor).clamp(least, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    /// The work beside a load whose syncs come one after the other.
    struct Model {
        way: GiveWay,
        now_ns: u64,
        now: Synced,
        /// What is left of the sync under way, in ns, and its whole time.
        left: f64,
        takes: f64,
    }

    impl Model {
        fn new(most: f64) -> Model {
            let now = Synced::default();
            Model { way: GiveWay::new(most, 5, now), now_ns: 5, now, left: 0.0, takes: 0.0 }
        }

        /// Runs for `seconds`. A sync takes the ns that `sync_ns` gives for the rate at its begin; infinite: there is
        /// no load. Returns the mean rate, pauses included.
        fn run(&mut self, seconds: u64, sync_ns: impl Fn(f64) -> f64) -> f64 {
            let mut bytes = 0.0;
            for _ in 0..seconds * 1000 {
                let rate = if self.way.phase == Phase::Work { self.way.per_s() } else { 0.0 };
                bytes += rate / 1000.0;
                let mut rest = MS;
                self.now.pending = sync_ns(rate).is_finite();
                while self.now.pending && rest > 0.0 {
                    if self.left <= 0.0 {
                        self.takes = sync_ns(rate);
                        self.left = self.takes;
                    }
                    let step = rest.min(self.left);
                    (rest, self.left) = (rest - step, self.left - step);
                    if self.left <= 0.0 {
                        self.now.syncs += 1;
                        self.now.ns += self.takes as u64;
                    }
                }
                self.now_ns += 1_000_000;
                self.way.look(self.now_ns, self.now);
            }
            bytes / seconds as f64
        }
    }

    #[test]
    fn work_without_a_load_has_its_rate_soon() {
        let mut model = Model::new(1e9);
        assert!(model.way.per_s() < 1e8, "it begins slowly");
        model.run(1, |_| f64::INFINITY);
        assert!(model.way.per_s() >= 1e9, "{}", model.way.per_s());
        let rate = model.run(1, |_| f64::INFINITY);
        assert!(rate > 8e8, "{rate}");
        // A low rate is what it is.
        assert!((Model::new(1e6).way.per_s() - 1e6).abs() < 1.0);
    }

    #[test]
    fn syncs_beside_work_take_about_a_tenth_longer() {
        for limit in [1e8, 3e8, 1e9] {
            let mut model = Model::new(1e9);
            // A tenth longer at `limit`, and twice as long at ten times that.
            let sync_ns = |rate: f64| 0.1 * MS * (1.0 + 0.1 * rate / limit);
            model.run(10, sync_ns);
            let rate = model.run(20, sync_ns);
            assert!((0.5..1.2).contains(&(rate / limit)), "{limit}: {rate}");
            assert!(model.way.per_s() < 1.6 * limit, "{limit}: {}", model.way.per_s());
        }
    }

    /// Also where a sync beside the work takes far longer than a pause, and few are seen.
    #[test]
    fn a_load_that_comes_later_has_its_way_and_a_least_rate_stays() {
        for (alone, beside, within_s) in [(0.1, 1.0, 3), (3.0, 30.0, 20), (10.0, 100.0, 30), (50.0, 500.0, 60)] {
            let mut model = Model::new(1e9);
            model.run(2, |_| f64::INFINITY);
            let worst = |rate: f64| if rate > 0.0 { beside * MS } else { alone * MS };
            model.run(within_s, worst);
            let rate = model.way.per_s();
            assert!((7e6..5e7).contains(&rate), "syncs of {beside} ms: {rate}");
            model.run(60, |_| f64::INFINITY);
            assert!(model.way.per_s() >= 1e9, "the load has ended: {}", model.way.per_s());
        }
    }

    #[test]
    fn a_slow_device_that_does_not_mind_leaves_the_rate() {
        let mut model = Model::new(1e9);
        let rate = (0..4).map(|_| model.run(15, |_| 30.0 * MS)).fold(0.0, f64::max);
        assert!(rate > 5e8, "{rate}");
    }
}
