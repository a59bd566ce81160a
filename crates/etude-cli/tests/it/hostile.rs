//! Hostile input through the real binary: nothing panics or hangs (each command is ended after a minute), nothing leaves the
//! app, memory stays bounded.

use crate::ran::Ran;
use crate::test::Test;

/// Address space of a command, in KiB: threads and the allocator reserve much more of it than is ever used.
const MEMORY_KIB: u64 = 3 << 20;

impl Test {
    /// Runs a command with bounded memory. It must exit by itself: neither a panic nor a signal.
    #[track_caller]
    pub(crate) fn bounded(&self, args: &[&str]) -> Ran {
        self.bounded_by(MEMORY_KIB, args)
    }

    /// The same with another bound, in KiB.
    #[track_caller]
    pub(crate) fn bounded_by(&self, kib: u64, args: &[&str]) -> Ran {
        let limit = format!("ulimit -v {kib}; exec \"$@\"");
        let ran = self.start_through(&["sh", "-c", &limit, "sh"], args).finish();
        let (code, err) = (ran.code(), ran.err());
        assert!((0..=10).contains(&code) || code == 130, "{args:?} ended with {code}: {}", tail(err));
        assert!(!err.contains("panicked") && !err.contains("overflowed its stack"), "{args:?}: {}", tail(err));
        ran
    }
}

fn tail(text: &str) -> &str {
    &text[text.floor_char_boundary(text.len().saturating_sub(2000))..]
}

/// Creates a pipe without a writer.
pub(crate) fn pipe(test: &Test, path: &str) {
    let path = test.path("app").join(path);
    std::fs::create_dir_all(path.parent().expect("a file has a directory")).expect("a directory can be made");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo is there");
    assert!(made.success());
}

/// Creates a link from a path of the app to anywhere.
pub(crate) fn link(test: &Test, path: &str, target: &str) {
    let path = test.path("app").join(path);
    std::fs::create_dir_all(path.parent().expect("a file has a directory")).expect("a directory can be made");
    std::os::unix::fs::symlink(target, path).expect("a link can be made");
}
