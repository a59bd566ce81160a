//! What a program prints, told while it prints it.

use crate::hearing::Hearing;

/// How much of a program's output was told.
pub(super) struct Heard<'a> {
    hearing: Option<&'a Hearing<'a>>,
    /// Bytes that were told.
    told: usize,
}

impl<'a> Heard<'a> {
    pub(super) fn new(hearing: Option<&'a Hearing<'a>>) -> Self {
        Self { hearing, told: 0 }
    }

    /// Tells what is new in all that was printed. An object is not told: it may be a result object, which is no text,
    /// and an answer that is data is nothing to watch. A character that is not yet whole waits.
    pub(super) fn tell(&mut self, printed: &[u8]) {
        let Some(hearing) = self.hearing else { return };
        if printed.trim_ascii_start().first().is_none_or(|first| *first == b'{') {
            return;
        }
        for chunk in printed[self.told..].utf8_chunks() {
            hearing.text(chunk.valid());
            self.told += chunk.valid().len();
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

    use crate::scrub::Scrubber;

    use super::*;

    fn told(printed: &[&[u8]]) -> Vec<String> {
        let told = Mutex::new(Vec::new());
        let listener = |piece: Piece<'_>| told.lock().expect("no test panicked").push(format!("{piece:?}"));
        let scrub = Scrubber::default();
        let hearing = Hearing::new(&listener, &scrub);
        let mut heard = Heard::new(Some(&hearing));
        printed.iter().for_each(|all| heard.tell(all));
        told.into_inner().expect("no test panicked")
    }

    #[test]
    fn text_is_told_once_and_by_whole_characters() {
        let text = "a é b".as_bytes();
        assert_eq!(told(&[b" ", &text[..3], text]), [r#"Text("a ")"#, r#"Text("é b")"#]);
    }

    #[test]
    fn objects_are_not_told() {
        assert_eq!(told(&[b"\n {", b"\n {\"type\":\"result\"}"]), [""; 0]);
    }
}
