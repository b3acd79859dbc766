//! InnoDB's answer to a pool without a free frame, to be seen beside the hand-off: who needs one looks for a clean
//! page among the hundred at the list's tail, then in all of the list, and failing that writes one page, with a sync of
//! its own, while all who need a frame of the same instance wait behind it (`buf_LRU_get_free_block` and
//! `buf_flush_single_page_from_LRU` of MySQL 5.6).
//!
//! LEGACY-1  Who finds nothing to write either waits in the line for frames, like everybody does with the hand-off.
//!
//! Who ends the wait for the turn: the thread that has it, after a write and two syncs at most.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::buffer_pool::{Empty, Pool};
use super::classic::Classic;
use super::frame::Pin;
use super::replacement::Wanted;
use crate::base::aligned::to_u64;
use crate::base::counted_calls::CountedCalls;
use crate::base::error::Error;
use crate::base::ids::FrameId;
use crate::base::sync::{Rank, Turn};

/// Pages that are looked at first.
const TAIL: usize = 100;

/// What an operation does that finds no free frame in the buffer pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EmptyFreeListAlgorithm {
    /// It has a place in a line, and is handed the next frame that comes free. It writes nothing.
    #[default]
    Handoff,
    /// It looks for a clean page among the hundred that are next to leave, then among all; failing that it writes one
    /// page, and syncs it, while everybody else who finds no free frame waits behind it: InnoDB's `legacy`.
    /// Nobody frees frames ahead of need.
    Legacy,
    /// It sleeps, for a millisecond, then two, up to ten, until a thread has freed frames that sleeps by itself for up
    /// to a second: the `backoff` of Percona Server.
    Backoff,
}

/// Writes a page for who finds no free frame.
pub(crate) trait SinglePageFlush: Send + Sync {
    /// Writes the dirty page, and syncs it. False: it cannot be written now.
    fn flush(&self, page: Pin<'_>) -> Result<bool, Error>;
}

/// What `legacy` needs.
pub(super) struct Legacy {
    /// Held while frames are looked for and a page is written: the convoy is the point.
    lru: Box<[Turn<()>]>,
    flush: OnceLock<Box<dyn SinglePageFlush>>,
    pub(super) single_flushes: AtomicU64,
    /// Searches for a page to write, and pages that they looked at.
    pub(super) flush_searches: CountedCalls,
}

impl Legacy {
    pub(super) fn new(instances: usize) -> Legacy {
        Legacy {
            lru: (0..instances).map(|_| Turn::new(Rank::Lru, ())).collect(),
            flush: OnceLock::new(),
            single_flushes: AtomicU64::new(0),
            flush_searches: CountedCalls::default(),
        }
    }
}

/// What a search has led to.
enum Found {
    Frame(FrameId),
    /// Something has changed: look again.
    Again,
    Nothing,
}

impl Pool {
    /// Whether free frames are handed to who waits, and made by the keeper ahead of need.
    pub(crate) fn is_handoff(&self) -> bool {
        matches!(self.empty, Empty::Handoff)
    }

    /// What it has where they are not.
    pub(super) fn classic(&self) -> Option<&Classic> {
        if let Empty::Classic(classic) = &self.empty { Some(classic) } else { None }
    }

    /// Says how a single page is written. Once, and only for `legacy`.
    pub(crate) fn set_single_page_flush(&self, flush: Box<dyn SinglePageFlush>) {
        if let Some(classic) = self.classic() {
            let _ = classic.legacy.flush.set(flush);
        }
    }

    /// Pages that were written by who needed a frame.
    pub(crate) fn single_flushes(&self) -> u64 {
        self.classic().map_or(0, |classic| classic.legacy.single_flushes.load(Ordering::Relaxed))
    }

    /// `count` frames of an instance, by one's own work. `None`: there is nothing to be had that way. Who waits for his
    /// turn, or writes a page, says so in `waited`: not who finds a clean page.
    pub(super) fn take_legacy(
        &self,
        legacy: &Legacy,
        at: usize,
        count: usize,
        waited: &mut bool,
    ) -> Result<Option<Vec<FrameId>>, Error> {
        let free = &self.instances[at].free;
        let mut looks = TAIL;
        // Kept in hand: put into the ring, one would be taken by who wants no more than one.
        let mut hand = Vec::new();
        let taken = loop {
            let (_lru, in_line) = legacy.lru[at].lock_and_tell();
            *waited |= in_line;
            if hand.len() == count {
                break Ok(Some(std::mem::take(&mut hand)));
            }
            if let Some(mut frames) = free.take(count - hand.len()) {
                frames.append(&mut hand);
                break Ok(Some(frames));
            }
            let found = self.steal(at, looks);
            if found.is_none() && looks == TAIL {
                looks = 4 * self.frames.made();
                continue;
            }
            let by_a_write = || {
                *waited = true;
                self.flush_single(legacy, at)
            };
            match found.map_or_else(by_a_write, |frame| Ok(Found::Frame(frame))) {
                Ok(Found::Frame(frame)) if frame.index() < self.len() => hand.push(frame),
                Ok(Found::Frame(beyond)) => self.give(beyond),
                Ok(Found::Again) if !self.line().stopped() => {}
                Ok(_) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        hand.into_iter().for_each(|frame| self.give(frame));
        taken
    }

    /// Writes the page that is next to leave, and takes its frame unless it is used again.
    fn flush_single(&self, legacy: &Legacy, at: usize) -> Result<Found, Error> {
        let stopped = self.line().stopped();
        let Some(flush) = legacy.flush.get().filter(|_| !stopped) else { return Ok(Found::Nothing) };
        let mut scan = self.long_scan();
        scan.wanted = Wanted::Dirty;
        let steps = scan.steps;
        let (freed, mut dirty) = self.sweep_in(at, 1, 1, &mut scan);
        legacy.flush_searches.add(to_u64(steps - scan.steps));
        let Some(page) = dirty.pop() else { return Ok(if freed > 0 { Found::Again } else { Found::Nothing }) };
        let frame = page.frame_id();
        let flushed = flush.flush(page);
        let left = self.evict_cleaned(frame);
        if matches!(flushed, Ok(true)) {
            legacy.single_flushes.fetch_add(1, Ordering::Relaxed);
        }
        match flushed {
            Ok(_) if left => Ok(Found::Frame(frame)),
            Ok(true) => Ok(Found::Again),
            Ok(false) => Ok(Found::Nothing),
            Err(error) => {
                if left {
                    self.give(frame);
                }
                Err(error)
            }
        }
    }
}
