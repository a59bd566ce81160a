//! Command lines with separate arguments, with which steps may call `Bash` (L-33).

use std::sync::Arc;

use etude_core::shell;
use etude_core::tool::ToolResult;
use etude_tools::tool::members;
use serde_json::Value;

/// The arguments of `Bash` as an agent would give them: one line that contains its words. Policies, people and middleware judge
/// that line (L-43).
///
/// # Errors
/// The line does not accept its arguments.
pub(super) fn judged(tool: &str, args: Arc<Value>) -> Result<Arc<Value>, ToolResult> {
    let is_own = |name: &String| name.starts_with(shell::ARGUMENT);
    let count = members(&args).keys().filter(|name| is_own(name)).count();
    if tool != shell::TOOL || count == 0 {
        return Ok(args);
    }
    let invalid =
        |why: &str| ToolResult::terminal("InputInvalid", &format!("the arguments of `{}`: {why}", shell::TOOL));
    let texts = shell::arguments(&args);
    if texts.len() != count {
        return Err(invalid("`argument_1`, `argument_2` and so on must be texts, and none may be left out"));
    }
    let line = args.get(shell::COMMAND).and_then(Value::as_str).unwrap_or_default();
    let bound = etude_tools::pattern::words::bind(line, &texts).map_err(|why| invalid(&why))?;
    let mut judged = members(&args).clone();
    judged.retain(|name, _| !is_own(name));
    judged.insert(shell::COMMAND.to_owned(), bound.into());
    Ok(Arc::new(judged.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// L-33, L-43: policies and people judge the line with its words, whatever the words contain.
    #[test]
    fn a_line_is_judged_with_its_words() {
        let of = |args: Value| judged("Bash", Arc::new(args)).map(|args| Value::clone(&args));
        assert_eq!(of(json!({"command": "make all"})), Ok(json!({"command": "make all"})));
        let line = "git tag \"$1\"";
        assert_eq!(
            of(json!({"command": line, "argument_1": "a; rm -r /", "timeout": 5})),
            Ok(json!({"command": "git tag 'a; rm -r /'", "timeout": 5}))
        );
        for wrong in [
            json!({"argument_1": 1}),
            json!({"argument_2": "a"}),
            json!({"argument_1": "-x"}),
            json!({"argument_1": ""}),
            json!({"argument_1": "a", "argument_2": "b"}),
            json!({"argument_1": "a", "argument_x": "b"}),
        ] {
            let mut args = json!({"command": line});
            args.as_object_mut().expect("an object").extend(wrong.as_object().cloned().expect("an object"));
            let refused = of(args).expect_err("refused");
            assert_eq!(refused.error.map(|error| error.code), Some("InputInvalid".to_owned()));
        }
        let other = Arc::new(json!({"command": "x", "argument_1": 1}));
        assert_eq!(judged("run", Arc::clone(&other)), Ok(other), "another tool takes what it takes");
    }
}
