//! Recovery: from the last checkpoint and the log to the pages as they were.
//!
//! **Analysis** reads the log once: it replays the map groups, finds the log's end, and records the last change and the
//! last durable image of each page. **Redo** reads the log again for the pages whose image is older than their last
//! change. It handles as many pages at a time as the pool holds, in several threads with pages of their own.
//!
//! RECOVER-1  Before anything is logged, the log that was read is durable, and an epoch group seals its end. Bytes that
//!            no group proves durable are written again, and all is synced.
//! RECOVER-2  A count at the checkpoint's LSN holds the checkpoint until redo is finished: a crash on the way finds the
//!            same log, and also the pages that cleaning has made durable meanwhile.
//! RECOVER-3  A page's changes are applied in order and without a gap: each demands the page LSN of the one before.
//! RECOVER-4  A page stays in its frame from its first redone change to its last. Cleaned in between, it would be dirty
//!            again, and take room for a map record that no credit covers. Model: `recovery`.
//! RECOVER-7  The table of pages is bounded by the pool's frames, not by the log ([`noted`]).
//! RECOVER-5  Freed pages are not redone: the page's history begins anew, and its image is forgotten. No later map
//!            group names an older image: freeing a page forgets its completed writes (STORE-9).

mod noted;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::FixedState;

use self::noted::{Noted, PAGE_NOTED};
use crate::base::aligned::{aligned, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::page::layout::{TREE_PAGE, header, page_lsn};
use crate::base::{parallel, sync};
use crate::core::Core;
use crate::mtr::{Record, formats, frees, replay};
use crate::pool::pin::Pin;
use crate::redo::dirty_counts::DirtyCounts;
use crate::redo::files::LogFiles;
use crate::redo::group::{Group, GroupKind, epoch_nonce};
use crate::redo::log::Resume;
use crate::redo::scan::LogScan;
use crate::store::page_store::{MapRecord, PageStore};
use crate::store::superblock::Superblock;

/// Threads that read pages before redo; as many reads are in flight.
const READERS: usize = 8;

/// Most threads that apply changes: each reads the whole log.
const SHARDS_MAX: usize = 4;

/// Pages for each thread: with fewer, one thread does all.
const PAGES_A_THREAD: usize = 16;

/// Result of the first pass.
#[derive(Debug)]
pub(crate) struct Analysis {
    from: Lsn,
    nonce: u64,
    /// Where the log ends.
    pub(crate) end: Lsn,
    /// The log was durable at least up to here, by superblock and groups.
    pub(crate) durable: Lsn,
    /// Groups from the checkpoint on.
    pub(crate) groups: u64,
    /// Nonces in force, each from an LSN on.
    epochs: Vec<(Lsn, u64)>,
    /// The space of the last record that was reported to the store.
    noted: Option<SpaceId>,
    pages: Noted,
}

fn rotten(at: Lsn, what: &str) -> Error {
    Error::Corruption(format!("the log at LSN {at}: {what}; put back the files of the log if they are not the newest, or restore a backup (`millpond restore`)").into())
}

impl Analysis {
    /// Where and how the log resumes.
    pub(crate) fn resume(&self) -> Resume {
        Resume { checkpoint: self.from, epochs: self.epochs.clone(), end: self.end }
    }

    /// Pages whose image is older than their last change; an estimate if they are split into parts.
    pub(crate) fn pages_to_redo(&self) -> u64 {
        // The parts are about equal.
        to_u64(self.pages.pages.len()) * self.pages.parts
    }

    /// Whether redo of the page begins with its image.
    pub(crate) fn needs_image(&self, id: PageId) -> bool {
        self.pages.pages.get(&id).is_some_and(|history| history.starts_empty().is_none())
    }

    fn note(&mut self, group: &Group<'_>, store: &PageStore) -> Result<(), Error> {
        match group.kind {
            GroupKind::Epoch if epoch_nonce(group.payload).is_none() => {
                Err(rotten(group.start, "an epoch group that names no nonce"))
            }
            GroupKind::Epoch => Ok(()),
            GroupKind::Map => {
                let Some(records) = MapRecord::all(group.payload) else {
                    return Err(rotten(group.start, "a map group of odd length"));
                };
                for record in records {
                    let (id, image) = (PageId(record.page_id.get()), Lsn(record.image_lsn.get()));
                    if image > group.start {
                        let what = format!("a map group names an image of page {id} of LSN {image}, from the future");
                        return Err(rotten(group.start, &what));
                    }
                    if let Some(history) = self.pages.of(id) {
                        history.image = image;
                    }
                }
                store.replay_records(records, group.start, group.end).map_err(|what| rotten(group.start, &what))
            }
            GroupKind::Pages => {
                for record in Record::all(group.payload) {
                    match record {
                        Some(Record::DropSpace(space)) => {
                            store.note_space(space);
                            self.pages.dropped.insert(space);
                        }
                        Some(Record::Page { id, .. }) if id.space() == SpaceId(u32::MAX) => {
                            return Err(rotten(
                                group.start,
                                &format!("page {id} is of a space that is never given out"),
                            ));
                        }
                        Some(Record::Page { id, ops, .. }) => {
                            if self.noted.replace(id.space()) != Some(id.space()) {
                                store.note_space(id.space());
                            }
                            if frees(ops) {
                                store.replay_free(id, group.start, group.end);
                            } else if formats(ops) {
                                store.replay_format(id);
                            }
                            if let Some(history) = self.pages.of(id) {
                                history.change(group, ops);
                            }
                        }
                        Some(Record::Txn(txn)) => {
                            if !planted!("txn_ids_forgotten") {
                                store.note_txn(txn);
                            }
                        }
                        Some(Record::Padding) => {}
                        None => return Err(rotten(group.start, "a whole group holds an unreadable record")),
                    }
                }
                Ok(())
            }
        }
    }
}

impl Analysis {
    /// Goes on to the next part of the pages; false if there is none. The first pass has reported everything to the
    /// store.
    fn next_part(&mut self, files: &LogFiles) -> Result<bool, Error> {
        let noted = &mut self.pages;
        if !noted.next_part() {
            return Ok(false);
        }
        let mut scan = LogScan::new(files, self.nonce, self.from);
        while scan.position() < self.end {
            let Some(group) = scan.next()? else { return Err(shorter(scan.position())) };
            match group.kind {
                GroupKind::Epoch => {}
                GroupKind::Map => {
                    for record in MapRecord::all(group.payload).into_iter().flatten() {
                        if let Some(history) = noted.of(PageId(record.page_id.get())) {
                            history.image = Lsn(record.image_lsn.get());
                        }
                    }
                }
                GroupKind::Pages => {
                    for record in Record::all(group.payload).flatten() {
                        if let Record::Page { id, ops, .. } = record
                            && let Some(history) = noted.of(id)
                        {
                            history.change(&group, ops);
                        }
                    }
                }
            }
        }
        self.pages.forget_clean();
        Ok(true)
    }
}

fn shorter(at: Lsn) -> Error {
    rotten(at, "it ended later when it was read before")
}

/// Most bytes that recovery takes besides the pool: the table of pages, and the changes that redo gathers.
pub(crate) fn memory_budget(frames: usize, page_size: usize) -> u64 {
    to_u64(Noted::most(frames)) * PAGE_NOTED + 3 * to_u64(gathered_bytes(frames * page_size))
}

/// Called between parts of the log, with the bytes of the last one. An error from it ends the pass.
pub(crate) type Rest<'a> = &'a mut dyn FnMut(usize) -> Result<(), Error>;

/// Bytes of log between two calls of [`Rest`].
const PART: u64 = 256 << 10;

/// The first pass. `frames` is the pool's size; `watched` are pages that the caller asks [`Analysis::needs_image`]
/// about. Adds a count at the checkpoint, which [`redo`] removes (RECOVER-2).
pub(crate) fn analyse(
    files: &LogFiles,
    superblock: &Superblock,
    store: &PageStore,
    counts: &DirtyCounts,
    (frames, watched): (usize, BTreeSet<PageId>),
    rest: Rest<'_>,
) -> Result<Analysis, Error> {
    let (from, nonce) = (superblock.checkpoint_lsn, superblock.nonce);
    if !planted!("unredone_not_counted") {
        counts.add(from);
    }
    let mut scan = LogScan::new(files, nonce, from);
    let mut found = Analysis {
        from,
        nonce,
        end: from,
        durable: superblock.durable_lsn,
        groups: 0,
        epochs: vec![(from, nonce)],
        noted: None,
        pages: Noted::new(frames, watched),
    };
    let (mut noted, mut rested) = (0, from);
    while let Some(group) = scan.next()? {
        if counts.bucket(group.start) != noted {
            noted = counts.bucket(group.start);
            counts.note_group(group.start);
        }
        found.note(&group, store)?;
        found.durable = found.durable.max(group.durable);
        found.groups += 1;
        let (kind, end) = (group.kind, group.end);
        if kind == GroupKind::Epoch {
            found.epochs.push((end, scan.nonce()));
        }
        if end.since(rested) >= PART {
            rest(to_usize(end.since(rested)))?;
            rested = end;
        }
    }
    found.end = scan.position();
    if found.end < superblock.durable_lsn {
        let what = format!(
            "it ends here, but was durable up to {} when superblock {} was written: its files are damaged",
            superblock.durable_lsn, superblock.sequence
        );
        return Err(rotten(found.end, &what));
    }
    // After a close 13 MiB need not be read.
    if !superblock.is_closed_at(found.end)
        && let Some(at) = scan.proof_of_more()?
    {
        let what =
            format!("it ends here, but the group at LSN {at} shows that more was durable: its files are damaged");
        return Err(rotten(found.end, &what));
    }
    found.pages.forget_clean();
    store.finish_replay(&found.pages.dropped)?;
    store.note_log_end(found.end);
    Ok(found)
}

/// The second pass. The keeper must be running: it frees frames if the pages do not fit the pool.
pub(crate) fn redo(core: &Arc<Core>, files: &LogFiles, mut analysis: Analysis) -> Result<(), Error> {
    let from = analysis.from;
    loop {
        analysis = redo_part(core, files, analysis)?;
        if !analysis.next_part(files)? {
            break;
        }
    }
    if !core.store.names_images() {
        core.store.sync()?;
    }
    if !planted!("unredone_not_counted") {
        core.log.counts.remove(from);
    }
    Ok(())
}

/// Redoes the pages of the current part.
fn redo_part(core: &Arc<Core>, files: &LogFiles, analysis: Analysis) -> Result<Analysis, Error> {
    let mut pages: Vec<PageId> = analysis.pages.pages.keys().copied().collect();
    core.store.sort_by_place(&mut pages);
    let turns = (0..).zip(&pages).map(|(turn, id)| (*id, turn)).collect();
    let begins = pages.iter().map(|id| analysis.pages.pages[id].begin()).collect();
    let shared = Arc::new(Redo { files: files.clone(), analysis, turns, begins });
    // Each batch costs a pass over the log, so it is as large as the pool allows. The pages dirty at the crash fitted
    // the pool.
    let mut first = 0;
    for batch in pages.chunks(core.pool.len() - core.pool.len() / 8) {
        redo_batch(core, &shared, first, batch)?;
        first += batch.len();
    }
    match Arc::into_inner(shared) {
        Some(redo) => Ok(redo.analysis),
        None => Err(Error::Bug("RECOVER: a thread of redo has not ended".into())),
    }
}

/// State shared by all threads of redo.
struct Redo {
    files: LogFiles,
    analysis: Analysis,
    /// Each page's number among the pages to redo, in the order of their slots. Looked up for each record of the log:
    /// small, so that it stays in the CPU's cache.
    turns: HashMap<PageId, u32, FixedState>,
    /// By turn: the LSN where a page's changes to redo begin.
    begins: Vec<Lsn>,
}

/// Redoes `batch`, whose first page has turn `first`.
fn redo_batch(core: &Arc<Core>, shared: &Arc<Redo>, first: usize, batch: &[PageId]) -> Result<(), Error> {
    let threads = (batch.len() / PAGES_A_THREAD).max(1);
    let ids = Arc::new(batch.to_vec());
    let readers = threads.min(READERS);
    parallel::in_parallel("mp-redo", readers, |reader| {
        let (core, shared, ids) = (Arc::clone(core), Arc::clone(shared), Arc::clone(&ids));
        move || {
            let analysis = &shared.analysis;
            // Adjacent pages go to different readers, so that all readers advance through the file together.
            for id in ids.iter().skip(reader).step_by(readers).filter(|id| analysis.needs_image(**id)) {
                drop(core.pool.load(*id)?);
            }
            Ok(())
        }
    })?;
    let shards = threads.min(SHARDS_MAX).min(sync::processors());
    parallel::in_parallel("mp-redo", shards, |shard| {
        let (core, shared) = (Arc::clone(core), Arc::clone(shared));
        let mine = Share { turns: first..first + batch.len(), shard, shards };
        move || redo_pages(&core, &shared, &mine)
    })?;
    Ok(())
}

/// The pages that one thread redoes in one pass.
struct Share {
    /// Turns of the batch.
    turns: Range<usize>,
    /// The thread has place `shard` in each run of `shards` turns.
    shard: usize,
    shards: usize,
}

impl Share {
    fn len(&self) -> usize {
        (self.turns.len() + self.shards - 1 - self.shard) / self.shards
    }

    /// The index among the thread's pages of the page with this turn.
    fn index(&self, turn: usize) -> Option<usize> {
        let place = turn.checked_sub(self.turns.start).filter(|_| turn < self.turns.end)?;
        (place % self.shards == self.shard).then_some(place / self.shards)
    }
}

/// One pass over the log for some of the pages.
fn redo_pages(core: &Core, redo: &Redo, mine: &Share) -> Result<(), Error> {
    let analysis = &redo.analysis;
    let mut scan = LogScan::new(&redo.files, analysis.nonce, analysis.from);
    // RECOVER-4. A batch leaves an eighth of the pool free, for its pages that are not begun.
    let mut begun: Vec<Option<Pin<'_>>> = (0..mine.len()).map(|_| None).collect();
    let bytes_max = gathered_bytes(core.pool.len() * core.store.page_size()) / mine.shards;
    let mut gathered = Gathered { changes: Vec::new(), bytes: Vec::new(), bytes_max };
    while scan.position() < analysis.end {
        let Some(group) = scan.next()? else {
            return Err(shorter(scan.position()));
        };
        if group.kind != GroupKind::Pages {
            continue;
        }
        for record in Record::all(group.payload).flatten() {
            if let Record::Page { id, previous, ops } = record
                && let Some(turn) = redo.turns.get(&id).map(|turn| to_usize(u64::from(*turn)))
                && let Some(index) = mine.index(turn)
                && group.start >= redo.begins[turn]
            {
                gathered.add(Change { index, id, previous, start: group.start, end: group.end, ops: 0..0 }, ops);
            }
        }
        if gathered.is_full() {
            gathered.apply(core, analysis, &mut begun)?;
        }
    }
    gathered.apply(core, analysis, &mut begun)
}

/// Bytes of operations that all threads together gather, for a pool of `pool` bytes: at most 16 MiB. Their index, and
/// the sort of it, take up to one and a half times as much.
fn gathered_bytes(pool: usize) -> usize {
    (pool / 16).clamp(256 << 10, 16 << 20)
}

/// A thread gathers at most one change for each of so many bytes.
const BYTES_A_CHANGE: usize = 64;

/// Gathered changes of many pages. Changes of one page are applied together, while the page is in the CPU's cache: one
/// by one, each would wait for memory several times.
struct Gathered {
    changes: Vec<Change>,
    /// Their operations.
    bytes: Vec<u8>,
    /// This thread's share of the gathered bytes.
    bytes_max: usize,
}

/// One page's record.
struct Change {
    /// Index of the page among the thread's pages.
    index: usize,
    id: PageId,
    previous: Lsn,
    start: Lsn,
    end: Lsn,
    /// Place of its operations in `bytes`.
    ops: Range<usize>,
}

impl Gathered {
    fn add(&mut self, change: Change, ops: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(ops);
        self.changes.push(Change { ops: from..self.bytes.len(), ..change });
    }

    fn is_full(&self) -> bool {
        self.changes.len() >= self.bytes_max / BYTES_A_CHANGE || self.bytes.len() >= self.bytes_max
    }

    /// Applies all changes, each page's in the order of the log. Leaves the changed pages pinned.
    fn apply<'c>(&mut self, core: &'c Core, analysis: &Analysis, begun: &mut [Option<Pin<'c>>]) -> Result<(), Error> {
        // Stable sort: RECOVER-3.
        self.changes.sort_by_key(|change| change.index);
        for changes in self.changes.chunk_by(|one, next| one.index == next.index) {
            let page = &mut begun[changes[0].index];
            *page = redo_page(core, analysis, page.take(), changes, &self.bytes)?;
        }
        self.changes.clear();
        self.bytes.clear();
        Ok(())
    }
}

/// Redoes some changes of one page. A page with earlier redone changes comes pinned as `begun`. Returns the page's pin
/// if any change was redone.
fn redo_page<'c>(
    core: &'c Core,
    analysis: &Analysis,
    begun: Option<Pin<'c>>,
    changes: &[Change],
    bytes: &[u8],
) -> Result<Option<Pin<'c>>, Error> {
    let (id, first) = (changes[0].id, (changes[0].start, changes[0].end));
    let anew = analysis.pages.pages[&id].starts_empty() == Some(first);
    let mut changed = begun.is_some();
    let pin = match begun {
        Some(pin) => pin,
        None => page_for_redo(core, id, anew)?,
    };
    let mut page = pin.write();
    if page.lsn() > analysis.end {
        let what = format!("it ends at {}, but page {id} has an image of LSN {}", analysis.end, page.lsn());
        return Err(rotten(first.0, &what));
    }
    for change in changes {
        if page.lsn() >= change.end {
            continue;
        }
        let formatted_here = anew && (change.start, change.end) == first;
        if !formatted_here && page.lsn() != change.previous {
            let what = format!("it changes page {id} from LSN {}, but the page is at {}", change.previous, page.lsn());
            return Err(rotten(change.start, &what));
        }
        debug_assert!(page_lsn(page.bytes()) < change.end, "RECOVER-3: a page LSN never goes back");
        replay(page.bytes_mut(), id, &bytes[change.ops.clone()])
            .map_err(|what| rotten(change.start, &format!("page {id}: {what}")))?;
        if header(page.bytes()).page_type != TREE_PAGE {
            return Err(rotten(change.start, &format!("page {id} is given back beside other changes")));
        }
        page.set_lsn(change.end);
        page.mark_dirty(change.start);
        changed = true;
    }
    if changed {
        return Ok(Some(page.unlatch()));
    }
    if !core.store.names_images() && !planted!("image_taken_for_durable") {
        let mut image = aligned(page.bytes().len());
        image.copy_from_slice(page.bytes());
        drop(page);
        core.store.write_again(id, &image)?;
    }
    Ok(None)
}

/// The page as it is now: in memory, or its image, or an empty frame if the group formats it `anew`.
fn page_for_redo(core: &Core, id: PageId, anew: bool) -> Result<Pin<'_>, Error> {
    if let Some(pin) = core.pool.fetch(id) {
        return Ok(pin);
    }
    if anew && !core.store.in_flight(id) {
        let ticket = core.pool.take_frame()?;
        return Ok(core.pool.install(id, ticket).unlatch());
    }
    core.pool.load(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_of_a_batch_is_of_one_thread_at_a_place_of_its_own() {
        for (turns, shards) in [(0..1, 1), (3..20, 1), (5..6, 4), (7..31, 3), (64..128, 4)] {
            let mut found = Vec::new();
            for shard in 0..shards {
                let share = Share { turns: turns.clone(), shard, shards };
                let own: Vec<usize> = (0..200)
                    .filter_map(|turn| share.index(turn).map(|index| (turn, index)))
                    .inspect(|(turn, _)| found.push(*turn))
                    .map(|(_, index)| index)
                    .collect();
                assert_eq!(own, (0..share.len()).collect::<Vec<_>>(), "{turns:?}: {shard} of {shards}");
            }
            found.sort_unstable();
            assert_eq!(found, turns.collect::<Vec<_>>());
        }
    }

    #[test]
    fn memory_follows_the_pool_and_what_is_gathered_has_an_end() {
        // 1,024 frames: 1,792 pages noted; a sixteenth of the pool is gathered.
        assert_eq!(memory_budget(1024, 16 << 10), 1792 * 130 + 3 * (1 << 20));
        assert_eq!(memory_budget(1 << 20, 16 << 10), (7 << 18) * 130 + 3 * (16 << 20));
        let mut gathered = Gathered { changes: Vec::new(), bytes: Vec::new(), bytes_max: 256 };
        let change = Change { index: 0, id: PageId(1), previous: Lsn(0), start: Lsn(1), end: Lsn(2), ops: 0..0 };
        let add = |gathered: &mut Gathered, ops: &[u8]| gathered.add(Change { ops: 0..0, ..change }, ops);
        add(&mut gathered, &[1; 100]);
        add(&mut gathered, &[2; 155]);
        assert_eq!((gathered.changes[1].ops.clone(), gathered.bytes[100], gathered.is_full()), (100..255, 2, false));
        add(&mut gathered, &[3]);
        assert!(gathered.is_full(), "256 bytes");
        gathered.bytes.clear();
        add(&mut gathered, b"");
        assert!(gathered.is_full(), "four changes");
    }
}
