//! A differential test of the interpreter: a model computes the expected result of random pipelines in random worlds.
//!
//! `definition` has the words of the protocol, `world` decides the result and the time of each effect, `reference` is the model
//! of a run, `machine` runs the same definitions as plans of the interpreter, and `compare` compares the two. The model knows
//! the protocol, the extensions and their clauses. It shares no code with the interpreter, and has no state, no replay, and no
//! ids but those of X-4.
//!
//! `PROPTEST_CASES=5000` runs more cases, `PROPTEST_RNG_SEED=7` other ones.

mod compare;
mod definition;
mod generate;
mod machine;
mod reference;
mod values;
mod world;

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::{RngSeed, TestCaseError, TestError, TestRunner};

use generate::Shape;
use reference::{Expected, Reference};
use world::{Asked, World};

/// Default number of runs.
const CASES: u32 = 256;

/// Maximum number of cuts of one run's journal.
const MAX_CUTS: usize = 24;

/// Runs one app in the model and in the interpreter, and compares the results.
fn check(shape: &Shape) -> Result<Expected, String> {
    let (app, world) = shape.app();
    let plan = machine::plan(&app)?;
    let (run_id, none) = (machine::RUN_ID, BTreeSet::new());
    let expected = Reference { app: &app, world, run_id, earlier: None, restarts: &none }.run();
    let lived = machine::live(&app, &plan, world)?;
    compare::same(&expected, &lived)?;
    let step = lived.records() / MAX_CUTS + 1;
    for cut in (0..=lived.records()).step_by(step) {
        lived.survives(&app, &plan, cut)?;
    }
    if expected.status != "succeeded" {
        let world = World { seed: world.seed.wrapping_add(1), ..world };
        let restarts = lived.restarts();
        let again = Reference { app: &app, world, run_id, earlier: Some(&expected), restarts: &restarts }.run();
        let lived = machine::live_again(&app, &plan, world, &lived).map_err(|why| format!("second attempt: {why}"))?;
        compare::same(&again, &lived).map_err(|why| format!("second attempt: {why}"))?;
    }
    Ok(expected)
}

/// A description of a failing app for a person.
fn shown(shape: &Shape) -> String {
    let (app, world) = shape.app();
    let files: Vec<String> = app.pipelines().iter().map(|pipeline| pipeline.file().to_string()).collect();
    let (timeout, cancel) = (app.timeout_ms, app.cancel_ms);
    format!("{}\n{world:?}, timeout {timeout:?} ms, cancelled at {cancel:?} ms", files.join("\n"))
}

/// the interpreter matches the model effect by
/// effect, also if the run dies after a record and resumes from its journal.: so does another attempt.
#[test]
fn every_run_is_what_the_model_says() {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    if config.rng_seed == RngSeed::Random {
        // The runs of one commit are reproducible.
        config.rng_seed = RngSeed::Fixed(1);
    }
    let (seed, cases) = (config.rng_seed, config.cases);
    let seen = RefCell::new(BTreeSet::new());
    let result = TestRunner::new(config).run(&generate::any_shape(), |shape| {
        let expected = check(&shape).map_err(|why| TestCaseError::fail(format!("{why}\n{}", shown(&shape))))?;
        seen.borrow_mut().extend(features(&expected));
        Ok(())
    });
    match result {
        // The reason contains everything for a person; the shape is for the search alone.
        Err(TestError::Fail(why, _)) => panic!("{seed:?}: {why}"),
        other => other.expect("the runs are tried"),
    }
    let missing: Vec<&str> = FEATURES.iter().filter(|one| !seen.borrow().contains(**one)).copied().collect();
    assert!(cases < CASES || missing.is_empty(), "no run had {missing:?}: the test has become too narrow");
}

/// Features that all random runs together must cover.
const FEATURES: &[&str] = &[
    "approval_denied",
    "asked together",
    "asked together in a group",
    "budget_exceeded",
    "cancelled",
    "deviated",
    "failed",
    "given up",
    "input_invalid",
    "model_error",
    "model_refused",
    "model_truncated",
    "several errors",
    "skipped",
    "step_failed",
    "step_output_invalid",
    "step_timeout",
    "succeeded",
    "template_unresolved",
    "validation_exhausted",
    "validator_broken",
];

fn features(expected: &Expected) -> Vec<&'static str> {
    let mut all = vec![expected.status];
    all.extend(expected.errors.iter().map(|fault| fault.kind));
    all.extend((expected.errors.len() > 1).then_some("several errors"));
    all.extend(expected.rows.iter().map(|row| row.status));
    all.extend(expected.effects.iter().any(|effect| effect.is_given_up).then_some("given up"));
    let is_joint = |effect: &&reference::Effect| match &effect.asked {
        Asked::Model { schema: Some(schema), .. } => schema["required"].as_array().is_some_and(|all| all.len() > 1),
        _ => false,
    };
    let joint = || expected.effects.iter().filter(is_joint);
    all.extend(joint().next().map(|_| "asked together"));
    let is_in_group = |path: &str| path.rsplit('/').nth(1).is_some_and(|above| above.starts_with("group"));
    all.extend(joint().any(|effect| is_in_group(&effect.id)).then_some("asked together in a group"));
    all
}
