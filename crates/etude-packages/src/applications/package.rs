//! A package: its contract, and the findings about its directories (C-1.8, C-1.9).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use etude_core::effect::Command;
use etude_spec::application::{self, APP_FILE, Body, Contract, StatePaths, findings};
use etude_spec::command::interpreter::{self, Code};
use etude_spec::frontmatter::Head;
use etude_spec::skill::{self, Profile, SKILL_FILE, Skill};
use etude_spec::{Diagnostic, Severity};

use super::Source;
use crate::skills::{body_of, read_head};
use crate::trust::{Approval, ApprovalSubject, Approvals, Content, Manifest, Reading};

/// A package on disk.
#[derive(Debug, Clone)]
pub struct Package {
    /// The contract in its `APP.md`.
    pub contract: Contract,
    /// The kind of place in which the package was found.
    pub source: Source,
    /// The searched place.
    pub scope: PathBuf,
    /// Directory of the package, absolute and without links.
    pub root: PathBuf,
    /// Directories of hidden packages with the same slug.
    pub shadows: Vec<PathBuf>,
    /// All findings about the package.
    pub diagnostics: Vec<Diagnostic>,
}

/// The user's permissions for a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The package may be read.
    pub activation: bool,
    /// Commands may run, each after its confirmation.
    pub execution: bool,
    /// The user blocks the package.
    pub is_blocked: bool,
    /// Content of the package, if the permission depends on it and the content can be approved.
    pub content: Option<Content>,
}

impl Access {
    /// The status word in documents (C-1.9).
    pub const fn word(&self) -> &'static str {
        match (self.is_blocked, self.activation) {
            (true, _) => "blocked",
            (_, true) => "approved",
            _ => "low",
        }
    }
}

impl Package {
    /// Reads the package in `root`. No file in `app/` is opened.
    pub fn load(root: &Path, source: Source, scope: &Path) -> Self {
        let file = root.join(APP_FILE);
        let directory = root.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (contract, mut diagnostics) = match read_head(&file) {
            Ok((head, _)) => {
                let reading = application::read(&head, directory);
                (reading.contract, reading.diagnostics)
            }
            Err(error) => {
                let shown = file.display().to_string();
                let fault = match file.is_file() {
                    true => findings::undecodable_body(&shown, &error.to_string()),
                    false => findings::missing_app_file(&shown),
                };
                (
                    Contract { slug: application::slugified(directory), is_slug_derived: true, ..Contract::default() },
                    vec![fault],
                )
            }
        };
        diagnostics.extend(directories(root, &contract, directory));
        Self { contract, source, scope: scope.to_owned(), root: root.to_owned(), shadows: Vec::new(), diagnostics }
    }

    /// Path of the `APP.md`.
    pub fn file(&self) -> String {
        self.root.join(APP_FILE).display().to_string()
    }

    /// True if the package can be activated and run.
    pub fn is_compatible(&self) -> bool {
        !self.diagnostics.iter().any(|fault| fault.severity == Severity::Error)
    }

    /// The user's permissions for the package. Its content is read only if an approval depends on it.
    pub fn access(&self, approvals: &Approvals) -> Access {
        if approvals.is_blocked(&self.root) {
            return Access { activation: false, execution: false, is_blocked: true, content: None };
        }
        if self.source != Source::Project {
            return Access { activation: true, execution: true, is_blocked: false, content: None };
        }
        let approval = self.was_approved(approvals);
        let content = approval.and_then(|_| Some(self.approved().ok()?.1));
        let current = approval.filter(|approval| content.is_some() && approval.content == content);
        Access {
            activation: current.is_some_and(|approval| approval.activation),
            execution: current.is_some_and(|approval| approval.execution),
            is_blocked: false,
            content,
        }
    }

    /// The user's approval of the package, whatever its content was then; `None` if it is blocked.
    pub fn was_approved<'a>(&self, approvals: &'a Approvals) -> Option<&'a Approval> {
        let approval = approvals.of(&self.root).filter(|approval| approval.kind == ApprovalSubject::Package);
        approval.filter(|_| !approvals.is_blocked(&self.root))
    }

    /// The current content of the package with its texts, in the form that approvals are compared with.
    ///
    /// # Errors
    /// The content cannot be read or approved, or the `APP.md` differs from the one that this package was read from.
    pub(crate) fn approved(&self) -> io::Result<(Manifest, Content)> {
        let state = StatePaths::new(&self.contract.state_paths());
        let is_text = |path: &Path| {
            path == Path::new(APP_FILE)
                || path.starts_with("skills") && path.file_name().is_some_and(|name| name == SKILL_FILE)
        };
        let found = Reading { state: Some(&state), keep: Some(&is_text), copy: None }.read(&self.root)?;
        let content = found.approvable()?;
        let directory = self.root.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let text = found.text(Path::new(APP_FILE)).unwrap_or_default();
        if application::read(&Head::parse(&self.file(), text), directory).contract != self.contract {
            return Err(io::Error::other("its `APP.md` has changed since it was read"));
        }
        let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        let Some(words) = self.entry_words() else {
            return refused(
                "`entry.command` is inline code, which may run files of the state; move it to a script and name the \
                 script"
                    .to_owned(),
            );
        };
        match words.iter().find(|word| found.is_in(&state, Path::new(word))) {
            Some(word) => refused(format!("`entry.command` names `{word}`, which belongs to the state and may change")),
            None => Ok((found, content)),
        }
    }

    /// The words of the entry, as relative paths if they are inside the package, and with modules of `-m`. `None` if the entry
    /// is evaluated text, whose words do not show which files run.
    fn entry_words(&self) -> Option<Vec<String>> {
        let words = match etude_spec::command::parse(&self.contract.entry) {
            Ok(Command::Direct(words)) => words,
            Ok(_) => return None,
            // `apps check` reports a missing or invalid entry, and nothing runs it.
            Err(_) => Vec::new(),
        };
        let code = interpreter::code(&words);
        if code == Some(Code::Text) {
            return None;
        }
        let root = format!("{}/", self.root.display());
        let mut paths: Vec<String> =
            words.iter().map(|word| word.strip_prefix(&root).unwrap_or(word).to_owned()).collect();
        if let Some(Code::Module(name)) = code {
            let module = name.replace('.', "/");
            paths.extend([format!("{module}.py"), format!("{module}/__main__.py")]);
        }
        Some(paths)
    }

    /// The contract's section on scheduling (C-1.15).
    ///
    /// # Errors
    /// Scheduling is not supported, or the contract names no command for it.
    pub(super) fn scheduling(&self) -> Result<String, Diagnostic> {
        let contract = &self.contract;
        if !contract.is_scheduling_supported {
            return Err(findings::scheduling_unsupported(&self.file()));
        }
        let body = body_of(&self.root.join(APP_FILE)).unwrap_or_default();
        let found = Body(&body).scheduling(&contract.commands);
        found.ok_or_else(|| findings::scheduling_undocumented(&self.file()))
    }

    /// The content that a confirmation is bound to. In a package without approval, links may lead anywhere.
    ///
    /// # Errors
    /// The content cannot be read.
    pub fn content(&self) -> io::Result<Content> {
        let state = StatePaths::new(&self.contract.state_paths());
        Ok(Reading { state: Some(&state), ..Reading::default() }.read(&self.root)?.content())
    }

    /// The `SKILL.md` of a short name, if it lies inside the package (C-1.10).
    pub fn skill_file(&self, name: &str) -> Option<PathBuf> {
        match skill_at(&self.root, name) {
            SkillAt::Inside(file) => Some(file),
            SkillAt::Outside | SkillAt::Nowhere => None,
        }
    }
}

/// The location of the `SKILL.md` of a short name.
enum SkillAt {
    /// In the package's `skills/`, at this path.
    Inside(PathBuf),
    /// Outside, through a link. It is never opened.
    Outside,
    /// Missing.
    Nowhere,
}

fn skill_at(root: &Path, name: &str) -> SkillAt {
    let (skills, file) = (root.join("skills"), root.join("skills").join(name).join(SKILL_FILE));
    // A link to a directory without a SKILL.md counts as outside, too.
    let inside = |path: &Path| fs::canonicalize(path).map(|real| real.starts_with(&skills));
    match (inside(&skills.join(name)), inside(&file)) {
        (Ok(false), _) | (_, Ok(false)) => SkillAt::Outside,
        (_, Ok(true)) if file.is_file() => SkillAt::Inside(file),
        _ => SkillAt::Nowhere,
    }
}

/// Findings about the package's directories: C2, C3, and listed and unlisted skills.
fn directories(root: &Path, contract: &Contract, directory: &str) -> Vec<Diagnostic> {
    let path = root.join(APP_FILE).display().to_string();
    let mut found = Vec::new();
    if !contract.is_slug_derived && contract.slug != directory {
        found.push(findings::slug_directory(&path, &contract.slug, directory));
    }
    if !root.join("app").is_dir() {
        found.push(findings::missing_app_dir(&path));
    }
    let skills = root.join("skills");
    if !skills.is_dir() {
        found.push(findings::missing_skills_dir(&path));
        return found;
    }
    for name in &contract.skills {
        match skill_at(root, name) {
            SkillAt::Inside(file) => found.extend(of_skill(&file, name)),
            SkillAt::Outside => found.push(findings::skill_outside(&path, name)),
            SkillAt::Nowhere => found.push(findings::skill_unresolved(&path, name)),
        }
    }
    let mut there: Vec<String> = fs::read_dir(&skills)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    there.sort_unstable();
    let is_listed = |name: &String| contract.skills.contains(name);
    let is_skill = |name: &str| matches!(skill_at(root, name), SkillAt::Inside(_));
    for name in there.iter().filter(|name| !is_listed(name) && is_skill(name)) {
        found.push(findings::skill_unlisted(&path, name));
    }
    found
}

/// Reasons why a listed skill is unusable: it must be skipped, or its name differs from its directory.
fn of_skill(file: &Path, directory: &str) -> Vec<Diagnostic> {
    let shown = file.display().to_string();
    let read = match read_head(file) {
        Ok((head, _)) => usable(&head, directory),
        Err(error) => Err(vec![warning(skill::findings::unreadable(&shown, &error.to_string()))]),
    };
    match read {
        Ok(skill) if skill.name != skill::normalized(directory) => {
            vec![findings::skill_name(&shown, &skill.name, directory)]
        }
        Ok(_) => Vec::new(),
        Err(found) => found,
    }
}

/// The skill in the text of a `SKILL.md`.
///
/// # Errors
/// The skill must be skipped. The findings are warnings, because the package is usable without it (C-2.4).
pub(super) fn skill_in(file: &Path, text: &[u8], directory: &str) -> Result<Skill, Vec<Diagnostic>> {
    usable(&Head::parse(&file.display().to_string(), text), directory)
}

fn usable(head: &Head, directory: &str) -> Result<Skill, Vec<Diagnostic>> {
    let reading = skill::read(head, directory, Profile::Lenient);
    let errors = || reading.diagnostics.into_iter().filter(Diagnostic::is_error).map(warning).collect();
    reading.skill.ok_or_else(errors)
}

pub(super) fn warning(mut fault: Diagnostic) -> Diagnostic {
    fault.severity = Severity::Warning;
    fault
}
