//! The built-in default library: `default.skill.md`, the middleware, the directives.

use crate::cascade::skill::{Skill, SkillHandler};
use crate::source::{Entry, FileKind, ReadFailure, Sources};

/// Location of the library in `locals.config.library`. No directory can have this name.
pub const LIBRARY: &str = "library:";

/// The main skill of the library, which is the last level of every tool.
pub const DEFAULT: &str = "default";

/// Every file of the library.
const FILES: &[(&str, &str)] = &[
    ("extensions/agent/agent-context.md", include_str!("library/extensions/agent/agent-context.md")),
    ("skills/agent/agent.skill.md", include_str!("library/skills/agent/agent.skill.md")),
    ("skills/directives/arg.skill.md", include_str!("library/skills/directives/arg.skill.md")),
    ("skills/directives/config.skill.md", include_str!("library/skills/directives/config.skill.md")),
    ("skills/directives/context.skill.md", include_str!("library/skills/directives/context.skill.md")),
    ("skills/directives/env.skill.md", include_str!("library/skills/directives/env.skill.md")),
    ("skills/directives/eval.skill.md", include_str!("library/skills/directives/eval.skill.md")),
    ("skills/directives/inline.skill.md", include_str!("library/skills/directives/inline.skill.md")),
    ("skills/directives/path.skill.md", include_str!("library/skills/directives/path.skill.md")),
    ("skills/directives/script.skill.md", include_str!("library/skills/directives/script.skill.md")),
    ("skills/directives/skill.skill.md", include_str!("library/skills/directives/skill.skill.md")),
    ("skills/directives/tool.skill.md", include_str!("library/skills/directives/tool.skill.md")),
    ("skills/events/event-ack.skill.md", include_str!("library/skills/events/event-ack.skill.md")),
    ("skills/events/event-emit.skill.md", include_str!("library/skills/events/event-emit.skill.md")),
    ("skills/events/event-subscribe.skill.md", include_str!("library/skills/events/event-subscribe.skill.md")),
    ("skills/events/event-unsubscribe.skill.md", include_str!("library/skills/events/event-unsubscribe.skill.md")),
    ("skills/events/event-wait.skill.md", include_str!("library/skills/events/event-wait.skill.md")),
    ("skills/pipeline/agent-execute.skill.md", include_str!("library/skills/pipeline/agent-execute.skill.md")),
    ("skills/pipeline/cwd.skill.md", include_str!("library/skills/pipeline/cwd.skill.md")),
    ("skills/pipeline/default.skill.md", include_str!("library/skills/pipeline/default.skill.md")),
    ("skills/pipeline/directives.skill.md", include_str!("library/skills/pipeline/directives.skill.md")),
    ("skills/pipeline/event.skill.md", include_str!("library/skills/pipeline/event.skill.md")),
    ("skills/pipeline/execute.skill.md", include_str!("library/skills/pipeline/execute.skill.md")),
    ("skills/pipeline/frontmatter.skill.md", include_str!("library/skills/pipeline/frontmatter.skill.md")),
    ("skills/pipeline/gateway.skill.md", include_str!("library/skills/pipeline/gateway.skill.md")),
    ("skills/pipeline/include.skill.md", include_str!("library/skills/pipeline/include.skill.md")),
    ("skills/pipeline/log.skill.md", include_str!("library/skills/pipeline/log.skill.md")),
    ("skills/pipeline/mcp.skill.md", include_str!("library/skills/pipeline/mcp.skill.md")),
    ("skills/pipeline/model.skill.md", include_str!("library/skills/pipeline/model.skill.md")),
    ("skills/pipeline/params.skill.md", include_str!("library/skills/pipeline/params.skill.md")),
    ("skills/pipeline/paths.skill.md", include_str!("library/skills/pipeline/paths.skill.md")),
    ("skills/pipeline/returns.skill.md", include_str!("library/skills/pipeline/returns.skill.md")),
    ("skills/pipeline/role.skill.md", include_str!("library/skills/pipeline/role.skill.md")),
    ("skills/pipeline/tags.skill.md", include_str!("library/skills/pipeline/tags.skill.md")),
    ("skills/pipeline/trust.skill.md", include_str!("library/skills/pipeline/trust.skill.md")),
    (
        "skills/pipeline/validate-allowed-tools.skill.md",
        include_str!("library/skills/pipeline/validate-allowed-tools.skill.md"),
    ),
    ("skills/pipeline/validate-args.skill.md", include_str!("library/skills/pipeline/validate-args.skill.md")),
    ("skills/pipeline/validate-returns.skill.md", include_str!("library/skills/pipeline/validate-returns.skill.md")),
    ("skills/pipeline/visibility.skill.md", include_str!("library/skills/pipeline/visibility.skill.md")),
    ("skills/pipeline/workspace.skill.md", include_str!("library/skills/pipeline/workspace.skill.md")),
];

/// The files of the library.
#[derive(Debug, Clone, Copy, Default)]
pub struct Library;

/// Text of a library file, by its path with the prefix [`LIBRARY`].
pub fn text(path: &str) -> Option<&'static str> {
    let inner = path.strip_prefix(LIBRARY)?.trim_start_matches('/');
    FILES.iter().find(|(known, _)| *known == inner).map(|(_, text)| *text)
}

/// True for the library's directory and those in it.
pub(super) fn holds(dir: &str) -> bool {
    dir.strip_prefix(LIBRARY).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Marks library skills other than prompts as builtin tools: they are part of the runtime and have no text to run.
pub(super) fn native(mut skill: Skill) -> Skill {
    if skill.dir.starts_with(LIBRARY) && skill.name != DEFAULT {
        skill.body = SkillHandler::BuiltinTool;
    }
    skill
}

impl Sources for Library {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadFailure> {
        let (_, text) = FILES.iter().find(|(known, _)| *known == path).ok_or(ReadFailure::Missing)?;
        if text.len() as u64 > limit {
            return Err(ReadFailure::TooLarge { len: text.len() as u64 });
        }
        Ok(text.as_bytes().to_vec())
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure> {
        let mut entries: Vec<Entry> = Vec::new();
        for (path, _) in FILES {
            let rest =
                if dir.is_empty() { Some(*path) } else { path.strip_prefix(dir).and_then(|p| p.strip_prefix('/')) };
            let Some(rest) = rest else { continue };
            let (name, kind) = match rest.split_once('/') {
                Some((name, _)) => (name, FileKind::Dir),
                None => (rest, FileKind::File { executable: false }),
            };
            if !entries.iter().any(|entry| entry.name == name) {
                entries.push(Entry { name: name.to_owned(), kind });
            }
        }
        if entries.is_empty() { Err(ReadFailure::Missing) } else { Ok(entries) }
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        if FILES.iter().any(|(known, _)| *known == path) {
            return Ok(FileKind::File { executable: false });
        }
        self.list(path).map(|_| FileKind::Dir)
    }
}
