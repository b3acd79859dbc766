//! The insert benchmark, several clients with a table each: inserts and deletes beyond the pool, page cleaners over
//! instances, and reads beside fixed rates of inserts.

use super::{Experiment, Findings, Lab};
use crate::commands::lab::arm::{Phase, Work};
use crate::commands::lab::findings::Setting;
use crate::commands::lab::laboratory::{Arm, Base, options};
use crate::commands::lab::outcome::{ClientSeconds, Writers, median};
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "insert-benchmark",
    title: "inserts and deletes with three indexes, more than the pool holds: page cleaners that are late",
    source: "text 004",
    run,
};

const CLIENTS: u32 = 8;

/// The setting that the default's slowest is held against.
const CLASSIC: &str = "cleaners 4, inst. 8";

const INSERTS: &str = "l.i1: inserts and deletes";
const QUERIES: &str = "qr100: queries beside 100 inserts a second and client";

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let rows = if lab.is_quick { 100_000 } else { 250_000 };
    let common = ["cached=true", "buffer_pool_size=64MiB", "redo_capacity=128MiB", "durability=background(1s)"];
    // As MySQL 8.0 but for the log's threads, which take CPU that a small machine does not have.
    let of_8_0 = |words: &[&'static str]| {
        [&common[..], &["profile=mysql-5.6", "flush_neighbors=none", "max_dirty_pages_pct=90"], words].concat()
    };
    let arms = [
        Arm::classic(CLASSIC, &of_8_0(&["page_cleaners=4", "buffer_pool_instances=8"])),
        Arm::classic("cleaners 8, inst. 8", &of_8_0(&["page_cleaners=8", "buffer_pool_instances=8"])),
        Arm::classic("cleaners 4, inst. 4", &of_8_0(&["page_cleaners=4", "buffer_pool_instances=4"])),
        Arm::classic(
            "4, 4, depth 4096",
            &of_8_0(&["page_cleaners=4", "buffer_pool_instances=4", "lru_scan_depth=4096"]),
        ),
        Arm::classic(
            "4, 4, no doublewrite",
            &of_8_0(&["page_cleaners=4", "buffer_pool_instances=4", "doublewrite=off"]),
        ),
        Arm::default(&common),
    ];
    let step = |step: &str| Work::Insert { step: step.into(), clients: CLIENTS, rows };
    let base = Base {
        options: options(&["cached=true", "redo_capacity=128MiB"]),
        work: vec![step("l.i0"), step("l.x")],
        in_memory: false,
    };
    let phase = |name: &str, work, time_s| Phase { name: name.into(), quiet_s: 0.0, work, time_s, beside: None };
    let phases = [phase(INSERTS, step("l.i1"), lab.seconds(8, 30)), phase(QUERIES, step("qr100"), lab.seconds(3, 10))];
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    lab.clear();
    let how = format!(
        "{CLIENTS} clients with a table of {rows} rows and three indexes each, files in the page cache, a pool of 64 \
         MiB: l.i1 inserts and deletes 50 rows in a transaction; then ranges of indexes are read while 100 rows a \
         second and client are inserted and deleted. Durable within a second."
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[INSERTS, QUERIES]);
    findings.loops = Some(("buffer_pool_single_page_flushes", "single"));
    findings.notes.push(by_client(&findings));
    let notes: Vec<String> = findings.settings.iter().filter_map(writers).collect();
    findings.notes.extend(notes);
    judge(&mut findings, lab.machine.cpus);
    Ok(findings)
}

/// How those did who inserted beside the queries.
fn writers(setting: &Setting) -> Option<String> {
    let of: Vec<&Writers> = setting.phase(QUERIES).into_iter().filter_map(|run| run.writers.as_ref()).collect();
    let median_of = |figure: fn(&Writers) -> f64| median(of.iter().map(|writers| figure(writers)));
    let wanted = of.first()?.wanted_per_s;
    Some(format!(
        "{}: {:.0} of {wanted:.0} rows/s inserted beside queries, the slowest transaction {:.0} ms from arrival.",
        setting.name,
        median_of(|writers| writers.rows_per_s),
        median_of(|writers| writers.slowest_ms),
    ))
}

/// How even the clients are, in the last round.
fn by_client(findings: &Findings) -> String {
    let of = |setting: &Setting| {
        let clients = &setting.phase(INSERTS).last()?.clients;
        let slowest = |client: &ClientSeconds| client.worst_ms.iter().copied().fold(0.0, f64::max);
        let least = clients.iter().map(slowest).fold(f64::INFINITY, f64::min);
        let most = clients.iter().map(slowest).fold(0.0, f64::max);
        let (few, many) = (
            clients.iter().map(|client| client.transactions).min()?,
            clients.iter().map(|client| client.transactions).max()?,
        );
        Some(format!("{}: {few} to {many} transactions, the slowest {least:.0} to {most:.0} ms", setting.name))
    };
    let all: Vec<String> = findings.settings.iter().filter_map(of).collect();
    format!("By client, in l.i1: {}.", all.join("; "))
}

fn judge(findings: &mut Findings, cpus: f64) {
    let worst = findings
        .classic()
        .map(|setting| {
            (
                setting.figures(INSERTS).slowest_ms,
                setting.median(INSERTS, |run| run.number("buffer_pool_single_page_flushes")),
            )
        })
        .fold((0.0_f64, 0.0_f64), |worst, of| (worst.0.max(of.0), worst.1.max(of.1)));
    findings.judge(
        "text 004",
        "page cleaners are late, and users write single pages",
        worst.1 > 100.0,
        format!("up to {:.0} pages written by users, the slowest transaction {:.0} ms", worst.1, worst.0),
    );
    let worst = |name: &str| findings.setting(name).median(INSERTS, |run| median(run.worst_ms.iter().copied()));
    let text = ["cleaners 4, inst. 8", "cleaners 8, inst. 8", "cleaners 4, inst. 4"]
        .map(|name| format!("{name}: {:.0} ms", worst(name)))
        .join("; ");
    let equal = worst("cleaners 4, inst. 4").min(worst("cleaners 8, inst. 8"));
    let is_better = equal < worst("cleaners 4, inst. 8");
    findings.judge(
        "text 004",
        "as many cleaners as instances are better than fewer: the worst response of a second, in the median",
        is_better,
        text,
    );
    if !is_better {
        findings.notes.push(format!(
            "The text's machine had a CPU for each cleaner; this one has {cpus:.0}. Where there are fewer, cleaners \
             and clients take them from each other, however instances are shared out."
        ));
    }
    findings.judge_throughput(INSERTS);
    findings.judge_slowest(INSERTS, CLASSIC);
    // Closed loop: as many are under way as there are clients.
    let times = |setting: &Setting| {
        let of = setting.figures(INSERTS);
        let mean_ms = f64::from(CLIENTS) * 1e3 / of.per_s.max(1e-3);
        format!("{mean_ms:.0} ms on average, the slowest {:.1} times that", of.slowest_ms / mean_ms)
    };
    let (own, classic) = (times(findings.default()), times(findings.setting(CLASSIC)));
    findings.notes.push(format!(
        "A transaction changes 100 rows with 300 entries, most of them on pages not in the pool: with the default \
         {own}; with {CLASSIC} {classic}."
    ));
    findings.judge_throughput(QUERIES);
    let runs = findings.default().phase(QUERIES);
    let kept = runs.iter().filter(|run| run.writers.is_some_and(|writers| writers.is_kept)).count();
    let (is_kept, seen) = (!runs.is_empty() && kept == runs.len(), format!("in {kept} of {} rounds", runs.len()));
    findings.judge("ours", "the rate of inserts beside queries is kept with the default", is_kept, seen);
}
