//! Crash tests: `kill -9` of the binary at each write to its journal and at arbitrary moments.
//!
//! A resumed run ends like one that was never killed: with the same document and with the destructor last. No effect with an
//! outcome begins again. The active one begins at most once more for each kill, with the same key.
//!
//! Each test run covers some moments of each kind. `cargo run -p xtask -- crash` covers all of them and prints the table of
//! `docs/proof.md`.

#[cfg(feature = "serve")]
mod automation;
mod construct;
mod enumerate;
mod life;
mod power;
mod settled;
pub(crate) mod shim;
mod stop;
mod template;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use construct::Construct;
use enumerate::{Form, HEAD, everywhere};
use shim::Fault;

use crate::test::Test;

#[track_caller]
fn holds(construct: &Construct) {
    if construct.is_missing() {
        return;
    }
    let row = everywhere(construct, Form::Short);
    println!("{HEAD}\n{row}");
    assert!(row.kills > 0, "nothing was killed: {row}");
    assert!(row.differences.is_empty(), "{row}\n{}", row.differences.join("\n"));
}

/// killed at a write or in between, once or repeatedly, a resumed run ends like one that was not killed.
#[test]
fn sequence_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::SEQUENCE);
}

/// the same for values stored beside the journal.
#[test]
fn large_values_killed_anywhere_are_whole() {
    holds(&construct::LARGE_VALUES);
}

/// the same for groups.
#[test]
fn parallel_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::PARALLEL);
}

/// the same for concurrent elements.
#[test]
fn fan_out_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::FAN_OUT);
}

/// the same for sub-pipelines.
#[test]
fn sub_pipeline_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::SUB_PIPELINE);
}

/// the same for concurrent sub-pipelines with groups, conditions and retries.
#[test]
fn nested_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::NESTED);
}

/// the same in the middle of retries: a kill does not count as an attempt.
#[test]
fn retries_killed_anywhere_end_as_if_they_had_not_been() {
    holds(&construct::RETRIES);
}

/// the same in the middle of a conversation with a model: rejected responses are not requested again.
#[test]
fn model_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::MODEL);
}

/// the same for a run that fails, and whose destructor fails.
#[test]
fn failing_run_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::FAILING);
}

/// the same for a run that waits for an approval, and for the approving process.
#[test]
fn approval_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::APPROVAL);
}

/// the same for approvals inside of elements and sub-pipelines.
#[test]
fn approvals_killed_anywhere_end_as_if_they_had_not_been() {
    holds(&construct::APPROVALS);
}

/// the same for approvals between retried steps: no attempt is lost and none counts twice.
#[test]
fn approvals_between_retries_killed_anywhere_end_as_if_they_had_not_been() {
    holds(&construct::APPROVAL_RETRIES);
}

/// C-1.14: the same for commands of applications, confirmed or not.
#[test]
fn application_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::APPLICATION);
}

/// the same for an agent: no finished tool call is made again, no response requested again.
#[test]
fn agent_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::AGENT);
}

/// the same for an agent that is a step.
#[test]
fn agent_step_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::AGENT_STEP);
}

/// the same for concurrent agents.
#[test]
fn agents_in_a_fan_out_killed_anywhere_end_as_if_they_had_not_been() {
    holds(&construct::AGENTS);
}

/// L-71: the same for a pipeline that deviates, also between the deviation and the agent's first turn: no call of either is
/// made twice.
#[test]
fn fallback_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::FALLBACK);
}

/// L-71: the same for parts that meet in one run: concurrent elements with caches, retries, approvals and
/// sub-pipelines, then an agent, then a deviation.
#[test]
fn combined_constructs_killed_anywhere_end_as_if_they_had_not_been() {
    holds(&construct::COMBINED);
}

/// the same for concurrent agents whose calls a person approves: each call is asked for once and made once.
#[test]
fn approved_calls_killed_anywhere_are_made_once() {
    holds(&construct::HELD);
}

/// B-ST6, A-5.3: active stages restart, the others are not repeated.
#[test]
fn stage_machine_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::STAGES);
}

/// B-ST6, A-5.3: the same for a machine that is a step: the steps around it are not repeated, and the destructor runs.
#[test]
fn stage_machine_as_a_step_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::STAGES_STEP);
}

/// B-ST3, B-ST6: a killed migration of the slot continues: each form is migrated, and none twice.
#[test]
fn migration_of_a_slot_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::MIGRATION);
}

/// D-7: the same for middleware around steps: its effects are part of its step.
#[test]
fn middleware_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::MIDDLEWARE);
}

/// the same for steps in a warm interpreter.
#[test]
fn warm_steps_killed_anywhere_end_as_if_they_had_not_been() {
    holds(&construct::WARM);
}

/// a run that a signal has cancelled stays cancelled wherever it is killed, and its destructor runs.
#[test]
fn interrupted_run_killed_anywhere_is_cancelled_and_cleaned_up() {
    holds(&construct::INTERRUPTED);
}

/// cli: the same for a run that another process cancels, whichever of the two is killed: an accepted cancellation holds.
#[test]
fn cancelled_run_killed_anywhere_is_cancelled_and_cleaned_up() {
    holds(&construct::CANCELLED);
}

/// cli: the same for a run that had no process when it was cancelled.
#[test]
fn dead_run_killed_while_it_is_cancelled_is_cancelled_and_cleaned_up() {
    holds(&construct::DEAD);
}

/// after an edit a resume is refused and does nothing; with `--accept-changes` it ends as the edited definition does,
/// wherever it is killed.
#[test]
fn edited_definition_killed_anywhere_is_refused_and_then_ends_as_edited() {
    holds(&construct::EDITED);
}

/// a failed run that is continued and killed anywhere in either attempt ends like one that was never killed.
#[test]
fn continued_run_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::CONTINUED);
}

/// the same for a successful run that is started again from a step.
#[test]
fn retried_run_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::RETRIED);
}

/// the same for a run that is continued with a larger budget.
#[test]
fn run_with_a_raised_budget_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::RAISED);
}

/// B-ST6: the same for a stage machine that is started again from a stage.
#[test]
fn retried_stage_machine_killed_anywhere_ends_as_if_it_had_not_been() {
    holds(&construct::STAGES_CONTINUED);
}

/// if its process is killed while it creates a journal, the next one creates it, and runs as if nothing had been there.
#[test]
fn a_journal_killed_while_it_is_made_is_made_by_the_next() {
    if shim::is_missing("a_journal_killed_while_it_is_made_is_made_by_the_next") {
        return;
    }
    let app = || Test::new().pipeline("p", |p| p.note("one", "1"));
    let args = ["run", "-p", "p", "--format", "json"];
    let start =
        |test: &Test, fault| test.start_with(shim::with_fault(test, test.command(&args), fault), &args).finish();
    let whole = app();
    start(&whole, Fault::None).output(1);
    let is_of_run = |event: &shim::Event| event.file.starts_with("blobs/");
    let pending_run = shim::events(&whole).iter().position(is_of_run).expect("values are kept after it is made");
    assert!(pending_run > 20, "{pending_run} events");
    for at in (1..=pending_run).step_by(8) {
        for fault in [Fault::Torn(at), Fault::After(at)] {
            let test = app();
            assert_eq!(start(&test, fault).code(), -1, "{fault:?} of {pending_run}");
            assert_eq!(test.ledger(), [""; 0], "nothing is begun before there is a journal");
            start(&test, Fault::None).output(1).exit(0);
            test.run(&["runs", "list", "--format", "json"]).exit(0).has("/runs/0/status", "succeeded");
        }
    }
}

/// Every construct at every moment, which takes minutes. `cargo run -p xtask -- crash` runs it.
#[test]
#[ignore = "minutes: cargo run -p xtask -- crash"]
fn everything_is_killed_everywhere() {
    let form = if std::env::var_os("ETUDE_CRASH_FULL").is_some() { Form::Full } else { Form::Long };
    let only = std::env::var("ETUDE_CRASH_ONLY").ok();
    println!("{HEAD}");
    let (next, differences) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Half of a life is spent waiting for processes and for the disk.
    let workers = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(construct) = construct::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !only.as_ref().is_none_or(|only| construct.name.contains(only)) || construct.is_missing() {
                        continue;
                    }
                    let row = everywhere(construct, form);
                    println!("{row}");
                    row.differences.iter().for_each(|difference| eprintln!("{difference}"));
                    differences.lock().expect("no one panicked").extend(row.differences);
                }
            });
        }
    });
    let differences = differences.into_inner().expect("no one panicked");
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
