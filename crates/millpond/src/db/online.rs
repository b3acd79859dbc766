//! What may be changed while the database is in use.
//!
//! Pool, log and recoveries have methods of their own. Everything else is a number or a choice that is read, relaxed,
//! where it is used: a change counts from the next time on that somebody looks, and nobody waits for anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use bytesize::ByteSize;

use super::background::Threads;
use super::database::{Db, page_store_of};
use super::engine::{Engine, Wish};
use super::lru_managers;
use super::option_table::OptionInfo;
use super::options::{Durability, FRAMES_MIN, Options, PageStoreKind, bytes, validate_recovery_time};
use super::page_cleaners;
use crate::base::aligned::{to_u64, to_usize};
use crate::base::error::Error;
use crate::io::batch::IoEngine;
use crate::pace::classic_flushing::AdaptiveFlushingMethod;
use crate::pool::legacy::EmptyFreeListAlgorithm;
use crate::pool::lru_manager::AdaptiveSleep;
use crate::redo::recent_closed::LogRecentClosed;

/// What operations look at that may change while they run.
pub(crate) struct InForce {
    /// As [`code_of`] has it.
    durability: AtomicU32,
    read_ahead_pages: AtomicUsize,
}

impl InForce {
    pub(super) fn new(options: &Options) -> InForce {
        let in_force = InForce { durability: AtomicU32::new(0), read_ahead_pages: AtomicUsize::new(0) };
        in_force.set(options);
        in_force
    }

    fn set(&self, options: &Options) {
        // Relaxed: an operation that runs meanwhile may go by either; what a commit was promised, it waits for itself.
        self.durability.store(code_of(options.commit_durability()), Ordering::Relaxed);
        self.read_ahead_pages.store(options.read_ahead_pages, Ordering::Relaxed);
    }

    /// When a write is safe that does not say it itself.
    pub(crate) fn durability(&self) -> Durability {
        match self.durability.load(Ordering::Relaxed) {
            COMMIT => Durability::Commit,
            WRITTEN => Durability::Written,
            NONE => Durability::None,
            background => Durability::Background(background - NONE),
        }
    }

    /// Leaves that a scan has read together, at most.
    pub(crate) fn read_ahead_pages(&self) -> usize {
        self.read_ahead_pages.load(Ordering::Relaxed)
    }
}

const COMMIT: u32 = 0;
const WRITTEN: u32 = 1;
const NONE: u32 = 2;

/// A [`Durability`] as a number; one of `Background` is its milliseconds, of which there is one at least, and `NONE`.
fn code_of(durability: Durability) -> u32 {
    match durability {
        Durability::Commit => COMMIT,
        Durability::Written => WRITTEN,
        Durability::None => NONE,
        Durability::Background(ms) => ms.saturating_add(NONE),
    }
}

impl Db {
    /// Changes an option while the database is in use, by its name and with a value as text, as [`OptionInfo`] has
    /// them: those that it says can be changed `online`. What is changed counts from now on, as long as the database is
    /// open, and is not kept. Of [`durability`](Options::durability) and
    /// [`flush_log_at_commit`](Options::flush_log_at_commit), which say the same, the one set last counts.
    ///
    /// Waits as the method does that an option has of its own ([`set_redo_capacity`](Self::set_redo_capacity) and
    /// [`set_buffer_pool_size`](Self::set_buffer_pool_size)), and with others for nothing. Operations under way may go
    /// on by what was before; what a commit was promised by then stays promised.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: there is no such option, it is fixed, the value is none of its, or does not go
    /// together with the others; says what to do. Nothing was changed. [`Error::Closed`]: the database was closed.
    /// [`Error::DeviceFailed`] and the like: a thread that is needed cannot be started. Others as those methods have
    /// them.
    ///
    /// # Example
    /// ```
    /// # fn main() -> Result<(), millpond::Error> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let options = millpond::Options::new().cached(true).profile(millpond::Profile::Mysql56);
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
            "recovery_time_target" => self.set_recovery_time_target(parse(Options::new())?.recovery_time_target),
            _ => {
                let mut kept = self.kept_options().lock();
                let mut wanted = parse(kept.clone())?.settled();
                match name {
                    "durability" => wanted.flush_log_at_commit = None,
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

    /// Refuses what the engine was not opened for, and what would be refused at open.
    fn check_together(&self, has: &Options, wanted: &Options, name: &str, value: &str) -> Result<(), String> {
        if let Some(reason) = other_structures(has, wanted) {
            return Err(format!("{reason}: reopen the database with {name}={value}"));
        }
        let wanted = self.filled_in(wanted);
        // Where they follow from the pool's size, it is that at open which counts.
        let wanted = wanted.buffer_pool_instances(self.engine().core.pool.instance_count());
        let kind = wanted.page_store.unwrap_or(PageStoreKind::CopyOnWrite);
        wanted.validate(self.page_size(), kind).map_err(|error| match error {
            Error::InvalidOptions(mistakes) => mistakes.to_string(),
            other => other.to_string(),
        })
    }

    fn page_size(&self) -> u64 {
        to_u64(self.engine().core.store.page_size())
    }

    /// The options in force: those that the database was opened with; where they said nothing, what it keeps or a
    /// default has filled in; and what was changed since. In a forked child the defaults.
    pub fn options(&self) -> Options {
        if self.here().is_err() {
            return Options::new();
        }
        let kept = self.kept_options().lock().clone();
        self.filled_in(&kept)
    }

    /// `options`, with what the engine itself knows better.
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
            doublewrite: Some(options.doublewrite_of(kind)),
            buffer_pool_instances: Some(engine.core.pool.instance_count()),
            buffer_pool_size: size(to_u64(engine.core.pool.len())),
            buffer_pool_size_max: Some(size(engine.frames_max)),
            redo_capacity: Some(ByteSize::b(switch.map_or(log, |switch| switch.to).capacity())),
            recovery_time_target: engine.recovery_time.target(),
            io_engine,
            ..options.clone()
        }
    }

    /// Has recoveries take no longer than this, about, from 1 s to an hour, or as long as the log's capacity makes them
    /// ([`Options::recovery_time_target`](crate::Options::recovery_time_target)). Waits for nothing: the log becomes
    /// shorter little by little, by half in seven seconds while pages are written in time, in forty while they are not.
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

    /// Gives the buffer pool another size, between 32 pages for each instance and
    /// [`buffer_pool_size_max`](crate::Options::buffer_pool_size_max), while the database is in use. Waits on
    /// `checkpoint`.
    ///
    /// A larger one is there on return. With a smaller one the pages beyond its end are written and leave; those
    /// in use at that moment a little later.
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
        // Here, and not in the keeper: who has no memory is told so, and nothing else stops.
        engine.core.pool.make_frames(to_usize(frames))?;
        engine.checkpoint_wait(Wish::Pool(frames))
    }
}

impl Engine {
    /// Goes by `options` from now on, as far as they can change. Threads that they want are there before.
    fn put_in_force(self: &Arc<Self>, options: &Options, threads: &mut Threads) -> Result<(), Error> {
        if options.empty_free_list_algorithm == EmptyFreeListAlgorithm::Backoff {
            lru_managers::start(threads, self, AdaptiveSleep::awake())?;
        }
        if options.adaptive_flushing_method == AdaptiveFlushingMethod::Adaptive {
            page_cleaners::start_others(threads, self)?;
        }
        self.in_force.set(options);
        self.waits.set_stall_threshold(options.stall_threshold);
        self.core.log.set_policies(options.log_policies());
        self.core.pool.set_freeing(options.freeing());
        if let Some(classic) = &self.classic_flushing {
            classic.set(options.adaptive_flushing_method, options.settings(), options.flush_neighbors);
        }
        threads.look_again();
        Ok(())
    }
}

/// Why the engine, which was opened with the one, would have to be another one for the other.
fn other_structures(has: &Options, wanted: &Options) -> Option<&'static str> {
    let is_handoff = |of: &Options| of.empty_free_list_algorithm == EmptyFreeListAlgorithm::Handoff;
    let is_envelope = |of: &Options| of.adaptive_flushing_method == AdaptiveFlushingMethod::Envelope;
    let has_window = |of: &Options| of.log_recent_closed != LogRecentClosed::None;
    if is_handoff(has) != is_handoff(wanted) {
        return Some(
            "the hand-off has one line for free frames and the keeper to refill it, legacy and backoff have lists in parts and threads for these, and a pool is made for the one or the other at open",
        );
    }
    if is_envelope(has) != is_envelope(wanted) {
        return Some(
            "with envelope the keeper cleans pages, with the other methods page cleaners do, and who does is settled at open",
        );
    }
    (has_window(has) != has_window(wanted)).then_some("whether the log has a window with a closer is settled at open")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_in_force() {
        let of = |options: Options| InForce::new(&options).durability();
        for durability in [
            Durability::Commit,
            Durability::Written,
            Durability::None,
            Durability::Background(1),
            Durability::Background(60_000),
        ] {
            assert_eq!(of(Options::new().durability(durability)), durability);
        }
        assert_eq!(of(Options::new().flush_log_at_commit(2)), Durability::Written);
        let in_force = InForce::new(&Options::new());
        assert_eq!((in_force.durability(), in_force.read_ahead_pages()), (Durability::Commit, 32));
        in_force.set(&Options::new().flush_log_at_commit(0).read_ahead_pages(7));
        assert_eq!((in_force.durability(), in_force.read_ahead_pages()), (Durability::Background(1_000), 7));
    }
}
