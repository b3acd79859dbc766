//! The controller in the engine, in virtual time, on a device that cannot keep up with its writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond::simulation::{ServiceTime, SimulatedDisk, now_ns, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, SlowFiles, Slower, Speed, Stats, WaitClass};

use crate::pool::{put_loosely, scattered, scattered_rows};
use crate::support::{SMALL, reopen_options};

const ROWS: u32 = 8_000;
const SECONDS: usize = 20;

/// Eight writers, which update a row each every so many nanoseconds, all over a tree that is in the pool as a whole, on a
/// device that writes 300 pages a second. Updates by second, what the engine counted, and who was slowed down how often.
pub(crate) fn at_work(every_ns: u64, slower: &[Slower], look: impl Fn(&Db)) -> (Vec<usize>, Stats, u64) {
    let options = || reopen_options().buffer_pool_size(ByteSize::mib(16)).redo_capacity(ByteSize::mib(32));
    let image = scattered_rows(ROWS, SMALL.options().redo_capacity(ByteSize::mib(32)));
    let disk = SimulatedDisk::with_image(image, ServiceTime { read_ns: 20_000, write_ns: 0, sync_ns: 100_000 });
    let (found, _) = run(7, || {
        let speed = Speed { writes_per_s: 1e6, bytes_per_s: 300.0 * 4096.0, slower: slower.to_vec() };
        let files = SlowFiles::new(Arc::new(disk.clone()), speed).only("data.mpd");
        let db = Db::open_on(Arc::new(files), options()).expect("opened");
        assert_eq!(db.open_tree("t").expect("there").scan(..).count(), ROWS as usize);
        let began = now_ns();
        let done: Arc<Vec<AtomicUsize>> = Arc::new((0..SECONDS).map(|_| AtomicUsize::new(0)).collect());
        let writers: Vec<_> = (0..8u32)
            .map(|writer| {
                let (db, tree, done) = (db.clone(), db.open_tree("t").expect("there"), Arc::clone(&done));
                let work = move || {
                    for turn in 0.. {
                        sleep_ns(every_ns);
                        put_loosely(
                            &db,
                            &tree,
                            &scattered((turn * 8 + writer) * 61 % ROWS),
                            &[turn.to_le_bytes()[0]; 900],
                        );
                        let second = (now_ns() - began) / 1_000_000_000;
                        let Some(of_second) = done.get(usize::try_from(second).expect("few")) else { return };
                        of_second.fetch_add(1, Ordering::Relaxed);
                    }
                };
                spawn("writer", work).expect("a thread")
            })
            .collect();
        look(&db);
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        look(&db);
        let throttled = db.waits().into_iter().find(|wait| wait.class == WaitClass::Throttle).expect("a class").count;
        let stats = db.stats();
        db.close().expect("closed");
        (done.iter().map(|of| of.load(Ordering::Relaxed)).collect(), stats, throttled)
    });
    found
}

/// Two thousand updates a second, of which the device can bear two thirds.
pub(crate) const OVERLOAD_NS: u64 = 4_000_000;

fn assert_even(per_second: &[usize], percent: usize) {
    let mut settled = per_second[8..].to_vec();
    settled.sort_unstable();
    let median = settled[settled.len() / 2];
    assert!(settled[0] * 100 > median * percent, "a second of {} updates of {median}: {per_second:?}", settled[0]);
}

#[test]
fn writers_are_slowed_down_evenly_before_the_log_is_full() {
    let (per_second, stats, throttled) = at_work(OVERLOAD_NS, &[], |_| ());
    println!("{per_second:?} {throttled} {stats:?}");
    assert!(throttled > 100 && stats.pace_limited_us > 1_000_000, "{throttled} waits: {stats:?}");
    assert_eq!((stats.log_wall_waits, stats.stalls), (0, 0), "{stats:?}");
    assert!((200..400).contains(&stats.pace_write_capacity), "{stats:?}");
    assert_even(&per_second, 60);
}

/// The keeper waits for the device all the while: writers run the controller.
#[test]
fn a_device_that_stops_for_half_a_second_stops_nobody() {
    let stop = Slower { from_ns: 12_000_000_000, for_ns: 500_000_000, every_ns: 0, factor: 0.0 };
    let (per_second, stats, _) = at_work(2 * OVERLOAD_NS, &[stop], |_| ());
    println!("{per_second:?} {stats:?}");
    assert_eq!((stats.log_wall_waits, stats.stalls), (0, 0), "{stats:?}");
    assert_even(&per_second, 90);
    let (per_second, stats, _) = at_work(OVERLOAD_NS, &[stop], |_| ());
    println!("{per_second:?} {stats:?}");
    assert_eq!((stats.log_wall_waits, stats.stalls), (0, 0), "{stats:?}");
    assert_even(&per_second, 33);
}
