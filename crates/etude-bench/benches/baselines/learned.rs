//! Learned pipelines: the cost of five tool calls in one (L-76).

use std::path::Path;
use std::time::Instant;

use crate::apps::write;
use crate::measure::{Pair, Report, run};
use crate::processes::bare;

/// Number of tool calls between two bindings.
const CALLS: u32 = 5;
/// Length of the longer pipeline, as a multiple of the shorter one.
const MORE: u32 = 5;

/// A script that reads values and computes one, as the bindings of learned pipelines do.
const BINDING: &str =
    "import json, sys\nread = json.load(sys.stdin)\nprint(json.dumps({'output': read['input'].get('id')}))\n";

/// Five calls of a tool and a binding in a warm interpreter, beside the processes of the tool. The fixed cost of a run, with
/// the start of the interpreter, is in both of two pipelines and so cancels out.
pub(crate) fn learned(report: &mut Report, home: &Path) {
    let app = home.join("app");
    let tool = "name: get\ndescription: Reads an order.\ncommand: cat tools/out.json\ngated: false\n\
                inputSchema: {type: object, properties: {id: {type: string}}}\n";
    write(&app.join("tools/get.yaml"), tool);
    write(&app.join("tools/out.json"), r#"{"ok": true, "value": {"id": "A-17", "status": "open"}}"#);
    let pipeline = |name: &str, times: u32| {
        let mut yaml = format!(
            "name: {name}\ndescription: what is measured\ninput: {{id: {{type: string, default: A-17}}}}\nsteps:\n"
        );
        for at in 0..times {
            yaml.push_str(&format!(
                "  - {{name: b{at}, type: code, command: python3 steps/bindings.py b{at}, worker: python}}\n"
            ));
            for call in 0..CALLS {
                yaml.push_str(&format!(
                    "  - {{name: c{at}_{call}, type: tool, tool: get, args: {{id: \"{{{{b{at}.output}}}}\"}}}}\n"
                ));
            }
        }
        let dir = app.join(format!("pipelines/{name}"));
        write(&dir.join("pipeline.yaml"), &yaml);
        write(&dir.join("steps/bindings.py"), BINDING);
        write(&dir.join("learn.yaml"), "learn: 1\nstate: active\nfamily: get\n");
    };
    pipeline("short", 1);
    pipeline("long", MORE);
    let place = app.display().to_string();
    let ours = |name: &str| {
        let since = Instant::now();
        run(home, &["run", "-C", &place, "-p", name, "-q"]);
        since.elapsed()
    };
    let baseline = || {
        let since = Instant::now();
        for _ in 0..CALLS {
            bare(&app, &["cat", "tools/out.json"], br#"{"tool":"get","args":{"id":"A-17"}}"#);
        }
        since.elapsed()
    };
    ours("short");
    ours("long");
    baseline();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..report.rounds(25) {
        let (short, long) = (ours("short"), ours("long"));
        times[0].push(long.saturating_sub(short) / (MORE - 1));
        times[1].push(baseline());
    }
    let [more, baselines] = times;
    let pair = Pair {
        key: "learned",
        what: "five tool calls of a learned pipeline, with a binding",
        baseline: "their processes",
    };
    report.pair(&pair, more, baselines);
}
