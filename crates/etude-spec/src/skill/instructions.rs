//! Instructions of an agent from a skill: name, tools and body.

use std::sync::Arc;

use etude_core::plan::Origin;

use super::tools::without;
use super::{Profile, read};
use crate::diagnose::skills as diagnose;
use crate::diagnostic::Diagnostic;
use crate::directive;
use crate::files::source_text;
use crate::frontmatter::{Fault, Head};
use crate::source::{SourceFile, Sources, Span};
use crate::yaml::Node;

/// Instructions of an agent, read from a skill file.
#[derive(Debug, Clone)]
pub struct Instructions {
    /// The `name` in the frontmatter.
    pub name: Option<String>,
    /// The value of `allowed-tools`, as patterns, with a denial for each entry of `disallowed-tools` (C-3.1).
    pub allowed: Option<Vec<String>>,
    /// The text below the frontmatter, trimmed.
    pub body: String,
    /// Start of the text below the frontmatter, as a byte offset into the file.
    pub body_start: usize,
    /// Place of the name, or else of the body.
    pub origin: Origin,
    /// Findings below the severity of an error.
    pub warnings: Vec<Diagnostic>,
}

impl Instructions {
    /// Reads the file at `path` like a skill of a catalog (C-2.4), but requires neither a name nor a description.
    ///
    /// # Errors
    /// The file is unreadable, or its frontmatter has errors. Restrictions on tools must not be overlooked.
    pub fn read(sources: &dyn Sources, path: &str) -> Result<Self, Vec<Diagnostic>> {
        let file = source_text(sources, path).map_err(|diagnostic| vec![diagnostic])?;
        Self::parse(&file)
    }

    /// Same as [`Self::read`], for a file in memory.
    ///
    /// # Errors
    /// The frontmatter has errors.
    pub fn parse(file: &SourceFile) -> Result<Self, Vec<Diagnostic>> {
        let path = file.path();
        let head = Head::parse(path, file.text().as_bytes());
        let Fields { name, at, allowed, warnings } = match head.fault {
            Some(Fault::Missing) => Fields::default(),
            Some(fault) => return Err(vec![diagnose::no_frontmatter(&head.file, fault)]),
            None => read::parse(&head, Profile::Lenient, |from, root, warnings| {
                let fields = Fields::read(root);
                // Places in a repaired text do not apply to the file.
                let is_own = Arc::ptr_eq(from, &head.file);
                let at = fields.at.filter(|_| is_own);
                let unread = unread_tools(from, root).into_iter().map(|fault| match is_own {
                    true => fault,
                    false => Diagnostic { span: None, label: None, ..fault },
                });
                let warnings = warnings.into_iter().chain(is_own.then(|| slips(from, root)).into_iter().flatten());
                Fields { at, warnings: warnings.chain(unread).collect(), ..fields }
            })?,
        };
        if warnings.iter().any(Diagnostic::is_error) {
            return Err(warnings);
        }
        let (line, column) = file.position(at.map_or(u32::try_from(head.body).unwrap_or(0), |at| at.start));
        let body = file.text()[head.body..].trim().to_owned();
        let origin = Origin { file: path.to_owned(), line, column };
        Ok(Self { name, allowed, body, body_start: head.body, origin, warnings })
    }
}

/// Frontmatter of a skill that an agent follows.
#[derive(Debug, Default)]
struct Fields {
    name: Option<String>,
    at: Option<Span>,
    allowed: Option<Vec<String>>,
    warnings: Vec<Diagnostic>,
}

impl Fields {
    fn read(root: &Node<'_>) -> Self {
        let entries = root.as_map();
        let field = |name: &str| entries.and_then(|entries| entries.get(name));
        let tools = |name: &str| field(name).map(|node| read::listed(node, |text| vec![text.to_owned()]));
        let allowed = without(tools("allowed-tools"), &tools("disallowed-tools").unwrap_or_default());
        let name = field("name").and_then(|node| node.as_text()).map(str::to_owned);
        Self { name, at: field("name").map(|node| node.span), allowed, warnings: Vec::new() }
    }
}

/// The error about lists of tools that cannot be read: an agent must not follow the skill without the restriction.
fn unread_tools(file: &Arc<SourceFile>, root: &Node<'_>) -> Vec<Diagnostic> {
    let fault = |key: &&str| {
        let node = root.as_map()?.get(key)?;
        Some(read::tools_fault(file, node, read::unlisted(node)?, key))
    };
    LISTS.iter().filter_map(fault).collect()
}

/// The fields that list tools.
const LISTS: [&str; 2] = ["allowed-tools", "disallowed-tools"];

/// Warnings for patterns in lists of tools that deny nothing by mistake.
fn slips(file: &Arc<SourceFile>, root: &Node<'_>) -> Vec<Diagnostic> {
    let lists = LISTS.iter().filter_map(|key| root.as_map()?.get(key));
    let items = lists.flat_map(|node| node.as_seq().unwrap_or(std::slice::from_ref(node)));
    items.flat_map(|item| directive::slips(file, item.span, item.as_text().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemorySources;

    fn read(text: &str) -> Result<Instructions, Vec<Diagnostic>> {
        Instructions::read(&MemorySources::new().with("SKILL.md", text), "SKILL.md")
    }

    /// D-3.1: a denial without effect in a skill is reported at its place.
    #[test]
    fn denials_without_effect_are_warnings() {
        for tools in ["Bash bash(rm *, $deny)", "Bash Bash(rm *, deny)", "[Bash, \"Bash(rm *, deny)\"]"] {
            let skill = read(&format!("---\nname: tidy\nallowed-tools: {tools}\n---\nTidy up.\n")).unwrap();
            let [warning] = skill.warnings.as_slice() else { panic!("{tools}: {:?}", skill.warnings) };
            assert_eq!((warning.is_error(), warning.position().map(|at| at.0)), (false, Some(3)), "{tools}");
        }
    }

    /// C-3.1, X-3: `disallowed-tools` limits the agent, and an unreadable one keeps it from following the skill.
    #[test]
    fn disallowed_tools_limit_the_agent() {
        let skill = read("---\nname: tidy\ndisallowed-tools: Write Bash(git push *)\n---\nTidy up.\n").unwrap();
        assert_eq!(skill.allowed.unwrap(), ["*", "Write($deny)", "Bash(git push *, $deny)"]);
        assert!(read("---\nname: tidy\ndisallowed-tools: {Write: x}\n---\nTidy up.\n").is_err());
        let slip = read("---\nname: tidy\ndisallowed-tools: bash\n---\nTidy up.\n").unwrap();
        assert_eq!(slip.warnings.len(), 1);
    }

    /// C-2.4: an unquoted value with a colon is read as in a catalog, with a warning.
    #[test]
    fn an_agent_follows_what_a_catalog_can_read() {
        let skill =
            read("---\nname: tidy\ndescription: Use when: asked\nallowed-tools: Read\n---\nTidy up.\n").unwrap();
        assert_eq!(skill.name.as_deref(), Some("tidy"));
        assert_eq!((skill.allowed, skill.body.as_str()), (Some(vec!["Read".to_owned()]), "Tidy up."));
        assert_eq!(skill.warnings.len(), 1);
        assert_eq!(skill.origin.line, 6);
    }

    /// neither frontmatter nor a field in it is required.
    #[test]
    fn a_body_alone_is_enough() {
        for text in ["Tidy up.\n", "---\nother: 1\n---\nTidy up.\n"] {
            let skill = read(text).unwrap();
            assert_eq!((skill.name, skill.allowed, skill.body.as_str()), (None, None, "Tidy up."), "{text:?}");
        }
    }

    /// incomplete frontmatter is an error, because it may restrict tools.
    #[test]
    fn frontmatter_with_errors_is_not_followed() {
        for text in
            ["---\nallowed-tools: [Read\n---\nTidy up.\n", "---\nname: tidy\nTidy up.\n", "---\na: 1\na: 2\n---\n"]
        {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
