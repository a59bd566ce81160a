use clap::Command;

use super::*;

/// Every visible command below `command`, by its words, with the groups.
fn paths(command: &Command, path: &str) -> Vec<String> {
    let visible = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let inner = visible.flat_map(|inner| paths(inner, format!("{path} {}", inner.get_name()).trim()));
    std::iter::once(path.to_owned()).chain(inner).collect()
}

/// Arguments of a command and of those below it.
fn arguments(command: &Command) -> Vec<clap::Arg> {
    let below = command.get_subcommands().flat_map(arguments);
    command.get_arguments().cloned().chain(below).collect()
}

/// cli: an option with a whole number says which numbers it takes.
#[test]
fn numbers_are_refused_with_their_range() {
    use std::any::TypeId;
    let numbers = [
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i32>(),
        TypeId::of::<i64>(),
    ];
    let is_duration = |argument: &clap::Arg| {
        argument.get_value_names().is_some_and(|names| names.iter().any(|name| name == "DURATION" || name == "TIME"))
    };
    let mut found = 0;
    for argument in arguments(&command()).iter().filter(|argument| !is_duration(argument)) {
        let parser = argument.get_value_parser().clone();
        if !numbers.iter().any(|number| parser.type_id() == *number) || argument.get_id() == "max_output" {
            continue;
        }
        let refused = Command::new("t").arg(clap::Arg::new("n").value_parser(parser)).try_get_matches_from(["t", "x"]);
        let refused = refused.expect_err("not a number").to_string();
        assert!(refused.contains("expected a whole number from "), "{}: {refused}", argument.get_id());
        found += 1;
    }
    assert!(found >= 8, "{found}");
}

/// cli: a negative duration is refused as a duration, and not as an unknown option.
#[test]
fn negative_durations_are_refused_as_such() {
    let is_duration = |argument: &clap::Arg| {
        argument.get_value_names().is_some_and(|names| names.iter().any(|name| name == "DURATION"))
    };
    for argument in arguments(&command()).iter().filter(|argument| is_duration(argument)) {
        assert!(argument.is_allow_negative_numbers_set(), "{}", argument.get_id());
    }
    for words in [["etude", "run", "--timeout", "-1"].as_slice(), &["etude", "runs", "list", "--since", "-1"]] {
        let refused = command().try_get_matches_from(words).expect_err("it is negative").to_string();
        assert!(refused.contains("it is negative"), "{refused}");
    }
}

/// The words of a line as a shell would split it, up to a redirection, a pipe or the end of a substitution.
fn words(line: &str) -> Vec<String> {
    let line = line.split_once("$(").map_or(line, |(_, inner)| inner.trim_end_matches(')'));
    let (mut words, mut word, mut quote, mut is_word) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (None, '|' | '>') => break,
            (None, ' ') => {
                words.extend(std::mem::take(&mut is_word).then(|| std::mem::take(&mut word)));
            }
            (_, c) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    words.extend(is_word.then_some(word));
    words
}

/// cli: every command has two to four examples, and every example belongs to a command.
#[test]
fn every_command_has_two_to_four_examples() {
    let paths = paths(&command(), "");
    for path in &paths {
        let found = examples::all().find(|(of, _)| of == path);
        let count = found.map_or(0, |(_, examples)| examples.lines().count() / 2);
        assert!((2..=4).contains(&count), "`etude {path}` has {count} examples");
    }
    for (path, _) in examples::all() {
        assert!(paths.iter().any(|known| known == path), "there is no command `etude {path}`");
    }
}

/// cli: options of an export to a file are refused with the id of a run, which is printed on stdout.
#[test]
fn an_export_of_one_run_takes_no_file() {
    let parsed = |words: &str| command().try_get_matches_from(words.split(' ')).is_ok();
    assert!(parsed("etude runs export 8dm") && parsed("etude runs export --all --out f --move"));
    for words in ["8dm --out f", "8dm --move", "--out f", "8dm --all --out f"] {
        assert!(!parsed(&format!("etude runs export {words}")), "{words}");
    }
}

/// cli: every example parses, and is one of the command that shows it.
#[test]
fn every_example_is_a_valid_command_line() {
    for (path, examples) in examples::all() {
        let lines: Vec<&str> = examples.lines().collect();
        for pair in lines.chunks(2) {
            let [comment, line] = pair else { panic!("{path}: {pair:?}") };
            let (comment, line) = (comment.strip_prefix("  # ").unwrap(), line.trim_start());
            let words = words(line);
            let parsed = command().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.err().map(|error| error.to_string()).unwrap_or_default());
            assert!(words.join(" ").starts_with(format!("etude {path}").trim_end()), "{path}: {line}");
            assert!(comment.starts_with(char::is_uppercase) && !comment.ends_with('.'), "{comment}");
        }
    }
}

/// cli: texts are phrases without a full stop at the end, and fit a terminal.
#[test]
fn descriptions_are_short_phrases() {
    fn check(command: &Command, path: &str) {
        let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let texts = arguments.filter_map(|argument| argument.get_help()).chain(command.get_about());
        for text in texts.map(ToString::to_string) {
            assert!(!text.ends_with('.'), "etude {path}: {text}");
            assert!(text.chars().count() <= 110, "etude {path}: {text}");
        }
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            assert!(
                inner.get_about().is_some_and(|about| about.to_string().chars().count() <= 80),
                "{path} {}",
                inner.get_name()
            );
            check(inner, &format!("{path} {}", inner.get_name()));
        }
    }
    check(&command(), "");
}
