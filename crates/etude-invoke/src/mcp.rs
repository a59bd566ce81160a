//! The tools of MCP servers as skills (D-12): the servers that metadata declares start before a session and end after it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::chain::{Outcome, Throw, ThrowKind};
use etude_core::data::bare;
use etude_core::service_url::{self, ServiceUrl};
use etude_spec::cascade::mcp::{Transport, is_optional, launched, tool_name, transport, uri};
use etude_tools::mcp::{Elicitation, Elicited, OnLog, ServerConfig, Servers, Settings};
use etude_tools::{CallContext, Found, Origin};
use serde_json::{Map, Value, json};

use crate::invoker::as_value;
use crate::session::{BuiltinTool, Caller, Handler};
use etude_runtime::run_id;

/// Settings for starting servers.
pub struct BridgeSettings<'a> {
    /// Environment of their processes: all variables that they inherit.
    pub base_env: Vec<(OsString, OsString)>,
    /// Their working directory: the project's.
    pub dir: &'a Path,
    /// Values for `${NAME}` in the `env` of a server, looked up at launch.
    pub env: &'a BTreeMap<String, String>,
    /// Variables that are set but withheld from all programs, because they hold keys of model providers.
    pub withheld: &'a [String],
    /// Variables that the user's configuration sends to hosts. Remote servers get no other variables (ADR 0052).
    pub sent: &'a [SentVariable],
    /// Receives the stderr of servers.
    pub on_log: Option<OnLog>,
}

/// A variable that the user's configuration sends to a host.
#[derive(Debug, Clone)]
pub struct SentVariable {
    /// The name of the variable; messages have it, but never the value.
    pub name: String,
    /// Scheme, host and port that may get the value.
    pub to: service_url::Origin,
    /// The value, a secret: it is sent to `to` and to no other host.
    pub value: String,
}

/// Running servers, with their tools.
pub struct Bridge {
    servers: Servers,
    tools: Vec<Found>,
    asking: Asking,
    /// Optional servers that cannot be used, one sentence each.
    pub problems: Vec<String>,
    /// Reasons why required servers cannot be used: the skill must not run without them.
    failures: Vec<String>,
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// The current caller per server, who answers the server's questions. A server has one call at a time.
#[derive(Clone, Default)]
struct Asking(Arc<Mutex<BTreeMap<String, Caller>>>);

impl Asking {
    fn set(&self, server: &str, caller: Caller) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(server.to_owned(), caller);
    }

    fn of(&self, server: &str) -> Option<Caller> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(server).cloned()
    }
}

impl Bridge {
    /// Starts the servers in `declared`, the value of `mcp`, all at once, and lists their tools.
    pub async fn start(declared: &Value, settings: BridgeSettings<'_>) -> Self {
        let (mut configs, mut unusable) = (Vec::new(), Vec::new());
        let variable = |name: &str| match settings.env.get(name) {
            Some(value) => Ok(value.clone()),
            None if settings.withheld.iter().any(|withheld| withheld == name) => Err(format!(
                "the variable `{name}` is set, but contains a key of a model provider, which servers never receive; put a key for \
                 the server into a variable of another name"
            )),
            None => Err(format!("the variable `{name}` is not set")),
        };
        for (name, entry) in declared.as_object().into_iter().flatten() {
            let origin = entry.get("url").and_then(Value::as_str).and_then(|url| ServiceUrl::new(url).origin());
            let of_server = |name: &str| match &origin {
                None => variable(name),
                Some(origin) => match settings.sent.iter().find(|sent| sent.name == name && sent.to == *origin) {
                    Some(sent) => Ok(sent.value.clone()),
                    None if origin.is_loopback() => variable(name),
                    None => variable(name).and_then(|_| {
                        Err(format!(
                            "`{name}` is not sent to `{}`: the skill names this host, but your configuration does not",
                            origin.host()
                        ))
                    }),
                },
            };
            match config(entry, of_server) {
                Ok(config) => configs.push((name.clone(), config)),
                // A fault of the entry itself is a fault of the definition, which the middleware `mcp` throws.
                Err(_) if transport(entry).is_err() => {}
                Err(why) => unusable.push((name.clone(), format!("the MCP server `{name}` is not started: {why}"))),
            }
        }
        let asking = Asking::default();
        let asked = asking.clone();
        let servers = Servers::new(
            configs,
            Settings {
                base_env: settings.base_env,
                dir: settings.dir.to_owned(),
                on_log: settings.on_log,
                on_elicit: Some(Arc::new(move |question| {
                    let caller = asked.of(&question.server);
                    Box::pin(async move { answered(caller, question).await })
                })),
            },
        );
        let (tools, unreachable) = servers.available().await;
        unusable.extend(unreachable);
        let is_missed = |(name, _): &(String, String)| declared.get(name).is_some_and(is_optional);
        let (missed, needed): (Vec<_>, Vec<_>) = unusable.into_iter().partition(is_missed);
        let sentences = |all: Vec<(String, String)>| all.into_iter().map(|(_, why)| why).collect();
        Self { servers, tools, asking, problems: sentences(missed), failures: sentences(needed) }
    }

    /// The throw for a skill that declares an unusable required server (D-12). `None`: the skill may run.
    pub fn failure(&self) -> Option<Throw> {
        let why = self.failures.join("; ");
        (!why.is_empty()).then(|| Throw::new(ThrowKind::Environment, "mcp", why))
    }

    /// The tools by their names as skills. They are public and have the schemas of their servers.
    pub fn handlers(&self) -> BTreeMap<String, BuiltinTool> {
        let mut turns: BTreeMap<&str, Arc<tokio::sync::Mutex<()>>> = BTreeMap::new();
        let mut handlers = BTreeMap::new();
        for found in &self.tools {
            let Origin::Mcp { server, tool } = &found.tool.origin else { continue };
            let name = tool_name(server, tool);
            let metadata = Map::from_iter([
                ("params".to_owned(), (*found.tool.input_schema).clone()),
                ("visibility".to_owned(), json!("public")),
            ]);
            let handler = ServerTool {
                found: found.clone(),
                server: server.clone(),
                asking: self.asking.clone(),
                turn: Arc::clone(turns.entry(server).or_default()),
            };
            let description = Some(found.tool.description.clone());
            let builtin_tools =
                BuiltinTool { description, uri: Some(uri(server, tool)), metadata, handler: Arc::new(handler) };
            // If two tools get the same name, the first one stays.
            handlers.entry(name).or_insert(builtin_tools);
        }
        handlers
    }

    /// Stops the servers and waits for their end.
    pub async fn close(&self) {
        self.servers.close().await;
    }
}

fn config(entry: &Value, variable: impl Fn(&str) -> Result<String, String>) -> Result<ServerConfig, String> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let pairs = |key: &str| {
        let members = entry.get(key).and_then(Value::as_object).into_iter().flatten();
        let pair =
            |(name, value): (&String, &Value)| launched(&bare(value), &variable).map(|value| (name.clone(), value));
        members.map(pair).collect::<Result<Vec<_>, _>>()
    };
    match transport(entry)? {
        Transport::Http => Ok(ServerConfig::http(text("url"), pairs("headers")?)),
        Transport::Stdio => {
            let args = entry.get("args").and_then(Value::as_array).into_iter().flatten();
            let args = args.map(|arg| bare(arg).into_owned()).collect();
            Ok(ServerConfig::stdio(text("command"), args, pairs("env")?))
        }
    }
}

/// Answers a question of a server through the gateway in the `nonlocals` of the caller.
async fn answered(caller: Option<Caller>, question: Elicitation) -> Elicited {
    let Some(caller) = caller else { return Elicited::Decline };
    let asked = json!({"question": question.message, "schema": question.schema, "server": question.server});
    match caller.ask(asked).await {
        Ok(Some(Value::Object(answer))) => Elicited::Accept(Value::Object(answer)),
        Ok(Some(Value::String(text))) => match fields(&text, &question.schema) {
            Some(answer) => Elicited::Accept(answer),
            None => Elicited::Decline,
        },
        Ok(_) => Elicited::Decline,
        Err(_) => Elicited::Cancel,
    }
}

/// A typed text as the object that the server expects: the value of the only field, or JSON.
fn fields(text: &str, schema: &Value) -> Option<Value> {
    let properties = schema.get("properties").and_then(Value::as_object)?;
    let mut names = properties.iter();
    match (names.next(), names.next()) {
        (Some((name, field)), None) => {
            let value = match field.get("type").and_then(Value::as_str) {
                Some("boolean") => json!(matches!(text.to_lowercase().as_str(), "y" | "yes" | "true")),
                Some("number" | "integer") => serde_json::from_str(text).ok().filter(Value::is_number)?,
                _ => json!(text),
            };
            Some(json!({ name: value }))
        }
        _ => serde_json::from_str(text).ok().filter(Value::is_object),
    }
}

struct ServerTool {
    found: Found,
    server: String,
    asking: Asking,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Handler for ServerTool {
    fn run(&self, args: Arc<Value>, caller: Caller) -> crate::Boxed<Outcome> {
        let (found, server, asking, turn) =
            (self.found.clone(), self.server.clone(), self.asking.clone(), Arc::clone(&self.turn));
        Box::pin(async move {
            let _turn = turn.lock().await;
            asking.set(&server, caller.clone());
            let context =
                CallContext { cancel: caller.cancel.clone(), call_id: run_id::new(), ..CallContext::default() };
            if !args.is_object() {
                return Err(Throw::new(ThrowKind::Arguments, &found.tool.name, "its arguments are not an object"));
            }
            let result = found.call(args, context).await;
            match result.error {
                Some(error) => Err(Throw::new(ThrowKind::Failed, &found.tool.name, error.message)),
                None => Ok(Some(as_value(&result.content))),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-12: references in `env` are looked up at launch, and a missing variable keeps the server down.
    #[test]
    fn variables_are_looked_up_at_launch() {
        let env = |name: &str| if name == "TOKEN" { Ok("t".to_owned()) } else { Err(format!("no `{name}`")) };
        let entry = json!({"command": "server", "args": ["--n", 3], "env": {"A": "x${TOKEN}", "B": 4}});
        let pairs = vec![("A".to_owned(), "xt".to_owned()), ("B".to_owned(), "4".to_owned())];
        let expected = ServerConfig::stdio("server", vec!["--n".to_owned(), "3".to_owned()], pairs);
        assert!(config(&entry, env).is_ok_and(|found| found == expected));
        let missing = json!({"url": "http://x", "headers": {"A": "${NONE}"}});
        assert_eq!(config(&missing, env).map_err(|why| why.contains("`NONE`")).err(), Some(true));
    }

    async fn started(declared: Value) -> Bridge {
        let (env, withheld) = (BTreeMap::new(), ["PROVIDER_KEY".to_owned()]);
        let settings = BridgeSettings {
            base_env: Vec::new(),
            dir: Path::new("/"),
            env: &env,
            withheld: &withheld,
            sent: &[],
            on_log: None,
        };
        Bridge::start(&declared, settings).await
    }

    /// SECURITY.md: a skill sends a variable only to hosts that the user names for it.
    #[tokio::test]
    async fn a_variable_goes_to_hosts_that_the_user_names_for_it() {
        let env = BTreeMap::from([("TEAM".to_owned(), "canary".to_owned())]);
        let withheld = ["KEPT".to_owned()];
        let sent = ["TEAM", "KEPT"].map(|name| SentVariable {
            name: name.to_owned(),
            to: ServiceUrl::new("http://0.0.0.0:1").origin().expect("a host"),
            value: "canary".to_owned(),
        });
        let failure = async |sent: &[SentVariable], url: &str, variable: &str| {
            let declared = json!({"far": {"url": url, "headers": {"A": format!("Bearer ${{{variable}}}")}}});
            let settings = BridgeSettings {
                base_env: Vec::new(),
                dir: Path::new("/"),
                env: &env,
                withheld: &withheld,
                sent,
                on_log: None,
            };
            Bridge::start(&declared, settings).await.failure().expect("no one listens").message
        };
        let why = failure(&[], "http://0.0.0.0:1/mcp", "TEAM").await;
        assert!(why.contains("`TEAM` is not sent to `0.0.0.0") && !why.contains("canary"), "{why}");
        assert!(failure(&sent, "http://0.0.0.0:2/mcp", "TEAM").await.contains("is not sent to"));
        assert!(failure(&sent, "http://0.0.0.0:2/mcp", "KEPT").await.contains("contains a key"));
        for (url, variable) in
            [("http://127.0.0.1:1/mcp", "TEAM"), ("http://0.0.0.0:1/mcp", "TEAM"), ("http://0.0.0.0:1/mcp", "KEPT")]
        {
            let why = failure(&sent, url, variable).await;
            assert!(why.contains("cannot be used") && !why.contains("is not sent"), "{why}");
        }
    }

    /// D-12, D-2c: an unusable server is reported with its reason in the throw, unless it is optional.
    #[tokio::test]
    async fn servers_that_do_not_start_are_thrown() {
        let missing = "no-such-program-of-etude";
        let bridge = started(json!({
            "gone": {"command": missing},
            "unset": {"command": "cat", "env": {"A": "${NONE}"}},
            "held": {"url": "http://127.0.0.1:1", "headers": {"A": "${PROVIDER_KEY}"}},
            "down": {"url": "http://127.0.0.1:1/mcp"},
        }))
        .await;
        let throw = bridge.failure().expect("a throw");
        assert_eq!((throw.kind, bridge.problems.len()), (ThrowKind::Environment, 0));
        for part in [
            "the MCP server `gone` cannot be used: `no-such-program-of-etude` could not be started",
            "the MCP server `unset` is not started: the variable `NONE` is not set",
            "the MCP server `held` is not started: the variable `PROVIDER_KEY` is set, but contains a key",
            "the MCP server `down` cannot be used: ",
        ] {
            assert!(throw.message.contains(part), "{part}: {}", throw.message);
        }
        let bridge = started(json!({"gone": {"command": missing, "optional": true}})).await;
        assert!(bridge.failure().is_none());
        assert_eq!(bridge.problems.len(), 1);
    }

    /// D-12: a typed answer becomes the fields that the server asked for.
    #[test]
    fn answers_become_fields() {
        let schema = |kind: &str| json!({"properties": {"sure": {"type": kind}}});
        assert_eq!(fields("Yes", &schema("boolean")), Some(json!({"sure": true})));
        assert_eq!(fields("12", &schema("integer")), Some(json!({"sure": 12})));
        assert_eq!(fields("twelve", &schema("integer")), None);
        assert_eq!(fields("well", &schema("string")), Some(json!({"sure": "well"})));
        let two = json!({"properties": {"a": {}, "b": {}}});
        assert_eq!(fields(r#"{"a": 1, "b": 2}"#, &two), Some(json!({"a": 1, "b": 2})));
        assert_eq!(fields("a", &two), None);
    }
}
