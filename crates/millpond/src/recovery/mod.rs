//! The way back: from the last checkpoint and the log to the pages as they were.
//!
//! Two passes over the log. The first finds its end and the spaces dropped in it, the second applies. Nothing is
//! logged, and no superblock is written, before both are through: a crash on the way leaves everything as it was found.

use std::collections::BTreeSet;

use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::page::apply::apply;
use crate::base::page::layout::page_lsn;
use crate::base::page::op::PageOp;
use crate::mtr::{Core, Record};
use crate::pool::frame::{PageWrite, Pin};
use crate::redo::files::LogFiles;
use crate::redo::scan::{Group, LogScan};
use crate::store::superblock::Superblock;

/// What the first pass found.
#[derive(Debug)]
pub(crate) struct Analysis {
    /// Where the log ends.
    pub(crate) end: Lsn,
    /// Groups from the checkpoint on.
    pub(crate) groups: u64,
    /// Spaces dropped in them.
    pub(crate) dropped: BTreeSet<SpaceId>,
    /// The largest space named in them.
    pub(crate) last_space: SpaceId,
}

fn rotten(at: Lsn, what: &str) -> Error {
    Error::Corruption(format!("the log at LSN {at}: {what}; restore the database from a backup").into())
}

/// The first pass.
pub(crate) fn analyse(files: &LogFiles, superblock: &Superblock) -> Result<Analysis, Error> {
    let mut scan = LogScan::new(files, superblock.nonce, superblock.checkpoint_lsn);
    let mut found = Analysis {
        end: superblock.checkpoint_lsn,
        groups: 0,
        dropped: BTreeSet::new(),
        last_space: SpaceId(superblock.next_space.saturating_sub(1)),
    };
    while let Some(group) = scan.next()? {
        for record in Record::all(group.payload) {
            match record {
                Some(Record::DropSpace(space)) => {
                    found.dropped.insert(space);
                }
                Some(Record::Page { id, .. }) => found.last_space = found.last_space.max(id.space()),
                None => return Err(rotten(group.start, "a group that is whole holds a record that is none")),
            }
        }
        found.groups += 1;
    }
    found.end = scan.position();
    if found.end < superblock.durable_lsn {
        let what = format!(
            "it ends here, but was durable up to {} when superblock {} was written: its files are damaged",
            superblock.durable_lsn, superblock.sequence
        );
        return Err(rotten(found.end, &what));
    }
    Ok(found)
}

/// The second pass. The keeper must be running: it frees frames when the pages do not fit the pool.
pub(crate) fn redo(core: &Core, files: &LogFiles, superblock: &Superblock, analysis: &Analysis) -> Result<(), Error> {
    let mut scan = LogScan::new(files, superblock.nonce, superblock.checkpoint_lsn);
    while let Some(group) = scan.next()? {
        redo_group(core, analysis, &group)?;
    }
    for &space in &analysis.dropped {
        core.pool.discard_space(space);
        core.store.drop_space(space);
    }
    Ok(())
}

fn redo_group(core: &Core, analysis: &Analysis, group: &Group<'_>) -> Result<(), Error> {
    let (start, end) = (group.start, group.end);
    let mut changes = Vec::new();
    for record in Record::all(group.payload).flatten() {
        if let Record::Page { id, previous, op } = record
            && !analysis.dropped.contains(&id.space())
        {
            changes.push((id, previous, op));
        }
    }
    let ids: BTreeSet<PageId> = changes.iter().map(|(id, _, _)| *id).collect();
    if ids.len() > core.pool.len() / 2 {
        let message = format!(
            "buffer_pool_size is too small for recovery: one group changes {} pages and the pool has {} frames; open with a larger one",
            ids.len(),
            core.pool.len()
        );
        return Err(Error::InvalidOptions(message.into()));
    }
    // First all pins, then all latches: nothing is latched while a page is read.
    let mut pins: Vec<(PageId, Pin<'_>)> = Vec::with_capacity(ids.len());
    for id in ids {
        let first = changes.iter().find(|(changed, _, _)| *changed == id).map(|(_, _, op)| op);
        pins.push((id, page_for_redo(core, id, first)?));
    }
    let mut pages: Vec<(PageId, PageWrite<'_>)> = Vec::with_capacity(pins.len());
    for (id, pin) in pins {
        let page = pin.write();
        if page.lsn() > analysis.end {
            let what = format!("it ends at {}, but page {id} has an image of LSN {}", analysis.end, page.lsn());
            return Err(rotten(start, &what));
        }
        if page.lsn() < end {
            pages.push((id, page));
        }
    }
    for (id, previous, op) in changes {
        let Ok(index) = pages.binary_search_by_key(&id, |(id, _)| *id) else { continue };
        let bytes = pages[index].1.bytes_mut();
        if page_lsn(bytes) != previous {
            let what = format!("it changes page {id} from LSN {previous}, but the page is at {}", page_lsn(bytes));
            return Err(rotten(start, &what));
        }
        apply(bytes, id, &op)
            .map_err(|misfit| rotten(start, &format!("page {id} does not take its change ({misfit:?})")))?;
    }
    for (_, page) in &mut pages {
        page.set_lsn(end);
        page.frame().mark_dirty(start);
    }
    Ok(())
}

/// The page as it is now: in memory, or its image, or, when the group formats it and there is neither, an empty frame.
fn page_for_redo<'p>(core: &'p Core, id: PageId, first: Option<&PageOp<'_>>) -> Result<Pin<'p>, Error> {
    if let Some(pin) = core.pool.fetch(id) {
        return Ok(pin);
    }
    if matches!(first, Some(PageOp::Init { .. })) && !core.store.has_image(id) {
        core.store.note_use(id)?;
        let ticket = core.pool.take_frame()?;
        return Ok(core.pool.install(id, ticket).unlatch());
    }
    core.pool.load(id)
}
