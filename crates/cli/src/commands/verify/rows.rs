//! The rows of the test. A value follows from its row's key and version, and names the version.

use millpond::{Db, Error, Field, RowsOf, Table, TableDefinition, Tree, WriteBatch};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Keys of the table, and of the tree.
pub(super) const KEYS: u32 = 4_000;

/// Keys that are changed most.
const HOT_KEYS: u32 = 50;

/// Values of the indexed byte.
pub(super) const GROUPS: u8 = 200;

/// Rows of the tree that is only read, to take frames of the pool.
const COLD_ROWS: u32 = 4_000;

/// Bytes of each of them.
const COLD_LEN: usize = 600;

/// Bytes of a value before its filler: group, version, key.
const HEAD_LEN: usize = 13;

/// The random number generator of the test.
pub(super) type Random = Xoshiro256PlusPlus;

/// A generator for one purpose of a seed.
pub(super) fn random(seed: u64, purpose: u64) -> Random {
    Random::seed_from_u64(mix(seed ^ mix(purpose)))
}

/// Spreads bits (SplitMix64's finalizer, Steele et al. 2014).
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// A key: every second one is hot.
pub(super) fn any_key(random: &mut Random) -> u32 {
    let hot = random.random_range(0..HOT_KEYS) * (KEYS / HOT_KEYS);
    if random.random() { hot } else { random.random_range(0..KEYS) }
}

/// The bytes of a key. Their lengths differ.
pub(super) fn key(number: u32) -> Vec<u8> {
    let tail = usize::try_from(number % 23).unwrap_or_default();
    [&number.to_be_bytes()[..], &[b'k'; 23][..tail]].concat()
}

/// The indexed byte of a version.
pub(super) fn group(version: u64) -> u8 {
    (mix(version) % u64::from(GROUPS)) as u8
}

/// The value of a row's version: mostly below 300 bytes, now and then too long for a leaf.
pub(super) fn value(number: u32, version: u64) -> Vec<u8> {
    let drawn = mix(version ^ 1);
    let filler = if drawn.is_multiple_of(100) { 5_000 + drawn / 100 % 4_000 } else { drawn / 100 % 300 };
    let len = HEAD_LEN + usize::try_from(filler).unwrap_or_default();
    let mut value = Vec::with_capacity(len);
    value.push(group(version));
    value.extend(version.to_be_bytes());
    value.extend(number.to_be_bytes());
    value.resize(len, drawn as u8);
    value
}

/// The number of a key; `None`: it is no key of the test.
pub(super) fn number_of(bytes: &[u8]) -> Option<u32> {
    let number = u32::from_be_bytes(*bytes.first_chunk()?);
    (number < KEYS && key(number) == bytes).then_some(number)
}

/// The version of a row; an error says what is wrong with its bytes.
pub(super) fn version_of(number: u32, bytes: &[u8]) -> Result<u64, String> {
    let version = bytes.get(1..).and_then(|rest| rest.first_chunk()).map(|version| u64::from_be_bytes(*version));
    match version {
        Some(version) if value(number, version) == bytes => Ok(version),
        _ => Err(format!("row {number} has {} bytes that are of none of its versions", bytes.len())),
    }
}

/// One of the two places that have rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Table,
    Tree,
}

impl Place {
    pub(super) const ALL: [Place; 2] = [Place::Table, Place::Tree];

    pub(super) fn name(self) -> &'static str {
        match self {
            Place::Table => "the table",
            Place::Tree => "the tree",
        }
    }
}

/// The database under test.
pub(super) struct Rows {
    pub(super) db: Db,
    pub(super) table: Table,
    pub(super) tree: Tree,
    cold: Tree,
}

impl Rows {
    /// Creates table and trees.
    pub(super) fn create(db: Db) -> Result<Rows, Error> {
        let by_group = TableDefinition::new().index("group", [Field::value(0..1)]);
        let (table, tree) = (db.create_table("rows", by_group)?, db.create_tree("plain")?);
        let cold = db.bulk_load("cold", (0..COLD_ROWS).map(|number| (number.to_be_bytes(), [7; COLD_LEN])))?;
        Ok(Rows { db, table, tree, cold })
    }

    pub(super) fn of(&self, place: Place) -> RowsOf<'_> {
        match place {
            Place::Table => (&self.table).into(),
            Place::Tree => (&self.tree).into(),
        }
    }

    /// Adds the insertion of a row that is there: the last change of the batch, which is refused.
    pub(super) fn insert_again(&self, batch: &mut WriteBatch) {
        batch.insert(&self.cold, 0u32.to_be_bytes(), [7; COLD_LEN]);
    }

    /// Reads cold rows: their pages take the frames of others.
    pub(super) fn take_frames(&self, random: &mut Random) -> Result<(), String> {
        let from = random.random_range(0..COLD_ROWS - 100);
        let read = self.cold.scan(from.to_be_bytes()..).take(100).try_for_each(|row| row.map(drop));
        read.map_err(|error| format!("cold rows cannot be read: {error}"))
    }
}
