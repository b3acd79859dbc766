//! Every decoder accepts any bytes (the rules are at the head of `simulation/decoders.rs`): real encodings, mutated.
//! The same decoders are the targets of `make fuzz`.

use millpond::simulation::Decoder;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Replacement values for a length or a count.
const LENGTHS: [u64; 12] = [0, 1, 17, 127, 128, 255, 256, 4095, 65_535, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Changes `bytes` in one of several ways.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], rng: &mut SmallRng) {
    let at = rng.random_range(0..=bytes.len());
    match rng.random_range(0..8) {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
        2 => bytes.truncate(at),
        3 => {
            let from = rng.random_range(0..=other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        4 | 5 => {
            let width = [1, 2, 4, 8][rng.random_range(0..4)].min(bytes.len() - at);
            let near = u64::try_from(bytes.len()).expect("short").wrapping_add(rng.random_range(0..5)).wrapping_sub(2);
            let value = if rng.random() { near } else { LENGTHS[rng.random_range(0..LENGTHS.len())] };
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        6 => bytes.insert(at, rng.random()),
        _ => {
            let end = (at + rng.random_range(0..40)).min(bytes.len());
            let part = bytes[at..end].to_vec();
            if rng.random() { drop(bytes.drain(at..end)) } else { drop(bytes.splice(at..at, part)) }
        }
    }
}

/// Feeds samples unchanged, and mutated one to four times. Returns how many of either were accepted.
#[expect(clippy::panic, reason = "a test's helper: the panic is the test's failure")]
fn feed(decoder: Decoder, seed: u64, cases: u64) -> (u64, u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut whole, mut mutated) = (0, 0);
    for case in 0..cases {
        let sample = decoder.sample(case / 8);
        let mut bytes = sample;
        if case % 8 > 0 {
            let other = decoder.sample(rng.random_range(0..cases));
            for _ in 0..rng.random_range(1..5) {
                mutate(&mut bytes, &other, &mut rng);
            }
        }
        let fed = std::panic::catch_unwind(|| decoder.feed(&bytes));
        let hex = || bytes.iter().take(400).map(|byte| format!("{byte:02x}")).collect::<String>();
        match fed {
            Ok(Ok(accepted)) if case % 8 == 0 => whole += u64::from(accepted),
            Ok(Ok(accepted)) => mutated += u64::from(accepted),
            Ok(Err(fault)) => panic!("{decoder:?}, seed {seed}, case {case}: {fault}; bytes {}", hex()),
            Err(_) => panic!("{decoder:?}, seed {seed}, case {case}: a panic; bytes {}", hex()),
        }
    }
    (whole, mutated)
}

fn cases_of(decoder: Decoder) -> u64 {
    match decoder {
        Decoder::Recovery => 1600,
        Decoder::Rebuild => 1200,
        Decoder::LogScan => 3200,
        _ => 6400,
    }
}

#[test]
fn decoders_take_any_bytes() {
    let fed: Vec<(Decoder, u64, (u64, u64))> = std::thread::scope(|scope| {
        let work = |half: usize| {
            let mine = Decoder::ALL.into_iter().rev().skip(half).step_by(2);
            mine.map(|decoder| (decoder, cases_of(decoder), feed(decoder, 1, cases_of(decoder)))).collect::<Vec<_>>()
        };
        let halves = [scope.spawn(move || work(0)), scope.spawn(move || work(1))];
        halves.into_iter().flat_map(|half| half.join().expect("no panic")).collect()
    });
    for (decoder, cases, (whole, mutated)) in &fed {
        println!("{:<14} {cases:>6} cases, accepted: {whole:>5} samples, {mutated:>6} mutated", format!("{decoder:?}"));
    }
    assert_eq!(fed.len(), Decoder::ALL.len());
    for (decoder, cases, (whole, _)) in fed {
        // Operations and logs of a sample may be refused, for pages that are too full, or groups broken on purpose.
        let least = match decoder {
            Decoder::Replay | Decoder::LogScan => cases / 8 / 20,
            // If a log is cut too early, images of pages are ahead of it.
            Decoder::Recovery => cases / 8 / 2,
            // Most samples do harm; a few do none.
            Decoder::Rebuild => cases / 8 / 20,
            _ => cases / 8,
        };
        assert!(whole >= least, "{decoder:?}: only {whole} samples accepted");
    }
}

/// Feeds a group to [`Decoder::Recovery`], behind the real groups.
fn recover_with(kind: u8, payload: &[u8]) -> Result<bool, String> {
    let mut bytes = Decoder::Recovery.sample(0);
    bytes.extend_from_slice(&[kind, 0]);
    bytes.extend_from_slice(&u16::try_from(payload.len()).expect("short").to_le_bytes());
    bytes.extend_from_slice(payload);
    Decoder::Recovery.feed(&bytes)
}

/// A payload that formats a page of `level`, without entries and fences.
fn format_of(space: u32, number: u32, level: u8) -> Vec<u8> {
    let mut payload = vec![1];
    payload.extend_from_slice(&(u64::from(space) << 32 | u64::from(number)).to_le_bytes());
    payload.extend_from_slice(&[0; 8]);
    payload.extend_from_slice(&[9, 0, 0, 0, 1, level, 0, 0, 0, 0, 0, 0, 0]);
    payload
}

fn map_record(space: u32, number: u32) -> Vec<u8> {
    let mut payload = (u64::from(space) << 32 | u64::from(number)).to_le_bytes().to_vec();
    payload.extend_from_slice(&(256u64 << 24).to_le_bytes());
    payload.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    payload
}

/// Regression: each of these took memory without bound, or panicked: the largest page number, space and level.
#[test]
fn recovery_believes_no_number_that_cannot_be() {
    assert_eq!(Decoder::Recovery.feed(&Decoder::Recovery.sample(0)), Ok(true), "the log as it is");
    assert_eq!(recover_with(0, &format_of(900, 0, 0)), Ok(true), "a tree whose creation was cut short");
    assert_eq!(recover_with(0, &format_of(u32::MAX, 0, 0)), Ok(false), "the last space");
    assert_eq!(recover_with(0, &format_of(900, u32::MAX, 0)), Ok(false), "the last page");
    assert_eq!(recover_with(1, &map_record(1, u32::MAX)), Ok(false), "the last page's image");
    assert_eq!(recover_with(0, &format_of(1, 0, 255)), Ok(false), "a root of the largest level");
    assert_eq!(recover_with(0, &format_of(0, 0, 255)), Ok(false), "the catalog's root too");
}

#[test]
fn decoders_take_noise() {
    let mut rng = SmallRng::seed_from_u64(2);
    for decoder in Decoder::ALL {
        let cases = if matches!(decoder, Decoder::Recovery | Decoder::Rebuild) { 200 } else { 1000 };
        for case in 0..cases {
            let len = rng.random_range(0..700);
            let bytes: Vec<u8> = (0..len).map(|_| rng.random()).collect();
            assert!(decoder.feed(&bytes).is_ok(), "{decoder:?}, case {case}: {:?}", decoder.feed(&bytes));
        }
    }
}
