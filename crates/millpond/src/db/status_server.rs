//! Where a running engine says how it is doing: the machinery of the [socket](super::status_socket) and of the
//! [port](super::metrics_port).
//!
//! One connection is served after the other, by one thread for each of the two that sleeps in `accept`. Who says
//! nothing, or reads nothing, keeps the others waiting for a few moments, which the connection's own time limits end; a
//! close of the engine waits for nobody. It is for real threads: the deterministic scheduler knows nothing of `accept`.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use super::engine::Engine;
use super::options::Options;
use super::status::About;
use super::status_socket::SocketFile;
use super::{metrics_port, status_socket};
use crate::base::error::Error;
use crate::base::sync::{self, JoinHandle, Mutex, Rank};
use crate::base::waits::enter_background;

/// How long one read from, or write to, a client may take.
const PATIENCE: Duration = Duration::from_millis(250);

/// Reads of a request, and writes of an answer, that one client is granted: who drips bytes is not waited for.
const CALLS: usize = 8;

/// Where clients come, and what they are told.
pub(super) struct Door {
    pub(super) listener: OwnedFd,
    /// The name of the thread that serves it.
    pub(super) thread: &'static str,
    /// Whether so much of a request is all of it.
    pub(super) is_whole: fn(&[u8]) -> bool,
    /// Bytes that a request has at most.
    pub(super) request_max: usize,
    pub(super) answer: fn(&[u8], &Engine, &About) -> String,
    /// Goes when nobody is served any more.
    pub(super) _file: Option<SocketFile>,
}

/// The doors that options ask for, made and not served yet.
pub(super) struct Doors(Vec<Door>);

/// Who is to be told that it is over.
#[derive(Default)]
struct Shared {
    stopped: bool,
    /// The connection that is being served.
    current: Option<UnixStream>,
}

/// A door and the thread that serves it, until dropped.
pub(super) struct StatusServer {
    door: Arc<Door>,
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
}

impl Doors {
    /// Makes those that are asked for.
    pub(super) fn open(options: &Options) -> Result<Doors, Error> {
        let socket = options.status_socket.as_deref().map(status_socket::door).transpose()?;
        let port = metrics_port::door(options.metrics_port)?;
        Ok(Doors(socket.into_iter().chain(port).collect()))
    }

    /// None, whatever the options ask for.
    pub(super) fn none() -> Doors {
        Doors(Vec::new())
    }

    /// Starts to answer for `engine`.
    pub(super) fn serve(self, engine: &Arc<Engine>, about: &About) -> Result<Vec<StatusServer>, Error> {
        self.0.into_iter().map(|door| door.serve(Arc::clone(engine), about.clone())).collect()
    }
}

impl Door {
    fn serve(self, engine: Arc<Engine>, about: About) -> Result<StatusServer, Error> {
        let (door, shared) = (Arc::new(self), Arc::new(Mutex::new(Rank::Status, Shared::default())));
        let thread = {
            let (door, shared) = (Arc::clone(&door), Arc::clone(&shared));
            sync::spawn(door.thread, move || {
                enter_background();
                serve(&door, &shared, &engine, &about);
            })
        };
        let thread = thread.map_err(|e| Error::io(&format!("start the thread {}", door.thread), e))?;
        Ok(StatusServer { door, shared, thread: Some(thread) })
    }
}

impl Drop for StatusServer {
    /// Ends `accept` and the connection under way, and waits for the thread.
    fn drop(&mut self) {
        {
            let mut shared = self.shared.lock();
            shared.stopped = true;
            if let Some(stream) = &shared.current {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
        // Whoever sleeps in `accept` gets an error.
        let _ = shutdown(&self.door.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's body.
fn serve(door: &Door, shared: &Mutex<Shared>, engine: &Engine, about: &About) {
    let mut failures = 0;
    loop {
        let stream = match accept_with(&door.listener, SocketFlags::CLOEXEC) {
            // A stream is read, written and shut down in the same way whatever its addresses look like, and the
            // library's type for one looks at none.
            Ok(stream) => UnixStream::from(stream),
            // The client has gone again. Without a descriptor to spare `accept` fails at once and each time: then that
            // is the end of it, or the thread would go round and round.
            Err(_) => {
                failures += 1;
                if failures > CALLS || shared.lock().stopped {
                    return;
                }
                continue;
            }
        };
        failures = 0;
        {
            let mut shared = shared.lock();
            if shared.stopped {
                return;
            }
            shared.current = stream.try_clone().ok();
        }
        // Who has gone, or does not listen, is not told.
        let _ = converse(&stream, door, engine, about);
        shared.lock().current = None;
    }
}

fn converse(mut stream: &UnixStream, door: &Door, engine: &Engine, about: &About) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    for _ in 0..CALLS {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes) {
            Ok(len @ 1..) => request.extend_from_slice(&bytes[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // An end, or silence for so long, is the end of the request.
            _ => break,
        }
        if (door.is_whole)(&request) || request.len() > door.request_max {
            break;
        }
    }
    let text = (door.answer)(&request, engine, about);
    let mut rest = text.as_bytes();
    for _ in 0..CALLS {
        match stream.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if rest.is_empty() {
            break;
        }
    }
    Ok(())
}
