//! Commands in the body of a skill, which are replaced by their output (C-3.4).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etude_core::effect::{Command, ProcessCall, Protocol, Setting, Stdin};
use etude_core::outcome::Exit;
use etude_process::{Cancel, ProcessHost};
use etude_spec::skill::claude;

use crate::deadline::Deadline;

/// Time limit of one command.
const TIME: Duration = Duration::from_secs(120);

/// Maximum length of a command's output in the body, in bytes.
const MAX_OUTPUT: usize = 30_000;

/// Sends both streams to one pipe, which keeps their order.
const MERGED: &str = r#"exec 1>&2; if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; fi; exec sh -c "$1""#;

/// Runs injected commands in the user's directory and with the user's rights, so only for skills that are approved for
/// execution.
#[derive(Debug, Clone)]
pub struct Shell {
    /// The host, whose app directory is the working directory of commands.
    pub host: Arc<ProcessHost>,
    /// A directory for copies of approved skills.
    pub scratch: PathBuf,
}

/// The result of a command.
pub(super) enum Injected {
    Output(String),
    /// Reason why the whole activation fails.
    Failed(String),
}

impl Shell {
    pub(super) fn run(&self, command: &str, shell: Option<&str>) -> Injected {
        if let Some(other) = shell.filter(|shell| !matches!(*shell, "bash" | "sh")) {
            return Injected::Failed(format!("asks for the shell `{other}`, which is not supported"));
        }
        let words = ["sh", "-c", MERGED, "sh", command].map(str::to_owned).to_vec();
        let call = ProcessCall {
            command: Command::Direct(words),
            dir: String::new(),
            env: Vec::new(),
            key: "skill/command".to_owned(),
            attempt: 1,
            stdin: Stdin::default(),
            protocol: Protocol::Document,
            setting: Setting::default(),
        };
        let printed = Mutex::new(Vec::new());
        let deadline = Deadline::start(TIME, &Cancel::new());
        let ended = self.host.run(&call, deadline.cancel(), &mut |bytes| {
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            let room = (MAX_OUTPUT + 1).saturating_sub(printed.len());
            printed.extend_from_slice(&bytes[..bytes.len().min(room)]);
        });
        let printed = printed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Ok(end) = ended else {
            let why = if deadline.is_over() {
                format!("took longer than {} s", TIME.as_secs())
            } else {
                "was cancelled".into()
            };
            return Injected::Failed(why);
        };
        match end.exit {
            Exit::Status(status) if claude::is_tolerated(command, status) => Injected::Output(shown(&printed)),
            Exit::Status(status) => Injected::Failed(format!("ended with status {status}{}", last_line(&printed))),
            Exit::Signal { name, .. } => Injected::Failed(format!("was killed by {name}{}", Exit::why_signal(&name))),
            Exit::NotStarted(why) => Injected::Failed(format!("could not be started: {why}")),
        }
    }
}

/// The output of a command, without the final line break.
fn shown(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(&printed[..printed.len().min(MAX_OUTPUT)]);
    let mut text = text.trim_end_matches(['\n', '\r']).to_owned();
    if printed.len() > MAX_OUTPUT {
        text.push_str(&format!("\n[the output was longer; only its first {MAX_OUTPUT} bytes are shown]"));
    }
    text
}

fn last_line(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed);
    text.trim().lines().last().map(|line| format!(": {line}")).unwrap_or_default()
}
