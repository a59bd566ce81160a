//! Tenants and workers as roles of the database, with the commands of each (K-56).

use serde_json::json;

use crate::database::Server;
use crate::fleet::{apply, count, fleet, list};
use crate::fleet_workers::WORKER;
use crate::ran::Ran;
use crate::test::{Test, wait_until};

/// Id of a run that does not exist.
const NONE: &str = "0123456789abcdef";

/// An app whose runs wait for an answer, print more than fits into a record, and have a separate home.
fn app(server: &Server, role: &str) -> Test {
    let test = Test::new().pipeline("p", |p| {
        p.step("name: gate\ntype: approval\nmessage: Go on?\n")
            .sh("a", "printf '{\"output\": \"%s\"}' \"$(head -c 300000 /dev/zero | tr '\\0' x)\"")
    });
    test.file("whose.txt", role).env("ETUDE_ENGINE", &server.url("etude").replace("etude@", &format!("{role}@")))
}

fn submit(test: &Test, args: &[&str]) -> Ran {
    test.run(&[&["run", "-p", "p", "--detach", "--format", "json"], args].concat()).exit(0)
}

/// cluster §6: the owner grants roles; they must exist, and have the documented rights.
#[test]
fn the_owner_grants_roles() {
    let Some(server) = Server::start() else { return };
    let owner = fleet(&server, Test::new());
    let grant = |args: &[&str]| owner.run(&[&["engine", "grant"], args, &["--format", "json"]].concat());
    grant(&["tenant", "acme"]).exit(4).stderr_has("create role \"acme\" login");
    server.sql("create role acme login; create role acme_ci login; create role carrier login");
    grant(&["tenant", "acme"]).exit(0).stdout_json(json!({"role": "acme", "kind": "tenant", "tenant": "acme"}));
    grant(&["tenant", "acme_ci", "--tenant", "acme"])
        .exit(0)
        .stdout_json(json!({"role": "acme_ci", "kind": "tenant", "tenant": "acme"}));
    grant(&["worker", "carrier"]).exit(0).stdout_json(json!({"role": "carrier", "kind": "worker", "tenant": null}));
    grant(&["worker", "carrier", "--tenant", "acme"]).exit(2).stderr_has("remove `--tenant`");
    grant(&["tenant", "acme", "--tenant", ""]).exit(2);
    // Two roles of a tenant see the same runs.
    let (one, other) = (app(&server, "acme"), app(&server, "acme_ci"));
    submit(&one, &[]);
    assert_eq!((count(&other), count(&owner)), (1, 1));
    list(&other).has("/runs/0/tenant", "acme");
    // A tenant drives no runs.
    let refused = one.run(&["worker", "--format", "jsonl"]).exit(4).stderr_has("etude engine grant worker");
    assert!(!refused.out().contains("ready"), "{}", refused.out());
    // Only the owner grants.
    one.run(&["engine", "grant", "worker", "acme"]).exit(4);
    one.run(&["engine", "migrate"]).exit(0);
}

/// K-56: commands of a tenant list, show, cancel, answer and read its own runs, values and bundles, and see no others. A worker
/// drives the runs of both.
#[test]
fn tenants_know_nothing_of_each_other() {
    let Some(server) = Server::start() else { return };
    let owner = fleet(&server, Test::new());
    server.sql("create role acme login; create role globex login; create role carrier login");
    for (kind, role) in [("tenant", "acme"), ("tenant", "globex"), ("worker", "carrier")] {
        owner.run(&["engine", "grant", kind, role]).exit(0);
    }
    let (acme, globex) = (app(&server, "acme"), app(&server, "globex"));
    let later = ["--not-before", "2999-01-01T00:00:00Z"];
    let queued = submit(&acme, &later).id();
    let mine = submit(&acme, &["--key", "k"]).has("/replayed", false).id();
    let theirs = submit(&globex, &["--key", "k"]).has("/replayed", false).id();
    assert_eq!(submit(&globex, &["--key", "k"]).has("/replayed", true).id(), theirs);
    assert_eq!((count(&acme), count(&globex), count(&owner)), (2, 1, 3));
    let narrowed = owner.run(&["runs", "list", "--tenant", "globex", "--format", "json"]).exit(0);
    assert_eq!((narrowed.id_of_first_run(), narrowed.at("/runs/1")), (theirs.clone(), json!(null)));

    // Runs that a tenant's server accepted could be driven by no other process.
    acme.run(&["serve", "--port", "0"]).exit(4).stderr_has("a tenant cannot execute runs");
    acme.run(&["runs", "export", "--all", "--out", "../a.tar", "--format", "json"]).exit(0);
    let refused =
        acme.run(&["runs", "import", "../a.tar", "--format", "json"]).exit(4).has("/errors/0/kind", "environment");
    refused.stderr_has("only the owner of the schema or a worker can").stderr_has("etude engine grant worker");
    let worker = Test::new().env("ETUDE_ENGINE", &server.url("etude").replace("etude@", "carrier@"));
    let running = worker.start(&WORKER);
    wait_until("the gates", || {
        let statuses = list(&owner).value()["runs"].as_array().cloned().unwrap_or_default();
        statuses.iter().filter(|run| run["status"] == "waiting").count() == 2
    });
    let file = globex.path("runs.tar").display().to_string();
    for args in [
        &["runs", "show", &mine][..],
        &["runs", "cancel", &mine],
        &["runs", "resume", &mine],
        &["runs", "watch", &mine],
        &["runs", "export", &mine],
        &["approve", &mine],
        &["deny", &mine],
    ] {
        let unknown: Vec<&str> = args.iter().map(|&word| if word == mine { NONE } else { word }).collect();
        let (of_other, of_none) = (globex.run(args), globex.run(&unknown));
        assert_eq!(of_other.err(), of_none.err(), "{args:?}");
        assert_eq!(of_other.exit(2).out(), "", "{args:?}");
    }
    // Its run is not over, so the file leaves it out.
    let exported = globex.run(&["runs", "export", "--all", "--out", &file, "--format", "json"]).exit(0).has("/runs", 0);
    assert_eq!(exported.at("/skipped").as_array().map(Vec::len), Some(1));
    let bundle = list(&acme).at("/runs/0/bundle").as_str().expect("a bundle").to_owned();
    globex.run(&["bundles", "show", &bundle]).exit(2);
    globex.run(&["run", "-p", "p", "--detach", "--bundle", &bundle]).exit(2);
    let bundles = globex.run(&["bundles", "list", "--format", "json"]).exit(0);
    assert_eq!(bundles.at("/bundles").as_array().map(Vec::len), Some(1));
    assert_ne!(bundles.at("/bundles/0/bundle"), *bundle);

    acme.run(&["approve", &mine]).exit(0);
    globex.run(&["runs", "cancel", &theirs]).exit(0);
    acme.run(&["runs", "cancel", &queued, "--format", "json"]).exit(0).has("/status", "cancelled");
    wait_until("the ends", || {
        server.sql("select count(*) from etude.runs where state in ('succeeded', 'cancelled')") == "3"
    });
    // The output is a large value.
    let shown = acme.run(&["runs", "show", &mine, "--format", "json"]).exit(0).has("/status", "succeeded");
    assert!(shown.out().contains(&"x".repeat(300_000)), "the output is there");
    assert_eq!(server.sql("select state from etude.runs where tenant = 'globex'"), "cancelled");
    acme.run(&["runs", "prune", "--older-than", "1ms"]).exit(0);
    assert_eq!((count(&acme), count(&globex)), (0, 1));
    assert_eq!(server.sql("select count(*) from etude.headers"), "1");
    running.terminate();
    running.finish().exit(0);
}

/// K-56, K-29, K-57: the owner submits runs for a tenant: they belong to the tenant, with its keys and quotas. A tenant submits
/// only for itself.
#[test]
fn the_owner_submits_for_a_tenant() {
    let Some(server) = Server::start() else { return };
    let app = || Test::new().pipeline("p", |p| p.note("a", "1"));
    let owner = fleet(&server, app());
    server.sql("create role acme login");
    owner.run(&["engine", "grant", "tenant", "acme"]).exit(0);
    let acme = app().env("ETUDE_ENGINE", &server.url("etude").replace("etude@", "acme@"));
    let first = submit(&owner, &["--tenant", "acme", "--key", "k"]).has("/replayed", false).id();
    let own = submit(&owner, &["--key", "k"]).has("/replayed", false).id();
    assert_eq!((count(&acme), count(&owner)), (1, 2));
    list(&acme).has("/runs/0/tenant", "acme").has("/runs/0/status", "queued");
    assert_eq!(submit(&acme, &["--key", "k", "--tenant", "acme"]).has("/replayed", true).id(), first);
    apply(&owner, "tenants: {acme: {queued: 1}}\n");
    let refused = |test: &Test, args: &[&str]| test.run(&[&["run", "-p", "p", "--detach"], args].concat());
    refused(&owner, &["--tenant", "acme"]).exit(1).stderr_has("quota `queued` of tenant `acme`");
    refused(&acme, &["--tenant", "globex"])
        .exit(2)
        .stderr_has("the tenant `acme` cannot submit runs for another tenant");
    refused(&owner, &["--tenant", "a\nb"]).exit(2);
    acme.run(&["runs", "cancel", &first, "--format", "json"]).exit(0).has("/status", "cancelled");
    acme.run(&["runs", "cancel", &own]).exit(2);
    let second = submit(&owner, &["--tenant", "acme"]).id();
    let worker = owner.start(&WORKER);
    let shown = || acme.run(&["runs", "show", &second, "--format", "json"]);
    wait_until("the end of the run", || shown().value()["status"] == "succeeded");
    shown().exit(0).has("/output", 1);
    worker.terminate();
    worker.finish().exit(0);
}
