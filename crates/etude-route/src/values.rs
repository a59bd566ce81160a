//! What a request says about the parameters of a pipeline, taken by code.
//!
//! A request is cut into [mentions](Mention): numbers, dates, paths, quoted texts, addresses. A mention is given to a
//! parameter only where type, schema, unit and the words around it leave exactly one way. What is left open is answered by
//! a model, whose values count where the request shows them, or it is reported: never is it dropped for a default.
//!
//! Pure: text in, text out. The day is not known here, so that a date such as "yesterday" has no value.

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

/// The type of a parameter's values, from the view of a request.
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
    /// Lists and objects, and whatever has several types.
    Other,
}

/// A parameter, as a pipeline declares it.
pub struct Parameter<'a> {
    /// The key under `input`, whose words mean the parameter in a request.
    pub name: &'a str,
    /// What the declaration says about it; may be empty.
    pub description: &'a str,
    /// The type of its values.
    pub kind: Type,
    /// The only values that it takes, as text; empty if there is no such list.
    pub choices: Vec<String>,
    /// `format` of its JSON Schema.
    pub format: Option<&'a str>,
    /// Its default, as JSON text.
    pub default: Option<String>,
    /// It must be given.
    pub is_required: bool,
    /// It was given in another way: the request is not asked for it.
    pub is_given: bool,
    /// Whether the declaration takes a JSON value.
    pub accepts: &'a dyn Fn(&str) -> bool,
}

/// What a pipeline says of itself: the words that mean its subject.
#[derive(Debug, Clone, Copy, Default)]
pub struct About<'a> {
    /// The pipeline's name, whose words mean its subject.
    pub name: &'a str,
    /// The pipeline's description; may be empty.
    pub description: &'a str,
    /// Its example requests, whose words mean its subject.
    pub triggers: &'a [String],
}

/// A value that stands in a request.
#[derive(Debug, Clone, PartialEq)]
struct Mention {
    /// Where, in bytes.
    span: Range<usize>,
    what: What,
    /// The unit that is said with it.
    unit: Option<&'static str>,
    /// The request says that it is not meant: "not 5".
    is_denied: bool,
    bound: Bound,
    /// Which piece of the request it is.
    at: usize,
}

/// What stands in a request.
#[derive(Debug, Clone, PartialEq)]
enum What {
    /// A number with all its readings: one where it is clear.
    Number(Vec<String>),
    /// From a number to another.
    Range(String, String),
    /// A place in an order: third.
    Ordinal,
    /// A day in ISO 8601; `None` if it depends on today, lacks something or does not exist.
    Date(Option<String>),
    /// From a day to another.
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

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// It is the value.
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
