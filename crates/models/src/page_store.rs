//! The copy-on-write page store: when a change is safe, and when a slot is free.
//!
//! The model has two pages in four slots, one map page, and the log, from a page's change to the superblock that
//! releases the log before it. A page is copied, written, synced, and named by a MAP record. The end of a write and the
//! end of a sync are separate steps, so that anything may happen between submission and completion.
//!
//! A data sync, and the steps after the decision for a checkpoint, are jobs of the keeper's second thread, one at a
//! time ([`Job`]). The keeper writes images, MAP records and the map page meanwhile, in every stage of a job. The sync
//! that makes a superblock durable covers images as a data sync does.
//!
//! A crash is no step: [`State::recover`] tries every crash in every state. It lets the log end anywhere behind its
//! durable part, includes or omits an unsynced superblock, and takes each image that no sync covers for torn. The cases
//! that such an image survived, or never began, need no trial: a recovery that survives a torn slot has not read it.
//!
//! Invariants, each a property of the model:
//!
//! * A crash at any moment recovers: each page has a whole image that is not ahead of the log's end, and the log still
//!   has all changes that the image lacks.
//! * A page whose frame may be evicted is read in its newest version.
//! * A slot has one owner: the map, an operation, the retired slots, or the free slots.
//! * No image is on the device before the log is durable past its LSN.
//!
//! Left out: the nature of a change (an LSN stands for the content), and groups that change several pages; the places
//! of map pages, the directories, and that a superblock has two places ([`map_pages`] has them); the log's size
//! ([`full_log`] has it); everything after recovery. A frame that may be evicted can do nothing that an evicted frame
//! cannot, so eviction is no step either. Slots are alike, so the lowest free one is taken. A page has one operation at
//! a time, from copy to MAP record.
//!
//! [`full_log`]: crate::full_log
//! [`map_pages`]: crate::map_pages

use stateright::{Model, Property};

/// Pages of the model.
pub const PAGES: usize = 2;

/// Slots of the model.
pub const SLOTS: usize = 4;

/// A position in the log, counted in records. An LSN of a page is the end of the record of its last change.
pub type Lsn = usize;

const RECOVERS: &str = "a crash at any moment recovers";
const READS_NEWEST: &str = "a page is read in its newest version";
const SLOT_HAS_ONE_OWNER: &str = "a slot belongs to one";
const LOG_BEFORE_IMAGE: &str = "no image is ahead of the durable log";

/// A rule that the model is told to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// An image is written over the last one of its page.
    WrittenInPlace,
    /// The slot that a MAP record replaces is free as soon as the record is appended, not when it is durable.
    SlotFreedEarly,
    /// The end of a sync is taken to cover writes that completed after its submission.
    SyncCoversLaterWrites,
    /// The same for the sync that makes a superblock durable.
    SuperblockCoversLaterWrites,
    /// The frame gives its dirtiness away with the copy, and the operation does not take it.
    OperationHoldsNothing,
    /// The map page does not hold the checkpoint for the MAP records that its image lacks.
    MapPageHoldsNothing,
    /// The checkpoint is decided on when the superblock is written, but the map page's image when the job begins. If
    /// the map page is written in between, it no longer holds the checkpoint for MAP records that the older image
    /// lacks.
    CheckpointAfterDirectory,
    /// The log before a checkpoint is gone when the superblock is written, not when it is durable.
    LogGoneBeforeSync,
    /// The superblock does not wait for the log. Its checkpoint relies on MAP records that a crash may cut off. Then
    /// the changes in their images are before the checkpoint, and nothing names the images.
    SuperblockBeforeLog,
    /// An image does not wait for the log. No crash loses anything by it: recovery finds an image by a MAP record,
    /// which is behind the image's last change in the same log, or by a superblock, which waits for the log. It is
    /// forbidden because the tag in a map entry is derived from the page LSN: after a crash that cuts the log before
    /// the image, its LSN is given again, to another content, and the tag would fit both.
    ImageBeforeLog,
    /// A frame may be evicted while the newest image of its page is still being written.
    EvictedDuringWrite,
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct PageStore {
    /// Records after which the log takes no more: this bounds the states.
    pub log_limit: usize,
    /// The rule to break, if any.
    pub planted: Option<Bug>,
}

/// A record of the log. Both kinds are one unit long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A new version of this page.
    Change(usize),
    /// The page's image is here from now on.
    Map(usize, Image),
}

/// An entry of the map: where an image is, and of which page LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Image {
    slot: usize,
    lsn: Lsn,
}

/// Progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Under way to the device.
    Writing,
    /// Written, and readable through the table of unsynced images.
    Unsynced,
    /// Written before the submission of the sync under way.
    Syncing,
    /// Durable, as far as the store knows.
    Synced,
}

/// An image on its way from the frame into the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    lsn: Lsn,
    /// The frame's dirtiness, which came along with the copy.
    rec_lsn: Option<Lsn>,
    /// The slot and the stage; `None`: only copied yet.
    written: Option<(usize, Stage)>,
}

/// The owner of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// No owner.
    Free,
    /// The map, or an operation.
    Used,
    /// Recovery may need its image until the log is durable up to here.
    Retired(Lsn),
}

/// A place on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    owner: Owner,
    /// The page whose image was written here last, and its LSN.
    content: Option<(usize, Lsn)>,
    /// Whether a sync has covered that write.
    synced: bool,
}

/// The data that a checkpoint makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Superblock {
    /// The log before this LSN is gone.
    checkpoint: Lsn,
    /// The map page's image.
    map: [Image; PAGES],
}

/// The task of the keeper's second thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    /// Nothing.
    None,
    /// It waits for a data sync.
    DataSync,
    /// It is to write this superblock, once the log is durable up to this LSN.
    Checkpoint(Superblock, Lsn),
    /// It has written it.
    SuperblockWritten(Superblock),
    /// It waits for the sync of the superblock.
    SuperblockSync(Superblock),
}

/// Memory and device together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    log: Vec<Record>,
    durable: Lsn,
    /// For each page: begin of the first change that no operation has taken; `None`: the frame is clean, or gone.
    frames: [Option<Lsn>; PAGES],
    operations: [Option<Operation>; PAGES],
    slots: [Slot; SLOTS],
    map: [Image; PAGES],
    /// Begin of the first MAP record that is not in the map page's image.
    map_rec_lsn: Option<Lsn>,
    /// The map page's last image, which the next superblock will name.
    map_image: [Image; PAGES],
    job: Job,
    /// The durable superblock.
    superblock: Superblock,
    /// The log before this LSN is gone.
    log_begin: Lsn,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Changes a page.
    Change(usize),
    /// Makes the log durable.
    Flush,
    /// Copies a dirty page, and takes its dirtiness.
    Copy(usize),
    /// Submits the write of a copied page to a free slot.
    Write(usize),
    /// The write ends.
    CompleteWrite(usize),
    /// Submits a sync: of images alone, or of the superblock, too.
    Sync,
    /// The sync ends.
    CompleteSync,
    /// Logs where the page's image is, and ends the operation.
    LogMap(usize),
    /// Writes the map page.
    WriteMapPage,
    /// Decides on the contents of the next superblock.
    BeginCheckpoint,
    /// Writes the superblock.
    WriteSuperblock,
}

/// Why recovery fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The slot that the map names is torn, or has another image.
    WrongImage,
    /// The image is ahead of the log's end.
    ImageAheadOfLog,
    /// A change is neither in the image nor in the log.
    ChangeLost,
    /// The log ends before the checkpoint.
    LogTooShort,
    /// The log begins behind the checkpoint.
    LogGone,
}

impl State {
    fn initial() -> State {
        let map = std::array::from_fn(|page| Image { slot: page, lsn: 0 });
        let slot = |slot| match slot {
            0..PAGES => Slot { owner: Owner::Used, content: Some((slot, 0)), synced: true },
            _ => Slot { owner: Owner::Free, content: None, synced: true },
        };
        State {
            log: Vec::new(),
            durable: 0,
            frames: [None; PAGES],
            operations: [None; PAGES],
            slots: std::array::from_fn(slot),
            map,
            map_rec_lsn: None,
            map_image: map,
            job: Job::None,
            superblock: Superblock { checkpoint: 0, map },
            log_begin: 0,
        }
    }

    fn next(&self) -> Lsn {
        self.log.len()
    }

    fn newest(&self, page: usize) -> Lsn {
        self.log.iter().rposition(|&record| record == Record::Change(page)).map_or(0, |begin| begin + 1)
    }

    fn stage(&self, page: usize) -> Option<Stage> {
        let (_, stage) = self.operations[page]?.written?;
        Some(stage)
    }

    /// Slot and stage of each operation that has a slot.
    fn written_mut(&mut self) -> impl Iterator<Item = &mut (usize, Stage)> {
        self.operations.iter_mut().flatten().filter_map(|operation| operation.written.as_mut())
    }

    fn has_stage(&self, stage: Stage) -> bool {
        (0..PAGES).any(|page| self.stage(page) == Some(stage))
    }

    /// The image that a read of the page finds: written but not in the map yet, or else that of the map.
    fn read(&self, page: usize) -> Option<(usize, Lsn)> {
        let unsynced = self.operations[page].and_then(|operation| operation.written);
        let slot = match unsynced {
            Some((slot, stage)) if stage != Stage::Writing => slot,
            _ => self.map[page].slot,
        };
        self.slots[slot].content
    }

    /// The LSN where redo has to begin: no change that an image in the map lacks is before it.
    fn oldest_holder(&self) -> Lsn {
        let frames = self.frames.into_iter().flatten();
        let operations = self.operations.iter().flatten().filter_map(|operation| operation.rec_lsn);
        frames.chain(operations).chain(self.map_rec_lsn).fold(self.next(), Lsn::min)
    }

    fn flush(&mut self) {
        self.durable = self.next();
        for slot in &mut self.slots {
            if matches!(slot.owner, Owner::Retired(until) if until <= self.durable) {
                slot.owner = Owner::Free;
            }
        }
    }

    /// Recovers from a crash at this moment that leaves the log up to `end`, and this superblock.
    pub fn recover(&self, superblock: Superblock, end: Lsn) -> Result<(), Loss> {
        let Superblock { checkpoint, mut map } = superblock;
        if end < checkpoint {
            return Err(Loss::LogTooShort);
        }
        if checkpoint < self.log_begin {
            return Err(Loss::LogGone);
        }
        for &record in &self.log[checkpoint..end] {
            if let Record::Map(page, image) = record {
                map[page] = image;
            }
        }
        for (page, image) in map.into_iter().enumerate() {
            let slot = self.slots[image.slot];
            if !slot.synced || slot.content != Some((page, image.lsn)) {
                return Err(Loss::WrongImage);
            }
            if image.lsn > end {
                return Err(Loss::ImageAheadOfLog);
            }
            if self.log[..checkpoint].iter().skip(image.lsn).any(|&record| record == Record::Change(page)) {
                return Err(Loss::ChangeLost);
            }
        }
        Ok(())
    }

    /// The first crash at this moment that does not recover.
    pub fn find_loss(&self) -> Option<Loss> {
        let unsynced = match self.job {
            Job::SuperblockWritten(superblock) | Job::SuperblockSync(superblock) => Some(superblock),
            _ => None,
        };
        let superblocks = unsynced.into_iter().chain([self.superblock]);
        let mut crashes = superblocks.flat_map(|it| (self.durable..=self.next()).map(move |end| (it, end)));
        crashes.find_map(|(superblock, end)| self.recover(superblock, end).err())
    }

    fn slots_have_one_owner(&self) -> bool {
        let mapped = self.map.iter().map(|image| image.slot);
        let written = self.operations.iter().flatten().filter_map(|operation| operation.written);
        let mut names = [0; SLOTS];
        for slot in mapped.chain(written.map(|(slot, _)| slot)) {
            names[slot] += 1;
        }
        names.iter().zip(&self.slots).all(|(&count, slot)| count == usize::from(slot.owner == Owner::Used))
    }

    fn log_is_before_images(&self) -> bool {
        self.slots.iter().filter_map(|slot| slot.content).all(|(_, lsn)| lsn <= self.durable)
    }

    fn page_changed_during_write(&self) -> bool {
        (0..PAGES).any(|page| self.stage(page) == Some(Stage::Writing) && self.frames[page].is_some())
    }

    fn page_evictable_before_sync(&self) -> bool {
        (0..PAGES).any(|page| self.stage(page) == Some(Stage::Unsynced) && self.frames[page].is_none())
    }

    /// Whether a slot that had a page's first image has another image now.
    fn slot_used_again(&self) -> bool {
        self.slots.iter().take(PAGES).any(|slot| slot.content.is_some_and(|(_, lsn)| lsn > 0))
    }
}

impl PageStore {
    fn has(&self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    fn may_evict(&self, state: &State, page: usize) -> bool {
        let being_written =
            state.operations[page].is_some() && matches!(state.stage(page), None | Some(Stage::Writing));
        state.frames[page].is_none() && (!being_written || self.has(Bug::EvictedDuringWrite))
    }

    fn reads_newest(&self, state: &State) -> bool {
        let mut evictable = (0..PAGES).filter(|&page| self.may_evict(state, page));
        evictable.all(|page| state.read(page) == Some((page, state.newest(page))))
    }

    fn allows(&self, state: &State, action: Action) -> bool {
        let log_has_room = state.next() < self.log_limit;
        match action {
            // Pages are alike: the first change is of page 0.
            Action::Change(page) => log_has_room && (page == 0 || !state.log.is_empty()),
            Action::Flush => state.durable < state.next(),
            Action::Copy(page) => state.frames[page].is_some() && state.operations[page].is_none(),
            Action::Write(page) => state.operations[page].is_some_and(|operation| {
                let log_is_durable = operation.lsn <= state.durable || self.has(Bug::ImageBeforeLog);
                let slot_is_free = state.slots.iter().any(|slot| slot.owner == Owner::Free);
                operation.written.is_none() && log_is_durable && slot_is_free
            }),
            Action::CompleteWrite(page) => state.stage(page) == Some(Stage::Writing),
            Action::Sync => match state.job {
                Job::None => state.has_stage(Stage::Unsynced),
                job => matches!(job, Job::SuperblockWritten(_)),
            },
            Action::CompleteSync => matches!(state.job, Job::DataSync | Job::SuperblockSync(_)),
            Action::LogMap(page) => log_has_room && state.stage(page) == Some(Stage::Synced),
            Action::WriteMapPage => state.map_image != state.map,
            Action::BeginCheckpoint => state.job == Job::None && state.oldest_holder() > state.superblock.checkpoint,
            Action::WriteSuperblock => match state.job {
                Job::Checkpoint(_, durable) => durable <= state.durable || self.has(Bug::SuperblockBeforeLog),
                _ => false,
            },
        }
    }

    /// Takes a step that is allowed.
    fn apply(&self, state: &mut State, action: Action) -> Option<()> {
        let next = state.next();
        match action {
            Action::Change(page) => {
                state.log.push(Record::Change(page));
                state.frames[page].get_or_insert(next);
            }
            Action::Flush => state.flush(),
            Action::Copy(page) => {
                let taken = state.frames[page].take();
                let rec_lsn = taken.filter(|_| !self.has(Bug::OperationHoldsNothing));
                state.operations[page] = Some(Operation { lsn: state.newest(page), rec_lsn, written: None });
            }
            Action::Write(page) => {
                let free = state.slots.iter().position(|slot| slot.owner == Owner::Free)?;
                let slot = if self.has(Bug::WrittenInPlace) { state.map[page].slot } else { free };
                let operation = state.operations[page].as_mut()?;
                operation.written = Some((slot, Stage::Writing));
                state.slots[slot] = Slot { owner: Owner::Used, content: Some((page, operation.lsn)), synced: false };
            }
            Action::CompleteWrite(page) => state.operations[page].as_mut()?.written.as_mut()?.1 = Stage::Unsynced,
            Action::Sync => {
                state.job = match state.job {
                    Job::SuperblockWritten(superblock) => Job::SuperblockSync(superblock),
                    _ => Job::DataSync,
                };
                for (_, stage) in state.written_mut().filter(|(_, stage)| *stage == Stage::Unsynced) {
                    *stage = Stage::Syncing;
                }
            }
            Action::CompleteSync => {
                let mut too_many = self.has(Bug::SyncCoversLaterWrites);
                if let Job::SuperblockSync(superblock) = state.job {
                    too_many |= self.has(Bug::SuperblockCoversLaterWrites);
                    (state.superblock, state.log_begin) = (superblock, superblock.checkpoint);
                }
                state.job = Job::None;
                let mut covered = [false; SLOTS];
                for (slot, stage) in state.written_mut() {
                    covered[*slot] = *stage == Stage::Syncing;
                    if covered[*slot] || (*stage == Stage::Unsynced && too_many) {
                        *stage = Stage::Synced;
                    }
                }
                for (slot, covered) in state.slots.iter_mut().zip(covered) {
                    slot.synced |= covered;
                }
            }
            Action::LogMap(page) => {
                let operation = state.operations[page].take()?;
                let (slot, _) = operation.written?;
                let image = Image { slot, lsn: operation.lsn };
                state.log.push(Record::Map(page, image));
                let replaced = std::mem::replace(&mut state.map[page], image);
                if !self.has(Bug::MapPageHoldsNothing) {
                    state.map_rec_lsn.get_or_insert(next);
                }
                state.slots[replaced.slot].owner =
                    if self.has(Bug::SlotFreedEarly) { Owner::Free } else { Owner::Retired(state.log.len()) };
            }
            Action::WriteMapPage => {
                state.map_image = state.map;
                state.map_rec_lsn = None;
            }
            Action::BeginCheckpoint => {
                let checkpoint = state.oldest_holder();
                state.job = Job::Checkpoint(Superblock { checkpoint, map: state.map_image }, next);
            }
            Action::WriteSuperblock => {
                let Job::Checkpoint(mut superblock, _) = state.job else { return None };
                if self.has(Bug::CheckpointAfterDirectory) {
                    superblock.checkpoint = state.oldest_holder();
                }
                if self.has(Bug::LogGoneBeforeSync) {
                    state.log_begin = superblock.checkpoint;
                }
                state.job = Job::SuperblockWritten(superblock);
            }
        }
        Some(())
    }
}

impl Model for PageStore {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let of_a_page = [Action::Change, Action::Copy, Action::Write, Action::CompleteWrite, Action::LogMap];
        let of_all = [
            Action::Flush,
            Action::Sync,
            Action::CompleteSync,
            Action::WriteMapPage,
            Action::BeginCheckpoint,
            Action::WriteSuperblock,
        ];
        let of_pages = (0..PAGES).flat_map(|page| of_a_page.map(|action| action(page)));
        actions.extend(of_pages.chain(of_all).filter(|&action| self.allows(state, action)));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, action)?;
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(RECOVERS, |_, state: &State| state.find_loss().is_none()),
            Property::always(READS_NEWEST, PageStore::reads_newest),
            Property::always(SLOT_HAS_ONE_OWNER, |_, state: &State| state.slots_have_one_owner()),
            Property::always(LOG_BEFORE_IMAGE, |_, state: &State| state.log_is_before_images()),
            Property::sometimes("a page changes during its write", |_, state: &State| {
                state.page_changed_during_write()
            }),
            Property::sometimes("a page may be evicted before the sync", |_, state: &State| {
                state.page_evictable_before_sync()
            }),
            Property::sometimes("a slot is used again", |_, state: &State| state.slot_used_again()),
            Property::sometimes("an image is written while a superblock is not durable", |_, state: &State| {
                matches!(state.job, Job::SuperblockSync(_)) && state.has_stage(Stage::Unsynced)
            }),
            Property::sometimes("the checkpoint moves", |_, state: &State| state.superblock.checkpoint > 0),
        ]
    }
}

#[cfg(test)]
mod tests;
