//! The current state of a package, for a person who must confirm a change of it (C-1.14, C-1.15).

use std::io::Read;

use etude_core::tree;
use etude_files::beneath::{self, Root};
use etude_spec::application::Body;
use serde_json::{Value, json};

use super::call::argv;
use super::{CommandCall, Limits, ProgramContext};

/// Shown length of a file, in bytes.
const MAX_SHOWN: u64 = 16 * 1024;

/// Maximum number of shown files.
const MAX_FILES: usize = 4;

/// The facts that a person sees before a confirmation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fresh {
    /// The contract's description of the command.
    pub description: Option<String>,
    /// Current content of the state files in the contract, and the output of the state command.
    pub state: Vec<Value>,
}

impl CommandCall {
    /// Reads the current state: the files that the contract's section on state names, and the output of `metadata.stateCommand`
    /// if the package declares that command.
    pub fn fresh(&self, program_context: &ProgramContext) -> Fresh {
        let text =
            crate::skills::body_of(&self.package.root.join(etude_spec::application::APP_FILE)).unwrap_or_default();
        let body = Body(&text);
        let about =
            [body.about_command(&self.command), body.section("Confirmations").map(|text| text.trim().to_owned())];
        let description: Vec<String> = about.into_iter().flatten().filter(|text| !text.is_empty()).collect();
        let mut state: Vec<Value> =
            body.state_files().into_iter().take(MAX_FILES).filter_map(|path| self.file(path)).collect();
        if let Some(command) = self.package.contract.state_command() {
            let argv = argv(&self.package.contract.entry, command, &[]);
            let shows = CommandCall { command: command.to_owned(), args: Vec::new(), argv, ..self.clone() };
            // The state command is not the effect in question, so it gets another name.
            let quiet = ProgramContext { stdin: None, run_effect: None, ..program_context.clone() };
            if let Ok(answer) = shows.measure(&quiet, &Limits::default()) {
                let output = answer.output.and_then(|output| tree::parse(output.get()).ok());
                state.push(json!({"command": command, "status": answer.status.word(), "output": output}));
            }
        }
        Fresh { description: (!description.is_empty()).then(|| description.join("\n\n")), state }
    }

    fn file(&self, path: &str) -> Option<Value> {
        let (file, _) =
            beneath::open_file(&[Root::open(&self.package.root).ok()?], &self.package.root.join(path)).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_SHOWN + 1).read_to_end(&mut bytes).ok()?;
        let is_cut = bytes.len() as u64 > MAX_SHOWN;
        bytes.truncate(usize::try_from(MAX_SHOWN).unwrap_or(usize::MAX));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let content = if is_cut { None } else { tree::parse(&text).ok() };
        Some(json!({"path": path, "content": content.unwrap_or(Value::String(text)), "truncated": is_cut}))
    }
}
