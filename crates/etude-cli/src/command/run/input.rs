//! Input on the command line: pairs, JSON, a file, stdin.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use etude_core::template::is_step_name;
use etude_spec::json_fault;

use crate::paths;
use crate::problem::Problem;

/// Maximum size of an input, in bytes: an endless pipe or device must not fill the memory.
const MAX_INPUT_BYTES: u64 = 256 << 20;

/// Hint about the forms of `--input`.
const EXAMPLE: &str = "give an object such as {\"name\": \"value\"}, `@FILE`, or `-` for stdin";

/// Parses the pairs of `-i KEY=VALUE`.
pub(crate) fn pairs(texts: &[String]) -> Result<Vec<(String, String)>, Problem> {
    pairs_of("-i", texts)
}

/// Parses the pairs of an option.
pub(crate) fn pairs_of(option: &str, texts: &[String]) -> Result<Vec<(String, String)>, Problem> {
    texts
        .iter()
        .map(|text| {
            let none = || Problem::usage(format!("`{option} {text}` has no `=`"));
            let (key, value) =
                text.split_once('=').ok_or_else(|| none().hint(format!("write it as {option} KEY=VALUE")))?;
            if key.is_empty() {
                let unnamed = Problem::usage(format!("`{option} {text}` has no name before `=`"));
                return Err(unnamed.hint(format!("write it as {option} KEY=VALUE")));
            }
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Text of `--input`, which must be JSON.
pub(crate) fn input_text(given: &str) -> Result<String, Problem> {
    let text = read_input(given)?;
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => Ok(text),
        Err(_) if text.trim().is_empty() => Err(empty(given)),
        Err(error) => Err(not_json(given, &text, &error)),
    }
}

/// Problem of an input without text.
fn empty(given: &str) -> Problem {
    let (place, way_out) = match given.strip_prefix('@') {
        Some(path) => (format!("the input file `{path}`"), "write an object into it, such as {\"name\": \"value\"}"),
        None if given == "-" => {
            ("the input on stdin".to_owned(), "pipe an object into it, such as {\"name\": \"value\"}")
        }
        None => ("`--input`".to_owned(), EXAMPLE),
    };
    Problem::usage(format!("{place} is empty")).hint(way_out)
}

/// Problem of a text that is not JSON. The hint guesses the intention from the beginning of the text.
fn not_json(given: &str, text: &str, error: &serde_json::Error) -> Problem {
    let is_document = given == "-" || given.starts_with('@') || given.trim_start().starts_with(['{', '[', '"']);
    if is_document {
        let is_bare = given.trim_start().starts_with('{') && error.to_string().starts_with("key must be a string");
        let hint = if is_bare { "write names and texts in double quotes: {\"name\": \"value\"}" } else { EXAMPLE };
        return Problem::usage(format!("`--input` is not JSON: {}", json_fault(text, error))).hint(hint);
    }
    let problem = Problem::usage(format!("`--input {given}` is not JSON"));
    match given.split_once('=') {
        Some((key, _)) if is_step_name(key) => problem.hint(format!("did you mean `-i {given}`?")),
        _ if Path::new(given).is_file() => problem.hint(format!("did you mean `--input @{given}`?")),
        _ => problem.hint(EXAMPLE),
    }
}

/// Text of `--input`: JSON, `@FILE`, or `-` for stdin. A byte order mark is dropped.
pub(crate) fn read_input(given: &str) -> Result<String, Problem> {
    let text = if given == "-" {
        limited(std::io::stdin().lock())
            .map_err(|e| Problem::usage(format!("the input on stdin cannot be read: {e}")))?
    } else if let Some(path) = given.strip_prefix('@') {
        File::open(path).and_then(limited).map_err(|e| unreadable(path, &e))?
    } else {
        given.to_owned()
    };
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// All text of `source`, up to the limit.
fn limited(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    source.take(MAX_INPUT_BYTES + 1).read_to_string(&mut text)?;
    match u64::try_from(text.len()).is_ok_and(|size| size <= MAX_INPUT_BYTES) {
        true => Ok(text),
        false => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 256 MiB")),
    }
}

/// Problem for a file of `--input @FILE` that cannot be read.
fn unreadable(path: &str, error: &std::io::Error) -> Problem {
    use std::io::ErrorKind;
    let problem = |why: &str| Problem::usage(format!("the input file `{path}` cannot be read: {why}"));
    match error.kind() {
        ErrorKind::NotFound => paths::absent(problem(&error.to_string()), Path::new(path)),
        ErrorKind::InvalidData => problem("it is not UTF-8").hint("save the file as UTF-8"),
        ErrorKind::FileTooLarge => problem(&error.to_string()).hint("give the path of large data instead of the data"),
        ErrorKind::IsADirectory => problem("it is a directory").hint("name a file with JSON: --input @FILE"),
        _ => problem(&error.to_string()).hint("name a file with JSON that you can read: --input @FILE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(given: &str) -> (String, String) {
        let problem = input_text(given).expect_err("it is not JSON");
        (problem.failures[0].message.clone(), problem.hints.join("; "))
    }

    /// cli: `etude skill run` has `--arg`, and no `-i`.
    #[test]
    fn a_pair_without_a_value_names_its_option() {
        let problem = pairs_of("--arg", &["text".to_owned()]).expect_err("it has no `=`");
        let message = &problem.failures[0].message;
        assert_eq!((message.as_str(), &*problem.hints[0]), ("`--arg text` has no `=`", "write it as --arg KEY=VALUE"));
        let problem = pairs(&["=x".to_owned()]).expect_err("it has no name");
        assert_eq!(problem.failures[0].message, "`-i =x` has no name before `=`");
    }

    /// cli: an input without text is named as empty, and an endless one as too large.
    #[test]
    fn empty_and_endless_inputs_are_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("x.json").display().to_string();
        std::fs::write(&file, "\n").expect("written");
        let expected =
            (format!("the input file `{file}` is empty"), "write an object into it, such as {\"name\": \"value\"}");
        let (message, hint) = refused(&format!("@{file}"));
        assert_eq!((message, hint.as_str()), expected);
        assert_eq!(refused("").0, "`--input` is empty");
        let endless = limited(io::repeat(b' ')).expect_err("it does not end");
        assert_eq!(
            unreadable("x", &endless).failures[0].message,
            "the input file `x` cannot be read: it has more than 256 MiB"
        );
    }

    /// cli: the error about an input that is not JSON names the probable intention.
    #[test]
    fn what_was_meant_is_named() {
        let expected = ("`--input name=Ada` is not JSON".to_owned(), "did you mean `-i name=Ada`?".to_owned());
        assert_eq!(refused("name=Ada"), expected);
        let (message, hint) = refused("{name: a}");
        assert!(
            message.starts_with("`--input` is not JSON: unexpected `name` where a name in double quotes"),
            "{message}"
        );
        assert_eq!(hint, "write names and texts in double quotes: {\"name\": \"value\"}");
        assert!(refused("{\"a\": }").1.starts_with("give an object"));
        assert!(refused("a b=1").1.starts_with("give an object"));
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("x.json");
        std::fs::write(&file, "{}").expect("written");
        assert_eq!(refused(&file.display().to_string()).1, format!("did you mean `--input @{}`?", file.display()));
    }

    /// cli: a file that cannot be read is reported with its reason and a way out.
    #[test]
    fn an_unreadable_input_file_has_a_way_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("latin.json");
        std::fs::write(&file, b"\"caf\xe9\"").expect("written");
        let (message, hint) = refused(&format!("@{}", file.display()));
        assert!(message.ends_with("cannot be read: it is not UTF-8"), "{message}");
        assert_eq!(hint, "save the file as UTF-8");
        assert_eq!(refused(&format!("@{}", dir.path().display())).1, "name a file with JSON: --input @FILE");
        let near = dir.path().join("latin.jso").display().to_string();
        assert_eq!(refused(&format!("@{near}")).1, format!("did you mean `{}`?", file.display()));
    }

    /// cli: a byte order mark before the input is dropped.
    #[test]
    fn a_byte_order_mark_is_left_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("x.json");
        std::fs::write(&file, "\u{feff}{\"a\": 1}").expect("written");
        assert_eq!(input_text(&format!("@{}", file.display())).expect("it is JSON"), "{\"a\": 1}");
    }
}
