//! Substitution of words in a command line by arguments (L-33).
//!
//! An argument may replace a word only if it stays that word for any value. The word must be a whole argument of a simple
//! command, whose program neither runs nor evaluates its arguments. Everything else is refused.

use etude_core::shell::{LineWord, with_arguments, word};

use super::programs;
use super::shell::{self, Command, Line};

/// Maximum number of arguments: `"$10"` is not an argument in every shell.
const MAX_ARGUMENTS: usize = 9;

/// The words of a line of simple commands with literal words, in order; `None` for any other line.
pub fn words(line: &str) -> Option<Vec<LineWord>> {
    let Line::Literal(commands) = shell::read(line) else { return None };
    let mut spans = shell::spans(line)?.into_iter();
    let is_plain = is_plain(&commands);
    let mut found = Vec::new();
    for command in &commands {
        let assigned = command.assignments.iter().map(|word| (word, false));
        let own = command.words.iter().enumerate().map(|(at, word)| (word, is_plain && takes_value(command, at)));
        for (word, takes_value) in assigned.chain(own) {
            let (start, end) = spans.next()?;
            let text = word.text.clone()?;
            let has_quotes = line[start..end].contains(['\'', '"', '\\']);
            (has_quotes || line[start..end] == text).then_some(())?;
            found.push(LineWord { start, end, text, takes_value });
        }
    }
    spans.next().is_none().then_some(found)
}

/// The line with all words in the same spelling, so that lines that run the same are equal. `None` for a line with other than
/// literal words.
pub fn canonical(line: &str) -> Option<String> {
    let (mut out, mut done) = (String::new(), 0);
    for one in words(line)? {
        out.push_str(&line[done..one.start]);
        out.push_str(&word(&one.text));
        done = one.end;
    }
    Some(out + line[done..].trim_end())
}

/// A line that runs the same as `line` with these positional parameters, for matching, questions and comparison. It is not
/// what is executed.
///
/// # Errors
/// The line does not take these arguments. The error gives the reason.
pub fn bind(line: &str, arguments: &[String]) -> Result<String, String> {
    if arguments.is_empty() || arguments.len() > MAX_ARGUMENTS {
        return Err(format!("a command line takes 1 to {MAX_ARGUMENTS} arguments"));
    }
    let places: Vec<String> = (1..=arguments.len()).map(|n| format!("\"${n}\"")).collect();
    let bare = places.iter().fold(line.to_owned(), |line, place| line.replace(place, "x"));
    if bare.contains(['$', '`']) {
        return Err("a command line with arguments must not compute anything else".to_owned());
    }
    // An ordinary word in each place shows where words begin and end.
    let unreadable = || "the command line must have only simple commands with literal words".to_owned();
    let names: Vec<String> = (1..=arguments.len()).map(|n| format!("argument{n}")).collect();
    let named = words(&with_arguments(line, &names)).ok_or_else(unreadable)?;
    let bound = with_arguments(line, arguments);
    let read = words(&bound).ok_or_else(unreadable)?;
    let spans = shell::spans(line).filter(|spans| spans.len() == named.len() && read.len() == named.len());
    let spans = spans.ok_or_else(unreadable)?;
    let mut used = vec![false; arguments.len()];
    for (at, (start, end)) in spans.into_iter().enumerate() {
        let raw = &line[start..end];
        match places.iter().position(|place| place == raw) {
            Some(n) if read[at].takes_value && named[at].takes_value && read[at].text == arguments[n] => used[n] = true,
            Some(_) => return Err(format!("`{raw}` is not a plain argument of a program there")),
            None if raw.contains('$') => return Err(format!("`{raw}` must be a separate word, such as `\"$1\"`")),
            None if read[at].text != named[at].text => return Err(unreadable()),
            None => {}
        }
    }
    // A place that is not a word is in a comment.
    let count: usize = places.iter().map(|place| line.matches(place.as_str()).count()).sum();
    let is_word = |text: &&str| places.iter().any(|place| place == text);
    let words = shell::spans(line).unwrap_or_default();
    let count_of_words = words.iter().map(|(start, end)| &line[*start..*end]).filter(is_word).count();
    match used.iter().all(|used| *used) && count == count_of_words {
        true => Ok(bound),
        false => Err("the command line must contain each argument as `\"$1\"`, `\"$2\"` and so on".to_owned()),
    }
}

/// True if no command of the line runs the output of another one, or changes the meaning of a later one.
fn is_plain(commands: &[Command]) -> bool {
    let is_harmless = |command: &Command| {
        let Some(program) = command.words.first() else { return true };
        let Some(program) = program.text.as_deref() else { return false };
        let name = programs::name(program);
        let is_script = programs::runs_script(&name, &command.words);
        let is_alone = commands.len() == 1 || !is_script && !programs::is_interpreter(&name);
        let runs_text = programs::runs_text(&name) && !is_script;
        !programs::changes_shell(program) && !runs_text && name != "shift" && is_alone
    };
    commands.iter().all(is_harmless)
}

/// True if the word is an argument that its program takes as text, for any value.
fn takes_value(command: &Command, at: usize) -> bool {
    let text = |at: usize| command.words.get(at).and_then(|word| word.text.as_deref()).unwrap_or_default();
    let name = programs::name(text(0));
    let mut unknown = command.words.clone();
    if at == 0 || text(at).is_empty() || text(at).starts_with('-') || programs::runs_arguments(&name) {
        return false;
    }
    unknown[at] = shell::Word::default();
    // The program of an interpreter, the script of a shell, and all of their options must be literal.
    let has_program = at > 1 && (1..at).all(|before| !text(before).starts_with('-'));
    !programs::evaluates(&name, &unknown)
        && !programs::splits_text(&name, &unknown)
        && (has_program || !programs::is_interpreter(&name) && !programs::runs_text(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(line: &str) -> Vec<String> {
        let all = words(line).unwrap_or_default();
        all.into_iter().filter(|word| word.takes_value).map(|word| word.text).collect()
    }

    /// L-33: a value replaces a whole argument of a simple command, and nothing else.
    #[test]
    fn only_plain_arguments_take_values() {
        assert_eq!(values("git tag v1 -m 'a b'"), ["tag", "v1", "a b"]);
        assert_eq!(values("cd app && make \"release notes\" -j4 | tee log"), ["app", "release notes", "log"]);
        assert_eq!(values("python3 run.py A-17"), ["A-17"]);
        assert_eq!(values("sh steps/run.sh A-17 now"), ["A-17", "now"]);
        let none = [
            "X=1 env make all",
            "sh -c echo",
            "bash -x run.sh a",
            "sh",
            "sh run.sh a | cat",
            "sh +x run.sh",
            "eval echo",
            "ssh host ls",
            "xargs rm",
            "find . -name x",
            "sudo make all",
            "python3 -c print",
            "awk pattern file",
            "echo a | sh",
            "echo a | python3 -",
            "set -- a; echo a",
            "printf a",
            "test a -eq 1",
            "make > file",
            "make $X",
            "make `x`",
            "make a &",
            "make \"a$(id)\"",
            "cat <<E\na\nE",
            "for x in a; do make x; done",
            "if true; then make a; fi",
            "f() { make a; }",
            "read a",
            "let a",
            "export a",
            "(make a)",
            "! make a",
            "[[ -e a ]]",
            "shift a",
        ];
        for line in none {
            let found = values(line);
            let is_operand = |text: &String| line == "awk pattern file" && text == "file";
            assert!(found.iter().all(is_operand), "{line}: {found:?}");
        }
        assert_eq!(values("X=1 make all"), ["all"]);
    }

    /// L-33: a hostile value is one word of the line, or the line is refused.
    #[test]
    fn values_stay_words() {
        let hostile = [
            "; touch x", "$(touch x)", "`touch x`", "a'b", "'; touch x; '", "a\nb", "\"; touch x; \"", "$1", "\"$1\"",
            "{a,b}", "*", "~", "a\\", "#", "!", "&", "|", ">x", "é", "\u{202e}", "a=b",
        ];
        for value in hostile {
            let bound = bind("git tag \"$1\" -m done", &[value.to_owned()]).expect(value);
            let read: Vec<String> = words(&bound).expect(value).into_iter().map(|word| word.text).collect();
            assert_eq!(read, ["git", "tag", value, "-m", "done"]);
        }
        for value in ["", "-rf", "--", "a\0b", "\r", "\u{1b}[2J", "é'"] {
            assert!(bind("git tag \"$1\"", &[value.to_owned()]).is_err(), "{value:?}");
        }
    }

    /// L-33: quoting and position are respected: an argument is the whole word.
    #[test]
    fn places_are_whole_words() {
        let bind = |line: &str| bind(line, &["a b".to_owned()]);
        assert_eq!(bind("make \"$1\"").as_deref(), Ok("make 'a b'"));
        let wrong = [
            "make $1", "make \"$1\"x", "make x\"$1\"", "make '\"$1\"'", "make --tag=\"$1\"", "X=\"$1\" make",
            "\"$1\" all", "make \"${1}\"", "make \"$1\" $HOME", "make # \"$1\"", "make \"$2\"", "make", "sh -c \"$1\"",
            "make > \"$1\"", "cat <<\"$1\"\nE", "make \"\"$1\"\"", "echo $((\"$1\"))", "make \"$1\" \"$@\"",
            "make \\\"$1\"", "make \"a \"$1\" b\"",
        ];
        for line in wrong {
            assert!(bind(line).is_err(), "{line}: {:?}", bind(line));
        }
        assert!(super::bind("make \"$1\" \"$2\"", &["a".to_owned()]).is_err());
        assert_eq!(super::bind("make \"$1\" \"$1\"", &["a".to_owned()]).as_deref(), Ok("make a a"));
    }

    #[test]
    fn lines_that_run_the_same_are_equal() {
        assert_eq!(canonical("git tag \"v1\"  'a b' "), Some("git tag v1  'a b'".to_owned()));
        assert_eq!(canonical("git tag v1  \"a b\""), canonical("git tag \"v1\"  'a b'"));
        assert_eq!(canonical("git tag $X"), None);
    }
}
