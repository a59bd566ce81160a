//! Apps: their pipelines, machines and skill (A-1), and the search for an app (A-1.1).

use std::io;
use std::path::{Path, PathBuf};

use etude_files::shared::is_of_others;
use etude_runs::target::Target;
use etude_spec::cascade::skill::SUFFIX;
use etude_spec::discover::PIPELINES;
use etude_spec::skill::SKILL_FILE;
use etude_spec::stage_machine::MACHINES;
use etude_spec::{Summary, did_you_mean};
use etude_tools::disk::Disk;

use crate::definition::{self, Configuration, Definition, LoadError};
use crate::{skill_mode, stage_machine};

/// An app: a directory of definitions, and the user's configuration for them.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let home = dir.path();
/// std::fs::create_dir_all(home.join("pipelines/greet"))?;
/// std::fs::write(
///     home.join("pipelines/greet/pipeline.yaml"),
///     "name: greet\ndescription: Greet a person.\nsteps:\n  - {name: hello, type: code, command: echo hello, output: text}\n",
/// )?;
///
/// let app = etude::App::open(home)?;
/// let pipelines = app.pipelines();
/// assert_eq!(pipelines[0].name, "greet");
/// assert_eq!(pipelines[0].description, "Greet a person.");
///
/// let definition = app.pipeline("greet").expect("the pipeline is valid");
/// assert_eq!(definition.plan.body.steps.len(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A definition with faults is reported as a whole:
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let home = dir.path();
/// std::fs::create_dir_all(home.join("pipelines/greet"))?;
/// std::fs::write(home.join("pipelines/greet/pipeline.yaml"), "name: greet\nstepps: []\n")?;
///
/// let app = etude::App::open(home)?;
/// let Err(etude::LoadError::Invalid(diagnostics)) = app.pipeline("greet") else { panic!("it has faults") };
/// assert!(diagnostics.iter().any(|diagnostic| diagnostic.message.contains("stepps")));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct App {
    disk: Disk,
    configuration: Configuration,
}

impl App {
    /// The app in the directory `dir`.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self::new(Disk::open(dir)?, Configuration::default()))
    }

    /// The app whose files are `disk`. `configuration` holds the user's settings for definitions.
    pub fn new(disk: Disk, configuration: Configuration) -> Self {
        Self { disk, configuration }
    }

    /// The opened directory that definitions, prompts and skills of the app are read from.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Lists the pipelines, including invalid ones, sorted by name.
    pub fn pipelines(&self) -> Vec<Summary> {
        etude_spec::App::new(&self.disk).summaries().0
    }

    /// Loads the pipeline `name`, with constructor and destructor.
    ///
    /// # Errors
    /// The pipeline does not exist, or a definition has faults.
    pub fn pipeline(&self, name: &str) -> Result<Definition, LoadError> {
        definition::load(&self.disk, name, &self.configuration)
    }

    /// Loads the pipeline, the stage machine or the skill that `target` names.
    ///
    /// # Errors
    /// The definition does not exist, or it has faults.
    pub fn load(&self, target: &Target) -> Result<Definition, LoadError> {
        match target {
            Target::Pipeline(name) => self.pipeline(name),
            Target::Machine(name) => stage_machine::load(&self.disk, name, &self.configuration.machines),
            Target::Skill(name) => skill_mode::load_as(&self.disk, self.configuration.agent, name),
        }
    }

    /// Drops the configuration and returns the opened directory.
    pub fn into_disk(self) -> Disk {
        self.disk
    }
}

/// Maximum number of entries of a directory that are compared with the names in apps.
const MAX_ENTRIES: usize = 500;

/// True if `dir` is an app: it has `SKILL.md`, `pipelines/` or `machines/`.
pub fn is_app(dir: &Path) -> bool {
    dir.join(PIPELINES).is_dir() || dir.join(MACHINES).is_dir() || dir.join(SKILL_FILE).is_file()
}

/// Reason why it is unknown if `dir` is an app, with the path at fault: the directory may not be searched, or an entry of it leads
/// nowhere.
pub fn unreadable(dir: &Path) -> Option<(PathBuf, io::Error)> {
    [PIPELINES, MACHINES, SKILL_FILE].into_iter().find_map(|name| {
        let path = dir.join(name);
        let cause = path.metadata().err()?;
        match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => None,
            io::ErrorKind::PermissionDenied if path.symlink_metadata().is_err() => Some((dir.to_owned(), cause)),
            _ => Some((path, cause)),
        }
    })
}

/// Names of the entries of `dir` that would make it an app if they were directories.
pub fn not_directories(dir: &Path) -> Vec<&'static str> {
    let is_other = |name: &&str| dir.join(name).symlink_metadata().is_ok() && !dir.join(name).is_dir();
    [PIPELINES, MACHINES].into_iter().filter(is_other).collect()
}

/// An entry of `dir` whose name is almost that of an app's file or directory, such as `skill.md`, and that name.
pub fn near_miss(dir: &Path) -> Option<(String, &'static str)> {
    let mut names: Vec<String> =
        entries(dir).take(MAX_ENTRIES).filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect();
    names.sort_unstable();
    let near = |name: &str| {
        let is_dir = dir.join(name).is_dir();
        let wanted: &[&'static str] = match (is_dir, name.ends_with(SUFFIX)) {
            (true, _) => &[PIPELINES, MACHINES],
            (false, false) => &[SKILL_FILE],
            // A skill of a cascade, such as `a.skill.md`.
            (false, true) => &[],
        };
        did_you_mean(name, wanted.iter().copied())
    };
    names.into_iter().find_map(|name| near(&name).map(|meant| (name, meant)))
}

/// The nearest app at or above `dir`. Directories in which other users of the machine can put files, such as `/tmp`, are
/// skipped: the user did not name that directory, and running an app means trusting it.
pub fn find(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|above| is_app(above) && !is_of_others(above, dir)).map(Path::to_owned)
}

/// The nearest app at or above `dir` that [`find`] passes over.
pub fn of_others(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|above| is_app(above) && is_of_others(above, dir)).map(Path::to_owned)
}

/// True if no other user can have put files into `dir`: an app that appears there may be used without being named.
pub fn is_own(dir: &Path) -> bool {
    !is_of_others(dir, dir)
}

/// True if `dir` itself contains skills: files `*.skill.md`, or directories with a SKILL.md.
pub fn has_skills(dir: &Path) -> bool {
    let is_skill_file = |path: &Path| path.to_str().is_some_and(|path| path.ends_with(".skill.md"));
    entries(dir).any(|path| is_skill_file(&path) || path.join("SKILL.md").is_file())
}

/// The directories directly in `dir` that have a SKILL.md, sorted.
pub fn skill_folders(dir: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = entries(dir).filter(|path| path.join("SKILL.md").is_file()).collect();
    folders.sort_unstable();
    folders
}

/// Paths of the entries of `dir`; none if it cannot be read.
fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests;
