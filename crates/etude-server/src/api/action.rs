//! Audit log of tokens' actions: on one run, on one schedule, or on anything.

use std::sync::Arc;

use etude_runs::listing::{ACTIONS, action_json};
use etude_runtime::engine::{Entry, EntryQuery};
use serde_json::{Value, json};

use crate::blocking::blocking;
use crate::ledger::Page;
use crate::problem::{Code, Problem};
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::response::tagged;
use crate::schedule;
use crate::token::Scope;

/// The subject whose actions are requested.
enum Subject {
    Run(String),
    /// App and name of the schedule.
    Schedule([String; 2]),
    Anything,
}

impl Subject {
    fn read(call: &Call) -> Result<Self, Problem> {
        let given = |name| call.query.get(name).map(str::to_owned);
        match (given("run"), given("app"), given("schedule")) {
            (Some(run), None, None) => Ok(Self::Run(run)),
            (None, Some(app), Some(name)) => Ok(Self::Schedule([app, name])),
            (None, None, None) => Ok(Self::Anything),
            (Some(_), ..) => Err(invalid("run", "`run` excludes the other filters")),
            (None, None, _) => Err(invalid("app", "`schedule` requires `app`")),
            (None, _, None) => Err(invalid("schedule", "`app` requires `schedule`")),
        }
    }
}

/// `GET /v1/actions`.
pub(crate) async fn list(call: Call) -> Respond {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let (subject, page) = (Subject::read(&call)?, Page::parse(&call.query, &["run", "app", "schedule"])?);
    let document = blocking(move || {
        let mut query = EntryQuery { book: ACTIONS.to_owned(), ..EntryQuery::default() };
        let mut about = None;
        match subject {
            Subject::Run(id) => query.run_id = Some(server.context().visible(&caller, &id)?.id),
            Subject::Schedule([app, name]) => {
                schedule::find(server.schedules(), &caller, &app, &name)?;
                about = Some(json!({"app": app, "name": name}));
            }
            Subject::Anything if caller.may(Scope::Admin) && caller.only.is_empty() => {}
            Subject::Anything => {
                let detail = "the actions of all tokens require the scope `admin` for all pipelines";
                let problem = Problem::new(Code::ForbiddenScope, detail);
                return Err(problem.hint("filter by one run with `run`, or by one schedule with `app` and `schedule`"));
            }
        }
        let is_wanted = |entry: &Entry| about.as_ref().is_none_or(|about| action_json(entry)["about"] == *about);
        let (entries, next) = page.read_of(server.ledger(), &query, is_wanted)?;
        let actions: Vec<Value> = entries.iter().map(action_json).collect();
        Ok(json!({"actions": actions, "next": next}))
    });
    Ok(tagged(&call.headers, document.await?.to_string()))
}
