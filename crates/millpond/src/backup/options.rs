//! How a backup is made, how far it is, and what it has.

use std::ops::ControlFlow;

use bytesize::ByteSize;

use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::CommitTs;
use crate::store::zones::ZONE_BYTES;

/// The rate of a backup of a database whose device was not measured yet.
const DEFAULT_RATE: u64 = 128 << 20;

/// The lowest rate.
const RATE_MIN: u64 = 1 << 20;

/// The function that is told of progress.
type Told = Box<dyn FnMut(BackupProgress) -> ControlFlow<()> + Send>;

/// How a backup is made.
#[derive(Default)]
pub struct BackupOptions {
    rate: Option<ByteSize>,
    told: Option<Told>,
}

/// The progress of a backup, or of its restoration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Bytes of the data file that were looked at.
    pub done: u64,
    /// Bytes of the data file.
    pub total: u64,
}

/// A backup that was made, or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// The LSN of the backup: it has all that the log had up to here, and nothing later.
    pub lsn: u64,
    /// The last place in the order of commits that is in the backup: all commits up to this one are, and no later ones.
    pub commit_ts: CommitTs,
    /// Pages copied.
    pub pages: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
}

impl BackupOptions {
    /// The defaults.
    pub fn new() -> BackupOptions {
        BackupOptions::default()
    }

    /// Bytes of the data file copied a second, at most; at least 1 MiB. The log is copied first, as fast as it goes.
    /// Default: half of the rate at which the engine has measured that the device writes pages, or 128 MiB before it
    /// has.
    #[must_use]
    pub fn rate(mut self, per_s: ByteSize) -> BackupOptions {
        self.rate = Some(per_s);
        self
    }

    /// Calls `told` after each MiB of the log, where nothing of the data file is done yet, and of the data file. If it
    /// breaks, the work ends with [`Error::Cancelled`].
    #[must_use]
    pub fn progress(mut self, told: impl FnMut(BackupProgress) -> ControlFlow<()> + Send + 'static) -> BackupOptions {
        self.told = Some(Box::new(told));
        self
    }

    pub(super) fn tell(&mut self, done: usize, total: usize) -> Result<(), Error> {
        let progress = BackupProgress { done: to_u64(done * ZONE_BYTES), total: to_u64(total * ZONE_BYTES) };
        match self.told.as_mut().map(|told| told(progress)) {
            Some(ControlFlow::Break(())) => Err(Error::Cancelled("given up, as the caller asked".into())),
            _ => Ok(()),
        }
    }
}

impl BackupOptions {
    /// Bytes a second, for a device that was measured to write so many.
    pub(super) fn rate_on(&self, measured: u64) -> u64 {
        let half = Some(measured / 2).filter(|rate| *rate > 0).unwrap_or(DEFAULT_RATE);
        self.rate.map_or(half, |rate| rate.as_u64()).max(RATE_MIN)
    }
}

impl std::fmt::Debug for BackupOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackupOptions").field("rate", &self.rate).finish_non_exhaustive()
    }
}
