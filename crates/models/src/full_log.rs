//! A full log: why it always drains.
//!
//! The model has a log of a few units, two writers, a rollback, and the cleaner with its checkpoint, over two pages. A
//! writer takes credit before it appends. The credit covers everything that the append can lead to: the group, and the
//! MAP record by which the cleaner cleans the page that the group dirties. So for each dirty frame and for each
//! operation one MAP record's room is in reserve, and the cleaner never waits for room. Writers leave two bands free
//! beyond that: one for a group of the rollback, one for the EPOCH record with which recovery begins.
//!
//! Positions are counted from the checkpoint, so the states are finite in number although the log has no end.
//!
//! Steps are of two kinds: a demand comes from outside ([`Action::Begin`], [`Action::BeginRollback`],
//! [`Action::Crash`]), every other step works demands off. Two properties of single states say that the log drains.
//! Together they are stronger than "an empty log remains reachable": they leave the scheduler no endless choice, fair
//! or not.
//!
//! * If no work is left, the log is empty and no writer waits.
//! * Each step of work makes a measure smaller ([`State::work_left`]).
//!
//! Two more are about waits. A MAP record never waits. A rollback waits for the cleaner, never for a writer, which may
//! hold credit while it waits for a row of the transaction that is being rolled back.
//!
//! Left out: the contents of pages, and that images and superblocks wait for the durable log ([`page_store`] has both);
//! a crash that cuts off the log's end, which equals a crash before the end was appended; redo, and another crash
//! before the checkpoint has passed the EPOCH record of the last one ([`recovery`] has both); groups that change
//! several pages, which take credit for one MAP record for each page.
//!
//! [`page_store`]: crate::page_store
//! [`recovery`]: crate::recovery

use stateright::{Model, Property};

/// Units of the log.
pub const CAPACITY: usize = 12;

/// Pages of the model.
pub const PAGES: usize = 2;

/// Units of each writer's groups.
pub const GROUPS: [usize; 2] = [3, 4];

/// Units of the rollback's groups.
pub const UNDO: usize = 2;

/// Units of a MAP record.
pub const MAP: usize = 1;

/// Units of an EPOCH record.
pub const EPOCH: usize = 1;

const DRAINS: &str = "where no work is left, the log is empty and no writer waits";
const PROGRESSES: &str = "each step of work leaves less of it";
const MAP_NEVER_WAITS: &str = "a MAP record never waits";
const ROLLBACK_WAITS_FOR_CLEANER: &str = "a rollback waits for no writer";

/// A rule that the model is told to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Credit is for the group alone, and leaves nothing in reserve.
    NoReserve,
    /// The reserve covers pages that are dirty already, but credit covers the group alone. The page that the group
    /// dirties then adds to the reserve room that no writer has left free.
    MapNotInCredit,
    /// A MAP record waits for room behind the waiting writers.
    MapWaitsInLine,
    /// Writers leave no band for the rollback.
    NoRollbackBand,
    /// No writer leaves a band for the EPOCH record.
    NoEpochBand,
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct FullLog {
    /// The rule to break, if any.
    pub planted: Option<Bug>,
}

/// A writer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writer {
    /// Nothing.
    Idle,
    /// Waits for credit.
    Waiting,
    /// Has credit for a group.
    Credited,
}

/// An image on its way from the frame into the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The frame's dirtiness, which came along with the copy.
    rec_lsn: usize,
    /// Whether the image is durable.
    written: bool,
}

/// The log, and the changes in frames, operations and map that hold its checkpoint. Positions count from the
/// checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Where the log ends.
    next: usize,
    /// Begin of the EPOCH record that the checkpoint has not passed.
    epoch: Option<usize>,
    writers: [Writer; GROUPS.len()],
    /// The waiting writers, in the order of their arrival.
    line: Vec<usize>,
    /// Whether a group is to be rolled back.
    rolls_back: bool,
    /// For each page: begin of the first change that no operation has taken; `None`: the frame is clean.
    frames: [Option<usize>; PAGES],
    operations: [Option<Operation>; PAGES],
    /// Begin of the first MAP record that is not in the map page's image.
    map_rec_lsn: Option<usize>,
    /// Begin of the first MAP record that is not in the image named by the superblock, if there is a later image.
    map_unnamed: Option<usize>,
    /// Between a crash and the EPOCH record.
    recovers: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A writer asks for credit, and gets in line.
    Begin(usize),
    /// A group is to be rolled back.
    BeginRollback,
    /// Only log, images and superblock remain.
    Crash,
    /// The first in line gets credit.
    Grant,
    /// A writer appends a group that changes this page.
    Append(usize, usize),
    /// The rollback takes credit, and appends a group that changes this page.
    Undo(usize),
    /// Copies a dirty page, and takes its dirtiness.
    Copy(usize),
    /// Writes and syncs the copy.
    Write(usize),
    /// Logs where the image is.
    LogMap(usize),
    /// Writes the map page.
    WriteMapPage,
    /// Writes a superblock: the checkpoint moves to the oldest holder.
    Checkpoint,
    /// Recovery logs the new epoch, and ends.
    LogEpoch,
}

impl State {
    fn initial() -> State {
        State {
            next: 0,
            epoch: None,
            writers: [Writer::Idle; GROUPS.len()],
            line: Vec::new(),
            rolls_back: false,
            frames: [None; PAGES],
            operations: [None; PAGES],
            map_rec_lsn: None,
            map_unnamed: None,
            recovers: false,
        }
    }

    /// MAP records that the cleaner will log if nothing else becomes dirty.
    fn maps_to_come(&self) -> usize {
        self.frames.iter().flatten().count() + self.operations.iter().flatten().count()
    }

    fn oldest_holder(&self) -> usize {
        let operations = self.operations.iter().flatten().map(|operation| operation.rec_lsn);
        self.frames.into_iter().flatten().chain(operations).chain(self.map_rec_lsn).fold(self.next, usize::min)
    }

    /// Moves the checkpoint, and with it the origin of all positions.
    fn move_checkpoint(&mut self, by: usize) {
        self.next -= by;
        self.epoch = self.epoch.and_then(|epoch| epoch.checked_sub(by));
        let operations = self.operations.iter_mut().flatten().map(|operation| &mut operation.rec_lsn);
        for lsn in self.frames.iter_mut().flatten().chain(operations).chain(&mut self.map_rec_lsn) {
            *lsn -= by;
        }
    }

    fn change(&mut self, page: usize, units: usize) {
        self.frames[page].get_or_insert(self.next);
        self.next += units;
    }

    fn crash(&mut self) {
        for (frame, operation) in self.frames.iter_mut().zip(&mut self.operations) {
            let operation = operation.take();
            *frame = operation.map(|operation| operation.rec_lsn).or(*frame);
        }
        self.map_rec_lsn = self.map_unnamed.take().or(self.map_rec_lsn);
        self.writers = [Writer::Idle; GROUPS.len()];
        self.line.clear();
        self.recovers = true;
    }

    /// A measure of the remaining work. Each weight exceeds the sum of those that the step away from it leads to.
    pub fn work_left(&self) -> usize {
        const UNNAMED: usize = 1;
        const MAP_PAGE: usize = UNNAMED + 1;
        const WRITTEN: usize = MAP_PAGE + MAP + 1;
        const COPIED: usize = WRITTEN + 1;
        const FRAME: usize = COPIED + 1;
        const UNDOING: usize = FRAME + UNDO + 1;
        const RECOVERING: usize = EPOCH + 1;
        let writers = self.writers.iter().zip(GROUPS).map(|(writer, units)| match writer {
            Writer::Idle => 0,
            Writer::Credited => FRAME + units + 1,
            Writer::Waiting => FRAME + units + 2,
        });
        let operations =
            self.operations.iter().flatten().map(|operation| if operation.written { WRITTEN } else { COPIED });
        self.next
            + writers.sum::<usize>()
            + operations.sum::<usize>()
            + self.frames.iter().flatten().count() * FRAME
            + usize::from(self.rolls_back) * UNDOING
            + usize::from(self.recovers) * RECOVERING
            + usize::from(self.map_rec_lsn.is_some()) * MAP_PAGE
            + usize::from(self.map_unnamed.is_some()) * UNNAMED
    }

    fn is_at_rest(&self) -> bool {
        *self == State::initial()
    }
}

impl FullLog {
    fn has(&self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    /// Units that a group needs in all: its own, and those of the MAP record that it leads to.
    fn credit(&self, group: usize) -> usize {
        let without_map = self.has(Bug::NoReserve) || self.has(Bug::MapNotInCredit);
        group + if without_map { 0 } else { MAP }
    }

    /// Units promised to the writers with credit.
    fn promised(&self, state: &State) -> usize {
        let credited = state.writers.iter().zip(GROUPS).filter(|(writer, _)| **writer == Writer::Credited);
        credited.map(|(_, group)| self.credit(group)).sum()
    }

    /// Whether this much credit leaves the reserve and this band free.
    fn fits(&self, state: &State, credit: usize, band: usize) -> bool {
        let reserve = if self.has(Bug::NoReserve) { 0 } else { state.maps_to_come() * MAP + band };
        state.next + self.promised(state) + credit + reserve <= CAPACITY
    }

    fn epoch_band(&self, state: &State) -> usize {
        if state.epoch.is_some() || self.has(Bug::NoEpochBand) { 0 } else { EPOCH }
    }

    fn rollback_band(&self) -> usize {
        if self.has(Bug::NoRollbackBand) { 0 } else { UNDO + MAP }
    }

    fn first_in_line_fits(&self, state: &State) -> bool {
        let band = self.rollback_band() + self.epoch_band(state);
        state.line.first().is_some_and(|&writer| self.fits(state, self.credit(GROUPS[writer]), band))
    }

    fn undo_fits(&self, state: &State) -> bool {
        self.fits(state, self.credit(UNDO), self.epoch_band(state))
    }

    fn map_fits(&self, state: &State) -> bool {
        let may_go_first = state.line.is_empty() || !self.has(Bug::MapWaitsInLine);
        may_go_first && state.next + self.promised(state) + MAP <= CAPACITY
    }

    fn allows(&self, state: &State, action: Action) -> bool {
        if state.recovers {
            return action == Action::LogEpoch && state.next + EPOCH <= CAPACITY;
        }
        match action {
            Action::Begin(writer) => state.writers[writer] == Writer::Idle,
            Action::BeginRollback => !state.rolls_back,
            Action::Crash => state.epoch.is_none(),
            Action::Grant => self.first_in_line_fits(state),
            Action::Append(writer, _) => state.writers[writer] == Writer::Credited,
            Action::Undo(_) => state.rolls_back && self.undo_fits(state),
            Action::Copy(page) => state.frames[page].is_some() && state.operations[page].is_none(),
            Action::Write(page) => state.operations[page].is_some_and(|operation| !operation.written),
            Action::LogMap(page) => {
                state.operations[page].is_some_and(|operation| operation.written) && self.map_fits(state)
            }
            Action::WriteMapPage => state.map_rec_lsn.is_some(),
            Action::Checkpoint => state.map_unnamed.is_some() || state.oldest_holder() > 0,
            Action::LogEpoch => false,
        }
    }

    /// Takes a step that is allowed.
    fn apply(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Begin(writer) => {
                state.writers[writer] = Writer::Waiting;
                state.line.push(writer);
            }
            Action::BeginRollback => state.rolls_back = true,
            Action::Crash => state.crash(),
            Action::Grant => state.writers[state.line.remove(0)] = Writer::Credited,
            Action::Append(writer, page) => {
                state.writers[writer] = Writer::Idle;
                state.change(page, GROUPS[writer]);
            }
            Action::Undo(page) => {
                state.rolls_back = false;
                state.change(page, UNDO);
            }
            Action::Copy(page) => {
                let rec_lsn = state.frames[page].take()?;
                state.operations[page] = Some(Operation { rec_lsn, written: false });
            }
            Action::Write(page) => state.operations[page].as_mut()?.written = true,
            Action::LogMap(page) => {
                state.operations[page] = None;
                state.map_rec_lsn.get_or_insert(state.next);
                state.next += MAP;
            }
            Action::WriteMapPage => {
                let written = state.map_rec_lsn.take();
                state.map_unnamed = state.map_unnamed.or(written);
            }
            Action::Checkpoint => {
                state.map_unnamed = None;
                state.move_checkpoint(state.oldest_holder());
            }
            Action::LogEpoch => {
                state.epoch = Some(state.next);
                state.next += EPOCH;
                state.recovers = false;
            }
        }
        Some(())
    }

    /// The possible steps of work.
    fn work(&self, state: &State) -> Vec<Action> {
        let of_writers = (0..GROUPS.len()).flat_map(|writer| (0..PAGES).map(move |page| Action::Append(writer, page)));
        let steps = of_writers.chain([Action::Grant]).chain(self.work_without_writers(state));
        steps.filter(|&action| self.allows(state, action)).collect()
    }

    /// The possible steps of work that need no writer.
    fn work_without_writers(&self, state: &State) -> Vec<Action> {
        let of_a_page = [Action::Undo, Action::Copy, Action::Write, Action::LogMap];
        let of_pages = (0..PAGES).flat_map(|page| of_a_page.map(|action| action(page)));
        let steps = of_pages.chain([Action::WriteMapPage, Action::Checkpoint, Action::LogEpoch]);
        steps.filter(|&action| self.allows(state, action)).collect()
    }

    fn drains(&self, state: &State) -> bool {
        state.is_at_rest() || !self.work(state).is_empty()
    }

    fn progresses(&self, state: &State) -> bool {
        let after = |action| self.next_state(state, action).map_or(0, |next| next.work_left());
        self.work(state).into_iter().all(|action| after(action) < state.work_left())
    }

    fn map_never_waits(&self, state: &State) -> bool {
        state.recovers
            || (0..PAGES).all(|page| {
                let written = state.operations[page].is_some_and(|operation| operation.written);
                !written || self.allows(state, Action::LogMap(page))
            })
    }

    fn rollback_waits_for_no_writer(&self, state: &State) -> bool {
        !state.rolls_back || !self.work_without_writers(state).is_empty()
    }

    fn rollback_passes_writers(&self, state: &State) -> bool {
        !state.line.is_empty() && !self.first_in_line_fits(state) && self.allows(state, Action::Undo(0))
    }
}

impl Model for FullLog {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let demands = (0..GROUPS.len()).map(Action::Begin).chain([Action::BeginRollback, Action::Crash]);
        actions.extend(demands.filter(|&action| self.allows(state, action)));
        actions.extend(self.work(state));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, action)?;
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(DRAINS, FullLog::drains),
            Property::always(PROGRESSES, FullLog::progresses),
            Property::always(MAP_NEVER_WAITS, FullLog::map_never_waits),
            Property::always(ROLLBACK_WAITS_FOR_CLEANER, FullLog::rollback_waits_for_no_writer),
            Property::sometimes("the log is full to its last unit", |_, state: &State| state.next == CAPACITY),
            Property::sometimes("a crash finds a full log", |_, state: &State| {
                state.recovers && state.next + EPOCH + state.maps_to_come() * MAP == CAPACITY
            }),
            Property::sometimes("a rollback passes waiting writers", FullLog::rollback_passes_writers),
            Property::sometimes("a page changes while it is cleaned", |_, state: &State| {
                (0..PAGES).any(|page| state.frames[page].is_some() && state.operations[page].is_some())
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_holds, counterexample};

    fn planted(bug: Bug) -> FullLog {
        FullLog { planted: Some(bug) }
    }

    #[test]
    fn full_log_drains() {
        assert_holds(FullLog { planted: None });
    }

    #[test]
    fn log_without_reserve_is_stuck() {
        counterexample(planted(Bug::NoReserve), DRAINS);
    }

    #[test]
    fn credit_without_the_map_record_to_come_is_too_little() {
        counterexample(planted(Bug::MapNotInCredit), DRAINS);
    }

    #[test]
    fn map_record_behind_waiting_writers_is_stuck() {
        counterexample(planted(Bug::MapWaitsInLine), DRAINS);
    }

    #[test]
    fn rollback_without_band_waits_for_writers() {
        counterexample(planted(Bug::NoRollbackBand), ROLLBACK_WAITS_FOR_CLEANER);
    }

    #[test]
    fn recovery_without_band_is_stuck() {
        counterexample(planted(Bug::NoEpochBand), DRAINS);
    }
}
