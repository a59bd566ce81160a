//! Rules of states, without a run.

use etude_runtime::engine::{Entry, EntryQuery, Expected, Ledger, Write};
use etude_runtime::memory::MemoryEngine;
use serde_json::json;
use std::sync::Arc;

use super::needs::{Facts, Need, missing, way};
use super::*;

const APP: [(&str, &str); 3] = [
    ("SKILL.md", "---\nname: s\ndescription: d\n---\nBe brief.\n"),
    (
        "pipelines/p/pipeline.yaml",
        "name: p\ndescription: d\nsteps: [{name: a, type: tool, tool: Read, args: {path: a}}]\n",
    ),
    ("pipelines/p/learn.yaml", "learn: 1\nstate: active\nfamily: cancel\n"),
];

struct World {
    dir: tempfile::TempDir,
    engine: MemoryEngine,
}

impl World {
    fn new(state: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, text) in APP {
            let place = dir.path().join(path);
            std::fs::create_dir_all(place.parent().expect("a parent")).expect("made");
            std::fs::write(place, text.replace("active", state)).expect("written");
        }
        let blobs = etude_process::blob::FileBlobs::new(dir.path().join("blobs"), false);
        Self { dir, engine: MemoryEngine::new(Arc::new(blobs)) }
    }

    fn disk(&self) -> Disk {
        Disk::open(self.dir.path()).expect("opened")
    }

    fn standing(&self) -> Standing {
        standings(&self.engine, &self.disk()).expect("read").remove(0)
    }

    async fn add(&self, n: i64, kind: RowKind, verdict: Verdict, why: Option<(&str, &str)>) {
        let row = Row {
            kind,
            run: format!("r{n}"),
            at_ms: n,
            ended_at_ms: n,
            verdict,
            step: why.map(|(step, _)| step.to_owned()),
            reason: why.map(|(_, reason)| reason.to_owned()),
            digest: format!("d{n}"),
            writes: true,
            calls: Value::Null,
            usage: Value::Null,
        };
        book::add_row(&self.engine, &self.standing().content, &row).await.expect("kept");
    }

    async fn judge(&self, n: i64) {
        self.judge_at(n, 1_000).await;
    }

    async fn judge_at(&self, n: i64, at_ms: i64) {
        let entry = Entry {
            at_ms,
            book: etude_runs::listing::JUDGED.to_owned(),
            key: format!("r{n}"),
            state: "bad".to_owned(),
            ..Entry::default()
        };
        let write = Write { entry, expected: Expected::Anything, submission: None, is_alone: false };
        self.engine.write(&write).await.expect("kept");
    }

    async fn settle(&self) -> Vec<(String, Option<String>)> {
        let settled = settle(&self.engine, &self.disk(), &Learning::default()).await.expect("settled");
        settled.into_iter().map(|settled| (settled.demotion.reason, settled.demotion.run)).collect()
    }
}

fn one(reason: &str, run: &str) -> Vec<(String, Option<String>)> {
    vec![(reason.to_owned(), Some(run.to_owned()))]
}

/// L-78, L-80: a denied write demotes at once, is reported once, and changes no file.
#[tokio::test]
async fn a_denied_write_demotes_once() {
    let world = World::new("active");
    assert!(world.standing().is_routed());
    world.add(1, RowKind::Run, Verdict::Done, None).await;
    assert_eq!(world.settle().await, []);
    world.add(2, RowKind::Run, Verdict::Disagreed, Some(("a", "denied"))).await;
    assert_eq!(world.settle().await, one("denied", "r2"));
    assert_eq!(world.settle().await, [], "it is reported once");
    let standing = world.standing();
    assert_eq!((standing.state, standing.is_routed()), (Some(LearnedState::Demoted), false));
    assert_eq!(standing.demoted.as_ref().map(|d| d.reason.as_str()), Some("denied"));
    assert_eq!(unrouted(&world.engine, &world.disk()).expect("read"), ["p"]);
    assert!(world.standing().learned().is_some_and(|learned| learned.state == LearnedState::Active), "the file stays");
}

/// L-78: a bad verdict on a run with a write demotes at once.
#[tokio::test]
async fn a_bad_verdict_demotes() {
    let world = World::new("active");
    world.add(1, RowKind::Run, Verdict::Done, None).await;
    assert_eq!(world.settle().await, []);
    world.judge(1).await;
    assert_eq!(world.settle().await, one("judged_bad", "r1"));
}

/// L-78: a verdict after the last promotion counts, also on an earlier run; a verdict before it does not demote again.
#[tokio::test]
async fn a_verdict_counts_from_when_it_was_given() {
    let world = World::new("active");
    world.add(1, RowKind::Run, Verdict::Done, None).await;
    promoted(&world.engine, &world.disk(), &world.standing(), "pipelines/p", 10).await.expect("kept");
    world.add(5, RowKind::Run, Verdict::Disagreed, Some(("a", "denied"))).await;
    assert_eq!(world.settle().await, one("denied", "r5"), "a promotion without a demotion ends nothing");
    promoted(&world.engine, &world.disk(), &world.standing(), "pipelines/p", 20).await.expect("kept");
    world.judge_at(1, 15).await;
    assert_eq!(world.settle().await, [], "it was given before the promotion");
    world.judge_at(1, 25).await;
    assert_eq!(world.settle().await, one("judged_bad", "r1"));
}

/// L-79: two deviations of the same kind in the window demote, different kinds do not.
#[tokio::test]
async fn two_deviations_of_a_kind_demote() {
    let world = World::new("assisted");
    world.add(1, RowKind::Run, Verdict::FellBack, Some(("a", "require"))).await;
    world.add(2, RowKind::Run, Verdict::FellBack, Some(("b", "require"))).await;
    world.add(3, RowKind::Run, Verdict::FellBack, Some(("a", "tool_error"))).await;
    assert_eq!(world.settle().await, []);
    for n in 4..24 {
        world.add(n, RowKind::Run, Verdict::Done, None).await;
    }
    world.add(24, RowKind::Run, Verdict::FellBack, Some(("a", "require"))).await;
    assert_eq!(world.settle().await, [], "the first one is outside the window");
    world.add(25, RowKind::Run, Verdict::FellBack, Some(("a", "require"))).await;
    assert_eq!(world.settle().await, one("deviations", "r25"));
}

/// L-65, 2.11: a changed tool takes an active pipeline to `assisted`, once, and it returns by a promotion after a confirmed write.
#[tokio::test]
async fn a_changed_tool_ends_the_trust() {
    let world = World::new("active");
    let of_tool = |description: &str, kind: &str| {
        format!(
            "name: read_it\ndescription: {description}\ncommand: cat\ninputSchema: {{type: object, properties: {{a: {{type: {kind}}}}}}}\n"
        )
    };
    let write = |path: &str, text: &str| {
        let place = world.dir.path().join(path);
        std::fs::create_dir_all(place.parent().expect("a parent")).expect("made");
        std::fs::write(place, text).expect("written");
    };
    write("tools/read_it.yaml", &of_tool("Reads", "string"));
    write("tools/other.yaml", &of_tool("Other", "string").replace("read_it", "other"));
    write(
        "pipelines/p/pipeline.yaml",
        "name: p\ndescription: d\nsteps: [{name: a, type: tool, tool: read_it, args: {a: a}}]\n",
    );
    assert_eq!(world.settle().await, []);
    write("tools/other.yaml", &of_tool("Another", "string").replace("read_it", "other"));
    assert_eq!(world.settle().await, [], "it does not call this one");
    let changed = vec![("tool_changed".to_owned(), None)];
    for (description, kind) in [("Reads it", "string"), ("Reads it", "integer")] {
        write("tools/read_it.yaml", &of_tool(description, kind));
        assert_eq!(world.settle().await, changed, "{description} {kind}");
        assert_eq!(world.settle().await, [], "it is reported once");
        let standing = world.standing();
        assert_eq!((standing.state, standing.is_routed()), (Some(LearnedState::Assisted), true));
        assert_eq!(standing.demoted.as_ref().map(|demoted| demoted.reason.as_str()), Some("tool_changed"));
        let (tools, _) = etude_spec::tool::load(&world.disk());
        let has_new =
            || needs::has_new_evidence(&world.engine, &world.disk(), &world.standing(), &tools).expect("read");
        assert!(!has_new());
        world.add(i64::MAX - 1, RowKind::Run, Verdict::Agreed, None).await;
        assert!(has_new());
        promoted(&world.engine, &world.disk(), &world.standing(), "pipelines/p", 10).await.expect("cleared");
        assert_eq!((world.standing().state, world.settle().await), (Some(LearnedState::Active), Vec::new()));
    }
}

/// 2.11: a change after a promotion counts, also without an inspection in between.
#[tokio::test]
async fn a_tool_that_changes_after_a_promotion_has_changed() {
    let world = World::new("active");
    let write = |path: &str, text: &str| {
        let place = world.dir.path().join(path);
        std::fs::create_dir_all(place.parent().expect("a parent")).expect("made");
        std::fs::write(place, text).expect("written");
    };
    let tool = "name: read_it\ndescription: Reads.\ncommand: cat\ninputSchema: {type: object}\n";
    write("tools/read_it.yaml", tool);
    write(
        "pipelines/p/pipeline.yaml",
        "name: p\ndescription: d\nsteps: [{name: a, type: tool, tool: read_it, args: {a: a}}]\n",
    );
    promoted(&world.engine, &world.disk(), &world.standing(), "pipelines/p", 10).await.expect("noted");
    write("tools/read_it.yaml", &tool.replace("Reads", "Sends"));
    assert_eq!(world.settle().await, [("tool_changed".to_owned(), None)]);
}

/// 2.11: a removed tool that returns as another one has changed; one that returns as it was has not.
#[tokio::test]
async fn a_removed_tool_that_returns_as_another_one_has_changed() {
    let world = World::new("active");
    let place = |path: &str| world.dir.path().join(path);
    let tool = "name: read_it\ndescription: Reads.\ncommand: cat\ninputSchema: {type: object}\n";
    let write = |path: &str, text: &str| std::fs::write(place(path), text).expect("written");
    std::fs::create_dir_all(place("tools")).expect("made");
    write("tools/read_it.yaml", tool);
    write(
        "pipelines/p/pipeline.yaml",
        "name: p\ndescription: d\nsteps: [{name: a, type: tool, tool: read_it, args: {a: a}}]\n",
    );
    assert_eq!(world.settle().await, []);
    let remove = || std::fs::remove_file(place("tools/read_it.yaml")).expect("removed");
    remove();
    assert_eq!(world.settle().await, []);
    write("tools/read_it.yaml", tool);
    assert_eq!(world.settle().await, [], "it is the same tool");
    remove();
    assert_eq!(world.settle().await, []);
    write("tools/read_it.yaml", &tool.replace("Reads", "Sends"));
    assert_eq!(world.settle().await, [("tool_changed".to_owned(), None)]);
}

/// L-82: a pipeline that mostly falls back is useless, and not wrong.
#[tokio::test]
async fn a_pipeline_that_mostly_falls_back_is_useless() {
    let world = World::new("active");
    for n in 0..20 {
        world.add(n, RowKind::Run, Verdict::FellBack, Some((&format!("s{n}"), "require"))).await;
    }
    assert_eq!(world.settle().await, one("useless", "r19"));
}

/// 2.10: a disagreement on a write sends a candidate in `shadow` back to `proposed`.
#[tokio::test]
async fn a_disagreement_ends_a_shadow() {
    let world = World::new("shadow");
    world.add(1, RowKind::Shadow, Verdict::Agreed, None).await;
    world.add(2, RowKind::Shadow, Verdict::FellBack, Some(("a", "require"))).await;
    world.add(3, RowKind::Shadow, Verdict::FellBack, Some(("a", "require"))).await;
    assert_eq!(world.settle().await, []);
    world.add(4, RowKind::Shadow, Verdict::Disagreed, None).await;
    assert_eq!(world.settle().await, one("disagreed", "r4"));
    assert_eq!(world.standing().state, Some(LearnedState::Proposed));
}

/// L-81: a promotion ends a demotion; earlier evidence does not demote again, and an edit does not end the demotion.
#[tokio::test]
async fn only_a_promotion_ends_a_demotion() {
    let world = World::new("active");
    world.add(1, RowKind::Run, Verdict::Disagreed, Some(("a", "denied"))).await;
    assert_eq!(world.settle().await.len(), 1);
    let pipeline = world.dir.path().join("pipelines/p/pipeline.yaml");
    let text = std::fs::read_to_string(&pipeline).expect("read");
    std::fs::write(&pipeline, format!("{text}# edited\n")).expect("written");
    assert_eq!(world.standing().state, Some(LearnedState::Demoted));
    std::fs::write(&pipeline, text).expect("written");
    promoted(&world.engine, &world.disk(), &world.standing(), "pipelines/p", 10).await.expect("cleared");
    assert_eq!((world.standing().state, world.settle().await), (Some(LearnedState::Active), Vec::new()));
}

/// L-60, L-81: the same content as a candidate needs later evidence, and its promotion leaves the demoted pipeline demoted.
#[tokio::test]
async fn a_candidate_of_that_name_ends_no_demotion() {
    let world = World::new("active");
    world.add(1, RowKind::Run, Verdict::Disagreed, Some(("a", "denied"))).await;
    assert_eq!(world.settle().await.len(), 1);
    for (path, text) in &APP[1..] {
        let place = world.dir.path().join(path.replace("pipelines", "learned"));
        std::fs::create_dir_all(place.parent().expect("a parent")).expect("made");
        std::fs::write(place, text.replace("active", "proposed")).expect("written");
    }
    let of = |base: &str| {
        let all = standings(&world.engine, &world.disk()).expect("read");
        all.into_iter().find(|standing| standing.located.base == base).expect("there")
    };
    let candidate = of(etude_spec::discover::LEARNED);
    assert_eq!(candidate.content, of(PIPELINES).content);
    let needs = missing(&candidate, &[LearnedState::Shadow], &Learning::default(), Facts::default());
    assert_eq!(words(&needs), ["new_evidence"]);
    promoted(&world.engine, &world.disk(), &candidate, "learned/p", 10).await.expect("cleared");
    assert_eq!((of(PIPELINES).state, of(PIPELINES).is_routed()), (Some(LearnedState::Demoted), false));
}

/// L-81: another selection of the runs before a demotion gives another content, but not later evidence.
#[tokio::test]
async fn a_candidate_with_another_content_needs_later_evidence() {
    let world = World::new("active");
    world.add(1, RowKind::Run, Verdict::Disagreed, Some(("a", "denied"))).await;
    assert_eq!(world.settle().await.len(), 1);
    let dir = world.dir.path().join("learned/p");
    std::fs::create_dir_all(&dir).expect("made");
    std::fs::write(dir.join("pipeline.yaml"), format!("{}# again\n", APP[1].1)).expect("written");
    let content = learned::content_of(&world.disk(), "learned/p");
    let learn = format!("learn: 1\nstate: proposed\nfamily: cancel\ncontent: {content}\ncovers: [9c04d2aa31e7b650]\n");
    std::fs::write(dir.join("learn.yaml"), &learn).expect("written");
    let candidate = || {
        let all = standings(&world.engine, &world.disk()).expect("read");
        all.into_iter().find(|standing| standing.located.is_candidate()).expect("there")
    };
    let one = candidate();
    assert!(one.demoted.is_some() && !one.edited && one.state == Some(LearnedState::Proposed), "{one:?}");
    let has_new = needs::has_new_evidence(&world.engine, &world.disk(), &one, &[]).expect("read");
    let facts = Facts { has_new_evidence: has_new, ..Facts::default() };
    assert_eq!(words(&missing(&one, &[LearnedState::Shadow], &Learning::default(), facts))[0], "new_evidence");
    promoted(&world.engine, &world.disk(), &one, "learned/p", 10).await.expect("cleared");
    std::fs::write(dir.join("learn.yaml"), learn.replace("proposed", "shadow")).expect("written");
    assert_eq!((candidate().state, candidate().demoted), (Some(LearnedState::Shadow), None));
}

/// L-65: evidence belongs to the content, and `active` counts as `assisted` after an edit.
#[tokio::test]
async fn an_edit_resets_the_evidence() {
    let world = World::new("active");
    let content = world.standing().content;
    let learn = world.dir.path().join("pipelines/p/learn.yaml");
    let text = "learn: 1\nstate: active\nfamily: cancel\nevidence: {leave_one_out: {agreed: 5}}\n";
    std::fs::write(&learn, format!("{text}content: \"{content}\"\n")).expect("written");
    world.add(1, RowKind::Run, Verdict::Agreed, None).await;
    let standing = world.standing();
    assert_eq!((standing.state, standing.edited, standing.live().agreed), (Some(LearnedState::Active), false, 1));
    assert_eq!(standing.leave_one_out().agreed, 5);
    std::fs::write(world.dir.path().join("pipelines/p/more.py"), "x").expect("written");
    let standing = world.standing();
    assert_eq!((standing.state, standing.edited, standing.live().agreed), (Some(LearnedState::Assisted), true, 0));
    assert_eq!(standing.leave_one_out().agreed, 0);
}

fn words(needs: &[Need]) -> Vec<&str> {
    needs.iter().map(|need| need.need).collect()
}

/// L-59: the risk of a candidate that is learned again is not accepted, even if its content is that of a pipeline whose risk is.
#[tokio::test]
async fn a_risk_is_accepted_for_one_pipeline() {
    let world = World::new("active");
    let accepted = Accepted { by: "ada".to_owned(), at_ms: 7 };
    book::accept(&world.engine, &world.standing().content, &accepted).await.expect("kept");
    assert_eq!(world.standing().accepted_risk, None, "no file says that a risk was accepted");
    let place = world.dir.path().join("pipelines/p");
    let copy = world.dir.path().join("learned/p");
    std::fs::create_dir_all(&copy).expect("made");
    for name in ["pipeline.yaml", "learn.yaml"] {
        std::fs::copy(place.join(name), copy.join(name)).expect("copied");
    }
    let text = std::fs::read_to_string(place.join("learn.yaml")).expect("read");
    std::fs::write(place.join("learn.yaml"), etude_spec::learned::with_accepted_risk(&text)).expect("written");
    let all = standings(&world.engine, &world.disk()).expect("read");
    let risks: Vec<_> = all.iter().map(|one| (one.located.dir(), one.accepted_risk.clone())).collect();
    assert_eq!(all[0].content, all[1].content);
    assert_eq!(risks, [("learned/p".to_owned(), None), ("pipelines/p".to_owned(), Some(accepted))]);
}

/// L-58: the conditions of every state on the way count; L-59: some of them are a risk to accept.
#[tokio::test]
async fn conditions_of_all_states_on_the_way_count() {
    let world = World::new("proposed");
    let standing = world.standing();
    let up = way(LearnedState::Proposed, LearnedState::Active);
    assert_eq!(up, [LearnedState::Shadow, LearnedState::Assisted, LearnedState::Active]);
    assert_eq!(way(LearnedState::Active, LearnedState::Shadow), []);
    assert_eq!(way(LearnedState::Demoted, LearnedState::Proposed), [LearnedState::Proposed]);
    let facts = Facts { tests: Some((1, 2)), conflicts: 1, writes: true, has_new_evidence: false };
    let needs = missing(&standing, &up, &Learning::default(), facts);
    assert_eq!(words(&needs), ["tests", "comparisons", "live_comparisons", "wrong_rate", "routing", "writes"]);
    let risks: Vec<&str> = needs.iter().filter(|need| need.is_risk()).map(|need| need.need).collect();
    assert_eq!(risks, ["comparisons", "live_comparisons", "wrong_rate", "writes"]);
    let to_shadow = missing(&standing, &[LearnedState::Shadow], &Learning::default(), Facts::default());
    assert_eq!(words(&to_shadow), [""; 0]);
}

/// 2.10: 59 comparisons are needed; towards `active` half of them live, and each request once.
#[tokio::test]
async fn comparisons_count_by_request() {
    let world = World::new("assisted");
    let learn = world.dir.path().join("pipelines/p/learn.yaml");
    let text = "learn: 1\nstate: assisted\nfamily: cancel\nevidence: {leave_one_out: {agreed: 58}}\n";
    std::fs::write(&learn, text).expect("written");
    let needs = |to| words(&missing(&world.standing(), &[to], &Learning::default(), Facts::default())).join(" ");
    assert_eq!(needs(LearnedState::Assisted), "comparisons wrong_rate");
    world.add(1, RowKind::Shadow, Verdict::Agreed, None).await;
    assert_eq!(needs(LearnedState::Assisted), "");
    assert_eq!(needs(LearnedState::Active), "comparisons live_comparisons wrong_rate");
    for n in 2..=30 {
        world.add(n, RowKind::Run, Verdict::Agreed, None).await;
    }
    assert_eq!(needs(LearnedState::Active), "");
    assert_eq!(world.standing().live().agreed, 30);
}

/// 2.10: a request that was learned from and has run since counts once.
#[tokio::test]
async fn a_request_of_the_learning_does_not_count_twice() {
    let world = World::new("assisted");
    let covers: Vec<String> = (1..=58).map(|n| format!("d{n}")).collect();
    let learn = world.dir.path().join("pipelines/p/learn.yaml");
    let text = format!(
        "learn: 1\nstate: assisted\nfamily: cancel\nevidence: {{leave_one_out: {{agreed: 58}}}}\ncovers: [{}]\n",
        covers.join(", ")
    );
    std::fs::write(&learn, text).expect("written");
    let needs = || {
        words(&missing(&world.standing(), &[LearnedState::Assisted], &Learning::default(), Facts::default())).join(" ")
    };
    world.add(1, RowKind::Shadow, Verdict::Agreed, None).await;
    assert_eq!(needs(), "comparisons wrong_rate");
    world.add(59, RowKind::Shadow, Verdict::Agreed, None).await;
    assert_eq!(needs(), "");
}

/// L-34, L-58: a learned pipeline without cases counts as untested.
#[tokio::test]
async fn a_learned_pipeline_without_cases_is_not_tested() {
    let world = World::new("proposed");
    let needs = || {
        let facts = Facts { tests: Some((0, 0)), ..Facts::default() };
        words(&missing(&world.standing(), &[LearnedState::Shadow], &Learning::default(), facts)).join(" ")
    };
    assert_eq!(needs(), "", "a person has written it");
    let learn = world.dir.path().join("pipelines/p/learn.yaml");
    let text = format!("learn: 1\nstate: proposed\nfamily: cancel\ncontent: {}\n", world.standing().content);
    std::fs::write(&learn, text).expect("written");
    assert_eq!(needs(), "tests");
}

/// Values of a run in a comparison are stored where they are deleted with the run.
#[tokio::test]
async fn the_writes_of_a_comparison_go_with_its_run() {
    let world = World::new("shadow");
    let calls = json!({"agent": [{"tool": "pay", "arguments": {"card": "canary"}}], "pipeline": []});
    world.add(1, RowKind::Shadow, Verdict::Disagreed, None).await;
    let content = world.standing().content;
    let row = Row { calls: calls.clone(), ..world.standing().rows.remove(0) };
    book::add_row(&world.engine, &content, &row).await.expect("kept");
    assert_eq!(world.standing().rows[0].calls, calls);
    let of = |book: String| world.engine.entries(&EntryQuery { book, ..EntryQuery::default() }).expect("read");
    assert!(of(format!("learned:{content}")).iter().all(|entry| !entry.body.contains("canary")));
    let kept = of(format!("run:learned:{content}"));
    assert_eq!((kept.len(), kept[0].run_id.as_deref()), (1, Some("r1")));
}
