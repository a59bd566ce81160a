//! Command lines (L-33): calls of a shell whose lines are the same up to whole words become one line with these words as arguments.
//!
//! The app splits a line into words by the grammar of the shell ([`World::words`]). A line that it cannot split, or that
//! differs in anything else, stays unchanged. It is learned only if it is the same in every run.

use std::collections::{BTreeMap, BTreeSet};

use etude_core::shell::{ARGUMENT, COMMAND, LineWord, TOOL, argument, arguments};
use serde_json::Value;

use crate::episode::is_refusal;
use crate::trace::{Event, Trace, TraceCall};
use crate::world::{Class, World};

/// Maximum number of words that become arguments: `"$10"` is not an argument in every shell.
const MAX_ARGUMENTS: usize = 9;
/// Argument that describes a call to people. It has no effect on the call.
const DESCRIPTION: &str = "description";
/// Characters besides letters and digits that every argument may have; `-` not at its start.
const PLAIN: [char; 2] = ['_', '-'];

/// Command line that the runs share, with `"$1"` and so on in the place of the words that differ.
struct Bound {
    template: String,
    /// Values of the arguments, by recorded line.
    arguments: BTreeMap<String, Vec<String>>,
}

/// Traces with their command lines replaced by one line with arguments, and without descriptions of calls; `None` if nothing
/// changes.
pub(crate) fn bound(traces: &[Trace], usable: &[&Trace], world: &dyn World) -> Option<Vec<Trace>> {
    let is_own = |call: &&TraceCall| call.tool == TOOL && call.is_good() && !is_refusal(&call.result);
    let lines: BTreeSet<&str> =
        usable.iter().flat_map(|trace| trace.calls()).filter(is_own).filter_map(line_of).collect();
    let is_read = world.tool(TOOL).is_some_and(|tool| tool.class == Class::Reads);
    let bound = if is_read || lines.len() < 2 { None } else { of_lines(&lines, world) };
    let has_description =
        |trace: &Trace| trace.calls().any(|call| call.tool == TOOL && call.arguments.get(DESCRIPTION).is_some());
    if bound.is_none() && !traces.iter().any(has_description) {
        return None;
    }
    Some(traces.iter().map(|trace| rewritten(trace, bound.as_ref())).collect())
}

fn line_of(call: &TraceCall) -> Option<&str> {
    call.arguments.get(COMMAND).and_then(Value::as_str).filter(|_| arguments(&call.arguments).is_empty())
}

fn rewritten(trace: &Trace, bound: Option<&Bound>) -> Trace {
    let mut trace = trace.clone();
    for event in &mut trace.events {
        let Event::Call(call) = event else { continue };
        if call.tool != TOOL {
            continue;
        }
        let words = line_of(call).and_then(|line| bound?.arguments.get(line)).cloned();
        if let Some(members) = call.arguments.as_object_mut() {
            members.remove(DESCRIPTION);
            if let (Some(words), Some(bound)) = (words, bound) {
                members.insert(COMMAND.to_owned(), bound.template.as_str().into());
                members.extend(words.into_iter().enumerate().map(|(n, word)| (argument(n + 1), word.into())));
            }
        }
    }
    trace
}

/// One line with arguments for all lines; `None` if they differ in anything but words that can become arguments.
fn of_lines(lines: &BTreeSet<&str>, world: &dyn World) -> Option<Bound> {
    let all: Vec<(&str, Vec<LineWord>)> =
        lines.iter().map(|line| Some((*line, world.words(line)?))).collect::<Option<_>>()?;
    let (first, words) = all.first()?;
    let gaps = |line: &str, words: &[LineWord]| -> Vec<String> {
        let ends = std::iter::once(0).chain(words.iter().map(|word| word.end));
        let starts = words.iter().map(|word| word.start).chain([line.len()]);
        ends.zip(starts).map(|(end, start)| line[end..start].to_owned()).collect()
    };
    let between = gaps(first, words);
    if all.iter().any(|(line, own)| own.len() != words.len() || gaps(line, own) != between) {
        return None;
    }
    let differs = |at: usize| all.iter().any(|(_, own)| own[at].text != words[at].text);
    let places: Vec<usize> = (0..words.len()).filter(|at| differs(*at)).collect();
    let takes_values = places.iter().all(|at| all.iter().all(|(_, own)| own[*at].takes_value));
    // The shell could compute such a word from an argument.
    let computes = |at: usize| !places.contains(&at) && first[words[at].start..words[at].end].contains(['$', '`']);
    if !takes_values || places.is_empty() || places.len() > MAX_ARGUMENTS || (0..words.len()).any(computes) {
        return None;
    }
    let mut template = between[0].clone();
    for (at, word) in words.iter().enumerate() {
        match places.iter().position(|place| *place == at) {
            Some(n) => template.push_str(&format!("\"${}\"", n + 1)),
            None => template.push_str(&first[word.start..word.end]),
        }
        template.push_str(&between[at + 1]);
    }
    let arguments = all.iter().map(|(line, own)| {
        let values = places.iter().map(|at| own[*at].text.clone()).collect();
        ((*line).to_owned(), values)
    });
    Some(Bound { template, arguments: arguments.collect() })
}

/// Position of an argument of a command line, counted from 1; `None` for other arguments.
pub(crate) fn place_of(tool: &str, path: &[String]) -> Option<usize> {
    match path {
        [name] if tool == TOOL => name.strip_prefix(ARGUMENT)?.parse().ok(),
        _ => None,
    }
}

/// Form of the words that runs had in one place of a line. A word of another form may mean something else there, such as an
/// option, an assignment or another directory, and leads to a deviation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    /// Characters besides letters and digits with which a word begins.
    first: BTreeSet<char>,
    /// Characters besides letters, digits, `.`, `_` and `-` that the words have.
    other: BTreeSet<char>,
}

impl Form {
    /// Form of these words; `None` if one of them cannot be an argument, such as an option.
    pub(crate) fn parse<'v>(words: impl Iterator<Item = &'v str> + Clone) -> Option<Self> {
        let special = |c: &char| !c.is_alphanumeric();
        let first =
            words.clone().filter_map(|word| word.chars().next()).filter(special).filter(|c| *c != '_').collect();
        let other = words.clone().flat_map(str::chars).filter(special);
        let other = other.filter(|c| *c != '.' && !PLAIN.contains(c)).collect();
        let form = Self { first, other };
        words.clone().all(|word| form.has(word)).then_some(form)
    }

    /// True if a word has the form. [`Form::pattern`] describes the same words.
    pub(crate) fn has(&self, word: &str) -> bool {
        let mut chars = word.chars();
        let begins =
            chars.next().is_some_and(|c| c != '-' && (c.is_alphanumeric() || c == '_' || self.first.contains(&c)));
        let is_known = |c: char| c.is_alphanumeric() || c == '.' || PLAIN.contains(&c) || self.other.contains(&c);
        begins && !self.first.contains(&'.') && word.chars().skip(1).all(is_known) && !word.contains("..")
    }

    /// Regular expression for `matches`. It refuses two dots in a row, which name another directory.
    pub(crate) fn pattern(&self) -> String {
        let class =
            |all: &BTreeSet<char>| -> String { all.iter().map(|c| format!("\\x{{{:x}}}", u32::from(*c))).collect() };
        format!(
            r"\A[\p{{Alphabetic}}\p{{N}}_{}](?:\.?[\p{{Alphabetic}}\p{{N}}_{}-])*\.?\z",
            class(&self.first),
            class(&self.other)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-33: a word of another form than in the runs is refused: it could be an option, an assignment or another directory.
    #[test]
    fn words_keep_their_form() {
        let form = Form::parse(["A-17", "v1.2", "x_y"].into_iter()).expect("words");
        for word in ["B-8", "v1.20.3", "_a", "Käse", "a."] {
            assert!(form.has(word), "{word}");
        }
        for word in [
            "", "-rf", "--", ".", "..", "a..b", ".x", "a b", "a=b", "a/b", "../x", "$(x)", "a;b", "@x", "+x", "a\n",
            "~", "*",
        ] {
            assert!(!form.has(word), "{word:?}");
        }
        let paths = Form::parse(["/srv/a b", "x/y"].into_iter()).expect("words");
        assert!(paths.has("/srv/c") && !paths.has("/srv/../etc") && !paths.has("$(x)") && !paths.has(" x"));
        assert_eq!(Form::parse(["-x"].into_iter()), None);
        assert_eq!(Form::parse(["a..b"].into_iter()), None);
        assert_eq!(form.pattern(), r"\A[\p{Alphabetic}\p{N}_](?:\.?[\p{Alphabetic}\p{N}_-])*\.?\z");
        assert_eq!(paths.pattern(), r"\A[\p{Alphabetic}\p{N}_\x{2f}](?:\.?[\p{Alphabetic}\p{N}_\x{20}\x{2f}-])*\.?\z");
    }
}
