//! Places where keys never appear: stdout, stderr, the journal, prompts, and the environment of children.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Row};
use serde_json::json;

use crate::server::{Reply, Server};
use crate::test::{KEY, Test, binary};

const OTHER: &str = "sk-second-canary-0815";

/// The user's configuration, which may contain keys.
pub(crate) const CONFIG: &str = "home/.config/etude/config.yaml";

/// A secret unchanged, escaped for JSON, percent-encoded, and in base64 at every alignment.
pub(crate) fn forms(secret: &str) -> Vec<String> {
    let json = serde_json::Value::from(secret).to_string();
    let percent = secret.bytes().map(|byte| match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    let mut forms = vec![secret.to_owned(), json[1..json.len() - 1].to_owned(), percent.collect()];
    for shift in 0..3 {
        let text = base64(&[vec![0; shift], secret.as_bytes().to_vec()].concat());
        let inner = text[(shift * 8_usize).div_ceil(6)..(shift + secret.len()) * 8 / 6].to_owned();
        forms.push(inner.replace('+', "-").replace('/', "_"));
        forms.push(inner);
    }
    forms
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let bits = chunk.iter().chain(&[0, 0]).take(3).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        (0..=chunk.len()).map(move |n| char::from(LETTERS[(bits >> (18 - 6 * n) & 63) as usize])).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// The text around a match, which shows what leaked it.
fn around(bytes: &[u8], found: &[u8]) -> String {
    let at = bytes.windows(found.len()).position(|window| window == found).unwrap_or_default();
    String::from_utf8_lossy(&bytes[at.saturating_sub(200)..(at + 100).min(bytes.len())]).into_owned()
}

/// Every value in the tables of a database. A text that is split over pages is not contiguous in the file. The function reads a
/// copy, because closing a database changes its files.
fn values_of(path: &Path) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("copy.db");
    std::fs::copy(path, &copy).expect("it can be copied");
    let log = format!("{}-wal", path.display());
    if Path::new(&log).exists() {
        std::fs::copy(&log, dir.path().join("copy.db-wal")).expect("it can be copied");
    }
    let connection = Connection::open(&copy).expect("it opens");
    let text = |query: &str| -> Vec<Vec<Value>> {
        let mut statement = connection.prepare(query).expect("a query");
        let columns = statement.column_count();
        let row = |row: &Row<'_>| (0..columns).map(|n| row.get(n)).collect::<rusqlite::Result<Vec<Value>>>();
        statement.query_map([], row).expect("rows").collect::<rusqlite::Result<_>>().expect("values")
    };
    let tables = text("select name from sqlite_master where type = 'table'").into_iter().flatten();
    let rows = tables.filter_map(|name| match name {
        Value::Text(name) => Some(text(&format!("select * from \"{name}\""))),
        _ => None,
    });
    let bytes = |value: Value| match value {
        Value::Text(text) => Some(text.into_bytes()),
        Value::Blob(bytes) => Some(bytes),
        _ => None,
    };
    rows.flatten().flatten().filter_map(bytes).collect()
}

/// A value larger than a page of a database is searched like any other.
#[test]
fn a_key_across_pages_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.db");
    let text = format!("{}{KEY}", "x".repeat(4096 * 3 - KEY.len() / 2)).repeat(9);
    let connection = Connection::open(&path).expect("it opens");
    connection.execute_batch("pragma journal_mode = wal; create table t (a, b)").expect("a table");
    connection.execute("insert into t values (1, ?1)", [&text]).expect("a row");
    assert_eq!(values_of(&path).iter().filter(|bytes| **bytes == text.as_bytes()).count(), 1);
}

/// Checks that no file and no stream of a run holds a key.
#[track_caller]
pub(crate) fn nothing_holds(test: &Test, secrets: &[&str], but: &[&str]) {
    let forms: Vec<String> = secrets.iter().flat_map(|secret| forms(secret)).collect();
    let mut seen = 0;
    for dir in ["home", "tmp", "app", "elsewhere"] {
        for path in test.files_below(dir) {
            let bytes = std::fs::read(&path).expect("it can be read");
            seen += 1;
            let name = path.display().to_string();
            if but.iter().any(|known| path == test.path(known)) {
                continue;
            }
            let values = if bytes.starts_with(b"SQLite format 3\0") { values_of(&path) } else { Vec::new() };
            for bytes in std::iter::once(&bytes).chain(&values) {
                for form in &forms {
                    let holds = bytes.windows(form.len()).any(|window| window == form.as_bytes());
                    assert!(!holds, "`{name}` holds a key as {form}: {}", around(bytes, form.as_bytes()));
                }
            }
        }
    }
    assert!(seen > 3, "the files were found");
}

/// keys that `etude` uses are removed from the environment of steps and validators; other variables stay.
#[test]
fn children_do_not_get_the_keys() {
    let server = Server::new([Reply::says("ok")]);
    let test = Test::new()
        .model(&server)
        .env("ANTHROPIC_API_KEY", OTHER)
        .env("HARMLESS", "kept")
        .file("etude.yaml", "providers: {anthropic: {base_url: \"http://127.0.0.1:9\"}}\n")
        .pipeline("p", |p| {
            p.sh("env", "env > \"$ROOT/step.env\"; echo '{\"output\":1}'")
                .llm("ask", "x", "validate: steps/v.sh")
                .file("steps/v.sh", "env > \"$ROOT/validator.env\"; echo '{\"valid\":true}'\n")
        });
    test.run_json("p").output("ok");
    for file in ["step.env", "validator.env"] {
        let env = test.read(file);
        assert!(env.contains("HARMLESS=kept"), "{env}");
        assert!(!env.contains("MOCK_KEY") && !env.contains("ANTHROPIC_API_KEY"), "{env}");
    }
    nothing_holds(&test, &[KEY, OTHER], &[]);
}

/// the keys of all providers are removed, whichever is used; here none is, because the server needs no key.
#[test]
fn children_get_no_key_whatever_else_is_set() {
    let server = Server::new([Reply::says("ok")]);
    let config = format!(
        "model_mapping: {{lite: x/m, standard: x/m, reasoning: x/m}}\nproviders: {{x: {{kind: openai-compatible, base_url: \"{}\"}}}}\n",
        server.url()
    );
    let keys = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"];
    let test = keys.iter().fold(Test::new().user_config(&config), |test, key| test.env(key, OTHER));
    let test = test.pipeline("p", |p| {
        p.sh("env", "env > \"$ROOT/step.env\"; echo '{\"output\":1}'")
            .llm("ask", "x", "validate: steps/v.sh")
            .file("steps/v.sh", "env > \"$ROOT/validator.env\"; echo '{\"valid\":true}'\n")
    });
    test.run_json("p").output("ok");
    for file in ["step.env", "validator.env"] {
        let env = test.read(file);
        assert!(keys.iter().all(|key| !env.contains(key)) && !env.contains(OTHER), "{env}");
    }
    nothing_holds(&test, &[OTHER], &[]);
}

/// X-2 `from_env`: a step that asks for a key gets it, and nothing that etude writes contains it. A missing variable
/// ends the run before anything happens.
#[test]
fn a_step_gets_the_key_that_it_asks_for() {
    let script = "test \"$TOKEN\" = \"$EXPECTED\" && echo \"the key is $TOKEN\" >&2 && echo '{\"output\":1}'";
    let step = "name: ask\ntype: code\ncommand: sh steps/ask.sh\nenv: {TOKEN: {from_env: OPENAI_API_KEY}, EXPECTED: {from_env: EXPECTED}}";
    let test = Test::new().env("OPENAI_API_KEY", OTHER).env("EXPECTED", OTHER).pipeline("p", |p| {
        p.sh("first", "touch \"$ROOT/first\"; echo '{\"output\":1}'").step(step).file("steps/ask.sh", script)
    });
    let ran = test.run_json("p").output(1);
    assert!(!ran.err().contains(OTHER), "{}", ran.err());
    for args in [&["runs", "show", "latest"][..], &["runs", "export", "latest"], &["run", "-p", "p", "--dry-run"]] {
        assert!(!test.run(args).out().contains(OTHER));
    }
    nothing_holds(&test, &[OTHER], &[]);
    test.run(&["check", "--portable"]).exit(0).stderr_has("`env.TOKEN` uses `from_env`");
    std::fs::remove_file(test.path("first")).expect("the first step ran");
    let test = test.without_env("OPENAI_API_KEY");
    test.run(&["run", "-p", "p", "--format", "json"]).exit(4).has("/errors/0/kind", "environment");
    assert!(!test.path("first").exists());
}

/// A key that a provider repeats in its refusal, or a model in its completion, reaches neither people nor the journal:
/// the failure is still reported.
#[test]
fn a_key_that_the_provider_repeats_is_not_passed_on() {
    for status in [400, 401, 429, 500] {
        let message = format!("incorrect key {KEY} given");
        let server = Server::new([Reply::status(status).header("retry-after-ms", "1").message(&message)]);
        let test = Test::new().model(&server).pipeline("p", |p| p.llm("ask", "x", ""));
        let ran = test.run(&["run", "-p", "p", "--format", "jsonl", "--verbose"]);
        assert!(ran.code() == 1 || ran.code() == 4, "{}", ran.err());
        assert!(ran.err().contains("incorrect key"), "{}", ran.err());
        let id = ran.id();
        for args in [&["runs", "show", &id][..], &["runs", "export", &id], &["runs", "show", &id, "--format", "json"]] {
            assert!(!test.run(args).out().contains(KEY));
        }
        // `tmp` has all printed output of the commands, `home` the journal.
        nothing_holds(&test, &[KEY], &[]);
    }
}

/// A plain key in a configuration file stays in that file.
#[test]
fn a_key_in_a_configuration_file_stays_there() {
    let server = Server::new([Reply::says("ok")]);
    let config = format!(
        "model_mapping: {{standard: mock/m}}\nproviders:\n  mock:\n    kind: openai-compatible\n    base_url: \"{}\"\n    \
         api_key: {KEY}\n    headers: {{X-Team: {OTHER}}}\n",
        server.url()
    );
    let test = Test::new()
        .user_config(&config)
        .pipeline("p", |p| p.sh("env", "env > \"$ROOT/tmp/step.env\"; echo '{\"output\":1}'").llm("ask", "x", ""));
    let ran = test.run(&["run", "-p", "p", "--verbose", "--format", "json"]).output("ok");
    assert_eq!(server.seen()[0].header("x-team"), Some(OTHER));
    test.run(&["runs", "export", &ran.id()]).exit(0);
    nothing_holds(&test, &[KEY, OTHER], &[CONFIG]);
    assert!(!server.seen()[0].body.to_string().contains(KEY));
}

/// A key that arrives in two pieces is not shown at a terminal, which shows completions as they arrive.
#[test]
fn a_key_that_is_streamed_in_two_pieces_is_not_shown() {
    let (start, end) = KEY.split_at(KEY.len() / 2);
    let event = |delta: serde_json::Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let pieces = [&format!("key is {start}"), end, " they say"].map(|text| event(json!({"content": text}), None));
    let server = Server::new([Reply::Body(pieces.concat() + &event(json!({}), Some("stop")) + "data: [DONE]\n\n")]);
    let test = Test::new().model(&server).pipeline("p", |p| p.llm("ask", "x", ""));
    let terminal = ["python3", "-c", crate::tool_approvals::TERMINAL, ""];
    let ran = test.start_through(&terminal, &["run", "-p", "p"]).finish().exit(0);
    assert_eq!(server.seen()[0].body["stream"], true, "it was shown as it came");
    assert!(ran.out().contains("key is ***") && !ran.out().contains(start), "{}", ran.out());
    nothing_holds(&test, &[KEY], &[]);
}

/// An invalid configuration is shown without the values of its keys.
#[test]
fn a_faulty_configuration_is_shown_without_its_keys() {
    let test = Test::new()
        .user_config(&format!(
            "providers:\n  mock: {{kind: openai-compatible, api_kye: {KEY}, base_url: \"http://127.0.0.1:9\"}}\n"
        ))
        .pipeline("p", |p| p.llm("ask", "x", ""));
    let ran = test.run_json("p").exit(3).failed_with(&["- -: definition_invalid"]);
    assert!(ran.err().contains("api_kye"), "{}", ran.err());
    nothing_holds(&test, &[KEY], &[CONFIG]);
}

/// a key that a step has found by its own means and prints on stderr is neither shown nor kept, whatever pieces it
/// arrives in; the text around it is.
#[test]
fn a_key_that_a_step_prints_on_stderr_is_not_passed_on() {
    let server = Server::new([Reply::says("ok")]);
    let script = "key=$(cat \"$ROOT/config/key\")\n\
                  for n in 1 2 3; do printf 'found %s' \"${key%%-*}\" >&2; printf '%s!\\n' \"${key#sk}\" >&2; done\n\
                  printf %s \"$key\" | base64 >&2; printf 'half of it: sk-cana' >&2; exit 3";
    for format in ["json", "jsonl", "human"] {
        let test = Test::new().model(&server).pipeline("p", |p| p.sh("find", script));
        test.put("config/key", KEY);
        let ran = test.run(&["run", "-p", "p", "--format", format, "--verbose"]).exit(1);
        let reported = format!("{}{}", ran.out(), ran.err());
        assert!(reported.contains("found ***!") && reported.contains("half of it: sk-cana"), "{reported}");
        if format != "human" {
            test.run(&["runs", "export", &ran.id()]).exit(0);
        }
        nothing_holds(&test, &[KEY], &[]);
    }
}

/// the stderr of middleware is redacted like that of a step.
#[test]
fn a_key_that_middleware_prints_on_stderr_is_not_passed_on() {
    let server = Server::new([Reply::says("ok")]);
    let script = "cat > /dev/null\nkey=$(cat \"$ROOT/config/key\")\n\
                  printf 'found %s' \"${key%%-*}\" >&2; sleep 0.1; printf '%s!\\n' \"${key#sk}\" >&2; exit 1\n";
    for format in ["json", "human"] {
        let test = Test::new()
            .model(&server)
            .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], leak: {}}\n---\n")
            .file("skills/leak.skill.md", "---\nname: leak\ncommand: sh leak.sh\nmetadata: {role: middleware}\n---\n")
            .file("skills/leak.sh", script)
            .pipeline("p", |p| p.note("one", "1"));
        test.put("config/key", KEY);
        let ran = test.run(&["run", "-p", "p", "--format", format, "--verbose"]).exit(1);
        let reported = format!("{}{}", ran.out(), ran.err());
        assert!(reported.contains("found ***!"), "{reported}");
        nothing_holds(&test, &[KEY], &[]);
    }
}

/// D-16: `etude skill run` shows no key that a program of a skill prints on stderr, logs, emits or throws.
#[test]
fn a_key_that_a_skill_prints_is_not_shown() {
    let server = Server::new([Reply::says("ok")]);
    let script = format!(
        "cat > /dev/null\nkey=$(cat \"$ROOT/config/key\")\n\
         printf 'found %s' \"${{key%%-*}}\" >&2; printf '%s!\\n' \"${{key#sk}}\" >&2\n\
         {0} host log warn \"logged $key\"\n{0} host emit done \"{{\\\"said\\\": \\\"emitted $key\\\"}}\"\n\
         echo \"{{\\\"error\\\": {{\\\"message\\\": \\\"thrown $key\\\"}}}}\"; exit 1\n",
        binary()
    );
    for format in ["json", "jsonl", "human"] {
        let test = Test::new()
            .model(&server)
            .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills]}\n---\n")
            .file(
                "skills/leak.skill.md",
                "---\nname: leak\ncommand: sh leak.sh\nmetadata: {params: {type: object}}\n---\n",
            )
            .file("skills/leak.sh", &script);
        test.put("config/key", KEY);
        let arg = format!("given={KEY}");
        let ran = test.run(&["skill", "run", "leak", "--arg", &arg, "--format", format, "--verbose"]).exit(1);
        let reported = format!("{}{}", ran.out(), ran.err());
        for expected in ["found ***!", "logged ***", "emitted ***", "thrown ***"] {
            assert!(reported.contains(expected), "{expected}: {reported}");
        }
        assert!(!reported.contains(KEY), "{reported}");
        nothing_holds(&test, &[KEY], &[]);
    }
}

/// other processes of the user, steps among them, cannot read the environment that `etude` was started with.
#[cfg(target_os = "linux")]
#[test]
fn a_step_cannot_read_the_environment_of_the_program() {
    let server = Server::new([Reply::says("ok")]);
    let script = "(cat /proc/$PPID/environ > \"$ROOT/environ\" 2> /dev/null && echo '{\"output\": \"read\"}') || echo '{\"output\": \"refused\"}'";
    let test = Test::new().model(&server).pipeline("p", |p| p.sh("peek", script));
    let opened = std::process::Command::new("chmod").args(["-R", "777"]).arg(test.path("")).status();
    assert!(opened.expect("chmod is there").success());
    let args = ["run", "-p", "p", "--format", "json"];
    if !rustix::process::geteuid().is_root() {
        test.run(&args).exit(0).output("refused");
        return;
    }
    // Root may read everything, so the attempt needs another user.
    let unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let binary = binary();
    let can =
        std::process::Command::new(unprivileged[0]).args(&unprivileged[1..]).args([&*binary, "--version"]).output();
    if !can.is_ok_and(|can| can.status.success()) {
        crate::test::skipped("a_step_cannot_read_the_environment_of_the_program", "no other user can run the program");
        return;
    }
    test.start_through(&unprivileged, &args).finish().exit(0).output("refused");
}

/// etude starts a provider that is a program on behalf of the user, and the program keeps its own key.
#[test]
fn a_program_that_is_a_provider_does_not_get_the_keys_of_others() {
    let test = Test::new()
        .env("MOCK_KEY", KEY)
        .file("model.sh", "env > \"$ROOT/model.env\"; cat >/dev/null; echo hello\n")
        .user_config(
            "model_mapping: {standard: prog/any}\nproviders:\n  prog: {kind: command, command: \"sh model.sh\"}\n  \
             mock: {kind: openai-compatible, base_url: \"http://127.0.0.1:9\", api_key: \"${env:MOCK_KEY}\"}\n",
        )
        .pipeline("p", |p| p.llm("ask", "x", ""));
    test.run_json("p").output("hello");
    assert!(test.read("model.env").contains("HOME=") && !test.read("model.env").contains(KEY));
}
