//! Writes dirty pages from frames to images in the data file, a lot at a time.
//!
//! WRITER-1  One thread at a time writes the pages of an instance of the pool: from its check that a page has no image
//!           in flight until the page's new image is in flight (STORE-6). [`Writers`] has a turn for each instance,
//!           held over the write. A page's pin keeps it in its frame, and so in its instance.
//! WRITER-2  After the copy the writer checks the log, and writes nothing if the log has stopped. A stopped log refuses
//!           groups: a thread that found no place for its group may have released a page with an unlogged change.
//! WRITER-3  Images without a sync, and pages that are becoming such images, are at most as many as the log has room to
//!           name. The last lot below that bound is the keeper's, since only the keeper can name images.
//!
//! Mostly the keeper writes. With the classic policies other threads write, too: an operation that finds no free frame;
//! a writer that finds the log three quarters full (`sync_flush.rs`); the threads that free frames and clean pages
//! (`lru_managers.rs`, `page_cleaners.rs`). Bulk loads write beside them: their pages are in no frame (`loading.rs`).

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::base::aligned::{AlignedBuf, aligned, to_u64};
use crate::base::clock;
use crate::base::counted_calls::CountedCalls;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId};
use crate::base::page::layout::{TREE_PAGE, header, page_lsn};
use crate::base::pending::Pending;
use crate::base::sync::{Rank, ReadGuard, RwLock, Turn, TurnGuard, WriteGuard};
use crate::core::Core;
use crate::engine::flush_reason::FlushReason;
use crate::pool::buffer_pool::Pool;
use crate::pool::pin::Pin;
use crate::store::lot::{LOT_PAGES, WriteOp};
use crate::store::zones::{LiveImage, ZONE_BYTES};

/// Writes lots of pages, with a buffer for their copies.
pub(crate) struct PageWriter {
    buf: AlignedBuf,
    writes: Arc<PageWrites>,
}

/// The turns to write pages, one for each instance of the pool.
pub(crate) struct Writers {
    /// Shared for the holder of one turn; exclusive to write pages of any instance, or to keep all threads from
    /// writing.
    any: RwLock<()>,
    turns: Box<[Turn<PageWriter>]>,
    /// Number of pages that are becoming images without a sync.
    in_hand: AtomicUsize,
}

/// A turn, until dropped.
pub(crate) struct Writing<'w> {
    writer: TurnGuard<'w, PageWriter>,
    _any: Any<'w>,
}

#[expect(dead_code, reason = "held")]
enum Any<'w> {
    Shared(ReadGuard<'w, ()>),
    Alone(WriteGuard<'w, ()>),
}

impl Deref for Writing<'_> {
    type Target = PageWriter;

    fn deref(&self) -> &PageWriter {
        &self.writer
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut PageWriter {
        &mut self.writer
    }
}

/// Permission to make images of `pages` pages. Held until the store counts these images as unsynced.
pub(crate) struct InHand<'w> {
    in_hand: &'w AtomicUsize,
    pages: usize,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.in_hand.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

impl Writers {
    /// A turn for each instance of the pool.
    pub(crate) fn new(instances: usize, page_size: usize, writes: &Arc<PageWrites>) -> Writers {
        let turn = |at| Turn::new(Rank::PageWriter, PageWriter::new(page_size, at == 0, Arc::clone(writes)));
        Writers { any: RwLock::new(()), turns: (0..instances).map(turn).collect(), in_hand: AtomicUsize::new(0) }
    }

    /// Waits for the turn to write pages of an instance. The holder of the turn gives it up after its write.
    pub(crate) fn lock(&self, instance: usize) -> Writing<'_> {
        let any = Any::Shared(self.any.read());
        Writing { writer: self.turns[instance].lock(), _any: any }
    }

    /// Waits for all turns, to move images of any pages.
    pub(crate) fn lock_all(&self) -> Writing<'_> {
        let any = Any::Alone(self.any.write());
        Writing { writer: self.turns[0].lock(), _any: any }
    }

    /// Waits until no thread writes a page, and keeps it so while the guard lives.
    pub(crate) fn none(&self) -> WriteGuard<'_, ()> {
        self.any.write()
    }

    /// Permits `pages` more images without a sync (WRITER-3), if there will be at most `most`; `unsynced` returns the
    /// present number. `None`: not now.
    pub(crate) fn take(&self, pages: usize, most: usize, unsynced: impl Fn() -> usize) -> Option<InHand<'_>> {
        let in_hand = InHand { in_hand: &self.in_hand, pages };
        // First the pages in hand, then the unsynced images: a page may count twice, none is left out.
        let others = self.in_hand.fetch_add(pages, Ordering::SeqCst);
        (others + pages + unsynced() <= most).then_some(in_hand)
    }

    /// The same for the keeper, after it has named all images: there is room.
    pub(crate) fn take_now(&self, pages: usize) -> InHand<'_> {
        self.in_hand.fetch_add(pages, Ordering::SeqCst);
        InHand { in_hand: &self.in_hand, pages }
    }

    /// Bytes of memory that the writers of all instances take.
    pub(crate) fn memory_budget(&self, page_size: usize) -> u64 {
        to_u64(PageWriter::bytes(page_size, true) + (self.turns.len() - 1) * PageWriter::bytes(page_size, false))
    }
}

/// Images that are moved unchanged, beside pages from frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved<'b> {
    pub(crate) images: &'b [LiveImage],
    /// The bytes of the zone that the images were read from.
    pub(crate) bytes: &'b [u8],
}

/// Counters of the pages written so far and of those being written now, by reason.
#[derive(Debug, Default)]
pub(crate) struct PageWrites {
    by_why: [Counted; 5],
    /// Pages of large lots, and the device's time for them: they tell its write rate.
    lots_pages: AtomicU64,
    lots_ns: AtomicU64,
}

/// Least number of pages with which a lot tells the device's write rate.
const LARGE_LOT: usize = LOT_PAGES / 2;

#[derive(Debug, Default)]
struct Counted {
    /// Lots that had pages, and the number of these pages.
    written: CountedCalls,
    pending: Pending,
}

impl PageWrites {
    /// Lots of pages that were written.
    pub(crate) fn written(&self, why: FlushReason) -> &CountedCalls {
        &self.by_why[why as usize].written
    }

    /// Number of pages that were copied, and whose write has not ended.
    pub(crate) fn pending(&self, why: FlushReason) -> u64 {
        self.by_why[why as usize].pending.now()
    }

    /// Number of all pages that were written.
    pub(crate) fn all(&self) -> u64 {
        self.by_why.iter().map(|of| of.written.total()).sum()
    }

    /// Number of pages of large lots, and the device's time for them in nanoseconds.
    pub(super) fn lots(&self) -> (u64, u64) {
        (self.lots_pages.load(Ordering::Relaxed), self.lots_ns.load(Ordering::Relaxed))
    }
}

/// The outcome of writing a lot.
pub(crate) enum Lot {
    Written {
        pages: usize,
        moved: usize,
        /// Number of device writes, and the time for all of them.
        writes: usize,
        took_ns: u64,
        /// Some pages stay dirty, because an image of them is in flight.
        skipped: bool,
    },
    /// There are no free slots: all pages are as dirty as before.
    NoSlots,
}

impl PageWriter {
    /// A writer of lots; with `moves` its buffer also holds the images of a zone.
    fn new(page_size: usize, moves: bool, writes: Arc<PageWrites>) -> PageWriter {
        PageWriter { buf: aligned(Self::bytes(page_size, moves)), writes }
    }

    fn bytes(page_size: usize, moves: bool) -> usize {
        (LOT_PAGES * page_size).max(if moves { ZONE_BYTES } else { 0 })
    }

    /// Copies pages under their latches, flushes the log past their LSNs, and writes them to free slots. With them it
    /// writes the images of `moved` that are still their pages' newest. Without free slots it calls `make_room`, with
    /// the number of calls before, until that returns false.
    pub(crate) fn write(
        &mut self,
        core: &Core,
        why: FlushReason,
        pins: Vec<Pin<'_>>,
        moved: Moved<'_>,
        mut make_room: impl FnMut(u32) -> Result<bool, Error>,
    ) -> Result<Lot, Error> {
        let size = core.store.page_size();
        let mut copied = Copied { pool: &core.pool, pages: Vec::with_capacity(pins.len()) };
        let mut newest = Lsn::ZERO;
        let mut skipped = false;
        let mut given_back = None;
        for pin in pins {
            let at = copied.pages.len() * size;
            let page = pin.read();
            let id = PageId(header(page.bytes()).page_id.get());
            if core.store.in_flight(id) {
                skipped = true;
                continue;
            }
            self.buf[at..at + size].copy_from_slice(page.bytes());
            let lsn = page_lsn(page.bytes());
            // A page that was discarded meanwhile is clean, and is not written.
            if let (pin, Some(rec_lsn)) = page.take_dirtiness() {
                given_back = given_back.or((header(&self.buf[at..]).page_type != TREE_PAGE).then_some(id));
                newest = newest.max(lsn);
                copied.pages.push((pin, WriteOp { id, lsn, rec_lsn: Some(rec_lsn) }));
            }
        }
        let pages = copied.pages.len();
        let of = &self.writes.by_why[why as usize];
        let _pending = of.pending.begin(to_u64(pages));
        if pages > 0 && !planted!("page_before_log") {
            core.log.flush_wait(newest)?;
        }
        // WRITER-2
        if !planted!("log_not_looked_at") {
            core.log.health()?;
        }
        // If the log has no place for the group that gives a page back, it has stopped, which was checked above.
        let none = given_back.is_none() || planted!("freed_page_written");
        assert!(none, "PAGE-5: page {given_back:?} was given back, and is about to be written");
        let mut ops: Vec<WriteOp> = copied.pages.iter().map(|(_, op)| *op).collect();
        for image in moved.images.iter().filter(|image| core.store.may_move(image)) {
            let (to, from) = (ops.len() * size, image.index * size);
            self.buf[to..to + size].copy_from_slice(&moved.bytes[from..from + size]);
            ops.push(WriteOp { id: image.id, lsn: image.lsn, rec_lsn: None });
        }
        let buf = &mut self.buf[..ops.len() * size];
        for asked in 0.. {
            let began_ns = clock::now_ns();
            let write = || core.store.write(&ops, buf, core.log.positions().durable);
            let writes = match ops.len() {
                0 => Some(0),
                _ => core.pool.waits().timed(why.waits_on(), write)?,
            };
            if let Some(writes) = writes {
                copied.pages.clear();
                if pages > 0 {
                    of.written.add(to_u64(pages));
                }
                let took_ns = clock::now_ns().saturating_sub(began_ns);
                if pages >= LARGE_LOT {
                    self.writes.lots_pages.fetch_add(to_u64(pages), Ordering::Relaxed);
                    self.writes.lots_ns.fetch_add(took_ns, Ordering::Relaxed);
                }
                return Ok(Lot::Written { pages, moved: ops.len() - pages, writes, took_ns, skipped });
            }
            if !make_room(asked)? {
                break;
            }
        }
        Ok(Lot::NoSlots)
    }
}

/// Pages marked clean for a write. On drop they are dirty again from their old LSN, unless the write succeeded.
struct Copied<'p> {
    pool: &'p Pool,
    pages: Vec<(Pin<'p>, WriteOp)>,
}

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        for (pin, op) in &self.pages {
            if let Some(rec_lsn) = op.rec_lsn {
                self.pool.dirty_again(pin.frame_id(), rec_lsn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::base::page::op::PageOp;
    use crate::base::scheduler::run;
    use crate::btree::descent::{LatchOrder, Restarts, leaf_write};
    use crate::io::simulated::SimulatedDisk;
    use crate::mtr::Mtr;
    use crate::{Db, Durability, Options, WriteBatch};

    /// WRITER-2: the log is durable past the page, so the writer does not learn by a wait that the log has stopped.
    #[test]
    fn no_page_is_written_once_the_log_has_stopped() {
        run(1, || {
            let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::kib(160));
            let db =
                Db::open_on(Arc::new(SimulatedDisk::new()), options.redo_capacity(ByteSize::mib(2))).expect("opened");
            let tree = db.create_tree("t").expect("created");
            let mut batch = WriteBatch::new();
            batch.put(&tree, b"a", b"1").durability(Durability::Commit);
            db.write(batch).expect("written");
            let core = &db.engine().core;
            let write = |count: usize| {
                let frames: Vec<_> =
                    core.pool.dirty_before(Lsn(u64::MAX)).into_iter().map(|(_, frame)| frame).collect();
                let mut pins = core.pool.pin_dirty(&frames);
                assert!(pins.len() >= count, "{} are dirty", pins.len());
                pins.truncate(count);
                let mut writer = PageWriter::new(core.store.page_size(), false, Arc::default());
                let lot = writer.write(core, FlushReason::Background, pins, Moved::default(), |_| Ok(false));
                lot.map(|lot| matches!(lot, Lot::Written { pages, .. } if pages == count))
            };
            assert!(write(1).expect("written"), "as long as it goes on");
            core.log.stop(&Error::Bug("stopped by a test".into()));
            let refused = write(1).expect_err("refused").to_string();
            assert!(refused.contains("stopped by a test"), "{refused}");
            // The close returns the same error.
            drop((tree, db.close()));
        });
    }

    /// MTR-5: a row is marked as deleted, and the thread panics before that is in the log.
    #[test]
    fn change_without_a_place_in_the_log_is_never_durable() {
        run(1, || {
            let disk = SimulatedDisk::new();
            let options = || {
                let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::kib(160));
                options.redo_capacity(ByteSize::mib(2))
            };
            let db = Db::open_on(Arc::new(disk.clone()), options()).expect("opened");
            let tree = db.create_tree("t").expect("created");
            tree.put(b"a", b"1").expect("written");
            db.checkpoint().expect("all is clean");
            let core = &db.engine().core;
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut restarts = Restarts::new(&core.pool);
                let page = loop {
                    match leaf_write(core, &tree.state.root, b"a", LatchOrder::First) {
                        Ok(page) => break page,
                        Err(stop) => restarts.resolve(stop).expect("loaded"),
                    }
                };
                let id = page.id();
                let mut mtr = Mtr::new(&core.log, [page]);
                mtr.apply(0, id, &PageOp::Remove { key: b"a" }).expect("it is there");
                std::panic::resume_unwind(Box::new("as planned"));
            }));
            assert!(panicked.is_err());
            let refused = tree.put(b"b", b"2").expect_err("the engine has stopped");
            let text = refused.to_string();
            assert!(matches!(refused, Error::ReadOnly(_)) && text.contains("place in the log"), "{text}");
            assert!(db.checkpoint().is_err() && db.close().is_err());
            drop(tree);
            let db = Db::open_on(Arc::new(disk), options()).expect("opened");
            let found = db.open_tree("t").expect("there").get(b"a").expect("read");
            assert_eq!(found.as_deref(), Some(&b"1"[..]), "the removal was never logged");
            db.close().expect("closed");
        });
    }
}
