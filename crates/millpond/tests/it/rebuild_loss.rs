//! `rebuild` of databases with missing images: an older image never silently replaces a page's newest, and nothing
//! sound is reported as lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::simulation::{History, Image, SimulatedDisk, Unsynced, run};
use millpond::{Db, Error, Options, PageStoreKind};

use crate::rebuild::{
    LOSSES, Loss, MODES, Notes, acknowledged, compare, is_one_of, lose_superblocks, lose_superblocks_and_map, rebuild,
    rebuild_in_any_case, several_laps,
};
use crate::support::{disk_of, recover, reopen_options, small_options};

/// Rows that are written twice and then left alone, while a few other rows fill the log for some laps. The log knows
/// nothing of the cold rows' pages any more, and their older images are still there.
fn cold_rows(seed: u64, options: Options) -> (History, Notes) {
    let disk = SimulatedDisk::new();
    let (notes, _) = run(seed, || {
        let db = Db::open_on(Arc::new(disk.clone()), options).expect("opened");
        let tree = db.create_tree("t").expect("created");
        let mut notes = Notes::new();
        let mut put = |key: u16, version: u8| {
            let began = disk.boundaries();
            tree.put(key.to_be_bytes(), [version; 800]).expect("written");
            notes.push((began, disk.boundaries(), key, version));
        };
        for version in [1, 2] {
            (0..150).for_each(|key| put(key, version));
            db.checkpoint().expect("done");
        }
        (0..2000).for_each(|turn| put(1000 + turn % 7, u8::try_from(turn / 8).expect("small")));
        db.close().expect("closed");
        notes
    });
    (disk.history(), notes)
}

/// The slots of 4 KiB that hold any bytes but zeroes.
fn slots_in_use(image: &Image) -> Vec<usize> {
    let data = &image["data.mpd"];
    let slots = (1 << 20..data.len()).step_by(4096);
    slots.filter(|at| data[*at..at + 4096].iter().any(|byte| *byte != 0)).collect()
}

/// Slots with an image of a page that has a newer image.
fn slots_of_older_images(image: &Image) -> Vec<usize> {
    older_and_next(image).into_iter().map(|(older, _)| older).collect()
}

/// The same, each with the slot of the page's next image.
pub(crate) fn older_and_next(image: &Image) -> Vec<(usize, usize)> {
    let number = |at: usize| u64::from_le_bytes(image["data.mpd"][at..at + 8].try_into().expect("eight bytes"));
    // Page id, page LSN, slot.
    let mut images: Vec<_> = slots_in_use(image).into_iter().map(|at| (number(at + 8), number(at + 16), at)).collect();
    images.sort_unstable();
    images
        .windows(2)
        .filter(|pair| pair[0].0 == pair[1].0 && pair[0].1 < pair[1].1)
        .map(|pair| (pair[0].2, pair[1].2))
        .collect()
}

fn zero_slot(image: &mut Image, at: usize) {
    image.get_mut("data.mpd").expect("there")[at..at + 4096].fill(0);
}

/// A flipped bit: in the page id, in the page LSN, or in bytes that only the checksum covers.
fn flip_in_slot(image: &mut Image, at: usize, turn: usize) {
    image.get_mut("data.mpd").expect("there")[at + [8, 17, 900][turn % 3]] ^= 1;
}

/// Reads key by key: rows of a lost page are errors, all others are as acknowledged. Returns the number of lost rows.
fn rows_lost(disk: &SimulatedDisk, notes: &Notes, boundary: usize) -> Result<usize, String> {
    let db = Db::open_on(Arc::new(disk.clone()), reopen_options()).map_err(|e| format!("open: {e}"))?;
    let tree = db.open_tree("t").map_err(|e| format!("open tree: {e}"))?;
    let mut lost = 0;
    for (key, versions) in acknowledged(notes, boundary) {
        match tree.get(key.to_be_bytes()) {
            Ok(value) if is_one_of(value.as_ref().and_then(|value| value.first().copied()), versions) => {}
            Err(Error::Corruption(_)) => lost += 1,
            other => return Err(format!("key {key} is {other:?}, acknowledged and under way were {versions:?}")),
        }
    }
    Ok(lost)
}

/// Files of `before` that the first rebuild replaced without an unchanged copy.
fn not_kept(after: &Image, before: &Image) -> Vec<&'static str> {
    let names = ["map.mpd", "directory-0.mpd", "directory-1.mpd", "data.mpd"];
    let is_kept = |name: &&str| {
        let upto = if *name == "data.mpd" { 1 << 20 } else { before[*name].len() };
        after.get(&format!("old-0-{name}")).is_some_and(|kept| *kept == before[*name][..upto])
    };
    names.into_iter().filter(|name| !is_kept(name)).collect()
}

/// The result of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Refused,
    /// All rows are there, and the report names no loss.
    Whole,
    /// Pages are unproven, and some are older.
    Unproven,
    /// Pages are lost, and all other rows are there.
    Lost,
    /// Pages are lost, and the database does not open: pages of the catalog, or pages with changes in the log.
    Closed,
}

/// Rebuilds, and compares the contents with the report.
fn end_of(disk: &SimulatedDisk, notes: &Notes, boundary: usize) -> Result<End, String> {
    let Some(report) = rebuild_in_any_case(disk)? else { return Ok(End::Refused) };
    if !report.lost.is_empty() {
        return match rows_lost(disk, notes, boundary) {
            Ok(_) => Ok(End::Lost),
            Err(problem) if problem.starts_with("open") => Ok(End::Closed),
            Err(_) if report.unproven_pages > 0 => Ok(End::Unproven),
            Err(problem) => Err(format!("{problem}; {report:?}")),
        };
    }
    match recover(disk).and_then(|found| compare(&found, notes, boundary)) {
        Ok(()) => Ok(End::Whole),
        Err(_) if report.unproven_pages > 0 => Ok(End::Unproven),
        Err(problem) => Err(format!("{problem}; {report:?}")),
    }
}

const NO_LOSS: Loss = ("nothing", |_| ());

#[test]
fn page_without_its_newest_image_is_lost_despite_an_older_one() {
    for (seed, kind) in [(7, PageStoreKind::CopyOnWrite), (8, PageStoreKind::InPlace)] {
        let (history, notes) = cold_rows(seed, small_options().page_store(kind));
        let all = history.boundaries();
        let image = history.crash_image(all, Unsynced::None);
        let (mut lost, mut older_is_there, mut unharmed) = (0, 0, 0);
        for slot in slots_in_use(&image) {
            let mut damaged = image.clone();
            zero_slot(&mut damaged, slot);
            lose_superblocks(&mut damaged);
            let disk = disk_of(damaged);
            let report = rebuild(&disk).expect("rebuilt");
            assert_eq!(report.unproven_pages, 0, "slot at {slot}: {report:?}");
            if report.lost.is_empty() {
                unharmed += 1;
                compare(&recover(&disk).expect("sound"), &notes, all).expect("all rows");
                continue;
            }
            assert_eq!(report.lost.len(), 1, "slot at {slot}: {report:?}");
            lost += 1;
            older_is_there += usize::from(report.lost[0].contains("one of LSN"));
            match rows_lost(&disk, &notes, all) {
                // An undo page; or a leaf, or the root above all leaves.
                Ok(rows) if report.lost[0].starts_with("page 1:") => assert_eq!(rows, 0, "slot at {slot}: {report:?}"),
                Ok(rows) => assert!((1..10).contains(&rows) || rows > 100, "slot at {slot}: {rows}, {report:?}"),
                // A page of the catalog.
                Err(problem) => assert!(problem.starts_with("open"), "slot at {slot}: {problem}"),
            }
        }
        match kind {
            PageStoreKind::CopyOnWrite => assert!(older_is_there > 25 && unharmed > 25, "{older_is_there} {unharmed}"),
            _ => assert!(lost > 25 && unharmed < 5, "{lost} {unharmed}"),
        }
    }
}

/// Whether a slot holds part of an image.
fn is_torn(image: &Image) -> bool {
    let mut image = image.clone();
    lose_superblocks(&mut image);
    let report = rebuild_in_any_case(&disk_of(image)).expect("rebuilt or refused");
    report.is_none_or(|report| report.damaged_slots > 0)
}

/// The stride: `full` with MILLPOND_FULL, else `sampled`.
fn one_in(sampled: usize, full: usize) -> usize {
    if std::env::var_os("MILLPOND_FULL").is_some() { full } else { sampled }
}

#[test]
fn whatever_the_report_of_a_loss_does_not_name_is_right() {
    let mut ends: BTreeMap<(&str, End), usize> = BTreeMap::new();
    let runs = [
        (PageStoreKind::CopyOnWrite, cold_rows(9, small_options())),
        (PageStoreKind::InPlace, cold_rows(10, small_options().page_store(PageStoreKind::InPlace))),
        (PageStoreKind::CopyOnWrite, several_laps(17, small_options())),
    ];
    for (kind, (history, notes)) in runs {
        for boundary in (0..history.boundaries()).skip(history.boundaries() / 8).step_by(one_in(1613, 97)) {
            let seed = u64::try_from(boundary).expect("small");
            let image = history.crash_image(boundary, MODES[boundary % MODES.len()](seed));
            // If the crash tore an image, the image before it is the newest.
            let older = if is_torn(&image) { Vec::new() } else { slots_of_older_images(&image) };
            for (turn, slot) in slots_in_use(&image).into_iter().skip(boundary % 3).step_by(3).enumerate() {
                for (what, lose) in LOSSES.into_iter().chain([NO_LOSS]) {
                    let mut damaged = image.clone();
                    match turn % 2 {
                        0 => zero_slot(&mut damaged, slot),
                        _ => flip_in_slot(&mut damaged, slot, turn / 2),
                    }
                    lose(&mut damaged);
                    let end = end_of(&disk_of(damaged), &notes, boundary);
                    let context = || format!("{kind:?}, crash at {boundary}, slot at {slot} ({turn}) and {what} lost");
                    let end = end.unwrap_or_else(|problem| unreachable!("{}: {problem}", context()));
                    // Without the map a flipped header may look like that of a newer image.
                    let is_told = turn % 2 == 0 || ["nothing", "superblocks"].contains(&what);
                    assert!(end == End::Whole || !older.contains(&slot) || !is_told, "{}: {end:?}", context());
                    *ends.entry((what, end)).or_default() += 1;
                }
            }
        }
    }
    let count = |what, end| ends.get(&(what, end)).copied().unwrap_or(0);
    for what in ["nothing", "superblocks"] {
        assert!(count(what, End::Lost) > 20 && count(what, End::Unproven) == 0, "{ends:?}");
    }
    // Without a map there may be no evidence; then the report says so.
    assert!(count("map", End::Unproven) > 10, "{ends:?}");
}

#[test]
fn nothing_is_lost_of_a_sound_database_wherever_it_crashed() {
    for (seed, kind, laps) in [
        (11, PageStoreKind::CopyOnWrite, false),
        (12, PageStoreKind::InPlace, false),
        (13, PageStoreKind::CopyOnWrite, true),
    ] {
        let options = small_options().page_store(kind);
        let (history, notes) = if laps { several_laps(seed, options) } else { cold_rows(seed, options) };
        let mut sound = 0;
        // Before that, the tree to be dropped is there.
        for boundary in (history.boundaries() / 8..=history.boundaries()).step_by(one_in(1009, 11)) {
            for mode in MODES.map(|mode| mode(u64::try_from(boundary).expect("small"))) {
                let image = history.crash_image(boundary, mode);
                // A torn page that is written in place is lost.
                if kind == PageStoreKind::InPlace && recover(&disk_of(image.clone())).is_err() {
                    continue;
                }
                let without_older = |image: &mut Image| {
                    slots_of_older_images(image).into_iter().for_each(|slot| zero_slot(image, slot));
                };
                // Only its checksum shows that a torn image is not the newest.
                let torn = matches!(mode, Unsynced::Torn(_) | Unsynced::OneTorn(_));
                let more = [NO_LOSS, ("older images", without_older)];
                for (what, lose) in LOSSES.into_iter().chain(more).take(if torn { 6 } else { 7 }) {
                    let context = || format!("{kind:?}, crash at {boundary} with {mode:?}, {what} lost");
                    let mut damaged = image.clone();
                    lose(&mut damaged);
                    let disk = disk_of(damaged);
                    let Some(report) = rebuild_in_any_case(&disk).expect("rebuilt") else { continue };
                    let proven = report.unproven_pages == 0 || !["nothing", "superblocks"].contains(&what);
                    assert!(report.lost.is_empty() && proven, "{}: {report:?}", context());
                    let found = recover(&disk).unwrap_or_else(|problem| unreachable!("{}: {problem}", context()));
                    compare(&found, &notes, boundary)
                        .unwrap_or_else(|problem| unreachable!("{}: {problem}", context()));
                    sound += 1;
                }
            }
        }
        assert!(sound > 100, "{sound}");
    }
}

/// The root of a tree becomes an inner page: the log formats it, and does not know its image any more. The image is not
/// needed.
#[test]
fn a_page_that_the_log_formats_anew_needs_no_image() {
    let disk = SimulatedDisk::new();
    let (image, _) = run(16, || {
        let db = Db::open_on(Arc::new(disk.clone()), small_options()).expect("opened");
        let [cold, hot] = ["cold", "hot"].map(|name| db.create_tree(name).expect("created"));
        cold.put(b"a", [1; 700]).expect("written");
        (0..2000u16).for_each(|turn| hot.put((turn % 7).to_be_bytes(), turn.to_be_bytes().repeat(400)).expect("put"));
        db.checkpoint().expect("done");
        (0..20u16).for_each(|key| cold.put(key.to_be_bytes(), [2; 700]).expect("written"));
        let image = disk.crash_now(Unsynced::None);
        drop((cold, hot));
        db.close().expect("closed");
        image
    });
    let rows = recover(&disk_of(image.clone())).expect("sound");
    let is_root = |slot: &usize| image["data.mpd"][slot + 8..slot + 16] == (2u64 << 32).to_le_bytes();
    let roots: Vec<_> = slots_in_use(&image).into_iter().filter(is_root).collect();
    assert_eq!(roots.len(), 1, "of 'cold', from before");
    for (what, lose) in LOSSES.into_iter().chain([NO_LOSS]) {
        let mut damaged = image.clone();
        zero_slot(&mut damaged, roots[0]);
        lose(&mut damaged);
        let disk = disk_of(damaged);
        let report = rebuild_in_any_case(&disk).expect("rebuilt").expect("not refused");
        assert!(report.lost.is_empty(), "{what} lost: {report:?}");
        assert_eq!(recover(&disk).as_ref(), Ok(&rows), "{what} lost");
    }
}

/// The newest image's slot has an older image, whole; or the slot is damaged, and there is no map.
#[test]
fn lost_write_shows_in_the_old_map_and_damage_in_the_header() {
    let (history, notes) = cold_rows(22, small_options());
    let all = history.boundaries();
    let image = history.crash_image(all, Unsynced::None);
    let mut ends: BTreeMap<(bool, End), usize> = BTreeMap::new();
    for (older, next) in older_and_next(&image) {
        for is_lost_write in [true, false] {
            let mut damaged = image.clone();
            if is_lost_write {
                damaged.get_mut("data.mpd").expect("there").copy_within(older..older + 4096, next);
                lose_superblocks(&mut damaged);
            } else {
                flip_in_slot(&mut damaged, next, 2);
                lose_superblocks_and_map(&mut damaged);
            }
            let end = end_of(&disk_of(damaged), &notes, all);
            let end = end.unwrap_or_else(|problem| unreachable!("slot at {next}: {problem}"));
            *ends.entry((is_lost_write, end)).or_default() += 1;
        }
    }
    for is_lost_write in [true, false] {
        let lost = ends.get(&(is_lost_write, End::Lost)).copied().unwrap_or(0);
        assert!(lost > 10 && !ends.contains_key(&(is_lost_write, End::Unproven)), "{ends:?}");
    }
}

/// A failed write may have reached the device all the same: in a slot that the map does not name.
#[test]
fn an_image_that_is_there_twice_is_not_lost() {
    let disk = SimulatedDisk::new();
    run(18, || {
        let options = small_options().page_store(PageStoreKind::InPlace);
        let db = Db::open_on(Arc::new(disk.clone()), options).expect("opened");
        for name in ["gone", "t"] {
            let tree = db.create_tree(name).expect("created");
            (0..40u16).for_each(|key| tree.put(key.to_be_bytes(), [3; 700]).expect("written"));
            db.checkpoint().expect("done");
        }
        db.drop_tree("gone").expect("dropped");
        db.close().expect("closed");
    });
    let mut image = disk.image();
    let space = |slot: &usize| image["data.mpd"][slot + 12];
    let (gone, there): (Vec<_>, Vec<_>) = slots_in_use(&image).into_iter().partition(|slot| space(slot) == 2);
    let copied = *there.last().expect("a page of 't'");
    assert!(gone[0] < copied, "the copy is found first");
    image.get_mut("data.mpd").expect("there").copy_within(copied..copied + 4096, gone[0]);
    for (what, lose) in LOSSES {
        let mut damaged = image.clone();
        lose(&mut damaged);
        let disk = disk_of(damaged);
        let report = rebuild(&disk).expect("rebuilt");
        assert!(report.lost.is_empty(), "{what} lost: {report:?}");
        assert_eq!(recover(&disk).expect("sound")["t"].len(), 40);
    }
}

/// The copies of superblocks show how far the log was durable.
#[test]
fn rotten_log_is_reported_even_without_superblocks() {
    let (history, _) = several_laps(19, small_options());
    let mut image = history.crash_image(history.boundaries() * 3 / 4, Unsynced::None);
    for (_, bytes) in image.iter_mut().filter(|(name, _)| name.starts_with("redo-")) {
        bytes[4096..].fill(0x5a);
    }
    lose_superblocks(&mut image);
    let report = rebuild(&disk_of(image)).expect("rebuilt");
    assert!(report.lost.iter().any(|lost| lost.contains("but was durable up to")), "{report:?}");
}

#[test]
fn damaged_map_beside_sound_superblocks_costs_only_its_facts() {
    let (history, notes) = cold_rows(14, small_options());
    let all = history.boundaries();
    let image = history.crash_image(all, Unsynced::None);
    let blocks = ["map.mpd", "directory-0.mpd", "directory-1.mpd"].map(|name| {
        let in_use = |at: &usize| image[name][*at..at + 4096].iter().any(|byte| *byte != 0);
        (0..image[name].len()).step_by(4096).filter(in_use).map(move |at| (name, at))
    });
    let blocks: Vec<_> = blocks.into_iter().flatten().collect();
    let mut ends: BTreeMap<End, usize> = BTreeMap::new();
    for (turn, &(name, at)) in blocks.iter().enumerate() {
        let mut flipped = image.clone();
        let byte = [0, 4, 9, 17, 33, 70, 83, 130][turn % 8];
        flipped.get_mut(name).expect("there")[at + byte] ^= 1 << (turn % 8);
        assert_eq!(end_of(&disk_of(flipped.clone()), &notes, all), Ok(End::Whole), "byte {} of {name}", at + byte);
        for slot in slots_in_use(&image).into_iter().skip(turn % 4).step_by(4) {
            let mut damaged = flipped.clone();
            zero_slot(&mut damaged, slot);
            let end = end_of(&disk_of(damaged), &notes, all);
            *ends.entry(end.unwrap_or_else(|problem| unreachable!("{problem}"))).or_default() += 1;
        }
    }
    // The map of the checkpoint before the last is as good: one damaged block never leaves a page without proof.
    assert!(ends[&End::Lost] > 20 && ends[&End::Whole] > 20 && !ends.contains_key(&End::Unproven), "{ends:?}");
}

/// All images of one space's map pages are damaged, those of the other spaces are not.
#[test]
fn partly_readable_map_proves_its_part_and_the_rest_is_counted() {
    let (history, notes) = cold_rows(21, small_options());
    let all = history.boundaries();
    let sound = history.crash_image(all, Unsynced::None);
    let mut image = sound.clone();
    lose_superblocks(&mut image);
    let blocks = image.get_mut("map.mpd").expect("there").chunks_mut(4096);
    blocks.filter(|block| block[12] == 2).for_each(|block| block[80] ^= 1);
    let disk = disk_of(image.clone());
    let report = rebuild(&disk).expect("rebuilt");
    assert!(report.lost.is_empty() && (1..report.pages).contains(&report.unproven_pages), "{report:?}");
    compare(&recover(&disk).expect("sound"), &notes, all).expect("all rows");
    let (mut catalog, mut older) = (0, 0);
    for slot in slots_in_use(&image) {
        let mut damaged = image.clone();
        zero_slot(&mut damaged, slot);
        match end_of(&disk_of(damaged), &notes, all).unwrap_or_else(|problem| unreachable!("{slot}: {problem}")) {
            End::Closed => catalog += usize::from(sound["data.mpd"][slot + 12] == 0),
            End::Unproven => older += 1,
            _ => {}
        }
    }
    assert!(catalog == 1 && older > 10, "{catalog} {older}");
}

#[test]
fn crash_of_a_rebuild_leaves_the_proof_of_a_lost_page() {
    let (history, notes) = cold_rows(15, small_options());
    let all = history.boundaries();
    let sound = history.crash_image(all, Unsynced::None);
    let mut damaged = slots_in_use(&sound).into_iter().map(|slot| {
        let mut image = sound.clone();
        zero_slot(&mut image, slot);
        lose_superblocks(&mut image);
        image
    });
    let older_is_there = |image: &Image| {
        let report = rebuild(&disk_of(image.clone())).expect("rebuilt");
        report.lost.iter().any(|lost| lost.contains("one of LSN"))
    };
    let without = damaged.find(older_is_there).expect("a page with two images");
    let mut with = without.clone();
    // The superblocks name directories that the rebuild replaces.
    with.get_mut("data.mpd").expect("there")[..1 << 20].copy_from_slice(&sound["data.mpd"][..1 << 20]);
    let with_one_map = ["directory-0.mpd", "directory-1.mpd"].map(|lost| {
        let mut image = without.clone();
        // All but the copy of the superblock: so the other directory may be replaced first.
        image.get_mut(lost).expect("there")[4096..].fill(0x5a);
        image
    });
    for found in [without, with].into_iter().chain(with_one_map) {
        let first = disk_of(found.clone());
        assert!(rebuild_in_any_case(&first).expect("rebuilt").is_some_and(|report| report.lost.len() == 1));
        let history = first.history();
        let end = history.boundaries();
        for boundary in 0..=end {
            for mode in MODES.map(|mode| mode(u64::try_from(boundary).expect("small"))) {
                let image = history.crash_image(boundary, mode);
                match rows_lost(&disk_of(image.clone()), &notes, all) {
                    Ok(rows) => assert!(rows > 0, "at {boundary} with {mode:?}: it opens, and an older image counts"),
                    Err(problem) if boundary < end && problem.starts_with("open:") => {}
                    Err(problem) => unreachable!("at {boundary} with {mode:?}: {problem}"),
                }
                let disk = disk_of(image);
                assert_eq!(end_of(&disk, &notes, all), Ok(End::Lost), "at {boundary} with {mode:?}");
                assert!(not_kept(&disk.image(), &found).is_empty(), "at {boundary} with {mode:?}");
            }
        }
    }
}

#[test]
fn what_a_rebuild_replaces_is_kept_and_undoes_it() {
    let (history, _) = cold_rows(20, small_options());
    let mut before = history.crash_image(history.boundaries(), Unsynced::None);
    let slots = slots_in_use(&before);
    zero_slot(&mut before, slots[slots.len() / 2]);
    lose_superblocks(&mut before);
    let disk = disk_of(before.clone());
    let report = rebuild(&disk).expect("rebuilt");
    let mut rebuilt = disk.image();
    assert_eq!(not_kept(&rebuilt, &before), Vec::<&str>::new());
    rebuild_in_any_case(&disk).expect("rebuilt").expect("not refused");
    assert_eq!(not_kept(&disk.image(), &before), Vec::<&str>::new(), "the next rebuild keeps its copies elsewhere");
    assert_eq!(disk.image()["old-1-map.mpd"], rebuilt["map.mpd"]);
    for name in ["map.mpd", "directory-0.mpd", "directory-1.mpd"] {
        rebuilt.insert(name.to_owned(), rebuilt[&format!("old-0-{name}")].clone());
    }
    let superblocks = rebuilt["old-0-data.mpd"].clone();
    rebuilt.get_mut("data.mpd").expect("there")[..superblocks.len()].copy_from_slice(&superblocks);
    let mut again = rebuild(&disk_of(rebuilt)).expect("rebuilt");
    // The files may have grown since.
    again.slots = report.slots;
    assert_eq!(again, report);
}
