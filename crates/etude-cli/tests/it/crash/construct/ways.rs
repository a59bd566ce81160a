//! Special ways to run steps: through middleware, in a warm interpreter, and until a cancellation.

use std::process::{Command, Stdio};

use super::{Pipeline, Test, scoped, script, step};
use crate::test::binary;

/// Two middleware skills around every step: one acts before it and one after its end; both keep the ledger.
pub(super) fn middleware(test: Test) -> Test {
    let layer = |test: Test, name: &str, script: &str| {
        let skill = format!("---\nname: {name}\ncommand: sh {name}.sh\nmetadata: {{role: middleware}}\n---\n");
        test.file(&format!("skills/{name}.skill.md"), &skill).file(&format!("skills/{name}.sh"), &format!("{script}\n"))
    };
    let around = format!("r=$({} host next) || exit 1", binary());
    let id = "$ETUDE_EFFECT_ID@$ETUDE_ATTEMPT";
    let around = format!(
        "cat >/dev/null; echo \"+{id}\" >> \"$LEDGER\"; {around}; echo \"-{id}\" >> \"$LEDGER\"; printf '{{\"result\": %s}}' \"$r\""
    );
    let main = "---\nname: app\nmetadata: {role: main, paths: [./skills], before: {}, around: {}, \
        $order: {around: {after: [$pre-execute]}}}\n---\n";
    let test = layer(layer(test.file("app.skill.md", main), "before", &script("true")), "around", &around);
    scoped(test).pipeline("p", |p| {
        let p = step(p, "list", "[1,2]", "");
        let p = step(p, "each", "\"e\"", "for_each: \"{{list.output}}\"\nmax_parallel: 2");
        step(p, "last", "1", "").with("output: each")
    })
}

pub(super) fn has_python() -> bool {
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    python.is_ok_and(|status| status.success())
}

/// Python steps in a warm interpreter, one of which is retried.
pub(super) fn warm(test: Test) -> Test {
    let python = |p: Pipeline, name: &str, fields: &str, end: &str| {
        let text = format!(
            "import json, os, sys\n\
             id = os.environ['ETUDE_EFFECT_ID'] + '@' + os.environ['ETUDE_ATTEMPT']\n\
             def note(mark):\n    with open(os.environ['LEDGER'], 'a') as ledger: ledger.write(mark + id + '\\n')\n\
             note('+')\nsys.stdin.read()\nnote('-')\n{end}\nprint(json.dumps({{'output': '{name}'}}))\n"
        );
        p.step(&format!("name: {name}\ntype: code\ncommand: python3 steps/{name}.py\nworker: python\n{fields}"))
            .file(&format!("steps/{name}.py"), &text)
    };
    scoped(test).pipeline("p", |p| {
        let p = python(p, "one", "", "");
        let p =
            python(p, "flaky", "retry: {max: 3, backoff: 5ms}", "if os.environ['ETUDE_ATTEMPT'] == '1': sys.exit(7)");
        python(p, "last", "", "")
    })
}

/// The second step never ends by itself.
pub(super) fn slow(test: Test) -> Test {
    let slow = "echo \"+$ETUDE_EFFECT_ID@$ETUDE_ATTEMPT\" >> \"$LEDGER\"; exec sleep 60";
    scoped(test).pipeline("p", |p| step(step(p, "one", "1", "").sh("slow", slow), "after", "1", ""))
}
