//! How fast a debt is paid, as arithmetic: no I/O, no threads, no clock.
//!
//! A debt has a number, a rate and a deadline. What is dirty has to be clean before the log comes to its deadline
//! ([`envelope`]); frames have to be free before they are wanted ([`free_frames`]).
//!
//! The controller is beside them, and not in the engine yet: what the device has to give (`write_capacity.rs`), which
//! the two debts share (`shares.rs`); what it cannot give in time is what writers are slowed down by
//! (`redo_limit.rs`), each by its own part, and in turn (`payment.rs`); `tick.rs` puts them together. Its test is a
//! simulation of hours of load (`crates/models/src/calm.rs`), which compiles these files, and also shows what each
//! rule is worth.

pub(crate) mod envelope;
pub(crate) mod free_frames;
