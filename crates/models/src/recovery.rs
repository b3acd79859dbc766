//! Recovery from a full log: why it ends, however often it is cut short.
//!
//! The model has a log of a few records, a writer, and the keeper, over three pages in a pool of two frames, of which
//! recovery redoes one at a time. So pages are cleaned while others wait for their redo, and the checkpoint, which
//! would make room in the log, waits for the last of them. In [`full_log`] all pages are in memory after a crash; here
//! they are in the log, and so are the records that show that they are cleaned.
//!
//! A record takes one unit of the log. Positions count from the checkpoint, so the states are finite in number although
//! the log has no end. The band for epochs bounds the crashes: one for each of its units, until the checkpoint passes
//! the EPOCH records of the first of them.
//!
//! Steps are of two kinds: a demand comes from outside ([`Action::Grant`], [`Action::Crash`]), every other step works
//! demands off. Two properties of single states say that recovery ends and that the log drains, as in [`full_log`]:
//!
//! * If no work is left, the log is empty.
//! * Each step of work makes a measure smaller ([`State::work_left`]).
//!
//! Two more state the condition for that, and that nothing is lost:
//!
//! * Neither MAP nor EPOCH records wait for room. So each page to redo takes the room of one MAP record, which the
//!   credit of the page's writer covers, in this recovery and in any that is cut short.
//! * Changes before the checkpoint are in an image that superblock or log name. When recovery has ended, every page is
//!   in its newest version.
//!
//! The engine's reserve is fixed, and at least as large as the reserve here.
//!
//! Left out: everything that [`page_store`] and [`full_log`] model, above all the waits before an image is written;
//! several writers; a crash that cuts off the log's end, which equals a crash before the end was appended. Frames of
//! clean pages equal free frames. Pages of a batch are redone in any order, one change after the other.
//!
//! [`full_log`]: crate::full_log
//! [`page_store`]: crate::page_store

use stateright::{Model, Property};

/// Pages of the model.
pub const PAGES: usize = 3;

/// Units that only EPOCH records may take.
pub const EPOCHS: usize = 2;

/// Images that may be written but not named by a MAP record.
pub const IN_FLIGHT: usize = 1;

/// A position in the log. A page's LSN is the end of the record of its last change; 0: that is before the checkpoint.
pub type Lsn = usize;

const DRAINS: &str = "where no work is left, the log is empty";
const PROGRESSES: &str = "each step of work leaves less of it";
const RECORDS_NEVER_WAIT: &str = "neither MAP nor EPOCH records wait";
const NOTHING_LOST: &str = "no change is lost";

/// A rule that the model is told to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A page may be cleaned for its frame while it is redone. The next change makes it dirty again, and it takes
    /// another MAP record, which no credit covers.
    CleanedHalfRedone,
    /// Cleaning leaves the whole band of the epochs free, even if the log already has EPOCH records: then these have
    /// taken the room of MAP records.
    BandIsNotUsedUp,
    /// There is no band for EPOCH records.
    NoEpochBand,
    /// The checkpoint does not wait for pages that are not redone yet.
    UnredoneNotCounted,
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// Units of the log.
    pub capacity: usize,
    /// Frames of the pool.
    pub frames: usize,
    /// The rule to break, if any.
    pub planted: Option<Bug>,
}

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Record {
    /// A new version of this page.
    Change(usize),
    /// The page's image has this LSN from now on.
    Map(usize, Lsn),
    /// The log ended here in a crash.
    Epoch,
}

/// A page with changes that are in no image named by a MAP record: in a frame, or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    lsn: Lsn,
    /// Begin of the first of these changes.
    rec_lsn: Lsn,
}

/// An image of the map page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapImage {
    /// End of the last MAP record in it.
    lsn: Lsn,
    /// The LSN of each page's image.
    images: [Lsn; PAGES],
}

/// The current use of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It is written.
    Running,
    /// It ends in a crash that no EPOCH record seals.
    Crashed,
    /// It is redone. For each page: whether it waits for its redo, and whether it is in the current batch.
    Redoing([bool; PAGES], [bool; PAGES]),
}

/// Memory and device together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Records from the checkpoint on.
    log: Vec<Record>,
    phase: Phase,
    /// Whether the writer has credit.
    credited: bool,
    /// Dirty pages in frames.
    frames: [Option<Version>; PAGES],
    /// Images written but not named.
    in_flight: [Option<Version>; PAGES],
    /// The map page's image, if it is newer than the one that the superblock names.
    written: Option<MapImage>,
    /// The map page's image that the superblock names.
    named: MapImage,
    /// A change that no image has was before the checkpoint.
    lost: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The writer gets credit.
    Grant,
    /// The writer changes this page.
    Append(usize),
    /// Only log, images and superblock remain.
    Crash,
    /// Writes a dirty page's image.
    Clean(usize),
    /// Syncs the images, and logs where they are.
    Publish,
    /// Writes the map page.
    WriteMapPage,
    /// Writes a superblock: the checkpoint moves to the oldest holder.
    Checkpoint,
    /// Seals the log's end.
    LogEpoch,
    /// Takes this page, which waits for its redo, into the batch.
    Take(usize),
    /// Redoes the next change of this page.
    Redo(usize),
    /// Ends the batch.
    EndBatch,
}

impl Record {
    /// The same record for another page.
    fn of(self, page: usize) -> Record {
        match self {
            Record::Change(_) => Record::Change(page),
            Record::Map(_, image) => Record::Map(page, image),
            Record::Epoch => Record::Epoch,
        }
    }
}

impl State {
    fn initial() -> State {
        State {
            log: Vec::new(),
            phase: Phase::Running,
            credited: false,
            frames: [None; PAGES],
            in_flight: [None; PAGES],
            written: None,
            named: MapImage { lsn: 0, images: [0; PAGES] },
            lost: false,
        }
    }

    fn next(&self) -> Lsn {
        self.log.len()
    }

    /// The map in memory: that of the superblock, updated by all MAP records since.
    fn map(&self) -> MapImage {
        self.map_from(0)
    }

    /// The same if the log began at `begin`.
    fn map_from(&self, begin: Lsn) -> MapImage {
        let mut map = self.named;
        for (start, &record) in self.log.iter().enumerate().skip(begin) {
            if let Record::Map(page, image) = record
                && start >= map.lsn
            {
                map.images[page] = image;
                map.lsn = start + 1;
            }
        }
        map
    }

    /// Begin of the first MAP record that no image of the map page has.
    fn map_rec_lsn(&self) -> Option<Lsn> {
        let known = self.written.unwrap_or(self.named).lsn;
        (known..self.next()).find(|&start| matches!(self.log[start], Record::Map(..)))
    }

    /// The LSN that a read of the page finds.
    fn lsn(&self, page: usize) -> Lsn {
        let version = self.frames[page].or(self.in_flight[page]);
        version.map_or(self.map().images[page], |version| version.lsn)
    }

    /// Begins of the changes that the page lacks.
    fn changes_after(&self, page: usize, lsn: Lsn) -> impl Iterator<Item = Lsn> {
        (lsn..self.next()).filter(move |&start| self.log[start] == Record::Change(page))
    }

    fn epochs(&self) -> usize {
        self.log.iter().filter(|&&record| record == Record::Epoch).count()
    }

    /// Whether a page waits for its redo, or is in the batch.
    fn waits(&self, page: usize) -> bool {
        matches!(self.phase, Phase::Redoing(waiting, batch) if waiting[page] || batch[page])
    }

    fn in_batch(&self, page: usize) -> bool {
        matches!(self.phase, Phase::Redoing(_, batch) if batch[page])
    }

    fn batch_len(&self) -> usize {
        (0..PAGES).filter(|&page| self.in_batch(page)).count()
    }

    fn dirty_frames(&self) -> usize {
        self.frames.iter().flatten().count()
    }

    fn images_in_flight(&self) -> usize {
        self.in_flight.iter().flatten().count()
    }

    fn change(&mut self, page: usize, start: Lsn) {
        let rec_lsn = self.frames[page].map_or(start, |frame| frame.rec_lsn);
        self.frames[page] = Some(Version { lsn: start + 1, rec_lsn });
    }

    fn crash(&mut self) {
        self.phase = Phase::Crashed;
        self.credited = false;
        self.frames = [None; PAGES];
        self.in_flight = [None; PAGES];
        self.written = None;
    }

    /// Moves the checkpoint, and with it the origin of all positions.
    fn move_checkpoint(&mut self, by: Lsn) {
        let images = self.map_from(by).images;
        let gone = |start: Lsn, record: &Record| matches!(*record, Record::Change(page) if images[page] <= start);
        self.lost |= self.log.drain(..by).enumerate().any(|(start, record)| gone(start, &record));
        let pages = self.frames.iter_mut().chain(&mut self.in_flight).flatten();
        let lsns = pages.flat_map(|version| [&mut version.lsn, &mut version.rec_lsn]);
        let in_log = self.log.iter_mut().filter_map(|record| match record {
            Record::Map(_, image) => Some(image),
            _ => None,
        });
        let named = std::iter::once(&mut self.named.lsn).chain(&mut self.named.images);
        lsns.chain(in_log).chain(named).for_each(|lsn| *lsn = lsn.saturating_sub(by));
    }

    /// A measure of the remaining work. Each weight exceeds the sum of those that the step away from it leads to.
    pub fn work_left(&self) -> usize {
        const RECORD: usize = 1;
        const UNNAMED: usize = 1;
        const MAP_PAGE: usize = UNNAMED + 1;
        const IN_FLIGHT: usize = MAP_PAGE + RECORD + 1;
        const FRAME: usize = IN_FLIGHT + 1;
        const CREDITED: usize = FRAME + RECORD + 1;
        const CHANGE: usize = FRAME + 1;
        let waiting = match self.phase {
            Phase::Running => 0,
            Phase::Crashed => 3 * PAGES + RECORD + 1,
            Phase::Redoing(waiting, _) => 2 * waiting.into_iter().filter(|&waits| waits).count() + self.batch_len(),
        };
        let unredone = |&page: &usize| self.phase == Phase::Crashed || self.waits(page);
        let changes = (0..PAGES).filter(unredone).map(|page| self.changes_after(page, self.lsn(page)).count());
        self.next() * RECORD
            + usize::from(self.credited) * CREDITED
            + self.dirty_frames() * FRAME
            + self.images_in_flight() * IN_FLIGHT
            + usize::from(self.map_rec_lsn().is_some()) * MAP_PAGE
            + usize::from(self.written.is_some()) * UNNAMED
            + waiting
            + changes.sum::<usize>() * CHANGE
    }

    /// The log's records of this page, with their positions.
    fn records(&self, page: usize) -> Vec<(Lsn, Record)> {
        let of_page = |record: &Record| matches!(*record, Record::Change(of) | Record::Map(of, _) if of == page);
        let numbered = self.log.iter().enumerate().filter(|(_, record)| of_page(record));
        numbered.map(|(start, &record)| (start, record.of(0))).collect()
    }

    /// Renames the pages, which are alike, in an order that depends on their state only.
    fn normalise(&mut self) {
        let mut order: [usize; PAGES] = std::array::from_fn(|page| page);
        order.sort_by_cached_key(|&page| {
            let versions = (self.frames[page], self.in_flight[page]);
            (self.records(page), versions, self.named.images[page], self.waits(page), self.in_batch(page))
        });
        let mut renamed = [0; PAGES];
        order.iter().enumerate().for_each(|(new, &old)| renamed[old] = new);
        for record in &mut self.log {
            if let Record::Change(page) | Record::Map(page, _) = *record {
                *record = record.of(renamed[page]);
            }
        }
        self.frames = order.map(|old| self.frames[old]);
        self.in_flight = order.map(|old| self.in_flight[old]);
        for map in [&mut self.named].into_iter().chain(&mut self.written) {
            map.images = order.map(|old| map.images[old]);
        }
        if let Phase::Redoing(waiting, batch) = &mut self.phase {
            (*waiting, *batch) = (order.map(|old| waiting[old]), order.map(|old| batch[old]));
        }
    }

    /// Whether every page that does not wait for its redo is in its newest version.
    fn is_newest(&self) -> bool {
        let newest = |page| self.changes_after(page, self.lsn(page)).next().is_none();
        self.phase == Phase::Crashed || (0..PAGES).all(|page| self.waits(page) || newest(page))
    }

    fn redoes_more_than_fits(&self, frames: usize) -> bool {
        (0..PAGES).filter(|&page| self.waits(page)).count() > frames
    }
}

impl Recovery {
    fn has(&self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    /// Units that cleaning leaves free: the epochs' band, as far as it is not used up.
    fn left(&self, state: &State) -> usize {
        let band = if self.has(Bug::NoEpochBand) { 0 } else { EPOCHS };
        band.saturating_sub(if self.has(Bug::BandIsNotUsedUp) { 0 } else { state.epochs() })
    }

    /// Units that writers leave free: a MAP record for each page that is dirty or in flight, and cleaning's share.
    fn reserve(&self, state: &State) -> usize {
        state.dirty_frames() + state.images_in_flight() + self.left(state)
    }

    /// Units promised to the writer: a change, and the MAP record that it leads to.
    fn promised(&self, state: &State) -> usize {
        if state.credited { 2 } else { 0 }
    }

    fn maps_fit(&self, state: &State) -> bool {
        state.next() + self.promised(state) + state.images_in_flight() + self.left(state) <= self.capacity
    }

    fn epoch_fits(&self, state: &State) -> bool {
        state.next() < self.capacity
    }

    /// Whether the page has a frame, or gets one.
    fn finds_frame(&self, state: &State, page: usize) -> bool {
        state.frames[page].is_some() || state.dirty_frames() < self.frames
    }

    fn may_clean(&self, state: &State, page: usize) -> bool {
        // A page of the batch is pinned. With the bug the keeper takes it, but only for want of frames.
        let frames_are_short = state.dirty_frames() == self.frames;
        let stays = state.in_batch(page) && !(self.has(Bug::CleanedHalfRedone) && frames_are_short);
        state.frames[page].is_some() && !stays && state.images_in_flight() < IN_FLIGHT
    }

    fn oldest_holder(&self, state: &State) -> Lsn {
        let redoes = state.phase != Phase::Running && !self.has(Bug::UnredoneNotCounted);
        let pages = state.frames.iter().chain(&state.in_flight).flatten().map(|version| version.rec_lsn);
        pages.chain(state.map_rec_lsn()).chain(redoes.then_some(0)).fold(state.next(), Lsn::min)
    }

    fn allows(&self, state: &State, action: Action) -> bool {
        let (runs, crashed) = (state.phase == Phase::Running, state.phase == Phase::Crashed);
        match action {
            Action::Grant => runs && !state.credited && state.next() + 2 + self.reserve(state) <= self.capacity,
            Action::Append(page) => runs && state.credited && self.finds_frame(state, page),
            Action::Crash => !crashed && state.epochs() < EPOCHS,
            Action::Clean(page) => self.may_clean(state, page),
            Action::Publish => state.images_in_flight() > 0 && self.maps_fit(state),
            Action::WriteMapPage => runs && state.map_rec_lsn().is_some(),
            Action::Checkpoint => !crashed && (state.written.is_some() || self.oldest_holder(state) > 0),
            Action::LogEpoch => crashed && self.epoch_fits(state),
            Action::Take(page) => state.waits(page) && !state.in_batch(page) && state.batch_len() + 1 < self.frames,
            Action::Redo(page) => {
                let next = state.changes_after(page, state.lsn(page)).next();
                state.in_batch(page) && next.is_some() && self.finds_frame(state, page)
            }
            Action::EndBatch => {
                let done = |page| !state.in_batch(page) || state.changes_after(page, state.lsn(page)).next().is_none();
                state.batch_len() > 0 && (0..PAGES).all(done)
            }
        }
    }

    /// Takes a step that is allowed.
    fn apply(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Grant => state.credited = true,
            Action::Append(page) => {
                state.credited = false;
                state.change(page, state.next());
                state.log.push(Record::Change(page));
            }
            Action::Crash => state.crash(),
            Action::Clean(page) => state.in_flight[page] = state.frames[page].take(),
            Action::Publish => {
                for page in 0..PAGES {
                    if let Some(version) = state.in_flight[page].take() {
                        state.log.push(Record::Map(page, version.lsn));
                    }
                }
            }
            Action::WriteMapPage => state.written = Some(state.map()),
            Action::Checkpoint => {
                let by = self.oldest_holder(state);
                state.named = state.written.take().unwrap_or(state.named);
                state.move_checkpoint(by);
            }
            Action::LogEpoch => {
                let images = state.map().images;
                let waiting = std::array::from_fn(|page| state.changes_after(page, images[page]).next().is_some());
                state.log.push(Record::Epoch);
                state.phase = Phase::Redoing(waiting, [false; PAGES]);
                self.end_redo(state);
            }
            Action::Take(page) => {
                let Phase::Redoing(waiting, batch) = &mut state.phase else { return None };
                waiting[page] = false;
                batch[page] = true;
            }
            Action::Redo(page) => {
                let start = state.changes_after(page, state.lsn(page)).next()?;
                state.change(page, start);
            }
            Action::EndBatch => {
                let Phase::Redoing(_, batch) = &mut state.phase else { return None };
                *batch = [false; PAGES];
                self.end_redo(state);
            }
        }
        Some(())
    }

    fn end_redo(&self, state: &mut State) {
        if !(0..PAGES).any(|page| state.waits(page)) {
            state.phase = Phase::Running;
        }
    }

    /// The possible steps of work.
    fn work(&self, state: &State) -> Vec<Action> {
        let of_a_page = [Action::Append, Action::Clean, Action::Take, Action::Redo];
        let of_pages = (0..PAGES).flat_map(|page| of_a_page.map(|action| action(page)));
        let of_all = [Action::Publish, Action::WriteMapPage, Action::Checkpoint, Action::LogEpoch, Action::EndBatch];
        of_pages.chain(of_all).filter(|&action| self.allows(state, action)).collect()
    }

    fn drains(&self, state: &State) -> bool {
        *state == State::initial() || !self.work(state).is_empty()
    }

    fn progresses(&self, state: &State) -> bool {
        let after = |action| self.next_state(state, action).map_or(0, |next| next.work_left());
        self.work(state).into_iter().all(|action| after(action) < state.work_left())
    }

    fn records_never_wait(&self, state: &State) -> bool {
        let epoch_waits = state.phase == Phase::Crashed && !self.epoch_fits(state);
        let map_waits = state.images_in_flight() > 0 && !self.maps_fit(state);
        !epoch_waits && !map_waits
    }
}

impl Model for Recovery {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend([Action::Grant, Action::Crash].into_iter().filter(|&action| self.allows(state, action)));
        actions.extend(self.work(state));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, action)?;
        next.normalise();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(DRAINS, Recovery::drains),
            Property::always(PROGRESSES, Recovery::progresses),
            Property::always(RECORDS_NEVER_WAIT, Recovery::records_never_wait),
            Property::always(NOTHING_LOST, |_, state: &State| !state.lost && state.is_newest()),
            Property::sometimes("the log is full to its last unit", |model: &Recovery, state: &State| {
                state.next() == model.capacity
            }),
            Property::sometimes(
                "more pages wait for their redo than fit the pool",
                |model: &Recovery, state: &State| state.redoes_more_than_fits(model.frames),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_holds, counterexample};

    fn planted(bug: Bug) -> Recovery {
        Recovery { capacity: 7, frames: 2, planted: Some(bug) }
    }

    #[test]
    fn recovery_from_a_full_log_ends() {
        // One more unit takes half a minute: `make crash` has that.
        let capacity = if std::env::var_os("MILLPOND_FULL").is_some() { 10 } else { 9 };
        assert_holds(Recovery { capacity, frames: 2, planted: None });
    }

    #[test]
    fn page_that_is_cleaned_half_redone_takes_more_than_its_room() {
        counterexample(planted(Bug::CleanedHalfRedone), RECORDS_NEVER_WAIT);
        counterexample(Recovery { capacity: 9, ..planted(Bug::CleanedHalfRedone) }, DRAINS);
    }

    #[test]
    fn epochs_use_up_their_own_band() {
        counterexample(planted(Bug::BandIsNotUsedUp), DRAINS);
    }

    #[test]
    fn recovery_without_a_band_for_epochs_is_stuck() {
        counterexample(planted(Bug::NoEpochBand), DRAINS);
    }

    #[test]
    fn checkpoint_waits_for_redo() {
        counterexample(planted(Bug::UnredoneNotCounted), NOTHING_LOST);
    }
}
