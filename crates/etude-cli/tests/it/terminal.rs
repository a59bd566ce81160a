//! The output that people at a terminal see during a run, tested with a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use crate::echo_box::{started, with};
use crate::loopback::receive;
use crate::server::{Reply, Server};
use crate::test::{Test, wait_until};

/// A command whose stderr, and stdout if requested, is a terminal.
pub(crate) struct OnTerminal {
    child: Child,
    screen: Arc<Mutex<Vec<u8>>>,
    stdout: std::path::PathBuf,
    /// The keyboard of the terminal.
    keys: File,
}

impl OnTerminal {
    pub(crate) fn start(test: &Test, args: &[&str], stdout_too: bool) -> Self {
        Self::start_with(test, args, stdout_too, false)
    }

    /// An interactive command: its stdin is the terminal, too.
    pub(crate) fn start_typing(test: &Test, args: &[&str]) -> Self {
        Self::start_with(test, args, false, true)
    }

    fn start_with(test: &Test, args: &[&str], stdout_too: bool, stdin_too: bool) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("it is ours");
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&controller, size).expect("it is a terminal");
        let name = ptsname(&controller, Vec::new()).expect("it has a name").into_string().expect("a plain name");
        let side = || File::options().read(true).write(true).open(&name).expect("the other side opens");
        let stdout = test.path("tmp/stdout-of-terminal");
        let mut command = test.command(args);
        command.env("TERM", "xterm-256color").stderr(Stdio::from(side()));
        match stdout_too {
            true => command.stdout(Stdio::from(side())),
            false => command.stdout(File::create(&stdout).expect("a file can be made")),
        };
        if stdin_too {
            command.stdin(Stdio::from(side()));
        }
        let keys = File::from(controller.try_clone().expect("it can be held twice"));
        let child = command.spawn().expect("the binary starts");
        // This side must not hold the terminal open.
        drop(command);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&screen);
        thread::spawn(move || {
            let mut controller = File::from(controller);
            let mut buffer = [0; 4096];
            // Reading fails when the last process has closed its side.
            while let Ok(n @ 1..) = controller.read(&mut buffer) {
                shared.lock().expect("no thread panicked").extend_from_slice(&buffer[..n]);
            }
        });
        Self { child, screen, stdout, keys }
    }

    /// Types these keys.
    pub(crate) fn press(&self, keys: &str) {
        (&self.keys).write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Sends Ctrl-C to one process.
    pub(crate) fn interrupt(&self) {
        let id = self.child.id().to_string();
        let status = std::process::Command::new("kill").args(["-s", "INT", &id]).status().expect("kill is there");
        assert!(status.success(), "the process is gone already");
    }

    /// All text that was written to the terminal, with its colours.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("no thread panicked")).into_owned()
    }

    pub(crate) fn wait_for(&self, text: &str) {
        wait_until(&format!("`{text}` on the terminal"), || self.screen().contains(text));
    }

    /// All text that was written to the terminal, after any regular end: no panic, no signal.
    pub(crate) fn over(self) -> String {
        let (code, screen) = self.ended();
        assert!((0..=10).contains(&code) || code == 130, "it ended with {code}:\n{screen}");
        screen
    }

    /// The text on stdout and on the terminal, after a successful end.
    fn finish(self) -> (String, String) {
        let stdout = self.stdout.clone();
        let (code, screen) = self.ended();
        assert_eq!(code, 0, "{screen}");
        (std::fs::read_to_string(stdout).unwrap_or_default(), screen)
    }

    /// The exit status and the text on the terminal.
    pub(crate) fn ended(mut self) -> (i32, String) {
        let mut status = None;
        wait_until("the end of what is on the terminal", || {
            status = self.child.try_wait().expect("it is ours");
            status.is_some()
        });
        wait_until("the end of what was written", || Arc::strong_count(&self.screen) == 1);
        (status.and_then(|status| status.code()).unwrap_or(-1), self.screen())
    }
}

/// A door that a test opens.
#[derive(Clone, Default)]
struct Door(Arc<(Mutex<bool>, Condvar)>);

impl Door {
    fn open(&self) {
        *self.0.0.lock().expect("no thread panicked") = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let is_open = self.0.0.lock().expect("no thread panicked");
        drop(self.0.1.wait_while(is_open, |is_open| !*is_open).expect("no thread panicked"));
    }
}

/// A server of chat completions that streams: each completion is a list of events with a door between two of them.
fn streaming_server(answers: Vec<(Vec<Value>, Door, Vec<Value>)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let url = format!("http://{}/v1", listener.local_addr().expect("it is bound"));
    thread::spawn(move || {
        for (stream, answer) in listener.incoming().flatten().zip(answers) {
            // A client that has disconnected fails its own test.
            let _ = stream_out(stream, &answer);
        }
    });
    url
}

fn stream_out(mut stream: TcpStream, (before, door, after): &(Vec<Value>, Door, Vec<Value>)) -> std::io::Result<()> {
    let asked = receive(&stream).ok_or(std::io::ErrorKind::InvalidData)?.body;
    assert_eq!((&asked["stream"], &asked["stream_options"]["include_usage"]), (&json!(true), &json!(true)));
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    for event in before {
        write!(stream, "data: {event}\n\n")?;
    }
    door.pass();
    for event in after {
        write!(stream, "data: {event}\n\n")?;
    }
    stream.write_all(b"data: [DONE]\n\n")
}

fn text(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}}]})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
}

fn configured(test: Test, url: &str) -> Test {
    test.user_config(&format!(
        "model_mapping: {{lite: mock/m, standard: mock/m, reasoning: mock/m}}\n\
         providers: {{mock: {{kind: openai-compatible, base_url: \"{url}\"}}}}\n"
    ))
}

fn with_skill() -> Test {
    Test::new().file("SKILL.md", "---\nname: helper\ndescription: Helps.\n---\nHelp the user.\n")
}

/// A-7.2: an agent's text appears on the terminal as it is generated, and nothing in it controls the terminal. At the end the
/// text is there once: between its tools on stderr, at its end on stdout.
#[test]
fn an_agent_streams_its_text() {
    let (first, second) = (Door::default(), Door::default());
    let call = json!({"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "List", "arguments": "{\"path\":\".\"}"}},
    ]}}]});
    let url = streaming_server(vec![
        (vec![text("I look \u{1b}[3"), text("1mfirst")], first.clone(), vec![text(", then"), call, end("tool_calls")]),
        (vec![text("The answer "), text("is for")], second.clone(), vec![text("ty-two."), end("stop")]),
    ]);
    let test = configured(with_skill(), &url);
    let running = OnTerminal::start(&test, &["run", "--skill", "what is it?"], false);
    running.wait_for("I look first");
    first.open();
    running.wait_for("I look first, then");
    running.wait_for("The answer is for");
    second.open();
    let (stdout, screen) = running.finish();
    assert_eq!(stdout, "\"The answer is forty-two.\"\n");
    assert!(!screen.contains("\u{1b}[31mfirst"), "{screen}");
    let (_, after) = screen.rsplit_once('✓').expect("the step has ended well");
    assert!(!after.contains("The answer"), "{after}");
}

/// cli: at a terminal the output is printed once, in full, below everything else.
#[test]
fn the_answer_stands_on_the_terminal_once() {
    let door = Door::default();
    let url = streaming_server(vec![(vec![text("The answer ")], door.clone(), vec![text("is four."), end("stop")])]);
    let test = configured(with_skill(), &url);
    let running = OnTerminal::start(&test, &["run", "--skill", "what is it?"], true);
    running.wait_for("The answer");
    door.open();
    let (_, screen) = running.finish();
    let (_, after) = screen.rsplit_once('✓').expect("the step has ended well");
    assert_eq!(after.matches("The answer is four.").count(), 1, "{after}");
    assert!(after.ends_with("The answer is four.\r\n"), "{after}");
}

/// The text of an llm step is data: only its length is shown.
#[test]
fn data_is_counted_and_not_shown() {
    let door = Door::default();
    let url = streaming_server(vec![(vec![text("{\"a\": \"sécret")], door.clone(), vec![text("\"}"), end("stop")])]);
    let test = Test::new().pipeline("p", |p| {
        p.llm("ask", "x", "schema: s.json").file("s.json", r#"{"type":"object","properties":{"a":{"type":"string"}}}"#)
    });
    let test = configured(test, &url);
    let running = OnTerminal::start(&test, &["run", "-p", "p"], false);
    running.wait_for("llm, 13 characters");
    door.open();
    let (stdout, screen) = running.finish();
    assert_eq!(stdout, "{\"a\": \"sécret\"}\n");
    assert!(!screen.contains("cret"), "{screen}");
}

/// A server is asked to stream only for an observer: not without a terminal, not with `--quiet`, and not for documents and
/// events.
#[test]
fn nothing_is_streamed_where_there_is_no_observer() {
    let server = Server::new([Reply::says("four")]);
    let test = with_skill().model(&server);
    test.run(&["run", "--skill", "x"]).exit(0);
    test.run(&["run", "--skill", "x", "--format", "jsonl"]).exit(0);
    for args in [&["--quiet"][..], &["--format", "json"], &["--format", "jsonl"]] {
        OnTerminal::start(&test, &[&["run", "--skill", "x"], args].concat(), false).finish();
    }
    let asked: Vec<bool> = server.seen().iter().map(|seen| seen.body.get("stream").is_some()).collect();
    assert_eq!(asked, [false; 5]);
    // The same server, asked to stream, responds as it always does.
    let (stdout, _) = OnTerminal::start(&test, &["run", "--skill", "x"], false).finish();
    assert_eq!((stdout.as_str(), &server.seen()[5].body["stream"]), ("\"four\"\n", &json!(true)));
}

/// C-1.14, AA-57: a person at the terminal sees the whole command and its effects, and their yes is for one run.
#[test]
fn a_person_at_the_terminal_confirms_a_command() {
    let test = with(&[]);
    let wipe = ["apps", "run", "echo-box", "wipe", "--", "--confirm"];
    let running = OnTerminal::start_typing(&test, &wipe);
    running.wait_for("run it once? [y/N]");
    let screen = running.screen();
    assert!(screen.contains("echo-box wants to run: python3 app/box.py wipe --confirm"), "{screen}");
    assert!(screen.contains("empties the box"), "{screen}");
    assert!(started(&test).is_empty(), "nothing is started before somebody has said yes");
    running.press("y\n");
    let (stdout, _) = running.finish();
    assert!(stdout.contains("\"ok\""), "{stdout}");
    assert_eq!(started(&test), ["wipe --confirm"]);
    let again = OnTerminal::start_typing(&test, &wipe);
    again.wait_for("run it once? [y/N]");
    again.press("n\n");
    let (code, screen) = again.ended();
    assert_eq!(code, 1, "{screen}");
    assert!(screen.contains("tester has denied `wipe`"), "{screen}");
    assert_eq!(started(&test), ["wipe --confirm"]);
}

/// C-1.14: the id of a confirmation does not reveal its command, so `etude approve` shows it first and asks.
#[test]
fn a_confirmation_shows_its_command_before_it_is_given() {
    let test = with(&[]).env("BOX_TARGET", "one");
    let wipe = ["apps", "run", "--format", "json", "--env", "BOX_TARGET", "echo-box", "wipe", "--", "--confirm"];
    let asked: serde_json::Value = serde_json::from_slice(&test.run(&wipe).exit(5).raw).expect("a document");
    let id = asked["confirmation"]["id"].as_str().expect("an id").to_owned();
    for (answer, expected) in [("n\n", 5), ("y\n", 0)] {
        let approving = OnTerminal::start_typing(&test, &["approve", &id]);
        approving.wait_for("approve this? [y/N]");
        let screen = approving.screen();
        assert!(screen.contains("echo-box wants to run: python3 app/box.py wipe --confirm"), "{screen}");
        assert!(screen.contains("BOX_TARGET"), "{screen}");
        approving.press(answer);
        approving.ended();
        test.run(&wipe).exit(expected);
    }
}

/// Checks that Ctrl-C at a question interrupts the command, and that the end of input leaves it waiting.
fn is_left_open(test: &Test, words: &[&str], question: &str) {
    for (has_ended, expected) in [(false, 130), (true, 5)] {
        let running = OnTerminal::start_typing(test, words);
        running.wait_for(question);
        if has_ended {
            running.press("\u{4}")
        } else {
            running.interrupt()
        }
        let (code, screen) = running.ended();
        assert_eq!(code, expected, "{screen}");
    }
}

/// C-1.14: a missing decision is not a denial: Ctrl-C at the question abandons the call, and at the end of the input the call
/// waits.
#[test]
fn a_question_that_is_not_answered_stays_open() {
    let test = with(&[]);
    let wipe = ["apps", "run", "echo-box", "wipe", "--", "--confirm"];
    is_left_open(&test, &wipe, "run it once? [y/N]");
    let log = test.read("home/.local/state/etude/confirmations.log");
    assert!(log.contains("\"asked\"") && !log.contains("\"answered\"") && !log.contains("denied"), "{log}");
    // The question is still the same.
    let running = OnTerminal::start_typing(&test, &wipe);
    running.wait_for("run it once? [y/N]");
    running.press("y\n");
    running.finish();
    assert_eq!(started(&test), ["wipe --confirm"]);
}

/// D-13: the same holds for the questions of a chain.
#[test]
fn a_question_of_a_chain_can_be_left_with_ctrl_c() {
    let test = Test::new()
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], trust: {rules: shell}}\n---\n")
        .file("skills/shell.skill.md", "---\nname: shell\ncommand: sh shell.sh\n---\n")
        .file("skills/shell.sh", "echo ran >> \"$LEDGER\"\n");
    is_left_open(&test, &["skill", "run", "shell"], "May `shell` be called");
    assert_eq!(test.ledger(), [""; 0]);
}

/// C-1.14: a run asks the same way; there is no option for always, and any other input repeats the question.
#[test]
fn a_run_asks_at_the_terminal_for_a_confirmation() {
    let test = with(&[]).yaml(
        "p",
        "name: p\ndescription: Empties a box.\nsteps:\n  - {name: box, type: application, application: echo-box, command: wipe, args: [--confirm]}\n",
    );
    let running = OnTerminal::start_typing(&test, &["run", "-p", "p"]);
    running.wait_for("[y]es, [n]o, [l]ater");
    assert!(!running.screen().contains("[a]lways"), "{}", running.screen());
    running.press("perhaps\n");
    running.wait_for("please answer with one of");
    running.press("y\n");
    running.finish();
    assert_eq!(started(&test), ["wipe --confirm"]);
    let later = OnTerminal::start_typing(&test, &["run", "-p", "p"]);
    later.wait_for("[y]es, [n]o, [l]ater");
    later.press("l\n");
    let (code, screen) = later.ended();
    assert_eq!(code, 5, "{screen}");
    assert_eq!(started(&test), ["wipe --confirm"]);
}

/// cli: `NO_COLOR` and `--no-color` apply to all output, spinners included.
#[test]
fn nothing_is_coloured_where_no_colours_are_wanted() {
    let test = Test::new().pipeline("p", |p| p.sh("slow", "sleep 1; echo '{\"output\": 1}'"));
    let colour = |screen: &str| {
        let codes = screen.split('\u{1b}').skip(1).filter_map(|rest| rest.strip_prefix('['));
        let ends =
            codes.filter(|code| code.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m'));
        ends.map(str::to_owned).collect::<Vec<_>>()
    };
    let (_, screen) = OnTerminal::start(&test, &["run", "-p", "p"], false).finish();
    assert!(!colour(&screen).is_empty(), "colours are there where they are wanted: {screen:?}");
    let (_, screen) = OnTerminal::start(&test, &["run", "-p", "p", "--no-color"], false).finish();
    assert_eq!(colour(&screen), [""; 0], "{screen:?}");
    let (_, screen) = OnTerminal::start(&test.env("NO_COLOR", "1"), &["run", "-p", "p"], false).finish();
    assert_eq!(colour(&screen), [""; 0], "{screen:?}");
}
