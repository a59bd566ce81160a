//! Faults at exact moments, without any support in the program: a small library that is preloaded into it, on Linux.
//!
//! It counts the operations of the program on the files of its journal, and kills it or lets a call fail at one of these
//! events. It is compiled once, with the compiler that SQLite was compiled with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::test::{Test, skipped};

const SOURCE: &str = include_str!("shim.c");

/// Fault at an event. Events are numbered from 1 within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Events are only counted.
    None,
    /// `kill -9` before the event.
    Before(usize),
    /// `kill -9` after the event.
    After(usize),
    /// Half of the write happens, then `kill -9`.
    Torn(usize),
    /// The events from the first to the last end with this error and do nothing.
    Fail { first: usize, last: usize, errno: i32 },
}

/// `errno` of a full disk.
pub(crate) const ENOSPC: i32 = 28;
/// `errno` of a disk failure.
pub(crate) const EIO: i32 = 5;

/// An event: the call, and the file below the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) call: String,
    pub(crate) file: String,
}

/// Path of the compiled library. `None`, with a message, if the system has no such preloaded libraries, or no C compiler.
pub(crate) fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY.get_or_init(compiled).as_deref()
}

/// True if a test that needs faults must be skipped; the skip is reported.
pub(crate) fn is_missing(test: &str) -> bool {
    let is_missing = library().is_none();
    if is_missing {
        skipped(test, "there are no faults at exact moments here");
    }
    is_missing
}

fn compiled() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        skipped("faults at exact moments", "they need Linux; kills are at arbitrary moments only");
        return None;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Several test processes may do this at once: each creates its own file, and the last one stays.
    let (own, place) = (dir.join(format!("shim-{}", std::process::id())), dir.join("shim.so"));
    let source = own.with_extension("c");
    std::fs::write(&source, SOURCE).expect("the directory for tests can be written to");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"];
    let status = Command::new(compiler).args(flags).arg(&own).arg(&source).arg("-ldl").status();
    let _ = std::fs::remove_file(&source);
    if !status.is_ok_and(|status| status.success()) {
        skipped("faults at exact moments", "there is no C compiler; kills are at arbitrary moments only");
        return None;
    }
    std::fs::rename(&own, &place).expect("the library can be put into its place");
    Some(place)
}

/// A command whose process has this fault in the directory of its journal. Without a library it is unchanged.
pub(crate) fn with_fault(test: &Test, command: Command, fault: Fault) -> Command {
    with_fault_reported(test, command, fault, EVENTS)
}

/// The same with another file for its events: for a process beside another one that has a fault.
pub(crate) fn with_fault_reported(test: &Test, mut command: Command, fault: Fault, events: &str) -> Command {
    let Some(library) = library() else { return command };
    let plan = match fault {
        Fault::None => "count 0 0 0".to_owned(),
        Fault::Before(at) => format!("before {at} {at} 0"),
        Fault::After(at) => format!("after {at} {at} 0"),
        Fault::Torn(at) => format!("torn {at} {at} 0"),
        Fault::Fail { first, last, errno } => format!("fail {first} {last} {errno}"),
    };
    let log = test.path(events);
    let _ = std::fs::remove_file(&log);
    command
        .env("LD_PRELOAD", library)
        .env("ETUDE_SHIM_DIR", test.path("home/.local/state/etude"))
        .env("ETUDE_SHIM_PLAN", plan)
        .env("ETUDE_SHIM_LOG", log);
    command
}

/// Events of the latest process with a fault.
pub(crate) fn events(test: &Test) -> Vec<Event> {
    events_at(test, EVENTS)
}

/// Events of the latest process that reports them to that file.
pub(crate) fn events_at(test: &Test, events: &str) -> Vec<Event> {
    let text = test.read(events);
    let event = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (call, file) = (words.next()?, words.next()?);
        Some(Event { call: call.to_owned(), file: file.trim_start_matches('/').to_owned() })
    };
    text.lines().filter_map(event).collect()
}

/// File of the events, below the root of the test.
const EVENTS: &str = "events";
