//! Kinds of field values.

use crate::fields::Object;
use crate::wording::quoted_list;

/// Required form of a field's value.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    /// Text that is used as written and is not empty: a reference in it is an error.
    Text,
    /// Text for readers and models, not empty. It may quote references.
    Prose,
    /// Text with `{{references}}`.
    Template,
    /// Text with `{{args.NAME}}`, an argument of a tool call.
    ArgsTemplate,
    /// A path below the app's directory, with `/` between its parts. A reference in it is an error.
    Path,
    /// A JSON Schema: the path of a file, or the schema itself as a mapping.
    Schema,
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds, both included.
    Integer(i64, i64),
    /// A number within bounds, both included.
    Number(f64, f64),
    /// `500ms`, `30s`, `5m`, `1h`, or a number of seconds.
    Duration,
    /// A duration that may have days, such as `7d`.
    LongDuration,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list with elements of this kind.
    List(&'static Self),
    /// A mapping from names to values of this kind.
    Entries(&'static Self),
    /// A mapping with these fields.
    Object(&'static Object),
    /// A value of one of these kinds; the first kind with its shape checks it.
    Either(&'static [Self]),
    /// The steps of a pipeline or group.
    Steps,
    /// The parameters under `input`, in short or long form.
    Inputs,
    /// A condition.
    Condition,
    /// Any value; a text is a template.
    Any,
    /// Any value, used as written: a text with a reference is an error.
    Literal,
    /// Any value, for the author's own use.
    Data,
}

impl FieldKind {
    /// Name of the kind in messages: `a whole number`.
    pub fn expected(&self) -> String {
        match self {
            Self::Text | Self::Prose | Self::Template | Self::ArgsTemplate => "text".into(),
            Self::Path => "a path".into(),
            Self::Schema => "a path, or a JSON Schema as a mapping".into(),
            Self::Bool => "`true` or `false`".into(),
            Self::Integer(..) => "a whole number".into(),
            Self::Number(..) => "a number".into(),
            Self::Duration => "a duration such as `30s`".into(),
            Self::LongDuration => "a duration such as `6h` or `7d`".into(),
            Self::Word(words) => quoted_list(words, "or"),
            Self::List(of) => format!("a list of {}", of.plural()),
            Self::Entries(_) | Self::Inputs => "a mapping".into(),
            Self::Object(object) => {
                format!("a mapping with {}", quoted_list(&object.names().collect::<Vec<_>>(), "and"))
            }
            Self::Either(kinds) => {
                let all: Vec<_> = kinds.iter().map(Self::expected).collect();
                all.join(", or ")
            }
            Self::Steps => "a list of steps".into(),
            Self::Condition => "a condition: a template, a comparison or a list of conditions".into(),
            Self::Any | Self::Literal | Self::Data => "a value".into(),
        }
    }

    fn plural(&self) -> &'static str {
        match self {
            Self::Text | Self::Prose => "texts",
            Self::Template => "templates",
            Self::Integer(..) => "whole numbers",
            Self::Object(_) => "mappings",
            _ => "values",
        }
    }
}
