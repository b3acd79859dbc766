//! Hours of load in virtual time under the controller: no second falls under half of the median, no update finds the
//! log full, and each rule is needed.

use models::calm::{Evenness, Off, Outcome, Scenario, run, scenarios};

fn scenario(name: &str) -> Scenario {
    scenarios().into_iter().find(|scenario| scenario.name == name).expect("a scenario of this name")
}

fn assert_calm(scenario: &Scenario, outcome: &Outcome) {
    let name = scenario.name;
    let Evenness { median, worst, brownout_s, variation } = outcome.evenness_outside(&scenario.phases);
    println!("{name}: median {median}, worst {worst}, variation {variation:.3}, age {:.2}", outcome.age_max);
    assert!(median > 1_000, "{name}: {median} updates in the median second");
    assert_eq!(brownout_s, 0, "{name}: seconds under half of the median");
    assert!(variation <= scenario.variation, "{name}: a variation of {variation}");
    for phase in scenario.phases.iter().filter(|phase| !phase.name.is_empty()) {
        let within = outcome.evenness(*phase);
        assert!(within.brownout_s <= phase.brownout_s, "{name}, {}: {within}", phase.name);
        assert!(within.worst > 0, "{name}, {}: a second without an update", phase.name);
    }
    assert_eq!(outcome.log_wall_waits, 0, "{name}: the log was full");
    assert!(outcome.age_max < 0.97, "{name}: a checkpoint age of {}", outcome.age_max);
    assert!(outcome.longest_gap_ms <= scenario.gap_ms, "{name}: {} ms without an update", outcome.longest_gap_ms);
}

#[test]
fn hours_are_calm() {
    let all = scenarios();
    // Two threads, each of which takes the next scenario.
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || {
            while let Some(scenario) = all.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                assert_calm(scenario, &run(scenario, Off::Nothing));
            }
        };
        scope.spawn(work);
        scope.spawn(work);
    });
}

/// A scenario with a rule, and without it.
fn with_and_without(name: &str, off: Off) -> (Outcome, Outcome) {
    let mut scenario = scenario(name);
    scenario.seconds = 450;
    (run(&scenario, Off::Nothing), run(&scenario, off))
}

#[test]
fn writer_of_a_hot_row_is_slowed_down_no_more_than_others() {
    let outcome = run(&scenario("a hot row under throttle"), Off::Nothing);
    assert!(outcome.limited_s > 800.0 && outcome.slowest_ms < 5.0, "{outcome:?}");
}

#[test]
fn without_the_envelope_pages_are_written_too_late() {
    let (with, without) = with_and_without("a cluster of pages", Off::Envelope);
    assert!(with.age_max < 0.80 && without.age_max > 0.85, "{} and {}", with.age_max, without.age_max);
    assert!(without.evenness_outside(&[]).worst < with.evenness_outside(&[]).worst);
}

#[test]
fn without_a_throttle_the_log_is_full() {
    let (with, without) = with_and_without("overload", Off::Throttle);
    assert_eq!(with.log_wall_waits, 0);
    assert!(without.log_wall_waits > 1_000 && without.longest_gap_ms > 10.0 * with.longest_gap_ms);
}

#[test]
fn without_evidence_a_wrong_guess_slows_writers_down() {
    let (with, without) = with_and_without("first guess 1/1000", Off::Evidence);
    assert!(with.limited_s == 0.0);
    assert_eq!((with.evenness_outside(&[]).brownout_s, without.evenness_outside(&[]).brownout_s), (0, 1));
}

#[test]
fn without_the_floor_a_device_that_stops_is_felt_at_once() {
    let scenario = scenario("0 % for 3 s");
    let stopped = scenario.phases[0];
    let (with, without) = (run(&scenario, Off::Nothing), run(&scenario, Off::Floor));
    assert!(with.longest_gap_ms * 2.0 < without.longest_gap_ms, "{with:?} {without:?}");
    let (with, without) = (with.evenness(stopped), without.evenness(stopped));
    assert!(without.worst < with.worst * 4 / 5, "{with} {without}");
}

#[test]
fn a_guess_that_is_never_corrected_slows_down_far_too_much() {
    let (with, without) = with_and_without("first guess 1/10, overload", Off::Measure);
    let (with, without) = (with.evenness_outside(&[]), without.evenness_outside(&[]));
    assert!(without.variation > 0.2 && without.median < with.median * 3 / 4, "{with} {without}");
}

#[test]
fn without_the_brake_the_log_is_full_before_the_device_is_known() {
    let (with, without) = with_and_without("60 MB/s, guessed 590", Off::Brake);
    assert!(with.age_max < 0.97 && without.age_max > 0.99, "{} and {}", with.age_max, without.age_max);
    assert!(with.longest_gap_ms * 10.0 < without.longest_gap_ms);
}

#[test]
fn without_a_slow_average_waves_are_seen_too_late() {
    let (with, without) = with_and_without("waves of 5 s", Off::SlowAverage);
    assert!(without.age_max > with.age_max + 0.05, "{} and {}", with.age_max, without.age_max);
}

#[test]
fn without_shares_frame_waiters_keep_the_log_nearly_full() {
    // In a log of half the size the throttle acts before the difference shows. The brake keeps the log from being full.
    let mut scenario = scenario("64 MiB, hot pages");
    (scenario.log_bytes, scenario.seconds) = (32 << 20, 450);
    let (with, without) = (run(&scenario, Off::Nothing), run(&scenario, Off::Shares));
    assert!(with.age_max < 0.60 && without.age_max > 0.95, "{} and {}", with.age_max, without.age_max);
    let (with, without) = (with.evenness_outside(&[]), without.evenness_outside(&[]));
    assert!(with.brownout_s == 0 && without.brownout_s > 0, "{with} {without}");
    assert!(without.worst * 2 < with.worst, "{with} {without}");
}

#[test]
fn with_the_keepers_tick_alone_a_stopped_device_is_seen_late() {
    let (with, without) = with_and_without("0 % for 3 s, overload", Off::OverdueTick);
    assert_eq!(with.log_wall_waits, 0);
    assert!(without.log_wall_waits > 0 && without.longest_gap_ms > 10.0 * with.longest_gap_ms);
}

#[test]
fn without_an_own_queue_all_wait_behind_a_large_transaction() {
    let (with, without) = with_and_without("a large transaction, overload", Off::LargeQueue);
    assert_eq!(with.evenness_outside(&[]).brownout_s, 0);
    assert!(without.evenness_outside(&[]).brownout_s > 0 && without.longest_gap_ms > 10.0 * with.longest_gap_ms);
}

#[test]
fn a_log_that_is_made_shorter_at_once_is_felt() {
    let scenario = scenario("the log made shorter");
    let after = |off| run(&scenario, off).evenness_outside(&[]);
    let (with, without) = (after(Off::Nothing), after(Off::LittleByLittle));
    assert!(with.worst * 100 > with.median * 95 && without.worst * 100 < without.median * 75, "{with} {without}");
}

#[test]
fn without_the_new_files_begin_all_dirty_pages_are_overdue() {
    let (with, without) = with_and_without("smaller files of the log", Off::OtherRing);
    let (with, without) = (with.evenness_outside(&[]), without.evenness_outside(&[]));
    assert_eq!(with.brownout_s, 0);
    assert!(without.brownout_s > 0 && without.worst * 3 < with.worst * 2, "{with} {without}");
}
