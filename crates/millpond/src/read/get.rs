//! Point reads: the value of one key of a tree.
//!
//! A read latches the key's leaf. If the payload is elsewhere, in an undo record or in chunks, it releases the leaf and
//! fetches the payload; if that is gone by then, it reads the row again.

use crate::base::error::Error;
use crate::base::operations::OperationKind;
use crate::btree::descent::{Restarts, Target, leaf_read};
use crate::btree::scan::{Seen, row};
use crate::engine::Engine;
use crate::engine::tree_state::TreeState;
use crate::txn::view::View;

impl TreeState {
    /// The value of `key` that the reader sees.
    pub(crate) fn get(&self, engine: &Engine, key: &[u8], view: View) -> Result<Option<Vec<u8>>, Error> {
        engine.home.check()?;
        let _operation = engine.waits.operation(OperationKind::Get);
        let _gate = self.enter(&engine.waits)?;
        // Most reads find all pages in memory, and need no restarts.
        let mut restarts: Option<Restarts<'_>> = None;
        loop {
            match leaf_read(&engine.core, &self.root, Target::Key(key)) {
                Ok(page) => {
                    let Ok(index) = page.view().search(key) else { return Ok(None) };
                    let (here, place) = match row(page.view(), index, |txn| engine.txns.hides(view, txn))? {
                        Seen::Row(payload) => return Ok(Some(payload.to_vec())),
                        Seen::Gone => return Ok(None),
                        Seen::Elsewhere(here, place) => (here.to_vec(), place),
                    };
                    drop(page);
                    restarts.iter_mut().for_each(Restarts::begin_wait);
                    if let Some(payload) = self.find_elsewhere(engine, (key, &here), place, view)? {
                        return Ok(payload);
                    }
                }
                Err(stop) => restarts.get_or_insert_with(|| Restarts::new(&engine.core.pool)).resolve(stop)?,
            }
        }
    }
}
