//! Code steps from shell text of other programs: a script file that runs in the caller's directory, with its variables in
//! `env`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use etude_core::shell;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::{Building, again, is_name};
use crate::command::words::Quotes;
use crate::compile::File;

/// Word that can be the name of a variable.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[A-Za-z_][A-Za-z0-9_]*").ok());

/// `${NAME}` or `$NAME`.
static REFERENCE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))").ok());

/// Approximate size in bytes of a step without its texts, and of a variable with a value from the environment.
pub(super) const STEP: usize = 100;
const NAME: usize = 50;

/// Maximum size in bytes of a value that is composed of others, and maximum number of variables that a script sets itself.
const MAX_TEXT: usize = 1 << 16;
const MAX_EXPORTS: usize = 100;

/// Shell text of a step.
pub(super) struct Script<'a> {
    /// The name of the step.
    pub(super) name: &'a str,
    /// Content of the script file, placeholders included.
    pub(super) text: &'a str,
    /// The shell that runs it, with its options.
    pub(super) shell: &'a str,
    /// Environment variables of the step, with their values.
    pub(super) env: Map<String, Value>,
    /// The directory as a word of shell text, see [`place`].
    pub(super) place: &'a str,
    /// Stdin; `None` if it is empty.
    pub(super) stdin: Option<Stdin>,
}

/// The stdin of a step.
pub(super) enum Stdin {
    /// The value of this variable as it is.
    Text(String),
    /// The output of another step, which is the value of this variable. Its last line break has been removed.
    Output(String),
}

impl Stdin {
    /// Shell text that prints the stdin.
    fn printed(&self) -> String {
        match self {
            Self::Text(variable) => format!("printf '%s' \"${variable}\""),
            Self::Output(variable) => format!("printf \"${{{variable}:+%s\\n}}\" \"${variable}\""),
        }
    }
}

impl Building {
    /// Code step that runs the text as a script file.
    ///
    /// # Errors
    /// The pipeline would have too many bytes, or the text evaluates a value again: the reason.
    pub(super) fn script(&mut self, script: Script<'_>) -> Result<Value, String> {
        let Script { name, text, shell, env, place, stdin } = script;
        if let Some(reason) = again::refusal(text, &env) {
            return Err(reason);
        }
        let of_env = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(NAME, str::len);
        self.charge(STEP + text.len() + env.iter().map(of_env).sum::<usize>())?;
        let path = format!("steps/{name}.sh");
        let (command, input) = match stdin {
            Some(stdin) => (format!("{} | {shell} {path}", stdin.printed()), ""),
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

/// Directory of the caller as a word of shell text.
pub(super) const CALLER: &str = "\"$ETUDE_CALLER_DIR\"";

/// Directory as a word of shell text: an absolute path as it is, others below that of the caller.
///
/// # Errors
/// The directory is computed, or below a home directory: the reason why the step is not imported.
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
    /// Name of the program.
    pub(super) name: &'static str,
    /// Prefixes of the names of its variables.
    pub(super) prefixes: &'static [&'static str],
    /// Names that count only after `$`, because they are also common words.
    pub(super) words: &'static [&'static str],
}

/// Variables of shell text: those with a value, and those that were dropped because their value has no equivalent.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    /// Values by name: templates, or `{from_env: NAME}`.
    pub(super) values: Map<String, Value>,
    /// Variables that the script itself sets, in this order, as words of shell text.
    exports: Vec<(String, String)>,
    dropped: BTreeSet<String>,
}

impl Variables {
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.unmake(name);
        self.dropped.remove(name);
        self.values.insert(name.to_owned(), value);
    }

    pub(super) fn drop(&mut self, name: &str) {
        self.unmake(name);
        self.values.remove(name);
        self.dropped.insert(name.to_owned());
    }

    /// Removes a variable from those that the script sets. Variables composed of its earlier value are dropped.
    fn unmake(&mut self, name: &str) {
        self.exports.retain(|(known, _)| known != name);
        let part = format!("${{{name}}}");
        for (known, _) in self.exports.extract_if(.., |(_, word)| word.contains(&part)) {
            self.values.remove(&known);
            self.dropped.insert(known);
        }
    }

    /// Sets a variable to a text that may contain `$NAME` and `${NAME}` of known variables, and `$HOME`. False if the text
    /// has other variables, or anything else that is computed.
    pub(super) fn set_text(&mut self, name: &str, text: &str) -> bool {
        let Some(pattern) = REFERENCE.as_ref().filter(|_| !text.contains(['`', '\\']) && is_name(name)) else {
            return false;
        };
        let (mut template, mut word, mut from, mut is_template) = (String::new(), String::new(), 0, true);
        for found in pattern.captures_iter(text) {
            let (Some(all), Some(known)) = (found.get(0), found.get(1).or(found.get(2))) else { return false };
            let (before, known) = (&text[from..all.start()], known.as_str());
            template.push_str(literal(before).as_str().unwrap_or_default());
            word.push_str(&quoted(before));
            word.push_str(&format!("\"${{{known}}}\""));
            match self.values.get(known).and_then(Value::as_str) {
                Some(value) => template.push_str(value),
                None => is_template = false,
            }
            let is_exported = self.exports.iter().any(|(name, _)| name == known);
            let is_home = known == "HOME" && !self.dropped.contains(known);
            if before.contains('$') || !is_exported && !is_home && !self.values.contains_key(known) {
                return false;
            }
            from = all.end();
            if template.len() > MAX_TEXT {
                return false;
            }
        }
        let rest = &text[from..];
        if rest.contains('$') {
            return false;
        }
        template.push_str(literal(rest).as_str().unwrap_or_default());
        word.push_str(&quoted(rest));
        match is_template {
            true => self.set(name, json!(template)),
            // The script has the earlier value, and the new one may be composed of it.
            false if self.exports.len() >= MAX_EXPORTS => return false,
            false => {
                self.dropped.remove(name);
                self.exports.push((name.to_owned(), word));
            }
        }
        true
    }

    /// Shell text that sets the variables which the script itself sets.
    pub(super) fn exports(&self) -> String {
        self.exports.iter().map(|(name, word)| format!("export {name}={word}\n")).collect()
    }

    /// A variable with a value that is in single quotes, where a shell does not replace it.
    pub(super) fn in_single_quotes<'t>(&self, text: &'t str) -> Option<&'t str> {
        let (quotes, pattern) = (Quotes::new(text), REFERENCE.as_ref()?);
        let is_known =
            |name: &str| self.values.contains_key(name) || self.exports.iter().any(|(known, _)| known == name);
        pattern.captures_iter(text).find_map(|found| {
            let (all, name) = (found.get(0)?, found.get(1).or(found.get(2))?);
            let is_text = !matches!(quotes.open_at(all.start()), Ok(None | Some('"')));
            (is_text && is_known(name.as_str())).then_some(name.as_str())
        })
    }

    /// Reason why shell text cannot be imported: it starts a program that may read a variable without a value here.
    pub(super) fn unread(&self, text: &str) -> Option<String> {
        let lost = self.dropped.first().filter(|_| starts_program(text))?;
        let reason = "which its programs may read, has a value without an equivalent";
        Some(format!("the variable `{lost}`, {reason}"))
    }

    /// Reason why shell text cannot be imported: it mentions a dropped variable, or one that only `provider` sets.
    pub(super) fn refusal(&self, text: &str, provider: &Provider) -> Option<String> {
        for found in WORD.iter().flat_map(|pattern| pattern.find_iter(text)) {
            let word = found.as_str();
            let before = text[..found.start()].chars().next_back().unwrap_or(' ');
            let is_reference = matches!(before, '$' | '{' | '!' | '#');
            let is_option = before == '-' || text[found.end()..].starts_with('-');
            if self.dropped.contains(word) && (is_reference || !is_option) {
                return Some(format!("it reads the variable `{word}`, whose value has no equivalent"));
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

/// Text as a word of shell text; empty for an empty text.
fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { shell::quoted(text) }
}

/// Text as a template in which nothing is a reference.
pub(super) fn literal(text: &str) -> Value {
    json!(text.replace("{{", r"\{{"))
}

/// Words of the shell, and programs that do not read variables of others.
const PLAIN: [&str; 56] = [
    ":", "[", "[[", "basename", "break", "case", "cat", "cd", "chmod", "continue", "cp", "cut", "date", "dirname",
    "do", "done", "du", "echo", "elif", "else", "esac", "exit", "export", "false", "fi", "for", "function", "grep",
    "head", "if", "in", "ln", "local", "ls", "mkdir", "mv", "printf", "pwd", "read", "return", "rm", "rmdir", "sed",
    "set", "shift", "sleep", "sort", "tail", "tee", "test", "then", "touch", "tr", "true", "uniq", "wc",
];

/// Words of the shell before a command.
const LEADS: [&str; 9] = ["!", "do", "elif", "else", "if", "then", "until", "while", "{"];

/// True if shell text may start a program of unknown content, which may read any variable.
fn starts_program(text: &str) -> bool {
    let outside = Quotes::new(text).outside(text);
    let is_lead = |word: &&str| LEADS.contains(word) || word.split_once('=').is_some_and(|(name, _)| is_name(name));
    let is_known = |command: &str| {
        // Text after `$(…)` in quotes is the rest of a word.
        let command = match command.strip_prefix(')') {
            Some(rest) if rest.starts_with('"') => return true,
            Some(rest) => rest,
            None => command.trim_start_matches(['\n', ';', '|', '&', '(']),
        };
        let program = command.split_whitespace().find(|word| !is_lead(word));
        program.is_none_or(|word| PLAIN.contains(&word) || word.starts_with(['<', '>', '}']))
    };
    let is_end = |c: char| ['\n', ';', '|', '&', '(', ')'].contains(&c);
    let starts = outside.match_indices(is_end).map(|(at, _)| at);
    let ends = starts.clone().chain([outside.len()]);
    text.contains('`') || [0].into_iter().chain(starts).zip(ends).any(|(from, end)| !is_known(&outside[from..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_unknown_content_are_found() {
        for text in
            ["echo a", "A=1 printf '%s' \"$(cat x)\" | sort > y", "if [ -f a ]; then\n  rm a\nfi", "cat <<E\nmake\nE"]
        {
            assert!(!starts_program(text), "{text}");
        }
        for text in
            ["make", "echo `make`", "echo \"$(make)\"", "true && ./a", "A=1 b", "! python3 a", "'ec'ho", "\"$A\" b"]
        {
            assert!(starts_program(text), "{text}");
        }
    }

    #[test]
    fn values_of_known_variables_are_put_together() {
        let mut variables = Variables::default();
        variables.set("OUT", json!("/tmp"));
        variables.set("DAY", json!("{{input.day}}"));
        variables.drop("LOST");
        for (name, text) in
            [("FULL", "${OUT}/$DAY-{{"), ("DIR", "$HOME/it's"), ("SUB", "${DIR}/$DAY"), ("DIR", "${DIR}/2")]
        {
            assert!(variables.set_text(name, text), "{text}");
        }
        assert_eq!(variables.values["FULL"], json!("/tmp/{{input.day}}-\\{{"));
        let expected =
            "export DIR=\"${HOME}\"'/it'\\''s'\nexport SUB=\"${DIR}\"'/'\"${DAY}\"\nexport DIR=\"${DIR}\"'/2'\n";
        assert_eq!(variables.exports(), expected);
        for text in ["`date`", "$(date)", "${OUT:-x}", "$LOST", "$OTHER", "$1", "a\\$OUT", "$"] {
            assert!(!variables.set_text("X", text), "{text}");
        }
        assert!(variables.unread("make").is_some_and(|reason| reason.contains("`LOST`")));
        assert_eq!(variables.unread("echo a"), None);
        for n in 0..200 {
            variables.set_text(&format!("H{n}"), "$HOME");
        }
        assert_eq!(variables.exports().lines().count(), MAX_EXPORTS);
        while variables.set_text("OUT", "$OUT$OUT") {}
        assert!(variables.values["OUT"].as_str().is_some_and(|text| text.len() <= 2 * MAX_TEXT));
        variables.set("DAY", json!("2"));
        assert!(!variables.exports().contains("SUB") && variables.dropped.contains("SUB"));
    }

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
