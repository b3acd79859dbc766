//! Crash images at every I/O boundary of small workloads, each reopened and compared with the acknowledged operations.
//!
//! A workload runs once under the deterministic scheduler, on a disk that records its history. Outside of the database,
//! each client notes when an operation began and when it was acknowledged, as positions in that history. After a crash
//! at boundary `b`, operations acknowledged at or before `b` must be there. An operation that was under way is there
//! whole or not at all. Nothing else is there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use millpond::classic::{
    AdaptiveFlushingMethod, Doublewrite, EmptyFreeListAlgorithm, FlushNeighbors, LogRecentClosed, Profile,
};
use millpond::metrics::Stats;
use millpond::simulation::{History, Image, ServiceTime, SimulatedDisk, Thread, Trace, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Options, PageStoreKind, Tree, WriteBatch};
use rand::{RngExt, SeedableRng};

use crate::support::{
    Contents, IN_PLACE, SLOW, SMALL, Shape, THREADED, TWICE, disk_of, open, recover, recover_shaped, reopen_options,
    small_options,
};

/// Effects of an operation: for each (tree, key) a value or nothing.
pub(crate) type Effects = Vec<((&'static str, Vec<u8>), Option<Vec<u8>>)>;

#[derive(Clone)]
pub(crate) struct Note {
    pub(crate) client: usize,
    pub(crate) began: usize,
    pub(crate) acknowledged: Option<usize>,
    pub(crate) effects: Effects,
}

/// The oracle: the clients' operations, recorded outside of the database.
#[derive(Clone, Default)]
pub(crate) struct Oracle {
    pub(crate) notes: Arc<Mutex<Vec<Note>>>,
}

impl Oracle {
    /// Runs an operation and notes when it began and when it was acknowledged.
    pub(crate) fn note(
        &self,
        disk: &SimulatedDisk,
        client: usize,
        effects: Effects,
        op: impl FnOnce() -> Result<(), Error>,
    ) {
        let began = disk.boundaries();
        let index = {
            let mut notes = self.notes.lock().expect("not poisoned");
            notes.push(Note { client, began, acknowledged: None, effects });
            notes.len() - 1
        };
        op().expect("the disk does not fail here");
        self.notes.lock().expect("not poisoned")[index].acknowledged = Some(disk.boundaries());
    }

    /// Compares the contents found after a crash at `boundary`; `Err` says what differs.
    pub(crate) fn compare(&self, found: &Contents, boundary: usize) -> Result<(), String> {
        let notes = self.notes.lock().expect("not poisoned");
        let mut certain: BTreeMap<(&str, &[u8]), Option<&[u8]>> = BTreeMap::new();
        let mut under_way: BTreeMap<usize, &Note> = BTreeMap::new();
        let mut owners: BTreeMap<(&str, &[u8]), usize> = BTreeMap::new();
        for note in notes.iter().filter(|note| note.began < boundary || note.acknowledged == Some(0)) {
            for ((tree, key), value) in &note.effects {
                owners.insert((tree, key), note.client);
                if note.acknowledged.is_some_and(|at| at <= boundary) {
                    certain.insert((tree, key), value.as_deref());
                }
            }
            if note.acknowledged.is_none_or(|at| at > boundary) {
                under_way.insert(note.client, note);
            }
        }
        let mut rows: BTreeMap<(&str, &[u8]), &[u8]> = BTreeMap::new();
        for (tree, entries) in found.iter().filter(|(tree, _)| *tree != LOOSE) {
            for (key, value) in entries {
                if !owners.contains_key(&(tree.as_str(), key.as_slice())) {
                    return Err(format!("tree {tree} has key {}, which no client wrote", key.escape_ascii()));
                }
                rows.insert((tree, key), value);
            }
        }
        let clients: std::collections::BTreeSet<usize> = owners.values().copied().collect();
        for client in clients {
            let keys = || owners.iter().filter(|(_, owner)| **owner == client).map(|(key, _)| *key);
            let before = keys().find(|key| rows.get(key).copied() != certain.get(key).copied().flatten());
            let Some(differs) = before else { continue };
            let mut after = certain.clone();
            if let Some(note) = under_way.get(&client) {
                after.extend(note.effects.iter().map(|((t, k), v)| ((*t, k.as_slice()), v.as_deref())));
                if keys().all(|key| rows.get(&key).copied() == after.get(&key).copied().flatten()) {
                    continue;
                }
            }
            return Err(format!(
                "client {client}: tree {} key {} is {:?} bytes, acknowledged were {:?}; under way: {}",
                differs.0,
                differs.1.escape_ascii(),
                rows.get(&differs).map(|v| v.len()),
                certain.get(&differs).copied().flatten().map(<[u8]>::len),
                under_way.contains_key(&client)
            ));
        }
        Ok(())
    }
}

/// A finished run: the disk's past and the oracle.
pub(crate) struct Recorded {
    pub(crate) shape: Shape,
    pub(crate) history: History,
    pub(crate) oracle: Oracle,
    pub(crate) trace: Trace,
}

/// A disk with reads so slow that the keeper's ticks and checkpoints fall into recovery.
const SLOW_READS: ServiceTime = ServiceTime { read_ns: 400_000_000, ..SLOW };

pub(crate) fn record(
    seed: u64,
    start: Image,
    oracle: Oracle,
    workload: impl FnOnce(&SimulatedDisk, &Oracle),
) -> Recorded {
    record_on(SLOW, seed, start, oracle, workload)
}

fn record_on(
    time: ServiceTime,
    seed: u64,
    start: Image,
    oracle: Oracle,
    workload: impl FnOnce(&SimulatedDisk, &Oracle),
) -> Recorded {
    let disk = SimulatedDisk::with_image(start, time);
    let ((), trace) = run(seed, || workload(&disk, &oracle));
    Recorded { shape: SMALL, history: disk.history(), oracle, trace }
}

/// The contents of the disk after recovery under the scheduler.
fn recover_image(image: Image, seed: u64) -> Result<Contents, String> {
    recover_image_shaped(image, SMALL, seed)
}

fn recover_image_shaped(image: Image, shape: Shape, seed: u64) -> Result<Contents, String> {
    run(seed, || recover_shaped(&disk_of(image), shape)).0
}

/// Whether a crash in this mode may tear a page of a store that writes in place without copies (but no page of the
/// map): then the damage must be reported.
fn may_tear(shape: Shape, mode: Unsynced, problem: &str) -> bool {
    let torn = matches!(mode, Unsynced::Torn(_) | Unsynced::OneTorn(_));
    let of_a_page = problem.contains("checksum mismatch") && problem.contains("'data.mpd'");
    shape.store == PageStoreKind::InPlace && shape.doublewrite != Doublewrite::On && torn && of_a_page
}

const MODES: [fn(u64) -> Unsynced; 7] = [
    |_| Unsynced::None,
    |_| Unsynced::All,
    Unsynced::Subset,
    |seed| Unsynced::Subset(seed ^ 0x5555),
    Unsynced::Torn,
    Unsynced::AllButOne,
    Unsynced::OneTorn,
];

/// Three of the modes, or with MILLPOND_FULL all; seeded by the boundary. The third is chosen by a hash, so that no
/// stride meets the same mode each time.
pub(crate) fn modes(boundary: usize) -> impl Iterator<Item = Unsynced> {
    let third = 2 + (boundary.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % 5;
    let all = MODES.iter().map(move |mode| mode(u64::try_from(boundary).expect("small")));
    all.enumerate().filter(move |(number, _)| [0, 1, third].contains(number) || stride(2) == 1).map(|(_, mode)| mode)
}

/// Recovers from a crash at every `stride`th boundary, in every mode, and compares with the oracle.
pub(crate) fn check_matrix(recorded: &Recorded, from: usize, stride: usize) -> usize {
    check_images(recorded, from, stride, |found, boundary| recorded.oracle.compare(found, boundary))
}

/// Recovers from a crash at every `stride`th boundary, in every mode. Both processors share the work.
#[expect(clippy::panic, reason = "a test's helper: the panic is the test's failure")]
pub(crate) fn check_images(
    recorded: &Recorded,
    from: usize,
    stride: usize,
    compare: impl Fn(&Contents, usize) -> Result<(), String> + Sync,
) -> usize {
    let compare = &compare;
    let boundaries: Vec<usize> = (from..=recorded.history.boundaries()).step_by(stride).collect();
    std::thread::scope(|scope| {
        for half in 0..2 {
            let boundaries = &boundaries;
            scope.spawn(move || {
                for &boundary in boundaries.iter().skip(half).step_by(2) {
                    for (index, mode) in MODES.iter().enumerate() {
                        let mode = mode(u64::try_from(boundary * 31 + index).expect("small"));
                        let image = recorded.history.crash_image(boundary, mode);
                        let found = recover_image_shaped(image, recorded.shape, 1);
                        let outcome = found.and_then(|found| compare(&found, boundary));
                        if let Err(problem) = outcome
                            && !may_tear(recorded.shape, mode, &problem)
                        {
                            panic!("crash at boundary {boundary} with {mode:?}: {problem}");
                        }
                    }
                }
            });
        }
    });
    boundaries.len() * MODES.len()
}

pub(crate) fn key_of(client: usize, number: usize) -> Vec<u8> {
    format!("{number:03}-{client}").into_bytes()
}

/// Rows that every client finds in both trees.
pub(crate) const ROWS: usize = 240;

/// A tree that is written without waiting for durability: only its soundness is promised.
pub(crate) const LOOSE: &str = "loose";

/// A database with two trees that do not fit the pool, closed; the oracle knows its rows.
pub(crate) fn two_trees(clients: usize) -> (Image, Oracle) {
    run(0, || make_two_trees(SMALL, clients)).0
}

pub(crate) fn make_two_trees(shape: Shape, clients: usize) -> (Image, Oracle) {
    let disk = SimulatedDisk::new();
    let oracle = Oracle::default();
    let db = open(&disk, shape.options());
    db.create_tree(LOOSE).expect("created");
    for name in ["a", "b"] {
        let tree = db.create_tree(name).expect("created");
        for client in 0..clients {
            for number in 0..ROWS / clients {
                let (key, value) = (key_of(client, number), vec![b'0'; 100 + number * 13 % 800]);
                tree.put(&key, &value).expect("written");
                let effects = vec![((name, key), Some(value))];
                let note = Note { client, began: 0, acknowledged: Some(0), effects };
                oracle.notes.lock().expect("not poisoned").push(note);
            }
        }
    }
    db.close().expect("closed");
    (disk.image(), oracle)
}

/// One client's random operations on keys of its own; values name key and turn.
pub(crate) fn client(
    disk: &SimulatedDisk,
    oracle: &Oracle,
    db: &Db,
    id: usize,
    seed: u64,
    ops: usize,
    value_len: usize,
) {
    let trees: BTreeMap<&'static str, Tree> =
        ["a", "b"].into_iter().map(|name| (name, db.open_tree(name).expect("there"))).collect();
    let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
    for turn in 0..ops {
        let name = if rng.random_bool(0.7) { "a" } else { "b" };
        let key = key_of(id, rng.random_range(0..ROWS));
        let mut value = format!("{id}/{turn}/").into_bytes();
        value.resize(value.len() + rng.random_range(0..value_len), b'.');
        let at = (name, key.clone());
        match rng.random_range(0..10) {
            0..=1 => {
                oracle.note(disk, id, vec![(at, None)], || trees[name].delete(&key).map(|_| ()));
            }
            2..=4 => {
                // A row, and its entry in the other tree, in one batch.
                let other = if name == "a" { "b" } else { "a" };
                let effects = vec![(at, Some(value.clone())), ((other, key.clone()), Some(value.clone()))];
                oracle.note(disk, id, effects, || {
                    let mut batch = WriteBatch::new();
                    batch.put(&trees[name], &key, &value).put(&trees[other], &key, &value);
                    db.write(batch).map(drop)
                });
            }
            _ => {
                oracle.note(disk, id, vec![(at, Some(value.clone()))], || trees[name].put(&key, &value));
            }
        }
    }
}

/// Keeps something in the log that is not durable whenever the keeper runs.
fn loose_client(db: &Db, ops: usize) {
    let tree = db.open_tree(LOOSE).expect("there");
    for turn in 0..ops {
        let mut batch = WriteBatch::new();
        batch.put(&tree, [u8::try_from(turn % 50).expect("small")], [1; 300]).durability(Durability::None);
        db.write(batch).expect("written");
        // Reads a page that is mostly not in memory: virtual time passes.
        let _ = db.open_tree("a").and_then(|a| a.get(key_of(0, turn * 37 % ROWS))).expect("read");
    }
}

/// Frames with which `sync_only` finds the log three quarters full: with fewer, dirty pages are evicted before.
const LAZY_FRAMES: u64 = 96;

/// Starts clients, each with a number and a seed of its own.
pub(crate) fn spawn_clients(
    count: usize,
    seed: u64,
    (disk, oracle, db): (&SimulatedDisk, &Oracle, &Db),
    client: impl Fn(&SimulatedDisk, &Oracle, &Db, usize, u64) + Copy + Send + 'static,
) -> Vec<Thread<()>> {
    let start = |id| {
        let (disk, oracle, db) = (disk.clone(), oracle.clone(), db.clone());
        let seed = seed * 100 + u64::try_from(id).expect("small");
        spawn("client", move || client(&disk, &oracle, &db, id, seed)).expect("a thread")
    };
    (0..count).map(start).collect()
}

/// Several clients, the keeper, and a close at the end.
fn many_clients(seed: u64, clients: usize, ops: usize, value_len: usize) -> Recorded {
    many_clients_shaped(SMALL, seed, clients, ops, value_len)
}

fn many_clients_shaped(shape: Shape, seed: u64, clients: usize, ops: usize, value_len: usize) -> Recorded {
    let (start, oracle) = run(0, || make_two_trees(shape, clients)).0;
    let recorded = record(seed, start, oracle, |disk, oracle| {
        let db = open(disk, shape.reopen_options());
        let threads = spawn_clients(clients, seed, (disk, oracle, &db), move |disk, oracle, db, id, seed| {
            client(disk, oracle, db, id, seed, ops, value_len);
        });
        loose_client(&db, ops);
        for thread in threads {
            thread.join().expect("no panic");
        }
        let single = db.stats().buffer_pool_single_page_flushes;
        let refilled = shape.flushing == AdaptiveFlushingMethod::Adaptive;
        assert!((single > 0) == shape.is_legacy() || refilled, "{single} pages were written by clients");
        let stats = db.stats();
        let slept = stats.buffer_pool_wait_free_loops;
        assert!((slept > 0) == (shape.empty == EmptyFreeListAlgorithm::Backoff), "{slept} sleeps for a frame");
        let by_cleaners = stats.buffer_flush_adaptive_total_pages + stats.buffer_flush_background_total_pages;
        let by_all = stats.buffer_flush_sync_total_pages;
        match shape.flushing {
            AdaptiveFlushingMethod::Envelope => {}
            AdaptiveFlushingMethod::SyncOnly => assert!(by_all > 0, "no thread found the log three quarters full"),
            _ => assert!(by_cleaners > 0, "no page cleaner was at work, but {by_all} pages at once"),
        }
        assert_at_work(shape.profile, &stats);
        db.close().expect("closed");
    });
    Recorded { shape, ..recorded }
}

/// Asserts that a server's own mechanisms were at work, and those of other servers were not. No thread spins for the
/// log: a simulation does not measure the use of CPU.
fn assert_at_work(profile: Profile, stats: &Stats) {
    let is_of_8_0 = [Profile::Mysql80, Profile::Percona80].contains(&profile);
    let sleeps = profile == Profile::Percona57;
    let has_cleaners = profile != Profile::Mysql55;
    let with_neighbors = if is_of_8_0 { Some(false) } else { has_cleaners.then_some(true) };
    let searches_beyond_waits = stats.buffer_lru_batch_num_scan.saturating_sub(stats.buffer_pool_wait_free);
    let found = [
        ("pages copied before they are written over", stats.dblwr_pages_written, Some(true)),
        ("pages written by threads that need a frame", stats.buffer_pool_single_page_flushes, Some(!sleeps)),
        ("sleeps of threads that need a frame", stats.buffer_pool_wait_free_loops, Some(sleeps)),
        // The keeper searches only for waiters whose own search found no frame.
        ("searches for frames ahead of need", stats.buffer_lru_batch_num_scan, has_cleaners.then_some(true)),
        ("searches beyond those for waiters", searches_beyond_waits, (!has_cleaners).then_some(false)),
        ("pages written ahead of need", stats.buffer_pool_pages_lru_flushed, Some(has_cleaners)),
        ("pages written by cleaners", stats.buffer_flush_adaptive_total_pages, Some(true)),
        ("entries of flush lists looked at anew", stats.buffer_flush_sync_scanned, Some(!has_cleaners)),
        // With MySQL 5.5 there is one here: too few to rely on.
        ("pages that left beside others", stats.buffer_flush_neighbor_total_pages, with_neighbors),
        ("waits for the threads of the log", stats.log_on_flush_waits, Some(is_of_8_0)),
        ("looks for room in the window", stats.log_on_recent_closed_wait_loops, Some(is_of_8_0)),
    ];
    for (what, count, is_its_own) in found.into_iter().filter(|_| profile != Profile::Millpond) {
        assert!(is_its_own.is_none_or(|own| own == (count > 0)), "{profile:?}: {count} {what}");
    }
}

/// Sampling stride of the larger matrices in `make test`. `make crash` sets MILLPOND_FULL and takes every boundary.
pub(crate) fn stride(sampled: usize) -> usize {
    if std::env::var_os("MILLPOND_FULL").is_some() { 1 } else { sampled }
}

/// Number of seeds to run: `sampled`, or with MILLPOND_FULL `all`.
pub(crate) fn seeds(sampled: u64, all: u64) -> u64 {
    if std::env::var_os("MILLPOND_FULL").is_some() { all } else { sampled }
}

#[test]
fn a_crash_at_any_io_of_one_client_loses_nothing() {
    let recorded = many_clients(1, 1, 60, 900);
    let images = check_matrix(&recorded, 0, 1);
    assert!(images > 700, "only {images} images");
}

#[test]
fn a_crash_at_any_io_of_clients_and_the_keeper_loses_nothing() {
    for seed in [2, 3] {
        let recorded = many_clients(seed, 3, 40, 1000);
        check_matrix(&recorded, 0, stride(5));
    }
}

#[test]
fn a_crash_with_large_pages_loses_nothing() {
    let large = Shape { page_kib: 16, store: PageStoreKind::CopyOnWrite, ..SMALL };
    let recorded = many_clients_shaped(large, 11, 3, 40, 3000);
    check_matrix(&recorded, 0, stride(11));
}

#[test]
fn a_crash_of_a_store_in_place_loses_nothing_or_is_reported() {
    let lossy = [(4, 12, 5, Doublewrite::Off), (16, 13, 13, Doublewrite::DetectOnly)];
    for (page_kib, seed, sampled, doublewrite) in lossy {
        let in_place = Shape { page_kib, doublewrite, ..IN_PLACE };
        let recorded = many_clients_shaped(in_place, seed, 3, 40, 250 * usize::try_from(page_kib).expect("small"));
        check_matrix(&recorded, 0, stride(sampled));
    }
}

#[test]
fn a_crash_of_a_store_that_writes_twice_loses_nothing() {
    for (page_kib, seed, sampled) in [(4, 16, 5), (16, 17, 13)] {
        let twice = Shape { page_kib, doublewrite: Doublewrite::On, ..IN_PLACE };
        let recorded = many_clients_shaped(twice, seed, 3, 40, 250 * usize::try_from(page_kib).expect("small"));
        check_matrix(&recorded, 0, stride(sampled));
    }
}

#[test]
fn a_crash_while_clients_write_pages_themselves_loses_nothing() {
    let twice = Shape { doublewrite: Doublewrite::On, ..IN_PLACE };
    for (shape, seed) in [(SMALL, 14), (IN_PLACE, 15), (twice, 18)] {
        let legacy = Shape { empty: EmptyFreeListAlgorithm::Legacy, ..shape };
        let recorded = many_clients_shaped(legacy, seed, 4, 40, 1000);
        check_matrix(&recorded, 0, stride(21));
    }
}

#[test]
fn a_crash_while_lru_managers_write_pages_loses_nothing() {
    for (shape, seed) in [(SMALL, 19), (Shape { doublewrite: Doublewrite::On, ..IN_PLACE }, 20)] {
        let backoff = Shape { empty: EmptyFreeListAlgorithm::Backoff, ..shape };
        let recorded = many_clients_shaped(backoff, seed, 4, 40, 1000);
        check_matrix(&recorded, 0, stride(15));
    }
}

#[test]
fn a_crash_while_page_cleaners_and_all_flush_loses_nothing() {
    let twice = Shape { doublewrite: Doublewrite::On, ..IN_PLACE };
    let legacy = |shape| Shape { empty: EmptyFreeListAlgorithm::Legacy, instances: 2, frames: 80, ..shape };
    let shapes = [
        (AdaptiveFlushingMethod::SyncOnly, Shape { neighbors: FlushNeighbors::Area, ..twice }),
        (AdaptiveFlushingMethod::SyncOnly, SMALL),
        (AdaptiveFlushingMethod::KeepAverage, twice),
        (AdaptiveFlushingMethod::Adaptive, legacy(Shape { neighbors: FlushNeighbors::Seq, ..twice })),
        (AdaptiveFlushingMethod::Adaptive, legacy(SMALL)),
    ];
    for ((flushing, shape), seed) in shapes.into_iter().zip(21..) {
        // Enough operations to fill three quarters of the log.
        let (ops, frames) =
            if flushing == AdaptiveFlushingMethod::SyncOnly { (80, LAZY_FRAMES) } else { (60, shape.frames) };
        let recorded = many_clients_shaped(Shape { flushing, frames, ..shape }, seed, 4, ops, 3000);
        check_matrix(&recorded, 0, stride(91));
    }
}

#[test]
fn a_crash_with_the_policies_of_any_server_loses_nothing() {
    use AdaptiveFlushingMethod::{Adaptive, SyncOnly};
    use EmptyFreeListAlgorithm::{Backoff, Legacy};
    let profiles = [
        (Profile::Mysql55, Legacy, SyncOnly, LogRecentClosed::None),
        (Profile::Mysql56, Legacy, Adaptive, LogRecentClosed::None),
        (Profile::Mysql80, Legacy, Adaptive, LogRecentClosed::Poll),
        (Profile::Percona57, Backoff, Adaptive, LogRecentClosed::None),
        (Profile::Percona80, Legacy, Adaptive, LogRecentClosed::Poll),
    ];
    for (seed, (profile, empty, flushing, recent_closed)) in (41..).zip(profiles) {
        let shape = Shape { profile, empty, flushing, recent_closed, frames: LAZY_FRAMES, instances: 2, ..TWICE };
        let ops = if flushing == SyncOnly { 80 } else { 60 };
        let recorded = many_clients_shaped(shape, seed, 4, ops, 3000);
        check_matrix(&recorded, 0, stride(151));
    }
}

#[test]
fn a_crash_while_threads_write_the_log_loses_nothing() {
    let lazy = Shape {
        flushing: AdaptiveFlushingMethod::SyncOnly,
        recent_closed: LogRecentClosed::WakeIfUnset,
        frames: LAZY_FRAMES,
        ..TWICE
    };
    let woken = Shape { recent_closed: LogRecentClosed::Wake, ..THREADED };
    let shapes = [THREADED, Shape { pipeline: true, ..SMALL }, Shape { pipeline: true, ..lazy }, woken];
    for (seed, shape) in (31..).zip(shapes) {
        let recorded = many_clients_shaped(shape, seed, 4, 60, 3000);
        check_matrix(&recorded, 0, stride(151));
    }
}

/// Twice deletes most rows, which lets the trees merge, and writes new ones, which reuse page ids. Between the rounds
/// the keeper gets the time to merge.
fn thin_out_and_fill(disk: &SimulatedDisk, oracle: &Oracle, db: &Db, seed: u64) {
    let tree = db.open_tree("a").expect("there");
    let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
    for round in 0..2 {
        let mut keys: Vec<Vec<u8>> = (0..ROWS).map(|number| key_of(0, number)).collect();
        for index in 0..keys.len() {
            keys.swap(index, rng.random_range(index..ROWS));
        }
        for part in keys.chunks(ROWS / 5).take(if round == 0 { 4 } else { 5 }) {
            for some in part.chunks(4) {
                let effects = some.iter().map(|key| (("a", key.clone()), None)).collect();
                oracle.note(disk, 0, effects, || {
                    let mut batch = WriteBatch::new();
                    for key in some {
                        batch.delete(&tree, key);
                    }
                    db.write(batch).map(drop)
                });
            }
            sleep_ns(60_000_000);
        }
        for number in (0..ROWS).step_by(2) {
            let (key, value) = (key_of(0, number), vec![b'0' + round; 100 + number * 7 % 600]);
            oracle.note(disk, 0, vec![(("a", key.clone()), Some(value.clone()))], || tree.put(&key, &value));
        }
    }
}

#[test]
fn a_crash_while_pages_merge_and_ids_return_loses_nothing() {
    let legacy = |shape| Shape { empty: EmptyFreeListAlgorithm::Legacy, ..shape };
    for (seed, shape) in (16..).zip([SMALL, IN_PLACE, legacy(SMALL), legacy(IN_PLACE)]) {
        let (start, oracle) = run(0, || make_two_trees(shape, 1)).0;
        let recorded = record(seed, start, oracle, |disk, oracle| {
            let db = open(disk, shape.reopen_options());
            thin_out_and_fill(disk, oracle, &db, seed);
            let stats = db.stats();
            assert!(stats.tree_pages_freed > 40, "{stats:?}");
            db.close().expect("closed");
        });
        let recorded = Recorded { shape, ..recorded };
        check_matrix(&recorded, 0, stride(if shape.is_legacy() { 59 } else { 23 }));
    }
}

#[test]
fn a_crash_after_the_log_has_gone_round_loses_nothing() {
    let recorded = many_clients(4, 4, 300, 1000);
    let written = recorded.history.boundaries();
    check_matrix(&recorded, written / 3, stride(39));
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let digest = |seed| {
        let recorded = many_clients(seed, 3, 20, 300);
        (recorded.trace, recorded.history.boundaries())
    };
    assert_eq!(digest(5), digest(5));
    assert_ne!(digest(5).0, digest(6).0);
}

#[test]
fn a_crash_while_a_database_is_created_leaves_one_that_opens() {
    let recorded = record(7, Image::new(), Oracle::default(), |disk, _| {
        let db = open(disk, small_options());
        db.close().expect("closed");
    });
    for boundary in 0..=recorded.history.boundaries() {
        for mode in MODES {
            let image = recorded.history.crash_image(boundary, mode(9));
            let disk = disk_of(image);
            let db = Db::open_on(Arc::new(disk.clone()), small_options());
            let db = db.unwrap_or_else(|error| panic!("crash at {boundary}: {error}"));
            db.create_tree("t").expect("created").put(b"k", b"v").expect("written");
            db.close().expect("closed");
            assert_eq!(recover(&disk).expect("sound")["t"].len(), 1);
        }
    }
}

#[test]
fn a_crash_during_creation_or_drop_leaves_trees_whole_or_gone() {
    let (start, oracle) = two_trees(1);
    let recorded = record(8, start, oracle, |disk, oracle| {
        let db = open(disk, reopen_options());
        let big = vec![7u8; 1000];
        for round in 0..3 {
            let fresh = db.create_tree("fresh").expect("created");
            for i in 0..12u8 {
                let effects = vec![(("fresh", vec![i]), Some(big.clone()))];
                oracle.note(disk, 0, effects, || fresh.put([i], &big));
            }
            if round == 1 {
                db.checkpoint().expect("done");
            }
            let effects = (0..12u8).map(|i| (("fresh", vec![i]), None)).collect();
            oracle.note(disk, 0, effects, || db.drop_tree("fresh"));
            let a = db.open_tree("a").expect("there");
            oracle.note(disk, 0, vec![(("a", vec![round]), Some(big.clone()))], || a.put([round], &big));
        }
        db.close().expect("closed");
    });
    check_matrix(&recorded, 0, 1);
}

#[test]
fn a_crash_during_recovery_loses_nothing() {
    let recorded = many_clients(9, 2, 60, 1000);
    let all = recorded.history.boundaries();
    let mut images = 0;
    for boundary in (all / 4..=all).step_by(stride(all / 4)) {
        let mode = Unsynced::Torn(u64::try_from(boundary).expect("small"));
        let image = recorded.history.crash_image(boundary, mode);
        let second = record_on(SLOW_READS, 3, image, Oracle::default(), |disk, _| {
            open(disk, reopen_options()).close().expect("closed");
        });
        for again in 0..=second.history.boundaries() {
            for mode in [Unsynced::None, Unsynced::All, Unsynced::Torn(5)] {
                let image = second.history.crash_image(again, mode);
                let outcome = recover_image(image, 1).and_then(|found| recorded.oracle.compare(&found, boundary));
                outcome.unwrap_or_else(|problem| {
                    panic!("crash at {boundary}, and at {again} of its recovery with {mode:?}: {problem}")
                });
                images += 1;
            }
        }
    }
    assert!(images > 300, "only {images} images");
}

#[test]
fn recovery_in_a_pool_smaller_than_what_it_redoes_loses_nothing() {
    // In virtual time, in which writes take no time: the keeper has not cleaned the pages.
    let (image, _) = run(4, || {
        let disk = SimulatedDisk::new();
        let options = Options::new().page_size(ByteSize::kib(4)).redo_capacity(ByteSize::mib(4));
        let db = open(&disk, options.buffer_pool_size(ByteSize::mib(4)));
        let tree = db.create_tree("t").expect("created");
        for i in 0..1500u32 {
            let mut batch = WriteBatch::new();
            batch.put(&tree, i.wrapping_mul(2_654_435_761).to_be_bytes(), [3; 700]).durability(Durability::None);
            db.write(batch).expect("written");
        }
        tree.put(b"last", b"1").expect("written");
        let image = disk.crash_now(Unsynced::None);
        assert!(db.stats().buffer_pool_pages_dirty > 300, "most pages are still dirty: {:?}", db.stats());
        db.close().expect("closed");
        image
    });
    let found = recover_image(image, 4).expect("sound");
    assert_eq!(found["t"].len(), 1501);
}

#[test]
fn a_crash_while_no_commit_waits_leaves_a_prefix_of_the_writes() {
    let (start, oracle) = two_trees(1);
    let recorded = record(10, start, oracle, |disk, _| {
        let db = open(disk, reopen_options());
        let tree = db.open_tree(LOOSE).expect("there");
        for turn in 0..400u16 {
            let mut batch = WriteBatch::new();
            batch.put(&tree, turn.to_be_bytes(), [1; 200]).durability(Durability::None);
            db.write(batch).expect("written");
            sleep_ns(3_000_000);
        }
        db.close().expect("closed");
    });
    let most = Mutex::new(0);
    check_images(&recorded, 0, 1, |found, _| {
        let rows = &found[LOOSE];
        let mut most = most.lock().expect("not poisoned");
        *most = rows.len().max(*most);
        let whole = rows.keys().zip(0u16..).all(|(key, turn)| *key == turn.to_be_bytes());
        if whole { Ok(()) } else { Err(format!("{} rows, with a hole among them", rows.len())) }
    });
    assert_eq!(*most.lock().expect("not poisoned"), 400);
}

#[test]
fn a_background_commit_is_durable_when_its_time_has_come() {
    let (image, written) = run(11, || {
        let disk = SimulatedDisk::with_image(Image::new(), SLOW);
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        let mut batch = WriteBatch::new();
        batch.put(&tree, b"k", b"v").durability(Durability::Background(40));
        db.write(batch).expect("written");
        let at_once = disk.crash_now(Unsynced::None);
        // The requested time, a write and a sync, and the time for which the keeper may be busy.
        sleep_ns(40_000_000 + 60_000_000);
        let later = disk.crash_now(Unsynced::None);
        db.close().expect("closed");
        (later, at_once)
    })
    .0;
    assert_eq!(recover_image(written, 1).expect("sound")["t"].len(), 0, "it was not waited for");
    assert_eq!(recover_image(image, 1).expect("sound")["t"].len(), 1);
}

/// Regression: recovery's last checkpoint ran out of slots, and published the new nonce with a checkpoint LSN of the
/// old log.
#[test]
fn a_crash_during_a_recovery_short_of_slots_loses_nothing() {
    let options = || Options::new().buffer_pool_size(ByteSize::mib(16)).redo_capacity(ByteSize::mib(16));
    // In virtual time, in which writes take no time: the keeper has not cleaned the pages.
    let (image, _) = run(12, || {
        let disk = SimulatedDisk::new();
        let db = open(&disk, options().page_size(ByteSize::kib(4)).durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        for i in 0..4000u32 {
            tree.put(i.to_be_bytes(), [1; 900]).expect("written");
        }
        db.close().expect("closed");
        let disk = SimulatedDisk::with_image(disk.image(), ServiceTime::default());
        let db = open(&disk, options().durability(Durability::None));
        let tree = db.open_tree("t").expect("there");
        for i in (0..4000u32).step_by(3) {
            tree.put(i.to_be_bytes(), [2; 900]).expect("written");
        }
        let mut batch = WriteBatch::new();
        batch.put(&tree, b"z", b"1").durability(Durability::Commit);
        db.write(batch).expect("written");
        let stats = db.stats();
        assert!(stats.buffer_pool_pages_dirty > stats.data_slots_free, "{stats:?}");
        let image = disk.crash_now(Unsynced::None);
        db.close().expect("closed");
        image
    });
    let second = SimulatedDisk::with_image(image, ServiceTime::default());
    run(13, || open(&second, options().create(false)).close().expect("closed"));
    let history = second.history();
    let all = history.boundaries();
    for boundary in (0..=all).step_by(stride(all / 15).max(1)) {
        for mode in modes(boundary) {
            let found = recover(&disk_of(history.crash_image(boundary, mode)));
            let rows = &found.unwrap_or_else(|problem| unreachable!("at {boundary} of {all}: {problem}"))["t"];
            let right = (0..4000u32).all(|i| rows[&i.to_be_bytes()[..]][0] == if i % 3 == 0 { 2 } else { 1 });
            assert!(right && rows.len() == 4001, "at {boundary} of {all}");
        }
    }
}
