//! Many threads and engines at once.

use std::path::Path;
use std::sync::Barrier;
use std::thread;

use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{Engine, Error, Query, RunState, Signal, Signalled};
use etude_sqlite::{Sqlite, Sync};

use crate::open;

fn append_from_eight_threads(engines: &[Sqlite], each: usize) {
    thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let engine = &engines[number % engines.len()];
                let session = block_on(engine.create(&new_run(&format!("r-{number}"), number as i64))).expect("create");
                for step in 0..each {
                    block_on(session.append(record(&format!("{number}/{step}"), "{}"))).expect("append");
                }
                block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("set_state");
            });
        }
    });
    for number in 0..8 {
        let records = engines[0].view(&format!("r-{number}")).expect("view").records;
        let expected: Vec<_> = (0..each).map(|step| record(&format!("{number}/{step}"), "{}")).collect();
        assert!(records == expected, "run {number} differs");
    }
}

#[test]
fn eight_threads_append_to_eight_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    append_from_eight_threads(&[open(dir.path(), Sync::Normal)], 500);
}

#[test]
fn eight_threads_append_to_eight_runs_in_strict_mode() {
    let dir = tempfile::tempdir().expect("a directory");
    append_from_eight_threads(&[open(dir.path(), Sync::Strict)], 30);
}

/// Like several processes: without the queue of writers within one engine.
#[test]
fn several_engines_write_one_journal() {
    let dir = tempfile::tempdir().expect("a directory");
    let engines: Vec<_> = (0..4).map(|_| open(dir.path(), Sync::Normal)).collect();
    append_from_eight_threads(&engines, 200);
}

#[test]
fn a_new_journal_may_be_opened_by_many_at_once() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().expect("a directory");
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for number in 0..8 {
                let (start, dir) = (&start, dir.path());
                scope.spawn(move || {
                    start.wait();
                    let engine = open(dir, Sync::Normal);
                    block_on(engine.create(&new_run(&format!("r-{number}"), 1))).expect("create");
                });
            }
        });
        assert_eq!(open(dir.path(), Sync::Normal).list(&Query::default()).expect("list").len(), 8);
    }
}

fn winners<T: Send>(dir: &Path, attempt: impl Fn(&Sqlite) -> Result<T, Error> + std::marker::Sync) -> usize {
    let start = Barrier::new(6);
    let all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| {
                let (start, attempt) = (&start, &attempt);
                scope.spawn(move || {
                    let engine = open(dir, Sync::Normal);
                    start.wait();
                    attempt(&engine)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    all.iter().filter(|attempt| attempt.is_ok()).count()
}

#[test]
fn one_of_several_engines_gets_a_run() {
    let dir = tempfile::tempdir().expect("a directory");
    for round in 0..30 {
        let id = format!("r-{round}");
        assert_eq!(winners(dir.path(), |engine| block_on(engine.create(&new_run(&id, 1)))), 1);
        assert_eq!(winners(dir.path(), |engine| engine.claim(&id)), 1);
    }
}

/// A run is taken and released by one owner after another, and their files come and go; two owners never have it at once.
#[test]
fn lock_owners_that_come_and_go_admit_no_owner_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(block_on(open(dir.path(), Sync::Normal).create(&new_run("r-1", 1))).expect("create"));
    let inside = std::sync::atomic::AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            let (dir, inside) = (dir.path(), &inside);
            scope.spawn(move || {
                for _ in 0..200 {
                    let Ok(session) = open(dir, Sync::Normal).claim("r-1") else { continue };
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two have the run");
                    block_on(session.set_state(RunState::Running, None)).expect("no one took it away");
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
    });
}

#[test]
fn looking_at_a_run_does_not_make_it_busy() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    drop(block_on(engine.create(&new_run("r-1", 1))).expect("create"));
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                engine.list(&Query::default()).expect("list");
            }
        });
        for _ in 0..300 {
            let claimed = engine.claim("r-1").map(drop);
            if claimed.is_err() {
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            claimed.expect("no one has it");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn one_of_several_answers_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    drop(block_on(engine.create(&new_run("r-1", 1))).expect("create"));
    let answers: Vec<_> = thread::scope(|scope| {
        let engine = &engine;
        let send = |body: String| engine.signal("r-1", &Signal { key: "gate".to_owned(), body }).expect("signal");
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || send(number.to_string()))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(answers.iter().filter(|answer| **answer == Signalled::Accepted).count(), 1);
    let winner = engine.view("r-1").expect("view").signals[0].body.clone();
    assert_eq!(answers.iter().filter(|answer| **answer == Signalled::TooLate(winner.clone())).count(), 7);
}
