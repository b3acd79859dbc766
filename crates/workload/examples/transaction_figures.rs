//! Figures of transactions: `make figures`.
//!
//! `transaction_figures DIR [SECONDS]` makes a database in DIR, all in the pool, whose commits do not wait for the log.
//! It measures a transaction that only reads; one hot row under 32 threads, beside 32 rows and the wake-up of a thread;
//! circles of 64 waiting transactions; and a queue for SECONDS (30) beside a writer that was forgotten: each medians of
//! three or more.

mod common;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{Outcome, VALUE, exit, must_be_new};
use millpond::{
    ByteSize, Db, Durability, Error, Isolation, Modify, OnConflict, Options, Table, TableDefinition, Tree, TxnOptions,
    WriteBatch,
};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 3;
const ROWS: u64 = 100_000;
const READ_ONLY: u32 = 1_000_000;

/// Threads that change one row, or one each.
const THREADS: u64 = 32;
const HOT_TIME: Duration = Duration::from_secs(5);

/// Transactions in a circle, and the number of circles.
const CIRCLE: usize = 64;
const CIRCLES: usize = 200;

/// Looks at the first row of the queue.
const LOOKS: u32 = 21;

/// Rows that the queue has.
const QUEUED: u64 = 1_000;

fn main() -> ExitCode {
    exit("transaction_figures", run())
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: transaction_figures DIR [SECONDS]")?;
    let seconds = arguments.next().map_or(Ok(30), |seconds| seconds.parse())?;
    must_be_new(Path::new(&dir))?;
    let options = Options::new().buffer_pool_size(ByteSize::mib(256)).durability(Durability::Background(50));
    let db = Db::open(Path::new(&dir), options)?;
    println!("| transactions | |\n|---|---|");
    let tree = db.bulk_load("rows", (0..ROWS).map(|row| (row.to_be_bytes(), [1; VALUE])))?;
    reading(&db, &tree)?;
    drop(tree);
    let table =
        db.bulk_load_table("hot", TableDefinition::new(), (0..THREADS).map(|row| (row.to_be_bytes(), [0; 100])))?;
    hot_row(&db, &table)?;
    drop(table);
    circles(&db)?;
    forgotten(&db, Duration::from_secs(seconds))?;
    db.close()?;
    Ok(())
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

/// CPU time of this process, or of this thread, so far.
fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn reading(db: &Db, tree: &Tree) -> Outcome<()> {
    let ns_each = |work: &dyn Fn(u32) -> Result<(), Error>| -> Outcome<f64> {
        let mut runs = Vec::new();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            (0..READ_ONLY).try_for_each(work)?;
            runs.push(began.elapsed().as_nanos() as f64 / f64::from(READ_ONLY));
        }
        Ok(median(runs))
    };
    let key = |number: u32| (u64::from(number) * 7_919 % ROWS).to_be_bytes();
    let get = ns_each(&|number| tree.get(key(number)).map(drop))?;
    println!("| get, without a transaction | {get:.0} ns |");
    let empty = ns_each(&|_| db.begin(TxnOptions::new())?.commit().map(drop))?;
    println!("| begin and commit of nothing | {empty:.0} ns |");
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let all = ns_each(&|number| {
            let txn = db.begin(TxnOptions::new().isolation(isolation))?;
            txn.get(tree, key(number))?;
            txn.commit().map(drop)
        })?;
        println!("| begin, get and commit, {isolation:?} | {all:.0} ns, {:.0} more than the get |", all - get);
    }
    Ok(())
}

/// What a run of updates took.
struct Updates {
    per_s: f64,
    /// CPU time of the process for each, in us.
    cpu_us: f64,
    /// Times of the updates, in us.
    p50_us: u64,
    p999_us: u64,
}

/// Each of `threads` threads adds to its row of `rows` rows, again and again.
fn updates(db: &Db, table: &Table, threads: u64, rows: u64) -> Outcome<Updates> {
    let (begins, ends) = (Barrier::new(usize::try_from(threads)? + 1), AtomicBool::new(false));
    let add = |row: Option<&[u8]>| {
        let mut row = row.unwrap_or_default().to_vec();
        row[0] = row[0].wrapping_add(1);
        Modify::Put(row)
    };
    let work = |thread: u64| -> Result<Vec<u32>, Error> {
        let (key, mut times) = ((thread % rows).to_be_bytes(), Vec::new());
        begins.wait();
        while !ends.load(Ordering::Relaxed) {
            let began = Instant::now();
            let mut txn = db.begin(TxnOptions::new().on_conflict(OnConflict::Latest))?;
            txn.modify(table, key, add)?;
            txn.commit()?;
            times.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        Ok(times)
    };
    let (times, took, used) = thread::scope(|scope| -> Outcome<_> {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let (began, before) = (Instant::now(), cpu(ClockId::ProcessCPUTime));
        begins.wait();
        thread::sleep(HOT_TIME);
        ends.store(true, Ordering::Relaxed);
        let mut times = Vec::new();
        for thread in threads {
            times.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok((times, began.elapsed(), cpu(ClockId::ProcessCPUTime) - before))
    })?;
    let mut times = times;
    times.sort_unstable();
    let count = times.len() as f64;
    Ok(Updates {
        per_s: count / took.as_secs_f64(),
        cpu_us: used.as_micros() as f64 / count,
        p50_us: times[times.len() / 2].into(),
        p999_us: times[times.len() * 999 / 1000].into(),
    })
}

/// Time from a thread's wake-up call until the other thread runs, in us.
fn wake_up_us() -> Outcome<f64> {
    const TURNS: u32 = 20_000;
    let ((to, of_main), (back, of_thread)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    thread::scope(|scope| -> Outcome<f64> {
        scope.spawn(move || of_main.iter().try_for_each(|()| back.send(())));
        let began = Instant::now();
        for _ in 0..TURNS {
            to.send(())?;
            of_thread.recv()?;
        }
        let took = began.elapsed().as_micros() as f64 / f64::from(2 * TURNS);
        drop(to);
        Ok(took)
    })
}

fn hot_row(db: &Db, table: &Table) -> Outcome<()> {
    let (mut alone, mut hot, mut many, mut wakes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(updates(db, table, 1, 1)?);
        hot.push(updates(db, table, THREADS, 1)?);
        many.push(updates(db, table, THREADS, THREADS)?);
        wakes.push(wake_up_us()?);
    }
    let of = |runs: &[Updates], figure: fn(&Updates) -> f64| median(runs.iter().map(figure).collect());
    let (cpu_us, wake_us) = (of(&alone, |run| run.cpu_us), median(wakes));
    let (hot_per_s, many_per_s) = (of(&hot, |run| run.per_s), of(&many, |run| run.per_s));
    let bound = many_per_s.min(1e6 / (cpu_us + wake_us));
    let tail = of(&hot, |run| run.p999_us as f64 / run.p50_us.max(1) as f64);
    println!("| updates of one row, one thread | {:.0}/s, {cpu_us:.1} us of CPU |", of(&alone, |run| run.per_s));
    println!("| wake-up of a thread | {wake_us:.1} us |");
    println!("| updates of {THREADS} rows, {THREADS} threads | {many_per_s:.0}/s |");
    println!(
        "| updates of one row, {THREADS} threads | {hot_per_s:.0}/s, {:.2} of the bound {bound:.0}/s |",
        hot_per_s / bound
    );
    println!("| the same: p99.9 of an update in medians | {tail:.1} |");
    Ok(())
}

/// Circles of transactions: each has a row and waits for that of the next one. The last one closes the circle.
fn circles(db: &Db) -> Outcome<()> {
    let tree = db.create_tree("circle")?;
    (0..CIRCLE).try_for_each(|row| tree.put(row.to_be_bytes(), "x"))?;
    let (mut own_us, mut other_us, mut cpu_us) = (Vec::new(), Vec::new(), Vec::new());
    for circle in 0..CIRCLES {
        // The victim has written least: in each other circle the one that closes it, else the first one.
        let closer_gives_way = circle % 2 == 0;
        let waiting = AtomicUsize::new(0);
        let (told, tells) = mpsc::channel();
        thread::scope(|scope| -> Outcome<()> {
            let (waiting, tree) = (&waiting, &tree);
            let mut txns = Vec::new();
            for member in 0..CIRCLE {
                let mut txn = db.begin(TxnOptions::new())?;
                txn.get_for_update(tree, member.to_be_bytes())?;
                let is_victim = member == if closer_gives_way { CIRCLE - 1 } else { 0 };
                if !is_victim {
                    txn.put(tree, [b"w", &member.to_be_bytes()[..]].concat(), "x")?;
                }
                txns.push(txn);
            }
            let mut closer = txns.pop().ok_or("no transaction")?;
            for (member, mut txn) in txns.into_iter().enumerate() {
                let told = told.clone();
                scope.spawn(move || {
                    waiting.fetch_add(1, Ordering::Release);
                    let locked = txn.get_for_update(tree, (member + 1).to_be_bytes());
                    let is_victim = matches!(locked, Err(Error::Deadlock(_)));
                    let _ = told.send(is_victim.then(Instant::now));
                    txn.rollback()
                });
            }
            while waiting.load(Ordering::Acquire) < CIRCLE - 1 || row_lock_waits(db) < CIRCLE as u64 - 1 {
                thread::yield_now();
            }
            let (began, before) = (Instant::now(), cpu(ClockId::ThreadCPUTime));
            let locked = closer.get_for_update(tree, 0_usize.to_be_bytes());
            let (ended, used) = (Instant::now(), cpu(ClockId::ThreadCPUTime) - before);
            match locked {
                Err(Error::Deadlock(_)) if closer_gives_way => {
                    own_us.push((ended - began).as_micros() as f64);
                    cpu_us.push(used.as_nanos() as f64 / 1000.0);
                }
                Ok(_) if !closer_gives_way => {}
                other => return Err(format!("no circle was broken as it was to be: {other:?}").into()),
            }
            drop(closer);
            drop(told);
            let at: Vec<Instant> = tells.iter().flatten().collect();
            match (at.as_slice(), closer_gives_way) {
                ([at], false) => other_us.push((*at - began).as_micros() as f64),
                ([], true) => {}
                _ => return Err(format!("{} transactions gave way", at.len()).into()),
            }
            Ok(())
        })?;
    }
    println!("| circle of {CIRCLE}: CPU of the call that closes it, rollback included | {:.0} us |", median(cpu_us));
    println!("| the same: until that call has its error | {:.0} us |", median(own_us));
    println!("| the same: until another member has its error | {:.0} us |", median(other_us));
    Ok(())
}

/// Transactions that wait for a row now.
fn row_lock_waits(db: &Db) -> u64 {
    let is_row_lock = |wait: &millpond::metrics::WaitSummary| wait.class == millpond::metrics::WaitClass::RowLock;
    db.waits().into_iter().find(is_row_lock).map_or(0, |wait| wait.waiting)
}

/// A queue, without and beside a transaction that has changed one row, and whose user has gone away.
fn forgotten(db: &Db, time: Duration) -> Outcome<()> {
    let tree = db.open_tree("rows")?;
    for is_forgotten in [false, true] {
        let mut writer = db.begin(TxnOptions::new())?;
        if is_forgotten {
            writer.put(&tree, 0_u64.to_be_bytes(), [9; VALUE])?;
        }
        let queue = db.create_tree("queue")?;
        (0..QUEUED).try_for_each(|row| queue.put(row.to_be_bytes(), [1; 100]))?;
        let began = Instant::now();
        let (mut head, mut most_undo, mut halves) = (0, 0, [0_u64; 2]);
        while began.elapsed() < time {
            for _ in 0..1_000 {
                let mut batch = WriteBatch::new();
                batch.put(&queue, (head + QUEUED).to_be_bytes(), [1; 100]);
                batch.delete(&queue, head.to_be_bytes());
                batch.put(&tree, (1 + head % (ROWS - 1)).to_be_bytes(), [2; VALUE]);
                db.write(batch)?;
                head += 1;
            }
            halves[usize::from(began.elapsed() > time / 2)] += 1_000;
            most_undo = most_undo.max(db.stats().undo_pages);
        }
        let beside = if is_forgotten { "beside a forgotten writer" } else { "alone" };
        let mut looks = Vec::new();
        for _ in 0..LOOKS {
            let began = Instant::now();
            queue.first()?.ok_or("the queue is empty")?;
            looks.push(began.elapsed().as_nanos() as f64 / 1000.0);
        }
        println!(
            "| queue, {beside}: {} s | {:.0}/s, second half {:.2} of the first; first of {head} rows after {:.1} us; \
             {most_undo} undo pages at most |",
            time.as_secs(),
            head as f64 / time.as_secs_f64(),
            halves[1] as f64 / halves[0].max(1) as f64,
            median(looks)
        );
        writer.rollback()?;
        drop(queue);
        db.drop_tree("queue")?;
    }
    Ok(())
}
