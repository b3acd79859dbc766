//! The engines that `other_figures` compares, behind one trait.
//!
//! Each has a table of rows and an index on k, the first 4 bytes of a value. Millpond keeps the index itself. The
//! others have a second key space, whose keys are entries: k, then the row's key. A row and its entry change in one
//! write batch or transaction, which is durable when the call returns.

mod fjall;
mod lmdb;
mod millpond;
mod redb;
mod rocksdb;

use std::path::Path;
use std::str::FromStr;
use std::sync::LazyLock;

use parking_lot::{Mutex, MutexGuard};
use rand::{RngExt, SeedableRng};

use crate::common::{Outcome, VALUE};

/// Bytes of a row with its entry, with their heads.
pub(crate) const ROW_BYTES: u64 = 240;

/// Bytes of cache that hold all data.
const AMPLE_BYTES: u64 = 1 << 30;

/// Bytes of the text that the values are cut from: few enough for the CPU's cache.
const TEXT: usize = 64 << 10;

pub(crate) type Key = [u8; 8];
pub(crate) type Value = [u8; VALUE];
pub(crate) type Row = (Key, Value);

/// The key of an entry: k, then the row's key.
pub(crate) type Entry = [u8; 12];

/// Memory that an engine may use.
#[derive(Clone, Copy)]
pub(crate) enum Memory {
    /// A cache that holds all data, and write buffers of the engine's own choice.
    Ample,
    /// So many bytes for cache and write buffers together, and nothing in the system's page cache.
    Bounded(u64),
}

/// An engine that is open.
pub(crate) trait Engine: Sync {
    /// Makes a table of these rows, whose keys ascend, with its index. Durable on return.
    fn load(&mut self, rows: &mut dyn Iterator<Item = Row>) -> Outcome<()>;

    /// Sets a row that exists, and moves its entry. Durable on return.
    fn update(&self, key: &Key, value: &Value) -> Outcome<()>;

    /// Inserts these rows with their entries, all or none. Durable on return.
    fn insert_batch(&self, rows: &[Row]) -> Outcome<()>;

    /// A reader for one thread, while no thread writes.
    fn reader(&self) -> Outcome<Box<dyn Reader + '_>>;

    /// The number of rows and of entries. Reads all of them, so they are in the cache as far as it holds them.
    fn counts(&self) -> Outcome<(u64, u64)>;

    /// Closes the engine.
    fn close(self: Box<Self>) -> Outcome<()>;
}

/// Reads of one thread, each in the engine's cheapest way.
pub(crate) trait Reader {
    /// Whether the row exists, and is whole.
    fn get(&mut self, key: &Key) -> Outcome<bool>;

    /// The number of rows, up to `limit`, from this key on; all are read.
    fn scan(&mut self, from: &Key, limit: usize) -> Outcome<usize>;
}

/// The kinds of engines, in the order of the table's columns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Millpond,
    Lmdb,
    Redb,
    Fjall,
    RocksDb,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] = [Kind::Millpond, Kind::Lmdb, Kind::Redb, Kind::Fjall, Kind::RocksDb];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Millpond => "Millpond",
            Kind::Lmdb => "LMDB",
            Kind::Redb => "redb",
            Kind::Fjall => "fjall",
            Kind::RocksDb => "RocksDB",
        }
    }

    /// Whether the engine has direct I/O. The others read through the system's page cache, which has no bound here.
    pub(crate) fn has_bound(self) -> bool {
        matches!(self, Kind::Millpond | Kind::RocksDb)
    }

    /// Opens the database in `dir`; creates a new one if there is none.
    pub(crate) fn open(self, dir: &Path, memory: Memory) -> Outcome<Box<dyn Engine>> {
        std::fs::create_dir_all(dir)?;
        match self {
            Kind::Millpond => millpond::open(dir, memory),
            Kind::Lmdb => lmdb::open(dir),
            Kind::Redb => redb::open(dir),
            Kind::Fjall => fjall::open(dir),
            Kind::RocksDb => rocksdb::open(dir, memory),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Kind, String> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name));
        kind.ok_or_else(|| format!("no engine '{name}': name some of millpond,lmdb,redb,fjall,rocksdb"))
    }
}

/// The digits that values are cut from.
static DIGITS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
    (0..TEXT + VALUE).map(|_| random.random_range(b'0'..=b'9')).collect()
});

/// Draws rows.
pub(crate) struct Random(rand_xoshiro::Xoshiro256PlusPlus);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// The key of one of the loaded rows.
    pub(crate) fn loaded_key(&mut self, rows: u64) -> Key {
        loaded_key(self.0.random_range(0..rows), rows)
    }

    /// Any key. Two of 2^64 are hardly ever the same.
    pub(crate) fn new_key(&mut self) -> Key {
        self.0.random()
    }

    /// A value of digits, after 4 random bytes.
    pub(crate) fn value(&mut self) -> Value {
        let from = self.0.random_range(0..TEXT);
        let mut value = [0; VALUE];
        value.copy_from_slice(&DIGITS[from..from + VALUE]);
        self.0.fill(&mut value[..4]);
        value
    }
}

/// The key of the loaded row of this number. The keys are spread evenly, so new random keys are between them.
pub(crate) fn loaded_key(row: u64, rows: u64) -> Key {
    (row * (u64::MAX / rows)).to_be_bytes()
}

/// The key of the entry of a row.
fn entry(key: &[u8], value: &[u8]) -> Outcome<Entry> {
    let mut entry = [0; 12];
    entry[..4].copy_from_slice(value.get(..4).ok_or("a value without k")?);
    entry[4..].copy_from_slice(key);
    Ok(entry)
}

/// The keys of the rows' entries, ascending.
fn sorted_entries(rows: &[Row]) -> Outcome<Vec<Entry>> {
    let mut entries = rows.iter().map(|(key, value)| entry(key, value)).collect::<Outcome<Vec<Entry>>>()?;
    entries.sort_unstable();
    Ok(entries)
}

/// Pushes each row, then returns the keys of their entries, ascending. They are sorted in memory.
fn push_rows(
    rows: &mut dyn Iterator<Item = Row>,
    mut push: impl FnMut(&Key, &Value) -> Outcome<()>,
) -> Outcome<Vec<Entry>> {
    let mut entries = Vec::new();
    for (key, value) in rows {
        push(&key, &value)?;
        entries.push(entry(&key, &value)?);
    }
    entries.sort_unstable();
    Ok(entries)
}

/// Whether these are key and value of a row. Touches the value's last byte, so an engine that lends it reads it, too.
fn is_row(key: &[u8], value: &[u8]) -> bool {
    key.len() == 8 && value.len() == VALUE && value.last().is_some_and(u8::is_ascii_digit)
}

/// Locks on rows, for engines whose write batches read nothing: an update reads the row, then moves its entry.
struct RowLocks(Vec<Mutex<()>>);

impl RowLocks {
    fn new() -> RowLocks {
        RowLocks((0..4096).map(|_| Mutex::new(())).collect())
    }

    /// Locks the row, and now and then another.
    fn lock(&self, key: &Key) -> MutexGuard<'_, ()> {
        let number = u64::from_be_bytes(*key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        self.0[number as usize].lock()
    }
}
