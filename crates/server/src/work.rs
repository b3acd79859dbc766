//! Requests that take their time: each has a thread of its own, which sends the answer line by line.
//!
//! The thread ends when its client leaves, takes too little for [`PATIENCE`], or the engine closes: the next line that it
//! sends fails. Progress waits for no client: a client that does not read gets fewer such lines.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::Source;
use crate::bytes::Bytes;
use crate::requests::{Answer, Request};
use crate::serve::{Join, Start};

/// Requests that are under way at a time.
const WORKERS: usize = 8;

/// Most time in which a client takes less of its answer than [`TOGETHER`]. Meanwhile its request keeps a snapshot.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two lines that tell of progress.
const TELLS_EACH: Duration = Duration::from_millis(100);

/// Bytes of rows that are sent together.
const TOGETHER: usize = 64 << 10;

/// The threads of an endpoint's requests. Dropping it ends them.
pub(crate) struct Workers {
    source: Arc<dyn Source>,
    start: Start,
    under_way: Vec<Worker>,
}

struct Worker {
    /// Of the thread, which closes it at its end.
    stream: Weak<OwnedFd>,
    has_ended: Arc<AtomicBool>,
    join: Join,
}

impl Workers {
    pub(crate) fn new(source: Arc<dyn Source>, start: Start) -> Workers {
        Workers { source, start, under_way: Vec::new() }
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Starts the work of a request. The thread sends the answer, and leaves the client. The error is the answer.
    pub(crate) fn start(&mut self, request: Request, stream: &Arc<OwnedFd>) -> Result<(), String> {
        for ended in self.under_way.extract_if(.., |worker| worker.has_ended.load(Ordering::Acquire)) {
            (ended.join)();
        }
        if self.under_way.len() >= WORKERS {
            return Err(error_line(format!("{WORKERS} requests are under way: ask again when one has ended")));
        }
        let has_ended = Arc::new(AtomicBool::new(false));
        let work = {
            let (source, stream, has_ended) = (Arc::clone(&self.source), Arc::clone(stream), Arc::clone(&has_ended));
            Box::new(move || {
                let _ends = Ends(has_ended);
                let mut client = Client(Arc::new(Mutex::new(Out::to(stream))));
                let last = source.work(request, &mut client).map_or_else(Answer::Error, Answer::Done);
                client.out().leave(&last);
            })
        };
        match (self.start)("mp-request", work) {
            Ok(join) => {
                self.under_way.push(Worker { stream: Arc::downgrade(stream), has_ended, join });
                Ok(())
            }
            Err(why) => Err(error_line(format!("no thread can be started for the request: {why}"))),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in self.under_way.drain(..) {
            // The worker's next line fails.
            let _ = worker.stream.upgrade().map(|stream| shutdown(&stream, Shutdown::Both));
            (worker.join)();
        }
    }
}

/// Notes the end of a thread, also by a panic.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the server, which then joins the thread.
        self.0.store(true, Ordering::Release);
    }
}

/// The client of a request takes nothing more: it has left, it takes nothing, or the engine closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The client of a request. Clones are of the same one.
#[derive(Clone)]
pub struct Client(Arc<Mutex<Out>>);

/// What goes to a client.
struct Out {
    stream: Arc<OwnedFd>,
    /// Lines that are not sent yet.
    waiting: Vec<u8>,
    /// When the client was told of progress.
    told: Option<Instant>,
    /// Nothing more is sent.
    is_gone: bool,
}

impl Client {
    /// Sends a row, with others. Waits for the client to take them.
    ///
    /// # Errors
    /// The client is gone.
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Gone> {
        let mut out = self.out();
        out.add(&Answer::Row { key: Bytes(key), value: Bytes(value) });
        if out.waiting.len() < TOGETHER { Ok(()) } else { out.send() }
    }

    /// Tells how many bytes of `total` are done; not too often. Does not wait.
    ///
    /// # Errors
    /// The client is gone.
    pub fn progress(&mut self, done: u64, total: u64) -> Result<(), Gone> {
        let mut out = self.out();
        if out.told.is_some_and(|told| told.elapsed() < TELLS_EACH) {
            return Ok(());
        }
        out.told = Some(Instant::now());
        if out.waiting.is_empty() {
            out.add(&Answer::Progress { done, total });
        }
        out.send_some().map(drop)
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Out {
    fn to(stream: Arc<OwnedFd>) -> Out {
        Out { stream, waiting: Vec::new(), told: None, is_gone: false }
    }

    fn add(&mut self, answer: &Answer<&[u8]>) {
        self.waiting.extend_from_slice(line(answer).as_bytes());
    }

    /// Sends what goes without waiting. Returns its bytes.
    fn send_some(&mut self) -> Result<usize, Gone> {
        let mut sent = 0;
        while !self.is_gone && sent < self.waiting.len() {
            match send(&self.stream, &self.waiting[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(len) => sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.is_gone = true,
            }
        }
        self.waiting.drain(..sent);
        if self.is_gone { Err(Gone) } else { Ok(sent) }
    }

    /// Sends all that waits.
    fn send(&mut self) -> Result<(), Gone> {
        let (mut since, mut taken) = (Instant::now(), 0);
        loop {
            taken += self.send_some()?;
            if self.waiting.is_empty() {
                return Ok(());
            }
            if taken >= TOGETHER {
                (since, taken) = (Instant::now(), 0);
            }
            let left = PATIENCE.saturating_sub(since.elapsed());
            if left.is_zero() || self.wait_for(PollFlags::OUT, left) == Ok(false) {
                self.is_gone = true;
            }
        }
    }

    /// Waits until the stream is ready. False: it is not.
    fn wait_for(&self, what: PollFlags, time: Duration) -> Result<bool, Errno> {
        let time = Timespec::try_from(time).map_err(|_| Errno::INVAL)?;
        poll(&mut [PollFd::new(&self.stream, what)], Some(&time)).map(|ready| ready > 0)
    }

    /// Sends the last line, and waits until the client has left: a close with unread bytes would reset the connection,
    /// and the client would lose the answer. A client that is gone gets nothing more.
    fn leave(&mut self, last: &Answer<&[u8]>) {
        self.add(last);
        if self.send().is_ok() && shutdown(&self.stream, Shutdown::Write).is_ok() {
            let (since, mut bytes) = (Instant::now(), [0; 1024]);
            while let Ok(true) = self.wait_for(PollFlags::IN, PATIENCE.saturating_sub(since.elapsed())) {
                if !matches!(recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT), Ok((_, 1..))) {
                    break;
                }
            }
        }
    }
}

/// An answer that is an error.
pub(crate) fn error_line(why: String) -> String {
    line(&Answer::Error(why))
}

fn line(answer: &Answer<&[u8]>) -> String {
    // Strings, numbers and maps with strings as names always have a form in JSON.
    serde_json::to_string(answer).unwrap_or_default() + "\n"
}
