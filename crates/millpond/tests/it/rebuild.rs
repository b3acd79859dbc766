//! `rebuild`: superblocks or the map are destroyed, on closed databases and on crash images. Nothing acknowledged may
//! be missing, unless an error says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::inspect::{RebuildOptions, RebuildReport, rebuild_on};
use millpond::simulation::{History, Image, ServiceTime, SimulatedDisk, Unsynced, run};
use millpond::{ByteSize, Db, Error, Options, PageStoreKind, WriteBatch};
use rand::{RngExt, SeedableRng};

use crate::support::{Contents, contents, disk_of, recover, reopen_options, small_options};

/// Writes of a run: positions in the disk's history of begin and acknowledgement, key, version.
pub(crate) type Notes = Vec<(usize, usize, u16, u8)>;

/// How much of the unsynced writes a crash leaves, for a seed.
pub(crate) const MODES: [fn(u64) -> Unsynced; 5] =
    [|_| Unsynced::None, |_| Unsynced::All, Unsynced::Subset, Unsynced::Torn, Unsynced::OneTorn];

/// Several laps of the log, with checkpoints only by the keeper, and a tree dropped early.
pub(crate) fn several_laps(seed: u64, options: Options) -> (History, Notes) {
    let service = ServiceTime { read_ns: 1_000_000, write_ns: 3_000_000, sync_ns: 6_000_000 };
    let disk = SimulatedDisk::with_image(Image::new(), service);
    let (notes, _) = run(seed, || {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let db = Db::open_on(Arc::new(disk.clone()), options).expect("opened");
        let gone = db.create_tree("gone").expect("created");
        for i in 0..60u16 {
            gone.put(i.to_be_bytes(), [1; 700]).expect("written");
        }
        db.checkpoint().expect("done");
        db.drop_tree("gone").expect("dropped");
        let tree = db.create_tree("t").expect("created");
        let mut notes = Notes::new();
        for turn in 0..2200u32 {
            let key = if turn < 200 { u16::try_from(turn).expect("small") } else { rng.random_range(0..400) };
            let version = u8::try_from(turn / 9).expect("small");
            let began = disk.boundaries();
            tree.put(key.to_be_bytes(), vec![version; rng.random_range(500..1000)]).expect("written");
            notes.push((began, disk.boundaries(), key, version));
        }
        db.close().expect("closed");
        notes
    });
    (disk.history(), notes)
}

/// For each key the version acknowledged before `boundary`, and the version whose write was under way. A new key may
/// have only the latter.
pub(crate) fn acknowledged(notes: &Notes, boundary: usize) -> BTreeMap<u16, [Option<u8>; 2]> {
    let mut rows: BTreeMap<u16, [Option<u8>; 2]> = BTreeMap::new();
    for (_, acknowledged, key, version) in notes.iter().filter(|note| note.0 < boundary) {
        rows.entry(*key).or_default()[usize::from(*acknowledged > boundary)] = Some(*version);
    }
    rows
}

/// Whether `found` equals the writes acknowledged before `boundary`, with or without the write under way.
pub(crate) fn compare(found: &Contents, notes: &Notes, boundary: usize) -> Result<(), String> {
    let rows = acknowledged(notes, boundary);
    let none = BTreeMap::new();
    let there = found.get("t").unwrap_or(&none);
    for (key, versions) in &rows {
        let value = there.get(&key.to_be_bytes()[..]).and_then(|value| value.first().copied());
        if !is_one_of(value, *versions) {
            return Err(format!("key {key} is {value:?}, acknowledged and under way were {versions:?}"));
        }
    }
    match there.len() <= rows.len() && !found.contains_key("gone") {
        true => Ok(()),
        false => Err("rows or trees are there that no client wrote".to_owned()),
    }
}

pub(crate) fn is_one_of(value: Option<u8>, [acknowledged, under_way]: [Option<u8>; 2]) -> bool {
    value == acknowledged || (value.is_some() && value == under_way)
}

/// The name of a loss, and the function that causes it.
pub(crate) type Loss = (&'static str, fn(&mut Image));

/// Losses that a rebuild repairs. If superblocks are lost, their copies before the directories give the checkpoint. If
/// such a copy is lost, too, the log's files must give it.
pub(crate) const LOSSES: [Loss; 5] = [
    ("superblocks", lose_superblocks),
    ("superblocks and a directory", |image| {
        lose_superblocks(image);
        lose(image, "directory-1.mpd");
    }),
    ("superblocks and map", lose_superblocks_and_map),
    ("map", lose_map),
    ("map pages", |image| {
        image.get_mut("map.mpd").expect("there").chunks_mut(4096).for_each(|block| block[80] ^= 1);
    }),
];

pub(crate) fn lose(image: &mut Image, name: &str) {
    image.get_mut(name).expect("there").fill(0x5a);
}

pub(crate) fn lose_superblocks(image: &mut Image) {
    if let Some(data) = image.get_mut("data.mpd") {
        data[..1 << 20].fill(0);
    }
}

fn lose_map(image: &mut Image) {
    image.remove("map.mpd");
    lose(image, "directory-0.mpd");
    lose(image, "directory-1.mpd");
}

pub(crate) fn lose_superblocks_and_map(image: &mut Image) {
    lose_superblocks(image);
    lose_map(image);
}

pub(crate) fn rebuild(disk: &SimulatedDisk) -> Result<RebuildReport, Error> {
    rebuild_on(Arc::new(disk.clone()), &RebuildOptions::default())
}

/// Rebuilds, with force if the database opens. `Ok(None)`: it was refused.
pub(crate) fn rebuild_in_any_case(disk: &SimulatedDisk) -> Result<Option<RebuildReport>, String> {
    let mut options = RebuildOptions::default();
    let mut report = rebuild_on(Arc::new(disk.clone()), &options);
    if matches!(report, Err(Error::InvalidOptions(_))) {
        options.force = true;
        report = rebuild_on(Arc::new(disk.clone()), &options);
    }
    match report {
        Ok(report) => Ok(Some(report)),
        Err(Error::Corruption(_)) => Ok(None),
        Err(error) => Err(format!("rebuild: {error}")),
    }
}

/// Destroys, rebuilds, opens, reads, checks. `Ok(None)`: the rebuild refused, or it reported a loss and a page was then
/// unreadable.
fn after(image: &Image, lose: fn(&mut Image)) -> Result<Option<Contents>, String> {
    let mut image = image.clone();
    lose(&mut image);
    let disk = disk_of(image);
    let report = match rebuild(&disk) {
        Ok(report) => report,
        Err(Error::Corruption(_)) => return Ok(None),
        // The lost parts were of no use yet: no map page had been written.
        Err(error) if error.to_string().contains("nothing to rebuild") => {
            return recover(&disk).map(Some).map_err(|problem| format!("opens, and then {problem}"));
        }
        Err(error) => return Err(format!("rebuild: {error}")),
    };
    match recover(&disk) {
        Ok(found) if report.lost.is_empty() => Ok(Some(found)),
        Err(_) if !report.lost.is_empty() => Ok(None),
        Ok(_) => Err(format!("reported as lost, and all there: {:?}", report.lost)),
        Err(problem) => Err(format!("{problem}; {report:?}")),
    }
}

#[test]
fn a_closed_database_comes_back_whole() {
    for (seed, kind) in [(1, PageStoreKind::CopyOnWrite), (2, PageStoreKind::InPlace)] {
        let (history, notes) = several_laps(seed, small_options().page_store(kind));
        let image = history.crash_image(history.boundaries(), Unsynced::None);
        for (_, lose) in LOSSES {
            let found = after(&image, lose).expect("rebuilt").expect("nothing is lost");
            compare(&found, &notes, history.boundaries()).expect("all rows");
        }
    }
}

#[test]
fn a_crashed_database_comes_back_whole_or_says_that_it_cannot() {
    let (history, notes) = several_laps(3, small_options());
    let all = history.boundaries();
    let (mut whole, mut refused) = (0, 0);
    let step = if std::env::var_os("MILLPOND_FULL").is_some() { 7 } else { (all / 19).max(1) };
    for boundary in (all / 8..=all).step_by(step) {
        for (mode, (_, lose)) in MODES.iter().flat_map(|mode| LOSSES.map(|loss| (mode, loss))) {
            let mode = mode(u64::try_from(boundary).expect("small"));
            let image = history.crash_image(boundary, mode);
            let found = run(1, || after(&image, lose)).0;
            match found.unwrap_or_else(|problem| unreachable!("crash at {boundary} with {mode:?}: {problem}")) {
                Some(found) => {
                    whole += 1;
                    let right = compare(&found, &notes, boundary);
                    right.unwrap_or_else(|problem| unreachable!("crash at {boundary} with {mode:?}: {problem}"));
                }
                None => refused += 1,
            }
        }
    }
    assert!(whole > 20 * refused, "{whole} came back whole, {refused} were refused");
}

#[test]
fn a_crash_of_the_rebuild_is_mended_by_the_next_one() {
    let (history, notes) = several_laps(4, small_options());
    let boundary = history.boundaries() * 2 / 3;
    let mut image = history.crash_image(boundary, Unsynced::None);
    lose_superblocks(&mut image);
    lose_map(&mut image);
    let first = disk_of(image);
    rebuild(&first).expect("rebuilt");
    let second = first.history();
    for at in 0..=second.boundaries() {
        for mode in [Unsynced::None, Unsynced::All, Unsynced::Torn(7)] {
            let disk = disk_of(second.crash_image(at, mode));
            let found = recover(&disk).or_else(|_| {
                rebuild(&disk).map_err(|error| error.to_string())?;
                recover(&disk)
            });
            let found = found.unwrap_or_else(|problem| unreachable!("at {at} with {mode:?}: {problem}"));
            compare(&found, &notes, boundary).expect("all rows");
        }
    }
}

#[test]
fn damaged_page_is_reported_and_no_older_one_replaces_it() {
    let (history, notes) = several_laps(5, small_options());
    let image = history.crash_image(history.boundaries(), Unsynced::None);
    let slots = image["data.mpd"].len() / 4096;
    let (mut reported, mut unharmed) = (0, 0);
    for slot in (256..slots).step_by(3) {
        let mut damaged = image.clone();
        damaged.get_mut("data.mpd").expect("there")[slot * 4096 + 900] ^= 1;
        match after(&damaged, lose_superblocks).expect("rebuilt") {
            None => reported += 1,
            Some(found) => {
                unharmed += 1;
                compare(&found, &notes, history.boundaries()).expect("all rows");
            }
        }
    }
    assert!(reported > 10 && unharmed > 10, "{reported} {unharmed}");
}

#[test]
fn a_sound_database_is_left_alone_unless_forced() {
    let (history, notes) = several_laps(6, small_options());
    let image = history.crash_image(history.boundaries() / 2, Unsynced::None);
    let disk = disk_of(image.clone());
    assert!(matches!(rebuild(&disk), Err(Error::InvalidOptions(text)) if text.contains("opens")));
    assert_eq!(disk.image(), image);
    let mut options = RebuildOptions::default();
    options.force = true;
    let report = rebuild_on(Arc::new(disk.clone()), &options).expect("rebuilt");
    assert!(report.checkpoint_known && report.lost.is_empty(), "{report:?}");
    compare(&recover(&disk).expect("sound"), &notes, history.boundaries() / 2).expect("all rows");
    let db = Db::open_on(Arc::new(disk), reopen_options()).expect("opened");
    db.create_tree("new").expect("created").put(b"k", b"v").expect("written");
    assert_eq!(contents(&db).expect("read")["new"].len(), 1);
    db.close().expect("closed");
}

/// A run in which the log moves to another ring. The range is from the begin of that to its end.
fn goes_over(seed: u64) -> (History, Notes, std::ops::Range<usize>) {
    let disk = SimulatedDisk::new();
    let ((notes, change), _) = run(seed, || {
        let db = Db::open_on(Arc::new(disk.clone()), small_options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        let mut notes = Notes::new();
        let mut put = |turns: std::ops::Range<u16>| {
            for turn in turns {
                let (key, version) = (turn % 300, u8::try_from(turn % 251).expect("a byte"));
                let began = disk.boundaries();
                tree.put(key.to_be_bytes(), [version; 700]).expect("put");
                notes.push((began, disk.boundaries(), key, version));
            }
        };
        put(0..900);
        let before = disk.boundaries();
        db.set_redo_capacity(ByteSize::kib(768)).expect("changed");
        put(900..940);
        let change = before..disk.boundaries();
        put(940..1200);
        drop(tree);
        db.close().expect("closed");
        (notes, change)
    });
    (disk.history(), notes, change)
}

#[test]
fn a_log_that_goes_over_to_another_ring_is_found() {
    let (history, notes, change) = goes_over(7);
    let (mut whole, mut refused, mut laps_alone) = (0, 0, 0);
    for boundary in change.chain([history.boundaries()]) {
        let mode = MODES[boundary % MODES.len()](u64::try_from(boundary).expect("small"));
        let image = history.crash_image(boundary, mode);
        // A crash may keep a lap, and lose its groups.
        let mut second = image.iter().filter(|(name, _)| name.starts_with("redo-1-")).map(|(_, bytes)| bytes);
        let lap_alone = image.contains_key("redo-0-0.mpd")
            && second.clone().any(|bytes| bytes.get(512..532).is_some_and(|lap| lap != [0; 20]))
            && second.all(|bytes| bytes.iter().skip(4096).all(|byte| *byte == 0));
        laps_alone += usize::from(lap_alone);
        for (what, lose) in LOSSES {
            match after(&image, lose).unwrap_or_else(|problem| unreachable!("at {boundary}: {problem}")) {
                // Files of a ring in creation or removal are there; without a checkpoint the rebuild cannot know that.
                None if what.starts_with("superblocks and") && !lap_alone => refused += 1,
                None => unreachable!("at {boundary} with {mode:?}: {what} lost, and refused"),
                Some(found) => {
                    whole += 1;
                    let right = compare(&found, &notes, boundary);
                    right.unwrap_or_else(|problem| unreachable!("at {boundary} with {mode:?}: {problem}"));
                }
            }
        }
    }
    assert!(laps_alone > 0 && whole > 5 * refused, "{laps_alone}; {whole} came back whole, {refused} were refused");
}

/// Damages a log file, or all of its ring.
fn lose_log(image: &mut Image, name: &str, what: &str) {
    let ring = &name[..name.len() - "0.mpd".len()];
    for (_, bytes) in
        image.iter_mut().filter(|(other, _)| *other == name || (what == "laps" && other.starts_with(ring)))
    {
        match what {
            "header" => bytes[..512].fill(0x5a),
            "lap" => bytes[512..1024].fill(0x5a),
            "laps" => bytes[512..1024].fill(0),
            _ => bytes.clear(),
        }
    }
    if what == "file" {
        image.remove(name);
    }
}

#[test]
fn log_file_that_may_hold_groups_is_never_passed_over() {
    let (over, over_notes, change) = goes_over(8);
    let (laps, laps_notes) = several_laps(16, small_options());
    let over_boundaries: Vec<usize> = change.step_by(9).chain([over.boundaries()]).collect();
    let laps_boundaries: Vec<usize> = (0..=laps.boundaries()).skip(laps.boundaries() / 8).step_by(1009).collect();
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    for (history, notes, boundaries) in [(&over, &over_notes, over_boundaries), (&laps, &laps_notes, laps_boundaries)] {
        for boundary in boundaries {
            let image = history.crash_image(boundary, Unsynced::None);
            for name in image.keys().filter(|name| name.starts_with("redo-")) {
                for what in ["header", "lap", "laps", "file"] {
                    let mut damaged = image.clone();
                    lose_log(&mut damaged, name, what);
                    let context = || format!("at {boundary}, {what} of {name} lost");
                    match after(&damaged, lose_superblocks_and_map)
                        .unwrap_or_else(|problem| unreachable!("{}: {problem}", context()))
                    {
                        None => *refused.entry(what).or_default() += 1,
                        Some(found) => compare(&found, notes, boundary)
                            .unwrap_or_else(|problem| unreachable!("{}: {problem}", context())),
                    }
                }
            }
        }
    }
    assert!(refused.len() == 4 && refused.values().all(|count| *count > 2), "{refused:?}");
}

#[test]
fn only_force_passes_over_a_ring_that_does_not_fit() {
    let holds_groups = |bytes: &Vec<u8>| bytes[4096..].iter().any(|byte| *byte != 0);
    // The schedule decides whether there is such a moment.
    let both = |seed| {
        let (history, _, change) = goes_over(seed);
        let images = change.rev().map(|boundary| history.crash_image(boundary, Unsynced::None));
        let both = |image: &Image| {
            let mut second = image.iter().filter(|(name, _)| name.starts_with("redo-1-"));
            image.contains_key("redo-0-0.mpd") && second.any(|(_, bytes)| holds_groups(bytes))
        };
        images.into_iter().find(both)
    };
    let mut without_laps = (9..29).find_map(both).expect("both rings hold groups");
    let mut without_groups = without_laps.clone();
    lose_log(&mut without_laps, "redo-1-0.mpd", "laps");
    for (_, bytes) in without_groups.iter_mut().filter(|(name, _)| name.starts_with("redo-0-")) {
        bytes[4096..].fill(0x5a);
    }
    for (mut image, why) in [(without_laps, "redo-1-"), (without_groups, "does not lead on")] {
        lose_superblocks_and_map(&mut image);
        let disk = disk_of(image);
        let error = rebuild(&disk).expect_err("refused").to_string();
        assert!(error.contains(why) && error.contains("use force"), "{error}");
        let mut options = RebuildOptions::default();
        options.force = true;
        rebuild_on(Arc::new(disk.clone()), &options).expect("rebuilt");
    }
}

/// Log files are missing. In a closed database they held nothing needed, but the rebuild cannot know that it was
/// closed. Only with force does it go on without them, and says which changes may be lost.
#[test]
fn log_files_that_are_missing_are_made_anew_when_forced() {
    let (history, notes) = several_laps(10, small_options());
    let image = history.crash_image(history.boundaries(), Unsynced::All);
    let logs: Vec<&String> = image.keys().filter(|name| name.starts_with("redo-")).collect();
    assert_eq!(logs.len(), 4);
    for gone in [&logs[..1], &logs[1..2], &logs[2..3], &logs[3..], &logs[..]] {
        let mut image = image.clone();
        image.retain(|name, _| !gone.contains(&name));
        let disk = disk_of(image);
        for error in [Db::open_on(Arc::new(disk.clone()), reopen_options()).map(|_| ()), rebuild(&disk).map(|_| ())] {
            let error = error.expect_err("a file is missing");
            let text = error.to_string();
            assert!(matches!(error, Error::Corruption(_)), "{text}");
            assert!(text.contains(gone[0]) && text.contains("rebuild --force"), "{text}");
        }
        let mut options = RebuildOptions::default();
        options.force = true;
        let report = rebuild_on(Arc::new(disk.clone()), &options).expect("rebuilt");
        assert_eq!(report.lost.len(), gone.len(), "{:?}", report.lost);
        assert!(report.lost[0].contains(gone[0]), "{:?}", report.lost);
        compare(&recover(&disk).expect("sound"), &notes, history.boundaries()).expect("all rows");
    }
}

/// A crashed database with acknowledged rows in each of two log files, one of which is missing; and the number of rows.
fn without_a_log_file(gone: &str) -> (Image, usize) {
    let disk = SimulatedDisk::new();
    let (mut image, _) = run(7, || {
        let db = Db::open_on(Arc::new(disk.clone()), small_options().buffer_pool_size(ByteSize::mib(1)));
        let db = db.expect("opened");
        let tree = db.create_tree("t").expect("created");
        db.checkpoint().expect("done");
        (0..220u32).for_each(|row| tree.put(row.to_be_bytes(), [1; 900]).expect("written"));
        let image = disk.crash_now(Unsynced::None);
        db.close().expect("closed");
        image
    });
    image.remove(gone).expect("there");
    (image, 220)
}

/// A rebuild without a log file is cut short, or fails, at any call. Until one is complete, no open takes the database
/// for whole, and the next rebuild completes with the same report.
#[test]
fn interrupted_rebuild_without_a_log_file_hides_no_loss() {
    let mut options = RebuildOptions::default();
    options.force = true;
    for gone in ["redo-0-0.mpd", "redo-0-1.mpd"] {
        let (image, rows) = without_a_log_file(gone);
        let count = |disk: &SimulatedDisk| recover(disk).map(|found| found.get("t").map_or(0, BTreeMap::len));
        let whole = disk_of(image.clone());
        let report = rebuild_on(Arc::new(whole.clone()), &options).expect("rebuilt");
        let calls = whole.calls();
        assert!(!report.lost.is_empty() && count(&whole) != Ok(rows), "{:?}", report.lost);
        assert!(calls > 100, "{calls}");
        for (call, dies) in (0..calls).flat_map(|call| [(call, true), (call, false)]) {
            let disk = disk_of(image.clone());
            if dies {
                disk.halt_at(call);
            } else {
                disk.fail_at(call, std::io::ErrorKind::Other);
            }
            if rebuild_on(Arc::new(disk.clone()), &options).is_ok() {
                // The failure did not matter: the call looked for a file, or read a copy.
                continue;
            }
            disk.go_on();
            disk.fail_at(u64::MAX, std::io::ErrorKind::Other);
            let disk = disk_of(disk.image());
            // Before the last two calls the file has its name: then the rebuild is complete.
            let through = call + 2 >= calls;
            assert!(through || count(&disk).is_err(), "{gone}, call {call}: opens with {:?} rows", count(&disk));
            let again = rebuild_on(Arc::new(disk.clone()), &options);
            let again = again.unwrap_or_else(|error| unreachable!("{gone}, call {call}: {error}"));
            assert!(through || !again.lost.is_empty(), "{gone}, call {call}: the loss is forgotten");
        }
    }
}

/// The lap of the first file is lost, and the current epoch began in the middle of that file. The log leads back only
/// to that place, and the checkpoint is before it.
#[test]
fn unreached_log_file_without_a_lap_is_a_doubt() {
    let put = |db: &Db, keys: std::ops::Range<u16>, value: u8| {
        let tree = db.open_tree("t").expect("there");
        let mut batch = WriteBatch::new();
        keys.for_each(|key| _ = batch.put(&tree, key.to_be_bytes(), [value; 700]));
        db.write(batch).expect("written");
    };
    let disk = SimulatedDisk::new();
    let (crashed, _) = run(10, || {
        let db = Db::open_on(Arc::new(disk.clone()), small_options()).expect("opened");
        db.create_tree("t").expect("created");
        (0..80).for_each(|key| put(&db, key..key + 1, 1));
        let image = disk.crash_now(Unsynced::None);
        db.close().expect("closed");
        image
    });
    let disk = disk_of(crashed);
    let (mut image, _) = run(11, || {
        let db = Db::open_on(Arc::new(disk.clone()), reopen_options()).expect("opened");
        (0..20).for_each(|turn| put(&db, turn * 5..turn * 5 + 5, 2));
        let image = disk.crash_now(Unsynced::None);
        db.close().expect("closed");
        image
    });
    assert!(image["redo-0-1.mpd"][4096..].iter().any(|byte| *byte != 0), "the log is in the second file");
    lose_superblocks_and_map(&mut image);
    let sound = disk_of(image.clone());
    assert!(rebuild(&sound).expect("rebuilt").lost.is_empty());
    assert_eq!(recover(&sound).expect("sound")["t"].len(), 100);
    lose_log(&mut image, "redo-0-0.mpd", "lap");
    let error = rebuild(&disk_of(image)).expect_err("refused").to_string();
    assert!(error.contains("redo-0-0.mpd") && error.contains("does not say where"), "{error}");
}

/// A tree that is filled, thinned out and filled again, over several laps of the log.
fn breathes(seed: u64, options: Options) -> History {
    let service = ServiceTime { read_ns: 1_000_000, write_ns: 3_000_000, sync_ns: 6_000_000 };
    let disk = SimulatedDisk::with_image(Image::new(), service);
    run(seed, || {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let db = Db::open_on(Arc::new(disk.clone()), options).expect("opened");
        let tree = db.create_tree("t").expect("created");
        for round in 0..4u8 {
            for key in 0..300u16 {
                tree.put(key.to_be_bytes(), vec![round; rng.random_range(300..900)]).expect("written");
            }
            for _ in 0..500 {
                tree.delete(rng.random_range(0..300u16).to_be_bytes()).expect("deleted");
            }
            millpond::simulation::sleep_ns(500_000_000);
        }
        assert!(db.stats().tree_pages_freed > 100, "{:?}", db.stats());
        db.close().expect("closed");
    });
    disk.history()
}

#[test]
fn pages_that_were_given_back_do_not_come_back() {
    for (seed, store) in [(20, PageStoreKind::CopyOnWrite), (21, PageStoreKind::InPlace)] {
        let history = breathes(seed, small_options().page_store(store));
        let all = history.boundaries();
        let step = if std::env::var_os("MILLPOND_FULL").is_some() { 7 } else { (all / 26).max(1) };
        let (mut whole, mut refused) = (0, 0);
        for boundary in (all / 8..=all).step_by(step).chain([all]) {
            let image = history.crash_image(boundary, Unsynced::Subset(u64::try_from(boundary).expect("small")));
            let expected = run(1, || recover(&disk_of(image.clone()))).0.expect("sound");
            for (what, lose) in LOSSES {
                let found = run(1, || after(&image, lose)).0;
                match found.unwrap_or_else(|problem| unreachable!("crash at {boundary}, {what} lost: {problem}")) {
                    Some(found) => {
                        whole += 1;
                        assert!(found == expected, "crash at {boundary}, {what} lost");
                    }
                    None => refused += 1,
                }
            }
        }
        assert!(whole > 20 * refused, "{whole} came back whole, {refused} were refused");
    }
}
