use super::*;
use crate::source::MemorySources;
use serde_json::json;

const GOOD: &str = "name: lookup\ndescription: Looks up an issue.\ninputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}\ncommand: python3 tools/lookup.py\ngated: false\napprovalKey: \"lookup({{args.n}})\"\ntimeout: 5s\ntags: [net]\n";

fn app(files: &[(&str, &str)]) -> MemorySources {
    files.iter().fold(MemorySources::new(), |app, (path, text)| app.with(path, *text))
}

fn faults(files: &[(&str, &str)]) -> Vec<String> {
    let (_, diagnostics) = load(&app(files));
    let at = |d: &Diagnostic| d.position().map(|(line, column)| format!("{line}:{column} ")).unwrap_or_default();
    diagnostics.iter().map(|d| format!("{} {}{}", d.code, at(d), d.message)).collect()
}

/// `b-stages` §20.5: all fields of a sidecar are read.
#[test]
fn a_sidecar_is_read_in_full() {
    let (tools, diagnostics) = load(&app(&[("tools/lookup.yaml", GOOD), ("tools/lookup.py", "print()")]));
    assert_eq!(diagnostics, []);
    let command = Command::Direct(vec!["python3".to_owned(), "tools/lookup.py".to_owned()]);
    let expected = AppTool {
        name: "lookup".to_owned(),
        description: "Looks up an issue.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
        command,
        gated: false,
        effects: None,
        approval_key: Some("lookup({{args.n}})".to_owned()),
        timeout_ms: 5_000,
        tags: vec!["net".to_owned()],
        file: "tools/lookup.yaml".to_owned(),
        has_help: false,
        bare: false,
    };
    assert_eq!(tools, [expected]);
}

/// `b-stages` 0.1 rule 6: the name of a built-in tool is a definition error, in a sidecar as for a script.
#[test]
fn names_of_built_in_tools_are_taken() {
    let sidecar = faults(&[("tools/Read.yaml", "name: Read\ndescription: d\ncommand: x\n")]);
    assert_eq!(sidecar, ["P0209 1:7 `Read` cannot be the name of a tool"]);
    let script = MemorySources::new().with_executable("tools/Bash.sh", "#!/bin/sh\n");
    let (tools, diagnostics) = load(&script);
    assert_eq!((tools.len(), diagnostics.len()), (0, 1));
    assert!(diagnostics[0].is_error() && diagnostics[0].file.path() == "tools/Bash.sh");
    let mcp = faults(&[("tools/mcp__x.yaml", "name: mcp__x\ndescription: d\ncommand: x\n")]);
    assert_eq!(mcp, ["P0209 1:7 `mcp__x` cannot be the name of a tool"]);
}

/// all faults are reported, each with its place.
#[test]
fn every_fault_is_located() {
    let text = "name: lokup\ndescripton: d\ninputSchema:\n  type: object\n  properties: {n: {type: int}}\ncommand: python3 'x\napprovalKey: \"x({{args.m}}) {{n}} {{\"\ntimeout: soon\n";
    assert_eq!(
        faults(&[("tools/lookup.yaml", text)]),
        [
            "P0207 1:7 the tool is named `lokup`, but its file is `lookup.yaml`",
            "P0201 2:1 unknown field `descripton` in tool `lookup`",
            "P0405 5:26 `inputSchema` is not a JSON Schema: `type` cannot be \"int\"",
            "P0214 6:10 the command cannot be split into words: a single quote is not closed",
            "P0307 7:19 `approvalKey` refers to the argument `m`, which `inputSchema` does not have",
            "P0302 7:31 `n` is not an argument",
            "P0301 7:35 `approvalKey` has `{{` without `}}`",
            "P0213 8:10 `timeout` is not a duration: it does not begin with a number",
        ]
    );
}

#[test]
fn arguments_are_an_object() {
    let text = "name: a\ndescription: d\ncommand: x\ninputSchema: {type: string}\n";
    assert_eq!(faults(&[("tools/a.yaml", text)]), ["P0405 4:1 `inputSchema` does not describe an object"]);
}

#[test]
fn data_of_scripts_is_no_tool() {
    let files =
        [("tools/words.yaml", "- a\n- b\n"), ("tools/settings.yml", "color: red\n"), ("tools/lib.py", "x = 1\n")];
    assert_eq!(load(&app(&files)), (Vec::new(), Vec::new()));
}

/// an executable script is a tool, unless a description stands for it.
#[test]
fn executable_scripts_are_tools() {
    let app = MemorySources::new()
        .with_executable("tools/sum.py", "#!/usr/bin/env python3\n\"\"\"Adds.\"\"\"\n")
        .with_executable("tools/lookup.py", "#!/usr/bin/env python3\n")
        .with_executable("tools/helped", "#!/bin/sh\n[ \"$1\" = --help ] && echo hi\n")
        .with("tools/module.py", "\"\"\"No tool.\"\"\"\n")
        .with("tools/lookup.yaml", GOOD);
    let (tools, diagnostics) = load(&app);
    assert_eq!(diagnostics, []);
    let shown: Vec<_> = tools.iter().map(|t| (t.name.as_str(), t.description.as_str(), t.has_help, t.bare)).collect();
    assert_eq!(
        shown,
        [("helped", "", true, true), ("lookup", "Looks up an issue.", false, false), ("sum", "Adds.", false, true)]
    );
    assert_eq!(tools[2].command, Command::Direct(vec!["./tools/sum.py".to_owned()]));
}

#[test]
fn two_files_for_one_name_are_an_error() {
    let app = MemorySources::new().with_executable("tools/a.py", "").with_executable("tools/a.sh", "");
    let (tools, diagnostics) = load(&app);
    assert_eq!(tools.len(), 1);
    assert_eq!(diagnostics[0].message, "two tools are named `a`: this one, and `tools/a.py`");
}

#[test]
fn the_editor_schema_takes_the_examples() {
    let schema = crate::schema_json::object(&TOOL);
    assert!(jsonschema::meta::is_valid(&schema));
    let file = SourceFile::new("x", GOOD);
    let text = yaml::parse(&file).0.expect("tree").to_json().expect("json");
    assert!(jsonschema::is_valid(&schema, &serde_json::from_str(&text).expect("json")));
}

/// `b-stages` §20.5: a missing script is reported with the files of its expected directory, without directories and
/// others.
#[test]
fn a_missing_script_is_reported_with_the_files_beside_it() {
    let text = "name: lookup\ndescription: d\ncommand: python3 tools/net/lookp.py\n";
    let (_, diagnostics) =
        load(&app(&[("tools/lookup.yaml", text), ("tools/net/lookup.py", "print()"), ("tools/lookp.d/x", "")]));
    let reported: Vec<_> = diagnostics.iter().map(|d| (d.message.as_str(), d.hint.as_deref())).collect();
    assert!(reported.iter().any(|(_, hint)| hint.is_some_and(|hint| hint.contains("lookup.py"))), "{reported:?}");
    assert!(!format!("{reported:?}").contains("lookp.d"), "{reported:?}");
}

/// `b-stages` §20.5: the script that a command runs is looked up wherever it is, as that of a step is.
#[test]
fn the_script_of_a_tool_may_be_anywhere() {
    let reported = |command: &str| {
        let text = format!("name: peek\ndescription: d\ncommand: {command}\n");
        let (_, diagnostics) = load(&app(&[("tools/peek.yaml", text.as_str()), ("lib/peek.py", "print()")]));
        diagnostics.iter().map(|found| found.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(reported("python3 lib/pek.py --all"), ["the command names `lib/pek.py`, which does not exist"]);
    for sound in ["python3 lib/peek.py", "python3 /opt/peek.py", "jq .", "cat notes/today.md"] {
        assert_eq!(reported(sound), [""; 0], "{sound}");
    }
}

/// `b-stages` §20.5: arguments are on stdin, and never in the command line.
#[test]
fn a_reference_in_a_command_is_an_error() {
    let text = "name: a\ndescription: Looks up {{args.number}}.\ncommand: \"look {{args.number}}\"\napprovalKey: \"a({{args.number}})\"\ninputSchema: {type: object, properties: {number: {type: integer, default: \"{{args.number}}\"}}}\n";
    assert_eq!(
        faults(&[("tools/a.yaml", text)]),
        ["P0317 3:16 `command` is not a template: `{{args.number}}` would be passed on as written"]
    );
}
