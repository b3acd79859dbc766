//! Files that a database may change only while it holds their lock, and only in the process that opened it.
//!
//! LEASE-1 Every operation that changes files (a write, a sync, a length, a name) holds the lease, shared, until the
//! call has returned. When [`LeasedFiles::end`] has returned, no change of this database is in progress, and none
//! begins: the lock may be given to another process.
//! LEASE-2 A forked child of the opener changes nothing.
//!
//! Every change passes this one place, in any thread: the keeper's, the log's, and callers that load, sort, or write
//! pages themselves. Reads need no lease.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::device::{Device, Files, ReadPiece, WritePiece};
use crate::base::process::Home;
use crate::base::sync::{Condvar, Mutex, Rank};

/// The lease has ended. The other bits count the changes in progress.
const ENDED: usize = 1 << (usize::BITS - 1);

struct Lease {
    home: Arc<Home>,
    /// The bit `ENDED`, and the count of changes in progress, which briefly includes refused ones.
    state: AtomicUsize,
    /// With `idle`: the wait until the last change in progress at the lease's end is over.
    ending: Mutex<()>,
    idle: Condvar,
}

/// A change in progress, until dropped.
struct Change<'l>(&'l Lease);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // SeqCst, as everywhere here: the end sees the change, or the change sees the end.
        if self.0.state.fetch_sub(1, Ordering::SeqCst) == ENDED + 1 {
            // The waiter checked the state under this mutex: it sleeps by now, or will check again.
            drop(self.0.ending.lock());
            self.0.idle.notify_all();
        }
    }
}

impl Lease {
    fn change(&self) -> io::Result<Change<'_>> {
        self.home.check().map_err(io::Error::other)?;
        let change = Change(self);
        if self.state.fetch_add(1, Ordering::SeqCst) & ENDED != 0 && !planted!("lease_not_looked_at") {
            return Err(io::Error::other("the database was closed meanwhile"));
        }
        Ok(change)
    }

    fn end_wait(&self) {
        self.state.fetch_or(ENDED, Ordering::SeqCst);
        let mut ending = self.ending.lock();
        while self.state.load(Ordering::SeqCst) != ENDED && !planted!("lease_not_waited_for") {
            ending = self.idle.wait(ending, "changes of files in progress");
        }
    }
}

/// The files of an open database.
pub(crate) struct LeasedFiles {
    files: Arc<dyn Files>,
    lease: Arc<Lease>,
    /// The lock outlives the lease, because its holder opens the files once more.
    keeps_lock: bool,
}

impl LeasedFiles {
    /// Leases `files`, whose lock `home` holds.
    pub(crate) fn new(files: Arc<dyn Files>, home: Arc<Home>) -> LeasedFiles {
        let lease =
            Lease { home, state: AtomicUsize::new(0), ending: Mutex::new(Rank::Bell, ()), idle: Condvar::new() };
        LeasedFiles { files, lease: Arc::new(lease), keeps_lock: false }
    }

    /// As [`new`](Self::new), for a caller that keeps `files` and their lock after the lease has ended.
    pub(crate) fn for_a_while(files: Arc<dyn Files>, home: Arc<Home>) -> LeasedFiles {
        LeasedFiles { keeps_lock: true, ..Self::new(files, home) }
    }

    /// Refuses later changes of the files, waits until none is in progress, and releases the lock. The wait ends when
    /// the device has finished its current calls. The caller holds no latch and no mutex.
    pub(super) fn end(&self) {
        self.lease.end_wait();
        if !self.keeps_lock {
            self.files.release();
        }
    }

    fn leased(&self, file: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(LeasedFile { file, lease: Arc::clone(&self.lease) })
    }
}

impl Files for LeasedFiles {
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.files.open(name).map(|file| self.leased(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        let _change = self.lease.change()?;
        self.files.create(name).map(|file| self.leased(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let _change = self.lease.change()?;
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let _change = self.lease.change()?;
        self.files.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn sync_names(&self) -> io::Result<()> {
        let _change = self.lease.change()?;
        self.files.sync_names()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.files.free_bytes()
    }

    fn place(&self) -> String {
        self.files.place()
    }

    fn page_cache(&self) -> &'static str {
        self.files.page_cache()
    }

    fn io_engine(&self) -> &'static str {
        self.files.io_engine()
    }

    fn release(&self) {
        self.end();
    }
}

struct LeasedFile {
    file: Arc<dyn Device>,
    lease: Arc<Lease>,
}

impl Device for LeasedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }

    fn read_many(&self, reads: &mut [ReadPiece<'_>]) -> Vec<io::Result<()>> {
        self.file.read_many(reads)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let _change = self.lease.change()?;
        self.file.write_at(buf, offset)
    }

    fn write_many(&self, writes: &[WritePiece<'_>]) -> Vec<io::Result<()>> {
        match self.lease.change() {
            Ok(_change) => self.file.write_many(writes),
            Err(error) => writes.iter().map(|_| Err(io::Error::other(error.to_string()))).collect(),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let _change = self.lease.change()?;
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        let _change = self.lease.change()?;
        self.file.grow(len)
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        let _change = self.lease.change()?;
        self.file.cut(len)
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::io::simulated::SimulatedDisk;
    use crate::simulation::{run, sleep_ns, spawn};

    /// LEASE-1
    #[test]
    fn end_waits_for_a_write_and_refuses_the_next() {
        run(1, || {
            let disk = SimulatedDisk::new();
            disk.slow_down("data.mpd", 5_000_000);
            let files = Arc::new(LeasedFiles::new(Arc::new(disk), Arc::new(Home::new())));
            let file = files.create("data.mpd").expect("created");
            file.grow(4096).expect("grown");
            let (other, is_over) = (Arc::clone(&file), Arc::new(AtomicBool::new(false)));
            let told = Arc::clone(&is_over);
            let writer = spawn("writer", move || {
                other.write_at(&[1; 4096], 0).expect("begun before the end");
                told.store(true, Ordering::SeqCst);
            })
            .expect("a thread");
            sleep_ns(1_000_000);
            files.end();
            assert!(is_over.load(Ordering::SeqCst), "the lease ends after the write");
            writer.join().expect("no panic");
            assert!(file.write_at(&[2; 4096], 0).is_err() && file.sync().is_err() && files.remove("data.mpd").is_err());
            assert!(file.write_many(&[(&[2; 4096], 0)])[0].is_err());
            let mut found = [0; 4096];
            file.read_at(&mut found, 0).expect("reads need no lease");
            assert_eq!(found, [1; 4096]);
        });
    }
}
