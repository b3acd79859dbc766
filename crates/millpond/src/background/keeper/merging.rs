//! Merges: the keeper serves the wishes that deletes leave, and trees give pages back.
//!
//! A wish is a guess, and is dropped when it cannot be served. The next delete from the page, or from a neighbour,
//! leaves another wish if the page stays too empty.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::background::keeper::Keeper;
use crate::base::error::Error;
use crate::btree::merge::{Outcome, merge};
use crate::engine::MergeWish;
use crate::engine::tree_state::Gate;

/// Merges before the keeper turns to its other duties.
const MERGES_A_STEP: usize = 8;

/// Most times that a wish is put off.
const TRIES: u8 = 8;

/// Pages given back whose frames other threads still use: with this many, no more pages are merged.
const FREED_MAX: usize = 64;

/// The result of serving a wish.
enum Served {
    /// The wish is finished: the page is merged, or will not be.
    Done,
    /// A latch was refused, or a page is not in memory. The wish is queued again, at most [`TRIES`] times.
    PutOff,
    /// The log has no room for a merge.
    NoRoom,
}

impl Keeper {
    /// Merges some of the pages that wishes name. Waits for page latches, for a page write that is under way, and for
    /// the log when its buffer is full.
    pub(super) fn merge_pages(&mut self) -> Result<(), Error> {
        self.give_ids_back();
        let engine = Arc::clone(&self.engine);
        if engine.redoing.load(Ordering::Relaxed) {
            return Ok(());
        }
        let merged = self.merge_some();
        engine.txns.allow_merge_reads();
        merged
    }

    fn merge_some(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        let mut done = false;
        for _ in 0..MERGES_A_STEP {
            if self.freed.len() >= FREED_MAX {
                return Ok(());
            }
            let Some(wish) = engine.merge_wishes.lock().pop_front() else { return Ok(()) };
            match self.serve_wish(wish)? {
                Served::Done => done = true,
                Served::PutOff => {}
                Served::NoRoom => return Ok(()),
            }
        }
        // Wishes put off wait for the next step: their latches may be free by then.
        if done {
            engine.bell.ring();
        }
        Ok(())
    }

    fn serve_wish(&mut self, wish: MergeWish) -> Result<Served, Error> {
        let engine = Arc::clone(&self.engine);
        let tree = Arc::clone(&wish.tree);
        // A thread that drops the tree, or closes the database, has the gate: nothing is merged any more.
        let Some(gate) = tree.gate.try_read().filter(|gate| **gate == Gate::Open) else {
            return Ok(Served::Done);
        };
        let attempt = || {
            // KEEPER-3: no thread has an image of the page to write.
            let _nobody_writes = engine.writers.none();
            merge(&engine.core, &tree.root, &wish.key, wish.level)
        };
        let mut outcome = attempt()?;
        if matches!(outcome, Outcome::LogFull) && !engine.core.log.is_full_for_some() {
            // The buffer is short, and perhaps no other thread wants it written.
            engine.core.log.flush_all()?;
            outcome = attempt()?;
        }
        drop(gate);
        match outcome {
            Outcome::Nothing => Ok(Served::Done),
            Outcome::OnlyChild => {
                engine.wish_merge(MergeWish { level: wish.level + 1, tries: 0, ..wish });
                Ok(Served::Done)
            }
            Outcome::LogFull => {
                // Room in the log comes without a request from here.
                engine.merge_wishes.lock().push_front(wish);
                Ok(Served::NoRoom)
            }
            Outcome::Refused => {
                if wish.tries < TRIES {
                    engine.merge_wishes.lock().push_back(MergeWish { tries: wish.tries + 1, ..wish });
                }
                Ok(Served::PutOff)
            }
            Outcome::Missing(id) => {
                if wish.tries < TRIES {
                    // The purge thread may wait for the page, and then queues the wish again.
                    engine.merges_parked.lock().push_back((id, MergeWish { tries: wish.tries + 1, ..wish }));
                    engine.txns.want_merge_read(id);
                }
                Ok(Served::PutOff)
            }
            Outcome::Merged(merged) => {
                self.freed.push(merged.freed);
                if merged.is_gone {
                    self.give_ids_back();
                }
                if merged.parent {
                    let (tree, key) = (Arc::clone(&wish.tree), wish.key.clone());
                    engine.wish_merge(MergeWish { tree, key, level: wish.level + 1, tries: 0 });
                }
                if merged.again {
                    engine.wish_merge(MergeWish { tries: 0, ..wish });
                }
                Ok(Served::Done)
            }
        }
    }

    /// STORE-9: the id of a page given back is free once the page is in no frame any more.
    fn give_ids_back(&mut self) {
        let core = &self.engine.core;
        self.freed.retain(|id| {
            let is_gone = planted!("freed_id_given_out_early") || core.pool.discard_freed(*id);
            if is_gone {
                core.store.give_back(*id);
            }
            !is_gone
        });
    }
}
