//! Batches of several groups: a batch that is too large for one group of the log is written in parts.
//!
//! [`write_all`] writes the groups and commits them together; [`write_in_parts`] leaves the commit to a later call.
//! [`Large`] is such a batch that first locks and reads the rows it depends on. The rows stay locked until the commit
//! ([`crate::txn`]); a batch that fails is rolled back.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::error::Error;
use crate::base::ids::{Lsn, TxnId};
use crate::base::row::Row;
use crate::btree::descent::{Restarts, Target, leaf_read};
use crate::btree::scan::{Seen, row};
use crate::engine::Engine;
use crate::engine::tree_state::TreeState;
use crate::txn::lock_table::Mode;
use crate::txn::locks::{Hold, too_many_locks};
use crate::txn::slot::Slot;
use crate::txn::view::View;
use crate::undo::purge::end_and_purge;
use crate::undo::rollback::roll_back_all;
use crate::write::chunks::{Bytes, LongValues, sort};
use crate::write::group::{Gates, enter_all, write_group};
use crate::write::op::Op;
use crate::write::outcome::{Done, Extent, GroupOutcome};
use crate::write::plan::check_first;
use crate::write::sizes::{check_sizes, probable_redo};

/// A batch of several groups that depends on the values of rows. It locks all of these rows, each before it reads it,
/// before it changes the first. So no other transaction changes them before the batch is written.
///
/// Two such batches, or one and a batch in parts that reads nothing, never wait for each other in a circle. Both take
/// rows of tables first (WRITE-1), and a batch that waits here for such a row holds only rows before it.
pub(crate) struct Large<'e> {
    engine: &'e Engine,
    _gates: Gates<'e>,
    slot: Slot<'e>,
}

impl<'e> Large<'e> {
    /// Begins a batch that changes these trees, each listed once. It has intents already, and the spaces for chunks of
    /// long values exist.
    pub(super) fn begin(engine: &'e Engine, mut slot: Slot<'e>, trees: &'e [Arc<TreeState>]) -> Result<Self, Error> {
        let gates = enter_all(engine, trees.iter())?;
        slot.begin_parts(&engine.core)?;
        engine.txns.wide_batches.fetch_add(1, Ordering::Relaxed);
        Ok(Large { engine, _gates: gates, slot })
    }

    /// Locks the row `key`, whether it exists or not, and returns its value. Callers lock rows in their order
    /// (WRITE-1). May wait on `row_lock`, `page_read` and `free_frame`.
    pub(super) fn lock_row(&mut self, tree: &Arc<TreeState>, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let locked = lock_row(self.engine, &mut self.slot, tree, key, HowToLock::TO_WRITE)?;
        Ok(locked.and_then(|locked| locked.value))
    }

    /// Writes and commits `ops`, without a wait for the log.
    pub(crate) fn write(mut self, ops: Vec<Op<'_>>) -> Result<Done, Error> {
        match self.write_and_commit(ops) {
            Ok(done) => {
                end_and_purge(self.engine, self.slot);
                Ok(done)
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    fn write_and_commit(&mut self, mut ops: Vec<Op<'_>>) -> Result<Done, Error> {
        let (engine, slot) = (self.engine, &mut self.slot);
        sort(&mut ops);
        ops.iter().try_for_each(|op| check_sizes(engine, op))?;
        let bytes = Bytes::new();
        let mut long_values = LongValues::new(&bytes, engine.core.store.page_size());
        let mut ops: Cow<'_, [Op<'_>]> = Cow::Owned(ops);
        if ops.iter().any(|op| op.value_len() > engine.limits.value) {
            long_values.expand(engine, &mut ops, slot)?;
        }
        write_all(engine, ops.into_owned(), &mut long_values, slot)
    }

    /// Gives the batch up because of this error. What cannot be undone now, purge undoes later.
    pub(super) fn fail(self, error: Error) -> Error {
        let _ = roll_back_all(self.engine, self.slot);
        error
    }
}

/// A row that was locked.
pub(crate) struct LockedRow {
    /// Its newest value; `None`: there is no row.
    pub(crate) value: Option<Vec<u8>>,
    /// How the transaction had it locked before, in the table of locks.
    pub(crate) before: Option<Mode>,
}

/// The way in which a row is locked.
#[derive(Clone, Copy)]
pub(crate) struct HowToLock {
    pub(crate) mode: Mode,
    /// Whether the caller waits where another transaction has the lock.
    pub(crate) waits: bool,
    /// Most bytes that all locks in the table of locks may take.
    pub(crate) most: usize,
}

impl HowToLock {
    /// Of a row that is to be changed. The changes take memory, too, so only their number bounds these locks.
    pub(super) const TO_WRITE: HowToLock = HowToLock { mode: Mode::Exclusive, waits: true, most: usize::MAX };
}

/// Locks the row `key`, whether it exists or not, for the transaction of `slot`, and reads it. Where another
/// transaction has the lock, waits on `row_lock`; if it is not to wait, `None`. The caller holds the tree's gate. May
/// also wait on `page_read` and `free_frame`.
pub(crate) fn lock_row(
    engine: &Engine,
    slot: &mut Slot<'_>,
    tree: &Arc<TreeState>,
    key: &[u8],
    HowToLock { mode, waits, most }: HowToLock,
) -> Result<Option<LockedRow>, Error> {
    let (locks, txn) = (&engine.txns.locks, slot.txn());
    let view = View::newest_for(Some(txn));
    let mut restarts = Restarts::new(&engine.core.pool);
    let mut first_hold = None;
    loop {
        let page = match leaf_read(&engine.core, &tree.root, Target::Key(key)) {
            Ok(page) => page,
            Err(stop) => {
                restarts.resolve(stop)?;
                continue;
            }
        };
        let found = page.view().search(key).ok();
        let stamp = found.and_then(|index| Row::decode(page.view().value(index))?.stamp);
        // A writer of the row checks for its lock while it has the leaf latched.
        let hold = match locks.is_locked(tree.space, key, stamp, txn, mode) {
            true => Hold::OfAnother,
            false if planted!("row_read_unlocked") => Hold::Held(None),
            false => locks.hold(tree.space, key, txn, mode, most),
        };
        if hold == Hold::TooMany {
            return Err(too_many_locks(most));
        }
        let Hold::Held(before) = hold else {
            drop(page);
            if !waits {
                return Ok(None);
            }
            // Before the wait, which may give it the lock.
            first_hold.get_or_insert_with(|| locks.mode_of(tree.space, key, txn));
            restarts.begin_wait();
            slot.wait_for_row(tree.space, key, stamp, mode, &engine.waits)?;
            continue;
        };
        // A wait, and an earlier turn of this loop, may have taken the lock already.
        let before = *first_hold.get_or_insert(before);
        check_first(engine, txn, slot.first_wins().map(|live| &**live), (tree, key), stamp)?;
        let locked = |value| Ok(Some(LockedRow { value, before }));
        let Some(index) = found else { return locked(None) };
        let (here, place) = match row(page.view(), index, |_| false)? {
            Seen::Row(payload) => return locked(Some(payload.to_vec())),
            Seen::Gone => return locked(None),
            Seen::Elsewhere(here, place) => (here.to_vec(), place),
        };
        drop(page);
        restarts.begin_wait();
        if let Some(value) = tree.find_elsewhere(engine, (key, &here), place, view)? {
            return locked(value);
        }
    }
}

/// Gives up what a locking read in this mode has added to what the transaction held `before`, unless it has changed the
/// row since. The transaction's own thread calls this.
pub(crate) fn unlock_row(
    engine: &Engine,
    txn: TxnId,
    (tree, key): (&TreeState, &[u8]),
    mode: Mode,
    before: Option<Mode>,
) -> Result<(), Error> {
    let _gate = tree.enter(&engine.waits)?;
    let mut restarts = Restarts::new(&engine.core.pool);
    let stamp = loop {
        match leaf_read(&engine.core, &tree.root, Target::Key(key)) {
            Ok(page) => {
                let found = page.view().search(key).ok();
                break found.and_then(|index| Row::decode(page.view().value(index))?.stamp);
            }
            Err(stop) => restarts.resolve(stop)?,
        }
    };
    if stamp.is_none_or(|stamp| stamp.txn != txn) {
        engine.txns.locks.let_go(tree.space, key, txn, mode, before);
    }
    Ok(())
}

/// Writes `ops` in groups, and commits them together. The slot has begun parts already; if this fails, the caller has
/// them undone.
pub(super) fn write_all<'a>(
    engine: &Engine,
    ops: Vec<Op<'a>>,
    long_values: &mut LongValues<'a>,
    slot: &mut Slot<'_>,
) -> Result<Done, Error> {
    let done = write_in_parts(engine, ops, long_values, slot)?;
    Ok(Done { end: slot.commit_parts(&engine.core)?, ..done })
}

/// Writes `ops` in groups, each as many ops as fit one group and a few leaves.
pub(super) fn write_in_parts<'a>(
    engine: &Engine,
    mut ops: Vec<Op<'a>>,
    long_values: &mut LongValues<'a>,
    slot: &mut Slot<'_>,
) -> Result<Done, Error> {
    let (mut written, mut was_there) = (0, None);
    let mut most = Most { keys: 1, bytes: PART_PAGES * engine.core.store.page_size() };
    let mut owed = 0;
    while written < ops.len() {
        engine.pay_inside(&mut owed);
        let left = &ops[written..];
        let part = &left[..part_len(left, most)];
        match write_group(engine, (part, left), Extent::Part, long_values, slot)? {
            GroupOutcome::Written(done) => {
                // The leaves of the next part have about as many keys.
                most.keys = 2 * done.ops;
                if done.ops == 0 {
                    return Err(Error::Bug("a part of a batch has written nothing".into()));
                }
                written += done.ops;
                was_there.get_or_insert(done.was_there);
            }
            GroupOutcome::Replaces(tree, reference) => {
                // Chunks come after their rows in the order: their space has a larger number.
                long_values.delete_chunks(tree, reference, &mut ops)?;
                sort(&mut ops[written..]);
            }
            GroupOutcome::Locked(..) => return Err(Error::Bug("a part of a batch waits for its rows itself".into())),
            GroupOutcome::TooLarge if most.bytes > 0 => most.bytes /= 2,
            GroupOutcome::TooLarge => {
                let message = format!("one row of {} does not fit one group of the log", part[0].tree);
                return Err(Error::Bug(message.into()));
            }
        }
    }
    Ok(Done { end: Lsn::ZERO, was_there: was_there.unwrap_or(false), ops: written })
}

/// Most redo that a part of a batch probably takes, in pages.
const PART_PAGES: usize = 2;

/// The size of a part, at most. One key fits in any case.
#[derive(Clone, Copy)]
struct Most {
    keys: usize,
    /// Bytes of redo.
    bytes: usize,
}

/// Number of the first `ops` that are a part. They are of one tree; the ops of a key stay together.
fn part_len(ops: &[Op<'_>], most: Most) -> usize {
    let mut total = 0;
    let mut len = 0;
    let keys = ops.chunk_by(|one, next| one.tree.space == next.tree.space && one.key == next.key);
    for of_key in keys.take(most.keys) {
        total += probable_redo(of_key);
        if len > 0 && (total > most.bytes || of_key[0].tree.space != ops[0].tree.space) {
            break;
        }
        len += of_key.len();
    }
    len
}
