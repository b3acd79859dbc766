//! The server by which a running engine reports its state on the [socket](crate::status_socket) and on the
//! [port](crate::metrics_port).
//!
//! Each of the two has one thread, which serves up to [`CLIENTS`] clients at a time and waits for all of them together.
//! A client has [`PATIENCE`] in all for its request, however slowly the bytes come, and as much for taking the answer.
//! So a client that sends or reads nothing delays no other while there are places. A client of another user is refused.
//! A request that takes its time gets a thread of its own ([`work`](crate::work)). A close of the engine waits for no
//! client. The server needs real threads: a deterministic scheduler does not know `poll`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown};
use rustix::process::geteuid;

use crate::Source;
use crate::requests::Request;
use crate::socket_file::SocketFile;
use crate::work::Workers;

/// Most time of a client for its request, and again for taking the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Clients served at a time. More wait in the backlog until a client has its answer, or its time is over.
const CLIENTS: usize = 32;

/// The body of a server's thread.
pub type Work = Box<dyn FnOnce() + Send>;

/// Waits for the end of a server's thread.
pub type Join = Box<dyn FnOnce() + Send>;

/// Starts a thread of this name, which does the work to its end, and returns the wait for that end.
pub type Start = fn(&'static str, Work) -> io::Result<Join>;

/// The reply to a request.
pub(crate) enum Reply {
    /// A text that is known at once.
    Text(String),
    /// The answer of a thread.
    Work(Request),
}

/// A listener, and the answers to its clients. Clients may connect already; [`serve`](Endpoint::serve) answers them.
pub struct Endpoint {
    /// Non-blocking.
    pub(crate) listener: OwnedFd,
    /// The name of the thread that serves the endpoint.
    pub(crate) thread: &'static str,
    /// Whether these bytes are a whole request.
    pub(crate) is_whole: fn(&[u8]) -> bool,
    /// The answer to a request: whole, longer than [`Endpoint::REQUEST_MAX`], or as far as it came.
    pub(crate) answer: fn(&[u8], &dyn Source) -> Reply,
    pub(crate) file: Option<SocketFile>,
}

/// An endpoint and the thread that serves it, until dropped. The drop removes the socket's file, ends the thread,
/// whatever its clients do, and waits for it.
#[must_use]
pub struct Server {
    endpoint: Arc<Endpoint>,
    is_stopped: Arc<AtomicBool>,
    join: Option<Join>,
    file: Option<SocketFile>,
}

/// A client of an endpoint.
struct Client {
    stream: Arc<OwnedFd>,
    stage: Stage,
    /// Deadline of the stage.
    until: Instant,
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
    /// Most bytes of a request: scrapers and browsers send some hundred, and a range of long keys has some thousand.
    pub(crate) const REQUEST_MAX: usize = 64 << 10;

    /// The name of the thread that serves the endpoint.
    #[must_use]
    pub fn thread(&self) -> &'static str {
        self.thread
    }

    /// Answers clients from `source`, on threads that `start` starts.
    ///
    /// # Errors
    /// `start` could start no thread.
    pub fn serve(self, source: Arc<dyn Source>, start: Start) -> io::Result<Server> {
        self.serve_with(PATIENCE, source, start)
    }

    fn serve_with(mut self, patience: Duration, source: Arc<dyn Source>, start: Start) -> io::Result<Server> {
        let file = self.file.take();
        let (endpoint, is_stopped) = (Arc::new(self), Arc::new(AtomicBool::new(false)));
        let work: Work = {
            let (endpoint, is_stopped) = (Arc::clone(&endpoint), Arc::clone(&is_stopped));
            Box::new(move || serve(&endpoint, &is_stopped, patience, &source, start))
        };
        let join = start(endpoint.thread, work)?;
        Ok(Server { endpoint, is_stopped, join: Some(join), file })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // First of all: a client that finds no server, and no file, knows of a close. A crash leaves the file.
        drop(self.file.take());
        // Release: pairs with the Acquire of the thread, which `poll` wakes after this.
        self.is_stopped.store(true, Ordering::Release);
        // Ends `poll`.
        let _ = shutdown(&self.endpoint.listener, Shutdown::Both);
        if let Some(join) = self.join.take() {
            join();
        }
    }
}

/// The thread's body.
fn serve(endpoint: &Endpoint, is_stopped: &AtomicBool, patience: Duration, source: &Arc<dyn Source>, start: Start) {
    let mut clients: Vec<Client> = Vec::new();
    let mut workers = Workers::new(Arc::clone(source), start);
    // No client is accepted before this time: there was no spare descriptor, and `accept` would fail repeatedly.
    let mut shut_until = Instant::now();
    loop {
        let now = Instant::now();
        let is_open = clients.len() < CLIENTS && now >= shut_until;
        let mut waits = vec![PollFd::new(&endpoint.listener, if is_open { PollFlags::IN } else { PollFlags::empty() })];
        waits.extend(clients.iter().map(|client| PollFd::new(&client.stream, client.waits_for())));
        let opens_at = (shut_until > now).then_some(shut_until);
        let next = clients.iter().map(|client| client.until).chain(opens_at).min();
        // A timeout that is too long for the system means no timeout.
        let left = next.and_then(|at| Timespec::try_from(at.saturating_duration_since(now)).ok());
        match poll(&mut waits, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // No memory for `poll`: the server answers no more.
            Err(_) => return,
        }
        if is_stopped.load(Ordering::Acquire) {
            return;
        }
        let is_ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
        let now = Instant::now();
        let mut ready = is_ready.iter().skip(1).copied();
        clients.retain_mut(|client| {
            let is_late = now >= client.until;
            let acts = ready.next().unwrap_or(false) || is_late;
            !acts || client.act(endpoint, &mut workers, is_late, now + patience)
        });
        if !(is_open && is_ready.first().copied().unwrap_or(false)) {
            continue;
        }
        match accept_with(&endpoint.listener, SocketFlags::CLOEXEC) {
            Ok(stream) => clients.push(Client {
                stage: refusal(&stream)
                    .map_or_else(|| Stage::Asks(Vec::new()), |text| Stage::Takes(text.into_bytes(), 0)),
                stream: Arc::new(stream),
                until: now + patience,
            }),
            // The client has gone again.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(_) => shut_until = now + patience,
        }
    }
}

/// The text for a client of another user. Permissions of a socket's file do not bind a process that has got hold of its
/// connection otherwise. Clients on a port have no user.
fn refusal(stream: &OwnedFd) -> Option<String> {
    let (client, own) = (socket_peercred(stream).ok()?.uid, geteuid());
    let is_refused = client != own && !client.is_root();
    is_refused.then(|| format!("error: the socket is for user {own} alone, and this is user {client}\n"))
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
    fn act(&mut self, endpoint: &Endpoint, workers: &mut Workers, is_late: bool, takes_until: Instant) -> bool {
        let mut bytes = [0; 1024];
        match &mut self.stage {
            Stage::Asks(request) => {
                let is_over = match recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
                    Ok((_, len @ 1..)) => {
                        request.extend_from_slice(&bytes[..len]);
                        (endpoint.is_whole)(request) || request.len() > Endpoint::REQUEST_MAX
                    }
                    Err(Errno::AGAIN | Errno::INTR) => false,
                    _ => true,
                };
                // Silence is the end of a request, too.
                if is_over || is_late {
                    let text = match (endpoint.answer)(request, workers.source()) {
                        Reply::Text(text) => text,
                        Reply::Work(request) => match workers.start(request, &self.stream) {
                            Ok(()) => return false,
                            Err(text) => text,
                        },
                    };
                    self.stage = Stage::Takes(text.into_bytes(), 0);
                    self.until = takes_until;
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
    use std::fs::Permissions;
    use std::io::{Read, Write};
    use std::ops::ControlFlow;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use rustix::process::Uid;
    use rustix::thread::set_thread_res_uid;

    use super::*;
    use crate::work::Client as WorkClient;
    use crate::{Answer, AskError, Bytes, Facts, Rows, ask};

    /// Most time that a failing test waits for an answer.
    const GIVES_UP: Duration = Duration::from_secs(60);

    struct Echo;

    impl Source for Echo {
        fn status(&self, _: bool) -> String {
            String::new()
        }

        fn prometheus(&self) -> String {
            String::new()
        }

        fn json(&self) -> String {
            String::new()
        }

        /// Three rows for a scan; rows until the client leaves for a count.
        fn work(&self, request: Request, client: &mut WorkClient) -> Result<Facts, String> {
            match request {
                Request::Scan(rows) => {
                    (0..3u8).try_for_each(|row| client.row(&[row], rows.of.as_bytes())).map_err(|_| "gone")?;
                    Ok(vec![("rows".to_owned(), "3".to_owned())])
                }
                Request::Count(_) => loop {
                    client.row(b"key", &[0xFF; 1000]).map_err(|_| "gone")?;
                },
                // Its client has left, or it never ends.
                Request::Info {} => loop {
                    client.progress(1, 2).map_err(|_| "gone")?;
                    std::thread::yield_now();
                },
                other => Err(format!("no {other:?} here")),
            }
        }
    }

    /// Answers each request with itself until dropped.
    fn serve_at(path: &Path, patience: Duration) -> Server {
        let listener = UnixListener::bind(path).expect("made");
        listener.set_nonblocking(true).expect("set");
        let is_whole = |request: &[u8]| request.contains(&b'\n');
        let answer = |request: &[u8], _: &dyn Source| match serde_json::from_slice(request) {
            Ok(request) => Reply::Work(request),
            Err(_) => Reply::Text(format!("[{}]", request.escape_ascii())),
        };
        let endpoint = Endpoint { listener: listener.into(), thread: "echo", is_whole, answer, file: None };
        let start: Start = |name, work| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
            let join: Join = Box::new(move || thread.join().expect("no panic"));
            Ok(join)
        };
        endpoint.serve_with(patience, Arc::new(Echo), start).expect("started")
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
        let answer = answer_to(client(&path, &vec![b'x'; 30 * Endpoint::REQUEST_MAX]));
        assert!(
            answer.starts_with("[xxx") && (Endpoint::REQUEST_MAX..2 * Endpoint::REQUEST_MAX).contains(&answer.len()),
            "{answer}"
        );
    }

    fn rows(of: &str) -> Rows {
        Rows { of: of.to_owned(), ..Rows::default() }
    }

    #[test]
    fn request_is_answered_row_by_row_or_refused_in_words() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let _server = serve_at(&path, Duration::from_secs(3_600));
        let mut keys = Vec::new();
        let done = ask(&path, &Request::Scan(rows("films")), |answer| {
            if let Some(Answer::Row { key, value }) = answer {
                assert_eq!(value, Bytes(b"films".to_vec()));
                keys.extend_from_slice(&key.0);
            }
            ControlFlow::Continue(())
        });
        assert_eq!(done.expect("answered"), Some(vec![("rows".to_owned(), "3".to_owned())]));
        assert_eq!(keys, [0, 1, 2]);
        let check = Request::Check { rate: None };
        let refused = ask(&path, &check, |_| ControlFlow::Continue(()));
        assert!(matches!(refused, Err(AskError::Refused(why)) if why == "no Check { rate: None } here"));
        let nowhere = ask(&dir.path().join("none"), &Request::Info {}, |_| ControlFlow::Continue(()));
        assert!(matches!(nowhere, Err(AskError::Unreachable(_))));
    }

    /// A thread whose client has left ends: more requests come than may be under way.
    #[test]
    fn client_that_leaves_ends_its_request() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let _server = serve_at(&path, Duration::from_secs(3_600));
        for _ in 0..20 {
            loop {
                let mut count = 0;
                let left = ask(&path, &Request::Count(rows("t")), |answer| match answer {
                    Some(Answer::Row { .. }) if count == 10 => ControlFlow::Break(()),
                    Some(Answer::Row { .. }) => {
                        count += 1;
                        ControlFlow::Continue(())
                    }
                    _ => ControlFlow::Continue(()),
                });
                match left {
                    Ok(left) => break assert_eq!(left, None),
                    // The threads of earlier requests have not ended yet.
                    Err(why) => {
                        assert!(
                            matches!(&why, AskError::Refused(why) if why.contains("requests are under way")),
                            "{why:?}"
                        );
                    }
                }
            }
        }
    }

    /// Many clients ask, read some progress, and leave; the last of them gets the end of its connection.
    #[test]
    fn threads_of_clients_that_left_close_their_connections() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let _server = serve_at(&path, Duration::from_secs(3_600));
        let line = serde_json::to_string(&Request::Info {}).expect("written") + "\n";
        let mut asked = client(&path, line.as_bytes());
        let mut first = [0];
        asked.read_exact(&mut first).expect("the request is under way");
        asked.shutdown(std::net::Shutdown::Read).expect("shut");
        // The thread finds that nothing more is read, and closes its side without another request.
        while rustix::net::send(&asked, b"x", rustix::net::SendFlags::NOSIGNAL).is_ok() {
            std::thread::yield_now();
        }
    }

    /// The drop waits for the thread of a request whose client reads nothing.
    #[test]
    fn close_ends_requests_whose_clients_take_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let server = serve_at(&path, Duration::from_secs(3_600));
        let line = serde_json::to_string(&Request::Count(rows("t"))).expect("written") + "\n";
        let mut silent = client(&path, line.as_bytes());
        let mut first = [0];
        silent.read_exact(&mut first).expect("the request is under way");
        drop(server);
        let mut rest = Vec::new();
        silent.read_to_end(&mut rest).expect("read");
        let ends = [&b"{\"done\""[..], b"{\"error\""];
        assert!(ends.iter().all(|end| !rest.windows(end.len()).any(|part| part == *end)), "it has a last line");
    }

    /// Another user gets the answer of a refusal even if the file's permissions let the connection in. Only root can
    /// try that.
    #[test]
    fn client_of_another_user_is_refused() {
        let nobody = Uid::from_raw(65_534);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sock");
        let _server = serve_at(&path, Duration::from_secs(3_600));
        for (path, mode) in [(dir.path(), 0o755), (&*path, 0o666)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
        }
        let asked = std::thread::spawn(move || match set_thread_res_uid(nobody, nobody, nobody) {
            // Of this thread alone.
            Ok(()) => Some(answer_to(client(&path, b"text\n"))),
            Err(_) => None,
        });
        let own = geteuid();
        match asked.join().expect("no panic") {
            Some(answer) => {
                assert_eq!(answer, format!("error: the socket is for user {own} alone, and this is user 65534\n"));
            }
            None => assert!(!own.is_root(), "root may become another user"),
        }
    }
}
