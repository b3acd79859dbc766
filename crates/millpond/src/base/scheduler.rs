//! The deterministic scheduler: real threads, of which only the one with the baton runs.
//!
//! The baton may pass at every lock, wait, I/O and preemption point of `base::sync` and the simulated disk. The seed
//! chooses the next task. When all tasks are parked, virtual time moves to the earliest deadline. If no parked task has
//! a deadline, that is a deadlock: every task panics, and the panic lists what each task waits for.
//!
//! SCHED-1  Exactly one task runs at any time, until the simulation is aborted by a panic.
//! SCHED-2  The choice depends only on the seed and the tasks' actions, not on addresses, clocks or hash seeds.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Switches without progress of virtual time that count as a livelock.
const LIVELOCK_SWITCHES: u64 = 20_000_000;

/// One of this many preemptions is long.
const LONG_PREEMPTION_ONE_IN: u64 = 8;

/// Virtual time, in ns, of a long preemption. Any value will do: it passes when no other task can run.
const LONG_PREEMPTION_NS: u64 = 1_000;

/// A task's number in its simulation; the caller of [`run`] is 0.
pub(crate) type TaskId = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Runnable,
    Blocked { address: usize, deadline_ns: Option<u64>, why: &'static str },
    Ended,
}

struct TaskState {
    name: String,
    status: Status,
    /// The task's thread, once it has begun. It is parked while it waits for the baton.
    thread: Option<Thread>,
}

impl TaskState {
    fn new(name: &str) -> Self {
        TaskState { name: name.to_owned(), status: Status::Runnable, thread: None }
    }
}

struct State {
    rng: Xoshiro256PlusPlus,
    now_ns: u64,
    tasks: Vec<TaskState>,
    running: TaskId,
    switches: u64,
    /// Switches since virtual time last moved.
    switches_at_this_time: u64,
    /// A digest of all choices: equal seeds give equal digests.
    trace: u64,
    aborted: Option<String>,
}

struct Shared {
    state: Mutex<State>,
}

/// One thread's place in a simulation.
#[derive(Clone)]
pub(crate) struct Task {
    id: TaskId,
    shared: Arc<Shared>,
}

thread_local! {
    static CURRENT: RefCell<Option<Task>> = const { RefCell::new(None) };
}

/// The calling thread's task, if it runs in a simulation.
pub(crate) fn current() -> Option<Task> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// The summary of a simulation, for comparing two runs of one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// How often the baton could have passed.
    pub switches: u64,
    /// A digest of all choices.
    pub digest: u64,
    /// Virtual time at the end, in nanoseconds.
    pub now_ns: u64,
}

/// Runs `work`, and all threads that it starts through `sync::spawn`, under the schedule that `seed` chooses.
///
/// `work` must join the threads that it starts. A panic of any task, or a deadlock, ends the simulation and panics in
/// the caller.
pub fn run<T>(seed: u64, work: impl FnOnce() -> T) -> (T, Trace) {
    assert!(current().is_none(), "a simulation inside of a simulation");
    let _processor = Processor::take();
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            now_ns: 0,
            tasks: vec![TaskState { thread: Some(std::thread::current()), ..TaskState::new("main") }],
            running: 0,
            switches: 0,
            switches_at_this_time: 0,
            trace: 0xcbf2_9ce4_8422_2325,
            aborted: None,
        }),
    });
    let task = Task { id: 0, shared: Arc::clone(&shared) };
    CURRENT.with(|current| *current.borrow_mut() = Some(task.clone()));
    let result = catch_unwind(AssertUnwindSafe(work));
    CURRENT.with(|current| *current.borrow_mut() = None);
    match result {
        Ok(value) => {
            let mut state = task.state();
            let left: Vec<&str> =
                state.tasks.iter().skip(1).filter(|t| t.status != Status::Ended).map(|t| t.name.as_str()).collect();
            assert!(left.is_empty(), "tasks were not joined: {left:?}");
            state.tasks[0].status = Status::Ended;
            let trace = Trace { switches: state.switches, digest: state.trace, now_ns: state.now_ns };
            drop(state);
            (value, trace)
        }
        Err(panic) => {
            task.abort("the main task panicked");
            resume_unwind(panic)
        }
    }
}

/// Processors that simulations are pinned to.
static TAKEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A processor that all threads of a simulation are pinned to. Only one thread runs at a time, and passing the baton to
/// a sleeping processor takes several times as long. If no processor is free, the system places the threads.
struct Processor {
    number: usize,
    before: CpuSet,
}

impl Processor {
    /// Takes a free processor. Threads that the caller starts from here on inherit it.
    fn take() -> Option<Processor> {
        if cfg!(miri) {
            return None;
        }
        let before = sched_getaffinity(None).ok()?;
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = (0..CpuSet::MAX_CPU).find(|&number| before.is_set(number) && !taken.contains(&number))?;
        let mut one = CpuSet::new();
        one.set(number);
        sched_setaffinity(None, &one).ok()?;
        taken.push(number);
        Some(Processor { number, before })
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        // If this fails, the thread stays pinned and only runs slower.
        let _ = sched_setaffinity(None, &self.before);
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|&number| number != self.number);
    }
}

impl Task {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task's number.
    pub(super) fn id(&self) -> TaskId {
        self.id
    }

    /// Virtual time.
    pub(super) fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    /// 64 random bits from the seed.
    pub(super) fn random_u64(&self) -> u64 {
        self.state().rng.next_u64()
    }

    /// Registers a task; its thread calls [`run`](Self::run).
    pub(super) fn new_task(&self, name: &str) -> Task {
        let mut state = self.state();
        state.tasks.push(TaskState::new(name));
        Task { id: state.tasks.len() - 1, shared: Arc::clone(&self.shared) }
    }

    /// The body of a task's thread.
    pub(super) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        CURRENT.with(|current| *current.borrow_mut() = Some(self.clone()));
        let started = catch_unwind(AssertUnwindSafe(|| {
            let mut state = self.state();
            state.tasks[self.id].thread = Some(std::thread::current());
            self.wait_for_baton(state, None);
        }));
        let result = started.and_then(|()| catch_unwind(AssertUnwindSafe(work)));
        CURRENT.with(|current| *current.borrow_mut() = None);
        match result {
            Ok(value) => {
                self.end();
                value
            }
            Err(panic) => {
                self.abort("a task panicked");
                resume_unwind(panic)
            }
        }
    }

    fn end(&self) {
        let mut state = self.state();
        state.tasks[self.id].status = Status::Ended;
        let address = self.end_address();
        Self::wake(&mut state, address, usize::MAX);
        if state.aborted.is_none() {
            let next = self.pass_baton(&mut state);
            drop(state);
            Self::unpark(next);
        }
    }

    /// An address on which tasks wait for the end of task `id`. Odd, so that no object has the same address.
    fn end_address_of(id: TaskId) -> usize {
        id * 2 + 1
    }

    fn end_address(&self) -> usize {
        Self::end_address_of(self.id)
    }

    /// Waits until task `other` has ended.
    pub(super) fn wait_for_end(&self, other: TaskId) {
        while self.state().tasks[other].status != Status::Ended {
            if !self.block(Self::end_address_of(other), None, "another task's end") {
                return;
            }
        }
    }

    /// Offers the baton to another task.
    pub(super) fn yield_now(&self) {
        let mut state = self.state();
        if state.aborted.is_some() {
            drop(state);
            self.leave();
            return;
        }
        let next = self.pass_baton(&mut state);
        self.wait_for_baton(state, next);
    }

    /// A point where the thread may lose its processor: for a moment, or until all other threads have run as far as
    /// they can. With random passing alone, the baton comes back before another thread has done much.
    pub(super) fn preempt(&self) {
        if self.random_u64().is_multiple_of(LONG_PREEMPTION_ONE_IN) {
            self.sleep_ns(LONG_PREEMPTION_NS);
        } else {
            self.yield_now();
        }
    }

    /// Parks until `address` is woken or `deadline_ns` has come. False: the simulation is over; the caller is unwinding
    /// and must go on without the wait.
    pub(super) fn block(&self, address: usize, deadline_ns: Option<u64>, why: &'static str) -> bool {
        let mut state = self.state();
        if state.aborted.is_some() {
            drop(state);
            return self.leave();
        }
        state.tasks[self.id].status = Status::Blocked { address, deadline_ns, why };
        let next = self.pass_baton(&mut state);
        self.wait_for_baton(state, next)
    }

    /// Waits for `ns` nanoseconds of virtual time.
    pub(crate) fn sleep_ns(&self, ns: u64) {
        let until = self.now_ns() + ns;
        while self.now_ns() < until {
            // No task wakes address 0: only the deadline ends this wait.
            if !self.block(0, Some(until), "virtual time") {
                return;
            }
        }
    }

    /// Makes all tasks parked on `address` runnable.
    pub(super) fn wake_all(&self, address: usize) {
        Self::wake(&mut self.state(), address, usize::MAX);
    }

    /// Makes one task parked on `address` runnable. Arrival order is not recorded, so the seed chooses.
    pub(super) fn wake_one(&self, address: usize) {
        Self::wake(&mut self.state(), address, 1);
    }

    fn wake(state: &mut State, address: usize, at_most: usize) {
        let waiting: Vec<TaskId> = (0..state.tasks.len())
            .filter(|&id| matches!(state.tasks[id].status, Status::Blocked { address: a, .. } if a == address))
            .collect();
        if waiting.len() <= at_most {
            for id in waiting {
                state.tasks[id].status = Status::Runnable;
            }
        } else {
            let chosen = waiting[Self::choose(state, waiting.len())];
            state.tasks[chosen].status = Status::Runnable;
        }
    }

    fn choose(state: &mut State, among: usize) -> usize {
        let among = u64::try_from(among).expect("SCHED: a count of tasks fits 64 bits");
        usize::try_from(state.rng.next_u64() % among).expect("SCHED: less than a usize")
    }

    /// Chooses the next task and returns its thread. The caller unparks it after it has released the mutex, so that the
    /// thread does not wake up only to wait for that. None: the caller runs on, or the chosen thread has not begun and
    /// will look by itself, or all threads were unparked.
    fn pass_baton(&self, state: &mut State) -> Option<Thread> {
        let mut runnable: Vec<TaskId> =
            (0..state.tasks.len()).filter(|&id| state.tasks[id].status == Status::Runnable).collect();
        if runnable.is_empty() {
            let earliest = state
                .tasks
                .iter()
                .filter_map(|t| match t.status {
                    Status::Blocked { deadline_ns, .. } => deadline_ns,
                    _ => None,
                })
                .min();
            let Some(earliest) = earliest else {
                if state.tasks.iter().any(|t| t.status != Status::Ended) {
                    state.aborted = Some(Self::describe_deadlock(state));
                    Self::wake_threads(state);
                }
                return None;
            };
            if earliest > state.now_ns {
                state.now_ns = earliest;
                state.switches_at_this_time = 0;
            }
            let now_ns = state.now_ns;
            for (id, task) in state.tasks.iter_mut().enumerate() {
                if matches!(task.status, Status::Blocked { deadline_ns: Some(d), .. } if d <= now_ns) {
                    task.status = Status::Runnable;
                    runnable.push(id);
                }
            }
        }
        let next = runnable[Self::choose(state, runnable.len())];
        state.running = next;
        state.switches += 1;
        state.switches_at_this_time += 1;
        if state.switches_at_this_time > LIVELOCK_SWITCHES && state.aborted.is_none() {
            state.aborted =
                Some(format!("livelock: task {} and others run, and time does not move", state.tasks[next].name));
            Self::wake_threads(state);
            return None;
        }
        let word = u64::try_from(next).expect("SCHED: a task id fits 64 bits");
        state.trace = (state.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        if next == self.id { None } else { state.tasks[next].thread.clone() }
    }

    fn unpark(thread: Option<Thread>) {
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    fn wake_threads(state: &State) {
        for task in &state.tasks {
            Self::unpark(task.thread.clone());
        }
    }

    /// Unparks `next`, which has the baton now, and waits for the baton to come back.
    fn wait_for_baton<'a>(&'a self, mut state: MutexGuard<'a, State>, mut next: Option<Thread>) -> bool {
        loop {
            if state.aborted.is_some() {
                drop(state);
                return self.leave();
            }
            if state.running == self.id && state.tasks[self.id].status == Status::Runnable {
                return true;
            }
            drop(state);
            Self::unpark(next.take());
            // A left-over unpark token from another use of the thread costs one round.
            std::thread::park();
            state = self.state();
        }
    }

    /// The simulation is over: panics, unless the thread is unwinding already. Destructors then run on the real
    /// primitives.
    #[expect(clippy::panic, reason = "an aborted simulation fails its test: unwinding is how its threads end")]
    fn leave(&self) -> bool {
        if std::thread::panicking() {
            return false;
        }
        let why = self.state().aborted.clone().unwrap_or_default();
        panic!("simulation ended: {why}");
    }

    fn abort(&self, why: &str) {
        let mut state = self.state();
        state.tasks[self.id].status = Status::Ended;
        if state.aborted.is_none() {
            let name = state.tasks[self.id].name.clone();
            state.aborted = Some(format!("{why} ({name})"));
        }
        Self::wake_threads(&state);
    }

    fn describe_deadlock(state: &State) -> String {
        let mut text = "deadlock: no task can run".to_owned();
        for task in &state.tasks {
            if let Status::Blocked { why, .. } = task.status {
                let _ = write!(text, "; {} waits for {why}", task.name);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::rank::Rank;
    use super::super::sync;
    use super::*;

    /// Four tasks increment a counter and record their order.
    fn order_of(seed: u64) -> (Vec<usize>, Trace) {
        run(seed, || {
            let notes: Arc<sync::Mutex<_>> = Arc::new(sync::Mutex::new(Rank::Threads, Vec::new()));
            let threads: Vec<_> = (0..4)
                .map(|id| {
                    let notes = Arc::clone(&notes);
                    sync::spawn("adder", move || {
                        for _ in 0..5 {
                            notes.lock().push(id);
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            for thread in threads {
                thread.join().expect("no panic");
            }
            notes.lock().clone()
        })
    }

    #[test]
    fn equal_seeds_give_equal_runs_and_other_seeds_other_runs() {
        assert_eq!(order_of(7), order_of(7));
        let distinct: std::collections::BTreeSet<_> = (0..10).map(|seed| order_of(seed).0).collect();
        assert!(distinct.len() > 5, "ten seeds gave only {} orders", distinct.len());
    }

    #[test]
    fn virtual_time_moves_only_when_all_are_parked() {
        let (elapsed, trace) = run(1, || {
            let sleeper = sync::spawn("sleeper", || current().expect("in a simulation").sleep_ns(3_600_000_000_000))
                .expect("a thread");
            sleeper.join().expect("no panic");
            super::super::clock::now_ns()
        });
        assert_eq!(elapsed, 3_600_000_000_000);
        assert_eq!(trace.now_ns, elapsed);
    }

    #[test]
    fn a_deadlock_is_reported_with_what_each_task_waits_for() {
        let outcome = catch_unwind(|| {
            run(3, || {
                let mutex = sync::Mutex::new(Rank::Threads, ());
                let never = sync::Condvar::new();
                let _guard = never.wait(mutex.lock(), "nothing");
            })
        });
        let panic = outcome.expect_err("must not return");
        let text = panic.downcast_ref::<String>().expect("a message");
        assert!(text.contains("deadlock") && text.contains("main waits for nothing"), "{text}");
    }
}
