//! Transactions that take their steps when a test tells them to, each in a thread of its own: a step may have to wait
//! for a lock of another.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millpond::simulation::{Thread, sleep_ns, spawn};
use millpond::{Db, Error, Isolation, OnConflict, Table, Transaction, TxnOptions};

/// The levels of isolation that transactions have.
pub(crate) const LEVELS: [(&str, Isolation, OnConflict); 3] = [
    ("read committed", Isolation::ReadCommitted, OnConflict::Error),
    ("repeatable read, latest", Isolation::RepeatableRead, OnConflict::Latest),
    ("repeatable read", Isolation::RepeatableRead, OnConflict::Error),
];

/// A step of a transaction over a table of one-byte keys, whose rows are one byte, which is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Get(u8),
    /// All rows, in the order of keys.
    All,
    /// All rows, through the index of their values.
    ByValue,
    ForUpdate(u8),
    ForShare(u8),
    Insert(u8, u8),
    Put(u8, u8),
    /// Adds to the newest value of an existing row, as an update that computes in the database does.
    Add(u8, u8),
    Delete(u8),
    Commit,
    Rollback,
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Value(Option<u8>),
    Rows(Vec<(u8, u8)>),
    Exists,
    Conflict,
    Deadlock,
    Timeout,
    Over,
}

struct Shared {
    step: Option<Step>,
    outcome: Option<Outcome>,
    ends: bool,
}

/// A transaction in a thread of its own.
pub(crate) struct Actor {
    shared: Arc<Mutex<Shared>>,
    thread: Thread<()>,
}

/// Time that a step takes at most, unless it waits for a lock.
const STEP_NS: u64 = 1_000_000;

impl Actor {
    /// Begins a transaction.
    pub(crate) fn begin(db: &Db, table: &Table, (_, isolation, on_conflict): (&str, Isolation, OnConflict)) -> Actor {
        let options = TxnOptions::new().isolation(isolation).on_conflict(on_conflict);
        let txn = db.begin(options.lock_timeout(Duration::from_secs(3600))).expect("begun");
        let shared = Arc::new(Mutex::new(Shared { step: None, outcome: None, ends: false }));
        let (table, of_thread) = (table.clone(), Arc::clone(&shared));
        let thread = spawn("actor", move || act(txn, &table, &of_thread)).expect("a thread");
        Actor { shared, thread }
    }

    /// Takes a step. `None`: it waits for a lock.
    pub(crate) fn step(&self, step: Step) -> Option<Outcome> {
        self.shared.lock().expect("no panic").step = Some(step);
        sleep_ns(STEP_NS);
        self.outcome()
    }

    /// The outcome of the last step, if it is over by now and was not returned before.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.shared.lock().expect("no panic").outcome.take()
    }

    /// Ends the thread; a transaction that is not committed is rolled back.
    pub(crate) fn end(self) {
        self.shared.lock().expect("no panic").ends = true;
        self.thread.join().expect("no panic");
    }
}

fn act(txn: Transaction, table: &Table, shared: &Mutex<Shared>) {
    let mut txn = Some(txn);
    loop {
        let next = {
            let mut shared = shared.lock().expect("no panic");
            match shared.step.take() {
                None if shared.ends => return,
                next => next,
            }
        };
        match next {
            None => sleep_ns(STEP_NS / 8),
            Some(step) => {
                let outcome = take(&mut txn, table, step).unwrap_or_else(|error| match error {
                    Error::KeyExists(_) => Outcome::Exists,
                    Error::Conflict(_) => Outcome::Conflict,
                    Error::Deadlock(_) => Outcome::Deadlock,
                    Error::LockTimeout(_) => Outcome::Timeout,
                    Error::TransactionOver(_) => Outcome::Over,
                    other => unreachable!("{other}"),
                });
                shared.lock().expect("no panic").outcome = Some(outcome);
            }
        }
    }
}

fn take(txn: &mut Option<Transaction>, table: &Table, step: Step) -> Result<Outcome, Error> {
    if step == Step::Commit || step == Step::Rollback {
        return match txn.take() {
            None => Ok(Outcome::Over),
            Some(txn) if step == Step::Commit => txn.commit().map(|_| Outcome::Done),
            Some(txn) => txn.rollback().map(|()| Outcome::Done),
        };
    }
    let Some(txn) = txn else { return Ok(Outcome::Over) };
    let value = |row: Option<Vec<u8>>| Ok(Outcome::Value(row.map(|row| row[0])));
    match step {
        Step::Get(key) => value(txn.get(table, [key])?),
        Step::ForUpdate(key) => value(txn.get_for_update(table, [key])?),
        Step::ForShare(key) => value(txn.get_for_share(table, [key])?),
        Step::All => {
            let rows = txn.scan(table, ..)?.map(|row| row.map(|(key, row)| (key[0], row[0])));
            rows.collect::<Result<_, _>>().map(Outcome::Rows)
        }
        Step::ByValue => {
            let rows = txn.rows(&table.index("value")?, ..)?.map(|row| row.map(|(key, row)| (key[0], row[0])));
            rows.collect::<Result<_, _>>().map(Outcome::Rows)
        }
        Step::Insert(key, new) => txn.insert(table, [key], [new]).map(|()| Outcome::Done),
        Step::Put(key, new) => txn.put(table, [key], [new]).map(|()| Outcome::Done),
        Step::Add(key, more) => match txn.get_for_update(table, [key])? {
            Some(row) => txn.put(table, [key], [row[0] + more]).map(|()| Outcome::Done),
            None => Ok(Outcome::Value(None)),
        },
        Step::Delete(key) => txn.delete(table, [key]).map(|_| Outcome::Done),
        Step::Commit | Step::Rollback => unreachable!("seen to above"),
    }
}
