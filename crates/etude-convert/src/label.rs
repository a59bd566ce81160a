//! Labels of statements, which a model assigns.

use std::collections::BTreeMap;

use serde_json::{Value, json};

etude_core::words! {
    /// Role of a statement in a skill, with its word in label files and reports.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Label {
        /// A part of a path that is always followed.
        MainPath = "main_path",
        /// An obligation or a prohibition.
        Rule = "rule",
        /// The case in which something applies.
        Condition = "condition",
        /// A decision or an assessment.
        Judgement = "judgement",
        /// A sample of a request, a result or a dialogue.
        Example = "example",
        /// Any other statement.
        Background = "background",
    }
}

impl Label {
    /// True if statements with this label may be steps.
    pub fn is_for_steps(self) -> bool {
        !matches!(self, Self::Example | Self::Background)
    }
}

/// Labels by the id of their statement.
pub type Labels = BTreeMap<u32, Label>;

/// JSON Schema of the labels (1.6).
pub fn schema() -> Value {
    let words = Label::ALL.map(Label::word);
    json!({
        "type": "object", "required": ["labels"], "additionalProperties": false,
        "properties": {"labels": {"type": "array", "items": {
            "type": "object", "required": ["id", "label"], "additionalProperties": false,
            "properties": {"id": {"type": "integer"}, "label": {"enum": words}},
        }}},
    })
}

/// Labels in a value that fits the schema; the last one of several for a statement.
pub fn read(value: &Value) -> Labels {
    let label = |entry: &Value| {
        let id = u32::try_from(entry["id"].as_u64()?).ok()?;
        let word = entry["label"].as_str()?;
        Label::from_word(word).map(|label| (id, label))
    };
    value["labels"].as_array().into_iter().flatten().filter_map(label).collect()
}

/// Faults of labels that are not exactly one for every statement, as sentences for a model. `statements` are their ids.
pub fn faults(labels: &Labels, statements: &[u32]) -> Vec<String> {
    let missing: Vec<String> =
        statements.iter().filter(|id| !labels.contains_key(id)).map(ToString::to_string).collect();
    let unknown: Vec<String> = labels.keys().filter(|id| !statements.contains(id)).map(ToString::to_string).collect();
    let mut faults = Vec::new();
    if !missing.is_empty() {
        faults.push(format!("these statements have no label: {}", missing.join(", ")));
    }
    if !unknown.is_empty() {
        faults.push(format!("there are no statements with these ids: {}", unknown.join(", ")));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-87: a statement without a label, and a label without a statement, are reported.
    #[test]
    fn every_statement_needs_a_label() {
        let value = json!({"labels": [{"id": 1, "label": "rule"}, {"id": 9, "label": "example"}, {"id": 1, "label": "background"}]});
        let labels = read(&value);
        assert_eq!(labels.get(&1), Some(&Label::Background));
        assert_eq!(
            faults(&labels, &[1, 2, 3]),
            ["these statements have no label: 2, 3", "there are no statements with these ids: 9"]
        );
    }
}
