//! Code steps of a conversion and the validator of its labels: `etude conversion STEP`, started by its run.

use std::io::Read;
use std::path::Path;

use etude_convert::case::Case;
use etude_convert::draft::{self, Draft};
use etude_convert::label::{self, Labels};
use etude_convert::skill::Skill;
use serde_json::{Value, json};

use super::snapshot::Snapshot;
use super::{verify, write};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::stdout;

/// Inputs of a step of a conversion.
pub(super) struct Facts {
    pub(super) snapshot: Snapshot,
    pub(super) skill: Skill,
    pub(super) labels: Labels,
    pub(super) drafts: Vec<Draft>,
    pub(super) cases: Vec<Case>,
    /// stdin as parsed JSON.
    pub(super) given: Value,
}

pub(crate) fn conversion(context: &Context, step: &args::Conversion) -> Exit {
    match done(context, step) {
        Ok(document) => {
            stdout::json(&document);
            Exit::Done
        }
        Err(problem) => {
            context.say_problem(&problem);
            problem.exit
        }
    }
}

fn done(context: &Context, step: &args::Conversion) -> Result<Value, Problem> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .read_to_string(&mut text)
        .map_err(|e| Problem::usage(format!("stdin cannot be read: {e}")))?;
    let given: Value = serde_json::from_str(&text)
        .map_err(|e| Problem::usage(format!("stdin is not JSON: {e}; only a run starts this command")))?;
    let output = match step {
        args::Conversion::Labels => return Ok(checked_labels(&given)),
        args::Conversion::Verify => verify::verify(context, &Facts::read(given)?)?,
        args::Conversion::Write => write::write(&Facts::read(given)?)?,
    };
    Ok(json!({ "output": output }))
}

/// Report of the validator: valid if every statement has a label.
fn checked_labels(given: &Value) -> Value {
    let statements: Vec<u32> = given["input"]["statements"]
        .as_str()
        .unwrap_or_default()
        .lines()
        .filter_map(|line| u32::try_from(serde_json::from_str::<Value>(line).ok()?["id"].as_u64()?).ok())
        .collect();
    let errors = label::faults(&label::read(&given["output"]), &statements);
    json!({"valid": errors.is_empty(), "errors": errors})
}

impl Facts {
    fn read(given: Value) -> Result<Self, Problem> {
        let text = |name: &str| given["input"][name].as_str().unwrap_or_default();
        let snapshot = Snapshot::take(Path::new(text("skill")))?;
        if snapshot.digest() != text("digest") {
            return Err(Problem::environment("the skill has changed since the conversion began")
                .hint("convert it again: etude convert DIR"));
        }
        let skill = snapshot.skill()?;
        let output =
            |step: &str| given["steps"].get(step).map(|step| &step["output"]).filter(|output| !output.is_null());
        let drafts = ["repair_2", "repair_1", "drafts"].into_iter().find_map(output);
        let cases = given["input"]["cases"].as_array().into_iter().flatten();
        let cases = cases.map(Case::from_value).collect::<Result<Vec<_>, _>>().map_err(Problem::usage)?;
        Ok(Self {
            labels: output("labels").map(label::read).unwrap_or_default(),
            drafts: drafts.map(draft::read).unwrap_or_default(),
            cases,
            snapshot,
            skill,
            given,
        })
    }

    /// Output of the last verification.
    pub(super) fn verified(&self) -> Option<&Value> {
        let steps = ["verify_2", "verify_1", "verify_0"].into_iter();
        steps.map(|step| &self.given["steps"][step]["output"]).find(|output| !output.is_null())
    }
}
