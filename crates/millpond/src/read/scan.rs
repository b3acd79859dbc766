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
use crate::read::snapshot::LiveSnapshot;
use crate::schema::key_range::KeyBounds;
use crate::txn::view::View;

/// The rows of a range, from its first key on, or from its last key back ([`rev`](Iterator::rev)). Ends after the first
/// error. The iterator allocates memory for each row; [`next_row`](Scan::next_row) and
/// [`next_row_back`](Scan::next_row_back) lend the rows instead.
#[must_use]
pub struct Scan {
    engine: Arc<Engine>,
    state: Arc<TreeState>,
    /// The snapshot whose rows are read; `None`: each leaf is read as it is on arrival there.
    snapshot: Option<Arc<LiveSnapshot>>,
    /// The keys between the leaves fetched from the front and those fetched from the back. `None`: no leaf is left.
    between: Option<KeyBounds>,
    front: End,
    back: End,
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
    pub(crate) fn new(
        engine: &Arc<Engine>,
        state: &Arc<TreeState>,
        snapshot: Option<Arc<LiveSnapshot>>,
        range: Option<KeyBounds>,
    ) -> Scan {
        let end = || End { rows: Rows::default(), ahead: ReadAhead::new(engine.in_force.read_ahead_pages()) };
        let (front, back) = (end(), end());
        Scan { engine: Arc::clone(engine), state: Arc::clone(state), snapshot, between: range, front, back }
    }

    /// What the scan sees.
    pub(crate) fn view(&self) -> View {
        self.snapshot.as_ref().map_or(View::Newest, |snapshot| snapshot.view())
    }

    /// What was read for the scan, or the error that its snapshot had ended before that (SNAP-2).
    pub(crate) fn unless_ended<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        match &self.snapshot {
            Some(snapshot) => snapshot.unless_ended(read),
            None => read,
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
                self.between = None;
                (self.front.rows, self.back.rows) = (Rows::default(), Rows::default());
                return Err(error);
            }
        }
        Ok(match at {
            At::Front if self.front.rows.is_empty() => self.back.rows.take_first(),
            At::Front => self.front.rows.take_first(),
            At::Back if self.back.rows.is_empty() => self.front.rows.take_last(),
            At::Back => self.back.rows.take_last(),
        })
    }

    /// The next key and value, borrowed until the scan goes on; `None`: the range is exhausted, or an earlier call
    /// failed. These are the iterator's rows, without an allocation for each.
    ///
    /// # Errors
    /// Those of [`Tree::get`](crate::Tree::get).
    pub fn next_row(&mut self) -> Result<Option<RowRef<'_>>, Error> {
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
