//! The map directory: the places of all map pages' images. Each checkpoint writes it as a whole, into two files
//! alternately.
//!
//! The file begins with a copy of the superblock that names the directory and is written later. If superblocks are
//! lost, `rebuild` learns from the copies of the checkpoints, and whether a directory is whole.

use zerocopy::IntoBytes;

use super::map::{MapEntry, MapPage, PageMap};
use super::superblock::{Found, Superblock};
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, round_up, to_u64, to_usize};
use crate::base::crc::crc32c;
use crate::base::error::{Error, MEND_MAP};
use crate::base::ids::SpaceId;
use crate::base::page::reader::Reader;
use crate::io::device::Device;

/// Bytes of one write.
const CHUNK: usize = 1 << 20;

/// The checksum of the directory of checkpoint `sequence`.
pub(crate) fn directory_crc(uuid: [u64; 2], sequence: u64, bytes: &[u8]) -> u32 {
    crc32c(&[uuid[0], uuid[1], sequence], &[bytes])
}

/// The required length of a directory file.
pub(super) fn file_len(spaces: u64, map_pages: u64) -> u64 {
    BLOCK_U64 + round_up(spaces * 8 + map_pages * 8)
}

/// For each space: its id, the number of its map pages, and their places.
pub(crate) fn encode(map: &PageMap) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, space) in &map.spaces {
        let count = u32::try_from(space.pages.len()).expect("STORE: page numbers have 32 bits");
        out.extend_from_slice(&id.0.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        for page in &space.pages {
            out.extend_from_slice(&page.place.0.to_le_bytes());
        }
    }
    out
}

/// Adds to the empty `map` a map page without entries for each place in `bytes`. `None`: `bytes` end too soon, or the
/// spaces do not ascend (a repeated space would lose its first pages).
pub(crate) fn decode(bytes: &[u8], map: &mut PageMap) -> Option<()> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let space = SpaceId(reader.u32()?);
        if map.spaces.last_key_value().is_some_and(|(last, _)| *last >= space) {
            return None;
        }
        let count = reader.u32()?;
        let pages = (0..count).map(|_| Some(MapPage::new(MapEntry(reader.u64()?)))).collect::<Option<Vec<_>>>()?;
        map.spaces.entry(space).or_default().pages = pages;
    }
    Some(())
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
    use crate::redo::dirty_counts::DirtyCounts;
    use std::sync::Arc;

    #[test]
    fn a_directory_survives_encoding_and_no_prefix_decodes() {
        let empty = || PageMap::new(Arc::new(DirtyCounts::default()));
        let mut map = empty();
        for (space, places) in [(0, vec![4096, 8192]), (7, vec![0]), (9, vec![])] {
            let pages = places.into_iter().map(|offset| MapPage::new(MapEntry::new(offset, 4096, 5))).collect();
            map.spaces.entry(SpaceId(space)).or_default().pages = pages;
        }
        let bytes = encode(&map);
        let mut again = empty();
        assert_eq!(decode(&bytes, &mut again), Some(()));
        assert_eq!(encode(&again), bytes);
        for end in [1, 7, 9, 15, 23, 25, 31, 33] {
            assert_eq!(decode(&bytes[..end], &mut empty()), None, "cut at {end}");
        }
        assert_eq!(decode(&[&bytes[..], &bytes[24..]].concat(), &mut empty()), None, "repeated spaces");
    }
}
