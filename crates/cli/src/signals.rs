//! Ctrl-C, a request to terminate, a terminal that has gone: the first ends the work in good order, the second ends the
//! command.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Failure;

/// Returns a flag that an interrupt (or a request to terminate, or a hangup that is not ignored) raises.
///
/// # Errors
/// The system refused to register the handlers.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let hangup = if is_hangup_ignored() { None } else { Some(SIGHUP) };
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        // In this order: the first signal finds the flag down and raises it, the second finds it up and exits.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|cause| Failure::message(format!("cannot watch for interrupts: {cause}")))?;
    }
    Ok(stop)
}

/// Whether whoever started this, as `nohup` does, wants it to outlive its terminal.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    // Bit 0 is signal 1.
    ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1)
}
