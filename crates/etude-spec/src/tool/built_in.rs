//! Names and types of the arguments of the built-in tools, for checks of definitions.

use etude_core::shell::ARGUMENT;
use serde_json::{Map, Value, json};

/// An argument: its name, its JSON type (empty for several values), and true if a call needs it.
pub type Argument = (&'static str, &'static str, bool);

/// The built-in tools with their arguments.
pub const ARGUMENTS: &[(&str, &[Argument])] = &[
    ("Read", &[("path", "string", true), ("offset", "integer", false), ("limit", "integer", false)]),
    ("Write", &[("path", "string", true), ("content", "string", true)]),
    (
        "Edit",
        &[
            ("path", "string", true),
            ("old_string", "string", true),
            ("new_string", "string", true),
            ("replace_all", "boolean", false),
        ],
    ),
    ("Glob", &[("pattern", "string", true), ("path", "string", false)]),
    (
        "Grep",
        &[
            ("pattern", "string", true),
            ("path", "string", false),
            ("glob", "string", false),
            ("mode", "", false),
            ("ignore_case", "boolean", false),
            ("context", "integer", false),
        ],
    ),
    ("List", &[("path", "string", false), ("depth", "integer", false)]),
    ("Bash", &[("command", "string", true), ("timeout", "integer", false), ("description", "string", false)]),
];

/// Schema of a built-in tool's arguments, with their names and types; `None` for another tool.
pub(crate) fn schema(tool: &str) -> Option<Value> {
    let (_, arguments) = ARGUMENTS.iter().find(|(name, _)| *name == tool)?;
    let of_type = |kind: &str| if kind.is_empty() { json!({}) } else { json!({ "type": kind }) };
    let properties: Map<String, Value> =
        arguments.iter().map(|(name, kind, _)| ((*name).to_owned(), of_type(kind))).collect();
    let required: Vec<&str> = arguments.iter().filter(|(.., required)| *required).map(|(name, ..)| *name).collect();
    Some(json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}))
}

/// True if steps may pass positional parameters to the tool: see [`is_positional`].
pub(crate) fn has_positional(tool: &str) -> bool {
    tool == "Bash"
}

/// True if `name` is a positional parameter of the command line of `Bash` (L-43).
pub(crate) fn is_positional(tool: &str, name: &str) -> bool {
    has_positional(tool) && name.starts_with(ARGUMENT)
}
