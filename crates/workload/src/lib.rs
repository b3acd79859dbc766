//! Load generation for storage engines, and measurement.
//!
//! Tables, transactions, random numbers and reports are sysbench's, so that numbers can be compared and existing
//! scripts can parse them. The reports add the second-by-second calm of a run, which sysbench does not show. The insert
//! benchmark has iibench's table and steps, and the same reports. The order queue has tables and transactions of its own.
//!
//! | part | what it does |
//! |---|---|
//! | [`engine`] | the interface of a storage engine under load |
//! | [`adapters`] | adapters of engines, one file each |
//! | [`keys`] | distributions of the rows that transactions touch |
//! | [`generators`] | rows, and the transactions over them |
//! | [`prepare`] | loads and drops the tables |
//! | [`insert_benchmark`] | the steps of the insert benchmark, one after the other |
//! | [`orders`] | the order queue: its tables, its run, its check |
//! | [`driver`] | closed loop and open loop, second by second |
//! | [`recorder`] | records each transaction |
//! | [`calm`] | median and worst second, brownout, blackout |
//! | [`canary`] | watches device and CPU beside a run |
//! | [`verdict`] | whether a run was calm, and whether the machine stood still |
//! | [`spans`] | gaps and stops as spans of a run's time |
//! | [`probe`] | measures the device by itself |
//! | [`timeline`] | figures second by second |
//! | [`figures`] | results of a run, for every output format |
//! | [`report_text`] | the results as text |
//! | [`report_json`] | the results as JSON, one object a line |
//! | [`histogram_text`] | the latencies as a histogram |
//! | [`where_text`] | where the time went, by wait class |

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
pub mod orders;
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
