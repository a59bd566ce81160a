//! One run through any number of processes: killed, resumed, approved, killed again; and the claims about it when it is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::construct::Construct;
use super::settled::{is_of, without_return, without_tries};
use super::shim::{self, Event, Fault};
use super::stop::{self, Stop};
use crate::ran::Ran;
use crate::server::Server;
use crate::test::{Running, Test};

/// Moment at which a process of a run is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Moment {
    /// No kill.
    Never,
    /// At one of its writes to the journal.
    Write(Fault),
    /// After this time, unless it is over by then.
    After(Duration),
}

/// A finished run, with its history.
pub(super) struct Life {
    /// Result document, without ids and times.
    pub(super) document: Value,
    /// Number of beginnings of each effect, and of its completions, by id and attempt.
    pub(super) begun: BTreeMap<String, usize>,
    pub(super) finished: BTreeMap<String, usize>,
    /// Number of beginnings of each effect, by the process that started it; index 0 has those of an unknown process.
    begun_by_process: Vec<BTreeMap<String, usize>>,
    /// Number of processes.
    processes: usize,
    /// Keys of all records, in order.
    pub(super) keys: Vec<String>,
    deaths: Vec<Death>,
    /// Operations of each process on the journal's files.
    pub(super) events: Vec<Vec<Event>>,
    /// Total duration of all processes.
    pub(super) took: Duration,
    pub(super) kills: usize,
    pub(super) resumes: usize,
    /// Number of model calls.
    pub(super) asked: usize,
    /// Number of beginnings of the step to cancel when `runs cancel` reported the cancellation; `None` without a report.
    pub(super) accepted: Option<usize>,
    /// Outcome of the edit, if there was one.
    pub(super) edit: Option<Edit>,
    /// Faults that do not depend on the expected result.
    pub(super) faults: Vec<String>,
}

/// Effect of a definition edited after a death on its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// A resume was refused because of the edit, which was then accepted.
    Accepted,
    /// The run had not stored its definition yet, so that it never had another one.
    Unnoticed,
    /// The run was over.
    TooLate,
}

/// State when a process was killed.
pub(super) struct Death {
    /// Keys of the records, which had an outcome.
    pub(super) keys: Vec<String>,
    /// Number of the killed process within the run, from 1.
    process: usize,
    /// Number of beginnings of each effect that records them in a ledger shared by all processes.
    shared: BTreeMap<String, usize>,
}

/// Next action, with the run's id; for an approval also the pending gates, the next one first.
enum Next {
    Run,
    Approve(String, Vec<String>),
    Resume(String),
    Cancel(String),
    /// Another attempt at a run that has ended.
    Further(String),
    /// The run has ended, and its process was killed before it could report that.
    Look(String),
}

/// Lives through `moments`, one for each process in turn, and then to the end.
pub(super) fn live(construct: &Construct, server: &Server, moments: &[Moment]) -> Life {
    let asked_before = server.calls();
    let test = (construct.build)(Test::new().model_claiming(server, "hard"));
    super::template::put(&test);
    let (mut life, mut next) = (Life::new(), Next::Run);
    let mut moments = moments.iter().copied();
    let mut edit = construct.edit;
    for _ in 0..200 {
        if let (Next::Further(_), Some(further)) = (&next, construct.further) {
            (further.repair)(&test);
        }
        let args = args(construct, &next, life.edit == Some(Edit::Accepted));
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        life.resumes += usize::from(matches!(next, Next::Resume(_)));
        let process_number = test.next_ledger();
        let since = Instant::now();
        let ran = match construct.stop {
            Some(stop) if !matches!(next, Next::Cancel(_) | Next::Look(_)) => {
                stop::process(&test, &words, stop, &mut life, &mut moments)
            }
            _ => {
                let ran = process(&test, &words, moments.next().unwrap_or(Moment::Never));
                life.events.push(shim::events(&test));
                ran
            }
        };
        life.took += since.elapsed();
        life.processes = process_number;
        if ran.code() == KILLED {
            life.kills += 1;
            let shared = counted(&test.ledger_of(0), construct, '+');
            life.deaths.push(Death { keys: keys(&test), process: process_number, shared });
            next = after_death(construct, &test, next);
            if let (Next::Resume(id), Some(edit)) = (&next, edit.take()) {
                edit(&test);
                life.look_at_edit(&test, id);
            }
            continue;
        }
        next = match next {
            Next::Approve(id, mut gates) => {
                // A process killed just after the approval has approved.
                let is_approved = ran.code() == 0 || ran.err().contains("has already been answered");
                assert!(is_approved, "approving: {} {}", ran.code(), ran.err());
                gates.remove(0);
                if gates.is_empty() { Next::Resume(id) } else { Next::Approve(id, gates) }
            }
            // A process killed just after the end of the run has cancelled it.
            Next::Cancel(id) if ran.code() == 2 && ran.err().contains("has ended") => Next::Look(id),
            _ if ran.at("/run_id").is_null() => {
                life.faults.push(format!("{words:?} was refused: {}", ran.err()));
                return life;
            }
            _ if ran.at("/status") == "waiting" => {
                construct.meanwhile.iter().for_each(|does| does(&test));
                Next::Approve(ran.id(), gates(&ran))
            }
            _ if construct.further.is_some() && ran.at("/attempt") == 1 => Next::Further(ran.id()),
            _ => {
                life.end(construct, &test, &ran);
                life.asked = server.calls() - asked_before;
                return life;
            }
        };
    }
    panic!("{}: no end in sight", construct.name);
}

/// Action after a process was killed.
fn after_death(construct: &Construct, test: &Test, next: Next) -> Next {
    match (next, run_id(test)) {
        (_, None) => Next::Run,
        (Next::Approve(_, gates), Some(id)) => Next::Approve(id, gates),
        (_, Some(id)) => match ended_attempt(test, &id) {
            Some(1) if construct.further.is_some() => Next::Further(id),
            // A resume would be another attempt.
            Some(_) => Next::Look(id),
            None if construct.stop == Some(Stop::Death) && stop::begun(test) > 0 => Next::Cancel(id),
            None => Next::Resume(id),
        },
    }
}

/// Number of the attempt with which the run ended, if it has.
fn ended_attempt(test: &Test, id: &str) -> Option<u64> {
    let shown = test.run(&["runs", "show", id, "--format", "json"]);
    let has_ended = ["succeeded", "failed", "cancelled"].iter().any(|status| shown.at("/status") == *status);
    has_ended.then(|| shown.at("/attempt").as_u64().unwrap_or(1))
}

/// Waits until every started step has ended, for at most the duration of a step: one that was started just before its runner
/// was killed has not announced itself yet.
pub(super) fn wait_until_idle(test: &Test) {
    let deadline = Instant::now() + Duration::from_secs(5);
    let (mut seen, mut since) = (test.ledger(), Instant::now());
    while since.elapsed() < Duration::from_millis(300) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        let now = test.ledger();
        let of = |mark: char| now.iter().filter(|line| line.starts_with(mark)).count();
        if now != seen || of('+') > of('-') {
            (seen, since) = (now, Instant::now());
        }
    }
}

/// Exit status of a killed process, as [`Ran`] reports it.
pub(super) const KILLED: i32 = -1;

fn args(construct: &Construct, next: &Next, accepts: bool) -> Vec<String> {
    let words = match next {
        Next::Run => construct.run.to_vec(),
        Next::Approve(_, gates) => vec!["approve", &gates[0]],
        Next::Resume(id) => vec!["runs", "resume", id, "--format", "json"],
        Next::Cancel(id) => vec!["runs", "cancel", id, "--format", "json"],
        Next::Look(id) => vec!["runs", "show", id, "--format", "json"],
        Next::Further(id) => {
            let (word, more) = construct.further.map(|further| further.words).unwrap_or_default();
            [&["runs", word, id, "--format", "json"], more].concat()
        }
    };
    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    if accepts && matches!(next, Next::Resume(_)) {
        words.push("--accept-changes".to_owned());
    }
    words
}

/// Ids of the gates that a run waits for.
fn gates(ran: &Ran) -> Vec<String> {
    let document: Value = serde_json::from_slice(&ran.raw).unwrap_or_default();
    let waiting = document["waiting"].as_array().cloned().unwrap_or_default();
    waiting.iter().filter_map(|gate| gate["id"].as_str().map(str::to_owned)).collect()
}

impl Moment {
    /// Fault for the preloaded library.
    pub(super) fn fault(self) -> Fault {
        match self {
            Self::Write(fault) => fault,
            Self::Never | Self::After(_) => Fault::None,
        }
    }
}

fn process(test: &Test, args: &[&str], moment: Moment) -> Ran {
    let running = test.start_with(shim::with_fault(test, test.command(args), moment.fault()), args);
    match moment {
        Moment::After(time) => killed_after(running, time),
        _ => running.finish(),
    }
}

fn killed_after(mut running: Running, time: Duration) -> Ran {
    std::thread::sleep(time);
    if !running.is_over() {
        running.signal("KILL");
    }
    running.finish()
}

impl Life {
    fn new() -> Self {
        Self {
            document: Value::Null,
            begun: BTreeMap::new(),
            begun_by_process: Vec::new(),
            processes: 0,
            finished: BTreeMap::new(),
            keys: Vec::new(),
            deaths: Vec::new(),
            events: Vec::new(),
            took: Duration::ZERO,
            kills: 0,
            resumes: 0,
            asked: 0,
            accepted: None,
            edit: None,
            faults: Vec::new(),
        }
    }

    /// Checks that an edited run is refused without `--accept-changes`, and that nothing happens. It needs no acceptance if it
    /// is over, or has not stored its definition.
    fn look_at_edit(&mut self, test: &Test, id: &str) {
        // A step that was active when its runner was killed may still write.
        wait_until_idle(test);
        let before = keys(test);
        let own = test.next_ledger();
        let has_definition = before.iter().any(|key| key == "!definition");
        let is_over = ask(test, "select count(*) from results", |row| row.get(0)) == Some(1);
        let ran = test.run(&["runs", "resume", id, "--format", "json"]);
        let edit = match (has_definition, is_over) {
            (_, true) => Edit::TooLate,
            (false, false) => Edit::Unnoticed,
            (true, false) => Edit::Accepted,
        };
        let expected = if edit == Edit::Accepted { 3 } else { 0 };
        if ran.code() != expected {
            self.faults.push(format!(
                "the first resume after the edit ({edit:?}) ended with {}: {}",
                ran.code(),
                ran.err()
            ));
        }
        let after = (keys(test), test.ledger_of(own));
        if edit == Edit::Accepted && after != (before.clone(), Vec::new()) {
            self.faults.push(format!("a refused resume has left records or effects: {after:?} instead of {before:?}"));
        }
        self.edit = Some(edit);
    }

    fn end(&mut self, construct: &Construct, test: &Test, ran: &Ran) {
        self.document = ran.doc();
        // Members that `runs show` adds.
        if let Some(members) = self.document.as_object_mut() {
            let added = [
                "started_at", "changed_at", "app", "input", "definition", "calls", "effects", "target", "routing",
                "decisions", "judged",
            ];
            members.retain(|name, _| !added.contains(&name.as_str()));
        }
        if construct.restarts {
            // A restarted stage has costs of its own.
            without_cost(&mut self.document);
        }
        self.begun_by_process =
            (0..=self.processes).map(|number| counted(&test.ledger_of(number), construct, '+')).collect();
        self.begun = counted(&test.ledger(), construct, '+');
        self.finished = counted(&test.ledger(), construct, '-');
        self.keys = keys(test);
        let shown = test.run(&["runs", "show", &ran.id(), "--format", "json"]);
        if shown.at("/status") != ran.at("/status") {
            self.faults.push(format!("`runs show` says {}", shown.at("/status")));
        }
        let integrity: Option<String> = ask(test, "pragma integrity_check", |row| row.get(0));
        if integrity.as_deref() != Some("ok") {
            self.faults.push(format!("the journal's integrity: {integrity:?}"));
        }
        let begun = stop::begun(test);
        if self.accepted.is_some_and(|before| before != begun) {
            self.faults.push("what was to be cancelled was begun again after the cancellation was accepted".to_owned());
        }
        let last = test.ledger().pop().unwrap_or_default();
        let has_destructor = self.finished.keys().any(|effect| is_of_destructor(effect));
        if has_destructor && !last.contains("_destructor") {
            self.faults.push(format!("the destructor is followed by `{last}`"));
        }
    }

    /// Number of repeated beginnings of effects, in total.
    pub(super) fn repeated(&self, whole: &Self) -> usize {
        self.begun.iter().map(|(id, times)| times.saturating_sub(whole.begun.get(id).copied().unwrap_or(0))).sum()
    }

    /// Effects of the ledger without a record; empty, or less is checked than is claimed.
    pub(super) fn unmatched(&self) -> Vec<&String> {
        // A re-entered stage, or a migration after a later return, has its own record.
        let plain: BTreeSet<String> = self.keys.iter().map(|key| without_return(&without_tries(key))).collect();
        let has_record = |effect: &str| plain.contains(effect) || self.keys.iter().any(|key| is_of(effect, key));
        self.begun.keys().filter(|effect| !has_record(effect)).collect()
    }

    /// Number of completions of the destructor, counted by its last step.
    pub(super) fn destructors(&self) -> usize {
        let is_last = |id: &str| {
            let end = is_of_destructor(id).then(|| id.split_once("/end")).flatten();
            end.is_some_and(|(_, rest)| !rest.starts_with('~'))
        };
        self.finished.iter().filter(|(id, _)| is_last(id)).map(|(_, times)| times).sum()
    }

    /// Differences from a run that was never killed, and forbidden repetitions.
    pub(super) fn differences(&self, construct: &Construct, whole: &Self, edited: Option<&Self>) -> Vec<String> {
        let mut found = self.faults.clone();
        let right = match (self.edit, edited) {
            (Some(Edit::Accepted | Edit::Unnoticed), Some(edited)) => edited,
            _ => whole,
        };
        if self.document != right.document {
            found.push(format!(
                "another end ({:?}):\n{:#}\ninstead of:\n{:#}",
                self.edit, self.document, right.document
            ));
        }
        let ids = |life: &Self| life.begun.keys().cloned().collect::<BTreeSet<_>>();
        if ids(self) != ids(whole) {
            found.push(format!("other effects: {:?} instead of {:?}", ids(self), ids(whole)));
        }
        let of_process = |number: usize, id: &str| self.begun_by_process[number].get(id).copied().unwrap_or(0);
        // A process started before the kill may record later, in the ledger of its parent process.
        let is_settled_and_again = |id: &str| {
            let mut deaths = self.deaths.iter().filter(|death| death.has_settled(id, construct, whole));
            deaths.any(|death| {
                let after = (death.process + 1..self.begun_by_process.len()).any(|number| of_process(number, id) > 0);
                after || of_process(0, id) != death.shared.get(id).copied().unwrap_or(0)
            })
        };
        for (id, times) in &self.begun {
            // Effects that the edit has touched are repeated, and the destructor after them.
            let is_touched = construct.edit.is_some() && (id.contains("/three") || id.starts_with("_destructor/"));
            // Effects that the next attempt starts again had an outcome.
            let starts_again = whole.begun.get(id).is_some_and(|times| *times > 1);
            if !is_touched && !starts_again && is_settled_and_again(id) {
                found.push(format!("`{id}` had an outcome and was begun again: {times} times"));
            }
            let allowed = whole.begun.get(id).copied().unwrap_or(0) + self.kills + usize::from(edited.is_some());
            if *times > allowed {
                found.push(format!("`{id}` was begun {times} times after {} kills", self.kills));
            }
        }
        for (id, times) in &whole.finished {
            if self.finished.get(id).copied().unwrap_or(0) < *times {
                found.push(format!("`{id}` never finished its work"));
            }
        }
        let again = self.asked.saturating_sub(whole.asked);
        if again > self.kills * construct.at_once {
            found.push(format!("{again} answers were asked for again after {} kills", self.kills));
        }
        found
    }
}

/// True for an effect of the destructor, in any attempt.
fn is_of_destructor(effect: &str) -> bool {
    effect.strip_prefix("_destructor").is_some_and(|rest| rest.starts_with(['/', '@']))
}

/// Lines of a ledger with this mark, counted by `ID@TRY` without the run's id.
fn counted(ledger: &[String], construct: &Construct, mark: char) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in ledger.iter().filter_map(|line| line.strip_prefix(mark)) {
        let (_, path) = line.split_once('/').expect("an effect id is a path");
        let path = if construct.restarts { without_return(&without_tries(path)) } else { path.to_owned() };
        *counts.entry(path).or_insert(0) += 1;
    }
    counts
}

fn without_cost(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| name != "usage" && name != "attempts");
            members.values_mut().for_each(without_cost);
        }
        Value::Array(elements) => elements.iter_mut().for_each(without_cost),
        _ => {}
    }
}

/// Keys of all records, read from a copy of the journal: the journal itself is not touched.
pub(super) fn keys(test: &Test) -> Vec<String> {
    let dir = tempfile::tempdir_in(test.path("tmp")).expect("a directory can be made");
    for file in ["journal.db", "journal.db-wal"] {
        // There may be no log yet.
        let _ = std::fs::copy(test.path("home/.local/state/etude").join(file), dir.path().join(file));
    }
    let Ok(connection) = rusqlite::Connection::open(dir.path().join("journal.db")) else { return Vec::new() };
    let Ok(mut statement) = connection.prepare("select key from records order by id") else { return Vec::new() };
    let rows = statement.query_map([], |row| row.get(0)).expect("a query without parameters");
    rows.map_while(Result::ok).collect()
}

/// Id of the only run.
pub(super) fn run_id(test: &Test) -> Option<String> {
    ask(test, "select id from runs", |row| row.get(0))
}

/// First row of a query; `None` if it has none, or no table yet.
fn ask<T>(test: &Test, query: &str, read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>) -> Option<T> {
    let connection = rusqlite::Connection::open(test.path("home/.local/state/etude/journal.db")).ok()?;
    connection.query_row(query, [], read).ok()
}
