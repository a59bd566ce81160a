//! Schedules: ticks, policies, and the routes that show and change them.

use std::time::{Duration, Instant};

use etude_runtime::engine::{
    Engine as _, Entry, EntryQuery, Expected, Ledger as _, NewRun, Submission, Write, Written,
};
use etude_sqlite::Sqlite;
use serde_json::{Value, json};

use crate::support::Running;

const TICK: &str = "printf '{\"output\": {\"tick\": \"%s\"}}' \"$ETUDE_TICK\"";
const HOUR: i64 = 3_600_000;

/// A server whose clock is at 10:30 on a summer day in 2030, at the start of the test.
fn server(schedules: &str) -> Running {
    let server = Running::start();
    set_time(&server, 0);
    server.pipeline("p", "input: {day: {type: string, required: false}}\n", &[TICK]);
    server.pipeline("ask", "", &["approval: message: Deploy?"]);
    server.configure(&format!("schedules:\n{schedules}"));
    server
}

/// Sets the clock to a number of hours after 10:30.
fn set_time(server: &Running, hours: i64) {
    let wanted = "2030-07-15T10:30:00Z".parse::<jiff::Timestamp>().expect("a time").as_millisecond() + hours * HOUR;
    server.clock.set_offset(wanted - jiff::Timestamp::now().as_millisecond());
}

fn ticks(server: &Running, name: &str, count: usize) -> Vec<Value> {
    let path = format!("/v1/schedules/demo/{name}/ticks?limit=200");
    let has_all = |document: &Value| {
        let ticks = document["ticks"].as_array().expect("ticks");
        ticks.len() >= count
    };
    server.poll(&path, has_all)["ticks"].as_array().cloned().expect("ticks")
}

/// Time, outcome and reason of ticks.
fn brief(ticks: &[Value]) -> Vec<String> {
    let one = |tick: &Value| {
        let at = tick["at"].as_str().expect("a time");
        format!("{} {} {}", &at[11..16], tick["outcome"].as_str().unwrap_or(""), tick["reason"].as_str().unwrap_or("-"))
    };
    ticks.iter().map(one).collect()
}

/// Waits until the server has seen the schedule.
fn seen(server: &Running, name: &str) {
    seen_with(server, name, "");
}

/// Waits until the server has seen the schedule with a pattern that contains `pattern`.
fn seen_with(server: &Running, name: &str, pattern: &str) {
    let journal = etude_sqlite::Settings { dir: server.dir().to_owned(), sync: etude_sqlite::Sync::Normal };
    let engine = Sqlite::open(journal).expect("the journal");
    let app = server.dir().join("demo").canonicalize().expect("an app");
    let (book, key) = (format!("schedules {}", app.display()), Some(name.to_owned()));
    let query = EntryQuery { book, key, ..EntryQuery::default() };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !engine.entries(&query).expect("entries").iter().any(|entry| entry.body.contains(pattern)) {
        assert!(Instant::now() < deadline, "the server never saw `{name}`");
        std::thread::yield_now();
    }
}

/// K-44: asserts that no server looked at the time of the tick, and that it was seen at least `by_ms` later.
fn assert_late(tick: &Value, by_ms: i64) {
    assert!(tick["late_ms"].as_i64().is_some_and(|late| late >= by_ms), "{tick}");
}

/// S-111: a schedule whose pipeline has errors, or whose input does not fit it, shows its faults, and its ticks have the reason.
/// It continues when they are fixed.
#[test]
fn a_schedule_says_what_is_wrong_with_its_pipeline() {
    let server = server("  good: {pipeline: p, every: 1h}\n  misfit: {pipeline: p, every: 1h, input: {daay: x}}\n");
    seen(&server, "misfit");
    let codes = |name: &str| {
        let schedule = server.send("GET", &format!("/v1/schedules/demo/{name}"), None).json();
        let broken = schedule["broken"].as_array().cloned().unwrap_or_default();
        assert_eq!(schedule["next_at"].is_null(), !broken.is_empty(), "{schedule}");
        broken.iter().map(|one| one["code"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((codes("good").len(), codes("misfit")), (0, vec!["P0313".to_owned()]));
    let file = server.dir().join("demo/pipelines/p/pipeline.yaml");
    let text = std::fs::read_to_string(&file).expect("a file");
    std::fs::write(&file, "name: p\nsteps: [").expect("written");
    assert!(!codes("good").is_empty());
    let metrics = server.send("GET", "/metrics", None).text();
    assert!(metrics.lines().any(|line| line.contains("\"good\"") && line.contains("\"broken\"")), "{metrics}");
    set_time(&server, 1);
    assert_eq!(brief(&ticks(&server, "good", 1)), ["11:00 skipped definition_invalid"]);
    std::fs::write(&file, text).expect("written");
    assert!(codes("good").is_empty());
    assert_eq!(server.send("POST", "/v1/schedules/demo/good/fire", Some(&json!({}))).status, 202);
}

/// S-102, S-109, K-44: a tick starts a run with its nominal time, and records its delay; missed ticks are kept with their reason.
#[test]
fn a_tick_begins_a_run_with_its_time() {
    let server = server(
        "  nightly: {pipeline: p, cron: \"0 * * * *\", timezone: Asia/Tokyo, input: {day: \"{{tick.date}}\"}}\n",
    );
    seen(&server, "nightly");
    set_time(&server, 6);
    let ticks = ticks(&server, "nightly", 6);
    assert_eq!(
        brief(&ticks),
        [
            "16:00 ran -", "15:00 skipped missed", "14:00 skipped missed", "13:00 skipped missed",
            "12:00 skipped missed", "11:00 skipped missed"
        ]
    );
    assert_eq!((&ticks[0]["kind"], &ticks[0]["due_at"]), (&json!("tick"), &ticks[0]["at"]));
    assert_late(&ticks[0], HOUR / 2);
    let run = server.until(ticks[0]["run_id"].as_str().expect("a run"), &["succeeded"]);
    assert_eq!((&run["cause"], &run["by"]), (&json!("schedule"), &Value::Null));
    assert_eq!(run["output"], json!({"tick": "2030-07-15T16:00:00.000Z"}));
    assert_eq!(run["input"], json!({"day": "2030-07-16"}));
    let document = server.send("GET", "/v1/schedules/demo/nightly", None).json();
    assert_eq!((&document["next_at"], &document["broken"]), (&json!("2030-07-15T17:00:00.000Z"), &Value::Null));
    let next = server.send("GET", "/v1/schedules/demo/nightly/next?count=2&from=2030-01-01T00:30:00Z", None).json();
    assert_eq!(next["times"], json!(["2030-01-01T01:00:00.000Z", "2030-01-01T02:00:00.000Z"]));
}

/// S-101, S-113: neither a clock that is set back nor another server ticks a second time.
#[test]
fn nothing_ticks_twice() {
    let first = server("  a: {pipeline: p, every: 1h, catch_up: all, overlap: allow}\n");
    seen(&first, "a");
    set_time(&first, 3);
    assert_eq!(ticks(&first, "a", 3).len(), 3);
    set_time(&first, 1);
    let second = Running::at(first.stop(), |_| ());
    set_time(&second, 3);
    // A tick of the second server shows that it has looked at the others.
    set_time(&second, 4);
    let found = ticks(&second, "a", 4);
    assert_eq!(brief(&found), ["14:00 ran -", "13:00 ran -", "12:00 ran -", "11:00 ran -"]);
    let runs = second.send("GET", "/v1/runs?cause=schedule", None).json();
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(4));
}

/// S-104, S-105: `skip` and `queue` while an earlier run waits for a person, and `cancel`.
#[test]
fn overlap_decides_while_a_run_has_not_ended() {
    let server = server(
        "  skip: {pipeline: ask, every: 1h}\n  queue: {pipeline: ask, every: 1h, overlap: queue}\n  cancel: {pipeline: ask, every: 1h, overlap: cancel}\n",
    );
    for name in ["skip", "queue", "cancel"] {
        seen(&server, name);
    }
    for hour in 1..=3 {
        set_time(&server, hour);
        for name in ["skip", "queue", "cancel"] {
            ticks(&server, name, usize::try_from(hour).expect("small"));
        }
    }
    assert_eq!(brief(&ticks(&server, "skip", 3)), ["13:00 skipped overlap", "12:00 skipped overlap", "11:00 ran -"]);
    let queued = ticks(&server, "queue", 3);
    assert_eq!(brief(&queued), ["13:00 skipped overlap", "12:00 waiting -", "11:00 ran -"]);
    let cancelled = ticks(&server, "cancel", 3);
    assert_eq!(brief(&cancelled), ["13:00 ran -", "12:00 ran -", "11:00 ran -"]);
    server.until(cancelled[2]["run_id"].as_str().expect("a run"), &["cancelled"]);
    server.until(cancelled[1]["run_id"].as_str().expect("a run"), &["cancelled"]);
    // The end of the earlier run starts the waiting one.
    let first = queued[2]["run_id"].as_str().expect("a run");
    server.send("POST", &format!("/v1/runs/{first}/cancel"), Some(&json!({})));
    server.poll("/v1/schedules/demo/queue/ticks", |document| {
        document["ticks"][1]["outcome"] == "ran" && document["ticks"][1]["run_id"].is_string()
    });
}

/// S-104, S-162: a remaining server starts a waiting tick, even if another server made it wait.
#[test]
fn a_waiting_tick_outlives_its_server() {
    let first = server("  queue: {pipeline: ask, every: 1h, overlap: queue}\n");
    seen(&first, "queue");
    let other = first.another();
    set_time(&other, 0);
    for hour in 1..=2 {
        set_time(&first, hour);
        ticks(&first, "queue", usize::try_from(hour).expect("small"));
    }
    let queued = ticks(&first, "queue", 2);
    assert_eq!(brief(&queued), ["12:00 waiting -", "11:00 ran -"]);
    let _dir = first.stop();
    set_time(&other, 2);
    let run = queued[1]["run_id"].as_str().expect("a run");
    other.send("POST", &format!("/v1/runs/{run}/cancel"), Some(&json!({})));
    other.poll("/v1/schedules/demo/queue/ticks", |document| document["ticks"][0]["outcome"] == "ran");
}

/// S-107: a pause survives a restart, and its ticks are kept.
#[test]
fn a_pause_survives_a_restart() {
    let first = server("  a: {pipeline: p, every: 1h}\n");
    seen(&first, "a");
    let paused = first.send("POST", "/v1/schedules/demo/a/pause", Some(&json!({"reason": "holiday"})));
    assert_eq!(
        (paused.status, &paused.json()["paused"], &paused.json()["reason"]),
        (200, &json!(true), &json!("holiday"))
    );
    let second = Running::at(first.stop(), |_| ());
    set_time(&second, 1);
    assert_eq!(brief(&ticks(&second, "a", 1)), ["11:00 skipped paused"]);
    let document = second.send("POST", "/v1/schedules/demo/a/unpause", Some(&json!({}))).json();
    assert_eq!((&document["paused"], &document["reason"]), (&json!(false), &Value::Null));
    set_time(&second, 2);
    assert_eq!(brief(&ticks(&second, "a", 2))[0], "12:00 ran -");
}

/// S-107: a tick that waits begins after the pause, and so does a missed one. Requested ticks do not wait for the end of a pause.
#[test]
fn a_waiting_tick_does_not_begin_during_a_pause() {
    let first = server("  a: {pipeline: ask, every: 1h, overlap: queue, catch_up: all}\n");
    seen(&first, "a");
    let fired = first.send("POST", "/v1/schedules/demo/a/fire", Some(&json!({}))).json();
    set_time(&first, 1);
    assert_eq!(brief(&ticks(&first, "a", 2))[0], "11:00 waiting -");
    let second = Running::at(first.stop(), |_| ());
    set_time(&second, 3);
    let send = |path: &str, body: &Value| second.send("POST", path, Some(body));
    let end_run = |tick: &Value| {
        let run = tick["run_id"].as_str().expect("a run");
        send(&format!("/v1/runs/{run}/cancel"), &json!({}));
        second.until(run, &["cancelled"]);
    };
    let waiting = ["13:00 waiting -", "12:00 waiting -", "11:00 waiting -"];
    let found = ticks(&second, "a", 4);
    assert_eq!(brief(&found)[..3], waiting);
    assert_eq!(send("/v1/schedules/demo/a/pause", &json!({})).status, 200);
    end_run(&fired);
    // The look that takes the tick of a later hour could begin a waiting one.
    set_time_and_see(&second, 5, "15:00 skipped paused");
    assert_eq!(
        brief(&ticks(&second, "a", 6))[..5],
        [&["15:00 skipped paused", "14:00 skipped paused"][..], &waiting].concat()
    );

    let range = json!({"from": "2030-07-15T14:00:00Z", "to": "2030-07-15T16:00:00Z"});
    assert_eq!(send("/v1/schedules/demo/a/backfill", &range).status, 202);
    assert_eq!(brief(&ticks(&second, "a", 6))[..5], [&["15:00 waiting -", "14:00 ran -"][..], &waiting].concat());
    end_run(&ticks(&second, "a", 6)[1]);
    let is_begun = |document: &Value, at: usize| document["ticks"][at]["outcome"] == "ran";
    second.poll("/v1/schedules/demo/a/ticks", |document| is_begun(document, 0));
    end_run(&ticks(&second, "a", 6)[0]);
    set_time_and_see(&second, 6, "16:00 skipped paused");
    assert_eq!(brief(&ticks(&second, "a", 7))[3..6], waiting);

    assert_eq!(send("/v1/schedules/demo/a/unpause", &json!({})).status, 200);
    second.poll("/v1/schedules/demo/a/ticks", |document| is_begun(document, 5));
}

/// Sets the clock, and waits for the newest tick.
fn set_time_and_see(server: &Running, hours: i64, newest: &str) {
    set_time(server, hours);
    server.poll("/v1/schedules/demo/a/ticks", |document| {
        brief(document["ticks"].as_array().expect("ticks"))[0] == newest
    });
}

/// S-107: a pause that would be over at its start is refused, with its member.
#[test]
fn a_pause_ends_later_than_now() {
    let server = server("  a: {pipeline: p, every: 1h}\n");
    seen(&server, "a");
    let body = json!({"until": "2030-07-15T10:29:59Z"});
    let refused = server.send("POST", "/v1/schedules/demo/a/pause", Some(&body));
    assert_eq!(refused.problem(), (422, "input_invalid".to_owned()));
    assert_eq!(refused.json()["errors"][0]["pointer"], "/until");
    assert_eq!(server.send("GET", "/v1/schedules/demo/a", None).json()["paused"], false);
}

/// S-102, S-104: with `catch_up: all`, missed ticks run one after another with `skip` and `queue`, oldest first. With `skip`, a run
/// from before them skips them.
#[test]
fn missed_ticks_run_one_after_another() {
    let first = server(
        "  skip: {pipeline: ask, every: 1h, catch_up: all}\n  queue: {pipeline: ask, every: 1h, catch_up: all, overlap: queue}\n  before: {pipeline: ask, every: 1h, catch_up: all}\n",
    );
    for name in ["skip", "queue", "before"] {
        seen(&first, name);
    }
    assert_eq!(first.send("POST", "/v1/schedules/demo/before/fire", Some(&json!({}))).status, 202);
    let second = Running::at(first.stop(), |_| ());
    set_time(&second, 3);
    for name in ["skip", "queue"] {
        for (hour, later) in [(11, 2), (12, 1), (13, 0)] {
            let document = second.poll(&format!("/v1/schedules/demo/{name}/ticks"), |document| {
                document["ticks"][later]["outcome"] == "ran"
            });
            let ticks = document["ticks"].as_array().expect("ticks");
            assert_eq!(ticks.len(), 3);
            assert!(ticks[..later].iter().all(|tick| tick["outcome"] == "waiting"), "{document:#}");
            assert_eq!(ticks[later]["at"], format!("2030-07-15T{hour}:00:00.000Z"));
            assert_eq!(ticks[later]["kind"], "tick");
            let run = ticks[later]["run_id"].as_str().expect("a run");
            second.until(run, &["waiting"]);
            second.send("POST", &format!("/v1/runs/{run}/cancel"), Some(&json!({})));
        }
    }
    let before = ticks(&second, "before", 4);
    assert!(before.iter().filter(|tick| tick["kind"] == "tick").all(|tick| tick["reason"] == "overlap"), "{before:?}");
}

/// S-107: a tick during a pause is skipped, even by a server that sees it after the end of the pause.
#[test]
fn a_tick_of_a_pause_is_skipped_after_its_end() {
    let first = server("  a: {pipeline: p, cron: \"0 * * * *\", timezone: UTC, catch_up: all}\n");
    seen(&first, "a");
    let body = json!({"until": "2030-07-15T11:30:00Z"});
    assert_eq!(first.send("POST", "/v1/schedules/demo/a/pause", Some(&body)).status, 200);
    let second = Running::at(first.stop(), |_| ());
    set_time(&second, 2);
    assert_eq!(brief(&ticks(&second, "a", 2)), ["12:00 ran -", "11:00 skipped paused"]);
}

/// S-111: a broken schedule stops alone, and gives its reason.
#[test]
fn a_broken_schedule_stops_alone() {
    let server =
        server("  bad: {pipeline: p, cron: \"0 25 * * *\", timezone: UTC}\n  good: {pipeline: p, every: 1h}\n");
    seen(&server, "good");
    set_time(&server, 1);
    assert_eq!(brief(&ticks(&server, "good", 1)), ["11:00 ran -"]);
    let bad = server.send("GET", "/v1/schedules/demo/bad", None).json();
    assert_eq!((&bad["broken"][0]["code"], &bad["next_at"]), (&json!("P0801"), &Value::Null));
    assert_eq!(server.send("POST", "/v1/schedules/demo/bad/fire", Some(&json!({}))).problem().0, 422);
    assert_eq!(server.send("GET", "/v1/schedules/demo/none", None).problem().0, 404);
    let metrics = server.send("GET", "/metrics", None).text();
    for line in ["schedule=\"bad\",state=\"broken\"} 1", "schedule=\"good\",state=\"active\"} 1"] {
        assert!(metrics.contains(&format!("etude_schedules{{app=\"demo\",{line}\n")), "{metrics}");
    }
}

/// S-111: a file with a syntax error stops the schedules of its app with the reason. Webhooks of the app are refused only for a
/// while.
#[test]
fn a_file_with_a_syntax_error_loses_nothing() {
    let good = "schedules:\n  a: {pipeline: p, every: 1h}\nwebhooks:\n  hook: {pipeline: p, verify: {kind: token, secrets: [s3cret], id_header: X-Id}}\n";
    let server = server("  a: {pipeline: p, every: 1h}\n");
    server.configure(good);
    let deliver = |id: &str| {
        server.raw("POST", "/in/demo/hook", &[("X-Webhook-Token", "s3cret"), ("X-Id", id)], Some("{}".to_owned()))
    };
    server.poll("/v1/webhooks", |document| document["webhooks"][0]["name"] == "hook");
    assert_eq!(deliver("1").status, 202);
    server.configure(&format!("{good}  other: {{pipeline: p"));
    let list = server.poll("/v1/schedules", |document| !document["schedules"][0]["broken"].is_null());
    let schedule = &list["schedules"][0];
    assert_eq!((&schedule["name"], &schedule["next_at"]), (&json!("a"), &Value::Null), "{list:#}");
    assert_eq!(schedule["broken"][0]["file"], "etude.yaml", "{list:#}");
    assert!(server.send("GET", "/metrics", None).text().contains("schedule=\"a\",state=\"broken\"} 1"));
    let refused = deliver("2");
    assert_eq!(refused.problem(), (503, "journal_unavailable".to_owned()));
    assert!(refused.header("retry-after").is_some());
    server.configure(good);
    server.poll("/v1/schedules", |document| document["schedules"][0]["broken"].is_null());
    assert_eq!(deliver("2").status, 202);
}

/// S-111: an app that cannot be read does not affect the others.
#[test]
fn an_unreadable_app_stops_alone() {
    let server = Running::with(|settings| {
        let dir = settings.state_dir.join("gone");
        settings.apps.insert(0, etude_server::ServedApp { slug: "gone".to_owned(), dir });
    });
    server.pipeline("p", "", &[TICK]);
    server.configure("schedules:\n  a: {pipeline: p, every: 1h}\nwebhooks:\n  hook: {pipeline: p, verify: {kind: token, secrets: [s3cret]}}\nnotices:\n  - {name: n, url: \"https://a.example/\", on: [run.failed], secret: s}\n");
    server.poll("/v1/schedules", |document| document["schedules"][0]["name"] == "a");
    for (path, what, name) in [("/v1/webhooks", "webhooks", "hook"), ("/v1/notices", "notices", "n")] {
        let list = server.send("GET", path, None).json();
        assert_eq!(list[what][0]["name"], name, "{list:#}");
    }
    assert_eq!(server.send("GET", "/metrics", None).status, 200);
    assert_eq!(server.raw("POST", "/in/gone/hook", &[], Some("{}".to_owned())).problem().0, 503);
}

/// S-106: a changed pattern does not catch up the past.
#[test]
fn a_changed_pattern_does_not_catch_up() {
    let server = server("  a: {pipeline: p, cron: \"0 12 * * *\", timezone: UTC, catch_up: all, overlap: allow}\n");
    seen(&server, "a");
    set_time(&server, 5);
    assert_eq!(brief(&ticks(&server, "a", 1)), ["12:00 ran -"]);
    server.configure(
        "schedules:\n  a: {pipeline: p, cron: \"0 * * * *\", timezone: UTC, catch_up: all, overlap: allow}\n",
    );
    seen_with(&server, "a", "UTC 0 * * * *");
    set_time(&server, 6);
    let found = brief(&ticks(&server, "a", 2));
    assert!(found == ["16:00 ran -", "12:00 ran -"], "{found:?}");
}

/// S-112: a backfill takes each tick once; `fire` starts a separate run.
#[test]
fn a_backfill_makes_each_tick_once() {
    let server = server("  a: {pipeline: p, every: 1h, overlap: allow}\n");
    seen(&server, "a");
    let range = json!({"from": "2030-07-15T05:00:00Z", "to": "2030-07-15T08:00:00Z"});
    let backfill = || server.send("POST", "/v1/schedules/demo/a/backfill", Some(&range));
    let reply = backfill();
    assert_eq!(reply.status, 202, "{}", reply.text());
    assert_eq!(
        reply.json()["ticks"],
        json!(["2030-07-15T05:00:00.000Z", "2030-07-15T06:00:00.000Z", "2030-07-15T07:00:00.000Z"])
    );
    assert_eq!(backfill().json()["ticks"], json!([]));
    let fired = server.send("POST", "/v1/schedules/demo/a/fire", Some(&json!({})));
    assert_eq!((fired.status, fired.json()["run_id"].is_string()), (202, true));
    // The same key fires only once.
    let bearer = format!("Bearer {}", server.owner);
    let headers = [("Authorization", &*bearer), ("Idempotency-Key", "k")];
    let fire = || server.raw("POST", "/v1/schedules/demo/a/fire", &headers, Some("{}".to_owned()));
    let (once, again) = (fire(), fire());
    assert_eq!((once.status, again.status), (202, 202));
    assert_eq!(once.json(), again.json());
    assert_eq!((once.header("idempotency-replayed"), again.header("idempotency-replayed")), (None, Some("true")));
    let all = ticks(&server, "a", 5);
    assert_eq!(all.iter().filter(|tick| tick["kind"] == "backfill").count(), 3);
    assert_eq!(all.iter().filter(|tick| tick["kind"] == "fire").count(), 2);
    let wrong = json!({"from": "2030-07-15T08:00:00Z", "to": "2030-07-15T08:00:00Z"});
    assert_eq!(server.send("POST", "/v1/schedules/demo/a/backfill", Some(&wrong)).problem().0, 422);
    let wide = json!({"from": "2029-07-15T08:00:00Z", "to": "2030-07-15T08:00:00Z"});
    assert_eq!(server.send("POST", "/v1/schedules/demo/a/backfill", Some(&wide)).problem().0, 422);
}

/// S-112, S-104: requested ticks are neither skipped nor cancelled. With `overlap: queue` the ticks of a backfill run one after
/// another, oldest first.
#[test]
fn the_ticks_of_a_backfill_queue_where_the_schedule_does() {
    let names = ["skip", "cancel", "allow", "queue"];
    let schedules = names.map(|overlap| format!("  {overlap}: {{pipeline: ask, every: 1h, overlap: {overlap}}}\n"));
    let server = server(&schedules.concat());
    let range = json!({"from": "2030-07-15T05:00:00Z", "to": "2030-07-15T08:00:00Z"});
    let path = |name: &str| format!("/v1/schedules/demo/{name}/ticks");
    let all = |document: &Value| document["ticks"].as_array().cloned().expect("ticks");
    for name in names {
        seen(&server, name);
        let backfill = || server.send("POST", &format!("/v1/schedules/demo/{name}/backfill"), Some(&range));
        let reply = backfill();
        assert_eq!((reply.status, reply.json()["ticks"].as_array().map(Vec::len)), (202, Some(3)), "{}", reply.text());
        assert_eq!(backfill().json()["ticks"], json!([]));
        if name != "queue" {
            let found = all(&server.send("GET", &path(name), None).json());
            assert_eq!(brief(&found), ["07:00 ran -", "06:00 ran -", "05:00 ran -"], "{name}");
        }
    }
    for ran in 1..=3 {
        let wanted = [
            ["07:00 waiting -", "06:00 waiting -", "05:00 ran -"],
            ["07:00 waiting -", "06:00 ran -", "05:00 ran -"],
            ["07:00 ran -", "06:00 ran -", "05:00 ran -"],
        ][ran - 1];
        let found = all(&server.poll(&path("queue"), |document| brief(&all(document)) == wanted));
        assert!(found.iter().all(|tick| tick["kind"] == "backfill"), "{found:?}");
        let run = found[3 - ran]["run_id"].as_str().expect("a run");
        server.until(run, &["waiting"]);
        assert_eq!(server.send("POST", &format!("/v1/runs/{run}/cancel"), Some(&json!({}))).status, 202);
        server.until(run, &["cancelled"]);
    }
}

/// S-98: three servers on one journal begin one run per tick.
#[test]
fn three_servers_begin_one_run_per_tick() {
    let first = server("  a: {pipeline: p, every: 1h, catch_up: all, overlap: allow}\n");
    seen(&first, "a");
    let others = [first.another(), first.another()];
    let all = || [&first, &others[0], &others[1]].into_iter();
    for hours in [3, 6, 9] {
        all().for_each(|server| set_time(server, hours));
        let count = usize::try_from(hours).expect("small");
        all().for_each(|server| assert_eq!(ticks(server, "a", count).len(), count));
    }
    let runs = first.send("GET", "/v1/runs?cause=schedule", None).json();
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(9));
}

/// S-53: the cursor of another list is refused: of another schedule, of deliveries, and of actions.
#[test]
fn a_cursor_belongs_to_its_list() {
    let server = server("  a: {pipeline: ask, every: 1h}\n  b: {pipeline: ask, every: 1h}\n");
    let text = std::fs::read_to_string(server.dir().join("demo/etude.yaml")).expect("the schedules");
    let hook = "webhooks:\n  a: {pipeline: ask, verify: {kind: token, secrets: [s3cret]}, input: {}}\n";
    server.configure(&format!("{text}{hook}"));
    server.poll("/v1/webhooks", |document| document["webhooks"][0].is_object());
    for name in ["a", "a", "b", "b"] {
        let fired = server.send("POST", &format!("/v1/schedules/demo/{name}/fire"), Some(&json!({})));
        assert_eq!(fired.status, 202, "{}", fired.text());
    }
    for body in ["{\"n\": 1}", "{\"n\": 2}"] {
        let headers = [("X-Webhook-Token", "s3cret"), ("Content-Type", "application/json")];
        assert_eq!(server.raw("POST", "/in/demo/a", &headers, Some(body.to_owned())).status, 202);
    }
    let lists = [
        "/v1/schedules/demo/a/ticks?limit=1",
        "/v1/schedules/demo/b/ticks?limit=1",
        "/v1/webhooks/demo/a/deliveries?limit=1",
        "/v1/actions?limit=1",
        "/v1/actions?limit=1&app=demo&schedule=a",
    ];
    let next = |list: &str| server.send("GET", list, None).json()["next"].as_str().expect("a cursor").to_owned();
    let cursors: Vec<String> = lists.iter().map(|list| next(list)).collect();
    for (at, list) in lists.iter().enumerate() {
        for (of, cursor) in cursors.iter().enumerate() {
            let reply = server.send("GET", &format!("{list}&cursor={cursor}"), None);
            if at == of {
                assert_eq!(reply.status, 200, "{list}: {}", reply.text());
            } else {
                assert_eq!(reply.problem(), (422, "input_invalid".to_owned()), "{list} {cursor}");
                assert_eq!(reply.json()["errors"][0]["parameter"], "cursor");
            }
        }
    }
}

/// S-98, S-104: with `overlap: cancel`, a server that was killed between the tick's run and the cancellation of earlier runs leaves
/// the cancellation to the next server, which cancels no later run.
#[test]
fn a_tick_cancels_earlier_runs_after_a_kill() {
    let first = server("  cancel: {pipeline: ask, every: 1h, overlap: cancel}\n");
    seen(&first, "cancel");
    set_time(&first, 1);
    let earlier = ticks(&first, "cancel", 1)[0]["run_id"].as_str().expect("a run").to_owned();
    first.until(&earlier, &["waiting"]);
    let dir = first.stop();
    let journal = etude_sqlite::Settings { dir: dir.path().to_owned(), sync: etude_sqlite::Sync::Normal };
    let engine = Sqlite::open(journal).expect("the journal");
    let book = format!("ticks {} cancel", dir.path().join("demo").canonicalize().expect("an app").display());
    let entries = || engine.entries(&EntryQuery { book: book.clone(), ..EntryQuery::default() }).expect("entries");
    // The tick as the killed server has written it, and a run of a request after it.
    let tick = entries().pop().expect("a tick");
    let at_ms = tick.at_ms + HOUR;
    for (key, id, due_ms) in [(at_ms.to_string(), "r-tick", Some(at_ms)), ("fire 1".to_owned(), "r-fire", None)] {
        let run = NewRun { id: id.to_owned(), ..engine.view(&earlier).expect("a run").run };
        let submission = Submission { run, keys: Vec::new(), max_queued: None, needs_room: false };
        let entry = Entry { key, at_ms, due_ms, run_id: None, ..tick.clone() };
        let write = Write { entry, expected: Expected::Nothing, submission: Some(submission), is_alone: false };
        let written = tokio::runtime::Runtime::new().expect("a runtime").block_on(engine.write(&write));
        assert_eq!(written.expect("written"), Written::Done);
    }
    let second = Running::at(dir, |_| ());
    set_time(&second, 2);
    second.poll(&format!("/v1/runs/{earlier}"), |run| run["status"] == "cancelled");
    second.until("r-tick", &["waiting"]);
    second.until("r-fire", &["waiting"]);
    assert_eq!(ticks(&second, "cancel", 3).len(), 3);
    second.poll("/v1/schedules", |_| entries().iter().all(|entry| entry.due_ms.is_none()));
}
