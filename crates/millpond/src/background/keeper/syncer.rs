//! A second thread for the keeper: it waits for syncs, or for memory, while the keeper goes on freeing frames.
//!
//! SYNCER-1  The keeper gives one job at a time. A job's changes to the engine stay inside the store and the log. The
//!           keeper does all that follows from the job's end when it takes the result.
//!
//! Ends of waits: the keeper wakes the thread with a job, or to stop. The thread wakes the keeper with a result, also
//! when the job panicked. A result rings the keeper's bell as well.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::bell::Bell;
use crate::base::error::Error;
use crate::base::sync::{self, Condvar, JoinHandle, Mutex, Rank};
use crate::base::waits::enter_background;

type Job<T> = Box<dyn FnOnce() -> Result<T, Error> + Send>;

/// The message between the two threads.
enum Post<T> {
    Empty,
    Job(Job<T>),
    UnderWay,
    Done(Result<T, Error>),
    Stop,
}

struct Shared<T> {
    post: Mutex<Post<T>>,
    changed: Condvar,
    bell: Arc<Bell>,
}

/// The thread, from the keeper's side.
pub(crate) struct Syncer<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    busy: bool,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Syncer<T> {
    /// Starts the thread `name`, which rings `bell` at each result.
    pub(super) fn start(name: &str, bell: Arc<Bell>) -> Result<Self, Error> {
        let shared = Arc::new(Shared { post: Mutex::new(Rank::Syncer, Post::Empty), changed: Condvar::new(), bell });
        let theirs = Arc::clone(&shared);
        let thread = sync::spawn(name, move || {
            enter_background();
            theirs.work();
        });
        let thread = thread.map_err(|e| Error::thread(name, e))?;
        Ok(Syncer { shared, busy: false, thread: Some(thread) })
    }

    /// Whether there is a job whose result the keeper has not taken yet.
    pub(super) fn busy(&self) -> bool {
        self.busy
    }

    /// Gives the thread a job. The thread is not busy.
    pub(super) fn begin(&mut self, job: Job<T>) {
        debug_assert!(!self.busy, "SYNCER-1: one job at a time");
        self.busy = true;
        *self.shared.post.lock() = Post::Job(job);
        self.shared.changed.notify_one();
    }

    /// Takes the job's result, if there is one; with `wait`, waits for it. `None`: there is no job, or it is under way.
    pub(super) fn result(&mut self, wait: bool) -> Option<Result<T, Error>> {
        if !self.busy {
            return None;
        }
        let mut post = self.shared.post.lock();
        loop {
            match std::mem::replace(&mut *post, Post::Empty) {
                Post::Done(result) => {
                    self.busy = false;
                    return Some(result);
                }
                other => *post = other,
            }
            if !wait {
                return None;
            }
            post = self.shared.changed.wait(post, "a result");
        }
    }
}

impl<T: Send + 'static> Drop for Syncer<T> {
    fn drop(&mut self) {
        // A job under way ends first: nothing is written after the keeper is gone.
        let _ = self.result(true);
        *self.shared.post.lock() = Post::Stop;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<T> Shared<T> {
    fn work(&self) {
        let mut post = self.post.lock();
        loop {
            match std::mem::replace(&mut *post, Post::UnderWay) {
                Post::Job(job) => {
                    drop(post);
                    let result = catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|_| {
                        Err(Error::Bug("a thread of the keeper panicked: reopen the database".into()))
                    });
                    post = self.post.lock();
                    *post = Post::Done(result);
                    self.changed.notify_one();
                    drop(post);
                    self.bell.ring();
                    post = self.post.lock();
                }
                Post::Stop => return,
                other => {
                    *post = other;
                    post = self.changed.wait(post, "a job");
                }
            }
        }
    }
}
