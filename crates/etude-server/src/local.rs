//! Requests on their way to a route, including those that pages and the protocol of agents make in this process.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use etude_runtime::engine::Cause;
use http::Request;
use tower_service::Service;

use crate::listen::Peer;
use crate::problem::Problem;
use crate::reading::Readings;
use crate::server::Server;
use crate::token::Caller;

/// The findings of the checks before routing.
#[derive(Clone)]
pub(crate) struct Entered {
    pub(crate) server: Arc<Server>,
    /// All routes.
    pub(crate) router: Router,
    pub(crate) caller: Option<Caller>,
    pub(crate) peer: Peer,
    /// The cause of runs that the request starts.
    pub(crate) cause: Cause,
    pub(crate) readings: Readings,
}

/// The response of a route to a request that was made in this process.
pub(crate) async fn local(entered: Entered, mut request: Request<Body>) -> Result<Response, Problem> {
    let mut router = entered.router.clone();
    request.extensions_mut().insert(entered);
    // The router is always ready, and its errors are responses.
    let Ok(mut response) = router.call(request).await;
    match response.extensions_mut().remove::<Failed>() {
        Some(Failed(problem)) => Err(problem),
        None => Ok(response),
    }
}

/// A problem inside a response; it is written later, with the request's id.
#[derive(Debug, Clone)]
pub(crate) struct Failed(pub(crate) Problem);

/// A response that carries a problem until it is written.
pub(crate) fn failed(problem: Problem) -> Response {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(Failed(problem));
    response
}
