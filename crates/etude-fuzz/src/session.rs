//! One target for some time, in a process of its own: what panics, aborts, hangs or takes too much memory ends that
//! process, and the input lies in a file that was written before it was tried.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::{Target, corpus, mutate};

#[cfg(unix)]
mod unix;

/// An input that takes longer has hung. Machines that build something else meanwhile are slow.
pub const HANG: Duration = Duration::from_secs(20);

/// What a session may take, in bytes of address space.
pub const MEMORY: u64 = 4 << 30;

/// How a session ended.
#[derive(Debug)]
pub enum End {
    /// The time was up.
    Passed {
        /// How many inputs were tried.
        executions: u64,
    },
    /// A promise was broken.
    Broken {
        /// How the process ended.
        status: ExitStatus,
        /// The input.
        input: PathBuf,
    },
}

/// Runs a target in a new process of this program, which is called as `worker TARGET SECONDS SEED DIRECTORY`.
///
/// # Errors
/// The process cannot be started, or its files cannot be read.
pub fn run(target: &Target, seconds: f64, seed: u64, findings: &Path) -> io::Result<End> {
    fs::create_dir_all(findings)?;
    let scratch = findings.join(format!(".{}-{seed}", target.name));
    fs::create_dir_all(&scratch)?;
    let status = Command::new(std::env::current_exe()?)
        .args(["worker", target.name, &seconds.to_string(), &seed.to_string()])
        .arg(&scratch)
        .status()?;
    let executions = fs::read_to_string(scratch.join("executions")).ok().and_then(|text| text.parse().ok());
    let end = match executions.filter(|_| status.success()) {
        Some(executions) => End::Passed { executions },
        None => {
            let input = findings.join(format!("{}-{seed}", target.name));
            fs::rename(scratch.join("input"), &input)?;
            End::Broken { status, input }
        }
    };
    fs::remove_dir_all(&scratch)?;
    Ok(end)
}

/// The inside of that process: the corpus, then mutations of it.
///
/// # Errors
/// The corpus cannot be read, or an input cannot be noted.
pub fn work(target: &Target, seconds: f64, seed: u64, scratch: &Path) -> io::Result<()> {
    #[cfg(unix)]
    unix::bound_memory(MEMORY)?;
    let begun = watch();
    let mut note = File::create(scratch.join("input"))?;
    let corpus: Vec<Vec<u8>> = corpus::inputs(target.name)?.into_iter().map(|(_, data)| data).collect();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut rng = Rng::with_seed(seed);
    let mut executions = 0_u64;
    let mut once = |data: &[u8]| -> io::Result<()> {
        note.rewind()?;
        note.write_all(data)?;
        note.set_len(data.len() as u64)?;
        executions += 1;
        begun.store(executions, Ordering::Relaxed);
        (target.run)(data);
        Ok(())
    };
    corpus.iter().try_for_each(|data| once(data))?;
    while Instant::now() < end {
        once(&mutate::mutated(&mut rng, &corpus))?;
    }
    fs::write(scratch.join("executions"), executions.to_string())
}

/// Ends the process if the count that is returned stands still for too long.
fn watch() -> Arc<AtomicU64> {
    let begun = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&begun);
    thread::spawn(move || {
        loop {
            let before = seen.load(Ordering::Relaxed);
            thread::sleep(HANG);
            if seen.load(Ordering::Relaxed) == before {
                eprintln!("the input takes longer than {} s", HANG.as_secs());
                std::process::abort();
            }
        }
    });
    begun
}
