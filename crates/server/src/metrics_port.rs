//! A port of this machine, 127.0.0.1 only, on which a running engine answers Prometheus: HTTP with one answer, the
//! metrics as text, at `/metrics`. How clients are served: [`serve`](crate::serve).

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use httparse::{EMPTY_HEADER, Error, Request, Status};

use crate::Source;
use crate::serve::{Endpoint, Reply};

/// Most header lines of a request: scrapers and browsers send some ten.
const HEADERS_MAX: usize = 64;

/// Takes `port` of 127.0.0.1.
///
/// # Errors
/// The operating system refuses the port: another process has it, or this one may not.
pub fn metrics_port(port: u16) -> io::Result<Endpoint> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(Endpoint { listener: listener.into(), thread: "mp-metrics", is_whole, answer: reply, file: None })
}

/// Whether no further bytes can change the answer: the request's head has its end, or is no HTTP.
pub(crate) fn is_whole(request: &[u8]) -> bool {
    !matches!(Request::new(&mut [EMPTY_HEADER; HEADERS_MAX]).parse(request), Ok(Status::Partial))
}

/// The path of a target, without a query, and without the scheme and host of a request to a proxy.
fn path_of(target: &str) -> &str {
    let path = match target.strip_prefix("http://") {
        None => target,
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
    };
    path.split('?').next().unwrap_or_default()
}

fn reply(request: &[u8], source: &dyn Source) -> Reply {
    Reply::Text(answer(request, source))
}

/// The answer to a request's head. Of a head without its end, the parts that came count.
pub(crate) fn answer(request: &[u8], source: &dyn Source) -> String {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut head = Request::new(&mut headers);
    let parsed = head.parse(request);
    let is_too_long = match parsed {
        Ok(Status::Partial) => request.len() > Endpoint::REQUEST_MAX,
        parsed => parsed == Err(Error::TooManyHeaders),
    };
    let (status, body) = match (parsed, head.method, head.path.map(path_of)) {
        _ if is_too_long => (
            "431 Request Header Fields Too Large",
            format!("a request's head has {} bytes and {HEADERS_MAX} headers at most\n", Endpoint::REQUEST_MAX),
        ),
        (Ok(_), Some("GET" | "HEAD"), Some("/" | "/metrics")) => ("200 OK", source.prometheus()),
        (Ok(_), Some("GET" | "HEAD"), Some(_)) => ("404 Not Found", "there is nothing here but /metrics\n".to_owned()),
        (Ok(_), Some(_), Some(_)) => {
            ("405 Method Not Allowed\r\nAllow: GET, HEAD", "ask with GET /metrics\n".to_owned())
        }
        _ => ("400 Bad Request", "ask with GET /metrics HTTP/1.1\n".to_owned()),
    };
    let lines = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if head.method == Some("HEAD") { lines } else { lines + &body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, Facts, Request};

    struct Texts;

    impl Source for Texts {
        fn status(&self, is_a_look: bool) -> String {
            format!("status {is_a_look}")
        }

        fn prometheus(&self) -> String {
            "prometheus\n".to_owned()
        }

        fn json(&self) -> String {
            "json\n".to_owned()
        }

        fn work(&self, _: Request, _: &mut Client) -> Result<Facts, String> {
            Err("a port has no such requests".to_owned())
        }
    }

    /// A client whose request does not seem whole is answered only when its time is over.
    #[test]
    fn a_head_is_whole_with_its_empty_line_or_if_it_is_no_http() {
        for whole in ["GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\n\n", "nonsense\n"]
        {
            assert!(is_whole(whole.as_bytes()), "{whole:?}");
        }
        for part in ["", "GET", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n\r", "GET / HTTP/1.1\nHost: x\r\n"] {
            assert!(!is_whole(part.as_bytes()), "{part:?}");
        }
    }

    #[test]
    fn each_head_has_its_answer() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(HEADERS_MAX + 1));
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(Endpoint::REQUEST_MAX));
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200),
            ("GET / HTTP/1.0\n\n", 200),
            ("HEAD /metrics?x=1 HTTP/1.1\r\n\r\n", 200),
            ("GET http://localhost HTTP/1.1\r\n\r\n", 200),
            ("GET http://localhost/metrics HTTP/1.1\r\n\r\n", 200),
            ("GET /metrics HTTP/1.1\r\nHost", 200),
            ("GET /secrets HTTP/1.1\r\n\r\n", 404),
            ("GET http://localhost/secrets HTTP/1.1\r\n\r\n", 404),
            ("POST /metrics HTTP/1.1\r\n\r\n", 405),
            ("nonsense\n\n", 400),
            ("GET /metrics\n", 400),
            ("", 400),
            (&many, 431),
            (&long, 431),
        ] {
            let answer = answer(request.as_bytes(), &Texts);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
            let body = answer.split_once("\r\n\r\n").expect("a head and a body").1;
            assert_eq!(body.is_empty(), request.starts_with("HEAD"), "{request:?}: {answer}");
        }
    }
}
