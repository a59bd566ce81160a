//! Display of a call on stderr, and on stdout as JSON lines if a program reads them.

use std::time::Duration;

use etude_invoke::Watch;
use etude_invoke::chain::{Event, EventKind};
use etude_spec::cascade::log::{REPORTERS, scopes};
use serde_json::{Map, Value, json};

use crate::render::middleware::{DEBUG, INFO, LEVELS, level, millis, named_level};
use crate::render::text::harmless;
use crate::stdout;

/// Log scopes with their descriptions.
const SCOPES: &[(&str, &str)] = &[
    ("pipeline", "every invocation: when it begins and how it ends"),
    ("events", "events that skills emit"),
    ("tools", "lines that skills log"),
    ("agent", "what the programs of skills write to stderr, and agents with them"),
];

/// Parsed values of `--log`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Asked {
    level: Option<usize>,
    scopes: Vec<String>,
    reporter: Option<String>,
}

impl Asked {
    /// Parses the values of `--log`.
    ///
    /// # Errors
    /// Description of the first invalid value.
    pub(crate) fn parse(values: &[String]) -> Result<Self, String> {
        let mut asked = Self::default();
        for value in values {
            match value.split_once('=').unwrap_or(("scope", value)) {
                ("level", word) => {
                    let known = named_level(word);
                    asked.level = Some(known.ok_or_else(|| format!("`{word}` is not a level; {}", listing()))?);
                }
                ("scope", "full") => asked.level = Some(0),
                ("scope", scopes) => {
                    for scope in scopes.split(',') {
                        if !SCOPES.iter().any(|(known, _)| *known == scope) {
                            return Err(format!("`{scope}` is not a scope; {}", listing()));
                        }
                        asked.scopes.push(scope.to_owned());
                    }
                }
                ("reporter", word) => match REPORTERS.contains(&word) {
                    true => asked.reporter = Some(word.to_owned()),
                    false => return Err(format!("`{word}` is not a reporter; {}", listing())),
                },
                (key, _) => {
                    return Err(format!("`--log` has no key `{key}`; keys are `level`, `scope` and `reporter`"));
                }
            }
        }
        Ok(asked)
    }

    /// Fills keys that the command line does not set from the `log` metadata of the skill. Unknown words are ignored here; the
    /// check of the skill warns about them.
    fn over(mut self, settings: Option<&Value>) -> Self {
        let setting = |key: &str| settings.and_then(|settings| settings.get(key));
        let word = |key: &str| setting(key).and_then(Value::as_str);
        self.reporter =
            self.reporter.or_else(|| word("reporter").filter(|word| REPORTERS.contains(word)).map(str::to_owned));
        if self.scopes.is_empty() {
            let declared = setting("scope").map(scopes).unwrap_or_default();
            if declared.iter().any(|scope| scope == "full") {
                self.level = self.level.or(Some(0));
            }
            let is_known = |scope: &String| SCOPES.iter().any(|(known, _)| known == scope);
            self.scopes = declared.into_iter().filter(is_known).collect();
        }
        self.level = self.level.or_else(|| word("level").and_then(named_level));
        self
    }
}

/// Human-readable list of levels, scopes and reporters.
pub(crate) fn listing() -> String {
    let scopes: Vec<String> = SCOPES.iter().map(|(name, what)| format!("  {name:<10}{what}\n")).collect();
    format!("levels: {}\nscopes:\n{}reporters: {}\n", LEVELS.join(", "), scopes.concat(), REPORTERS.join(", "))
}

/// List of levels, scopes and reporters as a document.
pub(crate) fn listed() -> Value {
    let scopes: Map<String, Value> = SCOPES.iter().map(|(name, what)| ((*name).to_owned(), (*what).into())).collect();
    json!({"levels": LEVELS, "scopes": scopes, "reporters": REPORTERS})
}

/// Writes events to stderr, and also to stdout if that is a stream of documents.
#[derive(Debug)]
pub(crate) struct Face {
    /// Minimum level that is shown, as an index into [`LEVELS`].
    least: usize,
    /// True if every invocation is shown.
    shows_invocations: bool,
    /// True if events also go to stdout.
    streams: bool,
    /// Scopes that are shown; empty for all.
    scopes: Vec<String>,
    /// The one scope that is reported, or `json` for documents instead of text.
    reporter: Option<String>,
}

impl Face {
    pub(crate) fn new(quiet: bool, verbose: u8, streams: bool, settings: Option<&Value>, asked: Asked) -> Self {
        let asked = asked.over(settings);
        let is_for = |word: &str| word == "pipeline" || word == "events";
        // D-16: `-vvv` is debug, `-vvvv` trace; all of them show invocations.
        let least = match (quiet, verbose) {
            (true, _) => 4,
            (_, 0..=2) => asked.level.unwrap_or(INFO),
            (_, 3) => DEBUG,
            _ => 0,
        };
        let shows_invocations =
            least == 0 || verbose > 0 || asked.scopes.iter().chain(&asked.reporter).any(|word| is_for(word));
        Self { least, shows_invocations, streams, scopes: asked.scopes, reporter: asked.reporter }
    }

    fn is_shown(&self, scope: &str) -> bool {
        let is_reported = self.reporter.as_ref().is_none_or(|reporter| reporter == scope || reporter == "json");
        is_reported && (self.scopes.is_empty() || self.scopes.iter().any(|known| known == scope))
    }

    /// Reports one event, as a line of text or as a document.
    fn report(&self, document: &Value, line: impl FnOnce() -> String) {
        match self.reporter.as_deref() {
            Some("json") => crate::render::say!("{document}"),
            _ => crate::render::say!("{}", line()),
        }
    }
}

impl Watch for Face {
    fn event(&mut self, event: &Event, took: Option<Duration>) {
        let (word, throw) = match &event.kind {
            EventKind::Started => ("started", None),
            EventKind::Ended => ("ended", None),
            EventKind::Failed(throw) => ("failed", Some(throw)),
        };
        let is_shown = self.shows_invocations && self.is_shown("pipeline");
        if !self.streams && !is_shown {
            return;
        }
        let error = throw.map(etude_invoke::chain::Throw::json);
        let mut document =
            json!({"event": word, "tool": &*event.tool, "serves": event.serves.as_deref(), "error": error});
        if let Some(took) = took {
            document["duration_ms"] = millis(took).into();
        }
        if self.streams {
            stdout::json(&document);
        }
        if is_shown {
            self.report(&document, || {
                let serves = event.serves.as_ref().map(|target| format!(" for {target}")).unwrap_or_default();
                let why = throw.map(|throw| format!(": {}", harmless(&throw.message))).unwrap_or_default();
                let took = took.map(|took| format!(" after {:.1} ms", millis(took))).unwrap_or_default();
                format!("{word} {}{serves}{took}{why}", event.tool)
            });
        }
    }

    fn log(&mut self, tool: &str, word: &str, text: &str) {
        let document = json!({"event": "log", "tool": tool, "level": word, "text": text});
        if self.streams {
            stdout::json(&document);
        }
        if level(word) >= self.least && self.is_shown("tools") {
            self.report(&document, || format!("{word}: {tool}: {}", harmless(text)));
        }
    }

    fn emitted(&mut self, event: &Value) {
        let document = json!({"event": "emitted", "emitted": event});
        if self.streams {
            stdout::json(&document);
        }
        if self.shows_invocations && self.is_shown("events") {
            self.report(&document, || format!("emitted {event}"));
        }
    }

    fn stderr(&mut self, tool: &str, text: &[u8]) {
        if self.least < 4 && self.is_shown("agent") {
            let text = String::from_utf8_lossy(text);
            match self.reporter.as_deref() {
                Some("json") => crate::render::say!("{}", json!({"event": "stderr", "tool": tool, "text": text})),
                _ => crate::render::say_part!("{}", harmless(&text)),
            }
        }
    }
}
