//! A port of this machine, 127.0.0.1 only, on which a running engine answers Prometheus: HTTP with one answer, the
//! metrics as text, at `/metrics`. How clients are served: [`status_server`](crate::server::status_server).

use std::net::{Ipv4Addr, TcpListener};

use crate::base::error::Error;
use crate::engine::Engine;
use crate::observe::metrics_text;
use crate::observe::status::About;
use crate::server::status_server::{Endpoint, REQUEST_MAX};

/// Takes the port; `None` for port 0, which means no port.
pub(crate) fn endpoint(port: u16) -> Result<Option<Endpoint>, Error> {
    if port == 0 {
        return Ok(None);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    let listener = listener.map_err(|why| {
        let message = format!("metrics_port {port} cannot be taken: {why}; name another port, or leave it out");
        Error::InvalidOptions(message.into())
    })?;
    Ok(Some(Endpoint { listener: listener.into(), thread: "mp-metrics", is_whole, answer, file: None }))
}

/// Whether a request's head has its end, an empty line. In a typed request lines end with LF alone.
pub(crate) fn is_whole(request: &[u8]) -> bool {
    request.windows(2).any(|bytes| bytes == b"\n\n") || request.windows(3).any(|bytes| bytes == b"\n\r\n")
}

/// The path of a target, without a query, and without the scheme and host of a request to a proxy.
fn path_of(target: &[u8]) -> &[u8] {
    let path = match target.strip_prefix(b"http://") {
        None => target,
        Some(rest) => rest.iter().position(|byte| *byte == b'/').map_or(&b"/"[..], |at| &rest[at..]),
    };
    path.split(|byte| *byte == b'?').next().unwrap_or_default()
}

/// The answer to a request's head.
pub(crate) fn answer(request: &[u8], engine: &Engine, _: &About) -> String {
    let line = request.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let [method, target, version] = std::array::from_fn(|_| words.next().unwrap_or_default());
    let (status, body) = match (method, path_of(target)) {
        _ if request.len() > REQUEST_MAX && !is_whole(request) => {
            ("431 Request Header Fields Too Large", format!("a request's head has {REQUEST_MAX} bytes at most\n"))
        }
        (b"GET" | b"HEAD", b"/" | b"/metrics") => ("200 OK", metrics_text::prometheus(engine)),
        (b"GET" | b"HEAD", _) => ("404 Not Found", "there is nothing here but /metrics\n".to_owned()),
        _ if version.starts_with(b"HTTP/") => {
            ("405 Method Not Allowed\r\nAllow: GET, HEAD", "ask with GET /metrics\n".to_owned())
        }
        _ => ("400 Bad Request", "ask with GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if method == b"HEAD" { head } else { head + &body }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client whose request does not seem whole is answered only when its time is over.
    #[test]
    fn a_head_is_whole_with_its_empty_line_however_lines_end() {
        for whole in ["GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\n\n", "\r\n\r\n"] {
            assert!(is_whole(whole.as_bytes()), "{whole:?}");
        }
        for part in ["", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n\r", "GET /\nHost: x\r\n"] {
            assert!(!is_whole(part.as_bytes()), "{part:?}");
        }
    }
}
