//! Load for storage engines, and its measure.
//!
//! The tables, the transactions, the random numbers and the reports are sysbench's, so that numbers can be compared
//! and existing scripts can parse them. What sysbench does not show is added: the second-by-second calm of a run. The
//! insert benchmark has iibench's table and steps, and the same reports.
//!
//! | part | what it does |
//! |---|---|
//! | [`engine`] | what a storage engine must offer to be put under load |
//! | [`adapters`] | one file an engine |
//! | [`keys`] | which rows a transaction touches |
//! | [`generators`] | rows, and the transactions over them |
//! | [`prepare`] | loads and drops the tables |
//! | [`insert_benchmark`] | the steps of the insert benchmark, one after the other |
//! | [`driver`] | closed loop and open loop, second by second |
//! | [`recorder`] | what is kept of each transaction |
//! | [`calm`] | median and worst second, brownout, blackout |
//! | [`canary`] | what device and CPU do beside a run |
//! | [`verdict`] | whether a run was calm, and whether the machine let it be |
//! | [`spans`] | gaps and stops as spans of a run's time |
//! | [`probe`] | what the device can do by itself |
//! | [`timeline`] | what was seen second by second |
//! | [`figures`] | what a run came to, for all that show it |
//! | [`report_text`] | all of it as text |
//! | [`report_json`] | all of it as JSON, a line an object |
//! | [`histogram_text`] | the latencies as a histogram |
//! | [`where_text`] | where the time went, by what was waited for |

pub mod adapters;
pub mod calm;
pub mod canary;
pub mod driver;
pub mod engine;
pub mod figures;
pub mod generators;
pub mod histogram_text;
pub mod insert_benchmark;
pub mod keys;
pub mod prepare;
pub mod probe;
pub mod recorder;
pub mod report_json;
pub mod report_text;
pub mod spans;
pub mod timeline;
pub mod verdict;
pub mod where_text;

mod error;
mod names;

pub use error::Error;
