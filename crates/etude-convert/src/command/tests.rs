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
    skill.statements.iter().map(|s| of_statement(&skill, s, &values).map(|command| command.text)).collect()
}

/// L-89: a script is called as the skill calls it; only its path is that of the app.
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

/// 1.6: commands in code blocks are commands, whatever else a block is is not.
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
    let found = of_statement(&skill, &skill.statements[0], &values).expect("a command");
    assert_eq!(
        found.text,
        "a \"$INPUT_INPUT_FILE\" \"${INPUT_X} ${INPUT_OUT}\" '{\"n\": '\"$INPUT_N\"'}' \"$INPUT_PATH\" ${b} $HOME $API_KEY \"$INPUT_MONTH\" < in > out\nfor F in 1; do echo $F \"$INPUT_TWO\" \"$INPUT_ARGUMENT_1\"; done\nawk '{print}'"
    );
    let names: Vec<&str> = found.parameters.keys().map(String::as_str).collect();
    assert_eq!(names, ["argument_1", "input_file", "month", "n", "out", "path", "two", "x"]);
}

#[test]
fn directories_of_a_skill_have_one_name() {
    let found = skill("`python3 ${CLAUDE_SKILL_DIR}/scripts/total.py x`");
    let command = of_statement(&found, &found.statements[0], &Values::new()).expect("a command");
    assert_eq!(command.text, "python3 $ETUDE_APP_DIR/scripts/total.py x");
    assert_eq!(command.scripts, ["scripts/total.py"]);
}

/// In a block of a mebibyte no command is looked for: each of its words would be looked up in all of it.
#[test]
fn long_blocks_are_no_commands() {
    let skill = skill(&format!("```sh\necho{}\n```\n", " $FOO".repeat(200_000)));
    assert_eq!(of_statement(&skill, &skill.statements[0], &Values::new()), None);
}
