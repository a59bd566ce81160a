//! `tools/call`: starts a run and follows it until it ends, waits, or takes too long.

mod progress;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

pub(crate) use self::progress::Progress;
use crate::api::{Api, Reply, Request};
use crate::ask::{self, Asked, Faults};
use crate::catalog::{Catalog, MAX_RUNS, Target, Tool};
use crate::command;
use crate::find;
use crate::joined::{self, Key, Unfinished};
use crate::result::{Run, ToolResult};
use crate::schema;
use crate::service::{Context, Service};
use crate::settings::OnCancel;
use crate::task;
use crate::wire::{Outcome, Params, RpcError};

/// Duration after which a call becomes a task.
const TASK: Duration = Duration::from_secs(2);

/// `tools/call`.
pub(crate) async fn call(service: &Service, context: &Context, params: &Params) -> Outcome {
    let name = params.text("name")?;
    let empty = RawValue::from_string("{}".to_owned()).map_err(|e| RpcError::internal(e.to_string()))?;
    let arguments = params.arguments.as_ref().unwrap_or(&empty);
    if !is_object(arguments) {
        return Err(RpcError::params("`arguments` must be an object"));
    }
    // The run uses the current definition, whatever was listed.
    if let Some(target) = service.target(name) {
        return match run(service, context, params, &target, arguments).await {
            Err(Failed::Refused(reply)) => {
                let catalog = service.catalog(context).await?;
                let refused = Failed::Refused(reply);
                if catalog.tool(name).is_none() { Err(catalog.unknown(name)) } else { refused.outcome() }
            }
            outcome => outcome.or_else(Failed::outcome),
        };
    }
    let catalog = service.catalog(context).await?;
    let tool = catalog.tool(name).ok_or_else(|| catalog.unknown(name))?;
    match tool {
        Tool::Run(target) => run(service, context, params, &target, arguments).await.or_else(Failed::outcome),
        Tool::Call => compact(service, context, params, &catalog, arguments).await,
        fixed => fixed_tool(service, &catalog, &fixed, arguments).await,
    }
}

/// `etude_call`: calls a tool that is not listed, so that the client may not know its schema.
async fn compact(
    service: &Service,
    context: &Context,
    params: &Params,
    catalog: &Catalog,
    arguments: &RawValue,
) -> Outcome {
    let mut members = Arguments::new(arguments, &["tool", "arguments"]);
    let target = match members.required("tool").map(|tool| catalog.called(&tool)) {
        Some(Ok(target)) => Some(target),
        Some(Err(why)) => {
            members.fault("tool", why);
            None
        }
        None => None,
    };
    let empty = || RawValue::from_string("{}".to_owned()).map_err(|e| RpcError::internal(e.to_string()));
    let inner = members.raw("arguments").map_or_else(empty, Ok)?;
    if !is_object(&inner) {
        members.fault("arguments", "`arguments` must be an object".to_owned());
    }
    let Some(target) = target.filter(|_| members.problem().is_none()) else {
        let problem = ToolResult::problem(&members.problem().unwrap_or_else(|| reply("{}")), true);
        return match target {
            Some(target) => problem.with_schema(&target.name, schema::inlined(&target.input)).to_raw(),
            None => problem.to_raw(),
        };
    };
    match run(service, context, params, target, &inner).await {
        Err(Failed::Refused(reply)) => {
            let problem = ToolResult::problem(&reply, true);
            let is_of_arguments = reply.status == 422 && has_fields(&reply);
            if is_of_arguments {
                problem.with_schema(&target.name, schema::inlined(&target.input)).to_raw()
            } else {
                problem.to_raw()
            }
        }
        outcome => outcome.or_else(Failed::outcome),
    }
}

/// True if a refusal is about members of the input.
fn has_fields(reply: &Reply) -> bool {
    let problem: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    problem["errors"].as_array().is_some_and(|errors| !errors.is_empty())
}

fn is_object(value: &RawValue) -> bool {
    value.get().trim_start().starts_with('{')
}

fn reply(body: &str) -> Reply {
    Reply { status: 422, body: body.as_bytes().to_vec() }
}

/// Arguments of a fixed tool or a command, with the faults found so far.
pub(crate) struct Arguments {
    members: serde_json::Map<String, Value>,
    raw: std::collections::BTreeMap<String, Box<RawValue>>,
    faults: Vec<Value>,
}

impl Arguments {
    pub(crate) fn new(arguments: &RawValue, known: &[&str]) -> Self {
        let members: serde_json::Map<String, Value> = serde_json::from_str(arguments.get()).unwrap_or_default();
        let raw = serde_json::from_str(arguments.get()).unwrap_or_default();
        let mut out = Self { members, raw, faults: Vec::new() };
        let unknown: Vec<String> = out.members.keys().filter(|name| !known.contains(&name.as_str())).cloned().collect();
        for name in unknown {
            out.fault(&name, format!("there is no argument `{name}`; the tool has {}", known.join(", ")));
        }
        out
    }

    pub(crate) fn fault(&mut self, name: &str, detail: String) {
        self.faults.push(json!({"pointer": format!("/{name}"), "detail": detail}));
    }

    fn raw(&self, name: &str) -> Option<Box<RawValue>> {
        self.raw.get(name).cloned()
    }

    fn required(&mut self, name: &str) -> Option<String> {
        let value = self.members.get(name).and_then(Value::as_str).map(str::to_owned);
        if value.is_none() {
            self.fault(name, format!("`{name}` is required and must be a string"));
        }
        value
    }

    /// The member `name` as a text; `None` if it is absent.
    pub(crate) fn optional(&mut self, name: &str) -> Option<String> {
        match self.members.get(name) {
            None | Some(Value::Null) => None,
            Some(_) => self.required(name),
        }
    }

    /// The member `name` as a list of texts; empty if it is absent.
    pub(crate) fn texts(&mut self, name: &str) -> Vec<String> {
        match self.members.get(name).map(|value| serde_json::from_value(value.clone())) {
            None => Vec::new(),
            Some(Ok(texts)) => texts,
            Some(Err(_)) => {
                self.fault(name, format!("`{name}` must be an array of strings"));
                Vec::new()
            }
        }
    }

    /// The problem with all faults, in the form of the interface; `None` if there are none.
    pub(crate) fn problem(&self) -> Option<Reply> {
        let details: Vec<&str> = self.faults.iter().filter_map(|fault| fault["detail"].as_str()).collect();
        let document = json!({"code": "input_invalid", "detail": details.join("; "), "errors": self.faults});
        (!self.faults.is_empty()).then(|| reply(&document.to_string()))
    }
}

/// Calls a fixed tool with one request to the interface.
async fn fixed_tool(service: &Service, catalog: &Catalog, tool: &Tool, arguments: &RawValue) -> Outcome {
    let known: &[&str] = match tool {
        Tool::Find => &["request"],
        Tool::Runs => &["status", "limit", "cursor"],
        Tool::Show => &["run_id"],
        Tool::Cancel => &["run_id", "reason"],
        _ => &["run_id", "accept_changes"],
    };
    let mut members = Arguments::new(arguments, known);
    let rest: serde_json::Map<String, Value> =
        members.members.iter().filter(|(name, _)| *name != "run_id").map(|(n, v)| (n.clone(), v.clone())).collect();
    let body = Value::from(rest).to_string();
    let requests: Vec<Request> = match tool {
        Tool::Find => {
            members.required("request");
            catalog.apps.iter().map(|app| Request::post(format!("/v1/apps/{app}/route"), body.clone())).collect()
        }
        Tool::Runs => {
            // Clients accept smaller results from a tool than programs from the interface.
            members.members.entry("limit").or_insert_with(|| MAX_RUNS.into());
            let pairs: Vec<String> = ["status", "limit", "cursor"]
                .into_iter()
                .filter_map(|name| {
                    let value = members.members.get(name)?;
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    Some(format!("{name}={}", escaped(&text)))
                })
                .collect();
            vec![Request::get(format!("/v1/runs?{}", pairs.join("&")))]
        }
        _ => {
            let id = members.required("run_id").unwrap_or_default();
            let path = format!("/v1/runs/{}", escaped(&id));
            vec![match tool {
                Tool::Show => Request::get(path),
                Tool::Cancel => Request::post(format!("{path}/cancel"), body),
                _ => Request::post(format!("{path}/resume"), body),
            }]
        }
    };
    if let Some(problem) = members.problem() {
        return ToolResult::problem(&problem, false).to_raw();
    }
    if matches!(tool, Tool::Find) {
        return find(service, catalog, requests, &members.required("request").unwrap_or_default()).await;
    }
    let mut last = reply("{}");
    for request in requests {
        last = service.api.send(request).await;
    }
    if last.status == 404 {
        return ToolResult::problem(&no_run(&last), false).to_raw();
    }
    if !(200..300).contains(&last.status) {
        return ToolResult::problem(&last, false).to_raw();
    }
    let result = match tool {
        Tool::Show => ToolResult::run_document(&last.body),
        Tool::Cancel => ToolResult::cancellation(&last.body),
        _ => ToolResult::document(&last.body),
    };
    result.map_err(RpcError::internal)?.to_raw()
}

/// The refusal of an unknown run, with a hint: an id prefix and `latest` work only on the command line.
fn no_run(refused: &Reply) -> Reply {
    let mut problem: Value = serde_json::from_slice(&refused.body).unwrap_or_default();
    if problem.is_object() && problem["hint"].is_null() {
        problem["hint"] = "give the full id of 16 characters; `etude_runs` lists the ids".into();
    }
    Reply { status: refused.status, body: problem.to_string().into_bytes() }
}

/// `etude_find`: sends one request to each app. A failing app is skipped, unless all fail.
async fn find(service: &Service, catalog: &Catalog, requests: Vec<Request>, words: &str) -> Outcome {
    let (mut routes, mut refused) = (Vec::new(), None);
    for (app, request) in catalog.apps.iter().zip(requests) {
        let reply = service.api.send(request).await;
        match serde_json::from_slice(&reply.body) {
            Ok(route) if (200..300).contains(&reply.status) => routes.push((app.as_str(), route)),
            _ => refused = Some(reply),
        }
    }
    match refused {
        Some(reply) if routes.is_empty() => ToolResult::problem(&reply, false).to_raw(),
        _ => {
            let document = find::with_tools(routes, catalog, words).to_string();
            ToolResult::document(document.as_bytes()).map_err(RpcError::internal)?.to_raw()
        }
    }
}

/// Percent-encodes a text as one segment of a path or as a value of a query.
pub(crate) fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let escape = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

/// Reason why a call has no run.
enum Failed {
    /// The run was not started.
    Refused(Reply),
    Error(RpcError),
}

impl Failed {
    fn outcome(self) -> Outcome {
        match self {
            Self::Refused(reply) => ToolResult::problem(&reply, true).to_raw(),
            Self::Error(error) => Err(error),
        }
    }
}

impl From<RpcError> for Failed {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

/// Calls a pipeline, machine or command.
async fn run(
    service: &Service,
    context: &Context,
    params: &Params,
    target: &Target,
    arguments: &RawValue,
) -> Result<Box<RawValue>, Failed> {
    let api = &service.api;
    if let Some(command) = &target.command {
        return Ok(command::call(&**api, context, target, command, arguments).await?);
    }
    let settings = context.settings(&target.app);
    let key = joined::key(api.caller(), target, arguments.get());
    let care = {
        let (unfinished, api, on_cancel) = (Arc::clone(&service.unfinished), Arc::clone(api), settings.on_cancel);
        move |run_id| Abandoned { unfinished, api, on_cancel, key: Some(key), run_id }
    };
    let (mut abandoned, repeated) = match params.members.get("requestState") {
        Some(state) => {
            let (run_id, faults) = ask::resumed(service, context, state, params).await?;
            (care(run_id), Some(faults))
        }
        None => (begin(service, target, arguments, &key, care).await.map_err(Failed::Refused)?, None),
    };
    let run_id = abandoned.run_id.clone();
    let limit = if context.has_tasks() { TASK } else { settings.answer_within };
    let followed = follow(service, context, &run_id, limit, repeated.as_ref()).await?;
    match followed {
        Followed::Task(run) => {
            abandoned.key = None;
            Ok(task::created(service, context, &run)?)
        }
        Followed::Asks(result) => {
            abandoned.key = None;
            Ok(result)
        }
        Followed::Result { result, is_over } => {
            if !is_over {
                // The client knows the run's id, but its model may just call again.
                service.unfinished.leave(key, &run_id);
            }
            abandoned.key = None;
            Ok(result.to_raw()?)
        }
    }
}

/// The status of a run that was cancelled.
const CANCELLED: &str = "cancelled";

/// Starts a run, or joins that of an equal, abandoned call. Returns the run, or the refusal. If the call is abandoned meanwhile,
/// its run starts anyway, and `care` handles it.
async fn begin(
    service: &Service,
    target: &Target,
    arguments: &RawValue,
    key: &Key,
    care: impl FnOnce(String) -> Abandoned + Send + 'static,
) -> Result<Abandoned, Reply> {
    // A cancelled run is not joined.
    if let Some(run_id) = service.unfinished.take(key)
        && service.api.status(&run_id).await.is_some_and(|status| status != CANCELLED)
    {
        return Ok(care(run_id));
    }
    let (app, of) = (Value::from(target.app.as_str()), Value::from(target.of.as_str()));
    let body = format!("{{\"app\":{app},\"{}\":{of},\"input\":{}}}", target.kind, arguments.get());
    let (api, (started, starting)) = (Arc::clone(&service.api), oneshot::channel());
    tokio::spawn(async move {
        let reply = api.send(Request::post("/v1/runs", body)).await;
        let begun = match (reply.status, Run::parse(&reply.body)) {
            (201, Some(run)) => Ok(care(run.run_id)),
            _ => Err(reply),
        };
        // If the call was abandoned, its guard is dropped here.
        drop(started.send(begun));
    });
    starting.await.unwrap_or_else(|_| Err(Reply { status: 500, body: Vec::new() }))
}

/// Guard of a run whose call may be abandoned: then its future is dropped before the end.
struct Abandoned {
    unfinished: Arc<Unfinished>,
    api: Arc<dyn Api>,
    on_cancel: OnCancel,
    /// `None` once the call has a result.
    key: Option<Key>,
    run_id: String,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        match self.on_cancel {
            OnCancel::Leave => self.unfinished.leave(key, &self.run_id),
            OnCancel::Cancel => {
                let (api, path) = (Arc::clone(&self.api), format!("/v1/runs/{}/cancel", self.run_id));
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { api.send(Request::post(path, "{}")).await });
                }
            }
        }
    }
}

/// Outcome of following a run.
enum Followed {
    /// The call is a task now, and the client polls it.
    Task(Box<Run>),
    /// The client has to answer a question first.
    Asks(Box<RawValue>),
    /// The result; `is_over` is true if the run has ended.
    Result { result: ToolResult, is_over: bool },
}

/// Follows a run until it ends, waits for an answer that the client cannot give now, or takes longer than `limit`, or until the
/// server stops. `repeated`: the client has been asked before, and has the faults of its answers.
async fn follow(
    service: &Service,
    context: &Context,
    run_id: &str,
    limit: Duration,
    repeated: Option<&Faults>,
) -> Result<Followed, RpcError> {
    let api = &*service.api;
    let (mut news, mut stopping) = (api.news(run_id), api.stopping());
    let mut progress = Progress::new(context, progress::INTERVAL);
    let deadline = Instant::now() + limit;
    loop {
        let status = api.status(run_id).await.ok_or_else(|| RpcError::internal("the run no longer exists"))?;
        progress.steps(api, run_id).await;
        let is_over = matches!(status.as_str(), "succeeded" | "failed" | "cancelled");
        // Without the run's id, the client of a server that stops would start another run.
        let is_late = Instant::now() >= deadline || *stopping.borrow();
        if is_over || is_late || status == "waiting" {
            let run = read(api, run_id).await?;
            if is_over {
                let result = ToolResult::of_run(api, &run, "", Vec::new()).map_err(RpcError::internal)?;
                return Ok(Followed::Result { result, is_over });
            }
            if context.has_tasks() {
                return Ok(Followed::Task(Box::new(run)));
            }
            let asked = ask::ask(service, context, &run, &mut news, deadline, repeated).await?;
            let note = match asked {
                Asked::Continue => continue,
                Asked::Result(result) => return Ok(Followed::Asks(result)),
                Asked::Link(note) => note,
                Asked::Nothing if is_late => running_note(api, &run),
                Asked::Nothing => String::new(),
            };
            if !note.is_empty() {
                let result = ToolResult::of_run(api, &run, &note, ask::open(&run, run.url(api).as_deref()))
                    .map_err(RpcError::internal)?;
                return Ok(Followed::Result { result, is_over });
            }
        }
        tokio::select! {
            changed = news.changed() => changed.map_err(|_| RpcError::internal("the server is stopping"))?,
            () = sleep_until(deadline), if !is_late => {}
            Ok(_) = stopping.wait_for(|stop| *stop), if !is_late => {}
            () = progress.tick() => {}
        }
    }
}

fn running_note(api: &dyn Api, run: &Run) -> String {
    let id = &run.run_id;
    let page = run.url(api).map(|url| format!("\n{url}")).unwrap_or_default();
    format!(
        "Run {id} is still {}. Read it later with `etude_show` and the run_id `{id}`; `etude_cancel` ends it. An equal call waits for \
         the same run.{page}",
        run.status
    )
}

/// The document of a run.
pub(crate) async fn read(api: &dyn Api, run_id: &str) -> Result<Run, RpcError> {
    let reply = api.send(Request::for_call(format!("/v1/runs/{}", escaped(run_id)))).await;
    match (reply.status, Run::parse(&reply.body)) {
        (200, Some(run)) => Ok(run),
        _ => Err(RpcError::internal(crate::result::sentence(&reply))),
    }
}
