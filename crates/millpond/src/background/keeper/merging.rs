//! How trees give pages back: the keeper serves the wishes that deletes leave.
//!
//! A wish is a guess, and is dropped when it cannot be served: a page that stays too empty is wished for again when
//! more is deleted from it, or from a neighbour.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::background::keeper::Keeper;
use crate::base::error::Error;
use crate::btree::merge::{Outcome, merge};
use crate::engine::MergeWish;
use crate::engine::tree_state::Gate;

/// Merges before the other duties are looked at.
const MERGES_A_STEP: usize = 8;

/// How often a wish is put off.
const TRIES: u8 = 8;

/// Pages given back whose frames somebody still looks at, while more are merged.
const FREED_MAX: usize = 64;

/// What became of a wish.
enum Served {
    /// It is through: the page is merged, or will not be.
    Done,
    /// A latch was refused, or a page is not in memory; it will be in the queue again.
    PutOff,
    /// The log has no room for any.
    NoRoom,
}

impl Keeper {
    /// Merges some of the pages that were said to be too empty. Waits for page latches, for a page write that is under
    /// way, and for the log when its buffer is full.
    pub(crate) fn merge_pages(&mut self) -> Result<(), Error> {
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
        // What was put off waits for the next step, and for latches to be free by then.
        if done {
            engine.bell.ring();
        }
        Ok(())
    }

    fn serve_wish(&mut self, wish: MergeWish) -> Result<Served, Error> {
        let engine = Arc::clone(&self.engine);
        let tree = Arc::clone(&wish.tree);
        // Who drops the tree, or closes the database, does not wait for this: nothing is merged any more.
        let Some(gate) = tree.gate.try_read().filter(|gate| **gate == Gate::Open) else {
            return Ok(Served::Done);
        };
        let attempt = || {
            // KEEPER-3: no image of the page is in anybody's hand.
            let _nobody_writes = engine.writers.none();
            merge(&engine.core, &tree.root, &wish.key, wish.level)
        };
        let mut outcome = attempt()?;
        if matches!(outcome, Outcome::LogFull) && !engine.core.log.is_full_for_some() {
            // The buffer is short, and nobody else need want it written.
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
                // Whoever makes room in it does so without being asked by this.
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
                    // Purge's thread may wait for the page, and brings the wish back.
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

    /// STORE-9: ids of pages given back are free when the pages are in no frame any more.
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
