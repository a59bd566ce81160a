//! Completions: the candidates at a position of the command line, and the scripts with which shells request them.

use std::process::Command;

use crate::test::{Test, binary};

const DECLARED: &str = "input: {count: {type: integer, default: 3, description: how many mails}, order: {enum: [age, urgency]}, all: {type: boolean, default: false}}";

fn app() -> Test {
    Test::new()
        .pipeline("sort-mail", |p| {
            p.with("description: Sort the newest mails").with(DECLARED).note("read", "1").note("label", "2")
        })
        .pipeline("other", |p| p.with("description: Something else").note("a", "1"))
        .file(".agents/skills/word-count/SKILL.md", "---\nname: word-count\ndescription: Counts words.\n---\nCount.\n")
}

/// Candidates for the last of the words: value and description, as fish receives them.
fn candidates(test: &Test, words: &[&str]) -> Vec<(String, String)> {
    let mut command = test.command(&[&["--", "etude"], words].concat());
    let done = command.env("COMPLETE", "fish").output().expect("the binary starts");
    assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).expect("candidates are UTF-8");
    let split = |line: &str| {
        let (value, help) = line.split_once('\t').unwrap_or((line, ""));
        (value.to_owned(), help.to_owned())
    };
    // Options are candidates as well if the value is optional.
    text.lines().filter(|line| !line.starts_with("--")).map(split).collect()
}

fn values(test: &Test, words: &[&str]) -> Vec<String> {
    candidates(test, words).into_iter().map(|(value, _)| value).collect()
}

/// cli: pipelines are candidates with their descriptions, from the app that the command line names.
#[test]
fn pipelines_of_the_app_are_listed() {
    let test = app();
    let expected = [("other", "Something else"), ("sort-mail", "Sort the newest mails")];
    let expected = expected.map(|(name, about)| (name.to_owned(), about.to_owned()));
    assert_eq!(candidates(&test, &["run", "--pipeline", ""]), expected);
    assert_eq!(values(&test, &["graph", "so"]), ["sort-mail"]);
    let app = test.path("app").display().to_string();
    let test = test.cwd("elsewhere");
    assert!(values(&test, &["run", "-p", ""]).is_empty());
    assert_eq!(values(&test, &["-C", &app, "run", "-p", ""]), ["other", "sort-mail"]);
}

/// cli: no candidate would be evaluated by a shell, or control the terminal.
#[test]
fn candidates_are_inert() {
    let declared = "input: {mode: {enum: [fast, \"fast$(touch x)\", \"a;b\", \"`x`\", \"\\e]0;title\\a\"]}}";
    let test = Test::new().pipeline("p", |p| p.with(declared).note("a", "1"));
    assert_eq!(values(&test, &["run", "-p", "p", "-i", "mode="]), ["mode=fast"]);
}

/// cli: after `-i`, the parameters of the named pipeline are candidates, then their values.
#[test]
fn parameters_of_the_named_pipeline_are_listed() {
    let test = app();
    let found = candidates(&test, &["run", "-p", "sort-mail", "-i", ""]);
    assert_eq!(found[0], ("count=".to_owned(), "how many mails, integer, default 3".to_owned()));
    assert_eq!(found.iter().map(|(value, _)| value.as_str()).collect::<Vec<_>>(), ["count=", "order=", "all="]);
    assert_eq!(
        values(&test, &["run", "-p", "sort-mail", "-i", "count=4", "-i", "order="]),
        ["order=age", "order=urgency"]
    );
    assert_eq!(values(&test, &["run", "--pipeline=sort-mail", "-i", "all=t"]), ["all=true"]);
    assert!(values(&test, &["run", "-p", "other", "-i", ""]).is_empty());
}

/// cli: runs are candidates with pipeline and status, the newest first; without a journal there are none, and none is created.
#[test]
fn runs_are_listed_with_pipeline_and_status() {
    let test = app();
    assert!(values(&test, &["runs", "show", ""]).is_empty());
    assert!(!test.path("home/.local/state/etude").exists());
    let id = test.run(&["run", "-p", "other", "--format", "json"]).exit(0).id();
    let found = candidates(&test, &["runs", "show", ""]);
    assert_eq!(found.iter().map(|(value, _)| value.as_str()).collect::<Vec<_>>(), ["latest", &id]);
    assert!(found[1].1.starts_with("other succeeded, "), "{found:?}");
    assert!(values(&test, &["approve", ""]).is_empty());
}

/// cli: a run that waits is a candidate of `approve` below any number of newer runs, and `latest` is one only for the newest run.
#[test]
fn waiting_runs_are_listed_below_newer_ones() {
    let test = app().pipeline("ask", |p| p.step("name: sure\ntype: approval\nmessage: Sure?"));
    let id = test.run(&["run", "-p", "ask", "--format", "json"]).exit(5).id();
    assert_eq!(values(&test, &["approve", ""]), ["latest", &id]);
    for _ in 0..30 {
        test.run(&["run", "-p", "other", "--quiet"]).exit(0);
    }
    assert_eq!(values(&test, &["deny", ""]), [id]);
}

/// cli: skills, error codes, statuses and the commands of `help` are candidates.
#[test]
fn skills_codes_statuses_and_commands_are_listed() {
    let test = app();
    assert_eq!(candidates(&test, &["skill", "show", "w"]), [("word-count".to_owned(), "Counts words.".to_owned())]);
    assert_eq!(values(&test, &["explain", "R010"]), ["R0101", "R0102", "R0103", "R0104", "R0105", "R0106"]);
    assert!(values(&test, &["runs", "list", "--status", ""]).contains(&"interrupted".to_owned()));
    assert_eq!(values(&test, &["help", "runs", "res"]), ["resume"]);
}

/// cli: `etude completions SHELL` prints a script that calls this program, and the file for it.
#[test]
fn scripts_ask_this_program_and_say_where_they_belong() {
    for (shell, file) in [
        ("bash", "~/.bashrc"),
        ("zsh", "~/.zshrc"),
        ("fish", "etude.fish"),
        ("elvish", "rc.elv"),
        ("powershell", "$PROFILE"),
    ] {
        let ran = Test::new().run(&["completions", shell]).exit(0).stderr("");
        assert!(ran.out().contains("COMPLETE") && ran.out().contains(file), "{shell}: {}", ran.out());
        let document = Test::new().run(&["completions", shell, "--format", "json"]).exit(0);
        assert_eq!(document.at("/shell"), shell);
        assert!(
            document.at("/install/line").as_str().is_some_and(|line| line.contains(&format!("completions {shell}")))
        );
    }
    let zsh = Test::new().run(&["completions", "zsh"]).exit(0);
    assert!(zsh.out().starts_with("#compdef etude"), "{}", zsh.out());
}

/// Completions of bash for each command line, as it splits its words: what it inserts, and `q` if it quotes names of files.
fn completed_by_bash(test: &Test, lines: &[(&str, &str)]) -> Option<String> {
    let mut script =
        "source <(etude completions bash); f=$(complete -p etude | sed 's/.*-F \\([^ ]*\\).*/\\1/'); COMP_TYPE=9; \
                      compopt() { [[ $1$2 != -ofilenames ]] || quotes=q; }\n"
            .to_owned();
    for (line, words) in lines {
        script.push_str(&format!(
            "COMP_LINE='{line}'; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_POINT=${{#COMP_LINE}}; quotes=; \
             $f etude; printf '%s,' \"${{COMPREPLY[@]}}\"; echo $quotes\n"
        ));
    }
    output_of_shell(test, "bash", &["--norc", "-c", &script])
}

/// Both streams of a shell whose search path has this program first; `None` if the shell is not installed.
fn output_of_shell(test: &Test, shell: &str, args: &[&str]) -> Option<String> {
    let program = std::path::PathBuf::from(binary());
    let dir = program.parent().expect("a program has a directory").display().to_string();
    let with_env = test.command(&[]);
    let mut command = Command::new(shell);
    command.args(args).env_clear().current_dir(test.path("app"));
    for (name, value) in with_env.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        command.env(name, value);
    }
    command.env("PATH", format!("{dir}:{}", std::env::var("PATH").unwrap_or_default()));
    let done = match command.output() {
        Ok(done) => done,
        Err(error) => {
            crate::test::skipped(&format!("completions of {shell}"), &error.to_string());
            return None;
        }
    };
    Some(String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr))
}

/// cli: bash with the script completes pipelines, also behind `=`, where bash splits words, values of parameters, and files of the
/// input. Readline quotes names with spaces.
#[test]
fn bash_completes_names_values_and_files() {
    let test = app().file("my input.json", "{}");
    let lines = [
        ("etude run --pipeline so", "etude run --pipeline so"),
        ("etude run --pipeline=so", "etude run --pipeline = so"),
        ("etude run -p sort-mail -i order=", "etude run -p sort-mail -i order ="),
        ("etude run -p sort-mail -i order=ur", "etude run -p sort-mail -i order = ur"),
        ("etude run --input @my", "etude run --input @ my"),
        ("etude graph so", "etude graph so"),
    ];
    let Some(found) = completed_by_bash(&test, &lines) else { return };
    assert_eq!(found, "sort-mail,\nsort-mail,\nage,urgency,\nurgency,\nmy input.json,q\nsort-mail,\n");
}

/// cli: tests, tiers, and steps of a shown run are candidates.
#[test]
fn tests_tiers_and_steps_are_listed() {
    let test = app().file("tests/sorts.yaml", "pipeline: sort-mail\n");
    assert_eq!(values(&test, &["test", "so"]), ["sorts"]);
    assert_eq!(values(&test, &["model", "test", "l"]), ["lite"]);
    assert_eq!(values(&test, &["convert", "--model", "l"]), ["lite"]);
    assert_eq!(values(&test, &["runs", "list", "--server", "l"]), ["local"]);
    assert_eq!(values(&test, &["runs", "list", "--engine", ""]), ["embedded"]);
    test.run(&["run", "-p", "sort-mail", "-i", "order=age", "--quiet"]).exit(0);
    assert_eq!(values(&test, &["runs", "show", "latest", ""]), ["read", "label"]);
}

/// cli: zsh with the script completes names, parameters without a space after `=`, their values, and files of the input, all
/// without options. As a file of completions, it works at its first use.
#[test]
fn zsh_completes_names_values_and_files() {
    let test = app().file("input.json", "{}");
    let completions = test.run(&["completions", "zsh"]).exit(0).out().to_owned();
    let mut script = "compdef() { echo $1 for $2; }\n\
                      compadd() { local list=${@[-1]}; print -r -- ${(M)@:#-S} ${(j:,:)${(P)list}}; }\n"
        .to_owned();
    script.push_str(&format!("{completions}\n_autoloaded() {{\nlocal -a funcstack=(_etude)\n{completions}\n}}\n"));
    for (call, line) in [
        ("_etude", "etude run --pipeline so"),
        ("_etude", "etude run --pipeline=so"),
        ("_etude", "etude run -p sort-mail -i or"),
        ("_etude", "etude run -p sort-mail -i order=u"),
        ("_etude", "etude run --input @in"),
        ("_etude", "etude model test "),
        ("_autoloaded", "etude graph so"),
    ] {
        script.push_str(&format!(
            "line='{line}'; words=(\"${{(@s: :)line}}\"); CURRENT=$#words; PREFIX=$words[-1]; {call}\n"
        ));
    }
    let Some(found) = output_of_shell(&test, "zsh", &["-f", "-c", &script]) else { return };
    let expected = "_etude for etude\nsort-mail\n--pipeline=sort-mail\n-S order=\norder=urgency\n@input.json\n\
                    lite,standard,reasoning\nsort-mail\n";
    assert_eq!(found, expected);
}
