//! The common parts of the classic page cleaners, which decide how many dirty pages to write. Each method has its own
//! file: [`sync_only`](super::sync_only), [`adaptive`](super::adaptive), [`keep_average`](super::keep_average). They
//! rely on the clock and on options that describe the device. The default, an [`envelope`](super::envelope), uses
//! neither.

/// How the engine decides how many dirty pages to write, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AdaptiveFlushingMethod {
    /// The smallest rate that cleans all pages in time, on a device whose speed the engine measures. Writers are slowed
    /// down by the part that the device cannot do. No point exists at which all writers wait.
    #[default]
    Envelope,
    /// InnoDB's since MySQL 5.7, and nearly that of 5.6: once a second, a percentage of `io_capacity` that follows from
    /// the used part of the log and the dirty part of the pool.
    Adaptive,
    /// Percona Server's of 5.5, for fast devices: ten times a second, in proportion to the growth of the log.
    KeepAverage,
    /// InnoDB's of 5.5 without heuristics: no writes until too much of the pool is dirty. At three quarters of the log
    /// all writers wait while the oldest pages are written.
    SyncOnly,
}

/// How steeply the number of pages grows with the log's age, in [`AdaptiveFlushingMethod::Adaptive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CleanerLsnAgeFactor {
    /// With the 1.5th power: MySQL's.
    #[default]
    Legacy,
    /// With the 2.5th power: fewer pages while the log has much room, more while it has little. Percona Server's
    /// default.
    HighCheckpoint,
}

/// The operator's description of the device, and wishes for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Pages a second for background writes.
    pub(crate) io_capacity: usize,
    /// Pages a second at most, under pressure.
    pub(crate) io_capacity_max: usize,
    /// Percentage of the pool that may be dirty.
    pub(crate) max_dirty_pages_pct: usize,
    /// Percentage of dirty pages from which on some are written; 0: none before the maximum.
    pub(crate) max_dirty_pages_pct_lwm: usize,
    pub(crate) cleaner_lsn_age_factor: CleanerLsnAgeFactor,
}

impl Settings {
    /// InnoDB's defaults.
    #[cfg(test)]
    pub(crate) const INNODB: Settings = Settings {
        io_capacity: 200,
        io_capacity_max: 2_000,
        max_dirty_pages_pct: 75,
        max_dirty_pages_pct_lwm: 0,
        cleaner_lsn_age_factor: CleanerLsnAgeFactor::Legacy,
    };
}

/// A cleaner's view at the begin of its turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) now_ns: u64,
    /// LSN of the log's end.
    pub(crate) lsn: u64,
    /// LSN of the oldest change that is only in a frame; `lsn` if there is none.
    pub(crate) oldest: u64,
    /// Bytes that the log may hold.
    pub(crate) log_bytes: u64,
    /// Dirty pages and frames, in number.
    pub(crate) dirty: u64,
    pub(crate) frames: u64,
    /// Pages written since the engine began, for any reason.
    pub(crate) written: u64,
}

impl Seen {
    /// Bytes of log since the oldest change.
    pub(super) fn age(&self) -> u64 {
        self.lsn.saturating_sub(self.oldest)
    }

    /// Whether more of the pool is dirty than `max_dirty_pages_pct`.
    pub(super) fn is_too_dirty(&self, settings: &Settings) -> bool {
        u128::from(self.dirty) * 100 > u128::from(self.frames) * settings.max_dirty_pages_pct as u128
    }
}

/// A method.
pub(crate) trait Flushing: Send {
    /// Milliseconds between two turns.
    fn interval_ms(&self) -> u64 {
        1_000
    }

    /// Number of pages to write in this turn. `dirtied_before` counts the pages dirtied before an LSN.
    fn pages(&mut self, seen: &Seen, settings: &Settings, dirtied_before: &dyn Fn(u64) -> usize) -> usize;
}
