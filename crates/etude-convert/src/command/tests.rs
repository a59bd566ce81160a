use super::*;
use crate::skill::SkillFile;

fn skill(text: &str) -> Skill {
    let file = |path: &str, is_executable| SkillFile { path: path.to_owned(), is_executable, text: None };
    let files = vec![
        file("SKILL.md", false),
        file("bin/tool", true),
        file("data/rates.csv", false),
        file("scripts/total.py", false),
    ];
    Skill::read(text, files).expect("a skill")
}

fn commands(text: &str) -> Vec<Option<String>> {
    let skill = skill(text);
    let values = Values::from([("month".to_owned(), vec!["2026-07".to_owned()])]);
    let texts = skill.statements.iter().map(|s| of_statement(&skill, s, &values).ok().flatten());
    texts.map(|command| command.map(|command| command.text)).collect()
}

/// L-89: a script is called as the skill calls it; only its path is replaced by that in the app.
#[test]
fn scripts_are_called_and_not_rewritten() {
    let text = "Run `python3 scripts/total.py --all`.\n\n- Use [this](scripts/total.py)\n- bin/tool does it.\n- Read data/rates.csv\n";
    assert_eq!(
        commands(text),
        [
            Some("python3 \"$ETUDE_APP_DIR/scripts/total.py\" --all".to_owned()),
            Some("python3 \"$ETUDE_APP_DIR/scripts/total.py\"".to_owned()),
            Some("\"$ETUDE_APP_DIR/bin/tool\"".to_owned()),
            None,
        ]
    );
}

/// A command with a key is not a code step: pipelines are files that people share.
#[test]
fn a_command_with_a_key_is_left_out() {
    let text =
        "```sh\nexport PAY_TOKEN=3f9a0c7be1d24856\ncurl https://pay.test\n```\n\n```sh\ncurl https://pay.test\n```\n";
    let skill = skill(text);
    let found: Vec<_> = skill.statements.iter().map(|s| of_statement(&skill, s, &Values::new())).collect();
    assert_eq!(found[0].as_ref().err(), Some(&"it has a value that looks like a key or a password"));
    assert!(matches!(&found[1], Ok(Some(_))), "{found:?}");
}

/// 1.6: commands in code blocks are commands; other content of a block is not.
#[test]
fn code_blocks_for_a_shell_are_commands() {
    let text = "```bash\ngit log -1\n```\n\n```console\n$ ls \\\n  data\nrates.csv\n```\n\n```json\n{}\n```\n\n```\nscripts/total.py\n```\n\n```\nsome text\n```\n\n```sh\n# nothing\n```\n";
    assert_eq!(
        commands(text),
        [
            Some("git log -1".to_owned()),
            Some("ls \\\n  \"$ETUDE_APP_DIR/data\"".to_owned()),
            None,
            Some("\"$ETUDE_APP_DIR/scripts/total.py\"".to_owned()),
            None,
            None,
        ]
    );
}

/// L-87: a rule that forbids a command does not run it.
#[test]
fn forbidden_commands_are_none() {
    assert_eq!(commands("Never run `git push --force`. Do not use `rm -rf data`."), [None, None]);
}

/// L-33, L-89: values are passed as variables and never become part of the shell text.
#[test]
fn placeholders_are_variables() {
    let text = "```sh\na <input file> \"{{x}} $OUT\" '{\"n\": <n>}' {path} ${b} $HOME $API_KEY 2026-07 < in > out\nfor F in 1; do echo $F ${TWO} $1; done\nawk '{print}'\n```\n";
    let skill = skill(text);
    let values = Values::from([("month".to_owned(), vec!["2026-07".to_owned()])]);
    let found = of_statement(&skill, &skill.statements[0], &values).expect("it can be run").expect("a command");
    assert_eq!(
        found.text,
        "a \"$INPUT_INPUT_FILE\" \"${INPUT_X} ${INPUT_OUT}\" '{\"n\": '\"$INPUT_N\"'}' \"$INPUT_PATH\" \"$INPUT_B\" $HOME $API_KEY \"$INPUT_MONTH\" < in > out\nfor F in 1; do echo $F \"$INPUT_TWO\" \"$INPUT_ARGUMENT_1\"; done\nawk '{print}'"
    );
    let names: Vec<&str> = found.parameters.keys().map(String::as_str).collect();
    assert_eq!(names, ["argument_1", "b", "input_file", "month", "n", "out", "path", "two", "x"]);
}

#[test]
fn directories_of_a_skill_have_one_name() {
    let found = skill("`python3 ${CLAUDE_SKILL_DIR}/scripts/total.py x`");
    let command =
        of_statement(&found, &found.statements[0], &Values::new()).expect("it can be run").expect("a command");
    assert_eq!(command.text, "python3 \"$ETUDE_APP_DIR/scripts/total.py\" x");
    assert_eq!(command.scripts, ["scripts/total.py"]);
}

/// A block of a mebibyte is not searched for commands: each of its words would be looked up in all of it.
#[test]
fn long_blocks_are_no_commands() {
    let skill = skill(&format!("```sh\necho{}\n```\n", " $FOO".repeat(200_000)));
    assert_eq!(of_statement(&skill, &skill.statements[0], &Values::new()), Ok(None));
}

/// Command of the first statement, or the reason why it cannot be run.
fn first(text: &str) -> Result<Option<Command>, &'static str> {
    let skill = skill(text);
    of_statement(&skill, &skill.statements[0], &Values::new())
}

/// L-89: a script of the skill is found in every place in which its author had it: in a folder of skills, or below a
/// placeholder for the skill's folder.
#[test]
fn scripts_are_found_wherever_the_author_had_them() {
    let text = "---\nname: audit\n---\n- `python3 ~/.claude/skills/audit/scripts/total.py a`\n- `python3 /mnt/audit/scripts/total.py a`\n- `python3 \"<path-to-skill>/scripts/total.py\" a`\n- `python3 <skill-dir>/scripts/total.py a`\n- `python3 other/scripts/total.py a`\n";
    let own = Some("python3 \"$ETUDE_APP_DIR/scripts/total.py\" a".to_owned());
    let other = Some("python3 other/scripts/total.py a".to_owned());
    assert_eq!(commands(text), [own.clone(), own.clone(), own.clone(), own, other]);
}

/// L-89: optional parts of a usage line are left out without a value, and its words in capitals are parameters.
#[test]
fn options_of_usage_lines_may_be_left_out() {
    let found =
        first("`uv run scripts/total.py FILE [--limit N] [--all] [path] [FLAGS] [...]`").expect("it can be run");
    let found = found.expect("a command");
    assert_eq!(
        found.text,
        "uv run \"$ETUDE_APP_DIR/scripts/total.py\" \"$INPUT_FILE\" ${INPUT_LIMIT:+--limit \"$INPUT_LIMIT\"}  ${INPUT_PATH:+\"$INPUT_PATH\"}  "
    );
    assert_eq!(found.optional, BTreeSet::from(["limit".to_owned(), "path".to_owned()]));
}

/// L-33, L-89: paths and names that a reader fills in are parameters.
#[test]
fn stand_ins_are_parameters() {
    let found = first("`git clone /path/to/project.git your-copy --depth=<n> <owner>/<name>`").expect("it can be run");
    let found = found.expect("a command");
    assert_eq!(
        found.text,
        "git clone \"$INPUT_PROJECT\" \"$INPUT_COPY\" --depth=\"$INPUT_N\" \"$INPUT_OWNER\"/\"$INPUT_NAME\""
    );
}

/// L-89: quotes inside of substitutions, and apostrophes in comments, do not change how a value is quoted.
#[test]
fn values_are_quoted_where_they_stand() {
    let text = "```bash\n# It's here\ngit log \"$(git tag \"<tag>\" <x>)\" \"a \\\"<y>\"\ncat <<E\nit's <z>\nE\n```\n";
    let found = first(text).expect("it can be run").expect("a command");
    assert_eq!(
        found.text,
        "# It's here\ngit log \"$(git tag \"${INPUT_TAG}\" \"$INPUT_X\")\" \"a \\\"${INPUT_Y}\"\ncat <<E\nit's ${INPUT_Z}\nE"
    );
}

/// L-86, L-88: text that cannot be run as it is written is refused with the reason, and never guessed.
#[test]
fn text_that_is_not_for_running_is_refused() {
    let refused = |text: &str| first(text).expect_err(text);
    assert!(refused("```sh\n... | jq .\n```").contains("leaves something out"));
    assert!(refused("```sh\nnpm test / cargo test\n```").contains("alternatives"));
    assert!(refused("```sh\n<test command> --all\n```").contains("its program is a placeholder"));
    assert!(refused("```sh\ncat <<'E'\n<text>\nE\n```").contains("here-document"));
    assert!(refused("```sh\ncurl -H <api-key>\n```").contains("secret"));
    assert!(refused("```sh\n# BAD\ngit push --force\n```").contains("comments"));
    assert!(refused("```sh\napt install jq  # Debian\nbrew install jq  # macOS\n```").contains("comments"));
    assert!(refused("```sh\ngit log  # NEVER DO THIS\n```").contains("comments"));
    assert!(refused("```sh\ngit log  # if needed\n```").contains("comments"));
    assert!(refused("```sh\n# All\ngit log --all\n# Of a file\ngit log a\n```").contains("several ways"));
    assert!(refused("```sh\n\"a b\"[x] AND c\n```").contains("not a program"));
    assert!(refused("```sh\npython3 scripts/other.py\n```").contains("a script that is not in the skill"));
    assert!(refused("```sh\npython3 -m scripts.total\n```").contains("only in the skill's directory"));
    assert!(refused("Run the tests (e.g. `npm test`).").contains("examples or alternatives"));
    assert!(refused("Run `npm test` or `cargo test`.").contains("examples or alternatives"));
}

/// L-87: a script that a row of a table names beside its command is called once.
#[test]
fn a_script_that_is_only_named_is_not_called() {
    let text = "- `scripts/total.py`: `uv run scripts/total.py --all`\n";
    assert_eq!(commands(text), [Some("uv run \"$ETUDE_APP_DIR/scripts/total.py\" --all".to_owned())]);
}

/// Text that only `bash` understands is not given to another shell.
#[test]
fn text_for_bash_needs_bash() {
    let needs = |text: &str| first(text).ok().flatten().is_some_and(|found| found.needs_bash);
    assert!(needs("```sh\n[[ -f a ]] && cat a\n```") && needs("```\ngit diff <(ls a) <(ls b)\n```"));
    assert!(!needs("```sh\n[ -f a ] && cat a\n```"));
}

/// L-89: the alternatives of a usage line are one value, and not the words that a shell makes of them. Elsewhere they stay
/// unchanged.
#[test]
fn alternatives_of_usage_lines_are_one_value() {
    let found =
        first("`python3 scripts/total.py --mode {fast,slow} --level=<low|high> -f {csv|json} --mode {fast,slow}`");
    let found = found.expect("it can be run").expect("a command");
    assert_eq!(
        found.text,
        "python3 \"$ETUDE_APP_DIR/scripts/total.py\" --mode \"$INPUT_MODE\" --level=\"$INPUT_LEVEL\" -f \"$INPUT_F\" --mode \"$INPUT_MODE\""
    );
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let expected =
        [("f", words(&["csv", "json"])), ("level", words(&["low", "high"])), ("mode", words(&["fast", "slow"]))];
    assert_eq!(found.choices, expected.map(|(name, words)| (name.to_owned(), words)).into());
    assert!(!found.needs_bash, "nothing of it is for bash");
    let usage = first("`git log --format {short,full} [--limit N]`").expect("it can be run").expect("a command");
    assert!(usage.text.starts_with("git log --format \"$INPUT_FORMAT\" "), "{}", usage.text);
    let plain = first("`mkdir -p {data,out}/{a,b} {c,d}`").expect("it can be run").expect("a command");
    assert_eq!((plain.text.as_str(), plain.needs_bash), ("mkdir -p {data,out}/{a,b} {c,d}", true));
    assert!(plain.choices.is_empty());
    let pipe = first("```sh\ncat <data/rates.csv|sort>out\n```").expect("it can be run").expect("a command");
    assert!(pipe.text.contains("|sort>out"), "{}", pipe.text);
    let refused = first("`python3 scripts/total.py {start,stop}`").expect_err("the choice has no name");
    assert!(refused.contains("alternatives"), "{refused}");
    let two = first("```sh\npython3 scripts/total.py --mode {a,b}\npython3 scripts/total.py --mode {c,d}\n```");
    assert_eq!(two.expect("it can be run").expect("a command").choices["mode"], [""; 0]);
}
