//! Approval policies as data (A-7.3, `b-stages` §11.1).

use crate::pattern::{Pattern, Subject, Verdict, split, verdict};
use crate::tool::{Effect, Tool};

etude_core::words! {
    /// Decision about calls that change something.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Mode {
        /// A person is asked, unless a pattern allows the call.
        #[default]
        Ask = "ask",
        /// Calls that a pattern allows are allowed, all others are denied.
        Allowlist = "allowlist",
        /// All calls are allowed, except those that a pattern with `$deny` names.
        Yolo = "yolo",
    }
}

/// A policy for calls that change something: `approvals` of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Decision about calls that no pattern matches.
    pub mode: Mode,
    /// Patterns over calls; see [`crate::pattern`].
    pub allow: Vec<Pattern>,
}

/// Decision of a policy about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The call may be made.
    Allow,
    /// A person must be asked. If no one can be asked, this becomes a denial with [`Decision::unanswered`], or the run waits.
    Ask {
        /// The approval key: equal for calls that one decision may cover. It must be compared as text: as a pattern, the key
        /// of the command `git *` would match all commands that begin like it.
        key: String,
        /// The question, in one line.
        summary: String,
    },
    /// The call must not be made.
    Deny {
        /// The code for records: `NotOnAllowlist` or `DeniedByPolicy`.
        code: &'static str,
        /// The reason, in one sentence for the model.
        reason: String,
    },
}

impl Policy {
    /// A policy from the values of a configuration.
    pub fn new<T: AsRef<str>>(mode: Mode, allow: &[T]) -> Self {
        Self { mode, allow: allow.iter().map(|text| Pattern::parse(&with_tool(text.as_ref()))).collect() }
    }

    /// The policy of `approvals` in the configuration. The default mode is `ask`.
    pub fn from_definition(approvals: &etude_spec::config::Approvals) -> Self {
        let mode = approvals.mode.as_deref().and_then(Mode::from_word).unwrap_or_default();
        Self::new(mode, &approvals.allow)
    }

    /// Adopts the patterns of another policy that deny or ask. Its patterns that allow are not adopted.
    pub fn limit_by(&mut self, other: Self) {
        self.allow.extend(other.allow.into_iter().filter(Pattern::is_limit));
    }

    /// Decides one call of `tool`. Tools that only read, and tools declared `gated: false`, need no approval, but a `$deny`
    /// for them still applies.
    pub fn judge(&self, tool: &Tool, subject: &Subject<'_>) -> Decision {
        let key = subject.key();
        let free = tool.effect == Effect::Reads || !tool.gated;
        match (verdict(&self.allow, subject), self.mode) {
            (Verdict::Deny, _) => {
                Decision::Deny { code: Decision::BY_NAME, reason: denial(&key, subject.is_unreadable()) }
            }
            (Verdict::Ask, _) => Decision::Ask { summary: summary(tool, &key, subject.written()), key },
            (Verdict::Allow, _) | (Verdict::Unlisted, Mode::Yolo) => Decision::Allow,
            (Verdict::Unlisted, _) if free => Decision::Allow,
            (Verdict::Unlisted, Mode::Ask) => Decision::Ask { summary: summary(tool, &key, subject.written()), key },
            (Verdict::Unlisted, Mode::Allowlist) => Decision::Deny {
                code: "NotOnAllowlist",
                reason: format!("`{}` is not on the allowlist", crate::bound::one_line(&key, 200)),
            },
        }
    }
}

impl Decision {
    /// The code of a call that a `$deny` names: no one can approve it.
    pub const BY_NAME: &'static str = "DeniedByPolicy";

    /// Turns a question into a denial, where no one can be asked and the run does not wait.
    pub fn unanswered(self) -> Self {
        match self {
            Self::Ask { key, .. } => Self::Deny {
                code: "NobodyToAsk",
                reason: format!(
                    "`{}` needs approval, and no one can be asked here; add it to `approvals: allow`",
                    crate::bound::one_line(&key, 200)
                ),
            },
            decided => decided,
        }
    }
}

/// The reason of a denial by name. A command that cannot be read gets a hint on a readable form.
fn denial(key: &str, is_unreadable: bool) -> String {
    let key = crate::bound::one_line(key, 200);
    match is_unreadable {
        false => format!("the policy denies `{key}`"),
        true => format!(
            "the policy denies some commands, and the text of `{key}` does not show its commands; use simple \
             commands without substitutions, functions and here-documents"
        ),
    }
}

/// Completes a pattern. One that begins like a command, such as `git *`, is one for `Bash` (`design: cli`, `approvals`). A
/// directive after a pattern, such as `deploy, $deny`, moves into its parentheses.
fn with_tool(text: &str) -> String {
    let items: Vec<&str> = split(text, |c| c == ',').collect();
    let directives = items.iter().rev().take_while(|item| item.starts_with('$')).count();
    let (head, directives) = items.split_at(items.len() - directives);
    let (head, directives) = (head.join(", "), directives.join(", "));
    let name = head.split('(').next().unwrap_or_default();
    match (name.trim().contains(char::is_whitespace), directives.is_empty(), head.strip_suffix(')')) {
        _ if head.is_empty() => text.to_owned(),
        (true, ..) => format!("Bash({text})"),
        (false, true, _) => text.to_owned(),
        (false, false, Some(open)) => format!("{open}, {directives})"),
        (false, false, None) => format!("{head}({directives})"),
    }
}

/// A key in one line, with line breaks marked and other control characters escaped, so that the question shows the call that
/// runs. A long one loses its middle, never its end, which may be what matters. The arguments beside the question have the
/// whole.
fn shortened(key: &str) -> String {
    const MAX_COUNT: usize = 600;
    let mut text = String::with_capacity(key.len());
    for c in key.trim_end_matches('\n').chars() {
        match c {
            '\n' => text.push_str(" ⏎ "),
            c if c.is_control() => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= MAX_COUNT {
        return characters.into_iter().collect();
    }
    let (start, end): (String, String) =
        (characters[..MAX_COUNT / 2].iter().collect(), characters[characters.len() - MAX_COUNT / 2..].iter().collect());
    format!("{start} … [{} characters, see the arguments] … {end}", characters.len() - MAX_COUNT)
}

fn summary(tool: &Tool, key: &str, written: Option<&str>) -> String {
    let mut what = shortened(key);
    if let Some(written) = written {
        what.push_str(&format!(" (written as `{}`)", shortened(written)));
    }
    match tool.effect {
        Effect::Reads => format!("read: {what}"),
        Effect::Writes => format!("change a file: {what}"),
        Effect::Executes => format!("run: {what}"),
        Effect::External => format!("call an MCP server: {what}"),
    }
}

#[cfg(test)]
mod tests;
