//! The status socket and the metrics port of a running engine, and the client's side of the socket.
//!
//! An endpoint is [made](status_socket) first and [served](Endpoint::serve) later: an unusable path or port is found
//! before the engine changes anything. The crate knows the engine as a [`Source`], and starts no thread itself: the
//! engine's function does.

#![deny(unsafe_code)]

mod ask;
mod bytes;
mod metrics_port;
mod requests;
mod serve;
mod socket_file;
mod status_socket;
mod work;

pub use ask::{AskError, ask};
pub use bytes::Bytes;
pub use metrics_port::metrics_port;
pub use requests::{Answer, Facts, Request, Rows};
pub use serve::{Endpoint, Join, Server, Start, Work};
pub use status_socket::{Refused, status_socket};
pub use work::{Client, Gone};

/// The engine as its endpoints see it. The threads of all endpoints call it; each call makes a new text.
pub trait Source: Send + Sync {
    /// The engine's state, for people. A text that is a look is the base of the changes that the next text shows.
    fn status(&self, is_a_look: bool) -> String;

    /// The metrics in Prometheus' text format.
    fn prometheus(&self) -> String;

    /// The metrics as one JSON object, with a newline at its end.
    fn json(&self) -> String;

    /// Does the work of a request, on a thread of its own, and sends `client` rows and progress.
    ///
    /// # Errors
    /// The reason why the work did not come to its end, for people.
    fn work(&self, request: Request, client: &mut Client) -> Result<Facts, String>;
}
