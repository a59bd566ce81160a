//! The environment of children.

use std::collections::hash_map::RandomState;
use std::env;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::LazyLock;

use etude_core::effect::{Inherits, ProcessCall};

/// The variable with the access token for a server. No child inherits it.
pub const TOKEN_VARIABLE: &str = "ETUDE_TOKEN";

/// The variable that names the engine. Its value may contain a database password, so no child inherits it.
pub const ENGINE_VARIABLE: &str = "ETUDE_ENGINE";

/// Variables of all provider keys, used or not, and of the access token. No step inherits them.
pub const SECRET_VARIABLES: [&str; 4] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", TOKEN_VARIABLE];

/// The variables that a child inherits. The documentation of each constructor says which are left out.
#[derive(Debug, Clone)]
pub struct ChildEnvironment(Vec<(OsString, OsString)>);

impl ChildEnvironment {
    /// The variables of this process without [`SECRET_VARIABLES`] and without those named in `withheld`, which are the secrets
    /// that etude itself uses.
    pub fn without_keys(withheld: &[String]) -> Self {
        Self(env::vars_os().filter(|(name, _)| !is_key(name) && !is_named(name, withheld)).collect())
    }

    /// The variables of this process without those named in `withheld`. They may include a provider key: only a program that
    /// the user configured as a model gets them.
    pub fn without(withheld: &[String]) -> Self {
        Self(env::vars_os().filter(|(name, _)| name != ENGINE_VARIABLE && !is_named(name, withheld)).collect())
    }

    /// The variables of this process that have one of these names.
    pub fn named(names: &[&str]) -> Self {
        Self(env::vars_os().filter(|(name, _)| names.iter().any(|kept| name == kept)).collect())
    }

    /// Only these variables, and none of this process.
    pub fn only(variables: Vec<(OsString, OsString)>) -> Self {
        Self(variables)
    }

    /// Adds variables. A later one of the same name wins.
    #[must_use]
    pub fn with(mut self, variables: impl IntoIterator<Item = (String, OsString)>) -> Self {
        self.0.extend(variables.into_iter().map(|(name, value)| (name.into(), value)));
        self
    }

    pub(crate) fn into_variables(self) -> Vec<(OsString, OsString)> {
        self.0
    }
}

/// The variables that a hook of a stage machine inherits (B-20.4); a name with `*` is a prefix. They are needed to find and
/// start programs, and give the language and directories of the user.
const BASICS: [&str; 25] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TERM",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_*",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV*",
    "PYTHON*",
    "NODE_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "__PYVENV_LAUNCHER__",
];

/// The variable with a file that an interactive Python runs.
const PYTHON_STARTUP: &str = "PYTHONSTARTUP";

fn is_basic(name: &OsStr) -> bool {
    let is_it = |name: &str| {
        BASICS.iter().any(|basic| basic.strip_suffix('*').map_or(*basic == name, |start| name.starts_with(start)))
    };
    name.to_str().is_some_and(|name| name != PYTHON_STARTUP && is_it(name))
}

fn is_key(name: &OsStr) -> bool {
    name == ENGINE_VARIABLE || SECRET_VARIABLES.iter().any(|key| name == *key)
}

fn is_named(name: &OsStr, names: &[String]) -> bool {
    names.iter().any(|withheld| name == OsStr::new(withheld))
}

/// Value of `ETUDE_HOLDER`, which distinguishes this process from every other one that has or had the same run. It is random,
/// since process ids are reused. Steps see it, and it grants nothing.
pub(super) fn holder() -> &'static str {
    static HOLDER: LazyLock<String> = LazyLock::new(|| format!("{:016x}", RandomState::new().build_hasher().finish()));
    &HOLDER
}

/// The entry in the environment of every process of the run `run_id`.
pub(super) fn mark_of_run(run_id: &str) -> String {
    format!("ETUDE_RUN_ID={run_id}")
}

/// The entry in the environment of every process that `holder` has started.
pub(super) fn mark_of_holder(holder: &str) -> String {
    format!("ETUDE_HOLDER={holder}")
}

/// The environment that every script of a run inherits, read once.
#[derive(Debug)]
pub(super) struct Environment {
    inherited: Vec<(OsString, OsString)>,
    run_id: String,
    app_dir: OsString,
    tools_dir: OsString,
}

/// The variables that this process itself was started with, which a sandbox passes on.
pub(super) fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os()
}

impl Environment {
    pub(super) fn new(run_id: &str, app_dir: &Path, inherited: ChildEnvironment) -> Self {
        Self {
            inherited: inherited.into_variables(),
            run_id: run_id.to_owned(),
            app_dir: app_dir.into(),
            tools_dir: app_dir.join("tools").into(),
        }
    }

    /// The variables of one call that runs in `dir`. `local` replaces inherited ones, and a later variable of the same name
    /// wins.
    pub(super) fn of<'a>(
        &'a self,
        call: &'a ProcessCall,
        dir: &'a Path,
        local: &'a [(&'static str, OsString)],
    ) -> impl Iterator<Item = (&'a OsStr, OsString)> {
        let own = [
            ("ETUDE_RUN_ID", OsString::from(&self.run_id)),
            ("ETUDE_HOLDER", OsString::from(holder())),
            ("ETUDE_EFFECT_ID", OsString::from(self.effect_id(call))),
            ("ETUDE_ATTEMPT", OsString::from(call.attempt.to_string())),
            ("ETUDE_APP_DIR", self.app_dir.clone()),
            ("ETUDE_TOOLS_DIR", self.tools_dir.clone()),
            ("ETUDE_PIPELINE_DIR", dir.into()),
        ];
        // Programs trust `PWD` over the directory they run in, so it must not be that of this process.
        let directory = [(OsStr::new("PWD"), OsString::from(dir))];
        let is_given = |name: &OsStr| call.setting.inherits == Inherits::All || is_basic(name);
        let inherited = self.inherited.iter().filter(move |(name, _)| is_given(name));
        let inherited = inherited.map(|(name, value)| (name.as_os_str(), value.clone()));
        let asked = call.env.iter().map(|(name, value)| (OsStr::new(name), OsString::from(value)));
        let given = call.setting.env_from.iter();
        let given = given.filter_map(|(name, source)| Some((OsStr::new(name), env::var_os(source)?)));
        let local = local.iter().map(|(name, value)| (OsStr::new(*name), value.clone()));
        inherited
            .chain(local)
            .chain(directory)
            .chain(asked)
            .chain(given)
            .chain(own.into_iter().map(|(name, value)| (OsStr::new(name), value)))
    }

    /// The first variable that the call takes a value from and that is not set.
    pub(super) fn unset(call: &ProcessCall) -> Option<&str> {
        let mut sources = call.setting.env_from.iter().map(|(_, source)| source.as_str());
        sources.find(|source| env::var_os(source).is_none())
    }

    /// Value of `ETUDE_EFFECT_ID`: the idempotency key of a call, the same on every attempt and after a resume.
    pub(super) fn effect_id(&self, call: &ProcessCall) -> String {
        format!("{}/{}", self.run_id, call.key)
    }

    /// The value of `HOME`.
    pub(super) fn home(&self) -> Option<&Path> {
        self.inherited.iter().find(|(name, _)| name == "HOME").map(|(_, value)| Path::new(value))
    }

    /// Search path for the programs of this call.
    pub(super) fn path<'a>(&'a self, call: &'a ProcessCall) -> Option<&'a OsStr> {
        let asked = call.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| OsStr::new(value));
        asked.or_else(|| self.own_path())
    }

    /// Search path of etude itself.
    pub(super) fn own_path(&self) -> Option<&OsStr> {
        self.inherited.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str())
    }
}
