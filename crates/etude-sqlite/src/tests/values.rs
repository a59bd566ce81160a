//! Large values: they are kept, lost and removed with their runs, and are in backups.

use super::*;

#[test]
fn only_old_blobs_that_is_not_needed_are_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let keep = |bytes: &[u8]| put(&*journal.blobs, bytes).expect("a blob can be kept").0;
    let (needed, cached, old, young) = (keep(b"needed"), keep(b"cached"), keep(b"old"), keep(b"young"));
    let input = keep(b"input");
    let header = format!(r#"{{"v":1,"input_at":["{input}",5]}}"#);
    let asked = block_on(journal.create(&NewRun { header, ..new_run("r-2", 1) })).expect("create");
    block_on(asked.set_state(RunState::Waiting, None)).expect("set_state");
    drop(asked);
    let result = format!("\"{}\"", "r".repeat(300_000));
    let session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    let mut needing = record("a", "1");
    needing.blobs.push(needed);
    block_on(session.append(needing.clone())).expect("append");
    block_on(session.set_state(RunState::Succeeded, Some(&result))).expect("set_state");
    let mut stored = cached_value(&journal, cached);
    journal.remember(Digest::of(b"key"), &stored, &CacheLabel::default()).expect("remember");
    let result = Digest::of(result.as_bytes());
    for blob in [needed, cached, old, result, input] {
        let name = blob.to_string();
        let file = File::open(journal.dir.join("blobs").join(&name[..2]).join(&name)).expect("the blob's file");
        file.set_modified(SystemTime::now() - Duration::from_secs(7_200)).expect("it can be made old");
    }
    let is_alive = |blob: Digest| journal.blobs.list().expect("list").iter().any(|kept| kept.digest == blob);
    journal.prune(&Query { apps: vec!["another".to_owned()], ..Query::default() }).expect("prune");
    assert_eq!([needed, cached, old, young, result, input].map(is_alive), [true, true, false, true, true, true]);
    drop(session);
    // Stored again by a driver that has not appended its record yet.
    keep(b"needed");
    assert_eq!(journal.prune(&Query::default()).expect("prune"), 1);
    assert_eq!([needed, cached, young, result, input].map(is_alive), [true, true, true, false, true]);
    let backup = journal.backup(&dir.path().join("backup.tar")).expect("backup");
    assert_eq!(backup.blobs, 2, "the input of the run that waits, and the cached value");
    stored = journal.recall(Digest::of(b"key"), None).expect("recall").expect("it is cached");
    assert_eq!(stored.text().expect("text").as_ref(), "cached");
}

fn make_old(journal: &Journal, blob: Digest) {
    let name = blob.to_string();
    let file = File::open(journal.dir.join("blobs").join(&name[..2]).join(&name)).expect("the blob's file");
    file.set_modified(SystemTime::now() - Duration::from_secs(7_200)).expect("it can be made old");
}

/// A large input is on the disk with the row of its run, like a value of a record: without it, the run could not continue after
/// a loss of power. Synced values are read-only.
#[test]
fn a_large_input_is_synced_with_its_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let of = |id: &str| {
        let (input, _) = put(&*journal.blobs, id.as_bytes()).expect("kept");
        let run = NewRun { header: format!(r#"{{"v":1,"input_at":["{input}",3]}}"#), ..new_run(id, 1) };
        let name = input.to_string();
        (run, journal.dir.join("blobs").join(&name[..2]).join(name))
    };
    let submission = |run: NewRun| Submission { run, keys: vec![], max_queued: None, needs_room: false };
    let (created, queued, ticked) = (of("r-1"), of("r-2"), of("r-3"));
    drop(block_on(journal.create(&created.0)).expect("created"));
    journal.enqueue(&submission(queued.0)).expect("accepted");
    let (entry, submission) = (Entry { book: "ticks".to_owned(), ..Entry::default() }, Some(submission(ticked.0)));
    journal.write_entry(&Write { entry, expected: Expected::Nothing, submission, is_alone: false }).expect("written");
    let since = Instant::now();
    for path in [created.1, queued.1, ticked.1] {
        while !std::fs::metadata(&path).expect("a value").permissions().readonly() {
            assert!(since.elapsed() < Duration::from_secs(60), "{} was never synced", path.display());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A cached value that a run takes is held for it: the record that refers to it comes later, and the cache may forget it before.
#[test]
fn a_recalled_value_stays_for_its_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let blob = put(&*journal.blobs, b"cached").expect("kept").0;
    let value = cached_value(&journal, blob);
    journal.remember(Digest::of(b"key"), &value, &CacheLabel::default()).expect("remember");
    make_old(&journal, blob);
    let recalled = journal.recall(Digest::of(b"key"), None).expect("recall").expect("it is cached");
    let other = open(&dir);
    other.forget(&Default::default()).expect("forget");
    other.prune(&Query::default()).expect("prune");
    assert_eq!(recalled.text().expect("it is there").as_ref(), "cached");
}

/// A cached value is not synced. After a loss of power, its step runs again.
#[test]
fn a_cached_value_that_was_lost_with_the_power_is_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let blob = put(&*journal.blobs, b"cached").expect("kept").0;
    journal.remember(Digest::of(b"key"), &cached_value(&journal, blob), &CacheLabel::default()).expect("remember");
    let name = blob.to_string();
    std::fs::write(journal.dir.join("blobs").join(&name[..2]).join(&name), "cac").expect("it can be cut");
    assert!(journal.recall(Digest::of(b"key"), None).expect("recall").is_none());
}

/// A-5.3: after a loss of power, a record that was on the disk before its value is dropped, with all records after it. A value
/// that is empty or cut although it was synced is damage, and stays reportable.
#[test]
fn what_lost_its_value_with_the_power_goes_from_the_run() {
    let (lost, kept) = (vec!["a", "d"], vec!["a", "b", "c", "d"]);
    for (rest, is_synced, left) in
        [("", false, &lost), ("a lar", false, &lost), ("", true, &kept), ("a lar", true, &kept)]
    {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = open(&dir);
        let session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
        let value = put(&*journal.blobs, b"a large value").expect("a blob can be kept").0;
        let mut large = record("b", "2");
        large.blobs.push(value);
        for record in [record("a", "1"), large, record("c", "3")] {
            block_on(session.append(record.clone())).expect("append");
        }
        drop(session);
        let name = value.to_string();
        let path = journal.dir.join("blobs").join(&name[..2]).join(&name);
        // The thread that syncs the value marks it, and would mark the replacement.
        while !std::fs::metadata(&path).expect("the blob's file").permissions().readonly() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, rest).expect("it can be written");
        if is_synced {
            journal.blobs.sync([&value]).expect("sync");
        }
        let session = journal.claim("r-1").expect("claim");
        block_on(session.append(record("d", "4"))).expect("append");
        let keys: Vec<String> = session.records().expect("records").into_iter().map(|record| record.key).collect();
        assert_eq!(keys, *left, "`{rest}`, synced: {is_synced}");
    }
}

fn cached_value(journal: &Journal, blob: Digest) -> Json {
    use etude_core::data::Stored;
    use etude_runtime::blob::BlobStore as _;
    let source = journal.blobs.open(blob).expect("the blob is there");
    Json::stored(Stored { blob, offset: 0, len: 6, digest: blob, source })
}

/// All bytes of the files below a directory.
fn all_bytes(dir: &std::path::Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        all.extend(if path.is_dir() { all_bytes(&path) } else { std::fs::read(&path).expect("a file") });
    }
    all
}

/// SECURITY.md: after a prune the bytes of a removed run are in no file, short or long, young or old.
#[test]
fn the_bytes_of_a_pruned_run_are_gone_from_every_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let secret = format!("{}-canary", "wal");
    {
        let journal = open(&dir);
        let session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
        let (blob, _) = etude_runtime::blob::put(&*journal.blobs, secret.repeat(50_000).as_bytes()).expect("kept");
        let mut large = record("large", "1");
        large.blobs.push(blob);
        block_on(session.append(large.clone())).expect("append");
        block_on(session.append(record("short", &format!("\"{secret}\"")))).expect("append");
        block_on(session.append(record("long", &format!("\"{}\"", secret.repeat(5_000))))).expect("append");
        block_on(session.set_state(RunState::Succeeded, Some(&format!("{{\"output\":\"{secret}\"}}"))))
            .expect("set_state");
    }
    let has_secret = || all_bytes(dir.path()).windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
    assert!(has_secret(), "the journal holds what was written");
    let journal = open(&dir);
    assert_eq!(journal.prune(&Query::default()).expect("prune"), 1);
    assert!(!has_secret());
}

/// S-63: the values of a deleted run are gone at once, although this process has kept them and drives other runs.
#[test]
fn a_process_that_keeps_values_deletes_those_of_a_run() {
    use etude_runtime::blob::BlobStore as _;
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let kept = |text: &str| put(&*journal.blobs, text.as_bytes()).expect("kept").0;
    let (input, output) = (kept("an input"), kept("an output"));
    let long = format!("\"{}\"", "x".repeat(300_000));
    let label = CacheLabel::default();
    journal.remember(Digest::of(b"key"), &Json::trusted(long.clone()), &label).expect("remembered");
    let run = NewRun { header: format!(r#"{{"v":1,"input_at":["{input}",8]}}"#), ..new_run("r-1", 1) };
    let session = block_on(journal.create(&run)).expect("created");
    let mut large = record("a", "1");
    large.blobs.push(output);
    block_on(session.append(large)).expect("appended");
    block_on(session.set_state(RunState::Succeeded, Some(&long.replace('x', "y")))).expect("set_state");
    let _other = block_on(journal.create(&new_run("r-2", 1))).expect("created");
    let of_run = Query { id: Some("r-1".to_owned()), ..Query::default() };
    assert_eq!(journal.prune(&of_run).expect("prune"), 1);
    let left: Vec<Digest> = journal.blobs.list().expect("a list").into_iter().map(|kept| kept.digest).collect();
    assert_eq!(left, [Digest::of(long.as_bytes())], "the cache has its value");
    let awaited = kept("an output");
    assert_eq!(journal.prune(&Query::default()).expect("prune"), 0);
    assert!(journal.blobs.open(awaited).is_ok(), "its record may come");
}

/// A value that another process has just stored may be about to get its record.
#[test]
fn young_values_stay_while_another_store_keeps_some() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let other = etude_runtime::blob::FileBlobs::new(journal.dir.join("blobs"), false);
    let (kept, _) = etude_runtime::blob::put(&other, b"about to be referred to").expect("kept");
    journal.prune(&Query::default()).expect("prune");
    assert!(etude_runtime::blob::BlobStore::open(&other, kept).is_ok());
    drop(other);
    journal.prune(&Query::default()).expect("prune");
    assert!(etude_runtime::blob::BlobStore::open(&*journal.blobs, kept).is_err());
}

/// A backup has its name once it is whole. What a killed one has left is removed by the next; a file of another is not replaced.
#[test]
fn a_backup_is_whole_or_absent() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let (file, left) = (dir.path().join("backup.tar"), dir.path().join(".backup.tar.7-0.part"));
    File::create(&left).expect("a file").set_modified(SystemTime::UNIX_EPOCH).expect("aged");
    std::fs::create_dir(journal.dir.join("blobs")).expect("a directory");
    std::fs::write(journal.dir.join("blobs/tmp"), "no directory").expect("written");
    journal.backup(&file).expect_err("there is no scratch file");
    assert!(!file.exists());
    std::fs::remove_file(journal.dir.join("blobs/tmp")).expect("removed");
    journal.backup(&file).expect("a backup");
    assert!(!left.exists());
    let refused = journal.backup(&file).expect_err("it exists").to_string();
    assert!(refused.contains("exists"), "{refused}");
}

/// A backup beside a prune shows the journal either before the prune or after it.
#[test]
fn a_backup_beside_a_prune_is_whole() {
    use etude_runtime::blob::BlobStore as _;
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let finished = |id: &str| {
        let session = block_on(journal.create(&new_run(id, 1))).expect("create");
        let blob = put(&*journal.blobs, id.as_bytes()).expect("kept").0;
        let mut large = record("a", "1");
        large.blobs.push(blob);
        block_on(session.append(large)).expect("append");
        block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
        make_old(&journal, blob);
        blob
    };
    let prune = || open(&dir).prune(&Query::default()).expect("prune");
    let (blob, pruned) = (finished("r-1"), std::cell::Cell::new(0));
    let before_hold = |journal: &Journal| {
        let copied = journal.snapshot();
        pruned.set(pruned.get() + prune());
        copied
    };
    let (_, runs, blobs) = journal.hold_snapshot(&before_hold).expect("a snapshot");
    assert_eq!((pruned.get(), runs, blobs.len()), (1, 0, 0));
    let lost = journal.blobs.open(blob).map(drop).expect_err("it is pruned");
    assert_eq!(lost.kind(), std::io::ErrorKind::NotFound);
    let blob = finished("r-2");
    let (_, runs, blobs) = journal.hold_snapshot(&Journal::snapshot).expect("a snapshot");
    assert_eq!((prune(), runs, blobs.into_iter().collect::<Vec<_>>()), (1, 1, vec![blob]));
    assert!(journal.blobs.open(blob).is_ok(), "it is held until it is read");
}
