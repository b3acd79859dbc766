//! How fast the engine works off its debts, as arithmetic: no I/O, no threads, no clock.
//!
//! A debt has a number, a rate and a deadline:
//!
//! * Dirty pages must be clean before the log reaches their deadline ([`envelope`]).
//! * Frames must be free before threads need them ([`free_frames`]).
//! * The device has a limited capacity ([`write_capacity`]), which the two share ([`shares`]).
//! * Where the device is too slow, writers are slowed down ([`redo_limit`]), each by its own part, and in turn
//!   ([`payment`]).
//! * A log that is to be shorter shrinks gradually ([`log_length`]).
//!
//! [`tick`] combines these. Where long writes cost less than short ones, zones of the data file are emptied for them
//! ([`zone_cleaning`]). Where purge falls behind, each writer purges in proportion to the work that it leaves
//! ([`purge_debt`]).
//!
//! Backups and checks have no deadline: they give way to the load ([`give_way`]).
//!
//! Beside them are the classic methods of older servers ([`classic_flushing`]).
//!
//! A simulation of hours of load tests them (`crates/models/src/calm.rs`), and shows the effect of each rule.

pub(crate) mod adaptive;
pub(crate) mod classic_flushing;
pub(crate) mod envelope;
pub(crate) mod free_frames;
pub(crate) mod give_way;
pub(crate) mod keep_average;
pub(crate) mod log_length;
pub(crate) mod payment;
pub(crate) mod purge_debt;
pub(crate) mod redo_limit;
pub(crate) mod rules;
pub(crate) mod shares;
pub(crate) mod sync_only;
pub(crate) mod tick;
pub(crate) mod write_capacity;
pub(crate) mod zone_cleaning;
