//! The effect of a code tool: a process with JSON on stdin and stdout.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::chain::{CallId, Context, Outcome, Throw, ThrowKind};
use etude_core::document::Document;
use etude_core::effect::{Chunk, Command, ProcessCall, Protocol, Setting, Stdin};
use etude_core::outcome::{Exit, ProcessEnd, Stdout};
use etude_core::tree;
use etude_process::{Bounded, Cancel};
use etude_spec::cascade::search::absolute;
use etude_spec::cascade::skill::{Skill, SkillHandler};
use serde_json::{Value, json};

use super::{Handle, State};
use crate::call::HostCall;
use crate::middleware::dir_of;
use crate::script_host::{self, Ask};

/// The runner of a JavaScript module: reads stdin, makes a context with a manager, calls the default function.
const MODULE: &str = include_str!("module.mjs");

impl State {
    /// Starts the program of a skill in the directory of its file, with a socket of its own.
    pub(super) fn begin_process(&mut self, call: CallId, skill: &Arc<Skill>) {
        let Some((own, target)) = self.machine.contexts_of(call) else { return };
        let globals = &self.machine.globals;
        let mut context = own.json(globals);
        context["target"] = target.json(globals);
        let stdin = with_digits(json!({"args": &*own.args, "ctx": context}).into(), own, target).to_string();
        let name = Arc::clone(&own.tool.name);
        let command = match &skill.body {
            SkillHandler::Command(command) => command.clone(),
            SkillHandler::Module => {
                let path = skill.uri().unwrap_or_default();
                Command::Direct(["node", "--input-type=module", "-e", MODULE, &path].map(str::to_owned).to_vec())
            }
            SkillHandler::Prompt | SkillHandler::BuiltinTool => {
                let why = format!("this session does not support `{name}` of the library");
                return self.end(call, Err(Throw::new(ThrowKind::Failed, &name, why)));
            }
        };
        self.begin_program(call, Program { name, command, dir: skill.dir.to_string(), stdin: Some(stdin) });
    }

    /// Starts the script of a prompt's directive: `:script[python]{src=notes.py}` (D-11). Its output is text.
    pub(super) fn begin_script(&mut self, call: CallId, args: &Value) {
        let Some((own, target)) = self.machine.contexts_of(call) else { return };
        let name = Arc::clone(&own.tool.name);
        let dir = dir_of(target, &self.table.shared);
        let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
        let refused = |why: String| Err(Throw::new(ThrowKind::Failed, &name, why));
        let (path, language) = (text("src"), text("label"));
        if path.is_empty() {
            return self.end(call, refused("name the file of the script: `:script[sh]{src=FILE}`".to_owned()));
        }
        let file = match self.table.shared.open_inside(&absolute(&dir, path), path, &dir) {
            Ok((_, file)) => file.display().to_string(),
            Err(why) => return self.end(call, refused(why)),
        };
        let command = match interpreter(language) {
            Some(program) => Command::Direct(vec![program.to_owned(), file]),
            None if language.is_empty() => Command::Script(file),
            None => {
                let known = LANGUAGES.map(|(word, _)| word).join(", ");
                return self
                    .end(call, refused(format!("`{language}` is not a script language; languages are {known}")));
            }
        };
        self.begin_program(call, Program { name, command, dir, stdin: None });
    }

    /// Runs a program in a thread of its own.
    fn begin_program(&mut self, call: CallId, program: Program) {
        let Program { name, command, dir, stdin } = program;
        let scratch = match self.scratch() {
            Ok(scratch) => scratch,
            Err(error) => {
                let why = format!("cannot create a directory for the sockets of programs: {error}");
                return self.end(call, Err(Throw::new(ThrowKind::Environment, &name, why)));
            }
        };
        let place = scratch.join(format!("{}", self.sockets));
        self.sockets += 1;
        let key = self.key_of(call, &name);
        let fault = Fault::default();
        let server = match script_host::listen(&place) {
            Ok(listener) => {
                let (own, fault) = (self.own.clone(), Arc::clone(&fault));
                Some(tokio::spawn(listener.serve(move |line| answer(line, call, own.clone(), Arc::clone(&fault)))))
            }
            // Without Unix sockets, programs run without a host.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => {
                let why = format!(
                    "cannot create its host socket ({}: {error}); set TMPDIR to a directory with \
                     a short path that can be written to",
                    place.display()
                );
                return self.end(call, Err(Throw::new(ThrowKind::Environment, &name, why)));
            }
        };
        let process = ProcessCall {
            command,
            dir,
            env: vec![(script_host::VARIABLE.to_owned(), place.display().to_string())],
            key,
            attempt: 1,
            stdin: Stdin(stdin.iter().map(|text| Chunk::Text(text.as_str().into())).collect()),
            protocol: Protocol::Document,
            setting: Setting::default(),
        };
        let cancel = Cancel::new();
        let (given_up, giving_up) = (self.token_of(call), cancel.clone());
        let watcher = tokio::spawn(async move {
            given_up.cancelled().await;
            giving_up.cancel();
        });
        self.beside.insert(call, server.into_iter().chain([watcher]).collect());
        let (processes, own) = (self.processes(), self.own.clone());
        tokio::task::spawn_blocking(move || {
            let mut on_stderr = |text: &[u8]| {
                own.update(|state| state.watch.stderr(&name, text));
            };
            let ended = match stdin {
                Some(_) => processes.run(&process, &cancel, &mut on_stderr).map(|end| outcome(&name, &end, &fault)),
                None => processes.run_bounded(&process, &cancel, MAX_PRINTED).map(|end| {
                    on_stderr(end.stderr.tail.as_bytes());
                    printed(&name, end)
                }),
            };
            let outcome = ended.unwrap_or_else(|_| Err(Throw::new(ThrowKind::Failed, &name, "it was stopped")));
            let _ = std::fs::remove_file(&place);
            own.end(call, outcome);
        });
    }
}

impl State {
    /// The idempotency key of a program. For middleware around an effect of a run, it is the same each time that effect begins.
    fn key_of(&self, call: CallId, name: &str) -> String {
        let target = self.machine.contexts_of(call).map(|(_, target)| target);
        match target.and_then(HostCall::of) {
            Some(effect) => format!("{}~{name}", effect.key),
            None => format!("skill/{}/{name}#{}", self.own_id, self.sockets),
        }
    }
}

/// The input of a middleware program, with the arguments of the served call as its tool gets them.
fn with_digits(stdin: Document, own: &Context, target: &Context) -> Document {
    let digits = HostCall::of(target).and_then(|call| call.checks.digits_of(&target.args));
    let Some(digits) = digits else { return stdin };
    let contexts = [("/ctx", own), ("/ctx/target", target)];
    let frames = contexts.into_iter().flat_map(|(at, context)| {
        let frames = context.frames_of(&target.args).into_iter();
        frames.map(move |frame| format!("{at}/locals/history/{frame}/args"))
    });
    let places = frames.chain(["/ctx/target/args".to_owned()]);
    places.fold(stdin, |stdin, place| stdin.with(place, Some(digits.exact.clone())))
}

/// A program to start for a function.
struct Program {
    name: Arc<str>,
    command: Command,
    /// Its working directory, absolute.
    dir: String,
    /// A JSON document, to which the program replies with another. `None`: the program prints text.
    stdin: Option<String>,
}

/// Maximum output of a script in a prompt, in bytes.
const MAX_PRINTED: usize = 1 << 20;

/// Names of script languages, with their interpreters.
const LANGUAGES: [(&str, &str); 7] = [
    ("sh", "sh"),
    ("bash", "bash"),
    ("python", "python3"),
    ("py", "python3"),
    ("node", "node"),
    ("js", "node"),
    ("ruby", "ruby"),
];

fn interpreter(language: &str) -> Option<&'static str> {
    LANGUAGES.iter().find(|(word, _)| *word == language).map(|(_, program)| *program)
}

/// The throw of a program's last `next` or `invoke`, if that failed. It is passed on if the program fails without an error of
/// its own (D-X05).
type Fault = Arc<Mutex<Option<Throw>>>;

/// Passes one request to the session and waits for its reply.
async fn answer(line: String, call: CallId, session: Handle, fault: Fault) -> String {
    let document = match tree::parse(&line) {
        Ok(document) => document,
        Err(error) => return refused(&Value::Null, &format!("the request is not JSON: {error}")),
    };
    let id = document.get("id").cloned().unwrap_or(Value::Null);
    let ask = match Ask::parse(&document) {
        Ok(ask) => ask,
        Err(why) => return refused(&id, &why),
    };
    let passes_throws_on = matches!(ask, Ask::Next | Ask::Invoke { .. });
    let outcome = match session.update(|state| state.asked(call, ask, None)) {
        Some(answered) => answered.await.ok(),
        None => None,
    };
    let Some(outcome) = outcome else { return refused(&id, "the call has ended") };
    if passes_throws_on {
        *fault.lock().unwrap_or_else(PoisonError::into_inner) = outcome.as_ref().err().cloned();
    }
    let mut document = script_host::answer(&outcome);
    document["id"] = id;
    document.to_string()
}

fn refused(id: &Value, why: &str) -> String {
    let mut document = script_host::answer(&Err(Throw::new(ThrowKind::Failed, "host", why)));
    document["id"] = id.clone();
    document.to_string()
}

/// The output of a script in a prompt.
fn printed(name: &str, end: Bounded) -> Outcome {
    match end.exit {
        _ if end.is_too_large => Err(Throw::new(ThrowKind::Failed, name, "it printed more than 1 MiB")),
        Exit::Status(0) => Ok(Some(json!(String::from_utf8_lossy(&end.stdout).trim_end()))),
        exit => Err(thrown(name, &exit, None, &end.stderr.tail, None)),
    }
}

/// The outcome of an ended process (`{"result": …}`, `{}` or no output; otherwise a throw).
fn outcome(name: &str, end: &ProcessEnd, fault: &Fault) -> Outcome {
    let printed = match &end.stdout {
        Stdout::Value(json) => json.value().ok(),
        Stdout::Unusable { .. } => None,
    };
    let failed = |message: String| Err(Throw::new(ThrowKind::Failed, name, message));
    match &end.exit {
        Exit::Status(0) => {}
        Exit::NotStarted(why) => return failed(why.clone()),
        exit => {
            let passed_on = fault.lock().unwrap_or_else(PoisonError::into_inner).take();
            return Err(thrown(name, exit, printed.as_ref(), &end.stderr.tail, passed_on));
        }
    }
    match (&end.stdout, printed) {
        (_, Some(Value::Object(mut members))) => {
            if members.keys().any(|key| key != "result") {
                let keys: Vec<String> = members.keys().map(|key| format!("`{key}`")).collect();
                return failed(format!(
                    "`{name}` printed an object with {}; a result is printed as {{\"result\": …}}",
                    keys.join(", ")
                ));
            }
            Ok(members.shift_remove("result"))
        }
        (Stdout::Unusable { found, .. }, _) if found.trim().is_empty() => Ok(None),
        (Stdout::Unusable { problem, found }, _) => {
            failed(format!("`{name}`: {problem} ({}); a result is printed as {{\"result\": …}}", found.trim()))
        }
        _ => failed(format!("`{name}` printed no object; print the result as {{\"result\": …}}")),
    }
}

/// The throw of a failed program: `{"error": {"message"}}` on stdout, otherwise the last line of stderr. A silent program
/// passes on the throw that it received.
fn thrown(name: &str, exit: &Exit, printed: Option<&Value>, stderr: &str, passed_on: Option<Throw>) -> Throw {
    let error = printed.and_then(|printed| printed.get("error"));
    let text = |key: &str| error.and_then(|error| error.get(key)).and_then(Value::as_str);
    let said = text("message").or_else(|| stderr.lines().map(str::trim).rfind(|line| !line.is_empty()));
    if let (None, None, Some(throw)) = (error, said, passed_on) {
        return throw;
    }
    let kind = text("kind").and_then(ThrowKind::from_word).unwrap_or(ThrowKind::Failed);
    let ended = match exit {
        Exit::Status(status) => format!("`{name}` exited with status {status}"),
        Exit::Signal { name: signal, .. } => format!("`{name}` was killed by {signal}{}", Exit::why_signal(signal)),
        Exit::NotStarted(why) => why.clone(),
    };
    Throw::new(kind, name, said.unwrap_or(&ended))
}
