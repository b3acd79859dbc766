//! A Unix domain socket on which a running engine says how it is doing, to whoever its owner lets.
//!
//! One connection is served after the other, by one thread that sleeps in `accept`. A client asks with one line,
//! `text`, `prometheus` or `json`; an empty one, none, or silence is `text`. Who says nothing, or reads nothing, keeps
//! the others waiting for a few moments, which the socket's own time limits end; a close of the engine waits for
//! nobody. It is for real threads: the deterministic scheduler knows nothing of `accept`.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, listen, shutdown, socket_with,
};

use super::engine::Engine;
use super::metrics;
use super::status::{About, text};
use crate::base::error::Error;
use crate::base::sync::{self, JoinHandle, Mutex, Rank};
use crate::base::waits::enter_background;

/// How long one read from, or write to, a client may take.
const PATIENCE: Duration = Duration::from_millis(250);

/// Reads of a request, and writes of an answer, that one client is granted: who drips bytes is not waited for.
const CALLS: usize = 8;

/// Bytes that a request has at most.
const REQUEST_MAX: usize = 32;

/// Connections that may wait for their turn.
const BACKLOG: i32 = 16;

/// The socket, made and not served yet. Its file goes with it.
pub(super) struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Which file it is: another process may have put its own in this place.
    identity: (u64, u64),
}

/// Who is to be told that it is over.
#[derive(Default)]
struct Shared {
    stopped: bool,
    /// The connection that is being served.
    current: Option<UnixStream>,
}

/// The socket and the thread that serves it.
pub(super) struct StatusServer {
    socket: Arc<StatusSocket>,
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
}

impl StatusSocket {
    /// Makes the socket at `path`, for its owner alone. One that nobody serves any more is replaced.
    pub(super) fn bind(path: &Path) -> Result<StatusSocket, Error> {
        let refused = |why: String| {
            let path = path.display();
            let message =
                format!("status_socket cannot be made at '{path}': {why}; name another path, or leave it out");
            Error::InvalidOptions(message.into())
        };
        let address = SocketAddrUnix::new(path)
            .map_err(|_| refused(format!("a path of {} bytes is too long for a socket", path.as_os_str().len())))?;
        match std::fs::symlink_metadata(path) {
            Ok(meta) if !meta.file_type().is_socket() => {
                return Err(refused("another file is there, which is not a socket".to_owned()));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(refused("somebody serves it already".to_owned())),
            Ok(_) => std::fs::remove_file(path).map_err(|e| refused(e.to_string()))?,
            // That there is no such directory is told by `bind`.
            Err(_) => {}
        }
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            // Before `bind` makes the file, so that it is never anybody else's.
            .and_then(|socket| fchmod(&socket, Mode::RUSR | Mode::WUSR).map(|()| socket))
            .and_then(|socket| bind(&socket, &address).map(|()| socket))
            .and_then(|socket| listen(&socket, BACKLOG).map(|()| socket))
            .map_err(|e| refused(std::io::Error::from(e).to_string()))?;
        let identity = identity(path).map_err(|e| refused(e.to_string()))?;
        // Found again from wherever the process will be working then.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(StatusSocket { listener: UnixListener::from(listener), path, identity })
    }

    /// Starts to answer for `engine`.
    pub(super) fn serve(self, engine: Arc<Engine>, about: About) -> Result<StatusServer, Error> {
        let (socket, shared) = (Arc::new(self), Arc::new(Mutex::new(Rank::Status, Shared::default())));
        let thread = {
            let (socket, shared) = (Arc::clone(&socket), Arc::clone(&shared));
            sync::spawn("mp-status", move || {
                enter_background();
                serve(&socket.listener, &shared, &engine, &about);
            })
            .map_err(|e| Error::io("start the status socket's thread", e))?
        };
        Ok(StatusServer { socket, shared, thread: Some(thread) })
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
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
        let _ = shutdown(&self.socket.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// The thread's body.
fn serve(listener: &UnixListener, shared: &Mutex<Shared>, engine: &Engine, about: &About) {
    let mut failures = 0;
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
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
        let _ = answer(&stream, engine, about);
        shared.lock().current = None;
    }
}

fn answer(mut stream: &UnixStream, engine: &Engine, about: &About) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    for _ in 0..CALLS {
        let mut bytes = [0; REQUEST_MAX];
        match stream.read(&mut bytes) {
            Ok(len @ 1..) => request.extend_from_slice(&bytes[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // An end, or silence for so long, is the end of the request.
            _ => break,
        }
        if request.contains(&b'\n') || request.len() > REQUEST_MAX {
            break;
        }
    }
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = match line.trim_ascii() {
        b"" | b"text" => text(engine, about),
        b"prometheus" => metrics::prometheus(engine),
        b"json" => metrics::json(engine),
        other => format!("error: no format '{}': use text, prometheus or json\n", other.escape_ascii()),
    };
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
