//! The socket and the port on which a running engine answers.

pub(crate) mod endpoints;
pub(crate) mod metrics_port;
pub(crate) mod socket_file;
pub(crate) mod status_server;
pub(crate) mod status_socket;
