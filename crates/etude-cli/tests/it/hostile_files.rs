//! Bombs, pipes, devices, links and names in an app, whose author may be hostile.

use serde_json::{Value, json};

use crate::hostile::{link, pipe};
use crate::test::Test;

const HEAD: &str = "name: p\ndescription: A pipeline.\nsteps:\n";

fn with_yaml(text: &str) -> Test {
    Test::new().yaml("p", text)
}

/// aliases and depth cost nothing, and a file that is too large is not read.
#[test]
fn bombs_of_yaml_are_refused() {
    let mut aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..40 {
        aliases.push_str(&format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", ")));
    }
    for (bomb, reported) in [
        (aliases, "P0107"),
        ("[".repeat(400_000), "P0108"),
        ("{a: ".repeat(200_000), "P0108"),
        ("- ".repeat(400_000), "P0108"),
        ("? ".repeat(400_000), "P0108"),
        ("a: &a [*a, *a]\n".to_owned(), "P0106"),
        ("\0".repeat(1000), "P0104"),
    ] {
        let ran = with_yaml(&bomb).bounded(&["check"]).exit(3);
        assert!(ran.err().contains(&format!("error[{reported}]")), "{reported}: {}", ran.err());
    }
}

/// a line of 100 MB is not read, nor is one of zeros.
#[test]
fn a_line_of_100_mb_is_not_read() {
    let test = with_yaml("x");
    let file = std::fs::File::create(test.path("app/pipelines/p/pipeline.yaml")).expect("it can be written");
    file.set_len(100_000_000).expect("it can be long");
    test.bounded_by(1 << 20, &["check"]).exit(3).stderr_has("has 100,000,000 bytes; at most 1,048,576 are read");
}

/// of many faults only the first are rendered, without a line that is too long; programs get all of them.
#[test]
fn very_many_faults_are_drawn_in_part() {
    let prompt = "{{nope.output}} ".repeat(3000);
    let test = with_yaml(&format!("{HEAD}  - {{name: a, type: llm, prompt: \"{prompt}\"}}\n"));
    let ran = test.bounded(&["check"]).exit(3).stderr_has("2900 more are not shown");
    assert!(ran.err().len() < 100_000, "{} bytes", ran.err().len());
    let ran = test.bounded(&["check", "--format", "json"]).exit(3);
    assert_eq!(ran.value()["diagnostics"].as_array().map(Vec::len), Some(3000));
}

/// a schema that refers to itself is valid; one that multiplies itself is refused.
#[test]
fn references_of_schemas_neither_turn_nor_multiply() {
    let mut defs = serde_json::Map::from_iter([("d0".to_owned(), json!({"type": "string"}))]);
    for n in 1..30 {
        defs.insert(format!("d{n}"), json!({"allOf": vec![json!({"$ref": format!("#/$defs/d{}", n - 1)}); 10]}));
    }
    let tower = json!({"$ref": "#/$defs/d29", "$defs": defs}).to_string();
    let deep = "{\"items\":".repeat(100_000) + "{}" + &"}".repeat(100_000);
    let pattern = json!({"pattern": "((((a{1,1000}){1,1000}){1,1000}){1,1000})"}).to_string();
    for (schema, code) in [
        (tower.as_str(), 3),
        (deep.as_str(), 3),
        (pattern.as_str(), 3),
        ("{\"$ref\": \"#\"}", 0),
        ("{\"$ref\": \"b.json\"}", 0),
        ("{\"$ref\": \"../../../../etc/passwd\"}", 3),
    ] {
        let test = with_yaml(&format!("{HEAD}  - {{name: a, type: llm, prompt: x, schema: schemas/a.json}}\n"))
            .file("pipelines/p/schemas/a.json", schema)
            .file("pipelines/p/schemas/b.json", "{\"allOf\": [{\"$ref\": \"a.json\"}]}");
        let ran = test.bounded(&["check"]);
        assert_eq!(ran.code(), code, "{}: {}", &schema[..schema.len().min(80)], ran.err());
    }
}

/// a pattern that would become huge is refused before it is built; one that only looks costly is accepted.
#[test]
fn giant_patterns_are_refused() {
    for (pattern, code) in [("(a{1,1000}){1,1000}", 3), ("((a*)*)*b", 0), ("\\\\p{L}{1000}{1000}", 3)] {
        let step = format!(
            "  - {{name: a, type: code, command: \"true\", when: {{value: \"{{{{input.x}}}}\", matches: \"{pattern}\"}}}}\n"
        );
        let head = HEAD.replace("steps:", "input: {x: string}\nsteps:");
        with_yaml(&(head + &step)).bounded(&["check"]).exit(code);
    }
}

/// Every file of an app as a pipe without a writer: opening one would wait for ever.
#[test]
fn pipes_in_place_of_files_block_nothing() {
    let test = with_yaml(&format!(
        "{HEAD}  - {{name: a, type: llm, prompt: x, schema: schemas/a.json, validate: steps/v.py}}\n"
    ));
    for path in [
        "SKILL.md",
        "pipelines/p/schemas/a.json",
        "pipelines/p/steps/v.py",
        "pipelines/q/pipeline.yaml",
        "apps/a/APP.md",
        ".agents/apps/b/APP.md",
        ".agents/skills/s/SKILL.md",
        "tools/t.yaml",
        "tools/t.sh",
        "machines/m/machine.yaml",
        "x.skill.md",
        "below/y.skill.md",
        "tests/t.yaml",
    ] {
        pipe(&test, path);
    }
    let commands: &[&[&str]] = &[
        &["check"],
        &["list"],
        &["apps", "list"],
        &["apps", "check", "apps/a"],
        &["skill", "list"],
        &["skill", "run", "x"],
        &["skill", "run", "./x.skill.md"],
        &["skill", "check", ".agents/skills/s"],
        &["route", "hello"],
        &["run", "hello"],
        &["run", "--pipeline", "p"],
        &["run", "--skill", "hello"],
        &["test"],
        &["graph", "p"],
    ];
    for command in commands {
        test.bounded(command);
    }
    let configured = Test::new().yaml("p", &format!("{HEAD}  - {{name: a, type: code, command: \"true\"}}\n"));
    pipe(&configured, "etude.yaml");
    configured.bounded(&["run", "--pipeline", "p"]).exit(4).stderr_has("it is not a regular file");
}

/// The same with devices, which never end.
#[test]
fn devices_in_place_of_files_are_not_read() {
    let test = Test::new();
    for path in [
        "SKILL.md",
        "pipelines/p/pipeline.yaml",
        "apps/a/APP.md",
        "tools/t.yaml",
        "machines/m/machine.yaml",
        "x.skill.md",
        "etude.yaml",
    ] {
        link(&test, path, "/dev/zero");
    }
    for command in [
        &["check"][..],
        &["list"],
        &["apps", "list"],
        &["skill", "run", "x"],
        &["run", "--pipeline", "p"],
        &["run", "--skill", "x"],
    ] {
        test.bounded_by(1 << 20, command);
    }
}

/// definitions read nothing outside the app, whatever links lead there.
#[test]
fn links_lead_nowhere_outside() {
    let test = with_yaml(&format!("{HEAD}  - {{name: a, type: llm, prompt: x, schema: schemas/a.json}}\n"));
    test.put("elsewhere/secret", "CANARY\n");
    test.put("elsewhere/secret.json", "{\"title\": \"CANARY\", \"type\": 5}");
    test.put("elsewhere/dir/pipeline.yaml", "CANARY: {{CANARY}}\n");
    test.put("elsewhere/dir/APP.md", "---\nCANARY: 1\n---\nCANARY\n");
    test.put("elsewhere/dir/SKILL.md", "---\nCANARY: 1\n---\nCANARY\n");
    link(&test, "pipelines/p/schemas/a.json", &test.path("elsewhere/secret.json").display().to_string());
    link(&test, "pipelines/q", "../../elsewhere/dir");
    link(&test, "machines/m", "../../elsewhere/dir");
    link(&test, "tools/t.yaml", "../../elsewhere/secret");
    link(&test, "SKILL.md", "../elsewhere/dir/SKILL.md");
    for command in [
        &["check"][..],
        &["check", "--format", "json"],
        &["list"],
        &["run", "--pipeline", "p"],
        &["run", "--pipeline", "q"],
        &["run", "--skill", "x"],
        &["graph", "p"],
    ] {
        let ran = test.bounded(command);
        assert!(
            !ran.out().contains("CANARY") && !ran.err().contains("CANARY"),
            "{command:?}: {}{}",
            ran.out(),
            ran.err()
        );
    }
}

/// an image is a file of the app, also if it is a link, and is neither a pipe nor endless.
#[test]
fn images_stay_in_the_app() {
    let server = crate::server::Server::new([]);
    let images = "images: [\"{{where.output}}\"]\nretry: 0";
    let test = Test::new().pipeline("p", |p| p.note("where", "\"shot.png\"").llm("a", "look", images)).model(&server);
    test.put("elsewhere/secret.png", "\u{89}PNG\r\n\u{1a}\nCANARY");
    link(&test, "pipelines/p/shot.png", "../../../elsewhere/secret.png");
    test.bounded(&["run", "--pipeline", "p"]).stderr_has("leads out of the app");
    std::fs::remove_file(test.path("app/pipelines/p/shot.png")).expect("it is there");
    pipe(&test, "pipelines/p/shot.png");
    test.bounded(&["run", "--pipeline", "p"]).stderr_has("it is not a regular file");
    assert_eq!(server.calls(), 0, "no provider saw it");
}

/// files are created only inside the app, whatever links it has.
#[test]
fn nothing_is_created_by_way_of_a_link_of_the_app() {
    let test = Test::new().yaml("p", &format!("{HEAD}  - {{name: a, type: code, command: \"true\"}}\n"));
    for path in ["machines", "apps", ".agents"] {
        link(&test, path, "../elsewhere");
    }
    std::fs::rename(test.path("app/pipelines"), test.path("app/kept")).expect("it is there");
    link(&test, "pipelines", "../elsewhere");
    test.put("app/SKILL.md", "---\nname: app\ndescription: x\n---\n");
    for kind in ["pipeline", "machine", "app", "skill"] {
        test.run(&["new", kind, "fresh"]).exit(2).stderr_has("leads out of the app");
    }
    assert_eq!(std::fs::read_dir(test.path("elsewhere")).expect("it is there").count(), 0);
    // A link that stays inside is followed.
    std::fs::remove_file(test.path("app/pipelines")).expect("it is there");
    link(&test, "pipelines", "kept");
    test.run(&["new", "pipeline", "fresh"]).exit(0);
    assert!(test.path("app/kept/fresh/pipeline.yaml").exists());
}

/// chains of definitions end or are refused, and values of any depth are shown, compared and exported.
#[test]
fn long_chains_and_deep_values_overflow_nothing() {
    let deep = "cat >/dev/null; python3 -c 'print(\"{\\\"output\\\":\" + \"[\" * 50000 + \"]\" * 50000 + \"}\")'";
    let test = Test::new().pipeline("p", |p| p.sh("a", deep));
    for _ in 0..2 {
        test.bounded(&["run", "--pipeline", "p"]).exit(0);
    }
    let runs: serde_json::Value =
        serde_json::from_slice(&test.run(&["runs", "list", "--format", "json"]).exit(0).raw).expect("a document");
    let id = |at: usize| runs["runs"][at]["run_id"].as_str().expect("an id").to_owned();
    let (one, other) = (id(0), id(1));
    let diff = ["runs", "diff", one.as_str(), other.as_str()];
    for command in
        [&["runs", "show", "latest"][..], &["runs", "show", "latest", "a"], &["runs", "export", "latest"], &diff]
    {
        test.bounded(command).exit(0);
    }
    let when = format!("{}{{{{input.a}}}}{}", "{not: ".repeat(20_000), "}".repeat(20_000));
    let test = with_yaml(&format!("{HEAD}  - {{name: a, type: code, command: \"true\", when: {when}}}\n")).yaml(
        "q",
        "name: q\ndescription: A.\nsteps:\n  - {name: a, type: code, command: \"true\", schema: schemas/s0.json}\n",
    );
    for n in 0..300 {
        let next = format!("{{\"$ref\": \"s{}.json\"}}", n + 1);
        test.put(&format!("app/pipelines/q/schemas/s{n}.json"), &next);
    }
    test.put("app/pipelines/q/schemas/s300.json", "{}");
    let said = test.bounded(&["check"]).exit(3);
    for refused in ["nests references more than 100 levels deep", "nested more than 127 levels deep"] {
        assert!(said.err().contains(refused), "{refused}: {}", said.err());
    }
}

/// the search of trees that are wide, deep, or their own parent terminates.
#[test]
fn endless_trees_come_to_an_end() {
    let test = with_yaml(&format!("{HEAD}  - {{name: a, type: code, command: \"true\"}}\n"));
    for path in ["loop", "pipelines/up", "apps/up", "a.d/b"] {
        link(&test, path, "..");
    }
    for path in
        ["pipelines/p/steps/here", "pipelines/p/steps/again", "pipelines/p/schemas/here", "pipelines/p/schemas/again"]
    {
        link(&test, path, ".");
    }
    for path in ["skills", "tools", "machines", ".agents"] {
        link(&test, path, "/");
    }
    let deep = test.path("app").join("d/".repeat(700));
    std::fs::create_dir_all(deep).expect("a directory can be made");
    for n in 0..400 {
        test.put(
            &format!("app/wide/{n}/{n}.skill.md"),
            &format!("---\nname: s{n}\nmetadata: {{$inherit: s{}}}\n---\n", n + 1),
        );
    }
    for command in [
        &["check"][..],
        &["list"],
        &["apps", "list"],
        &["skill", "list"],
        &["skill", "graph", "s1"],
        &["run", "--pipeline", "p"],
    ] {
        test.bounded(command);
    }
}

/// Invisible or deceptive names are refused, and are visible in the error.
#[test]
fn names_that_hide_are_seen() {
    for name in ["re\u{200b}view", "\u{202e}weiver", "rev\u{1b}[8miew", "a\nb"] {
        let test = Test::new();
        test.put(
            &format!("app/pipelines/{name}/pipeline.yaml"),
            &format!("name: {}\n{}", Value::from(name), &HEAD["name: p\n".len()..]),
        );
        test.put(&format!("app/{name}.skill.md"), &format!("---\nname: {}\n---\n", Value::from(name)));
        for command in [&["check"][..], &["list"], &["skill", "graph", "default"]] {
            let ran = test.bounded(command);
            assert!(!ran.err().contains(['\u{200b}', '\u{202e}', '\u{1b}']), "{command:?}: {:?}", ran.err());
        }
    }
}
