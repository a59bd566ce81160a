//! Resolves configuration files and the environment into models and grants (design: cli, "Configuration").
//!
//! `etude.yaml` in the app comes first, then the user's configuration, then the environment; the nearer wins.

mod bounds;
mod consent;
mod defaults;
mod grants;
mod lazy;
mod ready;
mod secrets;

pub(crate) use consent::remedy;
pub(crate) use defaults::Why;
pub(crate) use ready::{Need, announce, ready};
pub(crate) use secrets::without_keys;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude::Disk;
use etude::agent::Grants;
use etude::skill_mode::Defaults;
use etude_core::effect::Command;
use etude_core::model::Tier;
use etude_core::plan::stages::Policy;
use etude_core::service_url::Origin;
use etude_core::tool::ToolCalling;
use etude_models::{
    Models, Price, ProviderKind, ProviderSettings, Secret, Settings, SettingsError, provider_kind_words,
};
use etude_process::{PythonWorker, SECRET_VARIABLES, TOKEN_VARIABLE};
use etude_request::Mode;
use etude_runtime::host::ModelPort;
use etude_spec::automation::{self, Automation, Known};
#[cfg(feature = "serve")]
use etude_spec::config::auth::Auth;
use etude_spec::config::engine::EngineSettings;
use etude_spec::config::learn::Learning;
use etude_spec::config::{Config, Provider};
#[cfg(feature = "serve")]
use etude_spec::serve::Serve;
use etude_spec::source::SourceFile;
use etude_spec::stage_machine::Rules;
use etude_spec::{Diagnostic, config, did_you_mean, render};

use crate::args::{Global, Purpose};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::visible;
use crate::render::{commands, failure};
use crate::{local, paths};
use consent::Consent;
use etude_core::failure::FailureKind;

/// Hint if no model can respond.
pub(crate) const REMEDIES: &str = "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, start a local model server (llama-server, Ollama, \
     LM Studio, vLLM), or map the tier in etude.yaml under `model_mapping`";

/// Resolved configuration, before any model lookup.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    /// Providers, mapping and prices as configured. Tiers without a mapping are filled in when a model is called.
    pub(crate) settings: Settings,
    /// Reason for the mapping of each mapped tier.
    pub(crate) why: BTreeMap<Tier, Why>,
    /// Configured routing mode.
    pub(crate) router_mode: Option<Mode>,
    /// Variables that scripts do not get.
    pub(crate) withheld_env: Vec<String>,
    /// Rights of agents.
    pub(crate) grants: Grants,
    /// Default tier and turn limit of agents.
    pub(crate) agent: Defaults,
    /// Rules of stage machines.
    pub(crate) machines: Rules,
    /// Use of the warm Python interpreter.
    pub(crate) python_worker: PythonWorker,
    /// Purpose for which the configuration is read.
    pub(crate) purpose: Purpose,
    /// Hosts that only the app names, by the providers that send prompts there.
    pub(crate) redirects: BTreeMap<String, String>,
    /// Rights that the app's sandbox requests beyond the user's, and does not get.
    pub(crate) untaken: Vec<String>,
    /// Providers of the kind `local` as configured, by name.
    pub(crate) local: BTreeMap<String, Provider>,
    /// Variables with the hosts to which the user lets them be sent.
    pub(crate) sent: Vec<(String, Origin)>,
    /// etude's own variables, which no app gets by their names.
    pub(crate) own: Vec<String>,
    /// Settings of learning, and the limits of learned pipelines.
    pub(crate) learning: Learning,
}

/// One file of the configuration.
#[derive(Debug)]
struct Layer {
    path: String,
    config: Config,
    /// True for the app's own file, false for one that the user has written or named.
    is_of_app: bool,
}

/// Environment variables and secrets of etude itself.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// Names of the variables below. No child inherits them, and no app gets one by its name.
    ///
    /// - Access token for a server.
    /// - Address of a shared database, and the variables in the configured address.
    /// - Variables with which libpq finds the database and its password.
    /// - Keys to the bucket of a fleet.
    /// - Headers for a collector of spans.
    pub(crate) variables: Vec<String>,
    /// Values that must not be in anything that etude writes: those in the configured address, the password of the database
    /// from any source, and the values of the headers.
    pub(crate) secrets: Vec<String>,
}

/// Maximum size of a configuration file, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Reads the configuration. `own` is withheld from steps and apps.
pub(crate) fn resolve(global: &Global, app: &Path, purpose: Purpose, own: Own) -> Result<Resolved, Problem> {
    let mut layers = Vec::new();
    for (path, text) in texts(global, app)? {
        let file = SourceFile::new(shown(&path, app), text);
        let shown = path.display().to_string();
        let (config, mut diagnostics) = config::read(&file);
        let is_of_app = global.config.is_none() && path == own_file(app);
        if is_of_app {
            diagnostics.extend(config::fleet::not_of_app(&file));
        }
        if diagnostics.iter().any(Diagnostic::is_error) {
            return Err(refused(&diagnostics));
        }
        if global.is_verbose() {
            crate::render::say!("configured by {shown}");
        }
        layers.push(Layer { path: shown, config, is_of_app });
    }
    if purpose == Purpose::Run && !global.quiet {
        misnamed(global, app).iter().for_each(warn);
    }
    let Own { variables: own, secrets: own_secrets } = own;
    let mut resolved = merge(&layers, app, purpose, &own)?;
    for name in &own {
        secrets::note(&mut resolved.withheld_env, name);
        secrets::note(&mut resolved.settings.withheld_env, name);
    }
    // A step could only print them by mistake.
    resolved.grants.secrets.extend(own_secrets.iter().filter_map(|value| grants::secret("", value)));
    resolved.settings.secrets = resolved.grants.secrets.clone();
    Ok(Resolved { own, ..resolved })
}

/// All diagnostics of the configuration; paths inside the app are relative to it.
pub(crate) fn check(global: &Global, app: &Path) -> Result<Vec<Diagnostic>, Problem> {
    let mut found = misnamed(global, app);
    for (path, text) in texts(global, app)? {
        let file = SourceFile::new(shown(&path, app), text);
        let mut of_file = config::read(&file).1;
        if global.config.is_none() && path == own_file(app) {
            of_file.extend(config::fleet::not_of_app(&file));
            of_file
                .extend(Disk::open(app).map(|disk| config::guards::missing_scripts(&file, &disk)).unwrap_or_default());
        }
        found.extend(of_file.into_iter().map(without_keys));
    }
    Ok(found)
}

/// A warning for each file that would be a configuration if its name ended in `.yaml`.
pub(crate) fn misnamed(global: &Global, app: &Path) -> Vec<Diagnostic> {
    if global.config.is_some() {
        return Vec::new();
    }
    let places = std::iter::once(own_file(app)).chain(paths::user_config()).map(|path| path.with_extension("yml"));
    places.filter(|path| path.is_file()).map(|path| config::ends_in_yml(&shown(&path, app))).collect()
}

/// Prints a warning with its hint on one line.
pub(crate) fn warn(diagnostic: &Diagnostic) {
    let hint = diagnostic.hint.iter().map(|hint| format!("; {hint}"));
    crate::render::say!(
        "warning: {}{}",
        visible(&diagnostic.message),
        hint.map(|hint| visible(&hint)).collect::<String>()
    );
}

/// Automation of an app on a server, from the app's own file, or from the one that the user names.
pub(crate) fn automation(global: &Global, app: &Path, known: Option<Known<'_>>) -> Result<Automation, Problem> {
    let is_wanted = |path: &PathBuf| global.config.is_some() || *path == own_file(app);
    let Some((path, text)) = texts(global, app)?.into_iter().find(|(path, _)| is_wanted(path)) else {
        return Ok(Automation::default());
    };
    let mut automation = automation::read_expanded(&SourceFile::new(shown(&path, app), text), known, &expanded);
    automation.diagnostics = automation.diagnostics.into_iter().map(without_keys).collect();
    Ok(automation)
}

/// Engine settings of the user's configuration: the file that `--config` names, or the user's own. `None` if it has none.
pub(crate) fn engine(global: &Global) -> Result<Option<EngineSettings>, Problem> {
    let Some(path) = global.config.clone().or_else(paths::user_config) else { return Ok(None) };
    let text = match etude_files::regular::read_text(&path, MAX_SIZE) {
        Ok(text) => text,
        // The reader of the whole configuration reports the error.
        Err(_) => return Ok(None),
    };
    let (config, diagnostics) = config::read(&SourceFile::new(path.display().to_string(), text));
    match config.engine {
        Some(_) if diagnostics.iter().any(Diagnostic::is_error) => Err(refused(&diagnostics)),
        engine => Ok(engine),
    }
}

/// Reads the file that `--config` names, or the user's own, as a whole.
///
/// # Errors
/// The file is invalid or unreadable.
#[cfg(feature = "postgres")]
pub(crate) fn of_user(global: &Global) -> Result<Config, Problem> {
    checked_of_user(global, |_| Vec::new())
}

/// Like [`of_user`], and checks the settings that only those files may have for a fleet. The error of `check_blobs` is the
/// reason why large values cannot be stored there.
///
/// # Errors
/// The file is invalid or unreadable.
#[cfg(feature = "postgres")]
pub(crate) fn to_apply(global: &Global, check_blobs: &dyn Fn(&str) -> Result<(), String>) -> Result<Config, Problem> {
    checked_of_user(global, |file| config::fleet::not_to_apply(file, check_blobs))
}

#[cfg(feature = "postgres")]
fn checked_of_user(global: &Global, check: impl Fn(&Arc<SourceFile>) -> Vec<Diagnostic>) -> Result<Config, Problem> {
    let file = global.config.clone().or_else(|| paths::user_config().filter(|path| path.exists()));
    let Some(path) = file else { return Ok(Config::default()) };
    let text = etude_files::regular::read_text(&path, MAX_SIZE).map_err(|e| {
        let problem = Problem::usage(format!("{} cannot be read: {e}", path.display()));
        problem.hint("fix it, or name another one with `--config FILE`")
    })?;
    let file = SourceFile::new(path.display().to_string(), text);
    let (config, mut diagnostics) = config::read(&file);
    diagnostics.extend(check(&file));
    match diagnostics.iter().any(Diagnostic::is_error) {
        true => Err(refused(&diagnostics)),
        false => Ok(config),
    }
}

/// Variables that a text of the configuration uses, without those that every program needs, such as `HOME`.
pub(crate) fn variables_in(text: &str) -> Vec<String> {
    let mut names = secrets::expand(text, &mut Vec::new()).variables;
    names.retain(|name| !grants::BASE.contains(&name.as_str()));
    names
}

/// A text of the configuration with its `${env:NAME}` replaced; a variable that is not set is replaced by nothing.
pub(crate) fn secrets_in(text: &str) -> String {
    secrets::expand(text, &mut Vec::new()).text
}

/// Limits of a server, the nearest file first; the app's own file counts only if no other app is served. The same file may name
/// the issuer of accepted tokens, unless the user names one: an app cannot replace the user's choice.
#[cfg(feature = "serve")]
pub(crate) fn serve(global: &Global, app: &Path, is_only: bool) -> Result<(Serve, Option<Auth>), Problem> {
    let (mut limits, mut auth) = (Serve::default(), None);
    for (path, text) in texts(global, app)? {
        if !is_only && global.config.is_none() && path == own_file(app) {
            continue;
        }
        let (config, diagnostics) = config::read(&SourceFile::new(shown(&path, app), text));
        if diagnostics.iter().any(Diagnostic::is_error) {
            return Err(refused(&diagnostics));
        }
        let Serve { max_runs, max_queued, max_cost_per_day_usd, drain_timeout_ms, pipelines: _, mcp: _ } = config.serve;
        limits.max_runs = limits.max_runs.or(max_runs);
        limits.max_queued = limits.max_queued.or(max_queued);
        limits.max_cost_per_day_usd = limits.max_cost_per_day_usd.or(max_cost_per_day_usd);
        limits.drain_timeout_ms = limits.drain_timeout_ms.or(drain_timeout_ms);
        auth = config.auth.or(auth);
    }
    Ok((limits, auth))
}

/// A text of the configuration with its `${env:NAME}` replaced. `None` if a variable is not set.
pub(crate) fn expanded(text: &str) -> Option<String> {
    let expanded = secrets::expand(text, &mut Vec::new());
    let is_set = |name: &String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    expanded.variables.iter().all(is_set).then_some(expanded.text)
}

/// Existing configuration files, the nearest first.
pub(crate) fn present(global: &Global, app: &Path) -> Result<Vec<PathBuf>, Problem> {
    Ok(texts(global, app)?.into_iter().map(|(path, _)| path).collect())
}

/// Diagnostics for an invalid combination of valid files, placed in the first file that names its subject.
pub(crate) fn together(global: &Global, app: &Path, problem: &Problem) -> Result<Vec<Diagnostic>, Problem> {
    let files: Vec<_> =
        texts(global, app)?.into_iter().map(|(path, text)| SourceFile::new(shown(&path, app), text)).collect();
    let hint = problem.hints.first().map(String::as_str);
    let whole = files.first().cloned().unwrap_or_else(|| SourceFile::new("etude.yaml", ""));
    let faults = problem.failures.iter().map(|failure| {
        let placed = files.iter().find_map(|file| config::unusable(file, &failure.message, hint));
        placed.unwrap_or_else(|| config::unusable_as_a_whole(&whole, &failure.message, hint))
    });
    Ok(faults.map(without_keys).collect())
}

/// Displayed path, relative to the app if it is inside.
fn shown(path: &Path, app: &Path) -> String {
    path.strip_prefix(app).unwrap_or(path).display().to_string()
}

/// Rendered diagnostic of a configuration, without text that may be a key.
pub(crate) fn drawn(diagnostic: &Diagnostic) -> String {
    secrets::masked(&render::text(&commands::in_hint(diagnostic), false))
}

/// Paths and texts of the existing configuration files, the nearest first.
fn texts(global: &Global, app: &Path) -> Result<Vec<(PathBuf, String)>, Problem> {
    let mut found = Vec::new();
    for path in files(global, app)? {
        match etude_files::regular::read_text(&path, MAX_SIZE) {
            Ok(text) => found.push((path, text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && global.config.is_none() => {}
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                let bytes = etude_files::regular::read(&path, MAX_SIZE).unwrap_or_default();
                return Err(refused(&[config::not_utf8(&shown(&path, app), &bytes)]));
            }
            Err(error) => {
                let message = format!("the configuration `{}` cannot be read: {error}", path.display());
                let is_named = global.config.is_some() && error.kind() == std::io::ErrorKind::NotFound;
                let problem = if is_named { Problem::usage(message) } else { Problem::environment(message) };
                return Err(problem.hint("fix it, or name another one with `--config FILE`"));
            }
        }
    }
    Ok(found)
}

fn files(global: &Global, app: &Path) -> Result<Vec<PathBuf>, Problem> {
    match &global.config {
        Some(path) => missing(path).map_or_else(|| Ok(vec![path.clone()]), Err),
        None => Ok(std::iter::once(own_file(app)).chain(paths::user_config()).collect()),
    }
}

/// Problem if the named configuration file does not exist.
pub(crate) fn missing(path: &Path) -> Option<Problem> {
    let shown = path.display();
    match path.is_file() {
        true => None,
        false if path.exists() => {
            let problem = Problem::usage(format!("the configuration `{shown}` is not a file"));
            Some(problem.hint("name the file: `--config DIR/etude.yaml`"))
        }
        false => Some(paths::absent(Problem::usage(format!("there is no configuration file `{shown}`")), path)),
    }
}

/// Path of the configuration file of the app in `dir`.
fn own_file(dir: &Path) -> PathBuf {
    dir.join("etude.yaml")
}

/// Problem with a failure for each error of a configuration file.
fn refused(diagnostics: &[Diagnostic]) -> Problem {
    let diagnostics: Vec<Diagnostic> = diagnostics.iter().cloned().map(without_keys).collect();
    let texts: Vec<String> = diagnostics.iter().map(drawn).collect();
    let failures = diagnostics.iter().filter(|found| found.is_error()).map(failure::of_diagnostic).collect();
    let drawn = Some(format!("the configuration is not valid\n{}", texts.join("\n\n")));
    Problem { exit: Exit::Definition, drawn, ..Problem::of_failures(failures) }
}

/// Merges all files, the nearest first. `own` are etude's own variables.
fn merge(layers: &[Layer], app: &Path, purpose: Purpose, own: &[String]) -> Result<Resolved, Problem> {
    let consent = Consent::of(layers, purpose, own);
    let mut resolved = Resolved {
        settings: Settings { app_dir: app.to_owned(), ..Settings::default() },
        withheld_env: Vec::new(),
        grants: Grants::default(),
        agent: grants::defaults(layers),
        machines: rules(layers)?,
        python_worker: python_worker(layers),
        why: BTreeMap::new(),
        router_mode: layers.iter().find_map(|layer| layer.config.router_mode.as_deref()).and_then(Mode::from_word),
        purpose,
        redirects: BTreeMap::new(),
        untaken: Vec::new(),
        local: BTreeMap::new(),
        sent: consent.pairs().to_vec(),
        own: Vec::new(),
        learning: Learning::of(layers.iter().map(|layer| &layer.config.learn)),
    };
    for layer in layers {
        for (name, provider) in &layer.config.providers {
            if !resolved.settings.providers.iter().any(|known| known.name == *name) {
                add_provider(&mut resolved, name, provider)?;
                if layer.is_of_app {
                    check_consent(&mut resolved, &consent, provider, &shown(Path::new(&layer.path), app));
                }
            }
        }
    }
    // Nearer files are applied last, so their prices win.
    for (name, price) in layers.iter().rev().flat_map(|layer| &layer.config.prices) {
        let price = Price { input: price.input, output: price.output, cached_input: price.cached, cache_write: None };
        resolved.settings.prices.set(name, price);
    }
    let mut mapping = BTreeMap::new();
    for Layer { path, config, .. } in layers {
        for (tier, models) in &config.model_mapping {
            if let Some(tier) = Tier::from_word(tier) {
                mapping.entry(tier).or_insert_with(|| models.clone());
                resolved.why.entry(tier).or_insert_with(|| Why::Configured(path.clone()));
            }
        }
    }
    for (tier, models) in mapping {
        let ids = models.iter().map(|model| defaults::model_id(model)).collect();
        resolved.settings.mapping.insert(tier, ids);
    }
    defaults::add_hosted(&mut resolved)?;
    // An entry of the app replaces the user's entry of the same name, but the variables of both stay keys.
    consent.users_keys().for_each(|name| secrets::note(&mut resolved.withheld_env, name));
    let unused = SECRET_VARIABLES.iter().filter_map(|name| std::env::var(name).ok()).map(Secret::new);
    let keys = resolved.settings.providers.iter().flat_map(ProviderSettings::secrets).chain(unused);
    resolved.grants = grants::read(layers, &consent, &mut resolved.withheld_env, keys);
    (resolved.grants.sandbox, resolved.untaken) = bounds::sandbox(layers, app);
    resolved.grants.guards = resolved.machines.guards.clone();
    resolved.grants.confirm = resolved.learning.confirm;
    secrets::note(&mut resolved.withheld_env, TOKEN_VARIABLE);
    // A program that serves as a model may need a key that etude does not use itself.
    resolved.settings.withheld_env = resolved.withheld_env.clone();
    let of_automation = layers.iter().flat_map(|layer| &layer.config.automation_variables);
    of_automation.for_each(|name| secrets::note(&mut resolved.withheld_env, name));
    SECRET_VARIABLES.iter().for_each(|name| secrets::note(&mut resolved.withheld_env, name));
    resolved.settings.secrets = resolved.grants.secrets.clone();
    Ok(resolved)
}

/// Settings of the warm Python interpreter, from the nearest file that has them.
fn python_worker(layers: &[Layer]) -> PythonWorker {
    let given = layers.iter().find_map(|layer| layer.config.python_worker.as_ref());
    given.map_or_else(PythonWorker::default, |given| PythonWorker {
        preload: given.preload.clone(),
        every_step: !given.marked_only,
    })
}

/// Rules for machines. The guards of all files apply, also to the calls of agents and steps.
fn rules(layers: &[Layer]) -> Result<Rules, Problem> {
    let policy = Policy {
        join_outside_next_stages: layers
            .iter()
            .find_map(|layer| layer.config.join_outside_next_stages)
            .unwrap_or_default(),
        strict_upstream: layers.iter().find_map(|layer| layer.config.strict_upstream).unwrap_or_default(),
    };
    let guard = |line: &String| {
        etude_spec::command::parse(line)
            .map_err(|why| Problem::usage(format!("the guard `{line}` cannot be run: {why}")))
    };
    let guards = layers.iter().flat_map(|layer| &layer.config.guards).map(guard).collect::<Result<_, _>>()?;
    Ok(Rules { policy, guards })
}

fn add_provider(resolved: &mut Resolved, name: &str, given: &Provider) -> Result<(), Problem> {
    let kind = ProviderKind::from_word(&given.kind).ok_or_else(|| {
        let message = format!("provider `{name}` is of kind `{}`, which is not available in this version", given.kind);
        Problem::environment(message).hint("use kind `openai-compatible` for a local model server")
    })?;
    if kind == ProviderKind::Local {
        return add_local(resolved, name, given);
    }
    let mut provider = ProviderSettings::new(name, kind);
    let mut expand =
        |text: &Option<String>| text.as_deref().map(|text| secrets::expand(text, &mut resolved.withheld_env));
    let key = expand(&given.api_key);
    provider.base_url = expand(&given.base_url).map(|found| found.text.into());
    provider.headers = given
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), Secret::new(secrets::expand(value, &mut resolved.withheld_env).text)))
        .collect();
    match key {
        Some(key) => {
            provider.key_hint = key.variables.first().cloned();
            provider.api_key = (!key.text.is_empty()).then(|| Secret::new(key.text));
        }
        None => defaults::take_key(&mut provider, &mut resolved.withheld_env),
    }
    provider.command = match &given.command {
        Some(line) => words(name, line)?,
        None => Vec::new(),
    };
    provider.path = given.path.as_ref().map(|path| resolved.settings.app_dir.join(path));
    provider.record_from = given.record.as_deref().map(defaults::model_id);
    provider.structured_output = given.structured_output;
    provider.timeout_ms = given.timeout_ms;
    provider.retries = given.retries;
    provider.max_wait_ms = given.max_wait_ms;
    provider.states_cost = given.states_cost;
    provider.context_window = given.context_tokens;
    provider.max_tokens = given.max_tokens;
    provider.tool_calling = given.tool_calling.as_deref().and_then(ToolCalling::from_word);
    resolved.settings.providers.push(provider);
    Ok(())
}

/// Withholds the last added provider if an app requests more than it may have, and records where it sends prompts.
fn check_consent(resolved: &mut Resolved, consent: &Consent, given: &Provider, file: &str) {
    let Some(provider) = resolved.settings.providers.last_mut() else { return };
    provider.is_path_of_app = true;
    provider.withheld_env = consent.keys().cloned().collect();
    provider.withheld = consent.provider(&provider.name, given, provider.kind, file);
    if provider.withheld.is_some() {
        // A variable in the URL may be a key, which is then neither sent nor shown.
        provider.base_url = given.base_url.as_deref().map(Into::into);
    } else if let Some(host) = (provider.base_url.as_ref().and_then(|url| consent.redirect(url)))
        .or_else(|| consent.account(given, provider.kind))
    {
        resolved.redirects.insert(provider.name.clone(), host);
    }
}

fn add_local(resolved: &mut Resolved, name: &str, given: &Provider) -> Result<(), Problem> {
    let mut given = given.clone();
    for text in [&mut given.path, &mut given.base_url].into_iter().flatten() {
        *text = secrets::expand(text, &mut resolved.withheld_env).text;
    }
    let mut provider = local::provider(name, &given, &resolved.settings.app_dir)?;
    provider.timeout_ms = given.timeout_ms;
    provider.max_tokens = given.max_tokens;
    resolved.settings.providers.push(provider);
    resolved.local.insert(name.to_owned(), given);
    Ok(())
}

/// Words of a provider's command. A command that needs a shell gets one.
fn words(name: &str, line: &str) -> Result<Vec<String>, Problem> {
    match etude_spec::command::parse(line) {
        Ok(Command::Direct(words)) => Ok(words),
        Ok(Command::Shell(line) | Command::Script(line)) => Ok(["sh", "-c", &line].map(str::to_owned).to_vec()),
        Err(why) => Err(Problem::usage(format!("the command of provider `{name}` cannot be run: {why}"))),
    }
}

/// Refuses steps that take a value from a variable that is not set or etude's own, and redacts the values that they take.
pub(crate) fn given(resolved: &mut Resolved, variables: &BTreeSet<&str>) -> Result<(), Problem> {
    for name in variables {
        if resolved.own.iter().any(|own| own == name) {
            let message = format!("`{name}` is never passed to a step: etude uses it for its own database or server");
            return Err(Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, message)
                .hint("put the value for the step into another variable, and name that variable with `from_env`"));
        }
        let Some(value) = std::env::var_os(name) else {
            let message =
                format!("the environment variable `{name}` is not set; a step takes a value from it with `from_env`");
            return Err(Problem::environment(message).hint(format!("set {name}, then repeat the command")));
        };
        resolved.grants.secrets.extend(grants::secret(name, &value.to_string_lossy()));
    }
    resolved.settings.secrets = resolved.grants.secrets.clone();
    Ok(())
}

/// Models that are known without looking for a local server; `None` if the settings are invalid.
pub(crate) fn known_models(resolved: &Resolved) -> Option<Models> {
    let mut resolved = resolved.clone();
    defaults::fill_from_key(&mut resolved);
    Models::new(resolved.settings).ok()
}

/// Models of unknown price that a run of the definition may call; empty if the settings are invalid.
#[cfg(any(feature = "serve", feature = "postgres"))]
pub(crate) fn unpriced(resolved: &Resolved, definition: &etude::definition::Definition) -> Vec<String> {
    let Some(models) = known_models(resolved) else { return Vec::new() };
    let unpriced: BTreeSet<String> =
        definition.all_tiers().into_iter().flat_map(|tier| models.unpriced(tier)).collect();
    unpriced.into_iter().collect()
}

/// Refuses settings with which the first call to a model of these tiers is certain to fail, before anything of a run has
/// happened.
pub(crate) fn answerable(resolved: &Resolved, tiers: &[Tier]) -> Result<(), Problem> {
    if tiers.is_empty() {
        return Ok(());
    }
    let models = sound(resolved)?;
    if let Some(why) = tiers.iter().find_map(|tier| resolved.withheld(*tier)) {
        return Err(Problem::environment(why).hint(remedy(resolved.purpose)));
    }
    match tiers.iter().find(|tier| models.describe(**tier).is_none()) {
        Some(tier) => Err(Problem::environment(format!("no model is configured for tier `{tier}`; {REMEDIES}"))),
        None => Ok(()),
    }
}

/// Models of valid settings.
pub(crate) fn sound(resolved: &Resolved) -> Result<Models, Problem> {
    Models::new(resolved.settings.clone()).map_err(|error| unsound(resolved, &error))
}

/// All faults of the settings that show without any IO.
pub(crate) fn faults(resolved: &Resolved) -> Vec<Problem> {
    resolved.settings.faults().iter().map(|error| unsound(resolved, error)).collect()
}

fn unsound(resolved: &Resolved, error: &SettingsError) -> Problem {
    let hint = match error {
        SettingsError::UnknownProvider { provider, .. } => {
            let known = resolved.settings.providers.iter().map(|provider| provider.name.as_str());
            did_you_mean(provider, known.chain(provider_kind_words())).map(|name| format!("did you mean `{name}`?"))
        }
        SettingsError::Missing { setting: "command", .. } => Some("for example: `command: claude -p`".to_owned()),
        SettingsError::Missing { setting: "path", .. } => {
            Some("for example: `path: recordings/review.json`".to_owned())
        }
        SettingsError::Missing { .. } | SettingsError::BaseUrl { .. } => {
            Some("for example: `base_url: \"http://127.0.0.1:8000/v1\"`".to_owned())
        }
        _ => None,
    };
    Problem::environment(error.to_string())
        .hint(hint.unwrap_or_else(|| "list the configured models: etude model list".to_owned()))
}

/// Models that are set up at the first call.
pub(crate) fn models(resolved: Resolved) -> Arc<dyn ModelPort> {
    Arc::new(lazy::LazyModels::new(resolved))
}
