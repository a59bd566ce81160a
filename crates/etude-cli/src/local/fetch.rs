//! Download of weights, with a question and a progress bar.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use etude::local::{self, Progress};
use etude_core::failure::FailureKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;

use super::Weights;
use crate::args::Global;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::runtime::block_on;
use crate::signals;
use crate::typed::{Typed, typed};

/// Result of a download.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) path: PathBuf,
    /// True if the weights were already present.
    pub(crate) was_there: bool,
}

/// Interval of progress lines without a terminal.
const LINES: Duration = Duration::from_secs(15);

/// Downloads `weights` unless they are present. An interrupted download is continued.
pub(crate) fn fetch(global: &Global, weights: &Weights) -> Result<Fetched, Problem> {
    if let Some(path) = weights.installed() {
        return Ok(Fetched { path, was_there: true });
    }
    let entry = weights.entry;
    let places = weights.places();
    if !global.quiet {
        crate::render::say!(
            "{}: {}, {}, licence {}, to {}",
            entry.id,
            entry.about,
            weights.size(),
            entry.licence,
            places.dir.display()
        );
    }
    let mut shown = Shown::new(global, entry.size);
    let result = block_on(async {
        let mut stop = signals::listen()?;
        let (emit, mut reported) = mpsc::unbounded_channel();
        // A separate thread: the end of the program does not wait for it, and received data is kept.
        let work = thread::spawn(move || local::pull(entry, &places, &mut |progress| drop(emit.send(progress))));
        loop {
            tokio::select! {
                progress = reported.recv() => match progress {
                    Some(progress) => shown.show(progress),
                    None => return Ok(work.join().ok()),
                },
                _ = stop.changed() => return Ok::<_, Problem>(None),
            }
        }
    })?;
    shown.clear();
    let hint = "the partial download is kept; run the same command to resume it";
    match result? {
        Some(Ok(path)) => Ok(Fetched { path, was_there: false }),
        Some(Err(error)) => Err(Problem::environment(error.to_string()).hint(hint)),
        None => Err(Problem::new(Exit::Interrupted, FailureKind::Cancelled, "the download was interrupted").hint(hint)),
    }
}

struct Shown {
    bar: Option<ProgressBar>,
    speaks: bool,
    last: Instant,
    /// The source that is tried, until it delivers data.
    source: Option<String>,
}

impl Shown {
    fn new(global: &Global, size: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal() && !global.quiet;
        let bar = is_terminal.then(|| {
            let bar = ProgressBar::with_draw_target(Some(size), ProgressDrawTarget::stderr_with_hz(10));
            let form = "  {bar:30.cyan} {bytes} of {total_bytes} {bytes_per_sec:.dim} {eta:.dim} {msg:.dim}";
            if let Ok(style) = ProgressStyle::with_template(form) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar, speaks: !global.quiet, last: Instant::now(), source: None }
    }

    fn show(&mut self, progress: Progress) {
        if matches!(progress, Progress::Bytes { .. })
            && let Some(source) = self.source.take()
        {
            self.say(&format!("from {source}"));
        }
        match progress {
            Progress::Waiting => self.say("another process is downloading the same file; waiting for it"),
            Progress::Source { name } => self.source = Some(name),
            Progress::Verifying => self.say("comparing its SHA-256"),
            // A source that is not configured needs no message.
            Progress::Failed { name, why } if !why.contains("no hub is configured") => {
                self.say(&format!("{name}: {why}"));
            }
            Progress::Failed { .. } => {}
            Progress::Bytes { done, total } => match &self.bar {
                Some(bar) => bar.set_position(done),
                None if self.last.elapsed() > LINES => {
                    self.last = Instant::now();
                    self.say(&format!("{} of {}", local::size(done), local::size(total)));
                }
                None => {}
            },
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| crate::render::say!("  {text}")),
            None if self.speaks => crate::render::say!("  {text}"),
            None => {}
        }
    }

    fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// True once the user has said no: later needs of a model do not ask again.
static DECLINED: AtomicBool = AtomicBool::new(false);

/// Asks at the terminal for the download of `weights`. Returns false if there is no one to ask.
///
/// # Errors
/// The user pressed Ctrl-C.
pub(crate) fn ask(global: &Global, weights: &Weights) -> Result<bool, Problem> {
    if !global.can_ask() || global.quiet || DECLINED.load(Ordering::Relaxed) {
        return Ok(false);
    }
    let (id, size) = (&weights.entry.id, weights.size());
    crate::render::say!(
        "No model is configured, and ANTHROPIC_API_KEY, OPENAI_API_KEY and GEMINI_API_KEY are not set."
    );
    let is_wanted = match typed(&format!("Download the local model {id} ({size}) now? [y/N] "))? {
        Typed::Line(line) => Typed::is_yes(&line),
        Typed::End => false,
        Typed::Stopped(_) => {
            return Err(Problem::new(Exit::Interrupted, FailureKind::Cancelled, "nothing was downloaded"));
        }
    };
    DECLINED.store(!is_wanted, Ordering::Relaxed);
    Ok(is_wanted)
}
