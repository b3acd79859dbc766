//! One round: load, kill, perhaps kill the recovery as well, reopen, compare.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use millpond::inspect::CheckOptions;
use millpond::{Db, Error, Options, Scan, Table, Tree, WorkOptions};
use rand::RngExt;

use super::backups;
use super::oracle::{Contents, InFlight, Oracle};
use super::protocol::{Frame, TreeId};
use super::values::random;
use super::victim::{Deed, NO_THREAD, Victim};
use super::{CrashtestArgs, options};
use crate::exit::Failure;

/// The longest time for a victim's first acknowledgement, and for a reopen.
const PATIENCE: Duration = Duration::from_secs(120);

/// The parent checks the stop flag at least this often.
const NAP: Duration = Duration::from_millis(100);

/// The signal of a kill.
const SIGKILL: i32 = 9;

/// Random stream of the round itself; threads have the streams from 0.
const STREAM: u64 = 0xFFFF;

/// How a round ended.
pub(super) enum Verdict {
    /// The database had the required content; the line to print.
    Passed(String),
    /// The round failed; the differences.
    Failed(Vec<String>),
    /// The user interrupted the round.
    Interrupted,
}

/// The times of a round's kills.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    kill: Kill,
    /// For each recovery to be killed, the delay after its start.
    recovery_kills: Vec<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    /// The delay after the first acknowledgement; with backups, after that of the first backup.
    UnderLoad(Duration),
    /// The delay after the start of the process: most often the victim is still opening the database.
    WhileOpening(Duration),
}

impl Plan {
    fn draw(seed: u64, round: u64) -> Plan {
        let mut random = random(seed, round, STREAM);
        let mut ms = |from: u64, to: u64| Duration::from_micros(random.random_range(from * 1_000..=to * 1_000));
        let (under_load, while_opening, recoveries) = (ms(20, 400), ms(0, 30), [ms(1, 25), ms(1, 25)]);
        let kill = match random.random_range(0..6) {
            0 => Kill::WhileOpening(while_opening),
            _ => Kill::UnderLoad(under_load),
        };
        let recovery_kills = match random.random_range(0..6) {
            0 | 1 => recoveries[..1].to_vec(),
            2 => recoveries.to_vec(),
            _ => Vec::new(),
        };
        Plan { kill, recovery_kills }
    }
}

/// Carries out one round.
///
/// # Errors
/// A process could not be started or killed; that says nothing about the database.
pub(super) fn run(
    args: &CrashtestArgs,
    round: u64,
    oracle: &mut Oracle,
    stop: &AtomicBool,
) -> Result<Verdict, Failure> {
    let plan = Plan::draw(args.seed, round);
    let loaded = load_and_kill(args, round, &plan, oracle, stop)?;
    let acknowledged = match loaded {
        Loaded::Killed { acknowledged } => acknowledged,
        Loaded::Wrong(text) => return Ok(Verdict::Failed(vec![text])),
        Loaded::Interrupted => return Ok(Verdict::Interrupted),
    };
    let restored = match judge_backups(args, round, oracle)? {
        Ok(restored) => restored,
        Err(wrong) => return Ok(Verdict::Failed(wrong)),
    };
    for delay in &plan.recovery_kills {
        if let Some(text) = recover_and_kill(args, round, *delay)? {
            return Ok(Verdict::Failed(vec![text]));
        }
    }
    // The files must be sound right after the kill, before recovery. Before the first acknowledgement there may be no
    // database yet.
    if oracle.entries() > 0
        && let Err(text) = check(&args.dir)
    {
        return Ok(Verdict::Failed(vec![format!("before the database was reopened: {text}")]));
    }
    let found = match look_with_patience(args, round) {
        Ok(found) => found,
        Err(text) => return Ok(Verdict::Failed(vec![text])),
    };
    let (fate, differences) = oracle.settle(&found.contents);
    let mut wrong: Vec<String> = differences.iter().map(ToString::to_string).collect();
    wrong.extend(found.problems);
    if !wrong.is_empty() {
        return Ok(Verdict::Failed(wrong));
    }
    Ok(Verdict::Passed(line(&plan, (acknowledged, restored), fate, found.opened_in, oracle.entries())))
}

/// Restores the backups that the kill has left, and compares them. Returns their number, or the differences. A
/// directory in which the kill cut a backup short is none.
fn judge_backups(args: &CrashtestArgs, round: u64, oracle: &mut Oracle) -> Result<Result<u64, Vec<String>>, Failure> {
    let backups = std::mem::take(&mut oracle.backups);
    if !args.backups {
        return Ok(Ok(0));
    }
    let (dir, mut count) = (args.backups_dir(), 0);
    for (backup, is_whole) in [(backups.whole, true), (backups.under_way, false)] {
        let Some(backup) = backup else { continue };
        let (from, to) = (dir.join(backup.number.to_string()), dir.join(format!("{}-restored", backup.number)));
        let looked = match millpond::restore(&from, &to, WorkOptions::new()) {
            // The kill may have come before its directory was made.
            Err(Error::Format(_) | Error::DeviceFailed(_)) if !is_whole => continue,
            Err(error) => Err(format!("it cannot be restored: {error}")),
            Ok(_) => look(&to, options(&args.profile, args.cached.0, round).map_err(Failure::message)?),
        };
        let wrong = match looked {
            Err(text) => vec![format!("backup {}: {text}", backup.number)],
            Ok(found) => [backup.differences(&found.contents), found.problems].concat(),
        };
        if !wrong.is_empty() {
            return Ok(Err(wrong));
        }
        count += 1;
    }
    remove_backups(args)?;
    Ok(Ok(count))
}

/// Removes the backups that the victim has made.
pub(super) fn remove_backups(args: &CrashtestArgs) -> Result<(), Failure> {
    let dir = args.backups_dir();
    match fs::remove_dir_all(&dir) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(Failure::message(format!("cannot remove '{}': {cause}", dir.display())))
        }
        _ => Ok(()),
    }
}

fn line(
    plan: &Plan,
    (acknowledged, restored): (u64, u64),
    fate: InFlight,
    opened_in: Duration,
    entries: usize,
) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let killed = match plan.kill {
        Kill::UnderLoad(delay) => format!("killed {:.0} ms after the first ack", ms(delay)),
        Kill::WhileOpening(delay) => format!("killed {:.0} ms after its start", ms(delay)),
    };
    let recoveries = match plan.recovery_kills.len() {
        0 => String::new(),
        count => format!(", recovery killed {count} x"),
    };
    let restored = if restored > 0 { format!(", {restored} backups restored") } else { String::new() };
    format!(
        "{killed}, {acknowledged} acknowledged, {} of {} in flight survived{restored}{recoveries}, reopened in \
         {:.0} ms, {entries} entries: ok",
        fate.survived,
        fate.begun,
        ms(opened_in),
    )
}

/// Outcome of the load.
enum Loaded {
    Killed { acknowledged: u64 },
    Wrong(String),
    Interrupted,
}

fn load_and_kill(
    args: &CrashtestArgs,
    round: u64,
    plan: &Plan,
    oracle: &mut Oracle,
    stop: &AtomicBool,
) -> Result<Loaded, Failure> {
    let victim = Victim::start(args, round, Deed::Load)?;
    let started = Instant::now();
    let mut acknowledged = 0;
    let mut wrong = None;
    let mut kill_at = match plan.kill {
        Kill::WhileOpening(delay) => Some(started + delay),
        Kill::UnderLoad(_) => None,
    };
    let mut take = |frame: Frame| {
        acknowledged += u64::from(matches!(frame, Frame::Ack { .. }));
        if let Err(text) = oracle.take(frame) {
            wrong.get_or_insert(text);
        }
    };
    while !stop.load(Ordering::Relaxed) {
        // Relaxed: an independent flag.
        let now = Instant::now();
        let until = kill_at.unwrap_or(started + PATIENCE);
        if now >= until {
            break;
        }
        match victim.frames().recv_timeout(NAP.min(until - now)) {
            Ok(frame) => {
                if let (Frame::Ack { thread, .. }, Kill::UnderLoad(delay), None) = (&frame, plan.kill, kill_at)
                    && (!args.backups || *thread == backups::THREAD)
                {
                    kill_at = Some(Instant::now() + delay);
                }
                take(frame);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let (status, rest) = victim.kill().map_err(cannot_kill)?;
    check_threads(status)?;
    rest.into_iter().for_each(&mut take);
    if stop.load(Ordering::Relaxed) {
        return Ok(Loaded::Interrupted);
    }
    let wrong = wrong
        .or_else(|| ended_by_itself(status))
        .or_else(|| kill_at.is_none().then(|| format!("nothing was acknowledged within {} s", PATIENCE.as_secs())));
    Ok(wrong.map_or(Loaded::Killed { acknowledged }, Loaded::Wrong))
}

/// Opens the database in a child and kills the child; returns the fault if the child failed before the kill.
fn recover_and_kill(args: &CrashtestArgs, round: u64, delay: Duration) -> Result<Option<String>, Failure> {
    let victim = Victim::start(args, round, Deed::Recover)?;
    thread::sleep(delay);
    let (status, _) = victim.kill().map_err(cannot_kill)?;
    check_threads(status)?;
    Ok(if status.success() { None } else { ended_by_itself(status) })
}

/// Fails if the child ended for lack of threads: that is no fault of the database.
fn check_threads(status: ExitStatus) -> Result<(), Failure> {
    match status.code() {
        Some(NO_THREAD) => Err(Failure::message("the process to be killed had too few threads; its message is above")),
        _ => Ok(()),
    }
}

fn ended_by_itself(status: ExitStatus) -> Option<String> {
    let was_killed = status.signal() == Some(SIGKILL);
    (!was_killed).then(|| format!("the child ended by itself, before the kill: {status}; its message is above"))
}

fn cannot_kill(cause: std::io::Error) -> Failure {
    Failure::message(format!("cannot kill the child and read what it said: {cause}"))
}

/// Content and problems of the reopened database.
struct Found {
    contents: Contents,
    opened_in: Duration,
    problems: Vec<String>,
}

/// Reads the database in a thread of its own, so that a reopen that hangs fails the round instead of the test.
fn look_with_patience(args: &CrashtestArgs, round: u64) -> Result<Found, String> {
    let (sender, found) = mpsc::channel();
    let options = options(&args.profile, args.cached.0, round)?;
    let (dir, looked_with) = (args.dir.clone(), options.clone());
    let looking = thread::Builder::new().name("look".to_owned()).spawn(move || {
        // The send fails if the parent has stopped waiting.
        let _ = sender.send(look(&dir, looked_with));
    });
    if looking.is_err() {
        // No thread can be started: then without a time limit.
        return look(&args.dir, options);
    }
    match found.recv_timeout(PATIENCE) {
        Ok(found) => found,
        Err(RecvTimeoutError::Timeout) => Err(format!("reopening took longer than {} s", PATIENCE.as_secs())),
        Err(RecvTimeoutError::Disconnected) => Err("reopening panicked; its message is above".to_owned()),
    }
}

fn look(dir: &Path, options: Options) -> Result<Found, String> {
    let began = Instant::now();
    let db = Db::open(dir, options).map_err(|error| format!("the database does not open: {error}"))?;
    let opened_in = began.elapsed();
    let mut found = Found { contents: Contents::new(), opened_in, problems: Vec::new() };
    for id in TreeId::ALL {
        let looked = match id {
            TreeId::Single => db.open_tree(id.name()).and_then(|tree| look_at_tree(&tree, &mut found)),
            TreeId::Rows => db.open_table(id.name()).and_then(|table| look_at_table(&table, &mut found)),
        };
        match looked {
            // The first kill may have come before the tree was created.
            Ok(()) | Err(Error::TreeNotFound(..)) => {}
            Err(error) => return Err(format!("'{}' cannot be read: {error}", id.name())),
        }
    }
    db.close().map_err(|error| format!("the database does not close: {error}"))?;
    check(dir)?;
    Ok(found)
}

/// Checks the closed database; returns the problems as the error.
fn check(dir: &Path) -> Result<(), String> {
    let report = millpond::inspect::check(dir, CheckOptions::default())
        .map_err(|error| format!("the database cannot be checked: {error}"))?;
    if report.problems.is_empty() { Ok(()) } else { Err(format!("check found: {}", report.problems.join("; "))) }
}

/// Reads the tree by scan, backward scan and get, which must agree.
fn look_at_tree(tree: &Tree, found: &mut Found) -> Result<(), Error> {
    take_over(TreeId::Single, || tree.scan(..), |key| tree.get(key), found)
}

/// Reads the table by scan, backward scan and get, and by each index: all must agree. (`check` verifies that each entry
/// belongs to its row, and that there are no others.)
fn look_at_table(table: &Table, found: &mut Found) -> Result<(), Error> {
    take_over(TreeId::Rows, || table.scan(..), |key| table.get(key), found)?;
    let rows = found.contents.iter().filter(|((id, _), _)| *id == TreeId::Rows);
    let rows: BTreeMap<Vec<u8>, Vec<u8>> = rows.map(|((_, key), row)| (key.clone(), row.clone())).collect();
    for name in table.indexes() {
        let by_index: BTreeMap<Vec<u8>, Vec<u8>> = table.index(&name)?.rows(..).collect::<Result<_, Error>>()?;
        if by_index != rows {
            let (found_by_index, all) = (by_index.len(), rows.len());
            found.problems.push(format!("'rows': the index '{name}' leads to {found_by_index} rows of {all}"));
        }
    }
    Ok(())
}

fn take_over(
    id: TreeId,
    scan: impl Fn() -> Scan,
    get: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, Error>,
    found: &mut Found,
) -> Result<(), Error> {
    let forward = scan().collect::<Result<Vec<_>, Error>>()?;
    let mut backward = scan().rev().collect::<Result<Vec<_>, Error>>()?;
    backward.reverse();
    if forward != backward {
        found.problems.push(format!("'{}': scans forward and backward find different entries", id.name()));
    }
    for (key, value) in forward {
        if get(&key)?.as_ref() != Some(&value) {
            found.problems.push(format!("'{}': get and scan find different values", id.name()));
        }
        found.contents.insert((id, key), value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_repeat_with_the_seed_and_cover_every_kind() {
        let plans: Vec<Plan> = (1..=200).map(|round| Plan::draw(7, round)).collect();
        assert_eq!(plans[4], Plan::draw(7, 5));
        assert_ne!(plans[4], Plan::draw(8, 5));
        assert!(plans.iter().any(|plan| matches!(plan.kill, Kill::WhileOpening(_))));
        assert!(plans.iter().any(|plan| plan.recovery_kills.len() == 2));
        for plan in &plans {
            if let Kill::UnderLoad(delay) = plan.kill {
                assert!((20..=400).contains(&delay.as_millis()), "{plan:?}");
            }
        }
        let distinct: std::collections::BTreeSet<String> = plans.iter().map(|plan| format!("{plan:?}")).collect();
        assert_eq!(distinct.len(), plans.len());
    }
}
