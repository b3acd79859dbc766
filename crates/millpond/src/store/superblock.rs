//! The two superblocks, from which an open starts.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::base::aligned::{BLOCK, aligned};
use crate::base::crc::crc32c;
use crate::base::error::{Error, MEND_MAP};
use crate::base::ids::{Lsn, TxnId};
use crate::base::page::layout::is_page_size;
use crate::io::device::Device;
use crate::redo::files::{Geometry, Owner, Switch};

pub(crate) const MAGIC: [u8; 8] = *b"MILLPOND";

/// The version of all formats. 0 is that of builds before the formats were frozen.
pub(crate) const FORMAT: u32 = 1;

/// Offsets of the two in the data file, far apart, so that one misplaced write does not hit both.
pub(crate) const OFFSETS: [u64; 2] = [0, 64 << 10];

/// Offset of the first slot in the data file.
pub(crate) const SLOTS_START: u64 = 1 << 20;

/// Feature: pages are written in place.
pub(crate) const FEATURE_IN_PLACE: u64 = 1;

/// Feature: the map directory holds the entries of small spaces.
pub(crate) const FEATURE_INLINE: u64 = 2;

/// The features that this build supports.
const FEATURES: u64 = FEATURE_IN_PLACE | FEATURE_INLINE;

/// Exclusive upper bound of sequences and LSNs.
const LARGEST: u64 = 1 << 62;

/// A superblock's bytes on the device.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Raw {
    pub(crate) magic: [u8; 8],
    pub(crate) format: U32,
    pub(crate) crc: U32,
    pub(crate) features: U64,
    pub(crate) uuid: [U64; 2],
    pub(crate) sequence: U64,
    pub(crate) page_size: U32,
    pub(crate) next_space: U32,
    pub(crate) checkpoint_lsn: U64,
    pub(crate) durable_lsn: U64,
    pub(crate) nonce: U64,
    pub(crate) directory_bytes: U64,
    pub(crate) directory_crc: U32,
    pub(crate) redo_generation: U32,
    pub(crate) redo_payload_bytes: U64,
    pub(crate) switch_lsn: U64,
    pub(crate) next_payload_bytes: U64,
    pub(crate) next_generation: U32,
    pub(crate) apply_rate_kib: U32,
    pub(crate) next_txn: U64,
    pub(crate) write_capacity: U64,
}

/// Offset, in the block, of the mark of a closed database: in the superblock's sector, behind what its checksum covers.
pub(crate) const CLOSED_OFFSET: usize = 256;

/// The mark of a closed database: no group follows the superblock's `durable_lsn`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ClosedMark {
    pub(crate) sequence: U64,
    pub(crate) crc: U32,
}

impl ClosedMark {
    fn of(superblock: &Superblock) -> ClosedMark {
        let sequence = U64::new(superblock.sequence);
        ClosedMark { sequence, crc: U32::new(crc32c(&superblock.uuid, &[sequence.as_bytes()])) }
    }

    fn is_in(block: &[u8], superblock: &Superblock) -> bool {
        block.get(CLOSED_OFFSET..).is_some_and(|bytes| bytes.starts_with(ClosedMark::of(superblock).as_bytes()))
    }
}

/// A decoded superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Features that a build must support to open this database.
    pub(crate) features: u64,
    /// The database's identity, which seeds every page's checksum.
    pub(crate) uuid: [u64; 2],
    /// Grows by one with each checkpoint. The directory of an even one is in file 0, of an odd one in file 1.
    pub(crate) sequence: u64,
    /// Bytes of a page.
    pub(crate) page_size: u32,
    /// The next space id to give out.
    pub(crate) next_space: u32,
    /// C: the LSN at which redo begins.
    pub(crate) checkpoint_lsn: Lsn,
    /// F: the log was durable up to here when this was written. A log that ends earlier is damaged, not short.
    pub(crate) durable_lsn: Lsn,
    /// Seeds the checksums of the log's groups from `checkpoint_lsn` on.
    pub(crate) nonce: u64,
    /// Length of the map directory.
    pub(crate) directory_bytes: u64,
    /// Checksum of the map directory.
    pub(crate) directory_crc: u32,
    /// The ring of log files in use.
    pub(crate) redo: Geometry,
    /// The LSN at which the log switches to another ring, and that ring.
    pub(crate) switch: Option<Switch>,
    /// The next transaction id to give out, unless the log from `checkpoint_lsn` on names larger ones.
    pub(crate) next_txn: TxnId,
    /// The device's measured write capacity, in bytes of pages a second; 0: not measured.
    pub(crate) write_capacity: u64,
    /// The measured speed of a recovery, in bytes of log a second, in whole KiB; 0: not measured.
    pub(crate) apply_rate: u64,
    /// The database was closed after this was written: the log ends at `durable_lsn`. An open forgets it before it
    /// writes to the log.
    pub(crate) closed: bool,
}

/// A uuid as text.
pub(crate) fn uuid_text(uuid: [u64; 2]) -> String {
    uuid.iter().flat_map(|half| half.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn checksum(raw: &Raw) -> u32 {
    let mut copy = *raw;
    copy.crc = U32::new(0);
    crc32c(&[], &[copy.as_bytes()])
}

/// The contents of a superblock's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A whole superblock of this format.
    Valid(Superblock),
    /// A superblock of another format. Sequence 0: not whole, as far as this build can tell.
    OtherFormat { version: u32, sequence: u64 },
    /// A whole superblock with features that this build does not support.
    UnknownFeatures { bits: u64, sequence: u64 },
    /// A Millpond superblock, torn or with flipped bits.
    Damaged,
    /// No Millpond superblock.
    Foreign,
}

impl Superblock {
    /// Which of the two places this superblock belongs to.
    pub(crate) fn place(&self) -> usize {
        usize::from(self.sequence % 2 == 1)
    }

    pub(crate) fn encode(&self) -> Raw {
        let next = self.switch.map(|switch| switch.to).unwrap_or_default();
        let mut raw = Raw {
            magic: MAGIC,
            format: U32::new(FORMAT),
            crc: U32::new(0),
            features: U64::new(self.features),
            uuid: self.uuid.map(U64::new),
            sequence: U64::new(self.sequence),
            page_size: U32::new(self.page_size),
            next_space: U32::new(self.next_space),
            checkpoint_lsn: U64::new(self.checkpoint_lsn.0),
            durable_lsn: U64::new(self.durable_lsn.0),
            nonce: U64::new(self.nonce),
            directory_bytes: U64::new(self.directory_bytes),
            directory_crc: U32::new(self.directory_crc),
            redo_generation: U32::new(self.redo.generation),
            redo_payload_bytes: U64::new(self.redo.payload_bytes),
            switch_lsn: U64::new(self.switch.map_or(0, |switch| switch.at.0)),
            next_payload_bytes: U64::new(next.payload_bytes),
            next_generation: U32::new(next.generation),
            apply_rate_kib: U32::new(u32::try_from(self.apply_rate >> 10).unwrap_or(u32::MAX)),
            next_txn: U64::new(self.next_txn.0),
            write_capacity: U64::new(self.write_capacity),
        };
        raw.crc = U32::new(checksum(&raw));
        raw
    }

    pub(crate) fn decode(bytes: &[u8]) -> Found {
        let Ok((raw, _)) = Raw::read_from_prefix(bytes) else { return Found::Foreign };
        if raw.magic != MAGIC {
            // A flipped bit in the magic of an otherwise whole superblock is damage, not a foreign file.
            let mut ours = raw;
            ours.magic = MAGIC;
            return if checksum(&ours) == raw.crc.get() { Found::Damaged } else { Found::Foreign };
        }
        if raw.crc.get() != checksum(&raw) {
            // A torn superblock of ours keeps its version in the first sector.
            let version = raw.format.get();
            return if version == FORMAT { Found::Damaged } else { Found::OtherFormat { version, sequence: 0 } };
        }
        let sequence = raw.sequence.get();
        if raw.format.get() != FORMAT {
            return Found::OtherFormat { version: raw.format.get(), sequence };
        }
        if raw.features.get() & !FEATURES != 0 {
            return Found::UnknownFeatures { bits: raw.features.get() & !FEATURES, sequence };
        }
        let to = Geometry { generation: raw.next_generation.get(), payload_bytes: raw.next_payload_bytes.get() };
        let switch = Switch { at: Lsn(raw.switch_lsn.get()), to };
        let mut superblock = Superblock {
            features: raw.features.get(),
            uuid: raw.uuid.map(U64::get),
            sequence: raw.sequence.get(),
            page_size: raw.page_size.get(),
            next_space: raw.next_space.get(),
            checkpoint_lsn: Lsn(raw.checkpoint_lsn.get()),
            durable_lsn: Lsn(raw.durable_lsn.get()),
            nonce: raw.nonce.get(),
            directory_bytes: raw.directory_bytes.get(),
            directory_crc: raw.directory_crc.get(),
            redo: Geometry { generation: raw.redo_generation.get(), payload_bytes: raw.redo_payload_bytes.get() },
            switch: (switch.at > Lsn::ZERO).then_some(switch),
            next_txn: TxnId(raw.next_txn.get()),
            write_capacity: raw.write_capacity.get(),
            apply_rate: u64::from(raw.apply_rate_kib.get()) << 10,
            closed: false,
        };
        superblock.closed = ClosedMark::is_in(bytes, &superblock);
        if superblock.is_possible() { Found::Valid(superblock) } else { Found::Damaged }
    }

    /// Whether this engine could have written all of its values.
    fn is_possible(&self) -> bool {
        let rings = [Some(self.redo), self.switch.map(|switch| switch.to)];
        is_page_size(u64::from(self.page_size))
            && self.sequence < LARGEST
            && (1..u32::MAX).contains(&self.next_space)
            && self.checkpoint_lsn <= self.durable_lsn
            && self.durable_lsn.0 < LARGEST
            && self.next_txn <= TxnId::END
            && self.switch.is_none_or(|switch| switch.at.0 < LARGEST)
            && rings.into_iter().flatten().all(Geometry::is_possible)
    }

    /// Whether the log that was read up to `end` is known to end there: none of it needs to be looked for.
    pub(crate) fn is_closed_at(&self, end: Lsn) -> bool {
        self.closed && self.durable_lsn == end
    }

    /// The database that a log must belong to.
    pub(crate) fn owner(&self) -> Owner {
        // The other features come with a checkpoint, and the log's files are older.
        Owner { uuid: self.uuid, page_size: self.page_size, features: self.features & FEATURE_IN_PLACE }
    }

    /// Writes this superblock into its place. Durable after the next sync.
    pub(crate) fn write(&self, data: &dyn Device) -> Result<(), Error> {
        let mut block = aligned(BLOCK);
        let raw = self.encode();
        block[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        if self.closed {
            let end = CLOSED_OFFSET + size_of::<ClosedMark>();
            block[CLOSED_OFFSET..end].copy_from_slice(ClosedMark::of(self).as_bytes());
        }
        data.write_at(&block, OFFSETS[self.place()])
            .map_err(|e| Error::device(&format!("write superblock {} of '{}'", self.place(), data.name()), e))
    }

    /// Reads both places.
    pub(crate) fn read_both(data: &dyn Device) -> Result<[Found; 2], Error> {
        let mut found = [Found::Foreign; 2];
        let mut block = aligned(BLOCK);
        for (place, offset) in OFFSETS.into_iter().enumerate() {
            found[place] = match data.read_at(&mut block, offset) {
                Ok(()) => Self::decode(&block),
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Found::Foreign,
                Err(e) => return Err(Error::io(&format!("read superblock {place} of '{}'", data.name()), e)),
            };
        }
        Ok(found)
    }

    /// The newest superblock. If that is of a later build, the other one, which describes an earlier state, does not
    /// replace it.
    pub(crate) fn choose(found: [Found; 2], name: &str) -> Result<Superblock, Error> {
        let newest = |sequence: fn(&Found) -> Option<u64>| found.iter().filter_map(sequence).max();
        let strange = newest(|found| match *found {
            Found::OtherFormat { sequence, .. } | Found::UnknownFeatures { sequence, .. } => Some(sequence),
            _ => None,
        });
        let valid = found.iter().filter_map(|f| match f {
            Found::Valid(superblock) => Some(*superblock),
            _ => None,
        });
        if let Some(newest) = valid.max_by_key(|s| s.sequence)
            && strange.is_none_or(|strange| strange < newest.sequence)
        {
            return Ok(newest);
        }
        let message = match found {
            [Found::OtherFormat { version, .. }, _] | [_, Found::OtherFormat { version, .. }] => {
                let whose = if version > FORMAT {
                    "of a later build: open it with that, or a later one"
                } else {
                    "of a build before formats were frozen: open it with that"
                };
                format!("'{name}' has format version {version}, {whose}; this build reads version {FORMAT}")
            }
            [Found::UnknownFeatures { bits, .. }, _] | [_, Found::UnknownFeatures { bits, .. }] => format!(
                "'{name}' uses features that this build does not know (bits {bits:#x}): open it with the build that wrote it, or a later one"
            ),
            [Found::Foreign, Found::Foreign] => {
                format!(
                    "'{name}' is not a Millpond data file: both superblocks are foreign; name the directory of a database, or, if they were overwritten, run `millpond rebuild`"
                )
            }
            _ => {
                return Err(Error::Corruption(format!("both superblocks of '{name}' are damaged: {MEND_MAP}").into()));
            }
        };
        Err(Error::Format(message.into()))
    }
}

const _: () = assert!(
    size_of::<Raw>() <= CLOSED_OFFSET && CLOSED_OFFSET + size_of::<ClosedMark>() <= 512,
    "a superblock and its mark fit one sector, so that they are never torn"
);

#[cfg(test)]
impl Superblock {
    /// A superblock of an empty store with pages of 4 KiB.
    pub(crate) fn of_tests() -> Superblock {
        Superblock {
            features: 0,
            uuid: [1, 2],
            sequence: 0,
            page_size: 4096,
            next_space: 1,
            checkpoint_lsn: Lsn(4096),
            durable_lsn: Lsn(4096),
            nonce: 7,
            directory_bytes: 0,
            directory_crc: 0,
            redo: Geometry::of(0, 1 << 20),
            switch: None,
            next_txn: TxnId::default(),
            write_capacity: 0,
            apply_rate: 0,
            closed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn sample(sequence: u64) -> Superblock {
        let mut raw = Raw::new_zeroed();
        raw.magic = MAGIC;
        raw.format = U32::new(FORMAT);
        (raw.page_size, raw.next_space, raw.redo_payload_bytes) = (U32::new(4096), U32::new(1), U64::new(1 << 20));
        raw.crc = U32::new(checksum(&raw));
        let Found::Valid(mut superblock) = Superblock::decode(raw.as_bytes()) else {
            unreachable!("a whole superblock")
        };
        superblock.sequence = sequence;
        superblock.uuid = [1, 2];
        superblock.directory_bytes = 99;
        superblock.switch = Some(Switch { at: Lsn(8192), to: Geometry::of(3, 1 << 20) });
        superblock
    }

    #[test]
    fn every_flipped_bit_is_found_and_the_other_superblock_is_taken() {
        let newer = sample(8);
        let older = sample(7);
        let bytes = newer.encode();
        assert_eq!(Superblock::decode(bytes.as_bytes()), Found::Valid(newer));
        for position in 0..bytes.as_bytes().len() {
            for bit in 0..8 {
                let mut flipped = bytes.as_bytes().to_vec();
                flipped[position] ^= 1 << bit;
                let found = Superblock::decode(&flipped);
                assert!(!matches!(found, Found::Valid(_)), "bit {bit} of byte {position}");
                assert_eq!(Superblock::choose([found, Found::Valid(older)], "x").expect("the older one"), older);
            }
        }
    }

    #[test]
    fn the_higher_sequence_wins_and_strangers_are_told_apart() {
        let choose = |a, b| Superblock::choose([a, b], "x");
        assert_eq!(choose(Found::Valid(sample(4)), Found::Valid(sample(5))).expect("valid").sequence, 5);
        assert!(
            matches!(choose(Found::Foreign, Found::Foreign), Err(Error::Format(m)) if m.contains("not a Millpond"))
        );
        let later = |sequence| Found::OtherFormat { version: 3, sequence };
        assert!(
            matches!(choose(later(4), Found::Foreign), Err(Error::Format(m)) if m.contains("version 3, of a later build"))
        );
        let earlier = Found::OtherFormat { version: 0, sequence: 4 };
        assert!(matches!(choose(earlier, earlier), Err(Error::Format(m)) if m.contains("before formats were frozen")));
        // A later build has opened the database, and made one checkpoint.
        assert!(matches!(choose(later(5), Found::Valid(sample(4))), Err(Error::Format(_))));
        let features = |sequence| Found::UnknownFeatures { bits: 8, sequence };
        assert!(
            matches!(choose(Found::Valid(sample(4)), features(5)), Err(Error::Format(m)) if m.contains("(bits 0x8)"))
        );
        for old in [later(3), later(0), features(3)] {
            assert_eq!(choose(old, Found::Valid(sample(4))).expect("the newest").sequence, 4);
        }
        assert!(matches!(choose(Found::Damaged, Found::Foreign), Err(Error::Corruption(_))));
    }

    /// A superblock may come from a faulty build, or be forged. Opening it ends in an error, not in a panic, and takes
    /// no memory that the files do not justify.
    #[test]
    #[cfg(feature = "simulation")]
    fn nonsense_with_a_right_checksum_is_refused() {
        use crate::io::simulated::SimulatedDisk;
        use crate::{ByteSize, Db, Options};
        use std::sync::Arc;

        let options = || Options::new().buffer_pool_size(ByteSize::kib(160));
        let disk = SimulatedDisk::new();
        let created = options().page_size(ByteSize::kib(4)).redo_capacity(ByteSize::kib(512));
        let db = Db::open_on(Arc::new(disk.clone()), created).expect("opened");
        db.create_tree("t").expect("created").put(b"k", b"v").expect("written");
        db.close().expect("closed");
        let (mut opened, mut refused) = (0, 0);
        // All 8-byte words behind magic, format and checksum.
        for word in (16..size_of::<Raw>()).step_by(8) {
            for value in [0, 1, 77, 4096, 1 << 20, 1 << 31, u64::from(u32::MAX), 1 << 40, 1 << 61, u64::MAX] {
                let mut image = disk.image();
                let data = image.get_mut("data.mpd").expect("there");
                for offset in [0, 64 << 10] {
                    data[offset + word..offset + word + 8].copy_from_slice(&value.to_le_bytes());
                    let (mut raw, _) = Raw::read_from_prefix(&data[offset..]).expect("long enough");
                    raw.crc = U32::new(checksum(&raw));
                    data[offset..offset + size_of::<Raw>()].copy_from_slice(raw.as_bytes());
                }
                let files = SimulatedDisk::with_image(image, crate::io::simulated::ServiceTime::default());
                match Db::open_on(Arc::new(files), options()) {
                    Ok(db) => {
                        opened += 1;
                        assert!(db.open_tree("t").is_ok_and(|tree| tree.get(b"k").is_ok()), "word {word} is {value}");
                    }
                    Err(Error::Corruption(_) | Error::Format(_) | Error::InvalidOptions(_)) => refused += 1,
                    Err(other) => unreachable!("word {word} is {value}: {other}"),
                }
            }
        }
        assert!(opened > 20 && refused > 60, "{opened} opened, {refused} refused");
    }

    #[test]
    fn superblocks_take_turns_and_impossible_ones_are_damaged() {
        assert_eq!([sample(6).place(), sample(7).place()], [0, 1]);
        let last = sample(LARGEST - 1);
        assert_eq!(Superblock::decode(last.encode().as_bytes()), Found::Valid(last));
        assert_eq!(Superblock::decode(sample(LARGEST).encode().as_bytes()), Found::Damaged);
    }
}
