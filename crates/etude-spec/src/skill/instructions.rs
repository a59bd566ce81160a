//! A skill that an agent follows: the name and the tools in its frontmatter, and its body.

use etude_core::plan::Origin;

use crate::diagnostic::Diagnostic;
use crate::frontmatter;
use crate::source::Sources;

/// The instructions of an agent.
#[derive(Debug, Clone)]
pub struct Instructions {
    /// The name in its frontmatter.
    pub name: Option<String>,
    /// The value of `allowed-tools`, as patterns.
    pub allowed: Option<Vec<String>>,
    /// The text below the frontmatter, trimmed.
    pub body: String,
    /// The place of the name, or of the body.
    pub origin: Origin,
    /// Findings that are no errors.
    pub warnings: Vec<Diagnostic>,
}

impl Instructions {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or its frontmatter has errors.
    pub fn read(sources: &dyn Sources, path: &str) -> Result<Self, Vec<Diagnostic>> {
        let one = |diagnostic: Box<Diagnostic>| vec![*diagnostic];
        let file = frontmatter::open(sources, path).map_err(one)?;
        let parts = frontmatter::split(&file).map_err(one)?;
        let (root, warnings) = frontmatter::parse(&file, &parts);
        if warnings.iter().any(Diagnostic::is_error) {
            return Err(warnings);
        }
        let entries = root.as_ref().and_then(|root| root.as_map());
        let field = |name: &str| entries.and_then(|entries| entries.get(name));
        let allowed = field("allowed-tools").map(|node| match node.as_seq() {
            Some(items) => items.iter().filter_map(|item| item.as_text().map(str::to_owned)).collect(),
            None => vec![node.as_text().unwrap_or_default().to_owned()],
        });
        let (line, column) = file.position(field("name").map_or(parts.body, |node| node.span).start);
        Ok(Self {
            name: field("name").and_then(|node| node.as_text()).map(str::to_owned),
            allowed,
            body: file.slice(parts.body).trim().to_owned(),
            origin: Origin { file: path.to_owned(), line, column },
            warnings,
        })
    }
}
