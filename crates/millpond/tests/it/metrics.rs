//! One table of metrics: every field of `Stats` and every class of waits is in it, the document is made from it, and
//! Prometheus reads what comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use millpond::simulation::{SimulatedDisk, run, spawn};
use millpond::{ByteSize, Db, METRICS, MetricKind, MetricValue, WaitClass};

use crate::support::small_options;

/// Set, the document is written instead of compared.
const REGENERATE: &str = "MILLPOND_WRITE_DOCS";

/// `docs/metrics.md`, as the table makes it.
fn document() -> String {
    let mut text = "# What does the engine count?\n\n\
        Ask a running engine with `millpond status --format=prometheus SOCKET` (see `bench --status-socket`), or in a\n\
        program with `Db::metrics`, `Db::metrics_text`, `Db::stats`. For Prometheus names begin with `millpond_`, and\n\
        those of counters end in `_total`. Counters grow from open on; gauges stand for now. Histograms count the\n\
        waits that have ended, by how long they took; waits of the engine's own threads are not counted.\n\n\
        This page is made from the table in `crates/millpond/src/db/metrics.rs`:\n\
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
fn every_field_of_stats_and_every_class_of_waits_is_in_the_table_once() {
    let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), METRICS.len(), "each once");
    let stats = format!("{:?}", millpond::Stats::default());
    let fields = stats.split([' ', '{', ',']).filter_map(|word| word.strip_suffix(':')).map(str::to_owned);
    let classes = WaitClass::ALL.map(|class| format!("wait_{}_us", class.name()));
    let expected: BTreeSet<String> = fields.chain(classes).collect();
    assert!(expected.iter().map(String::as_str).eq(names), "{expected:?}");
    for metric in &METRICS {
        assert!(metric.name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{}", metric.name);
        assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '\\', '|']), "{}", metric.name);
        assert_eq!(metric.kind == MetricKind::Histogram, metric.name.starts_with("wait_"), "{}", metric.name);
        assert!(metric.unit != "us" || metric.name.ends_with("_us"), "times say their unit: {}", metric.name);
    }
}

/// Numbers by name, and waits by name: count, total, and buckets.
type Found = BTreeMap<String, f64>;

/// Reads Prometheus' text format by its rules: HELP and TYPE before the samples of a name, each name once, counters end
/// in `_total`, buckets ascend and end with `+Inf`, which is the count.
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
            // Gauges may be named so by the field: buffer_pool_pages_total.
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

/// Two clients that write in each other's way, a pool that does not hold everything: what is counted is what happened.
#[test]
fn metrics_are_what_stats_and_waits_tell_and_prometheus_reads_them() {
    run(3, || {
        let options = small_options().buffer_pool_size(ByteSize::kib(256)).redo_capacity(ByteSize::mib(1));
        let db = Db::open_on(Arc::new(SimulatedDisk::new()), options).expect("opened");
        let tree = db.create_tree("t").expect("created");
        let clients = [0, 1].map(|client| {
            let tree = tree.clone();
            let work = move || (0..150u32).for_each(|row| tree.put(&[client, row as u8], &[client; 900]).expect("put"));
            spawn("client", work).expect("a thread")
        });
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        assert!((0..150).all(|row| tree.get(&[0, row]).expect("read").is_some()));

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

        let found = parse(&db.metrics_text());
        assert!(found["millpond_log_syncs_total"] > 100.0);
        assert!(found["millpond_wait_log_flush_us_count"] > 100.0);
        assert_eq!(found["millpond_buffer_pool_pages_total"], 64.0);
        let slowest = db.take_slowest();
        assert!(slowest.is_sorted_by(|a, b| a.elapsed >= b.elapsed) && slowest.len() == 8, "{slowest:?}");
        assert!(db.take_slowest().is_empty(), "they were taken");
        db.close().expect("closed");
    });
}
