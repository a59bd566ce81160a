//! Diagnostics of stage machines and their stages, good and bad.

use std::fmt::Write as _;

use etude_core::plan::stages::{NextRule, StageMachine};
use etude_spec::Diagnostic;
use etude_spec::render;
use etude_spec::stage_machine::{Machines, Rules};

use crate::definitions::{compare, testdata};
use crate::disk::Disk;

fn reported(diagnostic: &Diagnostic) -> String {
    let rule = diagnostic.rule.as_ref();
    let named = rule.map(|rule| format!("{}/{} at `{}`", rule.class, rule.name, rule.path)).unwrap_or_default();
    format!("{named}\n{}\n\n", render::text(diagnostic, false))
}

/// Summary of a plan.
fn plan(machine: &StageMachine) -> String {
    let mut text = format!(
        "machine {} in {}: enters {}, asks {}, at most {} executions\n",
        machine.id, machine.dir, machine.entry, machine.tier, machine.max_executions
    );
    writeln!(text, "slot {} {}, grants {:?}", machine.slot.version, machine.slot.drift.word(), machine.grants).unwrap();
    writeln!(text, "guards {:?}, on failure {:?}", machine.guards, machine.on_failure).unwrap();
    for stage in &machine.stages {
        let (line, column) = (stage.origin.line, stage.origin.column);
        let (tools, cap) = (&stage.allowed_tools, stage.turn_cap);
        writeln!(
            text,
            "{}:{line}:{column}: stage {} ({}) may call {tools:?} in {cap} turns",
            stage.origin.file, stage.id, stage.name
        )
        .unwrap();
        writeln!(text, "  setup {:?}", stage.setup).unwrap();
        writeln!(text, "  gate {:?}, then {}", stage.gate, stage.resolution.word()).unwrap();
        writeln!(text, "  assert {:?}", stage.assert).unwrap();
        writeln!(text, "  exit {:?}", stage.exit).unwrap();
        match &stage.next {
            NextRule::Script(script) => writeln!(text, "  next {script:?}").unwrap(),
            NextRule::Cases(cases) => {
                for case in cases {
                    writeln!(text, "  next {:?} if {:?}", case.next, case.when).unwrap();
                }
            }
        }
    }
    text
}

/// B-2.5, B-3, B-20.3: every fault of every file is reported at once, each with its class, its code word and its
/// pointer; a valid machine becomes a plan. UPDATE=1 writes the expected texts.
#[test]
fn machines_are_read_and_explained() {
    let cases = testdata("machines");
    let mut wrong = Vec::new();
    for case in &cases {
        let disk = Disk(case.clone());
        let machines = Machines::new(&disk, Rules::default());
        let report = machines.check(&[]);
        let mut text: String = report.diagnostics.iter().map(reported).collect();
        writeln!(text, "checked {}, broken: {}", report.checked, report.broken.join(" ")).unwrap();
        for name in machines.names() {
            if let (Some(machine), _) = machines.machine(name) {
                writeln!(text, "\n{}input: {}", plan(&machine.plan), machine.input.schema()).unwrap();
                writeln!(text, "files: {}", machine.files.join(" ")).unwrap();
            }
        }
        wrong.extend(compare(case, &text).err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// B-20.2, cli: the summary and the check agree on the validity of a machine.
#[test]
fn summaries_of_machines_agree_with_checks() {
    for case in testdata("machines") {
        let disk = Disk(case.clone());
        let machines = Machines::new(&disk, Rules::default());
        let broken = machines.check(&[]).broken;
        for summary in machines.summaries() {
            assert_eq!(summary.valid, !broken.contains(&summary.name), "{} {}", case.display(), summary.name);
        }
    }
}
