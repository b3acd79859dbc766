//! A store that writes in place: what its images tell of the log.

use millpond::simulation::{Image, SimulatedDisk, Unsynced, run};
use millpond::{Db, Durability, Error, WriteBatch};

use crate::support::{IN_PLACE, SLOW, disk_of, open};

/// What the trees' first rows are, or why they cannot be read.
fn first_rows(image: Image) -> Result<[u8; 2], Error> {
    run(1, || {
        let db = Db::open_on(std::sync::Arc::new(disk_of(image)), IN_PLACE.reopen_options())?;
        let first = |name: &str| Ok::<_, Error>(db.open_tree(name)?.get(&[0])?.map_or(0, |value| value[0]));
        Ok([first("a")?, first("b")?])
    })
    .0
}

/// The last group of the log is damaged, and no later one shows that it was there: images that it is in do. Half of it is
/// never taken for an answer.
#[test]
fn images_ahead_of_a_damaged_log_are_reported() {
    let disk = SimulatedDisk::new();
    let (start, _) = run(1, || {
        let db = open(&disk, IN_PLACE.options());
        for (name, rows) in [("a", 5u8), ("m", 100), ("b", 5)] {
            let tree = db.create_tree(name).expect("created");
            (0..rows).for_each(|row| tree.put(&[row], &[1; 100]).expect("written"));
        }
        db.close().expect("closed");
        disk.image()
    });
    let disk = SimulatedDisk::with_image(start, SLOW);
    let ((lsn, written), _) = run(2, || {
        let db = open(&disk, IN_PLACE.reopen_options());
        let [a, b] = ["a", "b"].map(|name| db.open_tree(name).expect("there"));
        db.checkpoint().expect("done");
        let lsn = db.stats().log_lsn_current;
        let mut batch = WriteBatch::new();
        batch.put(&a, &[0], &[2; 100]).put(&b, &[0], &[2; 100]).durability(Durability::Commit);
        db.write(batch).expect("written");
        let written = disk.boundaries();
        db.checkpoint().expect("done");
        (lsn, written)
    });
    let history = disk.history();
    let (mut told, mut earlier, mut later) = (0, 0, 0);
    for boundary in written..=history.boundaries() {
        for seed in 0..6 {
            let mut image = history.crash_image(boundary, Unsynced::Subset(seed));
            // Four files, 512 KiB in all.
            let payload = 128 << 10;
            let log = image.get_mut(&format!("redo-0-{}.mpd", lsn / payload % 4)).expect("there");
            log[usize::try_from(4096 + lsn % payload + 20).expect("small")] ^= 4;
            match first_rows(image) {
                Err(Error::Corruption(_)) => told += 1,
                Ok([1, 1]) => earlier += 1,
                Ok([2, 2]) => later += 1,
                other => unreachable!("crash at {boundary}, seed {seed}: {other:?}"),
            }
        }
    }
    assert!(told > 10 && earlier > 0 && later > 0, "{told} told, {earlier} and {later} as before and behind it");
}
