//! Tools for the agents of a run: the port between tool effects and `etude-tools`.
//!
//! Nothing is loaded before the first agent asks: a run without agents starts no server and opens no folder.

mod application_tool;
mod assisted;
mod command_line;
mod guarded;
mod learned;
mod pipelines;
mod skill_tool;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use etude_core::data::Json;
use etude_core::effect::{Command, Sandbox};
use etude_core::plan::PipelineTool;
use etude_core::tool::{
    APPLICATION_CALL, AvailableTool, ToolCall, ToolList, ToolReply, ToolResult, ToolSelection, written_once,
};
use etude_models::{Redactor, Secret};
use etude_process::ProcessHost;
use etude_runtime::engine::{Engine, NewRun};
use etude_runtime::host::{Boxed, ModelPort, ToolPort};
use etude_spec::config::learn::Confirm;
use etude_spec::tool::AppTool;
use etude_tools::Found;
use etude_tools::app::AppTools;
use etude_tools::approval::Mode;
use etude_tools::confine::{Access, PathArgument};
use etude_tools::mcp::{ServerConfig, Servers, Settings as McpSettings};
use etude_tools::pattern::Withheld;
use etude_tools::tool::{Origin, members};
use etude_tools::{AllowedTools, CallContext, Effect, Policy, Roots, Tool, ToolSet};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use application_tool::{Applications, Caller};
use assisted::Assisted;

pub use application_tool::ApplicationAccess;

use crate::definition::Definition;
use crate::invocation::ToolForm;
use etude_evidence::rehearsal::Rehearsal;
use etude_invoke::{Asker, Checks, Digits, Invocation, InvocationKind, Invoker};
use etude_packages::applications::RunEffect;
use etude_packages::skills::{Compat, Places, SkillCatalog};
use etude_packages::trust::{Approvals, Store};
use etude_runs::header::{Granted, Header};
use etude_tools::disk::Disk;

/// Permissions that the user gives to agents, with resolved secrets.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    /// Calls that are allowed without approval.
    pub policy: Policy,
    /// Programs that may deny a call, regardless of the policy (B-11.3). Machines run them themselves.
    pub guards: Vec<Command>,
    /// True if a person can be asked, or the run may wait. Otherwise calls that need approval are denied.
    pub can_ask: bool,
    /// MCP servers by name.
    pub servers: BTreeMap<String, ServerConfig>,
    /// All variables that MCP servers inherit.
    pub server_env: Vec<(OsString, OsString)>,
    /// Secrets that must never reach a model or the disk, whatever their source.
    pub secrets: Vec<Secret>,
    /// Folders besides the app's that may be read.
    pub read: Vec<PathBuf>,
    /// Folders besides the app's that may be read and written.
    pub write: Vec<PathBuf>,
    /// Reach of the programs of tools, besides the folders of tools; `None`: everything that the user can reach.
    pub sandbox: Option<Sandbox>,
    /// The user's home directory, which holds the user's skills.
    pub home: Option<PathBuf>,
    /// Settings for the commands of Agent Applications.
    pub applications: ApplicationAccess,
    /// The store of the user's approvals; `None`: agents see nothing of a project that needs approval.
    pub trust: Option<Store>,
    /// Rehearsal that replaces tools and models: nothing is called.
    pub rehearsal: Option<Arc<Rehearsal>>,
    /// Reviewer of the writes of pipelines in the state `assisted`: a person or a model.
    pub confirm: Confirm,
}

impl Grants {
    /// These grants, extended by those that the user gives to one run.
    pub(crate) fn with(&self, granted: &Granted) -> Self {
        let mut all = self.clone();
        all.read.extend(granted.read.iter().cloned());
        all.write.extend(granted.write.iter().cloned());
        if granted.yolo {
            all.policy.mode = Mode::Yolo;
        }
        all
    }
}

#[derive(Debug)]
pub(crate) struct RunTools(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    grants: Grants,
    app: PathBuf,
    /// The app's own tools, if they have been read already.
    tools: Option<Arc<[AppTool]>>,
    run_id: String,
    /// The app of the run in the journal. A worker has the app's files elsewhere.
    app_of_run: PathBuf,
    input: Json,
    caller_dir: String,
    processes: Arc<ProcessHost>,
    models: Arc<dyn ModelPort>,
    servers: Arc<Servers>,
    last_lines: LastLines,
    invoker: Invoker,
    policy: Arc<Policy>,
    /// Set if the pipeline is in the state `assisted`.
    assisted: Option<Assisted>,
    /// Name of the learned pipeline that the run executes.
    learned: Option<String>,
    /// Learned pipelines that the agent may call while they are `active` (L-77).
    pipelines: Vec<Arc<PipelineTool>>,
    engine: Arc<dyn Engine>,
    redactor: Arc<Redactor>,
    set: OnceCell<Result<ToolSet, String>>,
    skills: OnceLock<Skills>,
    applications: OnceLock<Arc<Applications>>,
    /// Faults of the app's own tools; faulty tools are left out.
    faults: OnceLock<Vec<String>>,
}

/// The skills in reach, and the user's approvals of skills.
#[derive(Debug)]
struct Skills {
    catalog: SkillCatalog,
    trust: Approvals,
    problem: Option<String>,
}

impl RunTools {
    pub(crate) fn new(
        grants: Grants,
        definition: &Definition,
        (run, header): (&NewRun, &Header),
        processes: Arc<ProcessHost>,
        (models, engine): (Arc<dyn ModelPort>, Arc<dyn Engine>),
        invoker: Invoker,
    ) -> Self {
        let app = definition.app.clone();
        let last_lines = LastLines::default();
        let log_lines = last_lines.clone();
        let settings = McpSettings {
            base_env: grants.server_env.clone(),
            dir: app.clone(),
            on_log: Some(Arc::new(move |server, line| log_lines.note(server, line))),
            ..McpSettings::default()
        };
        let servers = Arc::new(Servers::new(grants.servers.clone(), settings));
        let (run_id, caller_dir) = (run.id.clone(), header.request.caller_dir.clone());
        let redactor = Arc::new(Redactor::new(grants.secrets.iter()));
        let policy = Arc::new(grants.policy.clone());
        let is_learned = definition.learned.is_some() || header.learned.is_some();
        let learned = definition.target.pipeline().filter(|_| is_learned).map(str::to_owned);
        Self(Arc::new(Inner {
            grants,
            app,
            tools: definition.tools.clone(),
            run_id,
            app_of_run: PathBuf::from(&run.app),
            input: header.request.input.clone(),
            caller_dir,
            processes,
            models,
            servers,
            last_lines,
            invoker,
            policy,
            assisted: Assisted::of(definition, header),
            learned,
            pipelines: definition.plan.pipeline_tools().cloned().collect(),
            engine,
            redactor,
            set: OnceCell::new(),
            skills: OnceLock::new(),
            applications: OnceLock::new(),
            faults: OnceLock::new(),
        }))
    }

    /// Stops the servers that were started for the run's agents.
    pub(crate) async fn close(&self) {
        if self.0.set.initialized() {
            self.0.servers.close().await;
        }
    }
}

impl ToolPort for RunTools {
    fn open(&self, tool_selection: Arc<ToolSelection>) -> Boxed<ToolList> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.open(&tool_selection).await })
    }

    fn call(&self, call: ToolCall, cancel: CancellationToken) -> Boxed<ToolReply> {
        let inner = Arc::clone(&self.0);
        Box::pin(inner.call(call, cancel))
    }
}

impl Inner {
    /// The tools in reach, built on first use.
    async fn set(&self) -> Result<&ToolSet, String> {
        let made = self.set.get_or_init(|| async {
            let Skills { catalog, trust, .. } = self.skills();
            let skills = catalog.visible_to_agents(trust).map(|entry| entry.directory.clone());
            let read: Vec<PathBuf> = self.grants.read.iter().cloned().chain(skills).collect();
            let roots = Roots::new(&self.app, &read, &self.grants.write)
                .map_err(|e| format!("cannot open a directory of the tools: {e}"))?;
            let (tools, diagnostics) = match &self.tools {
                Some(tools) => (tools.to_vec(), Vec::new()),
                None => {
                    let disk = Disk::open(&self.app).map_err(|e| format!("the app cannot be opened: {e}"))?;
                    etude_spec::tool::load(&disk)
                }
            };
            let faults = diagnostics.iter().filter(|diagnostic| diagnostic.is_error());
            let reported = faults.map(|fault| format!("{}: {}", fault.file.path(), fault.message)).collect();
            // The set is built once, and so is the list of faults.
            let _ = self.faults.set(reported);
            let app = AppTools { tools, app_dir: self.app.display().to_string() };
            let host = Arc::clone(&self.processes);
            let set = match &self.grants.sandbox {
                Some(rules) => ToolSet::sandboxed(roots, host, self.sandbox(rules, &read)?),
                None => ToolSet::built_in(roots, host),
            };
            Ok(set.with_app(app).await.with_servers(Arc::clone(&self.servers)))
        });
        made.await.as_ref().map_err(Clone::clone)
    }

    /// The sandbox of programs: the configured one, with the folders that other tools may touch.
    fn sandbox(&self, rules: &Sandbox, read: &[PathBuf]) -> Result<Sandbox, String> {
        let name = |path: &PathBuf| {
            let text = path.to_str().map(str::to_owned);
            text.ok_or_else(|| {
                format!("the sandbox cannot use the directory `{}`: its path is not UTF-8", path.display())
            })
        };
        let mut sandbox = rules.clone();
        for path in read {
            sandbox.read.push(name(path)?);
        }
        for path in std::iter::once(&self.app).chain(&self.grants.write) {
            sandbox.write.push(name(path)?);
        }
        Ok(sandbox)
    }

    /// The skills in reach, discovered when the first agent asks.
    fn skills(&self) -> &Skills {
        self.skills.get_or_init(|| {
            let home = self.grants.home.as_deref();
            let catalog = SkillCatalog::discover(&Places { start: &self.app, home, compat: Compat::Spec });
            let trust = self.grants.trust.as_ref().map(Store::approvals).unwrap_or_else(|| Ok(Approvals::default()));
            let problem = trust.as_ref().err().map(ToString::to_string);
            Skills { catalog, trust: trust.unwrap_or_default(), problem }
        })
    }

    /// The applications in reach, discovered on first use.
    fn applications(&self) -> &Arc<Applications> {
        self.applications.get_or_init(|| {
            let (home, trust) = (self.grants.home.as_deref(), self.grants.trust.as_ref());
            Arc::new(Applications::discover(&self.app, home, trust, &self.grants.applications))
        })
    }

    async fn narrowed(&self, tool_selection: &ToolSelection) -> Result<ToolSet, String> {
        let set = self.set().await?;
        Ok(match &tool_selection.allowed {
            Some(patterns) => set.narrowed(AllowedTools::from_list(patterns)),
            None => set.clone(),
        })
    }

    async fn open(self: &Arc<Self>, tool_selection: &ToolSelection) -> ToolList {
        let set = match self.narrowed(tool_selection).await {
            Ok(set) => set,
            Err(why) => return ToolList { problems: vec![self.redactor.redact(&why)], ..ToolList::default() },
        };
        let listing = set.tools().await;
        let mut tools: Vec<AvailableTool> = listing.tools.iter().filter_map(|tool| self.available(tool)).collect();
        let unnamed = listing.tools.len() - tools.len();
        // The error of an unreachable server often contains its address, keys included.
        let reported =
            listing.problems.iter().map(|problem| self.redactor.redact(&self.last_lines.with_last_line(problem)));
        let mut problems: Vec<String> = reported.chain(self.faults.get().into_iter().flatten().cloned()).collect();
        if unnamed > 0 {
            problems.push(format!("{unnamed} of the tools are not available: their names contain a secret"));
        }
        let mut context = self.system_context(&set);
        if tool_selection.lists_skills {
            let Skills { catalog, trust, problem } = self.skills();
            problems.extend(problem.clone());
            let catalog = catalog.without(&self.app.join(&tool_selection.dir));
            if let Some(xml) = catalog.xml(trust) {
                let mut available = skill_tool::available(&catalog, trust);
                let text = skill_tool::introduced(&xml);
                match tool_selection.lists_in_tools {
                    true => available.tool.description.push_str(&format!("\n\n{}", self.redactor.redact(&text))),
                    false => context.push_str(&text),
                }
                tools.retain(|own| own.tool.name != skill_tool::NAME);
                tools.push(available);
            }
        }
        let is_listed = |name: &str| {
            let tool = application_tool::as_tool(name);
            tool_selection.allowed.as_ref().is_none_or(|list| AllowedTools::from_list(list).lists(&tool))
        };
        if tool_selection.lists_skills
            && is_listed(application_tool::RUN)
            && let Some((text, mut available)) = self.applications().available()
        {
            tools.retain(|own| available.iter().all(|other| other.tool.name != own.tool.name));
            match tool_selection.lists_in_tools {
                true => available[0].tool.description.push_str(&format!("\n\n{}", self.redactor.redact(&text))),
                false => context.push_str(&format!("\n\n{text}")),
            }
            tools.extend(available);
        }
        self.add_pipelines(&mut tools).await;
        let context = self.redactor.redact(context.trim());
        let window_tokens = self.models.window_tokens(tool_selection.tier).await;
        let (model, tool_calling) = self.models.tool_calling(tool_selection.tier).await;
        ToolList { tools, context, window_tokens, problems, model, tool_calling }
    }

    /// A tool as models and the journal receive it, redacted: servers may repeat what they were sent. `None` if the name holds
    /// a secret, because the tool could not be called by another name.
    fn available(&self, tool: &Tool) -> Option<AvailableTool> {
        if self.redactor.finds_in(&tool.name) {
            return None;
        }
        let mut reported = tool.for_model();
        if let Some(redact) = self.redactor.cleaned(&reported.description) {
            reported.description = redact;
        }
        if self.redactor.finds_in_value(&reported.parameters) {
            reported.parameters = Arc::new(self.redactor.redact_value(Value::clone(&reported.parameters)));
        }
        // The effects of a server's tool are unverified: only the server says that a tool merely reads.
        let changes = tool.effect != Effect::Reads;
        let approval_key = tool.approval_key.template(&tool.name);
        Some(AvailableTool {
            tool: reported,
            is_pipeline: false,
            is_exclusive: changes && tool.gated,
            is_kept: false,
            approval_key,
        })
    }

    /// The user's directory, if it is not the app: requests name files as the user sees them.
    fn system_context(&self, set: &ToolSet) -> String {
        if self.caller_dir.is_empty() || Path::new(&self.caller_dir) == self.app {
            return String::new();
        }
        let is_in_reach = set.roots().existing(&self.caller_dir, Access::Read).is_ok();
        let reach = if is_in_reach { "" } else { ", which is out of your reach" };
        let (app, caller) = (self.app.display(), &self.caller_dir);
        format!("Relative paths in tool calls start in `{app}`. The user is in `{caller}`{reach}.\n\n")
    }

    /// Calls a tool, at the end of its middleware chain.
    async fn call(self: Arc<Self>, call: ToolCall, cancel: CancellationToken) -> ToolReply {
        let is_step = call.name == APPLICATION_CALL;
        let mut checks = Checks {
            policy: (!is_step).then(|| Arc::clone(&self.policy)),
            asker: if self.grants.can_ask || is_step { Asker::Gate } else { Asker::Unattended },
            is_approved: call.is_approved,
            is_confirmed: call.is_confirmed,
            approved_key: call.approved_key.clone(),
            redactor: Some(Arc::clone(&self.redactor)),
            ..Checks::default()
        };
        // A confirmation is required on top of the policy.
        let assisted = self.assisted.as_ref().filter(|_| self.grants.confirm == Confirm::Person);
        checks.is_confirmed_later = assisted.is_some_and(|assisted| assisted.must_confirm(&call));
        let found = tokio::select! {
            found = self.target(&call, &mut checks) => found,
            // A server that does not start must not delay a timeout or the end of the run.
            () = cancel.cancelled() => Err(ToolResult::cancelled()),
        };
        let (target, args) = found.unwrap_or_else(|result| (Target::Nothing(result), Arc::new(json!({}))));
        let invocation = Invocation {
            kind: InvocationKind::Call,
            // A command that a step calls is the work of that step; the command itself passes its own chain.
            name: if is_step { call.key.clone() } else { call.name.clone() },
            key: call.key.clone(),
            args: Arc::clone(&args),
            checks,
            given_up: cancel.clone(),
        };
        let form = ToolForm { redactor: Arc::clone(&self.redactor) };
        self.invoker.invoke(invocation, form, || self.run_effect(target, args, call, cancel)).await
    }

    /// The target of a call, its arguments, and the checks before it.
    ///
    /// # Errors
    /// The call is impossible; the result is what the model receives instead.
    async fn target(
        self: &Arc<Self>,
        call: &ToolCall,
        checks: &mut Checks,
    ) -> Result<(Target, Arc<Value>), ToolResult> {
        let tool_list_outcome = call.tool_selection.lists_skills;
        let broken = |why: String| ToolResult::terminal("ToolExecutionFailed", &why);
        let (tool, mut target) = match call.name.as_str() {
            APPLICATION_CALL => {
                let command = self.command(&call.arguments).await?;
                (Arc::new(application_tool::as_tool(APPLICATION_CALL)), Target::Command(Box::new(command)))
            }
            application_tool::RUN if tool_list_outcome => {
                let command = self.command(&call.arguments).await?;
                checks.allowed = call.tool_selection.allowed.iter().map(|list| AllowedTools::from_list(list)).collect();
                checks.is_confirmed_later = command.needs_confirmation();
                (Arc::new(application_tool::as_tool(application_tool::RUN)), Target::Command(Box::new(command)))
            }
            name @ (application_tool::ACTIVATE | skill_tool::NAME) if tool_list_outcome => {
                (Arc::new(application_tool::as_reader(name)), Target::Reader)
            }
            name => {
                let set = self.narrowed(&call.tool_selection).await.map_err(broken)?;
                checks.roots = Some(set.roots().clone());
                checks.allowed = set.allowed().to_vec();
                let found = set.find(name).await?;
                self.check_learned(call, &found.tool).await?;
                (Arc::clone(&found.tool), Target::Tool(found, Judged::default()))
            }
        };
        let mut args = Arc::new(tool.arguments(&call.arguments)?);
        let written = Arc::clone(&args);
        if call.is_of_step() && tool.origin == Origin::BuiltIn {
            args = command_line::judged(&tool.name, args)?;
        }
        checks.digits = Digits::parse(&call.arguments, &written).map(Arc::new);
        let roots = match checks.roots.take() {
            Some(roots) => roots,
            // The call has failed without a set of tools, so there is nothing to check.
            None => Roots::new(&self.app, &[], &[])
                .map_err(|error| broken(format!("cannot open the directory of the app: {error}")))?,
        };
        // The path is resolved once: the same file is judged, asked about and touched.
        if let Some(path) = tool.path(members(&args)).map(str::to_owned) {
            let roots = roots.clone();
            checks.path = tokio::task::spawn_blocking(move || Arc::new(roots.resolve(&path))).await.ok();
        }
        (checks.roots, checks.tool) = (Some(roots), Some(tool));
        if let Target::Tool(_, judged) = &mut target {
            let beside = (written != args).then(|| (Arc::clone(&args), Arc::clone(&written)));
            let withheld = Arc::new(checks.withheld(&args));
            *judged = Judged { path: checks.path.clone(), withheld, beside, written: Some(written) };
        }
        Ok((target, args))
    }

    /// The application command that a call names. Reading its package may take long.
    async fn command(
        self: &Arc<Self>,
        arguments: &str,
    ) -> Result<etude_packages::applications::CommandCall, ToolResult> {
        let (inner, arguments) = (Arc::clone(self), arguments.to_owned());
        let found = tokio::task::spawn_blocking(move || inner.applications().find(&arguments)).await;
        found.unwrap_or_else(|error| Err(ToolResult::terminal("ToolExecutionFailed", &error.to_string())))
    }

    /// The reply to a call that needs its own confirmation and has none (L-63, L-64).
    async fn unconfirmed(
        &self,
        tool: &Tool,
        args: &Value,
        call: &ToolCall,
        cancel: &CancellationToken,
    ) -> Option<ToolReply> {
        let assisted = self.assisted.as_ref().filter(|assisted| assisted.must_confirm(call))?;
        let shown = guarded::exact(call, args).map(|exact| exact.shown());
        let args = shown.as_ref().unwrap_or(args);
        if self.grants.confirm == Confirm::Model {
            let asked = tokio::select! {
                asked = assisted.ask(&*self.models, &call.name, args) => asked,
                () = cancel.cancelled() => return Some(ToolReply::Done(ToolResult::cancelled())),
            };
            let refused = asked.err()?;
            return Some(ToolReply::Done(ToolResult::terminal(
                ToolResult::NOT_CONFIRMED,
                &self.redactor.redact(&refused),
            )));
        }
        if call.is_confirmed {
            return None;
        }
        let key = match tool.approval_key.template(&tool.name) {
            Some(template) => etude_core::tool::approval_key(&template, members(args)),
            None => tool.name.clone(),
        };
        let question = format!("a learned pipeline in the state `assisted` wants to call `{key}`");
        let redact = |text: String| self.redactor.redact(&text);
        Some(ToolReply::Held { key: redact(key), question: redact(question), is_once: true })
    }

    /// Runs the call after it has passed its middleware.
    async fn run_effect(
        &self,
        target: Target,
        args: Arc<Value>,
        call: ToolCall,
        cancel: CancellationToken,
    ) -> ToolReply {
        // A person confirms a step first, so that the guard decides about the call that runs next.
        if let Target::Tool(found, _) = &target
            && let Some(reply) = self.unconfirmed(&found.tool, &args, &call, &cancel).await
        {
            return reply;
        }
        if !matches!(target, Target::Nothing(_))
            && let Some(refused) = self.guarded(&call, &args, &cancel).await
        {
            return ToolReply::Done(refused);
        }
        ToolReply::Done(match target {
            Target::Nothing(result) => result,
            Target::Reader if call.name == skill_tool::NAME => {
                skill_tool::activate(&self.skills().catalog, &self.skills().trust, &self.app, &call.arguments)
            }
            Target::Reader => self.applications().activate(&call.arguments),
            Target::Command(command) => {
                let is_step = call.name == APPLICATION_CALL;
                // A stage restarts after a decision and would ask again, so its user decides outside the run.
                let can_ask = self.grants.can_ask && call.stage_execution.is_none() || is_step;
                let caller = Caller { is_step, can_ask, is_confirmed: call.is_confirmed };
                let applications = Arc::clone(self.applications());
                let run_effect = RunEffect { run_id: self.run_id.clone(), key: call.key.clone() };
                return applications.invoke(*command, caller, run_effect, &self.invoker, cancel).await;
            }
            Target::Tool(found, judged) => {
                // The judged line contains its words; the executed one has them in separate arguments. Middleware may have
                // changed the line.
                let args = match judged.beside {
                    Some((line, written)) if line == args => written,
                    _ => args,
                };
                let is_whole = call.is_of_step();
                let is_written = judged.written.as_ref() == Some(&args);
                let written = is_written.then(|| written_once(call.arguments, &args).into());
                let context = CallContext {
                    cancel,
                    call_id: call.id,
                    key: call.key,
                    workflow_run_id: self.run_id.clone(),
                    stage_execution_id: call.stage_execution,
                    path: judged.path,
                    on_output: None,
                    withheld: judged.withheld,
                    written,
                    is_whole,
                };
                found.call(args, context).await
            }
        })
    }
}

/// The target of a call.
enum Target {
    /// The call is impossible.
    Nothing(ToolResult),
    /// The call reads a skill or a contract.
    Reader,
    /// The call runs a command of an application.
    Command(Box<etude_packages::applications::CommandCall>),
    /// A tool of the set, with the judged parts of the call.
    Tool(Found, Judged),
}

/// The parts of a call that its tool takes exactly as they were judged.
#[derive(Default)]
struct Judged {
    path: Option<Arc<PathArgument>>,
    withheld: Arc<Withheld>,
    /// A command line that contains its words, and the same call with separate arguments (L-33).
    beside: Option<(Arc<Value>, Arc<Value>)>,
    /// The arguments as the caller wrote them.
    written: Option<Arc<Value>>,
}

/// The last line on each server's stderr, which usually explains why a server ended at once.
#[derive(Debug, Clone, Default)]
struct LastLines(Arc<Mutex<BTreeMap<String, String>>>);

impl LastLines {
    fn note(&self, server: &str, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.insert(server.to_owned(), line.chars().take(MAX_LINE).collect());
    }

    /// A problem, extended by the last line of its server.
    fn with_last_line(&self, problem: &str) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = lines.iter().find(|(server, _)| problem.contains(&format!("`{server}`")));
        own.map_or_else(|| problem.to_owned(), |(_, line)| format!("{problem}; its last log line: {line}"))
    }
}

/// Maximum length of a kept line, in characters.
const MAX_LINE: usize = 300;
