//! Runs that do not succeed at their first attempt.

use super::{Test, scoped, script, step};

/// One element fails until the app is repaired.
pub(super) fn failing(test: Test) -> Test {
    let broken =
        "case \"$ETUDE_EFFECT_ID\" in *'[1]') test -e \"$ROOT/repaired\" || exit 3;; esac; echo '{\"output\":\"e\"}'";
    scoped(test).pipeline("p", |p| {
        let p = step(p, "list", "[1,2,3]", "");
        let p = p.sh_with("each", &script(broken), "for_each: \"{{list.output}}\"\nmax_parallel: 1");
        step(p, "last", "1", "").with("output: each")
    })
}

pub(super) fn repair(test: &Test) {
    test.put("repaired", "");
}
