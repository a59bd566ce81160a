//! Prompt bodies of stages (`b-stages` §3): text with `{{ctx.…}}` and `{{stage.…}}`, and nothing else.

use std::ops::Range;

use serde_json::Value;

use crate::template::Segment;

/// A body: text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Body {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Placeholder(Placeholder),
}

/// A reference between double braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// The namespace (B-T2).
    pub space: Space,
    /// Path into the namespace; at least one segment, and the first is a name.
    pub path: Vec<Segment>,
    /// Position in the body, in bytes, braces included.
    pub range: Range<usize>,
}

/// A namespace of placeholders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// The stage's context.
    Ctx,
    /// The stage's own frontmatter.
    Stage,
}

/// Text in double braces that is not a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Position in the body, in bytes, braces included.
    pub range: Range<usize>,
    /// The text between the braces, without surrounding blanks.
    pub text: String,
}

impl Placeholder {
    /// The first name after the namespace.
    pub fn name(&self) -> &str {
        match self.path.first() {
            Some(Segment::Field(name)) => name,
            _ => "",
        }
    }
}

impl Placeholder {
    /// The path as it is written, without blanks.
    fn text(&self) -> String {
        let space = match self.space {
            Space::Ctx => "ctx",
            Space::Stage => "stage",
        };
        self.path.iter().fold(space.to_owned(), |path, segment| match segment {
            Segment::Field(name) => format!("{path}.{name}"),
            Segment::Index(index) => format!("{path}[{index}]"),
        })
    }
}

impl Body {
    /// Parses `text` by the grammar of B-T11. Malformed placeholders are kept as text and returned separately; `{{`
    /// without `}}` is text.
    pub fn parse(text: &str) -> (Self, Vec<Malformed>) {
        let mut parts = Vec::new();
        let mut malformed = Vec::new();
        let mut literal = String::new();
        let mut at = 0;
        while let Some(open) = text[at..].find("{{").map(|found| at + found) {
            let Some(close) = text[open + 2..].find("}}").map(|found| open + 2 + found) else { break };
            literal.push_str(&text[at..open]);
            let (inner, range) = (text[open + 2..close].trim(), open..close + 2);
            match path(inner) {
                Some((space, path)) => {
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Placeholder(Placeholder { space, path, range }));
                }
                None => {
                    literal.push_str(&text[range.clone()]);
                    malformed.push(Malformed { range, text: inner.to_owned() });
                }
            }
            at = close + 2;
        }
        literal.push_str(&text[at..]);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        (Self { parts }, malformed)
    }

    /// The placeholders, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Placeholder(placeholder) => Some(placeholder),
        })
    }

    /// The placeholders that refer to a predecessor's result although there are only `count` predecessors, each once
    /// (B-T10).
    pub fn beyond(&self, count: usize) -> Vec<String> {
        let mut paths = Vec::new();
        for placeholder in self.placeholders().filter(|placeholder| placeholder.space == Space::Ctx) {
            if let ("upstream", Some(Segment::Index(index))) = (placeholder.name(), placeholder.path.get(1))
                && *index >= count
                && !paths.contains(&placeholder.text())
            {
                paths.push(placeholder.text());
            }
        }
        paths
    }

    /// The names below `ctx`, in the order of their first use, each once (B-T12).
    pub fn ctx_names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for placeholder in self.placeholders().filter(|placeholder| placeholder.space == Space::Ctx) {
            if !names.contains(&placeholder.name()) {
                names.push(placeholder.name());
            }
        }
        names
    }

    /// The body with every placeholder replaced by its value (B-T8). Inserted values are not scanned again (B-T9), and
    /// missing values become empty (B-T10).
    pub fn render(&self, ctx: &Value, stage: &Value) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Placeholder(placeholder) => {
                    let root = match placeholder.space {
                        Space::Ctx => ctx,
                        Space::Stage => stage,
                    };
                    if let Some(value) = follow(root, &placeholder.path) {
                        push(&mut out, value);
                    }
                }
            }
        }
        out
    }
}

/// The value at a path; `None` if there is none.
pub fn follow<'v>(root: &'v Value, path: &[Segment]) -> Option<&'v Value> {
    path.iter().try_fold(root, |value, segment| match segment {
        Segment::Field(name) => value.get(name),
        Segment::Index(index) => value.get(index),
    })
}

/// Appends a value: strings as they are, nothing for `null`, everything else as compact JSON.
fn push(out: &mut String, value: &Value) {
    match value {
        Value::Null => {}
        Value::String(text) => out.push_str(text),
        other => out.push_str(&other.to_string()),
    }
}

fn path(text: &str) -> Option<(Space, Vec<Segment>)> {
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let space = match &text[..end] {
        "ctx" => Space::Ctx,
        "stage" => Space::Stage,
        _ => return None,
    };
    let segments = segments(&text[end..])?;
    matches!(segments.first(), Some(Segment::Field(_))).then_some((space, segments))
}

/// Parses the segments of `.name[0].other`; `None` if the text has another form.
pub fn segments(mut text: &str) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    while !text.is_empty() {
        if let Some(rest) = text.strip_prefix('.') {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).unwrap_or(rest.len());
            let name = &rest[..end];
            if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                return None;
            }
            segments.push(Segment::Field(name.to_owned()));
            text = &rest[end..];
        } else {
            let (digits, rest) = text.strip_prefix('[')?.split_once(']')?;
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            segments.push(Segment::Index(digits.parse().ok()?));
            text = rest;
        }
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(text: &str) -> String {
        let ctx = json!({"task": "T1", "count": 12, "flag": true, "meta": {"k": [1, 2]}, "nul": null,
            "brace": "{{ctx.task}}", "upstream": [{"output": {"digest": "D"}}]});
        Body::parse(text).0.render(&ctx, &json!({"id": "outline", "name": "Outline"}))
    }

    /// B-T1, B-T3, B-T8, B-T10: values are formatted by their kind, and missing values become empty.
    #[test]
    fn values_are_formatted_by_their_kind() {
        assert_eq!(
            render("({{ctx.missing}}) {{ctx.count}} {{ ctx.flag }} {{ctx.meta}} {{ctx.nul}}."),
            r#"() 12 true {"k":[1,2]} ."#
        );
        assert_eq!(render("{{ctx.upstream[0].output.digest}}{{ctx.upstream[3].output}}|{{stage.name}}"), "D|Outline");
        assert_eq!(render("{{ctx.meta.k[1]}}"), "2");
    }

    /// B-T10: references to missing results are reported, each once; other values may be missing.
    #[test]
    fn results_that_are_not_there_are_named() {
        let (body, _) =
            Body::parse("{{ctx.upstream[1].output.x}}{{ ctx.upstream[1].output.x }}{{ctx.upstream[0].y}}{{ctx.a[7]}}");
        assert_eq!(body.beyond(0), ["ctx.upstream[1].output.x", "ctx.upstream[0].y"]);
        assert_eq!(body.beyond(1), ["ctx.upstream[1].output.x"]);
        assert!(body.beyond(2).is_empty());
    }

    /// B-T9: inserted values are not scanned again.
    #[test]
    fn substitution_is_not_recursive() {
        assert_eq!(render("{{ctx.brace}}{{ctx.task}}"), "{{ctx.task}}T1");
    }

    /// B-T1, B-0.1: other syntax and unclosed braces are text.
    #[test]
    fn other_syntax_is_literal() {
        for text in ["${ctx.task} $ctx {x} }} { {ctx.task}", "{{ctx.task", "{{", "a\n\n  b \n", "\\{{"] {
            assert_eq!(render(text), text);
        }
    }

    /// B-T6, B-T11: logic, filters and other forms are malformed.
    #[test]
    fn what_is_no_path_is_malformed() {
        for text in [
            "{{#if ctx.task}}", "{{/if}}", "{{ctx.task | upper}}", "{{ctx}}", "{{ctx[0]}}", "{{task}}", "{{env.X}}",
            "{{ctx.}}", "{{}}", "{{ctx.a b}}", "{{ctx.upstream[-1]}}", "{{ctx.a[x]}}", "{{ctx.9a}}",
        ] {
            assert_eq!(Body::parse(text).1.len(), 1, "{text}");
        }
    }

    /// B-T12: distinct names are listed in the order of their first use.
    #[test]
    fn names_are_listed_once_in_order() {
        let (body, _) = Body::parse("{{ctx.b}}{{ctx.a.x}}{{ctx.b}}{{stage.id}}{{env.Z}}");
        assert_eq!(body.ctx_names(), ["b", "a"]);
    }
}
