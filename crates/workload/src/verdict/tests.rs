//! Verdicts over planted histories.

use super::*;
use crate::canary::OUTSTANDING_MAX;
use crate::canary::log::Beats;
use crate::canary::taken::Taken;

const MS: u64 = 1_000_000;

fn span_ms(from: u64, to: u64) -> Span {
    Span::new(from * MS, to * MS)
}

fn slow_ms(arrived: u64, began: u64, ended: u64) -> Slow {
    Slow { arrived_ns: arrived * MS, began_ns: began * MS, ended_ns: ended * MS }
}

/// A canary with a beat of 1 ms each 100 ms for `run_ms`, but for `stops`: from, to, bytes outstanding.
fn beats(run_ms: u64, stops: &[(u64, u64, u64)]) -> Beats {
    let mut beats = Beats::default();
    let mut at = 0;
    while at < run_ms {
        if let Some(&(from, to, bytes)) = stops.iter().find(|stop| (at..at + 100).contains(&stop.0)) {
            beats.add(from * MS, to * MS, bytes);
            at = to.max(at + 100);
        } else {
            beats.add(at * MS, (at + 1) * MS, 0);
            at += 100;
        }
    }
    beats
}

fn device(run_ms: u64, stops: &[(u64, u64, u64)]) -> MachineLog {
    MachineLog { device: beats(run_ms, stops), ..MachineLog::default() }
}

fn cpu(run_ms: u64, stops: &[(u64, u64, u64)]) -> MachineLog {
    MachineLog { cpu: beats(run_ms, stops), ..device(run_ms, &[]) }
}

/// A calm run of ten seconds on a machine that never stood still.
fn calm_run(machine: &MachineLog) -> History<'_> {
    History {
        seconds: &[1_000; 10],
        counts_from_ns: 0,
        offered_per_s: None,
        gaps: &[],
        slow: &[],
        slowest_ns: 12 * MS,
        stalls: 0,
        stall_spans: &[],
        stall_threshold_ns: 100 * MS,
        machine: Some(machine),
        probe_worst_ns: MS,
    }
}

#[test]
fn even_run_on_a_quiet_machine_is_calm() {
    let machine = device(10_000, &[]);
    let said = judge(&calm_run(&machine));
    assert_eq!((said.verdict, said.verdict_reasons.len()), (Verdict::Calm, 0));
    assert_eq!((said.blackout_limit_ms, said.slowest_limit_ms), (100.0, 250.0));
    assert_eq!(said.verdict_text(), "calm");
}

#[test]
fn run_of_8_s_stopped_for_10_is_inconclusive_with_its_gap() {
    // The run is fine for two seconds; then the process stands still, beyond the planned end.
    let machine = cpu(12_100, &[(2_010, 12_000, 0)]);
    let run =
        History { seconds: &[9_000, 8_900, 0, 0, 0, 0, 0, 0], gaps: &[span_ms(2_003, 12_000)], ..calm_run(&machine) };
    let said = judge(&run);
    assert_eq!(said.verdict, Verdict::Inconclusive, "{said:?}");
    assert!(said.verdict_text().starts_with("inconclusive: the machine stood still; no transaction in the median"));
    assert_eq!(said.brownout_attributed_s, 0);
    assert!(said.blackout_cpu_ms > 9_900.0 && said.blackout_attributed_ms < 10.0, "{said:?}");
    assert_eq!(said.sentence(9_997.0, true), "the longest gap was 9997.0 ms; the CPU stood still for 9990.0 ms of it");
}

/// Half of each 100 ms taken by others, for ten seconds.
fn half_taken() -> MachineLog {
    let halves = (0..100).map(|window| span_ms(window * 100, window * 100 + 50)).collect();
    MachineLog { taken: Taken::of(halves), ..device(10_000, &[]) }
}

#[test]
fn queue_behind_a_taken_cpu_is_inconclusive_and_a_gap_is_not() {
    let machine = half_taken();
    // The queue grew for 2.3 seconds; half of that was taken.
    let run = History {
        offered_per_s: Some(1_000.0),
        slow: &[slow_ms(2_000, 2_410, 2_415), slow_ms(2_400, 3_000, 3_010), slow_ms(2_950, 4_300, 4_305)],
        slowest_ns: 1_355 * MS,
        ..calm_run(&machine)
    };
    let said = judge(&run);
    assert_eq!(said.verdict_text(), "inconclusive: others took the CPU; slowest 1355.0 ms, limit 250 ms");
    assert!(said.slowest_attributed_ms < 250.0 && said.cpu_taken_ms == 5_000.0, "{said:?}");
    // Of a gap of 600 ms, 300 were taken: the rest is the engine's.
    let said = judge(&History { gaps: &[span_ms(3_000, 3_600)], ..calm_run(&machine) });
    assert_eq!(said.verdict_text(), "NOT CALM: longest gap 300.0 ms, limit 100 ms");
    assert_eq!(said.sentence(600.0, true), "the longest gap was 600.0 ms; others took the CPU for 300.0 ms of it");
}

#[test]
fn time_taken_while_the_cpu_stood_still_is_told_once() {
    let machine = MachineLog { cpu: beats(10_000, &[(3_010, 3_200, 0)]), ..half_taken() };
    let said = judge(&History { gaps: &[span_ms(3_000, 3_200)], ..calm_run(&machine) });
    assert_eq!((said.blackout_cpu_ms, said.blackout_taken_ms), (190.0, 10.0), "{said:?}");
    assert!(said.verdict_text().starts_with("inconclusive: the machine stood still; longest gap"));
}

#[test]
fn median_of_zero_on_a_running_machine_is_not_calm() {
    let machine = device(10_000, &[]);
    let said = judge(&History { seconds: &[9_000, 8_900, 0, 0, 0, 0, 0, 0], ..calm_run(&machine) });
    assert_eq!(said.verdict, Verdict::NotCalm);
    assert_eq!(said.verdict_reasons[0], "no transaction in the median second");
    let silent = judge(&History { seconds: &[0, 0, 0], ..calm_run(&machine) });
    assert_eq!(silent.verdict, Verdict::NotCalm);
}

#[test]
fn offered_rate_is_the_measure_and_not_the_median() {
    let machine = device(10_000, &[]);
    let half = History { seconds: &[450; 10], ..calm_run(&machine) };
    assert_eq!(judge(&half).verdict, Verdict::Calm);
    let said = judge(&History { offered_per_s: Some(1_000.0), ..half });
    assert_eq!(said.verdict_text(), "NOT CALM: 10 s under half of the offered rate, limit 0 s");
}

#[test]
fn gap_in_a_device_stop_is_inconclusive_and_else_not_calm() {
    let machine = device(10_000, &[(3_050, 4_100, 0)]);
    let seconds = &[1_000, 1_000, 1_000, 40, 900, 1_000, 1_000, 1_000, 1_000, 1_000];
    let during = History { seconds, gaps: &[span_ms(3_042, 4_102)], ..calm_run(&machine) };
    let said = judge(&during);
    assert_eq!(said.verdict, Verdict::Inconclusive, "{said:?}");
    assert_eq!(
        said.sentence(1_060.0, true),
        "the longest gap was 1060.0 ms; the device itself stood still for 1050.0 ms of it"
    );
    assert!(said.blackout_attributed_ms <= 2.0, "{said:?}");
    let elsewhere = History { gaps: &[span_ms(6_000, 6_150)], ..calm_run(&machine) };
    let said = judge(&elsewhere);
    assert_eq!(said.verdict_text(), "NOT CALM: longest gap 150.0 ms, limit 100 ms");
    assert!(said.sentence(150.0, true).ends_with("; neither device nor CPU stood still in it"));
}

#[test]
fn stop_under_the_engines_own_writes_counts_against_it() {
    let machine = device(10_000, &[(3_050, 4_100, OUTSTANDING_MAX)]);
    let said = judge(&History { gaps: &[span_ms(3_042, 4_102)], ..calm_run(&machine) });
    assert_eq!(said.verdict, Verdict::NotCalm);
    assert_eq!((said.blackout_device_ms, said.blackout_shared_ms), (0.0, 1_050.0));
    assert!(said.sentence(1_060.0, true).contains("under the engine's own writes for 1050.0 ms"));
}

#[test]
fn queue_of_a_stop_is_excused_and_one_of_the_engine_is_not() {
    let machine = device(10_000, &[(3_000, 4_000, 0)]);
    // Arrivals wait for the stop, then for the queue before them, which shrinks.
    let drained: Vec<Slow> = (0..40_u64)
        .map(|number| (3_005 + number * 50, 1_000 - number * 24))
        .map(|(arrived, queued)| slow_ms(arrived, arrived + queued, arrived + queued + 2))
        .collect();
    let run = |slow| History { offered_per_s: Some(1_000.0), slow, slowest_ns: 1_002 * MS, ..calm_run(&machine) };
    let said = judge(&run(&drained));
    assert_eq!(said.verdict, Verdict::Inconclusive, "{said:?}");
    assert!(said.slowest_ms > 1_000.0 && said.slowest_attributed_ms < 10.0, "{said:?}");
    // The same transactions later, when the machine does not stand still.
    let later: Vec<Slow> = drained
        .iter()
        .map(|slow| Slow {
            arrived_ns: slow.arrived_ns + 4_000 * MS,
            began_ns: slow.began_ns + 4_000 * MS,
            ended_ns: slow.ended_ns + 4_000 * MS,
        })
        .collect();
    let said = judge(&run(&later));
    assert_eq!(said.verdict_text(), "NOT CALM: slowest 1002.0 ms, limit 250 ms");
}

#[test]
fn service_time_outside_a_stop_is_the_engines_beside_a_queue() {
    let machine = device(10_000, &[(3_000, 4_000, 0)]);
    let run = History {
        slow: &[slow_ms(3_002, 4_001, 4_003), slow_ms(3_500, 4_003, 4_403)],
        slowest_ns: 1_001 * MS,
        ..calm_run(&machine)
    };
    let said = judge(&run);
    assert_eq!((said.verdict, said.slowest_attributed_ms), (Verdict::NotCalm, 400.0));
}

#[test]
fn transaction_still_queued_at_the_end_counts_as_the_slowest() {
    let machine = device(10_000, &[]);
    let run = History { slow: &[slow_ms(9_000, 10_000, 10_000)], offered_per_s: Some(1_000.0), ..calm_run(&machine) };
    let said = judge(&run);
    assert_eq!((said.verdict, said.slowest_ms), (Verdict::NotCalm, 1_000.0));
}

#[test]
fn stalls_count_unless_the_machine_stood_still_then() {
    let machine = cpu(10_000, &[(5_010, 5_400, 0)]);
    let stalled = |spans: &[Span]| judge(&History { stalls: 1, stall_spans: spans, ..calm_run(&machine) });
    let said = stalled(&[span_ms(5_000, 5_402)]);
    assert_eq!((said.verdict, said.stalls_attributed), (Verdict::Inconclusive, 0));
    let said = stalled(&[span_ms(7_000, 7_120)]);
    assert_eq!(said.verdict_text(), "NOT CALM: stalls of 100 ms and longer 1, limit 0");
    // A stall that the engine no longer remembers cannot be excused.
    assert_eq!(stalled(&[]).verdict, Verdict::NotCalm);
}

#[test]
fn limits_grow_with_what_is_usual_on_a_slow_device() {
    let mut slow = Beats::default();
    (0..100).for_each(|number| slow.add(number * 100 * MS, (number * 100 + 60) * MS, 0));
    let machine = MachineLog { device: slow, ..MachineLog::default() };
    let said = judge(&History { gaps: &[span_ms(100, 270)], slowest_ns: 280 * MS, ..calm_run(&machine) });
    assert_eq!((said.blackout_limit_ms, said.slowest_limit_ms), (180.0, 300.0));
    assert_eq!(said.verdict, Verdict::Calm);
    let stalled = |spans: &[Span]| judge(&History { stalls: 1, stall_spans: spans, ..calm_run(&machine) });
    assert_eq!(stalled(&[span_ms(1_000, 1_170)]).verdict, Verdict::Calm, "three pairs of this device");
    let said = stalled(&[span_ms(1_000, 1_190)]);
    assert_eq!(said.verdict_text(), "NOT CALM: stalls of 180 ms and longer 1, limit 0");
    let unwatched = History { machine: None, probe_worst_ns: 60 * MS, ..calm_run(&machine) };
    assert_eq!(judge(&unwatched).blackout_limit_ms, 180.0, "then the probe's counts");
}

#[test]
fn run_without_a_whole_second_is_inconclusive() {
    let machine = device(500, &[]);
    let said = judge(&History { seconds: &[], ..calm_run(&machine) });
    assert_eq!(said.verdict_text(), "inconclusive: the run has no whole second");
}

#[test]
fn warm_up_moves_the_seconds_and_not_the_stops() {
    let machine = device(7_000, &[(4_000, 5_000, 0)]);
    let seconds = &[1_000, 1_000, 3, 1_000];
    let run = History { seconds, counts_from_ns: 2_000 * MS, ..calm_run(&machine) };
    assert_eq!(judge(&run).verdict, Verdict::Inconclusive);
    assert_eq!(judge(&History { counts_from_ns: 0, ..run }).verdict, Verdict::NotCalm);
}
