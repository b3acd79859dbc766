//! Whether a thread spins before it sleeps for the log: decided, as in MySQL 8.0, by the CPU use of the process.
//!
//! Below a low-water mark of CPU use the server is nearly idle, and spinning is not worth the power. Above a high-water
//! mark other threads need the CPU more. The catch is the number of CPUs: under a quota of one CPU of six, 98.5 per
//! cent of one CPU are 16 per cent of six, and the server spins its quota away.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::base::choice::Choice;
use crate::base::clock;
use crate::base::cpus::{self, Cpus};
use crate::base::sync;

/// The number of CPUs that the log's spinning assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LogSpin {
    /// The CPUs that the process may run on, at most the quotas of its control groups.
    #[default]
    Quota,
    /// The CPUs that the process may run on, as in MySQL.
    Affinity,
    /// No thread spins.
    Never,
}

impl LogSpin {
    /// The number of CPUs that this choice assumes, of those that the system grants.
    fn believed_cpus(self, cpus: &Cpus) -> f64 {
        match self {
            LogSpin::Affinity => cpus.affinity,
            LogSpin::Quota if planted!("quota_not_counted") => cpus.affinity,
            LogSpin::Quota | LogSpin::Never => cpus.effective(),
        }
    }
}

/// Rounds of spinning at high use of CPU; ten times as many at low use.
const ROUNDS: f64 = 25_000.0;
const ROUNDS_IDLE: f64 = 10.0;

/// A sync that takes longer than this on average is not worth spinning for.
const SYNC_MAX_NS: u64 = 400_000;

/// Time between two looks at the use of CPU.
const LOOK_NS: u64 = 100_000_000;

/// When to spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpinSettings {
    pub(crate) how: LogSpin,
    /// Per cent of one CPU below which no thread spins.
    pub(crate) cpu_abs_lwm: usize,
    /// Per cent of all CPUs above which no thread spins.
    pub(crate) cpu_pct_hwm: usize,
}

impl SpinSettings {
    /// Rounds for which a waiter spins if the process uses `abs` per cent of one CPU, and assumes `cpus` CPUs.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    #[expect(clippy::cast_precision_loss, reason = "per cent")]
    pub(super) fn rounds(&self, abs: f64, cpus: f64) -> u32 {
        let (lwm, hwm, pct) = (self.cpu_abs_lwm as f64, self.cpu_pct_hwm as f64, abs / cpus);
        if self.how == LogSpin::Never || abs < lwm || pct >= hwm {
            return 0;
        }
        // The further the use is below half of the mark, the longer.
        let spare = ((hwm / 2.0 - pct) / (hwm / 2.0)).max(0.0);
        (ROUNDS * (1.0 + spare * (ROUNDS_IDLE - 1.0))) as u32
    }
}

/// The measured use of CPU, and how long the log's syncs take.
pub(crate) struct CpuUse {
    how: Choice<LogSpin>,
    cpu_abs_lwm: AtomicUsize,
    cpu_pct_hwm: AtomicUsize,
    /// Time of the last look in ns, and the CPU time used until then in us.
    looked_ns: AtomicU64,
    used_us: AtomicU64,
    /// Use in hundredths of a per cent of one CPU, and assumed CPUs in hundredths.
    abs: AtomicU64,
    cpus: AtomicU64,
    rounds: AtomicU64,
    sync_ns: AtomicU64,
}

impl CpuUse {
    pub(super) fn new(settings: SpinSettings) -> CpuUse {
        let none = || AtomicU64::new(0);
        CpuUse {
            how: Choice::new(&[LogSpin::Quota, LogSpin::Affinity, LogSpin::Never], settings.how),
            cpu_abs_lwm: AtomicUsize::new(settings.cpu_abs_lwm),
            cpu_pct_hwm: AtomicUsize::new(settings.cpu_pct_hwm),
            looked_ns: none(),
            used_us: none(),
            abs: none(),
            cpus: none(),
            rounds: none(),
            sync_ns: none(),
        }
    }

    fn settings(&self) -> SpinSettings {
        SpinSettings {
            how: self.how.get(),
            cpu_abs_lwm: self.cpu_abs_lwm.load(Ordering::Relaxed),
            cpu_pct_hwm: self.cpu_pct_hwm.load(Ordering::Relaxed),
        }
    }

    /// Decides by other marks, or other CPUs: at once by the last measured use, and again at the next look.
    pub(super) fn set(&self, settings: SpinSettings) {
        if settings == self.settings() {
            return;
        }
        self.how.set(settings.how);
        // Relaxed, like all numbers here: a thread that reads a mix of old and new marks decides again soon.
        self.cpu_abs_lwm.store(settings.cpu_abs_lwm, Ordering::Relaxed);
        self.cpu_pct_hwm.store(settings.cpu_pct_hwm, Ordering::Relaxed);
        let (abs, cpus) = self.believed();
        // Before the first look no thread spins.
        if cpus > 0 {
            self.decide(hundredths(abs), hundredths(cpus));
        }
    }

    /// Measures the use of CPU if it is time to. Only one thread calls this.
    pub(super) fn look(&self) {
        let now = clock::now_ns();
        let since = now.saturating_sub(self.looked_ns.load(Ordering::Relaxed));
        // Simulated time says nothing of the use of CPU.
        if since < LOOK_NS || sync::is_simulated() {
            return;
        }
        let used = cpus::used_us();
        let before = self.used_us.swap(used, Ordering::Relaxed);
        if self.looked_ns.swap(now, Ordering::Relaxed) > 0 {
            let cpus = Cpus::read();
            self.believe(used.saturating_sub(before), since / 1000, self.how.get().believed_cpus(&cpus));
        }
    }

    /// Notes that `used_us` of CPU time were used in `in_us`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some CPUs")]
    #[expect(clippy::cast_precision_loss, reason = "a use of CPU")]
    fn believe(&self, used_us: u64, in_us: u64, cpus: f64) {
        let abs = used_us as f64 / in_us.max(1) as f64 * 100.0;
        self.abs.store((abs * 100.0).round() as u64, Ordering::Relaxed);
        self.cpus.store((cpus * 100.0).round() as u64, Ordering::Relaxed);
        self.decide(abs, cpus);
    }

    fn decide(&self, abs: f64, cpus: f64) {
        self.rounds.store(u64::from(self.settings().rounds(abs, cpus)), Ordering::Relaxed);
    }

    /// Notes that a sync of the log took `ns`.
    pub(super) fn synced_in(&self, ns: u64) {
        let before = self.sync_ns.load(Ordering::Relaxed);
        self.sync_ns.store(if before == 0 { ns } else { (before * 7 + ns) / 8 }, Ordering::Relaxed);
    }

    /// Rounds for which a waiter spins now.
    pub(super) fn rounds(&self) -> u64 {
        let is_worth_it = self.sync_ns.load(Ordering::Relaxed) <= SYNC_MAX_NS;
        if is_worth_it { self.rounds.load(Ordering::Relaxed) } else { 0 }
    }

    /// The measured use in hundredths of a per cent of one CPU, and the assumed CPUs in hundredths.
    pub(crate) fn believed(&self) -> (u64, u64) {
        (self.abs.load(Ordering::Relaxed), self.cpus.load(Ordering::Relaxed))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a use of CPU")]
fn hundredths(of: u64) -> f64 {
    of as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MYSQL: SpinSettings = SpinSettings { how: LogSpin::Affinity, cpu_abs_lwm: 80, cpu_pct_hwm: 50 };

    #[test]
    fn six_cpus_of_a_mask_have_a_quota_of_one_spun_away() {
        assert!(MYSQL.rounds(98.5, 6.0) > 25_000, "16.4 per cent of six");
        assert_eq!(MYSQL.rounds(98.5, 1.0), 0, "of the one that there is");
        assert_eq!(SpinSettings { cpu_pct_hwm: 8, ..MYSQL }.rounds(98.5, 6.0), 0, "the workaround");
    }

    #[test]
    fn a_quota_is_spun_away_by_the_mask_only() {
        let cpus = Cpus { affinity: 6.0, quota: Some(1.0), periods: 0, throttled: 0 };
        let rounds = |how: LogSpin| SpinSettings { how, ..MYSQL }.rounds(98.5, how.believed_cpus(&cpus));
        assert!(rounds(LogSpin::Affinity) > 25_000);
        assert_eq!(rounds(LogSpin::Quota), 0);
        assert_eq!(rounds(LogSpin::Never), 0);
        let wide = Cpus { quota: None, ..cpus };
        let rounds = |how: LogSpin| SpinSettings { how, ..MYSQL }.rounds(98.5, how.believed_cpus(&wide));
        assert_eq!(rounds(LogSpin::Quota), rounds(LogSpin::Affinity), "there is no quota");
        assert_eq!(rounds(LogSpin::Never), 0);
    }

    #[test]
    fn spin_is_longer_with_less_cpu_and_none_when_idle_or_busy() {
        assert_eq!(MYSQL.rounds(79.9, 6.0), 0);
        assert_eq!(MYSQL.rounds(300.0, 6.0), 0);
        assert_eq!(MYSQL.rounds(299.0, 6.0), 25_000);
        assert!(MYSQL.rounds(80.0, 64.0) > MYSQL.rounds(80.0, 6.0));
        assert!(MYSQL.rounds(80.0, 1000.0) <= 250_000);
        assert_eq!(SpinSettings { how: LogSpin::Never, ..MYSQL }.rounds(98.5, 6.0), 0);
    }

    #[test]
    fn other_marks_count_at_once() {
        let cpu = CpuUse::new(MYSQL);
        cpu.set(SpinSettings { cpu_pct_hwm: 60, ..MYSQL });
        assert_eq!(cpu.rounds(), 0, "before the first look");
        cpu.believe(98_500, 100_000, 6.0);
        assert!(cpu.rounds() > 25_000);
        for settings in [
            SpinSettings { how: LogSpin::Never, ..MYSQL },
            SpinSettings { cpu_abs_lwm: 99, ..MYSQL },
            SpinSettings { cpu_pct_hwm: 8, ..MYSQL },
        ] {
            cpu.set(settings);
            assert_eq!(cpu.rounds(), 0, "{settings:?}");
            cpu.set(MYSQL);
            assert!(cpu.rounds() > 25_000, "after {settings:?}");
        }
        cpu.set(SpinSettings { how: LogSpin::Never, ..MYSQL });
        cpu.believe(98_500, 100_000, 6.0);
        assert_eq!(cpu.rounds(), 0, "and at the next look");
    }

    #[test]
    fn believed_cpu_is_the_used_cpu_and_slow_syncs_end_spinning() {
        let cpu = CpuUse::new(MYSQL);
        cpu.believe(98_500, 100_000, 6.0);
        assert_eq!(cpu.believed(), (9_850, 600));
        cpu.believe(29_000, 100_000, 0.29);
        assert_eq!(cpu.believed(), (2_900, 29), "to the nearest, as the CPUs that the system grants");
        cpu.believe(98_500, 100_000, 6.0);
        cpu.synced_in(100_000);
        assert!(cpu.rounds() > 0);
        (0..40).for_each(|_| cpu.synced_in(2_000_000));
        assert_eq!(cpu.rounds(), 0);
    }
}
