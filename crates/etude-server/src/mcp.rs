//! The protocol of agents: `/mcp`, and `etude mcp` on a pair of streams. Both call the routes of `/v1` in this process.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use etude_mcp::{
    Api, Configuring, Finding, Listing, Method, Reply, Replying, Request, SealKey, Service, Skill, Transport,
};
use etude_runtime::engine::Cause;
use etude_spec::serve::{Approvals, Mcp, OnCancel};
use http::header::{CONTENT_TYPE, RANGE};
use http_body_util::BodyExt;
use tokio::sync::watch;

use crate::blocking::blocking;
use crate::listen::Peer;
use crate::local::{Entered, local};
use crate::problem::{Code, Problem};
use crate::reading::Readings;
use crate::server::Server;
use crate::settings::ServedApp;
use crate::token::{Caller, Scope};

pub(crate) mod beside;
pub(crate) mod changes;
pub(crate) mod post;

/// The routes, restricted to one caller of the protocol.
struct Routes {
    server: Arc<Server>,
    router: Router,
    caller: Caller,
}

/// The protocol service for a caller, on the routes of `router`.
pub(crate) fn protocol(
    server: &Arc<Server>,
    router: Router,
    caller: Caller,
    transport: Transport,
) -> Result<Service, String> {
    let secret = server.tokens().owner().map_err(|error| error.to_string())?;
    let routes = Arc::new(Routes { server: Arc::clone(server), router, caller });
    let service = Service::new(routes, transport, SealKey::derive(&secret), &server.settings().version);
    Ok(service.unfinished(Arc::clone(&server.protocol_shared().unfinished)))
}

/// The settings of the protocol, from `serve.mcp` of an app's configuration.
fn settings(mcp: &Mcp) -> etude_mcp::Settings {
    let defaults = etude_mcp::Settings::default();
    etude_mcp::Settings {
        read_only: mcp.read_only.clone(),
        answer_within: mcp.answer_within_ms.map_or(defaults.answer_within, Duration::from_millis),
        on_cancel: match mcp.on_cancel {
            OnCancel::Leave => etude_mcp::OnCancel::Leave,
            OnCancel::Cancel => etude_mcp::OnCancel::Cancel,
        },
        approvals: match mcp.approvals {
            Approvals::Page => etude_mcp::Approvals::Page,
            Approvals::Client => etude_mcp::Approvals::Client,
        },
    }
}

impl Routes {
    async fn respond(&self, request: Request) -> Reply {
        let bug = || Reply { status: 500, body: Vec::new() };
        let refused = |problem: &Problem| {
            let document = problem.to_json(&self.server.settings().base_path, "");
            Reply { status: problem.code().status(), body: document.to_string().into_bytes() }
        };
        if request.method == Method::Post && self.server.context().is_draining() {
            return refused(&Problem::new(Code::Draining, "the server is stopping and starts no new runs"));
        }
        let mut caller = self.caller.clone();
        if let Some(decider) = request.decider {
            // The client answers on behalf of the token's owner.
            caller = Caller { name: decider, scopes: vec![Scope::Read, Scope::Approve], ..caller };
        }
        if request.is_of_call && request.method == Method::Get && !caller.may(Scope::Read) {
            caller.scopes.push(Scope::Read);
        }
        let method = match request.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
        };
        let is_start = request.method == Method::Post && request.path == "/v1/runs";
        let body = request.body.map_or_else(Body::empty, Body::from);
        let built = http::Request::builder().method(method).uri(request.path).header(CONTENT_TYPE, "application/json");
        let built = match request.first_bytes {
            Some(count) => built.header(RANGE, format!("bytes=0-{}", count.saturating_sub(1))),
            None => built,
        };
        let Ok(built) = built.body(body) else { return bug() };
        let (server, router) = (Arc::clone(&self.server), self.router.clone());
        let has_no_pages =
            is_start && server.context().origin().is_none() && server.protocol_shared().others_pages().is_none();
        let readings = Readings::default();
        let entered = Entered { server, router, caller: Some(caller), peer: Peer::Socket, cause: Cause::Mcp, readings };
        let response = match local(entered, built).await {
            Ok(response) => response,
            Err(problem) => return refused(&problem),
        };
        let status = response.status().as_u16();
        if has_no_pages && status == 201 {
            // Look before the run asks a question: a person decides on its page.
            beside::look(&self.server).await;
        }
        match response.into_body().collect().await {
            Ok(body) => Reply { status, body: body.to_bytes().to_vec() },
            Err(_) => bug(),
        }
    }
}

impl Api for Routes {
    fn send(&self, request: Request) -> Replying<'_> {
        Box::pin(self.respond(request))
    }

    fn status<'a>(&'a self, run_id: &'a str) -> Finding<'a> {
        let (server, caller, id) = (Arc::clone(&self.server), self.caller.clone(), run_id.to_owned());
        Box::pin(async move {
            let row = blocking(move || server.context().visible(&caller, &id)).await.ok()?;
            Some(etude_runs::listing::status(&row).to_owned())
        })
    }

    fn settings(&self) -> Configuring<'_> {
        let server = Arc::clone(&self.server);
        Box::pin(async move {
            let read = blocking(move || {
                // An unreadable file changes no setting; `etude check` reports it.
                let of =
                    |app: &ServedApp| Some((app.slug.clone(), settings(&server.context().automation(app).ok()?.mcp)));
                Ok(server.settings().apps.iter().filter_map(of).collect())
            });
            read.await.unwrap_or_default()
        })
    }

    fn skills(&self) -> Listing<'_> {
        let (server, caller) = (Arc::clone(&self.server), self.caller.clone());
        Box::pin(async move {
            let listed = blocking(move || {
                let apps = server.settings().apps.iter().filter(|_| caller.may(Scope::Read));
                let of = |app: &ServedApp| {
                    let skills = server.apps().skills(&app.dir).into_iter();
                    skills
                        .filter(|(name, _)| caller.covers(name))
                        .map(|(name, description)| Skill { app: app.slug.clone(), name, description })
                        .collect::<Vec<_>>()
                };
                Ok(apps.flat_map(of).collect())
            });
            listed.await.unwrap_or_default()
        })
    }

    fn skill<'a>(&'a self, skill: &'a Skill) -> Finding<'a> {
        let (server, skill) = (Arc::clone(&self.server), skill.clone());
        Box::pin(async move {
            let text = blocking(move || {
                Ok(server.context().app(&skill.app).and_then(|app| server.apps().skill(&app.dir, &skill.name)))
            });
            text.await.ok().flatten()
        })
    }

    fn news(&self, run_id: &str) -> watch::Receiver<()> {
        self.server.stories().news_of_run(run_id)
    }

    fn definitions(&self) -> watch::Receiver<u64> {
        self.server.protocol_shared().definitions.subscribe()
    }

    fn stopping(&self) -> watch::Receiver<bool> {
        self.server.context().stopping()
    }

    fn caller(&self) -> &str {
        &self.caller.name
    }

    fn may(&self, scope: &str) -> bool {
        Scope::from_word(scope).is_some_and(|scope| self.caller.may(scope))
    }

    fn covers(&self, name: &str) -> bool {
        self.caller.covers(name)
    }

    fn pages(&self) -> Option<String> {
        self.server.context().origin().or_else(|| self.server.protocol_shared().others_pages().clone())
    }
}
