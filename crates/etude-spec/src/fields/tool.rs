//! The fields of `tools/<name>.yaml` (`b-stages` §20.5).

use crate::fields::FieldKind::{ArgsTemplate, Bool, Data, Duration, Entries, List, Prose, Text};
use crate::fields::Object;

/// A whole `tools/<name>.yaml`.
pub static TOOL: Object = Object {
    name: "a tool",
    doc: "A tool of the app: a program that an agent may call, with JSON on stdin and JSON on stdout.",
    fields: &[fields! {
        required "name": Text, "issue_lookup", "Name of the tool; the same as the file's.";
        required "description": Prose, "Looks up an issue by its number.", "Description for the model.";
        optional "inputSchema": Entries(&Data), "{type: object, properties: {number: {type: integer}}, required: [number]}",
            "JSON Schema of its arguments."
            => default "{type: object}";
        required "command": Text, "python3 tools/issue_lookup.py",
            "The program; it runs in the app's directory."
            => instead "the program reads its arguments as one JSON object from stdin";
        optional "gated": Bool, "false", "True if a call needs approval." => default "true";
        optional "effects": Bool, "true", "True if a call changes something outside the app; `etude learn` uses it."
            => default "false if `gated: false`, otherwise not known";
        optional "approvalKey": ArgsTemplate, "\"issue_lookup({{args.number}})\"",
            "Text that patterns of `approvals` match; by default the name.";
        optional "timeout": Duration, "5m", "Maximum time for one call." => default "2m";
        optional "tags": List(&Text), "[files, network]", "Words that patterns such as `#network` select by.";
    }],
};
