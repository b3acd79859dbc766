//! Scans of a tree: the iterator over the rows of a range of keys, from both ends.
//!
//! A scan fetches the rows of one leaf at a time with [`leaf_forward`] or [`leaf_backward`], which also read ahead.
//! Between leaves it holds nothing, neither a latch nor the tree's gate.

use std::iter::FusedIterator;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::operations::OperationKind;
use crate::btree::scan::{OwnedRow, ReadAhead, RowRef, Rows, leaf_backward, leaf_forward, owned};
use crate::engine::Engine;
use crate::engine::tree_state::TreeState;
use crate::read::reader::Reader;
use crate::schema::key_range::KeyBounds;
use crate::txn::view::View;

/// The rows of a range, from its first key on, or from its last key back ([`rev`](Iterator::rev)). Ends after the first
/// error. The iterator allocates memory for each row; [`next_row`](Scan::next_row) and
/// [`next_row_back`](Scan::next_row_back) lend the rows instead.
#[must_use]
pub struct Scan {
    engine: Arc<Engine>,
    state: Arc<TreeState>,
    /// Without a snapshot each leaf is read as it is on arrival there.
    reader: Reader,
    /// The keys between the leaves fetched from the front and those fetched from the back. `None`: no leaf is left.
    between: Option<KeyBounds>,
    front: End,
    back: End,
    /// For a scan of a transaction, which sees the changes that the transaction makes meanwhile.
    follows: Option<Follows>,
}

/// How far a scan has come that sees changes made meanwhile.
struct Follows {
    /// The number of the transaction's changes when the rows were fetched.
    changes: u64,
    /// The keys that were not taken yet.
    left: KeyBounds,
}

/// Undo pages of a leaf's rows that are read together.
const READ_TOGETHER: usize = 32;

/// An end of a scan: the rows of the last leaf fetched there.
struct End {
    rows: Rows,
    ahead: ReadAhead,
}

/// The end of a range at which a scan goes on.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Front,
    Back,
}

impl Scan {
    /// Begins a scan of the keys in `range`; `None`: an empty scan.
    pub(crate) fn new(engine: &Arc<Engine>, state: &Arc<TreeState>, reader: Reader, range: Option<KeyBounds>) -> Scan {
        let end = || End { rows: Rows::default(), ahead: ReadAhead::new(engine.in_force.read_ahead_pages()) };
        let (front, back) = (end(), end());
        let follows = |left: &KeyBounds| Follows { changes: reader.changes(), left: left.clone() };
        let follows = range.as_ref().filter(|_| reader.own.is_some()).map(follows);
        Scan { engine: Arc::clone(engine), state: Arc::clone(state), reader, between: range, front, back, follows }
    }

    /// What the scan sees.
    pub(crate) fn view(&self) -> View {
        self.reader.view()
    }

    /// What was read for the scan, or the error that its snapshot or transaction had ended before that (SNAP-2).
    pub(crate) fn unless_ended<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        self.reader.unless_ended(read)
    }

    /// Whether the scan may return an entry whose row is another for its reader.
    pub(crate) fn may_disagree(&self) -> bool {
        self.reader.may_disagree()
    }

    /// Whether the scan's transaction has changed something since the rows were fetched.
    pub(crate) fn is_behind(&self) -> bool {
        self.follows.as_ref().is_some_and(|follows| follows.changes != self.reader.changes())
    }

    /// Forgets fetched rows if the transaction has changed something since: they are fetched again.
    fn keep_up(&mut self) {
        if self.is_behind()
            && let Some(follows) = &mut self.follows
        {
            follows.changes = self.reader.changes();
            self.between = Some(follows.left.clone());
            (self.front.rows, self.back.rows) = (Rows::default(), Rows::default());
        }
    }

    /// Fetches the rows of the next leaf.
    fn advance(&mut self, at: At) -> Result<(), Error> {
        let view = self.view();
        let Scan { engine, state, between, front, back, .. } = self;
        let Some((lower, upper)) = between else { return Ok(()) };
        engine.home.check()?;
        let _operation = engine.waits.operation(OperationKind::Scan);
        let _gate = state.enter(&engine.waits)?;
        let (core, root) = (&engine.core, &state.root);
        let hides = |txn| engine.txns.hides(view, txn);
        loop {
            let (rows, next) = match at {
                At::Front => {
                    let End { rows, ahead } = &mut *front;
                    let next = leaf_forward(core, root, &hides, lower, upper, ahead, rows)?;
                    (rows, next)
                }
                At::Back => {
                    let End { rows, ahead } = &mut *back;
                    let next = leaf_backward(core, root, &hides, lower, upper, ahead, rows)?;
                    (rows, next)
                }
            };
            // Together, so that the device has several reads under way.
            let undo_pages = rows.undo_pages();
            if undo_pages.len() > 1 {
                undo_pages.chunks(READ_TOGETHER).for_each(|some| core.pool.load_many(some));
            }
            if rows.resolve(|row, place| state.find_elsewhere(engine, row, place, view))?.is_none() {
                continue;
            }
            match (at, next) {
                (At::Front, Some(high)) => *lower = Bound::Included(high),
                (At::Back, Some(low)) => *upper = Bound::Excluded(low),
                (_, None) => *between = None,
            }
            return Ok(());
        }
    }

    /// Takes the next row from an end. Where no leaf is left, the rows left are those that the other end has fetched.
    pub(crate) fn row_at(&mut self, at: At) -> Result<Option<RowRef<'_>>, Error> {
        self.keep_up();
        loop {
            let own = match at {
                At::Front => &self.front,
                At::Back => &self.back,
            };
            if !own.rows.is_empty() || self.between.is_none() {
                break;
            }
            // Rows that were fetched earlier are right whatever happens to the snapshot.
            let fetched = self.advance(at);
            if let Err(error) = self.unless_ended(fetched) {
                (self.between, self.follows) = (None, None);
                (self.front.rows, self.back.rows) = (Rows::default(), Rows::default());
                return Err(error);
            }
        }
        let row = match at {
            At::Front if self.front.rows.is_empty() => self.back.rows.take_first(),
            At::Front => self.front.rows.take_first(),
            At::Back if self.back.rows.is_empty() => self.front.rows.take_last(),
            At::Back => self.back.rows.take_last(),
        };
        match (&row, &mut self.follows) {
            (Some((key, _)), Some(follows)) => pass(&mut follows.left, at, key),
            // A scan that has come to its end stays there.
            (None, follows) => *follows = None,
            (Some(_), None) => {}
        }
        Ok(row)
    }

    /// The next key and value, borrowed until the scan goes on; `None`: the range is exhausted, or an earlier call
    /// failed. These are the iterator's rows, without an allocation for each.
    ///
    /// # Errors
    /// Those of [`Tree::get`](crate::Tree::get).
    pub fn next_row(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        // Almost every call.
        if self.follows.is_none() && !self.front.rows.is_empty() {
            return Ok(self.front.rows.take_first());
        }
        self.row_at(At::Front)
    }

    /// The last key and value not taken yet, borrowed until the scan goes on; `None` as of
    /// [`next_row`](Self::next_row).
    ///
    /// # Errors
    /// Those of [`Tree::get`](crate::Tree::get).
    pub fn next_row_back(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        self.row_at(At::Back)
    }
}

/// Takes the keys up to `key` off an end of the range `left`. Keeps the memory of the bound.
pub(crate) fn pass(left: &mut KeyBounds, at: At, key: &[u8]) {
    let bound = match at {
        At::Front => &mut left.0,
        At::Back => &mut left.1,
    };
    let mut last = match std::mem::replace(bound, Bound::Unbounded) {
        Bound::Included(last) | Bound::Excluded(last) => last,
        Bound::Unbounded => Vec::new(),
    };
    last.clear();
    last.extend_from_slice(key);
    *bound = Bound::Excluded(last);
}

impl Iterator for Scan {
    type Item = Result<OwnedRow, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().map(|row| row.map(owned)).transpose()
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_row_back().map(|row| row.map(owned)).transpose()
    }
}

impl FusedIterator for Scan {}
