//! A project: its directory, its main skill, and the skills on its search path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude_spec::cascade::search::{Cache, Catalog, absolute};
use etude_spec::cascade::{
    Compiled, Compiler, LIBRARY, Overrides, PathEntry, ProjectMain, Scope, Skill, Skills, Strategy, project_main,
};
use etude_spec::source::SourceFile;
use etude_spec::{Code, Diagnostic, did_you_mean};
use serde_json::{Value, json};

use crate::roots::{DiskRoots, Modules};
use etude_files::shared::is_of_others;
use etude_tools::disk::Disk;

/// Start of the search for a project, with the options to load it.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// The user's directory: the project is the nearest directory at or above it with a main skill, otherwise this one.
    pub start: PathBuf,
    /// The project's directory, if it is known; then nothing is searched.
    pub dir: Option<PathBuf>,
    /// Values that override metadata.
    pub overrides: Overrides,
    /// Chosen behaviours where the format leaves a choice.
    pub strategy: Strategy,
    /// Name of the skill that is called from outside; empty if none is.
    pub entry: String,
    /// Treatment of JavaScript modules.
    pub modules: Modules,
    /// True for [`Project::check`]: skills are checked while they are read.
    pub checks: bool,
}

/// A project with everything on its search path.
#[derive(Debug, Clone)]
pub struct Project {
    /// Its directory, absolute.
    pub dir: PathBuf,
    /// The skills and tools that can be called.
    pub catalog: Catalog,
    /// The context that chains are computed in.
    pub scope: Scope,
    /// Faults of the main skill.
    pub diagnostics: Vec<Diagnostic>,
    /// Treatment of JavaScript modules.
    pub(crate) modules: Modules,
    /// The path that was searched last.
    pub(crate) searched: Vec<PathEntry>,
}

/// Reason why a skill has no chain.
#[derive(Debug)]
pub enum Refused {
    /// No skill of that name is on the search path.
    Unknown {
        /// The most similar name on the path.
        near: Option<String>,
    },
    /// A definition is invalid.
    Invalid(Vec<Diagnostic>),
}

impl Project {
    /// Finds the project and searches for its skills: first on the bootstrap path, then on the path of the main skill, then on
    /// that of the entry skill (D-9.2, D-0.1.1).
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(setup: Setup) -> std::io::Result<Self> {
        let (dir, main) = match &setup.dir {
            Some(dir) => (std::fs::canonicalize(dir)?, main_of(dir)),
            None => nearest(&std::fs::canonicalize(&setup.start)?),
        };
        Ok(Self::begun_by(dir, main, setup))
    }

    /// The project in `dir`, an absolute path, with the main skill that was found.
    fn begun_by(dir: PathBuf, main: ProjectMain, setup: Setup) -> Self {
        let cwd = dir.display().to_string();
        let runtime = json!({"name": "etude", "version": env!("CARGO_PKG_VERSION")});
        let config = json!({"cwd": cwd, "library": LIBRARY, "runtime": runtime});
        let scope = Scope::new(config, setup.strategy, setup.overrides, &setup.entry);
        let (modules, diagnostics) = (setup.modules, main.diagnostics);
        let mut project = Self { dir, catalog: Catalog::default(), scope, diagnostics, modules, searched: Vec::new() };
        // Nothing is read twice for one project.
        let mut cache = if setup.checks { Cache::checking() } else { Cache::default() };
        project.search(&PathEntry::bootstrap(), main.skill.clone(), &mut cache);
        let begin =
            main.skill.map_or_else(|| etude_spec::cascade::library::DEFAULT.to_owned(), |main| main.name.clone());
        project.search_as(&begin, &mut cache);
        // A check or a listing has no entry skill.
        if !setup.entry.is_empty() {
            project.search_as(&setup.entry, &mut cache);
            project.take_self_defaults(&setup.entry);
        }
        project
    }

    /// Applies `$self` of the entry skill to every skill, except where the user has set a value (D-4.7).
    fn take_self_defaults(&mut self, entry: &str) {
        let Ok(compiled) = self.compile(entry) else { return };
        let global = &mut self.scope.overrides.global;
        let is_said = |key: &str, global: &[(String, Value)]| {
            global.iter().any(|(path, _)| path == key || path.starts_with(&format!("{key}.")))
        };
        let new: Vec<(String, Value)> =
            compiled.self_defaults.into_iter().filter(|(key, _)| !is_said(key, global)).collect();
        global.splice(0..0, new);
    }

    /// The project of the app in `dir`, if the app's own main skill declares one; otherwise nothing is searched.
    pub fn of_app(dir: &Path, modules: Modules) -> Option<Self> {
        Self::declared_in(dir, Setup { modules, ..Setup::default() })
    }

    /// Same as [`Project::of_app`], for [`Project::check`].
    pub fn to_check(dir: &Path, modules: Modules) -> Option<Self> {
        Self::declared_in(dir, Setup { modules, checks: true, ..Setup::default() })
    }

    fn declared_in(dir: &Path, setup: Setup) -> Option<Self> {
        let dir = std::fs::canonicalize(dir).ok()?;
        let main = main_of(&dir);
        if !main.is_marked {
            return None;
        }
        Some(Self::begun_by(dir, main, setup))
    }

    /// A project with an empty search path.
    pub(crate) fn bare(dir: &Path) -> Self {
        let config = json!({"cwd": dir.display().to_string(), "library": LIBRARY});
        let scope = Scope::new(config, Strategy::default(), Overrides::default(), "");
        let (catalog, modules) = (Catalog::default(), Modules::default());
        Self { dir: dir.to_owned(), catalog, scope, diagnostics: Vec::new(), modules, searched: Vec::new() }
    }

    /// Searches the path that the skill `name` declares, if it can be compiled.
    fn search_as(&mut self, name: &str, cache: &mut Cache) {
        let Ok(compiled) = self.compile(name) else { return };
        let mut entries = PathEntry::list(compiled.merged.get("paths"));
        entries.extend(self.still_external(&entries));
        if !entries.is_empty() && entries != self.searched {
            self.search(&entries, self.catalog.main.clone(), cache);
        }
    }

    /// External directories of the current path that a directory of `entries` contains, and that `entries` do not name. They
    /// stay external: their skills must not get the authority of the directory around them (D-0.1.4).
    fn still_external(&self, entries: &[PathEntry]) -> Vec<PathEntry> {
        let cwd = self.dir.display().to_string();
        let named = entries.iter().filter_map(|entry| match entry {
            PathEntry::Dir { dir, .. } => Some(absolute(&cwd, dir)),
            PathEntry::Ignore(_) => None,
        });
        let named: Vec<String> = named.collect();
        let is_within = |entry: &&PathEntry| match entry {
            PathEntry::Dir { dir, external: true } => {
                let dir = PathBuf::from(absolute(&cwd, dir));
                named.iter().all(|other| dir != Path::new(other)) && named.iter().any(|other| dir.starts_with(other))
            }
            _ => false,
        };
        self.searched.iter().filter(is_within).cloned().collect()
    }

    fn search(&mut self, entries: &[PathEntry], main: Option<Arc<Skill>>, cache: &mut Cache) {
        let cwd = self.dir.display().to_string();
        self.searched = entries.to_vec();
        self.catalog = Catalog::search(&DiskRoots::new(self.modules), &cwd, entries, cache);
        self.catalog.main = main;
    }

    /// The compiled skill `name`, with its chain.
    ///
    /// # Errors
    /// The skill does not exist, or its definition is invalid.
    pub fn compile(&self, name: &str) -> Result<Compiled, Refused> {
        let Some(skill) = self.catalog.find(name) else {
            return Err(self.unknown(name));
        };
        let compiler = Compiler::new(&self.catalog, &self.scope);
        let (compiled, mut found) = compiler.compile(&skill);
        let own = self.catalog.diagnostics.iter().filter(|fault| fault.is_error() && fault.file == skill.file);
        found.extend(own.cloned());
        match compiled {
            Some(compiled) if !found.iter().any(Diagnostic::is_error) => Ok(compiled),
            _ => Err(Refused::Invalid(found)),
        }
    }

    /// Adds the skill `name` from a file that is on no search path. It is found by its name from now on.
    ///
    /// # Errors
    /// The file does not contain the skill, or its definition is invalid.
    pub fn take_in(&mut self, name: &str, file: &Path) -> Result<(), Refused> {
        let unknown = Refused::Unknown { near: None };
        let Ok(text) = etude_files::regular::read_text(file, crate::middleware::MAX_SIZE) else { return Err(unknown) };
        let dir = file.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
        let source = SourceFile::new(file.display().to_string(), text);
        let (skills, found) = Skill::read_all(&source, &dir.into());
        if found.iter().any(Diagnostic::is_error) {
            return Err(Refused::Invalid(found));
        }
        let skill = skills.into_iter().find(|skill| skill.name == name).ok_or(unknown)?;
        self.catalog.register(skill);
        Ok(())
    }

    /// Number of skills on the search path, without those of the library.
    pub fn own_skills(&self) -> usize {
        self.own().len()
    }

    fn own(&self) -> Vec<Arc<Skill>> {
        let mut all = self.catalog.list();
        all.retain(|skill| !skill.dir.starts_with(LIBRARY));
        all
    }

    /// All faults of the skills on the search path, without those of the library.
    pub fn check(&self) -> Vec<Diagnostic> {
        let all = self.own();
        let mut found = self.catalog.diagnostics.clone();
        found.extend(self.diagnostics.iter().cloned());
        found.extend(etude_spec::cascade::check(&self.catalog, &self.scope, &all));
        etude_spec::diagnostic::sort(&mut found);
        found
    }

    /// The error for a missing skill; its file may exist but be invalid.
    fn unknown(&self, name: &str) -> Refused {
        let is_its = |fault: &&Diagnostic| {
            let path = fault.file.path();
            let file = path.rsplit('/').next().unwrap_or_default();
            let folder = path.rsplit('/').nth(1);
            let reports = fault.is_error() || fault.code == Code::ModuleNotLoaded;
            reports && (file.split('.').next() == Some(name) || folder == Some(name))
        };
        let own: Vec<Diagnostic> = self.catalog.diagnostics.iter().filter(is_its).cloned().collect();
        if !own.is_empty() {
            return Refused::Invalid(own);
        }
        let names = self.catalog.names();
        Refused::Unknown { near: did_you_mean(name, names.iter().map(String::as_str)).map(str::to_owned) }
    }

    /// `globals` of an invocation: `config` with the main skill's name.
    pub fn globals(&self) -> Value {
        let mut config = self.scope.context["globals"]["config"].clone();
        if let Some(main) = &self.catalog.main {
            config["mainTool"] = json!(main.name);
        }
        json!({"config": config, "internals": {"events": {}}})
    }
}

/// The main skill of a directory; nothing if the directory cannot be read.
fn main_of(dir: &Path) -> ProjectMain {
    let Ok(disk) = Disk::open(dir) else { return ProjectMain::default() };
    project_main(&disk, &disk.root().display().to_string())
}

/// The nearest directory whose main skill declares a project, otherwise `start`. Directories that other users can write to are
/// skipped.
fn nearest(start: &Path) -> (PathBuf, ProjectMain) {
    for dir in start.ancestors().filter(|dir| *dir == start || !is_of_others(dir, start)) {
        let main = main_of(dir);
        if main.is_marked {
            return (dir.to_owned(), main);
        }
    }
    (start.to_owned(), main_of(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-4.1, D-0.1.4: a skill of an external directory has no authority outside of it, also if it is called from outside and
    /// its own path does not name that directory.
    #[test]
    fn an_external_skill_stays_external_if_it_is_the_entry() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ext")).unwrap();
        let main = "---\nname: app\nmetadata: {role: main, paths: [{external: ./ext}], color: red}\n---\n";
        std::fs::write(dir.path().join("app.skill.md"), main).unwrap();
        std::fs::write(dir.path().join("ext/tool.skill.md"), "x").unwrap();
        std::fs::write(dir.path().join("own.skill.md"), "y").unwrap();
        let levels = |entry: &str| {
            let setup = Setup { dir: Some(dir.path().to_owned()), entry: entry.to_owned(), ..Setup::default() };
            Project::open(setup).unwrap().compile(entry).unwrap().levels
        };
        assert_eq!(levels("tool"), ["tool", "default"]);
        assert_eq!(levels("own"), ["own", "app", "default"]);
    }
}
