//! Options that may change while the database is in use.
//!
//! Pool size, log capacity and recovery time have methods of their own. Every other option is a number or a choice
//! that threads load, relaxed, at each use: a change takes effect at the next load, and no thread waits for it.

use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;

use crate::api::database::Db;
use crate::background::threads::Threads;
use crate::background::{log_resize, lru_managers, page_cleaners};
use crate::base::aligned::{to_u64, to_usize};
use crate::base::error::Error;
use crate::engine::{CheckpointGoal, Engine};
use crate::io::batch::IoEngine;
use crate::open::fixed_options::page_store_of;
use crate::options::durability::Durability;
use crate::options::mistakes::{validate_idle_timeout, validate_recovery_time, validate_snapshot_age};
use crate::options::table::OptionInfo;
use crate::options::{ClassicOptions, FRAMES_MIN, Options, PageStoreKind, bytes};
use crate::pace::classic_flushing::AdaptiveFlushingMethod;
use crate::pool::lru_manager::AdaptiveSleep;
use crate::pool::options::EmptyFreeListAlgorithm;
use crate::redo::recent_closed::LogRecentClosed;

impl Db {
    /// Changes the log's capacity, from 128 pages to 1 TiB, while the database is in use: makes new files filled with
    /// zeros, then switches the log to them. The log grows no further than that later.
    ///
    /// Waits on `checkpoint`: first for a change that is under way, such as one to the capacity
    /// [given at open](crate::Options::redo_capacity); then until all pages that are dirty by then are written. Under a
    /// load that the device can just bear, this takes many times as long as the writes alone. Writers go on meanwhile;
    /// with a smaller log they may be slowed down.
    ///
    /// The log reserves 48 bytes for each page of the buffer pool. Its capacity must be at least four times the
    /// reserve.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: too small for the pool or for the log's buffers, or too large.
    /// [`Error::OutOfSpace`]: the new files do not fit; the old ones stay. [`Error::Closed`]: the database was closed
    /// meanwhile. [`Error::ReadOnly`] when the engine has stopped.
    pub fn set_redo_capacity(&self, capacity: ByteSize) -> Result<(), Error> {
        log_resize::set_capacity(self.here()?, capacity)
    }

    /// Changes an option while the database is in use. Takes the option's name, and its value as text, as
    /// [`OptionInfo`] lists them; only options that change `online`. The change holds until the database is closed.
    /// [`durability`](Options::durability) and [`flush_log_at_commit`](ClassicOptions::flush_log_at_commit) set the
    /// same: the last call counts.
    ///
    /// Waits for nothing, except as [`set_redo_capacity`](Self::set_redo_capacity) and
    /// [`set_buffer_pool_size`](Self::set_buffer_pool_size) do for their options. Operations under way may still use
    /// the old value. A commit under way keeps the durability that it was promised.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: there is no such option, it is fixed, or the value is invalid or conflicts with other
    /// options. The error says what to do; nothing has changed. [`Error::Closed`]: the database was closed.
    /// [`Error::DeviceFailed`] and the like: a thread that is needed cannot be started. Also the errors of the two
    /// methods above.
    ///
    /// # Example
    /// ```
    /// # fn main() -> Result<(), millpond::Error> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let options = millpond::Options::new().profile(millpond::classic::Profile::Mysql56);
    /// let db = millpond::Db::open(dir.path(), options)?;
    /// db.set_option("io_capacity_max", "8000")?;
    /// db.set_option("io_capacity", "4000")?;
    /// db.set_option("empty_free_list_algorithm", "backoff")?;
    /// assert!(db.set_option("empty_free_list_algorithm", "handoff").is_err());
    /// # db.close()
    /// # }
    /// ```
    pub fn set_option(&self, name: &str, value: &str) -> Result<(), Error> {
        self.here()?.check_open()?;
        let Some(info) = OptionInfo::find(name) else {
            let message = format!("there is no option '{name}': OptionInfo::ALL and 'millpond options' list them");
            return Err(Error::InvalidOptions(message.into()));
        };
        let refuse = |why: &str| Error::InvalidOptions(format!("{name}={value} is refused: {why}").into());
        match info.changes {
            "online" => {}
            "creation" => {
                let why = format!("{name} is fixed at creation: create another database with {name}={value}");
                return Err(refuse(&why));
            }
            _ => return Err(refuse(&format!("{name} is fixed at open: reopen the database with {name}={value}"))),
        }
        let parse = |options: Options| info.set(options, value).map_err(|why| refuse(&why));
        match name {
            "buffer_pool_size" => self.set_buffer_pool_size(parse(Options::new())?.buffer_pool_size),
            "redo_capacity" => match parse(Options::new())?.redo_capacity {
                Some(capacity) => self.set_redo_capacity(capacity),
                None => Ok(()),
            },
            "max_snapshot_age" => self.set_max_snapshot_age(parse(Options::new())?.max_snapshot_age),
            "idle_transaction_timeout" => {
                self.set_idle_transaction_timeout(parse(Options::new())?.idle_transaction_timeout)
            }
            "recovery_time_target" => self.set_recovery_time_target(parse(Options::new())?.recovery_time_target),
            _ => {
                let mut kept = self.kept_options().lock();
                let mut wanted = parse(kept.clone())?.settled();
                match name {
                    "durability" => wanted.classic.flush_log_at_commit = None,
                    "flush_log_at_commit" => wanted.durability = Durability::Commit,
                    _ => {}
                }
                self.check_together(&kept, &wanted, name, value).map_err(|why| refuse(&why))?;
                self.change_threads(|threads| self.engine().put_in_force(&wanted, threads))?;
                *kept = wanted;
                Ok(())
            }
        }
    }

    /// Refuses options that need structures which the engine was not opened with, and options that an open refuses.
    fn check_together(&self, has: &Options, wanted: &Options, name: &str, value: &str) -> Result<(), String> {
        if let Some(reason) = other_structures(has, wanted) {
            return Err(format!("{reason}: reopen the database with {name}={value}"));
        }
        let wanted = self.filled_in(wanted);
        // If the number of instances follows from the pool's size, the size at open counts.
        let wanted = wanted.classic(|of| of.buffer_pool_instances(self.engine().core.pool.instance_count()));
        let kind = wanted.page_store.unwrap_or(PageStoreKind::CopyOnWrite);
        wanted.validate(self.page_size(), kind).map_err(|error| match error {
            Error::InvalidOptions(mistakes) => mistakes.to_string(),
            other => other.to_string(),
        })
    }

    fn page_size(&self) -> u64 {
        to_u64(self.engine().core.store.page_size())
    }

    /// The options in force: those given at open, with all changes since; for the rest the values that the database
    /// keeps, or defaults. In a forked child the defaults.
    pub fn options(&self) -> Options {
        if self.here().is_err() {
            return Options::new();
        }
        let kept = self.kept_options().lock().clone();
        self.filled_in(&kept)
    }

    /// `options`, with the engine's actual values where it knows them.
    fn filled_in(&self, options: &Options) -> Options {
        let engine = self.engine();
        let size = |frames: u64| ByteSize::b(frames * self.page_size());
        let kind = page_store_of(&engine.core.store.superblock());
        let (log, switch) = engine.core.log.geometry();
        let io_engine = match self.io_engine() {
            "io_uring" => IoEngine::IoUring,
            "threads" => IoEngine::Threads,
            _ => options.io_engine,
        };
        Options {
            page_size: Some(size(1)),
            page_store: Some(kind),
            buffer_pool_size: size(to_u64(engine.core.pool.len())),
            buffer_pool_size_max: Some(size(engine.frames_max)),
            redo_capacity: Some(ByteSize::b(
                switch.map_or(log, |switch| switch.to).capacity().max(engine.redo_change.most()),
            )),
            recovery_time_target: engine.recovery_time.target(),
            max_snapshot_age: engine.txns.snapshots.max_age(),
            idle_transaction_timeout: engine.open_txns.idle_timeout(),
            io_engine,
            classic: ClassicOptions {
                doublewrite: Some(options.doublewrite_of(kind)),
                buffer_pool_instances: Some(engine.core.pool.instance_count()),
                ..options.classic.clone()
            },
            ..options.clone()
        }
    }

    /// Sets the time that a recovery may take, about: 1 s to an hour. `None`: only the log's capacity limits it
    /// ([`Options::recovery_time_target`](crate::Options::recovery_time_target)). Waits for nothing: the log shrinks
    /// gradually, by half in 7 seconds while pages are written in time, in 40 seconds while they are not.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: too short or too long. [`Error::ReadOnly`] when the engine has stopped.
    pub fn set_recovery_time_target(&self, target: Option<Duration>) -> Result<(), Error> {
        let engine = self.here()?;
        engine.check_open()?;
        target.map_or(Ok(()), validate_recovery_time).map_err(|mistake| Error::InvalidOptions(mistake.into()))?;
        engine.recovery_time.set(target);
        Ok(())
    }

    /// Sets the age at which a snapshot ends: 1 s to a day. `None`: none ends by itself
    /// ([`Options::max_snapshot_age`](crate::Options::max_snapshot_age)). Waits for nothing: snapshots that are older
    /// end within a tenth of a second, unless the device stands still.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: too short or too long. [`Error::ReadOnly`] when the engine has stopped.
    pub fn set_max_snapshot_age(&self, age: Option<Duration>) -> Result<(), Error> {
        let engine = self.here()?;
        engine.check_open()?;
        age.map_or(Ok(()), validate_snapshot_age).map_err(|mistake| Error::InvalidOptions(mistake.into()))?;
        engine.txns.snapshots.set_max_age(age);
        Ok(())
    }

    /// Sets the time after which a transaction with locks is rolled back if no call on it is made: 1 s to a day.
    /// `None`: never ([`Options::idle_transaction_timeout`](crate::Options::idle_transaction_timeout)). Waits for
    /// nothing.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: too short or too long. [`Error::Closed`] when the database was closed.
    pub fn set_idle_transaction_timeout(&self, timeout: Option<Duration>) -> Result<(), Error> {
        let engine = self.here()?;
        engine.check_open()?;
        timeout.map_or(Ok(()), validate_idle_timeout).map_err(|mistake| Error::InvalidOptions(mistake.into()))?;
        engine.open_txns.set_idle_timeout(timeout);
        Ok(())
    }

    /// Changes the buffer pool's size, from 32 pages for each instance to
    /// [`buffer_pool_size_max`](crate::Options::buffer_pool_size_max), while the database is in use. Waits on
    /// `checkpoint`.
    ///
    /// A larger pool is complete on return. For a smaller one, the pages in frames beyond the new end are written and
    /// evicted; those in use at that moment a little later.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: too small or too large. [`Error::DeviceFailed`]: the system has no memory to map.
    /// [`Error::ReadOnly`] when the engine has stopped.
    pub fn set_buffer_pool_size(&self, size: ByteSize) -> Result<(), Error> {
        let engine = self.here()?;
        engine.check_open()?;
        let page_size = to_u64(engine.core.store.page_size());
        let frames = size.as_u64() / page_size;
        let least = FRAMES_MIN * to_u64(engine.core.pool.instance_count());
        if !(least..=engine.frames_max).contains(&frames) {
            let message = format!(
                "buffer_pool_size is {}: use {} ({least} pages) to {} (buffer_pool_size_max) while the database is open",
                bytes(size.as_u64()),
                bytes(least * page_size),
                bytes(engine.frames_max * page_size)
            );
            return Err(Error::InvalidOptions(message.into()));
        }
        // The caller maps the memory, not the keeper: without memory only this call fails.
        engine.core.pool.make_frames(to_usize(frames))?;
        engine.checkpoint_wait(CheckpointGoal::Pool(frames))
    }
}

impl Engine {
    /// Puts those of `options` in force that can change online. First starts the threads that they need.
    fn put_in_force(self: &Arc<Self>, options: &Options, threads: &mut Threads) -> Result<(), Error> {
        if options.classic.empty_free_list_algorithm == EmptyFreeListAlgorithm::Backoff {
            lru_managers::start(threads, self, AdaptiveSleep::awake())?;
        }
        if options.classic.adaptive_flushing_method == AdaptiveFlushingMethod::Adaptive {
            page_cleaners::start_others(threads, self)?;
        }
        self.in_force.set(options);
        self.waits.set_stall_threshold(options.stall_threshold);
        self.core.log.set_policies(options.log_policies());
        self.core.pool.set_freeing(options.freeing());
        if let Some(classic) = &self.classic_flushing {
            classic.set(options.classic.adaptive_flushing_method, options.settings(), options.classic.flush_neighbors);
        }
        threads.look_again();
        Ok(())
    }
}

/// Why an engine opened with `has` cannot change to `wanted`: they need different structures.
fn other_structures(has: &Options, wanted: &Options) -> Option<&'static str> {
    let is_handoff = |of: &Options| of.classic.empty_free_list_algorithm == EmptyFreeListAlgorithm::Handoff;
    let is_envelope = |of: &Options| of.classic.adaptive_flushing_method == AdaptiveFlushingMethod::Envelope;
    let has_window = |of: &Options| of.classic.log_recent_closed != LogRecentClosed::None;
    if is_handoff(has) != is_handoff(wanted) {
        return Some(
            "the hand-off has one line for free frames, which the keeper refills; legacy and backoff have a free list for each instance, with threads of their own; a pool is made for the one or the other at open",
        );
    }
    if is_envelope(has) != is_envelope(wanted) {
        return Some(
            "with envelope the keeper cleans pages, with the other methods page cleaners do, and the choice of the two is settled at open",
        );
    }
    (has_window(has) != has_window(wanted)).then_some("whether the log has a window with a closer is settled at open")
}
