//! Code steps: the commands of a statement, as they are.

use serde_json::{Map, Value, json};

use super::{Pipeline, Stdout};
use crate::command::Command;
use crate::skill::Skill;
use crate::statement::Statement;

impl Pipeline<'_> {
    pub(super) fn code(&mut self, name: &str, statements: &[&Statement], command: &Command) -> Value {
        let stdout = match self.stdout {
            Stdout::Suggested => suggested(self.source.skill, command),
            stdout => stdout,
        };
        // The input of a code step is JSON, which commands of a skill do not read: only scripts with the protocol do.
        let input = if stdout == Stdout::Protocol { "" } else { " </dev/null" };
        let line = match command.needs_bash {
            true => {
                let of = |s: &&Statement| format!("# Statement {} of SKILL.md, line {}.\n", s.id, s.line);
                let sources: String = statements.iter().map(of).collect();
                let text = format!("{sources}set -e\ncd \"$ETUDE_CALLER_DIR\"\n{}\n", command.text);
                let path = format!("steps/{name}.sh");
                self.file(path.clone(), text);
                format!("bash {path}{input}")
            }
            false if command.text.contains('\n') || stdout == Stdout::Json && ends_its_line(&command.text) => {
                let input = if input.is_empty() { "" } else { "exec </dev/null\n" };
                format!("set -e\n{input}cd \"$ETUDE_CALLER_DIR\"\n{}", command.text)
            }
            false if !input.is_empty() => format!("exec </dev/null && cd \"$ETUDE_CALLER_DIR\" && {}", command.text),
            false => format!("cd \"$ETUDE_CALLER_DIR\" && {}", command.text),
        };
        // Wrap a value that is not an object with `output` into one.
        let line = match (stdout, line.contains('\n')) {
            (Stdout::Json, true) => format!("printf '{{\"output\": '\n{line}\nprintf '}}'"),
            (Stdout::Json, false) => format!("printf '{{\"output\": ' && {line} && printf '}}'"),
            _ => line,
        };
        let mut step = json!({"name": name, "type": "code", "command": line});
        if !command.parameters.is_empty() {
            let value =
                |(name, variable): (&String, &String)| (variable.clone(), json!(format!("{{{{input.{name}}}}}")));
            step["env"] = Value::Object(command.parameters.iter().map(value).collect::<Map<_, _>>());
        }
        if stdout == Stdout::Text {
            step["output"] = json!("text");
        }
        step
    }
}

/// True if no command can follow on the same line: the text may have a comment, or ends in a sign after which `&&` is an
/// error.
fn ends_its_line(text: &str) -> bool {
    text.contains('#') || text.trim_end().ends_with([';', '&'])
}

/// Rule that the source of the script suggests: the protocol if it reads stdin and names `output`, JSON if it writes JSON.
fn suggested(skill: &Skill, command: &Command) -> Stdout {
    let [script] = command.scripts.as_slice() else { return Stdout::Text };
    let Some(text) = skill.file(script).and_then(|file| file.text.as_deref()) else { return Stdout::Text };
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if command.text.contains('\n') || command.text.contains('|') {
        Stdout::Text
    } else if has(&["\"output\"", "'output'"]) && has(&["stdin", "/dev/fd/0", "readFileSync(0", "cat -"]) {
        Stdout::Protocol
    } else if has(&["json.dump", "JSON.stringify", "to_json", "encode_json"]) {
        Stdout::Json
    } else {
        Stdout::Text
    }
}
