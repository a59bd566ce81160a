//! What a call says on stderr, and, line by line, on stdout where a program reads along.

use std::time::Duration;

use etude_invoke::Watch;
use etude_invoke::chain::{Event, EventKind};
use serde_json::{Map, Value, json};

use crate::render::layers::{DEBUG, INFO, LEVELS, level, millis, named_level};
use crate::render::text::harmless;
use crate::stdout;

/// What there is to tell, by scope.
const SCOPES: &[(&str, &str)] = &[
    ("pipeline", "every invocation: when it begins and how it ends"),
    ("events", "events that skills emit"),
    ("tools", "lines that skills log"),
    ("agent", "what the programs of skills write to stderr, and agents with them"),
];

/// What `--log` asks for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Asked {
    level: Option<usize>,
    scopes: Vec<String>,
}

impl Asked {
    /// The meaning of the values of `--log`.
    ///
    /// # Errors
    /// What is wrong with one.
    pub(crate) fn of(values: &[String]) -> Result<Self, String> {
        let mut asked = Self::default();
        for value in values {
            match value.split_once('=').unwrap_or(("scope", value)) {
                ("level", word) => {
                    let known = named_level(word);
                    asked.level = Some(known.ok_or_else(|| format!("`{word}` is no level; {}", listing()))?);
                }
                ("scope", "full") => asked.level = Some(0),
                ("scope", scopes) => {
                    for scope in scopes.split(',') {
                        if !SCOPES.iter().any(|(known, _)| *known == scope) {
                            return Err(format!("`{scope}` is no scope; {}", listing()));
                        }
                        asked.scopes.push(scope.to_owned());
                    }
                }
                (key, _) => return Err(format!("`--log {key}=…` is not known; there are `level` and `scope`")),
            }
        }
        Ok(asked)
    }
}

/// The levels and scopes, for people.
pub(crate) fn listing() -> String {
    let scopes: Vec<String> = SCOPES.iter().map(|(name, what)| format!("  {name:<10}{what}\n")).collect();
    format!("levels: {}\nscopes:\n{}", LEVELS.join(", "), scopes.concat())
}

/// The same as a document.
pub(crate) fn listed() -> Value {
    let scopes: Map<String, Value> = SCOPES.iter().map(|(name, what)| ((*name).to_owned(), (*what).into())).collect();
    json!({"levels": LEVELS, "scopes": scopes})
}

/// Writes to stderr, and events to stdout if that is a stream of documents.
#[derive(Debug)]
pub(crate) struct Face {
    /// What is less important than this is not shown: a place in [`LEVELS`].
    least: usize,
    /// Every invocation is shown.
    shows_invocations: bool,
    /// Events go to stdout, too.
    streams: bool,
    /// Only these are shown; all of them if there are none.
    scopes: Vec<String>,
}

impl Face {
    pub(crate) fn new(quiet: bool, verbose: u8, streams: bool, settings: Option<&Value>, asked: Asked) -> Self {
        let declared = settings.and_then(|settings| settings.get("level")).and_then(Value::as_str);
        let declared = declared.and_then(named_level);
        // D-16: `-vvv` is debug, `-vvvv` trace; all of them show invocations.
        let least = match (quiet, verbose) {
            (true, _) => 4,
            (_, 0..=2) => asked.level.or(declared).unwrap_or(INFO),
            (_, 3) => DEBUG,
            _ => 0,
        };
        let shows_invocations =
            least == 0 || verbose > 0 || asked.scopes.iter().any(|scope| scope == "pipeline" || scope == "events");
        Self { least, shows_invocations, streams, scopes: asked.scopes }
    }

    fn is_shown(&self, scope: &str) -> bool {
        self.scopes.is_empty() || self.scopes.iter().any(|known| known == scope)
    }
}

impl Watch for Face {
    fn event(&mut self, event: &Event, took: Option<Duration>) {
        let (word, throw) = match &event.kind {
            EventKind::Started => ("started", None),
            EventKind::Ended => ("ended", None),
            EventKind::Failed(throw) => ("failed", Some(throw)),
        };
        if self.streams {
            let error = throw.map(etude_invoke::chain::Throw::json);
            let mut line =
                json!({"event": word, "tool": &*event.tool, "serves": event.serves.as_deref(), "error": error});
            if let Some(took) = took {
                line["duration_ms"] = millis(took).into();
            }
            stdout::json(&line);
        }
        if self.shows_invocations && self.is_shown("pipeline") {
            let serves = event.serves.as_ref().map(|target| format!(" for {target}")).unwrap_or_default();
            let why = throw.map(|throw| format!(": {}", harmless(&throw.message))).unwrap_or_default();
            let took = took.map(|took| format!(" after {:.1} ms", millis(took))).unwrap_or_default();
            crate::render::say!("{word} {}{serves}{took}{why}", event.tool);
        }
    }

    fn log(&mut self, tool: &str, word: &str, text: &str) {
        if self.streams {
            stdout::json(&json!({"event": "log", "tool": tool, "level": word, "text": text}));
        }
        if level(word) >= self.least && self.is_shown("tools") {
            crate::render::say!("{word}: {tool}: {}", harmless(text));
        }
    }

    fn emitted(&mut self, event: &Value) {
        if self.streams {
            stdout::json(&json!({"event": "emitted", "emitted": event}));
        }
        if self.shows_invocations && self.is_shown("events") {
            crate::render::say!("emitted {event}");
        }
    }

    fn stderr(&mut self, _tool: &str, text: &[u8]) {
        if self.least < 4 && self.is_shown("agent") {
            crate::render::say_part!("{}", harmless(&String::from_utf8_lossy(text)));
        }
    }
}
