//! Place of each character of shell text: plain, in quotes, in a comment, in a here-document.

/// Place of a character in shell text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Plain text, which the shell divides into words.
    Plain,
    /// Between `"`: the shell still replaces variables.
    Double,
    /// Between `'`: every character stands for itself.
    Single,
    /// After `#`, up to the end of the line.
    Comment,
    /// In a here-document in which the shell replaces variables.
    Here,
    /// In a here-document in which the shell replaces nothing.
    RawHere,
}

impl Place {
    /// Quote that is open at this place.
    pub(crate) fn quote(self) -> Option<char> {
        match self {
            Self::Plain | Self::Comment => None,
            Self::Double | Self::Here => Some('"'),
            Self::Single | Self::RawHere => Some('\''),
        }
    }
}

/// The place of each byte of a text.
pub(crate) fn places(text: &str) -> Vec<Place> {
    let mut scan = Scan { text, found: Vec::with_capacity(text.len()), open: Vec::new(), here: Vec::new() };
    while scan.found.len() < text.len() {
        scan.next();
    }
    scan.found
}

/// Construct that is open around a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Paren,
    Double,
    Single,
}

/// A here-document that begins on the next line.
struct Document<'t> {
    end: &'t str,
    place: Place,
    may_be_indented: bool,
}

struct Scan<'t> {
    text: &'t str,
    found: Vec<Place>,
    open: Vec<Open>,
    here: Vec<Document<'t>>,
}

impl<'t> Scan<'t> {
    fn next(&mut self) {
        let at = self.found.len();
        let rest = &self.text[at..];
        let Some(c) = rest.chars().next() else { return };
        let place = self.place();
        match (place, c) {
            (Place::Plain | Place::Double, '\\') => {
                let escaped = rest.chars().nth(1).map_or(0, char::len_utf8);
                return self.put(place, 1 + escaped);
            }
            (Place::Plain, '#')
                if self.text[..at].chars().next_back().is_none_or(|c| c.is_whitespace() || c == ';') =>
            {
                return self.put(Place::Comment, rest.find('\n').unwrap_or(rest.len()));
            }
            (Place::Plain, '<') if rest.starts_with("<<") => return self.document(rest),
            (_, '\n') if !self.here.is_empty() => return self.documents(),
            _ => {}
        }
        match (place, c) {
            (Place::Plain, '\'') => self.open.push(Open::Single),
            (Place::Plain, '"') => self.open.push(Open::Double),
            (Place::Plain, '(') => self.open.push(Open::Paren),
            (Place::Double, '$') if rest.starts_with("$(") => {
                self.open.push(Open::Paren);
                return self.put(place, 2);
            }
            (Place::Plain, ')') if self.open.last() == Some(&Open::Paren) => drop(self.open.pop()),
            (Place::Double, '"') | (Place::Single, '\'') => drop(self.open.pop()),
            _ => {}
        }
        self.put(place, c.len_utf8());
    }

    fn place(&self) -> Place {
        match self.open.last() {
            None | Some(Open::Paren) => Place::Plain,
            Some(Open::Double) => Place::Double,
            Some(Open::Single) => Place::Single,
        }
    }

    fn put(&mut self, place: Place, bytes: usize) {
        self.found.resize(self.found.len() + bytes, place);
    }

    /// Notes a here-document: `<<END`, `<<-END`, `<<'END'`, `<<\END`; `<<<` begins none.
    fn document(&mut self, rest: &'t str) {
        let marks = rest.bytes().take_while(|byte| *byte == b'<').count();
        if marks == 2 {
            let may_be_indented = rest[2..].starts_with('-');
            let word = rest[2..].trim_start_matches('-').trim_start_matches(' ');
            let is_quoted = word.starts_with(['\'', '"', '\\']);
            let word = word.trim_start_matches(['\'', '"', '\\']);
            let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(word.len());
            if word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                let place = if is_quoted { Place::RawHere } else { Place::Here };
                self.here.push(Document { end: &word[..end], place, may_be_indented });
            }
        }
        self.put(Place::Plain, marks);
    }

    /// Scans the line break and the documents after it.
    fn documents(&mut self) {
        let place = self.place();
        self.put(place, 1);
        for Document { end, place, may_be_indented } in std::mem::take(&mut self.here) {
            while self.found.len() < self.text.len() {
                let rest = &self.text[self.found.len()..];
                let line = rest.split_inclusive('\n').next().unwrap_or(rest);
                self.put(place, line.len());
                let line = line.trim_end_matches('\n');
                let line = if may_be_indented { line.trim_start_matches('\t') } else { line };
                if line == end {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Place of the first occurrence of a part.
    fn place_of(text: &str, part: &str) -> Place {
        places(text)[text.find(part).expect("the part is in the text")]
    }

    /// L-89: quotes, escapes and substitutions are followed as a shell does.
    #[test]
    fn quotes_are_those_of_a_shell() {
        let text = r#"a "b 'c' \"e" 'd"' f "$(g "h" i)j" k"#;
        let expected = [("a", Place::Plain), ("c", Place::Double), ("e", Place::Double), ("d", Place::Single)];
        for (part, place) in expected {
            assert_eq!(place_of(text, part), place, "{part}");
        }
        let expected = [("f", Place::Plain), ("g", Place::Plain), ("h", Place::Double), ("i", Place::Plain)];
        for (part, place) in expected.into_iter().chain([("j", Place::Double), ("k", Place::Plain)]) {
            assert_eq!(place_of(text, part), place, "{part}");
        }
    }

    /// L-89: an apostrophe in a comment opens no quote.
    #[test]
    fn comments_have_no_quotes() {
        let text = "# you're\nx a#b";
        let expected = [("you", Place::Comment), ("x", Place::Plain), ("b", Place::Plain)];
        assert_eq!(expected.map(|(part, _)| place_of(text, part)), expected.map(|(_, place)| place));
    }

    /// L-89: a here-document ends at its word; in a quoted one nothing is replaced.
    #[test]
    fn documents_end_at_their_word() {
        assert_eq!(place_of("c <<E\nit's\nE\nd", "it"), Place::Here);
        assert_eq!(place_of("c <<E\nit's\nE\nd", "d"), Place::Plain);
        assert_eq!(place_of("c \"$(d <<-'END'\n\tx\n\tEND\n)\" y", "x"), Place::RawHere);
        assert_eq!(place_of("c <<\\E\nit's\nE\nd", "it"), Place::RawHere);
        assert_eq!(place_of("c \"$(d <<-'END'\n\tx\n\tEND\n)\" y", "y"), Place::Plain);
        assert_eq!(place_of("c <<< x\ny $((1<<2))\nz", "y"), Place::Plain);
        assert_eq!(place_of("c <<< x\ny $((1<<2))\nz", "z"), Place::Plain);
    }
}
