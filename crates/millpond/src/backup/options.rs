//! How a backup, a restoration or a check of an open database goes on, how far it is, and what a backup has.

use std::ops::ControlFlow;

use bytesize::ByteSize;

use crate::base::error::Error;
use crate::base::ids::CommitTs;

/// The rate of a backup of a database whose device was not measured yet.
const DEFAULT_RATE: u64 = 128 << 20;

/// The lowest rate.
const RATE_MIN: u64 = 1 << 20;

/// The function that is told of progress.
type Told = Box<dyn FnMut(WorkProgress) -> ControlFlow<()> + Send>;

/// How work on a whole database goes on: a backup, its restoration, a check beside the load, or a compaction.
#[derive(Default)]
pub struct WorkOptions {
    rate: Option<ByteSize>,
    told: Option<Told>,
}

/// The progress of work on a whole database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkProgress {
    /// Bytes that were looked at; for a compaction, those that need not move any more.
    pub done: u64,
    /// Bytes of the data file; for a check also those of the trees, which it reads once more row by row.
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

impl WorkOptions {
    /// The defaults.
    pub fn new() -> WorkOptions {
        WorkOptions::default()
    }

    /// Bytes read, or moved, a second at most; at least 1 MiB. Backups and checks go slower, down to a 128th of that
    /// or 4 MiB, while syncs of the log take longer beside them. A backup copies the log first, and does not go slower
    /// where writers would soon need that log's room. Default: half of the rate at which the engine has measured that
    /// the device writes pages, or 128 MiB before it has.
    #[must_use]
    pub fn rate(mut self, per_s: ByteSize) -> WorkOptions {
        self.rate = Some(per_s);
        self
    }

    /// Calls `told` for each 512 KiB of the log, where nothing of the data file is done yet, and of the data file;
    /// while the work waits, up to a thousand times a second. If it breaks, the work ends with [`Error::Cancelled`].
    #[must_use]
    pub fn progress(mut self, told: impl FnMut(WorkProgress) -> ControlFlow<()> + Send + 'static) -> WorkOptions {
        self.told = Some(Box::new(told));
        self
    }

    pub(crate) fn tell(&mut self, done: u64, total: u64) -> Result<(), Error> {
        match self.told.as_mut().map(|told| told(WorkProgress { done, total })) {
            Some(ControlFlow::Break(())) => Err(Error::Cancelled("given up, as the caller asked".into())),
            _ => Ok(()),
        }
    }
}

impl WorkOptions {
    /// Bytes a second, for a device that was measured to write so many.
    pub(crate) fn rate_on(&self, measured: u64) -> u64 {
        let half = Some(measured / 2).filter(|rate| *rate > 0).unwrap_or(DEFAULT_RATE);
        self.rate.map_or(half, |rate| rate.as_u64()).max(RATE_MIN)
    }
}

impl std::fmt::Debug for WorkOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkOptions").field("rate", &self.rate).finish_non_exhaustive()
    }
}
