//! The tools: one for each pipeline, machine and command of an application, and the fixed ones.

use globset::GlobMatcher;
use serde_json::{Map, Value, json};

use crate::api::{Api, Request};
use crate::broken::Broken;
use crate::command::{self, Command};
use crate::naming;
use crate::near::near;
use crate::schema;
use crate::service::Context;
use crate::wire::RpcError;

/// Maximum number of tools in the list; with more, it has the compact set. Cursor sends the first 40.
const MAX_TOOLS: usize = 30;

/// Default number of runs in the result of `etude_runs`.
pub(crate) const MAX_RUNS: usize = 10;

/// The tools that always exist, with the scope of each.
const FIXED: [(&str, &str); 6] = [
    ("etude_call", "run"),
    ("etude_cancel", "run"),
    ("etude_find", "read"),
    ("etude_resume", "run"),
    ("etude_runs", "read"),
    ("etude_show", "read"),
];

/// The selection of tools that a server exposes.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    tools: Option<GlobMatcher>,
    is_compact: bool,
}

impl Selection {
    /// Selects tools whose name matches `glob`, and the fixed ones. `is_compact`: the compact set, for any number of tools.
    ///
    /// # Errors
    /// The reason why the glob is invalid.
    pub fn new(glob: Option<&str>, is_compact: bool) -> Result<Self, String> {
        let glob = glob.map(globset::Glob::new).transpose().map_err(|e| e.to_string())?;
        Ok(Self { tools: glob.map(|glob| glob.compile_matcher()), is_compact })
    }
}

/// A pipeline, a machine or a command of an application as a tool.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The tool's name.
    pub(crate) name: String,
    pub(crate) app: String,
    /// `pipeline`, `machine` or `command`.
    pub(crate) kind: &'static str,
    /// The name in the app; for a command, the slug of its application.
    pub(crate) of: String,
    pub(crate) description: String,
    pub(crate) input: Value,
    pub(crate) is_read_only: bool,
    /// The declared command, if the target is one.
    pub(crate) command: Option<Command>,
}

/// The tool that a name refers to.
#[derive(Debug, Clone)]
pub(crate) enum Tool {
    Find,
    Runs,
    Show,
    Cancel,
    Resume,
    Call,
    Run(Box<Target>),
}

impl Target {
    /// The name that is unique among targets of the same kind in the app.
    fn whole(&self) -> &str {
        if self.command.is_some() { &self.name } else { &self.of }
    }
}

/// The pipelines, machines and commands that the caller's token may see, as the files are now.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) apps: Vec<String>,
    pub(crate) targets: Vec<Target>,
    /// The pipelines and machines that are not tools, because they have errors.
    pub(crate) broken: Vec<Broken>,
    is_compact: bool,
    fixed: Vec<&'static str>,
}

impl Catalog {
    pub(crate) async fn read(api: &dyn Api, selection: &Selection, context: &Context) -> Result<Self, RpcError> {
        // The scope decides about each tool: a token with `run` alone knows what it runs (S-157).
        let reply = api.send(Request::for_call("/v1/apps")).await;
        let document: Value = match reply.status {
            200 => serde_json::from_slice(&reply.body).map_err(|e| RpcError::internal(e.to_string()))?,
            _ => return Err(RpcError::internal(crate::result::sentence(&reply))),
        };
        let apps: Vec<&Value> = document["apps"].as_array().into_iter().flatten().collect();
        let (mut targets, mut broken) = (Vec::new(), Vec::new());
        for app in &apps {
            let slug = app["app"].as_str().unwrap_or_default();
            for (list, kind) in [("pipelines", "pipeline"), ("machines", "machine")] {
                let entries = app[list].as_array().into_iter().flatten();
                let (faulty, sound): (Vec<&Value>, Vec<&Value>) = entries.partition(|entry| entry["valid"] == false);
                targets.extend(sound.into_iter().filter_map(|entry| target(slug, kind, entry)));
                let faults = faulty.into_iter().filter_map(|entry| Broken::new(kind, entry, &app["diagnostics"]));
                broken.extend(faults);
            }
            let applications = app["applications"].as_array().into_iter().flatten();
            targets.extend(applications.flat_map(|application| command::targets(slug, application)));
        }
        targets.retain(|target| api.covers(&target.of) && api.may("run"));
        broken.retain(|broken: &Broken| api.covers(&broken.of) && api.may("run"));
        targets.sort_by(|a, b| (&a.of, a.kind, &a.app, &a.name).cmp(&(&b.of, b.kind, &b.app, &b.name)));
        let wanted: Vec<(String, String)> = targets
            .iter()
            .map(|target| (target.name.clone(), format!("{} {} {}", target.app, target.kind, target.whole())))
            .collect();
        for (target, name) in targets.iter_mut().zip(naming::unique(&wanted, &FIXED.map(|(name, _)| name))) {
            let read_only = context.settings(&target.app).read_only;
            let is_listed = read_only.contains(&target.of) || read_only.contains(&name);
            target.is_read_only = is_listed && target.command.is_none();
            target.name = name;
        }
        let is_compact =
            selection.is_compact || selection.tools.is_none() && targets.len() + FIXED.len() - 1 > MAX_TOOLS;
        if let Some(glob) = &selection.tools {
            targets.retain(|target| glob.is_match(&target.name));
            broken.retain(|broken| glob.is_match(&broken.name));
        }
        targets.sort_by(|a, b| a.name.cmp(&b.name));
        let fixed = FIXED.iter().filter(|(name, scope)| api.may(scope) && (is_compact || *name != "etude_call"));
        let fixed = fixed.map(|(name, _)| *name).collect();
        let apps = apps.iter().filter_map(|app| app["app"].as_str()).map(str::to_owned).collect();
        Ok(Self { apps, targets, broken, is_compact, fixed })
    }

    /// True if pipelines, machines and commands are called through `etude_call`.
    pub(crate) const fn is_compact(&self) -> bool {
        self.is_compact
    }

    /// The listed tool with this name.
    pub(crate) fn tool(&self, name: &str) -> Option<Tool> {
        if let Some(fixed) = self.fixed.iter().find(|fixed| **fixed == name) {
            return Some(match *fixed {
                "etude_find" => Tool::Find,
                "etude_runs" => Tool::Runs,
                "etude_show" => Tool::Show,
                "etude_cancel" => Tool::Cancel,
                "etude_resume" => Tool::Resume,
                _ => Tool::Call,
            });
        }
        (!self.is_compact).then(|| self.target(name)).flatten().map(|target| Tool::Run(Box::new(target.clone())))
    }

    /// The pipeline, machine or command with this tool name, listed or called through `etude_call`.
    pub(crate) fn target(&self, name: &str) -> Option<&Target> {
        self.targets.iter().find(|target| target.name == name)
    }

    /// The target of a name in `etude_call`: the tool with this name, otherwise the only pipeline or machine with it.
    ///
    /// # Errors
    /// There is no such target, or there are several, which the message lists.
    pub(crate) fn called(&self, name: &str) -> Result<&Target, String> {
        if let Some(target) = self.target(name) {
            return Ok(target);
        }
        match self.of(name).as_slice() {
            [] => Err(match self.broken(name) {
                Some(broken) => format!("there is no tool `{name}`: {}", broken.sentence()),
                None => {
                    let meant = Self::meant(name, self.targets.iter().map(|target| target.name.as_str()));
                    format!("there is no tool `{name}`{meant}; find one with `etude_find`")
                }
            }),
            [target] => Ok(target),
            several => {
                let names: Vec<String> = several.iter().map(|target| format!("`{}`", target.name)).collect();
                Err(format!("the name `{name}` is ambiguous; use one of the tools {}", names.join(", ")))
            }
        }
    }

    /// The pipelines and machines with this name in their apps.
    fn of(&self, name: &str) -> Vec<&Target> {
        self.targets.iter().filter(|target| target.command.is_none() && target.of == name).collect()
    }

    /// The target of a name in a route of `app`. A pipeline wins over a machine.
    pub(crate) fn routed(&self, app: &str, name: &str) -> Option<&Target> {
        let named = self.of(name).into_iter().filter(|target| target.app == app);
        named.min_by_key(|target| target.kind != "pipeline")
    }

    /// The definition with errors that has this name or this tool name.
    fn broken(&self, name: &str) -> Option<&Broken> {
        self.broken.iter().find(|broken| broken.name == name || broken.of == name)
    }

    /// The error of a name that is not in the list, with suggestions.
    pub(crate) fn unknown(&self, name: &str) -> RpcError {
        if let Some(broken) = self.broken(name).filter(|_| self.of(name).is_empty()) {
            return RpcError::params(format!("there is no tool `{name}`: {}", broken.sentence()));
        }
        let tools: Vec<String> = match self.target(name) {
            Some(_) => vec!["call it with `etude_call`".to_owned()],
            None => self.of(name).iter().map(|it| format!("the tool of the {} is `{}`", it.kind, it.name)).collect(),
        };
        let rest: String = tools.iter().map(|tool| format!("; {tool}")).collect();
        let listed = self.targets.iter().filter(|_| !self.is_compact).map(|target| target.name.as_str());
        let meant = if rest.is_empty() { Self::meant(name, self.fixed.iter().copied().chain(listed)) } else { rest };
        RpcError::params(format!("there is no tool `{name}`{meant}"))
    }

    /// The suggestion of a similar name, if there is one.
    fn meant<'c>(name: &str, names: impl IntoIterator<Item = &'c str>) -> String {
        near(name, names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
    }

    /// The documents of the listed tools, sorted by name.
    pub(crate) fn documents(&self) -> Vec<Value> {
        let listed = self.targets.iter().filter(|_| !self.is_compact).map(document);
        let mut tools: Vec<Value> = self.fixed.iter().map(|name| fixed(name)).chain(listed).collect();
        tools.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
        tools
    }
}

fn target(app: &str, kind: &'static str, entry: &Value) -> Option<Target> {
    let of = entry["name"].as_str()?.to_owned();
    Some(Target {
        name: if kind == "machine" { format!("machine_{of}") } else { of.clone() },
        app: app.to_owned(),
        kind,
        of,
        description: entry["description"].as_str().unwrap_or_default().to_owned(),
        input: entry["input"].clone(),
        is_read_only: false,
        command: None,
    })
}

fn document(target: &Target) -> Value {
    json!({
        "name": target.name,
        "description": target.description,
        "inputSchema": schema::inlined(&target.input),
        "outputSchema": schema::output(),
        "annotations": annotations(target.is_read_only),
    })
}

fn annotations(is_read_only: bool) -> Value {
    match is_read_only {
        true => json!({"readOnlyHint": true}),
        false => {
            json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true})
        }
    }
}

/// The document of a fixed tool.
fn fixed(name: &str) -> Value {
    let string = |description: &str| json!({"type": "string", "description": description});
    let run_id = || ("run_id", string("The full id of a run, 16 characters"));
    let (description, properties, required): (&str, Vec<(&str, Value)>, &[&str]) = match name {
        "etude_find" => (
            "Find the tool for a request in plain words. The result has the name as `tool` and the `input_schema`. Runs nothing.",
            vec![("request", string("The request"))],
            &["request"],
        ),
        "etude_runs" => (
            "List runs, the newest first.",
            vec![
                (
                    "status",
                    json!({
                        "type": "string",
                        "enum": ["queued", "running", "waiting", "sleeping", "interrupted", "succeeded", "failed", "cancelled", "moved"],
                    }),
                ),
                ("limit", json!({"type": "integer", "minimum": 1, "maximum": 200, "default": MAX_RUNS})),
                ("cursor", string("The `next` of the previous page, with the same arguments")),
            ],
            &[],
        ),
        "etude_show" => {
            ("Show a run: its state, steps, output, errors and open questions.", vec![run_id()], &["run_id"])
        }
        "etude_cancel" => (
            "Cancel a run. Its clean-up steps still run.",
            vec![run_id(), ("reason", string("The reason, which is recorded"))],
            &["run_id"],
        ),
        "etude_resume" => (
            "Continue a run that failed, was cancelled or was interrupted. Completed steps are not repeated.",
            vec![
                run_id(),
                (
                    "accept_changes",
                    json!({
                        "type": "boolean", "description": "Continue although the definition has changed",
                    }),
                ),
            ],
            &["run_id"],
        ),
        _ => (
            "Call the `tool` that `etude_find` returns: a pipeline, a machine, or a command of an application. Invalid arguments return the input schema.",
            vec![
                ("tool", string("The name of the tool")),
                ("arguments", json!({"type": "object", "description": "Its arguments"})),
            ],
            &["tool"],
        ),
    };
    let properties: Map<String, Value> =
        properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let mut input = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        input["required"] = json!(required);
    }
    input["additionalProperties"] = false.into();
    let is_read_only = matches!(name, "etude_find" | "etude_runs" | "etude_show");
    json!({"name": name, "description": description, "inputSchema": input, "annotations": annotations(is_read_only)})
}
