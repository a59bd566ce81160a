//! `learn.yaml` (1.5) and `REPORT.md`: the evidence for a candidate.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::yaml;
use crate::Candidate;
use crate::check::Counts;
use crate::program::{Guard, Hole, Row};

impl Counts {
    /// JSON object (1.8).
    pub fn to_json(&self) -> Value {
        json!({"agreed": self.agreed, "fell_back": self.fell_back, "disagreed": self.disagreed})
    }
}

impl Row {
    /// JSON object (1.8).
    pub fn to_json(&self) -> Value {
        json!({
            "step": self.step, "argument": self.argument, "source": self.source, "expression": self.expression,
            "held": self.held, "of": self.of, "alternatives": self.alternatives, "why": self.why,
        })
    }
}

impl Hole {
    /// JSON object (1.8).
    pub fn to_json(&self) -> Value {
        json!({"step": self.step, "argument": self.argument, "why": self.why, "set": self.set, "by": self.by})
    }
}

impl Guard {
    /// JSON object (1.8).
    pub fn to_json(&self) -> Value {
        json!({"step": self.step, "condition": self.condition, "violated": self.violated})
    }
}

impl Candidate {
    /// Text of `learn.yaml`. `content` is the hash of the pipeline with its steps, schemas, tools and rules, `bound` the
    /// upper bound of its rate of wrong writes. `state` and `accept_risk` are kept from the previous candidate. `eligibility`
    /// is `asked`, or the value that a person wrote.
    pub fn learn_yaml(
        &self,
        (content, bound): (&str, f64),
        (state, accept_risk): (&str, bool),
        eligibility: &Value,
    ) -> String {
        let list = |all: Vec<Value>| Value::from(all);
        let mut out = Map::new();
        out.insert("learn".into(), 1.into());
        out.insert("state".into(), state.into());
        out.insert("family".into(), self.family.as_str().into());
        out.insert("content".into(), content.into());
        if accept_risk {
            out.insert("accept_risk".into(), true.into());
        }
        let evidence = json!({
            "requests": self.requests, "runs": self.runs, "leave_one_out": self.leave_one_out.to_json(),
            "wrong_rate_bound": bound,
        });
        out.insert("evidence".into(), evidence);
        out.insert("bindings".into(), list(self.bindings.iter().map(Row::to_json).collect()));
        out.insert("holes".into(), list(self.holes.iter().map(Hole::to_json).collect()));
        out.insert("guards".into(), list(self.guards.iter().map(Guard::to_json).collect()));
        out.insert("eligibility".into(), eligibility.clone());
        out.insert("covers".into(), self.covers.clone().into());
        out.insert("not_covered".into(), self.not_covered.clone().into());
        yaml::document(&out.into())
    }

    pub(super) fn report(&self) -> String {
        let mut out = String::new();
        let list = |all: &[String]| match all {
            [] => "none".to_owned(),
            all => all.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", "),
        };
        let _ = write!(
            out,
            "# {}\n\nLearned from {} requests in {} runs of the family `{}`.\n\n## What it does\n\n- reads with {}\n- writes with {}\n- takes from the request: {}\n",
            self.name,
            self.requests,
            self.runs,
            self.family,
            list(&self.reads),
            list(&self.writes),
            list(&self.parameters),
        );
        let _ = write!(
            out,
            "\n## Figures\n\n| comparison | requests |\n|---|---|\n| learned without the request, same write | {} |\n| learned without the request, fell back | {} |\n| learned without the request, other write | {} |\n| covered | {} |\n| not covered | {} |\n",
            self.leave_one_out.agreed,
            self.leave_one_out.fell_back,
            self.leave_one_out.disagreed,
            self.covers.len(),
            self.not_covered.len()
        );
        out.push_str("\n## Where each value comes from\n\n| step | argument | source | expression | held |\n|---|---|---|---|---|\n");
        for row in &self.bindings {
            let cell = |text: &str| text.replace('|', "\\|").replace(['\n', '\r'], " ");
            let _ = writeln!(
                out,
                "| `{}` | `{}` | {} | `{}` | {} of {} |",
                cell(&row.step),
                cell(&row.argument),
                row.source,
                cell(&row.expression),
                row.held,
                row.of
            );
        }
        out.push_str("\n## Questions to the model\n\n");
        if !self.writes.is_empty() {
            out.push_str("- whether the rules of the skill allow the call, before it writes\n");
        }
        for name in &self.questions {
            let _ = writeln!(out, "- `{name}`: a choice from a list");
        }
        if self.writes.is_empty() && self.questions.is_empty() {
            out.push_str("- nothing but the answer\n");
        }
        out.push_str(
            "\n## Limits\n\n- it leaves a run to the agent if a value is missing, a tool fails, or no element fits\n",
        );
        for guard in &self.guards {
            let _ = writeln!(out, "- it does not write unless `{}`", guard.condition);
        }
        for hole in self.holes.iter().filter(|hole| hole.set.is_null()) {
            let _ = writeln!(out, "- it never writes: the source of `{}` is unknown", hole.argument);
        }
        out
    }
}
