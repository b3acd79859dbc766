//! The state of a change of the log's capacity.
//!
//! [`log_resize`](crate::background::log_resize) makes the files of a new [`Ring`] and has the keeper switch the log to
//! it. This structure serialises the changes, and holds the message about them that the status page shows.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::base::sync::{Mutex, Rank, Turn};
use crate::io::device::Files;
use crate::redo::files::Ring;

/// The change of the log's capacity that is under way.
pub(crate) struct RedoChange {
    /// The turn to change the capacity. Its value is a ring that the background thread is to fill. A change by a user
    /// that gets the turn first takes the ring instead.
    pub(crate) turn: Turn<Option<NewRing>>,
    /// Number of threads that wait for the turn.
    pub(crate) waiting: AtomicUsize,
    /// A message about files that are made in the background, or about why they could not be made.
    news: Mutex<Option<String>>,
}

impl Default for RedoChange {
    fn default() -> Self {
        RedoChange {
            turn: Turn::new(Rank::RedoChange, None),
            waiting: AtomicUsize::new(0),
            news: Mutex::new(Rank::Status, None),
        }
    }
}

impl RedoChange {
    /// Sets the message for the status page.
    pub(crate) fn tell(&self, news: Option<String>) {
        *self.news.lock() = news;
    }

    /// The message about the log's files, for the status page.
    pub(crate) fn news(&self) -> Option<String> {
        self.news.lock().clone()
    }
}

/// A ring whose files are reserved on the device, and not filled yet.
pub(crate) struct NewRing {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) ring: Ring,
}
