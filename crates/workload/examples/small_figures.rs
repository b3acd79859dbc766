//! Figures of small databases: `make figures`.
//!
//! `small_figures DIR [TREES]` makes databases in DIR, which it removes: a new one, and with pages of 4 and of 16 KiB
//! one with TREES (10,000) trees of a row each. It prints the bytes that the files take on the device, those without the
//! log by tree, and the time of an open; medians of five. It prints the same after a compaction.

#[path = "common/mod.rs"]
mod common;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use millpond::{ByteSize, Db, Options, WorkOptions};

use common::{Outcome, exit, must_be_new};

const ROUNDS: usize = 5;

fn main() -> ExitCode {
    exit("small_figures", run())
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("usage: small_figures DIR [TREES]")?);
    let trees: u32 = arguments.next().map_or(Ok(10_000), |trees| trees.parse())?;
    must_be_new(&dir)?;
    println!("| small databases | pages of 4 KiB | pages of 16 KiB |\n|---|---|---|");
    let measured = [4, 16].map(|kib| measure(&dir.join(kib.to_string()), ByteSize::kib(kib), trees));
    std::fs::remove_dir_all(&dir)?;
    let [four, sixteen] = measured;
    for ((what, four), (_, sixteen)) in four?.into_iter().zip(sixteen?) {
        println!("| {what} | {four} | {sixteen} |");
    }
    Ok(())
}

fn measure(dir: &Path, page_size: ByteSize, trees: u32) -> Outcome<Vec<(String, String)>> {
    let small = || Options::new().page_size(page_size);
    let options = || small().buffer_pool_size(ByteSize::mib(512));
    let (mut made, mut opened) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let began = Instant::now();
        let db = Db::open(dir.join(round.to_string()), small())?;
        made.push(began.elapsed());
        db.close()?;
    }
    let new = bytes(&dir.join("0"), true)?;
    let dir = dir.join("0");
    let empty = bytes(&dir, false)?;
    let db = Db::open(&dir, options())?;
    for number in 0..trees {
        db.create_tree(&format!("tree {number}"))?.put(b"key", b"value")?;
    }
    db.close()?;
    let with_trees = bytes(&dir, false)?;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let db = Db::open(&dir, options())?;
        opened.push(began.elapsed());
        db.close()?;
    }
    let db = Db::open(&dir, options())?;
    db.compact(WorkOptions::new())?;
    db.close()?;
    let compact = bytes(&dir, false)?;
    let by_tree = |bytes: u64| format!("{:.1} KiB", (bytes - empty) as f64 / 1024.0 / f64::from(trees));
    Ok(vec![
        ("a new database".to_owned(), format!("{:.1} MiB, {}", new as f64 / 1024.0 / 1024.0, ms(made))),
        (format!("each of {trees} trees"), by_tree(with_trees)),
        ("the same, after a compaction".to_owned(), by_tree(compact)),
        (format!("open with {trees} trees"), ms(opened)),
    ])
}

/// The median.
fn ms(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    format!("{} ms", times[times.len() / 2].as_millis())
}

/// Bytes on the device of the files in `dir`, with the log or without.
fn bytes(dir: &Path, with_log: bool) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if with_log || !entry.file_name().to_string_lossy().starts_with("redo") {
            bytes += entry.metadata()?.blocks() * 512;
        }
    }
    Ok(bytes)
}
