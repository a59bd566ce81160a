//! Server-sent events, decoded from bytes that may be cut anywhere.

/// Limit of one event, in bytes; no model or server sends a larger one.
const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

/// A complete event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The `id` field of this event; an id does not carry over to later events.
    pub id: Option<String>,
    /// The event type (`event` field); empty if none was given.
    pub name: String,
    /// The lines of `data`, joined by line breaks.
    pub data: String,
}

/// Error: an event exceeds the size limit.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Decoder of an event stream: takes bytes and yields events. Lines may end in any of the three ways. Comments, unknown
/// fields and events without data are skipped. A field `error` is the data of an event of this type.
#[derive(Debug, Default)]
pub struct Events {
    /// The unfinished line. Text is decoded line by line, so a character that was cut apart is complete again.
    line: Vec<u8>,
    /// True if the last byte was a carriage return; a line feed right after it does not end another line.
    is_after_return: bool,
    is_past_first_line: bool,
    event: Event,
    has_data: bool,
}

impl Events {
    /// Takes more bytes and passes each completed event to `take`.
    ///
    /// # Errors
    /// The first error of `take`, or an event that is too large.
    pub fn push<E: From<TooLarge>>(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(Event) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.is_after_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + self.event.data.len() + piece.len() > MAX_EVENT_BYTES {
                return Err(TooLarge.into());
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { break };
            self.is_after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if let Some(event) = self.end_line() {
                take(event)?;
            }
        }
        Ok(())
    }

    /// The last event, if no empty line closed it: some servers omit that line.
    pub fn end(mut self) -> Option<Event> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.close()
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = match std::mem::replace(&mut self.is_past_first_line, true) {
            false => line.strip_prefix('\u{feff}').unwrap_or(&line),
            true => &line,
        };
        if line.is_empty() {
            return self.close();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.name),
            // llama.cpp reports a failure in a field of this name.
            "error" if !std::mem::replace(&mut self.has_data, true) => {
                field.clone_into(&mut self.event.name);
                value.clone_into(&mut self.event.data);
            }
            "id" => self.event.id = Some(value.to_owned()),
            _ => {}
        }
        None
    }

    fn close(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut events = Events::default();
        let mut out = Vec::new();
        for piece in pieces {
            events
                .push(piece, |event| {
                    out.push(event);
                    Ok::<_, TooLarge>(())
                })
                .expect("small events");
        }
        out.extend(events.end());
        out.into_iter().map(|event| (event.name, event.data)).collect()
    }

    fn named(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect()
    }

    #[test]
    fn every_form_of_the_format_is_read() {
        let text =
            "\u{feff}: a comment\nevent: one\ndata: a\ndata:b\ndata\n\nid: 7\nretry: 10\n\nevent: lost\n\ndata:  x";
        assert_eq!(events(&[text.as_bytes()]), named(&[("one", "a\nb\n"), ("", " x")]));
    }

    #[test]
    fn an_error_field_is_an_event_with_its_data() {
        assert_eq!(
            events(&[b"error: {\"code\":500}\n\ndata: a\nerror: b\n\n"]),
            named(&[("error", "{\"code\":500}"), ("", "a")])
        );
    }

    /// The events are the same for every line ending and every cut of the bytes, also inside a character.
    #[test]
    fn events_do_not_depend_on_line_ends_or_cuts() {
        let expected = named(&[("é", "日本"), ("", "1\n2")]);
        for end in ["\n", "\r\n", "\r"] {
            let text = ["event: é", "data: 日本", "", ":", "data: 1", "data: 2", "", ""].join(end);
            let bytes = text.as_bytes();
            for cut in 0..bytes.len() {
                assert_eq!(events(&[&bytes[..cut], &bytes[cut..]]), expected, "{end:?} {cut}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(events(&single), expected, "{end:?}");
        }
    }

    #[test]
    fn an_id_belongs_to_one_event() {
        let mut ids = Vec::new();
        let taken = Events::default().push(b"id: 1.1\ndata: a\n\ndata: b\n\n", |event| {
            ids.push(event.id);
            Ok::<_, TooLarge>(())
        });
        assert_eq!((taken, ids), (Ok(()), vec![Some("1.1".to_owned()), None]));
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = Events::default();
        let piece = vec![b'x'; MAX_EVENT_BYTES / 4];
        let mut push = || events.push(&piece, |_| Ok::<_, TooLarge>(()));
        for _ in 0..4 {
            assert_eq!(push(), Ok(()));
        }
        assert_eq!(push(), Err(TooLarge));
    }
}
