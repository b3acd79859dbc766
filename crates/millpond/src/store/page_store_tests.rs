//! Tests of reads and writes, and the stores, pages and images that the room's tests share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::lot::WriteOp;
use super::page_store::{MapRecord, PageStore};
use super::space::Share;
use super::superblock::Superblock;
use crate::base::aligned::aligned;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId};
use crate::base::page::layout::{PAGE_FORMAT, TREE_PAGE, header_mut, page_lsn};
use crate::base::scheduler::{current, run};
use crate::base::sync::spawn;
use crate::base::waits::Waits;
use crate::io::simulated::{Image, ServiceTime, SimulatedDisk};
use crate::redo::dirty_counts::DirtyCounts;

/// The store on `disk`, before anything is replayed.
pub(super) fn opened(disk: &SimulatedDisk) -> PageStore {
    PageStore::open(disk, Arc::new(DirtyCounts::default())).expect("opened").0
}

/// A new store with these features, with pages of 4 KiB.
pub(super) fn new_store(disk: &SimulatedDisk, features: u64) -> PageStore {
    PageStore::create(disk, Superblock { features, ..Superblock::of_tests() }).expect("created");
    let store = opened(disk);
    store.finish_replay(&BTreeSet::new()).expect("nothing to replay");
    store
}

/// Pages of a new space, without images.
pub(super) fn new_pages<const N: usize>(store: &PageStore) -> [PageId; N] {
    let (space, waits) = (store.new_space().expect("there are numbers"), Waits::new(Duration::from_secs(1)));
    [(); N].map(|()| store.allocate(space, Share::Common, &waits).expect("there is room"))
}

/// Writes one lot: an image of page LSN `lsn` of each page.
pub(super) fn write(store: &PageStore, ids: &[PageId], lsn: u64) -> Result<Option<usize>, Error> {
    let mut images = aligned(ids.len() * 4096);
    let op = |(&id, image): (&PageId, &mut [u8])| {
        let header = header_mut(image);
        (header.page_id, header.page_lsn) = (id.0.into(), lsn.into());
        (header.format, header.page_type) = (PAGE_FORMAT.into(), TREE_PAGE);
        store.counts.add(Lsn(4096));
        WriteOp { id, lsn: Lsn(lsn), rec_lsn: Some(Lsn(4096)) }
    };
    let ops: Vec<WriteOp> = ids.iter().zip(images.chunks_mut(4096)).map(op).collect();
    store.write(&ops, &mut images, Lsn(lsn))
}

/// Writes one lot, and makes it durable and named by the map group from `lsn` on. Returns the group's records.
pub(super) fn write_durably(store: &PageStore, ids: &[PageId], lsn: u64) -> Vec<MapRecord> {
    assert!(write(store, ids, lsn).expect("written").is_some());
    let records = store.map_records(store.sync().expect("synced"));
    store.apply_records(&records, Lsn(lsn), Lsn(lsn + 100));
    store.release_slots(Lsn(lsn + 100));
    records
}

/// The page LSN of the page's newest image.
pub(super) fn read(store: &PageStore, id: PageId) -> Result<Lsn, Error> {
    let mut image = aligned(4096);
    store.read(id, &mut image).map(|()| page_lsn(&image))
}

/// A page moves while a read of its old slot is under way, and another page's image is in that slot before it ends.
#[test]
fn read_of_a_slot_that_another_page_got_reads_again() {
    run(1, || {
        let time = ServiceTime { read_ns: 10_000_000, ..ServiceTime::default() };
        let store = Arc::new(new_store(&SimulatedDisk::with_image(Image::new(), time), 0));
        let [moved, other] = new_pages(&store);
        write_durably(&store, &[moved], 5000);
        let old = store.state.lock().newest(moved);
        let reader = {
            let store = Arc::clone(&store);
            spawn("reader", move || read(&store, moved)).expect("a thread")
        };
        current().expect("a simulation").sleep_ns(1000);
        write_durably(&store, &[moved], 6000);
        write_durably(&store, &[other], 7000);
        assert_eq!(store.state.lock().newest(other).offset(), old.offset());
        assert_eq!(reader.join().expect("no panic").ok(), Some(Lsn(6000)));
    });
}

/// The slot whose write failed is not used again: its contents are unknown.
#[test]
fn page_whose_rewrite_fails_goes_to_another_slot() {
    let disk = SimulatedDisk::new();
    let store = new_store(&disk, 0);
    let [id] = new_pages(&store);
    write_durably(&store, &[id], 5000);
    let (total, _) = store.slot_counts();
    disk.fail_at(disk.calls(), std::io::ErrorKind::Other);
    write_durably(&store, &[id], 6000);
    assert_eq!(read(&store, id).ok(), Some(Lsn(6000)));
    assert_eq!(store.slot_counts().1, total - 2, "the page has one slot, and one is bad");
}

/// Redo reads pages in this order: it goes once through the data file, not back and forth.
#[test]
fn pages_are_sorted_by_the_places_of_their_newest_images() {
    let store = new_store(&SimulatedDisk::new(), 0);
    let [first, second, third, without] = new_pages(&store);
    for (id, lsn) in [(third, 5000), (first, 6000), (second, 7000)] {
        write_durably(&store, &[id], lsn);
    }
    let mut pages = [first, second, third, without];
    store.sort_by_place(&mut pages);
    assert_eq!(pages, [without, third, first, second]);
    write(&store, &[third], 8000).expect("written");
    store.sort_by_place(&mut pages);
    assert_eq!(pages, [without, first, second, third], "an image that is not durable yet counts, too");
}
