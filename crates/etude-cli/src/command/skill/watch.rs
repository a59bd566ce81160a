//! What a call says on stderr, and, line by line, on stdout where a program reads along.

use std::io::Write;
use std::time::Duration;

use etude::cascade::Watch;
use etude::chain::{Event, EventKind};
use serde_json::{Value, json};

use crate::render::layers::millis;
use crate::stdout;

/// The levels of log lines, the most talkative one first.
const LEVELS: &[&str] = &["trace", "debug", "info", "warn", "error", "silent"];

/// Writes to stderr, and events to stdout if that is a stream of documents.
#[derive(Debug)]
pub(crate) struct Face {
    /// What is less important than this is not shown: a place in [`LEVELS`].
    least: usize,
    /// Every invocation is shown.
    shows_invocations: bool,
    /// Events go to stdout, too.
    streams: bool,
}

impl Face {
    pub(crate) fn new(quiet: bool, verbose: bool, streams: bool, settings: Option<&Value>) -> Self {
        let level = settings.and_then(|settings| settings.get("level")).and_then(Value::as_str);
        let declared = level.and_then(|level| LEVELS.iter().position(|known| *known == level));
        let least = match (quiet, verbose) {
            (true, _) => 4,
            (_, true) => 0,
            _ => declared.unwrap_or(2),
        };
        Self { least, shows_invocations: least == 0, streams }
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
            let error = throw.map(etude::chain::Throw::json);
            let mut line =
                json!({"event": word, "tool": &*event.tool, "serves": event.serves.as_deref(), "error": error});
            if let Some(took) = took {
                line["duration_ms"] = millis(took).into();
            }
            stdout::json(&line);
        }
        if self.shows_invocations {
            let serves = event.serves.as_ref().map(|target| format!(" for {target}")).unwrap_or_default();
            let why = throw.map(|throw| format!(": {}", throw.message)).unwrap_or_default();
            let took = took.map(|took| format!(" after {:.1} ms", millis(took))).unwrap_or_default();
            anstream::eprintln!("{word} {}{serves}{took}{why}", event.tool);
        }
    }

    fn log(&mut self, tool: &str, level: &str, text: &str) {
        if self.streams {
            stdout::json(&json!({"event": "log", "tool": tool, "level": level, "text": text}));
        }
        if LEVELS.iter().position(|known| *known == level).unwrap_or(2) >= self.least {
            anstream::eprintln!("{level}: {tool}: {text}");
        }
    }

    fn emitted(&mut self, event: &Value) {
        if self.streams {
            stdout::json(&json!({"event": "emitted", "emitted": event}));
        }
        if self.shows_invocations {
            anstream::eprintln!("emitted {event}");
        }
    }

    fn stderr(&mut self, _tool: &str, text: &[u8]) {
        if self.least < 4 {
            // Nothing can be said if stderr is closed.
            let _ = anstream::stderr().write_all(String::from_utf8_lossy(text).as_bytes());
        }
    }
}
