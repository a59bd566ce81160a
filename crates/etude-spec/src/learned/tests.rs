use super::*;
use crate::source::MemorySources;

const GOOD: &str = "learn: 1\nstate: shadow\nfamily: return_items\n";

const PIPELINE: &str = "name: p\ndescription: d\nsteps:\n  - {name: a, type: tool, tool: get_order, args: {order_id: A}}\n  - {name: allowed, type: llm, prompt: May I?}\n";

const TOOL: &str = "name: get_order\ndescription: Looks.\ncommand: python3 x.py\n";

fn shown(found: &[Diagnostic]) -> Vec<String> {
    let one = |d: &Diagnostic| {
        let (line, column) = d.position().unwrap_or_default();
        format!("{} {}:{line}:{column} {}", d.severity.word(), d.file.path(), d.message)
    };
    found.iter().map(one).collect()
}

fn read_text(text: &str) -> (Option<Learned>, Vec<String>) {
    let (learned, found) = read(&SourceFile::new("learned/p/learn.yaml", text), "p", true);
    (learned, shown(&found))
}

/// 1.2: `learn`, `state` and `family` are enough.
#[test]
fn three_fields_are_enough() {
    let (learned, found) = read_text(GOOD);
    let learned = learned.expect("read");
    assert_eq!(
        (learned.state, learned.family.as_str(), learned.content.clone()),
        (LearnedState::Shadow, "return_items", None)
    );
    assert_eq!((learned.requests, learned.leave_one_out, found), (0, Counts::default(), Vec::new()));
}

/// 1.5: counts of the evidence and an open hole are read.
#[test]
fn evidence_and_open_holes_are_read() {
    let more = "evidence: {requests: 4, runs: 5, leave_one_out: {agreed: 3, fell_back: 1, disagreed: 0}, wrong_rate_bound: 0.6}\n\
                holes: [{step: a, argument: /x, set: null}]\naccept_risk: true\n";
    let learned = read_text(&format!("{GOOD}{more}")).0.expect("read");
    let counts = Counts { agreed: 3, fell_back: 1, disagreed: 0 };
    assert_eq!((learned.requests, learned.runs, learned.leave_one_out), (4, 5, counts));
    assert!(learned.has_open_hole && learned.accept_risk);
    assert!(!read_text(&format!("{GOOD}holes: [{{step: a, set: [x]}}]\n")).0.expect("read").has_open_hole);
}

/// L-37, A-2.2: mistakes have their place and a hint; an unknown state is not a state.
#[test]
fn mistakes_are_located() {
    assert_eq!(
        read_text("learn: 2\nstat: shadow\nfamily: [x]\n"),
        (
            None,
            vec![
                "error learned/p/learn.yaml:1:8 `learn` cannot be 2".to_owned(),
                "error learned/p/learn.yaml:2:1 unknown field `stat` in the learn.yaml of `p`".to_owned(),
                "error learned/p/learn.yaml:3:9 `family` must be text, not a list".to_owned(),
            ]
        )
    );
    assert_eq!(read_text("").0, None);
    let (learned, found) = read_text(&GOOD.replace("shadow", "ready"));
    assert_eq!(learned, None);
    assert_eq!(found, ["error learned/p/learn.yaml:2:8 `state` cannot be `ready`"]);
}

/// 1.2: a pipeline in `learned/` receives no requests, whatever its file says; a demoted pipeline is a warning.
#[test]
fn places_and_demotions_are_reported() {
    let found = read_text(&GOOD.replace("shadow", "active")).1;
    assert_eq!(
        found,
        [
            "error learned/p/learn.yaml:2:8 learned pipeline `p` is `active`, but it is in `learned/`, which the router ignores"
        ]
    );
    let found = read_text(&GOOD.replace("shadow", "demoted")).1;
    assert_eq!(found, ["warning learned/p/learn.yaml:2:8 learned pipeline `p` is demoted: no request is routed to it"]);
}

fn app(files: &[(&str, &str)]) -> MemorySources {
    files.iter().fold(MemorySources::new(), |sources, (path, text)| sources.with(path, *text))
}

/// 1.2: learned pipelines are found in both directories, by name.
#[test]
fn all_are_found_where_they_lie() {
    let files = [("learned/p/learn.yaml", GOOD), ("pipelines/q/learn.yaml", "learn: 1\n"), ("pipelines/r/x", "")];
    let names: Vec<String> = all(&app(&files)).iter().map(Located::dir).collect();
    assert_eq!(names, ["learned/p", "pipelines/q"]);
}

/// L-65: the content consists of pipeline, steps, schemas, descriptions and schemas of its tools, and the rules, and
/// nothing else.
#[test]
fn content_is_what_decides_about_a_pipeline() {
    let base = [
        ("p/pipeline.yaml", PIPELINE),
        ("p/steps/a.py", "x = 1\n"),
        ("p/learn.yaml", GOOD),
        ("tools/get_order.yaml", TOOL),
        ("tools/other.yaml", "name: other\ndescription: Other.\ncommand: python3 x.py\n"),
        ("SKILL.md", "---\nname: s\ndescription: d\n---\n# Orders\n\nLook first.\n\n# Weather\n\nSunny.\n"),
    ];
    let hash = |changes: &[(&str, &str)]| {
        let mut files: Vec<(&str, &str)> =
            base.iter().filter(|(path, _)| changes.iter().all(|(p, _)| p != path)).copied().collect();
        files.extend(changes);
        content_of(&app(&files), "p")
    };
    let own = hash(&[]);
    assert_eq!(own.len(), 64);
    for kept in [
        ("p/learn.yaml", "learn: 1\nstate: active\nfamily: x\n"),
        ("p/REPORT.md", "x"),
        ("p/tests/9c.yaml", "x"),
        ("tools/other.yaml", "name: other\ndescription: New.\ncommand: python3 x.py\n"),
        ("SKILL.md", "---\nname: s\ndescription: d\n---\n# Orders\n\nLook first.\n\n# Weather\n\nRain.\n"),
    ] {
        assert_eq!(hash(&[kept]), own, "{}", kept.0);
    }
    for changed in [
        ("p/pipeline.yaml", "name: p\ndescription: e\nsteps: []\n"),
        ("p/steps/a.py", "x = 2\n"),
        ("p/schemas/s.json", "{}"),
        ("tools/get_order.yaml", "name: get_order\ndescription: Sees.\ncommand: python3 x.py\n"),
        (
            "tools/get_order.yaml",
            "name: get_order\ndescription: Looks.\ninputSchema: {type: object, required: [a]}\ncommand: python3 x.py\n",
        ),
        ("SKILL.md", "---\nname: s\ndescription: d\n---\n# Orders\n\nLook twice.\n\n# Weather\n\nSunny.\n"),
    ] {
        assert_ne!(hash(&[changed]), own, "{}", changed.0);
    }
    // No section names the tool that writes, so the question has the whole body.
    let write = "name: p\ndescription: d\nsteps:\n  - {name: a, type: tool, tool: get_order, args: {order_id: A}}\n  - {name: allowed, type: llm, prompt: May I?}\n  - {name: b, type: tool, tool: refund, args: {}}\n";
    let read = "name: get_order\ndescription: Looks.\neffects: false\ncommand: python3 x.py\n";
    let skill =
        |weather: &str| format!("---\nname: s\ndescription: d\n---\n# Orders\n\nLook.\n\n# Weather\n\n{weather}.\n");
    let with = |weather: &str| {
        hash(&[("p/pipeline.yaml", write), ("tools/get_order.yaml", read), ("SKILL.md", &skill(weather))])
    };
    assert_ne!(with("Sunny"), with("Rain"));
}

/// L-65: only the rules in the question count. A hash of an earlier version, which had the rules of all tools, stays
/// valid until a part of its content changes.
#[test]
fn rules_of_tools_that_only_read_are_no_content() {
    let write = "name: p\ndescription: d\nsteps:\n  - {name: a, type: tool, tool: get_order, args: {order_id: A}}\n  - {name: allowed, type: llm, prompt: May I?}\n  - {name: b, type: tool, tool: refund, args: {}}\n";
    let read = "name: get_order\ndescription: Looks.\neffects: false\ncommand: python3 x.py\n";
    let skill = |orders: &str, refunds: &str| {
        format!("---\nname: s\ndescription: d\n---\n# Orders\n\n{orders}.\n\n# Refunds\n\n{refunds}.\n")
    };
    let sources = |learn: &str, orders: &str, refunds: &str| {
        app(&[
            ("p/pipeline.yaml", write),
            ("p/learn.yaml", learn),
            ("tools/get_order.yaml", read),
            ("SKILL.md", &skill(orders, refunds)),
        ])
    };
    let now = |learn: &str, orders: &str, refunds: &str| content_of(&sources(learn, orders, refunds), "p");
    let own = now(GOOD, "Look", "Once");
    assert_eq!(now(GOOD, "See", "Once"), own);
    assert_ne!(now(GOOD, "Look", "Twice"), own);
    let (tools, _) = crate::tool::load(&sources(GOOD, "Look", "Once"));
    let files = [("pipeline.yaml".to_owned(), write.as_bytes().to_vec())].into();
    let read = crate::skill::Instructions::read(&sources(GOOD, "Look", "Once"), "SKILL.md").expect("a skill");
    let earlier = content::hash(
        &files,
        &content::Steps::in_files(&files),
        (&tools, Some(&read.body)),
        content::Rules::OfAllTools,
    );
    assert_ne!(earlier, own);
    let learn = format!("learn: 1\nstate: active\nfamily: x\ncontent: {earlier}\n");
    assert_eq!(now(&learn, "Look", "Once"), earlier);
    assert_eq!(now(&learn, "See", "Once"), now(GOOD, "See", "Once"));
}

/// Sources that note which files are read.
struct Noting(MemorySources, std::sync::Mutex<Vec<String>>);

impl Sources for Noting {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadFailure> {
        self.1.lock().expect("not poisoned").push(path.to_owned());
        self.0.read(path, limit)
    }

    fn list(&self, dir: &str) -> Result<Vec<crate::source::Entry>, ReadFailure> {
        self.0.list(dir)
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        self.0.kind(path)
    }
}

/// L-76: the contents of several pipelines read each file once, and what they have in common once for all. Each content
/// says which tools the pipeline calls.
#[test]
fn contents_read_each_file_once() {
    let files = [
        ("SKILL.md", "---\nname: s\ndescription: d\n---\nBe brief.\n"),
        ("tools/get_order.yaml", TOOL),
        ("pipelines/p/pipeline.yaml", PIPELINE),
        ("pipelines/p/learn.yaml", GOOD),
        ("pipelines/q/pipeline.yaml", PIPELINE),
        ("pipelines/q/learn.yaml", GOOD),
    ];
    let sources = Noting(app(&files), std::sync::Mutex::default());
    assert!(is_any(&sources));
    let contents = Contents::new(&sources);
    let [p, q] = ["pipelines/p", "pipelines/q"].map(|dir| contents.read(dir));
    assert_eq!((&p.hash, &q.hash), (&content_of(&sources.0, "pipelines/p"), &p.hash));
    assert_eq!((p.called, q.called), (called_by(&sources.0, "pipelines/p"), called_by(&sources.0, "pipelines/q")));
    let mut read = sources.1.into_inner().expect("not poisoned");
    read.sort_unstable();
    let mut all = files.map(|(path, _)| path);
    all.sort_unstable();
    assert_eq!(read, all);
    assert!(!is_any(&app(&files[..3])));
}

/// L-36: a learn.yaml that is not a file keeps requests away from the pipeline, and is reported.
#[test]
fn a_state_that_is_not_a_file_is_an_error() {
    let sources =
        crate::source::MemorySources::new().with("pipelines/p/pipeline.yaml", "x").with_dir("pipelines/p/learn.yaml");
    assert!(!is_routable(&sources, "p"));
    let found = crate::pipeline::learned::check(&sources);
    assert!(found.iter().any(|fault| fault.is_error() && fault.file.path() == "pipelines/p/learn.yaml"), "{found:?}");
}

/// 2.7: `check` warns while the question before the write has a copy of rules that SKILL.md does not have; a prompt in a
/// person's words is not compared.
#[test]
fn a_question_with_other_rules_is_reported() {
    let rules = "## Returns\n\nOnly return_items\nof delivered {{orders}}.\n";
    let pipeline = |rules: &str| {
        format!(
            "name: p\ndescription: d\nsteps:\n  - name: allowed\n    type: llm\n    prompt: |-\n      May I?\n\n      Rules:\n{}\n      Do they?\n",
            rules.lines().map(|line| format!("      {line}\n")).collect::<String>()
        )
    };
    let warned = |skill: &str, pipeline: &str| {
        let skill = format!("---\nname: s\ndescription: d\n---\n# Desk\n\n{skill}\n## Other\n\nHello.\n");
        let files =
            [("SKILL.md", skill.as_str()), ("learned/p/learn.yaml", GOOD), ("learned/p/pipeline.yaml", pipeline)];
        let sources = app(&files);
        has_other_rules(&sources, "learned/p", "return_items")
    };
    let own = pipeline(&rules.replace("{{", "\\{{"));
    assert!(!warned(rules, &own), "the same rules");
    assert!(!warned(&rules.replace("items\nof", "items of"), &own), "another line break");
    assert!(warned(&format!("{rules}Never on Sundays.\n"), &own), "a new rule");
    assert!(warned(&rules.replace("delivered", "pending"), &own), "a changed rule");
    assert!(!warned("Never.\n", PIPELINE), "a question in a person's words");
}
