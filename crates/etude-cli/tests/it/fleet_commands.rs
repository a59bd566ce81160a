//! Commands on a fleet: following, cancelling, listing, bundles, and the choice of the engine.

use serde_json::json;

use crate::database::Server;
use crate::fleet::{apply, count, elsewhere, fleet, list, url};
use crate::fleet_workers::WORKER;
use crate::test::{Test, noting, printing, wait_until};

/// K-15: a followed run has the events, the document and the exit status of a local run.
#[test]
fn a_followed_run_looks_like_one_of_this_machine() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "{\"n\": 1}").note("b", "2"))
        .pipeline("bad", |p| p.note("a", "1").sh("b", "echo no >&2; exit 3"));
    let test = fleet(&server, test);
    let worker = test.start(&WORKER);
    for (name, code) in [("p", 0), ("bad", 1)] {
        let of = |engine: &[&str]| {
            let ran = test.run(&[&["run", "-p", name, "--format", "jsonl"], engine].concat()).exit(code);
            let mut lines = ran.lines();
            // Live stderr of a process is not in the journal.
            lines.retain(|line| line["event"] != "stderr");
            lines
        };
        assert_eq!(of(&[]), of(&["--engine", "embedded"]), "{name}");
    }
    worker.terminate();
    worker.finish().exit(0);
}

/// K-50: a run of a fleet keeps its submitted app, until a resume accepts the changes of the app here. Unaffected
/// results are kept, on every worker.
#[test]
fn a_run_is_continued_with_a_changed_app() {
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| {
        p.note("a", "1")
            .sh("b", "echo no >&2; exit 3")
            .sh("c", &format!("cat \"$ETUDE_APP_DIR/helper.txt\" >> \"$LEDGER\"; {}", printing("2")))
    });
    let test = fleet(&server, test.file("helper.txt", "first\n"));
    let worker = test.start(&WORKER);
    let id = test.run_json("p").exit(1).id();
    let bundle = |test: &Test| list(test).at("/runs/0/bundle").clone();
    let of_before = bundle(&test);
    test.put("app/pipelines/p/steps/b.sh", &format!("{}\n", printing("\"repaired\"")));
    test.put("app/helper.txt", "second\n");
    test.run(&["runs", "resume", &id, "--format", "json"]).exit(1).has("/status", "failed");
    assert_eq!(bundle(&test), of_before);
    let ran = test.run(&["runs", "resume", &id, "--accept-changes", "--format", "json"]).exit(0);
    ran.has("/output", 2).stderr_has("continues with the app in");
    assert_eq!(test.ledger(), ["a", "second"]);
    assert_ne!(bundle(&test), of_before);
    // No step is pinned to this file. The run is over and queued again, and another worker has it.
    worker.terminate();
    worker.finish().exit(0);
    test.put("app/helper.txt", "third\n");
    let follower = test.start(&["runs", "retry", &id, "--from", "c", "--accept-changes", "--format", "json"]);
    wait_until("the queue", || server.sql("select count(*) from etude.queue") == "1");
    let test = elsewhere(test, "second");
    let worker = test.start(&WORKER);
    follower.finish().exit(0).has("/output", 2);
    assert_eq!(test.ledger(), ["a", "second", "third"]);
    worker.terminate();
    worker.finish().exit(0);
    // A tenant cannot change a run in this way.
    server.sql("create role acme login");
    test.run(&["engine", "grant", "tenant", "acme"]).exit(0);
    let test = test.env("ETUDE_ENGINE", &server.url("etude").replace("etude@", "acme@"));
    let own = test.run(&["run", "-p", "p", "--detach", "--format", "json"]).exit(0).id();
    test.run(&["runs", "resume", &own, "--accept-changes"]).exit(2).stderr_has("etude run --again");
}

/// The first signal cancels the run, whose destructor runs on its worker; killing a follower does not affect the run.
#[test]
fn a_signal_to_a_follower_cancels_the_run() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| {
            p.sh("a", &format!("{}; until [ -e \"$ROOT/go\" ]; do sleep 0.05; done; {}", noting("a"), printing("1")))
        })
        .pipeline("_destructor", |p| p.note("end", "3"));
    let test = fleet(&server, test);
    let worker = test.start(&WORKER);
    let follower = test.start(&["run", "-p", "p", "--format", "json"]);
    test.wait_for("a");
    follower.interrupt();
    follower.finish().exit(130).has("/status", "cancelled");
    assert_eq!(test.ledger(), ["a", "end"]);
    let follower = test.start(&["run", "-p", "p", "--format", "json"]);
    wait_until("the step", || test.ledger().len() == 3);
    follower.kill();
    assert_eq!(list(&test).at("/runs/0/status"), "running");
    test.put("go", "");
    wait_until("the end", || list(&test).doc()["runs"][0]["status"] == "succeeded");
    worker.terminate();
    worker.finish().exit(0);
}

/// cluster §6: a second signal only stops following. The document names the run, which its worker still cancels. The hint of
/// a waiting run is for a fleet, where no resume is needed.
#[test]
fn a_second_signal_to_a_follower_only_stops_following() {
    let Some(server) = Server::start() else { return };
    let wait =
        |name: &str| format!("{}; until [ -e \"$ROOT/go\" ]; do sleep 0.05; done; {}", noting(name), printing("1"));
    let test = Test::new()
        .pipeline("p", |p| p.sh("a", &wait("a")))
        .pipeline("gate", |p| p.step("name: gate\ntype: approval\nmessage: Go on?\n"))
        .pipeline("_destructor", |p| p.sh("end", &wait("end")));
    let test = fleet(&server, test);
    let worker = test.start(&WORKER);
    let follower = test.start(&["run", "-p", "p", "--format", "json"]);
    test.wait_for("a");
    follower.interrupt();
    test.wait_for("end");
    follower.interrupt();
    let ran = follower.finish().exit(130).has("/errors/0/kind", "cancelled");
    test.run(&["runs", "show", &ran.id(), "--format", "json"]).exit(0).has("/status", "running");
    test.put("go", "");
    wait_until("the end", || list(&test).doc()["runs"][0]["status"] == "cancelled");
    test.run_json("gate").exit(5).stderr_has("the run then continues by itself; follow it: etude runs watch [RUN]");
    worker.terminate();
    worker.finish().exit(0);
}

/// K-40: a run that never began is cancelled at once, a waiting one by a worker. Its destructor runs there.
#[test]
fn runs_are_cancelled_wherever_they_are() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| p.step("name: gate\ntype: approval\nmessage: Go on?\n").note("a", "1"))
        .pipeline("_destructor", |p| p.note("end", "3"));
    let test = fleet(&server, test);
    let queued = test
        .run(&["run", "-p", "p", "--detach", "--not-before", "2999-01-01T00:00:00Z", "--format", "json"])
        .exit(0)
        .id();
    assert_eq!(server.sql("select is_asleep from etude.queue"), "t");
    test.run(&["runs", "cancel", &queued, "--format", "json"]).exit(0).has("/status", "cancelled");
    assert_eq!(test.ledger(), [""; 0]);
    let worker = test.start(&WORKER);
    let waiting = test.run_json("p").exit(5).id();
    test.run(&["runs", "cancel", &waiting, "--format", "json"]).exit(0).has("/cancelling", true);
    wait_until("the end", || list(&test).doc()["runs"][0]["status"] == "cancelled");
    assert_eq!(test.ledger(), ["end"]);
    worker.terminate();
    worker.finish().exit(0);
}

/// Lists have pages, labels, tenants and times; keys make submissions repeatable (K-29).
#[test]
fn lists_have_pages_and_filters() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, Test::new().pipeline("p", |p| p.note("a", "1")));
    apply(&test, "queues: {slow: {}}\n");
    // A fleet is not filtered by app, so no option would show more.
    let none = test.run(&["runs", "list"]).exit(0).stderr_has("no runs");
    assert!(!none.err().contains("--all"), "{}", none.err());
    for label in ["n=1", "n=2", "n=3"] {
        test.run(&["run", "-p", "p", "--detach", "--label", label, "--priority", "5", "--queue", "slow"]).exit(0);
    }
    let page = test.run(&["runs", "list", "-n", "2", "--format", "json"]).exit(0);
    let value = page.value();
    assert_eq!((value["runs"].as_array().map(Vec::len), &value["total"]), (Some(2), &json!(null)));
    assert_eq!((&value["runs"][0]["labels"], &value["runs"][0]["priority"]), (&json!({"n": "3"}), &json!(5)));
    assert!(value["runs"][0]["bundle"].as_str().is_some_and(|hash| hash.len() == 64), "{value}");
    let cursor = value["next"].as_str().expect("a cursor").to_owned();
    test.run(&["runs", "list", "-n", "2", "--after", &cursor, "--format", "json"])
        .exit(0)
        .has("/next", json!(null))
        .has("/runs/0/labels", json!({"n": "1"}));
    test.run(&["runs", "list", "--after", "x"]).exit(2).stderr_has("cursor");
    let of = |args: &[&str]| {
        let ran = test.run(&[&["runs", "list", "--format", "json"], args].concat()).exit(0);
        ran.at("/runs").as_array().map_or(0, Vec::len)
    };
    assert_eq!((of(&["--label", "n=2"]), of(&["--label", "n=9"])), (1, 0));
    assert_eq!((of(&["--tenant", "default"]), of(&["--tenant", "acme"])), (3, 0));
    assert_eq!(
        (of(&["--created-after", "2020-01-01T00:00:00Z"]), of(&["--created-after", "2999-01-01T00:00:00Z"])),
        (3, 0)
    );
    assert_eq!(server.sql("select distinct queue, tenant, priority from etude.runs"), "slow|default|5");
}

/// K-45, K-50: a push uploads bundles that the database lacks, even if the cache of this machine has them from another one.
#[test]
fn a_push_does_not_trust_the_cache() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, Test::new().pipeline("p", |p| p.note("a", "1")));
    test.run(&["push", "--format", "json"]).exit(0).has("/uploaded", true);
    server.sql("delete from etude.blobs; delete from etude.chunks");
    test.run(&["push", "--format", "json"]).exit(0).has("/uploaded", false);
    let test = test.env("ETUDE_ENGINE", &server.url("other"));
    test.run(&["engine", "migrate"]).exit(0);
    test.run(&["push", "--format", "json"]).exit(0).has("/uploaded", true);
    for schema in ["etude", "other"] {
        assert_eq!(server.sql(&format!("select count(*) from {schema}.blobs join {schema}.chunks using (hash)")), "1");
    }
}

/// Bundles are listed and shown; an archive is checked before anything is stored (K-51, K-52).
#[test]
fn bundles_are_listed_shown_and_checked() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, Test::new().pipeline("p", |p| p.note("a", "1")).file("notes.txt", "hi\n"));
    test.run(&["push", "--name", "first", "--format", "json"]).exit(0).has("/uploaded", true).has("/name", "first");
    let listed = test
        .run(&["bundles", "list", "--format", "json"])
        .exit(0)
        .has("/next", json!(null))
        .has("/bundles/0/name", "first");
    let hash = listed.value()["bundles"][0]["bundle"].as_str().expect("a hash").to_owned();
    for named in ["first", &hash, &hash[..8]] {
        let shown = test.run(&["bundles", "show", named, "--format", "json"]).exit(0);
        let entries = shown.at("/entries").as_array().cloned().unwrap_or_default();
        let notes = entries.iter().find(|entry| entry["path"] == "notes.txt").expect("it is there");
        assert_eq!((&notes["mode"], &notes["bytes"]), (&json!("0644"), &json!(3)), "{notes}");
    }
    test.run(&["bundles", "show", "nowhere"]).exit(2).stderr_has("etude bundles list");
    test.run(&["bundles", "show", &hash[..7]]).exit(2).stderr_has("too short").stderr_has("8 digits");
    // A run of the bundle, without an app here.
    let test = test.cwd("elsewhere");
    test.run(&["run", "-p", "p", "--bundle", "first", "--detach", "--format", "json"]).exit(0).has("/status", "queued");
    assert_eq!((count(&test), server.sql("select encode(bundle, 'hex') from etude.runs")), (1, hash));
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.as_ustar_mut().expect("ustar").name[..9].copy_from_slice(b"../escape");
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(0);
    header.set_cksum();
    archive.append(&header, std::io::empty()).expect("an entry");
    std::fs::write(test.path("evil.tar"), archive.into_inner().expect("an archive")).expect("a file");
    let path = test.path("evil.tar").display().to_string();
    test.run(&["push", &path]).exit(3).stderr_has("../escape");
    // An archive with the app in a directory would be a bundle that no run can use.
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(0);
    header.set_mode(0o644);
    archive.append_data(&mut header, "app/pipelines/p/pipeline.yaml", std::io::empty()).expect("an entry");
    std::fs::write(test.path("deep.tar"), archive.into_inner().expect("an archive")).expect("a file");
    let path = test.path("deep.tar").display().to_string();
    test.run(&["push", &path]).exit(2).stderr_has("deep.tar` is not an app").stderr_has("etude push DIR");
}

/// K-50: a run has the app that its request was checked with, even if the name of the bundle changes its meaning meanwhile.
#[test]
fn the_name_of_a_bundle_is_looked_up_once() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, Test::new().pipeline("p", |p| p.note("a", "1")));
    let push = || test.run(&["push", "--name", "x", "--format", "json"]).exit(0).at("/bundle");
    let first = push();
    let mut run = test.command(&["run", "-p", "p", "--bundle", "x", "--detach", "--input", "-"]);
    let mut run = run.stdin(std::process::Stdio::piped()).spawn().expect("it starts");
    // The command has found the bundle, and waits for its input.
    let unpacked = format!("home/.cache/etude/fleet/apps/{}/app", first.as_str().expect("a hash"));
    wait_until("the bundle is unpacked", || test.path(&unpacked).is_dir());
    test.put("app/notes.txt", "x");
    assert_ne!(push(), first);
    std::io::Write::write_all(&mut run.stdin.take().expect("a pipe"), b"{}").expect("it reads");
    assert!(run.wait().expect("it ends").success());
    assert_eq!(list(&test).at("/runs/0/bundle"), first);
}

/// Cluster section 6: a bundle lacks files that `.gitignore` excludes, so a run whose step needs one is refused before a worker
/// fails it.
#[test]
fn a_run_whose_script_is_left_out_is_refused() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("q", |p| p.step("name: a\ntype: code\ncommand: \"true\""));
    let test = fleet(&server, test.file(".gitignore", "*.sh\n"));
    for words in [&["push"][..], &["run", "-p", "p", "--detach"]] {
        test.run(words).exit(2).stderr_has("`steps/a.sh`").stderr_has("`.gitignore` excludes");
    }
    test.run(&["run", "-p", "q", "--detach"]).exit(0);
    assert_eq!(count(&test), 1);
}

/// cluster §6, K-51: `push GIT@COMMIT` stores the app at the commit, with the bytes and the name of a push of those files: from
/// a work tree, from a directory in it, and by a URL.
#[test]
fn a_commit_is_pushed_as_its_files_are() {
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| p.note("a", "1")).file("notes.txt", "first\n");
    let test = fleet(&server, test.file("inner/pipelines/q/pipeline.yaml", "name: q\nsteps: []\n"));
    let push = |source: &[&str]| {
        let ran = test.run(&[&["push", "--format", "json"], source].concat()).exit(0);
        (ran.at("/bundle"), ran.at("/name"))
    };
    let (whole, inner) = (push(&[]), push(&["inner"]));
    let git = |words: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.current_dir(test.path("app")).args(["-c", "user.name=x", "-c", "user.email=x@example.com"]).args(words);
        assert!(git.status().expect("git is there").success(), "{words:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "first"]);
    git(&["tag", "v1"]);
    test.put("app/notes.txt", "second\n");
    test.put("app/untracked.txt", "x");
    assert_ne!(push(&[]).0, whole.0);
    let url = format!("file://{}@v1", test.path("app").display());
    for source in [".@v1", ".@HEAD", &url] {
        assert_eq!(push(&[source]), whole, "{source}");
    }
    assert_eq!(push(&["inner@v1"]), inner);
    test.run(&["push", ".@v2"]).exit(2).stderr_has("the commit `v2` of `.` cannot be read");
    test.run(&["push", "nowhere@v1"]).exit(2).stderr_has("`nowhere@v1`");
}

/// cluster §6: a bundle over 64 MiB is refused by a database without object storage, with its largest file and a hint. With
/// object storage it is stored, and a worker runs it.
#[test]
fn a_large_bundle_needs_object_storage() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, Test::new().pipeline("p", |p| p.note("a", "1")));
    let large = std::fs::File::create(test.path("app/model.bin")).expect("a file");
    large.set_len(65 * 1024 * 1024).expect("a length");
    test.run(&["push"]).exit(3).stderr_has("`model.bin` with 65 MiB").stderr_has("engine.blobs");
    assert_eq!(server.sql("select count(*) from etude.blobs"), "0");
    let objects = test.path("objects");
    std::fs::create_dir(&objects).expect("a directory");
    apply(&test, &format!("engine: {{blobs: \"file://{}\"}}\n", objects.display()));
    test.run(&["run", "-p", "p", "--detach"]).exit(0);
    let worker = test.start(&WORKER);
    test.wait_for("a");
    worker.terminate();
    worker.finish().exit(0);
}

/// K-61: a step of another engine that submits a run under its own key and waits, and is killed and repeated, has one run and
/// its result.
#[test]
fn a_caller_that_is_killed_and_repeated_has_one_run() {
    let Some(server) = Server::start() else { return };
    let step = format!("{}; until [ -e \"$ROOT/go\" ]; do sleep 0.05; done; {}", noting("a"), printing("7"));
    let test = fleet(&server, Test::new().pipeline("p", |p| p.sh("a", &step)));
    let call = ["run", "-p", "p", "--key", "order-7/review", "--format", "json"];
    let worker = test.start(&WORKER);
    let first = test.start(&call);
    test.wait_for("a");
    first.kill();
    // The second call may be killed before or after it has found the run.
    test.start(&call).kill();
    test.put("go", "");
    let third = test.run(&call).output(7);
    let (id, fourth) = (third.id(), test.run(&call).output(7));
    assert_eq!((fourth.id(), count(&test), test.ledger()), (id, 1, vec!["a".to_owned()]));
    worker.terminate();
    worker.finish().exit(0);
}

/// The user's configuration names the engine, with lower precedence than the environment and `--engine`; an app cannot, and
/// leases must be long enough for heartbeats.
#[test]
fn the_configuration_names_the_engine() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, Test::new().pipeline("p", |p| p.note("a", "1")));
    test.run(&["run", "-p", "p", "--detach"]).exit(0);
    let test = test.without_env("ETUDE_ENGINE").env("WHERE", &url(&server));
    let test = test.user_config("engine: {url: \"${env:WHERE}\"}\n");
    assert_eq!(count(&test), 1);
    test.run(&["runs", "list", "--engine", "embedded", "--format", "json"]).exit(0).has("/total", 0);
    let test = test.user_config("engine: {url: \"${env:WHERE}\", lease: 9s}\n");
    test.run(&["runs", "list"]).exit(3).stderr_has("engine.lease");
    let test = test.user_config("{}\n").file("etude.yaml", "engine: {url: \"postgres://localhost/x\"}\n");
    test.run(&["run", "-p", "p"]).exit(3).stderr_has("an app cannot set `engine`");
    // Options of a fleet need one.
    std::fs::remove_file(test.path("app/etude.yaml")).expect("it is there");
    test.run(&["run", "-p", "p", "--queue", "x"]).exit(2).stderr_has("--queue");
}

/// K-58: a server on another machine without TLS is refused, and the hint names the URL parameter that permits it.
#[cfg(target_os = "linux")]
#[test]
fn a_server_without_tls_is_refused() {
    let address = crate::database::address();
    let Some(server) = Server::start_with(&[&format!("listen_addresses={address}")], &[]) else { return };
    let test = fleet(&server, Test::new());
    let url = |mode: &str| format!("postgres://etude@db.example.com/postgres?schema=etude&hostaddr={address}{mode}");
    for mode in ["", "&sslmode=require"] {
        let ran = test.run(&["runs", "list", "--format", "json", "--engine", &url(mode)]).exit(4);
        ran.has("/errors/0/kind", "environment").stderr_has("sslmode=disable");
    }
    test.run(&["runs", "list", "--engine", &url("&sslmode=disable")]).exit(0);
    let test = test.env("PGSSLMODE", "disable");
    test.run(&["runs", "list", "--engine", &url("")]).exit(0);
    let ran = test.run(&["engine", "check", "--format", "json", "--engine", &url("")]).exit(4);
    let checks = ran.doc()["checks"].as_array().cloned().unwrap_or_default();
    let tls = checks.iter().find(|check| check["id"] == "tls").expect("a check");
    assert_eq!((&tls["status"], &tls["found"]), (&json!("error"), &json!("none")));
}

/// K-63, cluster §6: commands refuse a database without a schema or of a later format, name `etude engine migrate` in the hint,
/// and leave the format unchanged.
#[test]
fn a_missing_schema_and_a_later_format_are_refused() {
    let Some(server) = Server::start() else { return };
    let without = Test::new().pipeline("p", |p| p.note("a", "1")).env("ETUDE_ENGINE", &url(&server));
    without.run(&["workers", "--format", "json"]).exit(4).has("/errors/0/hint", "run `etude engine migrate`");
    let test = fleet(&server, without);
    server.sql("update etude.format set version = 99");
    let hint = "use the version of etude that ran `etude engine migrate`, or a later one";
    for command in [&["runs", "list"][..], &["engine", "migrate"], &["push"], &["worker"]] {
        test.run(&[command, &["--format", "json"]].concat()).exit(4).has("/errors/0/hint", hint);
    }
    let checked = test.run(&["engine", "check", "--format", "json"]).exit(4);
    let checks = checked.at("/checks").as_array().cloned().unwrap_or_default();
    let schema = checks.iter().find(|check| check["id"] == "schema").expect("the check");
    assert_eq!((&schema["status"], &schema["hint"]), (&json!("error"), &json!(hint)));
    assert_eq!(server.sql("select version from etude.format"), "99");
}
