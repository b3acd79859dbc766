//! A data sync fails as on Linux: one caller gets the error, the unwritten bytes are dropped, and the next sync of the
//! same file succeeds.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use millpond::classic::EmptyFreeListAlgorithm;
use millpond::lab::{Device, Files};
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, run, sleep_ns, spawn};
use millpond::{Db, Durability, Tree, WriteBatch};

use crate::crash_matrix::stride;
use crate::support::{IN_PLACE, SMALL, Shape, THREADED, TWICE, disk_of, recover_shaped};

/// Writes and syncs of the data file.
#[derive(Default)]
struct Fate {
    syncs: u64,
    /// Writes not covered by a sync, by number: offset, and the bytes there before.
    unsynced: BTreeMap<u64, (u64, Vec<u8>)>,
    writes: u64,
    /// The writes that the failed sync dropped.
    dropped: Option<BTreeMap<u64, (u64, Vec<u8>)>>,
}

/// Sync number `fails` of the data file fails. Then the caller is off its CPU for `away_ns`.
#[derive(Clone)]
struct Failing {
    disk: SimulatedDisk,
    fails: u64,
    away_ns: u64,
    fate: Arc<Mutex<Fate>>,
}

struct DataFile {
    file: Arc<dyn Device>,
    files: Failing,
}

impl Files for Failing {
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        let file = Files::open(&self.disk, name)?;
        if name == "data.mpd" { Ok(Arc::new(DataFile { file, files: self.clone() })) } else { Ok(file) }
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.disk.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn place(&self) -> String {
        self.disk.place()
    }
}

impl Device for DataFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut before = vec![0; buf.len()];
        // Bytes beyond the end stay zero.
        let _ = self.file.read_at(&mut before, offset);
        let number = {
            let mut fate = self.files.fate.lock().expect("not poisoned");
            fate.writes += 1;
            fate.writes
        };
        self.file.write_at(buf, offset)?;
        self.files.fate.lock().expect("not poisoned").unsynced.insert(number, (offset, before));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let (fails, covered) = {
            let mut fate = self.files.fate.lock().expect("not poisoned");
            fate.syncs += 1;
            (fate.syncs == self.files.fails, fate.unsynced.keys().copied().collect::<Vec<_>>())
        };
        self.file.sync()?;
        {
            let mut fate = self.files.fate.lock().expect("not poisoned");
            let ended: BTreeMap<_, _> = fate.unsynced.extract_if(.., |number, _| covered.contains(number)).collect();
            if !fails {
                return Ok(());
            }
            fate.dropped = Some(ended);
        }
        sleep_ns(self.files.away_ns);
        Err(io::Error::other("bad sector"))
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.file.grow(len)
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}

/// Puts rows until one is refused. Returns the acknowledged keys.
fn put_some(db: &Db, tree: &Tree, client: u32) -> Vec<[u8; 4]> {
    let mut acknowledged = Vec::new();
    for turn in 0..120u32 {
        let key = (client * 1000 + turn).wrapping_mul(2_654_435_761).to_be_bytes();
        let mut batch = WriteBatch::new();
        batch.put(tree, key, [7; 800]).durability(Durability::Commit);
        if db.write(batch).is_err() {
            break;
        }
        acknowledged.push(key);
    }
    acknowledged
}

#[test]
fn a_data_sync_that_fails_is_not_forgotten_by_the_next_one() {
    let mut failed = 0;
    for (empty, shape) in [
        (EmptyFreeListAlgorithm::Handoff, IN_PLACE),
        (EmptyFreeListAlgorithm::Handoff, TWICE),
        (EmptyFreeListAlgorithm::Legacy, SMALL),
        (EmptyFreeListAlgorithm::Legacy, IN_PLACE),
        (EmptyFreeListAlgorithm::Backoff, SMALL),
        (EmptyFreeListAlgorithm::Handoff, THREADED),
        (EmptyFreeListAlgorithm::Handoff, SMALL),
    ] {
        let shape = Shape { empty, ..shape };
        for (fails, away_ns) in (10..200).step_by(stride(9)).flat_map(|fails| [(fails, 1_000_000), (fails, 20_000_000)])
        {
            let time = ServiceTime { read_ns: 60_000, write_ns: 40_000, sync_ns: 300_000 };
            let disk = SimulatedDisk::with_image(Image::new(), time);
            let files = Failing { disk: disk.clone(), fails, away_ns, fate: Arc::default() };
            let fate = Arc::clone(&files.fate);
            let (acknowledged, _) = run(fails, || {
                let db = Db::open_on(Arc::new(files), shape.options()).expect("opened");
                let tree = db.create_tree("t").expect("created");
                let clients: Vec<_> = (0..4)
                    .map(|client| {
                        let (db, tree) = (db.clone(), tree.clone());
                        spawn("client", move || put_some(&db, &tree, client)).expect("a thread")
                    })
                    .collect();
                let acknowledged: Vec<_> =
                    clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
                // The engine has failed, or the run is over: either end will do.
                let _ = db.close();
                acknowledged
            });
            let Some(dropped) = fate.lock().expect("not poisoned").dropped.take() else { continue };
            failed += 1;
            let mut image = disk.image();
            let data = image.get_mut("data.mpd").expect("there");
            // Newest first: a place may have been written twice.
            for (offset, before) in dropped.into_values().rev() {
                let at = usize::try_from(offset).expect("small");
                data[at..at + before.len()].copy_from_slice(&before);
            }
            let context = format!("{shape:?}, sync {fails}, away for {away_ns} ns");
            let found = recover_shaped(&disk_of(image), shape);
            let found = found.unwrap_or_else(|problem| unreachable!("{context}: {problem}"));
            assert!(acknowledged.iter().all(|key| found["t"].contains_key(&key[..])), "{context}: rows are gone");
        }
    }
    assert!(failed > 120, "{failed} syncs failed");
}
