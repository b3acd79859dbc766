//! Scans of a tree: the iterator over the rows of a range of keys.
//!
//! A scan fetches the rows of one leaf at a time with [`leaf_forward`] or [`leaf_backward`], which also read ahead.
//! Between leaves it holds nothing, neither a latch nor the tree's gate.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::operations::OperationKind;
use crate::btree::scan::{ReadAhead, RowRef, Rows, leaf_backward, leaf_forward};
use crate::engine::Engine;
use crate::engine::tree_state::TreeState;
use crate::schema::index_key::KeyRange;

/// The order in which a scan returns keys.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// The rows of a range; ends after the first error. The iterator allocates memory for each row;
/// [`next_row`](Scan::next_row) lends the rows instead.
#[must_use]
pub struct Scan {
    engine: Arc<Engine>,
    state: Arc<TreeState>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    direction: Direction,
    ahead: ReadAhead,
    rows: Rows,
    done: bool,
}

impl Scan {
    /// Begins a scan of the keys in `range`; `None`: an empty scan.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        state: &Arc<TreeState>,
        range: Option<KeyRange>,
        direction: Direction,
    ) -> Scan {
        let done = range.is_none();
        let (lower, upper) = range.unwrap_or((Bound::Unbounded, Bound::Unbounded));
        let ahead = ReadAhead::new(engine.in_force.read_ahead_pages());
        let (engine, state) = (Arc::clone(engine), Arc::clone(state));
        Scan { engine, state, lower, upper, direction, ahead, rows: Rows::default(), done }
    }

    /// Fetches the rows of the next leaf.
    fn advance(&mut self) -> Result<(), Error> {
        let Scan { engine, state, lower, upper, direction, ahead, rows, done } = self;
        engine.home.check()?;
        let _operation = engine.waits.operation(OperationKind::Scan);
        let _gate = state.enter(&engine.waits)?;
        let (core, root) = (&engine.core, &state.root);
        let is_in_flight = |txn| engine.txns.locks.is_in_flight(txn);
        loop {
            let next = match direction {
                Direction::Forward => leaf_forward(core, root, &is_in_flight, lower, upper, ahead, rows)?,
                Direction::Backward => leaf_backward(core, root, &is_in_flight, lower, upper, ahead, rows)?,
            };
            if rows.resolve(|row, place| state.find_elsewhere(engine, row, place))?.is_none() {
                continue;
            }
            match (*direction, next) {
                (Direction::Forward, Some(high)) => *lower = Bound::Included(high),
                (Direction::Backward, Some(low)) => *upper = Bound::Excluded(low),
                (_, None) => *done = true,
            }
            return Ok(());
        }
    }

    /// The next key and value, borrowed until the scan goes on; `None`: the range is exhausted, or an earlier call
    /// failed. These are the iterator's rows, without an allocation for each.
    ///
    /// # Errors
    /// Those of [`Tree::get`](crate::Tree::get).
    pub fn next_row(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        while self.rows.is_empty() {
            if self.done {
                return Ok(None);
            }
            if let Err(error) = self.advance() {
                self.done = true;
                return Err(error);
            }
        }
        Ok(match self.direction {
            Direction::Forward => self.rows.take_first(),
            Direction::Backward => self.rows.take_last(),
        })
    }
}

impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec()))).transpose()
    }
}
