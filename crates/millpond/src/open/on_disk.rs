//! A database as an open finds it on the device: superblock, map and log, then the analysis of the log.

use std::sync::Arc;

use crate::base::aligned::to_usize;
use crate::base::clock;
use crate::base::error::Error;
use crate::io::device::Files;
use crate::open::fixed_options::{check_fixed, check_redo_fits, page_store_of};
use crate::options::{Options, fitting_frames, validate_reserve};
use crate::recovery::{self, Analysis};
use crate::redo::dirty_counts::DirtyCounts;
use crate::redo::files::LogFiles;
use crate::store::doublewrite::{CopyFile, Doublewrite};
use crate::store::page_store::PageStore;
use crate::store::superblock::{Found, Superblock};

/// The files of a database, read as far as its last checkpoint.
pub(super) struct OnDisk {
    pub(super) store: PageStore,
    /// Both superblocks as they were found.
    pub(super) superblocks: [Found; 2],
    /// The newest one.
    pub(super) superblock: Superblock,
    pub(super) counts: Arc<DirtyCounts>,
    pub(super) log_files: LogFiles,
}

impl OnDisk {
    /// Reads superblock, map and log files, and checks the options against them.
    pub(super) fn read(files: &dyn Files, options: &Options) -> Result<OnDisk, Error> {
        let counts = Arc::new(DirtyCounts::default());
        let (store, superblocks) = PageStore::open(files, Arc::clone(&counts))?;
        let superblock = Superblock::choose(superblocks, &files.place())?;
        counts.make_for(superblock.redo.capacity());
        check_fixed(options, &superblock, &files.place())?;
        let log_files = LogFiles::open(files, superblock.owner(), superblock.redo, superblock.switch)?;
        Ok(OnDisk { store, superblocks, superblock, counts, log_files })
    }

    /// Bytes of a page.
    pub(super) fn page_size(&self) -> u64 {
        u64::from(self.superblock.page_size)
    }

    /// Analyses the log, and restores the pages that a crash tore.
    pub(super) fn analyse(&mut self, files: &dyn Files, options: &Options, sizes: &Sizes) -> Result<Analysed, Error> {
        let began_ns = clock::now_ns();
        let watched = self.store.copied(files)?;
        let frames = (to_usize(sizes.frames), watched);
        let (log, superblock, store) = (&self.log_files, &self.superblock, &self.store);
        let analysis = recovery::analyse(log, superblock, store, &self.counts, frames, &mut |_| Ok(()))?;
        if options.read_only {
            check_redo_fits(options, analysis.pages_to_redo(), self.page_size(), &files.place())?;
        }
        let checkpoint = self.superblock.checkpoint_lsn;
        let put_back = self.store.put_back_torn(files, checkpoint, |id| analysis.needs_image(id))?;
        let doublewrite = options.doublewrite_of(page_store_of(&self.superblock));
        if doublewrite != Doublewrite::Off {
            let copies = CopyFile::open(files, self.store.page_size(), doublewrite == Doublewrite::On)?;
            self.store.keep_copies_in(copies);
        }
        let redo_bytes = analysis.end.since(checkpoint);
        Ok(Analysed { analysis, redo_bytes, put_back, took_ns: clock::now_ns() - began_ns })
    }

    /// Makes the log that was read durable: it may be in the caches of kernel and device only (RECOVER-1).
    pub(super) fn make_log_durable(&self, options: &Options, analysis: &Analysis) -> Result<(), Error> {
        if !options.read_only && !planted!("log_not_written_again") {
            self.log_files.write_again(analysis.durable, analysis.end)?;
        }
        self.log_files.sync_all()
    }
}

/// The sizes of pool and log that options and files agree on.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) frames: u64,
    /// Most frames that the pool can be resized to.
    pub(super) frames_max: u64,
    /// Bytes of the log that the options ask for, or that it has.
    pub(super) redo_capacity: u64,
}

impl Sizes {
    /// Refuses a pool that the log is too small for, or makes it smaller if the options allow that.
    pub(super) fn of(options: &Options, found: &OnDisk) -> Result<Sizes, Error> {
        let page_size = found.page_size();
        let frames = options.buffer_pool_size.as_u64() / page_size;
        let frames_max = options.buffer_pool_size_max.map_or(frames, |size| size.as_u64() / page_size);
        let redo_capacity = options.redo_capacity.map_or(found.log_files.capacity(), |size| size.as_u64());
        let frames_max = if options.fit_pool { fitting_frames(frames_max, redo_capacity) } else { frames_max };
        validate_reserve(frames_max, redo_capacity)?;
        Ok(Sizes { frames: frames.min(frames_max), frames_max, redo_capacity })
    }
}

/// The findings of the analysis.
pub(super) struct Analysed {
    pub(super) analysis: Analysis,
    /// Bytes of the log behind the checkpoint.
    pub(super) redo_bytes: u64,
    /// Number of pages torn by a crash that were restored from copies.
    pub(super) put_back: u64,
    /// Nanoseconds that the analysis took.
    pub(super) took_ns: u64,
}
