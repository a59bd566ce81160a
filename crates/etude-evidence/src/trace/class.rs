//! Effect classes of tools: they read or write (1.3).

use etude_spec::tool::AppTool;

/// Effect class of a tool: `reads`, `writes` or `unknown`, which counts as a write.
pub fn effect_class(tool: &str, app: &[AppTool]) -> &'static str {
    let of_app = |tool: &AppTool| match (tool.effects, tool.gated) {
        (Some(true), _) => "writes",
        (Some(false), _) | (None, false) => "reads",
        (None, true) => "unknown",
    };
    let own = app.iter().find(|own| own.name == tool);
    own.map_or_else(|| of_builtin(tool), of_app)
}

fn of_builtin(tool: &str) -> &'static str {
    match tool {
        "Read" | "Glob" | "Grep" | "List" | "activate_skill" => "reads",
        "Write" | "Edit" => "writes",
        _ => "unknown",
    }
}
