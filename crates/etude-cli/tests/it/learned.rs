//! Learning from runs in skill mode to a pipeline that makes the same calls: `learn`, `learn show`.

use serde_json::{Value, json};

use crate::ran::Ran;
use crate::server::{Reply, Seen, Server};
use crate::test::{Test, wait_until};

/// An app with a skill, a tool that reads an order, and one that returns its items.
fn shop(server: &Server) -> Test {
    let order = "import json, sys\ncall = json.load(sys.stdin)\nid = call['args']['order_id']\nitems = [{'item_id': f'{id}-{n}'} for n in range(1 + int(id[-1]) % 3)]\nprint(json.dumps({'ok': True, 'value': {'order_id': id, 'status': 'delivered', 'items': items}}))\n";
    let back = "import json, sys\ncall = json.load(sys.stdin)\nopen('ledger', 'a').write(json.dumps(call['args'], sort_keys=True) + '\\n')\nprint(json.dumps({'ok': True, 'value': 'returned'}))\n";
    let head = |name: &str, more: &str| {
        format!(
            "name: {name}\ndescription: Does it.\ninputSchema: {{type: object, properties: {{order_id: {{type: string}}}}}}\n{more}command: python3 -S tools/{name}.py\n"
        )
    };
    Test::new()
        .skill("", "# Desk\n\nHello.\n\n## Returns\n\nOnly once.\n")
        .model(server)
        .file("tools/get_order.yaml", &head("get_order", "gated: false\n"))
        .file("tools/get_order.py", order)
        .file("tools/return_items.yaml", &head("return_items", "effects: true\n"))
        .file("tools/return_items.py", back)
}

/// An agent that returns all items of the requested order, and approves every call.
fn agent(seen: &Seen) -> Reply {
    if seen.tools().is_empty() {
        return Reply::json(&json!({"allowed": "yes", "rule": "Only once."}));
    }
    let request = seen.request();
    let id = request.split(|c: char| c.is_whitespace() || c == ',').find(|word| word.starts_with("ORD-"));
    let id = id.unwrap_or_default().to_owned();
    let last = id.bytes().last().unwrap_or(b'0');
    let items: Vec<String> = (0..=(last - b'0') % 3).map(|n| format!("{id}-{n}")).collect();
    match seen.turn() {
        0 => Reply::call("get_order", json!({"order_id": id})),
        1 => Reply::call("return_items", json!({"order_id": id, "item_ids": items})),
        _ => Reply::says("done"),
    }
}

const ORDERS: [&str; 3] = ["ORD-100", "ORD-205", "ORD-311"];

/// An app in which the agent has returned the items of three orders.
fn learned() -> (Server, Test, Ran) {
    let server = Server::by(|seen, _| agent(seen));
    let test = shop(&server);
    for id in ORDERS {
        test.follow(&format!("Return everything of {id}, please"), &["--yolo"]).exit(0);
    }
    let ran = test.run(&["learn", "--format", "json"]).exit(0);
    (server, test, ran)
}

/// L-9, L-13, L-14, L-23, L-37: three runs become a candidate that passes `check` and makes the right calls for another
/// request.
#[test]
fn three_runs_become_a_pipeline_that_makes_the_same_calls() {
    let (_server, test, ran) = learned();
    let row = ran.at("/candidates/0");
    assert_eq!((&row["name"], &row["change"]), (&json!("return-items"), &json!("new")), "{row}");
    assert_eq!((&row["reads"], &row["writes"]), (&json!(["get_order"]), &json!(["return_items"])));
    assert_eq!((&row["parameters"], &row["questions"]), (&json!(["order_id"]), &json!([])));
    test.run(&["check"]).exit(0);
    let shown = test.run(&["learn", "show", "return-items", "--format", "json"]).exit(0);
    let binding = shown.at("/bindings").as_array().cloned().unwrap_or_default();
    let of = |argument: &str| {
        binding.iter().rfind(|row| row["argument"] == argument).map(|row| (row["source"].clone(), row["why"].clone()))
    };
    assert_eq!(of("/order_id"), Some((json!("input"), json!("words_first"))));
    assert_eq!(of("/item_ids"), Some((json!("computed"), json!("only_alternative"))));
    let pipelines = test.path("app/pipelines");
    std::fs::create_dir_all(&pipelines).unwrap();
    std::fs::rename(test.path("app/learned/return-items"), pipelines.join("return-items")).unwrap();
    std::fs::remove_file(pipelines.join("return-items/learn.yaml")).unwrap();
    test.run(&["check"]).exit(0);
    std::fs::remove_file(test.path("app/ledger")).unwrap();
    let ran = test.run(&["run", "-p", "return-items", "-i", "order_id=ORD-902", "--yolo", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/fell_back"), json!(null), "{}", ran.out());
    let ledger = std::fs::read_to_string(test.path("app/ledger")).unwrap();
    let wanted = json!({"item_ids": ["ORD-902-0", "ORD-902-1", "ORD-902-2"], "order_id": "ORD-902"});
    assert_eq!(serde_json::from_str::<Value>(&ledger).unwrap(), wanted);
}

/// L-10, L-34: the same runs give the same bytes; an edited candidate stays, `learn` exits with 5, and `show --diff` has the
/// change.
#[test]
fn an_edited_candidate_stays() {
    let (_server, test, _) = learned();
    let file = test.path("app/learned/return-items/pipeline.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    let again = test.run(&["learn", "--format", "json"]).exit(0);
    assert_eq!(again.at("/candidates/0/change"), json!("unchanged"));
    test.run(&["learn", "show", "return-items", "--diff", "--format", "json"]).exit(0).has("/diff", "");
    std::fs::write(&file, before.clone() + "# mine\n").unwrap();
    let again = test.run(&["learn", "--format", "json"]).exit(5);
    assert_eq!(again.at("/candidates/0/change"), json!("edited"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before + "# mine\n");
    let diff = test.run(&["learn", "show", "return-items", "--diff", "--format", "json"]).exit(0);
    assert!(diff.at("/diff").as_str().is_some_and(|diff| diff.contains("-# mine")), "{}", diff.out());
}

/// 1.3, 2.1: a run with a part that cannot be read is not learned from, neither as a request without words nor as a run without
/// its write. It hides no other run, and its exported trace is not usable either.
#[test]
fn a_damaged_run_is_not_learned_from() {
    let (_server, test, _) = learned();
    let damaged = test.follow("Return everything of ORD-422, please", &["--yolo"]).exit(0).id();
    let journal = rusqlite::Connection::open(test.path("home/.local/state/etude/journal.db")).expect("it opens");
    for (part, table, key) in [
        ("!header", "headers", "1 = 1"),
        ("!result", "results", "1 = 1"),
        ("skill/helper/turn2/return_items[0]", "records", "key like '%return_items%'"),
    ] {
        let of_run = format!("run = (select number from runs where id = '{damaged}')");
        let body = format!("select body from {table} where {of_run} and {key}");
        let whole: String = journal.query_row(&body, [], |row| row.get(0)).expect("it is there");
        let put = format!("update {table} set body = ? where {of_run} and {key}");
        assert_eq!(journal.execute(&put, ["{broken"]).expect("written"), 1, "{part}");
        let ran = test.run(&["learn", "--format", "json"]).exit(0);
        assert_eq!(ran.at("/unusable"), json!([{"run": "[RUN]", "reason": "unknown_event", "tools": []}]), "{part}");
        assert_eq!(ran.at("/candidates/0/change"), "unchanged", "{part}: {}", ran.out());
        let exported = test.run(&["learn", "export"]).exit(0);
        assert_eq!(exported.out().lines().count(), 4, "{part}");
        assert!(exported.out().contains(&json!({"unreadable": part}).to_string()), "{part}: {}", exported.out());
        journal.execute(&put, [whole]).expect("written");
    }
    let ran = test.run(&["learn", "--format", "json"]).exit(0);
    assert_eq!((ran.at("/unusable"), ran.at("/candidates/0/requests")), (json!([]), json!(4)));
}

/// learn.md 1.1: a family that neither the runs nor the app have is wrong usage, also if there is no run. The error lists the
/// families.
#[test]
fn an_unknown_family_is_refused() {
    let server = Server::by(|seen, _| agent(seen));
    let test = shop(&server);
    let learn = |family: &str| test.run(&["learn", "--family", family, "--format", "json"]);
    let ran = learn("anything").exit(2).has("/errors/0/kind", "input_invalid");
    assert!(
        ran.err().contains("there is no family `anything`") && ran.err().contains("no usable run"),
        "{}",
        ran.err()
    );
    test.run(&["learn", "--format", "json"]).exit(0).has("/families", json!([]));
    test.follow("Return everything of ORD-100, please", &["--yolo"]).exit(0);
    let ran = learn("return-items").exit(2).has("/errors/0/kind", "input_invalid");
    assert!(ran.err().contains("did you mean `return_items`?"), "{}", ran.err());
    let ran = learn("what").exit(2);
    assert!(ran.err().contains("families of these runs: return_items"), "{}", ran.err());
    learn("return_items").exit(0).has("/families/0/reason", "too_few_requests");
}

/// Command line of a promotion without enough evidence.
const PROMOTE: [&str; 6] = ["learn", "promote", "return-items", "--to", "assisted", "--accept-risk"];

/// Digests of the cases in a directory of the app.
fn cases(test: &Test, dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(test.path(&format!("app/{dir}"))).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// L-39: the cases of a replaced pipeline are removed with it. A hand-written test stays.
#[test]
fn a_promotion_removes_the_cases_of_what_it_replaces() {
    let (_server, test, _) = learned();
    let traces = test.run(&["learn", "export"]).exit(0).out().to_owned();
    test.run(&PROMOTE).exit(0);
    let before = cases(&test, "tests");
    assert_eq!(before.len(), 3);
    let own = "return-items-0000000000000000.yaml";
    test.put(&format!("app/tests/{own}"), "pipeline: return-items\ninput: {order_id: ORD-100}\n");
    test.put("app/more.jsonl", &traces.replace("Return everything of", "Send back all of"));
    test.run(&["learn", "--traces", "more.jsonl"]).exit(0);
    test.run(&PROMOTE).exit(0);
    let after = cases(&test, "tests");
    assert!(after.len() == 4 && after.contains(&own.to_owned()), "{after:?}");
    assert!(before.iter().all(|case| !after.contains(case)), "{before:?} {after:?}");
}

/// L-61: a promotion that was interrupted between its moves can be repeated, and one that cannot succeed moves nothing.
#[test]
fn an_interrupted_promotion_is_made_again() {
    let (_server, test, _) = learned();
    let all = cases(&test, "learned/return-items/tests");
    let blocked = test.path(&format!("app/tests/return-items-{}", all[1]));
    std::fs::create_dir_all(&blocked).expect("a directory");
    test.run(&PROMOTE).exit(2).stderr_has("is not a regular file, so the case cannot be written");
    assert_eq!(cases(&test, "learned/return-items/tests"), all);
    std::fs::remove_dir(&blocked).expect("it is there");
    std::fs::create_dir_all(test.path("app/pipelines")).expect("a directory");
    std::fs::rename(test.path("app/learned/return-items"), test.path("app/pipelines/return-items")).expect("a move");
    let moved = format!("app/pipelines/return-items/tests/{}", all[0]);
    std::fs::rename(test.path(&moved), test.path(&format!("app/tests/return-items-{}", all[0]))).expect("a move");
    test.run(&PROMOTE).exit(0);
    assert_eq!(cases(&test, "tests").len(), 3);
    test.run(&["test"]).exit(0);
}

/// L-81: a pipeline learned from a part of the runs before a demotion is not promoted; with a later run that it covers, it is.
#[test]
fn a_demoted_pipeline_returns_with_later_runs() {
    let server = Server::by(|seen, _| agent(seen));
    let test = shop(&server);
    let requests =
        ["Return everything of ORD-100", "I send all of ORD-205 back", "Take ORD-311 back", "ORD-422 back, please"];
    let mut runs = requests.map(|request| test.follow(request, &["--yolo"]).exit(0).id()).to_vec();
    test.run(&["learn"]).exit(0);
    test.run(&PROMOTE).exit(0);
    test.run(&["learn", "demote", "return-items"]).exit(0);
    let learn = |runs: &[String]| {
        let args: Vec<&str> = ["learn", "--runs"].into_iter().chain(runs.iter().map(String::as_str)).collect();
        test.run(&args).exit(0);
    };
    learn(&runs[..3]);
    test.run(&PROMOTE).exit(2).stderr_has("new_evidence");
    runs.push(test.follow("Please take all of ORD-902 back", &["--yolo"]).exit(0).id());
    learn(&runs[..3]);
    test.run(&PROMOTE).exit(2).stderr_has("new_evidence");
    learn(&runs);
    test.run(&PROMOTE).exit(0);
}

/// L-12: a check that ends early leaves no candidate, whether it was killed or interrupted.
#[test]
fn a_check_that_ends_early_leaves_nothing() {
    let server = Server::agent([Reply::says("unused")]);
    let trace = |n: usize, id: &str| {
        let items: Vec<String> = (0..n).map(|k| format!("{id}-{k}")).collect();
        let listed: Vec<Value> = items.iter().map(|item| json!({"item_id": item})).collect();
        let order = json!({"order_id": id, "items": listed});
        let events = json!([
            {"tool": "get_order", "arguments": {"order_id": id}, "result": order},
            {"tool": "return_items", "arguments": {"order_id": id, "item_ids": items}, "result": "returned"},
        ]);
        json!({"trace": 1, "run": id, "request": format!("Return everything of {id}"), "events": events}).to_string()
    };
    let traces: Vec<String> = ORDERS.into_iter().zip(1..).map(|(id, n)| trace(n, id)).collect();
    let slow = "bin/python3";
    let test = shop(&server)
        .file("traces.jsonl", &traces.join("\n"))
        .file(slow, "#!/bin/sh\nexec sleep 30\n")
        .executable(slow);
    let path = format!("{}:{}", test.path("app/bin").display(), std::env::var("PATH").unwrap_or_default());
    let tmp = test.path("tmp");
    std::fs::create_dir_all(&tmp).expect("a directory");
    let tmp_dir = tmp.display().to_string();
    let test = test.env("PATH", &path).env("TMPDIR", &tmp_dir);
    let copies = || {
        let entries = std::fs::read_dir(&tmp).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().join("learned/return-items/pipeline.yaml").exists()).count()
    };
    let start = || test.start(&["learn", "--traces", "traces.jsonl"]);
    let killed = start();
    wait_until("the check has begun", || copies() == 1);
    killed.kill();
    assert!(!test.path("app/learned/return-items").exists());
    let interrupted = start();
    wait_until("the check has begun again", || copies() == 2);
    interrupted.interrupt();
    interrupted.finish().exit(130);
    assert!(!test.path("app/learned/return-items").exists());
    assert_eq!(copies(), 1, "only what was killed could not clean up");
}

/// L-29, L-28: a model words description and triggers, and nothing else; learning again does not call it.
#[test]
fn a_model_words_and_does_nothing_else() {
    let wordings = [
        json!({"description": "Runs {{run.request}}.", "triggers": ["do it"]}),
        json!({"description": "Returns an order.", "triggers": ["send {order_id} back"]}),
    ];
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::by(move |seen, _| match seen.system().contains("You word what a pipeline does") {
        true => {
            let n = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Reply::json(&wordings[n.min(1)])
        }
        false => agent(seen),
    });
    let test = shop(&server);
    for id in ORDERS {
        test.follow(&format!("Return everything of {id}, please"), &["--yolo"]).exit(0);
    }
    let files = || {
        let all = ["pipeline.yaml", "steps/bindings.py", "schemas/allowed.json", "REPORT.md"];
        all.map(|name| test.read(&format!("app/learned/return-items/{name}")))
    };
    let learn =
        |more: &[&str]| test.run(&[&["learn", "--format", "json"], more].concat()).exit(0).at("/candidates/0/change");
    assert_eq!(learn(&[]), json!("new"));
    let before = files();
    assert_eq!(learn(&["--model", "lite"]), json!("unchanged"), "a reference is not a word");
    assert_eq!(learn(&["--model", "lite"]), json!("updated"));
    let after = files();
    assert_eq!(before[1..], after[1..]);
    let without_words = |text: &str| {
        let mut is_trigger = false;
        let kept = text.lines().filter(|line| {
            is_trigger = line.starts_with("triggers:") || is_trigger && line.starts_with([' ', '-']);
            !is_trigger && !line.starts_with("description:")
        });
        kept.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(without_words(&before[0]), without_words(&after[0]));
    assert!(after[0].contains("Returns an order.") && after[0].contains("send {order_id} back"), "{}", after[0]);
    let calls = server.calls();
    assert_eq!(learn(&["--model", "lite"]), json!("unchanged"));
    assert_eq!(server.calls(), calls, "it is not asked again");
    test.run(&["learn", "test", "return-items"]).exit(0);
    let test = test.user_config("learn: {notice: false}\n");
    test.run(&["learn", "--model", "reasoning"]).exit(4).stderr_has("no model");
}

/// 1.1: if no model responds, `learn --model` ends with 4 and writes nothing. A response without usable words is a note.
#[test]
fn without_a_model_that_answers_nothing_is_written() {
    let lines: Vec<String> = ORDERS
        .iter()
        .enumerate()
        .map(|(n, id)| {
            json!({"trace": 1, "run": format!("r{n}"), "request": format!("Return {id}"), "events": [
                {"tool": "get_order", "arguments": {"order_id": id}, "result": {"order_id": id}},
                {"tool": "return_items", "arguments": {"order_id": id}, "result": "ok"},
            ]})
            .to_string()
        })
        .collect();
    let traces = lines.join("\n") + "\n";
    let learn = ["learn", "--traces", "traces.jsonl", "--model", "lite"];
    let asked = |reply: Reply| {
        let server = Server::new([reply]);
        let test = shop(&server).model_with(&server, "retries: 0").file("traces.jsonl", &traces);
        let ran = test.run(&learn);
        (server, test, ran)
    };
    let silent = [
        (Reply::status(401).message("wrong key"), "wrong key"),
        (Reply::status(503), "scripted failure 503"),
        (Reply::Drop, "connection"),
    ];
    for (reply, why) in silent {
        let (_server, test, ran) = asked(reply);
        ran.exit(4).stderr_has(why).stderr_has("learn without a model");
        assert!(!test.path("app/learned").exists());
        test.run(&learn[..3]).exit(0);
    }
    for reply in [Reply::says(""), Reply::Refuses("not this"), Reply::truncated("{"), Reply::says("{}")] {
        let (_server, test, ran) = asked(reply);
        ran.exit(0).stderr_has("keeps the wording of its requests");
        assert!(test.path("app/learned/return-items").exists());
    }
}

/// 1.8: after a disagreement in `shadow`, `learn` and `learn status` have the same state.
#[test]
fn a_disagreement_shows_in_the_next_learning() {
    let server = Server::by(|seen, _| match seen.request().contains("ORD-902") && seen.turn() == 1 {
        true => Reply::call("return_items", json!({"order_id": "ORD-902", "item_ids": ["ORD-902-1"]})),
        false => agent(seen),
    });
    let test = shop(&server).file("etude.yaml", "learn: {shadow: 1}\nrouter: {mode: embedded}\n");
    for id in ORDERS {
        test.follow(&format!("Return everything of {id}, please"), &["--yolo"]).exit(0);
    }
    test.run(&["learn"]).exit(0);
    test.run(&["learn", "promote", "return-items", "--to", "shadow"]).exit(0);
    let status = || test.run(&["learn", "status", "--format", "json"]).exit(0).at("/pipelines/0");
    let again = || test.run(&["learn", "--dry-run", "--format", "json"]).exit(0).at("/candidates/0/state");
    assert_eq!((&status()["state"], again()), (&json!("shadow"), json!("shadow")));
    test.follow("Return everything of ORD-902, please", &["--yolo", "-i", "order_id=ORD-902"]).exit(0);
    wait_until("the comparison is kept", || status()["evidence"]["live"]["disagreed"] == 1);
    assert_eq!((&status()["state"], again()), (&json!("proposed"), json!("proposed")));
}

/// L-5, L-7, L-8, L-11: files in the form of the export are read; malformed lines and missing tools are reported; a dry run
/// writes nothing.
#[test]
fn traces_are_read_from_files() {
    let server = Server::agent([Reply::says("unused")]);
    let test = shop(&server);
    let trace = |n: usize, tool: &str| {
        let id = format!("ORD-10{n}");
        json!({"trace": 1, "run": format!("r{n}"), "request": format!("Return {id}"), "events": [
            {"tool": "get_order", "arguments": {"order_id": id}, "result": {"order_id": id, "items": [{"item_id": format!("{id}-a")}, {"item_id": format!("{id}-b")}]}},
            {"tool": tool, "arguments": {"order_id": id, "item_ids": [format!("{id}-a"), format!("{id}-b")]}, "result": "ok"},
        ]})
        .to_string()
    };
    let lines = [
        "{".to_owned(),
        trace(1, "return_items"),
        trace(2, "return_items"),
        trace(3, "return_items"),
        trace(4, "teleport"),
    ];
    let test = test.file("traces.jsonl", &(lines.join("\n") + "\n"));
    let ran = test.run(&["learn", "--traces", "traces.jsonl", "--dry-run", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/traces"), json!({"read": 5, "usable": 3}));
    assert_eq!(
        (ran.at("/malformed/0/line"), ran.at("/unusable")),
        (json!(1), json!([{"run": "r4", "reason": "missing_tool", "tools": ["teleport"]}]))
    );
    assert_eq!(ran.at("/candidates/0/name"), json!("return-items"));
    assert!(!test.path("app/learned").exists());
    test.run(&["learn", "--traces", "nothing.jsonl"]).exit(2).stderr_has("cannot be read");
    let test = test.file("etude.yaml", "learn: {enabled: false}\n");
    test.run(&["learn", "--traces", "traces.jsonl"]).exit(2).stderr_has("switched off");
}

/// The candidate learned from traces of returns with these words and arguments, after its cases have passed.
fn learned_from(runs: &[(String, Value)]) -> Value {
    let server = Server::agent([Reply::says("unused")]);
    let lines: Vec<String> = runs
        .iter()
        .enumerate()
        .map(|(n, (request, arguments))| {
            let id = &arguments["order_id"];
            let items: Vec<Value> = (0..3).map(|k| json!({"item_id": format!("item-{n}0{k}")})).collect();
            json!({"trace": 1, "run": format!("r{n}"), "request": request, "events": [
                {"tool": "get_order", "arguments": {"order_id": id}, "result": {"order_id": id, "items": items}},
                {"tool": "return_items", "arguments": arguments, "result": "ok"},
            ]})
            .to_string()
        })
        .collect();
    let test = shop(&server).file("traces.jsonl", &(lines.join("\n") + "\n"));
    let ran = test.run(&["learn", "--traces", "traces.jsonl", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/candidates/0/name"), json!("return-items"), "{}", ran.out());
    test.run(&["learn", "test", "return-items"]).exit(0);
    ran.at("/candidates/0")
}

/// L-12, L-27: a run whose choice is in no list is not covered. Its case has the answer `none`, and the others stay.
#[test]
fn a_choice_that_no_list_has_leaves_the_family() {
    let runs: Vec<(String, Value)> = (0..11)
        .map(|n| {
            let (id, item) = (format!("ORD-{}", 100 + n), if n == 7 { 9 } else { n % 3 });
            let arguments = json!({"order_id": id, "item_ids": [format!("item-{n}0{item}")]});
            (format!("Return one item of {id}, please"), arguments)
        })
        .collect();
    let row = learned_from(&runs);
    assert_eq!((&row["questions"], &row["not_covered"]), (&json!(["item_ids"]), &json!(1)));
}

/// L-12, L-27: a run without one of the write's parameters leaves the pipeline where the call is shown, and the others stay.
/// The order of a list is that of the pipeline, also for the run with another one.
#[test]
fn a_parameter_that_a_run_did_not_say_leaves_the_family() {
    let runs: Vec<(String, Value)> = (0..6)
        .map(|n| {
            let (id, reason) = (format!("ORD-{}", 100 + n), format!("cause-{}", 700 + n));
            let said = if n == 4 { String::new() } else { format!(" because of {reason}") };
            let mut items: Vec<String> = (0..3).map(|k| format!("item-{n}0{k}")).collect();
            if n == 2 {
                items.reverse();
            }
            let arguments = json!({"order_id": id, "item_ids": items, "reason": reason});
            (format!("Return everything of {id}{said}, please"), arguments)
        })
        .collect();
    let row = learned_from(&runs);
    assert_eq!((&row["parameters"], &row["not_covered"]), (&json!(["order_id", "reason"]), &json!(1)));
}

/// L-12: a candidate whose code computes another value in one of many cases is not written, even if no executed case shows it.
/// In that case the redacted field has the number of a price, which the sum has lost.
#[test]
fn code_is_checked_in_all_cases() {
    let server = Server::agent([Reply::says("unused")]);
    let traces = |victim: Option<usize>| -> String {
        let trace = |n: usize| {
            let (id, pin) = (format!("ORD-{}", 100 + n), 700_001 + 13 * n);
            let prices = [if victim == Some(n) { pin } else { 4_003 + n }, 5_017 + 2 * n];
            let items: Vec<Value> =
                (0..2).map(|k| json!({"item_id": format!("item-{n}0{k}"), "price": prices[k]})).collect();
            json!({"trace": 1, "run": format!("r{n}"), "request": format!("Return everything of {id}, please"), "events": [
                {"tool": "get_order", "arguments": {"order_id": id}, "result": {"order_id": id, "pin": pin, "items": items}},
                {"tool": "return_items", "arguments": {"order_id": id, "amount": prices[0] + prices[1]}, "result": "ok"},
            ]})
            .to_string()
                + "\n"
        };
        (0..9).map(trace).collect()
    };
    let test = shop(&server).file("etude.yaml", "learn: {redact: [pin]}\n").file("traces.jsonl", &traces(None));
    let learn = |test: &Test| test.run(&["learn", "--traces", "traces.jsonl", "--format", "json"]).exit(0);
    assert_eq!(learn(&test).at("/candidates/0/name"), json!("return-items"));
    let cases = || -> Vec<String> {
        let entries = std::fs::read_dir(test.path("app/learned/return-items/tests")).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let last = test.read(&format!("app/learned/return-items/tests/{}", cases()[8]));
    let victim = (0..9).find(|n| last.contains(&format!("ORD-{}", 100 + n))).expect("the case names its order");
    test.put("app/traces.jsonl", &traces(Some(victim)));
    let ran = learn(&test);
    assert_eq!((ran.at("/candidates"), ran.at("/families/0/reason")), (json!([]), json!("check_failed")));
    ran.stderr_has(
        "the candidate `return-items` is not written: its code computes values that differ from those of its runs",
    );
    assert_eq!(
        test.read(&format!("app/learned/return-items/tests/{}", cases()[8])),
        last,
        "what was there is there again"
    );
}
