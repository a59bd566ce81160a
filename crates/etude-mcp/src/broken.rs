//! Definitions with errors, which are not tools until the errors are fixed.

use serde_json::Value;

use crate::naming;

/// Maximum length of an error's message in an answer, in characters.
const MAX_MESSAGE: usize = 300;

/// A pipeline or machine with errors.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The name of the tool once the errors are fixed.
    pub(crate) name: String,
    kind: &'static str,
    /// The name in the app.
    pub(crate) of: String,
    /// The code, position and message of the first error, if the caller may see it.
    fault: Option<String>,
}

impl Broken {
    /// Builds the entry from a list of definitions, with the diagnostics of its app.
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

    /// The sentence with the error, and the command that lists all errors.
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

/// The errors that keep definitions in an app from being tools, as one line; `None` if there are none. `app` is an entry of
/// `/v1/apps`.
pub fn faults(app: &Value) -> Option<String> {
    let of = |list: &str, kind: &'static str| -> Vec<Broken> {
        let entries = app[list].as_array().into_iter().flatten().filter(|entry| entry["valid"] == false);
        entries.filter_map(|entry| Broken::new(kind, entry, &app["diagnostics"])).collect()
    };
    let broken: Vec<Broken> = of("pipelines", "pipeline").into_iter().chain(of("machines", "machine")).collect();
    note(&broken)
}

/// A sentence about the first one, and the number of the others.
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

    /// The line for people has the position of the first error, and the number of further definitions with errors.
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
