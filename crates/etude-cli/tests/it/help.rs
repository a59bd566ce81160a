//! Help and usage errors: `etude help`, words that are no command, and what an error repeats.

use crate::test::Test;

/// cli: `etude help COMMAND…` prints what `etude COMMAND… --help` prints, on stdout.
#[test]
fn help_of_a_command_is_its_long_help() {
    let test = Test::new();
    for words in [&[][..], &["run"], &["runs", "resume"], &["help"]] {
        let asked: Vec<&str> = words.iter().copied().chain(["--help"]).collect();
        let expected = test.run(&asked).exit(0).stderr("").out().to_owned();
        let asked: Vec<&str> = ["help"].into_iter().chain(words.iter().copied()).collect();
        let found = test.run(&asked).exit(0).stderr("").out().to_owned();
        assert_eq!(found, expected, "{words:?}");
        assert!(found.contains("\nExamples:\n  # "), "{found}");
    }
    let document = test.run(&["help", "runs", "resume", "--format", "json"]).exit(0);
    assert_eq!(document.at("/command"), "etude runs resume");
}

/// cli: help for a command that is not there is a usage error with the nearest name.
#[test]
fn help_of_an_unknown_command_names_the_nearest_one() {
    let test = Test::new();
    let ran = test.run(&["help", "runs", "resum"]).exit(2).stdout("");
    ran.stderr_has("`etude runs` has no command `resum`").stderr_has("did you mean `resume`?");
    test.run(&["help", "run", "x"]).exit(2).stderr_has("see its options: etude help run");
    test.run(&["help", "\u{1b}[31mred"]).exit(2).stderr_has("no command `\\u{1b}[31mred`");
}

/// cli: a word that is a command of a group, or a pipeline of the app, is answered with the whole command line.
#[test]
fn a_word_that_is_no_command_is_answered_with_the_right_one() {
    let test = Test::new().pipeline("sort-mail", |p| p.note("a", "1"));
    test.run(&["rnus"]).exit(2).stdout("").stderr_has("a similar subcommand exists: 'runs'");
    test.run(&["resume", "x"]).exit(2).stderr_has("did you mean `etude runs resume`?");
    test.run(&["check", "list"]).exit(2);
    test.run(&["sort-mail"]).exit(2).stderr_has("run the pipeline `sort-mail`: etude run --pipeline sort-mail");
}

/// cli: an error repeats what was typed without letting it steer the terminal.
#[test]
fn what_was_typed_does_not_steer_the_terminal() {
    let test = Test::new();
    for args in [&["ru\u{1b}[31mn"][..], &["run", "--n\u{1b}]0;x\u{7}o"], &["graph", "a", "--to", "\u{9b}2J"]] {
        let ran = test.run(args).exit(2).stdout("");
        assert!(!ran.err().chars().any(|c| c.is_control() && c != '\n'), "{:?}", ran.err());
        assert!(ran.err().contains("\\u{"), "{}", ran.err());
    }
}

/// cli: without arguments, the help is on stderr and the exit status is that of a usage error; JSON stays a document.
#[test]
fn without_arguments_the_help_is_a_usage_error() {
    let test = Test::new();
    let ran = test.run(&[]).exit(2).stdout("");
    assert!(ran.err().contains("Run commands:") && ran.err().contains("Exit status:"), "{}", ran.err());
    let ran = test.run(&["--format", "json"]).exit(2);
    assert_eq!(ran.at("/errors/0/message"), "a command is missing");
}
