//! `etude runs`: list, show, export, delete, prune.

use serde_json::{Value, json};

#[cfg(feature = "serve")]
use crate::serve::Serving;
use crate::server::{Reply, Server};
use crate::test::Test;

fn reviewed(server: &Server) -> Test {
    Test::new().model(server).pipeline("p", |p| {
        p.with("input: {k: string}")
            .sh("one", "cat >/dev/null; echo said >&2; echo '{ \"output\" : [1.50] }'")
            .llm("ask", "about {{one.output}}", "schema: s.json")
            .file("s.json", r#"{"type":"object","required":["n"]}"#)
    })
}

const RUN: [&str; 7] = ["run", "-p", "p", "-i", "k=v", "--format", "json"];

/// cli: runs of this app are listed newest first, filtered by status; those of all apps on demand.
#[test]
fn runs_are_listed_newest_first() {
    let test = Test::new().pipeline("good", |p| p.note("a", "1")).pipeline("bad", |p| p.sh("a", "exit 1"));
    test.run_json("good").exit(0);
    test.run_json("bad").exit(1);
    let row = |pipeline: &str, status: &str| {
        json!({
            "run_id": "[RUN]", "status": status, "mode": "pipeline", "pipeline": pipeline, "machine": null, "app": "[APP]",
            "started_at": "[WHEN]", "changed_at": "[WHEN]", "duration_ms": 0, "tokens": 0, "cost_usd": null,
            "kind": (status == "failed").then_some("step_failed"),
            "reason": (status == "failed").then_some("code step `a` exited with status 1"),
        })
    };
    test.run(&["runs", "list", "--format", "json"])
        .exit(0)
        .stdout_json(json!({"runs": [row("bad", "failed"), row("good", "succeeded")], "next": null, "total": 2}));
    test.run(&["runs", "list", "--status", "failed", "--format", "json"])
        .stdout_json(json!({"runs": [row("bad", "failed")], "next": null, "total": 1}));
    // The limit counts listed runs, not those that the status filter excludes.
    test.run(&["runs", "list", "--status", "succeeded", "-n", "1", "--format", "json"])
        .stdout_json(json!({"runs": [row("good", "succeeded")], "next": null, "total": 1}));
    let page = test.run(&["runs", "list", "-n", "1", "--format", "json"]);
    assert_eq!((page.at("/runs"), page.at("/total")), (json!([row("bad", "failed")]), json!(2)));
    let cursor = page.at("/next").as_str().expect("there is another page").to_owned();
    let rest = json!({"runs": [row("good", "succeeded")], "next": null, "total": 2});
    test.run(&["runs", "list", "-n", "1", "--after", &cursor, "--format", "json"]).stdout_json(rest);
    test.run(&["runs", "list", "-n", "1"]).exit(0).stderr("1 of 2 shown; more: -n 2");
    let listed = test.run(&["runs", "list"]).exit(0).stderr("");
    let reason =
        listed.out().lines().nth(1).is_some_and(|line| line.ends_with("bad       code step `a` exited with status 1"));
    assert!(reason, "{}", listed.out());
    let ids = |args: &[&str]| -> Vec<Value> {
        let ran = test.run(&[&["runs", "list", "--format", "jsonl"], args].concat()).exit(0);
        ran.lines().iter().map(|run| run["pipeline"].clone()).collect()
    };
    assert_eq!(ids(&[]), ["bad", "good"]);
    assert_eq!(ids(&["--pipeline", "good"]), ["good"]);
    assert_eq!(ids(&["--since", "1d"]), ["bad", "good"]);
    assert_eq!(ids(&["--since", "0"]), [""; 0]);
    test.put("elsewhere/other/pipelines/x/pipeline.yaml", "");
    let test = test.cwd("elsewhere/other");
    test.run(&["runs", "list", "--format", "json"]).stdout_json(json!({"runs": [], "next": null, "total": 0}));
    test.run(&["runs", "list", "--all", "--format", "json"]).has("/runs/1/pipeline", "good");
}

/// cli: a run is shown with its result, its input, and the place of each stream; each stream is printed unchanged.
#[test]
fn a_run_is_shown_with_everything_that_it_read_and_wrote() {
    let server = Server::new([Reply::says("nope"), Reply::says("```json\n{\"n\":1}\n```")]);
    let test = reviewed(&server);
    let ran = test.run(&RUN).output(json!({"n": 1}));
    let id = ran.id();
    let shown = test.run(&["runs", "show", &id, "--format", "json"]).exit(0);
    let doc = shown.doc();
    for member in ["run_id", "status", "output", "errors", "steps", "usage"] {
        assert_eq!(doc[member], ran.doc()[member], "{member}");
    }
    assert_eq!(doc["input"], json!({"k": "v"}));
    let ids: Vec<&Value> = doc["effects"].as_array().into_iter().flatten().map(|effect| &effect["id"]).collect();
    assert_eq!(ids, ["p/one", "p/ask", "p/ask#2"]);

    let stream = |name: &str| {
        let ran = test.run(&["runs", "show", &id, "--stream", name]).exit(0).stderr("");
        String::from_utf8(ran.raw).expect("it is UTF-8")
    };
    assert_eq!(stream("p/one/stdin"), r#"{"input":{"k":"v"},"steps":{}}"#);
    assert_eq!(stream("p/one/stdout"), "[1.50]");
    assert_eq!(stream("p/one/stderr"), "said\n");
    assert_eq!(stream("p/ask/answer"), "nope");
    assert_eq!(stream("p/ask#2/answer"), "```json\n{\"n\":1}\n```");
    assert!(stream("p/ask/prompt").contains("about [1.50]"), "{}", stream("p/ask/prompt"));
    assert!(stream("p/ask#2/prompt").contains("nope"), "{}", stream("p/ask#2/prompt"));
    for bad in ["p/one/answer", "p/none/stdout", "nonsense", "p/one/nonsense"] {
        test.run(&["runs", "show", &id, "--stream", bad]).exit(2).stdout("");
    }
}

/// The text about a run that people read.
#[test]
fn a_run_is_shown_to_people() {
    let server = Server::new([Reply::says("nope"), Reply::says("{\"n\":1}")]);
    let test = reviewed(&server);
    let id = test.run(&RUN).exit(0).id();
    let shown = test.run(&["runs", "show", &id]).exit(0).stderr("");
    for part in [
        "pipeline  p\n",
        "status    succeeded (",
        "2 model calls, 220 tokens",
        "input     {\"k\":\"v\"}\n",
        "\n  ✓ one ",
    ] {
        assert!(shown.out().contains(part), "{part}: {}", shown.out());
    }
    assert!(
        shown.out().contains("1 retry, 220 tokens, mock/m-std\n\noutput\n  {\n    \"n\": 1\n  }\n"),
        "{}",
        shown.out()
    );
    let step = test.run(&["runs", "show", "latest", "ask"]).exit(0).stderr("");
    let rejected = step.out().lines().find(|line| line.starts_with("  attempt 1  rejected: "));
    assert!(rejected.is_some(), "{}", step.out());
    assert!(step.out().contains("\nanswer:\n  {\n    \"n\": 1\n  }\n"), "{}", step.out());
    let first = test.run(&["runs", "show", &id, "ask", "1"]).exit(0);
    assert!(first.out().contains("\nrejected: ") && first.out().contains("\nanswer:\n  nope\n"), "{}", first.out());
    let code = test.run(&["runs", "show", &id, "one"]).exit(0);
    assert!(code.out().contains("stdin:\n  {") && code.out().contains("stderr:\n  said\n"), "{}", code.out());
    test.run(&["runs", "show", &id, "ask", "9"]).exit(2).stderr_has("hint: it has 1 to 2");
    test.run(&["runs", "show", &id, "asq"]).exit(2).stderr_has("hint: its steps: one, ask");
    assert_eq!(test.run(&["runs", "show", &id, "--stream", "output"]).exit(0).out(), "{\"n\":1}");
    assert_eq!(test.run(&["runs", "show", &id, "--stream", "input"]).exit(0).out(), "{\"k\":\"v\"}");
}

/// cli: `latest` is the newest run of this app, wherever a run's id is accepted.
#[test]
fn latest_is_an_id_everywhere() {
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("w", |p| p.step("name: gate\ntype: approval\nmessage: x"));
    test.run(&["runs", "show", "latest"]).exit(2).stderr_has("has no run, so there is no latest one");
    test.run_json("p").exit(0);
    let id = test.run_json("w").exit(5).id();
    assert_eq!(test.run(&["runs", "show", "latest", "--format", "json"]).id(), id);
    test.run(&["runs", "watch", "latest"]).exit(5);
    test.run(&["approve", "latest"]).exit(0);
    assert_eq!(test.run(&["runs", "resume", "latest", "--format", "json"]).exit(0).id(), id);
    let exported = test.run(&["runs", "export", "latest"]).exit(0);
    assert!(String::from_utf8_lossy(&exported.raw).contains(&id));
    test.run(&["runs", "cancel", "latest"]).exit(2).stderr_has("has ended");
    test.run(&["runs", "diff", "latest", "latest"]).exit(0).stderr_has("the same definition");
}

/// cli: following a finished run prints its events as `run` does, then the result document, and ends with its exit status.
#[test]
fn a_run_is_followed_with_the_events_of_its_journal() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1").sh("b", "exit 3"));
    let ran = test.run(&["run", "-p", "p", "--format", "jsonl"]).exit(1);
    let watched = test.run(&["runs", "watch", "latest", "--format", "jsonl"]).exit(1);
    let names =
        |lines: Vec<Value>| -> Vec<Value> { lines.iter().map(|line| json!([line["event"], line["step"]])).collect() };
    assert_eq!(names(watched.lines()), names(ran.lines()));
    let text = test.run(&["runs", "watch", "latest"]).exit(1).stdout("");
    assert!(text.err().contains("✗ b") && text.err().contains("exited with status 3"), "{}", text.err());
}

/// S-77: after an edit, or without its pipeline, a run is shown in full and unchanged, because its journal keeps the files that
/// define it.
#[test]
fn an_edit_changes_no_event_of_an_earlier_run() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1").note("b", "2"));
    let id = test.run_json("p").exit(0).id();
    let watch = || test.run(&["runs", "watch", &id, "--format", "jsonl"]).exit(0);
    let before = watch();
    let stdin = || test.run(&["runs", "show", &id, "--stream", "p/b/stdin"]).exit(0).raw;
    let stdin_before = stdin();
    let path = "pipelines/p/pipeline.yaml";
    test.put(path, &test.read(path).replace("name: a", "name: z"));
    let after = watch();
    assert_eq!(after.out(), before.out(), "{}", after.err());
    assert!(!after.err().contains("not shown"), "{}", after.err());
    assert_eq!(stdin(), stdin_before);
    std::fs::remove_dir_all(test.path("pipelines/p")).expect("removed");
    assert_eq!(watch().out(), before.out());
}

/// cli: statistics count runs by pipeline; a dry prune names what would go and removes nothing; two runs are compared.
#[test]
fn runs_are_counted_compared_and_weighed() {
    let test = Test::new()
        .pipeline("p", |p| p.with("input: {n: integer}").note("a", "1"))
        .pipeline("bad", |p| p.sh("a", "exit 1"));
    let stats = test.run(&["runs", "stats", "--format", "json"]).exit(0);
    stats.has("/groups", json!([])).has("/total/runs", 0).has("/total/tokens", 0).has("/total/failures", json!([]));
    let run = |n: &str| test.run(&["run", "-p", "p", "-i", n, "--format", "json"]).exit(0).id();
    let (first, second) = (run("n=1"), run("n=2"));
    test.run_json("bad").exit(1);
    let stats = test.run(&["runs", "stats", "--since", "1d", "--by", "pipeline,model", "--format", "json"]).exit(0);
    assert_eq!((stats.at("/total/runs"), stats.at("/groups/0/pipeline")), (json!(3), json!("p")));
    assert_eq!(stats.at("/groups/1/failures/0/reason"), json!("step_failed in a"));
    assert!(test.run(&["runs", "stats"]).exit(0).out().contains("bad          1      0 %"));
    let diff = test.run(&["runs", "diff", &first, &second, "--format", "json"]).exit(0);
    assert_eq!(diff.at("/input"), json!([{"path": "/n", "change": "changed", "a": 1, "b": 2}]));
    std::thread::sleep(std::time::Duration::from_millis(5));
    let dry = test.run(&["runs", "prune", "--older-than", "1ms", "--dry-run", "--format", "json"]).exit(0);
    assert_eq!(dry.at("/runs").as_array().map(Vec::len), Some(3));
    assert!(dry.at("/bytes").as_u64().is_some_and(|bytes| bytes > 0));
    test.run(&["runs", "show", &first]).exit(0);
    test.run(&["runs", "backup", "copy.tar"]).exit(0).stderr_has("3 runs and ");
    test.run(&["runs", "backup", "copy.tar"]).exit(2).stderr_has("already exists and was not overwritten");
    // The fault is of the new file, and not of the journal.
    test.run(&["runs", "backup", "no/copy.tar"])
        .exit(4)
        .stderr_has("error[E0101]: the backup `no/copy.tar` cannot be written");
}

/// cli: an export is JSON lines: the run, each record in order, the result.
#[test]
fn an_export_has_every_record() {
    let server = Server::new([Reply::says("{\"n\":1}")]);
    let test = reviewed(&server);
    let id = test.run(&RUN).exit(0).id();
    let lines = test.run(&["runs", "export", &id]).exit(0).stderr("").lines();
    let kinds: Vec<String> = lines
        .iter()
        .map(|line| match line.as_object().and_then(|line| line.iter().next()) {
            Some((kind, body)) if kind == "record" => format!("record {}", body["key"].as_str().unwrap_or("-")),
            Some((kind, _)) => kind.clone(),
            None => "-".to_owned(),
        })
        .collect();
    assert_eq!(kinds, ["run", "record !definition", "record p/one", "record p/ask", "result"]);
}

/// cli: pruning removes finished runs of the given age, and no others.
#[test]
fn pruning_removes_finished_runs_only() {
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("w", |p| p.step("name: gate\ntype: approval\nmessage: x"));
    test.run_json("p").exit(0);
    let waiting = test.run_json("w").exit(5).id();
    test.run(&["runs", "prune", "--format", "json"]).exit(0).stdout_json(json!({"removed": 0}));
    std::thread::sleep(std::time::Duration::from_millis(5));
    test.run(&["runs", "prune", "--older-than", "1ms", "--format", "json"]).exit(0).stdout_json(json!({"removed": 1}));
    let left = test.run(&["runs", "list", "--format", "json"]);
    assert_eq!((left.id_of_first_run(), left.at("/runs/1")), (waiting, Value::Null));
}

/// cli: finished runs are deleted by their ids; if one of the ids is active or missing, none is deleted.
#[test]
fn runs_that_have_ended_are_deleted_one_by_one() {
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("w", |p| p.step("name: gate\ntype: approval\nmessage: x"));
    let ids = [test.run_json("p").exit(0).id(), test.run_json("p").exit(0).id(), test.run_json("p").exit(0).id()];
    let waiting = test.run_json("w").exit(5).id();
    let ran = test.run(&["runs", "delete", &ids[0], &waiting]).exit(2);
    assert!(ran.err().contains("has not ended: waiting") && ran.err().contains("etude runs cancel"), "{}", ran.err());
    test.run(&["runs", "delete", &ids[0], "zzzz"]).exit(2);
    let two = ["runs", "delete", &ids[0], &ids[1][..8], &ids[1], "--format", "json"];
    test.run(&two).exit(0).stdout_json(json!({"removed": 2}));
    test.run(&["runs", "show", &ids[0]]).exit(2);
    let left = test.run(&["runs", "list", "--format", "json"]).at("/total");
    test.run(&["runs", "delete", &ids[2]]).exit(0).stderr_has("1 run removed\n");
    let last = test.run(&["runs", "list", "--format", "json"]);
    assert_eq!((left, last.at("/total"), last.id_of_first_run()), (json!(2), json!(1), waiting));
    test.run(&["runs", "delete"]).exit(2);
}

/// cli: an id that matches no run, or several, is wrong usage.
#[test]
fn ids_that_name_no_run_or_several_are_wrong_usage() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    for command in ["show", "export", "resume", "cancel"] {
        test.run(&["runs", command, "nosuchrun"]).exit(2).stdout("").stderr_has("nosuchrun");
        test.run(&["runs", command, "nosuchrun", "--format", "json"]).exit(2).failed_with(&["- -: input_invalid"]);
    }
}

/// A large output is stored once and shown in full.
#[test]
fn a_large_output_is_shown_whole() {
    let test = Test::new()
        .pipeline("p", |p| p.sh("a", "printf '{\"output\":\"'; head -c 1000000 /dev/zero | tr '\\0' x; printf '\"}'"));
    let ran = test.run_json("p").exit(0);
    let id = ran.id();
    assert_eq!(ran.at("/output").as_str().map(str::len), Some(1_000_000));
    let shown = test.run(&["runs", "show", &id, "--format", "json"]).exit(0);
    assert_eq!(shown.at("/output").as_str().map(str::len), Some(1_000_000));
    assert_eq!(test.run(&["runs", "show", &id, "--stream", "p/a/stdout"]).raw.len(), 1_000_002);
}

/// Several runs at once share the journal without interference.
#[test]
fn runs_at_the_same_time_do_not_disturb_each_other() {
    let test = Test::new().pipeline("p", |p| p.with("input: {n: integer}").sh("a", "cat").with("output: a"));
    test.put("app/pipelines/p/steps/a.sh", "sed 's/^{\"input\":/{\"output\":/; s/,\"steps\":{}}$/}/'\n");
    let running: Vec<_> =
        (0..6).map(|n| test.start(&["run", "-p", "p", "-i", &format!("n={n}"), "--format", "json"])).collect();
    for (n, running) in running.into_iter().enumerate() {
        running.finish().output(json!({"n": n}));
    }
    let listed = test.run(&["runs", "list", "--format", "json"]).exit(0);
    assert_eq!(listed.at("/runs").as_array().map(Vec::len), Some(6));
}

/// cli: a waiting run says what it waits for and how to answer; its rows show the waiting step.
#[test]
fn a_waiting_run_is_shown_with_what_it_waits_for() {
    let server = Server::new([Reply::bash("echo asked")]);
    let test = Test::new()
        .skill("", "Be brief.\n")
        .file("etude.yaml", "approvals: {mode: ask, unattended: wait}\n")
        .model(&server);
    let ran = test.follow("go", &[]).exit(5);
    assert_eq!((ran.at("/steps/0/waiting"), ran.at("/steps/0/attempts")), (json!(true), json!(1)));
    let id = ran.id();
    let shown = test.run(&["runs", "show", &id]).exit(0);
    assert!(shown.out().contains("waits for tool: "), "{}", shown.out());
    assert!(shown.out().contains("etude approve '") && shown.out().contains("etude deny '"), "{}", shown.out());
    test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/waiting/0/kind", "tool");
}

/// A-7.3: an approved call has one event for its beginning and one for its end, whichever process continues the run.
#[test]
fn an_approved_call_is_reported_once() {
    let server = Server::by(|seen, _| if seen.turn() == 0 { Reply::bash("echo asked") } else { Reply::says("done") });
    let test = Test::new()
        .skill("", "Be brief.\n")
        .file("etude.yaml", "approvals: {mode: ask, unattended: wait}\n")
        .model(&server);
    let first = test.run(&["run", "--skill", "go", "--format", "jsonl"]).exit(5);
    let id = first.lines().last().expect("a document")["run_id"].as_str().expect("an id").to_owned();
    let id = if id.starts_with('[') { test.run(&["runs", "list", "--format", "json"]).id_of_first_run() } else { id };
    test.run(&["approve", &id]).exit(0);
    let second = test.run(&["runs", "resume", &id, "--format", "jsonl"]).exit(0);
    let reported = |event: &str| -> Vec<Value> {
        let lines = first.lines().into_iter().chain(second.lines());
        lines.filter(|line| line["event"] == event).map(|line| line["effect"].clone()).collect()
    };
    assert_eq!(reported("tool_started"), ["skill/helper/turn1/Bash[0]"]);
    assert_eq!(reported("tool_ended"), ["skill/helper/turn1/Bash[0]"]);
}

/// cli: a status that no run can have is wrong usage, because an empty list would be misleading.
#[test]
fn an_unknown_status_is_wrong_usage() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    test.run(&["runs", "list", "--status", "done"]).exit(2).stdout("").stderr(
        "error[R0301]: `done` is not a run status\n\
         hint: run statuses: queued, running, waiting, sleeping, succeeded, failed, cancelled, moved, interrupted",
    );
}

/// cli: with `--format json` an export is one document; completions and the manual page are each a member of one.
#[test]
fn everything_is_one_document_where_that_is_asked_for() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    let id = test.run_json("p").exit(0).id();
    let ran = test.run(&["runs", "export", &id, "--format", "json"]).exit(0);
    assert_eq!((ran.at("/run/pipeline"), ran.at("/records/1/key")), (json!("p"), json!("p/a")));
    assert!(test.run(&["runs", "export", &id]).exit(0).lines().len() > 3);
    let ran = test.run(&["completions", "bash", "--format", "json"]).exit(0).has("/shell", "bash");
    assert!(ran.at("/script").as_str().is_some_and(|script| script.contains("COMPLETE")));
    assert!(test.run(&["man", "--format", "json"]).exit(0).at("/page").as_str().is_some_and(|p| p.contains(".TH")));
}

/// cli: the message for an impossible command names possible ones.
#[test]
fn what_cannot_be_done_says_what_can_be() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    let id = test.run_json("p").exit(0).id();
    test.run(&["runs", "cancel", &id]).exit(2).stderr_has("etude runs show");
    test.run(&["approve", &id]).exit(2).stderr_has("etude runs list --status waiting");
    test.run(&["check", "quite-another"]).exit(2).stderr_has("hint: pipelines and machines of this app: p");
    test.run_json("p").exit(0);
    test.run(&["runs", "show", "no-such"]).exit(2).stderr_has("etude runs list");
}

/// cli: an empty list names the filter that matches nothing, and a pipeline that does not exist has a suggestion.
#[cfg(feature = "serve")]
#[test]
fn an_empty_list_names_its_filter() {
    let test = Test::new().pipeline("sort-mail", |p| p.note("a", "1")).pipeline("other", |p| p.note("a", "1"));
    let said = |args: &[&str]| test.run(&[&["runs"], args].concat()).exit(0).err().to_owned();
    assert!(said(&["list"]).starts_with("no runs of this app\n"));
    test.run_json("sort-mail").exit(0);
    for (args, expected) in [
        (&["list", "-p", "sort-mails"][..], "no runs of `sort-mails`\nhint: did you mean `sort-mail`?"),
        (&["list", "-p", "nope"], "no runs of `nope`\nhint: names with runs or definitions: other, sort-mail"),
        (&["list", "-p", "other"], "no runs of `other`\nhint: runs of every app: etude runs list --all"),
        (&["stats", "-p", "sort-mails"], "no runs of `sort-mails`\nhint: did you mean `sort-mail`?"),
        (&["list", "--status", "failed", "-p", "sort-mail"], "no runs with status `failed`"),
        (&["list", "--label", "env=x", "--all"], "no runs with label `env=x`"),
    ] {
        assert_eq!(said(args).trim_end(), expected, "{args:?}");
    }
    test.run(&["runs", "list", "-p", "nope", "--format", "json"]).exit(0).stderr("").has("/runs", json!([]));
    let serving = Serving::start(&test, &["--port", "0"]);
    let ran = test.run(&["runs", "list", "-p", "sort-mails", "--server", "local"]).exit(0);
    ran.stderr("no runs of `sort-mails`\nhint: did you mean `sort-mail`?");
    assert_eq!(serving.end().0, Some(0));
}

/// X-3: the children of a group are below it in the overview of a run, here and on a server.
#[cfg(feature = "serve")]
#[test]
fn children_of_a_group_are_below_it() {
    let steps = "  - {name: list, type: code, command: \"echo '{\\\"output\\\": [1, 2]}'\"}\n  - name: g\n    type: parallel\n    for_each: '{{list.output}}'\n    steps:\n      - {name: x, type: code, command: \"echo '{\\\"output\\\": 1}'\"}\n      - {name: y, type: code, command: \"echo '{\\\"output\\\": 1}'\"}\n";
    let test = Test::new().yaml("p", &format!("name: p\ndescription: Groups.\nsteps:\n{steps}"));
    let id = test.run_json("p").exit(0).id();
    let names = |more: &[&str]| -> Vec<String> {
        let ran = test.run(&[&["runs", "show", &id], more].concat()).exit(0);
        let shown = ran.out();
        let rows = shown.lines().filter_map(|line| line.trim_start().strip_prefix("✓ "));
        rows.map(|row| row.split(" [TIME]").next().unwrap_or_default().trim_end().to_owned()).collect()
    };
    let expected = ["list", "g", "  x", "  y"];
    assert_eq!(names(&[]), expected);
    let serving = Serving::start(&test, &["--port", "0"]);
    assert_eq!(names(&["--server", "local"]), expected);
    assert_eq!(serving.end().0, Some(0));
}
