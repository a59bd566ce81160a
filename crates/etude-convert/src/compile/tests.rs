use super::*;
use crate::draft::DraftStep;
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
    command: "printf '{\"output\": ' && cd \"$ETUDE_CALLER_DIR\" && python3 \"$ETUDE_APP_DIR/scripts/total.py\" \"$INPUT_FILE\" && printf '}'"
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

/// L-88: what cannot be a step is refused with its reason.
#[test]
fn drafts_that_cannot_be_pipelines_are_refused() {
    assert_eq!(
        compiled(&[5, 9, 1], &[], Stdout::Suggested),
        Err(vec![
            "pipeline `audit`, step `s5`: statement 5 is labelled `example`, so it cannot be a step".to_owned(),
            "pipeline `audit`, step `s9`: there is no statement 9".to_owned(),
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
