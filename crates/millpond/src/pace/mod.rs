//! How fast a debt is paid, as arithmetic: no I/O, no threads, no clock.
//!
//! A debt has a number, a rate and a deadline. What is dirty has to be clean before the log comes to its deadline
//! ([`envelope`]); frames have to be free before they are wanted ([`free_frames`]); the device has so much to give
//! ([`write_capacity`]), which the two share ([`shares`]); what it cannot give in time is what writers are slowed down
//! by ([`redo_limit`]), each by its own part, and in turn ([`payment`]); a log that is to be shorter becomes so by
//! and by ([`log_length`]). [`tick`] puts these together. Where long
//! writes cost less than short ones, zones of the data file are emptied for them ([`zone_cleaning`]). What purge does
//! not get on with, who leaves it does himself, in proportion ([`purge_debt`]).
//!
//! What the servers of old did instead is beside them ([`classic_flushing`]).
//!
//! Its test is a simulation of hours of load (`crates/models/src/calm.rs`), which also shows what each rule is worth.

pub(crate) mod adaptive;
pub(crate) mod classic_flushing;
pub(crate) mod envelope;
pub(crate) mod free_frames;
pub(crate) mod keep_average;
pub(crate) mod log_length;
pub(crate) mod payment;
pub(crate) mod purge_debt;
pub(crate) mod redo_limit;
pub(crate) mod shares;
pub(crate) mod sync_only;
pub(crate) mod tick;
pub(crate) mod write_capacity;
pub(crate) mod zone_cleaning;
