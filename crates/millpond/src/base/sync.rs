//! Mutexes, latches, condition variables and threads: the one seam through which the engine waits.
//!
//! Without the feature `simulation` these are thin wrappers around `parking_lot` and `std::thread`. With it, a thread
//! that runs under a [scheduler](super::scheduler) offers the baton at every lock, wait and I/O, so that a seed decides
//! the interleaving.

use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::clock;
use super::cpus::{self, Cpus};
use super::latch::Latch;
use super::laws::{self, MutexHeld};
pub(crate) use super::rank::Rank;
#[cfg(feature = "simulation")]
use super::scheduler;

#[cfg(feature = "simulation")]
fn address<T: ?Sized>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

/// A point between two reads of shared state, without a lock or a wait, where the thread may lose its processor. Only
/// the scheduler acts on it.
#[inline]
pub(crate) fn preemption_point() {
    #[cfg(feature = "simulation")]
    if let Some(task) = scheduler::current() {
        task.preempt();
    }
}

/// Tells the scheduler that the lock at this address was released. The wrappers below declare it after the real guard:
/// fields drop in order of declaration, so the real release comes first.
struct Released {
    #[cfg(feature = "simulation")]
    address: usize,
}

#[cfg(feature = "simulation")]
impl Drop for Released {
    fn drop(&mut self) {
        if let Some(task) = scheduler::current() {
            task.wake_all(self.address);
        }
    }
}

/// Mutual exclusion for a structure. Held briefly, never over I/O (LAW-5), unless it is a [`Turn`].
pub(crate) struct Mutex<T, const OVER_IO: bool = false> {
    inner: parking_lot::Mutex<T>,
    rank: Rank,
}

/// Mutual exclusion for a piece of work, I/O and waits included.
pub(crate) type Turn<T> = Mutex<T, true>;

/// Access to a [`Mutex`]'s value until dropped.
#[must_use]
pub(crate) struct MutexGuard<'a, T, const OVER_IO: bool = false> {
    inner: parking_lot::MutexGuard<'a, T>,
    _released: Released,
    held: MutexHeld,
    #[cfg(feature = "simulation")]
    mutex: &'a Mutex<T, OVER_IO>,
    #[cfg(not(feature = "simulation"))]
    _mutex: std::marker::PhantomData<&'a Mutex<T, OVER_IO>>,
}

/// Access to a [`Turn`]'s value until dropped.
pub(crate) type TurnGuard<'a, T> = MutexGuard<'a, T, true>;

impl<T, const OVER_IO: bool> Mutex<T, OVER_IO> {
    /// A mutex around `value`, with its place in the order of all mutexes.
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        assert_eq!(rank.is_turn(), OVER_IO, "{rank:?}: turns come before mutexes");
        Mutex { inner: parking_lot::Mutex::new(value), rank }
    }

    /// Waits for the mutex and takes it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T, OVER_IO> {
        self.check_laws();
        #[cfg(feature = "simulation")]
        if let Some(task) = scheduler::current() {
            task.yield_now();
            return self.lock_in_turn(&task);
        }
        self.guard(self.inner.lock())
    }

    /// As [`lock`](Self::lock); true: another thread held the mutex, so the caller waited.
    pub(crate) fn lock_and_tell(&self) -> (MutexGuard<'_, T, OVER_IO>, bool) {
        self.check_laws();
        #[cfg(feature = "simulation")]
        if let Some(task) = scheduler::current() {
            task.yield_now();
            // No other task runs in between.
            let waits = self.inner.is_locked();
            return (self.lock_in_turn(&task), waits);
        }
        let free = self.try_lock();
        let waits = free.is_none();
        (free.unwrap_or_else(|| self.guard(self.inner.lock())), waits)
    }

    fn check_laws(&self) {
        if OVER_IO {
            laws::check_park();
        }
        laws::check_rank(self.rank);
    }

    /// Takes the mutex if no thread holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T, OVER_IO>> {
        self.inner.try_lock().map(|inner| self.guard(inner))
    }

    #[cfg(feature = "simulation")]
    fn lock_in_turn(&self, task: &scheduler::Task) -> MutexGuard<'_, T, OVER_IO> {
        loop {
            if let Some(inner) = self.inner.try_lock() {
                return self.guard(inner);
            }
            if !task.block(address(self), None, "mutex") {
                return self.guard(self.inner.lock());
            }
        }
    }

    fn guard<'a>(&'a self, inner: parking_lot::MutexGuard<'a, T>) -> MutexGuard<'a, T, OVER_IO> {
        MutexGuard {
            inner,
            _released: Released {
                #[cfg(feature = "simulation")]
                address: address(self),
            },
            held: MutexHeld::new(self.rank),
            #[cfg(feature = "simulation")]
            mutex: self,
            #[cfg(not(feature = "simulation"))]
            _mutex: std::marker::PhantomData,
        }
    }
}

impl<T, const OVER_IO: bool> Deref for MutexGuard<'_, T, OVER_IO> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T, const OVER_IO: bool> DerefMut for MutexGuard<'_, T, OVER_IO> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition variable for a [`Mutex`].
#[derive(Default)]
pub(crate) struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// A condition variable without waiters.
    pub(crate) fn new() -> Self {
        Condvar::default()
    }

    /// Releases the mutex, waits for a notification, takes the mutex again. May wake spuriously. `what` names the
    /// awaited event in the scheduler's deadlock report. [`super::handoff`] counts the waits of operations.
    pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>, what: &'static str) -> MutexGuard<'a, T> {
        let _ = what;
        laws::check_no_mutex(Some(guard.held.rank()));
        #[cfg(feature = "simulation")]
        if let Some(task) = scheduler::current() {
            let mutex = guard.mutex;
            drop(guard);
            task.block(address(self), None, what);
            return mutex.lock_in_turn(&task);
        }
        self.inner.wait(&mut guard.inner);
        guard
    }

    /// As [`wait`](Self::wait), but at most until `deadline_ns` of [`clock::now_ns`]; true: the deadline has passed.
    pub(crate) fn wait_until<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        deadline_ns: u64,
        what: &'static str,
    ) -> (MutexGuard<'a, T>, bool) {
        let _ = what;
        laws::check_no_mutex(Some(guard.held.rank()));
        #[cfg(feature = "simulation")]
        if let Some(task) = scheduler::current() {
            let mutex = guard.mutex;
            drop(guard);
            task.block(address(self), Some(deadline_ns), what);
            let guard = mutex.lock_in_turn(&task);
            return (guard, task.now_ns() >= deadline_ns);
        }
        let timed_out = self.inner.wait_until(&mut guard.inner, clock::instant_at(deadline_ns)).timed_out();
        (guard, timed_out)
    }

    /// Wakes all waiters.
    pub(crate) fn notify_all(&self) {
        #[cfg(feature = "simulation")]
        if let Some(task) = scheduler::current() {
            task.wake_all(address(self));
            return;
        }
        self.inner.notify_all();
    }

    /// Wakes one waiter, if there is one.
    pub(crate) fn notify_one(&self) {
        #[cfg(feature = "simulation")]
        if let Some(task) = scheduler::current() {
            task.wake_one(address(self));
            return;
        }
        self.inner.notify_one();
    }
}

/// A latch: many readers or one writer.
pub(crate) struct RwLock<T> {
    inner: lock_api::RwLock<Latch, T>,
}

/// Shared access to an [`RwLock`]'s value until dropped.
#[must_use]
pub(crate) struct ReadGuard<'a, T> {
    inner: lock_api::RwLockReadGuard<'a, Latch, T>,
    _released: Released,
}

/// Exclusive access to an [`RwLock`]'s value until dropped.
#[must_use]
pub(crate) struct WriteGuard<'a, T> {
    inner: lock_api::RwLockWriteGuard<'a, Latch, T>,
    _released: Released,
}

impl<T> RwLock<T> {
    /// A latch around `value`.
    pub(crate) fn new(value: T) -> Self {
        RwLock { inner: lock_api::RwLock::new(value) }
    }

    /// Waits for shared access.
    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        laws::check_no_mutex(None);
        #[cfg(feature = "simulation")]
        if let Some(task) = scheduler::current() {
            task.yield_now();
            loop {
                if let Some(inner) = self.inner.try_read() {
                    return self.read_guard(inner);
                }
                if !task.block(address(self), None, "latch, shared") {
                    break;
                }
            }
        }
        self.read_guard(self.inner.read())
    }

    /// Waits for exclusive access.
    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        laws::check_no_mutex(None);
        #[cfg(feature = "simulation")]
        if let Some(task) = scheduler::current() {
            task.yield_now();
            loop {
                if let Some(inner) = self.inner.try_write() {
                    return self.write_guard(inner);
                }
                if !task.block(address(self), None, "latch, exclusive") {
                    break;
                }
            }
        }
        self.write_guard(self.inner.write())
    }

    /// Takes shared access if that needs no waiting.
    pub(crate) fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        #[cfg(feature = "simulation")]
        if let Some(task) = scheduler::current() {
            task.yield_now();
        }
        self.inner.try_read().map(|inner| self.read_guard(inner))
    }

    /// Takes exclusive access if that needs no waiting.
    pub(crate) fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        #[cfg(feature = "simulation")]
        if let Some(task) = scheduler::current() {
            task.yield_now();
        }
        self.inner.try_write().map(|inner| self.write_guard(inner))
    }

    fn released(&self) -> Released {
        Released {
            #[cfg(feature = "simulation")]
            address: address(self),
        }
    }

    fn read_guard<'a>(&'a self, inner: lock_api::RwLockReadGuard<'a, Latch, T>) -> ReadGuard<'a, T> {
        ReadGuard { inner, _released: self.released() }
    }

    fn write_guard<'a>(&'a self, inner: lock_api::RwLockWriteGuard<'a, Latch, T>) -> WriteGuard<'a, T> {
        WriteGuard { inner, _released: self.released() }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Sleeps until `deadline_ns` of [`clock::now_ns`]: for payments in time.
pub(crate) fn sleep_until(deadline_ns: u64) {
    laws::check_park();
    let ns = deadline_ns.saturating_sub(clock::now_ns());
    #[cfg(feature = "simulation")]
    if let Some(task) = scheduler::current() {
        task.sleep_ns(ns);
        return;
    }
    std::thread::sleep(Duration::from_nanos(ns));
}

/// Sleeps for `ns` nanoseconds, without latches or mutexes: for the classic policies that go by the clock.
pub(crate) fn nap(ns: u64) {
    laws::check_park();
    nap_latched(ns);
}

/// As [`nap`], but page latches may be held. LAW-1 allows that only to the policy `log_recent_closed`.
pub(crate) fn nap_latched(ns: u64) {
    laws::check_no_mutex(None);
    #[cfg(feature = "simulation")]
    if let Some(task) = scheduler::current() {
        task.sleep_ns(ns);
        return;
    }
    std::thread::sleep(Duration::from_nanos(ns));
}

/// Whether the thread runs under a scheduler, on virtual time.
pub(crate) fn is_simulated() -> bool {
    #[cfg(feature = "simulation")]
    if scheduler::current().is_some() {
        return true;
    }
    false
}

/// A started thread.
#[must_use]
pub(crate) struct JoinHandle<T> {
    thread: std::thread::JoinHandle<T>,
    #[cfg(feature = "simulation")]
    task: Option<scheduler::TaskId>,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end; `Err` holds its panic.
    pub(crate) fn join(self) -> std::thread::Result<T> {
        laws::check_park();
        #[cfg(feature = "simulation")]
        if let (Some(me), Some(other)) = (scheduler::current(), self.task) {
            me.wait_for_end(other);
        }
        self.thread.join()
    }
}

/// Starts a named thread. Under the scheduler it becomes one more task of the same simulation.
///
/// # Errors
/// The operating system could not start a thread.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    #[cfg(feature = "simulation")]
    if let Some(me) = scheduler::current() {
        let task = me.new_task(name);
        let id = task.id();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || task.run(work))?;
        return Ok(JoinHandle { thread, task: Some(id) });
    }
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
    Ok(JoinHandle {
        thread,
        #[cfg(feature = "simulation")]
        task: None,
    })
}

/// Runs `work` while `threads` idle threads exist: so the threads that `work` starts leave room for as many later ones.
/// `None`: the system cannot start that many.
pub(crate) fn beside_stand_ins<T>(threads: usize, work: impl FnOnce() -> T) -> Option<T> {
    std::thread::scope(|scope| {
        let stand_in = |_| std::thread::Builder::new().spawn_scoped(scope, std::thread::park).ok();
        let stand_ins: Vec<_> = (0..threads).map_while(stand_in).collect();
        let done = (stand_ins.len() == threads).then(work);
        // Ends the idle threads. One that woke spuriously has ended already, and left its place early.
        stand_ins.iter().for_each(|thread| thread.thread().unpark());
        // Their places are free only when the threads are gone; the scope waits for their closures alone.
        stand_ins.into_iter().for_each(|thread| drop(thread.join()));
        done
    })
}

/// The number of threads that can usefully run at the same time; 2 in a simulation.
pub(crate) fn processors() -> usize {
    #[cfg(feature = "simulation")]
    if scheduler::current().is_some() {
        return 2;
    }
    cpus::threads(&Cpus::read())
}
