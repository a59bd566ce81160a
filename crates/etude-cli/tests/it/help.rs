//! Help and usage errors: `etude help`, unknown commands, and the quoted words in an error.

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

/// cli: with `--format json` help and version are one document, wherever the option is.
#[test]
fn help_and_version_are_documents_too() {
    let test = Test::new();
    let expected = test.run(&["help", "runs", "resume", "--format", "json"]).exit(0).doc();
    for words in [&["runs", "resume", "--help", "--format", "json"], &["--format", "json", "runs", "resume", "--help"]]
    {
        assert_eq!(test.run(words).exit(0).stderr("").doc(), expected, "{words:?}");
    }
    test.run(&["-h", "--format=json"]).exit(0).has("/command", "etude");
    for words in [&["--version", "--format", "json"], &["--format", "json", "--version"]] {
        test.run(words).exit(0).stderr("").has("/version", env!("CARGO_PKG_VERSION"));
    }
}

/// cli: help for an unknown command is a usage error with the nearest name.
#[test]
fn help_of_an_unknown_command_names_the_nearest_one() {
    let test = Test::new();
    let ran = test.run(&["help", "runs", "resum"]).exit(2).stdout("");
    ran.stderr_has("`etude runs` has no command `resum`").stderr_has("did you mean `resume`?");
    test.run(&["help", "run", "x"]).exit(2).stderr_has("see its options: etude help run");
    test.run(&["help", "\u{1b}[31mred"]).exit(2).stderr_has("no command `\\u{1b}[31mred`");
}

/// cli: for a word that is a command of a group, or a pipeline of the app, the hint has the whole command line.
#[test]
fn a_word_that_is_no_command_is_answered_with_the_right_one() {
    let test = Test::new().pipeline("sort-mail", |p| p.note("a", "1"));
    test.run(&["rnus"]).exit(2).stdout("").stderr_has("'runs'");
    test.run(&["resume", "x"]).exit(2).stderr_has("did you mean `etude runs resume`?");
    test.run(&["check", "list"]).exit(2);
    test.run(&["sort-mail"]).exit(2).stderr_has("run the pipeline `sort-mail`: etude run --pipeline sort-mail");
}

/// cli: an error repeats the typed words without letting them control the terminal.
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

/// Examples that cannot run in a new app: they need a model, a package, a skill, another process, or a file.
const NEEDY: [&str; 41] = [
    "etude runs show 8dmwnz5e extract",
    "etude route --test",
    "etude machine",
    "etude runs cancel",
    "etude runs delete",
    "etude runs import",
    "etude runs watch",
    "etude approve",
    "etude deny",
    "etude serve",
    "etude mcp",
    "etude token ",
    "etude engine ",
    "etude learn --traces",
    "etude learn export --runs",
    "etude learn show",
    "etude learn test",
    "etude learn promote",
    "etude learn demote",
    "etude learn forget",
    "etude push",
    "etude bundles ",
    "etude worker",
    "etude workers",
    "etude test",
    "etude apps show",
    "etude apps run",
    "etude apps list --apps-path",
    "etude apps check",
    "etude skill ",
    "etude trust a",
    "etude trust .",
    "etude untrust",
    "etude host",
    "etude model pull",
    "etude model serve",
    "etude model test",
    "etude doctor",
    "etude new",
    "etude convert",
    "etude import",
];

/// Words of a line as a shell would split it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.push(String::new()),
            (_, c) => words.last_mut().expect("there is one").push(c),
        }
    }
    words
}

/// cli: every example of the help that needs only a new app runs in one.
#[test]
fn examples_run_in_a_new_app() {
    let test = Test::new().cwd("elsewhere");
    test.run(&["new", "demo"]).exit(0);
    test.run(&["run", "-C", "demo", "--pipeline", "hello", "-i", "name=Ada"]).exit(0);
    let test = test.cwd("elsewhere/demo");
    let id = test.run(&["run", "--pipeline", "hello", "-i", "name=Ada", "--format", "json"]).exit(0).id();
    let mut count = 0;
    let mut left = vec![String::new()];
    while let Some(path) = left.pop() {
        let asked: Vec<&str> = path.split_whitespace().chain(["--help"]).collect();
        let help = test.run(&asked).exit(0).out().to_owned();
        let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
        let inner =
            help.lines().skip_while(|line| !line.ends_with("ommands:")).take_while(|line| !line.starts_with("Options"));
        let inner = inner.filter(is_command).filter_map(|line| line.split_whitespace().next());
        left.extend(inner.map(|name| format!("{path} {name}")));
        let examples =
            help.lines().skip_while(|line| *line != "Examples:").filter_map(|line| line.strip_prefix("  etude "));
        for example in examples.filter(|line| !line.contains(['>', '|'])) {
            if NEEDY.iter().any(|start| format!("etude {example}").starts_with(start)) {
                continue;
            }
            let line = example.replace("8dmwnz5e", &id).replace("latest", &id).replace("-C demo ", "");
            let words = words(&line);
            test.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).exit(0);
            count += 1;
        }
    }
    assert!(count >= 35, "only {count} examples ran");
}

/// cli: `--no-color` applies to help and to errors of the command line, which are printed before the options are known.
#[test]
fn help_has_no_colors_with_no_color() {
    let test = Test::new().env("CLICOLOR_FORCE", "1");
    assert!(test.run(&["--help"]).exit(0).out().contains('\u{1b}'));
    assert!(!test.run(&["--help", "--no-color"]).exit(0).out().contains('\u{1b}'));
    assert!(!test.run(&["--no-color", "rnus"]).exit(2).err().contains('\u{1b}'));
}
