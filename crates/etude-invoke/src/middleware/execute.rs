//! Middleware that runs the function or the prompt of a tool.

use crate::chain::{Middleware, Options, Resume, Step, ToolHandler, View};
use serde_json::json;

/// Runs the function of a code tool on its own context, then continues with any result (D-7.4).
pub(super) struct Execute;

/// Passes the prompt of a Markdown tool to the agent, unless the tool already has a result (D-10).
pub(super) struct AgentExecute;

impl Middleware for Execute {
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step {
        match resume {
            Resume::Start => Step::Execute,
            Resume::Executed(Ok(value)) => {
                if value.is_some() {
                    view.target_mut().result = value;
                }
                Step::Next
            }
            Resume::Executed(Err(throw)) | Resume::Next(Err(throw)) => Step::Throw(throw),
            _ => Step::Done(None),
        }
    }
}

impl Middleware for AgentExecute {
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step {
        match resume {
            Resume::Start => {
                let target = view.target();
                let prompt = target.prompt.as_deref().map(str::trim).filter(|prompt| !prompt.is_empty());
                let is_prompt = matches!(target.tool.body, ToolHandler::Nothing) && target.result.is_none();
                let Some(prompt) = prompt.filter(|_| is_prompt) else { return Step::Done(None) };
                let args = json!({
                    "prompt": prompt,
                    "config": &*target.config,
                    "allowedTools": target.tool.allowed_tools.as_deref(),
                    "returns": target.about("returns"),
                });
                let options = Options { is_exempt: true, ..Options::default() };
                Step::Invoke { reference: "agent".to_owned(), args, options }
            }
            Resume::Invoked(Ok(value)) => {
                view.target_mut().result = value;
                Step::Done(None)
            }
            Resume::Invoked(Err(throw)) => Step::Throw(throw),
            _ => Step::Done(None),
        }
    }
}
