//! The table of routes: method, path, scope, parameters, body and handler.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::RawPathParams;
use axum::response::Response;
use axum::routing::any;
use http::{Method, Request};
use tokio::sync::Mutex;

use crate::actions::Action;
use crate::blocking::reading;
use crate::local::{Entered, failed};
use crate::oauth::resource;
use crate::problem::{Code, Problem};
use crate::query::Query;
use crate::request::{self, Call, FORM, Respond, Responding};
use crate::token::Scope;
use crate::{api, key, mcp, once, page};

/// Default maximum size of a body, in bytes.
const BODY: usize = 1024 * 1024;

/// The body that a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// No body; the bytes of a request are not read.
    Nothing,
    /// A JSON object of at most this many bytes.
    Json(usize),
    /// The fields of an HTML form; only pages take one.
    Form,
    /// Bytes of any media type, at most this many.
    Bytes(usize),
}

/// The permission that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Neither token nor session: health, login and incoming webhooks.
    Nothing,
    /// A token of any scope.
    Token,
    /// A token with this scope.
    Scope(Scope),
}

/// A route: method, path, and the requirements of a request. One line of the table of the interface.
#[derive(Clone, Copy)]
pub struct Route {
    /// The method; `GET` includes `HEAD`.
    pub method: &'static str,
    /// The pattern of the path.
    pub path: &'static str,
    /// The permission that the caller needs.
    pub needs: Needs,
    /// The allowed names of query parameters.
    pub parameters: &'static [&'static str],
    /// The body that the route reads, with its limit.
    pub takes: Takes,
    handler: fn(Call) -> Responding,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

macro_rules! table {
    ($($method:ident $path:literal $needs:ident $parameters:tt $takes:expr => $handler:path;)*) => {
        &[$(Route {
            method: stringify!($method),
            path: $path,
            needs: table!(needs $needs),
            parameters: &$parameters,
            takes: $takes,
            handler: |call| Box::pin($handler(call)),
        }),*]
    };
    (needs none) => { Needs::Nothing };
    (needs token) => { Needs::Token };
    (needs $scope:ident) => { Needs::Scope(Scope::$scope) };
}

use Takes::{Bytes, Form, Json, Nothing};

const TABLE: &[Route] = table! {
    GET "/healthz" none [] Nothing => api::about::health;
    GET "/readyz" none [] Nothing => api::about::readiness;
    GET "/" Read ["status", "app", "pipeline", "machine", "cause", "label", "q", "since", "until", "days", "cursor", "shown"] Nothing => page::runs::list;
    GET "/decisions" Read ["at"] Nothing => page::decisions::list;
    GET "/decisions/{id}" Read ["at"] Nothing => page::decisions::show;
    POST "/decisions/{id}" Approve [] Form => page::decisions::decide;
    GET "/apps" Read [] Nothing => page::apps::list;
    GET "/apps/{app}" Read [] Nothing => page::apps::show;
    GET "/apps/{app}/pipelines/{pipeline}" Read [] Nothing => page::target::show;
    POST "/apps/{app}/pipelines/{pipeline}" Run [] Form => page::target::start;
    GET "/apps/{app}/machines/{machine}" Read [] Nothing => page::target::show;
    POST "/apps/{app}/machines/{machine}" Run [] Form => page::target::start;
    GET "/apps/{app}/learned" Read [] Nothing => page::learned::list;
    GET "/apps/{app}/learned/{pipeline}" Read [] Nothing => page::learned::show;
    POST "/apps/{app}/learned/{pipeline}" Admin [] Form => page::learned::act;
    GET "/runs/{id}/log/{effect}/{stream}" Read ["from", "to", "q", "end", "wrap"] Nothing => page::log::show;
    GET "/schedules" Read [] Nothing => page::schedules::list;
    GET "/schedules/{app}/{name}" Read ["cursor"] Nothing => page::schedules::show;
    POST "/schedules/{app}/{name}/{action}" Run [] Form => page::schedules::act;
    GET "/webhooks" Read [] Nothing => page::webhooks::list;
    GET "/webhooks/{app}/{name}" Read ["cursor"] Nothing => page::webhooks::webhook;
    GET "/notices/{app}/{name}" Read ["cursor"] Nothing => page::webhooks::notice;
    POST "/notices/{app}/{name}/{delivery}" Admin [] Form => page::webhooks::redeliver;
    GET "/server" Read [] Nothing => page::about::server;
    GET "/live" Read [] Nothing => api::stream::live;
    GET "/runs/{id}" Read ["at", "after", "items"] Nothing => page::run::show;
    POST "/runs/{id}/{action}" Run [] Form => page::run::act;
    GET "/metrics" Read [] Nothing => api::metrics::show;
    GET "/login" none [] Nothing => page::login;
    POST "/login" none [] Form => api::login::login;
    POST "/logout" token [] Nothing => api::login::logout;
    GET "/assets/{version}/{name}" none [] Nothing => page::asset;
    GET "/problems/{code}" token [] Nothing => page::problem;
    GET "/v1/openapi.json" Read [] Nothing => api::about::openapi;
    GET "/v1/me" Read [] Nothing => api::about::me;
    GET "/v1/server" Read [] Nothing => api::about::server;
    GET "/v1/runs" Read ["status", "app", "pipeline", "machine", "cause", "label", "q", "since", "until", "limit", "cursor"] Nothing => api::run::list;
    POST "/v1/runs" Run ["dry_run"] Json(api::start::BODY) => api::start::start;
    GET "/v1/runs/counts" Read ["status", "app", "pipeline", "machine", "cause", "label", "q", "since", "until"] Nothing => api::run::counts;
    GET "/v1/runs/stats" Read ["status", "app", "pipeline", "machine", "cause", "label", "q", "since", "until", "limit", "by"] Nothing => api::stats::stats;
    GET "/v1/runs/{id}" Read ["brief"] Nothing => api::run::show;
    DELETE "/v1/runs/{id}" Admin [] Nothing => api::act::delete;
    POST "/v1/runs/{id}/cancel" Run [] Json(BODY) => api::act::cancel;
    POST "/v1/runs/{id}/resume" Run [] Json(BODY) => api::act::resume;
    POST "/v1/runs/{id}/retry" Run [] Json(BODY) => api::act::retry;
    POST "/v1/runs/{id}/again" Run [] Json(api::start::BODY) => api::rerun::rerun;
    GET "/v1/decisions" Read ["run", "limit", "cursor"] Nothing => api::decision::list;
    GET "/v1/decisions/{id}" Read [] Nothing => api::decision::show;
    POST "/v1/decisions/{id}" Approve [] Json(BODY) => api::decision::decide;
    GET "/v1/runs/{id}/events" Read ["after", "limit"] Nothing => api::stream::events;
    GET "/v1/runs/{id}/output" Read [] Nothing => api::run::output;
    GET "/v1/runs/{id}/input" Read [] Nothing => api::run::input;
    GET "/v1/runs/{id}/tree" Read ["parent", "after", "around", "status", "limit"] Nothing => api::tree::show;
    GET "/v1/runs/{id}/details" Read [] Nothing => api::detail::show;
    POST "/v1/runs/{id}/judge" Run [] Json(BODY) => api::detail::judge;
    GET "/v1/runs/{id}/effects" Read ["node", "after", "limit"] Nothing => api::effect::list;
    GET "/v1/runs/{id}/effects/{effect}" Read [] Nothing => api::effect::show;
    GET "/v1/runs/{id}/effects/{effect}/{stream}" Read ["tail"] Nothing => api::effect::stream;
    GET "/v1/apps/{app}/pipelines/{pipeline}" Read [] Nothing => api::definition::show;
    GET "/v1/apps/{app}/pipelines/{pipeline}/schema" Read [] Nothing => api::definition::schema;
    GET "/v1/apps/{app}/pipelines/{pipeline}/graph" Read ["format", "run"] Nothing => api::definition::graph;
    GET "/v1/apps/{app}/machines/{machine}" Read [] Nothing => api::definition::show;
    GET "/v1/apps/{app}/machines/{machine}/schema" Read [] Nothing => api::definition::schema;
    GET "/v1/apps/{app}/machines/{machine}/graph" Read ["format", "run"] Nothing => api::definition::graph;
    GET "/v1/events" Read [] Nothing => api::stream::feed;
    GET "/v1/apps" Read [] Nothing => api::app::list;
    GET "/v1/apps/{app}" Read [] Nothing => api::app::show;
    POST "/v1/apps/{app}/route" Read [] Json(BODY) => api::app::route;
    POST "/v1/apps/{app}/commands/{slug}" Run [] Json(BODY) => api::app::command;
    GET "/v1/apps/{app}/learned" Read [] Nothing => api::learned::list;
    GET "/v1/apps/{app}/learned/{pipeline}" Read [] Nothing => api::learned::show;
    POST "/v1/apps/{app}/learned/{pipeline}/promote" Admin [] Json(BODY) => api::learned::promote;
    POST "/v1/apps/{app}/learned/{pipeline}/demote" Admin [] Json(BODY) => api::learned::demote;
    GET "/v1/schedules" Read [] Nothing => api::schedule::list;
    GET "/v1/schedules/{app}/{name}" Read [] Nothing => api::schedule::show;
    GET "/v1/schedules/{app}/{name}/next" Read ["count", "from"] Nothing => api::schedule::next;
    GET "/v1/schedules/{app}/{name}/ticks" Read ["limit", "cursor"] Nothing => api::schedule::ticks;
    POST "/v1/schedules/{app}/{name}/pause" Run [] Json(BODY) => api::schedule::pause;
    POST "/v1/schedules/{app}/{name}/unpause" Run [] Json(BODY) => api::schedule::unpause;
    POST "/v1/schedules/{app}/{name}/fire" Run [] Json(BODY) => api::schedule::fire;
    POST "/v1/schedules/{app}/{name}/backfill" Run [] Json(BODY) => api::schedule::backfill;
    POST "/in/{app}/{name}" none [] Bytes(api::webhook::BODY) => api::webhook::receive;
    GET "/v1/actions" Read ["run", "app", "schedule", "limit", "cursor"] Nothing => api::action::list;
    GET "/v1/webhooks" Read [] Nothing => api::webhook::list;
    GET "/v1/webhooks/{app}/{name}/deliveries" Read ["limit", "cursor"] Nothing => api::webhook::deliveries;
    GET "/v1/notices" Read [] Nothing => api::notice::list;
    GET "/v1/notices/{app}/{name}/deliveries" Read ["limit", "cursor"] Nothing => api::notice::deliveries;
    POST "/v1/notices/{app}/{name}/deliveries/{delivery}/again" Admin [] Json(BODY) => api::notice::redeliver;
    POST "/v1/server/drain" Admin [] Json(BODY) => api::about::drain;
    POST "/mcp" token [] Json(api::start::BODY) => mcp::post::post;
    GET "/.well-known/oauth-protected-resource" none [] Nothing => api::resource::server;
    GET "/.well-known/oauth-protected-resource/mcp" none [] Nothing => api::resource::agents;
    POST "/v1/server/links" Admin [] Json(BODY) => api::login::link;
};

/// All routes of the interface and the pages, in the order of the table.
pub const fn routes() -> &'static [Route] {
    TABLE
}

/// The pattern of the matched route, which the response hands to the request log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matched(pub(crate) &'static str);

/// True if `path` can be called without a token. If no method of a path needs one, a wrong method is 405 and not 401 (S-13, S-25).
pub(crate) fn is_public(method: &Method, path: &str) -> bool {
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let fits = |route: &&Route| match route.path.split_once('{') {
        Some((start, _)) => path.starts_with(start) && path.len() > start.len(),
        None => path == route.path,
    };
    let is_wrong_method = |path: &str| {
        let mut routes = TABLE.iter().filter(|route| route.path == path);
        routes.all(|route| route.needs == Needs::Nothing && route.method != method)
    };
    let mut open = TABLE.iter().filter(|route| route.needs == Needs::Nothing).filter(fits);
    open.any(|route| route.method == method || is_wrong_method(route.path))
}

/// The pattern of the route for `path`. If several fit, literal segments win over parameters.
pub(crate) fn pattern(path: &str) -> Option<&'static str> {
    let fits = |pattern: &'static str| {
        let mut given = path.split('/');
        let mut texts = Vec::new();
        for part in pattern.split('/') {
            let is_text = !part.starts_with('{');
            let has = given.next().filter(|given| if is_text { *given == part } else { !given.is_empty() });
            has?;
            texts.push(is_text);
        }
        given.next().is_none().then_some((texts, pattern))
    };
    TABLE.iter().filter_map(|route| fits(route.path)).max().map(|(_, pattern)| pattern)
}

/// The router. It is built once; clones share it.
pub(crate) fn router() -> Router {
    static ROUTER: OnceLock<Router> = OnceLock::new();
    ROUTER.get_or_init(build).clone()
}

fn build() -> Router {
    let mut paths: Vec<&'static str> = TABLE.iter().map(|route| route.path).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut router = Router::new();
    for path in paths {
        let methods: Vec<Route> = TABLE.iter().filter(|route| route.path == path).copied().collect();
        let methods: Arc<[Route]> = methods.into();
        let handle = move |params: Result<RawPathParams, _>, request: Request<Body>| {
            let methods = Arc::clone(&methods);
            async move {
                let entered = match params {
                    Ok(params) => enter(&methods, &params, request).await,
                    Err(_) => Err(Problem::new(Code::Malformed, "the path is not percent-encoded UTF-8")),
                };
                let mut response = entered.unwrap_or_else(failed);
                response.extensions_mut().insert(Matched(path));
                response
            }
        };
        router = router.route(path, any(handle));
    }
    if cfg!(test) {
        router = router.route("/panic", any(async || -> Response { panic!("a test wants it") }));
    }
    router.fallback(async |request: Request<Body>| failed(no_route(request.uri().path())))
}

/// The problem of a path that no route has. Below `/v1`, it names the path that was probably meant.
fn no_route(path: &str) -> Problem {
    let problem = Problem::not_found("there is no such route");
    if !path.starts_with("/v1") {
        return problem;
    }
    // A pattern with parameters is as far from its own paths as from others.
    let fixed = TABLE.iter().map(|route| route.path).filter(|path| path.starts_with("/v1/") && !path.contains('{'));
    match etude_spec::did_you_mean(path, fixed) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem.hint("`GET /v1/openapi.json` lists all routes"),
    }
}

/// Checks method, scope, media type, size and parameters, then calls the handler.
async fn enter(methods: &[Route], params: &RawPathParams, request: Request<Body>) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let bug = || Problem::new(Code::Bug, "internal error: the request was not checked for access");
    let Entered { server, caller, peer, cause, readings, router } =
        parts.extensions.get::<Entered>().cloned().ok_or_else(bug)?;
    let method = if parts.method == Method::HEAD { "GET" } else { parts.method.as_str() };
    let Some(route) = methods.iter().find(|route| route.method == method) else {
        let mut allowed: Vec<&str> = methods.iter().map(|route| route.method).collect();
        if allowed.contains(&"GET") {
            allowed.push("HEAD");
        }
        let detail = format!("the route has no method {}", parts.method);
        return Err(Problem::new(Code::MethodNotAllowed, detail).allow(allowed.join(", ")));
    };
    if let Needs::Scope(scope) = route.needs
        && !caller.as_ref().is_some_and(|caller| caller.may(scope))
    {
        let problem = Problem::new(Code::ForbiddenScope, format!("the route needs the scope `{}`", scope.word()));
        let Some(caller) = &caller else { return Err(problem) };
        let base = resource::base(&server, &peer, &parts.headers);
        return Err(resource::insufficient(problem, scope, caller, base.as_deref()));
    }
    let limit = match route.takes {
        Nothing => 0,
        Json(limit) => {
            request::check_media_type(&parts.headers, "application/json")?;
            limit
        }
        Form => {
            request::check_media_type(&parts.headers, "application/x-www-form-urlencoded")?;
            // Without a token, the form is a login. Other forms may hold long texts.
            if route.needs == Needs::Nothing { FORM } else { BODY }
        }
        Bytes(limit) => limit,
    };
    if route.takes != Nothing {
        request::check_length(&parts.headers, limit)?;
    }
    if route.method == "POST" && route.path.starts_with("/v1/") {
        key::parse(&parts.headers)?;
    }
    let query = Query::parse(parts.uri.query().unwrap_or_default(), route.parameters)?;
    let params = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let (body, taken, headers) = (Mutex::new(Some(body)), Mutex::default(), parts.headers);
    let is_repeated = false;
    let call =
        Call { server, router, caller, peer, cause, readings, params, query, headers, limit, body, taken, is_repeated };
    let Some(action) = Action::of(route, &call) else { return handled(*route, call).await };
    // A request counts only once its body is complete: a client that disconnects before that has requested nothing.
    let body = if route.takes == Nothing { Body::empty() } else { Body::from(call.bytes().await?) };
    action.done(handled(*route, Call { body: Mutex::new(Some(body)), ..call })).await
}

async fn handled(route: Route, call: Call) -> Respond {
    match route.method {
        "GET" => reading((route.handler)(call)).await,
        "POST" if route.path.starts_with("/v1/") => once::once(route.path, route.handler, call).await,
        _ => (route.handler)(call).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 10: a path is logged as the pattern of the route to which the router would send it.
    #[test]
    fn a_path_has_the_pattern_of_its_route() {
        for route in TABLE {
            let path = route.path.replace('{', "a{").replace(['{', '}'], "");
            assert_eq!(pattern(&path), Some(route.path));
        }
        let given = [
            "/v1/runs/counts", "/v1/runs/x", "/v1/runs/x%2Fy/cancel", "/runs/x/cancel", "/v1/runs/", "/v1/runs/x/",
            "/v1/x",
        ];
        let wanted = [
            Some("/v1/runs/counts"),
            Some("/v1/runs/{id}"),
            Some("/v1/runs/{id}/cancel"),
            Some("/runs/{id}/{action}"),
            None,
            None,
            None,
        ];
        assert_eq!(given.map(pattern), wanted);
    }

    /// S-13, S-25: a path that needs no token with any method answers a wrong method without a token.
    #[test]
    fn a_wrong_method_of_an_open_path_needs_no_token() {
        for (method, path, expected) in [
            (Method::HEAD, "/healthz", true),
            (Method::POST, "/healthz", true),
            (Method::GET, "/in/app/push", true),
            (Method::DELETE, "/login", true),
            (Method::PUT, "/in/", false),
            (Method::GET, "/logout", false),
            (Method::GET, "/mcp", false),
            (Method::PUT, "/v1/runs", false),
            (Method::GET, "/nothing", false),
        ] {
            assert_eq!(is_public(&method, path), expected, "{method} {path}");
        }
    }
}
