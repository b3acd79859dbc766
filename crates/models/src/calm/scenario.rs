//! The scenarios: loads, devices, and events.

use super::outcome::Phase;
use crate::speed::{Slower, Speed};

const S: u64 = 1_000_000_000;

/// A load, a device, and the expected outcome.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in the table.
    pub name: &'static str,
    /// Its length in seconds of virtual time.
    pub seconds: u64,
    /// Frames of the pool.
    pub frames: usize,
    /// Pages of the data.
    pub pages: usize,
    /// Whether the data are in the pool at the begin.
    pub is_warm: bool,
    /// Capacity of the log in bytes.
    pub log_bytes: u64,
    /// Threads, each of which updates one row after the other.
    pub threads: usize,
    /// Most updates a second that all threads together begin, from each of these seconds on.
    pub offered: Vec<(u64, f64)>,
    /// Updates a second that the CPUs can process.
    pub cpu_per_s: f64,
    /// The part of each 100 ms in which the CPUs may be used.
    pub quota: f64,
    /// (n, part): the first n pages receive this part of the updates, and an even share of the rest.
    pub hot: (usize, f64),
    /// Pages that become dirty at once, around one position of the log: (second, pages).
    pub cluster: Option<(u64, usize)>,
    /// A transaction that logs this much: (second, bytes).
    pub large: Option<(u64, u64)>,
    /// From this second on the goal is a log of this length, for the sake of recoveries: (second, bytes).
    pub shorter: Option<(u64, u64)>,
    /// In this second the log moves to other files of this capacity: (second, bytes).
    pub other_ring: Option<(u64, u64)>,
    /// The part of the log without a checkpoint when the database was opened, for which redo has just dirtied pages.
    pub first_age: f64,
    pub(crate) device: Speed,
    /// Each lot takes up to this much longer or shorter, as a fraction of its time.
    pub noise: f64,
    /// The controller's first estimate of the device's writes, in pages a second.
    pub first_guess: f64,
    /// Parts of the run that are judged separately.
    pub phases: Vec<Phase>,
    /// Largest variation of the updates a second outside of these.
    pub variation: f64,
    /// Longest expected time without an update, in milliseconds.
    pub gap_ms: f64,
}

/// The rule that is switched off. Each variant's comment states the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// None.
    Nothing,
    /// Pages are written before the deadlines demand it. Without the rule, only when the log is three quarters full,
    /// then at full speed.
    Envelope,
    /// Writers are slowed down before the log is full.
    Throttle,
    /// A throttle needs evidence.
    Evidence,
    /// A deadline counts as some seconds away.
    Floor,
    /// The device's speed is measured.
    Measure,
    /// Writers become slower and slower before the log is full.
    Brake,
    /// The larger of two averages of the log's growth counts.
    SlowAverage,
    /// Frames and log each have a fourth of the device.
    Shares,
    /// A thread that finds a tick overdue runs it.
    OverdueTick,
    /// Large transactions have a queue of their own.
    LargeQueue,
    /// A log becomes shorter little by little.
    LittleByLittle,
    /// Pages changed in the log's old files must be clean before the new files are full.
    OtherRing,
}

impl Off {
    /// All variants.
    pub const ALL: [Off; 13] = [
        Off::Nothing,
        Off::Envelope,
        Off::Throttle,
        Off::Evidence,
        Off::Floor,
        Off::Measure,
        Off::Brake,
        Off::SlowAverage,
        Off::Shares,
        Off::OverdueTick,
        Off::LargeQueue,
        Off::LittleByLittle,
        Off::OtherRing,
    ];
}

/// The device runs at `factor` of its speed for `for_ms` from `from_s` on, and again each `every_s`.
fn slower(from_s: u64, for_ms: u64, every_s: u64, factor: f64) -> Slower {
    Slower { from_ns: from_s * S, for_ns: for_ms * 1_000_000, every_ns: every_s * S, factor }
}

/// The scenarios. The base: 4,000 updates a second over 20,000 pages in the pool, a log of 32 MiB, which 500 bytes an
/// update fill in 17 s. So some 1,500 pages a second have to be written, and the device can write 1,800.
pub fn scenarios() -> Vec<Scenario> {
    let base = Scenario {
        name: "",
        seconds: 3600,
        frames: 20_480,
        pages: 20_000,
        is_warm: true,
        log_bytes: 32 << 20,
        threads: 16,
        offered: vec![(0, 4_000.0)],
        cpu_per_s: 12_000.0,
        quota: 1.0,
        hot: (0, 0.0),
        cluster: None,
        large: None,
        shorter: None,
        other_ring: None,
        first_age: 0.0,
        device: Speed::of_writes(1_800.0),
        noise: 0.0,
        first_guess: 0.0,
        phases: Vec::new(),
        variation: 0.05,
        gap_ms: 20.0,
    };
    let hiccups = |list: &[Slower]| Speed { slower: list.to_vec(), ..base.device.clone() };
    let small = Scenario { frames: 4_096, pages: 16_384, ..base.clone() };
    let always = |rate| vec![(0, rate)];
    let most = || always(1e9);
    vec![
        Scenario { name: "feasible", ..base.clone() },
        Scenario { name: "overload", offered: most(), ..base.clone() },
        Scenario {
            name: "burst of 1.8 for 30 s",
            offered: vec![(0, 4_000.0), (300, 7_200.0), (330, 4_000.0)],
            seconds: 900,
            phases: vec![Phase::new("burst", 300, 345)],
            ..base.clone()
        },
        Scenario {
            name: "waves of 5 s",
            offered: (0..900).map(|s| (s, if s / 5 % 2 == 0 { 8_000.0 } else { 100.0 })).collect(),
            seconds: 900,
            variation: 0.06,
            gap_ms: 170.0,
            phases: (0..90).map(|wave| Phase::new("", 10 * wave + 5, 10 * wave + 10)).collect(),
            ..base.clone()
        },
        Scenario { name: "30 % for 2 s", device: hiccups(&[slower(75, 2_000, 75, 0.3)]), ..base.clone() },
        Scenario { name: "stops of 500 ms", device: hiccups(&[slower(75, 500, 75, 0.0)]), ..base.clone() },
        Scenario {
            name: "stops of 500 ms, overload",
            seconds: 900,
            offered: most(),
            device: hiccups(&[slower(75, 500, 75, 0.0)]),
            ..base.clone()
        },
        Scenario {
            name: "10 % for 60 s",
            device: hiccups(&[slower(300, 60_000, 0, 0.1)]),
            seconds: 900,
            phases: vec![Phase::new("slow", 300, 380)],
            ..base.clone()
        },
        Scenario {
            name: "0 % for 3 s, overload",
            device: hiccups(&[slower(300, 3_000, 0, 0.0)]),
            offered: most(),
            seconds: 900,
            phases: vec![Phase { brownout_s: 3, ..Phase::new("stopped", 300, 310) }],
            ..base.clone()
        },
        Scenario {
            name: "noise, overload",
            noise: 0.9,
            offered: most(),
            variation: 0.06,
            seconds: 900,
            ..base.clone()
        },
        Scenario {
            name: "noise, 64 MiB",
            noise: 0.9,
            offered: most(),
            variation: 0.12,
            gap_ms: 100.0,
            seconds: 900,
            ..small.clone()
        },
        Scenario {
            name: "0 % for 3 s",
            device: hiccups(&[slower(300, 3_000, 0, 0.0)]),
            seconds: 900,
            phases: vec![Phase::new("stopped", 300, 310)],
            ..base.clone()
        },
        Scenario { name: "a cluster of pages", cluster: Some((300, 15_000)), seconds: 900, ..base.clone() },
        Scenario {
            name: "a large transaction, overload",
            large: Some((300, 12 << 20)),
            // The transaction gets a fourth of the limit while it runs.
            variation: 0.06,
            offered: most(),
            seconds: 900,
            ..base.clone()
        },
        Scenario {
            name: "the log made shorter",
            shorter: Some((300, 12 << 20)),
            // A shorter log allows fewer updates.
            variation: 0.10,
            seconds: 900,
            ..base.clone()
        },
        Scenario {
            name: "smaller files of the log",
            other_ring: Some((300, 12 << 20)),
            variation: 0.10,
            seconds: 900,
            ..base.clone()
        },
        Scenario {
            name: "opened with a log that is full to 85 %",
            first_age: 0.85,
            seconds: 900,
            phases: vec![Phase::new("opened", 0, 30)],
            ..base.clone()
        },
        Scenario { name: "a quota of 0.3 CPUs", quota: 0.3, ..base.clone() },
        Scenario { name: "64 MiB", offered: always(1_200.0), ..small.clone() },
        Scenario { name: "64 MiB, overload", offered: most(), gap_ms: 75.0, ..small.clone() },
        Scenario {
            name: "64 MiB, hot pages",
            threads: 1_000,
            offered: most(),
            gap_ms: 75.0,
            seconds: 900,
            hot: (3_000, 0.8),
            variation: 0.06,
            log_bytes: 16 << 20,
            ..small
        },
        Scenario { name: "first guess 1/1000", first_guess: 1.8, seconds: 900, ..base.clone() },
        Scenario {
            name: "first guess 1/10, overload",
            first_guess: 180.0,
            offered: most(),
            seconds: 900,
            ..base.clone()
        },
        Scenario { name: "first guess 10", first_guess: 18_000.0, seconds: 900, ..base.clone() },
        Scenario {
            name: "first guess 10, overload",
            first_guess: 18_000.0,
            offered: most(),
            seconds: 900,
            ..base.clone()
        },
        Scenario { name: "1,000 threads, overload", threads: 1_000, offered: most(), seconds: 900, ..base.clone() },
        Scenario {
            name: "0 % for 3 s, 1,000 threads",
            threads: 1_000,
            device: hiccups(&[slower(300, 3_000, 0, 0.0)]),
            offered: most(),
            seconds: 900,
            phases: vec![Phase { brownout_s: 3, ..Phase::new("stopped", 300, 310) }],
            ..base.clone()
        },
        Scenario {
            name: "30 % for 3 s, a log of 2 s",
            device: Speed { slower: vec![slower(30, 3_000, 30, 0.3)], ..Speed::of_writes(15_000.0) },
            cpu_per_s: 60_000.0,
            offered: most(),
            seconds: 180,
            phases: (1..6)
                .map(|time| Phase { brownout_s: 3, ..Phase::new("slow", 30 * time, 30 * time + 8) })
                .collect(),
            ..base.clone()
        },
        // The log fills as fast as the device writes, and the first estimate is ten times too high.
        Scenario {
            name: "60 MB/s, guessed 590",
            frames: 12_288,
            pages: 10_400,
            log_bytes: 128 << 20,
            device: Speed { bytes_per_s: 60e6, ..Speed::of_writes(1e6) },
            cpu_per_s: 120_000.0,
            offered: most(),
            first_guess: 36_000.0,
            seconds: 120,
            phases: vec![Phase { brownout_s: 3, ..Phase::new("begin", 0, 10) }],
            ..base.clone()
        },
        Scenario { name: "cold start", is_warm: false, seconds: 900, ..base.clone() },
        Scenario { name: "one hot row, overload", hot: (1, 1.0), offered: most(), seconds: 900, ..base.clone() },
        Scenario { name: "a hot row under throttle", hot: (1, 0.3), offered: most(), seconds: 900, ..base.clone() },
    ]
}
