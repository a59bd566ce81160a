//! Commands of applications as tools: a call runs one command to its end, without a run.

use std::pin::pin;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::{Api, Reply, Request};
use crate::call::{Arguments, Progress, escaped};
use crate::catalog::Target;
use crate::result::{Envelope, ToolResult};
use crate::service::Context;
use crate::wire::{Outcome, RpcError};

/// A command that an application declares.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    /// The declared words, separated by blanks, such as `box list`.
    path: String,
    /// Longer commands of the application that begin with the same words: their further words, and their paths.
    longer: Vec<(Vec<String>, String)>,
}

/// The commands of an application as tools; none if the application is incompatible or not approved.
pub(crate) fn targets(app: &str, entry: &Value) -> Vec<Target> {
    let is_usable = entry["compatible"] == true && entry["trust"] == "approved";
    let slug = entry["slug"].as_str().filter(|_| is_usable).unwrap_or_default();
    let declared = entry["commands"].as_array().filter(|_| !slug.is_empty());
    let paths: Vec<&str> = declared.into_iter().flatten().filter_map(Value::as_str).collect();
    let confirmed = entry["confirmationRequired"].as_array();
    let target = |path: &&str| {
        let is_confirmed = confirmed.is_some_and(|confirmed| confirmed.iter().any(|one| one == path));
        let about = entry["description"].as_str().unwrap_or_default();
        let note = if is_confirmed { " A person confirms each call." } else { "" };
        Target {
            name: format!("app_{slug}_{}", path.split_whitespace().collect::<Vec<_>>().join("_")),
            app: app.to_owned(),
            kind: "command",
            of: slug.to_owned(),
            description: format!("The command `{path}` of the application `{slug}`.{note}\n{about}"),
            input: input(),
            is_read_only: false,
            command: Some(Command { path: (*path).to_owned(), longer: longer(path, &paths) }),
        }
    };
    paths.iter().map(target).collect()
}

/// The declared paths that begin with the words of `path` and continue.
fn longer(path: &str, paths: &[&str]) -> Vec<(Vec<String>, String)> {
    let words: Vec<&str> = path.split_whitespace().collect();
    let rest = |other: &&str| {
        let other_words: Vec<&str> = other.split_whitespace().collect();
        let rest = other_words.strip_prefix(words.as_slice()).filter(|rest| !rest.is_empty())?;
        Some((rest.iter().map(|word| (*word).to_owned()).collect(), (*other).to_owned()))
    };
    paths.iter().filter_map(rest).collect()
}

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "args": {"type": "array", "items": {"type": "string"}, "description": "The words after the command"},
            "stdin": {"type": "string", "description": "The text on its stdin"},
        },
        "additionalProperties": false,
    })
}

impl Command {
    /// The declared command that these arguments would select instead: the longest path wins.
    fn other(&self, args: &[String]) -> Option<&str> {
        self.longer.iter().find(|(rest, _)| args.starts_with(rest)).map(|(_, path)| path.as_str())
    }

    /// The request that runs the command.
    fn request(&self, target: &Target, arguments: &RawValue) -> Result<Request, Reply> {
        let mut members = Arguments::new(arguments, &["args", "stdin"]);
        let args = members.texts("args");
        let stdin = members.optional("stdin");
        if let Some(path) = self.other(&args) {
            members.fault("args", format!("with these words it is the command `{path}`, which is another tool"));
        }
        if let Some(problem) = members.problem() {
            return Err(problem);
        }
        let argv: Vec<String> = self.path.split_whitespace().map(str::to_owned).chain(args).collect();
        let body = match stdin {
            Some(stdin) => json!({"argv": argv, "stdin": stdin}),
            None => json!({"argv": argv}),
        };
        let path = format!("/v1/apps/{}/commands/{}", escaped(&target.app), escaped(&target.of));
        Ok(Request::post(path, body.to_string()))
    }
}

/// Calls a command. There is no run, so the call returns when the command has ended.
pub(crate) async fn call(
    api: &dyn Api,
    context: &Context,
    target: &Target,
    command: &Command,
    arguments: &RawValue,
) -> Outcome {
    let request = match command.request(target, arguments) {
        Ok(request) => request,
        Err(problem) => return ToolResult::problem(&problem, true).to_raw(),
    };
    let mut progress = Progress::every_ten_seconds(context);
    let mut sending = pin!(api.send(request));
    let reply = loop {
        tokio::select! {
            reply = &mut sending => break reply,
            () = progress.tick() => {}
        }
    };
    let result = match (reply.status, serde_json::from_slice::<Envelope>(&reply.body)) {
        (200, Ok(envelope)) => ToolResult::of_command(&envelope),
        (200, Err(error)) => return Err(RpcError::internal(error.to_string())),
        _ => ToolResult::problem(&reply, true),
    };
    result.to_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-140: only commands of approved packages without errors are tools, each under one name.
    #[test]
    fn only_commands_of_approved_packages_are_tools() {
        let entry = |trust: &str, is_compatible: bool| {
            json!({
                "slug": "box", "description": "Keeps things.", "trust": trust, "compatible": is_compatible,
                "commands": ["item", "item add", "wipe"], "confirmationRequired": ["wipe"],
            })
        };
        let names = |entry: &Value| targets("demo", entry).into_iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(names(&entry("approved", true)), ["app_box_item", "app_box_item_add", "app_box_wipe"]);
        assert!(names(&entry("low", true)).is_empty() && names(&entry("approved", false)).is_empty());
    }

    /// C-0.4: the words of a call do not make another command of it.
    #[test]
    fn arguments_do_not_choose_another_command() {
        let entry = json!({"slug": "box", "trust": "approved", "compatible": true, "commands": ["item", "item add"]});
        let target = targets("demo", &entry).remove(0);
        let command = target.command.clone().expect("a command");
        let request = |arguments: &str| {
            let arguments = RawValue::from_string(arguments.to_owned()).expect("JSON");
            command.request(&target, &arguments).map(|request| (request.path, request.body.unwrap_or_default()))
        };
        let sent = request(r#"{"args": ["show", "a b"], "stdin": ""}"#).expect("a request");
        assert_eq!(sent.0, "/v1/apps/demo/commands/box");
        assert_eq!(sent.1, r#"{"argv":["item","show","a b"],"stdin":""}"#);
        for (arguments, pointer) in
            [(r#"{"args": ["add", "x"]}"#, "/args"), (r#"{"args": [1]}"#, "/args"), (r#"{"argv": []}"#, "/argv")]
        {
            let refused = request(arguments).expect_err("a fault");
            let problem: Value = serde_json::from_slice(&refused.body).expect("a document");
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        }
    }
}
