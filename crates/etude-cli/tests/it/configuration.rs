//! Precedence of configuration: flags over `etude.yaml` over the user's over the environment (cli, A-4.2).

use serde_json::json;

use crate::server::{Reply, Server};
use crate::test::Test;

fn provider(name: &str, server: &Server) -> String {
    format!(
        "model_mapping: {{standard: {name}/m-{name}}}\nproviders: {{{name}: {{kind: openai-compatible, base_url: \"{}\"}}}}\n",
        server.url()
    )
}

fn asks() -> Test {
    Test::new().pipeline("p", |p| p.llm("ask", "x", ""))
}

/// cli: the app's `etude.yaml` wins over the user's configuration, and `--config` over both.
#[test]
fn the_nearer_configuration_wins() {
    let [user, app, flag] = ["user", "app", "flag"].map(|word| Server::new([Reply::says(word)]));
    let test = asks().user_config(&provider("u", &user));
    test.run_json("p").output("user");
    let test = test.file("etude.yaml", &provider("a", &app));
    test.run_json("p").output("app");
    test.put("elsewhere/c.yaml", &provider("f", &flag));
    test.run(&["run", "-p", "p", "--config", "../elsewhere/c.yaml", "--format", "json"]).output("flag");
    assert_eq!((user.calls(), app.calls(), flag.calls()), (1, 1, 1));
}

/// a model of a provider that does not exist is shown at its place, with the whole message and the probable name.
#[test]
fn a_misspelt_provider_is_shown_at_its_place() {
    let test = asks().file("etude.yaml", "model_mapping:\n  lite: antropic/claude-haiku-4-5\n");
    let ran = test.run(&["check", "--format", "json"]).exit(3);
    let ran =
        ran.has("/diagnostics/0/file", "etude.yaml").has("/diagnostics/0/line", 2).has("/diagnostics/0/column", 9);
    ran.has("/diagnostics/0/hint", "did you mean `anthropic`?");
    let ran = test.run(&["check"]).exit(3);
    assert!(ran.err().contains("which is not configured; add it under `providers`"), "{}", ran.err());
    assert!(ran.err().contains("lite: antropic/claude-haiku-4-5"), "{}", ran.err());
}

/// configuration files are merged tier by tier and provider by provider: the app maps one tier, the user another.
#[test]
fn layers_are_merged_tier_by_tier() {
    let server = Server::new([Reply::says("ok")]);
    let test = Test::new()
        .model(&server)
        .file("etude.yaml", "model_mapping: {lite: mock/from-app}\n")
        .pipeline("p", |p| p.llm("a", "x", "model: lite").llm("b", "x", "model: reasoning"));
    test.run_json("p").output("ok").has("/steps/0/model", "mock/from-app").has("/steps/1/model", "mock/m-reason");
}

/// cli: without configuration the mapping follows the key found, in the order of the contract; `base_url` of a provider still
/// applies.
#[test]
fn the_mapping_follows_the_key_that_is_found() {
    let keys = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"];
    let expected = [
        ("/v1/messages", "anthropic/claude-sonnet-4-6", "x-api-key"),
        ("/v1/responses", "openai/gpt-6.1-terra", "authorization"),
        ("/v1beta/models/gemini-3.8-flash:generateContent", "gemini/gemini-3.8-flash", "x-goog-api-key"),
    ];
    for from in 0..keys.len() {
        let server = Server::new([Reply::says("ok")]);
        let url = server.url();
        let mut test = asks().user_config(&format!(
            "providers: {{anthropic: {{base_url: \"{url}\"}}, openai: {{base_url: \"{url}\"}}, gemini: {{base_url: \"{url}\"}}}}\n"
        ));
        for key in &keys[from..] {
            test = test.env(key, &format!("canary-{key}"));
        }
        let (path, model, header) = expected[from];
        test.run_json("p").output("ok").has("/steps/0/model", model);
        let seen = server.seen().remove(0);
        assert_eq!(seen.path, path);
        assert!(
            seen.header(header).is_some_and(|value| value.ends_with(&format!("canary-{}", keys[from]))),
            "{header}"
        );
    }
}

/// cli: a bare known name is a model of its vendor.
#[test]
fn a_bare_name_is_a_model_of_its_vendor() {
    let server = Server::new([Reply::says("ok")]);
    let config = format!(
        "model_mapping: {{standard: claude-haiku-4-5}}\nproviders: {{anthropic: {{base_url: \"{}\"}}}}\n",
        server.url()
    );
    asks()
        .user_config(&config)
        .env("ANTHROPIC_API_KEY", "k")
        .run_json("p")
        .output("ok")
        .has("/steps/0/model", "anthropic/claude-haiku-4-5");
    assert_eq!(server.seen()[0].body["model"], "claude-haiku-4-5");
}

/// cli: a hosted provider without its key is an environment error that names the variable.
#[test]
fn a_hosted_provider_without_its_key_names_the_variable() {
    asks()
        .user_config("model_mapping: {standard: anthropic/claude-sonnet-4-6}\n")
        .run_json("p")
        .exit(4)
        .failed_with(&["business ask: environment"])
        .has(
            "/errors/0/message",
            "llm step `ask` got no response: `anthropic/claude-sonnet-4-6`: provider `anthropic` has no key; set \
             `ANTHROPIC_API_KEY` or `providers.anthropic.api_key`",
        );
}

/// cli: an invalid configuration is a definition error, reported with place and hint.
#[test]
fn a_faulty_configuration_is_reported_with_its_place() {
    let test = asks().file("etude.yaml", "model_maping: {lite: a/b}\n");
    test.run(&["run", "-p", "p"]).exit(3).stdout("").stderr(
        "error[P0000]: the configuration is not valid
   error[P0201]: unknown field `model_maping` in the configuration
    --> etude.yaml:1:1
     |
   1 | model_maping: {lite: a/b}
     | ^^^^^^^^^^^^ a configuration has: model_mapping, providers, router, agent, approvals, guards, mcp, worker, prices, schedules, webhooks, notices, serve, auth, engine, queues, tenants, learn, joinOutsideNextStages, strictUpstream
     |
   hint: did you mean `model_mapping`?",
    );
    let ran = test.run(&["run", "-p", "p", "--format", "json"]).exit(3).stderr_has("the configuration is not valid");
    ran.has("/errors/0/message", "unknown field `model_maping` in the configuration")
        .has("/errors/0/details/code", "P0201")
        .has("/errors/0/details/hint", "did you mean `model_mapping`?")
        .has("/errors/0/file", "etude.yaml")
        .has("/errors/0/line", 1)
        .has("/errors/0/column", 1);
    test.run(&["run", "-p", "p", "--config", "nowhere.yaml"])
        .exit(2)
        .stderr_has("there is no configuration file `nowhere.yaml`")
        .stderr_has("hint: a relative path begins at the current directory");
}

/// `etude check` reports every provider that cannot be called, each at its place and with a hint of its own.
#[test]
fn a_check_reports_every_faulty_provider() {
    let text = "providers:\n  a: {kind: openai-compatible}\n  b: {kind: command}\n  \
                c: {kind: openai-compatible, base_url: \"localhost:8000/v1\"}\n";
    let ran = Test::new().pipeline("p", |p| p.note("a", "1")).file("etude.yaml", text);
    let ran = ran.run(&["check", "--format", "json"]).exit(3);
    let lines: Vec<_> = (0..3).map(|at| ran.at(&format!("/diagnostics/{at}/line"))).collect();
    assert_eq!(lines, [json!(2), json!(3), json!(4)]);
    ran.has("/diagnostics/0/hint", "for example: `base_url: \"http://127.0.0.1:[PORT]/v1\"`")
        .has("/diagnostics/1/hint", "for example: `command: claude -p`");
}

/// cli: a named configuration must exist, also for a command that needs none.
#[test]
fn a_configuration_that_is_not_there_is_wrong_usage_everywhere() {
    let test = asks();
    for words in [&["list"][..], &["check"], &["runs", "list"], &["explain", "P0201"], &["help", "run"]] {
        let ran = test.run(&[words, &["--config", "nowhere.yaml"][..]].concat()).exit(2).stdout("");
        ran.stderr_has("error[R0301]: there is no configuration file `nowhere.yaml`");
        test.run(&[words, &["--config", "nowhere.yaml", "--format", "json"][..]].concat())
            .exit(2)
            .has("/errors/0/kind", "input_invalid");
    }
}

/// cli: a named configuration that cannot be read ends `etude list` as it ends every command that reads it.
#[test]
fn a_list_with_an_invalid_configuration_fails() {
    let test = asks().file("bad.yaml", "{");
    test.run(&["list", "--config", "bad.yaml"]).exit(3).stdout("").stderr_has("the configuration is not valid");
    test.run(&["list", "--config", "bad.yaml", "--format", "json"]).exit(3).has("/errors/0/kind", "definition_invalid");
    test.run(&["list"]).exit(0);
}

/// cli: a pipeline without models needs no configuration, but all that it states is checked: a fault in it stops the run before
/// anything starts.
#[test]
fn a_faulty_configuration_starts_nothing() {
    let test = Test::new().file("etude.yaml", "providers: 3\n").pipeline("p", |p| p.note("a", "1"));
    test.run_json("p").exit(3).failed_with(&["- -: definition_invalid"]).has("/steps", json!([]));
    assert_eq!(test.ledger(), [""; 0]);
}

/// S-111: `etude check` reports the input of a schedule that does not fit its target.
#[test]
fn a_check_compares_the_inputs_of_schedules() {
    let input = |input: &str| {
        let text = format!("schedules:\n  a: {{pipeline: p, every: 1h, input: {{{input}}}}}\n");
        let test = Test::new()
            .pipeline("p", |p| p.with("input: {day: string, n: {type: integer, required: false}}").note("a", "1"));
        test.file("etude.yaml", &text)
    };
    input("day: \"{{tick.date}}\", n: 3").run(&["check"]).exit(0);
    for wrong in ["n: 3", "day: \"{{tick.date}}\", n: x", "day: a, more: b"] {
        let ran = input(wrong).run(&["check", "--format", "json"]).exit(3);
        assert_eq!(
            (ran.at("/diagnostics/0/code"), ran.at("/diagnostics/0/line")),
            (json!("P0313"), json!(2)),
            "{wrong}"
        );
    }
}

/// cli: `etude check` also checks the configuration, names it relative to the app, and shows no keys.
#[test]
fn a_check_looks_at_the_configuration() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    test.run(&["check"]).exit(0);
    let test = test.file("etude.yaml", "providers: {x: {api_kee: sk-0123456789-0123456789abc, kind: openai}}\n");
    let ran = test.run(&["check", "--format", "json"]).exit(3);
    assert_eq!((ran.at("/diagnostics/0/file"), ran.at("/diagnostics/0/line")), (json!("etude.yaml"), json!(1)));
    let ran = test.run(&["check"]).exit(3).stderr_has("1 error in `etude.yaml`; 1 other pipeline is fine");
    assert!(!ran.err().contains("0123456789"), "{}", ran.err());
    // An invalid word is repeated, unless it may be a key.
    let test = test.file("etude.yaml", "router: {mode: sk-0123456789-0123456789abc}\n");
    for args in
        [&["check"][..], &["check", "--format", "json"], &["run", "-p", "p"], &["run", "-p", "p", "--format", "json"]]
    {
        let ran = test.run(args).exit(3);
        let reported = format!("{}{}", ran.err(), ran.out());
        assert!(reported.contains("P0205") && !reported.contains("0123456789"), "{reported}");
    }
    // Valid line by line, but not as a whole.
    let test = test.file("etude.yaml", "model_mapping: {standard: nowhere/m}\n");
    test.run(&["check"]).exit(3).stderr_has("`nowhere`");
}

/// cli: a fault in the user's configuration is reported as one of that file, whatever is wrong with it.
#[test]
fn a_check_names_the_file_that_is_at_fault() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    for text in ["routre: 1\n", "model_mapping: {standard: nowhere/m}\n"] {
        let ran = test.run(&["check"]).exit(0);
        drop(ran);
        test.put("home/.config/etude/config.yaml", text);
        let ran = test.run(&["check"]).exit(3);
        let ran = ran.stderr_has(".config/etude/config.yaml`; 1 other pipeline is fine");
        assert!(!ran.err().contains("etude.yaml"), "{}", ran.err());
        std::fs::remove_file(test.path("home/.config/etude/config.yaml")).expect("it is there");
    }
}

/// cli, A-4.2: a model that cannot be called is reported before anything of the run happens.
#[test]
fn a_model_that_cannot_be_called_is_reported_first() {
    let test = Test::new()
        .file("etude.yaml", "model_mapping: {standard: nowhere/m}\n")
        .pipeline("p", |p| p.note("a", "1").llm("ask", "x", ""));
    test.run_json("p").exit(4).has("/run_id", serde_json::Value::Null).has("/errors/0/kind", "environment");
    assert_eq!(test.ledger(), [""; 0]);
}

/// cli: `--verbose` reports the configuration files, the responding model, and the start of each step.
#[test]
fn a_verbose_run_says_more() {
    let server = Server::new([Reply::says("ok")]);
    let test = asks().user_config(&provider("u", &server));
    let ran = test.run(&["run", "-p", "p", "--verbose"]).exit(0);
    for part in ["configured by [ROOT]", "standard is u/m-u", "▸ ask llm"] {
        assert!(ran.err().contains(part), "{part}: {}", ran.err());
    }
    assert_eq!(ran.err().matches("configured by").count(), 1, "the configuration is read once: {}", ran.err());
    assert!(!test.run(&["run", "-p", "p"]).exit(0).err().contains("configured by"));
}

/// cli: relative base directories do not count, nor does a relative home directory, which is an error where one is needed.
#[test]
fn a_relative_home_directory_is_refused() {
    let test = Test::new().env("XDG_STATE_HOME", "state").env("HOME", "home");
    let why = "the home directory `home` is a relative path: set HOME or XDG_STATE_HOME to an absolute one";
    test.run(&["runs", "list"]).exit(4).stderr_has(why);
    assert!(!test.path("app/home").exists() && !test.path("app/state").exists());
}
