//! Constructs of several parts: elements with cached, retried, approved and nested steps, agents and a deviation.

use super::{Test, flaky, scoped, script, step, with_tool};

/// A pipeline for each element: a cached step, a retried one, an approval, and another pipeline with a cached step.
fn elements(test: Test) -> Test {
    let takes_n = "input: {n: {type: integer}}";
    let leaf = |p: super::Pipeline| step(p.with(takes_n), "leaf", "\"leaf\"", "cache: {key: \"{{input.n}}\"}");
    test.pipeline("leaf", leaf).pipeline("inner", |p| {
        let p = step(p.with(takes_n), "known", "\"known\"", "cache: {key: \"{{input.n}}\"}\ntimeout: 5m");
        let p = p.sh_with("flaky", &flaky("\"second\""), "retry: {max: 3, backoff: 1ms}\ntimeout: 5m");
        let p = p.step("name: gate\ntype: approval\nmessage: \"go on with {{input.n}}?\"\ntimeout: 1h");
        p.step("name: deep\ntype: pipeline\npipeline: leaf\ninput: {n: \"{{input.n}}\"}\ntimeout: 5m")
    })
}

const EACH: &str = "name: each\ntype: pipeline\npipeline: inner\ninput: {n: \"{{item}}\"}\nfor_each: \"{{list.output}}\"\nmax_parallel: 2";

/// Takes the cached output of the second element.
const REPEAT: &str = "name: repeat\ntype: pipeline\npipeline: leaf\ninput: {n: 2}";

/// Elements, an agent, and tools of which the second deviates: another agent continues.
pub(super) fn deviating(test: Test) -> Test {
    let skill = "---\nname: helper\ndescription: Helps.\n---\nWork.\n";
    let test = with_tool(test.skill("", "Work.\n"), "work").file("skills/helper/SKILL.md", skill);
    scoped(elements(test)).pipeline("p", |p| {
        let p = step(p.with("description: A short one.\nfallback: skill"), "list", "[1,2]", "").step(EACH).step(REPEAT);
        let p = p.step("name: agent\ntype: skill\nskill: helper\nrequest: a short one\ntimeout: 5m");
        let call = |name: &str, n: u32| format!("name: {name}\ntype: tool\ntool: work\nargs: {{n: {n}}}");
        let p = p.step(&call("first", 1));
        let p = p.step(&format!("{}\nrequire: {{value: \"{{{{repeat.output}}}}\", equals: 2}}", call("second", 2)));
        step(p, "last", "1", "")
    })
}

/// Agents side by side whose calls a person approves.
pub(super) fn held(test: Test) -> Test {
    let skill = "---\nname: helper\ndescription: Helps.\n---\nWork.\n";
    let test = with_tool(test, "work").file("skills/helper/SKILL.md", skill);
    let test = test.file("etude.yaml", "approvals: {mode: ask, unattended: wait, allow: [\"Bash(*)\"]}\n");
    scoped(test).pipeline("p", |p| {
        let p = p.sh("list", &script("echo '{\"output\":[1,2]}'"));
        let each = "name: each\ntype: skill\nskill: helper\nrequest: \"short {{item}}\"\nfor_each: \"{{list.output}}\"\nmax_parallel: 2";
        step(p.step(each), "last", "1", "").with("output: each")
    })
}
