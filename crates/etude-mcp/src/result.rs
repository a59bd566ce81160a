//! Results of tools: documents of runs in a form for models.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::{Api, Reply};
use crate::wire::{Outcome, raw};

mod bound;
mod wire;

use wire::Structured;
pub(crate) use wire::{Envelope, Run, ToolResult};

/// Maximum size of an output as text in a result, in bytes. The rest is a link.
const MAX_TEXT: usize = 16 * 1024;

/// Maximum size of an effect's stderr in the text of a failure, in bytes.
const MAX_STDERR: usize = 2 * 1024;

/// The same limit in lines.
const MAX_LINES: usize = 20;

impl Run {
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// True if the run has ended, so that its document does not change by itself.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "succeeded" | "failed" | "cancelled")
    }

    /// The URL of the run's page.
    pub(crate) fn url(&self, api: &dyn Api) -> Option<String> {
        Some(format!("{}{}", api.pages()?, self.links["page"].as_str()?))
    }

    /// The reason of the run's end.
    fn reason(&self) -> String {
        let first = self.errors.first();
        let message = first.and_then(|error| error["message"].as_str());
        let hint = first.and_then(|error| error["hint"].as_str()).map(|hint| format!("\nhint: {hint}"));
        let message = message.map_or_else(|| format!("run {} has {}", self.run_id, self.status), str::to_owned);
        format!("{message}{}", hint.unwrap_or_default())
    }

    /// The place and course of the failure, and the next commands.
    fn facts(&self, url: Option<&str>) -> String {
        let id = &self.run_id;
        let first = self.errors.first();
        let mut lines = vec![format!("Run {id} has {}.", self.status)];
        if let Some(file) = first.and_then(|error| error["file"].as_str()) {
            let part = |name: &str| first.and_then(|error| error[name].as_u64()).map(|number| format!(":{number}"));
            let place: String = [part("line"), part("column")].into_iter().map_while(|part| part).collect();
            lines.push(format!("at {file}{place}"));
        }
        let stderr = first.and_then(|error| error["stderr_tail"].as_str()).map(last_lines).unwrap_or_default();
        if !stderr.is_empty() {
            lines.push(format!("Last lines of stderr:\n{stderr}"));
        }
        lines.push(format!("`etude_show` with the run_id `{id}` shows the run, and `etude_resume` continues it."));
        lines.extend(url.map(str::to_owned));
        lines.join("\n")
    }
}

/// The last lines of a text, up to a limit of bytes.
fn last_lines(text: &str) -> String {
    let text = text.trim_end();
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_STDERR));
    let lines: Vec<&str> = text[start..].lines().collect();
    lines[lines.len().saturating_sub(MAX_LINES)..].join("\n")
}

impl ToolResult {
    /// The result in its wire format.
    pub(crate) fn to_raw(&self) -> Outcome {
        raw(self)
    }

    /// The result of a fixed tool that returns a document.
    pub(crate) fn document(body: &[u8]) -> Result<Self, String> {
        let document = serde_json::from_slice::<Box<RawValue>>(body).map_err(|e| e.to_string())?;
        let content = vec![text(document.get())];
        Ok(Self { content, structured_content: document, is_error: false })
    }

    /// The result of `etude_cancel`. A run that still works when the server has responded is cancelled soon after.
    pub(crate) fn cancellation(body: &[u8]) -> Result<Self, String> {
        let mut result = Self::document(body)?;
        let run: Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
        let is_over = matches!(run["status"].as_str(), Some("succeeded" | "failed" | "cancelled"));
        if let Some(id) = run["run_id"].as_str().filter(|_| !is_over) {
            let note =
                format!("Run {id} is being cancelled. `etude_show` with the run_id `{id}` shows when it has ended.");
            result.content.insert(0, text(&note));
        }
        Ok(result)
    }

    /// The result of a fixed tool that returns a run's document; members that are too long for clients are shortened.
    pub(crate) fn run_document(body: &[u8]) -> Result<Self, String> {
        let document = bound::run(body)?;
        Ok(Self { content: vec![text(document.get())], structured_content: document, is_error: false })
    }

    /// The result with a problem of the interface, which a model can correct. `is_run`: the tool's results are those of runs.
    pub(crate) fn problem(reply: &Reply, is_run: bool) -> Self {
        let problem: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let details = problem["errors"].as_array();
        let error =
            |detail: &Value| json!({"kind": problem["code"], "message": detail["detail"], "pointer": argument(detail)});
        let mut errors: Vec<Value> = details.into_iter().flatten().map(error).collect();
        if errors.is_empty() {
            errors.push(json!({"kind": problem["code"], "message": problem["detail"]}));
        }
        let mut message = sentence(reply);
        for diagnostic in problem["diagnostics"].as_array().into_iter().flatten() {
            message.push_str(&format!("\n{}", diagnostic["message"].as_str().unwrap_or_default()));
        }
        for diagnostic in problem["envelope"]["diagnostics"].as_array().into_iter().flatten() {
            message.push_str(&format!("\n{}", with_hint(diagnostic)));
        }
        for detail in details.into_iter().flatten() {
            let Some(pointer) = argument(detail) else { continue };
            let fault = detail["detail"].as_str().unwrap_or_default();
            // A fault that the sentence has already is not repeated, but its field is named.
            match message.contains(fault) {
                _ if pointer.is_empty() => {}
                true => message = message.replacen(fault, &format!("{pointer}: {fault}"), 1),
                false => message.push_str(&format!("\n{pointer}: {fault}")),
            }
        }
        if let Some(hint) = problem["hint"].as_str() {
            message.push_str(&format!("\nhint: {hint}"));
        }
        let structured = match is_run {
            true => json!({
                "run_id": null, "status": "failed", "output": null, "errors": errors, "usage": null, "url": null,
            }),
            false => json!({"errors": errors}),
        };
        let structured_content = serde_json::value::to_raw_value(&structured).unwrap_or_default();
        Self { content: vec![text(&message)], structured_content, is_error: true }
    }

    /// Adds the tool's schema for a client that may not know it.
    pub(crate) fn with_schema(mut self, tool: &str, schema: Value) -> Self {
        self.content.push(text(&format!("The input schema of `{tool}`: {schema}")));
        let mut structured: Value = serde_json::from_str(self.structured_content.get()).unwrap_or_default();
        if let Some(members) = structured.as_object_mut() {
            members.insert("input_schema".to_owned(), schema);
            self.structured_content = serde_json::value::to_raw_value(&structured).unwrap_or(self.structured_content);
        }
        self
    }

    /// The result of a command. It has no run.
    pub(crate) fn of_command(envelope: &Envelope) -> Self {
        let is_error = envelope.status != "succeeded";
        let status = if is_error { "failed" } else { "succeeded" };
        let error = |diagnostic: &Value| json!({"kind": diagnostic["name"], "message": diagnostic["message"]});
        let errors: Vec<Value> = envelope.diagnostics.iter().filter(|_| is_error).map(error).collect();
        let mut content = Vec::new();
        if is_error {
            let why: Vec<String> = envelope.diagnostics.iter().map(with_hint).collect();
            let exit = envelope.exit_code.map(|code| format!(" with exit status {code}")).unwrap_or_default();
            let ended = format!("the command `{}` has {}{exit}", envelope.command, envelope.status);
            let parts = [ended, why.join("\n"), envelope.stderr.trim_end().to_owned()];
            content.push(text(&parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")));
        }
        let output = &*envelope.output;
        if !is_error || output.get() != "null" {
            content.push(text(&as_text(output)));
        }
        // No resource has the rest of it.
        let structured = Structured::new(None, status, output, &errors, &Value::Null, None);
        let structured_content = serde_json::value::to_raw_value(&structured).unwrap_or_default();
        Self { content, structured_content, is_error }
    }

    /// The result of a run. `note` comes first for a run that has not ended, and `waiting` has its open questions.
    pub(crate) fn of_run(api: &dyn Api, run: &Run, note: &str, waiting: Vec<Value>) -> Result<Self, String> {
        let url = run.url(api);
        let id = &run.run_id;
        let mut content = Vec::new();
        let is_error = matches!(run.status.as_str(), "failed" | "cancelled");
        // Some clients give a model only the texts, and others only the structured content: each is complete.
        let message = match is_error {
            true => Some(run.reason()),
            false => (!run.is_over() && !note.is_empty()).then(|| note.to_owned()),
        };
        if is_error {
            content.extend([text(&run.reason()), text(&run.facts(url.as_deref()))]);
        } else if run.is_over() {
            content.push(text(&as_text(&run.output)));
        } else {
            content.push(text(note));
        }
        let mut output = run.output.as_ref();
        let mut output_cut = None;
        if output.get().len() > MAX_TEXT {
            output = RawValue::NULL;
            let (uri, bytes) = (format!("etude://runs/{id}/output"), run.output.get().len());
            content.push(json!({
                "type": "resource_link", "uri": uri, "name": format!("output of run {id}"), "mimeType": "application/json", "size": bytes,
            }));
            output_cut = Some(json!({"bytes": bytes, "uri": uri, "start": clipped(&as_text(&run.output))}));
        }
        let structured = Structured {
            message,
            waiting,
            output_cut,
            ..Structured::new(Some(id), &run.status, output, &run.errors, &run.usage, url)
        };
        let structured_content = serde_json::value::to_raw_value(&structured).map_err(|e| e.to_string())?;
        Ok(Self { content, structured_content, is_error })
    }
}

/// JSON Pointer of the faulty argument of a tool (S-143). Parameters of the interface's queries are arguments of the same name.
fn argument(detail: &Value) -> Option<String> {
    let pointer =
        detail["pointer"].as_str().map(|pointer| pointer.strip_prefix("/input").unwrap_or(pointer).to_owned());
    pointer.or_else(|| detail["parameter"].as_str().map(|name| format!("/{name}")))
}

/// The detail of a problem document.
pub(crate) fn sentence(reply: &Reply) -> String {
    let problem: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    problem["detail"].as_str().map_or_else(|| format!("the server responded with {}", reply.status), str::to_owned)
}

/// The message of a diagnostic with its hint.
fn with_hint(diagnostic: &Value) -> String {
    let message = diagnostic["message"].as_str().unwrap_or_default();
    let hint = diagnostic["hint"].as_str().map(|hint| format!("\nhint: {hint}"));
    format!("{message}{}", hint.unwrap_or_default())
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": clipped(text)})
}

/// An output as text: a string without quotes, anything else as JSON.
fn as_text(output: &RawValue) -> String {
    serde_json::from_str::<String>(output.get()).unwrap_or_else(|_| output.get().to_owned())
}

/// The start of a text that is too long, with a note.
fn clipped(text: &str) -> String {
    clipped_to(text, MAX_TEXT)
}

fn clipped_to(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let note = format!("\n[cut: {limit} of {} bytes]", text.len());
    let end = text.floor_char_boundary(limit.saturating_sub(note.len()));
    format!("{}{note}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let cut = clipped(&"ü".repeat(MAX_TEXT));
        assert!(cut.len() <= MAX_TEXT);
        assert!(cut.ends_with("bytes]"));
        assert_eq!(clipped("short"), "short");
    }
}
