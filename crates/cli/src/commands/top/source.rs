//! Where the numbers come from: a running engine's status socket, or its port for Prometheus.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::exit::Failure;

/// How long an engine may take for an answer. It waits for nothing, but its machine may.
const PATIENCE: Duration = Duration::from_secs(5);

/// What every name begins with.
const PREFIX: &str = "millpond_";

/// Who is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Socket(PathBuf),
    Port(u16),
}

/// The numbers of one moment, by name: as in `docs/metrics.md`, counters without `_total`.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    numbers: HashMap<String, u64>,
    /// Microseconds of the slowest operation, by how many seconds ago.
    pub(super) slowest_us: Vec<u64>,
    /// Names of classes of waits.
    pub(super) classes: Vec<String>,
}

impl Source {
    /// A number is a port, all else a path.
    pub(super) fn parse(text: &str) -> Result<Source, String> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Source::Socket(text.into()));
        }
        let port = text.parse().ok().filter(|port| *port > 0);
        port.map(Source::Port).ok_or_else(|| "not a port: use 1 to 65535, or the path of a socket".to_owned())
    }

    /// What is asked now.
    pub(super) fn sample(&self) -> io::Result<Sample> {
        let text = match self {
            Source::Socket(path) => ask(path, "prometheus\n")?,
            Source::Port(port) => {
                let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
                let text = read(stream)?;
                text.split_once("\r\n\r\n").map_or(text.as_str(), |(_, body)| body).to_owned()
            }
        };
        if text.is_empty() {
            // It ended between the question and the answer.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Sample::parse(&text).ok_or_else(|| io::Error::other("what answers there is no Millpond"))
    }

    /// That nobody could be asked, with the way out.
    pub(super) fn failure(&self, why: &io::Error) -> Failure {
        let who = match self {
            Source::Socket(path) => format!("status socket '{}'", path.display()),
            Source::Port(port) => format!("port {port} of 127.0.0.1"),
        };
        if let Some(failure) = out_of_patience(&who, why) {
            return failure;
        }
        let (what, way_out) = match self {
            Source::Socket(path) => (
                no_socket(path, why),
                "an engine has one that was opened with --status-socket=PATH (Options::status_socket)",
            ),
            Source::Port(_) => (
                format!("no engine answers on {who} ({why})"),
                "one does that was opened with --metrics-port=PORT (Options::metrics_port)",
            ),
        };
        Failure::message(format!("{what}; {way_out}"))
    }
}

/// What the engine behind a status socket answers to a line.
pub(crate) fn ask(socket: &Path, request: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    read(stream)
}

/// That an engine is there and does not answer, if that is why.
pub(crate) fn out_of_patience(who: &str, why: &io::Error) -> Option<Failure> {
    let is_late = matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
    let within_s = PATIENCE.as_secs();
    let message = format!("the engine behind {who} does not answer within {within_s} s: stopped, or under a quota?");
    is_late.then(|| Failure::message(message))
}

/// What is wrong with a path as a socket.
fn no_socket(path: &Path, why: &io::Error) -> String {
    let name = path.display();
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => format!("'{name}' is a directory, and no status socket"),
        Ok(meta) if !meta.file_type().is_socket() => format!("'{name}' is no status socket"),
        Ok(_) if why.kind() == io::ErrorKind::ConnectionRefused => {
            format!("no answer from status socket '{name}': its engine has ended")
        }
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => format!("there is no status socket '{name}'"),
        _ => format!("no answer from status socket '{name}' ({why})"),
    }
}

fn read(mut stream: impl Read) -> io::Result<String> {
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

impl Sample {
    /// Reads what Prometheus would; `None`: it is not an engine's.
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
            // A gauge may be named so; no two names differ in that alone.
            numbers.insert(name.to_owned(), value);
        }
        let sample = Sample { at: Instant::now(), numbers, slowest_us, classes };
        sample.has("log_lsn_current").then_some(sample)
    }

    fn has(&self, name: &str) -> bool {
        self.numbers.contains_key(name)
    }

    /// A number by its name; of an engine that has none of the name 0.
    pub(super) fn number(&self, name: &str) -> u64 {
        let name = name.strip_suffix("_total").unwrap_or(name);
        self.numbers.get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As an engine answers, of some numbers.
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
    fn a_number_is_a_port_and_all_else_a_path() {
        assert_eq!(Source::parse("9104"), Ok(Source::Port(9_104)));
        assert_eq!(Source::parse("./9104"), Ok(Source::Socket("./9104".into())));
        for wrong in ["0", "65536", "99999999999999999999"] {
            assert!(Source::parse(wrong).is_err_and(|why| why.contains("1 to 65535")), "{wrong}");
        }
    }
}
