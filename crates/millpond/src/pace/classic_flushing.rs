//! How many dirty pages a classic page cleaner writes: what its methods have in common. Each has a file of its own:
//! [`sync_only`](super::sync_only), [`adaptive`](super::adaptive), [`keep_average`](super::keep_average). They go by
//! the clock and by what somebody said of the device; the default, an [`envelope`](super::envelope), by neither.

/// How it is decided how many dirty pages are written, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AdaptiveFlushingMethod {
    /// At the smallest rate that has all pages clean in time, with a device that is measured; writers are slowed down
    /// by what it cannot give. There is no point at which everybody waits.
    #[default]
    Envelope,
    /// InnoDB's since MySQL 5.7, and nearly that of 5.6: once a second, by the part of the log that is taken and the
    /// part of the pool that is dirty, in per cent of `io_capacity`.
    Adaptive,
    /// Percona Server's of 5.5, for fast devices: ten times a second, as much as the log has grown.
    KeepAverage,
    /// InnoDB's of 5.5 without more: nothing before too much of the pool is dirty, and at three quarters of the log
    /// everybody waits while the oldest pages are written.
    SyncOnly,
}

/// How steeply the log's age asks for pages, with [`AdaptiveFlushingMethod::Adaptive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CleanerLsnAgeFactor {
    /// With its 1.5th power: MySQL's.
    #[default]
    Legacy,
    /// With its 2.5th power: less while there is much room, more when there is little. Percona Server's, by default.
    HighCheckpoint,
}

/// What an operator says of the device, and wants of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Pages a second that it may be given in the background.
    pub(crate) io_capacity: usize,
    /// Pages a second when it matters.
    pub(crate) io_capacity_max: usize,
    /// Per cent of the pool that may be dirty.
    pub(crate) max_dirty_pages_pct: usize,
    /// Per cent of it from which on some are written for that; 0: not before there are too many.
    pub(crate) max_dirty_pages_pct_lwm: usize,
    pub(crate) cleaner_lsn_age_factor: CleanerLsnAgeFactor,
}

impl Settings {
    /// What an InnoDB has that was told nothing.
    #[cfg(test)]
    pub(crate) const INNODB: Settings = Settings {
        io_capacity: 200,
        io_capacity_max: 2_000,
        max_dirty_pages_pct: 75,
        max_dirty_pages_pct_lwm: 0,
        cleaner_lsn_age_factor: CleanerLsnAgeFactor::Legacy,
    };
}

/// What a cleaner sees when its turn has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) now_ns: u64,
    /// The end of the log.
    pub(crate) lsn: u64,
    /// The begin of the oldest change that is in a frame only; `lsn`, if there is none.
    pub(crate) oldest: u64,
    /// Bytes that the log may have.
    pub(crate) log_bytes: u64,
    /// Dirty pages, and frames.
    pub(crate) dirty: u64,
    pub(crate) frames: u64,
    /// Pages that were written since the engine began, for whatever reason.
    pub(crate) written: u64,
}

impl Seen {
    /// Bytes of log since the oldest change.
    pub(crate) fn age(&self) -> u64 {
        self.lsn.saturating_sub(self.oldest)
    }

    /// Whether more of the pool is dirty than may be.
    pub(crate) fn is_too_dirty(&self, settings: &Settings) -> bool {
        u128::from(self.dirty) * 100 > u128::from(self.frames) * settings.max_dirty_pages_pct as u128
    }
}

/// A method.
pub(crate) trait Flushing: Send {
    /// Milliseconds from one turn to the next.
    fn interval_ms(&self) -> u64 {
        1_000
    }

    /// Pages that are to be written in this turn; `dirtied_before` tells how many were dirtied before an LSN.
    fn pages(&mut self, seen: &Seen, settings: &Settings, dirtied_before: &dyn Fn(u64) -> usize) -> usize;
}
