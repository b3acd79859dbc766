//! What each level of isolation allows and forbids: the cases of Martin Kleppmann's Hermitage, which follow Adya's
//! phenomena, and those of Berenson et al. The table in docs/isolation.md is compared with what happens.

use millpond::simulation::{SimulatedDisk, run};
use millpond::{Db, Durability, Field, Isolation, Modify, OnConflict, Table, TableDefinition};

use crate::actors::Outcome::{Conflict, Done, Over, Rows, Value};
use crate::actors::Step::{Add, All, ByValue, Commit, Get, Insert, Put, Rollback};
use crate::actors::{Actor, LEVELS, Outcome, Step};
use crate::support::{open, small_options, sound};

type Level = (&'static str, Isolation, OnConflict);

/// A case: its name, and whether the phenomenon came about.
type Case = (&'static str, fn(&Scene<'_>) -> bool);

const CASES: [Case; 13] = [
    ("P0 dirty write", dirty_write),
    ("G1a aborted read", aborted_read),
    ("G1b intermediate read", intermediate_read),
    ("G1c circular information flow", circular_flow),
    ("OTV observed transaction vanishes", vanishing),
    ("P2 fuzzy read", fuzzy_read),
    ("P3 phantom", phantom),
    ("PMP with a change by predicate", preceders_of_a_change),
    ("P4 lost update, computed by the client", lost_update),
    ("P4 lost update, computed in the database", lost_addition),
    ("A5A read skew", read_skew),
    ("A5B write skew", write_skew),
    ("G2 write skew on a predicate", predicate_skew),
];

/// A table with the rows 1 → 10 and 2 → 20.
struct Scene<'d> {
    db: &'d Db,
    table: &'d Table,
    level: Level,
}

impl Scene<'_> {
    fn begin(&self) -> Actor {
        Actor::begin(self.db, self.table, self.level)
    }

    fn at_the_end(&self, key: u8) -> Option<u8> {
        self.table.get([key]).expect("read").map(|row| row[0])
    }
}

/// Takes a step that need not wait.
fn now(actor: &Actor, step: Step) -> Outcome {
    actor.step(step).unwrap_or_else(|| unreachable!("{step:?} waits"))
}

/// Takes a step that waits.
fn later(actor: &Actor, step: Step) {
    assert_eq!(actor.step(step), None, "{step:?} does not wait");
}

/// The outcome of a step that waited, once it need not wait any more.
fn at_last(actor: &Actor) -> Outcome {
    millpond::simulation::sleep_ns(2_000_000);
    actor.outcome().expect("it waits for nothing")
}

fn end<const N: usize>(actors: [Actor; N]) {
    actors.into_iter().for_each(Actor::end);
}

fn dirty_write(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    now(&one, Put(1, 11));
    later(&two, Put(1, 12));
    now(&one, Put(2, 21));
    now(&one, Commit);
    assert_eq!(at_last(&two), Done, "it has read nothing, so it has no conflict");
    now(&two, Put(2, 22));
    now(&two, Commit);
    end([one, two]);
    (scene.at_the_end(1), scene.at_the_end(2)) != (Some(12), Some(22))
}

fn aborted_read(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    now(&one, Put(1, 101));
    let during = now(&two, All);
    now(&one, Rollback);
    let after = now(&two, All);
    now(&two, Commit);
    end([one, two]);
    let rows = Rows(vec![(1, 10), (2, 20)]);
    during != rows || after != rows
}

fn intermediate_read(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    now(&one, Put(1, 101));
    let during = now(&two, Get(1));
    now(&one, Put(1, 11));
    now(&one, Commit);
    let after = now(&two, ByValue);
    end([one, two]);
    let seen = |rows: &Outcome| matches!(rows, Rows(rows) if rows.iter().any(|(_, value)| *value == 101));
    during == Value(Some(101)) || seen(&after)
}

fn circular_flow(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    now(&one, Put(1, 11));
    now(&two, Put(2, 22));
    let seen = (now(&one, Get(2)), now(&two, Get(1)));
    now(&one, Commit);
    now(&two, Commit);
    end([one, two]);
    seen != (Value(Some(20)), Value(Some(10)))
}

/// A reader that has seen the second transaction sees the first one's row again.
fn vanishing(scene: &Scene<'_>) -> bool {
    let (one, two, three) = (scene.begin(), scene.begin(), scene.begin());
    now(&one, Put(1, 11));
    now(&one, Put(2, 19));
    later(&two, Put(1, 12));
    now(&one, Commit);
    assert_eq!(at_last(&two), Done);
    let first = now(&three, Get(1));
    now(&two, Put(2, 18));
    let second = now(&three, Get(2));
    now(&two, Commit);
    let third = (now(&three, Get(2)), now(&three, Get(1)));
    end([one, two, three]);
    assert_eq!((first, second), (Value(Some(11)), Value(Some(19))));
    !matches!(third, (Value(Some(18)), Value(Some(12))) | (Value(Some(19)), Value(Some(11))))
}

fn fuzzy_read(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    let before = now(&one, Get(1));
    now(&two, Put(1, 11));
    now(&two, Commit);
    let after = now(&one, Get(1));
    end([one, two]);
    before != after
}

fn phantom(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    let before = (now(&one, All), now(&one, ByValue));
    now(&two, Insert(3, 30));
    now(&two, Commit);
    let after = (now(&one, All), now(&one, ByValue));
    end([one, two]);
    before != after
}

/// A change of all rows with a value, by the keys that an earlier read has found, misses or hits rows of another
/// transaction that has committed meanwhile: its own reads and its changes are of different moments.
fn preceders_of_a_change(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    assert_eq!(now(&one, Get(1)), Value(Some(10)));
    now(&two, Add(1, 10 + 30));
    now(&two, Commit);
    let changed = now(&one, Add(1, 1));
    let seen = now(&one, Get(1));
    now(&one, Commit);
    end([one, two]);
    changed == Done && seen == Value(Some(51))
}

fn lost_update(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    let both = (now(&one, Get(1)), now(&two, Get(1)));
    assert_eq!(both, (Value(Some(10)), Value(Some(10))));
    now(&one, Put(1, 11));
    later(&two, Put(1, 15));
    now(&one, Commit);
    let second = at_last(&two);
    assert!(matches!(second, Done | Conflict), "{second:?}");
    if second == Done {
        now(&two, Commit);
    }
    end([one, two]);
    scene.at_the_end(1) == Some(15)
}

fn lost_addition(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    now(&one, Add(1, 1));
    later(&two, Add(1, 5));
    now(&one, Commit);
    assert_eq!(at_last(&two), Done);
    now(&two, Commit);
    end([one, two]);
    scene.at_the_end(1) != Some(16)
}

fn read_skew(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    let first = now(&one, Get(1));
    now(&two, Put(1, 12));
    now(&two, Put(2, 18));
    now(&two, Commit);
    let second = now(&one, Get(2));
    end([one, two]);
    (first, second) != (Value(Some(10)), Value(Some(20)))
}

fn write_skew(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    for actor in [&one, &two] {
        assert_eq!(now(actor, All), Rows(vec![(1, 10), (2, 20)]));
    }
    now(&one, Put(1, 11));
    now(&two, Put(2, 21));
    let both = (now(&one, Commit), now(&two, Commit));
    end([one, two]);
    both == (Done, Done)
}

fn predicate_skew(scene: &Scene<'_>) -> bool {
    let (one, two) = (scene.begin(), scene.begin());
    for actor in [&one, &two] {
        assert_eq!(now(actor, ByValue), Rows(vec![(1, 10), (2, 20)]));
    }
    now(&one, Insert(3, 30));
    now(&two, Insert(4, 42));
    let both = (now(&one, Commit), now(&two, Commit));
    end([one, two]);
    both == (Done, Done)
}

/// The rows of the document's table: each case with what the levels make of it.
fn table_in_the_document() -> Vec<(String, Vec<bool>)> {
    let text = include_str!("../../../../docs/isolation.md");
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.matches('|').count() == LEVELS.len() + 2);
    let cells = rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let is_case = |cells: &Vec<&str>| cells[1..].iter().all(|cell| ["allowed", "forbidden"].contains(cell));
    let found = cells.filter(is_case);
    found.map(|cells| (cells[0].to_owned(), cells[1..].iter().map(|cell| *cell == "allowed").collect())).collect()
}

#[test]
fn each_level_allows_and_forbids_what_the_document_says() {
    let documented = table_in_the_document();
    assert_eq!(
        documented.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        CASES.map(|(name, _)| name).iter().collect::<Vec<_>>()
    );
    for ((name, case), (_, allowed)) in CASES.iter().zip(&documented) {
        for (level, is_allowed) in LEVELS.iter().zip(allowed) {
            let disk = SimulatedDisk::new();
            run(1, || {
                let db = open(&disk, small_options().durability(Durability::None));
                let definition = TableDefinition::new().unique("value", [Field::value(0..1)]);
                let table = db.create_table("t", definition).expect("created");
                table.insert([1], [10]).expect("written");
                table.insert([2], [20]).expect("written");
                let came_about = case(&Scene { db: &db, table: &table, level: *level });
                assert_eq!(came_about, *is_allowed, "{name} at {}", level.0);
                drop(table);
                db.close().expect("closed");
            });
            sound(&disk);
        }
    }
}

/// The first updater wins: the other one's statement fails, and its transaction can only be rolled back and tried
/// again.
#[test]
fn a_conflict_names_the_row_and_leaves_the_transaction_open() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let table =
            db.create_table("t", TableDefinition::new().unique("value", [Field::value(0..1)])).expect("created");
        table.insert([1], [10]).expect("written");
        let mut txn = db.begin(millpond::TxnOptions::new()).expect("begun");
        assert_eq!(txn.get(&table, [1]).expect("read"), Some(vec![10]));
        table.put([1], [11]).expect("written");
        for error in [
            txn.put(&table, [1], [12]).expect_err("changed since"),
            txn.delete(&table, [1]).map(drop).expect_err("changed since"),
            txn.insert(&table, [1], [12]).expect_err("changed since"),
            txn.get_for_update(&table, [1]).map(drop).expect_err("changed since"),
        ] {
            let row = error.row().map(|row| (row.name().to_owned(), row.key().to_vec()));
            assert_eq!(row, Some(("t".to_owned(), vec![1])), "{error}");
            assert!(matches!(error, millpond::Error::Conflict(_)) && error.to_string().contains("snapshot"), "{error}");
        }
        assert_eq!(txn.get(&table, [1]).expect("still its own view"), Some(vec![10]));
        // The value that the row had for this snapshot: another row with it would be a second one.
        let error = txn.insert(&table, [2], [10]).expect_err("changed since");
        assert_eq!(error.row().and_then(|row| row.index()), Some("value"), "{error}");
        txn.insert(&table, [3], [30]).expect("no other row is in the way");
        txn.commit().expect("committed");
        assert_eq!(table.scan(..).count(), 2);
        drop(table);
        db.close().expect("closed");
    });
    sound(&disk);
}

/// With `OnConflict::Latest` a transaction changes a row beyond its snapshot. It sees its own version, by the row's
/// only entry: not by the one that the snapshot has, nor is the one missing that another transaction has made since.
#[test]
fn an_index_shows_rows_that_were_changed_beyond_the_snapshot() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let definition =
            TableDefinition::new().unique("value", [Field::value(0..1)]).index("kind", [Field::value(1..2)]);
        let table = db.create_table("t", definition).expect("created");
        let (value, kind) = (table.index("value").expect("there"), table.index("kind").expect("there"));
        for level in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
            (1..4u8).for_each(|key| table.put([key], [10 * key, 0, 0]).expect("written"));
            let options = millpond::TxnOptions::new().isolation(level).on_conflict(OnConflict::Latest);
            let mut txn = db.begin(options).expect("begun");
            let mut open_scan = txn.entries(&value, ..).expect("here");
            assert_eq!(open_scan.next_entry().expect("read"), Some((&[10][..], &[1][..])));
            // Another transaction moves the row's entries; this one changes another part of the row.
            table.put([2], [25, 7, 0]).expect("written");
            assert!(
                txn.modify(&table, [2], |row| Modify::Put([&row.expect("there")[..2], &[1]].concat()))
                    .expect("written")
            );
            let by_value: Vec<_> = txn.entries(&value, ..).expect("here").collect::<Result<_, _>>().expect("read");
            let wanted = [(10, 1), (25, 2), (30, 3)].map(|(value, key)| (vec![value], vec![key]));
            assert_eq!(by_value, wanted, "{level:?}");
            let by_kind: Vec<_> = txn.rows(&kind, ..).expect("here").collect::<Result<_, _>>().expect("read");
            assert_eq!(by_kind.len(), 3, "{by_kind:?}");
            assert_eq!(by_kind[2], (vec![2], vec![25, 7, 1]));
            let rest: Vec<_> = open_scan.collect::<Result<_, _>>().expect("read");
            assert_eq!(rest, wanted[1..], "a scan that was open before, {level:?}");
            // A row that is only expected is this transaction's from then on, and so are its entries.
            table.put([3], [35, 8, 0]).expect("written");
            let mut batch = millpond::WriteBatch::new();
            batch.expect(&table, [3], Some(&[35, 8, 0]));
            txn.write(batch).expect("as expected");
            let entries: Vec<_> = txn.entries(&value, ..).expect("here").collect::<Result<_, _>>().expect("read");
            assert_eq!(entries[2], (vec![35], vec![3]), "{level:?}: {entries:?}");
            txn.commit().expect("committed");
        }
        drop((table, value, kind));
        db.close().expect("closed");
    });
    sound(&disk);
}

/// A transaction that has ended gives no more steps: the harness itself is checked.
#[test]
fn an_actor_whose_transaction_is_over_says_so() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let table =
            db.create_table("t", TableDefinition::new().unique("value", [Field::value(0..1)])).expect("created");
        let actor = Actor::begin(&db, &table, LEVELS[0]);
        assert_eq!(now(&actor, Put(1, 1)), Done);
        assert_eq!(now(&actor, Commit), Done);
        assert_eq!((now(&actor, Get(1)), now(&actor, Rollback)), (Over, Over));
        actor.end();
        drop(table);
        db.close().expect("closed");
    });
}
