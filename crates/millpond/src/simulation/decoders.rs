//! Feeds arbitrary bytes to every decoder of the engine.
//!
//! DECODE-1  Every decoder of a file's bytes (superblock, directory, map page, log file header and lap, group, record,
//!           operation, map record, catalog entry, row, undo record) accepts or refuses any bytes. It neither panics
//!           nor loops, and its input bounds its allocations. Accepted bytes, encoded and decoded again, give the same
//!           result.
//! DECODE-2  Reading a page (`PageView`) copes with any bytes of a page's length, but may give wrong answers.
//! DECODE-3  Changing a page copes with any operation, if the page's structure is whole: the page has passed its
//!           checksum, or was formatted here. Afterwards its structure is whole; a refused operation has changed
//!           nothing. Changing a page that is not whole may panic: `find_damage` refuses such a page first.
//! DECODE-4  Recovery copes with any payload in a whole group, and ends with a database or with an error.
//! DECODE-5  A forced rebuild copes with any files. It ends with a database that opens, or with a report of the losses,
//!           or with an error.
//!
//! A checksum refuses nearly all random bytes. So most decoders here get the bytes twice: as they are, and with a right
//! checksum, as if the engine had written them.

use crate::simulation::same::{UUID, same};
use std::sync::Arc;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::{log_decoders, row_decoders};
use crate::base::aligned::{BLOCK, to_usize};
use crate::base::ids::{Lsn, PageId, SpaceId, TxnId};
use crate::base::page::apply::apply;
use crate::base::page::layout::{
    FREE_PAGE, HEADER_LEN, MAP_PAGE, PAGE_FORMAT, TREE_PAGE, find_damage, header_mut, page_lsn, seal,
};
use crate::base::page::op::PageOp;
use crate::base::page::reader::Reader;
use crate::base::page::view::{PageView, entry_len, u16_at};
use crate::mtr::{RECORD_DROP_SPACE, RECORD_PADDING, RECORD_PAGE, RECORD_TXN, Record, formats, frees, replay};
use crate::redo::dirty_counts::DirtyCounts;
use crate::redo::files::Start;
use crate::redo::files::{Geometry, LAP_OFFSET, Lap, LogFileLap, Owner, Switch, header_block, read_header, read_lap};
use crate::schema::catalog_entry::{Entry, TableEntry};
use crate::schema::definition::{Field, TableDefinition};
use crate::store::doublewrite::{self, Lot};
use crate::store::lot::WriteOp;
use crate::store::map::{MapEntry, MapPage, PageMap, tag_of};
use crate::store::page_store::MapRecord;
use crate::store::superblock::{self, FORMAT, Found, Raw, SLOTS_START, Superblock};
use crate::store::{checkpoint, directory};

const OWNER: Owner = Owner { uuid: UUID, page_size: 4096, features: 0 };
const ID: PageId = PageId(7 << 32 | 5);

/// A decoder to feed with arbitrary bytes, in the order of `ALL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after its input")]
pub enum Decoder {
    Superblock,
    DoublewriteLot,
    Directory,
    MapPage,
    LogFileHeader,
    LogFileLap,
    Group,
    Records,
    PageOps,
    MapRecords,
    PageImage,
    Replay,
    LogScan,
    Recovery,
    Rebuild,
    CatalogEntry,
    Row,
    UndoRecord,
}

impl Decoder {
    /// All decoders.
    pub const ALL: [Decoder; 18] = [
        Decoder::Superblock,
        Decoder::DoublewriteLot,
        Decoder::Directory,
        Decoder::MapPage,
        Decoder::LogFileHeader,
        Decoder::LogFileLap,
        Decoder::Group,
        Decoder::Records,
        Decoder::PageOps,
        Decoder::MapRecords,
        Decoder::PageImage,
        Decoder::Replay,
        Decoder::LogScan,
        Decoder::Recovery,
        Decoder::Rebuild,
        Decoder::CatalogEntry,
        Decoder::Row,
        Decoder::UndoRecord,
    ];

    /// Decodes `bytes`. Returns whether the decoder accepts them as they are. A panic, or `Err`, is a fault of the
    /// decoder.
    ///
    /// # Errors
    /// The result differs after encoding and decoding it again, or a page's structure is broken.
    pub fn feed(self, bytes: &[u8]) -> Result<bool, String> {
        match self {
            Decoder::Superblock => feed_superblock(bytes),
            Decoder::DoublewriteLot => feed_doublewrite_lot(bytes),
            Decoder::Directory => feed_directory(bytes),
            Decoder::MapPage => feed_map_page(bytes),
            Decoder::LogFileHeader => feed_log_file_header(bytes),
            Decoder::LogFileLap => feed_log_file_lap(bytes),
            Decoder::Group => log_decoders::feed_group(bytes),
            Decoder::Records => feed_records(bytes),
            Decoder::PageOps => feed_ops(bytes),
            Decoder::MapRecords => feed_map_records(bytes),
            Decoder::PageImage => feed_page_image(bytes),
            Decoder::Replay => feed_replay(bytes),
            Decoder::LogScan => log_decoders::feed_log_scan(bytes),
            Decoder::Recovery => log_decoders::feed_recovery(bytes),
            Decoder::Rebuild => log_decoders::feed_rebuild(bytes),
            Decoder::CatalogEntry => feed_catalog_entry(bytes),
            Decoder::Row => row_decoders::feed_row(bytes),
            Decoder::UndoRecord => row_decoders::feed_undo_record(bytes),
        }
    }

    /// Bytes that the decoder accepts, different for each seed, for a fuzzer to mutate.
    pub fn sample(self, seed: u64) -> Vec<u8> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        match self {
            Decoder::Superblock => superblock_sample(&mut rng).encode().as_bytes().to_vec(),
            Decoder::DoublewriteLot => doublewrite_lot_sample(&mut rng).as_bytes().to_vec(),
            Decoder::Directory => {
                let mut map = PageMap::new(Arc::new(DirtyCounts::default()));
                for space in 0..rng.next_u64() % 6 {
                    let mut pages: Vec<MapPage> =
                        (0..rng.next_u64() % 9).map(|_| MapPage::new(MapEntry(rng.next_u64()))).collect();
                    if let Some(first) = pages.first_mut().filter(|_| space % 2 == 1) {
                        (first.place, first.lsn) = (MapEntry::default(), Lsn(1 + (rng.next_u64() >> 8)));
                        let entries = Arc::make_mut(&mut first.entries).iter_mut();
                        entries.take(to_usize(rng.next_u64() % 9)).for_each(|entry| *entry = MapEntry(rng.next_u64()));
                    }
                    let space = SpaceId(u32::try_from(space * 3).unwrap_or(0));
                    map.spaces.entry(space).or_default().pages = pages;
                }
                directory::encode(&map).bytes
            }
            Decoder::MapPage => {
                let mut page = MapPage::new(MapEntry::default());
                page.lsn = Lsn(rng.next_u64() >> 8);
                Arc::make_mut(&mut page.entries).iter_mut().for_each(|entry| *entry = MapEntry(rng.next_u64()));
                let mut image = vec![0; BLOCK];
                checkpoint::encode(ID, &page, UUID, &mut image);
                image
            }
            Decoder::LogFileHeader | Decoder::LogFileLap => {
                let (boundary, first_group) = (Lsn(0), Lsn(rng.next_u64() >> 8));
                let lap = Lap { boundary, first_group, nonce: rng.next_u64() };
                let geometry = Geometry { generation: 3, payload_bytes: rng.next_u64() >> 20 };
                header_block(OWNER, rng.next_u64() % 4, geometry, Some(&lap)).to_vec()
            }
            Decoder::Group => log_decoders::group_sample(&mut rng),
            Decoder::Records => records_sample(&mut rng),
            Decoder::PageOps => ops_sample(&mut rng),
            Decoder::MapRecords => {
                let records = (0..1 + rng.next_u64() % 9).map(|_| {
                    let id = PageId::new(SpaceId(rng.next_u32() % 4), rng.next_u32() % 2000);
                    let (entry, image_lsn) = (U64::new(rng.next_u64()), U64::new(rng.next_u64() >> 8));
                    MapRecord { page_id: U64::new(id.0), entry, image_lsn }
                });
                records.flat_map(|record| record.as_bytes().to_vec()).collect()
            }
            Decoder::PageImage => {
                let mut page = whole_page(rng.next_u64());
                seal(&mut page, UUID, ID);
                page
            }
            Decoder::Replay => [&[rng.next_u64().to_le_bytes()[0]], &ops_sample(&mut rng)[..]].concat(),
            Decoder::LogScan => log_decoders::log_scan_sample(&mut rng),
            Decoder::Recovery => log_decoders::recovery_sample(seed),
            Decoder::Rebuild => log_decoders::rebuild_sample(&mut rng),
            Decoder::CatalogEntry => catalog_entry_sample(&mut rng),
            Decoder::Row => row_decoders::row_sample(&mut rng),
            Decoder::UndoRecord => row_decoders::undo_record_sample(&mut rng),
        }
    }
}

/// The first `len` bytes, padded with zeroes.
pub(super) fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut padded = vec![0; len];
    let there = bytes.len().min(len);
    padded[..there].copy_from_slice(&bytes[..there]);
    padded
}

fn superblock_sample(rng: &mut Xoshiro256PlusPlus) -> Superblock {
    let switch = Switch { at: Lsn(rng.next_u64() >> 8), to: Geometry { generation: 8, payload_bytes: 65_536 } };
    let checkpoint_lsn = Lsn(rng.next_u64() >> 8);
    Superblock {
        features: rng.next_u64() % 4,
        uuid: UUID,
        sequence: rng.next_u64() >> 8,
        page_size: 4096,
        next_space: 9,
        checkpoint_lsn,
        durable_lsn: checkpoint_lsn.plus(rng.next_u64() >> 8),
        nonce: rng.next_u64(),
        directory_bytes: 80,
        directory_crc: 5,
        redo: Geometry { generation: 7, payload_bytes: 131_072 },
        switch: (rng.next_u64().is_multiple_of(2)).then_some(switch),
        next_txn: TxnId(rng.next_u64() >> 16),
        write_capacity: rng.next_u64(),
        apply_rate: u64::from(rng.next_u32()) << 10,
        closed: false,
    }
}

fn feed_superblock(bytes: &[u8]) -> Result<bool, String> {
    let Ok(mut raw) = Raw::read_from_bytes(&padded(bytes, size_of::<Raw>())) else { return Ok(false) };
    let found = Superblock::decode(bytes);
    (raw.magic, raw.format) = (superblock::MAGIC, U32::new(FORMAT));
    raw.crc = U32::new(superblock::checksum(&raw));
    let mended = Superblock::decode(raw.as_bytes());
    for found in [found, mended] {
        if let Found::Valid(superblock) = found {
            same("a superblock", &Superblock::decode(superblock.encode().as_bytes()), &found)?;
            let chosen = Superblock::choose([Found::Damaged, found], "x").map_err(|e| e.to_string())?;
            same("the chosen superblock", &chosen, &superblock)?;
        }
    }
    let _ = Superblock::choose([found, mended], "x");
    Ok(matches!(found, Found::Valid(_)))
}

fn doublewrite_lot_sample(rng: &mut Xoshiro256PlusPlus) -> Lot {
    let op = |_| WriteOp { id: PageId(rng.next_u64()), lsn: Lsn(rng.next_u64() >> 8), rec_lsn: None };
    let ops: Vec<WriteOp> = (0..9).map(op).collect();
    Lot::of(UUID, 4096, ops[0].id.0.is_multiple_of(2), &ops[..1 + to_usize(ops[0].lsn.0 % 9)])
}

fn feed_doublewrite_lot(bytes: &[u8]) -> Result<bool, String> {
    let bytes = padded(bytes, size_of::<Lot>());
    let accepted = Lot::read(&bytes, UUID, 4096).is_some();
    let Ok(mut mended) = Lot::read_from_bytes(&bytes) else { return Ok(false) };
    (mended.magic, mended.uuid, mended.page_size) = (doublewrite::MAGIC, UUID.map(U64::new), U32::new(4096));
    mended.crc = U32::new(mended.checksum());
    for lot in [&bytes[..], mended.as_bytes()].into_iter().filter_map(|bytes| Lot::read(bytes, UUID, 4096)) {
        let op = |(_, id, lsn)| WriteOp { id, lsn, rec_lsn: None };
        let again = Lot::of(UUID, 4096, lot.has_images.get() == 1, &lot.copied().map(op).collect::<Vec<_>>());
        let of = |lot: &Lot| lot.copied().collect::<Vec<_>>();
        same("a lot's pages", &of(&again), &of(&lot))?;
    }
    Ok(accepted)
}

fn feed_directory(bytes: &[u8]) -> Result<bool, String> {
    let mut map = PageMap::new(Arc::new(DirtyCounts::default()));
    let accepted = directory::decode(bytes, &mut map).is_some();
    if accepted {
        same("a directory", &directory::encode(&map).bytes.as_slice(), &bytes)?;
    }
    Ok(accepted)
}

fn feed_map_page(bytes: &[u8]) -> Result<bool, String> {
    let mut image = padded(bytes, BLOCK);
    let fresh = |image: &[u8]| MapPage::new(MapEntry::new(4096, 4096, tag_of(page_lsn(image))));
    let accepted = checkpoint::decode(ID, &mut fresh(&image), UUID, &image).is_ok();
    let header = header_mut(&mut image);
    (header.page_type, header.page_id, header.format) = (MAP_PAGE, U64::new(ID.0), U16::new(PAGE_FORMAT));
    seal(&mut image, UUID, ID);
    let mut page = fresh(&image);
    checkpoint::decode(ID, &mut page, UUID, &image)?;
    for entry in page.entries.iter() {
        if let Some(slot) = entry.slot(SLOTS_START, 16_384) {
            let again = MapEntry::new(SLOTS_START + slot.0 * 16_384, 16_384, entry.tag());
            same("a map entry", &again, entry)?;
        }
    }
    let mut again = vec![0; BLOCK];
    checkpoint::encode(ID, &page, UUID, &mut again);
    same("a map page", &&again[HEADER_LEN..], &&image[HEADER_LEN..]).map(|()| accepted)
}

fn feed_log_file_header(bytes: &[u8]) -> Result<bool, String> {
    let Some((owner, index, geometry)) = read_header(bytes) else { return Ok(false) };
    let again = header_block(owner, index, geometry, None);
    same("a log file's header", &&again[..56], &&bytes[..56]).map(|()| true)
}

fn feed_log_file_lap(bytes: &[u8]) -> Result<bool, String> {
    let Some(Start { at: first_group, nonce }) = read_lap(bytes, UUID) else { return Ok(false) };
    let lap = Lap { boundary: Lsn::ZERO, first_group, nonce };
    let again = header_block(OWNER, 0, Geometry::default(), Some(&lap));
    let lap = LAP_OFFSET..LAP_OFFSET + size_of::<LogFileLap>();
    same("a lap", &&again[lap.clone()], &&bytes[lap]).map(|()| true)
}

/// Encodes the records of a payload again, after the format document: the engine encodes them only while it changes
/// pages.
fn encode_records(payload: &[u8]) -> Result<(Vec<u8>, bool), String> {
    let mut out = Vec::new();
    for record in Record::all(payload) {
        match record {
            None => return Ok((out, false)),
            Some(Record::Padding) => {
                // The bytes behind a padding are arbitrary.
                let rest = payload.get(out.len() + 1..).ok_or("a padding behind the payload's end")?;
                out.push(RECORD_PADDING);
                out.extend_from_slice(rest);
            }
            Some(Record::DropSpace(space)) => {
                out.push(RECORD_DROP_SPACE);
                out.extend_from_slice(&space.0.to_le_bytes());
            }
            Some(Record::Txn(txn)) => {
                out.push(RECORD_TXN);
                out.extend_from_slice(&txn.to_bytes());
            }
            Some(Record::Page { id, previous, ops }) => {
                out.push(RECORD_PAGE);
                out.extend_from_slice(&id.0.to_le_bytes());
                out.extend_from_slice(&previous.0.to_le_bytes());
                out.extend_from_slice(&u32::try_from(ops.len()).unwrap_or(u32::MAX).to_le_bytes());
                out.extend_from_slice(ops);
                feed_ops(ops)?;
            }
        }
    }
    Ok((out, true))
}

fn feed_records(bytes: &[u8]) -> Result<bool, String> {
    let (again, whole) = encode_records(bytes)?;
    let expected = bytes.get(..again.len()).ok_or("more records than bytes")?;
    same("records", &again.as_slice(), &expected)?;
    if whole { same("the length of records", &again.len(), &bytes.len()).map(|()| true) } else { Ok(false) }
}

fn feed_ops(bytes: &[u8]) -> Result<bool, String> {
    let mut whole = true;
    for (index, op) in Record::ops(bytes).enumerate() {
        let Some(op) = op else {
            whole = false;
            continue;
        };
        let mut again = Vec::new();
        op.encode(&mut again);
        same("an operation", &PageOp::decode(&mut Reader::new(&again)), &Some(op.clone()))?;
        if index == 0 {
            same("whether the page is formatted", &formats(bytes), &matches!(op, PageOp::Init { .. }))?;
            let free = matches!(op, PageOp::Free) && again.len() == bytes.len();
            same("whether the page is freed", &frees(bytes), &free)?;
        }
    }
    Ok(whole)
}

fn feed_map_records(bytes: &[u8]) -> Result<bool, String> {
    let Some(records) = MapRecord::all(bytes) else { return Ok(false) };
    same("map records", &records.as_bytes(), &bytes)?;
    let mut map = PageMap::new(Arc::new(DirtyCounts::default()));
    for (start, record) in (4096..).zip(records) {
        // The store refuses numbers beyond the data file's slots before it changes the map.
        let id = PageId::new(PageId(record.page_id.get()).space(), PageId(record.page_id.get()).number() % 5000);
        let entry = MapEntry(record.entry.get());
        let _ = map.apply(id, entry, Lsn(start), Lsn(start + 1));
        same("an entry of the map", &map.get(id), &entry)?;
    }
    let mut again = PageMap::new(Arc::new(DirtyCounts::default()));
    let bytes = directory::encode(&map).bytes;
    directory::decode(&bytes, &mut again).ok_or("the directory of a replayed map does not decode")?;
    same("the directory of a replayed map", &directory::encode(&again).bytes, &bytes).map(|()| true)
}

fn feed_catalog_entry(bytes: &[u8]) -> Result<bool, String> {
    let Ok(entry) = Entry::decode(bytes) else { return Ok(false) };
    same("a catalog entry", &entry.encode().as_slice(), &bytes).map(|()| true)
}

fn catalog_entry_sample(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut below = |end: u64| to_usize(rng.next_u64() % end);
    let space = |number: usize| SpaceId(2 + u32::try_from(number).unwrap_or(0));
    let first = below(1000);
    if below(4) == 0 {
        let chunks = [None, Some(space(first + 1))][below(2)];
        return Entry::Tree { rows: space(first), chunks }.encode();
    }
    let (mut definition, count) = (TableDefinition::new(), below(6));
    for index in 0..count {
        let fields = (0..below(3)).map(|_| below(900)).collect::<Vec<_>>();
        let fields = fields.into_iter().map(|offset| Field::value(offset..offset + 4)).chain([Field::key(below(9)..)]);
        let (name, fields) = (format!("index {index}"), fields.collect::<Vec<_>>());
        definition = if below(2) == 0 { definition.index(&name, fields) } else { definition.unique(&name, fields) };
    }
    let indexes = (first + 1..=first + count).map(space).collect();
    let chunks = [None, Some(space(first + count + 1))][below(2)];
    Entry::Table(TableEntry { rows: space(first), chunks, definition, indexes }).encode()
}

/// Calls every reading function on a page.
fn read_page(page: &[u8]) -> usize {
    let view = PageView::new(page);
    let mut seen = view.free_bytes() + view.low_fence().len() + view.high_fence().map_or(0, <[u8]>::len);
    for index in 0..view.len() {
        seen += view.entry_len(index) + usize::from(view.child(index).is_some());
    }
    let keys = [view.key(0), view.key(view.len() / 2), view.key(view.len())];
    for key in [&b""[..], b"k", view.low_fence(), &keys[0], &keys[1], &keys[2]] {
        seen += match view.search(key) {
            Ok(index) | Err(index) => index,
        };
        seen += view.child_index(key) + view.child_index_below(Some(key)) + usize::from(view.covers(key));
    }
    seen + view.child_index_below(None) + usize::from(view.is_leaf())
}

fn feed_page_image(bytes: &[u8]) -> Result<bool, String> {
    let mut page = padded(bytes, 4096);
    let damage = find_damage(&page, UUID, ID, TREE_PAGE);
    let _ = read_page(&page);
    let header = header_mut(&mut page);
    (header.page_type, header.page_id, header.format) = (TREE_PAGE, U64::new(ID.0), U16::new(PAGE_FORMAT));
    seal(&mut page, UUID, ID);
    same("the damage of a sealed page", &find_damage(&page, UUID, ID, TREE_PAGE), &None)?;
    let _ = read_page(&page);
    Ok(damage.is_none())
}

/// The fault in a page's structure, or `None`.
fn find_fault(page: &[u8]) -> Option<String> {
    let view = PageView::new(page);
    let header = view.header();
    let heap = to_usize(u64::from(header.heap_start.get()));
    let directory_end = view.directory() + 6 * view.len();
    let is_free = header.page_type == FREE_PAGE && view.high_fence() == Some(&[]) && view.len() == 0;
    if (header.page_type != TREE_PAGE && !is_free) || directory_end > heap || heap > page.len() {
        return Some(format!("{} entries end at {directory_end}, the heap begins at {heap}", view.len()));
    }
    let mut entries = Vec::new();
    for index in 0..view.len() {
        let at = u16_at(page, view.directory() + 4 * view.len() + 2 * index);
        let len = entry_len(view.suffix(index).len(), view.value(index).len()) - 6;
        let said = 4 + u16_at(page, at) + u16_at(page, at + 2);
        if view.heads()[index].get() != view.wanted_head(index) {
            return Some(format!("head {index} is not that of its key"));
        }
        if at < heap || said != len || at + len > page.len() {
            return Some(format!("entry {index} at {at} of {len} bytes is outside of the heap from {heap}"));
        }
        entries.push((at, len));
    }
    entries.sort_unstable();
    if entries.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        return Some("two entries overlap".to_owned());
    }
    let used: usize = entries.iter().map(|(_, len)| len).sum();
    let dead = to_usize(u64::from(header.dead_bytes.get()));
    (heap + used + dead != page.len()).then(|| format!("{used} used and {dead} dead bytes from {heap} on"))
}

/// A page with a whole structure, one of several kinds.
fn whole_page(kind: u64) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let inner = kind % 3 == 1;
    let (level, high) = (u8::from(inner), kind.is_multiple_of(2).then_some(&b"zz"[..]));
    let _ = apply(&mut page, ID, &PageOp::Init { level, low: b"", high, entries: Vec::new() });
    let count = [0, 3, 20, 200][to_usize(kind / 3 % 4)];
    for i in 0..count {
        let (key, value) = (format!("k{i:03}"), vec![b'v'; if inner { 4 } else { 30 + to_usize(kind >> 8) % 90 }]);
        let _ = apply(&mut page, ID, &PageOp::Insert { key: key.as_bytes(), value: &value });
        if i % 7 == 6 {
            let _ = apply(&mut page, ID, &PageOp::Remove { key: key.as_bytes() });
        }
    }
    page
}

/// The first byte chooses the page, the others are operations.
fn feed_replay(bytes: &[u8]) -> Result<bool, String> {
    let Some((kind, ops)) = bytes.split_first() else { return Ok(false) };
    // A page that was never formatted accepts only a format.
    let _ = replay(&mut [0; 4096], ID, ops);
    let mut page = whole_page(u64::from(*kind));
    let mut all = page.clone();
    let replayed = replay(&mut all, ID, ops);
    for op in Record::ops(ops) {
        let Some(op) = op else { return if replayed.is_err() { Ok(false) } else { Err("no error".to_owned()) } };
        let before = page.clone();
        let done = apply(&mut page, ID, &op);
        if let Some(fault) = find_fault(&page) {
            return Err(format!("after {op:?} ({done:?}): {fault}"));
        }
        if done.is_err() {
            same("a page that refused an operation", &page, &before)?;
            return if replayed.is_err() { Ok(false) } else { Err("no error".to_owned()) };
        }
        let _ = read_page(&page);
    }
    same("a page after the same operations", &all, &page).map(|()| true)
}

fn bytes_of(rng: &mut Xoshiro256PlusPlus, longest: u64) -> Vec<u8> {
    (0..rng.next_u64() % longest).map(|_| b'a' + rng.next_u64().to_le_bytes()[0] % 26).collect()
}

/// Operations that a whole page may accept or refuse.
fn ops_sample(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..1 + rng.next_u64() % 12 {
        let key = format!("k{:03}", rng.next_u64() % 220);
        let (key, value, fence) = (key.as_bytes(), bytes_of(rng, 120), bytes_of(rng, 20));
        match rng.next_u64() % 9 {
            0 => {
                let level = rng.next_u64().to_le_bytes()[0] % 3;
                let entries: Vec<_> = (0..rng.next_u64() % 5).map(|i| (&key[..to_usize(i) % 4], &value[..])).collect();
                let high = (rng.next_u64().is_multiple_of(2)).then_some(&fence[..]);
                PageOp::Init { level, low: &key[..2], high, entries }.encode(&mut out);
            }
            1 => PageOp::Truncate { keep: u16::from(key[3] - b'0'), high: &fence }.encode(&mut out),
            2 => PageOp::Remove { key }.encode(&mut out),
            3 | 4 => PageOp::Replace { key, value: &value }.encode(&mut out),
            // Rare: after it, the page accepts only a format.
            5 if rng.next_u64().is_multiple_of(4) => PageOp::Free.encode(&mut out),
            _ => PageOp::Insert { key, value: &value }.encode(&mut out),
        }
    }
    out
}

fn records_sample(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut out = Vec::new();
    for number in 0..1 + rng.next_u64() % 4 {
        let ops = ops_sample(rng);
        out.push(RECORD_PAGE);
        out.extend_from_slice(&(1u64 << 32 | number).to_le_bytes());
        out.extend_from_slice(&(rng.next_u64() >> 40).to_le_bytes());
        out.extend_from_slice(&u32::try_from(ops.len()).unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&ops);
    }
    if rng.next_u64().is_multiple_of(2) {
        out.push(RECORD_DROP_SPACE);
        out.extend_from_slice(&3u32.to_le_bytes());
    }
    if rng.next_u64().is_multiple_of(2) {
        out.extend_from_slice(&[RECORD_PADDING; 9]);
    }
    out
}
