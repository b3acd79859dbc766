//! A live snapshot: as long as it exists, the versions that it sees stay.

use std::sync::Arc;

use crate::base::clock;
use crate::base::ids::Lsn;
use crate::engine::Engine;
use crate::txn::view::View;

/// A live snapshot of a database.
pub(crate) struct LiveSnapshot {
    pub(crate) engine: Arc<Engine>,
    at: Lsn,
    pub(crate) began_ns: u64,
}

impl LiveSnapshot {
    /// Takes a snapshot of all that is visible.
    pub(crate) fn take(engine: &Arc<Engine>) -> LiveSnapshot {
        LiveSnapshot { engine: Arc::clone(engine), at: engine.txns.snapshots.take(), began_ns: clock::now_ns() }
    }

    pub(crate) fn at(&self) -> Lsn {
        self.at
    }

    pub(crate) fn view(&self) -> View {
        View::At(self.at)
    }
}

impl Drop for LiveSnapshot {
    fn drop(&mut self) {
        self.engine.txns.snapshots.release(self.at);
    }
}
