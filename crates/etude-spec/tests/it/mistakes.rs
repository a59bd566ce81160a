//! Plausible mistakes of authors: each is found before a run, with the text to write instead.

use etude_spec::App;
use etude_spec::source::MemorySources;

/// Findings of a pipeline with these lines, as `severity message / hint`.
fn findings(lines: &str) -> Vec<String> {
    let text = format!("name: p\ndescription: d\n{lines}");
    let files = MemorySources::new()
        .with("SKILL.md", "---\nname: a\ndescription: d\n---\nHelp.\n")
        .with("pipelines/p/a.yaml", "type: object\n")
        .with("pipelines/p/pipeline.yaml", text);
    let report = App::new(&files).check(&[]);
    let one = |d: &etude_spec::Diagnostic| {
        format!("{} {} / {}", d.severity.word(), d.message, d.hint.as_deref().unwrap_or_default())
    };
    report.diagnostics.iter().map(one).collect()
}

/// X-1, R0104: a `for_each` over a value that is never a list is a warning before the run.
#[test]
fn a_for_each_without_a_list_is_found() {
    let text = "  - {name: a, type: code, command: ls, output: text}\n  \
                - {name: b, type: code, for_each: \"{{a.output}}\", command: ls}\n";
    let message = "`for_each` needs a list, but `a.output` is a string / let the step print JSON, or give it a `schema` of \
                   the type `array`";
    assert_eq!(findings(&format!("steps:\n{text}")), [format!("warning {message}")]);
    let input = |kind: &str| {
        findings(&format!(
            "input: {{x: {kind}}}\nsteps:\n  - {{name: b, type: code, for_each: \"{{{{input.x}}}}\", command: ls}}\n"
        ))
    };
    let message =
        "warning `for_each` needs a list, but `input.x` is a string / declare the parameter as a list: `x: array`";
    assert_eq!(input("string"), [message]);
    assert_eq!((input("array"), input("{}")), (Vec::new(), Vec::new()));
    let group = "steps:\n  - {name: g, type: parallel, steps: [{name: a, type: code, command: ls}]}\n  \
                 - {name: b, type: code, for_each: \"{{g.output}}\", command: ls}\n";
    assert_eq!(
        findings(group),
        ["warning `for_each` needs a list, but `g.output` is an object / refer to a list inside it"]
    );
    let inner = group.replace("{{g.output}}", "{{g.output.a}}");
    assert_eq!(findings(&inner), [""; 0]);
}

/// the hint on a value of the wrong shape names the right one.
#[test]
fn hints_on_wrong_shapes_name_the_right_one() {
    let hint = |lines: &str| {
        let all = findings(lines);
        all.first().and_then(|first| first.rsplit_once(" / ")).unwrap().1.to_owned()
    };
    let step = |fields: &str| hint(&format!("steps:\n  - {{name: a, type: code, command: ls, {fields}}}\n"));
    assert!(step("for_each: [1, 2]").starts_with("refer to a list, for example `for_each: "));
    assert_eq!(step("env: [A=1]"), "write a mapping: `env: {NAME: \"value\"}`");
    let ask = |fields: &str| hint(&format!("steps:\n  - {{name: a, type: llm, prompt: x, {fields}}}\n"));
    assert_eq!(ask("tier: lite"), "did you mean `model`?");
    assert_eq!(ask("output_schema: {type: object}"), "did you mean `schema`?");
    assert_eq!(ask("choose: [a, b]"), "for example: `choose: {from: \"{{step.output}}\"}`");
    assert_eq!(ask("choose: {from: [a, b]}"), "refer to a list, for example `from: \"{{step.output}}\"`");
    assert_eq!(
        ask("validate: python3 check.py"),
        "a command is written `validate: {command: …}`; text alone is a path"
    );
    assert_eq!(ask("schema: a.yaml"), "a schema in YAML is a mapping in the step: `schema: {type: object}`");
    assert_eq!(hint("fallback: true\nsteps:\n  - {name: a, type: code, command: ls}\n"), "write `fallback: skill`");
    assert!(hint("steps:\n  a: {type: code, command: ls}\n").starts_with("begin each step with `- `"));
    let declared = "input: {type: object, properties: {x: {type: string}}, required: [x]}\nsteps:\n  \
                    - {name: a, type: code, command: ls}\n";
    assert_eq!(hint(declared), "write each parameter below `input`, without `type`, `properties` and `required`");
    let group = findings("steps:\n  - {name: g, type: parallel, children: [{name: a, type: code, command: ls}]}\n");
    assert!(group.iter().any(|one| one.ends_with("did you mean `steps`?")), "{group:?}");
}

/// a file that an editor saved as UTF-16 is named as such, pipelines as well as schemas.
#[test]
fn a_file_in_utf16_is_named_as_such() {
    let utf16 = |text: &str| -> Vec<u8> {
        text.encode_utf16().fold(b"\xff\xfe".to_vec(), |bytes, unit| [bytes, unit.to_le_bytes().to_vec()].concat())
    };
    let step = "{name: a, type: code, command: ls, schema: a.json}";
    let files = MemorySources::new()
        .with("pipelines/p/pipeline.yaml", utf16("name: p\n"))
        .with("pipelines/q/a.json", utf16("{}"))
        .with("pipelines/q/pipeline.yaml", format!("name: q\ndescription: d\nsteps:\n  - {step}\n"));
    let report = App::new(&files).check(&[]);
    let found: Vec<_> =
        report.diagnostics.iter().map(|d| (d.code.as_str(), d.file.path(), d.hint.as_deref())).collect();
    let hint = Some("save the file as UTF-8, or convert it: `iconv -f utf-16 -t utf-8 FILE > NEW`");
    for path in ["pipelines/p/pipeline.yaml", "pipelines/q/a.json"] {
        assert!(found.contains(&("P0103", path, hint)), "{path}: {found:?}");
    }
}
