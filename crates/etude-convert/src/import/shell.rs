//! Code steps from shell text of other programs: a script file that runs in the caller's directory, with its variables in
//! `env`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use etude_core::shell;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::Building;
use crate::compile::File;

/// A word that can be the name of a variable.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[A-Za-z_][A-Za-z0-9_]*").ok());

/// About how many bytes a step has without its texts, and a variable that takes its value from the environment.
pub(super) const STEP: usize = 100;
const NAME: usize = 50;

/// Shell text of a step.
pub(super) struct Script<'a> {
    /// The name of the step.
    pub(super) name: &'a str,
    /// The text.
    pub(super) text: &'a str,
    /// The shell that runs it, with its options.
    pub(super) shell: &'a str,
    /// Its variables.
    pub(super) env: Map<String, Value>,
    /// The directory as a word of shell text, see [`place`].
    pub(super) place: &'a str,
    /// A variable whose value is its stdin; without one, stdin is empty.
    pub(super) stdin: Option<&'a str>,
}

impl Building {
    /// A code step that runs the text as a script file.
    ///
    /// # Errors
    /// The pipeline has too many bytes: the reason.
    pub(super) fn script(&mut self, script: Script<'_>) -> Result<Value, String> {
        let Script { name, text, shell, env, place, stdin } = script;
        let of_env = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(NAME, str::len);
        self.charge(STEP + text.len() + env.iter().map(of_env).sum::<usize>())?;
        let path = format!("steps/{name}.sh");
        let (command, input) = match stdin {
            Some(variable) => (format!("printf '%s' \"${variable}\" | {shell} {path}"), ""),
            // The input of a code step is JSON, which other programs do not give to their commands.
            None => (format!("{shell} {path}"), "exec </dev/null\n"),
        };
        self.files.push(File { path, text: format!("cd {place} || exit 1\n{input}{}\n", text.trim()) });
        let mut step = json!({"name": name, "type": "code", "command": command, "output": "text"});
        if !env.is_empty() {
            step["env"] = Value::Object(env);
        }
        Ok(step)
    }
}

/// The directory of the caller as a word of shell text.
pub(super) const CALLER: &str = "\"$ETUDE_CALLER_DIR\"";

/// A directory as a word of shell text: an absolute one as it is, others below that of the caller.
///
/// # Errors
/// The directory is computed, or below a home directory: why the step is not imported.
pub(super) fn place(dir: Option<&str>) -> Result<String, String> {
    let Some(dir) = dir.filter(|dir| !dir.is_empty()) else { return Ok(CALLER.to_owned()) };
    if dir.contains(['$', '`']) || dir.starts_with('~') {
        return Err(format!("its directory `{dir}` is computed"));
    }
    let quoted = shell::quoted(dir);
    Ok(if dir.starts_with('/') { quoted } else { format!("{CALLER}/{quoted}") })
}

/// Variables that a program sets for every command.
pub(super) struct Provider {
    /// The program.
    pub(super) name: &'static str,
    /// How the names of its variables start.
    pub(super) prefixes: &'static [&'static str],
    /// Names that count only after `$`, because they are also common words.
    pub(super) words: &'static [&'static str],
}

/// Variables of shell text: those with a value, and those that were dropped because their value has no counterpart.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    /// The values: templates, or `{from_env: NAME}`.
    pub(super) values: Map<String, Value>,
    dropped: BTreeSet<String>,
}

impl Variables {
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.dropped.remove(name);
        self.values.insert(name.to_owned(), value);
    }

    pub(super) fn drop(&mut self, name: &str) {
        self.values.remove(name);
        self.dropped.insert(name.to_owned());
    }

    /// Why shell text cannot be imported: it mentions a dropped variable, or one that only `provider` sets.
    pub(super) fn refusal(&self, text: &str, provider: &Provider) -> Option<String> {
        for found in WORD.iter().flat_map(|pattern| pattern.find_iter(text)) {
            let word = found.as_str();
            let before = text[..found.start()].chars().next_back().unwrap_or(' ');
            let is_reference = matches!(before, '$' | '{' | '!' | '#');
            let is_option = before == '-' || text[found.end()..].starts_with('-');
            if self.dropped.contains(word) && (is_reference || !is_option) {
                return Some(format!("it reads the variable `{word}`, whose value has no counterpart"));
            }
            let is_provided = provider.prefixes.iter().any(|prefix| word.starts_with(prefix) && word != *prefix)
                || is_reference && provider.words.contains(&word);
            if is_provided && !self.values.contains_key(word) {
                return Some(format!("it reads `{word}`, a variable that only {} sets", provider.name));
            }
        }
        None
    }
}

/// A text as a template that is only that text.
pub(super) fn literal(text: &str) -> Value {
    json!(text.replace("{{", r"\{{"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_absolute_or_below_that_of_the_caller() {
        assert_eq!(place(None).as_deref(), Ok("\"$ETUDE_CALLER_DIR\""));
        assert_eq!(place(Some("a b")).as_deref(), Ok("\"$ETUDE_CALLER_DIR\"/'a b'"));
        assert_eq!(place(Some("/srv/it's")).as_deref(), Ok(r"'/srv/it'\''s'"));
        for computed in ["$HOME/x", "${{ inputs.dir }}", "~/x", "~", "a/`date`"] {
            assert!(place(Some(computed)).is_err(), "{computed}");
        }
    }

    /// Dropped variables count in every form, except as a part of an option.
    #[test]
    fn texts_that_read_variables_without_a_value_are_refused() {
        let provider = Provider { name: "GitHub Actions", prefixes: &["GITHUB_"], words: &["CI"] };
        let mut variables = Variables::default();
        variables.drop("day");
        variables.set("GITHUB_TOKEN", json!({"from_env": "GITHUB_TOKEN"}));
        let refused = [
            "echo $day",
            "echo ${day:-x}",
            "echo ${#day}",
            "printenv day",
            "echo x-$day",
            "echo $GITHUB_SHA",
            "echo a >> \"$GITHUB_OUTPUT\"",
            "python3 -c 'os.environ[\"GITHUB_REF\"]'",
            "test \"$CI\"",
            "echo ${CI}",
        ];
        for text in refused {
            assert!(variables.refusal(text, &provider).is_some(), "{text}");
        }
        for text in ["report --day 3", "echo $days", "curl -H $GITHUB_TOKEN", "make CI", "echo GITHUB_"] {
            assert_eq!(variables.refusal(text, &provider), None, "{text}");
        }
        variables.set("day", json!("1"));
        assert_eq!(variables.refusal("echo $day", &provider), None);
    }
}
