//! Arguments of a command: the places where its text reads them, and the parameters that stand for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::{Match, Regex};

/// `$ARGUMENTS`, `$ARGUMENTS[1]`, `$1`. A larger number, or one with decimals, is a price.
static ARGUMENTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?<argument>\$ARGUMENTS\[\d+\]|\$ARGUMENTS\b|\$\{ARGUMENTS\}|\$\d\b)(?<more>[.,]\d)?").ok()
});

/// `[number] <priority>`: a hint that names each argument.
static HINT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?:\s*(?:\[[A-Za-z][\w -]*\]|<[A-Za-z][\w -]*>))+\s*$").ok());

/// Parameter of a command that reads all of its arguments at once.
pub(super) const WHOLE: &str = "arguments";

/// Maximum number of different arguments of a command.
const MAX_ARGUMENTS: usize = 20;

/// The references to arguments in a text.
pub(super) fn references(text: &str) -> impl Iterator<Item = Match<'_>> {
    let found = ARGUMENTS.iter().flat_map(|pattern| pattern.captures_iter(text));
    found.filter(|one| one.name("more").is_none()).filter_map(|one| one.name("argument"))
}

/// Names in a hint, such as `[number] [priority]`; empty if the hint has another form.
pub(super) fn named(hint: &str) -> Vec<String> {
    match HINT.as_ref().is_some_and(|pattern| pattern.is_match(hint)) {
        true => {
            hint.split(['[', ']', '<', '>']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        }
        false => Vec::new(),
    }
}

/// References to arguments of a command, with their parameters.
pub(super) struct Arguments<'t> {
    parameters: BTreeMap<&'t str, String>,
}

impl<'t> Arguments<'t> {
    /// Arguments for the references in a text, with the names from its hint.
    ///
    /// # Errors
    /// Some arguments are a part of others, or there are too many.
    pub(super) fn of(found: &[(&'t str, usize)], hints: &[String]) -> Result<Self, String> {
        let whole = |text: &&str| number(text).is_none();
        let texts: Vec<&str> = found.iter().map(|(text, _)| *text).collect();
        if texts.len() == 1 || texts.iter().all(whole) {
            return Ok(Self { parameters: texts.into_iter().map(|text| (text, WHOLE.to_owned())).collect() });
        }
        let is_short = |text: &&str| number(text).is_some() && !text.contains('[');
        let is_other = |text: &&&str| whole(text) != whole(&texts[0]) || is_short(text) != is_short(&texts[0]);
        if let Some(other) = texts.iter().find(is_other) {
            return Err(format!("its arguments `{}` and `{other}` overlap", texts[0]));
        }
        if texts.len() > MAX_ARGUMENTS {
            return Err(format!("it has more than {MAX_ARGUMENTS} arguments"));
        }
        // `$1` is the first argument, unless there is `$0`.
        let base = u32::from(is_short(&texts[0]) && !texts.contains(&"$0"));
        let places: Vec<(&str, usize)> = texts
            .iter()
            .map(|text| (*text, usize::try_from(number(text).unwrap_or(base) - base).unwrap_or(usize::MAX)))
            .collect();
        let names = unique(hints);
        let is_named = places.iter().all(|(_, place)| *place < names.len());
        let name = |place: usize| match names.get(place) {
            Some(name) if is_named => name.clone(),
            _ => format!("argument_{}", place.saturating_add(1)),
        };
        Ok(Self { parameters: places.into_iter().map(|(text, place)| (text, name(place))).collect() })
    }

    /// Parameters, each once, in the order of their references.
    pub(super) fn parameters(&self) -> Vec<&str> {
        let mut found: Vec<&str> = self.parameters.values().map(String::as_str).collect();
        found.dedup();
        found
    }

    /// Text with words in the place of references, which name the arguments in the request.
    pub(super) fn without(&self, text: &str) -> String {
        let (mut shown, mut from) = (String::new(), 0);
        for found in references(text) {
            shown.push_str(&text[from..found.start()]);
            match self.parameters.get(found.as_str()).filter(|name| *name != WHOLE) {
                Some(name) => shown.push_str(&format!("(the argument `{name}` in the request)")),
                None => shown.push_str("(the arguments in the request)"),
            }
            from = found.end();
        }
        shown + &text[from..]
    }
}

/// Number of a reference to one argument; `None` for a reference to all.
fn number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("$ARGUMENTS[").and_then(|text| text.strip_suffix(']'));
    digits
        .or_else(|| text.strip_prefix('$'))
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|digits| digits.parse().unwrap_or(u32::MAX))
}

/// Hints as names of parameters; empty if two are the same.
fn unique(hints: &[String]) -> Vec<String> {
    let name = |hint: &String| {
        let name = hint.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        name.trim_matches('_').to_owned()
    };
    let names: Vec<String> = hints.iter().map(name).collect();
    let is_name = |name: &String| name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.len() <= 60;
    let different: BTreeSet<&String> = names.iter().collect();
    match different.len() == names.len() && names.iter().all(is_name) {
        true => names,
        false => Vec::new(),
    }
}
