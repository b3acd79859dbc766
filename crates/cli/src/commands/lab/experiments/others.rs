//! Stalls that the texts do not have and users do: a dropped table, a reader that takes its time, a device that stands
//! still, a burst.

use super::{Experiment, Findings, Lab, updates};
use crate::commands::lab::arm::{Phase, SlowDevice, SlowTime, Tables, Work};
use crate::commands::lab::beside::Beside;
use crate::commands::lab::laboratory::{Arm, tables};
use crate::exit::Failure;

pub(super) const DDL_DROP: Experiment = Experiment {
    name: "ddl-drop",
    title: "an index dropped and made again, and a table dropped, beside updates",
    source: "what users report",
    run: ddl_drop,
};

pub(super) const LONG_READER: Experiment = Experiment {
    name: "long-reader",
    title: "a scan that takes its time beside updates",
    source: "what users report",
    run: long_reader,
};

pub(super) const HICCUP: Experiment = Experiment {
    name: "hiccup",
    title: "a device that stands still for 500 ms",
    source: "what users report; text 003, comments",
    run: hiccup,
};

pub(super) const BURST: Experiment = Experiment {
    name: "burst",
    title: "1.8 times the usual load for a while",
    source: "what users report; text 003, comments",
    run: burst,
};

const THREADS: usize = 16;

/// Some 32 MiB a table.
const TABLES: Tables = Tables { count: 4, rows: 150_000 };

/// The two servers that are compared, and the default.
fn servers(words: &[&'static str]) -> [Arm; 3] {
    let with = |profile: &'static str| [&[profile], words].concat();
    [
        Arm::classic("mysql-5.6", &with("profile=mysql-5.6")),
        Arm::classic("mysql-8.0", &with("profile=mysql-8.0")),
        Arm::default(words),
    ]
}

fn ddl_drop(lab: &Lab) -> Result<Findings, Failure> {
    const PHASE: &str = "updates beside DDL";
    const DDL_AFTER_S: f64 = 2.0;
    let words = ["buffer_pool_size=128MiB", "redo_capacity=128MiB", "durability=background(1s)"];
    let all = Tables { count: TABLES.count + 1, ..TABLES };
    let base = tables(all.count, all.rows, &["redo_capacity=128MiB"]);
    let beside = Some(Beside::Ddl { after_s: DDL_AFTER_S, table: all.count });
    let seconds = lab.seconds(8, 20);
    let phases = [Phase { beside, ..updates(PHASE, TABLES, THREADS, seconds) }];
    let settings = lab.in_turn(DDL_DROP.name, &base, &servers(&words), &phases)?;
    lab.clear();
    let how = "16 threads update four tables; beside them the index of a fifth is dropped and made again, then that \
               table is dropped, pages of it in the pool. Durable within a second.";
    let mut findings = DDL_DROP.findings(how, settings, &[PHASE]);
    let own = findings.default().figures(PHASE);
    let left_ms = (seconds as f64 - DDL_AFTER_S) * 1e3;
    let is_within = findings.default().phase(PHASE).iter().all(|run| run.figures.beside_ms < left_ms);
    findings.notes.push(format!("With the default all of that takes {:.0} ms.", own.beside_ms));
    findings.judge(
        "ours",
        "nobody else waits for it with the default",
        own.stalls == 0.0 && own.brownout_s == 0.0 && own.beside_ms > 0.0 && is_within,
        format!(
            "{:.0} stalls, slowest {:.1} ms, longest gap {:.1} ms{}",
            own.stalls,
            own.slowest_ms,
            own.blackout_ms,
            if is_within { "" } else { "; it went on when the load had ended" }
        ),
    );
    findings.judge_throughput(PHASE);
    Ok(findings)
}

fn long_reader(lab: &Lab) -> Result<Findings, Failure> {
    const PHASE: &str = "updates beside a long reader";
    let words = ["buffer_pool_size=64MiB", "redo_capacity=128MiB", "durability=background(1s)"];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=128MiB"]);
    let phases = [Phase { beside: Some(Beside::LongReader), ..updates(PHASE, TABLES, THREADS, lab.seconds(8, 30)) }];
    let settings = lab.in_turn(LONG_READER.name, &base, &servers(&words), &phases)?;
    lab.clear();
    let how = "16 threads update data twice the pool, durable within a second; one reader scans a table, with a rest \
               of 2 ms after each 200 rows. It sees each row as committed when it comes to it: there are no snapshots \
               yet.";
    let mut findings = LONG_READER.findings(how, settings, &[PHASE]);
    let undo = findings.default().median(PHASE, |run| run.number("undo_pages"));
    let own = findings.default().figures(PHASE);
    findings.judge(
        "ours",
        "a reader that takes its time neither stalls writers nor makes undo grow",
        own.stalls == 0.0 && undo < 1_000.0,
        format!("{:.0} stalls, slowest {:.1} ms, {undo:.0} undo pages at the end", own.stalls, own.slowest_ms),
    );
    findings.judge_throughput(PHASE);
    Ok(findings)
}

/// Updates that the device of 1,500 writes a second bears, on all settings, offered at a fixed rate.
const BORNE_PER_S: f64 = 500.0;

fn hiccup(lab: &Lab) -> Result<Findings, Failure> {
    const PHASE: &str = "updates at a fixed rate, stops of 500 ms";
    let stop = SlowTime { from_s: 3.0, for_s: 0.5, every_s: 4.0, factor: 0.0 };
    let device = SlowDevice { writes_per_s: 1_500.0, slower: vec![stop] };
    let words = ["buffer_pool_size=64MiB", "redo_capacity=32MiB", "durability=background(1s)"];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=32MiB"]);
    let phases = [offered(PHASE, BORNE_PER_S, lab.seconds(12, 40))];
    let arms = servers(&words).map(|arm| arm.on(&device));
    let settings = lab.in_turn(HICCUP.name, &base, &arms, &phases)?;
    lab.clear();
    let how = format!(
        "{BORNE_PER_S:.0} updates a second, data twice the pool, on an imitated device of 1,500 writes a second whose \
         writes stand still for 500 ms every 4 s; durable within a second. Times are from arrival."
    );
    let mut findings = HICCUP.findings(how, settings, &[PHASE]);
    let own = findings.default().figures(PHASE);
    findings.judge(
        "ours",
        "a stop of the device is not felt with the default, where commits are durable within a second: one that is \
         durable at once waits as long as the device stands still, with any engine",
        own.slowest_ms < 100.0 && own.brownout_s == 0.0,
        format!("slowest {:.1} ms, worst second {:.0} of {:.0}", own.slowest_ms, own.worst_per_s, own.median_per_s),
    );
    Ok(findings)
}

fn burst(lab: &Lab) -> Result<Findings, Failure> {
    const PHASES: [&str; 3] = ["usual", "burst", "usual again"];
    let device = SlowDevice { writes_per_s: 1_500.0, slower: Vec::new() };
    let words = ["buffer_pool_size=192MiB", "redo_capacity=8MiB", "durability=background(1s)"];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=8MiB"]);
    let (warm_s, seconds) = (lab.seconds(12, 20), lab.seconds(6, 15));
    let usual = 1_800.0;
    let phases = [
        offered("to begin with", usual, warm_s),
        offered(PHASES[0], usual, seconds),
        offered(PHASES[1], usual * 1.8, seconds),
        offered(PHASES[2], usual, seconds),
    ];
    let arms = servers(&words).map(|arm| arm.on(&device));
    let settings = lab.in_turn(BURST.name, &base, &arms, &phases)?;
    lab.clear();
    let how = format!(
        "{usual:.0} updates a second of data that the pool holds, for {seconds} s 1.8 times as many, then as before, a \
         log of 8 MiB, on an imitated device of 1,500 writes a second, durable within a second; {warm_s} s of the \
         usual load before, until the log is as full as it stays. Times are from arrival."
    );
    let mut findings = BURST.findings(how, settings, &PHASES);
    let own = findings.default();
    let slowest = ["burst", "usual again"].map(|phase| own.figures(phase).slowest_ms);
    let worst = own.figures("burst").worst_per_s;
    findings.judge(
        "ours",
        "a burst of 1.8 times is absorbed with the default",
        slowest.iter().all(|ms| *ms < 100.0) && worst > usual * 1.8 * 0.85,
        format!("slowest {:.1} ms, and {:.1} after it; worst second {worst:.0}", slowest[0], slowest[1]),
    );
    findings.judge_slowest("burst", "mysql-5.6");
    findings.judge_slowest("burst", "mysql-8.0");
    Ok(findings)
}

/// Updates that arrive at a rate.
fn offered(name: &str, per_s: f64, time_s: u64) -> Phase {
    let work =
        Work::Oltp { workload: "oltp_update_index".into(), tables: TABLES, threads: THREADS, per_s: Some(per_s) };
    Phase { name: name.into(), quiet_s: 0.0, work, time_s, beside: None }
}
