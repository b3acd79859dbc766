//! `millpond top`: over a socket and over a port, until there is nobody to watch any more.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::*;

/// A port that is free, as far as one can know.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is one");
    listener.local_addr().expect("it has one").port()
}

/// The number behind a name in a block.
#[track_caller]
fn number_after(block: &str, name: &str) -> f64 {
    let word = block.split_once(name).and_then(|(_, rest)| rest.split_whitespace().next());
    let number = word.and_then(|word| word.parse().ok());
    assert!(number.is_some(), "no number after {name} in:\n{block}");
    number.unwrap_or(f64::NAN)
}

#[test]
fn top_shows_a_running_engine_over_its_socket_and_its_port_and_ends_with_it() {
    let dir = directory();
    let port = free_port().to_string();
    let args = ["bench", "--table-size=500", "--time=600", "--dir=db", "--status-socket=sock", "oltp_update_index"];
    let port_flag = format!("--metrics-port={port}");
    let (mut bench, lines) = start_until_its_first_line(dir.path(), &[&args[..], &[port_flag.as_str()]].concat());
    for target in ["sock", &port] {
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
        assert!(strip.len() == 15 && strip.iter().any(|ms| *ms > 0.0), "{block}");
        assert!(block.lines().all(|line| line.chars().count() <= 120), "{block}");
    }

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
    assert!(!said.contains("error"), "{said}");
}

/// Who answers on a socket as often as there are answers, and ends.
fn answer(dir: &Path, answers: &'static [&'static str]) -> thread::JoinHandle<()> {
    let listener = UnixListener::bind(dir.join("sock")).expect("a socket can be made");
    thread::spawn(move || {
        for text in answers {
            let (mut stream, _) = listener.accept().expect("somebody asks");
            stream.read_to_string(&mut String::new()).expect("it can be read");
            stream.write_all(text.as_bytes()).expect("it can be written");
        }
    })
}

#[test]
fn an_end_is_quiet_but_for_who_wants_one_interval_and_what_is_no_engine_is_a_failure() {
    const ENGINE: &str = "millpond_log_lsn_current_total 1000\n";
    for (answers, args, code, text) in [
        (&[ENGINE][..], &["--plain"][..], 0, ""),
        (&[ENGINE, ""], &["--plain"], 0, ""),
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

/// A terminal of 100 columns: what a user sees of it and types, and what a command has.
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

#[test]
fn on_a_terminal_top_draws_until_somebody_leaves() {
    let dir = directory();
    let args = ["bench", "--table-size=500", "--time=600", "--dir=db", "--status-socket=sock", "oltp_update_index"];
    let (mut bench, lines) = start_until_its_first_line(dir.path(), &args);
    for key in [b"q", b"\x03"] {
        let (mut ours, theirs) = terminal();
        let mut top = millpond(dir.path(), &["top", "--interval=100ms", "sock"]);
        top.stdin(theirs.try_clone().expect("one more")).stdout(theirs.try_clone().expect("one more")).stderr(theirs);
        let mut child = top.spawn().expect("the command starts");
        // Its handles of the terminal: with the last one gone, reading ends.
        drop(top);
        let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
        let has = |seen: &[u8], text: &str| seen.windows(text.len()).any(|part| part == text.as_bytes());
        while !(has(&seen, "debts") && has(&seen, "q to leave")) {
            let len = ours.read(&mut bytes).expect("it draws");
            seen.extend_from_slice(&bytes[..len]);
        }
        ours.write_all(key).expect("typed");
        // A terminal that nobody has any more is an error, not an end.
        while let Ok(len @ 1..) = ours.read(&mut bytes) {
            seen.extend_from_slice(&bytes[..len]);
        }
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{}", String::from_utf8_lossy(&seen));
        assert!(has(&seen, "\x1b[?1049h") && has(&seen, "\x1b[?1049l"), "the screen is as it was before");
    }
    kill_process(Pid::from_child(&bench), Signal::INT).expect("it can be interrupted");
    bench.wait().expect("it ends");
    drop(lines);
}

#[test]
fn who_cannot_be_watched_is_named_with_the_way_out() {
    let dir = directory();
    std::fs::create_dir(dir.path().join("db")).expect("a directory can be made");
    std::fs::write(dir.path().join("file"), "mine").expect("a file can be written");
    drop(UnixListener::bind(dir.path().join("left")).expect("a socket can be made"));
    let port = free_port().to_string();
    let on_port = format!("on port {port} of 127.0.0.1");
    for (args, texts) in [
        (&["sock"][..], ["there is no status socket 'sock'", "--status-socket=PATH"]),
        (&["db"], ["'db' is a directory", "--status-socket=PATH"]),
        (&["file"], ["'file' is no status socket", "--status-socket=PATH"]),
        (&["left"], ["'left': its engine has ended", "--status-socket=PATH"]),
        (&[port.as_str()], [&on_port, "--metrics-port=PORT"]),
        (&["70000"], ["'70000' is not a port", "1 to 65535"]),
        (&["--interval=0s", "sock"], ["'0s'", "100ms to 60s"]),
        (&["--interval=5", "sock"], ["--interval", "write, for example, 1s"]),
    ] {
        let refused = run(dir.path(), &[&["top"], args].concat());
        assert_code(&refused, 2);
        let said = err(&refused);
        assert!(said.starts_with("error: ") && out(&refused).is_empty(), "{args:?}: {said}");
        assert!(texts.iter().all(|text| said.contains(text)), "{args:?}: no {texts:?} in {said}");
    }
}
