//! The socket and the port of a database.

use std::sync::Arc;

use crate::base::error::Error;
use crate::engine::Engine;
use crate::observe::status::About;
use crate::options::Options;
use crate::server::status_server::{Endpoint, StatusServer};
use crate::server::{metrics_port, status_socket};

/// The endpoints that options ask for, made and not served yet.
pub(crate) struct Endpoints(Vec<Endpoint>);

impl Endpoints {
    /// Makes the endpoints that the options ask for.
    pub(crate) fn open(options: &Options) -> Result<Endpoints, Error> {
        let socket = options.status_socket.as_deref().map(status_socket::endpoint).transpose()?;
        let port = metrics_port::endpoint(options.metrics_port)?;
        Ok(Endpoints(socket.into_iter().chain(port).collect()))
    }

    /// No endpoints, whatever the options ask for.
    pub(crate) fn none() -> Endpoints {
        Endpoints(Vec::new())
    }

    /// Starts a server for each endpoint, which answers for `engine`.
    pub(crate) fn serve(self, engine: &Arc<Engine>, about: &About) -> Result<Vec<StatusServer>, Error> {
        self.0.into_iter().map(|endpoint| endpoint.serve(Arc::clone(engine), about.clone())).collect()
    }
}
