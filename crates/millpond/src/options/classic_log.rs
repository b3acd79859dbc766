//! The options of the log's classic policies, and checks of their combinations.

use bytesize::ByteSize;

use crate::options::Options;
use crate::options::durability::Durability;
use crate::options::text::size_text;
use crate::pool::dirty::DirtyTracking;
use crate::redo::log::LogPolicies;
use crate::redo::log_spin::{LogSpin, SpinSettings};
use crate::redo::pipeline::PipelineSettings;
use crate::redo::recent_closed::LogRecentClosed;

/// Range and default of the length of the window for marking pages out of order, in bytes of log.
const RECENT_CLOSED_MIN: ByteSize = ByteSize::kib(4);
const RECENT_CLOSED_MAX: ByteSize = ByteSize::mib(64);
const RECENT_CLOSED: ByteSize = ByteSize::mib(2);

/// Defaults and maxima of the marks of CPU use between which a thread that waits for the log spins.
const SPIN_CPU_ABS_LWM: usize = 80;
const SPIN_CPU_PCT_HWM: usize = 50;
pub(crate) const SPIN_CPU_ABS_MAX: usize = 100_000;
pub(crate) const SPIN_CPU_PCT_MAX: usize = 100;

impl Options {
    /// Whether pages may enter flush lists out of order within a window, and how the thread is woken that advances the
    /// window. Needs [`DirtyTracking::FlushList`], or a classic
    /// [`adaptive_flushing_method`](Self::adaptive_flushing_method). Default: [`LogRecentClosed::None`].
    pub fn log_recent_closed(mut self, how: LogRecentClosed) -> Self {
        self.given("log_recent_closed");
        self.log_recent_closed = how;
        self
    }

    /// Length of the window in bytes of log. Only with [`log_recent_closed`](Self::log_recent_closed). Takes half as
    /// many bytes of memory. Range: 4 KiB to 64 MiB; default: 2 MiB, as in MySQL 8.0.
    pub fn log_recent_closed_size(mut self, size: ByteSize) -> Self {
        self.log_recent_closed_size = Some(size);
        self
    }

    /// Whether threads of their own write and sync the log and wake the threads that wait for it, as in MySQL 8.0.
    /// Default: no: committing threads do it for each other.
    pub fn log_writer_threads(mut self, threads: bool) -> Self {
        self.log_writer_threads = threads;
        self
    }

    /// The number of CPUs that is assumed to decide whether a thread that waits for the log spins first. Only with
    /// [`log_writer_threads`](Self::log_writer_threads). Default: [`LogSpin::Quota`]; MySQL's is
    /// [`LogSpin::Affinity`].
    pub fn log_spin(mut self, spin: LogSpin) -> Self {
        self.given("log_spin");
        self.log_spin = Some(spin);
        self
    }

    /// CPU use of the process below which no thread spins for the log, in per cent of one CPU. Only with
    /// [`log_writer_threads`](Self::log_writer_threads). Range: 0 to 100,000; default: 80.
    pub fn log_spin_cpu_abs_lwm(mut self, per_cent: usize) -> Self {
        self.log_spin_cpu_abs_lwm = Some(per_cent);
        self
    }

    /// CPU use of the process from which on no thread spins for the log, in per cent of all its CPUs. Only with
    /// [`log_writer_threads`](Self::log_writer_threads). Range: 0 to 100; default: 50.
    pub fn log_spin_cpu_pct_hwm(mut self, per_cent: usize) -> Self {
        self.log_spin_cpu_pct_hwm = Some(per_cent);
        self
    }

    /// [`durability`](Self::durability) in InnoDB's terms: 1 for [`Durability::Commit`], 2 for [`Durability::Written`],
    /// 0 for a second after the return. Default: the value of `durability`.
    pub fn flush_log_at_commit(mut self, when: u8) -> Self {
        self.flush_log_at_commit = Some(when);
        self
    }

    /// The durability of writes, from either option.
    pub(crate) fn commit_durability(&self) -> Durability {
        match self.flush_log_at_commit {
            None => self.durability,
            Some(1) => Durability::Commit,
            Some(2) => Durability::Written,
            Some(_) => Durability::Background(1_000),
        }
    }

    /// The policies of the log.
    pub(crate) fn log_policies(&self) -> LogPolicies {
        let size = self.log_recent_closed_size.unwrap_or(RECENT_CLOSED).as_u64();
        let how = self.log_recent_closed;
        LogPolicies {
            recent_closed: (how != LogRecentClosed::None).then_some((how, size)),
            pipeline: self.log_writer_threads.then(|| PipelineSettings {
                sync_each_write: self.commit_durability() == Durability::Commit,
                spin: SpinSettings {
                    how: self.log_spin.unwrap_or_default(),
                    cpu_abs_lwm: self.log_spin_cpu_abs_lwm.unwrap_or(SPIN_CPU_ABS_LWM),
                    cpu_pct_hwm: self.log_spin_cpu_pct_hwm.unwrap_or(SPIN_CPU_PCT_HWM),
                },
            }),
        }
    }
}

/// Mistakes in the options of the log's policies: values out of range, and combinations that conflict.
pub(crate) fn mistakes_in_the_log(options: &Options, tracking: DirtyTracking) -> Vec<String> {
    let mut mistakes = Vec::new();
    let has_window = options.log_recent_closed != LogRecentClosed::None;
    if has_window && tracking == DirtyTracking::Scan {
        mistakes.push("log_recent_closed is not none, and dirty pages are found by a scan, which has no order to keep: use dirty_tracking flush_list, or leave it out".to_owned());
    }
    if let Some(wanted) = options.log_recent_closed_size {
        let size = size_text(wanted);
        if !has_window {
            mistakes.push(format!("log_recent_closed_size is {size}, and log_recent_closed is none: leave it out, or use poll, wake or wake_if_unset"));
        } else if !(RECENT_CLOSED_MIN..=RECENT_CLOSED_MAX).contains(&wanted) {
            let (least, most) = (size_text(RECENT_CLOSED_MIN), size_text(RECENT_CLOSED_MAX));
            mistakes.push(format!("log_recent_closed_size is {size}: use {least} to {most}"));
        }
    }
    let spins = [
        ("log_spin_cpu_abs_lwm", options.log_spin_cpu_abs_lwm, SPIN_CPU_ABS_MAX),
        ("log_spin_cpu_pct_hwm", options.log_spin_cpu_pct_hwm, SPIN_CPU_PCT_MAX),
    ];
    for (name, value, most) in spins.into_iter().filter_map(|(name, value, most)| Some((name, value?, most))) {
        if !options.log_writer_threads {
            mistakes
                .push(format!("{name} is {value}, and log_writer_threads is false, so no thread spins: leave it out"));
        } else if value > most {
            mistakes.push(format!("{name} is {value}: use 0 to {most}"));
        }
    }
    if !options.log_writer_threads && options.log_spin.is_some() {
        mistakes
            .push("log_spin is given, and log_writer_threads is false, so no thread spins: leave it out".to_owned());
    }
    if let Some(when) = options.flush_log_at_commit {
        if when > 2 {
            mistakes.push(format!("flush_log_at_commit is {when}: use 1, 2 or 0"));
        }
        if options.durability != Durability::Commit {
            mistakes.push("flush_log_at_commit and durability set the same in two ways: leave one out".to_owned());
        }
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageStoreKind;

    #[test]
    fn what_does_not_go_together_is_refused_with_the_reason() {
        let new = Options::new;
        let threads = || new().log_writer_threads(true);
        let window = || new().dirty_tracking(DirtyTracking::FlushList).log_recent_closed(LogRecentClosed::Poll);
        for (options, reason) in [
            (new().log_recent_closed(LogRecentClosed::Wake), "dirty pages are found by a scan"),
            (new().log_recent_closed_size(ByteSize::kib(16)), "log_recent_closed is none"),
            (window().log_recent_closed_size(ByteSize::kib(3)), "log_recent_closed_size is 3KiB: use 4KiB"),
            (new().log_spin(LogSpin::Never), "log_spin is given, and log_writer_threads is false"),
            (new().log_spin_cpu_abs_lwm(80), "log_spin_cpu_abs_lwm is 80, and log_writer_threads is false"),
            (threads().log_spin_cpu_pct_hwm(101), "log_spin_cpu_pct_hwm is 101: use 0 to 100"),
            (new().flush_log_at_commit(3), "flush_log_at_commit is 3: use 1, 2 or 0"),
            (new().flush_log_at_commit(0).durability(Durability::None), "in two ways"),
        ] {
            let error = options.validate(16384, PageStoreKind::InPlace).expect_err(reason).to_string();
            assert!(error.contains(reason), "{reason} in: {error}");
        }
        for options in [
            window().log_recent_closed_size(ByteSize::kib(16)),
            threads().flush_log_at_commit(2).log_spin(LogSpin::Affinity).log_spin_cpu_abs_lwm(0),
            new().flush_log_at_commit(0),
            new().flush_log_at_commit(2),
            new().durability(Durability::Written),
        ] {
            options.validate(16384, PageStoreKind::InPlace).expect("these go together");
        }
    }

    #[test]
    fn commits_wait_as_innodb_has_it() {
        let of = |when| Options::new().flush_log_at_commit(when).commit_durability();
        assert_eq!([1, 2, 0].map(of), [Durability::Commit, Durability::Written, Durability::Background(1_000)]);
        assert_eq!(Options::new().durability(Durability::None).commit_durability(), Durability::None);
    }
}
