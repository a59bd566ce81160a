//! Prompt templates: text with `{{references}}`, and nothing else. No logic, no filters.

use std::fmt;
use std::ops::Range;

use crate::data::{Json, ReadError, unicode};

/// Maximum length of a rendered text, in bytes: without it, pipelines that each insert a text twice could double it
/// without end.
pub const MAX_RENDERED: usize = 16 << 20;

/// Text with references to values of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Reference(Reference, Range<usize>),
}

/// A reference between double braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// `{{input.NAME.…}}`: a parameter of the pipeline.
    Input {
        /// The parameter, then the path into its value: never empty.
        path: Vec<Segment>,
    },
    /// `{{STEP.output.…}}`: the output of an earlier step.
    Output {
        /// The name of the step in its pipeline.
        step: String,
        /// Path into the step's output.
        path: Vec<Segment>,
    },
    /// `{{item.…}}`: the element of a `for_each`.
    Item {
        /// Path into the element.
        path: Vec<Segment>,
    },
    /// `{{index}}`: the index of the element, from 0.
    Index,
    /// `{{run.request}}`: the request that the run was started with, in the user's words (L-49).
    Request,
}

/// One part of a path into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A member of an object.
    Field(String),
    /// An element of an array, or a member whose name is that number.
    Index(usize),
}

/// Text in double braces that is not a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Position in the template, as a byte range.
    pub range: Range<usize>,
    /// The fault, by which the diagnostic is chosen.
    pub kind: ProblemKind,
}

/// Kind of fault in a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemKind {
    /// `{{` without `}}`.
    Unclosed,
    /// Text that does not have the form of a reference.
    NotAReference {
        /// The text between the braces, without surrounding blanks.
        text: String,
    },
}

/// Error: a reference that has no value in this run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{{{{{reference}}}}}` has no value: {why}")]
pub struct Unresolved {
    /// The reference as written.
    pub reference: String,
    /// Reason, as a sentence fragment.
    pub why: String,
}

/// Source of the values of a template's references.
pub trait Scope {
    /// The value that `reference` names, without its path.
    ///
    /// # Errors
    /// The reason why there is no value.
    fn root(&self, reference: &Reference) -> Result<Json, String>;

    /// The version of the interpreter that began the run, whose behaviour is kept. Without a run, the newest.
    fn abi(&self) -> u32 {
        u32::MAX
    }
}

/// Parses `text`. Malformed references are left out of the template and returned as problems.
///
/// `\{{` writes a literal `{{`.
pub fn parse(text: &str) -> (Template, Vec<Problem>) {
    let mut parts = Vec::new();
    let mut problems = Vec::new();
    let mut literal = String::new();
    let mut at = 0;
    while let Some(found) = text[at..].find("{{") {
        let open = at + found;
        if text[..open].ends_with('\\') {
            literal.push_str(&text[at..open - 1]);
            literal.push_str("{{");
            at = open + 2;
            continue;
        }
        literal.push_str(&text[at..open]);
        let Some(close) = text[open + 2..].find("}}").map(|n| open + 2 + n) else {
            problems.push(Problem { range: open..text.len(), kind: ProblemKind::Unclosed });
            at = text.len();
            break;
        };
        let inner = text[open + 2..close].trim();
        match inner.parse() {
            Ok(reference) => {
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                parts.push(Part::Reference(reference, open..close + 2));
            }
            Err(NotAReference) => {
                let kind = ProblemKind::NotAReference { text: inner.to_owned() };
                problems.push(Problem { range: open..close + 2, kind });
            }
        }
        at = close + 2;
    }
    literal.push_str(&text[at..]);
    if !literal.is_empty() {
        parts.push(Part::Text(literal));
    }
    (Template { parts }, problems)
}

impl Template {
    /// A template without references.
    pub fn literal(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::Text(text.into())] }
    }

    /// A template that is one reference.
    pub fn reference(reference: Reference) -> Self {
        Self { parts: vec![Part::Reference(reference, 0..0)] }
    }

    /// The references, each with its byte range in the text, braces included.
    pub fn references(&self) -> impl Iterator<Item = (&Reference, Range<usize>)> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Reference(reference, range) => Some((reference, range.clone())),
        })
    }

    /// The reference, if the template is exactly one: then its value keeps its JSON type.
    pub fn sole_reference(&self) -> Option<&Reference> {
        match self.parts.as_slice() {
            [Part::Reference(reference, _)] => Some(reference),
            _ => None,
        }
    }

    /// True if there is text, even a space, beside the references: the result is never empty.
    pub fn has_text(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Text(text) if !text.is_empty()))
    }

    /// True if there is no reference.
    pub fn is_literal(&self) -> bool {
        self.references().next().is_none()
    }

    /// The text with every reference replaced: strings as they are, other values as compact JSON. Inserted text is
    /// not scanned again.
    ///
    /// # Errors
    /// The first reference without a value.
    pub fn render(&self, scope: &dyn Scope) -> Result<String, Unresolved> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Reference(reference, _) => {
                    match insertable(&reference.resolve(scope)?, scope.abi()) {
                        Ok(inserted) => text.push_str(&inserted),
                        Err(why) if scope.abi() >= READS_ALL => {
                            return Err(Unresolved { reference: reference.to_string(), why: why.to_string() });
                        }
                        Err(_) => {}
                    }
                    if text.len() > MAX_RENDERED {
                        let why = format!("with it the text is longer than {} MiB", MAX_RENDERED >> 20);
                        return Err(Unresolved { reference: reference.to_string(), why });
                    }
                }
            }
        }
        Ok(text)
    }

    /// As [`Template::render`], but every value, strings as well, is inserted as JSON: values of other types or digits
    /// give another text, and so do values that are split in another way.
    ///
    /// # Errors
    /// The first reference without a value, or a value that cannot be read.
    pub fn render_typed(&self, scope: &dyn Scope) -> Result<String, Unresolved> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                // A literal is a JSON string, too, so that no text of it continues a value.
                Part::Text(literal) => text.push_str(&serde_json::Value::from(literal.as_str()).to_string()),
                Part::Reference(reference, _) => {
                    let unresolved = |why| Unresolved { reference: reference.to_string(), why };
                    let value = reference.resolve(scope)?.text().map_err(|why| unresolved(why.to_string()))?;
                    text.push_str(&typed(&value));
                    if text.len() > MAX_RENDERED {
                        return Err(unresolved(format!("with it the text is longer than {} MiB", MAX_RENDERED >> 20)));
                    }
                }
            }
            text.push('\n');
        }
        Ok(text)
    }

    /// As [`Template::render`], but references that have no value yet stay as they are written: for dry runs. The text
    /// is cut after `limit` bytes.
    pub fn render_partly(&self, scope: &dyn Scope, limit: usize) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Reference(reference, _) => {
                    let value = reference.resolve(scope).ok();
                    match value.and_then(|value| insertable(&value, scope.abi()).ok()) {
                        Some(inserted) => text.push_str(&inserted),
                        None => text.push_str(&format!("{{{{{reference}}}}}")),
                    }
                }
            }
            if text.len() > limit {
                text.truncate(text.floor_char_boundary(limit));
                text.push('…');
                break;
            }
        }
        text
    }
}

/// The first version of the interpreter that inserts every string bare, even if it is not Unicode.
const INSERTS_BARE: u32 = 8;

/// The first version of the interpreter that fails if a stored value cannot be read. Earlier ones insert nothing.
const READS_ALL: u32 = 13;

/// The text of `value` inside a template.
fn insertable(value: &Json, abi: u32) -> Result<String, ReadError> {
    let text = value.text()?;
    if !text.starts_with('"') {
        return Ok(compact(&text));
    }
    Ok(match serde_json::from_str::<String>(&text) {
        Ok(string) => string,
        Err(_) if abi >= INSERTS_BARE => unicode(&text),
        Err(_) => compact(&text),
    })
}

/// A JSON value without the blanks between its tokens, and a string with the usual escapes only.
fn typed(text: &str) -> String {
    match serde_json::from_str::<String>(text) {
        Ok(string) => serde_json::Value::from(string).to_string(),
        Err(_) => compact(text),
    }
}

/// JSON text without the blanks between its tokens. Numbers and strings stay as they were written.
pub fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_string = false;
    let mut escaped = false;
    for c in text.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            in_string = c == '"';
        }
        out.push(c);
    }
    out
}

impl Reference {
    /// Path into the referenced value.
    pub fn path(&self) -> &[Segment] {
        match self {
            Self::Input { path } | Self::Output { path, .. } | Self::Item { path } => path,
            Self::Index | Self::Request => &[],
        }
    }

    /// The value of the reference in this run, path included.
    ///
    /// # Errors
    /// The reference has no value.
    pub fn resolve(&self, scope: &dyn Scope) -> Result<Json, Unresolved> {
        let unresolved = |why| Unresolved { reference: self.to_string(), why };
        let mut value = scope.root(self).map_err(unresolved)?;
        for (depth, segment) in self.path().iter().enumerate() {
            value = step_into(&value, segment).map_err(|why| {
                let way: String = self.path()[..depth].iter().map(|s| format!(".{s}")).collect();
                unresolved(why.replace("{it}", &format!("`{}{way}`", self.head())))
            })?;
        }
        Ok(value)
    }

    fn head(&self) -> String {
        match self {
            Self::Input { .. } => "input".to_owned(),
            Self::Output { step, .. } => format!("{step}.output"),
            Self::Item { .. } => "item".to_owned(),
            Self::Index => "index".to_owned(),
            Self::Request => "run.request".to_owned(),
        }
    }
}

/// The member or element of `value` that `segment` names. In errors, `{it}` is the placeholder of the value.
fn step_into(value: &Json, segment: &Segment) -> Result<Json, String> {
    use serde_json::value::RawValue;
    let text = value.text().map_err(|e| e.to_string())?;
    let member = |name: &str| -> Result<Json, String> {
        let members: indexmap::IndexMap<String, &RawValue> =
            serde_json::from_str(&text).map_err(|_| "{it} is damaged".to_owned())?;
        match members.get(name) {
            Some(raw) => Ok(Json::trusted(raw.get())),
            None if members.is_empty() => Err("{it} is an empty object".to_owned()),
            None => {
                let names: Vec<_> = members.keys().take(12).map(|k| format!("`{k}`")).collect();
                let more = if members.len() > names.len() { ", …" } else { "" };
                Err(format!("{{it}} has no member `{name}`; it has {}{more}", names.join(", ")))
            }
        }
    };
    match (text.as_bytes().first(), segment) {
        (Some(b'{'), Segment::Field(name)) => member(name),
        (Some(b'{'), Segment::Index(index)) => member(&index.to_string()),
        (Some(b'['), Segment::Index(index)) => {
            let elements: Vec<&RawValue> = serde_json::from_str(&text).map_err(|_| "{it} is damaged".to_owned())?;
            match elements.get(*index) {
                Some(raw) => Ok(Json::trusted(raw.get())),
                None => Err(format!("{{it}} has {} elements, counted from 0", elements.len())),
            }
        }
        (Some(b'['), Segment::Field(name)) => Err(format!("{{it}} is an array, which has no member `{name}`")),
        (first, _) => Err(format!("{{it}} is {}", kind_word(first.copied()))),
    }
}

fn kind_word(first: Option<u8>) -> &'static str {
    match first {
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// Error: a text is not a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAReference;

impl std::str::FromStr for Reference {
    type Err = NotAReference;

    fn from_str(text: &str) -> Result<Self, NotAReference> {
        let mut words = text.split('.');
        let head = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        match head {
            "input" if !rest.is_empty() => Ok(Self::Input { path: segments(&rest)? }),
            "item" => Ok(Self::Item { path: segments(&rest)? }),
            "index" if rest.is_empty() => Ok(Self::Index),
            "run" if rest == ["request"] => Ok(Self::Request),
            step if is_step_name(step) && rest.first() == Some(&"output") => {
                Ok(Self::Output { step: step.to_owned(), path: segments(&rest[1..])? })
            }
            _ => Err(NotAReference),
        }
    }
}

/// True for `[A-Za-z_][A-Za-z0-9_-]*`.
pub fn is_step_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn segments(words: &[&str]) -> Result<Vec<Segment>, NotAReference> {
    words.iter().map(|word| segment(word)).collect()
}

fn segment(word: &str) -> Result<Segment, NotAReference> {
    if word.is_empty() || word.chars().any(|c| c.is_whitespace() || "{}()[]|\"'`\\".contains(c)) {
        return Err(NotAReference);
    }
    if word.bytes().all(|b| b.is_ascii_digit())
        && (word == "0" || !word.starts_with('0'))
        && let Ok(index) = word.parse()
    {
        return Ok(Segment::Index(index));
    }
    Ok(Segment::Field(word.to_owned()))
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.head())?;
        self.path().iter().try_for_each(|segment| write!(f, ".{segment}"))
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => f.write_str(name),
            Self::Index(index) => write!(f, "{index}"),
        }
    }
}

#[cfg(test)]
mod tests;
