//! Files whose writes stay in memory. `check` and an open with `read_only` open a database over them, so that recovery
//! runs and the disk stays unchanged.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::device::{Device, Files, ReadPiece};
use crate::base::aligned::{BLOCK, BLOCK_U64, to_u64, to_usize};
use crate::base::sync::{Rank, Turn};

/// Reads a block from `below` until it is written here.
pub(crate) struct Overlay {
    below: Arc<dyn Files>,
    /// Whether releasing these files releases those below.
    releases: bool,
    files: Turn<BTreeMap<String, Option<Arc<OverlayFile>>>>,
}

struct OverlayFile {
    name: String,
    below: Option<Arc<dyn Device>>,
    state: Turn<OverlayState>,
}

struct OverlayState {
    len: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Overlay {
    pub(crate) fn new(below: Arc<dyn Files>) -> Self {
        Overlay { below, releases: false, files: Turn::new(Rank::OverlayFiles, BTreeMap::new()) }
    }

    /// As [`new`](Self::new), for the only user of `below`: it releases those files, too.
    pub(crate) fn releasing(below: Arc<dyn Files>) -> Self {
        Overlay { releases: true, ..Self::new(below) }
    }

    fn not_found(name: &str) -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, format!("no file '{name}'"))
    }

    fn find(&self, name: &str) -> io::Result<Arc<OverlayFile>> {
        if let Some(file) = self.files.lock().get(name) {
            return file.clone().ok_or_else(|| Self::not_found(name));
        }
        let below = self.below.open(name)?;
        let len = below.len()?;
        let state = Turn::new(Rank::OverlayFile, OverlayState { len, blocks: BTreeMap::new() });
        let file = Arc::new(OverlayFile { name: below.name().to_owned(), below: Some(below), state });
        // Another thread may have opened, created or removed it meanwhile.
        let mut files = self.files.lock();
        files.entry(name.to_owned()).or_insert(Some(file)).clone().ok_or_else(|| Self::not_found(name))
    }
}

impl OverlayFile {
    /// Overwrites bytes read from below, which nothing changes, with the blocks written here.
    fn lay_over(&self, buf: &mut [u8], offset: u64) {
        let state = self.state.lock();
        for (&at, block) in state.blocks.range(offset..offset + to_u64(buf.len())) {
            let start = to_usize(at - offset);
            buf[start..start + BLOCK].copy_from_slice(block);
        }
    }
}

impl Files for Overlay {
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        Ok(self.find(name)?)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        let state = Turn::new(Rank::OverlayFile, OverlayState { len: 0, blocks: BTreeMap::new() });
        let file = Arc::new(OverlayFile { name: name.to_owned(), below: None, state });
        self.files.lock().insert(name.to_owned(), Some(Arc::clone(&file)));
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.find(from)?;
        let mut files = self.files.lock();
        files.insert(from.to_owned(), None);
        files.insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().insert(name.to_owned(), None);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let files = self.files.lock();
        let mut names = self.below.list()?;
        names.retain(|name| !matches!(files.get(name), Some(None)));
        names.extend(files.iter().filter(|(_, f)| f.is_some()).map(|(name, _)| name.clone()));
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn release(&self) {
        if self.releases {
            self.below.release();
        }
    }

    fn place(&self) -> String {
        self.below.place()
    }

    fn page_cache(&self) -> &'static str {
        self.below.page_cache()
    }

    fn io_engine(&self) -> &'static str {
        self.below.io_engine()
    }
}

impl Device for OverlayFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset + to_u64(buf.len()) > self.len()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(below) = &self.below {
            let there = to_usize(below.len()?.saturating_sub(offset).min(to_u64(buf.len())));
            if there > 0 {
                below.read_at(&mut buf[..there], offset)?;
            }
            // Bytes by which the file has grown here.
            buf[there..].fill(0);
        }
        self.lay_over(buf, offset);
        Ok(())
    }

    fn read_many(&self, reads: &mut [ReadPiece<'_>]) -> Vec<io::Result<()>> {
        let is_in = |len| reads.iter().all(|(buf, offset)| offset + to_u64(buf.len()) <= len);
        let below = self.below.as_ref().filter(|below| below.len().is_ok_and(is_in));
        let Some(below) = below else {
            return reads.iter_mut().map(|(buf, offset)| self.read_at(buf, *offset)).collect();
        };
        let results = below.read_many(reads);
        reads.iter_mut().for_each(|(buf, offset)| self.lay_over(buf, *offset));
        results
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        for (index, block) in buf.chunks(BLOCK).enumerate() {
            state.blocks.insert(offset + to_u64(index) * BLOCK_U64, block.into());
        }
        state.len = state.len.max(offset + to_u64(buf.len()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.len = state.len.max(len);
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }
}
