//! An open without the feature `server`: refuses a socket and a port.

use std::convert::Infallible;
use std::sync::Arc;

use crate::base::error::Error;
use crate::engine::Engine;
use crate::observe::status::About;
use crate::options::Options;

/// No thread answers.
pub(crate) type Servers = Vec<Infallible>;

/// No endpoints: this build has no server.
pub(crate) struct Endpoints;

impl Endpoints {
    /// Refuses options that ask for an endpoint.
    pub(crate) fn open(options: &Options) -> Result<Endpoints, Error> {
        let socket = options.status_socket.as_ref().map(|_| "status_socket");
        let port = (options.metrics_port != 0).then_some("metrics_port");
        let asked: Vec<_> = socket.into_iter().chain(port).collect();
        if asked.is_empty() {
            return Ok(Endpoints);
        }
        let asked = asked.join(" and ");
        let message = format!(
            "{asked} cannot be served: millpond was built without its feature 'server'; build it with the feature, \
             or leave the option out"
        );
        Err(Error::InvalidOptions(message.into()))
    }

    pub(super) fn none() -> Endpoints {
        Endpoints
    }

    pub(super) fn serve(self, _: &Arc<Engine>, _: &About) -> Result<Servers, Error> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_server_are_refused_with_the_name_of_the_feature() {
        assert!(Endpoints::open(&Options::new()).is_ok());
        for (options, name) in [
            (Options::new().status_socket("socket"), "status_socket"),
            (Options::new().metrics_port(1), "metrics_port"),
        ] {
            let Err(Error::InvalidOptions(message)) = Endpoints::open(&options) else {
                panic!("{name} was not refused")
            };
            assert!(message.contains(name) && message.contains("feature 'server'"), "{message}");
        }
    }
}
