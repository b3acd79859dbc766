//! A Unix domain socket on which a running engine reports its state, for its owner alone.
//!
//! A client sends one line: `text`, `prometheus` or `json`. An empty line, no line, or silence gets the text, but is no
//! look: a client that only tests for a server does not reset the waits since the last look. A line that begins as HTTP
//! is answered as on the [port](crate::metrics_port), so that `curl --unix-socket` works. A line that begins with `{` is a
//! [request](crate::requests) that takes its time. How clients are served: [`serve`](crate::serve).

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};

use crate::serve::{Endpoint, Reply};
use crate::socket_file::{SocketFile, identity};
use crate::{Source, metrics_port, work};

/// Most bytes of an unknown request that the answer quotes.
const ECHO_MAX: usize = 32;

/// Connections that may wait for their turn.
const BACKLOG: i32 = 16;

/// The reason why a socket cannot be made, as a clause that names the path: "cannot be made at 'x': ...".
#[derive(Debug)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Makes the socket at `path`, for its owner alone. A socket that no process serves any more is replaced.
///
/// # Errors
/// The path is too long, its directory is missing, another file is there, or another process serves the socket.
pub fn status_socket(path: &Path) -> Result<Endpoint, Refused> {
    let refused = |why: String| Refused(format!("cannot be made at '{}': {why}", path.display()));
    let address = SocketAddrUnix::new(path)
        .map_err(|_| refused(format!("a path of {} bytes is too long for a socket", path.as_os_str().len())))?;
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(refused("another file is there, which is not a socket".to_owned()));
        }
        Ok(_) => match connect_now(&address) {
            // No process serves the socket any more.
            Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(|e| refused(e.to_string()))?,
            // The process that serves the socket may be stopped, with a full backlog.
            Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => {
                return Err(refused("somebody serves it already".to_owned()));
            }
            // The socket is another user's, or of another kind.
            Err(why) => return Err(refused(format!("a socket is there already: {}", std::io::Error::from(why)))),
        },
        // `bind` reports a missing directory.
        Err(_) => {}
    }
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
            // Before `bind` makes the file, so that other users never have access to it.
            .and_then(|socket| fchmod(&socket, Mode::RUSR | Mode::WUSR).map(|()| socket))
            .and_then(|socket| bind(&socket, &address).map(|()| socket))
            .and_then(|socket| listen(&socket, BACKLOG).map(|()| socket))
            .map_err(|e| refused(std::io::Error::from(e).to_string()))?;
    let identity = identity(path).map_err(|e| refused(e.to_string()))?;
    // An absolute path: the process may change its working directory before it removes the file.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok(Endpoint {
        listener,
        thread: "mp-status",
        is_whole: |request| {
            if is_http(request) { metrics_port::is_whole(request) } else { request.contains(&b'\n') }
        },
        answer,
        file: Some(SocketFile { path, identity }),
    })
}

/// Connects to a socket, if that can be done without a wait.
fn connect_now(address: &SocketAddrUnix) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    connect(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?, address)
}

fn is_http(request: &[u8]) -> bool {
    request.starts_with(b"GET ") || request.starts_with(b"HEAD ")
}

fn answer(request: &[u8], source: &dyn Source) -> Reply {
    if is_http(request) {
        return Reply::Text(metrics_port::answer(request, source));
    }
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let echo = line.get(..ECHO_MAX).unwrap_or(line).escape_ascii();
    Reply::Text(match line {
        b"" => source.status(false),
        b"text" => source.status(true),
        b"prometheus" => source.prometheus(),
        b"json" => source.json(),
        [b'{', ..] => match serde_json::from_slice(line) {
            Ok(request) => return Reply::Work(request),
            Err(why) => work::error_line(format!("'{echo}' is no request: {why}")),
        },
        _ => format!("error: no format '{echo}': use text, prometheus or json\n"),
    })
}
