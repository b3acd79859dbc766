//! Reports of a database: status text, metrics, slowest operations.

use std::time::Duration;

use crate::api::database::Db;
use crate::base::clock;
use crate::base::stall::Stall;
use crate::observe::metrics::{Metric, MetricValue, values};
use crate::observe::metrics_text::prometheus;
use crate::observe::status::text;
use crate::observe::transactions::{Deadlock, OpenTransaction, deadlocks, open_transactions};

impl Db {
    /// The engine's state as text for people: log, buffer pool, cleaning, waits, keeper, store, trees. Waits for
    /// nothing. The [status socket](crate::Options::status_socket) gives the same text. Rates, and the waits
    /// *since last*, cover the time since the last request for this text, here or on the socket.
    pub fn status_text(&self) -> String {
        match self.here() {
            Ok(engine) => text(engine, &self.about(), true),
            Err(error) => format!("{error}\n"),
        }
    }

    /// Time since the database was opened, on the clock of [`Stall::ended`](crate::metrics::Stall::ended). The
    /// difference of the two tells how long ago a stall ended.
    pub fn since_open(&self) -> Duration {
        Duration::from_nanos(clock::coarse_ns().saturating_sub(self.engine().waits.opened_ns))
    }
}

impl Db {
    /// All metrics of the engine, each with its description. Costs a few microseconds and a lock or two, like
    /// [`stats`](Self::stats); some ten microseconds more for each class of waits; some fifty for CPUs, which are read
    /// from `/proc` and `/sys`. Empty in a forked child.
    pub fn metrics(&self) -> Vec<(&'static Metric, MetricValue)> {
        self.here().map_or_else(|_| Vec::new(), |engine| values(engine))
    }

    /// The transactions that have changed or locked something and have not ended, oldest first.
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.here().map_or_else(|_| Vec::new(), |engine| open_transactions(engine))
    }

    /// The last deadlocks, the newest first: at most 8.
    pub fn deadlocks(&self) -> Vec<Deadlock> {
        self.here().map_or_else(|_| Vec::new(), |engine| deadlocks(engine))
    }

    /// The slowest operations since the last call, or since open: at most 8, slowest first, each with where its time
    /// went. Times are exact to a few milliseconds; operations shorter than that do not appear.
    pub fn take_slowest(&self) -> Vec<Stall> {
        self.here().map_or_else(|_| Vec::new(), |engine| engine.with_trees(engine.waits.take_slowest()))
    }

    /// [`metrics`](Self::metrics) in the Prometheus text format 0.0.4. Names begin with `millpond_`, those of counters
    /// end in `_total`.
    pub fn metrics_text(&self) -> String {
        self.here().map_or_else(|_| String::new(), |engine| prometheus(engine))
    }
}
