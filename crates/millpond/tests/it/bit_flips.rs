//! A bit flipped in any byte of any file is found, or every row is still there. The result is never wrong rows.
//!
//! One case cannot be found. A log ends at the first group that is not whole: after a crash that is the flush that was
//! cut short. Nothing on the disk proves that the flush of the last batch had ended: no later group, no superblock, no
//! image of a page. So damage there looks like the crash. Rows of that batch, from the first damaged group on, are
//! missing, though they may have been acknowledged. No write-ahead log can tell the two cases apart without a second
//! write. In a closed database the superblock names the log's end: there even this is found.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::inspect::{CheckOptions, check_on};
use millpond::simulation::{Image, SimulatedDisk, Unsynced, run};
use millpond::{ByteSize, Db, Durability, PageStoreKind, WriteBatch};

use crate::format_reader::{Duty, Region, regions};
use crate::support::{Contents, contents, disk_of, recover, reopen_options, small_options};

/// The result of a flip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// An error, or a problem in the report.
    Found,
    /// No problem, and every row right.
    Right,
    /// No problem, and the rows of an earlier moment.
    Earlier,
}

/// A database, and its contents after each of the last changes. The last contents are the ones that it must have.
struct Sample {
    image: Image,
    moments: Vec<Contents>,
}

fn put(db: &Db, tree: &str, number: u32, durable: bool) {
    let tree = db.open_tree(tree).expect("there");
    let mut batch = WriteBatch::new();
    batch.put(
        &tree,
        format!("row-{number:04}").as_bytes(),
        vec![b'a' + (number % 26) as u8; 90 + number as usize % 60],
    );
    if !durable {
        batch.durability(Durability::None);
    }
    db.write(batch).expect("written");
}

/// Two trees with a split, a checkpoint, and changes behind it, splits among them.
fn fill(disk: &SimulatedDisk, store: PageStoreKind) -> (Db, Vec<Contents>) {
    let db = Db::open_on(Arc::new(disk.clone()), small_options().page_store(store)).expect("opened");
    // The map directory holds the entries of `b`. Those of `a` are in a map page.
    for (name, rows) in [("a", 360), ("b", 90)] {
        db.create_tree(name).expect("created");
        (0..rows).for_each(|i| put(&db, name, i * 3, true));
    }
    db.checkpoint().expect("done");
    let mut moments = vec![contents(&db).expect("read")];
    for i in 0..60 {
        // The last three changes are one flush batch.
        put(&db, if i % 3 == 0 { "b" } else { "a" }, i * 7 % 300 + i % 2, !(57..59).contains(&i));
        moments.push(contents(&db).expect("read"));
    }
    (db, moments)
}

fn closed(store: PageStoreKind) -> Sample {
    let disk = SimulatedDisk::new();
    let (moments, _) = run(21, || {
        let (db, moments) = fill(&disk, store);
        db.close().expect("closed");
        moments
    });
    Sample { image: disk.image(), moments }
}

fn crashed(store: PageStoreKind) -> Sample {
    let disk = SimulatedDisk::new();
    let (sample, _) = run(22, || {
        let (db, moments) = fill(&disk, store);
        let image = disk.crash_now(Unsynced::All);
        drop(db);
        Sample { image, moments }
    });
    sample
}

/// The crashed database, opened, changed, and crashed again: its log has two epochs, and the durable LSN is within it.
fn reopened() -> Sample {
    let Sample { image, mut moments } = crashed(PageStoreKind::CopyOnWrite);
    let disk = disk_of(image);
    let (sample, _) = run(23, || {
        let db = Db::open_on(Arc::new(disk.clone()), reopen_options()).expect("opened");
        for i in 0..6 {
            put(&db, "b", 1000 + i, true);
            moments.push(contents(&db).expect("read"));
        }
        let image = disk.crash_now(Unsynced::All);
        drop(db);
        Sample { image, moments }
    });
    sample
}

/// Flips one bit, and checks. If the check finds nothing, opens and reads; `Err`: the rows are wrong.
fn flip(sample: &Sample, disk: &SimulatedDisk, file: &str, at: usize) -> Result<Outcome, String> {
    let offset = u64::try_from(at).expect("small");
    let bit = u8::try_from((at * 5 + at / 8) % 8).expect("small");
    assert!(disk.flip_bit(file, offset, bit), "{file} has no byte {at}");
    let mut options = CheckOptions::default();
    options.buffer_pool_size = ByteSize::kib(160);
    let (checked, _) = run(1, || check_on(Arc::new(disk.clone()), &options));
    let outcome = match checked {
        Err(_) => Ok(Outcome::Found),
        Ok(report) if !report.problems.is_empty() => Ok(Outcome::Found),
        Ok(_) => match run(1, || recover(&disk_of(disk.image()))).0 {
            Err(problem) => Err(format!("check found nothing, but: {problem}")),
            Ok(rows) => match sample.moments.iter().rev().position(|moment| *moment == rows) {
                Some(0) => Ok(Outcome::Right),
                Some(_) => Ok(Outcome::Earlier),
                None => Err("rows that never were".to_owned()),
            },
        },
    };
    assert!(disk.flip_bit(file, offset, bit), "flipped back");
    outcome.map_err(|problem| format!("bit {bit} of byte {at} of '{file}': {problem}"))
}

type Table = BTreeMap<(Duty, &'static str), (usize, BTreeMap<Outcome, usize>)>;

/// Flips a bit in every `in_use`th byte that is in use, in small regions in every `small`th, and in every `unused`th
/// other byte.
fn sweep(sample: &Sample, all: &[Region], [in_use, small, unused]: [usize; 3]) -> (Table, Vec<String>) {
    let bytes = all.iter().scan(0, |seen, region| {
        // The stride continues across regions, so that it also meets small ones.
        let step = match region.duty {
            Duty::Unused => unused,
            _ if region.len <= 256 && (region.duty == Duty::LastBatch || !region.what.starts_with("log,")) => small,
            _ => in_use,
        };
        let first = (step - *seen % step) % step;
        *seen += region.len;
        Some((first..region.len).step_by(step).map(move |at| (region, region.from + at)))
    });
    let bytes: Vec<(&Region, usize)> = bytes.flatten().collect();
    let part = |half: usize| {
        let disk = disk_of(sample.image.clone());
        let (mut table, mut wrong) = (Table::new(), Vec::new());
        for (region, at) in bytes.iter().skip(half).step_by(2) {
            match flip(sample, &disk, &region.file, *at) {
                Ok(outcome) => {
                    let row = table.entry((region.duty, region.what)).or_default();
                    *row.1.entry(outcome).or_default() += 1;
                    let allowed = match region.duty {
                        Duty::Found => outcome == Outcome::Found,
                        Duty::LastBatch => outcome != Outcome::Right,
                        // No false alarm either.
                        Duty::Healed | Duty::Unused => outcome == Outcome::Right,
                    };
                    if !allowed {
                        wrong.push(format!("byte {at} of '{}', {}: {outcome:?}", region.file, region.what));
                    }
                }
                Err(problem) => wrong.push(format!("{}: {problem}", region.what)),
            }
        }
        (table, wrong)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| part(1));
        let (mut table, mut wrong) = part(0);
        let (others, mut more) = other.join().expect("no panic");
        for (region, (_, outcomes)) in others {
            for (outcome, count) in outcomes {
                *table.entry(region).or_default().1.entry(outcome).or_default() += count;
            }
        }
        for region in all {
            table.entry((region.duty, region.what)).or_default().0 += region.len;
        }
        wrong.append(&mut more);
        (table, wrong)
    })
}

fn print(title: &str, table: &Table) {
    println!(
        "{title:<28} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "bytes", "flips", "found", "healed", "unused", "earlier"
    );
    for ((duty, what), (bytes, outcomes)) in table {
        let of = |outcome| outcomes.get(&outcome).copied().unwrap_or(0);
        let right = of(Outcome::Right);
        let (healed, unused) = if *duty == Duty::Unused { (0, right) } else { (right, 0) };
        let flips: usize = outcomes.values().sum();
        let (found, earlier) = (of(Outcome::Found), of(Outcome::Earlier));
        println!("  {what:<26} {bytes:>9} {flips:>8} {found:>8} {healed:>8} {unused:>8} {earlier:>8}");
    }
}

const STRIDE: usize = 439;

/// `make test` samples the bytes; with MILLPOND_FULL each byte in use is flipped.
fn sweep_all(title: &str, sample: &Sample) -> Table {
    let all = regions(&sample.image);
    let bytes: usize = all.iter().map(|region| region.len).sum();
    assert_eq!(bytes, sample.image.values().map(Vec::len).sum::<usize>(), "each byte is in one region");
    let full = std::env::var_os("MILLPOND_FULL").is_some();
    let (table, wrong) = sweep(sample, &all, if full { [1, 1, 499] } else { [STRIDE, 3, 9973] });
    print(title, &table);
    assert!(wrong.is_empty(), "{} flips went wrong:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    table
}

fn rows<'t>(table: &'t Table, what: &str) -> &'t BTreeMap<Outcome, usize> {
    let row = table.iter().find(|((_, name), _)| *name == what);
    &row.expect("a region of this name").1.1
}

#[test]
fn every_flipped_bit_of_a_closed_database_is_found_or_harmless() {
    let table = sweep_all("closed database", &closed(PageStoreKind::CopyOnWrite));
    assert!(!table.keys().any(|(duty, _)| *duty == Duty::LastBatch), "the superblock knows the log's end");
    for what in ["page", "map page", "directory, the newest", "superblock, the newest", "log file, header"] {
        assert!(rows(&table, what).get(&Outcome::Found).is_some_and(|found| *found > 0), "{what}");
    }
}

#[test]
fn flipped_bits_after_a_crash_are_found_or_in_the_last_batch() {
    let table = sweep_all("crashed database", &crashed(PageStoreKind::CopyOnWrite));
    for what in ["page", "map page", "log, shown by later groups"] {
        assert!(rows(&table, what).get(&Outcome::Found).is_some_and(|found| *found > 0), "{what}");
    }
    assert!(rows(&table, "log, the last batch").contains_key(&Outcome::Earlier), "as the head of this file says");
}

#[test]
fn flipped_bits_after_2_crashes_are_found_or_in_the_last_batch() {
    let table = sweep_all("crashed twice", &reopened());
    for what in ["page", "log, before the durable LSN", "log, shown by later groups"] {
        assert!(rows(&table, what).get(&Outcome::Found).is_some_and(|found| *found > 0), "{what}");
    }
}

#[test]
fn flipped_bits_of_an_in_place_database_are_found_or_harmless() {
    let table = sweep_all("closed, in place", &closed(PageStoreKind::InPlace));
    assert!(rows(&table, "page").get(&Outcome::Found).is_some_and(|found| *found > 0));
    let table = sweep_all("crashed, in place", &crashed(PageStoreKind::InPlace));
    assert!(rows(&table, "log, the last batch").contains_key(&Outcome::Earlier), "as the head of this file says");
}
