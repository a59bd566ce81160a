//! Faults of the three sections, each at its place.

use serde_json::json;

use super::*;
use crate::serve::WhenFull;

const KNOWN: Known<'static> = Known { pipelines: &["report", "review"], machines: &["triage"] };

fn read_text(text: &str) -> Automation {
    read(&SourceFile::new("etude.yaml", text), Some(KNOWN))
}

fn faults(text: &str) -> Vec<String> {
    let of = |found: &Diagnostic| {
        let (line, _) = found.position().expect("a place");
        format!("{} line {line}: {}", found.code, found.message)
    };
    read_text(text).diagnostics.iter().map(of).collect()
}

/// S-111: a file with a syntax error is unreadable as a whole. An empty one is valid.
#[test]
fn a_file_that_cannot_be_parsed_is_unreadable() {
    let schedules = "schedules:\n  a: {pipeline: report, every: 1h}\n";
    for text in [format!("{schedules}  b: {{pipeline: re"), format!("{schedules} x: ["), "- a list\n".to_owned()] {
        let read = read_text(&text);
        assert!(read.schedules.is_empty() && !read.unreadable.is_empty(), "{text}: {read:?}");
    }
    for text in ["", "# nothing\n", "{}", schedules] {
        assert!(read_text(text).unreadable.is_empty(), "{text}");
    }
    let stopped = read_text(schedules).stopped(&read_text("[").unreadable);
    assert_eq!(stopped.schedules[0].broken, stopped.unreadable);
}

#[test]
fn a_schedule_has_defaults() {
    let text = "schedules:\n  nightly: {pipeline: report, cron: \"30 2 * * *\", timezone: Europe/Berlin, input: {day: \"{{tick.date}}\", n: 3}, catch_up_within: 7d, jitter: 5m}\n  often: {machine: triage, every: 6h, overlap: queue, catch_up: all}\n";
    let read = read_text(text);
    assert!(read.diagnostics.is_empty(), "{:?}", read.diagnostics);
    let [nightly, often] = read.schedules.as_slice() else { panic!("two schedules") };
    assert_eq!((nightly.overlap, nightly.catch_up, nightly.jitter_ms), (Overlap::Skip, CatchUp::Last, 300_000));
    assert_eq!((nightly.catch_up_within_ms, often.catch_up_within_ms), (604_800_000, 86_400_000));
    assert_eq!(nightly.input["n"], json!(3));
    assert_eq!((often.overlap, often.catch_up, often.every_ms), (Overlap::Queue, CatchUp::All, Some(21_600_000)));
    assert_eq!(often.target, Some(Target::Machine("triage".to_owned())));
    assert_ne!(nightly.pattern(), often.pattern());
}

/// S-110: a cron pattern without a zone is a diagnostic, as are all other faults of a schedule.
#[test]
fn faults_of_schedules_are_located() {
    let one = |entry: &str| faults(&format!("schedules:\n  a: {entry}\n"));
    for (entry, wanted) in [
        ("{pipeline: report, cron: \"0 2 * * *\"}", "P0802 line 2: a schedule with `cron` has no `timezone`"),
        (
            "{pipeline: report, cron: \"0 25 * * *\", timezone: UTC}",
            "P0801 line 2: the cron pattern `0 25 * * *` cannot be read: the hour cannot be `25`; hours are 0 to 23",
        ),
        ("{pipeline: report, cron: \"0 2 * * *\", timezone: CEST+1}", "P0803 line 2: there is no time zone `CEST+1`"),
        ("{pipeline: report}", "P0801 line 2: the schedule `a` has no `cron` and no `every`"),
        ("{pipeline: report, every: 500ms}", "P0801 line 2: the interval of `every` is shorter than a second"),
        ("{pipeline: repotr, every: 1h}", "P0311 line 2: there is no pipeline `repotr`"),
        ("{machine: x, every: 1h}", "P0712 line 2: there is no stage machine `x`"),
        ("{every: 1h}", "P0203 line 2: `a` runs nothing"),
        ("{pipeline: report, every: 1h, overlap: both}", "P0205 line 2: `overlap` cannot be `both`"),
        (
            "{pipeline: report, every: 1h, input: {d: \"{{tick.day}}\"}}",
            "P0302 line 2: `tick.day` is not a valid reference here",
        ),
    ] {
        assert_eq!(one(entry), [wanted], "{entry}");
    }
    assert_eq!(one("{pipeline: report, machine: triage, every: 1h}").len(), 1);
    assert_eq!(one("{pipeline: report, every: 1h, crn: x}").len(), 1);
    assert_eq!(faults("schedules: [a]\n"), ["P0204 line 1: `schedules` must be a mapping by name, not a list"]);
}

/// S-111: a fault belongs to its own schedule, and other commands do not see it.
#[test]
fn a_fault_stops_one_schedule() {
    let text = "schedules:\n  bad: {pipeline: report, cron: x}\n  good: {pipeline: report, every: 1h}\n";
    let read = read_text(text);
    let broken: Vec<usize> = read.schedules.iter().map(|schedule| schedule.broken.len()).collect();
    assert_eq!(broken, [2, 0]);
    let (_, of_others) = crate::config::read(&SourceFile::new("etude.yaml", text));
    assert!(of_others.is_empty(), "{of_others:?}");
}

/// Section 6: the input of a schedule must fit its target.
#[test]
fn the_input_of_a_schedule_fits_its_target() {
    use crate::input::InputDecl;
    let read = read_text("schedules:\n  a: {pipeline: report, every: 1h, input: {day: \"{{tick.date}}\"}}\n");
    let schedule = &read.schedules[0];
    let misfits = |is_open| schedule.misfits(&InputDecl { parameters: Vec::new(), is_open });
    assert!(misfits(true).is_empty());
    let found = misfits(false);
    assert_eq!((found.len(), found[0].code.as_str(), found[0].position()), (1, "P0313", Some((2, 36))));
    assert!(found[0].message.starts_with("the input of the schedule `a` is not valid: "), "{}", found[0].message);
}

/// S-115: an unsigned webhook is a diagnostic.
#[test]
fn an_unsigned_webhook_is_refused() {
    let one = |entry: &str| faults(&format!("webhooks:\n  a: {entry}\n"));
    for (entry, wanted) in [
        ("{pipeline: review}", "P0804 line 2: the webhook `a` has no `verify`"),
        ("{pipeline: review, verify: {kind: github}}", "P0804 line 2: the webhook `a` has no `verify.secrets`"),
        (
            "{pipeline: review, verify: {kind: github, secrets: []}}",
            "P0804 line 2: the webhook `a` has no `verify.secrets`",
        ),
        (
            "{pipeline: review, verify: {kind: hmac, secrets: [x]}}",
            "P0804 line 2: `verify` of the webhook `a` has no `header`",
        ),
        ("{pipeline: review, verify: {kind: none, secrets: [x]}}", "P0205 line 2: `kind` cannot be `none`"),
    ] {
        assert_eq!(one(entry), [wanted], "{entry}");
    }
    let whole = read_text(
        "webhooks:\n  push: {pipeline: review, verify: {kind: github, secrets: [\"${env:A}\", \"${env:B}\"]}, when: {header.x-github-event: push, body.ref: refs/heads/main}, input: {range: \"{{body.before}}..{{body.after}}\"}}\n",
    );
    assert!(whole.diagnostics.is_empty(), "{:?}", whole.diagnostics);
    assert_eq!(whole.webhooks[0].when.len(), 2);
}

/// Section 16.2: the secret of `standard` is `whsec_` and base64. One that no sender can sign with is an error if no
/// other one may fit.
#[test]
fn a_secret_of_standard_webhooks_has_its_form() {
    let found = |secrets: &str, value: Option<&str>| {
        let text = format!("webhooks:\n  a: {{pipeline: review, verify: {{kind: standard, secrets: [{secrets}]}}}}\n");
        let expand =
            |text: &str| if text.contains("${env:") { value.map(str::to_owned) } else { Some(text.to_owned()) };
        let read = read_expanded(&SourceFile::new("etude.yaml", text), None, &expand);
        let faults = read.diagnostics.iter().map(|found| (found.is_error(), found.message.replace('`', "")));
        (faults.collect::<Vec<_>>(), read.webhooks[0].broken.len())
    };
    let wrong = |is_error| (is_error, "a secret of the webhook a is not whsec_ and base64".to_owned());
    let bare = (false, "a secret of the webhook a does not begin with whsec_".to_owned());
    for secret in ["s3cret", "whsec_", "whsec_s3cret", "whsec_AAB=", "whsec_A===", "whsec_AAAA="] {
        assert_eq!(found(secret, None), (vec![wrong(true)], 1), "{secret}");
        assert_eq!(found("\"${env:HOOK}\"", Some(secret)), (vec![wrong(true)], 1), "{secret}");
        assert_eq!(found(&format!("{secret}, whsec_AAAA"), None), (vec![wrong(false)], 0), "{secret}");
        assert_eq!(found(&format!("{secret}, \"${{env:HOOK}}\""), None), (vec![wrong(false)], 0), "{secret}");
    }
    for secret in ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAA=", "whsec_AA==", "\"${env:HOOK}\""] {
        assert_eq!(found(secret, None), (vec![], 0), "{secret}");
    }
    assert_eq!(found("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", None), (vec![bare], 0));
}

#[test]
fn a_notice_goes_to_https() {
    let one =
        |more: &str| faults(&format!("notices:\n  - {{name: chat, on: [run.failed], secret: whsec_AAAA, {more}}}\n"));
    assert!(one("url: \"https://a.example/x\"").is_empty());
    assert!(one("url: \"http://127.0.0.1:1/x\", allow_private: true").is_empty());
    assert_eq!(one("url: \"http://a.example/x\"").len(), 1);
    assert_eq!(one("url: ftp").len(), 1);
    // A key of the environment must not reach a host that only this file names.
    assert!(one("url: \"${env:CHAT_URL}\"").is_empty());
    for url in
        ["https://a.example/${env:KEY}", "https://${env:KEY}.a.example/", "${env:A}.a.example/${env:B}", "${env:A}x"]
    {
        let wanted = "P0805 line 2: a variable is only a part of the address of a notice";
        assert_eq!(one(&format!("url: \"{url}\"")), [wanted], "{url}");
    }
}

#[test]
fn references_are_filled_in_with_their_types() {
    let lookup = |name: &str| match name {
        "body.n" => Some("3".to_owned()),
        "body.s" => Some("\"x\"".to_owned()),
        _ => None,
    };
    let members = |value: Value| value.as_object().cloned().expect("an object");
    let given = members(
        json!({"n": "{{body.n}}", "t": "{{ body.s }}-{{body.n}}", "l": ["{{body.s}}", 1], "gone": "{{body.x}}"}),
    );
    assert_eq!(template::fill(&given, &lookup).as_deref(), Ok("{\"n\":3,\"t\":\"x-3\",\"l\":[\"x\",1]}"));
    assert_eq!(template::fill(&members(json!({"a": "-{{body.x}}"})), &lookup), Err("body.x".to_owned()));
    assert_eq!(template::at_path(&json!({"a": [{"b": 1}]}), "a.0.b"), Some(&json!(1)));
}

#[test]
fn limits_of_pipelines_are_read_and_checked() {
    let text = "serve:\n  max_runs: 4\n  per_day: {max_cost_usd: 2.5}\n  pipelines:\n    report: {max_runs: 1, key: \"{{input.environment}}\", when_full: skip, priority: -3, queue_timeout: 2d}\n    triage: {priority: 9}\n";
    let read = read_text(text);
    assert!(read.diagnostics.is_empty(), "{:?}", read.diagnostics);
    let [report, triage] = read.limits.as_slice() else { panic!("two limits") };
    assert_eq!((report.max_runs, report.when_full, report.priority), (Some(1), WhenFull::Skip, Some(-3)));
    assert_eq!((report.queue_timeout_ms, report.key.as_deref()), (Some(172_800_000), Some("{{input.environment}}")));
    assert_eq!((triage.max_runs, triage.when_full, triage.priority), (None, WhenFull::Queue, Some(9)));
    assert_eq!(
        faults("serve: {pipelines: {reporting: {max_runs: 1}}}\n"),
        ["P0311 line 1: there is no pipeline `reporting`"]
    );

    let config = |text: &str| crate::config::read(&SourceFile::new("etude.yaml", text));
    let (whole, found) = config(text);
    assert!(found.is_empty(), "{found:?}");
    assert_eq!((whole.serve.max_runs, whole.serve.max_cost_per_day_usd), (Some(4), Some(2.5)));
    for (limits, wanted) in [
        ("{key: \"{{input.a}}\"}", "P0203 `report` has `key` but no `max_runs`"),
        ("{max_runs: 1, key: \"{{a}}\"}", "P0302 `a` is not a valid reference here"),
        ("{max_runs: 1, when_full: wait}", "P0205 `when_full` cannot be `wait`"),
    ] {
        let (_, found) = config(&format!("serve: {{pipelines: {{report: {limits}}}}}\n"));
        let found: Vec<String> = found.iter().map(|one| format!("{} {}", one.code, one.message)).collect();
        assert_eq!(found, [wanted], "{limits}");
    }
}

#[test]
fn settings_for_agents_are_read_and_checked() {
    use crate::serve::{Approvals, Mcp, OnCancel};
    let read = read_text(
        "serve: {mcp: {read_only: [report, machine_triage], answer_within: 30s, on_cancel: cancel, approvals: client}}\n",
    );
    assert!(read.diagnostics.is_empty(), "{:?}", read.diagnostics);
    let wanted = Mcp {
        read_only: vec!["report".to_owned(), "machine_triage".to_owned()],
        answer_within_ms: Some(30_000),
        on_cancel: OnCancel::Cancel,
        approvals: Approvals::Client,
    };
    assert_eq!((read.mcp, read_text("serve: {max_runs: 1}\n").mcp), (wanted, Mcp::default()));
    let unknown = faults("serve: {mcp: {read_only: [reports]}}\n");
    assert_eq!(unknown, ["P0311 line 1: there is no pipeline `reports`"]);
    let (_, found) = crate::config::read(&SourceFile::new("etude.yaml", "serve: {mcp: {approvals: everybody}}\n"));
    let found: Vec<String> = found.iter().map(|one| format!("{} {}", one.code, one.message)).collect();
    assert_eq!(found, ["P0205 `approvals` cannot be `everybody`"]);
}

/// S-33: numbers of a body keep their digits.
#[test]
fn texts_are_filled_with_what_was_written() {
    let body = "{\"n\": 12345678901234567890123, \"l\": [{\"x\": 1.50, \"s\": \"a\\u00e9\"}]}";
    let lookup = |path: &str| template::text_at_path(body, path.strip_prefix("body.")?).map(str::to_owned);
    let given = json!({"n": "{{body.n}}", "t": "x-{{body.l.0.x}} {{body.l.0.s}}", "l": ["{{body.l.0}}", "{{body.no}}", 1], "no": "{{body.no}}"});
    let given = given.as_object().expect("an object");
    assert_eq!(
        template::fill(given, &lookup).as_deref(),
        Ok("{\"n\":12345678901234567890123,\"t\":\"x-1.50 aé\",\"l\":[{\"x\": 1.50, \"s\": \"a\\u00e9\"},null,1]}")
    );
    let missing = json!({"t": "x-{{body.no}}"});
    assert_eq!(template::fill(missing.as_object().expect("an object"), &lookup), Err("body.no".to_owned()));
    assert_eq!(template::text_at_path("[1, {\"a\": {}}]", "1.a"), Some("{}"));
    assert_eq!(template::text_at_path("[1]", "x"), None);
}
