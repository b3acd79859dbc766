//! Ctrl-C: the first ends the work in good order, the second ends the command.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Failure;

/// Returns a flag that an interrupt (or a request to terminate) raises.
///
/// # Errors
/// The system refused to register the handlers.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag down and raises it, the second finds it up and exits.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|cause| Failure::message(format!("cannot watch for interrupts: {cause}")))?;
    }
    Ok(stop)
}
