//! Compares `docs/file-format.md` with the code: each table with its struct, and the constants in the text with those
//! of the code.

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::sync::Arc;

use bytesize::ByteSize;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::api::database::Db;
use crate::base::aligned::{BLOCK, to_u64};
use crate::base::crc::crc32c;
use crate::base::ids::{Lsn, PageId, SpaceId, TxnId};
use crate::base::page::apply::apply;
use crate::base::page::layout::{
    ENTRY_HEADER, FREE_PAGE, HEAD, HEADER_LEN, MAP_PAGE, NO_FENCE, OFFSET, PAGE_FORMAT, PageHeader, TREE_PAGE,
    find_damage, seal,
};
use crate::base::page::op::PageOp;
use crate::base::page::patch::{Patch, PatchBuf, find_patch};
use crate::base::row::{Reference, Row, Stamp, UndoRef};
use crate::io::simulated::SimulatedDisk;
use crate::mtr::{RECORD_DROP_SPACE, RECORD_HEADER, RECORD_PADDING, RECORD_PAGE, RECORD_TXN};
use crate::options::Options;
use crate::redo::files::{LAP_OFFSET, LogFileHeader, LogFileLap, RING, file_name, is_log_file, read_header, read_lap};
use crate::redo::group::{
    GROUP_HEADER_LEN, GROUP_TRAILER_LEN, GroupHeader, GroupKind, Place, epoch_payload, payload_crc, write_group,
};
use crate::redo::scan::PROOF_WINDOW;
use crate::schema::catalog_entry::{Entry, TableEntry};
use crate::schema::definition::{self, TableDefinition};
use crate::schema::index_key::EntryBytes;
use crate::store::directory::directory_crc;
use crate::store::doublewrite::{Copied, DOUBLEWRITE_FILE, Lot};
use crate::store::files::{DATA_FILE, DATA_FILE_NEW, DIRECTORY_FILES, MAP_FILE};
use crate::store::lot::LOT_PAGES;
use crate::store::map::{ENTRIES, INLINE, MapEntry, TAG_BITS, tag_of};
use crate::store::page_store::MapRecord;
use crate::store::rewrite::{FILE_NEW, kept_name};
use crate::store::space::PLACES_START;
use crate::store::superblock::{
    self, CLOSED_OFFSET, FEATURE_IN_PLACE, FEATURE_INLINE, FORMAT, OFFSETS, Raw, SLOTS_START,
};
use crate::txn::record::{Kind, Undo, record_head};

const DOC: &str = include_str!("../../../docs/file-format.md");

/// Offset, size, name.
type Field = (usize, usize, String);

fn size_behind<S, T>(_: fn(&S) -> &T) -> usize {
    size_of::<T>()
}

/// The fields of a struct. A missing field does not compile.
macro_rules! fields {
    ($name:ident { $($field:ident),+ $(,)? }) => {{
        let _all_are_named = |whole: $name| {
            let $name { $($field: _),+ } = whole;
        };
        let fields: Vec<Field> = vec![$((
            offset_of!($name, $field),
            size_behind(|whole: &$name| &whole.$field),
            stringify!($field).to_owned(),
        )),+];
        (size_of::<$name>(), fields)
    }};
}

/// Each struct under its name in the document, with its size.
fn structs() -> BTreeMap<&'static str, (usize, Vec<Field>)> {
    BTreeMap::from([
        (
            "Superblock",
            fields!(Raw {
                magic,
                format,
                crc,
                features,
                uuid,
                sequence,
                page_size,
                next_space,
                checkpoint_lsn,
                durable_lsn,
                nonce,
                directory_bytes,
                directory_crc,
                redo_generation,
                redo_payload_bytes,
                switch_lsn,
                next_payload_bytes,
                next_generation,
                apply_rate_kib,
                next_txn,
                write_capacity,
            }),
        ),
        ("Lot", fields!(Lot { magic, uuid, page_size, count, has_images, crc, of })),
        ("Copied", fields!(Copied { page_id, lsn })),
        (
            "PageHeader",
            fields!(PageHeader {
                crc,
                page_type,
                level,
                flags,
                page_id,
                page_lsn,
                spare,
                key_version,
                format,
                spare2,
                entry_count,
                low_len,
                high_len,
                prefix_len,
                heap_start,
                dead_bytes,
                head_skip,
                spare3,
                spare4,
            }),
        ),
        (
            "LogFileHeader",
            fields!(LogFileHeader { magic, crc, index, uuid, payload_bytes, generation, page_size, features }),
        ),
        ("LogFileLap", fields!(LogFileLap { first_group, nonce, crc })),
        ("GroupHeader", fields!(GroupHeader { len, crc, behind, kind })),
        ("MapRecord", fields!(MapRecord { page_id, entry, image_lsn })),
    ])
}

/// The tables of the document, by the heading above each.
fn tables() -> BTreeMap<String, Vec<Field>> {
    let mut tables = BTreeMap::new();
    let (mut heading, mut rows, mut header) = (String::new(), Vec::new(), 0);
    for line in DOC.lines().chain([""]) {
        if let Some(title) = line.strip_prefix("### ") {
            title.clone_into(&mut heading);
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells.as_slice() {
            ["", "offset", "size", "field", ..] => header = 2,
            ["", offset, size, name, ..] if header > 0 => {
                header = 1;
                if !offset.starts_with('-') {
                    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{heading}: {line}"));
                    rows.push((number(offset), number(size), (*name).to_owned()));
                }
            }
            _ if header > 0 => {
                header = 0;
                let other = tables.insert(heading.clone(), std::mem::take(&mut rows));
                assert!(other.is_none(), "two tables below {heading}");
            }
            _ => {}
        }
    }
    tables
}

#[test]
fn every_table_of_the_document_is_its_struct() {
    let (structs, tables) = (structs(), tables());
    assert_eq!(tables.keys().collect::<Vec<_>>(), structs.keys().collect::<Vec<_>>());
    for (name, (size, fields)) in structs {
        let mut end = 0;
        for (offset, len, field) in &fields {
            assert_eq!(*offset, end, "{name}: there is a gap before {field}, or the fields are out of order");
            end += len;
        }
        assert_eq!(end, size, "{name}: there is a gap at its end");
        assert_eq!(tables[name], fields, "{name}: left is the document, right the code");
    }
}

/// The document, its lines joined.
fn text() -> String {
    DOC.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_said(all: &[String]) {
    let text = text();
    for phrase in all {
        assert!(text.contains(phrase.as_str()), "the document does not say: {phrase}");
    }
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_text_has_the_files_and_their_constants() {
    let zeroes = crate::redo::files::MAGIC.iter().filter(|byte| **byte == 0).count();
    assert_eq!((zeroes, BLOCK, RING), (2, 4096, 4));
    assert_said(&[
        format!("Format version {FORMAT}:"),
        format!("| `{DATA_FILE}` |"),
        format!("| `{DOUBLEWRITE_FILE}` |"),
        format!("| 0 | 8 | magic | `{}` |", string(&crate::store::doublewrite::MAGIC)),
        format!("{LOT_PAGES} at most"),
        format!("`{DATA_FILE_NEW}` is the data file"),
        format!("`{}`, `{}`", kept_name(0, MAP_FILE).replace('0', "<n>"), kept_name(0, DATA_FILE).replace('0', "<n>")),
        format!("`{FILE_NEW}` is a file of a rebuild"),
        format!("| `{MAP_FILE}` |"),
        format!("| `{}`, `{}` |", DIRECTORY_FILES[0], DIRECTORY_FILES[1]),
        format!("| `redo-<generation>-<0..{}>.mpd` | the log: a ring of four equal files |", RING - 1),
        format!("| 0 | 8 | magic | `{}` |", string(&superblock::MAGIC)),
        format!("| 0 | 8 | magic | `{}`, two zero bytes |", string(&crate::redo::files::MAGIC[..6])),
        format!("| 8 | 4 | format | {FORMAT} |"),
        format!("| 36 | 2 | format | {PAGE_FORMAT} |"),
        format!("The superblocks are at offsets {} and {} KiB, one 512-byte sector each", OFFSETS[0], OFFSETS[1] >> 10),
        format!("Slots begin at {} MiB", SLOTS_START >> 20),
        format!("bit {}: pages are written in place", FEATURE_IN_PLACE.trailing_zeros()),
        format!("Bit {}: directories may hold entries", FEATURE_INLINE.trailing_zeros()),
        format!("of its entries here: {INLINE} at"),
        format!(
            "From {} KiB on: map pages of {} KiB, each with a page header (type {MAP_PAGE})",
            PLACES_START >> 10,
            BLOCK >> 10
        ),
        format!("and {ENTRIES} entries of 8 bytes"),
        format!("`index * {ENTRIES} + i`"),
        format!("| 4 | 1 | page_type | {TREE_PAGE}: tree, {MAP_PAGE}: map; {FREE_PAGE}: given back, never in a file |"),
        "65,535: none".to_owned(),
        format!("At offset {LAP_OFFSET};"),
        format!("At offset {CLOSED_OFFSET} of the sector may follow"),
        format!("within {} MiB behind the end", PROOF_WINDOW >> 20),
        format!("{TAG_BITS} bits tag, 4 bits size (in 4 KiB, less one), 40 bits place"),
        "Entries grow down from the page's end: length of the key (2), length of the value (2), key, value".to_owned(),
        format!("heads ({HEAD} bytes each)"),
        format!("offsets ({OFFSET} bytes each)"),
    ]);
    assert_eq!((NO_FENCE, ENTRY_HEADER, GROUP_TRAILER_LEN), (65_535, 4, 4));
    assert_eq!(BLOCK, HEADER_LEN + 8 * 504);
    assert_said(&[format!("that of the {} bytes above", size_of::<Raw>())]);
    assert!(size_of::<Raw>() <= 512, "a superblock is one sector");
    assert!(LAP_OFFSET >= 512 && LAP_OFFSET + size_of::<LogFileLap>() <= BLOCK, "the lap has a sector of its own");
    assert_eq!(file_name(7, 3), "redo-7-3.mpd");
}

#[test]
fn the_text_has_the_kinds_of_groups_records_and_operations() {
    let kind = |kind| {
        let mut out = [0; GROUP_HEADER_LEN + GROUP_TRAILER_LEN + 1];
        let place = Place { nonce: 1, at: Lsn(2) };
        write_group(&mut out, place, Lsn(1), kind, &[9], payload_crc(&[9]));
        out[offset_of!(GroupHeader, kind)]
    };
    let code = |op: PageOp<'_>| {
        let mut out = Vec::new();
        op.encode(&mut out);
        out[0]
    };
    let (pages, map, epoch) = (kind(GroupKind::Pages), kind(GroupKind::Map), kind(GroupKind::Epoch));
    let init = code(PageOp::Init { level: 0, low: b"", high: None, entries: Vec::new() });
    let insert = code(PageOp::Insert { key: b"", value: b"" });
    let replace = code(PageOp::Replace { key: b"", value: b"" });
    let remove = code(PageOp::Remove { key: b"" });
    let patch = code(PageOp::Patch { key: b"", patch: Patch(b"") });
    let truncate = code(PageOp::Truncate { keep: 0, high: b"" });
    let free = code(PageOp::Free);
    let compact = code(PageOp::Compact { oldest: TxnId::default() });
    assert_said(&[
        format!("| 12 | 1 | kind | {pages}: pages, {map}: map, {epoch}: epoch |"),
        format!(
            "**Kind {pages}**, pages: records. `{RECORD_PAGE}`: a page's changes: page id (8), its LSN before the group (8)"
        ),
        format!(
            "`{RECORD_DROP_SPACE}`: a space is dropped: its id (4). `{RECORD_TXN}`: the group is of this transaction,"
        ),
        format!("`{RECORD_PADDING}`: padding"),
        format!("| `{init}` | init | level (1), whether there is a high fence (1), low fence, high fence, count (2),"),
        format!(
            "| `{insert}` | insert | key, value | | `{replace}` | replace | key, value | | `{remove}` | remove | key |"
        ),
        format!("| `{truncate}` | truncate | entries to keep (2), new high fence |"),
        format!("| `{compact}` | compact | transaction id ({}) | | `{free}` | free | |", TxnId::LEN),
        format!("| `{patch}` | patch | key, pieces"),
        format!("**Kind {map}**, map: MapRecords."),
        format!("**Kind {epoch}**, epoch: the nonce ({})", epoch_payload(0).len()),
    ]);
    assert_eq!(RECORD_HEADER, 1 + 8 + 8 + 4);
    let mut truncated = Vec::new();
    PageOp::Truncate { keep: 258, high: b"ab" }.encode(&mut truncated);
    assert_eq!(truncated, [truncate, 2, 1, 2, 0, b'a', b'b']);
    let mut pieces = PatchBuf::new();
    assert!(find_patch((0, b""), &[1; 99], &[&[1; 40][..], &[2; 2], &[1; 59]].concat(), &mut pieces));
    assert_eq!(pieces[..], [40, 0, 0, 0, 2, 0, 2, 2], "kept, left out, put in");
}

/// A row and an undo record, built from the text alone.
#[test]
fn rows_and_undo_records_are_as_the_text_says() {
    let stamp = Stamp { txn: TxnId(0x0102_0304_0506), undo: Some(UndoRef { page: 6, record: 8 }) };
    let row = [&[1, 6, 5, 4, 3, 2, 1, 7, 0, 0, 0, 8, 0][..], b"payload"].concat();
    assert_eq!([&stamp.head(false, false)[..], b"payload"].concat(), row);
    assert_eq!(
        (stamp.head(true, false)[0], Stamp { undo: None, ..stamp }.head(false, false)[7..].to_vec()),
        (3, vec![0; 6])
    );
    assert_eq!(Row::decode(b"\0payload").map(|row| row.payload), Some(&b"payload"[..]));
    let mut record = record_head(Kind::Whole, stamp.txn).to_vec();
    Undo { needs_purge: true, space: SpaceId(7), op: PageOp::Remove { key: b"k" } }.encode(&mut record);
    assert_eq!(record, [2, 6, 5, 4, 3, 2, 1, 1, 7, 0, 0, 0, 4, 1, 0, b'k']);
    let heads = [Kind::Header { is_active: true }, Kind::Header { is_active: false }, Kind::Part(0x0102_0304)];
    let heads = heads.map(|kind| record_head(kind, stamp.txn).to_vec());
    assert_eq!(heads[..2], [vec![1, 6, 5, 4, 3, 2, 1], vec![3, 6, 5, 4, 3, 2, 1]]);
    assert_eq!(heads[2], [4, 6, 5, 4, 3, 2, 1, 4, 3, 2, 1]);
    assert_eq!((SpaceId::CATALOG, SpaceId::UNDO, SpaceId::FIRST), (SpaceId(0), SpaceId(1), SpaceId(2)));
    assert_said(&[
        "space 0 is the catalog, space 1 has the undo".to_owned(),
        "trees begin with space 2".to_owned(),
        "Flags: bit 0, there is a stamp; bit 1, a delete".to_owned(),
    ]);
}

/// Entries of the catalog and of an index, built from the text alone.
#[test]
fn catalog_and_index_entries_are_as_the_text_says() {
    let definition = TableDefinition::new()
        .unique("by", [definition::Field::key(1..3)])
        .index("to", [definition::Field::value(4..5), definition::Field::value(6..)]);
    let table = TableEntry { rows: SpaceId(7), chunks: None, definition, indexes: vec![SpaceId(8), SpaceId(9)] };
    let mut entry = EntryBytes::new();
    let split = table.definition.indexes[1].append_entry_key(b"key", b"....4.6\x007", &mut entry);
    assert_eq!((split, &entry[..]), (Ok(()), &b"46\x00\xFF7\x00\x01key"[..]));
    let by = [&[1, 8, 0, 0, 0, 2][..], b"by", &[1, 0, 1, 0, 0, 0, 2, 0]].concat();
    let to = [&[0, 9, 0, 0, 0, 2][..], b"to", &[2, 1, 4, 0, 0, 0, 1, 0, 3, 6, 0, 0, 0, 0, 0]].concat();
    assert_eq!(Entry::Table(table).encode(), [&[2, 0, 7, 0, 0, 0, 2][..], &by, &to].concat());
    assert_eq!(Entry::Tree { rows: SpaceId(7), chunks: None }.encode(), [1, 0, 7, 0, 0, 0]);
    let chunks = Some(SpaceId(9));
    assert_eq!(Entry::Tree { rows: SpaceId(7), chunks }.encode(), [1, 1, 7, 0, 0, 0, 9, 0, 0, 0]);
    let reference = Reference { txn: TxnId(0x0102_0304_0506), number: 0x0708_090A, len: 0x0B0C_0D0E };
    assert_eq!(reference.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 13, 12, 11]);
    assert_eq!(reference.chunk_key(0x0B0C_0D0E), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    assert_said(&[
        "kind (1), flags (1; bit 0, there are chunks)".to_owned(),
        "bit 2, the payload is a reference to chunks".to_owned(),
        "flags (1; bit 0, it is unique)".to_owned(),
        "offset (4), length (2; 0 with bit 1)".to_owned(),
        "0x00 is 0x00 0xFF, and 0x00 0x01 follows".to_owned(),
    ]);
}

#[test]
fn entries_and_page_ids_are_put_together_as_the_text_says() {
    assert_said(&["`(page LSN * 0x9E3779B97F4A7C15) >> 44`".to_owned(), "`space << 32 | number`".to_owned()]);
    for lsn in [1, 4096, 1 << 40] {
        assert_eq!(tag_of(Lsn(lsn)), 0x9E37_79B9_7F4A_7C15u64.wrapping_mul(lsn) >> 44);
    }
    assert_eq!(MapEntry::new(5 * 4096, 16384, 77).0, 5 << 24 | 3 << 20 | 77);
    assert_eq!(PageId::new(SpaceId(3), 4).0, 3 << 32 | 4);
}

/// A group, and the checksums of a page and of a directory, built from the text alone.
#[test]
fn checksums_are_seeded_as_the_text_says() {
    let (nonce, lsn, behind, payload) = (0x1122u64, 0x3344u64, 0x55u32, b"payload");
    let len = 13 + 7 + 4u32;
    let mut summed = Vec::new();
    summed.extend_from_slice(&crc32c(&[], &[payload]).to_le_bytes());
    summed.extend_from_slice(&len.to_le_bytes());
    summed.extend_from_slice(&behind.to_le_bytes());
    summed.push(2);
    summed.extend_from_slice(&nonce.to_le_bytes());
    summed.extend_from_slice(&lsn.to_le_bytes());
    let mut group = Vec::new();
    group.extend_from_slice(&len.to_le_bytes());
    group.extend_from_slice(&crc32c(&[], &[&summed]).to_le_bytes());
    group.extend_from_slice(&behind.to_le_bytes());
    group.push(2);
    group.extend_from_slice(payload);
    group.extend_from_slice(&len.to_le_bytes());
    let mut written = vec![0; group.len()];
    let place = Place { nonce, at: Lsn(lsn) };
    write_group(&mut written, place, Lsn(lsn - 0x55), GroupKind::Map, payload, payload_crc(payload));
    assert_eq!(written, group);

    let (uuid, id) = ([3u64, 4u64], PageId(5));
    let mut page = vec![0; BLOCK];
    let entries: Vec<(&[u8], &[u8])> = vec![(b"c", b"1"), (b"cdefgh", b"2")];
    apply(&mut page, id, &PageOp::Init { level: 0, low: b"ab", high: Some(b"ad"), entries }).expect("fits");
    seal(&mut page, uuid, id);
    assert_eq!(find_damage(&page, uuid, id, TREE_PAGE), None);
    assert_eq!(
        page[..4],
        crc32c(&[], &[U64::new(3).as_bytes(), &[4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0], &page[4..]])
            .to_le_bytes()
    );
    assert_eq!(page[46..48], [1, 0], "the prefix: a");
    assert_eq!(page[64..76], *b"abad\0\0\0cfedc", "fences, heads");
    assert_eq!(page[76..80], [0xfa, 0x0f, 0xef, 0x0f], "offsets: 4090, 4079");
    assert_eq!(page[4079..], *b"\x06\0\x01\0cdefgh2\x01\0\x01\0c1", "the entries at the page's end");

    let entries: Vec<(&[u8], &[u8])> = vec![(b"k", b""), (b"kkkkkab", b""), (b"kkkkkb", b"")];
    apply(&mut page, id, &PageOp::Init { level: 0, low: b"", high: None, entries }).expect("fits");
    assert_eq!(page[56..58], [5, 0], "heads skip five bytes");
    assert_eq!(page[64..76], *b"\0\0\0\0\0\0ba\0\0\0b", "heads");
    assert_eq!(directory_crc(uuid, 6, b"x"), crc32c(&[3, 4, 6], &[b"x"]));
}

#[test]
fn new_database_has_the_files_and_begin_that_the_text_says() {
    let disk = SimulatedDisk::new();
    let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::kib(160));
    let options = options.redo_capacity(ByteSize::kib(512));
    Db::open_on(Arc::new(disk.clone()), options).expect("opened").close().expect("closed");
    let image = disk.image();
    // The lock file belongs to the directory; a simulated disk has none.
    let expected = [DIRECTORY_FILES[0], DIRECTORY_FILES[1], DATA_FILE, MAP_FILE];
    assert!(image.keys().all(|name| is_log_file(name) || expected.contains(&name.as_str())), "{:?}", image.keys());
    assert_eq!(image.len(), expected.len() + 4);
    assert!(image[MAP_FILE][..4096].iter().all(|byte| *byte == 0), "block 0 of the map file is zero");
    let block = &image[&file_name(0, 0)];
    let (owner, index, geometry) = read_header(block).expect("whole");
    assert_eq!((index, to_u64(block.len())), (0, 4096 + geometry.payload_bytes));
    let first = read_lap(block, owner.uuid).expect("whole").at;
    assert_said(&[format!("The first group of a database is at LSN {first}.")]);
}
