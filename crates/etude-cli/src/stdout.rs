//! Output on stdout, which is data: everything passes through here.
//!
//! A file or a pipe gets it byte for byte; on a terminal, control sequences are escaped.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use etude_core::failure::{Failure, FailureKind};
use etude_core::model::Usage;
use etude_runs::document::Document;
use serde_json::Value;

use crate::render::text::{harmless, screened, visible_json};

static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// True if output was lost, unless its reader closed the pipe.
pub(crate) fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

/// Runs `work` with a buffered stdout. A closed pipe is not an error.
pub(crate) fn with(work: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    through(harmless, work);
}

/// Runs `work` with stdout. A terminal gets the output filtered by `screen`.
fn through(screen: fn(&str) -> String, work: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let stdout = io::stdout().lock();
    let is_terminal = stdout.is_terminal();
    let mut out = BufWriter::new(stdout);
    let result = match is_terminal {
        false => work(&mut out),
        true => {
            let mut bytes = Vec::new();
            let worked = work(&mut bytes);
            worked.and(out.write_all(screen(&String::from_utf8_lossy(&bytes)).as_bytes()))
        }
    };
    let result = result.and_then(|()| out.flush());
    if let Err(error) = result
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        HAS_FAILED.store(true, Ordering::Relaxed);
        crate::render::say!("error: cannot write to stdout: {error}");
    }
}

/// Runs `work`, which writes JSON documents, with a buffered stdout. On a terminal the documents keep their values.
pub(crate) fn documents(work: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    through(visible_json, work);
}

/// Prints one JSON document as a line.
pub(crate) fn json(value: &Value) {
    documents(|out| writeln!(out, "{value}"));
}

/// Prints text.
pub(crate) fn text(text: &str) {
    with(|out| out.write_all(text.as_bytes()));
}

/// Prints text, and a line break if it does not end in one.
pub(crate) fn line(text: &str) {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    with(|out| write!(out, "{text}{end}"));
}

/// Prints human-readable text with etude's own colours, if stdout supports them.
pub(crate) fn styled(text: &str) {
    let has_colors = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    match has_colors {
        true => through(screened, |out| out.write_all(text.as_bytes())),
        false => with(|out| out.write_all(anstream::adapter::strip_str(text).to_string().as_bytes())),
    }
}

/// Prints a result document as a line.
pub(crate) fn document(document: &Document) {
    documents(|out| document.write(out));
}

/// Prints the document for an invalid command line.
pub(crate) fn usage_error(message: &str) {
    let failure = Failure::new(FailureKind::InputInvalid, message.trim_end());
    document(&Document::not_started(None, &[failure], &Usage::default()));
}
