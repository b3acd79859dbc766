//! One table of metrics. It has every field of `Stats` and every class of waits, the document is made from it, and
//! Prometheus can parse the output.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millpond::classic::{AdaptiveFlushingMethod, Doublewrite, EmptyFreeListAlgorithm, FlushNeighbors, LogRecentClosed};
use millpond::metrics::{METRICS, MetricKind, MetricValue, WaitClass};
use millpond::simulation::{Image, SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Options, Tree, TxnOptions, WorkOptions, WriteBatch};

use crate::pool::{put_loosely, scattered, scattered_rows};
use crate::support::{IN_PLACE, SLOW, SMALL, Shape, disk_of, open, reopen_options, settle, small_options};

/// If set, the document is written instead of compared.
const REGENERATE: &str = "MILLPOND_WRITE_DOCS";

/// `docs/metrics.md`, generated from the table.
fn document() -> String {
    let mut text = "# What does the engine count?\n\n\
        Ask a running engine with `millpond status --format=prometheus SOCKET` (`bench --status-socket`) or `curl\n\
        http://127.0.0.1:PORT/metrics` (`bench --metrics-port`), or in a program with `Db::metrics`, `Db::metrics_text`,\n\
        `Db::stats`. For Prometheus names begin with `millpond_`, and those of counters end in `_total`. Gauges stand for\n\
        now. Counters grow from open on, with two exceptions. Those of `log_lsn_...` grow from the database's creation on.\n\
        `law_violations` and `cpu_...` are of the process, or of its control group. Histograms count the waits that have\n\
        ended, by how long they took; waits of the engine's own threads are not counted.\n\n\
        A metric of each instance of the pool has the label `instance`, one of each of the last seconds the label `ago`.\n\
        In JSON both are arrays. A metric of each class of waits has the label `class`, in JSON an object. The engine\n\
        keeps the seconds, so any number of viewers may look, and none takes anything from another. How to look:\n\
        [seeing.md](seeing.md).\n\n\
        This page is made from the tables in `crates/millpond/src/observe/{stats,metrics}.rs`:\n\
        `MILLPOND_WRITE_DOCS=1 cargo test -p millpond --test it metrics`.\n\n\
        | name | kind | unit | meaning |\n|---|---|---|---|\n"
        .to_owned();
    for metric in &METRICS {
        text.push_str(&format!("| `{}` | {} | {} | {} |\n", metric.name, metric.kind.name(), metric.unit, metric.help));
    }
    text
}

#[test]
fn the_document_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os(REGENERATE).is_some() {
        std::fs::write(&path, document()).expect("written");
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    let again = format!("{REGENERATE}=1 cargo test -p millpond --test it metrics");
    assert!(is == document(), "docs/metrics.md is not what the table of metrics says: regenerate it with {again}");
}

#[test]
fn every_field_of_stats_and_class_of_waits_is_in_the_table_once() {
    let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), METRICS.len(), "each once");
    let stats = format!("{:?}", millpond::metrics::Stats::default());
    let fields = stats.split([' ', '{', ',']).filter_map(|word| word.strip_suffix(':')).map(str::to_owned);
    let classes = WaitClass::ALL.map(|class| format!("wait_{}_us", class.name()));
    let cpus = ["cpu_n", "cpu_granted_pct", "cpu_used_us", "cpu_quota_periods", "cpu_throttled_periods"];
    let waiting = ["stalls_by_class", "waiting", "waiting_us"];
    let of_instances = ["total", "free", "data", "dirty"].map(|pages| format!("buffer_pool_instance_pages_{pages}"));
    let slowest = ["operation_second", "operation_slowest_us"].map(str::to_owned);
    let expected = fields.chain(classes).chain(of_instances.clone()).chain(slowest);
    let expected = expected.chain(cpus.into_iter().chain(waiting).map(str::to_owned));
    let expected: BTreeSet<String> = expected.collect();
    assert!(expected.iter().map(String::as_str).eq(names), "{expected:?}");
    for metric in &METRICS {
        assert!(metric.name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{}", metric.name);
        assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '\\', '|']), "{}", metric.name);
        assert_eq!(metric.kind == MetricKind::Histogram, metric.name.starts_with("wait_"), "{}", metric.name);
        let label = match metric.name {
            "operation_slowest_us" => "ago",
            "stalls_by_class" | "waiting" | "waiting_us" => "class",
            name if of_instances.iter().any(|of| of == name) => "instance",
            _ => "",
        };
        assert_eq!(metric.label, label, "{}", metric.name);
        assert!(metric.unit != "us" || metric.name.ends_with("_us"), "times say their unit: {}", metric.name);
    }
}

/// Numbers by name, and waits by name: count, total, and buckets.
type Found = BTreeMap<String, f64>;

/// Parses Prometheus' text format by its rules: HELP and TYPE before the samples of a name, each name once, counters
/// end in `_total`, buckets ascend and end with `+Inf`, which equals the count.
fn parse(text: &str) -> Found {
    let (mut found, mut typed) = (Found::new(), BTreeMap::new());
    let (mut helped, mut family) = (String::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(!help.is_empty());
            helped = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a kind");
            assert_eq!(name, helped);
            // A gauge may end so because of its field: buffer_pool_pages_total.
            assert!(kind != "counter" || name.ends_with("_total"), "{name}");
            assert!(typed.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            family = name.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a sample and a value");
            let name = sample.split('{').next().expect("a name");
            let suffix = name.strip_prefix(&family).unwrap_or_else(|| unreachable!("{name} within {family}"));
            let suffixes: &[&str] = if typed[&family] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix) && name.starts_with("millpond_"), "{line}");
            let value = value.parse().expect("a number");
            assert!(found.insert(sample.to_owned(), value).is_none(), "{sample} twice");
        }
    }
    for (name, _) in typed.iter().filter(|(_, kind)| *kind == "histogram") {
        let bound = |bound: &str| format!("{name}_bucket{{le=\"{bound}\"}}");
        let counts = ["10", "100", "1000", "3000", "10000", "100000", "1000000", "10000000", "+Inf"];
        let counts = counts.map(|le| found[&bound(le)]);
        assert!(counts.is_sorted() && counts[8] == found[&format!("{name}_count")], "{name}: {counts:?}");
    }
    found
}

/// A histogram's count, the sum of several numbers, or the number.
fn number_of(value: &MetricValue) -> u64 {
    match value {
        MetricValue::Numbers(numbers) => numbers.iter().sum(),
        MetricValue::Number(number) => *number,
        MetricValue::Times(times) => times.count,
        MetricValue::Named(numbers) => numbers.iter().map(|(_, number)| number).sum(),
        other => unreachable!("{other:?}"),
    }
}

/// Two clients that write the same rows, and a pool that does not hold everything: the counts match the operations.
#[test]
fn metrics_are_what_stats_and_waits_tell_also_to_prometheus() {
    run(3, || {
        let options = small_options().buffer_pool_size(ByteSize::kib(256)).redo_capacity(ByteSize::mib(1));
        let db = Db::open_on(Arc::new(SimulatedDisk::new()), options).expect("opened");
        let tree = db.create_tree("t").expect("created");
        let clients = [0, 1].map(|client| {
            let tree = tree.clone();
            let work = move || (0..150u32).for_each(|row| tree.put([client, row as u8], [client; 900]).expect("put"));
            spawn("client", work).expect("a thread")
        });
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        assert!((0..150).all(|row| tree.get([0, row]).expect("read").is_some()));

        let values: BTreeMap<&str, MetricValue> =
            db.metrics().into_iter().map(|(metric, value)| (metric.name, value)).collect();
        let (stats, waits) = (db.stats(), db.waits());
        assert_eq!(values.len(), METRICS.len());
        assert_eq!(values["log_syncs"], MetricValue::Number(stats.log_syncs));
        assert_eq!(values["data_page_reads"], MetricValue::Number(stats.data_page_reads));
        assert!(stats.log_syncs > 100 && stats.data_page_reads > 10 && stats.stopped == 0, "{stats:?}");
        assert_eq!(stats.buffer_pool_pages_data + stats.buffer_pool_pages_free, stats.buffer_pool_pages_total);
        for wait in waits {
            let name = format!("wait_{}_us", wait.class.name());
            let MetricValue::Times(times) = &values[name.as_str()] else { unreachable!("{name} is no histogram") };
            assert_eq!((times.count, u128::from(times.total_us)), (wait.count, wait.total.as_micros()), "{name}");
        }

        let number = |name: &str| number_of(&values[name]);
        assert!(number("cpu_n") * 100 >= number("cpu_granted_pct") && number("cpu_granted_pct") > 0);

        assert_eq!(values["buffer_pool_instance_pages_free"], MetricValue::Numbers(vec![stats.buffer_pool_pages_free]));

        let found = parse(&db.metrics_text());
        assert_eq!(found["millpond_buffer_pool_instance_pages_total{instance=\"0\"}"], 64.0);
        assert!(found["millpond_log_syncs_total"] > 100.0);
        assert!(found["millpond_wait_log_flush_us_count"] > 100.0);
        assert_eq!(found["millpond_buffer_pool_pages_total"], 64.0);
        // Two clients' puts, each its own batch, and the reads after them.
        assert_eq!([number("operation_writes"), number("operation_gets")], [300, 150]);
        let by_second = |db: &Db| db.metrics().into_iter().find(|(of, _)| of.name == "operation_slowest_us");
        let MetricValue::Numbers(told) = by_second(&db).expect("a metric").1 else { unreachable!("one number") };
        assert!(told.len() == 61 && told.iter().any(|us| *us > 0), "{told:?}");
        assert_eq!(by_second(&db).expect("a metric").1, MetricValue::Numbers(told), "no reader takes from others");
        let slowest = db.take_slowest();
        assert!(slowest.is_sorted_by(|a, b| a.elapsed >= b.elapsed) && slowest.len() == 8, "{slowest:?}");
        assert!(db.take_slowest().is_empty(), "they were taken");
        db.close().expect("closed");
    });
}

/// Metrics that no workload here moves, and the reason.
const RARE: [(&str, &str); 14] = [
    ("log_spins", "no thread spins in virtual time: tests/it/classic_log.rs"),
    ("log_spin_us", "no thread spins in virtual time: tests/it/classic_log.rs"),
    ("log_spins_in_time", "no thread spins in virtual time: tests/it/classic_log.rs"),
    ("log_spin_cpu_abs", "CPU is not measured in virtual time: tests/it/classic_log.rs"),
    ("log_spin_cpu_pct", "CPU is not measured in virtual time: tests/it/classic_log.rs"),
    ("log_spin_cpus", "CPU is not measured in virtual time: tests/it/classic_log.rs"),
    ("dblwr_pages_put_back", "a crash has to tear a page: tests/it/in_place.rs"),
    ("pace_tick_us", "a tick takes no virtual time"),
    ("log_apply_rate", "a recovery from much log tells it: tests/it/pace.rs"),
    ("wait_lane_us", "two operations at a time start again more than eight times: the lane has a test in the engine"),
    ("buffer_pool_pages_misc", "nothing but pages is in frames"),
    ("law_violations", "each is a bug, and a panic in tests"),
    ("cpu_quota_periods", "this process may be in no control group with a quota"),
    ("cpu_throttled_periods", "this process may be in no control group with a quota"),
];

/// Values seen of each metric; of a histogram its counts.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<&'static str, BTreeSet<u64>>>>);

impl Seen {
    fn look(&self, db: &Db) {
        let found = db.metrics();
        let mut seen = self.0.lock().expect("no panic");
        for (metric, value) in found {
            seen.entry(metric.name).or_default().insert(number_of(&value));
        }
    }

    /// Records the metrics every few milliseconds while `work` runs.
    fn watch<T>(&self, db: &Db, work: impl FnOnce() -> T) -> T {
        let over = Arc::new(AtomicBool::new(false));
        let watcher = {
            let (seen, db, over) = (self.clone(), db.clone(), Arc::clone(&over));
            let watch = move || {
                while !over.load(Ordering::Relaxed) {
                    seen.look(&db);
                    sleep_ns(3_000_000);
                }
            };
            spawn("watcher", watch).expect("a thread")
        };
        let result = work();
        over.store(true, Ordering::Relaxed);
        watcher.join().expect("no panic");
        self.look(db);
        result
    }

    /// Whether a counter or a histogram has grown, or a gauge was not zero.
    fn has_moved(&self, name: &str, kind: MetricKind) -> bool {
        let seen = self.0.lock().expect("no panic");
        let Some(values) = seen.get(name) else { return false };
        if kind == MetricKind::Gauge { values.iter().any(|value| *value > 0) } else { values.len() > 1 }
    }
}

/// A database on a slow disk, with 2,000 rows of 900 bytes in tree `t`, few of which fit the pool.
fn at_work(seed: u64, shape: Shape, options: impl Fn(Options) -> Options, work: impl Fn(&SimulatedDisk, &Db)) {
    let disk = SimulatedDisk::with_image(scattered_rows(2_000, shape.options()), SLOW);
    run(seed, || {
        let db = open(&disk, options(shape.reopen_options()));
        work(&disk, &db);
    });
}

/// Three clients that write rows all over `t`, and wait for no sync.
fn write_all_over(db: &Db, turns: u32) {
    let clients = [0, 1, 2].map(|client| {
        let (db, tree) = (db.clone(), db.open_tree("t").expect("there"));
        let work = move || {
            for turn in 0..turns {
                put_loosely(&db, &tree, &scattered((turn * 3 + client) * 37 % 2_000), &[5; 900]);
            }
        };
        spawn("client", work).expect("a thread")
    });
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
}

/// Clients compete in a pool and a log too small for them.
fn pool_and_log(seen: &Seen) {
    at_work(
        1,
        SMALL,
        |options| options.stall_threshold(Duration::from_millis(1)),
        |_, db| {
            seen.watch(db, || {
                write_all_over(db, 300);
                let tree = db.open_tree("t").expect("there");
                assert!((0..50).all(|row| tree.get(scattered(row)).expect("read").is_some()));
            });
            seen.watch(db, || {
                let mut written = WriteBatch::new();
                written.put(&db.open_tree("t").expect("there"), scattered(3), b"w").durability(Durability::Written);
                db.write(written).expect("written");
                write_all_over(db, 20);
                db.checkpoint().expect("done");
            });
            let stats = db.stats();
            let by_reason = stats.buffer_pool_pages_lru_flushed
                + stats.buffer_flush_adaptive_total_pages
                + stats.buffer_flush_background_total_pages
                + stats.buffer_flush_sync_total_pages
                + stats.data_pages_moved;
            assert_eq!(by_reason, stats.data_page_writes, "each page was written for one reason: {stats:?}");
            assert_eq!(stats.buffer_pool_pending_lru + stats.buffer_pool_pending_flush_list, 0, "{stats:?}");
            let lots = stats.buffer_lru_batches_flush
                + stats.buffer_flush_adaptive
                + stats.buffer_flush_background
                + stats.buffer_flush_sync;
            assert!(lots <= stats.data_write_calls, "a lot takes a write call or more: {stats:?}");
            assert_eq!(stats.buffer_lru_batch_flush_total_pages, stats.buffer_pool_pages_lru_flushed, "{stats:?}");
        },
    );
}

/// A few changes, and then none, where nothing else requires clean pages. Returns the pages written in the background,
/// and the pages that were dirty.
fn quiet(seen: &Seen, shape: Shape) -> (u64, u64) {
    let found = Cell::new((0, 0));
    // In so large a log the dirty pages are not written for its sake.
    let large = |options: Options| options.buffer_pool_size(ByteSize::mib(2)).redo_capacity(ByteSize::mib(4));
    at_work(6, shape, large, |_, db| {
        let tree = db.open_tree("t").expect("there");
        // Changes in the newest 64 KiB of the log share a counter with new changes.
        (0..100).for_each(|row| put_loosely(db, &tree, &scattered(row * 19), &[8; 700]));
        seen.look(db);
        let dirty = db.stats().buffer_pool_pages_dirty;
        sleep_ns(60_000_000_000);
        seen.look(db);
        found.set((db.stats().buffer_flush_background_total_pages, dirty));
    });
    found.get()
}

#[test]
fn dirty_pages_of_a_quiet_log_are_written_in_the_background() {
    for shape in [SMALL, IN_PLACE, Shape { flushing: AdaptiveFlushingMethod::SyncOnly, ..IN_PLACE }] {
        let (background, dirty) = quiet(&Seen::default(), shape);
        assert!(background > 5 && dirty > 20, "{shape:?}: {background} pages, of {dirty} dirty ones");
    }
}

/// A pool that becomes smaller, and pools whose clients write pages themselves, and twice.
fn other_pools(seen: &Seen) {
    let large = |options: Options| options.buffer_pool_size(ByteSize::mib(2)).buffer_pool_size_max(ByteSize::mib(2));
    // The schedule decides whether a frame beyond the pool's end is in use at that moment.
    for seed in 5..9 {
        at_work(seed, SMALL, large, |_, db| {
            seen.watch(db, || {
                assert_eq!(db.open_tree("t").expect("there").scan(..).count(), 2_000);
                // All of it is in the pool: the log is too small.
                write_all_over(db, 600);
            });
            seen.watch(db, || db.set_buffer_pool_size(ByteSize::kib(4 * 40)).expect("changed"));
        });
    }
    for empty in [EmptyFreeListAlgorithm::Legacy, EmptyFreeListAlgorithm::Backoff] {
        let shape = Shape { empty, doublewrite: Doublewrite::On, ..IN_PLACE };
        at_work(
            3,
            shape,
            |options| options,
            |_, db| {
                seen.watch(db, || {
                    write_all_over(db, 100);
                    // An LRU manager's refill may last as long as the clients write.
                    sleep_ns(2_000_000_000);
                });
                let stats = db.stats();
                let by_reason = stats.buffer_pool_pages_lru_flushed
                    + stats.buffer_flush_adaptive_total_pages
                    + stats.buffer_flush_background_total_pages
                    + stats.buffer_flush_sync_total_pages
                    + stats.buffer_pool_single_page_flushes;
                assert_eq!(by_reason, stats.data_page_writes, "each page was written for one reason: {stats:?}");
            },
        );
    }
}

/// Deleted rows, dropped trees, undone batches.
fn what_goes(seen: &Seen) {
    at_work(
        4,
        SMALL,
        |options| options,
        |_, db| {
            let tree = db.open_tree("t").expect("there");
            seen.watch(db, || {
                for row in 0..1_500 {
                    assert!(tree.delete(scattered(row)).expect("deleted"));
                }
                settle(db);
            });
            let all = |last: bool| {
                let mut batch = WriteBatch::new();
                for row in 0..400 {
                    batch.put(&tree, scattered(row), [6; 900]);
                }
                if last {
                    batch.insert(&tree, scattered(1_600), b"there");
                }
                batch.durability(Durability::None);
                batch
            };
            seen.watch(db, || {
                let single = {
                    let (db, tree) = (db.clone(), tree.clone());
                    let work = move || {
                        while db.stats().batches_in_flight == 0 {
                            sleep_ns(1_000_000);
                        }
                        sleep_ns(20_000_000);
                        (0..400).for_each(|row| put_loosely(&db, &tree, &scattered(row), b"single"));
                    };
                    spawn("single", work).expect("a thread")
                };
                db.write(all(false)).expect("written");
                single.join().expect("no panic");
                assert!(matches!(db.write(all(true)), Err(Error::KeyExists(_))));
                settle(db);
            });
            let snapshot = db.snapshot().expect("open");
            (1_500..2_000).for_each(|row| put_loosely(db, &tree, &scattered(row), b"changed"));
            assert!(snapshot.get(&tree, scattered(1_500)).expect("read").is_some());
            seen.look(db);
            drop(snapshot);
            circle(db, &tree, seen);
            drop(tree);
            seen.watch(db, || db.drop_tree("t").expect("dropped"));
            // The busy keeper comes to the dropped tree's pages later; the schedule decides when it is busy.
            for after_ms in 0..8 {
                let tree = db.create_tree("t").expect("created");
                (0..300).for_each(|row| put_loosely(db, &tree, &scattered(row), &[5; 900]));
                drop(tree);
                let cleaner = {
                    let db = db.clone();
                    spawn("cleaner", move || db.checkpoint().expect("done")).expect("a thread")
                };
                sleep_ns(after_ms * 1_000_000);
                seen.watch(db, || db.drop_tree("t").expect("dropped"));
                cleaner.join().expect("no panic");
            }
        },
    );
}

/// A killed process, and a failing device.
fn failures(seen: &Seen) {
    let image: Image = {
        let disk = disk_of(scattered_rows(200, small_options()));
        let (image, _) = run(5, || {
            let db = open(&disk, reopen_options());
            put_loosely(&db, &db.open_tree("t").expect("there"), &scattered(1), b"new");
            db.open_tree("t").expect("there").put(scattered(2), b"new").expect("written");
            disk.crash_now(Unsynced::All)
        });
        image
    };
    let disk = SimulatedDisk::with_image(image, SLOW);
    run(6, || {
        let db = open(&disk, reopen_options());
        seen.look(&db);
        disk.refuse_writes("data.mpd", true);
        let rows = || (0..5_000u32).map(|row| (row.to_be_bytes(), [1; 900]));
        assert!(matches!(db.bulk_load("u", rows()), Err(Error::DeviceFailed(_))));
        disk.refuse_writes("data.mpd", false);
        seen.look(&db);
        db.bulk_load("u", rows()).expect("loaded");
        seen.look(&db);
        db.drop_tree("u").expect("dropped");
        db.compact(WorkOptions::new()).expect("shorter");
        seen.look(&db);
        disk.halt();
        db.checkpoint().expect_err("the device is gone");
        seen.look(&db);
    });
}

/// Two transactions that wait for each other.
fn circle(db: &Db, tree: &Tree, seen: &Seen) {
    let [mut one, mut two] = [(); 2].map(|()| db.begin(TxnOptions::new()).expect("begun"));
    one.put(tree, "one", "1").expect("written");
    two.put(tree, "two", "1").expect("written");
    sleep_ns(20_000_000);
    seen.look(db);
    let waiter = {
        let tree = tree.clone();
        spawn("two", move || two.put(&tree, "one", "2")).expect("a thread")
    };
    sleep_ns(20_000_000);
    assert!(matches!(one.put(tree, "two", "2"), Err(Error::Deadlock(_))));
    waiter.join().expect("no panic").expect("the other gave way");
    seen.look(db);
}

#[test]
fn every_metric_is_moved_by_a_workload_or_known_to_be_rare() {
    let seen = Seen::default();
    pool_and_log(&seen);
    quiet(&seen, SMALL);
    other_pools(&seen);
    what_goes(&seen);
    failures(&seen);
    crate::pace::at_work(crate::pace::OVERLOAD_NS, &[], |db| seen.look(db));
    let neighbors = FlushNeighbors::Area;
    let lazy = Shape { flushing: AdaptiveFlushingMethod::SyncOnly, neighbors, ..IN_PLACE };
    crate::classic_log::inserts(LogRecentClosed::Poll, |db| seen.look(db));
    crate::pace::at_work_with(lazy, crate::pace::OVERLOAD_NS, |db| seen.look(db));
    let ahead = Shape { flushing: AdaptiveFlushingMethod::Adaptive, ..IN_PLACE };
    at_work(8, ahead, |options| options, |_, db| seen.look(db));
    let still: BTreeSet<_> =
        METRICS.iter().filter(|metric| !seen.has_moved(metric.name, metric.kind)).map(|metric| metric.name).collect();
    let rare: BTreeSet<_> = RARE.iter().map(|(name, _)| *name).collect();
    assert!(RARE.iter().all(|(name, why)| METRICS.iter().any(|of| of.name == *name) && !why.is_empty()));
    let unmoved: Vec<_> = still.difference(&rare).collect();
    assert!(unmoved.is_empty(), "moved by nothing: {unmoved:?}");
}
