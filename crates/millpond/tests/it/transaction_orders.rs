//! Every order of the steps of two transactions, at each level of isolation, over two rows and a unique index, against
//! a model that knows nothing of the engine: what each step returns, which steps wait, and what is there at the end.
//!
//! A transaction has three steps and its end, drawn from a seed. The 70 orders of two such transactions are all tried.
//! `make test` tries a few pairs of transactions, `make crash` many more.

use std::collections::{BTreeMap, BTreeSet};

use millpond::simulation::{SimulatedDisk, run, sleep_ns};
use millpond::{Durability, Field, Table, TableDefinition};
use rand::{RngExt, SeedableRng};

use crate::actors::Outcome::{Conflict, Deadlock, Done, Exists, Over, Rows, Value};
use crate::actors::{Actor, LEVELS, Outcome, Step};
use crate::crash_matrix::seeds;
use crate::support::{open, small_options, sound};

type Rng = rand_xoshiro::Xoshiro256PlusPlus;

/// Rows by key; each value is there once.
type State = BTreeMap<u8, u8>;

const START: [(u8, u8); 2] = [(1, 10), (2, 20)];

const STEPS: usize = 4;

/// What a lock is of: a row or an absent key, or an entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Row(u8),
    Entry(u8),
}

#[derive(Default)]
struct Txn {
    /// Number of the state that it reads; `None`: it has not read.
    snapshot: Option<usize>,
    own: BTreeMap<u8, Option<u8>>,
    /// True: exclusive.
    locks: BTreeMap<Place, bool>,
    /// Places that it has changed.
    changed: BTreeSet<Place>,
    written: u32,
    waits: Option<(Place, bool, Step)>,
    is_over: bool,
}

/// The model. `committed` has all states; `changes` the number of the state that last changed a place.
struct Model {
    is_snapshot: bool,
    has_conflicts: bool,
    committed: Vec<State>,
    changes: BTreeMap<Place, usize>,
    txns: [Txn; 2],
}

/// The end of a step in the model.
enum End {
    With(Outcome),
    /// It waits for this place, exclusively or not.
    Waits(Place, bool),
}

impl Model {
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

    fn is_free(&self, id: usize, place: Place, exclusive: bool) -> bool {
        self.txns[1 - id].locks.get(&place).is_none_or(|held| !held && !exclusive)
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
                let txn = std::mem::replace(&mut self.txns[id], Txn { is_over: true, ..Txn::default() });
                if step == Step::Commit && txn.written > 0 {
                    let mut rows = self.newest().clone();
                    for (key, value) in txn.own {
                        match value {
                            Some(value) => _ = rows.insert(key, value),
                            None => _ = rows.remove(&key),
                        }
                    }
                    self.committed.push(rows);
                    let now = self.committed.len() - 1;
                    self.changes.extend(txn.changed.into_iter().map(|place| (place, now)));
                }
                End::With(Done)
            }
        }
    }

    /// Takes a step. Returns its outcome (`None`: it waits), and that of the other transaction's waiting step if this
    /// one ends that wait.
    fn step(&mut self, id: usize, step: Step) -> (Option<Outcome>, Option<Outcome>) {
        let other = 1 - id;
        let outcome = match self.act(id, step) {
            End::With(outcome) => Some(outcome),
            End::Waits(place, exclusive) if self.txns[other].waits.is_none() => {
                self.txns[id].waits = Some((place, exclusive, step));
                None
            }
            // A circle. The one that has changed least gives way, of equals the one that waits last.
            End::Waits(place, exclusive) if self.txns[other].written < self.txns[id].written => {
                self.txns[id].waits = Some((place, exclusive, step));
                self.txns[other] = Txn { is_over: true, ..Txn::default() };
                let outcome = self.go_on(id);
                return (outcome, Some(Deadlock));
            }
            End::Waits(..) => {
                self.txns[id] = Txn { is_over: true, ..Txn::default() };
                Some(Deadlock)
            }
        };
        let of_other = if self.txns[id].is_over { self.go_on(other) } else { None };
        (outcome, of_other)
    }

    /// Goes on with a step that waited for a transaction that is over by now: the lock is the waiter's.
    fn go_on(&mut self, id: usize) -> Option<Outcome> {
        let (place, exclusive, step) = self.txns[id].waits.take()?;
        *self.txns[id].locks.entry(place).or_insert(false) |= exclusive;
        match self.act(id, step) {
            End::With(outcome) => Some(outcome),
            End::Waits(..) => unreachable!("no other transaction is left"),
        }
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
fn orders() -> Vec<Vec<usize>> {
    let all = (0..1u32 << (2 * STEPS)).filter(|bits| bits.count_ones() as usize == STEPS);
    all.map(|bits| (0..2 * STEPS).map(|at| (bits >> at & 1) as usize).collect()).collect()
}

fn reset(table: &Table) {
    for key in 1..4u8 {
        table.delete([key]).expect("written");
    }
    START.iter().for_each(|(key, value)| table.insert([*key], [*value]).expect("written"));
}

#[test]
fn steps_of_two_transactions_in_every_order_do_as_the_model() {
    let orders = orders();
    assert_eq!(orders.len(), 70);
    let (mut schedules, mut seen) = (0, BTreeMap::<String, u32>::new());
    for level in LEVELS {
        let disk = SimulatedDisk::new();
        run(11, || {
            let db = open(&disk, small_options().durability(Durability::None));
            let definition = TableDefinition::new().unique("value", [Field::value(0..1)]);
            let table = db.create_table("t", definition).expect("created");
            for seed in 0..seeds(14, 600) {
                let mut random = Rng::seed_from_u64(seed);
                let programs = [program(&mut random), program(&mut random)];
                for order in &orders {
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
    println!("{schedules} schedules: {seen:?}");
    for level in LEVELS {
        let conflicts = level.0 == "repeatable read";
        for name in ["Done", "Value", "Rows", "Exists", "Deadlock", "Over", "waited"] {
            assert!(seen.contains_key(&format!("{} {name}", level.0)), "{name} never happened at {}", level.0);
        }
        assert_eq!(seen.contains_key(&format!("{} Conflict", level.0)), conflicts, "{}", level.0);
    }
}

/// Runs two transactions in one order. Returns the outcomes of all steps; a step that waited counts as one more.
fn run_order(
    db: &millpond::Db,
    table: &Table,
    level: (&'static str, millpond::Isolation, millpond::OnConflict),
    programs: &[[Step; STEPS]; 2],
    order: &[usize],
) -> Vec<String> {
    let mut model = Model {
        is_snapshot: level.1 == millpond::Isolation::RepeatableRead,
        has_conflicts: level.2 == millpond::OnConflict::Error,
        committed: vec![START.into()],
        changes: BTreeMap::new(),
        txns: Default::default(),
    };
    let actors = [Actor::begin(db, table, level), Actor::begin(db, table, level)];
    let (mut next, mut outcomes) = ([0, 0], Vec::new());
    let mut left: Vec<usize> = order.to_vec();
    while !left.is_empty() {
        // A transaction that waits takes its turn later.
        let at = left.iter().position(|id| model.txns[*id].waits.is_none()).expect("one goes on");
        let id = left.remove(at);
        let step = programs[id][next[id]];
        next[id] += 1;
        let told = |what: &str| format!("{what} of {step:?} by {id}, {programs:?} in order {order:?} at {}", level.0);
        let (wanted, of_other) = model.step(id, step);
        let mut found = actors[id].step(step);
        let other = of_other.as_ref().map(|_| {
            sleep_ns(2_000_000);
            actors[1 - id].outcome()
        });
        if found.is_none() && wanted.is_some() {
            found = actors[id].outcome();
        }
        assert_eq!(found, wanted, "{}", told("outcome"));
        if let Some(other) = other {
            assert_eq!(other, of_other, "{}", told("the other's waiting step after that"));
            outcomes.extend(of_other.map(|outcome| format!("{outcome:?}")));
        }
        outcomes.push(wanted.map_or("waited".to_owned(), |outcome| format!("{outcome:?}")));
    }
    actors.into_iter().for_each(Actor::end);
    let rows: State = table.scan(..).map(|row| row.expect("read")).map(|(key, row)| (key[0], row[0])).collect();
    assert_eq!(&rows, model.newest(), "at the end of {programs:?} in order {order:?} at {}", level.0);
    outcomes
}
