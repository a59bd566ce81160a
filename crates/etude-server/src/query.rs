//! Query parameters.

use serde_json::json;
use url::form_urlencoded;

use crate::problem::{Code, Problem};

/// The query of a request; the route knows all of its names.
#[derive(Debug, Default)]

pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query. Only `known` names are allowed; all but `label` occur once.
    pub(crate) fn parse(text: &str, known: &[&str]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if !known.contains(&&*name) {
                return Err(unknown(&name, known));
            }
            if *name != *"label" && pairs.iter().any(|(before, _)| *before == name) {
                return Err(Problem::parameter(Code::InputInvalid, &name, format!("`{name}` occurs twice")));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub(crate) fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of `name` as a whole number from `least` to `most`, or `default` if the parameter is absent.
    pub(crate) fn number(&self, name: &str, least: u64, most: u64, default: u64) -> Result<u64, Problem> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| invalid(name, format!("`{name}` must be a number from {least} to {most}")))
    }

    /// The value of a parameter that is `true` or `false`; false if it is absent.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(invalid(name, format!("`{name}` must be `true` or `false`"))),
        }
    }
}

/// The problem of one invalid parameter.
pub(crate) fn invalid(name: &str, detail: impl Into<String>) -> Problem {
    Problem::parameter(Code::InputInvalid, name, detail)
}

/// Decodes an even number of lower-case hexadecimal digits. Upper-case digits are refused: another text would have the same
/// meaning.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    text.as_bytes().chunks(2).map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}

fn unknown(name: &str, known: &[&str]) -> Problem {
    let detail = format!("the route has no parameter `{name}`");
    let problem = Problem::new(Code::UnknownMember, detail.clone()).error(json!({"parameter": name, "detail": detail}));
    if known.is_empty() { problem.hint("it has no parameters") } else { hinted(problem, name, known) }
}

/// Adds the closest known name as a hint, or all names, if there are any.
pub(crate) fn hinted(problem: Problem, name: &str, known: &[&str]) -> Problem {
    match etude_spec::did_you_mean(name, known.iter().copied()) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None if known.is_empty() => problem,
        None => problem.hint(format!("known names: {}", known.join(", "))),
    }
}
