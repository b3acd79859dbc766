//! A live snapshot: as long as it exists, the versions that it sees stay.

use std::fmt;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::engine::Engine;
use crate::txn::snapshots::Live;
use crate::txn::view::View;

/// A live snapshot of a database.
pub(crate) struct LiveSnapshot {
    pub(crate) engine: Arc<Engine>,
    live: Arc<Live>,
}

impl LiveSnapshot {
    /// Takes a snapshot of all that is visible.
    pub(crate) fn take(engine: &Arc<Engine>) -> LiveSnapshot {
        LiveSnapshot { engine: Arc::clone(engine), live: engine.txns.snapshots.take() }
    }

    pub(crate) fn at(&self) -> Lsn {
        self.live.at
    }

    /// When the snapshot was taken.
    pub(crate) fn began_ns(&self) -> u64 {
        self.live.began_ns
    }

    /// The snapshot in the list of live ones.
    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    pub(crate) fn view(&self) -> View {
        View { at: Some(self.live.at), own: None }
    }

    /// What was read at the snapshot, or the error that the snapshot had ended before that (SNAP-2): then neither rows
    /// nor errors of the read mean anything.
    pub(crate) fn unless_ended<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        if self.live.is_ended() { Err(self.too_old()) } else { read }
    }

    #[cold]
    fn too_old(&self) -> Error {
        let age = self.engine.txns.snapshots.max_age().map_or(String::new(), |age| format!(", which is {age:?}"));
        Error::SnapshotTooOld(format!("a snapshot was older than max_snapshot_age{age}: take a new one").into())
    }
}

impl fmt::Debug for LiveSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.live.fmt(f)
    }
}

impl Drop for LiveSnapshot {
    fn drop(&mut self) {
        // In a fork of the opener's process the list may be locked by a thread that the fork does not have.
        if self.engine.home.is_here() {
            self.engine.txns.snapshots.release(&self.live);
        }
    }
}
