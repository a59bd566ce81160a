//! Check that the recipes of the justfile are documented commands, so that nothing requires `just`.

use crate::tree::{Tree, Violation};

const RECIPES: &str = "justfile";
const COMMANDS: &str = "CONTRIBUTING.md";

/// Recipes and commands of the justfile that `CONTRIBUTING.md` lacks. Private recipes (`_name`) are ignored.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let (Some(justfile), Some(documented)) = (tree.text(RECIPES), tree.text(COMMANDS)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut require = |line: usize, text: String| {
        if !documented.contains(&format!("`{text}`")) && !documented.contains(&format!("`{text} ")) {
            found.push(Violation::at(RECIPES, line + 1, format!("`{text}` is not in {COMMANDS}")));
        }
    };
    let mut parameter = None;
    for (line, text) in justfile.lines().enumerate() {
        if let Some(command) = text.strip_prefix("    ") {
            if let Some(parameter) = parameter.filter(|_| !command.starts_with('@')) {
                require(line, documented_form(command, parameter));
            }
        } else if let Some((recipe, parameters)) = header(text) {
            // Optional parameters are not in the documented form.
            parameter = Some(if parameters.starts_with(['*', '+']) { "" } else { parameters });
            require(line, format!("just {recipe} {}", parameter.unwrap_or_default()).trim_end().to_owned());
        } else {
            parameter = parameter.filter(|_| text.is_empty());
        }
    }
    found
}

/// Name and parameters of a public recipe's first line.
fn header(line: &str) -> Option<(&str, &str)> {
    let (declared, _) = line.split_once(':').filter(|(_, rest)| !rest.starts_with('='))?;
    let (name, parameters) = declared.split_once(' ').unwrap_or((declared, ""));
    (name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.contains('"')).then_some((name, parameters))
}

/// The command with the parameter's name as its value, unquoted.
fn documented_form(command: &str, parameter: &str) -> String {
    command.replace("\"$@\"", parameter).replace("$1", parameter).replace('"', "").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUSTFILE: &str = "# Shortcuts: all of them.\nset positional-arguments\n\n_list:\n    @just --list\n\n# tests: some\n\
                            one NAME:\n    cargo test \"$1\"\n\nbench *ARGS:\n    bench/run \"$@\"\n";

    fn seen(documented: &str) -> Vec<(usize, String)> {
        let tree = Tree::made_up(&[("justfile", JUSTFILE), ("CONTRIBUTING.md", documented)]);
        check(&tree).into_iter().map(|found| (found.line, found.what)).collect()
    }

    #[test]
    fn recipes_with_their_commands_are_documented() {
        assert_eq!(seen("`just one NAME`: `cargo test NAME`. `just bench`: `bench/run` (`--check`)"), []);
    }

    #[test]
    fn what_only_just_knows_is_seen() {
        let lines: Vec<usize> = seen("`cargo test NAME`, `just bench`").into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [8, 12]);
        assert_eq!(
            seen("`just one NAME`, `cargo test`, `just bench`, `bench/run`")[0].1,
            "`cargo test NAME` is not in CONTRIBUTING.md"
        );
    }
}
