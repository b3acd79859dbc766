//! The socket and the port on which a database at work answers.

use std::sync::Arc;

use millpond_server::{Client, Endpoint, Facts, Join, Request, Server, Source, Work, metrics_port, status_socket};

use crate::base::error::Error;
use crate::base::sync;
use crate::base::waits::enter_background;
use crate::engine::Engine;
use crate::observe::metrics_text;
use crate::observe::status::{self, About};
use crate::open::requests;
use crate::options::Options;

/// The threads that answer, until dropped.
pub(crate) type Servers = Vec<Server>;

/// The endpoints that options ask for, made and not served yet.
pub(crate) struct Endpoints(Vec<Endpoint>);

impl Endpoints {
    /// Makes the endpoints that the options ask for.
    pub(crate) fn open(options: &Options) -> Result<Endpoints, Error> {
        let refused = |message: String| Error::InvalidOptions(message.into());
        let socket = options.status_socket.as_deref().map(|path| {
            status_socket(path)
                .map_err(|why| refused(format!("status_socket {why}; name another path, or leave it out")))
        });
        let port = (options.metrics_port != 0).then_some(options.metrics_port).map(|port| {
            let advice = "name another port, or leave it out";
            metrics_port(port).map_err(|why| refused(format!("metrics_port {port} cannot be taken: {why}; {advice}")))
        });
        Ok(Endpoints(socket.into_iter().chain(port).collect::<Result<_, _>>()?))
    }

    /// No endpoints, whatever the options ask for.
    pub(super) fn none() -> Endpoints {
        Endpoints(Vec::new())
    }

    /// Starts a server for each endpoint, which answers for `engine`.
    pub(super) fn serve(self, engine: &Arc<Engine>, about: &About) -> Result<Servers, Error> {
        let source: Arc<dyn Source> = Arc::new(Texts { engine: Arc::clone(engine), about: about.clone() });
        let serve = |endpoint: Endpoint| {
            let name = endpoint.thread();
            endpoint.serve(Arc::clone(&source), start).map_err(|e| Error::thread(name, e))
        };
        self.0.into_iter().map(serve).collect()
    }
}

/// Starts a server's thread through the engine's seam.
fn start(name: &'static str, work: Work) -> std::io::Result<Join> {
    let thread = sync::spawn(name, move || {
        enter_background();
        work();
    })?;
    Ok(Box::new(move || {
        // A panic of a server is no reason not to close.
        let _ = thread.join();
    }))
}

/// The engine as its servers see it.
struct Texts {
    engine: Arc<Engine>,
    about: About,
}

impl Source for Texts {
    fn status(&self, is_a_look: bool) -> String {
        status::text(&self.engine, &self.about, is_a_look)
    }

    fn prometheus(&self) -> String {
        metrics_text::prometheus(&self.engine)
    }

    fn json(&self) -> String {
        metrics_text::json(&self.engine)
    }

    fn work(&self, request: Request, client: &mut Client) -> Result<Facts, String> {
        requests::answer(&self.engine, &self.about, request, client).map_err(|error| error.to_string())
    }
}
