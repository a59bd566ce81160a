//! Middleware that allows a call, refuses it, or asks (D-13).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crate::chain::{Middleware, Options, Resume, Step, Throw, ThrowKind, View};
use etude_spec::cascade::Skills;
use etude_spec::cascade::strategy::TrustNoGateway;
use etude_tools::pattern::Verdict;
use serde_json::{Map, Value, json};

use super::{Shared, refusal};
use crate::call::{Asker, HostCall};
use etude_files::whole::{self, Access, Durability};

/// Name of the tool that asks people.
pub(crate) const GATEWAY: &str = "gateway-receive";

/// Applies the trust rules in the target's metadata.
pub(super) struct Trust {
    pub(super) shared: Arc<Shared>,
}

/// Permanent decisions, by the name of the tool.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    /// Decisions about tools whose `store` is `memory`: they end with the process.
    made: BTreeMap<String, bool>,
    /// The file, with the decisions about tools whose `store` is `file`; read on first use.
    kept: Option<(PathBuf, BTreeMap<String, bool>)>,
}

impl Decisions {
    /// The decisions in the file of the project in `dir`.
    fn kept(&mut self, dir: &Path) -> &mut (PathBuf, BTreeMap<String, bool>) {
        self.kept.get_or_insert_with(|| {
            let file = dir.join(".etude").join("trust.json");
            let text = etude_files::regular::read_text(&file, super::MAX_SIZE).unwrap_or_default();
            let members: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
            let made = members.into_iter().filter_map(|(name, value)| Some((name, value.as_bool()?))).collect();
            (file, made)
        })
    }

    fn of(&mut self, dir: &Path, settings: &Value, name: &str) -> Option<bool> {
        let made = if is_in_file(settings) { &self.kept(dir).1 } else { &self.made };
        made.get(name).copied()
    }

    fn keep(&mut self, dir: &Path, settings: &Value, name: &str, allowed: bool) -> std::io::Result<()> {
        if !is_in_file(settings) {
            self.made.insert(name.to_owned(), allowed);
            return Ok(());
        }
        let (file, made) = self.kept(dir);
        made.insert(name.to_owned(), allowed);
        if let Some(dir) = file.parent() {
            // `.etude` of a project may contain skills: its permissions stay as they are.
            std::fs::create_dir_all(dir)?;
        }
        whole::replace(file, format!("{}\n", json!(made)).as_bytes(), Access::Owner, Durability::Process)
    }
}

/// True if a permanent decision outlives the process (D-13: only if the tool says so).
fn is_in_file(settings: &Value) -> bool {
    settings.get("store").and_then(Value::as_str) == Some("file")
}

impl Middleware for Trust {
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step {
        match resume {
            Resume::Start => self.decide(view),
            Resume::Invoked(Ok(answer)) => self.answered(view, answer.as_ref()),
            Resume::Invoked(Err(throw)) => Step::Throw(throw),
            _ => Step::Done(None),
        }
    }
}

/// The rules of `trust`, as one list of patterns. `None` if they cannot be read: a misspelt guard must not count as no guard.
fn rules(settings: &Value) -> Option<String> {
    match settings {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.clone()),
        Value::Array(rules) => rules.iter().map(Value::as_str).collect::<Option<Vec<_>>>().map(|rules| rules.join(" ")),
        Value::Object(members) if members.is_empty() => Some(String::new()),
        Value::Object(members) => match members.get("rules")? {
            Value::Object(_) => None,
            rules => self::rules(rules),
        },
        _ => None,
    }
}

impl Trust {
    fn decide(&self, view: &mut View<'_>) -> Step {
        let target = view.target();
        let settings = target.metadata("trust").cloned().unwrap_or(Value::Null);
        if target.is_entry() {
            return Step::Done(None);
        }
        let name = target.tool.name.to_string();
        let Some(rules) = rules(&settings) else {
            return denied(
                &name,
                "`trust` is not valid: it needs `rules`, which must be a tool pattern or a list of tool patterns",
            );
        };
        let matching = self.shared.matching(&rules, target);
        if matching.iter().any(|(_, verdict)| *verdict == Verdict::Deny) {
            return denied(&name, "a trust rule denies it");
        }
        if self.shared.yolo || matching.iter().all(|(rule, _)| rule.contains("$policy=allow")) {
            return Step::Done(None);
        }
        match self.stored(&settings, &name) {
            Some(true) => return Step::Done(None),
            Some(false) => return denied(&name, "it was denied permanently"),
            None => {}
        }
        let question = format!("May `{name}` be called with {}?", target.args);
        if let Some(call) = HostCall::of(target) {
            if call.checks.is_confirmed {
                return Step::Done(None);
            }
            if call.checks.asker == Asker::Gate && self.shared.catalog.find(GATEWAY).is_none() {
                return Step::Throw(call.hold("trust", &format!("trust {name}"), &question, false));
            }
        }
        if self.shared.catalog.find(GATEWAY).is_none() {
            return match self.shared.strategy.trust_no_gateway {
                TrustNoGateway::Refuse => denied(
                    &name,
                    "a trust rule requires approval, and no one can be asked; `--yolo` approves every call",
                ),
                TrustNoGateway::Pass => Step::Done(None),
            };
        }
        let args = json!({
            "question": question, "tool": name, "args": &*target.args, "options": ["once", "always", "deny"],
        });
        Step::Invoke { reference: GATEWAY.to_owned(), args, options: Options { is_exempt: true, ..Options::default() } }
    }

    fn stored(&self, settings: &Value, name: &str) -> Option<bool> {
        let mut decisions = self.shared.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        decisions.of(&self.shared.dir, settings, name)
    }

    fn answered(&self, view: &View<'_>, answer: Option<&Value>) -> Step {
        let name = view.target().tool.name.to_string();
        let answer = answer.map(|answer| answer.get("answer").unwrap_or(answer));
        let word = answer.and_then(Value::as_str).map(|word| word.trim().to_lowercase());
        let settings = view.target().metadata("trust").cloned().unwrap_or(Value::Null);
        let keep = |allowed| {
            let mut decisions = self.shared.decisions.lock().unwrap_or_else(PoisonError::into_inner);
            decisions.keep(&self.shared.dir, &settings, &name, allowed)
        };
        match (word.as_deref(), answer.and_then(Value::as_bool)) {
            (Some("once" | "yes" | "y"), _) | (_, Some(true)) => Step::Done(None),
            (Some("always"), _) => match keep(true) {
                Ok(()) => Step::Done(None),
                Err(error) => Step::Throw(unkept(&error)),
            },
            _ => denied(&name, "it was denied"),
        }
    }
}

fn unkept(error: &std::io::Error) -> Throw {
    refusal(ThrowKind::Failed, "trust", format!("cannot store the decision in `.etude/trust.json`: {error}"))
}

fn denied(name: &str, why: &str) -> Step {
    Step::Throw(refusal(ThrowKind::NotTrusted, "trust", format!("`{name}` was not called: {why}")))
}
