//! Starting runs: `POST /v1/runs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::Response;
use etude::budget::Unpriced;
use etude::definition::Definition;
use etude::runner::Request;
use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_core::machine::Limits;
use etude_core::model::Usage;
use etude_runs::target::Target;
use etude_runtime::engine::{Cause, Enqueued, NewRun, Placement, Refusal, RunState, UniqueKey};
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::admission::{self, Candidate, Full, invalid_input};
use crate::app::{NotLoaded, not_loaded};
use crate::blocking::blocking;
use crate::key;
use crate::problem::{Code, Problem, engine_failed};
use crate::request::{Call, Members, Respond};
use crate::response::text_response;
use crate::server::Server;
use crate::settings::ServedApp;
use crate::token::Caller;

/// Maximum size of a body, in bytes: an input of 16 MiB, and 1 MiB for everything else.
pub(crate) const BODY: usize = 17 * 1024 * 1024;

/// Maximum size of an input, in bytes.
const MAX_INPUT: usize = 16 * 1024 * 1024;

/// Maximum delay of a response, in seconds.
const MAX_WAIT: u64 = 60;

/// `POST /v1/runs`.
pub(crate) async fn start(call: Call) -> Respond {
    let is_dry = call.query.flag("dry_run")?;
    let key = key::parse(&call.headers)?;
    let bytes = call.bytes().await?;
    if bytes.is_empty() {
        let problem = Problem::new(Code::Malformed, "the body is empty; it must be a JSON object");
        return Err(problem.with("line", 1).with("column", 1));
    }
    let digest = Digest::of(&bytes);
    let total = bytes.len();
    let known = ["app", "pipeline", "machine", "request", "input", "limits", "priority", "labels", "not_before"];
    let members = Members::parse(bytes, &known)?;
    let mut input = members.raw("input").unwrap_or("{}").to_owned();
    if input.len() > MAX_INPUT || total.saturating_sub(input.len()) > 1024 * 1024 {
        return Err(Problem::new(Code::TooLarge, "`input` can have at most 16 MiB, and the rest of the body 1 MiB"));
    }
    let (caller, wait) = (call.caller()?.clone(), wait(&call.headers));
    let key = key.map(|key| UniqueKey { key: format!("http runs {} {key}", caller.name), digest: Some(digest) });
    if let Some(key) = key.as_ref().filter(|_| !is_dry)
        && let Some(id) = key::run_of(call.server.context(), &caller, key).await?
    {
        return created(&call.server, Started::before(id), wait).await;
    }
    let app = served_app(&call.server, members.text("app")?.as_deref())?;
    let (target, pointer, stated) = wanted(&call, &app, &members).await?;
    let mut spent = Usage::default();
    if let Some(stated) = stated {
        spent = stated.spent;
        input = with_stated(&input, stated.input)?;
    }
    let name = target.pipeline().or(target.machine()).unwrap_or_default().to_owned();
    if !caller.covers(&name) {
        return Err(Problem::invalid(pointer, format!("the app has no `{name}`")));
    }
    let limits = limits(&members)?;
    let placement = Placement { cause: call.cause, ..placement(&members, &caller.name)? };
    let has_priority = members.raw("priority").is_some();
    let (server, dir) = (Arc::clone(&call.server), app.dir.clone());
    let definition = blocking(move || {
        let loaded = server.context().startable(&dir, &target);
        let (_, definition) = loaded.map_err(|error| not_loaded(error.seen_by(&caller), pointer, &name))?;
        check_prices(&server, &definition, &limits)?;
        Ok(definition)
    });
    let definition = definition.await?;
    let input = Json::parse(&input).map_err(|_| Problem::invalid("/input", "`input` must be an object"))?;
    if is_dry {
        return blocking(move || dry(&definition, &input)).await;
    }
    let traceparent = traceparent(&call.headers);
    let request = Request { limits, spent, traceparent, ..Request::new(input, definition.app.display().to_string()) };
    let candidate = Candidate { request, placement, has_priority, keys: key.into_iter().collect(), tick: None };
    let started = enqueue(&call, app, definition, candidate).await?;
    created(&call.server, started, wait).await
}

/// The response to a dry run (S-42). Blocks: the input may be as large as that of a run.
fn dry(definition: &Definition, input: &Json) -> Respond {
    let text = input.text().map_err(|_| Problem::invalid("/input", "the input cannot be read"))?;
    let input = definition.input.coerce(&[], Some(&text)).map_err(invalid_input)?;
    let document = etude_preview::dry_run::of(&definition.plan, &input, None).document(&Limits::default());
    let document = document.map_err(|error| Problem::new(Code::JournalUnavailable, error.to_string()))?;
    Ok(text_response(StatusCode::OK, document))
}

/// The routed form of a request in words, besides its target.
#[derive(Default)]
struct Stated {
    /// The parameters that the request states.
    input: Map<String, Value>,
    /// The usage of the routing model calls: the run pays for them.
    spent: Usage,
}

/// The target to run, the pointer of the member that names it, and the parameters that a request states.
async fn wanted(
    call: &Call,
    app: &ServedApp,
    members: &Members,
) -> Result<(Target, &'static str, Option<Stated>), Problem> {
    let (pipeline, machine, request) = (members.text("pipeline")?, members.text("machine")?, members.text("request")?);
    match (pipeline, machine, request) {
        (Some(name), None, None) => Ok((Target::Pipeline(name), "/pipeline", None)),
        (None, Some(name), None) => Ok((Target::Machine(name), "/machine", None)),
        (None, None, Some(request)) => {
            let (target, stated) = routed(call, call.caller()?, app, request).await?;
            Ok((target, "/request", Some(stated)))
        }
        (Some(_), Some(_), _) => Err(Problem::invalid("/machine", "`pipeline` and `machine` exclude each other")),
        (_, _, Some(_)) => Err(Problem::invalid("/request", "`request` excludes `pipeline` and `machine`")),
        (None, None, None) => Err(Problem::invalid("/pipeline", "give a `pipeline`, a `machine` or a `request`")),
    }
}

/// The target for a request in words, and the parameters that it states.
async fn routed(call: &Call, caller: &Caller, app: &ServedApp, request: String) -> Result<(Target, Stated), Problem> {
    let request = crate::api::app::request_of(Some(request))?;
    let (server, caller, app) = (Arc::clone(&call.server), caller.clone(), app.clone());
    let found = blocking(move || {
        let named = |(name, is_sound): &(String, bool)| !is_sound && name == request.trim();
        if let Some((name, _)) = definitions(&server, &caller, &app).into_iter().find(named) {
            // Its errors are the answer: another route would not be what was asked for.
            return Ok((target_of(&server, &app, name), Stated::default()));
        }
        let (document, spent) = crate::api::app::routed(&server, &caller, &app, &request)?;
        let Some(name) = document["pipeline"].as_str().map(str::to_owned) else {
            return Err(unmatched(&server, &caller, &app).with("candidates", document["candidates"].clone()));
        };
        Ok((
            target_of(&server, &app, name),
            Stated { input: document["input"].as_object().cloned().unwrap_or_default(), spent },
        ))
    });
    found.await
}

/// The pipeline of this name, or the machine if there is no such pipeline.
fn target_of(server: &Server, app: &ServedApp, name: String) -> Target {
    let pipeline = Target::Pipeline(name.clone());
    let is_pipeline = !matches!(server.apps().load(&app.dir, &pipeline), Err(NotLoaded::Unknown { .. }));
    if is_pipeline { pipeline } else { Target::Machine(name) }
}

/// The pipelines and machines that the caller may see, by name; false for those with errors.
fn definitions(server: &Server, caller: &Caller, app: &ServedApp) -> Vec<(String, bool)> {
    let list = server.apps().list(&app.dir).unwrap_or_default();
    let definitions = ["pipelines", "machines"].into_iter().filter_map(|kind| list[kind].as_array()).flatten();
    let named = definitions.filter_map(|one| Some((one["name"].as_str()?.to_owned(), one["valid"] != false)));
    named.filter(|(name, _)| caller.covers(name) && !name.starts_with('_')).collect()
}

/// The problem that no pipeline fits, with the pipelines that the caller may see.
fn unmatched(server: &Server, caller: &Caller, app: &ServedApp) -> Problem {
    let (sound, broken): (Vec<_>, Vec<_>) =
        definitions(server, caller, app).into_iter().partition(|(_, is_sound)| *is_sound);
    let mut names: Vec<String> = sound.into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    let problem = |detail: String| Problem::new(Code::NoPipelineMatched, detail);
    let problem = match names.is_empty() {
        true => problem("no pipeline fits the request: this app has no pipeline without errors".to_owned()),
        false => problem(format!("no pipeline fits the request; pipelines of this app: {}", names.join(", "))),
    };
    match broken.as_slice() {
        [] => problem,
        [(one, _)] => problem.hint(format!("`{one}` was not considered, because it has errors: etude check")),
        many => {
            problem.hint(format!("{} pipelines were not considered, because they have errors: etude check", many.len()))
        }
    }
}

/// The input merged with the stated parameters; explicit members win.
fn with_stated(input: &str, stated: Map<String, Value>) -> Result<String, Problem> {
    let given: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(input).map_err(|_| Problem::invalid("/input", "`input` must be an object"))?;
    let mut members: Vec<String> =
        given.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.get())).collect();
    let stated = stated.into_iter().filter(|(name, _)| !given.contains_key(name));
    members.extend(stated.map(|(name, value)| format!("{}:{value}", Value::from(name))));
    Ok(format!("{{{}}}", members.join(",")))
}

/// The parent span of the run (W3C Trace Context). A malformed header is ignored, as the specification requires.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f' | '-');
    (lengths == [2, 32, 16, 2] && text.chars().all(is_hex)).then(|| text.to_owned())
}

/// A run that a request has started.
pub(super) struct Started {
    pub(super) id: String,
    /// The run as it was accepted for this request; `None` if an earlier request with the same key has started it.
    pub(super) accepted: Option<NewRun>,
}

impl Started {
    /// The run of an earlier request with the same key.
    pub(super) fn before(id: String) -> Self {
        Self { id, accepted: None }
    }
}

/// The document of a run, or that at its acceptance: a run that was just accepted may have ended and been removed.
pub(super) fn or_accepted(
    found: Result<String, Problem>,
    accepted: Option<&NewRun>,
    document: impl FnOnce(&NewRun) -> Result<String, Problem>,
) -> Result<String, Problem> {
    match (found, accepted) {
        (Err(problem), Some(run)) if problem.code() == Code::NotFound => document(run),
        (found, _) => found,
    }
}

/// Accepts a run durably (S-36, S-37).
pub(super) async fn enqueue(
    call: &Call,
    app: ServedApp,
    definition: Definition,
    candidate: Candidate,
) -> Result<Started, Problem> {
    let (server, of) = (&call.server, Arc::clone(&call.server));
    let admission = blocking(move || admission::admit(of.admissions(), &app, &definition, candidate)).await?;
    let since = Instant::now();
    let enqueued = server.engine().enqueue(&admission.submission).await;
    server.metrics().journal_write(since.elapsed());
    let enqueued = enqueued.map_err(|error| engine_failed(&error))?;
    match enqueued {
        Enqueued::Accepted => {
            let (of, run) = (Arc::clone(server), admission.submission.run.clone());
            blocking(move || admission.accepted(of.admissions())).await?;
            Ok(Started { id: run.id.clone(), accepted: Some(run) })
        }
        Enqueued::Repeated { run_id, is_same, .. } => {
            Ok(Started::before(key::repeated(server.context(), call.caller()?, run_id, is_same)?))
        }
        Enqueued::Full => Err(admission.full.problem(server.admissions())),
        Enqueued::Refused(refusal) => Err(refused(&refusal)),
        Enqueued::Held { run_id } => Err(Full::Pipeline(run_id).problem(server.admissions())),
    }
}

/// The response with a run that was accepted, now or before.
async fn created(server: &Arc<Server>, started: Started, wait: Option<u64>) -> Respond {
    let document = |server: &Server, started: &Started| {
        let found = server.runs().document(&started.id);
        or_accepted(found, started.accepted.as_ref(), |run| server.runs().accepted(run))
    };
    responded(server, started, wait, document).await
}

/// The same with the document that `document` makes of the run, after the client's requested wait.
pub(super) async fn responded(
    server: &Arc<Server>,
    started: Started,
    wait: Option<u64>,
    document: impl FnOnce(&Server, &Started) -> Result<String, Problem> + Send + 'static,
) -> Respond {
    let (id, is_replayed) = (started.id.clone(), started.accepted.is_none());
    if let Some(seconds) = wait {
        wait_for(server, &id, Duration::from_secs(seconds)).await;
    }
    let of = Arc::clone(server);
    let text = blocking(move || document(&of, &started)).await?;
    let mut response = text_response(StatusCode::CREATED, text);
    header(&mut response, LOCATION.as_str(), &format!("{}/v1/runs/{id}", server.settings().base_path))?;
    if is_replayed {
        header(&mut response, "idempotency-replayed", "true")?;
    }
    if let Some(seconds) = wait {
        header(&mut response, "preference-applied", &format!("wait={seconds}"))?;
    }
    Ok(response)
}

fn header(response: &mut Response, name: &'static str, value: &str) -> Result<(), Problem> {
    let value =
        HeaderValue::from_str(value).map_err(|_| Problem::new(Code::Bug, "a header has a control character"))?;
    response.headers_mut().insert(name, value);
    Ok(())
}

/// Waits until the run has ended or waits for a person, at most for `limit`, or until the server stops.
async fn wait_for(server: &Arc<Server>, id: &str, limit: Duration) {
    let (mut news, mut stopping) = (server.stories().news_of_run(id), server.context().stopping());
    let ended = async {
        loop {
            let (engine, id) = (Arc::clone(server.engine()), id.to_owned());
            let row = blocking(move || engine.row(&id).map_err(|e| engine_failed(&e))).await;
            let is_on_its_way = row.is_ok_and(|row| matches!(row.state, RunState::Queued | RunState::Running));
            if !is_on_its_way || news.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = ended => {}
        () = tokio::time::sleep(limit) => {}
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

fn served_app(server: &Server, slug: Option<&str>) -> Result<ServedApp, Problem> {
    match (slug, server.settings().apps.as_slice()) {
        (Some(slug), _) => {
            let app = server.context().app(slug).cloned();
            app.ok_or_else(|| Problem::invalid("/app", format!("the server has no app `{slug}`")))
        }
        (None, [app]) => Ok(app.clone()),
        (None, _) => Err(Problem::invalid("/app", "the server has several apps; name one with `app`")),
    }
}

/// The problem of a fleet that refuses the run.
fn refused(refusal: &Refusal) -> Problem {
    let code = match refusal {
        Refusal::UnknownQueue(_) => Code::InputInvalid,
        Refusal::Quota { .. } => Code::BudgetSpent,
    };
    Problem::new(code, refusal.to_string())
}

/// Refuses a limit of money that cannot be enforced because a model has no known price. Blocks.
pub(crate) fn check_prices(server: &Server, definition: &Definition, limits: &Limits) -> Result<(), Problem> {
    if limits.max_cost_usd.is_none() {
        return Ok(());
    }
    let models = server.apps().unpriced(&definition.app, definition);
    match models.is_empty() {
        true => Ok(()),
        false => Err(Problem::invalid("/limits/max_cost_usd", Unpriced { models }.to_string())),
    }
}

/// Maximum of `max_tokens`: all clients read numbers up to it exactly.
const MAX_TOKENS: u64 = (1 << 53) - 1;

/// Reads `limits`: US dollars, tokens and a duration, each of which is optional.
pub(crate) fn limits(members: &Members) -> Result<Limits, Problem> {
    let Some(limits) = members.object("limits", &["max_cost_usd", "max_tokens", "timeout"])? else {
        return Ok(Limits::default());
    };
    let max_cost_usd = limits.number("max_cost_usd")?;
    if max_cost_usd.is_some_and(|cost| cost < 0.0) {
        return Err(limits.invalid("max_cost_usd", "`max_cost_usd` must not be negative"));
    }
    let tokens = |count: i64| {
        let exact = u64::try_from(count).ok().filter(|count| *count <= MAX_TOKENS);
        exact.ok_or_else(|| limits.invalid("max_tokens", format!("`max_tokens` must be from 0 to {MAX_TOKENS}")))
    };
    let max_tokens = limits.integer("max_tokens")?.map(tokens).transpose()?;
    let timeout_ms = match limits.raw("timeout") {
        None => None,
        Some(raw) => {
            // `2.0` is a whole number of seconds too.
            let whole = serde_json::from_str::<f64>(raw).ok().filter(|seconds| seconds.fract() == 0.0);
            let text = serde_json::from_str::<String>(raw).ok().or(whole.map(|seconds| format!("{seconds:.0}")));
            let ms = text.and_then(|text| etude_spec::duration::parse(&text).ok());
            Some(ms.ok_or_else(|| limits.invalid("timeout", "a duration is `500ms`, `2s`, `5m` or `1h`"))?)
        }
    };
    Ok(Limits { max_cost_usd, max_tokens, timeout_ms })
}

/// Priority, labels and time of a run in the body of a request.
pub(super) fn placement(members: &Members, by: &str) -> Result<Placement, Problem> {
    let priority = members.integer("priority")?.unwrap_or(0);
    if !(-100..=100).contains(&priority) {
        return Err(members.invalid("priority", "`priority` must be from -100 to 100"));
    }
    let mut labels = BTreeMap::new();
    let given = members.map("labels")?.unwrap_or_default();
    if given.len() > 32 {
        return Err(members.invalid("labels", "a run can have at most 32 labels"));
    }
    for (key, value) in given {
        let is_key =
            (1..=63).contains(&key.len()) && key.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        let text = value.as_str().filter(|text| is_key && text.chars().count() <= 255);
        let fault = || {
            let pointer = format!("/labels/{}", etude_core::pointer::escaped(&key));
            Problem::invalid(&pointer, "a label is `[A-Za-z0-9._-]{1,63}` with a text of at most 255 characters")
        };
        labels.insert(key.clone(), text.ok_or_else(fault)?.to_owned());
    }
    let not_before = members.text("not_before")?;
    let time = |text: String| {
        etude_runtime::clock::from_rfc3339(&text)
            .ok_or_else(|| members.invalid("not_before", "`not_before` must be an RFC 3339 time"))
    };
    Ok(Placement {
        cause: Cause::Api,
        by: Some(by.to_owned()),
        labels,
        priority: i32::try_from(priority).unwrap_or(0),
        not_before_ms: not_before.map(time).transpose()?,
        ..Placement::default()
    })
}

/// The seconds of `Prefer: wait` (RFC 7240).
pub(super) fn wait(headers: &HeaderMap) -> Option<u64> {
    let prefer = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut preferences = prefer.flat_map(|value| value.split([',', ';'])).filter_map(|one| one.split_once('='));
    let (_, seconds) = preferences.find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))?;
    let seconds = seconds.trim();
    let seconds = seconds.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(seconds);
    let is_number = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
    // A number that does not fit is more than the maximum, too.
    is_number.then(|| seconds.parse::<u64>().map_or(MAX_WAIT, |seconds| seconds.min(MAX_WAIT)))
}

#[cfg(test)]
mod tests {
    use std::str;

    use axum::body::to_bytes;
    use etude_runtime::conformance::new_run;
    use etude_runtime::engine::{Query, Submission};

    use super::*;

    const PREFER: http::HeaderName = http::HeaderName::from_static("prefer");

    /// S-41: the name of a preference has no case, its value may be quoted, and more than the maximum is the maximum.
    #[test]
    fn a_wait_is_a_preference() {
        let wait = |text: &'static str| wait(&HeaderMap::from_iter([(PREFER, HeaderValue::from_static(text))]));
        for (text, seconds) in
            [("wait=5", 5), ("Wait = 5", 5), ("wait=\"5\"; x", 5), ("a=b, wait=0", 0), ("wait=61", 60)]
        {
            assert_eq!(wait(text), Some(seconds), "{text}");
        }
        assert_eq!(wait("wait=99999999999999999999"), Some(MAX_WAIT));
        for text in ["wait", "wait=", "wait=-1", "wait=+1", "wait=1.5", "await=5"] {
            assert_eq!(wait(text), None, "{text}");
        }
    }

    /// S-36: a run that ends and is removed before the response to its request is written was accepted nevertheless.
    #[tokio::test]
    async fn the_response_to_an_accepted_run_does_not_need_the_run() {
        let app = tempfile::tempdir().expect("a directory");
        let served = ServedApp { slug: "demo".to_owned(), dir: app.path().to_owned() };
        let (_dir, server) = crate::work::tests::serving(false, vec![served]);
        let run = NewRun { app: app.path().display().to_string(), ..new_run("r-1", 1) };
        let submission = Submission { run: run.clone(), keys: Vec::new(), max_queued: None, needs_room: false };
        let engine = Arc::clone(server.engine());
        engine.enqueue(&submission).await.expect("enqueue");
        let respond = || created(&server, Started { id: run.id.clone(), accepted: Some(run.clone()) }, None);
        let document = async |response: Response| {
            assert_eq!(response.status(), StatusCode::CREATED);
            assert_eq!(response.headers()[LOCATION], "/v1/runs/r-1");
            let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            serde_json::from_str::<Value>(str::from_utf8(&body).expect("text")).expect("JSON")
        };
        let kept = document(respond().await.unwrap_or_else(|_| panic!("the run is kept"))).await;
        let session = engine.claim("r-1").expect("claim");
        session.set_state(RunState::Cancelled, Some("{}")).await.expect("set_state");
        drop(session);
        assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
        let removed = document(respond().await.unwrap_or_else(|_| panic!("the run was accepted"))).await;
        let names = |document: &Value| document.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&removed), names(&kept));
        let facts = |document: &Value| ["run_id", "status", "app", "created_at"].map(|name| document[name].clone());
        assert_eq!(facts(&removed), facts(&kept));
        let repeated = created(&server, Started::before("r-1".to_owned()), None).await;
        assert!(repeated.is_err_and(|problem| problem.code() == Code::NotFound));
    }
}
