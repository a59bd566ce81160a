//! Commands on the runs of a server: the same documents, texts and exit statuses as with the local journal.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::ran::Ran;
use crate::serve::Serving;
use crate::server::Server;
use crate::test::{Test, wait_until};

/// App with a pipeline that succeeds, one that fails, and one that asks.
fn test() -> Test {
    Test::new()
        .pipeline("p", |p| {
            p.with("input:\n  count: integer\n  name: {type: string, default: Ada}")
                .sh("a", "cat > /dev/null; echo said >&2; echo '{\"output\": 1.50}'")
                .sh("b", "echo '{\"output\": {\"n\": 2}}'")
        })
        .pipeline("broken", |p| p.sh("a", "echo oh no >&2; exit 3").sh("never", "true"))
        .pipeline("ask", |p| p.step("name: ok\ntype: approval\nmessage: Deploy?").sh("last", "echo '{\"output\": 7}'"))
        .yaml("invalid", "name: invalid\ndescription: The pipeline invalid.\nsteps:\n  - {name: a, type: code}\n")
}

/// The document on stdout, without any replacement.
fn raw(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.raw).expect("stdout is JSON")
}

fn address(serving: &Serving) -> String {
    serving.line["addresses"][0].as_str().expect("an address").to_owned()
}

/// Runs the command line without and with the server. Parts that differ by run and by path are removed.
fn both(test: &Test, serving: &Serving, args: &[&str]) -> (Ran, Ran) {
    let address = address(serving);
    (test.run(args), test.run(&[&["--server", &address], args].concat()))
}

/// cli: a run on a server has the documents, the output, the messages and the exit statuses of a local one.
#[test]
fn a_run_on_a_server_is_reported_as_one_here() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    for (args, exit) in [
        (&["run", "-p", "p", "-i", "count=3"] as &[&str], 0),
        (&["run", "-p", "p", "--input", "{\"count\": 3, \"name\": \"Bob\"}", "--quiet"], 0),
        (&["run", "-p", "broken", "--quiet"], 1),
        (&["run", "-p", "ask"], 5),
        (&["run", "-p", "p", "-i", "count=many"], 2),
        (&["run", "-p", "p"], 2),
        (&["run", "-p", "brokn"], 2),
        (&["run"], 2),
    ] {
        let (here, there) = both(&test, &serving, args);
        let (here, there) = (here.exit(exit), there.exit(exit));
        assert_eq!(there.out(), here.out(), "{args:?}");
        if exit != 0 || !args.contains(&"p") {
            // The live stderr of an active step is not an event of the journal.
            let of_there = without_server(there.err());
            assert_eq!(without_place(&of_there), without_place(here.err()), "{args:?}");
        }
        let json = [args, &["--format", "json"]].concat();
        let (here, there) = both(&test, &serving, &json);
        assert_eq!(without_server_in(&there.exit(exit).doc()), here.exit(exit).doc(), "{args:?}");
        let lines = [args, &["--format", "jsonl"]].concat();
        let (here, there) = both(&test, &serving, &lines);
        let of_there: Vec<Value> = events(there).iter().map(without_server_in).collect();
        assert_eq!(of_there, events(here), "{args:?}");
    }
    let (here, there) = both(&test, &serving, &["run", "-p", "invalid", "--format", "json"]);
    let (here, there) = (here.exit(3).doc(), there.exit(3).doc());
    assert_eq!(there["errors"], here["errors"]);
    assert_eq!(serving.end().0, Some(0));
}

/// cli: the user's own server is reached through its socket, which has no base path.
#[test]
fn an_own_server_below_a_base_path_is_reached() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0", "--base-path", "/etude"]);
    for server in ["local", &format!("{}/etude", address(&serving))] {
        assert_eq!(test.run(&["--server", server, "run", "-p", "p", "-i", "count=3"]).exit(0).out(), "{\"n\": 2}\n");
        assert!(test.run(&["--server", server, "runs", "list"]).exit(0).out().contains("succeeded"), "{server}");
    }
    assert_eq!(serving.end().0, Some(0));
}

/// cli: an output that a JSON tree cannot hold is printed unchanged, by a server as locally. A client that waited for a
/// parsable document would wait for ever.
#[test]
fn any_output_of_a_server_is_printed() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let values = [("half", r#""\ud83d""#), ("huge", "1E400"), ("deep", &deep)];
    let with = |test: Test, (name, value): &(&str, &str)| {
        let script = format!("cat <<'X'\n{{\"output\": {value}}}\nX");
        test.pipeline(name, |p| p.sh("a", &script))
    };
    let test = values.iter().fold(Test::new(), with);
    let serving = Serving::start(&test, &["--port", "0"]);
    for (name, value) in values {
        let (here, there) = both(&test, &serving, &["run", "-p", name, "--format", "json"]);
        for ran in [here.exit(0), there.exit(0)] {
            assert!(ran.out().contains(&format!("\"output\":{value},")), "{name}: {}", ran.out());
        }
        let (here, there) = both(&test, &serving, &["runs", "show", "latest", "--stream", "output"]);
        assert_eq!(there.exit(0).out(), here.exit(0).out(), "{name}");
    }
    assert_eq!(serving.end().0, Some(0));
}

/// cli: a revoked token ends a command that follows a run with it. Repeated requests would lock out its address.
#[test]
fn a_revoked_token_ends_what_follows_a_run() {
    let test = Test::new()
        .pipeline("slow", |p| p.sh("a", "while [ ! -e \"$ROOT/go\" ]; do sleep 0.05; done; echo '{\"output\": 1}'"));
    let serving = Serving::start(&test, &["--port", "0"]);
    let made = raw(&test.run(&["token", "new", "reader", "--scope", "read", "--format", "json"]).exit(0));
    let run = serving.post("/v1/runs", &json!({"pipeline": "slow"}));
    let words =
        ["--server", &address(&serving), "runs", "watch", run["run_id"].as_str().expect("an id"), "--format", "jsonl"];
    let mut command = test.command(&words);
    command.env("ETUDE_TOKEN", made["token"].as_str().expect("a token"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("an event");
    test.run(&["token", "revoke", "reader"]).exit(0);
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(4), "{said}");
    assert!(said.contains("token") && !said.contains("too many"), "{said}");
    test.put("go", "");
    assert_eq!(serving.end().0, Some(0));
}

/// L-67, S-58: a run that fell back also has its mode and the reason on a server.
#[test]
fn a_run_that_fell_back_on_a_server_is_reported_as_one_here() {
    let models = Server::agent([]);
    let steps = "steps: [{name: a, type: tool, tool: Read, args: {path: gone.txt}}]\n";
    let test = Test::new()
        .model(&models)
        .skill("", "Help.\n")
        .yaml("p", &format!("name: p\ndescription: d\nfallback: skill\n{steps}"));
    let serving = Serving::start(&test, &["--port", "0"]);
    let (here, there) = both(&test, &serving, &["run", "-p", "p", "--format", "json"]);
    let (here, there) = (here.exit(0), there.exit(0));
    assert_eq!(there.doc(), here.doc());
    assert_eq!(there.at("/fell_back/reason"), json!("tool_error"));
    for words in [&["runs", "show", "latest"] as &[&str], &["runs", "list", "-n", "1"]] {
        let (here, there) = both(&test, &serving, &[words, &["--format", "json"]].concat());
        let at = if words[1] == "show" { "/mode" } else { "/runs/0/mode" };
        assert_eq!((there.exit(0).at(at), here.exit(0).at(at)), (json!("skill"), json!("skill")), "{words:?}");
    }
    assert_eq!(serving.end().0, Some(0));
}

/// A text without the source lines of the app, which only its own machine has.
fn without_place(text: &str) -> Vec<&str> {
    let is_source = |line: &&str| !line.contains(" | ") && !line.trim_end().ends_with('|');
    // A server continues a run after the decision by itself.
    let continues = ["then: etude runs resume", "the run then continues by itself"];
    let is_same = |line: &&str| !continues.iter().any(|text| line.contains(text));
    text.lines().filter(is_source).filter(is_same).collect()
}

/// A text whose commands name no server: those of hints repeat the option.
fn without_server(text: &str) -> String {
    text.replace(" --server http://127.0.0.1:[PORT]", "")
}

/// The same for a document.
fn without_server_in(document: &Value) -> Value {
    serde_json::from_str(&without_server(&document.to_string())).expect("JSON")
}

/// Lines of `--format jsonl` without the stderr of steps, which the journal does not have.
fn events(ran: Ran) -> Vec<Value> {
    let lines = ran.lines().into_iter();
    lines.filter(|line| line["event"] != "stderr").collect()
}

/// S-58: `runs list` and `runs show` print the runs of the server with the same members as local ones.
#[test]
fn the_runs_of_a_server_are_listed_and_shown_as_here() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    test.run(&["run", "-p", "p", "-i", "count=3"]).exit(0);
    test.run(&["run", "-p", "broken"]).exit(1);
    for args in [&["runs", "list"] as &[&str], &["runs", "list", "--status", "failed"], &["runs", "list", "-n", "1"]] {
        let (here, there) = both(&test, &serving, args);
        // A longer age moves the columns.
        let words = |ran: Ran| ran.out().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(there.exit(0)), words(here.exit(0)), "{args:?}");
        let json = [args, &["--format", "json"]].concat();
        let (here, there) = both(&test, &serving, &json);
        let (mut here, mut there) = (here.exit(0).doc(), there.exit(0).doc());
        // Cursors are valid only for their issuer.
        for document in [&mut here, &mut there] {
            document["next"] = (!document["next"].is_null()).into();
        }
        // A server names its apps.
        for run in
            [&mut here, &mut there].into_iter().flat_map(|document| document["runs"].as_array_mut().expect("runs"))
        {
            run["app"] = Value::Null;
        }
        assert_eq!(there, here, "{args:?}");
    }
    for pipeline in ["p", "broken"] {
        let listed = raw(&test.run(&["runs", "list", "-p", pipeline, "--format", "json"]).exit(0));
        let id = listed["runs"][0]["run_id"].as_str().expect("an id").to_owned();
        let (here, there) = both(&test, &serving, &["runs", "show", &id[..8], "--format", "json"]);
        let (here, there) = (here.exit(0).doc(), there.exit(0).doc());
        for member in [
            "run_id", "status", "mode", "pipeline", "output", "errors", "steps", "usage", "duration_ms", "attempt",
            "input", "started_at", "changed_at", "target", "fell_back", "decisions", "judged", "routing", "definition",
            "calls", "effects",
        ] {
            assert_eq!(without_server_in(&there[member]), here[member], "{member}");
        }
        let of_stream = &there["effects"].as_array().expect("effects")[0]["streams"]["stdout"];
        assert!(of_stream.as_str().is_some_and(|command| command.starts_with("etude --server http://")), "{of_stream}");
        let (here, there) = both(&test, &serving, &["runs", "show", &id]);
        let lines = |ran: Ran| {
            let text = ran.exit(0).out().to_owned();
            // The next commands name the server, so their columns have other widths.
            let shown = text.split("\nnext ").next().unwrap_or_default().trim_end();
            shown.lines().filter(|line| !line.starts_with("app ")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(there), lines(here));
        for stream in ["input", "output", &format!("{pipeline}/a/stderr")] {
            let (here, there) = both(&test, &serving, &["runs", "show", &id, "--stream", stream]);
            assert_eq!((there.code(), there.raw), (here.code(), here.raw), "{stream}");
        }
    }
    let (here, there) = both(&test, &serving, &["runs", "show", "nosuchrun"]);
    let there = there.exit(2);
    assert!(there.err().contains("`etude --server http://127.0.0.1:[PORT] runs list`"), "{}", there.err());
    assert_eq!(without_server(there.err()), here.exit(2).err());
    // A hint in a document repeats the options like a printed one.
    let (_, there) = both(&test, &serving, &["runs", "show", "nosuchrun", "--format", "json"]);
    let hint = raw(&there.exit(2))["errors"][0]["hint"].clone();
    let command = format!("`etude --server {} runs list`", address(&serving));
    assert!(hint.as_str().is_some_and(|hint| hint.contains(&command)), "{hint}");
    assert_eq!(serving.end().0, Some(0));
}

/// cli: a step of a run, the difference of two runs, figures and verdicts are the same on a server and here.
#[test]
fn runs_of_a_server_are_inspected_and_judged_as_here() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    let started = |count: &str| raw(&test.run(&["run", "-p", "p", "-i", count, "--format", "json"]).exit(0));
    let (first, second) = (started("count=3"), started("count=4"));
    let broken = raw(&test.run_json("broken").exit(1));
    let id = |run: &Value| run["run_id"].as_str().expect("an id").to_owned();
    let (first, second, broken) = (id(&first), id(&second), id(&broken));
    for (args, exit) in [
        (&["runs", "show", &first, "a"] as &[&str], 0),
        (&["runs", "show", &first, "a", "1"], 0),
        (&["runs", "show", &first, "a", "9"], 2),
        (&["runs", "show", &broken, "a"], 0),
        (&["runs", "show", &broken, "nothing"], 2),
        (&["runs", "diff", &first, &second], 0),
        (&["runs", "diff", &first, &broken], 0),
        (&["runs", "stats"], 0),
        (&["runs", "stats", "-p", "broken", "--by", "pipeline,model"], 0),
        (&["runs", "judge", &first, "good"], 0),
    ] {
        let (here, there) = both(&test, &serving, args);
        let (here, there) = (here.exit(exit), there.exit(exit));
        assert_eq!(without_server(there.out()), here.out(), "{args:?}");
        assert_eq!(without_server(there.err()), here.err(), "{args:?}");
        let json = [args, &["--format", "json"]].concat();
        let (here, there) = both(&test, &serving, &json);
        let (mut here, mut there) = (here.exit(exit).doc(), without_server_in(&there.exit(exit).doc()));
        // The time of the command.
        for document in [&mut here, &mut there] {
            document["since"] = Value::Null;
        }
        assert_eq!(there, here, "{args:?}");
    }
    assert_eq!(serving.end().0, Some(0));
}

/// A-5.6, cli: `--again` on a server repeats a run of it, with the values that replace those of the earlier input.
#[test]
fn a_run_of_a_server_is_repeated() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    let address = address(&serving);
    let on = |args: &[&str]| test.run(&[&["--server", &*address], args].concat());
    let first = raw(&on(&["run", "-p", "p", "-i", "count=3", "--format", "json"]).exit(0))["run_id"].clone();
    let input = |run: &Value| {
        let id = run["run_id"].as_str().expect("an id");
        raw(&on(&["runs", "show", id, "--format", "json"]).exit(0))["input"].clone()
    };
    let again = |more: &[&str]| {
        let words = ["run", "--again", first.as_str().expect("an id"), "--format", "json"];
        on(&[&words[..], more].concat())
    };
    let same = raw(&again(&[]).exit(0));
    assert_eq!((&same["again_of"], &input(&same)), (&first, &json!({"count": 3, "name": "Ada"})));
    let other = raw(&again(&["-i", "count=4", "--input", "{\"name\": \"Bob\"}", "--max-tokens", "9"]).exit(0));
    assert_eq!((&other["again_of"], &input(&other)), (&first, &json!({"count": 4, "name": "Bob"})));
    assert_eq!(again(&["-i", "count=many"]).exit(2).at("/errors/0/kind"), "input_invalid");
    let labelled = raw(&again(&["--label", "env=test", "--priority", "3"]).exit(0));
    let listed = raw(&test.run(&["runs", "list", "--all", "--label", "env=test", "--format", "json"]).exit(0));
    assert_eq!((&listed["runs"][0]["run_id"], &listed["total"]), (&labelled["run_id"], &json!(1)));
    assert_eq!(serving.end().0, Some(0));
}

/// S-90, cli: a question of a run on a server is answered, and the run is followed to its end; a decided question is exit
/// status 2.
#[test]
fn a_question_is_answered_on_the_server() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    let address = address(&serving);
    let on = |args: &[&str]| test.run(&[&["--server", &address], args].concat());
    let waiting = raw(&on(&["run", "-p", "ask", "--format", "json"]).exit(5));
    let (run, id) = (waiting["run_id"].as_str().expect("an id"), waiting["waiting"][0]["id"].as_str().expect("an id"));
    on(&["approve", id, "--by", "somebody"]).exit(2).stderr_has("does not accept `--by`");
    on(&["approve", id, "--question", "another"]).exit(2);
    let ended = raw(&on(&["approve", id, "--resume", "--format", "json"]).exit(0));
    assert_eq!((&ended["run_id"], &ended["output"]), (&json!(run), &json!(7)));
    on(&["approve", run]).exit(2).stderr_has("is not waiting for a decision: succeeded");
    let (there, here) =
        (on(&["approve", id, "--format", "json"]).exit(2), test.run(&["approve", id, "--format", "json"]));
    assert_eq!(there.at("/errors/0/message"), here.exit(2).at("/errors/0/message"));
    assert_eq!(there.at("/errors/0/decision/approved"), json!(true), "{}", there.out());
    let denied = raw(&on(&["run", "-p", "ask", "--format", "json"]).exit(5));
    let run = denied["run_id"].as_str().expect("an id");
    let decided = raw(&on(&["deny", run, "--reason", "not today", "--format", "json"]).exit(0));
    assert_eq!(decided, json!({"run_id": run, "id": denied["waiting"][0]["id"], "decision": "denied"}));
    let watched = raw(&on(&["runs", "watch", run, "--format", "json"]).exit(1));
    assert_eq!(watched["errors"][0]["kind"], "approval_denied");
    assert_eq!(serving.end().0, Some(0));
}

/// A-5.6: a failed run on a server continues there, and the result of a successful run is printed again.
#[test]
fn a_failed_run_continues_on_the_server() {
    let test = Test::new().pipeline("p", |p| {
        p.note("first", "1").sh("second", "echo second >> \"$LEDGER\"; [ -e \"$ROOT/go\" ] && echo '{\"output\": 2}'")
    });
    let serving = Serving::start(&test, &["--port", "0"]);
    let address = address(&serving);
    let on = |args: &[&str]| test.run(&[&["--server", &address], args].concat());
    let failed = raw(&on(&["run", "-p", "p", "--format", "json"]).exit(1));
    let run = failed["run_id"].as_str().expect("an id");
    on(&["runs", "retry", run, "--from", "third-step"]).exit(2);
    test.put("go", "");
    let ended = raw(&on(&["runs", "resume", run, "--format", "json"]).exit(0));
    assert_eq!((&ended["run_id"], &ended["output"], &ended["attempt"]), (&json!(run), &json!(2), &json!(2)));
    assert_eq!(test.ledger(), ["first", "second", "second"]);
    on(&["runs", "resume", run]).exit(0).stderr_has("nothing is left to do");
    on(&["runs", "cancel", run]).exit(2).stderr_has("has ended: succeeded");
    let retry = ["runs", "retry", run, "--from", "first", "--timeout", "2h", "--format", "json"];
    let again = raw(&on(&retry).exit(0));
    assert_eq!(again["attempt"], 3);
    // Section 4: the actor is recorded with the run, there and here.
    let show = ["runs", "show", run, "--format", "json"];
    let (there, here) = (raw(&on(&show).exit(0)), raw(&test.run(&show).exit(0)));
    assert_eq!(there["limits"]["timeout_ms"], 7_200_000);
    let actions: Vec<Value> =
        there["actions"].as_array().expect("actions").iter().map(|one| json!([one["by"], one["action"]])).collect();
    assert_eq!(actions, [json!(["owner", "resume"]), json!(["owner", "retry"])]);
    assert_eq!(here["actions"], there["actions"]);
    assert!(on(&show[..3]).exit(0).out().contains("\nactions   resume by owner at "));
    let removed = raw(&on(&["runs", "delete", run, "--format", "json"]).exit(0));
    assert_eq!(removed, json!({"removed": 1}));
    on(&["runs", "show", run]).exit(2);
    assert_eq!(serving.end().0, Some(0));
}

/// cli: Ctrl-C cancels a run on a server like a local one.
#[test]
fn an_interrupt_cancels_the_run_on_the_server() {
    let test = Test::new().pipeline("slow", |p| p.sh("a", "echo begun >> \"$LEDGER\"; sleep 300"));
    let serving = Serving::start(&test, &["--port", "0"]);
    let started = test.start(&["--server", &address(&serving), "run", "-p", "slow", "--format", "json"]);
    test.wait_for("begun");
    started.signal("INT");
    let ended = raw(&started.finish().exit(130));
    assert_eq!((&ended["status"], &ended["errors"][0]["kind"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(serving.end().0, Some(0));
}

/// cli: Ctrl-C ends `runs watch` with one document and status 130, here and on a server. The run continues.
#[test]
fn an_interrupted_watch_leaves_the_run_alone() {
    let wait = "echo begun >> \"$LEDGER\"; while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; echo '{\"output\": 1}'";
    let test = Test::new().pipeline("slow", |p| p.sh("a", wait));
    let serving = Serving::start(&test, &["--port", "0"]);
    let id = serving.post("/v1/runs", &json!({"pipeline": "slow"}))["run_id"].as_str().expect("an id").to_owned();
    test.wait_for("begun");
    let (here, there) = both(&test, &serving, &["runs", "show", &id, "--format", "json"]);
    for shown in [here.exit(0), there.exit(0)] {
        assert_eq!(shown.at("/steps/0/status"), "running", "{}", shown.out());
    }
    let watch = ["runs", "watch", &id, "--format", "jsonl"];
    for words in [watch.to_vec(), [&["--server", &address(&serving)], &watch[..]].concat()] {
        let watching = test.start(&words);
        wait_until("an event", || watching.stdout_so_far().contains("\"step_started\""));
        watching.interrupt();
        let ended = watching.finish().exit(130).stderr_has(" runs watch [RUN]");
        let lines = ended.lines();
        let document = lines.last().expect("a document");
        assert_eq!((document["run_id"].is_string(), &document["errors"][0]["kind"]), (true, &json!("cancelled")));
        // The status is that of the run, which nothing has cancelled.
        assert_eq!((&document["status"], &document["pipeline"]), (&json!("running"), &json!("slow")));
    }
    test.put("go", "");
    test.run(&["runs", "watch", &id]).exit(0);
    assert_eq!(serving.end().0, Some(0));
}

/// cli: a run is followed past the death of its server, without a repeated or lost event.
#[test]
fn a_run_is_followed_past_the_death_of_its_server() {
    let test = Test::new().pipeline("slow", |p| {
        let wait =
            "echo begun >> \"$LEDGER\"; while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; echo '{\"output\": 1}'";
        p.note("first", "0").sh("a", wait)
    });
    let mut serving = Serving::start(&test, &["--port", "0"]);
    let address = address(&serving);
    let port = address.rsplit_once(':').expect("a port").1.to_owned();
    let started = test.start(&["--server", &address, "run", "-p", "slow", "--format", "jsonl"]);
    test.wait_for("begun");
    // A client without the response does not know of the run yet.
    wait_until("the stream", || started.stdout_so_far().contains("\"step_ended\""));
    serving.child.kill().expect("it is ours");
    serving.child.wait().expect("it ends");
    test.put("go", "");
    let serving = Serving::start(&test, &["--port", &port]);
    let lines = started.finish().exit(0).lines();
    let named = |name: &str| lines.iter().filter(|line| line["event"] == name).count();
    assert_eq!(
        (named("step_started"), named("step_ended"), lines.last().expect("a line")["output"].clone()),
        (2, 2, json!(1))
    );
    assert_eq!(serving.end().0, Some(0));
}

/// cli: the token comes from the environment or a file; the owner's goes only to the user's own socket, and no step inherits
/// one.
#[test]
fn a_token_is_no_argument_and_goes_to_no_stranger() {
    let test = Test::new().pipeline("p", |p| p.sh("a", "echo \"{\\\"output\\\": \\\"${ETUDE_TOKEN-none}\\\"}\""));
    let serving = Serving::start(&test, &["--port", "0"]);
    let address = address(&serving);
    // Without a token, the socket of the server that has this address is used.
    test.run(&["--server", &address, "runs", "list"]).exit(0);
    test.run(&["--server", "local", "runs", "list"]).exit(0);
    // A program that listens at another port gets no request.
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a port");
    stranger.set_nonblocking(true).expect("it can be asked");
    let other = format!("http://{}", stranger.local_addr().expect("an address"));
    test.run(&["--server", &other, "runs", "list"]).exit(4).stderr_has("there is no token");
    assert!(stranger.accept().is_err(), "nobody calls");
    test.run(&["--server", "http://runs.example", "runs", "list"]).exit(2).stderr_has("without encryption");
    let new = test.run(&["token", "new", "ci", "--scope", "read,run", "--format", "json"]).exit(0);
    let token = raw(&new)["token"].as_str().expect("a token").to_owned();
    let path = test.path("token");
    fs::write(&path, format!("{token}\n")).expect("a file");
    let of_file =
        |test: Test| test.env("ETUDE_SERVER", &address).env("ETUDE_TOKEN_FILE", path.to_str().expect("UTF-8"));
    let test = of_file(test);
    let ran = raw(&test.run(&["run", "-p", "p", "--format", "json"]).exit(0));
    assert_eq!(
        serving.document("GET", &format!("/v1/runs/{}", ran["run_id"].as_str().expect("an id")), "")["by"],
        "ci"
    );
    let test = test.env("ETUDE_TOKEN", "etd_wrong");
    test.run(&["runs", "list"]).exit(4).stderr_has("refuses the token");
    let test = test.env("ETUDE_TOKEN", &token);
    test.run(&["runs", "list"]).exit(0);
    test.run(&["approve", ran["run_id"].as_str().expect("an id")]).exit(2);
    // In a local run, no step gets it.
    let test = test.without_env("ETUDE_SERVER");
    assert_eq!(test.run_json("p").exit(0).value()["output"], "none");
    assert_eq!(serving.end().0, Some(0));
}

/// The URL of a program that gives this response to every request.
fn stranger(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let head = reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            let len = head.filter_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok()).last();
            // The rest of a request that is not read would reset the connection.
            let _ = std::io::copy(&mut reader.take(len.unwrap_or(0)), &mut std::io::sink());
            let len = body.len();
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}");
        }
    });
    url
}

/// The URL of a server with a run `abc` that is gone at the first look, and the lines of its requests.
fn scripted() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let of_server = Arc::clone(&asked);
    thread::spawn(move || {
        let mut streams = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let head = reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            let head: Vec<String> = head.collect();
            let length = |line: &String| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok();
            let length = head.iter().find_map(length).unwrap_or(0);
            let _ = std::io::copy(&mut reader.take(length), &mut std::io::sink());
            let line = head[0].trim_end_matches(" HTTP/1.1").to_owned();
            let (status, kind, body) = match line.as_str() {
                "GET /v1/server" => ("200 OK", "application/json", "{\"apps\": [\"a\"]}"),
                "GET /v1/apps/a/pipelines/p/schema" => ("200 OK", "application/json", "{}"),
                "POST /v1/runs" => ("202 Accepted", "application/json", "{\"run_id\": \"abc\"}"),
                "GET /v1/events" | "GET /v1/runs/abc/events" => ("200 OK", "text/event-stream", ""),
                _ => ("404 Not Found", "application/problem+json", "{\"code\": \"not_found\"}"),
            };
            of_server.lock().expect("no panic").push(line);
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}");
            // A stream of events stays open.
            streams.extend(body.is_empty().then_some(stream));
        }
    });
    (url, asked)
}

/// cli: changes of runs are received before the first look at the run, so that a run that waits by then is seen at once.
#[test]
fn changes_are_received_before_the_first_look() {
    let (url, asked) = scripted();
    let test = test().env("ETUDE_TOKEN", "etd_x");
    test.run(&["--server", &url, "run", "-p", "p"]).exit(2);
    let asked = asked.lock().expect("no panic").clone();
    let at = |line: &str| asked.iter().position(|one| one == line).unwrap_or_else(|| panic!("{line}: {asked:?}"));
    assert!(at("GET /v1/events") < at("GET /v1/runs/abc"), "{asked:?}");
}

/// cli: a program that is not an etude server is a fault of the environment, whatever it responds.
#[test]
fn another_program_is_not_a_server() {
    for (status, body, why) in [
        ("200 OK", "{\"ok\": true}", "the response of the server at "),
        ("200 OK", "<html>", " is not "),
        ("404 Not Found", "gone", " responds with status 404, but not as an etude server"),
    ] {
        let (url, test) = (stranger(status, body), test().env("ETUDE_TOKEN", "etd_x"));
        for words in ["runs list", "runs show latest", "runs show abc", "runs watch abc", "runs stats", "run -p p"] {
            let words: Vec<&str> = words.split(' ').collect();
            let ran = test.run(&[&["--server", &*url], &words[..]].concat());
            ran.exit(4).stdout("").stderr_has(why).stderr_has("hint: ");
        }
    }
}

/// cli: a command that a server cannot execute is exit status 2 with a hint, and nothing is done locally instead.
#[test]
fn what_a_server_cannot_do_is_refused() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    let address = address(&serving);
    for args in [
        &["check"] as &[&str],
        &["runs", "prune"],
        &["runs", "export", "latest"],
        &["run", "-p", "p", "--refresh"],
        &["run", "-p", "p", "--yolo"],
        &["run", "-p", "p", "--read", "."],
        &["run", "--skill", "do it"],
        &["run", "-p", "p", "-i", "count=1", "--queue", "slow"],
        &["run", "-p", "p", "-i", "count=1", "--bundle", "other"],
        &["run", "-p", "p", "-i", "count=1", "--tenant", "other"],
        &["run", "-p", "p", "-i", "count=1", "--label", "env"],
        &["--app", "other", "run", "-p", "p"],
    ] {
        let ran = test.run(&[&["--server", &address], args].concat()).exit(2);
        assert!(ran.err().contains("hint: "), "{args:?}: {}", ran.err());
    }
    // The refusal names the way out.
    for (args, way) in [
        (["runs", "export", "latest"].as_slice(), "runs show RUN --format json"),
        (&["runs", "prune"], "runs delete RUN"),
    ] {
        test.run(&[&["--server", &*address], args].concat()).exit(2).stderr_has(way);
    }
    let dry = test.run(&["--server", &address, "run", "-p", "p", "-i", "count=1", "--dry-run", "--format", "json"]);
    assert_eq!(dry.exit(0).value()["pipeline"], "p");
    let test = test.env("ETUDE_SERVER", &address);
    test.run(&["runs", "prune"]).exit(2).stderr_has("ETUDE_SERVER");
    test.run(&["list"]).exit(0);
    assert_eq!(serving.end().0, Some(0));
    test.run(&["runs", "list"]).exit(4);
}

/// A-6.3, cli: a request that fits nothing fails on a server as it does locally, with a list of the existing pipelines.
#[test]
fn a_failed_routing_has_the_same_document_on_a_server() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    let address = address(&serving);
    let run = ["run", "book me a flight to Lisbon", "--format", "json"];
    let here = test.run(&run).exit(1).value();
    let there = test.run(&[&["--server", &*address], &run[..]].concat()).exit(1).value();
    assert_eq!((&without_server_in(&there["errors"]), &there["status"]), (&here["errors"], &here["status"]));
    assert_eq!(here["errors"][0]["phase"], "routing");
    assert_eq!(serving.end().0, Some(0));
}

/// cli: a run on a server is submitted with its labels, priority, time and key; detached, it is reported like one in a shared
/// database.
#[test]
fn a_run_is_submitted_to_a_server_with_its_options() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    let address = address(&serving);
    let options = ["--label", "env=test", "--priority", "-7", "--not-before", "2035-01-31T08:00:00Z", "--key", "k 1"];
    let start = ["--server", &address, "run", "-p", "p", "-i", "count=3", "--detach"];
    let submit = |more: &[&str]| test.run(&[&start as &[&str], &options, more].concat());
    let first = raw(&submit(&["--format", "json"]).exit(0));
    let id = first["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(first, json!({"run_id": id, "status": "queued", "replayed": false}));
    let run = serving.document("GET", &format!("/v1/runs/{id}"), "");
    assert_eq!((&run["labels"], &run["priority"]), (&json!({"env": "test"}), &json!(-7)));
    assert_eq!((&run["not_before"], &run["status"]), (&json!("2035-01-31T08:00:00.000Z"), &json!("queued")));
    let second = raw(&submit(&["--format", "json"]).exit(0));
    assert_eq!(second, json!({"run_id": id, "status": "queued", "replayed": true}));
    let text = submit(&[]).exit(0);
    assert_eq!(String::from_utf8_lossy(&text.raw).trim_end(), id);
    text.stderr_has("etude --server http://127.0.0.1:[PORT] runs watch [RUN]");
    let other = [&["--server", &address, "run", "-p", "p", "-i", "count=4", "--detach"] as &[&str], &options].concat();
    test.run(&other).exit(2).stderr_has("idempotency key");
    // S-58: both describe a run that has not begun in the same way: every step is untouched, and nothing was used.
    let shown = raw(&test.run(&["runs", "show", &id, "--format", "json"]).exit(0));
    for member in ["run_id", "status", "mode", "pipeline", "steps", "input"] {
        assert_eq!(run[member], shown[member], "{member}");
    }
    assert_eq!((&run["steps"][0]["status"], &run["steps"][0]["waiting"]), (&json!("not_started"), &Value::Null));
    assert_eq!(shown["usage"]["shadow"], json!({"calls": 0, "input_tokens": 0, "output_tokens": 0}));
    assert_eq!(serving.end().0, Some(0));
}

/// cli: a run is found by its id, and by a prefix of it, however many newer runs have that in a label.
#[test]
fn a_run_is_found_behind_many_that_name_it() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    let first = serving.post("/v1/runs", &json!({"pipeline": "ask"}));
    let id = first["run_id"].as_str().expect("an id");
    for _ in 0..201 {
        let run = serving.post("/v1/runs", &json!({"pipeline": "ask", "labels": {"of": id}}));
        assert!(run["run_id"].is_string(), "{run}");
    }
    for given in [id, &id[..id.len() - 1]] {
        let shown = test.run(&["--server", &address(&serving), "runs", "show", given, "--format", "json"]).exit(0);
        assert_eq!(raw(&shown)["run_id"], id, "{given}");
    }
}
