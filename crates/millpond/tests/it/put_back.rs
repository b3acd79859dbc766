//! In place, a crash tears a page, the next open restores it, overwrites the copies for other pages, and loses power,
//! too: the restored page must be durable before the copies are overwritten (DBLWR-5).

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::Db;
use millpond::simulation::{History, Image, SimulatedDisk, Unsynced, run, sleep_ns};

use crate::crash_matrix::stride;
use crate::support::{SLOW, Shape, TWICE, disk_of, recover_shaped};

/// Rows of 900 bytes, four to a leaf: twice as many leaves as the recovering pool has frames.
const ROWS: u32 = 320;

/// A pool in which all leaves are dirty at the same time.
const ROOMY: Shape = Shape { frames: 160, ..TWICE };

/// Boundary of the disk's history at which a row's value was acknowledged, the row, the value.
type Acknowledged = Vec<(usize, u32, u8)>;

fn updates() -> (History, Acknowledged) {
    let disk = SimulatedDisk::with_image(Image::new(), SLOW);
    let mut acknowledged = Acknowledged::new();
    run(3, || {
        let db = Db::open_on(Arc::new(disk.clone()), ROOMY.options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        for byte in 1..=2u8 {
            for turn in 0..ROWS {
                let row = turn * 77 % ROWS;
                tree.put(row.to_be_bytes(), [byte; 900]).expect("written");
                acknowledged.push((disk.boundaries(), row, byte));
            }
            // Time for lots to be written.
            sleep_ns(500_000_000);
        }
        disk.halt();
        drop((tree, db));
    });
    (disk.history(), acknowledged)
}

/// The least permitted byte of each row after a crash at `boundary`.
fn least(acknowledged: &Acknowledged, boundary: usize) -> BTreeMap<u32, u8> {
    acknowledged.iter().filter(|(at, ..)| *at <= boundary).map(|(_, row, byte)| (*row, *byte)).collect()
}

/// Opens the image of a crash in a small pool. Returns the history of that disk, if a page was restored.
fn second(image: Image) -> Option<History> {
    let disk = disk_of(image);
    let put_back = run(4, || {
        let db = Db::open_on(Arc::new(disk.clone()), TWICE.reopen_options()).expect("opened");
        let put_back = db.stats().dblwr_pages_put_back;
        db.checkpoint().expect("all is clean");
        db.close().expect("closed");
        put_back
    })
    .0;
    (put_back > 0).then(|| disk.history())
}

#[test]
fn page_that_was_put_back_outlives_the_copies() {
    let (history, acknowledged) = updates();
    let data_writes: Vec<usize> = history.writes("data.mpd").iter().map(|(boundary, ..)| *boundary).collect();
    let last_lots = &data_writes[data_writes.len().saturating_sub(120)..];
    let mut put_back = 0;
    for (seed, boundary) in (0..).zip(last_lots.iter().copied().step_by(stride(8))) {
        let image = history.crash_image(boundary + 1, Unsynced::OneTorn(seed));
        let Some(past) = second(image) else { continue };
        put_back += 1;
        let least = least(&acknowledged, boundary);
        for again in (0..=past.boundaries()).step_by(stride(9)) {
            let found = run(1, || recover_shaped(&disk_of(past.crash_image(again, Unsynced::None)), TWICE)).0;
            let found = found.unwrap_or_else(|why| panic!("boundary {boundary}, then {again}: {why}"));
            for (row, byte) in &least {
                let value = found["t"].get(&row.to_be_bytes()[..]).map(|value| value[0]);
                assert!(value >= Some(*byte), "boundary {boundary}, then {again}: row {row} has {value:?}");
            }
        }
    }
    assert!(put_back > 2, "{put_back} crashes tore a page");
}
