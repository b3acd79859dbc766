//! `rebuild`: makes the map and the superblocks anew, from the images in the data file and the log.
//!
//! Of each page the image with the highest page LSN counts, unless the log or a readable part of the old maps shows
//! that there was a newer one. The new checkpoint is at the first group of the log that is in no image: the next open
//! recovers from there as usual. The rebuild reports losses, and a lost page stays unreadable.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use bytesize::ByteSize;
use foldhash::fast::FixedState;

use crate::base::aligned::{to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SlotId, SpaceId, TxnId};
use crate::base::page::layout::{TREE_PAGE, header, page_lsn};
use crate::base::page::op::PageOp;
use crate::base::page::verify::structure_problem;
use crate::base::page::view::PageView;
use crate::io::device::Files;
use crate::io::directory::{Directory, HowToOpen};
use crate::io::directory_lock::Access;
use crate::io::overlay::Overlay;
use crate::mtr::{Record, formats, frees};
use crate::open::entry::refuse_any_backup;
use crate::redo::files::{LogFiles, MissingFile, Owner, Start, is_log_file};
use crate::redo::group::GroupKind;
use crate::redo::locate::{FoundLog, find_log, find_rings, reach_back};
use crate::redo::scan::LogScan;
use crate::schema::catalog_entry::Entry;
use crate::store::image::{SlotContent, content_of, image_problem, names, slot_of};
use crate::store::look::{DataFile, copy_of, read_map, superblocks};
use crate::store::map::{MapEntry, PageMap};
use crate::store::page_store::MapRecord;
use crate::store::rewrite::{Images, rewrite};
use crate::store::superblock::{Found, Superblock};
use crate::tools::check::open_in_memory;
use crate::txn::{begins_batch, txn_of};

/// How a database is rebuilt.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RebuildOptions {
    /// Whether files are read and written through the page cache. Default: no.
    pub cached: bool,
    /// Whether to rebuild a database that opens, and one whose newest state may not be found. Default: no.
    pub force: bool,
}

/// The findings of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildReport {
    /// Pages whose newest image the new map names.
    pub pages: u64,
    /// Of these, pages that neither the log nor a readable part of the old maps knows. If such a page lost its newest
    /// image without a trace, an older image silently stands in for it.
    pub unproven_pages: u64,
    /// Spaces of the pages, the catalog among them.
    pub spaces: u64,
    /// Slots read.
    pub slots: u64,
    /// Slots that held neither zeroes nor a whole image: torn by a crash, or damaged.
    pub damaged_slots: u64,
    /// LSN where the next open begins to redo.
    pub log_from: u64,
    /// LSN of the log's end.
    pub log_end: u64,
    /// Groups of the log that were read.
    pub log_groups: u64,
    /// Whether the checkpoint was known, from a superblock or its copy.
    pub checkpoint_known: bool,
    /// The losses; empty: everything is there.
    pub lost: Vec<String>,
}

/// Writes map and superblocks of the database in directory `path` anew. An interrupted rebuild can be run again: images
/// and log are only read, and the old map stays until the new one is whole. Copies of the replaced parts are kept in
/// files named `old-<n>-*`.
///
/// # Errors
/// [`Error::InvalidOptions`]: the database opens. [`Error::Corruption`]: there is no log, or a part of it that may be
/// needed is missing (`force` goes on). [`Error::Format`]: no database. [`Error::InUse`]: the database is open. Errors
/// of the operating system.
pub fn rebuild(path: impl AsRef<Path>, options: &RebuildOptions) -> Result<RebuildReport, Error> {
    rebuild_on(Arc::new(Directory::open(path.as_ref(), HowToOpen::new(Access::Write, options.cached))?), options)
}

/// Rebuilds the database on any implementation of [`Files`]. The caller ensures that no process has it open.
///
/// # Errors
/// As [`rebuild`].
pub fn rebuild_on(files: Arc<dyn Files>, options: &RebuildOptions) -> Result<RebuildReport, Error> {
    let data = refuse_any_backup(&*files).and_then(|()| DataFile::open(&*files))?;
    if !options.force {
        match open_in_memory(&files, ByteSize::mib(16)) {
            Ok(_) => {
                let message = format!("the database in '{}' opens: there is nothing to rebuild", files.place());
                return Err(Error::InvalidOptions(message.into()));
            }
            // A rebuild is for damage; any other error may be gone the next time.
            Err(Error::Corruption(_) | Error::Format(_)) => {}
            Err(other) => return Err(other),
        }
    }
    let known = known_superblock(&*files, &data)?;
    let missing = if options.force { missing_log_files(&*files, known)? } else { Vec::new() };
    let (owner, log, found) = log_of(&*with_stand_ins(&files, &missing)?, &data, known)?;
    let superblocks = superblocks(&*files, &data, owner.uuid);
    let mut work =
        Work { report: RebuildReport { checkpoint_known: known.is_some(), ..Default::default() }, ..Work::default() };
    for file in &missing {
        let name = file.name();
        work.lose(format!("log file '{name}' is missing: if the database was not closed, what was written last"));
    }
    work.read_maps(&*files, &superblocks, found.start.at);
    work.read_slots(&data, owner)?;
    let end = work.read_log(&log, found.start)?;
    if let Some(doubt) = found.doubt.filter(|_| !options.force) {
        let message =
            format!("{doubt}: use force and mistrust what was written last, or restore a backup (`millpond restore`)");
        return Err(Error::Corruption(message.into()));
    }
    if let Some(durable) = superblocks.iter().map(|superblock| superblock.durable_lsn).max().filter(|at| *at > end.at) {
        work.lose(format!("the log ends at LSN {}, but was durable up to {durable}", end.at));
    }
    let from = work.first_needed.unwrap_or(end);
    let images = work.settle(&data, owner, end.at)?;
    sync_log_files(&*files)?;
    let next_space = superblocks.iter().map(|superblock| superblock.next_space).max().unwrap_or(0);
    let next_txn = superblocks.iter().map(|superblock| superblock.next_txn.0).max().unwrap_or(0);
    let superblock = Superblock {
        features: owner.features,
        uuid: owner.uuid,
        // Higher than any one ever written.
        sequence: superblocks.first().map_or(0, |newest| newest.sequence) + 1,
        page_size: owner.page_size,
        next_space: next_space.max(work.last_space.0.saturating_add(1)),
        checkpoint_lsn: from.at,
        durable_lsn: end.at,
        nonce: from.nonce,
        directory_bytes: 0,
        directory_crc: 0,
        redo: log.geometry(),
        switch: log.switch(),
        next_txn: TxnId(work.last_txn.0.max(next_txn) + 1),
        write_capacity: superblocks.first().map_or(0, |newest| newest.write_capacity),
        apply_rate: superblocks.first().map_or(0, |newest| newest.apply_rate),
        closed: false,
    };
    rewrite(&*files, superblock, &images, end.at)?;
    // Last: while a log file is missing, no open takes the database for whole, and another rebuild reports the same.
    missing.iter().try_for_each(|file| file.create(&*files))?;
    let mut report = work.report;
    (report.log_from, report.log_end) = (from.at.0, end.at.0);
    report.pages = to_u64(images.values().filter(|image| image.is_some()).count());
    report.spaces = to_u64(images.keys().map(|id| id.space()).collect::<BTreeSet<_>>().len());
    Ok(report)
}

/// The newest superblock, if it is certain which that is: in each place the superblock, or its copy, is whole. A copy
/// may be of a superblock that was never written itself; its contents were true all the same.
fn known_superblock(files: &dyn Files, data: &DataFile) -> Result<Option<Superblock>, Error> {
    let is_stranger = |found: &Found| matches!(found, Found::OtherFormat { .. } | Found::UnknownFeatures { .. });
    if data.found.iter().any(is_stranger) {
        // A superblock of another version: an error, unless the other superblock is of this version.
        data.superblock()?;
    }
    let told = |place: usize| match data.found[place] {
        Found::Valid(superblock) => Some(superblock),
        _ => copy_of(files, place),
    };
    let both = told(0).zip(told(1)).filter(|(even, odd)| even.uuid == odd.uuid);
    Ok(both.map(|(even, odd)| if even.sequence > odd.sequence { even } else { odd }))
}

/// The log's owner, its files, and where to begin to read: at the oldest checkpoint from which the log is continuous.
/// The more of the log is read, the more the old maps prove.
fn log_of(files: &dyn Files, data: &DataFile, known: Option<Superblock>) -> Result<(Owner, LogFiles, FoundLog), Error> {
    let Some(known) = known else {
        let (owner, log, doubt) = find_rings(files)?;
        let found = find_log(&log)?;
        return Ok((owner, log, FoundLog { doubt: doubt.or(found.doubt), ..found }));
    };
    let log = LogFiles::open(files, known.owner(), known.redo, known.switch)?;
    let others = superblocks(files, data, known.uuid);
    let same_ring = others.iter().filter(|other| other.redo == known.redo);
    let start = reach_back(&log, start_at(&known), same_ring.map(start_at))?;
    Ok((known.owner(), log, FoundLog { start, doubt: None }))
}

/// The missing log files. If the database was closed, they held nothing that is needed. If not, the log ends where they
/// are.
fn missing_log_files(files: &dyn Files, known: Option<Superblock>) -> Result<Vec<MissingFile>, Error> {
    let Some(known) = known else { return Ok(Vec::new()) };
    let rings = known.switch.map(|switch| switch.to).into_iter().chain([known.redo]);
    let missing = rings.map(|ring| MissingFile::find(files, known.owner(), ring));
    Ok(missing.collect::<Result<Vec<_>, _>>()?.concat())
}

/// The files, with empty files in memory in place of the missing ones.
fn with_stand_ins(files: &Arc<dyn Files>, missing: &[MissingFile]) -> Result<Arc<dyn Files>, Error> {
    if missing.is_empty() {
        return Ok(Arc::clone(files));
    }
    let overlay = Overlay::new(Arc::clone(files));
    missing.iter().try_for_each(|file| file.stand_in(&overlay))?;
    Ok(Arc::new(overlay))
}

/// Syncs the log files: the log that was read may be in the device's cache only.
fn sync_log_files(files: &dyn Files) -> Result<(), Error> {
    let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
    for name in names.iter().filter(|name| is_log_file(name)) {
        let synced = files.open(name).and_then(|file| file.sync());
        synced.map_err(|e| Error::io(&format!("sync log file '{name}'"), e))?;
    }
    Ok(())
}

fn start_at(superblock: &Superblock) -> Start {
    Start { at: superblock.checkpoint_lsn, nonce: superblock.nonce }
}

/// The log's changes of a page, in summary.
#[derive(Clone, Copy, Debug, Default)]
struct Replayed {
    /// The page LSN that redo brings the page to.
    lsn: Lsn,
    /// End of the last group that formatted the page.
    format: Lsn,
    /// Page LSN of the last image that a map group names.
    named: Lsn,
    /// End of the last group that gave the page back; older images do not count.
    freed: Lsn,
    /// The page LSN that a group expected, and that the page had not reached.
    gap: Option<Lsn>,
    /// The first group that is in no image.
    needed: Option<Start>,
}

impl Replayed {
    /// Whether the log ends with the page given back.
    fn is_free(&self) -> bool {
        self.freed > self.format
    }
}

#[derive(Default)]
struct Work {
    report: RebuildReport,
    /// The newest whole image of each page.
    newest: HashMap<PageId, (SlotId, Lsn), FixedState>,
    /// Slots of images that lead to other pages: of inner pages and of the catalog.
    leading: BTreeSet<SlotId>,
    /// Slots of images of undo pages that say that a batch is being written.
    undecided: BTreeSet<SlotId>,
    /// Images of pages that nothing leads to: given back before the log begins, if nothing else is lost.
    aside: HashMap<PageId, (SlotId, Lsn), FixedState>,
    /// The highest page LSN of each page in the headers of damaged slots.
    claims: HashMap<PageId, Lsn, FixedState>,
    /// The maps of the last checkpoints, as far as they can be read, and the checkpoints' LSNs.
    old_maps: Vec<(PageMap, Lsn)>,
    log: BTreeMap<PageId, Replayed>,
    dropped: BTreeSet<SpaceId>,
    last_space: SpaceId,
    last_txn: TxnId,
    first_needed: Option<Start>,
    /// Spaces that a name leads to, or did.
    named: BTreeSet<SpaceId>,
    /// Pages that the log formats as inner pages, and pages that it lets inner pages lead to.
    inner: BTreeSet<PageId>,
    children: BTreeSet<PageId>,
}

impl Work {
    fn lose(&mut self, what: String) {
        self.report.lost.push(what);
    }

    /// Reads the maps, as far as they are readable, whose checkpoints are not before `start`, where the log begins.
    fn read_maps(&mut self, files: &dyn Files, superblocks: &[Superblock], start: Lsn) {
        let map = |superblock| read_map(files, superblock, &mut Vec::new()).ok();
        let told = superblocks.iter().filter(|superblock| superblock.checkpoint_lsn >= start);
        self.old_maps = told.filter_map(|told| Some((map(told)?, told.checkpoint_lsn))).collect();
    }

    fn read_slots(&mut self, data: &DataFile, owner: Owner) -> Result<(), Error> {
        let page_size = u64::from(owner.page_size);
        self.report.slots = data.slots(page_size)?;
        let together = (1 << 20) / page_size;
        for first in (0..self.report.slots).step_by(to_usize(together)) {
            let count = together.min(self.report.slots - first);
            let images = data.read_slots(SlotId(first), count, page_size)?;
            for (slot, image) in (first..).map(SlotId).zip(images.chunks(to_usize(page_size))) {
                match content_of(image, owner.uuid) {
                    SlotContent::Zero => {}
                    SlotContent::Image(id) if structure_problem(image).is_none() => self.note_image(id, slot, image),
                    _ => {
                        self.report.damaged_slots += 1;
                        if header(image).page_type == TREE_PAGE {
                            let claim = self.claims.entry(PageId(header(image).page_id.get())).or_default();
                            *claim = page_lsn(image).max(*claim);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn note_image(&mut self, id: PageId, slot: SlotId, image: &[u8]) {
        self.last_space = self.last_space.max(id.space());
        let view = PageView::new(image);
        if !view.is_leaf() || id.space() == SpaceId::CATALOG {
            self.leading.insert(slot);
        }
        if begins_batch(id, view) {
            self.undecided.insert(slot);
        }
        self.last_txn =
            (0..view.len()).filter_map(|index| txn_of(id, view.value(index))).fold(self.last_txn, TxnId::max);
        let newest = self.newest.entry(id).or_insert((slot, page_lsn(image)));
        if page_lsn(image) > newest.1 {
            *newest = (slot, page_lsn(image));
        }
    }

    /// Reads the log as redo will. Returns its end.
    fn read_log(&mut self, log: &LogFiles, start: Start) -> Result<Start, Error> {
        let mut scan = LogScan::new(log, start.nonce, start.at);
        loop {
            let at = Start { at: scan.position(), nonce: scan.nonce() };
            let Some(group) = scan.next()? else {
                if let Some(more) = scan.proof_of_more()? {
                    self.lose(format!(
                        "the log ends at LSN {}, but the group at {more} shows that more was durable",
                        at.at
                    ));
                }
                let needed = self.log.iter().filter(|(id, _)| !self.dropped.contains(&id.space()));
                self.first_needed = needed.filter_map(|(_, page)| page.needed).min();
                return Ok(at);
            };
            self.report.log_groups += 1;
            match group.kind {
                GroupKind::Epoch => {}
                GroupKind::Map => {
                    for record in MapRecord::all(group.payload).unwrap_or_default() {
                        let (page, image) = (self.page(PageId(record.page_id.get())), Lsn(record.image_lsn.get()));
                        if image >= page.freed {
                            page.named = image;
                        }
                    }
                }
                GroupKind::Pages => {
                    for record in Record::all(group.payload).flatten() {
                        match record {
                            Record::Page { id, previous, ops } => self.replay(id, previous, ops, at, group.end),
                            Record::DropSpace(space) => {
                                self.last_space = self.last_space.max(space);
                                self.dropped.insert(space);
                            }
                            Record::Txn(txn) => self.last_txn = self.last_txn.max(txn),
                            Record::Padding => {}
                        }
                    }
                }
            }
        }
    }

    fn page(&mut self, id: PageId) -> &mut Replayed {
        let lsn = self.newest.get(&id).map_or(Lsn::ZERO, |(_, lsn)| *lsn);
        self.log.entry(id).or_insert(Replayed { lsn, ..Replayed::default() })
    }

    fn replay(&mut self, id: PageId, previous: Lsn, ops: &[u8], at: Start, end: Lsn) {
        self.last_space = self.last_space.max(id.space());
        if id.space() == SpaceId::CATALOG {
            for op in Record::ops(ops).flatten() {
                match op {
                    PageOp::Insert { value, .. } | PageOp::Replace { value, .. } => self.name(value),
                    PageOp::Init { level: 0, entries, .. } => entries.iter().for_each(|(_, value)| self.name(value)),
                    _ => {}
                }
            }
        }
        self.note_children(id, ops);
        let page = self.page(id);
        if frees(ops) {
            let lsn = page.lsn.max(end);
            *page = Replayed { lsn, freed: end, ..Replayed::default() };
            return;
        }
        if formats(ops) {
            page.format = end;
        }
        if end <= page.lsn {
            return;
        }
        // A format discards all that came before. The log may have no room for a recovery from before the format.
        page.needed = page.needed.filter(|_| !formats(ops)).or(Some(at));
        if formats(ops) {
            page.gap = None;
        } else if page.lsn != previous {
            page.gap = page.gap.or(Some(previous));
        }
        page.lsn = end;
    }

    /// Notes the pages that the operations let an inner page lead to.
    fn note_children(&mut self, id: PageId, ops: &[u8]) {
        let image_leads = self.newest.get(&id).is_some_and(|(slot, _)| self.leading.contains(slot));
        for op in Record::ops(ops).flatten() {
            let values = match &op {
                PageOp::Init { level: 1.., entries, .. } => {
                    self.inner.insert(id);
                    entries.iter().map(|(_, value)| *value).collect()
                }
                PageOp::Insert { value, .. } if image_leads || self.inner.contains(&id) => vec![*value],
                _ => Vec::new(),
            };
            let numbers = values.into_iter().filter_map(|value| value.try_into().ok().map(u32::from_le_bytes));
            self.children.extend(numbers.map(|number| PageId::new(id.space(), number)));
        }
    }

    /// Notes the spaces that a catalog entry names. (The value of an inner page is a page number, and no entry.)
    fn name(&mut self, value: &[u8]) {
        for space in Entry::decode(value).iter().flat_map(Entry::spaces) {
            self.last_space = self.last_space.max(space);
            self.named.insert(space);
        }
    }

    /// Decides for each page: its newest image, or lost.
    fn settle(&mut self, data: &DataFile, owner: Owner, end: Lsn) -> Result<Images, Error> {
        let referenced = self.references(data, owner)?;
        let mut lost = self.lost_by_old_maps(data, owner)?;
        for id in referenced {
            let formatted = self.log.get(&id).is_some_and(|page| page.format > Lsn::ZERO);
            if !self.newest.contains_key(&id) && !formatted {
                lost.insert(id, "it has no whole image".to_owned());
            }
        }
        for (&id, &(_, image)) in &self.newest {
            if image > end {
                lost.insert(id, format!("its image is of LSN {image}, and the log ends at {end}"));
            }
        }
        for (&id, page) in &self.log {
            let image = self.newest.get(&id).map_or(Lsn::ZERO, |(_, lsn)| *lsn);
            if page.named > image && page.named >= page.format {
                lost.insert(id, format!("its image of LSN {} is damaged", page.named));
            } else if let Some(gap) = page.gap {
                lost.insert(id, format!("its image is of LSN {image}, and the log goes on from {gap}"));
            }
        }
        for (&id, &claim) in &self.claims {
            let reached = self.log.get(&id).map(|page| page.lsn).or(self.newest.get(&id).map(|(_, lsn)| *lsn));
            // A claim on a proven page is itself damaged, unless it is from beyond the log's end.
            if reached.is_some_and(|lsn| claim > lsn) && (claim > end || !self.is_proven(id, owner)) {
                lost.insert(id, format!("a damaged image says that it is the one of LSN {claim}"));
            }
        }
        // If a page is lost, the pages that it led to are not known.
        let shaken: BTreeSet<SpaceId> = lost.keys().map(|id| id.space()).collect();
        let is_shaken = |id: PageId| shaken.contains(&id.space()) || shaken.contains(&SpaceId::CATALOG);
        let aside = std::mem::take(&mut self.aside);
        self.newest.extend(aside.into_iter().filter(|(id, _)| is_shaken(*id)));
        let known = |space: SpaceId| space < SpaceId::FIRST || self.named.contains(&space);
        // Without the whole catalog it is not known which trees there are.
        let all = lost.keys().any(|id| id.space() == SpaceId::CATALOG);
        let wanted = |id: PageId| (all || known(id.space())) && !self.dropped.contains(&id.space());
        let newest = self.newest.iter().filter(|(id, _)| wanted(**id)).map(|(id, image)| (*id, Some(*image)));
        let mut images: Images = newest.collect();
        lost.retain(|id, _| wanted(*id));
        images.extend(lost.keys().map(|id| (*id, None)));
        let unproven = images.iter().filter(|(id, image)| image.is_some() && !self.is_proven(**id, owner));
        self.report.unproven_pages = to_u64(unproven.count());
        self.report.lost.extend(lost.into_iter().map(|(id, why)| format!("page {id}: {why}")));
        Ok(images)
    }

    /// Whether the log, or an old map, knows the newest image found of a page.
    fn is_proven(&self, id: PageId, owner: Owner) -> bool {
        let is_named = |&(slot, lsn): &(SlotId, Lsn)| {
            self.old_maps.iter().any(|(map, _)| names(map.get(id), slot, lsn, u64::from(owner.page_size)))
        };
        self.log.contains_key(&id) || self.newest.get(&id).is_some_and(is_named)
    }

    /// Pages for which an old map shows that there was a newer image than those found.
    ///
    /// The proof: when the checkpoint at C was written, each change before C was in an image named by its map, or by a
    /// map group from C on. The log was read from C on, or from before. So if the log has no map group for the page,
    /// the entry names the newest of all images up to C, and any other image found is older.
    ///
    /// Of images above C the entry says nothing: later changes of the page are in the log. If the log changes the page
    /// after the older image, the log itself shows whether it continues from there; if so, nothing is lost.
    fn lost_by_old_maps(&self, data: &DataFile, owner: Owner) -> Result<BTreeMap<PageId, String>, Error> {
        let page_size = u64::from(owner.page_size);
        let mut lost = BTreeMap::new();
        for (map, checkpoint) in &self.old_maps {
            for (id, entry) in map.pages() {
                let newest = self.newest.get(&id);
                let log_tells = self
                    .log
                    .get(&id)
                    .is_some_and(|page| page.named.max(page.freed) > Lsn::ZERO || page.needed.is_some());
                let is_fine = |(slot, lsn): &(SlotId, Lsn)| lsn > checkpoint || names(entry, *slot, *lsn, page_size);
                if log_tells || newest.is_some_and(is_fine) {
                    continue;
                }
                if let Some(problem) = self.problem_at(entry, id, data, owner)? {
                    let found = newest.map_or("none".to_owned(), |(_, lsn)| format!("one of LSN {lsn}"));
                    lost.insert(id, format!("{problem}; of its older images, {found} is found"));
                }
            }
        }
        Ok(lost)
    }

    /// The problem of the image that an entry names; `None`: the image is there.
    fn problem_at(&self, entry: MapEntry, id: PageId, data: &DataFile, owner: Owner) -> Result<Option<String>, Error> {
        let page_size = u64::from(owner.page_size);
        let Some(slot) = slot_of(entry, page_size).filter(|slot| slot.0 < self.report.slots) else {
            return Ok(Some("the old map names a slot for its newest image that is not in the data file".to_owned()));
        };
        let image = data.read_slots(slot, 1, page_size)?;
        let problem = image_problem(&image, owner.uuid, id, entry.tag());
        Ok(problem.map(|what| format!("the old map names slot {} for its newest image, and there {what}", slot.0)))
    }

    /// The pages that must be there: those that inner pages and the catalog lead to. Images that nothing leads to are
    /// put aside.
    ///
    /// A page that was given back leaves its last image in some slot. If the log shows that, the image is forgotten. If
    /// not, the parent's newest image no longer leads to the page: one group changed both.
    fn references(&mut self, data: &DataFile, owner: Owner) -> Result<BTreeSet<PageId>, Error> {
        let log = &self.log;
        self.newest.retain(|id, (_, lsn)| log.get(id).is_none_or(|page| page.freed <= *lsn));
        let (mut reached, mut referenced) = (BTreeSet::new(), BTreeSet::new());
        let catalog = PageId::root(SpaceId::CATALOG);
        self.reach(vec![catalog], &mut reached, &mut referenced, data, owner)?;
        let roots = self.newest.keys().map(|id| id.space()).chain(self.named.iter().copied()).map(PageId::root);
        // Pages that the log changes are pages of trees, and so are pages that it puts into an inner page.
        let living = self.log.iter().filter(|(_, page)| !page.is_free()).map(|(id, _)| *id);
        let open = roots.chain(living).chain(self.children.iter().copied()).collect();
        self.reach(open, &mut reached, &mut referenced, data, owner)?;
        referenced.extend(self.named.iter().map(|space| PageId::root(*space)).chain([catalog]));
        referenced.retain(|id| self.log.get(id).is_none_or(|page| !page.is_free()));
        // Nothing leads to an undo page. Without an old map, an undo page in use looks like one that was given back. To
        // go through the latter again changes nothing, unless it undoes a batch that was committed later.
        let decided = |id: &PageId, slot| self.log.contains_key(id) || !self.undecided.contains(&slot);
        let without_maps = self.old_maps.is_empty();
        let in_use = |id: &PageId, slot| if without_maps { decided(id, slot) } else { self.is_proven(*id, owner) };
        let undo = |id: &PageId, slot| id.space() == SpaceId::UNDO && in_use(id, slot);
        let newest = self.newest.iter().map(|(id, image)| (*id, *image));
        let (newest, aside) = newest.partition(|(id, (slot, _))| reached.contains(id) || undo(id, *slot));
        (self.newest, self.aside) = (newest, aside);
        let is_left = |id: &&PageId| id.space() == SpaceId::UNDO && !self.log.contains_key(*id);
        let left: Vec<PageId> = self.aside.keys().filter(is_left).copied().collect();
        for id in left.into_iter().filter(|_| without_maps) {
            self.lose(format!(
                "undo page {id}: a batch that was being written then may be there in part, if it was never committed"
            ));
        }
        Ok(referenced)
    }

    /// Follows newest images from the pages in `open`. Adds the pages that inner pages lead to to `referenced`.
    fn reach(
        &mut self,
        mut open: Vec<PageId>,
        reached: &mut BTreeSet<PageId>,
        referenced: &mut BTreeSet<PageId>,
        data: &DataFile,
        owner: Owner,
    ) -> Result<(), Error> {
        while let Some(id) = open.pop() {
            let image = self.newest.get(&id).filter(|(slot, _)| self.leading.contains(slot)).copied();
            let (true, Some((slot, _))) = (reached.insert(id), image) else { continue };
            let image = data.read_slots(slot, 1, u64::from(owner.page_size))?;
            let view = PageView::new(&image);
            if !view.is_leaf() {
                let numbers = (0..view.len()).filter_map(|index| view.child(index));
                let children: Vec<_> = numbers.map(|number| PageId::new(id.space(), number)).collect();
                referenced.extend(&children);
                open.extend(children);
            } else if id.space() == SpaceId::CATALOG {
                (0..view.len()).for_each(|index| self.name(view.value(index)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_formatted_needs_the_log_from_there() {
        let encoded = |ops: &[PageOp<'_>]| {
            let mut bytes = Vec::new();
            ops.iter().for_each(|op| op.encode(&mut bytes));
            bytes
        };
        let change = encoded(&[PageOp::Remove { key: b"a" }]);
        let format = encoded(&[PageOp::Init { level: 0, low: b"", high: None, entries: Vec::new() }]);
        let start = |lsn| Start { at: Lsn(lsn), nonce: 1 };
        let (id, mut work) = (PageId::new(SpaceId::FIRST, 3), Work::default());
        work.replay(id, Lsn(90), &change, start(100), Lsn(150));
        let page = work.log[&id];
        assert_eq!((page.needed, page.gap), (Some(start(100)), Some(Lsn(90))), "its image is not there");
        work.replay(id, Lsn(150), &format, start(200), Lsn(250));
        work.replay(id, Lsn(250), &change, start(300), Lsn(350));
        let page = work.log[&id];
        assert_eq!((page.needed, page.gap, page.lsn), (Some(start(200)), None, Lsn(350)));
    }
}
