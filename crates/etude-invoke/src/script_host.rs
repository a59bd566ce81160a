//! Requests of a running code tool: one JSON document per line over a local socket (`$ETUDE_HOST`).
//!
//! `docs/design/host-protocol.md` is the contract. Every call has its own socket, so a request need not name its call, and a
//! program that outlives its call can request nothing.

mod unix;

use crate::chain::{Outcome, Throw, ThrowKind};
use serde_json::{Number, Value, json};

pub use unix::ask;
pub(crate) use unix::listen;

/// The variable that holds the path of the socket.
pub const VARIABLE: &str = "ETUDE_HOST";

/// A request of a script through the socket.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Calls another skill; the reply is its result.
    Invoke {
        /// The name or path of the skill.
        name: String,
        /// Its arguments, with options in `$context`.
        args: Value,
    },
    /// Runs the rest of the target's chain.
    Next,
    /// Reads a value of the target's context.
    Get(String),
    /// Sets a value of the target's context.
    Set(String, Value),
    /// Adds to a number, atomically.
    Add {
        /// Path of the number; a missing value counts as 0.
        path: String,
        /// The number to add, which may be negative.
        by: Number,
        /// Upper limit of the sum. A larger sum is refused, and nothing changes.
        max: Option<Number>,
    },
    /// Emits an event, with its topic and payload.
    Emit(String, Value),
    /// Asks a person through the gateway.
    Question(Value),
    /// Writes a line to the log.
    Log {
        /// `trace`, `debug`, `info`, `warn` or `error`.
        level: String,
        /// One line, as the script wrote it.
        text: String,
    },
}

impl Ask {
    /// Parses a request such as `{"op": "get", "path": "args.who"}`.
    ///
    /// # Errors
    /// The fault of the document.
    pub fn parse(document: &Value) -> Result<Self, String> {
        let text = |key: &str| {
            let found = document.get(key).and_then(Value::as_str);
            found.map(str::to_owned).ok_or_else(|| format!("`{key}` must be text"))
        };
        let value = |key: &str| document.get(key).cloned().unwrap_or(Value::Null);
        let number = |key: &str| match document.get(key).filter(|value| !value.is_null()) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number.clone())),
            Some(_) => Err(format!("`{key}` must be a number")),
        };
        match document.get("op").and_then(Value::as_str).unwrap_or_default() {
            "invoke" => {
                let args = document.get("args").cloned().unwrap_or_else(|| json!({}));
                Ok(Self::Invoke { name: text("name")?, args })
            }
            "next" => Ok(Self::Next),
            "get" => Ok(Self::Get(text("path")?)),
            "set" => Ok(Self::Set(text("path")?, value("value"))),
            "add" => {
                let by = number("by")?.unwrap_or_else(|| 1.into());
                Ok(Self::Add { path: text("path")?, by, max: number("max")? })
            }
            "emit" => Ok(Self::Emit(text("topic")?, value("data"))),
            "ask" => Ok(Self::Question(value("question"))),
            "log" => Ok(Self::Log { level: text("level")?, text: text("text")? }),
            other => Err(format!(
                "`{other}` is not an operation; operations are invoke, next, get, set, add, emit, ask and log"
            )),
        }
    }

    /// The document of a request.
    pub fn json(&self) -> Value {
        match self {
            Self::Invoke { name, args } => json!({"op": "invoke", "name": name, "args": args}),
            Self::Next => json!({"op": "next"}),
            Self::Get(path) => json!({"op": "get", "path": path}),
            Self::Set(path, value) => json!({"op": "set", "path": path, "value": value}),
            Self::Add { path, by, max } => json!({"op": "add", "path": path, "by": by, "max": max}),
            Self::Emit(topic, data) => json!({"op": "emit", "topic": topic, "data": data}),
            Self::Question(question) => json!({"op": "ask", "question": question}),
            Self::Log { level, text } => json!({"op": "log", "level": level, "text": text}),
        }
    }
}

/// The document of a reply: `{"ok": true, "value": …}`, with `"undefined": true` for no value, or `{"ok": false, "error":
/// {"kind", "tool", "message"}}`.
pub fn answer(outcome: &Outcome) -> Value {
    match outcome {
        Ok(Some(value)) => json!({"ok": true, "value": value}),
        Ok(None) => json!({"ok": true, "value": null, "undefined": true}),
        Err(throw) => json!({"ok": false, "error": throw.json()}),
    }
}

/// Parses the outcome in a reply.
pub fn outcome(document: &Value) -> Outcome {
    if document.get("ok") == Some(&Value::Bool(true)) {
        let is_undefined = document.get("undefined") == Some(&Value::Bool(true));
        return Ok(document.get("value").filter(|_| !is_undefined).cloned());
    }
    let text = |key: &str| document.get("error").and_then(|error| error.get(key)).and_then(Value::as_str);
    let kind = text("kind").and_then(ThrowKind::from_word).unwrap_or(ThrowKind::Failed);
    Err(Throw::new(kind, text("tool").unwrap_or_default(), text("message").unwrap_or("the host did not respond")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli, system D: requests and replies survive the wire.
    #[test]
    fn requests_and_answers_survive_the_wire() {
        for ask in [
            Ask::Invoke { name: "a".into(), args: json!({"b": 1}) },
            Ask::Next,
            Ask::Get("args.who".into()),
            Ask::Set("locals.x".into(), json!([1])),
            Ask::Add { path: "globals.n".into(), by: 2.into(), max: Some(4.into()) },
            Ask::Add { path: "locals.n".into(), by: (-1).into(), max: None },
            Ask::Emit("t".into(), json!(null)),
            Ask::Question(json!("ok?")),
            Ask::Log { level: "info".into(), text: "x".into() },
        ] {
            assert_eq!(Ask::parse(&ask.json()), Ok(ask));
        }
        let throw = Throw::new(ThrowKind::NotAllowed, "t", "no");
        for said in [Ok(Some(json!(null))), Ok(None), Ok(Some(json!({"ok": false}))), Err(throw)] {
            assert_eq!(outcome(&answer(&said)), said);
        }
    }

    /// cli, system D: an invalid request is refused with its fault.
    #[test]
    fn odd_requests_are_refused() {
        assert!(Ask::parse(&json!({"op": "steal"})).unwrap_err().contains("`steal`"));
        assert!(Ask::parse(&json!({"op": "get"})).unwrap_err().contains("`path`"));
        assert!(Ask::parse(&json!([])).is_err());
    }
}
