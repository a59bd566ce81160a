use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

thread_local! {
    /// The directories that this thread has synced.
    pub(super) static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

fn text(blob: &dyn Blob, offset: u64, len: usize) -> String {
    let mut bytes = vec![0; len];
    let got = blob.read_at(offset, &mut bytes).expect("readable");
    String::from_utf8(bytes[..got].to_vec()).expect("text")
}

#[test]
fn what_was_kept_is_read_back_from_any_offset() {
    let dir = tempfile::tempdir().expect("dir");
    let store = FileBlobs::new(dir.path().join("blobs"), true);
    let (digest, blob) = put(&store, b"hello blob").expect("kept");
    assert_eq!(digest, Digest::of(b"hello blob"));
    assert_eq!(text(&*blob, 6, 100), "blob");
    assert_eq!(text(&*store.open(digest).expect("there"), 0, 5), "hello");
    assert_eq!(text(&*blob, 10, 5), "");
}

#[test]
fn files_and_directories_are_private_and_scratch_files_are_gone() {
    let dir = tempfile::tempdir().expect("dir");
    let root = dir.path().join("blobs");
    let store = FileBlobs::new(&root, false);
    assert!(!root.exists());
    let (digest, _) = put(&store, b"x").expect("kept");
    let place = store.place(digest);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&place), mode(place.parent().expect("shelf")), mode(&root)), (0o600, 0o700, 0o700));
    drop(store.scratch().expect("scratch"));
    assert_eq!(entries(&store.scratch_dir()).expect("listed").len(), 0);
}

#[test]
fn kept_bytes_are_not_written_again_but_a_torn_file_is_replaced() {
    let dir = tempfile::tempdir().expect("dir");
    let store = FileBlobs::new(dir.path(), false);
    let (digest, _) = put(&store, b"same").expect("kept");
    store.sync([&digest]).expect("synced");
    let before = fs::metadata(store.place(digest)).expect("there").ino();
    let (again, _) = put(&store, b"same").expect("kept");
    assert_eq!(again, digest);
    assert_eq!(fs::metadata(store.place(digest)).expect("there").ino(), before);
    fs::remove_file(store.place(digest)).expect("removed");
    fs::write(store.place(digest), "s").expect("torn");
    let (_, blob) = put(&store, b"same").expect("kept");
    assert_eq!(text(&*blob, 0, 9), "same");
}

/// K-45: bytes of a value that was not synced may be lost, in a failed sync or with the power. Its file has the right length, and
/// is neither found nor trusted when the value is kept again.
#[test]
fn a_file_that_was_not_synced_is_not_trusted() {
    let dir = tempfile::tempdir().expect("dir");
    for is_strict in [false, true] {
        let store = FileBlobs::new(dir.path(), is_strict);
        let (digest, _) = put(&store, b"same").expect("kept");
        assert!(store.has(digest) && !store.is_lost(digest));
        fs::remove_file(store.place(digest)).expect("removed");
        fs::write(store.place(digest), [0; 4]).expect("lost");
        assert!(store.is_lost(digest) && !store.has(digest));
        let (_, blob) = put(&store, b"same").expect("kept again");
        assert_eq!(text(&*blob, 0, 9), "same");
        assert!(store.has(digest) && !store.is_lost(digest));
    }
}

/// K-45: with `strict`, a value that another store has left to the operating system is on the disk once it is found, with all of
/// its names.
#[test]
fn a_value_that_a_strict_store_finds_is_synced() {
    let dir = tempfile::tempdir().expect("dir");
    let root = dir.path().join("blobs");
    let (digest, _) = put(&FileBlobs::new(&root, false), b"a definition").expect("kept");
    let store = FileBlobs::new(&root, true);
    let shelf = store.place(digest).parent().expect("a shelf").to_owned();
    assert_eq!(SYNCED.take(), Vec::<PathBuf>::new());
    assert!(store.has(digest));
    assert_eq!(SYNCED.take(), [shelf.clone(), root.clone(), dir.path().to_owned()]);
    assert!(fs::metadata(store.place(digest)).expect("there").permissions().readonly());
    assert!(store.has(digest) && SYNCED.take().is_empty());
    // The name of the directory is synced once.
    store.remove(digest).expect("removed");
    put(&store, b"a definition").expect("kept");
    assert_eq!(SYNCED.take(), [shelf, root]);
}

#[test]
fn list_and_remove_know_every_blob() {
    let dir = tempfile::tempdir().expect("dir");
    let store = FileBlobs::new(dir.path(), false);
    assert_eq!(store.list().expect("empty").len(), 0);
    let (one, _) = put(&store, b"one").expect("kept");
    let (two, _) = put(&store, b"three").expect("kept");
    let mut all: Vec<_> = store.list().expect("listed").iter().map(|kept| (kept.digest, kept.len)).collect();
    all.sort();
    let mut expected = vec![(one, 3), (two, 5)];
    expected.sort();
    assert_eq!(all, expected);
    store.remove(one).expect("removed");
    store.remove(one).expect("gone is no error");
    assert_eq!(store.list().expect("listed").len(), 1);
    assert_eq!(store.open(one).expect_err("gone").kind(), io::ErrorKind::NotFound);
}

/// K-49: the directory may be removed while a value is written, before it is kept, and after it was kept. Nothing fails, and
/// no value is cut.
#[test]
fn values_are_kept_in_a_directory_that_is_removed_meanwhile() {
    let dir = tempfile::tempdir().expect("dir");
    for strict in [false, true] {
        let root = dir.path().join("blobs");
        let store = FileBlobs::new(&root, strict);
        put(&store, b"before").expect("kept");
        let mut scratch = store.scratch().expect("scratch");
        scratch.file().write_all(b"first").expect("written");
        fs::remove_dir_all(&root).expect("removed");
        scratch.file().write_all(b" second").expect("written");
        let blob = store.keep(scratch, Digest::of(b"first second"), 12).expect("kept");
        assert_eq!(text(&*blob, 0, 20), "first second");
        assert_eq!(entries(&store.scratch_dir()).expect("listed").len(), 0);
        fs::remove_dir_all(&root).expect("removed");
        let (_, blob) = put(&store, b"after").expect("kept");
        assert_eq!(text(&*blob, 0, 9), "after");
    }
}

/// A value that `has` finds is held: its time is renewed, and no store is alone until the value is let go of, as often as it was
/// found.
#[test]
fn values_that_are_found_are_held() {
    let dir = tempfile::tempdir().expect("dir");
    let (digest, _) = put(&FileBlobs::new(dir.path(), false), b"a definition").expect("kept");
    let (store, other) = (FileBlobs::new(dir.path(), false), FileBlobs::new(dir.path(), false));
    let old = SystemTime::now() - Duration::from_secs(90_000);
    fs::File::open(store.place(digest)).expect("there").set_modified(old).expect("aged");
    assert!(other.alone().expect("locked").is_some());
    assert!(store.has(digest) && !store.has(Digest::of(b"not there")));
    assert!(other.alone().expect("locked").is_none());
    assert!(store.list().expect("listed")[0].modified > old);
    let (again, _) = put(&store, b"a definition").expect("kept again");
    store.let_go([&digest, &Digest::of(b"not there")]);
    assert!(other.alone().expect("locked").is_none() && store.alone().expect("locked").is_none());
    store.let_go([&again]);
    assert!(other.alone().expect("locked").is_some() && store.alone().expect("locked").is_some());
}

/// Of a prune and a store that keeps the same old value at the same time, one comes first: a value that was kept stays.
#[test]
fn an_old_value_that_is_kept_again_stays() {
    let dir = tempfile::tempdir().expect("dir");
    let (store, prune) = (FileBlobs::new(dir.path(), false), FileBlobs::new(dir.path(), false));
    let (digest, _) = put(&store, b"a definition").expect("kept");
    let before = SystemTime::now() - Duration::from_secs(3_600);
    assert!(!prune.remove_older(digest, before).expect("looked at"), "it is young");
    for _ in 0..200 {
        put(&store, b"a definition").expect("kept");
        let old = SystemTime::now() - Duration::from_secs(90_000);
        fs::File::open(store.place(digest)).expect("there").set_modified(old).expect("aged");
        std::thread::scope(|scope| {
            scope.spawn(|| prune.remove_older(digest, before).expect("removed or not"));
            put(&store, b"a definition").expect("kept again");
        });
        assert!(store.open(digest).is_ok());
    }
    assert_eq!(fs::read_dir(dir.path().join("tmp")).expect("the scratch files").count(), 0);
}

/// A prune removes an old value in one step, which no crash divides, and leaves one that a store is about to keep.
#[test]
fn an_old_value_is_removed_in_one_step() {
    let dir = tempfile::tempdir().expect("dir");
    let store = FileBlobs::new(dir.path(), false);
    let (digest, _) = put(&store, b"a definition").expect("kept");
    let before = SystemTime::now() - Duration::from_secs(3_600);
    // Without scratch files, a value cannot be moved aside.
    fs::remove_dir_all(store.scratch_dir()).expect("removed");
    fs::write(store.scratch_dir(), "").expect("written");
    let file = fs::File::open(store.place(digest)).expect("there");
    file.set_modified(before - Duration::from_secs(1)).expect("aged");
    file.lock_shared().expect("locked");
    assert!(!store.remove_older(digest, before).expect("looked at"), "a store uses it");
    assert!(store.open(digest).is_ok());
    file.unlock().expect("unlocked");
    assert!(store.remove_older(digest, before).expect("looked at"));
    assert!(store.open(digest).is_err());
    assert!(!store.remove_older(digest, before).expect("looked at"), "it is gone");
}

/// No value is found or kept while another store removes values.
#[test]
fn a_store_that_is_alone_is_waited_for() {
    let dir = tempfile::tempdir().expect("dir");
    let store = FileBlobs::new(dir.path(), false);
    let (digest, _) = put(&store, b"a definition").expect("kept");
    store.let_go([&digest]);
    let alone = store.alone().expect("locked").expect("no value is held");
    std::thread::scope(|scope| {
        let found = scope.spawn(|| store.has(digest));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!found.is_finished());
        store.remove(digest).expect("removed");
        drop(alone);
        assert!(!found.join().expect("no panic"), "it was removed before");
    });
    assert!(store.alone().expect("locked").is_some());
}

#[test]
fn clean_removes_only_old_scratch_files() {
    let dir = tempfile::tempdir().expect("dir");
    let store = FileBlobs::new(dir.path(), false);
    let young = store.scratch().expect("scratch");
    let old = dir.path().join("tmp").join("1-0");
    let file = fs::File::create(&old).expect("file");
    file.set_modified(SystemTime::now() - Duration::from_secs(90_000)).expect("aged");
    assert_eq!(store.clean().expect("cleaned"), 1);
    assert!(!old.exists() && young.path().exists());
}

#[test]
fn scratch_of_another_length_is_refused() {
    let dir = tempfile::tempdir().expect("dir");
    let store = FileBlobs::new(dir.path(), false);
    let scratch = store.scratch().expect("scratch");
    let error = store.keep(scratch, Digest::of(b"abc"), 3).expect_err("refused");
    assert_eq!(error.to_string(), "the temporary file has 0 bytes instead of 3");
}

/// A synced blob is recognized by its mode, so that the next run of the same definition does not wait for it again. Keeping it
/// again and removing it work as before.
#[test]
fn synced_blob_is_read_only_and_still_renewed_and_removed() {
    let dir = tempfile::tempdir().expect("dir");
    let store = FileBlobs::new(dir.path().join("blobs"), false);
    let (digest, _) = put(&store, b"a definition").expect("kept");
    let mode = || fs::metadata(store.place(digest)).expect("there").permissions();
    assert!(!mode().readonly());
    store.sync([&digest, &Digest::of(b"not there")]).expect("synced");
    assert!(mode().readonly());
    store.sync([&digest]).expect("nothing left to do");
    let (again, blob) = put(&store, b"a definition").expect("kept again");
    let mut read = [0; 12];
    assert_eq!((again, blob.read_at(0, &mut read)), (digest, Ok(12)));
    store.remove(digest).expect("removed");
    assert!(store.open(digest).is_err());
}
