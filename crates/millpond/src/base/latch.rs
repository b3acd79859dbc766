//! The latch word: many readers or one writer.
//!
//! LATCH-1  The word holds either the exclusive bit or a count of readers, never both.
//! LATCH-2  A thread about to park sets `PARKED` under the queue's lock. The thread that wakes the last parked thread
//!          clears it under the same lock. A thread that releases the latch and sees `PARKED` keeps it exclusively
//!          until it has woken the queue's front: one writer, or all readers before the next writer.
//! LATCH-3  A newcomer may overtake parked threads, but not for long: about every half millisecond the releasing thread
//!          hands the latch to the queue's front, without freeing it in between. New readers never overtake a parked
//!          thread.
//!
//! No thread spins, because the holder of a latch may have no CPU. A wait ends when the holder releases the latch.

#![allow(unsafe_code, reason = "a lock word: `lock_api` builds the guards on it")]

use std::cell::Cell;

use super::primitives::{
    AtomicU64, DEFAULT_PARK_TOKEN, FilterOp, Ordering, ParkResult, ParkToken, UnparkResult, UnparkToken, park,
    unpark_filter,
};

/// A writer holds the latch.
const EXCLUSIVE: u64 = 1;

/// A thread is parked.
const PARKED: u64 = 2;

/// One reader, in the count of readers.
const READER: u64 = 4;

/// The access that a parked thread waits for.
const WANTS_SHARED: ParkToken = DEFAULT_PARK_TOKEN;
const WANTS_EXCLUSIVE: ParkToken = ParkToken(1);

/// The message to a woken thread: try again, or the latch is yours.
const RETRY: UnparkToken = UnparkToken(0);
const YOURS: UnparkToken = UnparkToken(1);

/// How a wait ended.
enum Woken {
    /// The waker handed us the latch.
    Holding,
    /// The waker told us to try again, ahead of parked threads.
    InTurn,
    /// The latch was free before we parked.
    NotParked,
}

/// A latch's word.
pub(crate) struct Latch {
    word: AtomicU64,
}

impl Latch {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The bits that keep a reader out: a writer, and parked threads, unless it is the reader's turn.
    fn blocks_shared(in_turn: bool) -> u64 {
        if in_turn || planted!("latch_readers_pass") { EXCLUSIVE } else { EXCLUSIVE | PARKED }
    }

    fn take_shared(&self, in_turn: bool) -> bool {
        let blocked = Self::blocks_shared(in_turn);
        let free = |word: u64| (word & blocked == 0).then_some(word + READER);
        // Acquire: pairs with the Release of the writer before.
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_ok()
    }

    fn take_exclusive(&self) -> bool {
        let free = |word: u64| (word & !PARKED == 0).then_some(word | EXCLUSIVE);
        // Acquire: pairs with the Releases of all earlier holders.
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_ok()
    }

    /// Parks while one of the bits `blocking` is set.
    fn wait(&self, wants: ParkToken, blocking: u64) -> Woken {
        let still_blocked = || {
            let mark = |word: u64| (word & blocking != 0).then_some(word | PARKED);
            // Relaxed: the queue's lock orders this with the waker.
            self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mark).is_ok()
        };
        // SAFETY: the address is this latch's own, and threads park on it only for this latch; the closures neither
        // panic nor park.
        let result = unsafe { park(self.address(), still_blocked, || (), |_, _| (), wants, None) };
        match result {
            ParkResult::Unparked(token) if token == YOURS => Woken::Holding,
            ParkResult::Unparked(_) => Woken::InTurn,
            ParkResult::Invalid | ParkResult::TimedOut => Woken::NotParked,
        }
    }

    #[cold]
    fn wait_shared(&self) {
        // Tries again before it parks.
        let mut in_turn = false;
        while !self.take_shared(in_turn) {
            match self.wait(WANTS_SHARED, Self::blocks_shared(in_turn)) {
                Woken::Holding => return,
                Woken::InTurn => in_turn = true,
                Woken::NotParked => {}
            }
        }
    }

    #[cold]
    fn wait_exclusive(&self) {
        while !self.take_exclusive() {
            if matches!(self.wait(WANTS_EXCLUSIVE, !PARKED), Woken::Holding) {
                return;
            }
        }
    }

    /// Releases the latch and wakes the queue's front, or hands the latch over. The caller holds it exclusively, and
    /// saw `PARKED`.
    #[cold]
    fn release_and_wake(&self) {
        // The access that the woken threads would hold together: one writer, or a count of readers.
        let held = Cell::new(0);
        let front = |token: ParkToken| match held.get() {
            0 if token == WANTS_EXCLUSIVE => {
                held.set(EXCLUSIVE);
                FilterOp::Unpark
            }
            EXCLUSIVE => FilterOp::Stop,
            readers if token == WANTS_SHARED => {
                held.set(readers + READER);
                FilterOp::Unpark
            }
            _ => FilterOp::Stop,
        };
        let woken = |result: UnparkResult| {
            let parked = if result.have_more_threads && !planted!("latch_parked_forgotten") { PARKED } else { 0 };
            let (word, token) = if result.be_fair { (held.get() | parked, YOURS) } else { (parked, RETRY) };
            // No other thread changes the word: we hold the latch, and the queue's lock. Release: pairs with the
            // Acquire of the next holder. Threads that get the latch handed over are ordered by the waking itself.
            self.word.store(word, Ordering::Release);
            token
        };
        // SAFETY: the address is this latch's own; the closures neither panic nor park.
        let _ = unsafe { unpark_filter(self.address(), front, woken) };
    }
}

// SAFETY: LATCH-1: a thread gets the exclusive bit only from a word without holders, and a reader's count only from a
// word without the bit; it gives back what it got. Acquire on taking pairs with Release on giving back.
unsafe impl lock_api::RawRwLock for Latch {
    const INIT: Latch = Latch { word: AtomicU64::new(0) };

    type GuardMarker = lock_api::GuardNoSend;

    fn lock_shared(&self) {
        if !self.take_shared(false) {
            self.wait_shared();
        }
    }

    fn try_lock_shared(&self) -> bool {
        self.take_shared(false)
    }

    unsafe fn unlock_shared(&self) {
        // The last reader takes the latch exclusively until it has woken the queue's front. A latch that is free in
        // between could not be handed over.
        let leave = |word: u64| Some(if word == READER | PARKED { EXCLUSIVE | PARKED } else { word - READER });
        // Release: pairs with the Acquire of the next writer, and of the last reader, which passes it on.
        if self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, leave) == Ok(READER | PARKED) {
            self.release_and_wake();
        }
    }

    fn lock_exclusive(&self) {
        if !self.take_exclusive() {
            self.wait_exclusive();
        }
    }

    fn try_lock_exclusive(&self) -> bool {
        self.take_exclusive()
    }

    unsafe fn unlock_exclusive(&self) {
        // Release: pairs with the Acquire of the next holder.
        if self.word.compare_exchange(EXCLUSIVE, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.release_and_wake();
        }
    }
}
