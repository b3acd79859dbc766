//! The source of the numbers: a running engine's status socket, or its port for Prometheus.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::exit::Failure;

/// Time limit for an engine's answer, connection included. The engine answers without waiting, but its machine may be
/// slow.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prefix of every metric's name.
const PREFIX: &str = "millpond_";

/// The host of a port.
const HOST: &str = "127.0.0.1";

/// The engine that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Socket(PathBuf),
    Port(u16),
}

/// An answer for which a separate thread waits. Connecting to a stopped engine with a full backlog may block without
/// limit; then that thread ends with the process.
pub(crate) struct Awaited<T> {
    answer: Receiver<io::Result<T>>,
    until: Instant,
}

/// The numbers of one sample by name, as in `docs/metrics.md`; counters are without `_total`.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    numbers: HashMap<String, u64>,
    /// Duration of the slowest operation of each second in us; the index is the second's age in s.
    pub(super) slowest_us: Vec<u64>,
    /// Names of classes of waits.
    pub(super) classes: Vec<String>,
}

impl<T: Send + 'static> Awaited<T> {
    fn start(ask: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<Awaited<T>> {
        let (told, answer) = sync_channel(1);
        // The send fails if the receiver is gone, which needs no action.
        thread::Builder::new().spawn(move || _ = told.send(ask()))?;
        Ok(Awaited { answer, until: Instant::now() + PATIENCE })
    }

    /// Waits up to `time`. `None`: no answer yet. An answer later than [`PATIENCE`] is an error.
    pub(crate) fn wait(&self, time: Duration) -> Option<io::Result<T>> {
        let left = self.until.saturating_duration_since(Instant::now());
        match self.answer.recv_timeout(time.min(left)) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) if time < left => None,
            Err(_) => Some(Err(ErrorKind::TimedOut.into())),
        }
    }
}

/// The most bytes of an answer that are read; an engine's answer has some tens of thousands.
const ANSWER_MAX: u64 = 4 << 20;

impl Source {
    /// Reads a target. A number is a port of this machine, alone, after the host or in a URL; all else is a path.
    pub(crate) fn parse(target: &Path) -> Result<Source, Failure> {
        let name = target.display();
        let text = target.to_str().unwrap_or_default();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let url = text.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or_default());
        let (host, port) = match url.unwrap_or(text).rsplit_once(':') {
            Some((host, port)) if is_number(port) && !host.contains('/') => (host, port),
            None if is_number(text) => (HOST, text),
            _ if url.is_some() => {
                return Err(Failure::message(format!("'{name}' has no port: use http://{HOST}:PORT")));
            }
            _ => return Ok(Source::Socket(target.to_owned())),
        };
        if host != HOST && host != "localhost" {
            return Err(Failure::message(format!(
                "'{name}' is a port of '{host}', and an engine answers on {HOST} alone: ask on its own machine, with \
                 PORT or {HOST}:PORT; a socket of that name is './{name}'"
            )));
        }
        let port = port.parse().ok().filter(|port| *port > 0).map(Source::Port);
        port.ok_or_else(|| Failure::message(format!("'{name}' is not a port: use 1 to 65535, or the path of a socket")))
    }

    /// Asks for `form`: `text`, `json` or `prometheus`. A port always answers with the last.
    pub(crate) fn ask(&self, form: &'static str) -> Result<Awaited<String>, Failure> {
        let source = self.clone();
        Awaited::start(move || source.answer(form)).map_err(|why| self.failure(&why, ""))
    }

    /// Asks for the numbers.
    pub(super) fn sample(&self) -> Result<Awaited<Sample>, Failure> {
        let source = self.clone();
        let ask = move || Sample::parse(&source.answer("prometheus\n")?).ok_or_else(no_millpond);
        Awaited::start(ask).map_err(|why| self.failure(&why, ""))
    }

    fn answer(&self, form: &str) -> io::Result<String> {
        let mut text = String::new();
        match self {
            Source::Socket(path) => {
                let mut stream = UnixStream::connect(path)?;
                stream.write_all(form.as_bytes())?;
                stream.shutdown(Shutdown::Write)?;
                stream.take(ANSWER_MAX).read_to_string(&mut text)?;
            }
            Source::Port(port) => {
                let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
                stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
                stream.take(ANSWER_MAX).read_to_string(&mut text)?;
            }
        }
        if text.is_empty() {
            // The engine ended between request and answer.
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Source::Port(_) = self {
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
            return body.filter(|body| Sample::parse(body).is_some()).ok_or_else(no_millpond);
        }
        Ok(text)
    }

    /// The failure to reach an engine, with advice. `also` names further possible targets.
    pub(crate) fn failure(&self, why: &io::Error, also: &str) -> Failure {
        let target = match self {
            Source::Socket(path) => format!("status socket '{}'", path.display()),
            Source::Port(port) => format!("port {port} of {HOST}"),
        };
        if why.kind() == ErrorKind::TimedOut {
            let within_s = PATIENCE.as_secs();
            return Failure::message(format!(
                "the engine behind {target} does not answer within {within_s} s: stopped, or under a quota?"
            ));
        }
        let what = match self {
            Source::Socket(path) => no_socket(path, why),
            Source::Port(_) => format!("no engine answers on {target} ({why})"),
        };
        Failure::message(format!(
            "{what}; name {also}the status socket of a running engine (--status-socket=PATH, Options::status_socket), \
             or its port (--metrics-port=PORT, Options::metrics_port)"
        ))
    }

    /// Says that an engine that did answer has ended, and how, as far as is visible.
    pub(super) fn ending(&self) -> String {
        match self {
            // A close removes the file before the engine stops answering.
            Source::Socket(path) if path.exists() => {
                format!("the engine at '{}' has ended without a close: killed, or crashed", path.display())
            }
            Source::Socket(path) => format!("the engine at '{}' has ended: it was closed", path.display()),
            Source::Port(port) => format!("the engine at port {port} of {HOST} has ended"),
        }
    }
}

fn no_millpond() -> io::Error {
    io::Error::other("what answers there is no Millpond")
}

/// Why a path cannot be used as a socket.
fn no_socket(path: &Path, why: &io::Error) -> String {
    let name = path.display();
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => format!("'{name}' is a directory, and no status socket"),
        Ok(meta) if !meta.file_type().is_socket() => format!("'{name}' is not a directory, and no status socket"),
        Ok(_) if why.kind() == ErrorKind::ConnectionRefused => {
            format!("no answer from status socket '{name}': its engine has ended without a close")
        }
        Err(missing) if missing.kind() == ErrorKind::NotFound => {
            format!("'{name}' does not exist, and the socket of an engine goes with it")
        }
        _ => format!("no answer from status socket '{name}' ({why})"),
    }
}

impl Sample {
    /// Parses Prometheus' text format; `None` if the text is not from an engine.
    pub(super) fn parse(text: &str) -> Option<Sample> {
        let (mut numbers, mut slowest_us, mut classes) = (HashMap::new(), Vec::new(), Vec::new());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (sample, value) = line.strip_prefix(PREFIX)?.rsplit_once(' ')?;
            let value = value.parse().ok()?;
            if sample.starts_with("operation_slowest_us{") {
                slowest_us.push(value);
                continue;
            }
            let name = sample.strip_suffix("_total").unwrap_or(sample);
            if let Some(class) = name.strip_prefix("wait_").and_then(|rest| rest.strip_suffix("_us_count")) {
                classes.push(class.to_owned());
            }
            // A gauge's name may end in `_total` too; no two names differ in that alone.
            numbers.insert(name.to_owned(), value);
        }
        let sample = Sample { at: Instant::now(), numbers, slowest_us, classes };
        sample.has("log_lsn_current").then_some(sample)
    }

    fn has(&self, name: &str) -> bool {
        self.numbers.contains_key(name)
    }

    /// A number by its name; 0 if the engine has none of that name.
    pub(super) fn number(&self, name: &str) -> u64 {
        let name = name.strip_suffix("_total").unwrap_or(name);
        self.numbers.get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An engine's answer with some numbers.
    pub(in super::super) const TEXT: &str = "# HELP millpond_buffer_pool_pages_total Frames.\n\
        # TYPE millpond_buffer_pool_pages_total gauge\n\
        millpond_buffer_pool_pages_total 64\n\
        millpond_log_lsn_current_total 1000\n\
        millpond_operation_second 7\n\
        millpond_operation_slowest_us{ago=\"0\"} 10\n\
        millpond_operation_slowest_us{ago=\"1\"} 2500\n\
        millpond_wait_log_flush_us_bucket{le=\"10\"} 1\n\
        millpond_wait_log_flush_us_sum 900\n\
        millpond_wait_log_flush_us_count 3\n";

    #[test]
    fn numbers_are_read_by_name_and_seconds_in_their_order() {
        let sample = Sample::parse(TEXT).expect("an engine's");
        assert_eq!(["log_lsn_current", "buffer_pool_pages_total"].map(|name| sample.number(name)), [1_000, 64]);
        assert_eq!((sample.number("wait_log_flush_us_sum"), sample.number("nonsense")), (900, 0));
        assert_eq!((&sample.slowest_us[..], &sample.classes[..]), (&[10, 2_500][..], &["log_flush".to_owned()][..]));
    }

    #[test]
    fn what_is_no_engines_is_told_from_it() {
        for text in ["", "error: no format\n", "up 1\n", "millpond_x\n", "<html>\n"] {
            assert!(Sample::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_number_is_a_port_of_this_machine_and_all_else_a_path() {
        let parse = |text: &str| Source::parse(Path::new(text)).map_err(|failure| format!("{failure:?}"));
        for port in
            ["9104", "127.0.0.1:9104", "localhost:9104", "http://127.0.0.1:9104/metrics", "http://localhost:9104"]
        {
            assert_eq!(parse(port), Ok(Source::Port(9_104)), "{port}");
        }
        for path in ["./9104", "sock", "/tmp/a:1/sock", "./db1:9104", "sock:a", "", "http:/x"] {
            assert_eq!(parse(path), Ok(Source::Socket(path.into())), "{path}");
        }
        for (wrong, why) in [
            ("0", "1 to 65535"),
            ("65536", "1 to 65535"),
            ("99999999999999999999", "1 to 65535"),
            ("127.0.0.1:0", "1 to 65535"),
            ("db1:9104", "'./db1:9104'"),
            ("http://db1:9104/metrics", "a port of 'db1'"),
            ("http://127.0.0.1/metrics", "has no port"),
        ] {
            assert!(parse(wrong).is_err_and(|said| said.contains(why)), "{wrong}");
        }
    }

    #[test]
    fn an_answer_that_does_not_come_is_late_in_the_end() {
        let (hold, held) = sync_channel::<()>(0);
        let started = Awaited::start(move || Ok(held.recv()));
        let mut awaited = started.expect("a thread");
        assert!(awaited.wait(Duration::ZERO).is_none());
        awaited.until = Instant::now();
        let late = awaited.wait(PATIENCE).expect("over").expect_err("late");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        drop(hold);
    }
}
