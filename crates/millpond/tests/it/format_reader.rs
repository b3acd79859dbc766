//! Reads a database by `docs/file-format.md` alone: the purpose of each byte of its files. Shares no code with the
//! engine.

use std::collections::{BTreeMap, BTreeSet};

use millpond::simulation::Image;

/// The use of a region's bytes, and the required result of a flipped bit in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Duty {
    /// In use: damage must be found.
    Found,
    /// In use, but recovery does not need it here: damage may be passed over, with all rows right.
    Healed,
    /// The last batch that was flushed: damage looks like a crash before the end of its flush.
    LastBatch,
    /// Not in use.
    Unused,
}

/// Bytes of a file with one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) what: &'static str,
    pub(crate) duty: Duty,
    pub(crate) file: String,
    pub(crate) from: usize,
    pub(crate) len: usize,
}

/// CRC-32C, bit by bit.
fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut crc = !0u32;
    for byte in parts.iter().copied().flatten() {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn small(value: u64) -> usize {
    usize::try_from(value).expect("small")
}

const BLOCK: usize = 4096;
const SUPERBLOCK: usize = 144;

/// A group of the log.
struct Group {
    at: u64,
    bytes: Vec<u8>,
    durable: u64,
}

impl Group {
    fn kind(&self) -> u8 {
        self.bytes[12]
    }

    fn payload(&self) -> &[u8] {
        &self.bytes[13..self.bytes.len() - 4]
    }
}

struct Book<'a> {
    image: &'a Image,
    superblock: &'a [u8],
    regions: Vec<Region>,
}

/// All regions of the files, and the slots and places that nothing names.
pub(crate) fn regions(image: &Image) -> Vec<Region> {
    let data = &image["data.mpd"];
    let places = [0, 64 << 10];
    let newest = usize::from(u64_at(data, places[1] + 40) > u64_at(data, places[0] + 40));
    let superblock = &data[places[newest]..places[newest] + SUPERBLOCK];
    assert_eq!((&superblock[..8], u64_at(superblock, 104)), (&b"MILLPOND"[..], 0), "one ring");
    let mut book = Book { image, superblock, regions: Vec::new() };
    for (place, what) in [(newest, "superblock, the newest"), (1 - newest, "superblock, the older")] {
        book.add(what, Duty::Found, "data.mpd", places[place], SUPERBLOCK);
        let rest = if place == 0 { places[1] } else { 1 << 20 } - places[place] - SUPERBLOCK;
        book.add("behind the superblocks", Duty::Unused, "data.mpd", places[place] + SUPERBLOCK, rest);
    }
    let mut entries = book.map(newest);
    let groups = book.log();
    let formatted = book.live_groups(&groups);
    for group in groups.iter().filter(|group| group.kind() == 2) {
        for record in group.payload().chunks(24) {
            entries.insert(u64_at(record, 0), u64_at(record, 8));
        }
    }
    book.slots(&entries, &formatted);
    book.regions
}

impl Book<'_> {
    fn add(&mut self, what: &'static str, duty: Duty, file: &str, from: usize, len: usize) {
        self.regions.push(Region { what, duty, file: file.to_owned(), from, len });
    }

    /// Directories and map pages; returns the entries of the checkpoint's map, by page id.
    fn map(&mut self, newest: usize) -> BTreeMap<u64, u64> {
        let len = small(u64_at(self.superblock, 80));
        for (file, used) in [(newest, len), (1 - newest, 0)] {
            let name = format!("directory-{file}.mpd");
            // Shows whether a damaged superblock was the older one.
            self.add("directory, copy of superblock", Duty::Healed, &name, 0, SUPERBLOCK);
            self.add("directory, the rest", Duty::Unused, &name, SUPERBLOCK, BLOCK - SUPERBLOCK);
            if used > 0 {
                self.add("directory, the newest", Duty::Found, &name, BLOCK, used);
            }
            self.add("directory, the rest", Duty::Unused, &name, BLOCK + used, self.image[&name].len() - BLOCK - used);
        }
        let directory = self.image[&format!("directory-{newest}.mpd")][BLOCK..BLOCK + len].to_vec();
        let map = &self.image["map.mpd"];
        let (mut at, mut used, mut entries) = (0, BTreeSet::new(), BTreeMap::new());
        while at < directory.len() {
            let (space, counts) = (u64::from(u32_at(&directory, at)), u64::from(u32_at(&directory, at + 4)));
            let (count, held) = (counts & 0xff_ffff, counts >> 24);
            at += 8;
            if held > 0 {
                for entry in 0..held - 1 {
                    let found = u64_at(&directory, at + 8 + small(entry) * 8);
                    if found != 0 {
                        entries.insert(space << 32 | entry, found);
                    }
                }
                at += small(held) * 8;
            }
            for index in u64::from(held > 0)..count {
                let place = u64_at(&directory, at);
                at += 8;
                if place == 0 {
                    continue;
                }
                let offset = small(place >> 24) * BLOCK;
                used.insert(offset);
                self.add("map page", Duty::Found, "map.mpd", offset, BLOCK);
                for entry in 0..504 {
                    let found = u64_at(map, offset + 64 + small(entry) * 8);
                    if found != 0 {
                        entries.insert(space << 32 | (index * 504 + entry), found);
                    }
                }
            }
        }
        for offset in (0..map.len()).step_by(BLOCK).filter(|offset| !used.contains(offset)) {
            self.add("map file, free place", Duty::Unused, "map.mpd", offset, BLOCK);
        }
        entries
    }

    fn log_file(&self, at: u64) -> (String, usize) {
        let payload = u64_at(self.superblock, 96);
        let name = format!("redo-{}-{}.mpd", u32_at(self.superblock, 92), at / payload % 4);
        (name, BLOCK + small(at % payload))
    }

    fn log_bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let byte = |lsn| {
            let (name, offset) = self.log_file(lsn);
            self.image[&name][offset]
        };
        (at..).take(len).map(byte).collect()
    }

    /// The groups from the checkpoint on.
    fn log(&self) -> Vec<Group> {
        let (mut at, mut nonce) = (u64_at(self.superblock, 56), u64_at(self.superblock, 72));
        let mut groups = Vec::new();
        loop {
            let len = u32_at(&self.log_bytes(at, 4), 0);
            if !(18..1 << 20).contains(&len) {
                return groups;
            }
            let bytes = self.log_bytes(at, small(u64::from(len)));
            let payload = &bytes[13..bytes.len() - 4];
            let payload_crc = crc32c(&[payload]).to_le_bytes();
            let place = [nonce.to_le_bytes(), at.to_le_bytes()];
            let crc = crc32c(&[&payload_crc, &bytes[..4], &bytes[8..12], &bytes[12..13], &place[0], &place[1]]);
            if crc != u32_at(&bytes, 4) || bytes[bytes.len() - 4..] != bytes[..4] {
                return groups;
            }
            if bytes[12] == 3 {
                nonce = u64_at(payload, 0);
            }
            let durable = at - u64::from(u32_at(&bytes, 8));
            groups.push(Group { at, bytes, durable });
            at += u64::from(len);
        }
    }

    /// Adds the log's files. Returns the pages that its groups format.
    fn live_groups(&mut self, groups: &[Group]) -> BTreeSet<u64> {
        let proven = u64_at(self.superblock, 64);
        let mut live: BTreeSet<(String, usize)> = BTreeSet::new();
        let mut formatted = BTreeSet::new();
        for (index, group) in groups.iter().enumerate() {
            let shown = groups[index + 1..].iter().any(|later| later.durable > group.at);
            let (what, duty) = match (group.at < proven, shown) {
                (true, _) => ("log, before the durable LSN", Duty::Found),
                (_, true) => ("log, shown by later groups", Duty::Found),
                _ => ("log, the last batch", Duty::LastBatch),
            };
            let mut rest = group.at..group.at + u64::try_from(group.bytes.len()).expect("small");
            while !rest.is_empty() {
                let (name, from) = self.log_file(rest.start);
                let len = small(rest.end - rest.start).min(self.image[&name].len() - from);
                self.add(what, duty, &name, from, len);
                live.extend((from..from + len).map(|at| (name.clone(), at)));
                rest.start += u64::try_from(len).expect("small");
            }
            let mut payload = if group.kind() == 1 { group.payload() } else { &[] };
            while payload.first() == Some(&1) {
                let len = small(u64::from(u32_at(payload, 17)));
                if payload[21] == 1 {
                    formatted.insert(u64_at(payload, 1));
                }
                payload = &payload[21 + len..];
            }
        }
        for index in 0..4 {
            let name = format!("redo-{}-{index}.mpd", u32_at(self.superblock, 92));
            self.add("log file, header", Duty::Found, &name, 0, 56);
            self.add("log file, header's rest", Duty::Unused, &name, 56, 512 - 56);
            self.add("log file, lap", Duty::Healed, &name, 512, 20);
            self.add("log file, header's rest", Duty::Unused, &name, 532, BLOCK - 532);
            // The gaps between the live bytes.
            let mut from = BLOCK;
            for at in BLOCK..=self.image[&name].len() {
                if at == self.image[&name].len() || live.contains(&(name.clone(), at)) {
                    if at > from {
                        self.add("log, not live", Duty::Unused, &name, from, at - from);
                    }
                    from = at + 1;
                }
            }
        }
        formatted
    }

    fn slots(&mut self, entries: &BTreeMap<u64, u64>, formatted: &BTreeSet<u64>) {
        let size = small(u64::from(u32_at(self.superblock, 48)));
        let mut used = BTreeSet::new();
        for (id, entry) in entries {
            let offset = small(entry >> 24) * BLOCK;
            assert!(used.insert(offset), "two pages have one slot");
            if formatted.contains(id) {
                // Its old image is not read: the log formats the page anew.
                self.add("page, made anew by the log", Duty::Healed, "data.mpd", offset, size);
            } else {
                self.add("page", Duty::Found, "data.mpd", offset, size);
            }
        }
        for offset in (1 << 20..self.image["data.mpd"].len()).step_by(size).filter(|offset| !used.contains(offset)) {
            self.add("data file, free slot", Duty::Unused, "data.mpd", offset, size);
        }
    }
}
