//! Deltas of a program's output, reported while it prints.

use crate::delta_sink::DeltaSink;
use crate::wire::thoughts::Filter;

/// Position in a program's output up to which deltas were reported.
pub(super) struct StdoutDeltas<'a> {
    delta_sink: Option<&'a DeltaSink<'a>>,
    /// Number of bytes that were reported.
    emitted: usize,
    /// Number of blanks at the beginning of the output, which are looked at once.
    blanks: usize,
    /// Holds reasoning back.
    filter: Filter,
}

impl<'a> StdoutDeltas<'a> {
    pub(super) fn new(delta_sink: Option<&'a DeltaSink<'a>>) -> Self {
        Self { delta_sink, emitted: 0, blanks: 0, filter: Filter::default() }
    }

    /// Reports the new part of `printed`, which is the whole output so far. An object is not streamed: it may be a result
    /// object, which is not text, and a response with data is not worth watching. An incomplete character waits for its rest.
    pub(super) fn emit(&mut self, printed: &[u8]) {
        let Some(delta_sink) = self.delta_sink else { return };
        let start = printed[self.blanks..].trim_ascii_start();
        self.blanks = printed.len() - start.len();
        if start.first().is_none_or(|first| *first == b'{') {
            return;
        }
        for chunk in printed[self.emitted..].utf8_chunks() {
            delta_sink.text(&self.filter.pass(chunk.valid()));
            self.emitted += chunk.valid().len();
            if !chunk.invalid().is_empty() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use etude_core::model::Piece;

    use crate::redact::Redactor;

    use super::*;

    fn emitted(printed: &[&[u8]]) -> Vec<String> {
        let emitted = Mutex::new(Vec::new());
        let on_delta = |piece: Piece<'_>| emitted.lock().expect("no test panicked").push(format!("{piece:?}"));
        let redactor = Redactor::default();
        let delta_sink = DeltaSink::new(&on_delta, &redactor);
        let mut stdout_deltas = StdoutDeltas::new(Some(&delta_sink));
        printed.iter().for_each(|all| stdout_deltas.emit(all));
        emitted.into_inner().expect("no test panicked")
    }

    #[test]
    fn text_is_reported_once_and_by_whole_characters() {
        let text = "a é b".as_bytes();
        assert_eq!(emitted(&[b" ", &text[..3], text]), [r#"Text("a ")"#, r#"Text("é b")"#]);
    }

    #[test]
    fn objects_are_not_reported() {
        assert_eq!(emitted(&[b"\n {", b"\n {\"type\":\"result\"}"]), [""; 0]);
    }
}
