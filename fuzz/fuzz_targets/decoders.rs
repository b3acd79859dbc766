//! Any bytes into one decoder, which MILLPOND_DECODER names; without it the first byte says into which.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use millpond::simulation::Decoder;

fn named() -> Option<Decoder> {
    static NAMED: OnceLock<Option<Decoder>> = OnceLock::new();
    *NAMED.get_or_init(|| {
        let name = std::env::var("MILLPOND_DECODER").ok()?;
        let found = Decoder::ALL.into_iter().find(|decoder| format!("{decoder:?}") == name);
        Some(found.unwrap_or_else(|| panic!("no decoder {name}: use one of {:?}", Decoder::ALL)))
    })
}

fuzz_target!(|bytes: &[u8]| {
    let fed = match (named(), bytes) {
        (Some(decoder), _) => decoder.feed(bytes),
        (None, [which, rest @ ..]) => Decoder::ALL[usize::from(*which) % Decoder::ALL.len()].feed(rest),
        (None, []) => Ok(false),
    };
    if let Err(fault) = fed {
        panic!("{fault}");
    }
});

// Now and then a real encoding in the place of the input: nothing needs a corpus to be kept.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let Some(decoder) = named().filter(|_| seed % 64 == 0) else { return fuzzer_mutate(data, size, max_size) };
    let sample = decoder.sample(u64::from(seed / 64));
    let len = sample.len().min(max_size);
    data[..len].copy_from_slice(&sample[..len]);
    fuzzer_mutate(data, len, max_size)
});
