//! Guards of the configuration for calls of agents and steps: a program has the last word (B-11.3, B-20.4).

use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::test::{IN_HOOKS, Test};

/// A guard that records its name and its input, and denies input that contains `word`.
fn guard(name: &str, word: &str) -> String {
    format!(
        "{IN_HOOKS}document=$(cat)\necho \"{name} $document\" >> \"$ROOT/asked\"\n\
         case \"$document\" in *{word}*) echo '{{\"decision\":\"deny\",\"code\":\"{name}\",\"reason\":\"not this\"}}';;\n\
         *) echo '{{\"decision\":\"allow\"}}';; esac\n"
    )
}

fn noting(word: &str) -> Reply {
    Reply::bash(&format!("echo {word} >> \"$LEDGER\""))
}

/// An agent whose configuration has guards.
fn app(server: &Server, config: &str) -> Test {
    Test::new()
        .skill("", "Be brief.\n")
        .file("etude.yaml", config)
        .file("one.sh", &guard("One", "secret"))
        .file("two.sh", &guard("Two", "private"))
        .model(server)
}

/// Names of the guards called, with their inputs.
fn asked(test: &Test) -> Vec<(String, Value)> {
    let parts = |line: &str| {
        let (name, document) = line.split_once(' ').expect("a name and a document");
        (name.to_owned(), serde_json::from_str(document).expect("JSON"))
    };
    test.read("asked").lines().map(parts).collect()
}

const BOTH: &str = "guards: [{command: sh one.sh}, {command: sh two.sh}]\n";

/// B-H1, B-H2, B-20.4: guards are called for each call of an agent, in order, until one denies; `--yolo` does not change that.
#[test]
fn guards_have_the_last_word_about_calls_of_agents() {
    let server = Server::agent([noting("secret"), noting("private"), noting("open")]);
    let test = app(&server, BOTH);
    test.follow("go", &["--yolo"]).output("done");
    let results = server.seen().pop().expect("a model was asked").results();
    assert!(results[0].contains("ApprovalDenied") && results[0].contains("One: not this"), "{results:?}");
    assert!(results[1].contains("ApprovalDenied") && results[1].contains("Two: not this"), "{results:?}");
    assert_eq!(test.ledger(), ["open"]);
    let asked = asked(&test);
    let names: Vec<&str> = asked.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["One", "One", "Two", "One", "Two"]);
    let document = &asked[0].1;
    let call = json!({"command": "echo secret >> \"$LEDGER\""});
    assert_eq!(document["payload"], json!({"toolId": "Bash", "args": call, "decision": "approve"}));
    let words = ["protocol", "hook", "slot"].map(|member| document[member].clone());
    assert_eq!(words, ["stage-hook/1", "guard", "TOOL_CALL/pre"].map(Value::from));
    assert_eq!(document["correlationId"], json!("skill/helper/turn1/Bash[0]"));
    assert_eq!(document["run"]["cwd"], json!(test.path("app")));
}

/// B-H3: a guard that is missing, fails or gives no valid answer denies the call, and the reason names it.
#[test]
fn a_guard_that_is_broken_denies_calls_of_agents() {
    for (command, why) in [
        ("sh missing.sh", "exited with status"),
        ("no-such-guard", "could not be started"),
        ("sh -c true", "printed nothing"),
    ] {
        let server = Server::agent([noting("ran")]);
        let test = app(&server, &format!("guards: [{{command: {command}}}]\n"));
        test.follow("go", &["--yolo"]).output("done");
        let results = server.seen().pop().expect("a model was asked").results();
        assert!(
            results[0].contains("a guard failed, so the call is denied") && results[0].contains(why),
            "{results:?}"
        );
        assert!(results[0].contains(command) && test.ledger().is_empty(), "{results:?}");
    }
}

/// B-H1: the user's guards are called for calls that an app allows, and for steps of type `tool`.
#[test]
fn guards_of_the_user_hold_for_tool_steps() {
    let steps = "  - {name: a, type: tool, tool: Bash, args: {command: \"echo ran >> made\"}}\n";
    let test = Test::new()
        .file("pipelines/p/pipeline.yaml", &format!("name: p\ndescription: d\nsteps:\n{steps}"))
        .file("etude.yaml", "approvals: {mode: yolo}\n")
        .file("one.sh", &guard("One", "made"))
        .user_config("guards: [{command: sh one.sh}]\n");
    let ran = test.run(&["run", "--pipeline", "p", "--format", "json"]).exit(1);
    assert_eq!(ran.at("/errors/0/kind"), json!("approval_denied"));
    assert!(ran.at("/errors/0/message").to_string().contains("One: not this"), "{}", ran.at("/errors/0"));
    assert_eq!(asked(&test)[0].1["payload"]["toolId"], json!("Bash"));
    assert!(!test.path("app/made").exists());
}

/// B-11.1 (4), A-7.3: guards are called after a person has said yes, and a resume calls them for no finished call.
#[test]
fn guards_are_asked_once_for_each_call() {
    let server = Server::agent([Reply::call("Read", json!({"path": "secret"})), noting("one"), noting("private")]);
    let test = app(&server, &format!("approvals: {{unattended: wait}}\n{BOTH}"));
    let id = test.follow("go", &[]).exit(5).id();
    assert_eq!(asked(&test).len(), 1, "a call that is held has not been made");
    test.run(&["approve", &id]).exit(0);
    test.run(&["runs", "resume", &id, "--format", "json"]).exit(5);
    assert_eq!((asked(&test).len(), test.ledger()), (3, vec!["one".to_owned()]));
    test.run(&["approve", &id]).exit(0);
    test.run(&["runs", "resume", &id, "--format", "json"]).output("done");
    let keys: Vec<(String, Value)> =
        asked(&test).into_iter().map(|(name, document)| (name, document["correlationId"].clone())).collect();
    let keys: Vec<String> = keys.iter().map(|(name, key)| format!("{name} {}", key.as_str().expect("text"))).collect();
    assert_eq!(keys.len(), 5, "{keys:?}");
    assert_eq!(test.ledger(), ["one"]);
}
