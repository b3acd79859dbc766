//! The map directory: the places of all map pages' images. Each checkpoint writes it as a whole, into two files
//! alternately.
//!
//! A space's first map page has no image before the space has more than [`INLINE`] pages: the directory holds its
//! entries. So a small tree needs no places.
//!
//! DIRECTORY-1  While a space's first map page has no place, a directory names the first [`INLINE`] entries as they
//!              are, and an LSN. All other entries are zero, or named by map groups behind that LSN, which the log
//!              still has: the page's oldest change holds the checkpoint back. Only the keeper writes map pages and
//!              takes directories, and after a failed write it takes none.
//!
//! The file begins with a copy of the superblock that names the directory and is written later. If superblocks are
//! lost, `rebuild` learns from the copies of the checkpoints, and whether a directory is whole.

use std::sync::Arc;

use zerocopy::IntoBytes;

use super::map::{ENTRIES, INLINE, MapEntry, MapPage, NUMBERS_END, PageMap};
use super::superblock::{FEATURE_INLINE, Found, Superblock};
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, round_up, to_u64, to_usize};
use crate::base::crc::crc32c;
use crate::base::error::{Error, MEND_MAP};
use crate::base::ids::{Lsn, SpaceId};
use crate::base::page::reader::Reader;
use crate::io::device::Device;

/// Bytes of one write.
const CHUNK: usize = 1 << 20;

/// The checksum of the directory of checkpoint `sequence`.
pub(crate) fn directory_crc(uuid: [u64; 2], sequence: u64, bytes: &[u8]) -> u32 {
    crc32c(&[uuid[0], uuid[1], sequence], &[bytes])
}

/// Bits of a count of map pages. The byte above them is 0, or one more than the number of the first map page's entries
/// in the directory.
const COUNT_BITS: u32 = 24;

const _: () = assert!(NUMBERS_END / ENTRIES < 1 << COUNT_BITS && INLINE < 255);

/// A directory's bytes.
pub(crate) struct Directory {
    pub(crate) bytes: Vec<u8>,
    /// The features that a build must know to read it.
    pub(crate) features: u64,
}

/// The required length of a directory file. `unplaced`: spaces whose first map page has no place.
pub(super) fn file_len(spaces: u64, unplaced: u64, map_pages: u64) -> u64 {
    let most_entries = 8 + 8 * u64::from(INLINE);
    BLOCK_U64 + round_up(spaces * 8 + unplaced * most_entries + map_pages * 8)
}

/// For each space: its id, the number of its map pages, and their places, or the entries of the first one.
pub(crate) fn encode(map: &PageMap) -> Directory {
    let (mut bytes, mut features) = (Vec::new(), 0);
    for (id, space) in &map.spaces {
        let count = u32::try_from(space.pages.len()).expect("STORE: page numbers have 32 bits");
        let inline = space.pages.first().and_then(|first| Inline::of(first, space.is_small()));
        let held = inline.as_ref().map_or(0, |inline| u32::try_from(inline.entries.len() + 1).unwrap_or(0));
        bytes.extend_from_slice(&id.0.to_le_bytes());
        bytes.extend_from_slice(&(held << COUNT_BITS | count).to_le_bytes());
        if let Some(Inline { lsn, entries }) = &inline {
            features |= FEATURE_INLINE;
            bytes.extend_from_slice(&lsn.0.to_le_bytes());
            entries.iter().for_each(|entry| bytes.extend_from_slice(&entry.0.to_le_bytes()));
        }
        for page in &space.pages[usize::from(inline.is_some())..] {
            bytes.extend_from_slice(&page.place.0.to_le_bytes());
        }
    }
    Directory { bytes, features }
}

/// What a directory holds of a map page.
struct Inline<'a> {
    /// All groups up to here are in `entries`.
    lsn: Lsn,
    /// The last one is not zero.
    entries: &'a [MapEntry],
}

impl Inline<'_> {
    /// `None`: the page has a place, or no entry at all.
    fn of(page: &MapPage, is_small: bool) -> Option<Inline<'_>> {
        if page.place.is_some() || page.lsn == Lsn::ZERO {
            return None;
        }
        let first = &page.entries[..to_usize(u64::from(INLINE))];
        let len = first.iter().rposition(|entry| entry.is_some()).map_or(0, |last| last + 1);
        // DIRECTORY-1: of a page with more entries, the groups from its oldest change on are replayed.
        let lsn = match is_small || planted!("directory_claims_all_entries") {
            true => page.lsn,
            false => page.rec_lsn.expect("DIRECTORY-1: a map page with more entries is clean, and has no place"),
        };
        Some(Inline { lsn, entries: &first[..len] })
    }
}

/// Adds to the empty `map` a map page for each place in `bytes`, without entries, and those with entries in `bytes`.
/// `None`: `bytes` end too soon, or are not those of a directory. Spaces ascend: a repeated space would lose its first
/// pages.
pub(crate) fn decode(bytes: &[u8], map: &mut PageMap) -> Option<()> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let space = SpaceId(reader.u32()?);
        if map.spaces.last_key_value().is_some_and(|(last, _)| *last >= space) {
            return None;
        }
        let count = reader.u32()?;
        let (held, count) = (count >> COUNT_BITS, count & ((1 << COUNT_BITS) - 1));
        let first = match held.checked_sub(1) {
            Some(entries) => Some(read_inline(&mut reader, entries)?),
            None => None,
        };
        let placed = count.checked_sub(u32::from(first.is_some()))?;
        let places = (0..placed).map(|_| Some(MapPage::new(MapEntry(reader.u64()?))));
        let pages = first.into_iter().map(Some).chain(places).collect::<Option<Vec<_>>>()?;
        map.spaces.entry(space).or_default().pages = pages;
    }
    Some(())
}

/// A map page with `count` entries in the directory.
fn read_inline(reader: &mut Reader<'_>, count: u32) -> Option<MapPage> {
    if count > INLINE {
        return None;
    }
    let mut page = MapPage::new(MapEntry::default());
    page.lsn = Lsn(reader.u64()?);
    let entries = Arc::make_mut(&mut page.entries);
    for entry in entries.iter_mut().take(to_usize(u64::from(count))) {
        *entry = MapEntry(reader.u64()?);
    }
    let is_last_zero = to_usize(u64::from(count)).checked_sub(1).is_some_and(|last| !entries[last].is_some());
    (page.lsn > Lsn::ZERO && !is_last_zero).then_some(page)
}

/// Writes the directory that `superblock` names. Durable after the next sync.
pub(crate) fn write(file: &dyn Device, superblock: &Superblock, bytes: &[u8]) -> Result<(), Error> {
    let head = superblock.encode();
    let mut block = aligned(to_usize(round_up(to_u64(bytes.len().min(CHUNK))).max(BLOCK_U64)));
    let mut offset = 0;
    for chunk in [head.as_bytes()].into_iter().chain(bytes.chunks(CHUNK)) {
        let len = to_usize(round_up(to_u64(chunk.len())));
        block[..chunk.len()].copy_from_slice(chunk);
        block[chunk.len()..len].fill(0);
        file.write_at(&block[..len], offset)
            .map_err(|e| Error::device(&format!("write the map directory '{}'", file.name()), e))?;
        offset += to_u64(len);
    }
    Ok(())
}

/// The copy of the superblock that names the directory in this file; `None`: the copy is not whole.
pub(crate) fn superblock_in(file: &dyn Device) -> Result<Option<Superblock>, Error> {
    let mut block = aligned(BLOCK);
    file.read_at(&mut block, 0).map_err(|e| Error::io(&format!("read the map directory '{}'", file.name()), e))?;
    Ok(match Superblock::decode(&block) {
        Found::Valid(superblock) => Some(superblock),
        _ => None,
    })
}

/// The directory that `superblock` names.
pub(crate) fn read(file: &dyn Device, superblock: &Superblock) -> Result<Vec<u8>, Error> {
    let damaged = || {
        let message = format!(
            "the map directory '{}' is not the one that superblock {} names: {MEND_MAP}",
            file.name(),
            superblock.sequence
        );
        Error::Corruption(message.into())
    };
    let file_len = file.len().map_err(|e| Error::io(&format!("look at '{}'", file.name()), e))?;
    if BLOCK_U64.saturating_add(superblock.directory_bytes) > file_len {
        return Err(damaged());
    }
    let mut bytes = aligned(to_usize(round_up(superblock.directory_bytes)));
    file.read_at(&mut bytes, BLOCK_U64)
        .map_err(|e| Error::io(&format!("read the map directory '{}'", file.name()), e))?;
    let directory = &bytes[..to_usize(superblock.directory_bytes)];
    if directory_crc(superblock.uuid, superblock.sequence, directory) != superblock.directory_crc {
        return Err(damaged());
    }
    Ok(directory.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::PageId;
    use crate::redo::dirty_counts::DirtyCounts;

    #[test]
    fn a_directory_survives_encoding_and_no_prefix_decodes() {
        let empty = || PageMap::new(Arc::new(DirtyCounts::default()));
        let mut map = empty();
        for (space, places) in [(0, vec![4096, 8192]), (7, vec![0]), (9, vec![])] {
            let pages = places.into_iter().map(|offset| MapPage::new(MapEntry::new(offset, 4096, 5))).collect();
            map.spaces.entry(SpaceId(space)).or_default().pages = pages;
        }
        let Directory { bytes, features } = encode(&map);
        assert_eq!(features, 0, "a build that knows no entries in directories reads it");
        let mut again = empty();
        assert_eq!(decode(&bytes, &mut again), Some(()));
        assert_eq!(encode(&again).bytes, bytes);
        for end in [1, 7, 9, 15, 23, 25, 31, 33] {
            assert_eq!(decode(&bytes[..end], &mut empty()), None, "cut at {end}");
        }
        assert_eq!(decode(&[&bytes[..], &bytes[24..]].concat(), &mut empty()), None, "repeated spaces");
    }

    #[test]
    fn directory_holds_the_entries_of_a_small_space() {
        let counts = Arc::new(DirtyCounts::default());
        let (mut map, mut again) = (PageMap::new(Arc::clone(&counts)), PageMap::new(Arc::clone(&counts)));
        let id = |number| PageId::new(SpaceId(3), number);
        let entry = |number: u32| MapEntry::new(4096 * u64::from(number), 4096, 9);
        let none = MapEntry::default();
        for number in [0, 4] {
            map.apply(id(number), entry(number), Lsn(100), Lsn(150));
        }
        map.map_page_mut(id(0)).expect("there").rec_lsn = None;
        let Directory { bytes, features } = encode(&map);
        assert_eq!((bytes.len(), features), (8 + 8 + 5 * 8, FEATURE_INLINE));
        assert_eq!(decode(&bytes, &mut again), Some(()));
        assert_eq!((again.get(id(4)), again.get(id(1)), again.known_to(id(0))), (entry(4), none, Lsn(150)));
        assert_eq!(encode(&again).bytes, bytes);
        for end in (0..bytes.len()).skip(1) {
            assert_eq!(decode(&bytes[..end], &mut PageMap::new(Arc::clone(&counts))), None, "cut at {end}");
        }
        let refused = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            decode(&bytes, &mut PageMap::new(Arc::clone(&counts))).is_none()
        };
        assert!(refused(4, 0), "entries of no map page");
        assert!(refused(7, 10), "more entries than a directory holds");
        // A further entry, which only the log knows: the group that named it is replayed.
        map.apply(id(INLINE), entry(20), Lsn(200), Lsn(250));
        map.apply(id(1), entry(21), Lsn(250), Lsn(300));
        let mut known = PageMap::new(counts);
        assert_eq!(decode(&encode(&map).bytes, &mut known), Some(()));
        assert_eq!((known.get(id(1)), known.get(id(INLINE)), known.known_to(id(0))), (entry(21), none, Lsn(200)));
        known.apply(id(INLINE), entry(20), Lsn(200), Lsn(250));
        known.apply(id(1), entry(21), Lsn(250), Lsn(300));
        assert_eq!((known.get(id(INLINE)), known.known_to(id(0))), (entry(20), Lsn(300)));
    }
}
