//! A device with a limited speed, to test how a database copes with it.
//!
//! All writes and syncs of all files, or of one, pass through one queue at a [`Speed`]; reads do not. A sync counts as
//! a write.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::device::{Device, Files, ReadPiece, WritePiece};
use super::speed::Speed;
use crate::base::aligned::to_u64;
use crate::base::{clock, sync};

/// Files on another device, with delayed writes.
#[derive(Clone)]
pub struct SlowFiles {
    files: Arc<dyn Files>,
    only: Option<String>,
    queue: Arc<Queue>,
}

struct Queue {
    speed: Speed,
    began_ns: u64,
    /// When all writes so far will be done, in ns from `began_ns`.
    free_at_ns: AtomicU64,
}

impl Queue {
    /// Waits until `writes` writes of `bytes` in total would be done, behind all earlier ones.
    fn wait(&self, writes: u64, bytes: u64) {
        let now_ns = clock::now_ns().saturating_sub(self.began_ns);
        let end_of = |free_at_ns: u64| self.speed.end_of(free_at_ns.max(now_ns), writes, bytes);
        let queued = |free_at_ns| Some(end_of(free_at_ns));
        let before = self.free_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, queued).unwrap_or(now_ns);
        sync::sleep_until(self.began_ns.saturating_add(end_of(before)));
    }
}

impl SlowFiles {
    /// `files`, at most as fast as `speed`, whose time begins now.
    pub fn new(files: Arc<dyn Files>, speed: Speed) -> SlowFiles {
        let queue = Queue { speed, began_ns: clock::now_ns(), free_at_ns: AtomicU64::new(0) };
        SlowFiles { files, only: None, queue: Arc::new(queue) }
    }

    /// Slows only the file of this name, such as `data.mpd`, as if the others were on another device.
    #[must_use]
    pub fn only(self, name: &str) -> SlowFiles {
        SlowFiles { only: Some(name.to_owned()), ..self }
    }

    fn slow(&self, file: Arc<dyn Device>) -> Arc<dyn Device> {
        if self.only.as_ref().is_some_and(|name| name != file.name()) {
            return file;
        }
        Arc::new(SlowFile { file, queue: Arc::clone(&self.queue) })
    }
}

impl Files for SlowFiles {
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.files.open(name).map(|file| self.slow(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.files.create(name).map(|file| self.slow(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.files.sync_names()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.files.free_bytes()
    }

    fn place(&self) -> String {
        self.files.place()
    }

    fn release(&self) {
        self.files.release();
    }

    fn page_cache(&self) -> &'static str {
        self.files.page_cache()
    }

    fn io_engine(&self) -> &'static str {
        self.files.io_engine()
    }
}

struct SlowFile {
    file: Arc<dyn Device>,
    queue: Arc<Queue>,
}

impl Device for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }

    fn read_many(&self, reads: &mut [ReadPiece<'_>]) -> Vec<io::Result<()>> {
        self.file.read_many(reads)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.queue.wait(1, to_u64(buf.len()));
        self.file.write_at(buf, offset)
    }

    fn write_many(&self, writes: &[WritePiece<'_>]) -> Vec<io::Result<()>> {
        let bytes = writes.iter().map(|(buf, _)| to_u64(buf.len())).sum();
        self.queue.wait(to_u64(writes.len()), bytes);
        self.file.write_many(writes)
    }

    fn sync(&self) -> io::Result<()> {
        self.queue.wait(1, 0);
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.file.grow(len)
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        self.queue.wait(1, 0);
        self.file.cut(len)
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}
