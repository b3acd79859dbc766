//! The engine: the one struct that all handles and background threads of an open database share.
//!
//! It is built on [`Core`] (pages and log), transactions, and the pacing of writes. It adds the state of open trees and
//! tables, and the requests that threads leave for the keeper. The sub-modules hold its larger parts.

pub(crate) mod classic_flushing;
pub(crate) mod compaction;
pub(crate) mod durable;
pub(crate) mod flush_reason;
pub(crate) mod open_trees;
pub(crate) mod open_txns;
pub(crate) mod pacing;
pub(crate) mod page_writer;
pub(crate) mod recovery_time;
pub(crate) mod redo_change;
pub(crate) mod table_state;
pub(crate) mod tree_state;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::base::aligned::{to_u64, to_usize};
use crate::base::bell::Bell;
use crate::base::clock;
use crate::base::error::{CLOSED, Error, closed};
use crate::base::handoff::Handoff;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::process::Home;
use crate::base::stall::Stall;
use crate::base::sync::{Mutex, ReadGuard, RwLock, Turn, TurnGuard, WriteGuard};
use crate::base::waits::{WaitClass, Waits};
use crate::btree::descent::Restarts;
use crate::core::Core;
use crate::engine::classic_flushing::ClassicFlushing;
use crate::engine::compaction::Compaction;
use crate::engine::open_txns::OpenTxns;
use crate::engine::pacing::Pacing;
use crate::engine::page_writer::{PageWrites, Writers};
use crate::engine::recovery_time::RecoveryTime;
use crate::engine::redo_change::RedoChange;
use crate::engine::table_state::TableState;
use crate::engine::tree_state::{Gate, TreeState};
use crate::io::device::Files;
use crate::options::in_force::InForce;
use crate::options::{Limits, unsynced_max};
use crate::redo::ending;
use crate::redo::files::Ring;
use crate::store::frozen::Frozen;
use crate::txn::locks::lock_memory_max;
use crate::txn::transactions::Transactions;

/// An open database.
pub(crate) struct Engine {
    pub(crate) core: Arc<Core>,
    /// The process that opened the database.
    pub(crate) home: Arc<Home>,
    /// The database's files. Their lock keeps other processes out; `None` once the database is closed.
    pub(crate) files: Mutex<Option<Arc<dyn Files>>>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) waits: Arc<Waits>,
    pub(crate) limits: Limits,
    pub(crate) in_force: InForce,
    /// Most frames that the buffer pool can be resized to.
    pub(crate) frames_max: u64,
    /// Dropped spaces whose pages may still be in frames, each with the next frame to look at. The thread that drops a
    /// space adds it; the keeper empties the frames.
    pub(crate) drops: Mutex<VecDeque<(SpaceId, usize)>>,
    /// Pages that may be too empty. Threads that purge rows add wishes; the keeper merges the pages.
    pub(crate) merge_wishes: Mutex<VecDeque<MergeWish>>,
    /// Wishes that wait until the purge thread has read the named page.
    pub(crate) merges_parked: Mutex<VecDeque<(PageId, MergeWish)>>,
    /// Transactions, their undo pages and row locks.
    pub(crate) txns: Transactions,
    /// Spaces from this number on were created by this process.
    pub(crate) first_new_space: AtomicU32,
    /// Serialises the creation and dropping of trees and tables.
    pub(crate) ddl: Turn<()>,
    /// Gate of all spaces: exclusive for a thread that takes spaces out of the map; shared for purge and rollback,
    /// which work in a space without having entered its tree. Taken after `ddl` and the other gates. Its holder waits
    /// for pages, frames and the log only.
    pub(crate) spaces: RwLock<()>,
    /// Gate of transactions of statements: shared while a statement, a commit or a rollback is under way; closed with
    /// the database. Taken before the gates of tables and trees.
    pub(crate) statements: RwLock<Gate>,
    /// Transactions of statements that have changed or locked something and are open.
    pub(crate) open_txns: OpenTxns,
    /// Trees that are being loaded, and have no name yet.
    pub(crate) loads: Mutex<BTreeMap<SpaceId, Arc<TreeState>>>,
    /// The turn to write pages of bulk loads (LOAD-3).
    pub(crate) load_writer: Turn<()>,
    /// The log that a backup has yet to copy.
    pub(crate) log_hold: Mutex<Option<LogHold>>,
    /// Trees that were opened, those of tables included.
    pub(crate) open_trees: Mutex<BTreeMap<SpaceId, Arc<TreeState>>>,
    /// Tables that were opened, by the spaces of their rows.
    pub(crate) open_tables: Mutex<BTreeMap<SpaceId, Arc<TableState>>>,
    pub(crate) requests: Mutex<Requests>,
    pub(crate) writers: Writers,
    pub(crate) page_writes: Arc<PageWrites>,
    pub(crate) pacing: Pacing,
    /// The classic method of flushing, whose threads clean pages for the log instead of the keeper; `None`: the keeper
    /// does.
    pub(crate) classic_flushing: Option<ClassicFlushing>,
    /// True while recovery applies the log: pages are then cleaned for their frames only.
    pub(crate) redoing: AtomicBool,
    /// The database was opened read-only, and the open has ended. Written once, by the opening thread.
    pub(crate) read_only: AtomicBool,
    /// Whether the keeper may make the data file shorter. Written once, when the open has ended, and not for a database
    /// whose writes stay in memory.
    pub(crate) may_shorten: AtomicBool,
    /// Whether there is a request to make the data file short: then the keeper looks at it in each step.
    pub(crate) is_compacted: AtomicBool,
    /// A request to make the data file short.
    pub(crate) compaction: Mutex<Option<Compaction>>,
    pub(crate) opening: Opening,
    pub(crate) recovery_time: RecoveryTime,
    pub(crate) redo_change: RedoChange,
    pub(crate) closed: AtomicBool,
}

/// Most merge wishes that are kept; further ones are dropped.
const MERGE_WISHES_MAX: usize = 1024;

/// Most leaves that one group of a batch changes. A row in a group costs about the same from one leaf on; a batch of
/// several groups costs some 10 us more in all.
const GROUP_LEAVES: usize = 16;

/// Most undo pages that one group needs.
const GROUP_UNDO_PAGES: usize = 8;

/// Most pages that the writer of a group keeps in memory at once, whatever the batch: few enough that frames for them
/// are found under any load.
pub(crate) const GROUP_PAGES: usize = 40;

/// A page that may be worth a merge, because entries were removed from it.
pub(crate) struct MergeWish {
    pub(crate) tree: Arc<TreeState>,
    /// A key that the page covers.
    pub(crate) key: Vec<u8>,
    pub(crate) level: u8,
    /// Number of times that the keeper put the wish off.
    pub(crate) tries: u8,
}

/// The cost of opening the database.
#[derive(Default)]
pub(crate) struct Opening {
    pub(crate) us: AtomicU64,
    pub(crate) redo_bytes: u64,
    pub(crate) redo_pages: u64,
    /// Number of pages torn by a crash that were restored from copies.
    pub(crate) put_back: u64,
}

/// The keeper's answer to a request; the error is a sentence that gives the reason.
pub(crate) type CheckpointAnswer = Result<(), Arc<str>>;

/// A request to the keeper, for whose answer a thread waits.
pub(crate) struct Request {
    pub(crate) handoff: Arc<Handoff<CheckpointAnswer>>,
    pub(crate) goal: CheckpointGoal,
}

/// Where the keeper puts its answer to a backup.
pub(crate) type FreezeInto = Arc<Mutex<Option<Freeze>>>;

/// The keeper's answer to a backup.
pub(crate) enum Freeze {
    /// The map, and the end of the log behind it.
    Frozen(Box<Frozen>, Lsn),
    /// Another backup is being made.
    Busy,
    /// The log moves to another ring.
    Moving,
}

/// The log that a backup has yet to copy.
#[derive(Clone, Copy)]
pub(crate) struct LogHold {
    /// Where it begins: a count there holds the checkpoint.
    pub(crate) from: Lsn,
    /// When the log is beyond this, the keeper breaks the hold.
    pub(crate) upto: Lsn,
}

/// The work that a request asks the keeper for.
pub(crate) enum CheckpointGoal {
    /// Write a superblock of the current state.
    Superblock,
    /// Take a checkpoint of all changes made up to now: their images are durable.
    All,
    /// As [`All`](CheckpointGoal::All), and switch the log to this ring.
    Ring(Ring),
    /// Resize the buffer pool to this number of frames.
    Pool(u64),
    /// Free the slots that need only a sync, or one more step of giving back.
    Slots,
    /// Freeze the map for a backup.
    Freeze(FreezeInto),
}

/// A request for map groups that name the images written so far, made by a thread such as a bulk load.
pub(crate) struct Naming {
    /// The images of all turns of writing up to this one.
    pub(crate) turn: u64,
    pub(crate) handoff: Arc<Handoff<CheckpointAnswer>>,
}

/// Requests to the keeper. Other threads add them; the keeper takes them.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) asked: Vec<Request>,
    pub(crate) naming: Vec<Naming>,
    pub(crate) stop: bool,
    /// The reason why the keeper gave up, if so.
    pub(crate) failed: Option<Arc<str>>,
}

impl Engine {
    /// Number of images that may wait for their data sync, given the pool's present size.
    pub(crate) fn unsynced_max(&self) -> usize {
        to_usize(unsynced_max(to_u64(self.core.pool.len())))
    }

    /// Adds to slow operations the names of the trees whose latches they waited for. Only open trees are named.
    pub(crate) fn with_trees(&self, mut stalls: Vec<Stall>) -> Vec<Stall> {
        // One by one: no thread that opens a tree waits while names are written.
        let open_tree = |space| self.open_trees.lock().get(&space).cloned();
        for latch in stalls.iter_mut().filter_map(|stall| stall.latch.as_mut()) {
            latch.tree = match SpaceId(latch.space) {
                SpaceId::CATALOG => Some("the catalog".to_owned()),
                space => open_tree(space).map(|tree| tree.to_string()),
            };
        }
        stalls
    }

    /// Ends a backup's hold on the log. False: there was none.
    pub(crate) fn end_log_hold(&self) -> bool {
        let held = self.log_hold.lock().take();
        held.inspect(|hold| self.core.log.counts.remove(hold.from)).is_some()
    }

    /// Asks the keeper for `wish`, and waits for the answer on `checkpoint`.
    pub(crate) fn checkpoint_wait(&self, goal: CheckpointGoal) -> Result<(), Error> {
        let handoff = Handoff::new();
        let request = Request { handoff: Arc::clone(&handoff), goal };
        self.ask_keeper(|requests| requests.asked.push(request))?;
        handoff.take_wait(WaitClass::Checkpoint, &self.waits).map_err(|why| stopped(&why))
    }

    /// Takes the checkpoint before the close. For a read-only database it does nothing: the pages that recovery redid
    /// would be copied to no use.
    pub(crate) fn last_checkpoint_wait(&self) -> Result<(), Error> {
        if self.read_only.load(Ordering::Relaxed) { Ok(()) } else { self.checkpoint_wait(CheckpointGoal::All) }
    }

    /// Asks the keeper for map groups that name all images written up to now. The handoff gets the answer once they are
    /// in the log.
    pub(crate) fn ask_naming(&self) -> Result<Arc<Handoff<CheckpointAnswer>>, Error> {
        let handoff = Handoff::new();
        let naming = Naming { turn: self.core.store.turns().0, handoff: Arc::clone(&handoff) };
        self.ask_keeper(|requests| requests.naming.push(naming))?;
        Ok(handoff)
    }

    /// Waits until the keeper has synced and named all images written up to now. False: the keeper has given up, or is
    /// about to end.
    pub(crate) fn name_images(&self, class: WaitClass) -> Result<bool, Error> {
        Ok(self.ask_naming()?.take_wait(class, &self.waits).is_ok())
    }

    fn ask_keeper(&self, ask: impl FnOnce(&mut Requests)) -> Result<(), Error> {
        {
            let mut requests = self.requests.lock();
            if requests.stop {
                return Err(closed());
            }
            if let Some(why) = &requests.failed {
                return Err(stopped(why));
            }
            ask(&mut requests);
        }
        self.bell.ring();
        Ok(())
    }

    /// Leaves a merge wish for the keeper. No thread waits for it.
    pub(crate) fn wish_merge(&self, wish: MergeWish) {
        let first = {
            let mut wishes = self.merge_wishes.lock();
            if wishes.len() < MERGE_WISHES_MAX {
                wishes.push_back(wish);
            }
            wishes.len() == 1
        };
        if first {
            self.bell.ring();
        }
    }

    /// Whether so many wishes wait that background work should pause: further ones may soon be dropped.
    pub(crate) fn has_many_wishes(&self) -> bool {
        self.wish_count() > MERGE_WISHES_MAX / 2
    }

    /// Number of merge wishes, those that wait for a page included. The two mutexes are taken one after the other, so
    /// the sum is not of one moment.
    pub(crate) fn wish_count(&self) -> usize {
        let waiting = self.merge_wishes.lock().len();
        waiting + self.merges_parked.lock().len()
    }

    /// Moves the wishes that waited for page `id` to the front of the queue: the page is in memory, or cannot be read.
    pub(crate) fn unpark_merges(&self, id: PageId) {
        let mut parked = self.merges_parked.lock();
        let (ready, waiting) = std::mem::take(&mut *parked).into_iter().partition(|(page, _)| *page == id);
        *parked = waiting;
        drop(parked);
        let ready: VecDeque<(PageId, MergeWish)> = ready;
        let mut wishes = self.merge_wishes.lock();
        ready.into_iter().rev().for_each(|(_, wish)| wishes.push_front(wish));
    }

    /// Waits on `metadata` for the turn to create and drop trees.
    pub(crate) fn ddl(&self) -> TurnGuard<'_, ()> {
        self.waits.timed(WaitClass::Metadata, || self.ddl.lock())
    }

    /// Locks all spaces exclusively, to take some out of the map. Waits on `metadata` for threads that work in one.
    pub(crate) fn all_spaces(&self) -> WriteGuard<'_, ()> {
        self.waits.timed(WaitClass::Metadata, || self.spaces.write())
    }

    /// Keeps all spaces in the map, for an operation that may hold an admission to miss pages, or the lane. If the
    /// operation must wait, it gives these up first: the thread that it waits for may need them.
    pub(crate) fn keep_spaces(&self, restarts: &mut Restarts<'_>) -> ReadGuard<'_, ()> {
        self.spaces.try_read().unwrap_or_else(|| {
            restarts.begin_wait();
            self.waits.timed(WaitClass::Metadata, || self.spaces.read())
        })
    }

    /// Most leaves that one group of a batch changes. A batch of more leaves is written in parts.
    pub(crate) fn group_leaves(&self) -> usize {
        (self.core.pool.len() / 16).clamp(4, GROUP_LEAVES)
    }

    /// Most undo pages that one group may need.
    pub(crate) fn group_undo_pages(&self) -> usize {
        (self.core.pool.len() / 8).clamp(5, GROUP_UNDO_PAGES)
    }

    /// Most undo pages that may wait for purge: few enough that most are still in memory. From half this number on,
    /// writers take part in purge.
    pub(crate) fn purge_pages_max(&self) -> usize {
        (self.core.pool.len() / 16).max(32)
    }

    /// The keeper's tick: gives up transactions that were left alone for too long. Purge undoes them.
    pub(crate) fn end_idle_transactions(&self) {
        let Some(timeout) = self.open_txns.idle_timeout() else { return };
        let now_ns = clock::coarse_ns();
        for (txn, open) in self.open_txns.all() {
            if let Some(own) = open.take_if_idle(now_ns, timeout) {
                self.open_txns.remove(txn);
                // Before its changes are undone: a reader must not take that for what is there.
                open.changes.end();
                // As if its handle were dropped: this gives it to purge.
                drop(self.txns.resume(own));
            }
        }
    }

    /// Bytes that row locks may take before reads lock no more.
    pub(crate) fn lock_memory_max(&self) -> usize {
        lock_memory_max(self.core.pool.len() * self.core.store.page_size())
    }

    /// Enters the gate of transactions of statements, shared; fails if the database is closed. May wait on `metadata`
    /// for the thread that closes it.
    pub(crate) fn enter_statement(&self) -> Result<ReadGuard<'_, Gate>, Error> {
        let gate = &self.statements;
        let gate = gate.try_read().unwrap_or_else(|| self.waits.timed(WaitClass::Metadata, || gate.read()));
        if *gate == Gate::Open { Ok(gate) } else { Err(closed()) }
    }

    /// Fails once the database is closed, and in a fork of the process that opened it.
    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        self.home.check()?;
        self.check_open()
    }

    /// Fails once the database is closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        // Relaxed: calls that run at the same time as the close are promised nothing.
        if self.closed.load(Ordering::Relaxed) {
            return Err(closed());
        }
        Ok(())
    }

    /// Fails if the database is closed, or was opened read-only.
    pub(crate) fn check_changeable(&self) -> Result<(), Error> {
        self.check_open()?;
        // Relaxed: written before any caller has a handle.
        if self.read_only.load(Ordering::Relaxed) {
            let message = "the database was opened with read_only: open it without, to write";
            return Err(Error::ReadOnly(message.into()));
        }
        Ok(())
    }
}

/// The error of a keeper or log that has stopped because of `why`.
pub(crate) fn stopped(why: &str) -> Error {
    if why == CLOSED { closed() } else { ending::stopped(why) }
}
