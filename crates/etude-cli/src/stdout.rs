//! stdout is data: everything that goes there goes through here.

use std::io::{self, BufWriter, Write};

use etude::core::failure::{Failure, Kind};
use etude::core::model::Usage;
use etude::document::Document;
use serde_json::Value;

/// Does `work` with a buffered stdout. A reader that has gone away is no error.
pub(crate) fn with(work: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = BufWriter::new(io::stdout().lock());
    let result = work(&mut out).and_then(|()| out.flush());
    if let Err(error) = result
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        anstream::eprintln!("error: stdout cannot be written: {error}");
    }
}

/// Prints one JSON document as a line.
pub(crate) fn json(value: &Value) {
    with(|out| writeln!(out, "{value}"));
}

/// Prints text.
pub(crate) fn text(text: &str) {
    with(|out| out.write_all(text.as_bytes()));
}

/// Prints a result document as a line.
pub(crate) fn document(document: &Document) {
    with(|out| document.write(out));
}

/// The document for a command line that makes no sense.
pub(crate) fn usage_error(message: &str) {
    let failure = Failure::new(Kind::InputInvalid, message.trim_end());
    document(&Document::not_started(None, &[failure], &Usage::default()));
}
