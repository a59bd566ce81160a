//! Transitions that are known before a run: the declarative form of `next`.

use std::collections::BTreeSet;

use etude_core::plan::stages::{FanOutFault, Next, NextCase, NextRule, Stage};

use super::hooks::HookContext;
use super::mark::{HOST, INVALID, VALIDATION, marked, rank};
use super::paths::{self, Phase};
use crate::check::Findings;
use crate::diagnose::stage_machine as diagnose;
use crate::diagnostic::Diagnostic;
use crate::yaml::{Entries, Node, boolean, text, texts};

/// Reads the cases of `next` of `stage` into it.
pub(super) fn read(found: &mut Findings<'_>, node: &Node<'_>, stage: &mut Stage, cx: &HookContext<'_>) {
    let path = format!("/pipeline/{}/next", stage.id);
    marked(found, &path, rank::NEXT, |found| {
        let Some(items) = node.as_seq() else { return };
        let mut cases: Vec<NextCase> = Vec::with_capacity(items.len());
        let mut is_sound = true;
        for item in items {
            if cases.last().is_some_and(|case| case.when.is_empty()) {
                found.push(diagnose::after_else(found.file, item.span, &stage.id));
            }
            let case = item.as_map().and_then(|entries| case(found, entries, item, &stage.id, cx));
            is_sound &= case.is_some();
            cases.extend(case);
        }
        if is_sound && !cases.iter().any(|case| case.when.is_empty()) {
            found.push(diagnose::no_else(found.file, node.span, &stage.id));
        }
        stage.next = NextRule::Cases(cases);
    });
}

fn case(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    node: &Node<'_>,
    stage: &str,
    cx: &HookContext<'_>,
) -> Option<NextCase> {
    let when = paths::when(found, entries, cx.sight(Phase::Next));
    let words = ["sequential", "parallel", "terminal"];
    let given: Vec<&str> = words.into_iter().filter(|word| entries.get(word).is_some()).collect();
    let [word] = given.as_slice() else {
        found.push(diagnose::one_of(
            found.file,
            node.span,
            &format!("a case of `next` of stage `{stage}`"),
            &words,
            given.len(),
        ));
        return None;
    };
    if boolean(entries, "else") == Some(false) || (*word == "terminal" && boolean(entries, "terminal") == Some(false)) {
        let what = format!("a case of `next` of stage `{stage}`");
        found.push(diagnose::one_of(found.file, node.span, &what, &words, 0));
        return None;
    }
    let list = texts(entries, word);
    if *word != "terminal" {
        check_targets(found, entries, word, &list, stage, cx);
    }
    let join = text(entries, "join");
    if let Some(join) = join.filter(|_| *word != "parallel") {
        found.push(diagnose::join_without_parallel(found.file, join.at));
    }
    let next = match *word {
        "terminal" => Next::Terminal,
        "sequential" if list.is_empty() => Next::Terminal,
        "sequential" => Next::Sequential(list),
        _ => fan_out(found, entries, node, stage, cx)?,
    };
    Some(NextCase { when: when?, next })
}

/// Checks that every target is a stage (B-N5).
fn check_targets(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    word: &str,
    list: &[String],
    stage: &str,
    cx: &HookContext<'_>,
) {
    let Some(stages) = &cx.stages else { return };
    let nodes = entries.get(word).and_then(Node::as_seq).unwrap_or_default();
    for (target, node) in list.iter().zip(nodes) {
        if !stages.contains(&target.as_str()) {
            let what = format!("`{word}` of stage `{stage}`");
            let fault = diagnose::unknown_stage(found.file, node.span, &what, target, stages);
            found.push(fault.rule(VALIDATION, "StageNextUnknown", "/next", rank::NEXT));
        }
    }
}

fn fan_out(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    node: &Node<'_>,
    stage: &str,
    cx: &HookContext<'_>,
) -> Option<Next> {
    let list = texts(entries, "parallel");
    let join = text(entries, "join");
    let name = join.map(|join| join.text.to_owned());
    if let (Some(join), Some(stages)) = (join.filter(|_| cx.join_outside), &cx.stages)
        && !stages.contains(&join.text)
    {
        let fault =
            diagnose::unknown_stage(found.file, join.at, &format!("`join` of stage `{stage}`"), join.text, stages);
        found.push(fault.rule(VALIDATION, "StageNextUnknown", "/next", rank::NEXT));
    }
    let at = entries.get("parallel").map_or(node.span, |list| list.span);
    let fault: Diagnostic = match Next::parallel(list.clone(), name, cx.join_outside) {
        Ok(next) => return Some(next),
        Err(FanOutFault::DanglingJoin) => {
            let (at, text) = join.map_or((at, ""), |join| (join.at, join.text));
            diagnose::dangling_join(found.file, at, stage, text, &list).rule(
                VALIDATION,
                "StageJoinDangling",
                "/next#join",
                rank::NEXT,
            )
        }
        Err(FanOutFault::TooFew) => {
            diagnose::too_few(found.file, at, stage).rule(HOST, "InvalidParallelPlan", "/next", rank::NEXT)
        }
        Err(FanOutFault::Twice) => {
            diagnose::sibling_twice(found.file, at, stage).rule(VALIDATION, INVALID, "/next", rank::NEXT)
        }
    };
    found.push(fault);
    None
}

/// Stages that no transition leads to; empty if a script decides anywhere, because then transitions are unknown.
pub(super) fn unreachable<'a>(entry: &str, stages: &'a [Stage]) -> Vec<&'a Stage> {
    let mut open = vec![entry.to_owned()];
    let mut reached = BTreeSet::new();
    while let Some(id) = open.pop() {
        let Some(stage) = stages.iter().find(|stage| stage.id == id) else { continue };
        if !reached.insert(id) {
            continue;
        }
        match &stage.next {
            NextRule::Script(_) => return Vec::new(),
            NextRule::Cases(cases) => {
                open.extend(cases.iter().flat_map(|case| case.next.targets()).map(str::to_owned));
            }
        }
    }
    stages.iter().filter(|stage| !reached.contains(&stage.id)).collect()
}
