//! Definitions with errors, which are not tools until these are repaired.

use serde_json::Value;

use crate::naming;

/// The most that an answer says of one error, in characters.
const MAX_MESSAGE: usize = 300;

/// A pipeline or machine with errors.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The name that its tool has without them.
    pub(crate) name: String,
    kind: &'static str,
    /// The name in the app.
    pub(crate) of: String,
    /// The code, place and message of its first error, if the caller sees it.
    fault: Option<String>,
}

impl Broken {
    /// An entry of a list of definitions, with the diagnostics of its app.
    pub(crate) fn new(kind: &'static str, entry: &Value, diagnostics: &Value) -> Option<Self> {
        let of = entry["name"].as_str()?.to_owned();
        let name = if kind == "machine" { format!("machine_{of}") } else { of.clone() };
        let is_own = |diagnostic: &&Value| {
            let file = diagnostic["file"].as_str().unwrap_or_default();
            let folder = format!("{kind}s/{of}");
            let rest = file.strip_prefix(&folder);
            diagnostic["severity"] == "error" && rest.is_some_and(|rest| rest.starts_with(['/', '.']))
        };
        let fault = diagnostics.as_array().into_iter().flatten().find(is_own).map(fault);
        Some(Self { name: naming::tool_name(&name), kind, of, fault })
    }

    /// What is wrong, and what to do.
    pub(crate) fn sentence(&self) -> String {
        let fault = self.fault.as_ref().map(|fault| format!(": {fault}")).unwrap_or_default();
        format!("the {} `{}` has errors{fault}; `etude check` reports all", self.kind, self.of)
    }
}

/// A diagnostic in one line.
fn fault(diagnostic: &Value) -> String {
    let text = |name: &str| diagnostic[name].as_str().unwrap_or_default();
    let number = |name: &str| diagnostic[name].as_u64().map(|number| format!(":{number}")).unwrap_or_default();
    let message: String = text("message").chars().take(MAX_MESSAGE).collect();
    format!("{} {}{}{} {message}", text("code"), text("file"), number("line"), number("column"))
}

/// What errors keep from being tools in an app, whose document is that of `/v1/apps`; `None`: nothing.
pub fn faults(app: &Value) -> Option<String> {
    let of = |list: &str, kind: &'static str| -> Vec<Broken> {
        let entries = app[list].as_array().into_iter().flatten().filter(|entry| entry["valid"] == false);
        entries.filter_map(|entry| Broken::new(kind, entry, &app["diagnostics"])).collect()
    };
    let broken: Vec<Broken> = of("pipelines", "pipeline").into_iter().chain(of("machines", "machine")).collect();
    note(&broken)
}

/// What is said of all of them: the first ones, and how many there are.
pub(crate) fn note(broken: &[Broken]) -> Option<String> {
    let (first, rest) = broken.split_first()?;
    let further = match rest.len() {
        0 => String::new(),
        many => format!(" ({many} more have errors)"),
    };
    Some(format!("{}{further}", first.sentence()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The line that a person reads has the place of the first error, and how many more there are.
    #[test]
    fn the_definitions_with_errors_are_one_line() {
        let entry = |name: &str, valid: bool| json!({"name": name, "valid": valid});
        let fault = json!({
            "severity": "error", "code": "P0101", "file": "pipelines/a/pipeline.yaml", "line": 2, "column": 1, "message": "it is no mapping",
        });
        let app = json!({
            "pipelines": [entry("a", false), entry("b", true)], "machines": [entry("c", false)], "diagnostics": [fault],
        });
        let line = "the pipeline `a` has errors: P0101 pipelines/a/pipeline.yaml:2:1 it is no mapping; `etude check` reports all (1 more have errors)";
        assert_eq!(faults(&app).as_deref(), Some(line));
        assert_eq!(faults(&json!({"pipelines": [entry("b", true)]})), None);
    }
}
