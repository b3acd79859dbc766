//! `rebuild`: superblocks or the map are destroyed, on closed databases and on crash images; nothing acknowledged may
//! be missing, or an error says that it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::simulation::{History, Image, ServiceTime, SimulatedDisk, Unsynced, run};
use millpond::{ByteSize, Db, Error, Options, PageStoreKind, RebuildOptions, RebuildReport, Tree, rebuild_on};
use rand::{RngExt, SeedableRng};

use crate::support::{Contents, contents, disk_of, recover, reopen_options, small_options};

/// What a run wrote: positions in the disk's history at which a write began and was acknowledged, key, version.
type Notes = Vec<(usize, usize, u16, u8)>;

/// Several laps of the log, with checkpoints by the keeper only, and a tree dropped before.
fn several_laps(seed: u64, options: Options) -> (History, Notes) {
    let service = ServiceTime { read_ns: 1_000_000, write_ns: 3_000_000, sync_ns: 6_000_000 };
    let disk = SimulatedDisk::with_image(Image::new(), service);
    let (notes, _) = run(seed, || {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let db = Db::open_on(Arc::new(disk.clone()), options).expect("opened");
        let gone = db.create_tree("gone").expect("created");
        for i in 0..60u16 {
            gone.put(&i.to_be_bytes(), &[1; 700]).expect("written");
        }
        db.checkpoint().expect("done");
        db.drop_tree("gone").expect("dropped");
        let tree = db.create_tree("t").expect("created");
        let mut notes = Notes::new();
        for turn in 0..2200u32 {
            let key = if turn < 200 { u16::try_from(turn).expect("small") } else { rng.random_range(0..400) };
            let version = u8::try_from(turn / 9).expect("small");
            let began = disk.boundaries();
            tree.put(&key.to_be_bytes(), &vec![version; rng.random_range(500..1000)]).expect("written");
            notes.push((began, disk.boundaries(), key, version));
        }
        db.close().expect("closed");
        notes
    });
    (disk.history(), notes)
}

/// Whether `found` is what was acknowledged before `boundary`; the write under way may be there or not.
fn compare(found: &Contents, notes: &Notes, boundary: usize) -> Result<(), String> {
    let mut rows: BTreeMap<u16, (u8, Option<u8>)> = BTreeMap::new();
    for (began, acknowledged, key, version) in notes {
        if *acknowledged <= boundary {
            rows.insert(*key, (*version, None));
        } else if *began < boundary {
            let before = rows.get(key).map_or(*version, |(before, _)| *before);
            rows.insert(*key, (before, Some(*version)));
        }
    }
    let none = BTreeMap::new();
    let there = found.get("t").unwrap_or(&none);
    for (key, (version, under_way)) in &rows {
        let value = there.get(&key.to_be_bytes()[..]).and_then(|value| value.first().copied());
        let new = under_way.is_some() && notes.iter().filter(|note| note.2 == *key && note.1 <= boundary).count() == 0;
        if value != Some(*version) && value != *under_way && !(new && value.is_none()) {
            return Err(format!("key {key} is {value:?}, acknowledged was {version}, under way {under_way:?}"));
        }
    }
    match there.len() <= rows.len() && !found.contains_key("gone") {
        true => Ok(()),
        false => Err("rows or trees are there that nobody wrote".to_owned()),
    }
}

fn lose_superblocks(image: &mut Image) {
    if let Some(data) = image.get_mut("data.mpd") {
        data[..1 << 20].fill(0);
    }
}

fn lose_map(image: &mut Image) {
    image.remove("map.mpd");
    for name in ["directory-0.mpd", "directory-1.mpd"] {
        image.get_mut(name).expect("there").fill(0x5a);
    }
}

fn rebuild(disk: &SimulatedDisk) -> Result<RebuildReport, Error> {
    rebuild_on(Arc::new(disk.clone()), &RebuildOptions::default())
}

/// Destroys, rebuilds, opens, reads, checks. `Ok(None)`: the rebuild refused, or reported loss and a page then failed.
fn after(image: &Image, lose: fn(&mut Image)) -> Result<Option<Contents>, String> {
    let mut image = image.clone();
    lose(&mut image);
    let disk = disk_of(image);
    let report = match rebuild(&disk) {
        Ok(report) => report,
        Err(Error::Corruption(_)) => return Ok(None),
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
        for lose in [lose_superblocks, lose_map, |image: &mut Image| (lose_superblocks(image), lose_map(image)).0] {
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
    let modes: [fn(u64) -> Unsynced; 5] =
        [|_| Unsynced::None, |_| Unsynced::All, Unsynced::Subset, Unsynced::Torn, Unsynced::OneTorn];
    let step = if std::env::var_os("MILLPOND_FULL").is_some() { 7 } else { (all / 60).max(1) };
    for boundary in (all / 8..=all).step_by(step) {
        for (mode, lose) in modes.iter().flat_map(|mode| [(mode, lose_superblocks as fn(&mut Image)), (mode, lose_map)])
        {
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
fn a_damaged_page_is_reported_and_never_replaced_by_an_older_one() {
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

#[test]
fn a_log_that_goes_over_to_another_ring_is_found() {
    let disk = SimulatedDisk::new();
    let db = Db::open_on(Arc::new(disk.clone()), small_options()).expect("opened");
    let tree = db.create_tree("t").expect("created");
    let mut put = {
        let mut turn = 0u32;
        move |tree: &Tree, count: u32| {
            for _ in 0..count {
                tree.put(&(turn % 300).to_be_bytes(), &[u8::try_from(turn % 251).expect("a byte"); 700]).expect("put");
                turn += 1;
            }
            turn
        }
    };
    put(&tree, 900);
    let before = disk.boundaries();
    db.set_redo_capacity(ByteSize::kib(768)).expect("changed");
    put(&tree, 40);
    let changed = disk.boundaries();
    let turns = put(&tree, 260);
    let history = disk.history();
    db.close().expect("closed");
    let (mut whole, mut refused) = (0, 0);
    for boundary in (before..changed).step_by(3).chain([history.boundaries()]) {
        let image = history.crash_image(boundary, Unsynced::None);
        match after(&image, lose_superblocks).unwrap_or_else(|problem| unreachable!("at {boundary}: {problem}")) {
            None => refused += 1,
            Some(found) => {
                whole += 1;
                assert_eq!(found["t"].len(), 300, "at {boundary}");
                let sound = recover(&disk_of(image)).expect("sound");
                assert_eq!(found["t"], sound["t"], "at {boundary}: the same as with superblocks");
            }
        }
    }
    assert!(turns == 1200 && whole > 10 * refused, "{whole} came back whole, {refused} were refused");
}
