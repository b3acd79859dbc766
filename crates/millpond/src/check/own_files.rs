//! The check of log and map in the files of a database at work. Superblock and directory were written just before, for
//! the moment that the check holds.

use crate::backup::moment::Moment;
use crate::backup::rate::Pace;
use crate::base::aligned::{BLOCK, aligned, to_usize};
use crate::base::error::Error;
use crate::engine::Engine;
use crate::redo::scan::LogScan;
use crate::store::frozen::PIECE;

/// Called while the check waits: an error from it ends the check.
pub(super) type Look<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

/// Receives a problem.
pub(super) type Tell<'a> = &'a mut dyn FnMut(String);

/// Reads the log from the newest superblock's checkpoint to the moment's LSN. What writers need is not read.
pub(super) fn check_log(moment: &Moment<'_>, pace: &mut Pace<'_>, look: Look<'_>, tell: Tell<'_>) -> Result<(), Error> {
    let (log, superblock, upto) = (&moment.engine.core.log, &moment.frozen.superblock, moment.lsn);
    log.flush_wait(upto)?;
    let files = log.files();
    let mut scan = LogScan::new(&files, superblock.nonce, superblock.checkpoint_lsn);
    let mut rested = scan.position();
    while scan.position() < upto && moment.holds_log() {
        let is_there = scan.next()?.is_some();
        let at = scan.position();
        if !is_there {
            // Where the hold is broken, later groups are in that place.
            if moment.holds_log() {
                tell(format!(
                    "the log ends at LSN {at}, and was durable up to {upto}: take a checkpoint (Db::checkpoint), so that a crash does not need it, and look at the device"
                ));
            }
            return Ok(());
        }
        let read = to_usize(at.since(rested));
        if read >= PIECE {
            rested = at;
            pace.wait_unless(read, || {
                look()?;
                Ok(moment.is_urgent(at))
            })?;
        }
    }
    Ok(())
}

/// Reads all map pages.
pub(super) fn check_map(engine: &Engine, pace: &mut Pace<'_>, look: Look<'_>, tell: Tell<'_>) -> Result<(), Error> {
    let store = &engine.core.store;
    let mut buf = aligned(BLOCK);
    for space in store.spaces() {
        for id in store.map_pages_of(space) {
            store.damage_of_map_page(id, &mut buf)?.into_iter().for_each(&mut *tell);
            pace.wait(BLOCK, &mut *look)?;
        }
    }
    Ok(())
}
