//! Middleware that allows a call, refuses it, or asks (D-13).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use crate::chain::{Middleware, Options, Resume, Step, Throw, ThrowKind, View};
use etude_spec::cascade::Skills;
use etude_spec::cascade::strategy::TrustNoGateway;
use etude_tools::pattern::Verdict;
use serde_json::{Map, Value, json};

use super::Shared;
use crate::call::{Asker, HostCall};
use etude_files::beneath::Dir;
use etude_files::regular;

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
    /// The decisions about tools whose `store` is `file`; read on first use.
    kept: Option<BTreeMap<String, bool>>,
}

/// Folder and name of the file with decisions. A link in place of either is not followed: it would lead out of the project.
const FOLDER: &str = ".etude";
const FILE: &str = "trust.json";

impl Decisions {
    /// The decisions in the file of the project in `dir`.
    fn kept(&mut self, dir: &Path) -> &mut BTreeMap<String, bool> {
        self.kept.get_or_insert_with(|| {
            let file = Dir::open(dir).and_then(|dir| dir.open_dir(FOLDER.as_ref())?.open_file(FILE.as_ref()));
            let text = file.and_then(|file| regular::read_from(file, super::MAX_SIZE)).unwrap_or_default();
            let members: Map<String, Value> = serde_json::from_slice(&text).unwrap_or_default();
            members.into_iter().filter_map(|(name, value)| Some((name, value.as_bool()?))).collect()
        })
    }

    fn of(&mut self, dir: &Path, settings: &Value, name: &str) -> Option<bool> {
        let made = if is_in_file(settings) { self.kept(dir) } else { &self.made };
        made.get(name).copied()
    }

    fn keep(&mut self, dir: &Path, settings: &Value, name: &str, allowed: bool) -> std::io::Result<()> {
        if !is_in_file(settings) {
            self.made.insert(name.to_owned(), allowed);
            return Ok(());
        }
        let made = self.kept(dir);
        made.insert(name.to_owned(), allowed);
        let content = format!("{}\n", json!(made));
        // `.etude` of a project may contain skills: its permissions stay as they are.
        let folder = Dir::open(dir)?.make_dir(FOLDER.as_ref())?;
        // A new file is readable by its owner only; an existing one keeps its permissions.
        match folder.create_new(FILE.as_ref(), Some(0o600)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            _ => folder.replace(FILE.as_ref(), content.as_bytes()),
        }
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
        let args = HostCall::of(target).map_or(&*target.args, |call| call.checks.shown(&target.args));
        let question = format!("May `{name}` be called with {args}?");
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
            "question": question, "tool": name, "args": args, "options": ["once", "always", "deny"],
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
    Throw::new(ThrowKind::Failed, "trust", format!("cannot store the decision in `.etude/trust.json`: {error}"))
}

fn denied(name: &str, why: &str) -> Step {
    Step::Throw(Throw::new(ThrowKind::NotTrusted, "trust", format!("`{name}` was not called: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SECURITY.md, "The author of a repository": nothing is written or read by way of a link of the app.
    #[test]
    fn decisions_follow_no_link_out_of_the_project() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let settings = json!({"store": "file"});
        let (dir, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let place = outside.path().join(FILE);
        std::fs::write(&place, "{\"b\": true}\n").expect("written");
        symlink(outside.path(), dir.path().join(FOLDER)).expect("linked");
        assert_eq!(Decisions::default().of(dir.path(), &settings, "b"), None);
        Decisions::default().keep(dir.path(), &settings, "a", true).expect_err("it is a link");
        assert_eq!(std::fs::read_to_string(&place).expect("read"), "{\"b\": true}\n");

        std::fs::remove_file(dir.path().join(FOLDER)).expect("removed");
        Decisions::default().keep(dir.path(), &settings, "a", true).expect("kept");
        Decisions::default().keep(dir.path(), &settings, "b", false).expect("kept");
        let own = dir.path().join(FOLDER).join(FILE);
        assert_eq!(std::fs::read_to_string(&own).expect("read"), "{\"a\":true,\"b\":false}\n");
        assert_eq!(std::fs::metadata(&own).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(Decisions::default().of(dir.path(), &settings, "b"), Some(false));
    }
}
