//! Hosts to which keys may go when an app configures hosts: those that the user names, and no others (ADR 0052).

use serde_json::json;

use crate::secrets::nothing_holds;
use crate::server::{Reply, Server};
use crate::test::Test;

const KEY: &str = "sk-canary-consent-1";

/// URL of a loopback server under an address that does not look like loopback, so etude treats it as another machine.
fn far(server: &Server) -> String {
    server.url().replace("127.0.0.1", "0.0.0.0")
}

/// A pipeline whose constructor leaves a line in the ledger, and a model that the app configures.
fn app(provider: &str) -> Test {
    Test::new()
        .env("OPENAI_API_KEY", KEY)
        .env("TEAM_KEY", KEY)
        .pipeline("_constructor", |p| p.sh("begin", "echo begun >> \"$LEDGER\"; echo '{\"output\":1}'"))
        .pipeline("p", |p| p.llm("ask", "x", ""))
        .file("etude.yaml", &format!("model_mapping: {{standard: x/m}}\nproviders:\n  x: {provider}\n"))
}

fn compatible(url: &str, fields: &str) -> String {
    format!("{{kind: openai-compatible, base_url: \"{url}/v1\"{fields}}}")
}

const TEAM: &str = ", api_key: \"${env:TEAM_KEY}\"";

/// SECURITY.md: a key of the environment goes to no host that only the app names; nothing of the run happens.
#[test]
fn a_key_is_not_sent_to_a_host_that_only_the_app_names() {
    let server = Server::new([Reply::says("ok")]);
    let (far, near) = (far(&server), server.url());
    for (provider, key, host) in [
        (compatible(&far, TEAM), "TEAM_KEY", "0.0.0.0"),
        (compatible(&far, ", headers: {X-A: \"a ${env:TEAM_KEY}\"}"), "TEAM_KEY", "0.0.0.0"),
        (compatible(&format!("{far}/${{env:TEAM_KEY}}"), ""), "TEAM_KEY", "0.0.0.0"),
        (compatible("https://${env:TEAM_KEY}.example.com", ""), "TEAM_KEY", "${env:TEAM_KEY}.example.com"),
        (compatible("https://api.openai.com@example.com", TEAM), "TEAM_KEY", "example.com"),
        (format!("{{kind: openai, base_url: \"{far}\"}}"), "OPENAI_API_KEY", "0.0.0.0"),
        // A variable that etude withholds from programs of the app does not reach one that listens.
        (format!("{{kind: openai, base_url: \"{near}\"}}"), "OPENAI_API_KEY", "127.0.0.1"),
        (compatible(&near, ", api_key: \"${env:OPENAI_API_KEY}\""), "OPENAI_API_KEY", "127.0.0.1"),
    ] {
        let test = app(&provider);
        for format in ["human", "json"] {
            let ran = test.run(&["run", "-p", "p", "--format", format]).exit(4);
            let said = format!("`{key}` is not sent to `{host}");
            assert!(ran.err().contains(&said), "{provider}: {}", ran.err());
            assert!(
                ran.err().contains("line 3 of the app's `etude.yaml` names this host for provider `x`"),
                "{}",
                ran.err()
            );
            assert!(ran.err().contains("config.yaml`, or pass `--config etude.yaml`"), "{}", ran.err());
        }
        assert!(test.ledger().is_empty(), "nothing ran");
        nothing_holds(&test, &[KEY], &[]);
    }
    assert_eq!(server.calls(), 0);
}

/// SECURITY.md: a key goes to a host that the user's own configuration, or the one of `--config`, names for it.
#[test]
fn a_key_is_sent_where_the_user_lets_it() {
    for (own, args) in [
        (true, &["run", "-p", "p", "--format", "json"][..]),
        (false, &["run", "-p", "p", "--format", "json", "--config", "etude.yaml"]),
    ] {
        let server = Server::new([Reply::says("ok")]);
        let far = far(&server);
        let test = app(&compatible(&far, TEAM));
        let test = match own {
            true => test.user_config(&format!("providers: {{team: {}}}\n", compatible(&far, TEAM))),
            false => test,
        };
        let ran = test.run(args).output("ok");
        assert!(!ran.err().contains("sends prompts"), "{}", ran.err());
        assert_eq!(server.seen()[0].header("authorization"), Some(&*format!("Bearer {KEY}")));
    }
}

/// SECURITY.md: the key of a service goes to another host if the user's configuration names it there, not because the host
/// speaks the same API.
#[test]
fn a_customary_key_is_not_sent_to_another_host_unasked() {
    let server = Server::new([Reply::says("ok")]);
    let far = far(&server);
    let provider = |fields: &str| format!("{{kind: openai-chat, base_url: \"{far}/v1\"{fields}}}");
    let run = |fields: &str| {
        let config = format!("model_mapping: {{standard: x/m}}\nproviders: {{x: {}}}\n", provider(fields));
        app("{}").file("etude.yaml", "").user_config(&config).run_json("p")
    };
    run(", headers: {api-key: of-the-host}").output("ok");
    let seen = &server.seen()[0];
    assert_eq!((seen.header("api-key"), seen.header("authorization")), (Some("of-the-host"), None));
    let ran = run("").exit(4);
    let message = ran.at("/errors/0/message").to_string();
    assert!(message.contains("`OPENAI_API_KEY` is sent to http://0.0.0.0:"), "{message}");
    assert_eq!(server.calls(), 1);
    run(", api_key: \"${env:OPENAI_API_KEY}\"").output("ok");
    assert_eq!(server.seen()[1].header("authorization"), Some(&*format!("Bearer {KEY}")));
}

/// cli: an app that needs no key runs at once: a local server, a program, and a key that does not belong to the user.
#[test]
fn an_app_without_keys_just_runs() {
    let server = Server::new([Reply::says("ok")]);
    for provider in [
        compatible(&server.url(), ""),
        compatible(&server.url(), ", api_key: literal"),
        compatible(&server.url(), TEAM),
        "{kind: command, command: printf ok}".to_owned(),
    ] {
        let ran = app(&provider).run(&["run", "-p", "p", "--format", "json"]).output("ok");
        assert!(!ran.err().contains("note:"), "{}", ran.err());
    }
}

/// SECURITY.md: a program that serves as a model gets the user's keys if the user names it, not if the app does.
#[test]
fn a_program_of_the_app_that_answers_inherits_no_keys() {
    let provider = "{kind: command, command: \"sh -c 'cat >/dev/null; env > $ROOT/model.env; printf ok'\"}";
    let mapping = "model_mapping: {lite: x/m, standard: x/m, reasoning: x/m}";
    let config = format!("{mapping}\nproviders:\n  x: {provider}\n");
    let test = app("{}").file("etude.yaml", &config);
    test.run_json("p").output("ok");
    let env = test.read("model.env");
    assert!(env.contains("HOME=") && !env.contains("OPENAI_API_KEY"), "{env}");
    // A variable that nothing names as a key does not count as one.
    assert!(env.contains("TEAM_KEY="), "{env}");
    let test = app("{}").file("etude.yaml", "").user_config(&config);
    test.run_json("p").output("ok");
    assert!(test.read("model.env").contains("OPENAI_API_KEY="), "the user's own program");
}

/// SECURITY.md: a host that only the app names gets prompts when the app runs, and the user is notified once.
#[test]
fn a_tier_that_the_app_redirects_is_reported_once_with_its_host() {
    let server = Server::new([Reply::says("ok")]);
    let test = app(&compatible(&far(&server), "")).pipeline("two", |p| p.llm("a", "x", "").llm("b", "y", ""));
    let ran = test.run(&["run", "-p", "two"]).exit(0);
    let note = "note: the app's `etude.yaml` sends prompts of the tier `standard` to http://0.0.0.0:";
    assert_eq!(ran.err().matches(note).count(), 1, "{}", ran.err());
    let quiet = test.run(&["run", "-p", "two", "--quiet"]).exit(0);
    assert_eq!(quiet.err(), "");
    assert_eq!(server.seen()[0].header("authorization"), None);
}

/// SECURITY.md: the same applies to MCP servers of an app: one that would get a key of the user is not contacted.
#[test]
fn an_mcp_server_of_the_app_gets_no_key_of_the_user() {
    let (model, mcp) = (Server::agent([]), Server::new([Reply::status(500)]));
    let config = |url: &str| {
        format!("mcp:\n  servers:\n    far: {{url: \"{url}/mcp\", headers: {{X-Token: \"${{env:TEAM_KEY}}\"}}}}\n")
    };
    let test =
        Test::new().model(&model).env("TEAM_KEY", KEY).skill("", "Help.\n").file("etude.yaml", &config(&far(&mcp)));
    let ran = test.follow("go", &[]).exit(0);
    let said = "the MCP server `far` cannot be used: `TEAM_KEY` is not sent to `0.0.0.0:";
    assert!(ran.err().contains(said), "{}", ran.err());
    assert_eq!(mcp.calls(), 0);
    nothing_holds(&test, &[KEY], &[]);
}

/// credentials in URLs reach neither stderr nor the journal nor a prompt, whatever goes wrong with them.
#[test]
fn credentials_in_urls_are_not_shown() {
    let refused = crate::loopback::unreachable_url().replace("http://", "");
    let failing = Server::new([Reply::status(500).message("no such token-canary-3 for https://u:word-canary-2@h/")]);
    let failing = failing.url().replace("http://", "");
    let secrets = ["user-canary-1", "word-canary-2", "token-canary-3", "path0canary04567890123"];
    for (host, scheme) in [(&refused, "http"), (&failing, "http"), (&failing, "https")] {
        let url =
            format!("{scheme}://user-canary-1:word-canary-2@{host}/path0canary04567890123/mcp?token=token-canary-3");
        let model = Server::agent([Reply::bash("echo token-canary-3")]);
        let test = Test::new().model(&model).skill("", "Help.\n");
        let config =
            format!("{}mcp: {{servers: {{far: {{url: \"{url}\"}}}}}}\n", test.read("home/.config/etude/config.yaml"));
        let test = test.user_config(&config);
        let ran = test.follow("go", &["--yolo", "--verbose"]).exit(0);
        assert!(ran.err().contains("the MCP server `far` cannot be used: "), "{}", ran.err());
        for seen in model.seen() {
            let body = seen.body.to_string();
            assert!(
                secrets
                    .iter()
                    .skip(1)
                    .all(|secret| !body.contains(secret) || secret == &"token-canary-3" && body.contains("echo")),
                "{body}"
            );
        }
        nothing_holds(&test, &secrets[..2], &["home/.config/etude/config.yaml"]);
        let shown = format!("{}{}", ran.out(), ran.err());
        assert!(secrets.iter().all(|secret| !shown.contains(secret)), "{shown}");
    }
}

/// the same applies to those of providers, in errors, lists, checks and diagnostics.
#[test]
fn credentials_in_urls_of_providers_are_not_shown() {
    let url =
        format!("{}/v1?api_key=key-canary-2", crate::loopback::unreachable_url().replace("://", "://u:word-canary-1@"));
    let config = format!(
        "model_mapping: {{lite: x/m, standard: x/m, reasoning: x/m}}\nproviders: {{x: {{kind: openai-compatible, base_url: \"{url}\"}}}}\n"
    );
    let test = Test::new().user_config(&config).pipeline("p", |p| p.llm("a", "x", ""));
    let broken =
        Test::new().pipeline("p", |p| p.note("a", "1")).file("etude.yaml", &config.replace("base_url", "bose_url"));
    let shown = [
        test.run(&["run", "-p", "p", "--format", "json", "--verbose"]),
        test.run(&["model", "list"]),
        test.run(&["model", "test"]),
        test.run(&["doctor"]),
        test.run(&["doctor", "--call"]),
        broken.run(&["check"]).exit(3),
        broken.run(&["check", "--format", "json"]).exit(3),
        broken.run(&["run", "-p", "p"]).exit(3),
    ];
    for ran in shown {
        let text = format!("{}{}", ran.out(), ran.err());
        assert!(!text.contains("canary"), "{text}");
    }
    nothing_holds(&test, &["word-canary-1", "key-canary-2"], &["home/.config/etude/config.yaml"]);
    assert_eq!(json!(test.ledger()), json!([]));
}

/// cli: where a provider of the app is not used, the list of models says how to use it.
#[test]
fn the_list_of_models_says_how_to_use_a_provider_of_the_app() {
    let test = app(&compatible("http://127.0.0.1:1", TEAM));
    test.run(&["model", "list"])
        .exit(0)
        .stderr_has("hint: `etude run` uses what the app defines; to use it here too, ");
    test.run(&["model", "list", "--config", "etude.yaml"]).exit(0).stderr("");
}
