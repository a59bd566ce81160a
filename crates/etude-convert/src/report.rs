//! Outcome of each statement: rows of the document of `convert` (1.8) and of `CONVERSION.md` (L-87).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use crate::compile::Compiled;
use crate::label::{Label, Labels};
use crate::statement::{Form, Statement};

/// Words that make a sentence a rule, whatever label a model gives it.
static STRICT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)\b(?:must|never|always)\b").ok());

/// Outcome of a statement in the conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// A code step does what the statement says: the pipeline and the step.
    Enforced(String, String),
    /// An llm step asks a model to follow the statement: the pipeline and the step.
    Asked(String, String),
    /// The statement is in the skill, and in no pipeline.
    Left,
    /// The statement asks for nothing.
    Background,
}

impl Fate {
    /// Word in reports, such as `enforced`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Enforced(..) => "enforced",
            Self::Asked(..) => "asked",
            Self::Left => "left",
            Self::Background => "background",
        }
    }

    /// Step that enforces the statement or asks about it.
    pub fn step(&self) -> Option<&str> {
        match self {
            Self::Enforced(_, step) | Self::Asked(_, step) => Some(step),
            Self::Left | Self::Background => None,
        }
    }

    fn sentence(&self) -> String {
        match self {
            Self::Enforced(pipeline, step) => format!("enforced by `{pipeline}`, step `{step}`"),
            Self::Asked(pipeline, step) => format!("asked of a model in `{pipeline}`, step `{step}`"),
            Self::Left => "left to the skill, not enforced".to_owned(),
            Self::Background => "background".to_owned(),
        }
    }
}

/// Outcome of each statement, by its id.
pub fn fates(statements: &[Statement], labels: &Labels, pipelines: &[&Compiled]) -> BTreeMap<u32, Fate> {
    let find = |id: u32, of: fn(&Compiled) -> &BTreeMap<u32, String>| {
        pipelines.iter().find_map(|pipeline| Some((pipeline.name.clone(), of(pipeline).get(&id)?.clone())))
    };
    let fate = |statement: &Statement| {
        if let Some((pipeline, step)) = find(statement.id, |pipeline| &pipeline.enforced) {
            return Fate::Enforced(pipeline, step);
        }
        if let Some((pipeline, step)) = find(statement.id, |pipeline| &pipeline.asked) {
            return Fate::Asked(pipeline, step);
        }
        match labels.get(&statement.id) {
            Some(label) if label.is_for_steps() => Fate::Left,
            _ if is_strict(statement) => Fate::Left,
            _ => Fate::Background,
        }
    };
    statements.iter().map(|statement| (statement.id, fate(statement))).collect()
}

/// True if a statement says "must", "never" or "always" (L-87). Titles and code ask for nothing.
fn is_strict(statement: &Statement) -> bool {
    matches!(statement.form, Form::Item | Form::Sentence | Form::Row)
        && STRICT.as_ref().is_some_and(|pattern| pattern.is_match(&statement.text))
}

/// Member `statements` of the document.
pub fn rows(statements: &[Statement], labels: &Labels, fates: &BTreeMap<u32, Fate>) -> Value {
    let row = |statement: &Statement| {
        let fate = fates.get(&statement.id).unwrap_or(&Fate::Background);
        json!({
            "id": statement.id, "line": statement.line, "text": statement.text,
            "label": labels.get(&statement.id).map(|label| label.word()),
            "outcome": fate.word(), "step": fate.step(),
        })
    };
    statements.iter().map(row).collect()
}

/// Pipeline that was left out, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Name of the pipeline's draft.
    pub pipeline: String,
    /// Reason, as a sentence fragment.
    pub reason: String,
}

/// `CONVERSION.md`: each statement with its label and outcome, the pipelines, and those that were left out.
pub fn markdown(
    statements: &[Statement],
    labels: &Labels,
    fates: &BTreeMap<u32, Fate>,
    pipelines: &[(&Compiled, usize)],
    left_out: &[LeftOut],
) -> String {
    let mut text = String::from(
        "# Conversion\n\nThis app was converted from the skill in `SKILL.md`. The skill is unchanged: `etude` follows it for every request that no pipeline takes.\n\n## Pipelines\n\n| pipeline | description | cases |\n|---|---|---|\n",
    );
    for (pipeline, cases) in pipelines {
        text.push_str(&format!("| `{}` | {} | {cases} |\n", pipeline.name, cell(&pipeline.description)));
    }
    text.push_str("\n## Statements\n\n| id | line | statement | label | outcome |\n|---|---|---|---|---|\n");
    for statement in statements {
        let label = labels.get(&statement.id).map_or("", |label: &Label| label.word());
        let fate = fates.get(&statement.id).unwrap_or(&Fate::Background);
        let row = format!(
            "| {} | {} | {} | {label} | {} |\n",
            statement.id,
            statement.line,
            cell(&statement.text),
            fate.sentence()
        );
        text.push_str(&row);
    }
    if !left_out.is_empty() {
        text.push_str("\n## Left out\n\n| pipeline | reason |\n|---|---|\n");
        for LeftOut { pipeline, reason } in left_out {
            text.push_str(&format!("| `{}` | {} |\n", cell(pipeline), cell(reason)));
        }
    }
    text
}

/// Text in a cell of a table: on one line, without markup of the table or HTML.
fn cell(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    one_line.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::statement::split;

    fn compiled() -> Compiled {
        Compiled {
            name: "audit".to_owned(),
            description: "Audit a file".to_owned(),
            words: "audit Audit a file audit this".to_owned(),
            files: Vec::new(),
            enforced: BTreeMap::from([(2, "total".to_owned())]),
            asked: BTreeMap::from([(3, "decide".to_owned())]),
            required: BTreeSet::new(),
            questions: vec!["decide".to_owned()],
            ends_with_judgement: true,
        }
    }

    /// L-87: every statement has a row: the step, "asked of a model", "left to the skill" or "background".
    #[test]
    fn every_statement_has_a_row() {
        let statements = split("# A\n\nRun `a | b`. Decide <now>. Never pay.\n", 0).expect("few statements");
        let words = [Label::Background, Label::MainPath, Label::Judgement, Label::Rule];
        let labels: Labels = words.into_iter().zip(1..).map(|(label, id)| (id, label)).collect();
        let compiled = compiled();
        let fates = fates(&statements, &labels, &[&compiled]);
        let rows = rows(&statements, &labels, &fates);
        let outcomes: Vec<(&str, &Value)> = rows
            .as_array()
            .into_iter()
            .flatten()
            .map(|row| (row["outcome"].as_str().unwrap_or_default(), &row["step"]))
            .collect();
        assert_eq!(
            outcomes,
            [
                ("background", &Value::Null),
                ("enforced", &json!("total")),
                ("asked", &json!("decide")),
                ("left", &Value::Null)
            ]
        );
        let left_out = [LeftOut { pipeline: "x".to_owned(), reason: "it\nfails".to_owned() }];
        let text = markdown(&statements, &labels, &fates, &[(&compiled, 2)], &left_out);
        assert_eq!(
            text.split_once("## Pipelines\n\n").map(|(_, rest)| rest),
            Some(
                "| pipeline | description | cases |\n|---|---|---|\n| `audit` | Audit a file | 2 |\n\n## Statements\n\n| id | line | statement | label | outcome |\n|---|---|---|---|---|\n| 1 | 1 | A | background | background |\n| 2 | 3 | Run `a \\| b`. | main_path | enforced by `audit`, step `total` |\n| 3 | 3 | Decide &lt;now>. | judgement | asked of a model in `audit`, step `decide` |\n| 4 | 3 | Never pay. | rule | left to the skill, not enforced |\n\n## Left out\n\n| pipeline | reason |\n|---|---|\n| `x` | it fails |\n"
            )
        );
        let strict =
            split("# Never\n\nThe name MUST be short. A mustard.\n\n- Never lie.\n", 0).expect("few statements");
        let labels: Labels = strict.iter().map(|statement| (statement.id, Label::Background)).collect();
        let found: Vec<Fate> = super::fates(&strict, &labels, &[]).into_values().collect();
        assert_eq!(found, [Fate::Background, Fate::Left, Fate::Background, Fate::Left]);
    }
}
