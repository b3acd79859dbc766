//! The status socket and the metrics port of a running engine.
//!
//! An endpoint is [made](status_socket) first and [served](Endpoint::serve) later: an unusable path or port is found
//! before the engine changes anything. The crate knows the engine as a [`Source`] of texts, and starts no thread
//! itself: the engine's function does.

#![deny(unsafe_code)]

mod metrics_port;
mod serve;
mod socket_file;
mod status_socket;

pub use metrics_port::metrics_port;
pub use serve::{Endpoint, Join, Server, Work};
pub use status_socket::{Refused, status_socket};

/// The texts that an endpoint sends. The threads of all endpoints call it; each call makes a new text.
pub trait Source: Send + Sync {
    /// The engine's state, for people. A text that is a look is the base of the changes that the next text shows.
    fn status(&self, is_a_look: bool) -> String;

    /// The metrics in Prometheus' text format.
    fn prometheus(&self) -> String;

    /// The metrics as one JSON object, with a newline at its end.
    fn json(&self) -> String;
}
