//! Stage machines as text: the machine, the replies of its model and scripts, and the expected result. Everything runs through
//! the binary, with a scripted model behind a socket.
//!
//! The base is that of `b-stages` §21.0: a machine `m` with one stage `outline`, whose prompt is `Task: {{ctx.task}}`, whose
//! `task` is `T1`, and which may call `read`; there are also `write` and `bash`. A text changes that line by line, and `==>
//! COMMAND` runs `machine run m`, `runs resume` or `check`; the lines after it, up to an empty one, are expectations.
//!
//! | plan                                                        | means                                             |
//! |-------------------------------------------------------------|---------------------------------------------------|
//! | `stage b`, `stage outline turnCap: 1`                       | another stage; another field, or `body: …`         |
//! | `at outline next: [{else: true, sequential: [b]}]`          | fields of machine.yaml around a stage             |
//! | `machine grants: [{tool: bash, decision: deny}]`            | another key of machine.yaml                       |
//! | `hook assert outline {"verdict":"ok"}`, `hook guard exit 1` | a script: a line a call, the last one again        |
//! | `outline say hm`, `outline done {…}`                        | the model: text, the completion                   |
//! | `outline call read {"p":1}; write {}`, `outline raw {bad`   | tools; a completion that is not JSON               |
//! | `tool read SHELL`, `file PATH TEXT`, `config TEXT`          | an action of a tool; a file of the app             |
//! | `approve`, `deny REASON`, `touch NAME`                      | an action while the run waits                     |
//!
//! | expectation                                       | holds if                                                    |
//! |---------------------------------------------------|-------------------------------------------------------------|
//! | `exit 0`, `output {…}`                            | exit status and StageResult are those                       |
//! | `error Validation/StageInputInvalid index=1`      | the first error, with these facts of its context            |
//! | `row outline#1 completed ok 1`                    | these are all rows: status, verdict, attempts                |
//! | `asked outline 2`, `tools outline a, b`           | requests of a stage; the tools of the last one              |
//! | `prompt outline TEXT`                             | its system prompt                                           |
//! | `talk outline`, then lines with `- `              | its conversation as last sent, without the opening           |
//! | `ran read, read`                                  | tools that ran, in order                                    |
//! | `calls assert outline 1`                          | number of calls of a script                                 |
//! | `told assert outline 1 /act/capHit false`         | a part of the input of its n-th call                        |
//! | `waits grantStageTool /toolId "bash"`             | first decision that the run waits for                       |
//! | `StageAssertOutcome outline verdict=ok`           | of the events with the names given here, these and no others |
//! | `finds CLASS/CODE /pointer`, `warns CODE`         | all that `check` finds                                      |

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::ran::Ran;
use crate::server::{Reply, Seen, Server};
use crate::test::{IN_HOOKS, Test};

/// Fields of the base stage.
const STAGE: [(&str, &str); 7] = [
    ("name", ""),
    ("allowedTools", "[read]"),
    ("completionTool", ""),
    ("completionSchema", "{type: object, required: [summary], properties: {summary: {type: string}}}"),
    ("retryPolicy", "{maxAttempts: 2, backoff: none}"),
    ("turnCap", "3"),
    ("resolutionPolicy", "retry-later"),
];

/// Hooks that belong to the machine and to no stage.
const OF_MACHINE: [&str; 4] = ["guard", "grant", "migrate", "onFailure"];

/// Hook script that records its input, and acts as the reply of its turn says.
const HOOK: &str = r#"d="$ROOT/hooks/$1"; mkdir -p "$d"; n=$(($(ls "$d" | wc -l) + 1)); cat > "$d/$n.json"
while [ $n -gt 1 ] && [ ! -e "scripts/replies/$1-$n" ]; do n=$((n - 1)); done
. "./scripts/replies/$1-$n"
"#;

type Turns = Arc<Mutex<BTreeMap<String, VecDeque<Reply>>>>;

pub(super) struct Case {
    pub(super) test: Test,
    server: Server,
    turns: Turns,
    stages: BTreeMap<String, Vec<(String, String)>>,
    around: BTreeMap<String, BTreeMap<String, String>>,
    top: BTreeMap<String, String>,
    replies: BTreeMap<String, usize>,
    run: Option<Ran>,
    id: String,
}

/// Executes the plan of the text, and checks its expectations.
#[track_caller]
pub(super) fn walk(text: &str) -> Case {
    let mut case = Case::new();
    let mut claims: Option<Vec<String>> = None;
    for line in text.lines().map(str::trim).chain([""]) {
        match (&mut claims, line) {
            (None, "") => {}
            (Some(_), "") => {
                let claims = claims.take().unwrap_or_default();
                case.hold(&claims);
            }
            (Some(claims), line) => claims.push(line.to_owned()),
            (None, line) => match line.strip_prefix("==> ") {
                Some(command) => {
                    case.command(command);
                    claims = Some(Vec::new());
                }
                None => case.read(line),
            },
        }
    }
    case
}

impl Case {
    pub(super) fn new() -> Self {
        let turns = Turns::default();
        let says = Arc::clone(&turns);
        let server = Server::by(move |seen, _| {
            let next = says.lock().expect("no thread panicked").get_mut(&stage_of(seen)).and_then(VecDeque::pop_front);
            next.unwrap_or_else(|| Reply::status(400).message("the script has no turn left"))
        });
        let mut test = Test::new().model_claiming(&server, "hard");
        for name in ["read", "write", "bash"] {
            let yaml = format!("name: {name}\ndescription: The tool {name}.\ncommand: sh tools/{name}.sh\n");
            test = test.file(&format!("tools/{name}.yaml"), &yaml).file(
                &format!("tools/{name}.sh"),
                &tool(name, &format!("echo '{{\"ok\":true,\"value\":\"{name}-out\"}}'")),
            );
        }
        let slot = "{slotVersion: \"1.0.0\", schema: {type: object}}";
        let mut case = Self {
            test,
            server,
            turns,
            stages: BTreeMap::new(),
            around: BTreeMap::new(),
            top: BTreeMap::from([("stateSlot".to_owned(), slot.to_owned())]),
            replies: BTreeMap::new(),
            run: None,
            id: String::new(),
        };
        case.stages.insert("outline".to_owned(), Vec::new());
        case.around("outline", "setup", "{set: {task: T1}}");
        case
    }

    fn around(&mut self, stage: &str, hook: &str, yaml: &str) {
        self.around.entry(stage.to_owned()).or_default().insert(hook.to_owned(), yaml.to_owned());
    }

    /// Reads a line of the plan.
    fn read(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, more) = rest.split_once(' ').unwrap_or((rest, ""));
        let field = |text: &str| {
            let (key, value) = text.split_once(':').unwrap_or_else(|| panic!("no field in {line:?}"));
            (key.trim().to_owned(), value.trim().to_owned())
        };
        match word {
            "stage" => {
                let fields = self.stages.entry(name.to_owned()).or_default();
                if !more.is_empty() {
                    fields.push(field(more));
                }
            }
            "at" => {
                let (hook, yaml) = field(more);
                self.around(name, &hook, &yaml);
            }
            "machine" => {
                let (key, yaml) = field(rest);
                self.top.insert(key, yaml);
            }
            "hook" => self.read_hook(name, more),
            "tool" => self.test.put(&format!("app/tools/{name}.sh"), &tool(name, more)),
            "file" => self.test.put(&format!("app/{name}"), &more.replace("\\n", "\n")),
            "config" => self.test.put("app/etude.yaml", &format!("{}\n", rest.replace("\\n", "\n"))),
            "touch" => self.test.put(name, ""),
            "approve" | "deny" => {
                let doc = self.document();
                let id = doc["waiting"][0]["id"].as_str().expect("something waits").replace("[RUN]", &self.id);
                let reason = if rest.is_empty() { vec![] } else { vec!["--reason", rest] };
                self.test.run(&[&[word, &id], reason.as_slice()].concat()).exit(0);
            }
            stage => self.read_turn(stage, name, more),
        }
    }

    fn read_turn(&mut self, stage: &str, verb: &str, rest: &str) {
        let done = format!("submit_{stage}");
        let parsed = |text: &str| serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let reply = match verb {
            "say" => Reply::says(rest),
            "done" => Reply::call(&done, parsed(rest)),
            "raw" => {
                let function = json!({"name": done, "arguments": rest});
                let call = json!({"id": "call_raw", "type": "function", "function": function});
                let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
                let usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
                Reply::Body(
                    json!({"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage})
                        .to_string(),
                )
            }
            "call" => {
                let calls = rest.split("; ").map(|call| {
                    let (name, args) = call.split_once(' ').unwrap_or((call, "{}"));
                    (name.to_owned(), parsed(args))
                });
                Reply::Calls { text: String::new(), calls: calls.collect() }
            }
            "fails" => Reply::status(rest.parse().expect("a status")),
            "hangs" => Reply::Hang,
            other => panic!("a model does not `{other}`"),
        };
        self.turns.lock().expect("no thread panicked").entry(stage.to_owned()).or_default().push_back(reply);
    }

    fn read_hook(&mut self, hook: &str, rest: &str) {
        let (key, said) = match rest.split_once(' ') {
            Some((stage, said)) if !OF_MACHINE.contains(&hook) => (format!("{hook}-{stage}"), said),
            _ => (hook.to_owned(), rest),
        };
        let command = format!("{{script: sh scripts/hook.sh {key}}}");
        match (hook, key.split_once('-')) {
            ("guard", _) => drop(self.top.insert("guards".to_owned(), format!("[{command}]"))),
            ("grant", _) => drop(self.top.insert("grants".to_owned(), command)),
            ("onFailure", _) => drop(self.top.insert(hook.to_owned(), command)),
            ("migrate", _) => {}
            ("validate", Some((_, stage))) => {
                let command = format!("{{validate: sh scripts/hook.sh {key}}}");
                self.around(stage, "assert", &command);
            }
            (_, stage) => self.around(stage.expect("a stage").1, hook, &command),
        }
        let reply = match said.split_once(' ') {
            Some(("sh", line)) => line.to_owned(),
            _ if said.starts_with("exit ") => {
                let (status, text) = said[5..].split_once(' ').unwrap_or((&said[5..], ""));
                format!("printf '%s\\n' '{text}'; echo broken >&2; exit {status}")
            }
            _ if said == "nothing" => ":".to_owned(),
            _ => format!("printf '%s\\n' '{said}'"),
        };
        let n = self.replies.entry(key.clone()).or_default();
        *n += 1;
        self.test.put(&format!("app/machines/m/scripts/replies/{key}-{n}"), &format!("{reply}\n"));
    }

    fn write(&self) {
        self.test.put("app/machines/m/scripts/hook.sh", &format!("{IN_HOOKS}{HOOK}"));
        for (id, changes) in &self.stages {
            let mut fields: Vec<(String, String)> = vec![("id".to_owned(), id.clone())];
            fields.extend(STAGE.iter().map(|(key, value)| match *key {
                "name" => ("name".to_owned(), id.clone()),
                "completionTool" => ("completionTool".to_owned(), format!("submit_{id}")),
                _ => ((*key).to_owned(), (*value).to_owned()),
            }));
            let mut body = "Task: {{ctx.task}}\n".to_owned();
            for (key, value) in changes {
                fields.retain(|(known, _)| known != key);
                match key.as_str() {
                    "body" => body = format!("{}\n", value.replace("\\n", "\n")),
                    _ if value == "-" => {}
                    _ => fields.push((key.clone(), value.clone())),
                }
            }
            let front: String = fields.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
            self.test.put(&format!("app/machines/m/stages/{id}.md"), &format!("---\n{front}---\n{body}"));
        }
        let mut yaml = "kind: StateMachine\nid: m\n".to_owned();
        if !self.top.contains_key("entryStage") {
            yaml.push_str("entryStage: outline\n");
        }
        for (key, value) in self.top.iter().filter(|(_, value)| *value != "-") {
            yaml.push_str(&format!("{key}: {value}\n"));
        }
        yaml.push_str("pipeline:\n");
        for (stage, hooks) in &self.around {
            yaml.push_str(&format!("  {stage}:\n"));
            yaml.extend(hooks.iter().map(|(hook, value)| format!("    {hook}: {value}\n")));
        }
        self.test.put("app/machines/m/machine.yaml", &yaml);
    }

    fn command(&mut self, command: &str) {
        self.write();
        let words: Vec<&str> = command.split(' ').collect();
        let jsonl = ["--format", "jsonl"];
        let id = self.id.clone();
        let ran = match words[0] {
            "run" => self.test.run(&[&["machine", "run", "m"], &words[1..], &jsonl].concat()),
            "resume" => self.test.run(&[&["runs", "resume", &id], &words[1..], &jsonl].concat()),
            "check" => self.test.run(&["check", "--format", "json"]),
            "show" => self.test.run(&["machine", "show", "m", "--format", "json"]),
            other => panic!("no command `{other}`"),
        };
        if words[0] == "run" {
            let last: Value = ran
                .raw
                .split(|b| *b == b'\n')
                .rfind(|line| !line.is_empty())
                .map(serde_json::from_slice)
                .and_then(Result::ok)
                .unwrap_or_default();
            self.id = last["run_id"].as_str().unwrap_or_default().to_owned();
        }
        self.run = Some(ran);
    }

    fn ran(&self) -> &Ran {
        self.run.as_ref().expect("something was run")
    }

    /// Document of the last command.
    pub(super) fn document(&self) -> Value {
        self.ran().lines().pop().expect("a document")
    }

    /// All events of the last command.
    pub(super) fn lines(&self) -> Vec<Value> {
        let lines = self.ran().lines();
        lines.into_iter().filter(|line| line.get("event").is_some()).collect()
    }

    /// Events of the last command with these names.
    pub(super) fn events(&self, names: &[&str]) -> Vec<(String, Value)> {
        let lines = self.ran().lines();
        let name = |line: &Value| line["event"].as_str().map(str::to_owned);
        let reported = lines.into_iter().filter_map(|line| Some((name(&line)?, line["payload"].clone())));
        reported.filter(|(name, _)| names.contains(&name.as_str())).collect()
    }

    /// All requests of a stage.
    pub(super) fn asked(&self, stage: &str) -> Vec<Seen> {
        self.server.seen().into_iter().filter(|seen| stage_of(seen) == stage).collect()
    }

    /// True if a text is in any request.
    pub(super) fn was_sent(&self, text: &str) -> bool {
        self.server.seen().iter().any(|seen| seen.body.to_string().contains(text))
    }

    /// Input of the n-th call of a script.
    pub(super) fn reported(&self, hook: &str, n: usize) -> Value {
        serde_json::from_str(&self.test.read(&format!("hooks/{hook}/{n}.json"))).unwrap_or_default()
    }

    #[track_caller]
    fn hold(&self, claims: &[String]) {
        let context = || format!("exit {}\n{}\n{}", self.ran().code(), self.ran().out(), self.ran().err());
        let named =
            |line: &&String| line.starts_with(|c: char| c.is_ascii_uppercase()) || line.starts_with("permission-");
        let expected: Vec<&String> = claims.iter().filter(named).collect();
        if !expected.is_empty() {
            self.hold_events(&expected, &context());
        }
        let mut rest = claims.iter().filter(|line| !named(line)).peekable();
        let rows: Vec<&str> = claims.iter().filter_map(|line| line.strip_prefix("row ")).collect();
        if !rows.is_empty() {
            assert_eq!(self.rows(), rows, "{}", context());
        }
        while let Some(line) = rest.next() {
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            let (name, more) = value.split_once(' ').unwrap_or((value, ""));
            match word {
                "row" => {}
                "exit" => assert_eq!(self.ran().code().to_string(), value, "{}", context()),
                "output" => assert_eq!(self.document()["output"], json_of(value), "{}", context()),
                "error" => self.hold_error(value, &context()),
                "asked" if more.is_empty() => assert_eq!(self.server.calls().to_string(), name, "{}", context()),
                "asked" => assert_eq!(self.asked(name).len().to_string(), more, "{}", context()),
                "tools" => assert_eq!(self.last(name).tools().join(", "), more, "{}", context()),
                "prompt" => {
                    let system = self.asked(name).first().map(Seen::system).unwrap_or_default();
                    let found = system.replace(&self.id, "[RUN]").trim_end().replace('\n', "\\n");
                    assert_eq!(found, more, "{}", context());
                }
                "talk" => {
                    let mut talk = Vec::new();
                    while let Some(line) = rest.next_if(|line| line.starts_with("- ")) {
                        talk.push(line[2..].to_owned());
                    }
                    assert_eq!(talk_of(&self.last(value)), talk, "{}", context());
                }
                "ran" => {
                    // Calls of one batch run concurrently.
                    let mut ran = self.test.ledger();
                    ran.sort();
                    assert_eq!(ran.join(", "), value.replace("nothing", ""), "{}", context());
                }
                "calls" => {
                    let (hook, n) = value.rsplit_once(' ').expect("a number");
                    let dir = format!("hooks/{}", hook.replace(' ', "-"));
                    assert_eq!(self.test.files_below(&dir).len().to_string(), n, "{line}\n{}", context());
                }
                "told" => self.keep_reported(value, &context()),
                "waits" => {
                    let waiting = self.document()["waiting"][0].clone();
                    let (pointer, expected) = more.split_once(' ').unwrap_or(("", "null"));
                    assert_eq!(waiting["kind"], name, "{}", context());
                    let found = waiting["payload"].pointer(pointer).cloned().filter(|_| !more.is_empty());
                    assert_eq!(found.unwrap_or_default(), json_of(expected), "{}", context());
                }
                "finds" | "warns" => {}
                other => panic!("nothing can be expected of `{other}`"),
            }
        }
        let found: Vec<&str> = claims.iter().filter_map(|line| line.strip_prefix("finds ")).collect();
        if claims.iter().any(|line| line.starts_with("finds") || line.starts_with("warns")) {
            assert_eq!(
                self.faults("error"),
                found.iter().filter(|f| !f.is_empty()).copied().collect::<Vec<_>>(),
                "{}",
                context()
            );
            let warned: Vec<&str> = claims.iter().filter_map(|line| line.strip_prefix("warns ")).collect();
            assert_eq!(self.faults("warning"), warned, "{}", context());
        }
    }

    fn faults(&self, severity: &str) -> Vec<String> {
        let doc = self.ran().value();
        let list = doc["diagnostics"].as_array().cloned().unwrap_or_default();
        let of = list.iter().filter(|fault| fault["severity"] == severity);
        let word = |fault: &Value, key: &str| fault[key].as_str().unwrap_or("-").to_owned();
        of.map(|fault| format!("{}/{} {}", word(fault, "class"), word(fault, "name"), word(fault, "path"))).collect()
    }

    pub(super) fn rows(&self) -> Vec<String> {
        let doc = self.document();
        let row = |row: &Value| {
            let id = row["stageExecutionId"].as_str().unwrap_or("-");
            let id = id.split_once('/').map_or(id, |(_, id)| id).to_owned();
            let (status, verdict) = (row["status"].as_str().unwrap_or("-"), row["verdict"].as_str().unwrap_or("-"));
            let cap = if row["capHit"] == true { " cap" } else { "" };
            format!("{id} {status} {verdict} {}{cap}", row["attemptCount"])
        };
        doc["stages"].as_array().into_iter().flatten().map(row).collect()
    }

    #[track_caller]
    fn hold_error(&self, line: &str, context: &str) {
        let error = self.document()["errors"][0].clone();
        let (code, facts) = line.split_once(' ').unwrap_or((line, ""));
        let found = match (error["class"].as_str(), error["code"].as_str(), error["kind"].as_str()) {
            (Some(class), Some(code), _) => format!("{class}/{code}"),
            (_, _, kind) => kind.unwrap_or("nothing").to_owned(),
        };
        assert_eq!(found, code, "{context}");
        let mut facts_of = error["context"].clone();
        facts_of["stage"] = error["stage"].clone();
        facts_of["message"] = error["message"].clone();
        hold_facts(&facts_of, facts, context);
    }

    #[track_caller]
    fn keep_reported(&self, line: &str, context: &str) {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let (key, n, pointer, expected) = match words.as_slice() {
            [hook, n, pointer, rest @ ..] if OF_MACHINE.contains(hook) => {
                ((*hook).to_owned(), *n, *pointer, rest.join(" "))
            }
            [hook, stage, n, pointer, expected] => (format!("{hook}-{stage}"), *n, *pointer, (*expected).to_owned()),
            _ => panic!("what is told in {line:?}?"),
        };
        let reported = self.reported(&key, n.parse().expect("a number"));
        let text = reported.pointer(pointer).cloned().unwrap_or_default().to_string().replace(&self.id, "[RUN]");
        assert_eq!(json_of(&text), json_of(&expected), "{line}\n{context}");
    }

    #[track_caller]
    fn hold_events(&self, expected: &[&String], context: &str) {
        let names: Vec<&str> = expected.iter().map(|line| line.split(' ').next().unwrap_or_default()).collect();
        let reported = self.events(&names);
        let list = || reported.iter().map(|(name, facts)| format!("{name} {facts}\n")).collect::<String>();
        assert_eq!(reported.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names, "{}\n{context}", list());
        for ((_, facts), line) in reported.iter().zip(expected) {
            let mut words = line.split_once(' ').map_or("", |(_, rest)| rest);
            if let Some((stage, rest)) = words.split_once(' ').or((!words.is_empty()).then_some((words, "")))
                && !stage.contains('=')
            {
                assert_eq!(facts["stageId"], stage, "{line}\n{}", list());
                words = rest;
            }
            hold_facts(facts, words, &format!("{line}\n{}", list()));
        }
    }

    fn last(&self, stage: &str) -> Seen {
        self.asked(stage).pop().unwrap_or_else(|| panic!("`{stage}` was never asked"))
    }
}

/// Checks words `name=value`, separated by spaces; a value with spaces must be the last one.
#[track_caller]
fn hold_facts(facts: &Value, words: &str, context: &str) {
    let mut rest = words.trim();
    while let Some((name, tail)) = rest.split_once('=') {
        let end = tail.match_indices(' ').map(|(at, _)| at).find(|at| {
            tail[at + 1..]
                .split_once('=')
                .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '.'))
        });
        let (value, more) = end.map_or((tail, ""), |at| (&tail[..at], &tail[at + 1..]));
        let found = name.split('.').fold(facts, |found, member| &found[member]);
        let wanted = json_of(value);
        match (value.strip_prefix('~'), found.as_str()) {
            (Some(part), Some(text)) => assert!(text.contains(part), "{name} is {text:?}\n{context}"),
            _ => assert_eq!(*found, wanted, "{name}\n{context}"),
        }
        rest = more;
    }
}

/// Parses JSON; any other text becomes a string.
fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// The calling stage: its completion channel is the last tool.
fn stage_of(seen: &Seen) -> String {
    let tools = seen.tools();
    tools.last().and_then(|name| name.strip_prefix("submit_")).unwrap_or("probe").to_owned()
}

/// Messages after the opening.
fn talk_of(seen: &Seen) -> Vec<String> {
    let messages = seen.body["messages"].as_array().cloned().unwrap_or_default();
    let said = messages.iter().filter(|message| message["role"] != "system").skip(1);
    said.map(|message| {
        let text = message["content"].as_str().unwrap_or_default().replace('\n', " / ");
        let calls: Vec<String> = message["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|call| {
                let part = |name: &str| call["function"][name].as_str().unwrap_or_default().to_owned();
                format!("{} {}", part("name"), part("arguments"))
            })
            .collect();
        format!("{}: {}{}", message["role"].as_str().unwrap_or("?"), text, calls.join("; "))
    })
    .collect()
}

/// A tool that records its name and then runs a shell line.
fn tool(name: &str, does: &str) -> String {
    format!("cat > /dev/null\necho {name} >> \"$LEDGER\"\n{does}\n")
}
