//! Requests that take their time: each has a thread of its own, which sends the answer line by line.
//!
//! The thread ends when its client leaves, takes nothing for [`PATIENCE`], or the engine closes: the next line that it
//! sends fails.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Most time in which a client takes none of its answer. Meanwhile its request keeps a snapshot.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

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
    stream: Arc<OwnedFd>,
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
                let ends = Ends(has_ended);
                let mut client = Client { stream, waiting: Vec::new(), told: None };
                let last = source.work(request, &mut client).map_or_else(Answer::Error, Answer::Done);
                client.leave(&last);
                drop(ends);
            })
        };
        match (self.start)("mp-request", work) {
            Ok(join) => {
                self.under_way.push(Worker { stream: Arc::clone(stream), has_ended, join });
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
            let _ = shutdown(&worker.stream, Shutdown::Both);
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

/// The client of a request. Of several clones, one at a time sends.
#[derive(Clone)]
pub struct Client {
    stream: Arc<OwnedFd>,
    /// Lines that are not sent yet.
    waiting: Vec<u8>,
    /// When the client was told of progress.
    told: Option<Instant>,
}

impl Client {
    /// Sends a row, with others.
    ///
    /// # Errors
    /// The client is gone.
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Gone> {
        self.add(&Answer::Row { key: Bytes(key), value: Bytes(value) });
        if self.waiting.len() < TOGETHER { Ok(()) } else { self.send() }
    }

    /// Tells how many bytes of `total` are done; not too often.
    ///
    /// # Errors
    /// The client is gone.
    pub fn progress(&mut self, done: u64, total: u64) -> Result<(), Gone> {
        if self.told.is_some_and(|told| told.elapsed() < TELLS_EACH) {
            return Ok(());
        }
        self.told = Some(Instant::now());
        self.add(&Answer::Progress { done, total });
        self.send()
    }

    fn add(&mut self, answer: &Answer<&[u8]>) {
        self.waiting.extend_from_slice(line(answer).as_bytes());
    }

    fn send(&mut self) -> Result<(), Gone> {
        let mut left = &self.waiting[..];
        while !left.is_empty() {
            match send(&self.stream, left, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(len) => left = &left[len..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&self.stream, PollFlags::OUT)], Some(&PATIENCE)) {
                    Ok(1..) | Err(Errno::INTR) => {}
                    _ => return Err(Gone),
                },
                Err(_) => return Err(Gone),
            }
        }
        self.waiting.clear();
        Ok(())
    }

    /// Sends the last line, and waits until the client has left: a close with unread bytes would reset the connection,
    /// and the client would lose the answer.
    fn leave(&mut self, last: &Answer<&[u8]>) {
        self.add(last);
        if self.send().is_err() || shutdown(&self.stream, Shutdown::Write).is_err() {
            return;
        }
        let mut bytes = [0; 1024];
        while let Ok(1..) = poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&PATIENCE)) {
            if !matches!(recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT), Ok((_, 1..))) {
                return;
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
