//! Opening, the catalog, closing.

use std::path::Path;
use std::sync::Arc;

use crate::background::threads::Threads;
use crate::backup::copy::{back_up, back_up_to};
use crate::backup::options::{BackupReport, WorkOptions};
use crate::base::error::{Error, closed};
use crate::base::ids::CommitTs;
use crate::base::stall::Stall;
use crate::base::sync::Mutex;
use crate::base::waits::WaitSummary;
use crate::check::beside_load::check_beside_load;
use crate::check::report::CheckReport;
use crate::engine::tree_state::TreeState;
use crate::engine::{CheckpointGoal, Engine};
use crate::io::device::Files;
use crate::io::directory::Directory;
use crate::io::slow::SlowFiles;
use crate::io::speed::Speed;
use crate::observe::stats::Stats;
use crate::observe::status::About;
use crate::open::compact::{CompactReport, compact};
use crate::open::entry::{open_in, open_on};
use crate::open::running::{Opened, Running};
use crate::options::Options;
use crate::write::batch::{Place, WriteBatch};
use crate::write::rows::write_rows;
use crate::write::write;

/// An open database. Clones are handles of the same database; dropping the last one closes it.
///
/// # Processes and threads
/// Any number of threads may use a database. It belongs to the process that opened it. In a forked child each call
/// fails with [`Error::OtherProcess`]; calls that only observe, such as [`stats`](Self::stats), return nothing;
/// dropping a handle does nothing. So a daemon opens its database after its last `fork`. The check costs one load per
/// operation.
///
/// A living child keeps the directory locked after the opener was killed, but not after the opener closed the database.
/// `exec` closes all files of the database.
#[derive(Clone)]
pub struct Db {
    inner: Arc<Running>,
}

impl Drop for Db {
    fn drop(&mut self) {
        if !self.inner.engine.home.is_here() {
            // A forked child never drops `Running`: threads, sockets and the lock belong to the opener, and a thread
            // that the child does not have may hold a mutex. The memory goes with the child.
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}

impl Db {
    fn of(running: Running) -> Db {
        Db { inner: Arc::new(running) }
    }

    /// Opens the database in directory `path`; creates it if there is none and the options allow it.
    ///
    /// After a crash, `open` recovers all durable commits before it returns. Its time then depends on the log
    /// written since the last checkpoint. A database that was closed opens at once. If the log is to be larger than
    /// 256 MiB and than the pool needs, a thread makes its files while the database is in use
    /// ([`Options::redo_capacity`]).
    ///
    /// # Errors
    /// * [`Error::InvalidOptions`]: all mistakes in the options, in one message.
    /// * [`Error::Format`]: the directory holds no database, or one of another format version.
    /// * [`Error::InUse`]: another process, or another `Db` of this process, has the database open.
    /// * [`Error::Corruption`]: data that was written is missing or damaged.
    /// * [`Error::OutOfSpace`], [`Error::Permission`], [`Error::LimitReached`], [`Error::DeviceFailed`]: the system
    ///   refuses something.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db, Error> {
        Ok(Db::of(open_in(path.as_ref(), options, |directory| directory)?))
    }

    /// Opens the database in directory `path` like [`open`](Self::open), and simulates that all its files are on one
    /// device of `speed`, whose clock starts now. Writes and syncs share one queue; reads do not queue. For experiments
    /// with a device that is not at hand, or that is slow for a while.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_slowed(path: impl AsRef<Path>, options: Options, speed: Speed) -> Result<Db, Error> {
        let slowed = |directory: Arc<Directory>| -> Arc<dyn Files> { Arc::new(SlowFiles::new(directory, speed)) };
        Ok(Db::of(open_in(path.as_ref(), options, slowed)?))
    }

    /// Opens the database on any implementation of [`Files`], above all a simulated disk. The caller makes sure that
    /// no other `Db` or process has these files open.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(files: Arc<dyn Files>, options: Options) -> Result<Db, Error> {
        Ok(Db::of(open_on(files, options)?))
    }

    /// Writes a batch, all of it or nothing. The batch's [`Durability`](crate::Durability), or else the database's,
    /// says when the batch is durable.
    ///
    /// Returns the batch's [`CommitTs`]: a snapshot of it or a later one sees the batch. A batch that changed nothing
    /// returns one from which on a snapshot sees what the batch saw.
    ///
    /// May wait on `log_space`, `admission`, `free_frame`, `page_read`, `page_latch` and `lane`; on `file_growth` when
    /// it needs new pages; on `row_lock` for rows of a transaction or a batch of several groups; on `metadata` while
    /// another thread creates, drops or truncates a tree, a table or an index; and, with nothing held, on `log_flush`.
    ///
    /// # Errors
    /// * [`Error::Conflict`], [`Error::KeyExists`], [`Error::KeyNotFound`]: a precondition does not hold.
    /// * [`Error::LockTimeout`]: a transaction that has not ended has kept its lock on a row for 50 s.
    /// * [`Error::KeyTooLong`], [`Error::ValueTooLong`]; for tables also [`Error::RowTooShort`].
    /// * [`Error::TreeNotFound`]: a tree or a table was dropped. [`Error::Closed`]: the database was closed.
    /// * [`Error::InvalidOptions`]: the batch's durability is out of range.
    /// * [`Error::OutOfSpace`]: new pages are needed, and the file system is full.
    /// * [`Error::NotUndone`]: a failed batch, which cannot be rolled back at present, holds a lock on a row.
    /// * [`Error::Corruption`]: a page differs from what was written, or an index does not agree with its table.
    /// * [`Error::DeviceFailed`]: a page could not be read, or the log not written; then the batch may or may not
    ///   survive: reopen, then look.
    /// * [`Error::ReadOnly`]: the engine stopped writing earlier.
    /// * [`Error::OtherProcess`]: this process is a fork of the one that opened the database.
    ///
    /// After any error but `DeviceFailed` and `ReadOnly` nothing has changed.
    pub fn write(&self, batch: WriteBatch) -> Result<CommitTs, Error> {
        let engine = self.here()?;
        let (mut ops, mut has_tables) = (Vec::with_capacity(batch.len()), false);
        for (place, op) in batch.ops() {
            if !self.owns(op.tree) {
                let message = format!("{} in the batch is of another database: use a handle from this one", op.tree);
                return Err(Error::TreeNotFound(message.into()));
            }
            has_tables |= matches!(place, Place::Table(_));
            ops.push(op);
        }
        let durability = batch.durability.unwrap_or_else(|| engine.in_force.durability());
        durability.validate().map_err(|mistake| Error::InvalidOptions(mistake.into()))?;
        if has_tables {
            return write_rows(engine, &batch, durability).map(|done| done.end.into());
        }
        write(engine, &mut ops, durability).map(|done| done.end.into())
    }

    fn owns(&self, tree: &TreeState) -> bool {
        tree.database == Arc::as_ptr(&self.inner.engine).addr()
    }

    /// Has all pages written that are dirty now, then a checkpoint taken. Recovery from a crash right afterwards redoes
    /// only what is written meanwhile.
    ///
    /// Waits on `checkpoint` until the device has written these pages. Writes that free frames or log space go first:
    /// under a load that the device can just bear, the call takes many times as long. No other thread waits for it.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the engine has stopped.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let engine = self.here()?;
        engine.check_changeable()?;
        engine.checkpoint_wait(CheckpointGoal::All)
    }

    /// Backs the database up to directory `to`, which is new or empty, while writers go on. The backup is consistent at
    /// one LSN: it has every commit up to [`BackupReport::commit_ts`], and no later one; of transactions in flight it
    /// has nothing. [`restore`](crate::restore) makes a database of it. Everything is durable on return. An error, or a
    /// crash in between, leaves nothing that passes for a backup.
    ///
    /// Takes the bytes of the data file in reads, at [`WorkOptions::rate`], and as many writes in `to`, without the
    /// free room. Each image is verified. Pages that are written meanwhile get other slots, so the data file may grow
    /// by as much as is written before its images are copied; the room is free again afterwards. No writer waits for a
    /// backup: where the file system has no such room, the backup gives up.
    ///
    /// Waits on `checkpoint` for the keeper's next step, and on `log_flush`.
    ///
    /// # Errors
    /// * [`Error::InvalidOptions`]: `to` is not empty.
    /// * [`Error::InUse`]: another backup is being made, or the log's capacity changed.
    /// * [`Error::OutOfSpace`]: either file system is full, or writers needed the log's room before it was copied.
    /// * [`Error::Corruption`]: an image is damaged; the message names the page.
    /// * [`Error::Cancelled`]: the function of [`WorkOptions::progress`] broke.
    /// * [`Error::ReadOnly`]: the database was opened read-only, or the engine has stopped. [`Error::Closed`].
    /// * Others of the system, for `to`: [`Error::Permission`], [`Error::DeviceFailed`], [`Error::Format`].
    pub fn backup(&self, to: impl AsRef<Path>, options: WorkOptions) -> Result<BackupReport, Error> {
        back_up_to(self.here()?, to.as_ref(), options)
    }

    /// As [`backup`](Self::backup), to files of any kind.
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    pub fn backup_on(&self, files: &dyn Files, options: WorkOptions) -> Result<BackupReport, Error> {
        back_up(self.here()?, files, options)
    }

    /// Checks the database while writers go on: the image of every page in the data file, every row, and every index
    /// entry against its row. The images are those of one moment, and the rows of each tree those of one snapshot.
    /// [`inspect::check`](crate::inspect::check) of a closed database looks at more: at the pages' structure, the map,
    /// the log, long values that no row has, and free slots.
    ///
    /// Reads the data file once at [`WorkOptions::rate`], and all trees once more through the buffer pool, at the same
    /// rate of rows' bytes. Until the images are read, pages that are written get other slots, as beside a
    /// [`backup`](Self::backup), and no backup can begin. No writer waits for a check.
    ///
    /// # Errors
    /// * [`Error::InUse`]: a backup is being made, or another check; or the log's capacity changed.
    /// * [`Error::SnapshotTooOld`]: a tree takes longer than [`max_snapshot_age`](Options::max_snapshot_age).
    /// * [`Error::OutOfSpace`]: writers needed room, and the data file could not grow.
    /// * [`Error::Cancelled`]: the function of [`WorkOptions::progress`] broke.
    /// * [`Error::ReadOnly`]: the database was opened read-only, or the engine has stopped. [`Error::Closed`].
    ///
    /// Damage is no error, but a problem in the report.
    pub fn check(&self, options: WorkOptions) -> Result<CheckReport, Error> {
        check_beside_load(self.here()?, options)
    }

    /// Makes the data file short while writers go on. The pages at its end are moved to free room before them, and the
    /// end goes back to the file system. About an eighth of the pages' room stays free. The new length is durable on
    /// return. A crash in between loses nothing, and may leave the file longer.
    ///
    /// The keeper reads and writes the pages at the file's end once, at [`WorkOptions::rate`]. It pauses while frames
    /// or the log need the device. Writers that need the file to grow wait for one cut, of at most 64 MiB. A writer
    /// takes room at the end if it finds no other, and the file stays longer then. The room of deleted rows counts when
    /// purge and merges have given their pages back. The file grows again as pages are added.
    ///
    /// Without this call the file becomes shorter when more room is free than used, at a fourth of the device's rate.
    ///
    /// Waits on `checkpoint` at its end.
    ///
    /// # Errors
    /// * [`Error::InUse`]: a backup or a check is under way, or another compaction. One that begins later holds this
    ///   call up until its end.
    /// * [`Error::Cancelled`]: the function of [`WorkOptions::progress`] broke. The file may be shorter.
    /// * [`Error::DeviceFailed`]: the file could not be cut.
    /// * [`Error::ReadOnly`]: the database was opened read-only, or the engine has stopped. [`Error::Closed`].
    pub fn compact(&self, options: WorkOptions) -> Result<CompactReport, Error> {
        compact(self.here()?, options)
    }

    /// The engine's gauges and counters. In a forked child all are zero.
    pub fn stats(&self) -> Stats {
        self.here().map_or_else(|_| Stats::default(), |engine| engine.stats())
    }

    /// The way in which several transfers run at once: `io_uring`, `threads`, or, on devices other than real files,
    /// `one by one`.
    pub fn io_engine(&self) -> &'static str {
        self.inner.about.io_engine
    }

    /// The waits of operations so far, by class. Waits of the engine's own threads are not included.
    pub fn waits(&self) -> Vec<WaitSummary> {
        self.here().map_or_else(|_| Vec::new(), |engine| engine.waits.summary())
    }

    /// The last 256 operations that took the [stall threshold](Options::stall_threshold) or longer, oldest first, each
    /// with where its time went.
    pub fn stalls(&self) -> Vec<Stall> {
        self.here().map_or_else(|_| Vec::new(), |engine| engine.with_trees(engine.waits.stalls().1))
    }

    /// Closes the database: takes a last checkpoint, then closes the files. Other handles get [`Error::Closed`] from
    /// now on.
    ///
    /// On return another process may open the directory, even if forked children of this process live on, or handles of
    /// trees or bulk loads remain.
    ///
    /// # Errors
    /// * [`Error::ReadOnly`]: the engine had stopped earlier. Acknowledged commits are safe all the same: `close`
    ///   writes and syncs the log buffer. Only if the log's own files fail, the last commits that were acknowledged
    ///   before they were durable may be lost. The error then names that part of the log.
    /// * [`Error::OtherProcess`]: in a forked child; the opener's database stays open.
    pub fn close(self) -> Result<(), Error> {
        self.here()?;
        self.inner.shut_down()
    }

    /// The engine, for a call in the process that opened the database; an error in a fork of it.
    pub(crate) fn here(&self) -> Result<&Arc<Engine>, Error> {
        self.inner.engine.home.check()?;
        Ok(&self.inner.engine)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    /// The options given at open, with all changes since.
    pub(crate) fn kept_options(&self) -> &Mutex<Options> {
        &self.inner.about.options
    }

    /// Runs `change` on the background threads. An error if the database was closed.
    pub(crate) fn change_threads(&self, change: impl FnOnce(&mut Threads) -> Result<(), Error>) -> Result<(), Error> {
        self.inner.threads.lock().as_mut().map_or_else(|| Err(closed()), change)
    }

    pub(crate) fn about(&self) -> About {
        self.inner.about.clone()
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.inner.opened
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").finish_non_exhaustive()
    }
}
