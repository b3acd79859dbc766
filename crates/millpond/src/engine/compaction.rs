//! A request to make the data file short, between the thread that waits for it and the keeper.

use std::sync::Arc;

use crate::base::error::Error;

/// A request under way. The thread that asked makes it, and takes it away when it leaves.
pub(crate) struct Compaction {
    /// Bytes a second to move at most. Written by the asking thread, read by the keeper.
    pub(crate) bytes_per_s: u64,
    /// Written by the keeper, read by the asking thread.
    pub(crate) stage: Stage,
}

/// The stage of a request.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// The keeper has not seen it.
    Asked,
    /// Bytes of the zones that are still in use behind the wanted end; `u64::MAX`: not known yet.
    UnderWay { left: u64 },
    /// The file is as short as it gets.
    Done,
    /// The file could not be cut, and why.
    Failed(Arc<Error>),
}
