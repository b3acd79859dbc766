//! Makes the data file short, as a caller has asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::backup::options::WorkOptions;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::sync::sleep_until;
use crate::engine::compaction::{Compaction, Stage};
use crate::engine::{CheckpointGoal, Engine};

/// Time between two looks how far the keeper is.
const LOOK_NS: u64 = 10_000_000;

/// The data file before and after it was made short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactReport {
    /// Bytes of the data file before.
    pub bytes_before: u64,
    /// Bytes of the data file now.
    pub bytes_after: u64,
}

/// The request, until dropped.
struct Asked<'e>(&'e Engine);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut compaction = self.0.compaction.lock();
        *compaction = None;
        // Relaxed: the bell, or the next tick, has the keeper look.
        self.0.is_compacted.store(false, Ordering::Relaxed);
        drop(compaction);
        self.0.bell.ring();
    }
}

/// Has the keeper make the data file short, and waits until it is.
pub(crate) fn compact(engine: &Arc<Engine>, mut options: WorkOptions) -> Result<CompactReport, Error> {
    engine.check_changeable()?;
    let busy = |what: &str| Error::InUse(format!("{what} of this database is under way: wait for its end").into());
    if engine.core.store.has_pins() {
        return Err(busy("a backup or check"));
    }
    let asked = {
        let mut compaction = engine.compaction.lock();
        if compaction.is_some() {
            return Err(busy("another compaction"));
        }
        let bytes_per_s = options.rate_on(engine.write_capacity());
        *compaction = Some(Compaction { bytes_per_s, stage: Stage::Asked });
        engine.is_compacted.store(true, Ordering::Relaxed);
        Asked(engine)
    };
    let bytes_before = engine.core.store.data_bytes();
    engine.bell.ring();
    let mut done = 0;
    loop {
        sleep_until(clock::now_ns() + LOOK_NS);
        // Also: a database may turn out to be for reading only while it is opened.
        engine.check_changeable()?;
        engine.core.log.health()?;
        let stage = engine.compaction.lock().as_ref().map(|asked| asked.stage.clone());
        match stage {
            Some(Stage::Done) => break,
            Some(Stage::Failed(why)) => return Err(why.once_more()),
            // Until the keeper knows, all of it.
            // Writers may take room that was given up: then there is more to do, and none is undone.
            Some(Stage::UnderWay { left }) => done = bytes_before.saturating_sub(left).max(done),
            _ => {}
        }
        options.tell(done, bytes_before)?;
    }
    drop(asked);
    // Its sync makes the length durable.
    engine.checkpoint_wait(CheckpointGoal::Superblock)?;
    Ok(CompactReport { bytes_before, bytes_after: engine.core.store.data_bytes() })
}
