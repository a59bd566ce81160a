//! Messages: JSON-RPC 2.0, the revisions of the protocol, and errors.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// A revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// 2025-06-18.
    June2025,
    /// 2025-11-25.
    November2025,
    /// 2026-07-28, which has no sessions.
    July2026,
}

impl Revision {
    /// All revisions, newest first.
    pub const ALL: [Self; 3] = [Self::July2026, Self::November2025, Self::June2025];

    /// The date by which the protocol names the revision.
    pub const fn word(self) -> &'static str {
        match self {
            Self::June2025 => "2025-06-18",
            Self::November2025 => "2025-11-25",
            Self::July2026 => "2026-07-28",
        }
    }

    /// The revision with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.word() == word)
    }

    /// True if a connection begins with `initialize`.
    pub fn has_initialize(self) -> bool {
        self != Self::July2026
    }
}

/// Members of `_meta` in messages of 2026-07-28.
pub(crate) mod meta {
    pub(crate) const REVISION: &str = "io.modelcontextprotocol/protocolVersion";
    pub(crate) const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
    pub(crate) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub(crate) const SERVER: &str = "io.modelcontextprotocol/serverInfo";
    /// The id of the request that a notification belongs to.
    pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
}

/// The extension of long-running requests.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// An error of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    /// The JSON-RPC code, such as -32602 for invalid parameters.
    pub code: i64,
    /// One sentence for people, without a full stop.
    pub message: String,
    /// Facts for programs, sent under `data`; `None`: there are none.
    pub data: Option<Value>,
}

impl RpcError {
    /// The text is not JSON.
    pub const PARSE: i64 = -32700;
    /// The message is not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// There is no such method.
    pub const METHOD: i64 = -32601;
    /// The parameters are invalid.
    pub const PARAMS: i64 = -32602;
    /// An internal error.
    pub const INTERNAL: i64 = -32603;
    /// The headers of the HTTP request contradict its body.
    pub const HEADERS: i64 = -32020;
    /// The client did not declare a capability that the request needs.
    pub const CAPABILITY: i64 = -32021;
    /// The revision is not supported.
    pub const REVISION: i64 = -32022;

    /// An error without further facts.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::new(Self::PARAMS, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Self::INTERNAL, message)
    }

    pub(crate) fn no_method(method: &str) -> Self {
        Self::new(Self::METHOD, format!("there is no method `{method}`"))
    }

    /// The error of a request that needs an undeclared extension.
    pub(crate) fn no_extension(extension: &str) -> Self {
        let message = format!("the request needs the extension `{extension}`, which the client has not declared");
        let data = json!({"requiredCapabilities": {"extensions": {extension: {}}}});
        Self { data: Some(data), ..Self::new(Self::CAPABILITY, message) }
    }

    pub(crate) fn revision(requested: &str) -> Self {
        let supported: Vec<&str> = Revision::ALL.into_iter().map(Revision::word).collect();
        let message = format!("the revision `{requested}` is not supported");
        Self {
            data: Some(json!({"supported": supported, "requested": requested})),
            ..Self::new(Self::REVISION, message)
        }
    }

    /// The HTTP status of a response with this error in a revision.
    pub fn http_status(&self, revision: Option<Revision>) -> u16 {
        match (self.code, revision) {
            (Self::PARSE | Self::INVALID_REQUEST | Self::HEADERS | Self::CAPABILITY | Self::REVISION, _) => 400,
            (Self::METHOD, Some(Revision::July2026)) => 404,
            _ => 200,
        }
    }

    /// The error as the member of a message.
    pub fn to_json(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }
}

/// The result of a request.
pub(crate) type Outcome = Result<Box<RawValue>, RpcError>;

/// A value as the result of a request.
pub(crate) fn raw(value: &impl Serialize) -> Outcome {
    serde_json::value::to_raw_value(value).map_err(|e| RpcError::internal(e.to_string()))
}

/// A message from a client.
#[derive(Debug)]
pub enum Incoming {
    /// A message that needs a response.
    Request {
        /// The id of the request, as it was written.
        id: Box<RawValue>,
        /// The JSON-RPC method, such as `tools/call`.
        method: String,
        /// The members of `params`; empty if there are none.
        params: Params,
    },
    /// A message without a response.
    Notification {
        /// The JSON-RPC method, such as `notifications/cancelled`.
        method: String,
        /// The members of `params`; empty if there are none.
        params: Params,
    },
    /// A response to a request of this server.
    Response {
        /// The id of the request, as JSON.
        id: String,
        /// The result; an error is its message.
        result: Result<Value, String>,
    },
}

/// Parameters of a request.
#[derive(Debug, Default)]
pub struct Params {
    pub(crate) members: Map<String, Value>,
    /// The member `arguments` of a call, as it was written.
    pub(crate) arguments: Option<Box<RawValue>>,
}

impl Params {
    pub(crate) fn text(&self, name: &str) -> Result<&str, RpcError> {
        let value = self.members.get(name).and_then(Value::as_str);
        value.ok_or_else(|| RpcError::params(format!("`{name}` is required and must be a string")))
    }

    pub(crate) fn meta(&self, name: &str) -> Option<&Value> {
        self.members.get("_meta")?.get(name)
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    result: Option<Value>,
    error: Option<Value>,
}

/// Distinguishes an id of `null`, which is invalid, from an absent id.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Parses a message.
///
/// # Errors
/// The text is not JSON, or not a message; with the id of the request, if it has one.
pub fn parse(text: &str) -> Result<Incoming, (Option<Box<RawValue>>, RpcError)> {
    let invalid = |message: &str| RpcError::new(RpcError::INVALID_REQUEST, message);
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return Err((None, RpcError::new(RpcError::PARSE, "the message is not JSON")));
    }
    if text.trim_start().starts_with('[') {
        return Err((None, invalid("the protocol does not support batches; send one message at a time")));
    }
    let message: Message<'_> =
        serde_json::from_str(text).map_err(|_| (None, invalid("the message is not a JSON-RPC request")))?;
    let id = message.id.filter(|id| is_id(id.get())).map(ToOwned::to_owned);
    if message.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        return Err((id, invalid("`jsonrpc` must be \"2.0\"")));
    }
    if message.id.is_some() && id.is_none() {
        return Err((None, invalid("`id` must be a string or an integer")));
    }
    let Some(method) = message.method else {
        let (Some(id), Some(result)) =
            (&id, message.result.map(Ok).or_else(|| message.error.map(|e| Err(e.to_string()))))
        else {
            return Err((id, invalid("the message has no `method`")));
        };
        return Ok(Incoming::Response { id: id.get().to_owned(), result });
    };
    let params = match message.params.map(RawValue::get) {
        None => Params::default(),
        Some(text) => read_params(text).ok_or_else(|| (id.clone(), RpcError::params("`params` must be an object")))?,
    };
    Ok(match id {
        Some(id) => Incoming::Request { id, method, params },
        None => Incoming::Notification { method, params },
    })
}

/// True for the JSON text of a string or an integer.
pub(crate) fn is_id(text: &str) -> bool {
    text.starts_with('"') || text.parse::<i64>().is_ok()
}

pub(crate) fn read_params(text: &str) -> Option<Params> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    let members = serde_json::from_str::<Map<String, Value>>(text).ok()?;
    let raw: Raw<'_> = serde_json::from_str(text).ok()?;
    Some(Params { members, arguments: raw.arguments.map(ToOwned::to_owned) })
}

/// A response as one line.
pub(crate) fn response(id: Option<&RawValue>, outcome: &Outcome) -> String {
    let id = id.map(|id| format!("\"id\":{},", id.get())).unwrap_or_default();
    match outcome {
        Ok(result) => format!("{{\"jsonrpc\":\"2.0\",{id}\"result\":{}}}", result.get()),
        Err(error) => format!("{{\"jsonrpc\":\"2.0\",{id}\"error\":{}}}", error.to_json()),
    }
}

/// The HTTP headers of a request that belong to the protocol.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    /// The header `MCP-Protocol-Version`.
    pub revision: Option<String>,
    /// The header `Mcp-Method`.
    pub method: Option<String>,
    /// The header `Mcp-Name`.
    pub name: Option<String>,
}

impl Headers {
    /// Checks the headers against the request: in 2026-07-28 they repeat its revision, method and name.
    pub(crate) fn check(&self, revision: Revision, method: &str, params: &Params) -> Result<(), RpcError> {
        let mismatch = |message: String| Err(RpcError::new(RpcError::HEADERS, message));
        if revision.has_initialize() {
            return Ok(());
        }
        if self.revision.as_deref() != Some(revision.word()) {
            return mismatch(format!("the header `MCP-Protocol-Version` is not `{}`", revision.word()));
        }
        if self.method.as_deref() != Some(method) {
            return mismatch(format!("the header `Mcp-Method` is not `{method}`"));
        }
        let key = match method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return Ok(()),
        };
        let Some(name) = params.members.get(key).and_then(Value::as_str) else { return Ok(()) };
        if self.name.is_none() && key == "uri" {
            // Clients repeat the names of tools and prompts in the header, but not always the address of a resource.
            return Ok(());
        }
        match self.name.as_deref().and_then(plain) {
            Some(given) if given == name => Ok(()),
            _ => mismatch(format!("the header `Mcp-Name` is not `{name}`")),
        }
    }
}

/// The value of a header; `=?base64?…?=` is an encoded value.
fn plain(value: &str) -> Option<String> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, inner).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_requests_notifications_or_responses() {
        assert!(matches!(parse(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), Ok(Incoming::Request { .. })));
        assert!(matches!(parse(r#"{"jsonrpc":"2.0","method":"a","params":{}}"#), Ok(Incoming::Notification { .. })));
        assert!(matches!(parse(r#"{"jsonrpc":"2.0","id":"a","result":{}}"#), Ok(Incoming::Response { .. })));
    }

    #[test]
    fn faulty_messages_have_the_codes_of_json_rpc() {
        let code = |text: &str| parse(text).map(|_| 0).unwrap_or_else(|(_, error)| error.code);
        assert_eq!(code("{"), RpcError::PARSE);
        for text in [
            "[]",
            "1",
            r#"{"id":1,"method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#,
            r#"{"jsonrpc":"2.0"}"#,
        ] {
            assert_eq!(code(text), RpcError::INVALID_REQUEST, "{text}");
        }
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[]}"#), RpcError::PARAMS);
    }

    #[test]
    fn headers_repeat_the_request_in_the_newest_revision() {
        let params = read_params(r#"{"name":"größe"}"#).expect("parameters");
        let headers = |name: &str| Headers {
            revision: Some("2026-07-28".to_owned()),
            method: Some("tools/call".to_owned()),
            name: Some(name.to_owned()),
        };
        assert_eq!(headers("=?base64?Z3LDtsOfZQ==?=").check(Revision::July2026, "tools/call", &params), Ok(()));
        for wrong in ["other", "=?base64?!?="] {
            let error = headers(wrong).check(Revision::July2026, "tools/call", &params).expect_err("a mismatch");
            assert_eq!(error.code, RpcError::HEADERS);
        }
        assert_eq!(Headers::default().check(Revision::June2025, "tools/call", &params), Ok(()));
        let resource = read_params(r#"{"uri":"etude://runs/a"}"#).expect("parameters");
        let of_resource = |name: Option<&str>| {
            let headers = Headers { name: name.map(str::to_owned), ..headers("") };
            let headers = Headers { method: Some("resources/read".to_owned()), ..headers };
            headers.check(Revision::July2026, "resources/read", &resource).is_ok()
        };
        assert_eq!([None, Some("etude://runs/a"), Some("etude://runs/b")].map(of_resource), [true, true, false]);
        let unnamed = Headers { name: None, ..headers("") };
        assert!(unnamed.check(Revision::July2026, "tools/call", &params).is_err());
    }
}
