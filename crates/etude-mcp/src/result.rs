//! Results of tools: the document of a run as a model reads it.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::{Api, Reply};
use crate::wire::{Outcome, raw};

mod wire;

use wire::Structured;
pub(crate) use wire::{Envelope, Run, ToolResult};

/// The most of an output that a result has as text, in bytes. The rest is a link.
const MAX_TEXT: usize = 16 * 1024;

impl Run {
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// True if nothing more comes of it by itself.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "succeeded" | "failed" | "cancelled")
    }

    /// The address of its page.
    pub(crate) fn url(&self, api: &dyn Api) -> Option<String> {
        Some(format!("{}{}", api.pages()?, self.links["page"].as_str()?))
    }

    /// The reason of its end.
    fn reason(&self) -> String {
        let first = self.errors.first();
        let message = first.and_then(|error| error["message"].as_str());
        let hint = first.and_then(|error| error["hint"].as_str()).map(|hint| format!("\nhint: {hint}"));
        let message = message.map_or_else(|| format!("run {} has {}", self.run_id, self.status), str::to_owned);
        format!("{message}{}", hint.unwrap_or_default())
    }
}

impl ToolResult {
    /// The result as it is sent.
    pub(crate) fn to_raw(&self) -> Outcome {
        raw(self)
    }

    /// A document that a fixed tool returns.
    pub(crate) fn document(body: &[u8]) -> Result<Self, String> {
        let document = serde_json::from_slice::<Box<RawValue>>(body).map_err(|e| e.to_string())?;
        let content = vec![text(document.get())];
        Ok(Self { content, structured_content: document, is_error: false })
    }

    /// A problem of the interface, which a model can correct. `is_run`: the tool's results are those of runs.
    pub(crate) fn problem(reply: &Reply, is_run: bool) -> Self {
        let problem: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let details = problem["errors"].as_array();
        let error = |detail: &Value| {
            let pointer = detail["pointer"].as_str().map(|pointer| pointer.strip_prefix("/input").unwrap_or(pointer));
            json!({"kind": problem["code"], "message": detail["detail"], "pointer": pointer})
        };
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
        let fields = details.into_iter().flatten().filter_map(|detail| {
            let pointer = detail["pointer"].as_str()?;
            let pointer = pointer.strip_prefix("/input").unwrap_or(pointer);
            (!pointer.is_empty()).then(|| format!("\n{pointer}: {}", detail["detail"].as_str().unwrap_or_default()))
        });
        message.extend(fields.collect::<Vec<_>>());
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

    /// What became of a command. It has no run.
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
        // There is no resource with the rest of it.
        let structured = Structured { run_id: None, status, output, errors: &errors, usage: &Value::Null, url: None };
        let structured_content = serde_json::value::to_raw_value(&structured).unwrap_or_default();
        Self { content, structured_content, is_error }
    }

    /// What became of a run. `note` is said first of a run that is not over.
    pub(crate) fn of_run(api: &dyn Api, run: &Run, note: &str) -> Result<Self, String> {
        let url = run.url(api);
        let id = &run.run_id;
        let mut content = Vec::new();
        let is_error = matches!(run.status.as_str(), "failed" | "cancelled");
        if is_error {
            content.push(text(&run.reason()));
        } else if run.is_over() {
            content.push(text(&as_text(&run.output)));
        } else {
            content.push(text(note));
        }
        let mut output = run.output.as_ref();
        let is_large = output.get().len() > MAX_TEXT;
        let null = RawValue::NULL;
        if is_large {
            output = null;
            content.push(json!({
                "type": "resource_link", "uri": format!("etude://runs/{id}/output"), "name": format!("output of run {id}"),
                "mimeType": "application/json", "size": run.output.get().len(),
            }));
        }
        let structured =
            Structured { run_id: Some(id), status: &run.status, output, errors: &run.errors, usage: &run.usage, url };
        let structured_content = serde_json::value::to_raw_value(&structured).map_err(|e| e.to_string())?;
        Ok(Self { content, structured_content, is_error })
    }
}

/// The sentence of a problem document.
pub(crate) fn sentence(reply: &Reply) -> String {
    let problem: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    problem["detail"].as_str().map_or_else(|| format!("the server responded with {}", reply.status), str::to_owned)
}

/// The message of a diagnostic with what to do about it.
fn with_hint(diagnostic: &Value) -> String {
    let message = diagnostic["message"].as_str().unwrap_or_default();
    let hint = diagnostic["hint"].as_str().map(|hint| format!("\nhint: {hint}"));
    format!("{message}{}", hint.unwrap_or_default())
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": clipped(text)})
}

/// An output as text: a string as it is, anything else as JSON.
fn as_text(output: &RawValue) -> String {
    serde_json::from_str::<String>(output.get()).unwrap_or_else(|_| output.get().to_owned())
}

/// The start of a text that is too long, with a note.
fn clipped(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let note = format!("\n[cut: {} of {} bytes]", MAX_TEXT, text.len());
    let end = (0..=MAX_TEXT - note.len()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
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
