//! An app, a home and an environment for one test: built fluently, run any number of times, removed with the test.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::ran::Ran;
use crate::server::Server;

/// The key that is configured for the scripted provider.
pub(crate) const KEY: &str = "sk-canary-4711-never-shown";

/// The limit on any wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for the end of a command, which may have much to do.
const LONG_PATIENCE: Duration = Duration::from_secs(300);

/// Reports, past the capture of outputs, that a test was skipped, because a skipped test must not look like a passed one.
pub(crate) fn skipped(test: &str, why: &str) {
    // Nothing can be reported if stderr is closed.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// The first line of a script that is a hook of a machine: `$ROOT` and `$LEDGER`, by names that it inherits (B-20.4).
pub(crate) const IN_HOOKS: &str = "ROOT=$XDG_TEST_ROOT LEDGER=$XDG_TEST_LEDGER\n";

/// The name of the ledger with this number; the first one is `ledger`.
fn ledger_name(number: usize) -> String {
    if number == 0 { "ledger".to_owned() } else { format!("ledger.{number}") }
}

/// An app below a directory of its own. Scripts find that directory in `$ROOT`, and a file for their notes in `$LEDGER`. Hooks
/// of machines do not inherit these: see [`IN_HOOKS`].
pub(crate) struct Test {
    root: TempDir,
    cwd: PathBuf,
    env: Vec<(String, String)>,
    stdin: Option<Vec<u8>>,
    /// The number of the current ledger, see [`Test::next_ledger`].
    ledgers: AtomicUsize,
}

impl Test {
    pub(crate) fn new() -> Self {
        let root = TempDir::with_prefix("etude-").expect("a directory can be made");
        for dir in ["app/pipelines", "home", "tmp", "elsewhere"] {
            fs::create_dir_all(root.path().join(dir)).expect("a directory can be made");
        }
        let cwd = root.path().canonicalize().expect("it is there").join("app");
        Self { root, cwd, env: Vec::new(), stdin: None, ledgers: AtomicUsize::new(0) }
    }

    /// Adds a pipeline to the app.
    pub(crate) fn pipeline(self, name: &str, build: impl FnOnce(Pipeline) -> Pipeline) -> Self {
        let Pipeline { head, steps, files, .. } = build(Pipeline::default());
        let mut text = format!("name: {name}\n");
        if !head.iter().any(|line| line.starts_with("description:")) {
            text.push_str(&format!("description: The pipeline {name}.\n"));
        }
        text.extend(head.iter().map(|line| format!("{line}\n")));
        text.push_str("steps:\n");
        text.extend(steps);
        let test = self.yaml(name, &text);
        files.into_iter().fold(test, |test, (path, text)| test.file(&format!("pipelines/{name}/{path}"), &text))
    }

    /// Adds a pipeline with this text.
    pub(crate) fn yaml(self, name: &str, text: &str) -> Self {
        self.file(&format!("pipelines/{name}/pipeline.yaml"), text)
    }

    /// Adds a file to the app.
    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        self.put(&format!("app/{path}"), text);
        self
    }

    /// Writes a file below the root, also between runs.
    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
    }

    /// Makes a file of the app executable.
    pub(crate) fn executable(self, path: &str) -> Self {
        let path = self.path(&format!("app/{path}"));
        let status = Command::new("chmod").arg("+x").arg(path).status().expect("chmod is there");
        assert!(status.success());
        self
    }

    /// Configures `server` as provider `mock` for every tier in the user's configuration.
    pub(crate) fn model(self, server: &Server) -> Self {
        self.model_with(server, "")
    }

    /// The same with a claim about tool calls, such as `hard`.
    pub(crate) fn model_claiming(self, server: &Server, claim: &str) -> Self {
        self.model_with(server, &format!("capabilities: {{toolCalling: {claim}}}"))
    }

    /// The same with further fields of the provider, as they stand between braces.
    pub(crate) fn model_with(self, server: &Server, fields: &str) -> Self {
        let url = server.url();
        self.user_config(&format!(
            "model_mapping: {{lite: mock/m-lite, standard: mock/m-std, reasoning: mock/m-reason}}\n\
             providers: {{mock: {{kind: openai-compatible, base_url: \"{url}/v1\", api_key: \"${{env:MOCK_KEY}}\", {fields}}}}}\n"
        ))
        .env("MOCK_KEY", KEY)
    }

    /// Adds the instructions of skill mode: frontmatter as YAML, and a body.
    pub(crate) fn skill(self, frontmatter: &str, body: &str) -> Self {
        self.file(
            "SKILL.md",
            &format!("---\nname: helper\ndescription: Helps with this app.\n{frontmatter}---\n{body}"),
        )
    }

    /// Sets the user's configuration.
    pub(crate) fn user_config(self, text: &str) -> Self {
        self.put("home/.config/etude/config.yaml", text);
        self
    }

    /// Sets a variable for every later process.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes a variable again.
    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self
    }

    /// Sets the directory of commands, below the root; the app by default.
    pub(crate) fn cwd(mut self, path: &str) -> Self {
        self.cwd = self.path(path);
        fs::create_dir_all(&self.cwd).expect("a directory can be made");
        self
    }

    /// Runs a request in skill mode to its end.
    pub(crate) fn follow(&self, request: &str, more: &[&str]) -> Ran {
        self.run(&[&["run", "--skill", request, "--format", "json"], more].concat())
    }

    /// Sets the stdin of every command; empty by default.
    pub(crate) fn stdin(self, text: &str) -> Self {
        self.stdin_bytes(text.as_bytes())
    }

    /// The same for bytes that need not be text.
    pub(crate) fn stdin_bytes(mut self, bytes: &[u8]) -> Self {
        self.stdin = Some(bytes.to_vec());
        self
    }

    /// The path of a file below the root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().canonicalize().expect("it is there").join(path)
    }

    /// The content of a file below the root, or an empty text if it is missing.
    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// The notes of scripts in `$LEDGER`, over all ledgers in turn.
    pub(crate) fn ledger(&self) -> Vec<String> {
        (0..=self.ledgers.load(Ordering::Relaxed)).flat_map(|number| self.ledger_of(number)).collect()
    }

    /// The notes of scripts in the ledger with this number.
    pub(crate) fn ledger_of(&self, number: usize) -> Vec<String> {
        self.read(&ledger_name(number)).lines().map(str::to_owned).collect()
    }

    /// Gives later commands a ledger of their own, and returns its number. Late notes of a script still go to the ledger of the
    /// command that started it.
    pub(crate) fn next_ledger(&self) -> usize {
        self.ledgers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.start(args).finish()
    }

    /// Runs `etude run --pipeline NAME --format json`.
    pub(crate) fn run_json(&self, name: &str) -> Ran {
        self.run(&["run", "--pipeline", name, "--format", "json"])
    }

    /// Starts a command without waiting for it.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.start_through(&[], args)
    }

    /// Starts a command through another program, which receives it as its last arguments.
    pub(crate) fn start_through(&self, wrapper: &[&str], args: &[&str]) -> Running {
        self.start_with(self.command_through(wrapper, args), args)
    }

    /// Starts a modified [`Test::command`].
    pub(crate) fn start_with(&self, mut command: Command, args: &[&str]) -> Running {
        let file = |kind: &str| {
            let path = tempfile::Builder::new().prefix(kind).tempfile_in(self.path("tmp")).expect("a file can be made");
            path.keep().expect("a file can be kept").1
        };
        let (out, err) = (file("stdout"), file("stderr"));
        command
            .stdout(File::create(&out).expect("a file can be made"))
            .stderr(File::create(&err).expect("a file can be made"));
        let mut child = command.spawn().expect("the binary starts");
        if let (Some(bytes), Some(mut stdin)) = (&self.stdin, child.stdin.take()) {
            // A command that reads no stdin may have ended by now.
            let _ = stdin.write_all(bytes);
        }
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Running { child, args, out, err, root: self.path("") }
    }

    /// A command in the test's directory and with its environment, whose outputs are not set yet.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_through(&[], args)
    }

    fn command_through(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let home = self.path("home");
        let binary = binary();
        let words = [wrapper, &[&*binary], args].concat();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .current_dir(&self.cwd)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &home)
            .env("XDG_CONFIG_HOME", home.join(".config"))
            .env("XDG_STATE_HOME", home.join(".local/state"))
            .env("XDG_DATA_HOME", home.join(".local/share"))
            .env("XDG_CACHE_HOME", home.join(".cache"))
            .env("TMPDIR", self.path("tmp"))
            .env("LANG", "C.UTF-8")
            .env("NO_PROXY", "127.0.0.1")
            .env("USER", "tester")
            .env("ROOT", self.path(""))
            .env("LEDGER", self.path(&ledger_name(self.ledgers.load(Ordering::Relaxed))))
            .env("XDG_TEST_ROOT", self.path(""))
            .env("XDG_TEST_LEDGER", self.path(&ledger_name(self.ledgers.load(Ordering::Relaxed))))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command
    }

    /// Waits until scripts have noted `word`.
    pub(crate) fn wait_for(&self, word: &str) {
        wait_until(&format!("`{word}` in the ledger"), || self.ledger().iter().any(|line| line == word));
    }

    /// Every file below a directory of the test: configuration, journal, values.
    pub(crate) fn files_below(&self, path: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![self.path(path)];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.path().is_dir() { dirs.push(entry.path()) } else { found.push(entry.path()) }
            }
        }
        found.sort();
        found
    }
}

/// A pipeline under construction.
#[derive(Default)]
pub(crate) struct Pipeline {
    head: Vec<String>,
    steps: Vec<String>,
    files: Vec<(String, String)>,
}

impl Pipeline {
    /// Adds fields of the pipeline itself, as YAML.
    pub(crate) fn with(mut self, yaml: &str) -> Self {
        self.head.push(yaml.to_owned());
        self
    }

    /// Adds a step, as YAML fields without indentation; `name` comes first.
    pub(crate) fn step(mut self, yaml: &str) -> Self {
        let mut prefix = "  - ";
        for line in yaml.lines() {
            self.steps.push(format!("{prefix}{line}\n"));
            prefix = "    ";
        }
        self
    }

    /// Adds a code step whose script is `steps/NAME.sh`.
    pub(crate) fn sh(self, name: &str, script: &str) -> Self {
        self.sh_with(name, script, "")
    }

    /// Adds a code step whose script is `steps/NAME.sh`, with further fields.
    pub(crate) fn sh_with(self, name: &str, script: &str, fields: &str) -> Self {
        self.step(&format!("name: {name}\ntype: code\ncommand: sh steps/{name}.sh\n{fields}"))
            .file(&format!("steps/{name}.sh"), &format!("{script}\n"))
    }

    /// Adds a code step that notes its name in the ledger and prints `output`.
    pub(crate) fn note(self, name: &str, output: &str) -> Self {
        self.sh(name, &format!("{}\n{}", noting(name), printing(output)))
    }

    /// Adds an llm step with further fields.
    pub(crate) fn llm(self, name: &str, prompt: &str, fields: &str) -> Self {
        let prompt = serde_json::Value::from(prompt);
        self.step(&format!("name: {name}\ntype: llm\nprompt: {prompt}\n{fields}"))
    }

    /// Adds a file to the pipeline's directory.
    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }
}

/// The program under test; `ETUDE_BIN` names another build.
pub(crate) fn binary() -> String {
    std::env::var("ETUDE_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_etude").to_owned())
}

/// A shell line that prints one output document.
pub(crate) fn printing(output: &str) -> String {
    format!("cat >/dev/null; printf '%s\\n' '{{\"output\":{output}}}'")
}

/// A shell line that notes a word in the ledger.
pub(crate) fn noting(word: &str) -> String {
    format!("echo '{word}' >> \"$LEDGER\"")
}

/// Waits for an effect of another process or thread.
#[track_caller]
pub(crate) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_within(PATIENCE, what, holds);
}

#[track_caller]
fn wait_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < end, "gave up waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a test of a time limit with longer and longer limits, until it returns true. What must happen before a limit takes a
/// slow machine long: a test returns false if that has not happened.
#[track_caller]
pub(crate) fn with_some_limit(test: impl FnMut(&str) -> bool) {
    assert!(["3s", "15s", "60s"].into_iter().any(test), "this machine needs more than a minute");
}

/// A command that was started.
pub(crate) struct Running {
    child: Child,
    args: Vec<String>,
    out: PathBuf,
    err: PathBuf,
    root: PathBuf,
}

impl Running {
    /// The id of the process.
    #[cfg(any(feature = "postgres", feature = "serve"))]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends Ctrl-C to one process.
    pub(crate) fn interrupt(&self) {
        self.signal("INT");
    }

    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal by its name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status().expect("kill is there");
        assert!(status.success(), "the process is gone already");
    }

    /// Sends `kill -9`, and waits for the end of the process.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("it is ours");
    }

    /// Reports whether the process has ended by itself.
    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_some()
    }

    /// The text that the process has printed on stdout so far.
    pub(crate) fn stdout_so_far(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Waits for the end of the process.
    pub(crate) fn finish(mut self) -> Ran {
        let mut exit = None;
        wait_within(LONG_PATIENCE, &format!("the end of etude {:?}", self.args), || {
            exit = self.child.try_wait().expect("it is ours");
            exit.is_some()
        });
        let bytes = |path: &Path| fs::read(path).expect("it was made");
        let code = exit.and_then(|exit| exit.code()).unwrap_or(-1);
        Ran::new(self.args.join(" "), code, bytes(&self.out), bytes(&self.err), &self.root)
    }
}
