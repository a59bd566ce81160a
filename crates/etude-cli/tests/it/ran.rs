//! Result of a command: exit status, stdout and stderr, and assertions about them.

use std::path::Path;

use serde_json::Value;

use crate::redact;

/// A finished command.
pub(crate) struct Ran {
    command: String,
    pub(crate) code: i32,
    /// Unchanged stdout.
    pub(crate) raw: Vec<u8>,
    /// stdout and stderr without ids, times and paths of this test.
    out: String,
    err: String,
}

impl Ran {
    pub(crate) fn new(command: String, code: i32, out: Vec<u8>, err: Vec<u8>, root: &Path) -> Self {
        let redacted = |bytes: &[u8]| redact::text(&String::from_utf8_lossy(bytes), root);
        Self { command, code, out: redacted(&out), err: redacted(&err), raw: out }
    }

    /// stdout as one JSON value.
    #[track_caller]
    pub(crate) fn value(&self) -> Value {
        self.parsed()
    }

    #[track_caller]
    pub(crate) fn exit(self, code: i32) -> Self {
        assert_eq!(self.code, code, "exit status of etude {}\n{}", self.command, self.both());
        self
    }

    /// Asserts the whole stdout.
    #[track_caller]
    pub(crate) fn stdout(self, expected: &str) -> Self {
        self.same("stdout", &self.out, expected);
        self
    }

    /// Asserts the whole stderr.
    #[track_caller]
    pub(crate) fn stderr(self, expected: &str) -> Self {
        self.same("stderr", &self.err, expected);
        self
    }

    #[track_caller]
    pub(crate) fn stderr_has(self, part: &str) -> Self {
        assert!(self.err.contains(part), "stderr of etude {} lacks {part:?}\n{}", self.command, self.both());
        self
    }

    /// Asserts that stdout is exactly this JSON document.
    #[track_caller]
    pub(crate) fn stdout_json(self, expected: Value) -> Self {
        let found = self.doc();
        assert!(
            found == expected,
            "stdout of etude {}:\n{found:#}\n\nexpected:\n{expected:#}\n\nstderr:\n{}",
            self.command,
            self.err
        );
        self
    }

    /// stdout as one JSON document, without ids and times.
    #[track_caller]
    pub(crate) fn doc(&self) -> Value {
        redact::document(self.parsed())
    }

    #[track_caller]
    fn parsed(&self) -> Value {
        assert!(
            self.out.ends_with('\n') && self.out.lines().count() == 1,
            "stdout of etude {} is not one document\n{}",
            self.command,
            self.both()
        );
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("stdout is not JSON: {e}\n{}", self.both()))
    }

    /// All lines of stdout as JSON documents.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.out.lines().map(parsed).map(redact::document).collect()
    }

    /// A member of the document on stdout, by its pointer; null if it is missing.
    #[track_caller]
    pub(crate) fn at(&self, pointer: &str) -> Value {
        self.doc().pointer(pointer).cloned().unwrap_or(Value::Null)
    }

    /// Asserts the whole value of a member of the document.
    #[track_caller]
    pub(crate) fn has(self, pointer: &str, expected: impl Into<Value>) -> Self {
        let (found, expected) = (self.at(pointer), expected.into());
        assert!(
            found == expected,
            "{pointer} of etude {}:\n{found:#}\n\nexpected:\n{expected:#}\n\n{}",
            self.command,
            self.both()
        );
        self
    }

    /// Asserts the output of a successful run.
    #[track_caller]
    pub(crate) fn output(self, expected: impl Into<Value>) -> Self {
        self.exit(0).has("/status", "succeeded").has("/output", expected)
    }

    /// Asserts the kinds and places of the failures, such as `business a: step_failed`.
    #[track_caller]
    pub(crate) fn failed_with(self, expected: &[&str]) -> Self {
        let word = |error: &Value, name: &str| error[name].as_str().unwrap_or("-").to_owned();
        let doc = self.doc();
        let found: Vec<String> = doc["errors"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|error| format!("{} {}: {}", word(error, "phase"), word(error, "step"), word(error, "kind")))
            .collect();
        assert_eq!(found, expected, "errors of etude {}\n{}", self.command, self.both());
        self
    }

    /// Asserts the steps' rows, such as `a succeeded 1`.
    #[track_caller]
    pub(crate) fn steps(self, expected: &[&str]) -> Self {
        let doc = self.doc();
        let found: Vec<String> = doc["steps"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|row| {
                let word = |name: &str| row[name].as_str().unwrap_or("-");
                format!("{} {} {}", word("name"), word("status"), row["attempts"])
            })
            .collect();
        assert_eq!(found, expected, "steps of etude {}\n{}", self.command, self.both());
        self
    }

    /// Id of the run.
    #[track_caller]
    pub(crate) fn id(&self) -> String {
        let last = self.raw.split(|b| *b == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
        let doc: Value = serde_json::from_slice(last).unwrap_or_default();
        doc["run_id"].as_str().unwrap_or_else(|| panic!("no run id\n{}", self.both())).to_owned()
    }

    /// Id of the newest run in a listing.
    #[track_caller]
    pub(crate) fn id_of_first_run(&self) -> String {
        let doc: Value = serde_json::from_slice(&self.raw).unwrap_or_default();
        doc["runs"][0]["run_id"].as_str().unwrap_or_else(|| panic!("no runs\n{}", self.both())).to_owned()
    }

    /// stdout without ids and times.
    pub(crate) fn out(&self) -> &str {
        &self.out
    }

    /// stderr without ids and times.
    pub(crate) fn err(&self) -> &str {
        &self.err
    }

    /// Exit status.
    pub(crate) fn code(&self) -> i32 {
        self.code
    }

    #[track_caller]
    fn same(&self, what: &str, found: &str, expected: &str) {
        let (found, expected) = (lines(found), lines(expected));
        assert!(
            found == expected,
            "{what} of etude {}, exit status {}:\n{found}\n\n===== expected:\n{expected}\n\n===== stderr:\n{}",
            self.command,
            self.code,
            self.err
        );
    }

    fn both(&self) -> String {
        format!("exit status {}\nstdout: {}\nstderr: {}", self.code, self.out, self.err)
    }
}

/// A text without blanks at the ends of its lines, and without empty lines around it.
fn lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}
