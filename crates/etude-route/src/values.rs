//! Parameters of a pipeline that code reads from a request.
//!
//! A request is cut into mentions: numbers, dates, paths, quoted texts, addresses. A mention is given to a
//! parameter only if type, schema, unit and the words around it leave exactly one way. A model answers open questions, and
//! its values count if the request shows them. Otherwise the parameter is reported; a value in the request is never dropped
//! for a default.
//!
//! Pure: text in, text out. The current day is unknown here, so that a date such as "yesterday" has no value.

mod assign;
mod context;
mod dates;
mod grade;
mod grounding;
mod lexicon;
mod numerals;
pub mod pairs;
mod phrase;
mod pieces;
mod slot;
mod spelled;

use std::ops::Range;

pub use assign::{Reading, Taken, Unclear};
pub use grounding::{ModelValue, Question};

/// Type of a parameter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Numbers without a fraction.
    Integer,
    /// Numbers, with and without a fraction.
    Number,
    /// `true` and `false`.
    Boolean,
    /// Strings of any form.
    Text,
    /// Lists of numbers.
    Numbers,
    /// Lists and objects, and parameters with several types.
    Other,
}

/// Parameter as a pipeline declares it.
pub struct Parameter<'a> {
    /// Key under `input`, whose words mean the parameter in a request.
    pub name: &'a str,
    /// Description in the declaration; may be empty.
    pub description: &'a str,
    /// Type of its values.
    pub kind: Type,
    /// The only permitted values, as text; empty if there is no such list.
    pub choices: Vec<String>,
    /// `format` of its JSON Schema.
    pub format: Option<&'a str>,
    /// Default, as JSON text.
    pub default: Option<String>,
    /// True if it must be given.
    pub is_required: bool,
    /// True if it was given in another way, so that the request is not read for it.
    pub is_given: bool,
    /// Returns true if the declaration accepts a JSON value.
    pub accepts: &'a dyn Fn(&str) -> bool,
}

/// Names and texts of a pipeline, whose words mean its subject.
#[derive(Debug, Clone, Copy, Default)]
pub struct About<'a> {
    /// The pipeline's name, whose words mean its subject.
    pub name: &'a str,
    /// The pipeline's description; may be empty.
    pub description: &'a str,
    /// Example requests, whose words mean its subject.
    pub triggers: &'a [String],
}

/// Value in a request.
#[derive(Debug, Clone, PartialEq)]
struct Mention {
    /// Byte range in the request.
    span: Range<usize>,
    what: What,
    /// Unit next to the value.
    unit: Option<&'static str>,
    /// True if the request excludes the value: "not 5".
    is_denied: bool,
    bound: Bound,
    /// Index of its piece of the request.
    at: usize,
}

/// Kind of a mention, with its value.
#[derive(Debug, Clone, PartialEq)]
enum What {
    /// A number with all its readings: one if it is clear.
    Number(Vec<String>),
    /// A range of numbers.
    Range(String, String),
    /// An ordinal: third.
    Ordinal,
    /// A day in ISO 8601; `None` if it depends on today, lacks something or does not exist.
    Date(Option<String>),
    /// A range of days.
    Dates(String, String),
    /// A moment in RFC 3339.
    Moment(String),
    /// A path of a file or directory, as it stands in the request.
    Path(String),
    /// Text between quotation marks.
    Quoted(String),
    /// An address of a page.
    Link(String),
    /// An address of mail.
    Address(String),
    /// A version, an id, a host.
    Other,
}

/// Comparison of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// The value itself.
    Exact,
    /// "at most 5".
    AtMost,
    /// "at least 5".
    AtLeast,
    /// "more than 5".
    Over,
    /// "less than 5".
    Under,
}
