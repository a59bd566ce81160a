use super::*;
use crate::draft::DraftStep;
use crate::label::Label;
use crate::skill::SkillFile;

const SKILL: &str = "# Audit\n\n1. Run `python3 scripts/total.py <file>`.\n2. Decide whether to `approve` or `reject`.\n\nThe total must be below {{limit}}. This is an example.\n\n```bash\nset -x\necho done\n```\n";

fn skill() -> Skill {
    let script = SkillFile {
        path: "scripts/total.py".to_owned(),
        is_executable: false,
        text: Some("print(json.dumps(1))".to_owned()),
    };
    Skill::read(SKILL, vec![script]).expect("a skill")
}

fn labels() -> Labels {
    let words = [Label::Background, Label::MainPath, Label::Judgement, Label::Rule, Label::Example, Label::MainPath];
    words.into_iter().zip(1..).map(|(label, id)| (id, label)).collect()
}

fn draft(statements: &[u32]) -> Draft {
    let step = |id: &u32| DraftStep { name: format!("s{id}"), statement: *id };
    Draft {
        name: "audit".to_owned(),
        skills: "audit".to_owned(),
        description: "Audit a file".to_owned(),
        triggers: vec!["audit this".to_owned()],
        steps: statements.iter().map(step).collect(),
    }
}

fn compiled(statements: &[u32], cases: &[Case], stdout: Stdout) -> Result<Compiled, Vec<String>> {
    let (skill, labels) = (skill(), labels());
    let own: Vec<&Case> = cases.iter().collect();
    compile(Source { skill: &skill, labels: &labels, cases }, &draft(statements), &own, stdout)
}

fn text<'c>(compiled: &'c Compiled, path: &str) -> &'c str {
    compiled.files.iter().find(|file| file.path == path).map_or("", |file| &file.text)
}

/// L-86, L-89: a script is called by a code step, a judgement has a schema and a validator, rules are in its prompt.
#[test]
fn commands_are_code_and_judgements_are_questions() {
    let compiled = compiled(&[2, 3], &[], Stdout::Suggested).expect("a pipeline");
    assert_eq!(
        text(&compiled, "pipelines/audit/pipeline.yaml"),
        r##"name: audit
description: "Audit a file"
triggers:
  - "audit this"
input:
  file: string
steps:
  - name: s2
    type: code
    command: "printf '{\"output\": ' && exec </dev/null && cd \"$ETUDE_CALLER_DIR\" && python3 \"$ETUDE_APP_DIR/scripts/total.py\" \"$INPUT_FILE\" && printf '}'"
    env:
      INPUT_FILE: "{{input.file}}"
  - name: s3
    type: llm
    prompt: |-
      {{run.request}}

      Do this:
      Decide whether to `approve` or `reject`.

      Keep these rules:
      - The total must be below \{{limit}}.

      The parameter `file`: {{input.file}}

      The output of `s2`:
      {{s2.output}}
    schema: schemas/s3.json
    validate: steps/validate_s3.py
"##
    );
    let schema: Value = serde_json::from_str(text(&compiled, "pipelines/audit/schemas/s3.json")).expect("JSON");
    assert_eq!(schema["properties"]["decision"], json!({"enum": ["approve", "reject"]}));
    assert_eq!(compiled.enforced, BTreeMap::from([(2, "s2".to_owned())]));
    assert_eq!(compiled.asked, BTreeMap::from([(3, "s3".to_owned()), (4, "s3".to_owned())]));
    assert!(compiled.ends_with_judgement && compiled.required.contains("file"));
}

/// L-87: a rule that is a step is a question, and the steps after it require that it holds.
#[test]
fn rules_are_required_of_later_steps() {
    let compiled = compiled(&[4, 6], &[], Stdout::Suggested).expect("a pipeline");
    let definition = text(&compiled, "pipelines/audit/pipeline.yaml");
    assert!(definition.contains("fallback: skill\n"), "{definition}");
    assert!(
        definition.contains("    require:\n      - value: \"{{s4.output.holds}}\"\n        equals: \"yes\"\n"),
        "{definition}"
    );
    assert_eq!(compiled.asked, BTreeMap::from([(4, "s4".to_owned())]));
    assert_eq!(
        text(&compiled, "pipelines/audit/steps/s6.sh"),
        "# Statement 6 of SKILL.md, line 8.\nset -e\ncd \"$ETUDE_CALLER_DIR\"\nset -x\necho done\n"
    );
}

/// L-88: a statement that cannot be a step is refused with its reason.
#[test]
fn drafts_that_cannot_be_pipelines_are_refused() {
    assert_eq!(
        compiled(&[5, 9, 1], &[], Stdout::Suggested),
        Err(vec![
            "pipeline `audit`, step `s5`: statement 5 is labelled `example`, so it cannot be a step".to_owned(),
            "pipeline `audit`, step `s9`: statement 9 does not exist".to_owned(),
            "pipeline `audit`, step `s1`: statement 1 is labelled `background`, so it cannot be a step".to_owned(),
        ])
    );
    assert_eq!(compiled(&[], &[], Stdout::Suggested), Err(vec!["pipeline `audit` has no steps".to_owned()]));
}

/// 1.6: the outputs of cases give the last judgement its form, and their inputs the parameters their types.
#[test]
fn cases_give_forms_and_types() {
    let lines = "{\"input\": {\"file\": \"a\", \"n\": 1}, \"output\": {\"ok\": true, \"why\": \"x\"}}\n{\"input\": {\"file\": \"b\"}, \"output\": {\"ok\": false, \"items\": [1, 2.5]}}";
    let cases = case::from_lines(lines).expect("cases");
    let compiled = compiled(&[2, 3], &cases, Stdout::Text).expect("a pipeline");
    let definition = text(&compiled, "pipelines/audit/pipeline.yaml");
    assert!(
        definition.contains("input:\n  file: string\n  \"n\":\n    type: integer\n    required: false\n"),
        "{definition}"
    );
    assert!(definition.contains("    output: text\n"), "{definition}");
    let schema: Value = serde_json::from_str(text(&compiled, "pipelines/audit/schemas/s3.json")).expect("JSON");
    assert_eq!(
        schema,
        json!({"type": "object", "required": ["ok"], "additionalProperties": false, "properties": {
            "ok": {"type": "boolean"}, "why": {"type": "string"}, "items": {"type": "array", "items": {"type": "number"}},
        }})
    );
}

/// Pipeline of the statements with these ids, in the order of the text.
fn compile_text(text: &str, words: &[Label], ids: &[u32]) -> Result<Compiled, Vec<String>> {
    let skill = Skill::read(text, Vec::new()).expect("a skill");
    let labels: Labels = words.iter().copied().zip(1..).map(|(label, id)| (id, label)).collect();
    compile(Source { skill: &skill, labels: &labels, cases: &[] }, &draft(ids), &[], Stdout::Suggested)
}

fn faults(text: &str, words: &[Label], ids: &[u32]) -> String {
    compile_text(text, words, ids).err().unwrap_or_default().join("\n")
}

/// L-87: a command with a condition is run if a question says that the condition holds, and never otherwise.
#[test]
fn commands_with_a_condition_ask_for_it() {
    let text = "If the branch is old, run `git fetch origin`.\n";
    let compiled = compile_text(text, &[Label::Condition], &[1]).expect("a pipeline");
    let definition = self::text(&compiled, "pipelines/audit/pipeline.yaml");
    let expected = "  - name: s1\n    type: code\n    command: \"exec </dev/null && cd \\\"$ETUDE_CALLER_DIR\\\" && git fetch origin\"\n    output: text\n    when:\n      value: \"{{s1_applies.output.holds}}\"\n      not_equals: \"no\"\n    require:\n      - value: \"{{s1_applies.output.holds}}\"\n        equals: \"yes\"\n";
    assert!(definition.contains(expected) && definition.contains("fallback: skill\n"), "{definition}");
    assert_eq!((compiled.enforced, compiled.asked), (BTreeMap::from([(1, "s1".to_owned())]), BTreeMap::new()));
}

/// L-87, L-88: an action under a condition without a known command is work for an agent, and later steps do not depend on it.
#[test]
fn an_action_under_a_condition_is_no_guard() {
    let words = [Label::MainPath, Label::Condition, Label::MainPath];
    let kind_of = |condition: &str| {
        let text = format!("1. Run `git status`.\n2. {condition}\n3. Run `git fetch`.\n");
        let compiled = compile_text(&text, &words, &[1, 2, 3]).expect("a pipeline");
        let definition = compiled.files[0].text.clone();
        (definition.contains("  - name: s2\n    type: skill\n"), definition.contains("{{s2.output.holds}}"))
    };
    for action in [
        "If the build failed, run `rm -rf out`.",
        "Delete `out/` if the build failed.",
        "When it is old, tell the user.",
    ] {
        assert_eq!(kind_of(action), (true, false), "{action}");
    }
    for guard in ["If the build failed, stop.", "If it is not clean, do not go on.", "The build is green."] {
        assert_eq!(kind_of(guard), (false, true), "{guard}");
    }
}

/// L-87: the sentence or heading above a code block states its condition, and may say that it is not for running.
#[test]
fn code_blocks_are_read_with_what_is_above_them() {
    let block = "```sh\ngit push\n```\n";
    let words = [Label::MainPath, Label::MainPath];
    for above in ["If the user agrees:\n", "## Option 2: push\n", "- **Only for releases**:\n\n  "] {
        let made = compile_text(
            &format!("{above}\n{}", block.replace('\n', if above.starts_with('-') { "\n  " } else { "\n" })),
            &words,
            &[2],
        );
        assert_eq!(made.expect(above).questions, ["s2_applies"], "{above}");
    }
    for above in ["**Example:**\n", "Never do this:\n", "## ❌ Wrong\n", "## Common mistakes\n\n### Pushing\n"] {
        let text = format!("{above}\n{block}");
        let id = if above.contains("###") { 3 } else { 2 };
        assert!(faults(&text, &[Label::MainPath; 3], &[id]).contains("as an example or forbids it"), "{above}");
    }
    let text = format!("Run each one:\n\n{block}");
    assert!(faults(&text, &words, &[2]).contains("it is repeated"));
    let mention = faults("Hooks of `npm install` are checked.\n", &words, &[1]);
    assert!(mention.contains("mentions a command without an instruction to run it"), "{mention}");
}

/// L-89: commands that take variables or a directory from the commands before them run in one shell with them.
#[test]
fn commands_of_one_shell_are_one_step() {
    let text = "```bash\nROOT=$(git rev-parse --show-toplevel)\n```\n\n```bash\ncd \"$ROOT\"\n```\n\n```bash\ngit status\n```\n\nReview it.\n\n```bash\ngit log -1\n```\n";
    let words = [Label::MainPath, Label::MainPath, Label::MainPath, Label::Judgement, Label::MainPath];
    let compiled = compile_text(text, &words, &[1, 2, 3, 4]).expect("a pipeline");
    assert_eq!(compiled.enforced.into_values().collect::<Vec<_>>(), ["s1"; 3]);
    let script = compiled.files.iter().find(|file| file.path.ends_with("s1.sh")).map_or("", |file| &file.text);
    assert!(script.ends_with("\nROOT=$(git rev-parse --show-toplevel)\ncd \"$ROOT\"\ngit status\n"), "{script}");
    let apart = "statement 5 needs the shell of statement 2, but the steps between them run outside that shell";
    assert!(faults(text, &words, &[1, 2, 4, 5]).contains(apart));
    assert!(faults(text, &words, &[1]).contains("sets only variables or the directory"));
    assert!(faults(text, &words, &[2]).contains("statement 2 needs the variable `ROOT`, which statement 1 sets"));
}

/// L-87: a judgement with a command runs it, and asks about its output: the command alone does not fulfil the statement.
#[test]
fn a_judgement_with_a_command_is_asked() {
    let compiled =
        compile_text("Review the output of `git diff --stat`.\n", &[Label::Judgement], &[1]).expect("a pipeline");
    assert_eq!((compiled.enforced, compiled.asked), (BTreeMap::new(), BTreeMap::from([(1, "s1".to_owned())])));
    let definition = compiled.files[0].text.clone();
    assert!(
        definition.contains("  - name: s1_run\n    type: code\n") && definition.contains("{{s1_run.output}}"),
        "{definition}"
    );
}

/// L-87: a rule about a command is enforced by a step only if the rule is to run it.
#[test]
fn a_rule_about_a_command_is_a_question() {
    let about =
        compile_text("The output of `git status --short` must be empty.\n", &[Label::Rule], &[1]).expect("a pipeline");
    assert_eq!((about.enforced.len(), about.asked.len()), (0, 1));
    let runs = compile_text("Always run `git status --short` first.\n", &[Label::Rule], &[1]).expect("a pipeline");
    assert_eq!((runs.enforced.len(), runs.asked.len()), (1, 0));
}

/// L-87: a judgement keeps the rules of its section and of sections that only have rules.
#[test]
fn judgements_keep_the_rules_that_concern_them() {
    let text = "# A\n\n## Rules\n\n- Never pay twice.\n\n## Pay\n\n- Review it.\n- Round up.\n\n## Ship\n\n- Decide.\n- Use boxes.\n";
    let (rule, judgement, other) = (Label::Rule, Label::Judgement, Label::Background);
    let words = [other, other, rule, other, judgement, rule, other, judgement, rule];
    let compiled = compile_text(text, &words, &[5]).expect("a pipeline");
    assert_eq!(compiled.asked.into_keys().collect::<Vec<_>>(), [3, 5, 6]);
}

/// L-89: an option of a usage line is a parameter with an empty default.
#[test]
fn optional_parameters_have_a_default() {
    let compiled = compile_text("Run `git log [--author NAME]`.\n", &[Label::MainPath], &[1]).expect("a pipeline");
    let definition = &compiled.files[0].text;
    assert!(definition.contains("input:\n  author:\n    type: string\n    default: \"\"\n"), "{definition}");
    assert!(compiled.required.is_empty());
}

/// L-89: a parameter that is one of several words lists these words.
#[test]
fn a_choice_is_declared_with_its_words() {
    let text = "Run `git log --format {short,full} [--limit N]`.\n";
    let compiled = compile_text(text, &[Label::MainPath], &[1]).expect("a pipeline");
    let definition = &compiled.files[0].text;
    let declared = "  format:\n    type: string\n    enum:\n      - short\n      - full\n";
    assert!(definition.contains(declared), "{definition}");
    assert!(compiled.required.contains("format") && !compiled.required.contains("limit"));
}

/// Path with work for an agent.
const NOTES: &str = "---\nname: notes\nallowed-tools: Read, Edit\n---\n# Notes\n\n1. Run `git log --oneline`.\n2. Write the {{notes}}.\n3. Add them to the log.\n4. Decide whether they are done.\n5. Send them.\n\nNever name a person.\n";

/// The labels of [`NOTES`].
const OF_NOTES: [Label; 7] = [
    Label::Background,
    Label::MainPath,
    Label::MainPath,
    Label::MainPath,
    Label::Judgement,
    Label::MainPath,
    Label::Rule,
];

/// L-88, L-87: statements without a command become a step for an agent, which follows them and their rules with the tools of
/// the skill.
#[test]
fn work_without_a_command_is_for_an_agent() {
    let compiled = compile_text(NOTES, &OF_NOTES, &[2, 3, 4, 5, 6]).expect("a pipeline");
    let definition = text(&compiled, "pipelines/audit/pipeline.yaml");
    let step = "  - name: s3\n    type: skill\n    skill: audit-1\n    request: |-\n      {{run.request}}\n\n      The output of `s2`:\n      {{s2.output}}\n";
    assert!(definition.contains(step), "{definition}");
    assert!(definition.contains("  - name: s6\n    type: skill\n    skill: audit-2\n"), "{definition}");
    assert!(!definition.contains("s4"), "one agent follows what is next to each other: {definition}");
    assert_eq!(
        text(&compiled, "skills/audit-1/SKILL.md"),
        r#"---
name: audit-1
description: "A part of the pipeline audit: statements 3, 4 of SKILL.md"
disable-model-invocation: true
allowed-tools:
  - "Read, Edit"
---
Do what these statements of `SKILL.md` say, and nothing else of it: other steps do the rest.

- Write the {{notes}}.
- Add them to the log.

Keep these rules:

- Never name a person.
"#
    );
    let asked: Vec<(u32, &str)> = compiled.asked.iter().map(|(id, step)| (*id, step.as_str())).collect();
    assert_eq!(asked, [(3, "s3"), (4, "s3"), (5, "s5"), (6, "s6"), (7, "s3")]);
    assert_eq!((compiled.questions.len(), compiled.ends_with_judgement), (3, false));
}

/// L-88: an agent alone is refused, because it is the skill itself; and no skill of the app is replaced.
#[test]
fn an_agent_alone_is_no_pipeline() {
    assert_eq!(
        faults(NOTES, &OF_NOTES, &[3, 6]),
        "pipeline `audit` has only agent steps, which the skill already covers"
    );
    for root in ["skills", ".claude/skills"] {
        let other = SkillFile { path: format!("{root}/audit-1/SKILL.md"), is_executable: false, text: None };
        let skill = Skill::read(NOTES, vec![other]).expect("a skill");
        let labels: Labels = OF_NOTES.into_iter().zip(1..).map(|(label, id)| (id, label)).collect();
        let source = Source { skill: &skill, labels: &labels, cases: &[] };
        let compiled = compile(source, &draft(&[2, 3]), &[], Stdout::Suggested).expect("a pipeline");
        assert!(!text(&compiled, "skills/audit-2/SKILL.md").is_empty(), "{root}");
    }
}

/// L-89: a file of the caller that an option names is a parameter, wherever the skill names it; its default is that file.
#[test]
fn files_of_the_caller_are_defaults() {
    let text = "Run `pandoc notes.md --output report.pdf`.\n\nRun `ls -l report.pdf`.\n";
    let compiled = compile_text(text, &[Label::MainPath, Label::MainPath], &[1, 2]).expect("a pipeline");
    let definition = &compiled.files[0].text;
    assert!(definition.contains("input:\n  report_pdf:\n    type: string\n    default: report.pdf\n"), "{definition}");
    for part in ["pandoc notes.md --output \\\"$INPUT_REPORT_PDF\\\"", "ls -l \\\"$INPUT_REPORT_PDF\\\""] {
        assert!(definition.contains(part), "{part}\n{definition}");
    }
    assert!(compiled.required.is_empty());
}

/// L-85: a comment after a command does not hide the end of the JSON around its output.
#[test]
fn a_comment_hides_no_end() {
    const BODY: &str = "1. Do it:\n\n```bash\npython3 scripts/total.py  # the total\n```\n";
    let script = SkillFile {
        path: "scripts/total.py".to_owned(),
        is_executable: false,
        text: Some("print(json.dumps(1))".to_owned()),
    };
    let skill = Skill::read(BODY, vec![script]).expect("a skill");
    let labels = [(1, Label::Background), (2, Label::MainPath)].into_iter().collect();
    let compiled = compile(Source { skill: &skill, labels: &labels, cases: &[] }, &draft(&[2]), &[], Stdout::Json);
    let compiled = compiled.expect("a pipeline");
    let pipeline = text(&compiled, "pipelines/audit/pipeline.yaml");
    assert!(pipeline.contains("# the total\n      printf '}'"), "{pipeline}");
    assert!(pipeline.contains("set -e\n") && !pipeline.contains("&&"), "{pipeline}");
}
