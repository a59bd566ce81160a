//! Discovery, plans and files of apps in memory.

use etude_core::effect::Command;
use std::sync::Arc;

use etude_core::plan::{Binding, Choose, Step, StepKind};
use etude_spec::pipeline::{App, Pipeline};
use etude_spec::source::{FileKind, MemorySources, ReadFailure, Sources};
use etude_spec::stage_machine::{Machines, Rules};
use etude_spec::{Code, Diagnostic, render};

fn pipeline(name: &str, rest: &str) -> String {
    format!("name: {name}\ndescription: d\n{rest}")
}

const STEP: &str = "steps:\n- {name: a, type: code, command: 'true'}\n";

fn load(sources: &MemorySources, name: &str) -> Pipeline {
    let (pipeline, diagnostics) = App::new(sources).pipeline(name);
    let text: Vec<_> = diagnostics.iter().map(|d| render::text(d, false)).collect();
    pipeline.unwrap_or_else(|| panic!("{}", text.join("\n")))
}

fn one(rest: &str) -> Pipeline {
    load(&MemorySources::new().with("pipelines/p/pipeline.yaml", pipeline("p", rest)), "p")
}

fn codes(sources: &MemorySources) -> Vec<Code> {
    App::new(sources).check(&[]).diagnostics.iter().map(|d| d.code).collect()
}

/// L-63, L-80: a step cannot run a learned pipeline, because nothing would confirm its writes there.
#[test]
fn a_learned_pipeline_is_no_sub_pipeline() {
    let sources = MemorySources::new()
        .with("pipelines/p/pipeline.yaml", pipeline("p", "steps:\n- {name: a, type: pipeline, pipeline: q}\n"))
        .with("pipelines/q/pipeline.yaml", pipeline("q", STEP));
    assert_eq!(codes(&sources), []);
    let learned = sources.with("pipelines/q/learn.yaml", "learn: 1\nstate: active\nfamily: q\n");
    assert_eq!(codes(&learned), [Code::UnknownPipeline]);
}

/// A-1.2: directories whose names start with `_` are not business pipelines, even broken ones.
#[test]
fn underscore_directories_are_not_routable() {
    let sources = MemorySources::new()
        .with("pipelines/good/pipeline.yaml", pipeline("good", STEP))
        .with("pipelines/_constructor/pipeline.yaml", pipeline("_constructor", STEP))
        .with("pipelines/_shared/pipeline.yaml", "this: [is not\n  a pipeline")
        .with("pipelines/README.md", "notes")
        .with_dir("pipelines/empty");
    let app = App::new(&sources);
    let (summaries, warnings) = app.summaries();
    assert_eq!(summaries.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["good"]);
    assert_eq!(warnings.iter().map(|d| d.code).collect::<Vec<_>>(), [Code::NoPipelineFile]);
    assert!(app.discovery().constructor && !app.discovery().destructor);
    assert_eq!(codes(&sources), [Code::NoPipelineFile]);
    assert!(app.pipeline("_constructor").0.is_some());
}

/// A-1.4: a definition whose name ends in `.yml` is named in the warning about its directory.
#[test]
fn a_definition_with_another_ending_is_named() {
    let sources = MemorySources::new()
        .with("pipelines/p/pipeline.yml", pipeline("p", STEP))
        .with("pipelines/_constructor/pipeline.yml", pipeline("_constructor", STEP))
        .with("machines/m/machine.yml", "id: m\n");
    let machines = Machines::new(&sources, Rules::default()).check(&[]);
    let found: Vec<_> = App::new(&sources).check(&[]).diagnostics.into_iter().chain(machines.diagnostics).collect();
    assert_eq!(found.iter().filter(|d| d.is_error()).count(), 0);
    let hints: Vec<_> = found.iter().map(|d| d.hint.as_deref().unwrap_or_default()).collect();
    let pipeline = "rename `pipeline.yml` to `pipeline.yaml`";
    assert_eq!(hints, [pipeline, pipeline, "rename `machine.yml` to `machine.yaml`"]);
}

/// A-3.2: scripts of the app that the system cannot start get a warning; a named interpreter needs no execute
/// permission.
#[test]
fn scripts_that_cannot_be_started_are_warned_of() {
    let found = |command: &str, text: &str, is_executable: bool| -> Vec<String> {
        let rest = format!("steps:\n- {{name: a, type: code, command: {command}}}\n");
        let sources = MemorySources::new().with("pipelines/p/pipeline.yaml", pipeline("p", &rest));
        let sources = match is_executable {
            true => sources.with_executable("pipelines/p/steps/a.py", text),
            false => sources.with("pipelines/p/steps/a.py", text),
        };
        let diagnostics = App::new(&sources).check(&[]).diagnostics;
        let shown = |d: &Diagnostic| format!("{}; {}", d.message, d.hint.as_deref().unwrap_or_default());
        diagnostics.iter().inspect(|d| assert_eq!(d.code, Code::UnusableScript)).map(shown).collect()
    };
    let line = "#!/usr/bin/env python3\n";
    assert_eq!(found("steps/a.py", line, true), [""; 0]);
    assert_eq!(found("python3 steps/a.py", "\u{feff}print()\r\n", false), [""; 0]);
    assert_eq!(
        found("./steps/a.py", line, false),
        [
            "the script `./steps/a.py` has no execute permission; set it with `chmod +x`, or name its interpreter: `python3 ./steps/a.py`"
        ]
    );
    assert_eq!(
        found("steps/a.py", "#!/usr/bin/env python3\r\nprint()\r\n", true),
        ["the script `steps/a.py` has a carriage return at the end of its `#!` line; save it with Unix line ends"]
    );
    let mark = "the script `steps/a.py` has a byte order mark before its `#!` line; save it as UTF-8 without one";
    assert_eq!(found("steps/a.py", &format!("\u{feff}{line}"), true), [mark]);
}

/// A-1.3: one bad pipeline never hides the good ones, however many there are.
#[test]
fn a_bad_pipeline_hides_nothing() {
    let mut sources = MemorySources::new();
    for i in 0..200 {
        let name = format!("p{i:03}");
        let steps = if i == 77 { "steps: []\n" } else { STEP };
        sources = sources.with(&format!("pipelines/{name}/pipeline.yaml"), pipeline(&name, steps));
    }
    let app = App::new(&sources);
    let (summaries, _) = app.summaries();
    assert_eq!(summaries.len(), 200);
    assert_eq!(summaries.iter().filter(|s| !s.valid).map(|s| s.name.as_str()).collect::<Vec<_>>(), ["p077"]);
    assert!(summaries.is_sorted_by(|a, b| a.name < b.name));
    let report = app.check(&[]);
    assert_eq!((report.checked, report.broken.as_slice()), (200, ["p077".to_owned()].as_slice()));
    assert_eq!(app.check(&["p001"]).diagnostics, []);
}

/// A-1.2: a directory of definitions that cannot be listed is an error, not an app without definitions.
#[test]
fn unlisted_directories_are_errors() {
    let sources = ["pipelines", "machines", "tools", "tests", "learned", "skills"]
        .iter()
        .fold(MemorySources::new(), |sources, path| sources.with(path, "x"));
    let machines = Machines::new(&sources, Rules::default());
    let known = etude_spec::test::Known { pipelines: &[], machines: &[], input: &|_| None };
    let mut found = App::new(&sources).check(&[]).diagnostics;
    found.extend(machines.diagnostics().to_vec());
    found.extend(etude_spec::tool::load(&sources).1);
    found.extend(etude_spec::test::check(&sources, known));
    found.extend(etude_spec::pipeline::learned::check(&sources));
    found.extend(etude_spec::pipeline::unread_skills(&sources));
    let shown: Vec<_> = found.iter().map(|d| (d.message.as_str(), d.is_error(), d.hint.is_some())).collect();
    assert_eq!(
        shown,
        [
            ("`pipelines` cannot be read: it is not a directory", true, true),
            ("`machines` cannot be read: it is not a directory", true, true),
            ("`tools` cannot be read: it is not a directory", true, true),
            ("`tests` cannot be read: it is not a directory", true, true),
            ("`learned` cannot be read: it is not a directory", false, true),
            ("`skills` cannot be read: it is not a directory", false, true),
        ]
    );
    assert_eq!(App::new(&MemorySources::new()).check(&[]).diagnostics, []);
}

/// X-3, C-2.6: a step names a skill whose file is in lower case; a check of the app warns of such files.
#[test]
fn skills_in_the_wrong_case_are_reported() {
    let step = "steps:\n- {name: a, type: skill, skill: tidy, request: go}\n";
    let sources = MemorySources::new()
        .with("pipelines/p/pipeline.yaml", pipeline("p", step))
        .with("skills/tidy/skill.md", "Tidy up.\n")
        .with(".claude/skills/other/Skill.md", "Other.\n")
        .with("skill.md", "The app.\n");
    let found = App::new(&sources).check(&[]).diagnostics;
    let unknown = found.iter().find(|d| d.code == Code::UnknownSkill).expect("there is no such skill");
    assert_eq!(unknown.hint.as_deref(), Some("rename `skills/tidy/skill.md` to `SKILL.md`"));
    let warned = etude_spec::pipeline::unread_skills(&sources);
    assert!(warned.iter().all(|d| d.code == Code::FileCase && !d.is_error()), "{warned:?}");
    let files: Vec<_> = warned.iter().map(|d| d.file.path()).collect();
    assert_eq!(files, ["skill.md", "skills/tidy/skill.md", ".claude/skills/other/Skill.md"]);
    let broken = MemorySources::new()
        .with("skills/a/SKILL.md", "---\nallowed-tools: {Bash: x}\n---\nx\n")
        .with_dir("skills/b/SKILL.md");
    let warned = etude_spec::pipeline::unread_skills(&broken);
    let shown: Vec<_> = warned.iter().map(|d| (d.file.path(), d.code, d.is_error())).collect();
    assert_eq!(shown, [("skills/a/SKILL.md", Code::WrongType, false), ("skills/b/SKILL.md", Code::Unreadable, false)]);
    let both = MemorySources::new().with("skills/x/SKILL.md", "x").with("skills/x/skill.md", "y");
    assert_eq!(etude_spec::pipeline::unread_skills(&both), []);
}

/// X-3, D-3.1: findings in the frontmatter of a step's skill are part of the check, once.
#[test]
fn warnings_of_a_steps_skill_are_reported() {
    let step = "steps:\n- {name: a, type: skill, skill: tidy, request: go}\n- {name: b, type: skill, skill: tidy, request: go}\n";
    let sources = MemorySources::new()
        .with("pipelines/p/pipeline.yaml", pipeline("p", step))
        .with("skills/tidy/SKILL.md", "---\nname: tidy\nallowed-tools: Bash Bash(rm *, deny)\n---\nTidy up.\n");
    let found = App::new(&sources).check(&[]).diagnostics;
    let places: Vec<_> = found.iter().map(|d| (d.file.path(), d.position().map(|at| at.0), d.is_error())).collect();
    assert_eq!(places, [("skills/tidy/SKILL.md", Some(3), false)], "{found:?}");
}

/// A-2.3: a file over 1 MiB is refused, also one that is unreadable or cannot be decoded.
#[test]
fn unreadable_files_are_reported() {
    struct Broken;
    impl Sources for Broken {
        fn read(&self, _: &str, _: u64) -> Result<Vec<u8>, ReadFailure> {
            Err(ReadFailure::Other("permission denied".to_owned()))
        }
        fn list(&self, _: &str) -> Result<Vec<etude_spec::source::Entry>, ReadFailure> {
            Ok(vec![etude_spec::source::Entry { name: "p".to_owned(), kind: FileKind::Dir }])
        }
        fn kind(&self, _: &str) -> Result<FileKind, ReadFailure> {
            Ok(FileKind::Dir)
        }
    }
    let report = App::new(&Broken).check(&[]);
    let text = render::text(&report.diagnostics[0], false);
    assert_eq!(
        text,
        "error[P0101]: `pipelines/p/pipeline.yaml` cannot be read: permission denied\n--> pipelines/p/pipeline.yaml\n |\n\
         hint: make it a regular file of the app that you can read, or remove it"
    );
    let large = pipeline("p", STEP) + "#" + &"x".repeat(1 << 20);
    assert_eq!(codes(&MemorySources::new().with("pipelines/p/pipeline.yaml", large)), [Code::TooLarge]);
    let latin = b"name: p\ndescription: caf\xe9\n".to_vec();
    assert_eq!(codes(&MemorySources::new().with("pipelines/p/pipeline.yaml", latin)), [Code::NotUtf8]);
}

/// A-3.2, X-2: the command and the settings of a code step are lowered.
#[test]
fn code_steps_are_lowered() {
    let p = one(
        "steps:\n- {name: a, type: code, command: 'cat x.json | head', env: {K: \"v-{{input.q}}\"}, allow_exit: [0, 3], retry: {max: 2, on: [75, timeout]}, timeout: 1.5}\ninput: {q: string}\n",
    );
    let step = &p.sequence.steps[0];
    assert_eq!((step.timeout_ms, step.origin.line, step.origin.column), (Some(1_500), 4, 10));
    let StepKind::Code(code) = &step.kind else { panic!("{step:?}") };
    assert_eq!(code.command, Command::Shell("cat x.json | head".to_owned()));
    assert_eq!((code.allow_exit.as_slice(), code.env.len()), ([0, 3].as_slice(), 1));
    let retry = code.retry.as_ref().unwrap();
    assert_eq!((retry.max, retry.backoff_ms, retry.on.len()), (2, 1_000, 2));
}

/// L-49: the questions that share a call are known. A `when` or a `require` that refers to none of them does not
/// matter, nor do steps between the children of a group.
#[test]
fn questions_of_one_call_are_known() {
    let ask = |name: &str, more: &str| {
        let choose = r#"{from: "{{input.l}}"}"#;
        format!("{{name: {name}, type: llm, prompt: Which?, choose: {choose}{more}}}")
    };
    let steps = [
        ask("a", r#", require: {value: "{{input.l}}", exists: true}"#),
        ask("b", r#", when: {value: "{{input.l}}", exists: true}"#),
        ask("c", r#", when: {value: "{{b.output}}", equals: x}"#),
        ask("d", ", retry: 1"),
        ask("e", ", retry: 1, timeout: 5"),
    ];
    let group =
        [ask("f", ""), "{name: g, type: code, command: 'true'}".to_owned(), ask("h", ""), ask("i", ", retry: 0")];
    let text = format!(
        "input: {{l: array}}\nsteps: [{}, {{name: z, type: parallel, steps: [{}]}}]\n",
        steps.join(", "),
        group.join(", ")
    );
    let p = one(&text);
    let names = |steps: &[Arc<Step>]| steps.iter().map(|step| step.name.clone()).collect::<Vec<_>>().join(" ");
    let choose = |step: &Step| -> Option<Choose> {
        let StepKind::Llm(llm) = &step.kind else { return None };
        llm.choose.clone()
    };
    let together = |step: &Arc<Step>| choose(step).map(|choose| (names(&choose.together), choose.beside.is_some()));
    let of_sequence: Vec<_> = p.sequence.steps.iter().filter_map(together).collect();
    assert_eq!(of_sequence, ["b", "", "", "", ""].map(|names| (names.to_owned(), false)));
    let StepKind::Parallel(group) = &p.sequence.steps[5].kind else { panic!("a group") };
    let beside: Vec<_> = group.steps.iter().filter_map(|step| choose(step)?.beside).map(|all| names(&all)).collect();
    assert_eq!(beside, ["h", "", ""]);
}

/// X-3: the input of another pipeline is bound in its order of declaration, with defaults filled in.
#[test]
fn input_of_other_pipelines_is_bound() {
    let inner = pipeline("inner", &format!("input: {{a: string, n: {{type: integer, default: 7}}, l: array}}\n{STEP}"));
    let outer = pipeline(
        "outer",
        "input: {q: string}\nsteps:\n- name: call\n  type: pipeline\n  pipeline: inner\n  input: {l: [1, {k: .5}], a: \"<{{input.q}}>\"}\n",
    );
    let sources =
        MemorySources::new().with("pipelines/inner/pipeline.yaml", inner).with("pipelines/outer/pipeline.yaml", outer);
    let p = load(&sources, "outer");
    let StepKind::Pipeline(call) = &p.sequence.steps[0].kind else { panic!() };
    let text: Vec<String> = call
        .input
        .iter()
        .map(|(name, value)| match value {
            Binding::Literal(json) => format!("{name}={json:?}"),
            Binding::Template(_) => format!("{name}=template"),
            Binding::Reference(reference) => format!("{name}={reference}"),
        })
        .collect();
    assert_eq!(text, ["a=template", "n=7", r#"l=[1,{"k":0.5}]"#]);
    assert!(p.files.contains(&"pipelines/inner/pipeline.yaml".to_owned()));
}

/// A-5.1: constructor and destructor have the input of the business pipeline, so every name is allowed.
#[test]
fn scope_pipelines_may_refer_to_any_input() {
    let text = pipeline("_destructor", "steps:\n- {name: a, type: llm, prompt: \"{{input.anything}}\"}\n");
    let sources = MemorySources::new().with("pipelines/_destructor/pipeline.yaml", text);
    assert_eq!(codes(&sources), []);
}

/// X-1: the fingerprint follows the definition, scripts and schemas, and nothing else.
#[test]
fn fingerprints_follow_what_a_step_is_made_of() {
    let print = |command: &str, comment: &str, script: &str| {
        let text = pipeline(
            "p",
            &format!("steps:\n- {{name: a, type: code, command: '{command}', cache: true}} # {comment}\n"),
        );
        let sources =
            MemorySources::new().with("pipelines/p/pipeline.yaml", text).with("pipelines/p/steps/a.sh", script);
        load(&sources, "p").sequence.steps[0].cache.as_ref().unwrap().fingerprint
    };
    let first = print("sh steps/a.sh", "x", "echo 1");
    assert_eq!(first, print("sh steps/a.sh", "y", "echo 1"));
    assert_ne!(first, print("sh steps/a.sh", "x", "echo 2"));
    assert_ne!(first, print("sh  steps/a.sh", "x", "echo 1"));
}

/// Runs are pinned to the files they depend on, without hidden files and caches.
#[test]
fn files_of_a_run_are_listed() {
    let steps = "steps:\n- {name: a, type: code, command: python3 ../../tools/t.py run.txt}\n- {name: b, type: llm, prompt: x, schema: schemas/b.json}\n";
    let sources = MemorySources::new()
        .with("pipelines/p/pipeline.yaml", pipeline("p", steps))
        .with("pipelines/p/schemas/b.json", r##"{"$ref": "../../../shared/c.json#/$defs/x"}"##)
        .with("shared/c.json", r##"{"$defs": {"x": {"type": "string"}, "y": {"$ref": "#/$defs/x"}}}"##)
        .with("tools/t.py", "")
        .with("pipelines/p/run.txt", "")
        .with("pipelines/p/steps/lib/u.py", "")
        .with("pipelines/p/steps/__pycache__/u.pyc", "")
        .with("pipelines/p/steps/.hidden", "")
        .with("pipelines/p/notes.md", "");
    let p = load(&sources, "p");
    assert_eq!(
        p.files,
        [
            "pipelines/p/pipeline.yaml",
            "pipelines/p/run.txt",
            "pipelines/p/schemas/b.json",
            "pipelines/p/steps/lib/u.py",
            "shared/c.json",
            "tools/t.py",
        ]
    );
    let StepKind::Llm(llm) = &p.sequence.steps[1].kind else { panic!() };
    let schema = llm.schema.as_ref().unwrap();
    assert_eq!(schema.violations(&serde_json::json!(5)).len(), 1);
    assert_eq!(schema.violations(&serde_json::json!("x")), []);
}

/// A-4.3: compiled patterns of all schemas share a limit. The error names the schema that exceeds it.
#[test]
fn patterns_of_schemas_share_a_limit() {
    // Each counts as 16 MiB of the 256 MiB, although none of them compiles.
    let of = |counts: std::ops::Range<u32>| -> String {
        counts.map(|n| format!("p{n}: {{pattern: 'a{{1000}}{{{n}}}'}}, ")).collect()
    };
    let step = |name: &str, properties: String| {
        format!("- {{name: {name}, type: llm, prompt: x, schema: {{properties: {{{properties}}}}}}}\n  ")
    };
    let steps = [step("a", of(901..914)), step("b", of(801..805)), step("c", "q: {pattern: '^b$'}, ".into())].concat();
    let sources = MemorySources::new().with("pipelines/p/pipeline.yaml", pipeline("p", &format!("steps:\n  {steps}")));
    let (_, found) = App::new(&sources).pipeline("p");
    let shown: Vec<_> =
        found.iter().map(|d| (d.position().unwrap_or_default().0, d.message.contains("256 MiB"))).collect();
    assert!(found.iter().all(|d| d.code == Code::NotASchema), "{found:#?}");
    assert_eq!(shown, [(4, false), (5, true), (6, true)], "{found:#?}");
}

/// A-4.3: schema files with similar paths, and definitions with the name of a file, stay apart.
#[test]
fn schema_files_that_look_alike_stay_apart() {
    let steps = "steps:\n- {name: b, type: llm, prompt: x, schema: schemas/s.json}\n";
    let root = r##"{"$defs": {"pipelines_p_schemas_order_item.json": {"type": "boolean"}}, "type": "object", "properties": {
        "a": {"$ref": "order/item.json"}, "b": {"$ref": "order_item.json"},
        "c": {"$ref": "#/$defs/pipelines_p_schemas_order_item.json"}, "d": {"$ref": "order/item.json"}}}"##;
    let sources = MemorySources::new()
        .with("pipelines/p/pipeline.yaml", pipeline("p", steps))
        .with("pipelines/p/schemas/s.json", root)
        .with("pipelines/p/schemas/order/item.json", r#"{"type": "string"}"#)
        .with("pipelines/p/schemas/order_item.json", r#"{"type": "integer"}"#);
    let p = load(&sources, "p");
    let StepKind::Llm(llm) = &p.sequence.steps[0].kind else { panic!() };
    let schema = llm.schema.as_ref().unwrap();
    let good = serde_json::json!({"a": "x", "b": 1, "c": true, "d": "x"});
    assert_eq!(schema.violations(&good), []);
    for (name, wrong) in
        [("a", serde_json::json!(1)), ("b", "x".into()), ("c", "x".into()), ("d", serde_json::json!(1))]
    {
        let mut value = good.clone();
        value[name] = wrong;
        assert_eq!(schema.violations(&value).len(), 1, "{name}");
    }
}

/// `design: cli`: a diagnostic for programs has code, severity, message, file, line, column and hint.
#[test]
fn diagnostics_are_reported_as_json() {
    let text = pipeline("p", "setps: []\nsteps:\n- {name: a, type: code, command: x}\n");
    let sources = MemorySources::new().with("pipelines/p/pipeline.yaml", text);
    let report = App::new(&sources).check(&[]);
    let expected = serde_json::json!({
        "code": "P0201", "severity": "error", "message": "unknown field `setps` in pipeline `p`",
        "file": "pipelines/p/pipeline.yaml", "line": 3, "column": 1, "end_line": 3, "end_column": 6,
        "hint": "did you mean `steps`?",
    });
    assert_eq!(render::json(&report.diagnostics[0]), expected);
    let colored = render::text(&report.diagnostics[0], true);
    assert!(colored.contains("\u{1b}[") && !render::text(&report.diagnostics[0], false).contains('\u{1b}'));
}
