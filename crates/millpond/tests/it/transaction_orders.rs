//! Orders of the steps of two and three transactions, at each level of isolation, over two rows and a unique index,
//! against a model that knows nothing of the engine: what each step returns, which steps wait, and what is there at the
//! end.
//!
//! A transaction has three steps and its end, drawn from a seed. All 70 orders of two such transactions are tried, and
//! of three all 60 with at most three switches. `make test` tries a few seeds, `make crash` many more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millpond::simulation::{SimulatedDisk, run, sleep_ns};
use millpond::{Durability, Field, Isolation, OnConflict, Table, TableDefinition};
use rand::{RngExt, SeedableRng};

use crate::actors::Outcome::{Conflict, Deadlock, Done, Exists, Over, Rows, Value};
use crate::actors::{Actor, LEVELS, Outcome, Step};
use crate::crash_matrix::seeds;
use crate::support::{open, small_options, sound};

type Rng = rand_xoshiro::Xoshiro256PlusPlus;

/// Rows by key; each value is there once.
type State = BTreeMap<u8, u8>;

type Level = (&'static str, Isolation, OnConflict);

const START: [(u8, u8); 2] = [(1, 10), (2, 20)];

const STEPS: usize = 4;

/// What a lock is of: a row or an absent key, or an entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Row(u8),
    Entry(u8),
}

#[derive(Clone, Default)]
struct Txn {
    /// Number of the state that it reads; `None`: it has not read.
    snapshot: Option<usize>,
    own: BTreeMap<u8, Option<u8>>,
    /// True: exclusive.
    locks: BTreeMap<Place, bool>,
    /// Places that it has changed.
    changed: BTreeSet<Place>,
    written: u32,
    /// The step that it has begun and not ended.
    step: Option<Step>,
    /// The lock that it waits for, exclusively or not.
    waits: Option<(Place, bool)>,
    is_over: bool,
}

/// The model. `committed` has all states; `changes` the number of the state that last changed a place.
#[derive(Clone)]
struct Model {
    is_snapshot: bool,
    has_conflicts: bool,
    committed: Vec<State>,
    changes: BTreeMap<Place, usize>,
    txns: Vec<Txn>,
    lines: BTreeMap<Place, VecDeque<usize>>,
    /// Work of several threads at one time: it may be done in any order.
    work: Vec<Work>,
    /// The outcomes of the steps that have ended since the last look.
    outcomes: BTreeMap<usize, Outcome>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Goes on with its step.
    GoOn(usize),
    /// Is rolled back as the victim of a circle.
    GiveWay(usize),
}

/// The end of a step in the model.
enum End {
    With(Outcome),
    /// It waits for this place, exclusively or not.
    Waits(Place, bool),
}

impl Model {
    fn new(level: Level, txns: usize) -> Model {
        Model {
            is_snapshot: level.1 == Isolation::RepeatableRead,
            has_conflicts: level.2 == OnConflict::Error,
            committed: vec![START.into()],
            changes: BTreeMap::new(),
            txns: vec![Txn::default(); txns],
            lines: BTreeMap::new(),
            work: Vec::new(),
            outcomes: BTreeMap::new(),
        }
    }

    fn newest(&self) -> &State {
        self.committed.last().expect("the first one stays")
    }

    /// The rows that `id` sees over a committed state.
    fn seen(&self, id: usize, state: &State) -> State {
        let mut rows = state.clone();
        for (key, value) in &self.txns[id].own {
            match value {
                Some(value) => _ = rows.insert(*key, *value),
                None => _ = rows.remove(key),
            }
        }
        rows
    }

    fn latest(&self, id: usize) -> State {
        self.seen(id, self.newest())
    }

    /// The rows that a read without a lock sees.
    fn read(&mut self, id: usize) -> State {
        let now = self.committed.len() - 1;
        let at = if self.is_snapshot { *self.txns[id].snapshot.get_or_insert(now) } else { now };
        self.seen(id, &self.committed[at].clone())
    }

    /// The others that hold a place in a way that keeps `id` from it.
    fn holders(&self, id: usize, place: Place, exclusive: bool) -> impl Iterator<Item = usize> {
        let conflicts = move |txn: &Txn| txn.locks.get(&place).is_some_and(|held| *held || exclusive);
        self.txns.iter().enumerate().filter(move |(other, txn)| *other != id && conflicts(txn)).map(|(other, _)| other)
    }

    /// A newcomer waits behind those that wait already; one that has the lock in another way passes them.
    fn is_free(&self, id: usize, place: Place, exclusive: bool) -> bool {
        let has_line = self.lines.get(&place).is_some_and(|line| !line.is_empty());
        let passes = !has_line || self.txns[id].locks.contains_key(&place);
        passes && self.holders(id, place, exclusive).next().is_none()
    }

    fn has_changed(&self, id: usize, place: Place) -> bool {
        let since = self.txns[id].snapshot.filter(|_| self.is_snapshot && self.has_conflicts);
        since.is_some_and(|since| self.changes.get(&place).is_some_and(|at| *at > since))
    }

    /// Looks at a place that a step changes or locks; `Some`: the step ends or waits there.
    fn look(&self, id: usize, place: Place, exclusive: bool) -> Option<End> {
        if !self.is_free(id, place, exclusive) {
            return Some(End::Waits(place, exclusive));
        }
        self.has_changed(id, place).then_some(End::With(Conflict))
    }

    /// Sets the value of a row, or removes it.
    fn change(&mut self, id: usize, key: u8, new: Option<u8>, inserts: bool) -> End {
        if let Some(end) = self.look(id, Place::Row(key), true) {
            return end;
        }
        let rows = self.latest(id);
        let old = rows.get(&key).copied();
        if inserts && old.is_some() {
            return End::With(Exists);
        }
        if old.is_none() && new.is_none() {
            // The absent key is locked.
            self.txns[id].locks.insert(Place::Row(key), true);
            return End::With(Done);
        }
        let mut places = vec![Place::Row(key)];
        if old != new {
            let mut entries: Vec<u8> = old.into_iter().chain(new).collect();
            entries.sort_unstable();
            for entry in entries {
                if let Some(end) = self.look(id, Place::Entry(entry), true) {
                    return end;
                }
                if Some(entry) == new && rows.iter().any(|(other, value)| *other != key && *value == entry) {
                    return End::With(Exists);
                }
                places.push(Place::Entry(entry));
            }
        }
        let txn = &mut self.txns[id];
        txn.own.insert(key, new);
        txn.written += 1;
        txn.changed.extend(places.iter().copied());
        txn.locks.extend(places.into_iter().map(|place| (place, true)));
        End::With(Done)
    }

    fn lock(&mut self, id: usize, key: u8, exclusive: bool) -> End {
        let place = Place::Row(key);
        if !self.is_free(id, place, exclusive) {
            return End::Waits(place, exclusive);
        }
        *self.txns[id].locks.entry(place).or_insert(false) |= exclusive;
        match self.has_changed(id, place) {
            true => End::With(Conflict),
            false => End::With(Value(self.latest(id).get(&key).copied())),
        }
    }

    fn act(&mut self, id: usize, step: Step) -> End {
        if self.txns[id].is_over {
            return End::With(Over);
        }
        match step {
            Step::Get(key) => End::With(Value(self.read(id).get(&key).copied())),
            Step::All => End::With(Rows(self.read(id).into_iter().collect())),
            Step::ByValue => {
                let mut rows: Vec<(u8, u8)> = self.read(id).into_iter().collect();
                rows.sort_by_key(|(_, value)| *value);
                End::With(Rows(rows))
            }
            Step::ForUpdate(key) => self.lock(id, key, true),
            Step::ForShare(key) => self.lock(id, key, false),
            Step::Insert(key, value) => self.change(id, key, Some(value), true),
            Step::Put(key, value) => self.change(id, key, Some(value), false),
            Step::Delete(key) => self.change(id, key, None, false),
            Step::Add(key, more) => match self.lock(id, key, true) {
                End::With(Value(Some(value))) => self.change(id, key, Some(value + more), false),
                end => end,
            },
            Step::Commit | Step::Rollback => {
                let own = std::mem::take(&mut self.txns[id].own);
                let changed = std::mem::take(&mut self.txns[id].changed);
                if step == Step::Commit && self.txns[id].written > 0 {
                    let mut rows = self.newest().clone();
                    for (key, value) in own {
                        match value {
                            Some(value) => _ = rows.insert(key, value),
                            None => _ = rows.remove(&key),
                        }
                    }
                    self.committed.push(rows);
                    let now = self.committed.len() - 1;
                    self.changes.extend(changed.into_iter().map(|place| (place, now)));
                }
                self.end(id);
                End::With(Done)
            }
        }
    }

    /// Ends a transaction: its locks go to the transactions that wait for them.
    fn end(&mut self, id: usize) {
        let ended = std::mem::replace(&mut self.txns[id], Txn { is_over: true, ..Txn::default() });
        ended.locks.into_keys().for_each(|place| self.hand_on(place));
    }

    /// Gives a place to the first ones in its line, as many as may have it.
    fn hand_on(&mut self, place: Place) {
        while let Some(&next) = self.lines.get(&place).and_then(VecDeque::front) {
            let (_, exclusive) = self.txns[next].waits.expect("it waits");
            if self.holders(next, place, exclusive).next().is_some() {
                return;
            }
            self.leave(next);
            *self.txns[next].locks.entry(place).or_insert(false) |= exclusive;
            self.work.push(Work::GoOn(next));
        }
    }

    /// Takes a transaction out of the line in which it waits.
    fn leave(&mut self, id: usize) -> Option<Place> {
        let (place, _) = self.txns[id].waits.take()?;
        self.lines.entry(place).or_default().retain(|other| *other != id);
        Some(place)
    }

    /// The transactions for which `id` waits: holders, and those before it in the line.
    fn awaited(&self, id: usize) -> Vec<usize> {
        let Some((place, exclusive)) = self.txns[id].waits else { return Vec::new() };
        let line = self.lines[&place].iter().copied().take_while(|other| *other != id);
        let in_line = line.filter(|other| exclusive || self.txns[*other].waits.is_some_and(|(_, wanted)| wanted));
        self.holders(id, place, exclusive).chain(in_line).collect()
    }

    /// All circles that begin with this way.
    fn circles(&self, way: &[usize]) -> Vec<Vec<usize>> {
        let mut found = Vec::new();
        for next in self.awaited(way[way.len() - 1]) {
            if next == way[0] {
                found.push(way.to_vec());
            } else if !way.contains(&next) {
                found.extend(self.circles(&[way, &[next]].concat()));
            }
        }
        found
    }

    /// Begins a step. Returns all ways in which it and what it sets free may go.
    fn step(mut self, id: usize, step: Step) -> Vec<Model> {
        self.txns[id].step = Some(step);
        self.work.push(Work::GoOn(id));
        self.settled()
    }

    /// All ways in which the work may end, by the order in which it is done.
    fn settled(self) -> Vec<Model> {
        if self.work.is_empty() {
            return vec![self];
        }
        let each = |at: usize| {
            let mut model = self.clone();
            match model.work.remove(at) {
                Work::GiveWay(id) => {
                    model.end(id);
                    model.outcomes.insert(id, Deadlock);
                    model.settled()
                }
                Work::GoOn(id) => model.go_on(id),
            }
        };
        (0..self.work.len()).flat_map(each).collect()
    }

    fn go_on(mut self, id: usize) -> Vec<Model> {
        let step = self.txns[id].step.expect("begun");
        match self.act(id, step) {
            End::With(outcome) => {
                self.txns[id].step = None;
                self.outcomes.insert(id, outcome);
                self.settled()
            }
            End::Waits(place, exclusive) => {
                let line = self.lines.entry(place).or_default();
                match self.txns[id].locks.contains_key(&place) {
                    true => line.push_front(id),
                    false => line.push_back(id),
                }
                self.txns[id].waits = Some((place, exclusive));
                self.without_circles(id).into_iter().flat_map(Model::settled).collect()
            }
        }
    }

    /// Breaks the circles that `id` closes. Of each, the one that has changed least gives way, of equals the first from
    /// `id` on. Which of several circles is found first is left open.
    fn without_circles(self, id: usize) -> Vec<Model> {
        let circles = self.circles(&[id]);
        if circles.is_empty() {
            return vec![self];
        }
        let each = |circle: Vec<usize>| {
            let mut model = self.clone();
            let victim = circle.into_iter().min_by_key(|member| model.txns[*member].written).expect("not empty");
            model.work.push(Work::GiveWay(victim));
            model.leave(victim).into_iter().for_each(|place| model.hand_on(place));
            model.without_circles(id)
        };
        circles.into_iter().flat_map(each).collect()
    }
}

/// Three random steps over rows 1 to 3 and few values, and an end.
fn program(random: &mut Rng) -> [Step; STEPS] {
    let mut steps = [Step::Commit; STEPS];
    for step in &mut steps[..STEPS - 1] {
        let (key, value) = (random.random_range(1..4u8), 10 * random.random_range(1..5u8));
        *step = match random.random_range(0..14) {
            0 | 1 => Step::Get(key),
            2 => Step::All,
            3 => Step::ByValue,
            4 => Step::ForUpdate(key),
            5 => Step::ForShare(key),
            6 | 7 => Step::Insert(key, value),
            8..11 => Step::Put(key, value),
            11 | 12 => Step::Delete(key),
            _ => Step::Add(key, 10),
        };
    }
    if random.random_range(0..6) == 0 {
        steps[STEPS - 1] = Step::Rollback;
    }
    steps
}

/// All orders of two times `STEPS` steps: which transaction takes each one.
fn orders_of_two() -> Vec<Vec<usize>> {
    let all = (0..1u32 << (2 * STEPS)).filter(|bits| bits.count_ones() as usize == STEPS);
    all.map(|bits| (0..2 * STEPS).map(|at| (bits >> at & 1) as usize).collect()).collect()
}

/// The orders of three times `STEPS` steps with at most three switches: one transaction after the other, or one of them
/// in two pieces with others between them.
fn orders_of_three() -> Vec<Vec<usize>> {
    const SWITCHES: usize = 3;
    let mut orders = vec![Vec::new()];
    for _ in 0..3 * STEPS {
        let count = |order: &[usize], id: usize| order.iter().filter(|other| **other == id).count();
        let longer = |order: Vec<usize>| {
            let next = (0..3).filter(|id| count(&order, *id) < STEPS).collect::<Vec<_>>();
            next.into_iter().map(move |id| [order.clone(), vec![id]].concat())
        };
        orders = orders.into_iter().flat_map(longer).collect();
        orders.retain(|order| order.windows(2).filter(|pair| pair[0] != pair[1]).count() <= SWITCHES);
    }
    orders
}

fn reset(table: &Table) {
    for key in 1..4u8 {
        table.delete([key]).expect("written");
    }
    START.iter().for_each(|(key, value)| table.insert([*key], [*value]).expect("written"));
}

#[test]
fn steps_of_two_transactions_in_every_order_do_as_the_model() {
    let orders = orders_of_two();
    assert_eq!(orders.len(), 70);
    compare_orders(2, &orders, seeds(14, 600));
}

#[test]
fn steps_of_three_transactions_in_few_pieces_do_as_the_model() {
    let orders = orders_of_three();
    assert_eq!(orders.len(), 60);
    compare_orders(3, &orders, seeds(14, 600));
}

/// Runs `txns` transactions in all these orders, at each level and for each seed, and prints how many schedules ran.
fn compare_orders(txns: usize, orders: &[Vec<usize>], seeds: u64) {
    let (mut schedules, mut seen) = (0, BTreeMap::<String, u32>::new());
    for level in LEVELS {
        let disk = SimulatedDisk::new();
        run(11, || {
            let db = open(&disk, small_options().durability(Durability::None));
            let definition = TableDefinition::new().unique("value", [Field::value(0..1)]);
            let table = db.create_table("t", definition).expect("created");
            for seed in 0..seeds {
                let mut random = Rng::seed_from_u64(seed);
                let programs: Vec<[Step; STEPS]> = (0..txns).map(|_| program(&mut random)).collect();
                for order in orders {
                    reset(&table);
                    let ended = run_order(&db, &table, level, &programs, order);
                    schedules += 1;
                    for outcome in ended {
                        let name = outcome.split('(').next().unwrap_or_default();
                        *seen.entry(format!("{} {name}", level.0)).or_default() += 1;
                    }
                }
            }
            drop(table);
            db.close().expect("closed");
        });
        sound(&disk);
    }
    println!("{schedules} schedules of {txns} transactions: {seen:?}");
    for level in LEVELS {
        let conflicts = level.0 == "repeatable read";
        for name in ["Done", "Value", "Rows", "Exists", "Deadlock", "Over", "waited"] {
            assert!(seen.contains_key(&format!("{} {name}", level.0)), "{name} never happened at {}", level.0);
        }
        assert_eq!(seen.contains_key(&format!("{} Conflict", level.0)), conflicts, "{}", level.0);
    }
}

/// Runs transactions in one order. Returns the outcomes of all steps; a step that waited counts as one more.
fn run_order(
    db: &millpond::Db,
    table: &Table,
    level: Level,
    programs: &[[Step; STEPS]],
    order: &[usize],
) -> Vec<String> {
    let mut models = vec![Model::new(level, programs.len())];
    let actors: Vec<Actor> = programs.iter().map(|_| Actor::begin(db, table, level)).collect();
    let (mut next, mut outcomes) = (vec![0; programs.len()], Vec::new());
    let mut left: Vec<usize> = order.to_vec();
    while !left.is_empty() {
        // A transaction that waits takes its turn later.
        let waits = |id: usize| models[0].txns[id].waits.is_some();
        let at = left.iter().position(|id| !waits(*id)).expect("one goes on");
        let id = left.remove(at);
        let step = programs[id][next[id]];
        next[id] += 1;
        let others_wait = (0..programs.len()).any(|other| other != id && waits(other));
        models = models.into_iter().flat_map(|model| model.step(id, step)).collect();
        let wanted: Vec<_> = models.iter().map(|model| model.outcomes.clone()).collect();
        let mut found: BTreeMap<usize, Outcome> =
            actors[id].step(step).map(|outcome| (id, outcome)).into_iter().collect();
        if others_wait {
            sleep_ns(2_000_000);
            let later = actors.iter().enumerate().filter_map(|(id, actor)| Some((id, actor.outcome()?)));
            found.extend(later);
        }
        models.retain(|model| model.outcomes == found);
        assert!(
            !models.is_empty(),
            "{step:?} of {id} ended with {found:?}, wanted {wanted:?}: {programs:?} in order {order:?} at {}",
            level.0
        );
        models.iter_mut().for_each(|model| model.outcomes.clear());
        if !found.contains_key(&id) {
            outcomes.push("waited".to_owned());
        }
        outcomes.extend(found.into_values().map(|outcome| format!("{outcome:?}")));
    }
    assert!(next.iter().all(|steps| *steps == STEPS), "a transaction that never ran proves nothing");
    actors.into_iter().for_each(Actor::end);
    let rows: State = table.scan(..).map(|row| row.expect("read")).map(|(key, row)| (key[0], row[0])).collect();
    let is_so = models.iter().any(|model| *model.newest() == rows);
    assert!(is_so, "{rows:?} at the end of {programs:?} in order {order:?} at {}", level.0);
    outcomes
}
