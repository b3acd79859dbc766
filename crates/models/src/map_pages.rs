//! Map pages: the places of their images in the map file, the two directories that name them, and the two superblocks.
//!
//! The model covers all writes for a checkpoint: images of map pages to free places, the directory, a sync of both, the
//! superblock, its sync. It also covers when places are given back. Spaces, of one map page each, come and go
//! meanwhile. Places are charged when a space gets a page id, never when a map page is written. Small spaces have no
//! places, and are not modelled: their entries are in each directory.
//!
//! Two threads do this. The keeper writes map pages, one lot at a time, gives back the places of dropped spaces, and
//! takes the directory of the next superblock, each only when it has no write under way. All later steps of the
//! checkpoint belong to the second thread (`Stage`). The keeper goes on in each stage: so it may write a map page while
//! the directory that names its older place is on its way. The second thread has one job at a time. Its other kind of
//! job, a data sync, is no step here: no superblock is on its way then, and map pages are in another file. The result
//! of a data sync is modelled: MAP records, which the keeper applies when a job has ended, before it starts the next.
//!
//! A crash is a step, since later steps depend on it. A killed process leaves everything that it has written on the
//! device ([`Action::Kill`]), synced or not: the next process reads it, and the power may fail later still. A loss of
//! power ([`Action::PowerLoss`]) takes everything that no sync covers: images and directories count as torn then, and a
//! superblock, of one sector, is the old one or the new one. Once, while the database is closed, a superblock may be
//! damaged ([`Action::Damage`]).
//!
//! Invariants, each a property of the model:
//!
//! * A crash at any moment recovers: the superblock that counts names a whole directory, and each place in it has the
//!   intended image. Recovery refuses only damage to a superblock that may have been the newer one.
//! * A map page always finds a place for its write. Enough are three places for each charged map page (in the durable
//!   directory, in the one under way, written since) and one for each page of a lot; two and the lot are not. The lot's
//!   places serve a keeper that applies MAP records while a checkpoint is under way ([`MapPages::records_meanwhile`]):
//!   otherwise a map page is written at most once in a checkpoint.
//! * A place has one owner.
//!
//! Left out: the contents of map pages, and the log ([`page_store`] has both): the model leaves open which map pages
//! are dirty after recovery, and when each is written. A space of several map pages equals several spaces. Growth of
//! the file is left out: a space without room is not made, and room is never given back. So is that a directory may be
//! old after a loss of power: no superblock that counts names an unsynced directory.
//!
//! Turns and sequences count from the lowest one that is still on the device, so the states are finite in number.
//!
//! [`page_store`]: crate::page_store

mod device;
mod memory;
mod names;

use stateright::{Model, Property};

use device::{Device, Directory, Refusal, Sector, Superblock};
use memory::{MapPage, Memory, Stage};

const RECOVERS: &str = "a crash at any moment recovers";
const FINDS_PLACE: &str = "a map page that is to be written finds a place";
const PLACE_HAS_ONE_OWNER: &str = "a place belongs to one";

/// A rule that the model is told to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// One place too few is charged.
    OnePlaceLess,
    /// Two places are charged for a map page, as if none were written while a directory is on its way.
    NoThirdPlace,
    /// A dropped space is charged no places any more, although its places have not been given back yet.
    DroppedNotCharged,
    /// A replaced place is free at once, even if the durable directory names it.
    FreedWhenReplaced,
    /// A replaced place is free at once if the durable directory does not name it, though the directory under way does.
    OneUnderWayForgotten,
    /// A place replaced while a superblock is under way is free when that superblock is durable.
    FreedWithOneUnderWay,
    /// Places that a superblock replaces are free when it is written.
    FreedBeforeSync,
    /// A directory names images whose writes are under way.
    NamedBeforeWritten,
    /// The superblock is written before the directory and the images are synced.
    DirectoryNotSynced,
    /// The superblocks read at open are not synced: the newest may be in the device's cache only.
    NotSyncedAtOpen,
    /// If one superblock is damaged, the other counts, whichever is the older.
    OtherTakenBlindly,
    /// A damaged superblock is left damaged.
    DamageNotMended,
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct MapPages {
    /// Map pages that places are charged for.
    pub charged: usize,
    /// Map pages written together, at most.
    pub lot: usize,
    /// Whether MAP records are also applied while a checkpoint is under way. The engine's keeper applies none then, but
    /// charges places as if it did.
    pub records_meanwhile: bool,
    /// Whether a superblock may be damaged.
    pub damage: bool,
    /// The rule to break, if any.
    pub planted: Option<Bug>,
}

/// Memory and device together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    device: Device,
    /// `None`: the database is closed.
    memory: Option<Memory>,
    /// The sequence of the newest superblock that is or was durable.
    newest: usize,
    /// Whether a superblock was damaged, and whether that happened since an opened database last synced the
    /// superblocks.
    damaged: bool,
    damaged_since: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Gives a new space its first page id.
    Create,
    /// Drops the space of this map page.
    Drop(usize),
    /// Returns the places of a dropped space.
    GiveBack(usize),
    /// Applies a MAP record to this map page.
    Apply(usize),
    /// Submits the write of a map page, as one of a lot.
    Write(usize, usize),
    /// The writes of the lot end.
    CompleteLot,
    /// Takes the directory of the next superblock.
    TakeDirectory,
    /// Writes the directory.
    WriteDirectory,
    /// Syncs the images and the directory.
    SyncDirectory,
    /// Writes the superblock.
    WriteSuperblock,
    /// Syncs the superblock.
    SyncSuperblock,
    /// The process ends.
    Kill,
    /// The power fails. Whether the last written, unsynced superblocks survive, and whether such heads of directories
    /// do.
    PowerLoss(bool, bool),
    /// A superblock's place is damaged.
    Damage(usize),
    /// Opens the database on the device.
    Open,
    /// Syncs the superblocks that were read or mended; the log is replayed.
    SyncOpened,
}

impl State {
    fn initial(places: usize) -> State {
        State {
            device: Device::new(places),
            memory: Some(Memory::new(1, &[], places)),
            newest: 1,
            damaged: false,
            damaged_since: false,
        }
    }

    fn unsynced_superblock_is_open(&self) -> bool {
        let written = self.device.superblocks.iter().any(|sector| sector.written.is_some());
        written && self.memory.as_ref().is_some_and(|memory| memory.replays)
    }

    fn checkpoint_is_lost(&self) -> bool {
        let newest = self.device.superblocks.iter().filter_map(|sector| sector.read()).map(|read| read.sequence).max();
        let heads = self.device.directories.iter().map(|directory| directory.sequence).max();
        self.memory.is_none() && newest < heads
    }
}

impl MapPages {
    fn has(&self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    fn places(&self) -> usize {
        let of_each = if self.has(Bug::NoThirdPlace) { 2 } else { 3 };
        of_each * self.charged + self.lot - usize::from(self.has(Bug::OnePlaceLess))
    }

    /// The superblock that counts, and the places that its directory names.
    fn find<'d>(&self, device: &'d Device) -> Result<(Superblock, &'d [usize]), Refusal> {
        device.find(self.has(Bug::OtherTakenBlindly))
    }

    fn recovers(&self, state: &State) -> bool {
        state.memory.is_some()
            || match self.find(&state.device) {
                Ok((found, _)) => found.sequence >= state.newest,
                Err(_) => state.damaged_since,
            }
    }

    /// Whether places are left to charge for one more map page.
    fn has_room(&self, memory: &Memory) -> bool {
        let dropped = if self.has(Bug::DroppedNotCharged) { 0 } else { memory.dropped.len() };
        memory.live.len() + dropped < self.charged
    }

    fn may_write(&self, memory: &Memory, page: usize) -> bool {
        let page = &memory.live[page];
        !memory.replays && memory.lot_len() < self.lot && page.dirty && page.lot.is_none()
    }

    fn finds_place(&self, state: &State) -> bool {
        let Some(memory) = &state.memory else { return true };
        memory.free.contains(&true) || !(0..memory.live.len()).any(|page| self.may_write(memory, page))
    }

    fn allows(&self, state: &State, action: Action) -> bool {
        let Some(memory) = &state.memory else {
            return match action {
                Action::PowerLoss(..) => true,
                Action::Damage(_) => self.damage && !state.damaged,
                Action::Open => self.find(&state.device).is_ok(),
                _ => false,
            };
        };
        match action {
            Action::Create => self.has_room(memory),
            Action::Drop(_) | Action::Kill => true,
            Action::GiveBack(_) => memory.keeper_is_free(),
            Action::Apply(page) => {
                let between_jobs = memory.checkpoint == Stage::None || self.records_meanwhile;
                !memory.live[page].dirty && (memory.replays || (memory.keeper_is_free() && between_jobs))
            }
            Action::Write(page, place) => memory.free[place] && self.may_write(memory, page),
            Action::CompleteLot => memory.lot_len() > 0,
            Action::TakeDirectory => {
                let may_name = memory.keeper_is_free() || (!memory.replays && self.has(Bug::NamedBeforeWritten));
                may_name && memory.checkpoint == Stage::None
            }
            Action::WriteDirectory => matches!(memory.checkpoint, Stage::Taken(_)),
            Action::SyncDirectory => memory.checkpoint == Stage::DirectoryWritten,
            Action::WriteSuperblock => memory.checkpoint == Stage::DirectorySynced,
            Action::SyncSuperblock => memory.checkpoint == Stage::SuperblockWritten,
            Action::SyncOpened => memory.replays,
            Action::PowerLoss(..) | Action::Damage(_) | Action::Open => false,
        }
    }

    fn open(&self, state: &mut State) -> Option<()> {
        let (newest, images) = self.find(&state.device).ok()?;
        let memory = Memory { replays: true, ..Memory::new(newest.sequence, images, self.places()) };
        let other = &mut state.device.superblocks[1 - newest.sequence % 2];
        if other.read().is_none() && !self.has(Bug::DamageNotMended) {
            other.written = Some(Superblock { sequence: newest.sequence.checked_sub(1)?, mended: true });
        }
        state.memory = Some(memory);
        Some(())
    }

    /// Frees a place, or keeps it until the superblock of the next directory taken is durable: a directory may name it.
    fn replace(&self, memory: &mut Memory, device: &Device, place: usize, unnamed: bool) {
        let durable = &device.directories[memory.sequence % 2];
        let forgotten = match self.planted {
            Some(Bug::FreedWhenReplaced) => true,
            Some(Bug::OneUnderWayForgotten) => !durable.names(place),
            _ => false,
        };
        if unnamed || forgotten {
            memory.free[place] = true;
        } else {
            memory.replaced.push(place);
        }
    }

    /// Takes a step of the process. It is allowed.
    fn apply_to_memory(&self, state: &mut State, action: Action) -> Option<()> {
        let State { device, memory, .. } = state;
        let memory = memory.as_mut()?;
        let (next, place) = (memory.sequence + 1, (memory.sequence + 1) % 2);
        match action {
            Action::Create => memory.live.push(MapPage::new()),
            Action::Drop(page) => {
                let mut page = memory.live.remove(page);
                memory.orphans.extend(page.lot.take());
                match page.image.filter(|_| memory.replays) {
                    Some(image) => memory.replaced.push(image),
                    None => memory.dropped.push(page),
                }
            }
            Action::GiveBack(page) => {
                let page = memory.dropped.remove(page);
                if let Some(image) = page.image {
                    self.replace(memory, device, image, page.unnamed);
                }
            }
            Action::Apply(page) => memory.live[page].dirty = true,
            Action::Write(page, place) => {
                memory.free[place] = false;
                device.overwrite(place);
                device.synced[place] = false;
                memory.live[page].lot = Some(place);
                memory.live[page].dirty = false;
            }
            Action::CompleteLot => {
                for index in 0..memory.live.len() {
                    let page = &mut memory.live[index];
                    let Some(image) = page.lot.take() else { continue };
                    let old = page.image.replace(image);
                    let unnamed = std::mem::replace(&mut page.unnamed, true);
                    if let Some(old) = old {
                        self.replace(memory, device, old, unnamed);
                    }
                }
                let orphans = std::mem::take(&mut memory.orphans);
                orphans.into_iter().for_each(|place| memory.free[place] = true);
            }
            Action::TakeDirectory => {
                memory.frees = std::mem::take(&mut memory.replaced);
                let pages = memory.live.iter_mut().chain(&mut memory.dropped);
                pages.for_each(|page| page.unnamed = false);
                let place = |page: &MapPage| page.lot.filter(|_| self.has(Bug::NamedBeforeWritten)).or(page.image);
                let mut images: Vec<usize> = memory.live.iter().filter_map(place).collect();
                images.sort_unstable();
                memory.checkpoint = Stage::Taken(images);
            }
            Action::WriteDirectory => {
                let Stage::Taken(images) = std::mem::replace(&mut memory.checkpoint, Stage::DirectoryWritten) else {
                    return None;
                };
                let before = device.directories[place].sequence;
                device.directories[place] = Directory { sequence: next, before: Some(before), images: Ok(images) };
            }
            Action::SyncDirectory => {
                if !self.has(Bug::DirectoryNotSynced) {
                    // The sync need not cover writes that are under way to the device now.
                    (0..device.synced.len())
                        .filter(|&place| !memory.places_under_way().any(|other| other == place))
                        .for_each(|place| device.synced[place] = true);
                    device.directories[place].before = None;
                }
                memory.checkpoint = Stage::DirectorySynced;
            }
            Action::WriteSuperblock => {
                device.superblocks[place].written = Some(Superblock { sequence: next, mended: false });
                memory.checkpoint = Stage::SuperblockWritten;
                if self.has(Bug::FreedBeforeSync) {
                    memory.free_what_is_replaced();
                }
            }
            Action::SyncSuperblock => {
                device.sync_superblocks();
                memory.sequence = next;
                memory.checkpoint = Stage::None;
                if self.has(Bug::FreedWithOneUnderWay) {
                    memory.frees.append(&mut memory.replaced);
                }
                memory.free_what_is_replaced();
            }
            Action::SyncOpened => {
                memory.replays = false;
                if !self.has(Bug::NotSyncedAtOpen) {
                    device.sync_superblocks();
                }
            }
            _ => return None,
        }
        Some(())
    }
}

impl Model for MapPages {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(self.places())]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let (live, dropped) = state.memory.as_ref().map_or((0, 0), |memory| (memory.live.len(), memory.dropped.len()));
        let writes = (0..live).flat_map(|page| (0..self.places()).map(move |place| Action::Write(page, place)));
        let of_live = (0..live).flat_map(|page| [Action::Drop(page), Action::Apply(page)]).chain(writes);
        let of_dropped = (0..dropped).map(Action::GiveBack);
        let losses = [false, true].into_iter().flat_map(|s| [false, true].map(|h| Action::PowerLoss(s, h)));
        let of_all = [
            Action::Create,
            Action::CompleteLot,
            Action::TakeDirectory,
            Action::WriteDirectory,
            Action::SyncDirectory,
            Action::WriteSuperblock,
            Action::SyncSuperblock,
            Action::Kill,
            Action::Damage(0),
            Action::Damage(1),
            Action::Open,
            Action::SyncOpened,
        ];
        let all = of_live.chain(of_dropped).chain(of_all).chain(losses);
        actions.extend(all.filter(|&action| self.allows(state, action)));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Kill => next.memory = None,
            Action::PowerLoss(superblocks, heads) => {
                next.memory = None;
                next.device.lose_power(superblocks, heads);
            }
            Action::Damage(place) => {
                next.device.superblocks[place] = Sector { durable: None, written: None };
                (next.damaged, next.damaged_since) = (true, true);
            }
            Action::Open => self.open(&mut next)?,
            _ => self.apply_to_memory(&mut next, action)?,
        }
        next.damaged_since &= action != Action::SyncOpened;
        let durable = next.device.superblocks.iter().filter_map(|sector| sector.durable);
        next.newest = durable.map(|superblock| superblock.sequence).chain([next.newest]).max()?;
        next.normalise();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(RECOVERS, MapPages::recovers),
            Property::always(FINDS_PLACE, MapPages::finds_place),
            Property::always(PLACE_HAS_ONE_OWNER, |_, state: &State| {
                state.memory.as_ref().is_none_or(Memory::places_have_one_owner)
            }),
            Property::sometimes("a map page is written while a directory is on its way", |_, state: &State| {
                state.memory.as_ref().is_some_and(|memory| memory.lot_len() > 0 && memory.checkpoint != Stage::None)
            }),
            Property::sometimes("a map page has three places", |_, state: &State| {
                state.memory.as_ref().is_some_and(Memory::has_three_places)
            }),
            Property::sometimes("a crash loses the newest superblock", |_, state: &State| state.checkpoint_is_lost()),
            Property::sometimes("a superblock that is not durable is opened", |_, state: &State| {
                state.unsynced_superblock_is_open()
            }),
        ];
        if self.records_meanwhile {
            properties.push(Property::sometimes("all places are in use", |_, state: &State| {
                state.memory.as_ref().is_some_and(|memory| !memory.free.contains(&true))
            }));
        }
        if self.damage {
            properties.push(Property::sometimes("a damaged superblock is mended", |_, state: &State| {
                state.damaged
                    && state.memory.as_ref().is_some_and(|memory| memory.keeper_is_free() && !memory.live.is_empty())
            }));
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_holds, counterexample, violated};

    fn planted(bug: Bug) -> MapPages {
        MapPages { charged: 2, lot: 1, records_meanwhile: false, damage: true, planted: Some(bug) }
    }

    /// Why the state that the checker stops at does not open; `None`: it opens with an older map.
    fn refusal(bug: Bug) -> Option<Refusal> {
        refusal_of(planted(bug))
    }

    fn refusal_of(model: MapPages) -> Option<Refusal> {
        let path = counterexample(model, RECOVERS);
        model.find(&path.last_state().device).err()
    }

    #[test]
    fn every_crash_recovers_and_every_map_page_finds_a_place() {
        let holds = |charged, lot, records_meanwhile, damage| {
            assert_holds(MapPages { charged, lot, records_meanwhile, damage, planted: None });
        };
        holds(1, 1, true, true);
        holds(2, 1, false, true);
        holds(2, 1, true, false);
        // These take some three minutes, and 2 GB: `make crash` runs them.
        if std::env::var_os("MILLPOND_FULL").is_some() {
            holds(2, 1, true, true);
            holds(2, 2, true, true);
            holds(3, 1, false, false);
        }
    }

    #[test]
    fn one_place_less_fails_if_map_records_are_applied_meanwhile() {
        counterexample(MapPages { records_meanwhile: true, ..planted(Bug::OnePlaceLess) }, FINDS_PLACE);
        let spared = violated(MapPages { charged: 1, ..planted(Bug::OnePlaceLess) });
        assert_eq!(spared, [""; 0]);
    }

    #[test]
    fn two_places_for_each_map_page_are_too_few() {
        counterexample(planted(Bug::NoThirdPlace), FINDS_PLACE);
    }

    #[test]
    fn dropped_spaces_are_charged_until_they_are_given_back() {
        // Several pages use the places charged for one; with two charged the path is long.
        let model = MapPages { charged: 1, damage: false, ..planted(Bug::DroppedNotCharged) };
        counterexample(model, FINDS_PLACE);
    }

    #[test]
    fn place_that_the_durable_directory_names_is_not_free() {
        assert_eq!(refusal(Bug::FreedWhenReplaced), Some(Refusal::WrongImage));
    }

    #[test]
    fn place_that_the_directory_under_way_names_is_not_free() {
        assert_eq!(refusal(Bug::OneUnderWayForgotten), Some(Refusal::WrongImage));
    }

    #[test]
    fn place_replaced_meanwhile_waits_for_the_next_superblock() {
        assert_eq!(refusal(Bug::FreedWithOneUnderWay), Some(Refusal::WrongImage));
    }

    #[test]
    fn directory_names_no_image_under_way() {
        assert_eq!(refusal(Bug::NamedBeforeWritten), Some(Refusal::WrongImage));
    }

    #[test]
    fn place_is_not_free_before_the_superblock_is_durable() {
        assert_eq!(refusal(Bug::FreedBeforeSync), Some(Refusal::WrongImage));
    }

    #[test]
    fn superblock_waits_for_the_directory() {
        assert_eq!(refusal(Bug::DirectoryNotSynced), Some(Refusal::WrongDirectory));
    }

    #[test]
    fn superblock_that_was_read_is_synced_before_it_counts() {
        let model = MapPages { damage: false, ..planted(Bug::NotSyncedAtOpen) };
        assert_eq!(refusal_of(model), Some(Refusal::WrongDirectory));
    }

    #[test]
    fn superblock_beside_a_damaged_one_may_be_the_older() {
        assert_eq!(refusal(Bug::OtherTakenBlindly), None);
    }

    #[test]
    fn damaged_superblock_is_mended_before_its_directory_changes() {
        assert_eq!(refusal(Bug::DamageNotMended), Some(Refusal::MayBeNewer));
    }
}
