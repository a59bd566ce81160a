//! Activation: the body of one skill, for an agent or a person (C-2.7, C-3.5).

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use etude_spec::did_you_mean;
use etude_spec::frontmatter::Head;
use etude_spec::skill::claude::{self, Piece, Values};
use etude_spec::skill::{Profile, SKILL_FILE, catalog, read};

use super::inject::{Injected, Shell};
use super::resources::resources;
use super::{Compat, Entry, Scope, SkillCatalog, Trusted, read_head, trusted};
use crate::trust::{Approvals, Snapshot};

/// Maximum size of a body, in bytes.
const MAX_BODY_BYTES: u64 = 8 << 20;

/// Maximum size of the frontmatter before a body, in bytes.
const MAX_HEAD_BYTES: u64 = 1 << 20;

/// The caller that activates a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invoker {
    /// A model, through the tool `activate_skill`.
    Agent,
    /// A person who reads the skill: always allowed.
    Reader,
}

/// The options of an activation.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The caller; models and people may invoke different skills.
    pub invoker: Invoker,
    /// The conventions for the body.
    pub compat: Compat,
    /// The text that was typed after the skill's name.
    pub arguments: Option<&'a str>,
    /// The user's approvals.
    pub trust: &'a Approvals,
    /// The project's directory.
    pub project_dir: &'a Path,
    /// Runs injected commands; `None`: none runs.
    pub shell: Option<&'a Shell>,
}

impl<'a> Request<'a> {
    /// A request of a person who reads a skill.
    pub fn new(trust: &'a Approvals) -> Self {
        Self {
            invoker: Invoker::Reader,
            compat: Compat::Spec,
            arguments: None,
            trust,
            project_dir: Path::new(""),
            shell: None,
        }
    }
}

/// An activated skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    /// The name by which it was activated.
    pub name: String,
    /// The body without the frontmatter, rendered as requested.
    pub body: String,
    /// Directory of the skill, absolute: relative paths in the body start there.
    pub directory: String,
    /// Files besides `SKILL.md`, relative to the directory. Their contents are not read.
    pub resources: Vec<String>,
    /// True if more files exist than `resources` names.
    pub has_more: bool,
    /// Tools that the skill may use without approval.
    pub allowed_tools: Option<Vec<String>>,
}

impl Activation {
    /// The activation as an agent gets it. A second activation with the same text adds nothing: the owner of the conversation
    /// compares texts, and keeps them in a compaction (C-2.8).
    pub fn text(&self) -> String {
        catalog::activation(&self.name, &self.body, &self.directory, &self.resources, self.has_more)
    }
}

/// List of the skills that a caller may use.
fn available(known: &[String]) -> String {
    match known.is_empty() {
        true => "no skills are available".to_owned(),
        false => format!("skills: {}", known.join(", ")),
    }
}

/// Reason why a skill is not activated.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// No skill has that name (C-2.7).
    #[error("there is no skill `{name}`{}; {}", near.as_ref().map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default(), available(known))]
    Unknown {
        /// The requested name.
        name: String,
        /// Names that the caller may use.
        known: Vec<String>,
        /// The most similar one of `known`.
        near: Option<String>,
    },
    /// Only people may invoke the skill.
    #[error("only people can invoke the skill `{0}`: ask the user to run it")]
    PeopleOnly(String),
    /// The skill cannot be read, or cannot be read any more.
    #[error("the skill `{name}` cannot be read: {why}")]
    Unreadable {
        /// Name of the skill.
        name: String,
        /// The error of the file system or of the frontmatter, as a sentence fragment.
        why: String,
    },
    /// A command in the body failed, so the activation failed (C-3.4).
    #[error("the skill `{name}` was cancelled: its command `{command}` {why}")]
    Command {
        /// Name of the skill.
        name: String,
        /// The command, with its arguments inserted.
        command: String,
        /// The end of the command, as the predicate of a sentence.
        why: String,
    },
}

impl SkillCatalog {
    /// Activates a skill: reads the current content of its file, and renders the body.
    ///
    /// # Errors
    /// The skill does not exist, the caller may not invoke it, it cannot be read, or one of its commands failed.
    pub fn activate(&self, name: &str, request: &Request<'_>) -> Result<Activation, ActivationError> {
        let Some(entry) = self.find(name) else { return Err(self.unknown(name, request)) };
        let is_agent = request.invoker == Invoker::Agent;
        let trusted = if is_agent { trusted(entry, request.trust) } else { None };
        if is_agent && trusted.is_none() {
            return Err(self.unknown(name, request));
        }
        let own = &entry.skill.name;
        if is_agent && entry.skill.extensions.disable_model_invocation {
            return Err(ActivationError::PeopleOnly(own.clone()));
        }
        let unreadable = |why: String| ActivationError::Unreadable { name: own.clone(), why };
        let text = match trusted {
            Some(Trusted::Text(text)) => text,
            _ => text_of(&entry.location).map_err(unreadable)?,
        };
        let body = body_in(&entry.location.display().to_string(), &text).map_err(unreadable)?;
        let directory = entry.directory.display().to_string();
        let body = match request.compat {
            Compat::Spec => body,
            Compat::ClaudeCode => rendered(entry, &body, &directory, request)?,
        };
        let (resources, has_more) = resources(&entry.directory, &|path| path != SKILL_FILE);
        // The file may have changed since the discovery.
        let now = current(entry, &text).unwrap_or_else(|| entry.skill.clone());
        let in_rule = |tool: String| match request.compat {
            Compat::Spec => tool,
            Compat::ClaudeCode => tool
                .replace("${CLAUDE_SKILL_DIR}", &directory)
                .replace("${CLAUDE_PROJECT_DIR}", &request.project_dir.display().to_string()),
        };
        Ok(Activation {
            name: own.clone(),
            body,
            resources,
            has_more,
            allowed_tools: now.allowed_tools.map(|tools| tools.into_iter().map(in_rule).collect()),
            directory,
        })
    }

    fn unknown(&self, name: &str, request: &Request<'_>) -> ActivationError {
        let known: Vec<String> = match request.invoker {
            Invoker::Agent => self.visible_to_agents(request.trust).map(|entry| entry.skill.name.clone()).collect(),
            _ => self.entries().map(|entry| entry.skill.name.clone()).collect(),
        };
        let near = did_you_mean(name, known.iter().map(String::as_str)).map(str::to_owned);
        ActivationError::Unknown { name: name.to_owned(), known, near }
    }
}

fn current(entry: &Entry, text: &[u8]) -> Option<etude_spec::skill::Skill> {
    let head = Head::parse(&entry.location.display().to_string(), text);
    let directory = entry.directory.file_name()?.to_str()?;
    read(&head, directory, Profile::Lenient).skill
}

/// The text after the frontmatter of the file at `location`.
pub(crate) fn body_of(location: &Path) -> Result<String, String> {
    body_in(&location.display().to_string(), &text_of(location)?)
}

/// The text after the frontmatter of `text`.
pub(crate) fn body_in(path: &str, text: &[u8]) -> Result<String, String> {
    let body = text.get(Head::parse(path, text).body..).unwrap_or_default();
    if body.len() as u64 > MAX_BODY_BYTES {
        return Err(format!("its body has more than {} MiB", MAX_BODY_BYTES >> 20));
    }
    String::from_utf8(body.to_vec()).map_err(|_| "its body is not UTF-8".to_owned())
}

/// The current content of a regular file.
pub(crate) fn text_of(location: &Path) -> Result<Vec<u8>, String> {
    let read = || {
        let (_, mut file) = read_head(location)?;
        file.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        file.take(MAX_BODY_BYTES + MAX_HEAD_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error: std::io::Error| error.to_string())
}

/// The body with arguments, variables and outputs of commands inserted.
fn rendered(entry: &Entry, body: &str, directory: &str, request: &Request<'_>) -> Result<String, ActivationError> {
    let project_dir = request.project_dir.display().to_string();
    let extensions = &entry.skill.extensions;
    let render = |body: &str, skill_dir: &str| {
        let values = Values {
            arguments: request.arguments,
            names: &extensions.arguments,
            skill_dir,
            project_dir: &project_dir,
            // A skill is read outside of any conversation.
            session_id: None,
            effort: extensions.effort.as_deref(),
        };
        claude::render(body, &values)
    };
    let pieces = render(body, directory);
    let has_commands = pieces.iter().any(|piece| matches!(piece, Piece::Command(_)));
    // Comparing a skill with its approval means reading all of its files.
    let approved = match request.shell.filter(|_| has_commands) {
        Some(shell) => approved_copy(entry, body, request, shell).map(|copy| (shell, copy)),
        None => None,
    };
    // Commands run the approved files of the skill; the text names the skill's directory.
    let own = with_own_files(body, &entry.directory, request.project_dir);
    let commands = approved.as_ref().map(|(_, copy)| render(&own, &copy.root().display().to_string()));
    let mut commands = commands.into_iter().flatten().filter(|piece| matches!(piece, Piece::Command(_)));
    let mut out = String::with_capacity(body.len());
    for piece in pieces {
        match (piece, &approved) {
            (Piece::Text(text), _) => out.push_str(&text),
            (Piece::Command(_), None) => out.push_str(claude::DISABLED),
            (Piece::Command(command), Some((shell, _))) => {
                let run = match commands.next() {
                    Some(Piece::Command(run)) => run,
                    _ => command.clone(),
                };
                match shell.run(&run, extensions.shell.as_deref()) {
                    Injected::Output(text) => out.push_str(&text),
                    Injected::Failed(why) => {
                        return Err(ActivationError::Command { name: entry.skill.name.clone(), command, why });
                    }
                }
            }
        }
    }
    Ok(out)
}

/// The body with `${CLAUDE_SKILL_DIR}` in place of the skill's path below the project's directory, so that both refer to
/// approved files. Other files of the project are used as they are when a command runs.
fn with_own_files(body: &str, skill: &Path, project: &Path) -> String {
    let real = project.canonicalize();
    let Some(below) =
        real.iter().map(|real| real.as_path()).chain([project]).find_map(|dir| skill.strip_prefix(dir).ok())
    else {
        return body.to_owned();
    };
    let mut written = "${CLAUDE_PROJECT_DIR}".to_owned();
    below.iter().for_each(|name| written.extend(["/", &name.to_string_lossy()]));
    let goes_on = |after: &str| after.starts_with(|c: char| c.is_alphanumeric() || "-_.$*?[{\\".contains(c));
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find(&written) {
        let after = &rest[at + written.len()..];
        out.push_str(&rest[..at]);
        out.push_str(if goes_on(after) { &written } else { "${CLAUDE_SKILL_DIR}" });
        rest = after;
    }
    out + rest
}

/// A copy of the skill as it was approved for execution. `None` if it is not approved, has changed, or has another body.
fn approved_copy(entry: &Entry, body: &str, request: &Request<'_>, shell: &Shell) -> Option<Snapshot> {
    let (place, content) = request.trust.executable(&entry.directory)?;
    let copy = Snapshot::take(place, content, None, &shell.scratch).ok()?;
    (body_of(&copy.root().join(SKILL_FILE)).ok()? == body).then_some(copy)
}

impl Entry {
    /// True if agents may see the skill without an approval.
    pub fn is_users_own(&self) -> bool {
        self.scope == Scope::User
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for an unknown skill lists those that there are.
    #[test]
    fn an_unknown_skill_is_reported_with_the_others() {
        let unknown = |known: &[&str]| {
            let known = known.iter().map(|name| (*name).to_owned()).collect();
            ActivationError::Unknown { name: "x".to_owned(), known, near: None }.to_string()
        };
        assert_eq!(unknown(&["a", "b"]), "there is no skill `x`; skills: a, b");
        assert_eq!(unknown(&[]), "there is no skill `x`; no skills are available");
    }

    /// C-3.4: a skill that names its own files through the project's directory runs the approved ones, and only those.
    #[test]
    fn own_files_are_found_by_way_of_the_project() {
        let own = |body: &str| with_own_files(body, Path::new("/p/.claude/skills/x"), Path::new("/p"));
        let project = "${CLAUDE_PROJECT_DIR}";
        for after in ["/run.sh a", "", "\"", " b"] {
            assert_eq!(
                own(&format!("sh {project}/.claude/skills/x{after}")),
                format!("sh ${{CLAUDE_SKILL_DIR}}{after}")
            );
        }
        for other in ["/.claude/skills/xy/run.sh", "/.claude/skills/x-y", "/scripts/run.sh", ""] {
            assert_eq!(own(&format!("{project}{other}")), format!("{project}{other}"));
        }
        assert_eq!(with_own_files(&format!("{project}/a"), Path::new("/p"), Path::new("/p")), "${CLAUDE_SKILL_DIR}/a");
        assert_eq!(with_own_files(project, Path::new("/q"), Path::new("/p")), project);
    }
}
