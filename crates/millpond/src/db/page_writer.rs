//! How dirty pages get into images, a lot at a time.
//!
//! WRITER-1  One thread at a time writes the pages of an instance of the pool, from the look whether a page has an
//!           image in flight until its new one is in flight (STORE-6): [`Writers`] has a turn for each, which is held
//!           over the write. Its pin keeps a page in its frame, and so in its instance.
//! WRITER-2  After the copy the log is looked at, and nothing is written if it has stopped: who then had a page changed
//!           and found no place for the group any more has let go of a page whose change is not in the log.
//! WRITER-3  Images without a sync, and pages on their way to be some, are no more than the log has room to name. The
//!           last lot before that is the keeper's, who alone can name them.
//!
//! Mostly the keeper writes. With the classic policies who finds no free frame does, too, or who finds the log three
//! quarters full (`sync_flush.rs`), and threads that free frames and clean pages (`lru_managers.rs`,
//! `page_cleaners.rs`). Bulk loads write beside them: their pages are in no frame (`loading.rs`).

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::engine::Engine;
use super::page_cleaners::ClassicFlushing;
use crate::base::aligned::{AlignedBuf, aligned, to_u64};
use crate::base::clock;
use crate::base::counted_calls::CountedCalls;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId};
use crate::base::page::layout::{TREE_PAGE, header, page_lsn};
use crate::base::pending::Pending;
use crate::base::sync::{Rank, ReadGuard, RwLock, Turn, TurnGuard, WriteGuard};
use crate::base::waits::WaitClass;
use crate::mtr::Core;
use crate::pool::buffer_pool::Pool;
use crate::pool::frame::Pin;
use crate::pool::legacy::SinglePageFlush;
use crate::pool::neighbors::FlushNeighbors;
use crate::store::page_store::{LOT_PAGES, WriteOp};
use crate::store::zones::{LiveImage, ZONE_BYTES};

/// Writes lots of pages.
pub(crate) struct PageWriter {
    buf: AlignedBuf,
    writes: Arc<PageWrites>,
}

/// The turns of those who write pages.
pub(crate) struct Writers {
    /// Shared by who has a turn.
    any: RwLock<()>,
    turns: Box<[Turn<PageWriter>]>,
    /// Pages on their way to be images without a sync.
    in_hand: AtomicUsize,
}

/// A turn, until dropped.
pub(super) struct Writing<'w> {
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

/// Leave to make images of so many pages, until these are counted.
pub(super) struct InHand<'w> {
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

    /// Waits for the turn to write pages of an instance. Whoever has it ends it with his write.
    pub(super) fn lock(&self, instance: usize) -> Writing<'_> {
        let any = Any::Shared(self.any.read());
        Writing { writer: self.turns[instance].lock(), _any: any }
    }

    /// Waits for all turns, to move images of any pages.
    pub(super) fn lock_all(&self) -> Writing<'_> {
        let any = Any::Alone(self.any.write());
        Writing { writer: self.turns[0].lock(), _any: any }
    }

    /// Waits until nobody writes a page, and keeps it so.
    pub(super) fn none(&self) -> WriteGuard<'_, ()> {
        self.any.write()
    }

    /// Leave to have so many more images without a sync (WRITER-3), where `unsynced` tells how many there are, and no
    /// more may be than `most`. `None`: not now.
    pub(super) fn take(&self, pages: usize, most: usize, unsynced: impl Fn() -> usize) -> Option<InHand<'_>> {
        let in_hand = InHand { in_hand: &self.in_hand, pages };
        // First those in hand, then what became images: one may count twice, none is left out.
        let others = self.in_hand.fetch_add(pages, Ordering::SeqCst);
        (others + pages + unsynced() <= most).then_some(in_hand)
    }

    /// The same for the keeper, after it has named all images there were: there is room.
    pub(super) fn take_now(&self, pages: usize) -> InHand<'_> {
        self.in_hand.fetch_add(pages, Ordering::SeqCst);
        InHand { in_hand: &self.in_hand, pages }
    }

    /// Bytes of memory that they take.
    pub(super) fn memory_budget(&self, page_size: usize) -> u64 {
        to_u64(PageWriter::bytes(page_size, true) + (self.turns.len() - 1) * PageWriter::bytes(page_size, false))
    }
}

/// Images that are moved as they are, beside pages from frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved<'b> {
    pub(super) images: &'b [LiveImage],
    /// Where they were read to.
    pub(super) bytes: &'b [u8],
}

/// Why pages are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Why {
    /// Their frames are wanted, now or soon: InnoDB's LRU flushing.
    Frames,
    /// The log will need them clean, at a rate that has them clean in time: its adaptive flushing.
    Pace,
    /// Nobody needs it, and there is nothing else to do: its background flushing.
    Background,
    /// The log is full, or a checkpoint was asked for: its sync flushing.
    AtOnce,
    /// An operation finds no free frame: its single page flushes.
    SinglePage,
}

impl Why {
    /// What an operation waits for that writes pages itself.
    fn waits_on(self) -> WaitClass {
        match self {
            Why::Frames | Why::SinglePage => WaitClass::FreeFrame,
            Why::Pace | Why::Background | Why::AtOnce => WaitClass::LogSpace,
        }
    }
}

/// Pages that were written, and that are being written now, by why.
#[derive(Debug, Default)]
pub(crate) struct PageWrites {
    by_why: [Counted; 5],
    /// Pages of large lots, and how long the device took for them: what it can do.
    lots_pages: AtomicU64,
    lots_ns: AtomicU64,
}

/// A lot that is at least so large tells what the device can do.
const LARGE_LOT: usize = LOT_PAGES / 2;

#[derive(Debug, Default)]
struct Counted {
    /// Lots that had pages, and these.
    written: CountedCalls,
    pending: Pending,
}

impl PageWrites {
    /// Lots of pages that were written.
    pub(super) fn written(&self, why: Why) -> &CountedCalls {
        &self.by_why[why as usize].written
    }

    /// Pages that were copied, and whose write has not ended.
    pub(super) fn pending(&self, why: Why) -> u64 {
        self.by_why[why as usize].pending.now()
    }

    /// All pages that were written.
    pub(super) fn all(&self) -> u64 {
        self.by_why.iter().map(|of| of.written.total()).sum()
    }

    /// Pages of large lots, and nanoseconds that the device took for them.
    pub(super) fn lots(&self) -> (u64, u64) {
        (self.lots_pages.load(Ordering::Relaxed), self.lots_ns.load(Ordering::Relaxed))
    }
}

/// What became of a lot.
pub(super) enum Lot {
    Written {
        pages: usize,
        moved: usize,
        /// How many writes that took, and how long.
        writes: usize,
        took_ns: u64,
        /// Some stay dirty, because an image of them is in flight.
        skipped: bool,
    },
    /// There are no slots for them: all are as dirty as before.
    NoSlots,
}

impl PageWriter {
    /// A writer of lots, and of what is in a zone, if it `moves`.
    fn new(page_size: usize, moves: bool, writes: Arc<PageWrites>) -> PageWriter {
        PageWriter { buf: aligned(Self::bytes(page_size, moves)), writes }
    }

    fn bytes(page_size: usize, moves: bool) -> usize {
        (LOT_PAGES * page_size).max(if moves { ZONE_BYTES } else { 0 })
    }

    /// Copies pages under their latches, has the log durable past them, writes them to free slots, with those images
    /// of `moved` that are still their pages' newest. `make_room` is asked for slots when there are none, with the
    /// number of times that it was asked before, until it says no.
    pub(super) fn write(
        &mut self,
        core: &Core,
        why: Why,
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
            // What was discarded meanwhile is clean, and goes nowhere.
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
        // Where the log has refused to give a page back, it has stopped.
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

/// Pages whose dirtiness was taken for a write: dirty again, from where they were, unless the write came to its end.
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

/// For the pool, which knows no log and no writer.
pub(super) struct SinglePage(pub(super) Weak<Engine>);

impl SinglePageFlush for SinglePage {
    fn flush(&self, page: Pin<'_>) -> Result<bool, Error> {
        let Some(engine) = self.0.upgrade() else { return Ok(false) };
        engine.flush_single(page)
    }
}

impl Engine {
    /// Writes one page and syncs, in the caller's thread. False: not now.
    fn flush_single(&self, page: Pin<'_>) -> Result<bool, Error> {
        let written = self.flush_lot(Why::SinglePage, vec![page])? > 0;
        if written && let Err(error) = self.waits.timed(WaitClass::FreeFrame, || self.core.store.sync()) {
            self.core.log.stop(&error);
            self.bell.ring();
            return Err(error);
        }
        Ok(written)
    }

    /// Pages, each with its neighbours, as many as go into a lot, and how many neighbours there are.
    fn beside<'p>(&'p self, classic: &ClassicFlushing, pages: Vec<Pin<'p>>) -> (Vec<Pin<'p>>, usize) {
        match classic.neighbors.get() {
            FlushNeighbors::None => (pages, 0),
            wanted => self.core.pool.with_neighbors(pages, wanted, LOT_PAGES),
        }
    }

    /// Writes a lot of pages of one instance, in the caller's thread, with their neighbours instead of the last ones
    /// where these are wanted; returns how many. None, although there are some: not now.
    pub(super) fn flush_lot(&self, why: Why, pages: Vec<Pin<'_>>) -> Result<usize, Error> {
        let classic = self.classic_flushing.as_ref().filter(|_| !matches!(why, Why::SinglePage));
        let (pages, neighbors) = match classic {
            Some(classic) => self.beside(classic, pages),
            None => (pages, 0),
        };
        let Some(first) = pages.first() else { return Ok(0) };
        let instance = self.core.pool.number_of_instance(first.frame_id());
        let mut writing = self.waits.timed(why.waits_on(), || self.writers.lock(instance));
        if self.core.store.unsynced() > self.unsynced_max() / 2 {
            // Only the keeper can name them.
            self.bell.ring();
        }
        let most = self.unsynced_max().saturating_sub(LOT_PAGES);
        let Some(_in_hand) = self.writers.take(pages.len(), most, || self.core.store.unsynced()) else { return Ok(0) };
        let lot = writing.write(&self.core, why, pages, Moved::default(), |_| Ok(false));
        if let Err(error) = &lot {
            // As when the keeper's fails: nothing is written from here on. Before the next writer's turn.
            self.core.log.stop(error);
            self.bell.ring();
        }
        match lot? {
            Lot::Written { pages, .. } => {
                // Of those with an image in flight, which were left out, nobody knows whose neighbours they are.
                let beside = to_u64(neighbors.min(pages));
                if let Some(classic) = classic.filter(|_| beside > 0) {
                    classic.beside.add(beside);
                }
                Ok(pages)
            }
            Lot::NoSlots => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::base::page::op::PageOp;
    use crate::base::scheduler::run;
    use crate::btree::descent::{Manner, Restarts, leaf_write};
    use crate::io::simulated::SimulatedDisk;
    use crate::mtr::Mtr;
    use crate::{Db, Durability, Options, WriteBatch};

    /// WRITER-2: the log is durable past the page, so nobody has to wait for it to learn that it has stopped.
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
                let lot = writer.write(core, Why::Background, pins, Moved::default(), |_| Ok(false));
                lot.map(|lot| matches!(lot, Lot::Written { pages, .. } if pages == count))
            };
            assert!(write(1).expect("written"), "as long as it goes on");
            core.log.stop(&Error::Bug("stopped by a test".into()));
            let refused = write(1).expect_err("refused").to_string();
            assert!(refused.contains("stopped by a test"), "{refused}");
            // The same error.
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
                    match leaf_write(core, &tree.state.root, b"a", Manner::First) {
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
