//! `millpond top`: over a socket and over a port, until the engine ends.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::*;

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is one");
    listener.local_addr().expect("it has one").port()
}

/// The number after a name in a block.
#[track_caller]
fn number_after(block: &str, name: &str) -> f64 {
    let word = block.split_once(name).and_then(|(_, rest)| rest.split_whitespace().next());
    let number = word.and_then(|word| word.parse().ok());
    assert!(number.is_some(), "no number after {name} in:\n{block}");
    number.unwrap_or(f64::NAN)
}

#[test]
fn top_shows_an_engine_over_socket_and_port_and_ends_with_it() {
    let dir = directory();
    let port = free_port().to_string();
    let args = ["bench", "--table-size=500", "--time=600", "--dir=db", "--status-socket=sock", "oltp_update_index"];
    let port_flag = format!("--metrics-port={port}");
    let (mut bench, lines) = start_until_its_first_line(dir.path(), &[&args[..], &[port_flag.as_str()]].concat());
    let (with_host, url) = (format!("localhost:{port}"), format!("http://127.0.0.1:{port}/metrics"));
    for target in ["sock", &port, &with_host, &url] {
        let once = run(dir.path(), &["top", "--once", "--interval=300ms", target]);
        assert_code(&once, 0);
        let block = out(&once);
        assert!(block.starts_with(&format!("millpond at {target}, over 0.")), "{block}");
        assert!(
            number_after(&block, "rates    writes/s") > 0.0 && number_after(&block, "log syncs/s") > 0.0,
            "{block}"
        );
        assert!(block.contains("\ndebts    age ") && block.contains("\nwaits    log_flush "), "{block}");
        let strip = block.lines().last().expect("the slowest").split_whitespace();
        let strip: Vec<f64> = strip.map(|ms| ms.parse().expect("a time")).collect();
        assert!(strip.len() == 10 && strip.iter().any(|ms| *ms > 0.0), "{block}");
        assert!(block.lines().all(|line| line.chars().count() <= 80), "{block}");
    }
    for args in [&["status", port.as_str()][..], &["status", "--format=prometheus", &with_host]] {
        let status = run(dir.path(), args);
        assert_code(&status, 0);
        assert!(out(&status).contains("\n# TYPE millpond_log_syncs_total counter\n"), "{}", out(&status));
    }
    let refused = run(dir.path(), &["status", "--format=text", &port]);
    assert_code(&refused, 2);
    assert!(err(&refused).contains("with --format=prometheus alone"), "{}", err(&refused));

    let watch = |dir: &Path| millpond(dir, &["top", "--interval=100ms", "sock"]).stdout(Stdio::piped()).spawn();
    let mut unread = watch(dir.path()).expect("the command starts");
    drop(unread.stdout.take());
    assert_eq!(unread.wait().expect("it ends").code(), Some(0), "a closed pipe is a quiet end");

    let mut watching = millpond(dir.path(), &["top", "--interval=100ms", "sock"]);
    let mut watching = watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut blocks = BufReader::new(watching.stdout.take().expect("it has a standard output"));
    let mut line = String::new();
    for _ in 0..2 {
        line.clear();
        while !line.starts_with("slowest ") {
            line.clear();
            assert_ne!(blocks.read_line(&mut line).expect("it can be read"), 0, "it ended early");
        }
    }
    kill_process(Pid::from_child(&bench), Signal::INT).expect("it can be interrupted");
    bench.wait().expect("it ends");
    drop(lines);
    let mut said = String::new();
    blocks.read_to_string(&mut said).expect("it can be read");
    watching.stderr.take().expect("it has one").read_to_string(&mut said).expect("it can be read");
    assert_eq!(watching.wait().expect("it ends").code(), Some(0), "{said}");
    assert!(!said.contains("error") && said.ends_with("the engine at 'sock' has ended: it was closed\n"), "{said}");
}

/// Connections that fill the backlog of an engine's `accept`: the next one blocks.
const BACKLOG: usize = 17;

#[test]
fn stopped_engine_is_a_failure_although_none_can_connect() {
    let dir = directory();
    let args = ["bench", "--table-size=500", "--time=600", "--dir=db", "--status-socket=sock", "oltp_update_index"];
    let (mut bench, lines) = start_until_its_first_line(dir.path(), &args);
    kill_process(Pid::from_child(&bench), Signal::STOP).expect("it can be stopped");
    let connect = |_| UnixStream::connect(dir.path().join("sock")).expect("there is room");
    let waiting: Vec<UnixStream> = (0..BACKLOG).map(connect).collect();
    for command in ["status", "top", "check"] {
        let late = run(dir.path(), &[command, "sock"]);
        assert_code(&late, 2);
        let why = "the engine behind status socket 'sock' does not answer within 5 s";
        assert!(err(&late).contains(why), "{}", err(&late));
    }
    kill_process(Pid::from_child(&bench), Signal::KILL).expect("it can be killed");
    bench.wait().expect("it ends");
    drop((waiting, lines));
    let killed = run(dir.path(), &["status", "sock"]);
    assert_code(&killed, 2);
    assert!(err(&killed).contains("its engine has ended without a close"), "{}", err(&killed));
}

/// A shortened answer of an engine.
const ENGINE: &str = "millpond_log_lsn_current_total 1000\n";

/// A thread that gives `answers` on a socket, one per connection, and ends.
fn answer(dir: &Path, answers: &'static [&'static str]) -> thread::JoinHandle<()> {
    let listener = UnixListener::bind(dir.join("sock")).expect("a socket can be made");
    thread::spawn(move || {
        for text in answers {
            let (mut stream, _) = listener.accept().expect("top connects");
            stream.read_to_string(&mut String::new()).expect("it can be read");
            stream.write_all(text.as_bytes()).expect("it can be written");
        }
    })
}

#[test]
fn end_is_quiet_except_with_once_and_no_engine_is_a_failure() {
    let killed = "the engine at 'sock' has ended without a close: killed";
    for (answers, args, code, text) in [
        (&[ENGINE][..], &["--plain"][..], 0, killed),
        (&[ENGINE, ""], &["--plain"], 0, killed),
        (&[ENGINE], &["--once"], 2, "the engine at 'sock' has ended"),
        (&[ENGINE, "nonsense\n"], &["--plain"], 2, "what answers there is no Millpond"),
    ] {
        let dir = directory();
        let engine = answer(dir.path(), answers);
        let output = run(dir.path(), &[&["top", "--interval=100ms", "sock"], args].concat());
        assert_code(&output, code);
        assert!(err(&output).contains(text), "{}", err(&output));
        engine.join().expect("it answers");
    }
}

/// A pseudo-terminal of 100 columns: the user's end, and the command's end.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it may be opened");
    let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&ours, size).expect("it has a size");
    let name = ptsname(&ours, Vec::new()).expect("it has a name");
    let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let theirs = File::options().read(true).write(true).open(name).expect("it can be opened");
    (File::from(ours), theirs)
}

/// `top` of `sock` on a terminal, and that terminal.
fn top_on_a_terminal(dir: &Path) -> (std::process::Child, File) {
    let (ours, theirs) = terminal();
    let mut top = millpond(dir, &["top", "--interval=100ms", "sock"]);
    top.stdin(theirs.try_clone().expect("one more")).stdout(theirs.try_clone().expect("one more")).stderr(theirs);
    // `top` drops its handles of the terminal here, so reading ends when the child has ended.
    (top.spawn().expect("the command starts"), ours)
}

/// All output on the terminal until the end.
fn rest_of(ours: &mut File) -> String {
    let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
    // A terminal without a process at its other end gives an error, not an end of file.
    while let Ok(len @ 1..) = ours.read(&mut bytes) {
        seen.extend_from_slice(&bytes[..len]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

#[test]
fn viewer_of_a_silent_engine_can_leave() {
    let dir = directory();
    let listener = UnixListener::bind(dir.path().join("sock")).expect("a socket can be made");
    let (mut top, mut ours) = top_on_a_terminal(dir.path());
    let (mut first, _) = listener.accept().expect("it asks");
    first.read_to_string(&mut String::new()).expect("it can be read");
    first.write_all(ENGINE.as_bytes()).expect("it can be written");
    drop(first);
    let (second, _) = listener.accept().expect("it asks again");
    ours.write_all(b"q").expect("typed");
    let seen = rest_of(&mut ours);
    assert_eq!(top.wait().expect("it ends").code(), Some(0), "{seen}");
    assert!(!seen.contains("error"), "{seen}");
    drop(second);
}

#[test]
fn what_stood_last_is_left_on_the_terminal_when_the_engine_ends() {
    let dir = directory();
    let engine = answer(dir.path(), &[ENGINE, ENGINE]);
    let (mut top, mut ours) = top_on_a_terminal(dir.path());
    let seen = rest_of(&mut ours);
    assert_eq!(top.wait().expect("it ends").code(), Some(0), "{seen}");
    let after = seen.rsplit_once("\x1b[?1049l").expect("the screen is as it was before").1;
    assert!(after.contains("millpond at sock, over ") && after.contains("\ndebts    age "), "{after}");
    assert!(after.contains("the engine at 'sock' has ended without a close: killed"), "{after}");
    engine.join().expect("it answers");
}

#[test]
fn on_a_terminal_top_draws_until_somebody_leaves() {
    let dir = directory();
    let args = ["bench", "--table-size=500", "--time=600", "--dir=db", "--status-socket=sock", "oltp_update_index"];
    let (mut bench, lines) = start_until_its_first_line(dir.path(), &args);
    for key in [b"q", b"\x03"] {
        let (mut child, mut ours) = top_on_a_terminal(dir.path());
        let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
        let has = |seen: &[u8], text: &str| seen.windows(text.len()).any(|part| part == text.as_bytes());
        while !(has(&seen, "debts") && has(&seen, "q to leave")) {
            let len = ours.read(&mut bytes).expect("it draws");
            seen.extend_from_slice(&bytes[..len]);
        }
        ours.write_all(key).expect("typed");
        seen.extend_from_slice(rest_of(&mut ours).as_bytes());
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{}", String::from_utf8_lossy(&seen));
        assert!(has(&seen, "\x1b[?1049h") && has(&seen, "\x1b[?1049l"), "the screen is as it was before");
    }
    kill_process(Pid::from_child(&bench), Signal::INT).expect("it can be interrupted");
    bench.wait().expect("it ends");
    drop(lines);
}

#[test]
fn engine_that_cannot_be_watched_is_named_with_the_way_out() {
    let dir = directory();
    std::fs::create_dir(dir.path().join("db")).expect("a directory can be made");
    std::fs::write(dir.path().join("file"), "mine").expect("a file can be written");
    drop(UnixListener::bind(dir.path().join("left")).expect("a socket can be made"));
    let port = free_port().to_string();
    let on_port = format!("on port {port} of 127.0.0.1");
    let (socket, metrics) = ("--status-socket=PATH", "--metrics-port=PORT");
    let no_port = |host: &str| format!("{host}:{port}");
    for (target, texts) in [
        ("sock", ["'sock' does not exist", socket]),
        ("file", ["'file' is not a directory, and no status socket", socket]),
        ("left", ["'left': its engine has ended", socket]),
        (&port, [&on_port, metrics]),
        (&no_port("127.0.0.1"), [&on_port, metrics]),
        (&no_port("http://localhost"), [&on_port, metrics]),
        (&no_port("db1"), ["a port of 'db1'", "127.0.0.1:PORT"]),
        ("70000", ["'70000' is not a port", "1 to 65535"]),
    ] {
        for command in ["top", "status"] {
            assert_refused(dir.path(), &[command, target], texts);
        }
        assert_refused(dir.path(), &["status", "--format=prometheus", target], texts);
    }
    assert_refused(dir.path(), &["top", "db"], ["'db' is a directory", socket]);
    assert_refused(dir.path(), &["top", "--interval=0s", "sock"], ["'0s'", "100ms to 60s"]);
    assert_refused(dir.path(), &["top", "--interval=5", "sock"], ["--interval", "write, for example, 1s"]);
}

#[track_caller]
fn assert_refused(dir: &Path, args: &[&str], texts: [&str; 2]) {
    let refused = run(dir, args);
    assert_code(&refused, 2);
    let said = err(&refused);
    assert!(said.starts_with("error: ") && out(&refused).is_empty(), "{args:?}: {said}");
    assert!(texts.iter().all(|text| said.contains(text)), "{args:?}: no {texts:?} in {said}");
}
