//! The server by which a running engine reports its state on the [socket](crate::server::status_socket) and on the
//! [port](crate::server::metrics_port).
//!
//! Each of the two has one thread, which serves up to [`CLIENTS`] clients at a time and waits for all of them together.
//! A client has [`PATIENCE`] in all for its request, however slowly the bytes come, and as much for taking the answer.
//! So a client that sends or reads nothing delays no other while there are places. A close of the engine waits for no
//! client. The server needs real threads: the deterministic scheduler does not know `poll`.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown};

use crate::base::clock::{nanos, now_ns};
use crate::base::error::Error;
use crate::base::sync::{self, JoinHandle, Mutex, Rank};
use crate::base::waits::enter_background;
use crate::engine::Engine;
use crate::observe::status::About;
use crate::server::socket_file::SocketFile;

/// Most time of a client for its request, and again for taking the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Clients served at a time. More wait in the backlog until a client has its answer, or its time is over.
const CLIENTS: usize = 32;

/// Most bytes of a request: scrapers and browsers send some hundred.
pub(crate) const REQUEST_MAX: usize = 4096;

/// A listener, and the answers to its clients.
pub(crate) struct Endpoint {
    /// Non-blocking.
    pub(crate) listener: OwnedFd,
    /// The name of the thread that serves the endpoint.
    pub(crate) thread: &'static str,
    /// Whether these bytes are a whole request.
    pub(crate) is_whole: fn(&[u8]) -> bool,
    /// The answer to a request: whole, longer than [`REQUEST_MAX`], or as far as it came.
    pub(crate) answer: fn(&[u8], &Engine, &About) -> String,
    pub(crate) file: Option<SocketFile>,
}

/// An endpoint and the thread that serves it, until dropped.
pub(crate) struct StatusServer {
    endpoint: Arc<Endpoint>,
    stopped: Arc<Mutex<bool>>,
    thread: Option<JoinHandle<()>>,
    file: Option<SocketFile>,
}

/// A client of an endpoint.
struct Client {
    stream: OwnedFd,
    stage: Stage,
    /// Deadline of the stage (ns).
    until_ns: u64,
}

/// The stage of a client.
enum Stage {
    /// The client sends its request; the bytes so far.
    Asks(Vec<u8>),
    /// The client takes the answer; the number of bytes sent so far.
    Takes(Vec<u8>, usize),
    /// The client has the whole answer. The server discards further bytes until the client leaves, too: a close with
    /// unread bytes would reset the connection, and the client would lose the answer.
    Leaves,
}

impl Endpoint {
    pub(crate) fn serve(mut self, engine: Arc<Engine>, about: About) -> Result<StatusServer, Error> {
        let file = self.file.take();
        let (endpoint, stopped) = (Arc::new(self), Arc::new(Mutex::new(Rank::Status, false)));
        let thread = {
            let (endpoint, stopped) = (Arc::clone(&endpoint), Arc::clone(&stopped));
            sync::spawn(endpoint.thread, move || {
                enter_background();
                serve(&endpoint, &stopped, PATIENCE, |request| (endpoint.answer)(request, &engine, &about));
            })
        };
        let thread = thread.map_err(|e| Error::thread(endpoint.thread, e))?;
        Ok(StatusServer { endpoint, stopped, thread: Some(thread), file })
    }
}

impl Drop for StatusServer {
    /// Ends the thread, whatever its clients do, and waits for it.
    fn drop(&mut self) {
        // First of all: a client that finds no server, and no file, knows of a close. A crash leaves the file.
        drop(self.file.take());
        *self.stopped.lock() = true;
        // Ends `poll`.
        let _ = shutdown(&self.endpoint.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's body.
pub(crate) fn serve(endpoint: &Endpoint, stopped: &Mutex<bool>, patience: Duration, answer: impl Fn(&[u8]) -> String) {
    let patience_ns = nanos(patience);
    let mut clients: Vec<Client> = Vec::new();
    // No client is accepted before this time: there was no spare descriptor, and `accept` would fail repeatedly.
    let mut shut_until_ns = 0;
    loop {
        let now = now_ns();
        let is_open = clients.len() < CLIENTS && now >= shut_until_ns;
        let mut waits = vec![PollFd::new(&endpoint.listener, if is_open { PollFlags::IN } else { PollFlags::empty() })];
        waits.extend(clients.iter().map(|client| PollFd::new(&client.stream, client.waits_for())));
        let opens_at_ns = (shut_until_ns > now).then_some(shut_until_ns);
        let next_ns = clients.iter().map(|client| client.until_ns).chain(opens_at_ns).min();
        let left = next_ns.map(|at| Duration::from_nanos(at.saturating_sub(now)));
        // A timeout that is too long for the system means no timeout.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut waits, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // No memory for `poll`: the server answers no more.
            Err(_) => return,
        }
        if *stopped.lock() {
            return;
        }
        let is_ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
        let now = now_ns();
        let mut ready = is_ready.iter().skip(1).copied();
        clients.retain_mut(|client| {
            let is_late = now >= client.until_ns;
            let acts = ready.next().unwrap_or(false) || is_late;
            !acts || client.act(endpoint.is_whole, &answer, is_late, now.saturating_add(patience_ns))
        });
        if !(is_open && is_ready.first().copied().unwrap_or(false)) {
            continue;
        }
        match accept_with(&endpoint.listener, SocketFlags::CLOEXEC) {
            Ok(stream) => {
                let until_ns = now.saturating_add(patience_ns);
                clients.push(Client { stream, stage: Stage::Asks(Vec::new()), until_ns });
            }
            // The client has gone again.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(_) => shut_until_ns = now.saturating_add(patience_ns),
        }
    }
}

impl Client {
    fn waits_for(&self) -> PollFlags {
        match self.stage {
            Stage::Takes(..) => PollFlags::OUT,
            Stage::Asks(_) | Stage::Leaves => PollFlags::IN,
        }
    }

    /// Does what can be done without waiting. False: the client is done with. So is a client whose time is over,
    /// unless it has asked just now.
    fn act(
        &mut self,
        is_whole: fn(&[u8]) -> bool,
        answer: &impl Fn(&[u8]) -> String,
        is_late: bool,
        takes_until_ns: u64,
    ) -> bool {
        let mut bytes = [0; 1024];
        match &mut self.stage {
            Stage::Asks(request) => {
                let is_over = match recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
                    Ok((_, len @ 1..)) => {
                        request.extend_from_slice(&bytes[..len]);
                        is_whole(request) || request.len() > REQUEST_MAX
                    }
                    Err(Errno::AGAIN | Errno::INTR) => false,
                    _ => true,
                };
                // Silence is the end of a request, too.
                if is_over || is_late {
                    self.stage = Stage::Takes(answer(request).into_bytes(), 0);
                    self.until_ns = takes_until_ns;
                }
                true
            }
            Stage::Takes(answer, gone) => {
                match send(&self.stream, &answer[*gone..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(len) => *gone += len,
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    // The client has gone.
                    Err(_) => return false,
                }
                if *gone == answer.len() {
                    self.stage = Stage::Leaves;
                    return shutdown(&self.stream, Shutdown::Write).is_ok();
                }
                !is_late
            }
            Stage::Leaves => {
                let is_there = match recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
                    Ok((_, len)) => len > 0,
                    Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
                };
                is_there && !is_late
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use super::*;

    /// Most time that a failing test waits for an answer.
    const GIVES_UP: Duration = Duration::from_secs(60);

    /// Answers each request with itself until dropped.
    pub(crate) fn serve_at(path: &Path, patience: Duration) -> StatusServer {
        let listener = UnixListener::bind(path).expect("made");
        listener.set_nonblocking(true).expect("set");
        let is_whole = |request: &[u8]| request.contains(&b'\n');
        let answer = |_: &[u8], _: &Engine, _: &About| String::new();
        let endpoint = Arc::new(Endpoint { listener: listener.into(), thread: "echo", is_whole, answer, file: None });
        let stopped = Arc::new(Mutex::new(Rank::Status, false));
        let thread = {
            let (endpoint, stopped) = (Arc::clone(&endpoint), Arc::clone(&stopped));
            let echo = |request: &[u8]| format!("[{}]", request.escape_ascii());
            sync::spawn("echo", move || serve(&endpoint, &stopped, patience, echo))
        };
        StatusServer { endpoint, stopped, thread: Some(thread.expect("started")), file: None }
    }

    fn client(path: &Path, says: &[u8]) -> UnixStream {
        let mut stream = UnixStream::connect(path).expect("a server listens");
        stream.set_read_timeout(Some(GIVES_UP)).expect("set");
        stream.write_all(says).expect("sent");
        stream
    }

    fn answer_to(mut stream: UnixStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answered");
        text
    }

    /// Each client has an hour: a client that waited for another would get no answer.
    #[test]
    fn silent_or_slow_client_delays_no_other_client_nor_the_close() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let server = serve_at(&path, Duration::from_secs(3_600));
        let others: Vec<UnixStream> =
            (1..CLIENTS).map(|at| client(&path, if at % 2 == 0 { b"" } else { b"pro" })).collect();
        for request in ["text\n", "json\n"] {
            assert_eq!(answer_to(client(&path, request.as_bytes())), format!("[{}]", request.escape_default()));
        }
        // The rest of a request may come later.
        (&others[0]).write_all(b"metheus\n").expect("sent");
        let answers: Vec<String> = others.into_iter().take(1).map(answer_to).collect();
        assert_eq!(answers, ["[prometheus\\n]"]);
        drop(server);
    }

    #[test]
    fn silence_ends_a_request_and_surplus_clients_are_answered() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let _server = serve_at(&path, Duration::ZERO);
        let silent: Vec<UnixStream> = (0..2 * CLIENTS).map(|_| client(&path, b"")).collect();
        silent.into_iter().for_each(|stream| assert_eq!(answer_to(stream), "[]"));
    }

    #[test]
    fn request_without_an_end_is_answered_behind_its_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let _server = serve_at(&path, Duration::from_secs(3_600));
        let answer = answer_to(client(&path, &vec![b'x'; 300 * REQUEST_MAX]));
        assert!(answer.starts_with("[xxx") && (REQUEST_MAX..2 * REQUEST_MAX).contains(&answer.len()), "{answer}");
    }
}
