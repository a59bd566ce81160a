//! Questions of runs: sent as forms if they only ask, and as links if they authorize something.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::{Api, Reply, Request};
use crate::call::escaped;
use crate::result::{Run, sentence};
use crate::service::{Context, Service, Transport};
use crate::settings::Approvals;
use crate::wire::{Params, Revision, RpcError, raw};

/// Maximum length of a client's name, in characters.
const MAX_CLIENT: usize = 64;

/// Maximum depth of an example answer.
const MAX_EXAMPLE: usize = 4;

/// Outcome of a question.
pub(crate) enum Asked {
    /// The run continues, or is about to.
    Continue,
    /// The client answers, and repeats its request.
    Result(Box<RawValue>),
    /// A person decides elsewhere; the text has the address and the command.
    Link(String),
    /// The run has no open question.
    Nothing,
}

/// An open question.
#[derive(Debug, Clone)]
struct Question {
    /// The id of the decision.
    id: String,
    /// The digest of the question, which distinguishes it from later ones of the same step.
    digest: String,
    message: String,
    /// The JSON Schema of the answer; null if there is none.
    schema: Value,
    form: Option<Form>,
}

/// A form that a client may show.
#[derive(Debug, Clone)]
struct Form {
    schema: Value,
    /// True if the answer authorizes something; it is then `decision`, not the answer of the run.
    authorizes: bool,
}

/// Faults of a client's answers, by the keys of their questions.
pub(crate) type Faults = BTreeMap<String, String>;

/// The open questions of a run. The fault of an earlier answer precedes the message.
fn questions(context: &Context, run: &Run, faults: &Faults) -> Vec<Question> {
    let approvals = context.settings(run.app.as_deref().unwrap_or_default()).approvals;
    let mut open: Vec<Question> = run.waiting.iter().filter_map(|waiting| question(approvals, waiting)).collect();
    for question in &mut open {
        if let Some(fault) = faults.get(&question.key()) {
            question.message = format!("{fault}\n{}", question.message);
        }
    }
    open
}

fn question(approvals: Approvals, waiting: &Value) -> Option<Question> {
    let payload = &waiting["payload"];
    let is_named = payload["approvers"].as_array().is_some_and(|approvers| !approvers.is_empty());
    let asks = waiting["kind"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("ask"));
    let form = if asks {
        flat(&payload["schema"]).filter(|_| !is_named).map(|schema| Form { schema, authorizes: false })
    } else {
        // An answer from a client does not prove that a person answered.
        let is_allowed = approvals == Approvals::Client && !is_named && payload["schema"].is_null();
        is_allowed.then(|| Form { schema: decision_schema(), authorizes: true })
    };
    Some(Question {
        id: waiting["id"].as_str()?.to_owned(),
        digest: payload["question"].as_str()?.to_owned(),
        message: payload["message"].as_str().unwrap_or_default().to_owned(),
        schema: payload["schema"].clone(),
        form,
    })
}

fn decision_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "decision": {"type": "string", "enum": ["approve", "deny"], "title": "Decision"},
            "reason": {"type": "string", "title": "Reason"},
        },
        "required": ["decision"],
    })
}

/// The schema of a form, if it has only plain fields.
fn flat(schema: &Value) -> Option<Value> {
    let properties = schema["properties"].as_object().filter(|_| schema["type"] == "object")?;
    let kept =
        ["type", "title", "description", "enum", "default", "minimum", "maximum", "minLength", "maxLength", "format"];
    let field = |(name, field): (&String, &Value)| {
        let is_plain = matches!(field["type"].as_str(), Some("string" | "number" | "integer" | "boolean"));
        let members = field.as_object().filter(|_| is_plain)?;
        let is_text =
            members.get("enum").is_none_or(|words| words.as_array().is_some_and(|w| w.iter().all(Value::is_string)));
        let members: Map<String, Value> = members
            .iter()
            .filter(|(name, _)| kept.contains(&name.as_str()))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        is_text.then(|| (name.clone(), members.into()))
    };
    let fields: Option<Map<String, Value>> = properties.iter().map(field).collect();
    let mut out = json!({"type": "object", "properties": fields?});
    if schema["required"].is_array() {
        out["required"] = schema["required"].clone();
    }
    Some(out)
}

/// The modes in which a client can be asked.
#[derive(Debug, Clone, Copy)]
struct Modes {
    form: bool,
    url: bool,
}

fn modes(context: &Context) -> Modes {
    let elicitation = &context.capabilities["elicitation"];
    let url = elicitation["url"].is_object() && context.revision != Revision::June2025;
    // Without a mode, the capability means forms.
    let form = elicitation.is_object() && (elicitation["form"].is_object() || !elicitation["url"].is_object());
    Modes { form, url }
}

/// The parameters of `elicitation/create`; `None` if the client cannot be asked.
fn elicitation(context: &Context, question: &Question, url: Option<&str>) -> Option<Value> {
    let modes = modes(context);
    if let Some(form) = question.form.as_ref().filter(|_| modes.form) {
        let mut params = json!({"message": question.message, "requestedSchema": form.schema});
        if context.revision != Revision::June2025 {
            params["mode"] = "form".into();
        }
        return Some(params);
    }
    let url = url.filter(|_| modes.url)?;
    let mut params = json!({"mode": "url", "message": question.message, "url": url});
    if context.revision == Revision::November2025 {
        params["elicitationId"] = question.key().into();
    }
    Some(params)
}

/// The message of a question, with the places where a person decides.
fn link(question: &Question, url: Option<&str>) -> String {
    let place = url.map(|url| format!("on {url} or ")).unwrap_or_default();
    format!("{}\nA person answers this {place}with `{}`.", question.message, question.command())
}

/// The open questions of a run, with the address and command to answer each.
pub(crate) fn open(run: &Run, url: Option<&str>) -> Vec<Value> {
    let document = |waiting: &Value| {
        let question = question(Approvals::Page, waiting)?;
        Some(json!({
            "id": question.id, "kind": waiting["kind"], "message": question.message, "command": question.command(), "url": url,
            "schema": question.schema,
        }))
    };
    run.waiting.iter().filter_map(document).collect()
}

impl Question {
    /// The key of the question for a client. The digest alone is not unique: questions of several steps or runs may be equal.
    fn key(&self) -> String {
        format!("{}#{}", self.id, self.digest)
    }

    /// The command that answers the question. If the answer has a schema, the command contains an example.
    fn command(&self) -> String {
        if self.schema.is_null() {
            return format!("etude approve {}", self.id);
        }
        let answer = example(&self.schema, 0).to_string().replace('\'', "'\\''");
        format!("etude approve {} --answer '{answer}'", self.id)
    }
}

/// An example value that fits a schema, to be replaced by the actual answer.
fn example(schema: &Value, depth: usize) -> Value {
    let fixed = [&schema["default"], &schema["const"], &schema["enum"][0], &schema["examples"][0]];
    if let Some(value) = fixed.into_iter().find(|value| !value.is_null()) {
        return value.clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("string") => "…".into(),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| 0.into()),
        Some("boolean") => true.into(),
        Some("array") => json!([]),
        Some("object") if depth < MAX_EXAMPLE => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let member = |name: &str| (name.to_owned(), example(&schema["properties"][name], depth + 1));
            required.map(member).collect::<Map<_, _>>().into()
        }
        Some("object") => json!({}),
        _ => "…".into(),
    }
}

/// The open questions as requests to the client, by key, and as a message.
pub(crate) fn requests(
    service: &Service,
    context: &Context,
    run: &Run,
    faults: &Faults,
) -> (Map<String, Value>, String) {
    let url = run.url(&*service.api);
    let mut requests = Map::new();
    let mut links = Vec::new();
    for question in questions(context, run, faults) {
        if let Some(params) = elicitation(context, &question, url.as_deref()) {
            requests.insert(question.key(), json!({"method": "elicitation/create", "params": params}));
        }
        links.push(link(&question, url.as_deref()));
    }
    (requests, links.join("\n"))
}

/// Asks the client, or returns where a person decides. `repeated` has the faults of the answers in a repeated request.
pub(crate) async fn ask(
    service: &Service,
    context: &Context,
    run: &Run,
    news: &mut watch::Receiver<()>,
    deadline: Instant,
    repeated: Option<&Faults>,
) -> Result<Asked, RpcError> {
    if run.status != "waiting" {
        return Ok(Asked::Nothing);
    }
    let none = Faults::new();
    let faults = repeated.unwrap_or(&none);
    let (url, open) = (run.url(&*service.api), questions(context, run, faults));
    let Some(first) = open.first() else { return Ok(Asked::Nothing) };
    let links = || format!("Run {} waits for a person.\n{}", run.run_id, requests(service, context, run, faults).1);
    if is_decided(&*service.api, first).await {
        // The run is about to continue.
        return Ok(if Instant::now() < deadline { Asked::Nothing } else { Asked::Link(links()) });
    }
    if context.revision == Revision::July2026 {
        let (requests, _) = requests(service, context, run, faults);
        if requests.is_empty() {
            return Ok(Asked::Link(links()));
        }
        if repeated.is_some_and(Faults::is_empty) && first.form.is_none() {
            // The person has only opened the page.
            let decided = tokio::time::timeout_at(deadline, elsewhere(&*service.api, first, news)).await;
            return Ok(if decided.is_ok() { Asked::Continue } else { Asked::Link(links()) });
        }
        let state = service.seal.seal(&json!({"run": run.run_id, "caller": service.api.caller()}));
        let result = json!({"resultType": "input_required", "inputRequests": requests, "requestState": state});
        return raw(&result).map(Asked::Result);
    }
    let params = elicitation(context, first, url.as_deref()).filter(|_| service.transport == Transport::Stdio);
    let Some(params) = params else { return Ok(Asked::Link(links())) };
    let answer = tokio::select! {
        answer = context.peer.request("elicitation/create", &params) => answer,
        () = elsewhere(&*service.api, first, news) => return Ok(Asked::Continue),
    };
    let Ok(answer) = answer else { return Ok(Asked::Link(links())) };
    if answer["action"] != "accept" {
        return Ok(Asked::Link(links()));
    }
    if params["mode"] == "url" {
        // The person has only opened the page.
        let decided = tokio::time::timeout_at(deadline, elsewhere(&*service.api, first, news)).await;
        return Ok(if decided.is_ok() { Asked::Continue } else { Asked::Link(links()) });
    }
    match decide(service, context, first, &answer).await {
        Ok(()) => Ok(Asked::Continue),
        Err(refused) => Ok(Asked::Link(format!("{}\n{}", sentence(&refused), links()))),
    }
}

async fn is_decided(api: &dyn Api, question: &Question) -> bool {
    api.send(Request::for_call(format!("/v1/decisions/{}", escaped(&question.id)))).await.status == 404
}

/// Waits until the question is decided elsewhere.
async fn elsewhere(api: &dyn Api, question: &Question, news: &mut watch::Receiver<()>) {
    while !is_decided(api, question).await {
        if news.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The name under which a client decides. The client chooses the name, which the journal keeps and terminals show, so it is
/// filtered.
fn decider(client: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || " ._-/()".contains(*c);
    let name: String = client.chars().filter(is_plain).take(MAX_CLIENT).collect();
    format!("mcp:{}", if name.trim().is_empty() { "client" } else { name.trim() })
}

/// Records the answer of a form.
async fn decide(service: &Service, context: &Context, question: &Question, answer: &Value) -> Result<(), Reply> {
    let Some(form) = &question.form else { return Ok(()) };
    let content = answer.get("content").filter(|content| content.is_object()).cloned().unwrap_or_else(|| json!({}));
    let mut body = json!({"approved": true, "question": question.digest});
    if form.authorizes {
        let word = content["decision"].as_str();
        let is_word = matches!(word, Some("approve" | "deny"));
        if !is_word {
            let problem = json!({"code": "input_invalid", "detail": "`decision` must be `approve` or `deny`"});
            return Err(Reply { status: 422, body: problem.to_string().into_bytes() });
        }
        body["approved"] = (word == Some("approve")).into();
        body["reason"] = content["reason"].clone();
    } else {
        body["answer"] = content;
    }
    let request = Request {
        decider: Some(decider(&context.client)),
        ..Request::post(format!("/v1/decisions/{}", escaped(&question.id)), body.to_string())
    };
    let reply = service.api.send(request).await;
    if reply.status == 200 { Ok(()) } else { Err(reply) }
}

/// Records `inputResponses` to the open questions of a run, and returns the refusals by the keys of their questions. A
/// response to a question that was not asked as a form decides nothing.
pub(crate) async fn answered(
    service: &Service,
    context: &Context,
    run: &Run,
    params: &Params,
) -> BTreeMap<String, Reply> {
    let responses = params.members.get("inputResponses").and_then(Value::as_object);
    let mut refused = BTreeMap::new();
    for question in questions(context, run, &Faults::new()) {
        let Some(response) = responses.and_then(|responses| responses.get(&question.key())) else { continue };
        if response["action"] == "accept"
            && let Err(reply) = decide(service, context, &question, response).await
        {
            refused.insert(question.key(), reply);
        }
    }
    refused
}

/// The run of a request that is repeated with answers, and the faults of those answers: the run keeps waiting, and the client is
/// asked again.
pub(crate) async fn resumed(
    service: &Service,
    context: &Context,
    state: &Value,
    params: &Params,
) -> Result<(String, Faults), RpcError> {
    let refused = || RpcError::params("`requestState` is not from this server");
    let facts = state.as_str().and_then(|state| service.seal.open(state)).ok_or_else(refused)?;
    let run_id = facts["run"].as_str().filter(|_| facts["caller"] == service.api.caller()).ok_or_else(refused)?;
    let run = crate::call::read(&*service.api, run_id).await?;
    let refused = answered(service, context, &run, params).await.into_iter();
    // A decision of another person in the meantime is not a fault: the run continues, or asks something else.
    let faults = refused.filter(|(_, reply)| reply.status != 409).map(|(key, reply)| (key, sentence(&reply)));
    Ok((run_id.to_owned(), faults.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SECURITY.md: a client's name contains no terminal control, is bounded, and is never that of a token.
    #[test]
    fn a_client_decides_under_a_plain_name() {
        assert_eq!(decider("Claude Code (1.2)"), "mcp:Claude Code (1.2)");
        assert_eq!(decider("\u{1b}[2J\u{202e}evil\n"), "mcp:2Jevil");
        assert_eq!(decider("\u{202e} "), "mcp:client");
        assert_eq!(decider(&"x".repeat(1 << 20)).len(), 68);
    }
}
