//! Tool calls that change something: allowed by a policy, denied with a reason, or subject to a decision (A-7.3).

use serde_json::{Value, json};

use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::test::Test;

/// A completion with a command that notes a word.
fn note(word: &str) -> Reply {
    Reply::bash(&line(word))
}

fn line(word: &str) -> String {
    format!("echo {word} >> \"$LEDGER\"; echo {word}")
}

/// An app in skill mode with this policy.
fn app(server: &Server, approvals: &str) -> Test {
    Test::new().skill("", "Be brief.\n").file("etude.yaml", &format!("approvals: {approvals}\n")).model(server)
}

fn resume(test: &Test, id: &str) -> Ran {
    test.run(&["runs", "resume", id, "--format", "json"])
}

/// The results of calls that the last request to the model contained.
fn results(server: &Server) -> Vec<String> {
    server.seen().pop().expect("a model was asked").results()
}

/// A-7.3: without a terminal and without a policy the default is to deny, with the reason; the model is informed, the run
/// continues, and read-only calls need no approval.
#[test]
fn without_a_terminal_what_changes_things_is_denied_with_the_reason() {
    let writing = Reply::call("Write", json!({"path": "made.txt", "content": "x"}));
    let server = Server::agent([note("never"), writing, Reply::call("Read", json!({"path": "SKILL.md"}))]);
    let test = Test::new().skill("", "Be brief.\n").model(&server);
    let ran = test.run(&["run", "--skill", "go", "--format", "jsonl"]).exit(0);
    let results = results(&server);
    for (result, key) in results.iter().zip(["Bash(echo never", "Write(made.txt)"]) {
        assert!(result.contains(key) && result.contains("needs approval, and no one can be asked here"), "{result}");
        assert!(result.contains("ApprovalDenied") && result.contains("add it to `approvals: allow`"), "{result}");
    }
    assert!(results[2].contains("Be brief."), "{results:?}");
    assert!(test.ledger().is_empty() && !test.path("app/made.txt").exists());
    let lines = ran.lines();
    let denied = lines.iter().find(|line| line["event"] == "tool_ended").expect("the call has ended");
    assert!(denied["error"].as_str().is_some_and(|error| error.contains("ApprovalDenied")), "{denied}");
    assert_eq!(lines.last().map(|last| &last["output"]), Some(&json!("done")));
}

/// A-7.3, SECURITY.md: the message has both ends of a long command, and the arguments beside it have every character.
#[test]
fn what_is_approved_is_there_to_its_last_character() {
    let long = format!("echo {} ; touch MIDDLE ; echo {}", "a".repeat(2_000), "b".repeat(2_000));
    let server = Server::agent([Reply::bash(&long)]);
    let test = app(&server, "{mode: ask, unattended: wait}");
    let ran = test.follow("go", &[]).exit(5);
    let payload = ran.at("/waiting/0/payload");
    let message = payload["message"].as_str().expect("a message");
    assert!(!message.contains("MIDDLE") && message.contains("see the arguments"), "{message}");
    assert_eq!(payload["arguments"]["command"], json!(long));
    let id = ran.id();
    for shown in [test.run(&["runs", "show", &id]).exit(0), test.run(&["approve", &id]).exit(0)] {
        assert!(format!("{}{}", shown.out(), shown.err()).contains("touch MIDDLE"), "the person sees all of it");
    }
}

/// A-7.3: mode `allowlist` allows listed calls and denies the rest; parts of a command line are checked one by one.
#[test]
fn an_allowlist_allows_what_it_lists() {
    let write = |path: &str| Reply::call("Write", json!({"path": path, "content": "x"}));
    let server = Server::agent([
        Reply::bash("echo one"),
        Reply::bash("echo two; touch made"),
        Reply::bash("echo $(touch made)"),
        write("docs/a.md"),
        write("docs/../b.md"),
    ]);
    let test = app(&server, "{mode: allowlist, allow: [\"echo *\", \"Write(docs/**)\"]}");
    test.follow("go", &[]).output("done");
    let results = results(&server);
    assert_eq!(results[0].trim(), "one");
    for denied in [&results[1], &results[2], &results[4]] {
        assert!(denied.contains("is not on the allowlist"), "{results:?}");
    }
    assert_eq!(test.read("app/docs/a.md"), "x");
    assert!(!test.path("app/made").exists() && !test.path("app/b.md").exists());
}

/// A-7.3: mode `yolo` and `--yolo` allow all calls except those denied by name.
#[test]
fn yolo_allows_all_but_what_is_denied() {
    for (approvals, flags) in
        [("{mode: yolo, allow: [\"Write($deny)\"]}", &[][..]), ("{allow: [\"Write($deny)\"]}", &["--yolo"])]
    {
        let server = Server::agent([note("ran"), Reply::call("Write", json!({"path": "made.txt", "content": "x"}))]);
        let test = app(&server, approvals);
        test.follow("go", flags).output("done");
        assert_eq!(test.ledger(), ["ran"]);
        assert!(results(&server)[1].contains("the policy denies `Write(made.txt)`"), "{:?}", results(&server));
        assert!(!test.path("app/made.txt").exists());
    }
}

/// A-7.3: a denial of some commands holds among allowed ones, at any position in the command line.
#[test]
fn some_commands_can_be_denied_among_others() {
    let server = Server::agent([Reply::bash("git status; git push origin"), Reply::bash("git --version")]);
    let test = app(&server, "{mode: allowlist, allow: [\"git *\", \"Write(notes/**)\", \"Bash(git push *, $deny)\"]}");
    test.follow("go", &[]).output("done");
    let results = results(&server);
    assert!(results[0].contains("the policy denies") && results[1].contains("git version"), "{results:?}");
}

/// A-7.3, ADR 0054: a comment hides no command, and an unreadable command stays a question.
#[test]
fn a_pattern_lets_no_other_command_through() {
    let lines = ["git --version #'\necho made >> \"$LEDGER\" #'", "git --version; echo $(echo made >> \"$LEDGER\")"];
    let server = Server::agent(lines.map(Reply::bash));
    let test = app(&server, "{mode: allowlist, allow: [\"git *\", \"Bash(command=git *)\"]}");
    test.follow("go", &[]).output("done");
    let results = results(&server);
    assert!(results.iter().take(2).all(|result| result.contains("not on the allowlist")), "{results:?}");
    assert_eq!(test.ledger(), [""; 0]);
}

/// A-7.3, ADR 0054: a denial of a path holds for a search of the folder above it.
#[test]
fn a_denied_path_is_left_out_of_a_search() {
    let server = Server::agent([Reply::call("Grep", json!({"pattern": "k3y", "path": "."}))]);
    let test = app(&server, "{mode: yolo, allow: [\"Grep(secret/**, $deny)\"]}");
    test.file("secret/key", "k3y\n").file("notes/a", "k3y\n").follow("go", &[]).output("done");
    assert_eq!(results(&server)[0], "notes/a:1: k3y");
}

/// A-7.3: the app's policy is nearer than the user's.
#[test]
fn the_nearest_policy_holds() {
    let server = Server::agent([note("ran")]);
    let test = app(&server, "{mode: allowlist}");
    let config = test.read("home/.config/etude/config.yaml") + "approvals: {mode: yolo}\n";
    test.user_config(&config).follow("go", &[]).output("done");
    assert!(results(&server)[0].contains("not on the allowlist"));
}

/// A-7.3, SECURITY.md: an app's policy removes no denial of the user, neither by its mode nor by its list.
#[test]
fn denials_of_the_user_hold_whatever_an_app_allows() {
    let server = Server::agent([Reply::bash("touch made"), note("ran")]);
    let test = app(&server, "{mode: yolo, allow: [\"touch *\"]}");
    let own = "approvals: {mode: allowlist, allow: [\"Bash(touch *, $deny)\"]}\n";
    let config = test.read("home/.config/etude/config.yaml") + own;
    let test = test.user_config(&config);
    test.follow("go", &["--yolo"]).output("done");
    assert!(results(&server)[0].contains("the policy denies `Bash(touch made)`"), "{:?}", results(&server));
    assert_eq!((test.ledger(), test.path("app/made").exists()), (vec!["ran".to_owned()], false));
}

/// A-7.3: a tool of the app that is declared free of approvals is called without one.
#[test]
fn a_tool_may_be_free_of_approvals() {
    let tool = |gated: bool| {
        format!(
            "name: t\ndescription: Does it.\ncommand: sh tools/t.sh\ngated: {gated}\napprovalKey: \"t for {{who}}\"\n"
        )
    };
    for (gated, expected) in [(false, &["t"][..]), (true, &[])] {
        let server = Server::agent([Reply::call("t", json!({"who": "Ada"}))]);
        let test = Test::new()
            .skill("", "Be brief.\n")
            .file("tools/t.yaml", &tool(gated))
            .file("tools/t.sh", "echo t >> \"$LEDGER\"; echo '{\"ok\":true,\"value\":1}'\n")
            .model(&server);
        test.follow("go", &[]).output("done");
        assert_eq!(test.ledger(), expected, "{:?}", results(&server));
        assert!(!gated || results(&server)[0].contains("needs approval"));
    }
}

const WAIT: &str = "{mode: ask, unattended: wait}";

/// A-7.3, cli: with `unattended: wait` the run waits with exit status 5 and names the reason; once approved, it continues from
/// there without another request to the model.
#[test]
fn a_run_can_wait_for_an_approval() {
    let server = Server::agent([note("ran")]);
    let test = app(&server, WAIT);
    let ran = test.follow("go", &[]).exit(5).has("/status", "waiting").has("/mode", "skill").has("/errors", json!([]));
    let payload = json!({
        "message": format!("run: Bash({})", line("ran")),
        "tool": "Bash", "arguments": {"command": line("ran")}, "key": format!("Bash({})", line("ran")),
    });
    let waiting = ran.at("/waiting/0");
    assert_eq!((&waiting["kind"], &waiting["id"]), (&json!("tool"), &json!("[RUN]:skill/helper/turn1/Bash[0]!ask")));
    for name in ["tool", "arguments", "key", "message"] {
        assert_eq!(waiting["payload"][name], payload[name], "{name} of {waiting:#}");
    }
    let id = ran.id();
    // A resume without a decision waits again.
    resume(&test, &id).exit(5);
    assert_eq!((test.ledger().len(), server.calls()), (0, 1));
    test.run(&["approve", &id]).exit(0);
    resume(&test, &id).output("done").has("/usage/calls", 2);
    assert_eq!((test.ledger(), server.calls()), (vec!["ran".to_owned()], 2));
    assert_eq!(results(&server)[0].trim(), "ran");
}

/// A-7.3: a question about a path shows its target, and the approval is for that target alone.
#[test]
fn an_approved_path_is_written_only_where_it_led_when_it_was_asked_about() {
    use std::os::unix::fs::symlink;
    for is_swapped in [false, true] {
        let server = Server::agent([Reply::call("Write", json!({"path": "notes/to/new", "content": "x"}))]);
        let test = app(&server, WAIT).file("notes/a", "").file("docs/a", "").file("src/a", "");
        symlink("../docs", test.path("app/notes/to")).expect("linked");
        let ran = test.follow("go", &[]).exit(5);
        let asked = &ran.at("/waiting/0")["payload"];
        assert_eq!(asked["key"], "Write(docs/new)");
        assert_eq!(asked["message"], "change a file: Write(docs/new) (written as `notes/to/new`)");
        if is_swapped {
            std::fs::remove_file(test.path("app/notes/to")).expect("removed");
            symlink("../src", test.path("app/notes/to")).expect("linked");
        }
        test.run(&["approve", &ran.id()]).exit(0);
        resume(&test, &ran.id()).output("done");
        assert_eq!(test.path("app/docs/new").exists(), !is_swapped);
        assert!(!test.path("app/src/new").exists());
        let why = "`Write(docs/new)` was approved, but the path now leads to `Write(src/new)`";
        assert_eq!(results(&server)[0].contains(why), is_swapped, "{:?}", results(&server));
    }
}

/// A-7.3: a link inside an allowed folder does not extend the permission to its target.
#[test]
fn an_allowed_folder_does_not_reach_beyond_itself_by_a_link() {
    let write = Reply::call("Write", json!({"path": "notes/up/etude.yaml", "content": "x"}));
    let read = Reply::call("Read", json!({"path": "notes/up/etude.yaml"}));
    let server = Server::agent([write, read]);
    let policy = "{mode: allowlist, allow: [\"Write(notes/**)\", \"Read(etude.yaml, $deny)\"]}";
    let test = app(&server, policy).file("notes/a", "");
    std::os::unix::fs::symlink("..", test.path("app/notes/up")).expect("linked");
    let before = test.read("app/etude.yaml");
    test.follow("go", &[]).output("done");
    let results = results(&server);
    assert!(results[0].contains("`Write(etude.yaml)` is not on the allowlist"), "{results:?}");
    assert!(results[1].contains("the policy denies `Read(etude.yaml)`"), "{results:?}");
    assert_eq!(test.read("app/etude.yaml"), before);
}

/// A-7.3: a denied call is not run; the model learns who denied it, and why.
#[test]
fn a_denied_call_is_not_run() {
    let server = Server::agent([note("never")]);
    let test = app(&server, WAIT);
    let id = test.follow("go", &[]).exit(5).id();
    test.run(&["deny", &id, "--reason", "not on a Friday"]).exit(0);
    resume(&test, &id).output("done");
    assert_eq!(test.ledger(), Vec::<String>::new());
    let reported = &results(&server)[0];
    assert!(reported.contains("ApprovalDenied") && reported.contains("not on a Friday"), "{reported}");
}

/// A-7.3: the decision "always" covers later calls with the same key, and those alone, also after a resume.
#[test]
fn always_covers_calls_with_the_same_key() {
    let server = Server::agent([note("a"), note("a"), note("b"), note("a")]);
    let test = app(&server, WAIT);
    let id = test.follow("go", &[]).exit(5).id();
    test.run(&["approve", &id, "--answer", "\"always\""]).exit(0);
    let ran = resume(&test, &id).exit(5).has("/waiting/0/id", "[RUN]:skill/helper/turn3/Bash[0]!ask");
    assert_eq!((ran.at("/waiting/1"), test.ledger()), (Value::Null, vec!["a".to_owned(), "a".to_owned()]));
    test.run(&["approve", &id]).exit(0);
    resume(&test, &id).output("done");
    assert_eq!(test.ledger(), ["a", "a", "b", "a"]);
}

/// A-7.3: keys are stored without secrets, so keys of different calls can become equal; "always" then covers one call.
#[test]
fn always_covers_no_call_whose_key_holds_a_secret() {
    let server = Server::agent([note("production"), note("pre-staging")]);
    let headers = "headers: {X-A: \"${env:APP_A}\", X-B: \"${env:APP_B}\"}";
    let test = Test::new()
        .skill("", "Be brief.\n")
        .file("etude.yaml", &format!("approvals: {WAIT}\n"))
        .model_with(&server, headers)
        .env("APP_A", "production")
        .env("APP_B", "pre-staging");
    let id = test.follow("go", &[]).exit(5).id();
    test.run(&["approve", &id, "--answer", "\"always\""]).exit(0);
    resume(&test, &id).exit(5).has("/waiting/0/id", "[RUN]:skill/helper/turn2/Bash[0]!ask");
    assert_eq!(test.ledger(), ["production"]);
}

/// A-7.3: an approval without "always" covers one call.
#[test]
fn an_approval_covers_one_call() {
    let server = Server::agent([note("a"), note("a")]);
    let test = app(&server, WAIT);
    let id = test.follow("go", &[]).exit(5).id();
    test.run(&["approve", &id]).exit(0);
    resume(&test, &id).exit(5).has("/waiting/0/id", "[RUN]:skill/helper/turn2/Bash[0]!ask");
    assert_eq!(test.ledger(), ["a"]);
}

/// A-7.3: of several calls in one completion, those that need no approval are made; the others need decisions one by one, and
/// their results are reported in the same order.
#[test]
fn several_calls_are_asked_for_in_their_order() {
    let command = |word: &str| ("Bash", json!({"command": line(word)}));
    let server = Server::agent([Reply::calls([command("a"), ("Read", json!({"path": "SKILL.md"})), command("b")])]);
    let test = app(&server, WAIT);
    let ran = test.follow("go", &[]).exit(5).has("/waiting/0/id", "[RUN]:skill/helper/turn1/Bash[0]!ask");
    assert_eq!(ran.at("/waiting/1"), Value::Null);
    let id = ran.id();
    test.run(&["deny", &id]).exit(0);
    resume(&test, &id).exit(5).has("/waiting/0/id", "[RUN]:skill/helper/turn1/Bash[2]!ask");
    test.run(&["approve", &id]).exit(0);
    resume(&test, &id).output("done");
    assert_eq!(test.ledger(), ["b"]);
    let reported = results(&server);
    assert!(
        reported[0].contains("ApprovalDenied") && reported[1].contains("Be brief.") && reported[2].trim() == "b",
        "{reported:?}"
    );
}

/// A-7.3: a call that `allowed-tools` or the tool's schema refuses is refused without a question.
#[test]
fn no_question_is_asked_about_what_is_refused_anyway() {
    let server = Server::agent([Reply::call("Bash", json!({"cmd": "x"})), Reply::bash("touch made")]);
    let test = app(&server, WAIT).skill("allowed-tools: Bash(echo *)\n", "Be brief.\n");
    test.follow("go", &[]).output("done");
    let results = results(&server);
    assert!(results[0].contains("InputInvalid") && results[1].contains("allowed tools"), "{results:?}");
}

/// A-7.3: a waiting run is cancelled like any other; the call is not run.
#[test]
fn a_waiting_run_can_be_cancelled() {
    let server = Server::agent([note("never")]);
    let test = app(&server, WAIT);
    let id = test.follow("go", &[]).exit(5).id();
    test.run(&["runs", "cancel", &id, "--format", "json"]).exit(0).has("/status", "cancelled");
    assert_eq!((test.ledger(), server.calls()), (Vec::new(), 1));
    test.run(&["approve", &id]).exit(2).stderr_has("is not waiting for a decision");
}

/// Runs a command on a terminal of its own and answers its questions; `^C` is Ctrl-C, `^D` the end of input.
pub(crate) const TERMINAL: &str = r#"
import os, pty, sys

answers = sys.argv[1].split(",")
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[2], sys.argv[2:])
seen = b""
while True:
    try:
        read = os.read(terminal, 65536)
    except OSError:
        break
    if not read:
        break
    sys.stdout.buffer.write(read)
    seen += read
    if b"[l]ater: " in seen:
        seen = b""
        answer = answers.pop(0)
        os.write(terminal, {"^C": b"\x03", "^D": b"\x04"}.get(answer, answer.encode() + b"\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

fn at_a_terminal(test: &Test, answers: &str) -> Ran {
    test.start_through(&["python3", "-c", TERMINAL, answers], &["run", "--skill", "go"]).finish()
}

/// A-7.3: at a terminal the question shows the complete call, and the run continues at once.
#[test]
fn at_a_terminal_somebody_is_asked() {
    let server = Server::agent([note("a"), note("b"), note("b"), note("c")]);
    let test = Test::new().skill("", "Be brief.\n").model(&server);
    let ran = at_a_terminal(&test, "perhaps,y,a,n").exit(0);
    assert!(ran.out().contains("? run: Bash(echo a >> \"$LEDGER\"; echo a)"), "{}", ran.out());
    assert!(ran.out().contains("please answer with one of"), "{}", ran.out());
    assert!(ran.out().contains("done"), "{}", ran.out());
    assert_eq!(test.ledger(), ["a", "b", "b"]);
    assert!(ran.out().contains("| command: echo a"), "what is approved is shown whole: {}", ran.out());
    assert!(results(&server)[3].contains("the user said no to `Bash(echo c"), "{:?}", results(&server));
}

/// A-7.3: a question can be left open; Ctrl-C at a question cancels the run as it does elsewhere.
#[test]
fn a_question_can_be_left_open_or_the_run_cancelled_at_it() {
    let server = Server::agent([note("never")]);
    for (answer, exit, status) in [("l", 5, "waiting"), ("^D", 5, "waiting"), ("^C", 130, "cancelled")] {
        let test = Test::new().skill("", "Be brief.\n").model(&server);
        at_a_terminal(&test, answer).exit(exit);
        let listed = test.run(&["runs", "list", "--format", "json"]);
        assert_eq!(listed.at("/runs/0/status"), status, "after {answer}");
        assert_eq!(test.ledger(), Vec::<String>::new());
    }
}

/// A-7.3, cli: the text that people read about a run that waits for a tool call.
#[test]
fn people_see_what_is_waited_for_and_how_to_answer() {
    let server = Server::agent([Reply::bash("make deploy")]);
    app(&server, WAIT).run(&["run", "--skill", "go"]).exit(5).stdout("").stderr(
        r#"
    → Bash {"command":"make deploy"}

skill waiting in [TIME], 1 model call, 110 tokens, run [RUN]

waiting: run: Bash(make deploy)
  | command: make deploy
hint: etude approve '[RUN]:skill/helper/turn1/Bash[0]!ask' --question fe0fd8e34f2851a2a85a0150bac562ea
hint: or: etude deny '[RUN]:skill/helper/turn1/Bash[0]!ask' --question fe0fd8e34f2851a2a85a0150bac562ea
hint: then: etude runs resume [RUN]"#,
    );
}

/// A-7.3: a decision is for its question, and not for another one in the same place after an edit.
#[test]
fn an_approval_does_not_answer_another_question() {
    let server = Server::by(|seen, _| match (seen.turn(), seen.system().contains("Be evil")) {
        (0, false) => Reply::bash("touch harmless"),
        (0, true) => Reply::bash("touch evil"),
        _ => Reply::says("done"),
    });
    let test = app(&server, "{unattended: wait}");
    let id = test.run(&["run", "--skill", "go", "--format", "json"]).exit(5).id();
    test.run(&["approve", &id]).exit(0);
    test.put("app/SKILL.md", "Be evil.\n");
    let ran = test.run(&["runs", "resume", &id, "--accept-changes", "--format", "json"]).exit(5);
    assert!(ran.at("/waiting/0/payload/message").to_string().contains("touch evil"), "{}", ran.out());
    assert!(!test.path("app/evil").exists());
}

/// A-7.1: an invalid definition of a tool stops the run before anything starts.
#[test]
fn a_broken_tool_stops_the_run_before_it_starts() {
    let server = Server::agent([]);
    let test =
        Test::new().skill("", "Be brief.\n").file("tools/purge.yaml", "name: purge\ncommand: [a]\n").model(&server);
    test.run(&["run", "--skill", "go", "--format", "json"]).exit(3);
    assert_eq!(server.calls(), 0);
}
