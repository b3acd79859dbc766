//! A port of this machine, 127.0.0.1 only, on which a running engine answers Prometheus: HTTP with one answer, the
//! metrics as text, at `/metrics`. How clients are served: [`status_server`](super::status_server).

use std::net::{Ipv4Addr, TcpListener};

use super::engine::Engine;
use super::metrics;
use super::status::About;
use super::status_server::Door;
use crate::base::error::Error;

/// Bytes of a request's head, at most: scrapers and browsers send some hundred.
const REQUEST_MAX: usize = 4096;

/// Takes the port; `None`: it is 0, which is none.
pub(super) fn door(port: u16) -> Result<Option<Door>, Error> {
    if port == 0 {
        return Ok(None);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|why| {
        let message = format!("metrics_port {port} cannot be taken: {why}; name another port, or leave it out");
        Error::InvalidOptions(message.into())
    })?;
    Ok(Some(Door {
        listener: listener.into(),
        thread: "mp-metrics",
        is_whole: |request| request.windows(4).any(|bytes| bytes == b"\r\n\r\n"),
        request_max: REQUEST_MAX,
        answer,
        _file: None,
    }))
}

fn answer(request: &[u8], engine: &Engine, _: &About) -> String {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/" | b"/metrics") => ("200 OK", metrics::prometheus(engine)),
        (b"GET" | b"HEAD", _) => ("404 Not Found", "there is nothing here but /metrics\n".to_owned()),
        _ => ("400 Bad Request", "ask with GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if method == b"HEAD" { head } else { head + &body }
}
