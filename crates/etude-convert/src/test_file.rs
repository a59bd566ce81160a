//! Cases as tests of the app, and the assignment of cases to pipelines.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::case::{Case, is_parameter};
use crate::compile::{Compiled, File};
use crate::yaml;

/// Completion of a model in a case, if the case shows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Completion {
    /// No model is asked.
    None,
    /// The only question is the last step: its completion is the output of the case.
    Known(Value),
    /// The case does not show the completion. Such a case becomes no test: nothing is made up for it.
    Unknown,
}

/// Completion of a model in this case of the pipeline.
pub fn completion(case: &Case, pipeline: &Compiled) -> Completion {
    match (pipeline.questions.len(), &case.output) {
        (0, _) => Completion::None,
        (1, Some(output)) if pipeline.ends_with_judgement => Completion::Known(output.clone()),
        _ => Completion::Unknown,
    }
}

/// Name of the test that a case of this pipeline becomes.
pub fn name(case: &Case, pipeline: &Compiled) -> String {
    format!("{}-{}", pipeline.name, case.name)
}

/// Test that a case becomes. Inputs that cannot be parameters are left out.
pub fn file(case: &Case, pipeline: &Compiled) -> File {
    let name = name(case, pipeline);
    let input: Map<String, Value> = case.input.clone().into_iter().filter(|(name, _)| is_parameter(name)).collect();
    let mut test = json!({"name": name, "pipeline": pipeline.name, "input": input});
    test["expect"] = match &case.output {
        Some(output) => json!({"status": "succeeded", "output": {"": output}}),
        None => json!({"status": "succeeded"}),
    };
    File { path: format!("tests/{name}.yaml"), text: yaml::text(&test) }
}

/// Pipeline of each case, by position: one whose required parameters the case has, and of several the one that shares the
/// most words with the request.
pub fn assign(cases: &[Case], pipelines: &[Compiled]) -> Vec<Option<usize>> {
    let of_pipelines: Vec<BTreeSet<String>> = pipelines.iter().map(|pipeline| words(&pipeline.words)).collect();
    let assign = |case: &Case| {
        let request = words(&format!("{} {}", case.request, case.name));
        let rank = |at: &usize| {
            let fits = pipelines[*at].required.iter().all(|name| case.input.contains_key(name));
            let shared = of_pipelines[*at].intersection(&request).count();
            // Of equal pipelines, the first one.
            (fits, shared, std::cmp::Reverse(*at))
        };
        (0..pipelines.len()).max_by_key(rank)
    };
    cases.iter().map(assign).collect()
}

fn words(text: &str) -> BTreeSet<String> {
    let lower = text.to_lowercase();
    lower.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn pipeline(name: &str, required: &[&str], questions: usize) -> Compiled {
        Compiled {
            name: name.to_owned(),
            description: String::new(),
            words: format!("{name} the ledger"),
            files: Vec::new(),
            enforced: BTreeMap::new(),
            asked: BTreeMap::new(),
            required: required.iter().map(|name| (*name).to_owned()).collect(),
            questions: vec!["q".to_owned(); questions],
            ends_with_judgement: questions > 0,
        }
    }

    fn case(value: &Value) -> Case {
        Case::from_value(value).expect("a case")
    }

    /// L-85: a case is a test of its pipeline, with the input and output of the case.
    #[test]
    fn a_case_becomes_a_test() {
        let case = case(&json!({"name": "july", "request": "r", "input": {"n": 1, "no name": 2}, "output": [1]}));
        let file = file(&case, &pipeline("total", &[], 0));
        assert_eq!(file.path, "tests/total-july.yaml");
        assert_eq!(
            file.text,
            "name: total-july\npipeline: total\ninput:\n  \"n\": 1\nexpect:\n  status: succeeded\n  output:\n    \"\":\n      - 1\n"
        );
    }

    /// 1.6: completions in tests come from cases, never from a model alone.
    #[test]
    fn only_the_last_question_has_a_known_completion() {
        let with = case(&json!({"output": {"ok": true}}));
        let without = case(&json!({}));
        assert_eq!(completion(&without, &pipeline("a", &[], 0)), Completion::None);
        assert_eq!(completion(&with, &pipeline("a", &[], 1)), Completion::Known(json!({"ok": true})));
        assert_eq!(completion(&without, &pipeline("a", &[], 1)), Completion::Unknown);
        assert_eq!(completion(&with, &pipeline("a", &[], 2)), Completion::Unknown);
    }

    #[test]
    fn a_case_is_for_the_pipeline_that_its_input_and_words_fit() {
        let pipelines = [pipeline("total", &[], 0), pipeline("approve", &[], 0), pipeline("file", &["path"], 0)];
        let cases = [
            case(&json!({"request": "approve this ledger"})),
            case(&json!({"request": "total", "input": {"path": "x"}})),
            case(&json!({"request": "file it"})),
        ];
        assert_eq!(assign(&cases, &pipelines), [Some(1), Some(0), Some(0)]);
        assert_eq!(assign(&cases[..1], &[]), [None]);
    }
}
