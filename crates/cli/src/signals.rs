//! Ctrl-C, a request to terminate, a closed terminal: the first signal ends the work in good order, the second ends the
//! command.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Failure;

/// The signal that raised the flag; 0 before that. One per process, like signals.
static RAISED_BY: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// A shell adds this to a signal's number for the exit code of a command that the signal ended.
const EXIT_CODE_BASE: i32 = 128;

/// The exit code of a command that `signal` ended.
const fn exit_code_of(signal: i32) -> i32 {
    EXIT_CODE_BASE + signal
}

/// The exit code of a command that was interrupted: 130 after Ctrl-C, 143 after a request to terminate, 129 after a
/// hangup.
pub(crate) fn exit_code() -> u8 {
    // Relaxed: an independent number.
    let signal = RAISED_BY.get().map_or(0, |signal| signal.load(Ordering::Relaxed));
    let signal = i32::try_from(signal).ok().filter(|signal| *signal != 0).unwrap_or(SIGINT);
    u8::try_from(exit_code_of(signal)).unwrap_or(u8::MAX)
}

/// Whether a child that ended with this exit code was interrupted.
pub(crate) fn is_interrupted(code: i32) -> bool {
    [SIGINT, SIGTERM, SIGHUP].map(exit_code_of).contains(&code)
}

/// Returns a flag that an interrupt raises, or a request to terminate, or a hangup that is not ignored.
///
/// # Errors
/// The system refused to register the handlers.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let hangup = if is_hangup_ignored() { None } else { Some(SIGHUP) };
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        let raised_by = Arc::clone(RAISED_BY.get_or_init(Arc::default));
        // In this order: the first signal finds the flag down and raises it, the second finds it up and exits.
        flag::register_conditional_shutdown(signal, exit_code_of(signal), Arc::clone(&stop))
            .and_then(|_| flag::register_usize(signal, raised_by, signal as usize))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|cause| Failure::message(format!("cannot watch for interrupts: {cause}")))?;
    }
    Ok(stop)
}

/// Whether hangups are ignored, as under `nohup`: then the command is to outlive its terminal.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    // Bit 0 is signal 1.
    ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1)
}
