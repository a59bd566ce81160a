//! Text layout within the width of a terminal.

use etude_core::tree::is_json;

use super::text::harmless;

/// Line width in characters if stdout is not a terminal.
const DEFAULT_WIDTH: usize = 100;

/// Minimum line width in characters; narrower terminals are treated as this wide.
const MIN_WIDTH: usize = 40;

/// Line width of stdout, in characters.
pub(crate) fn width() -> usize {
    of_terminal(terminal_size::terminal_size_of(std::io::stdout()))
}

/// Line width of stderr, in characters.
pub(crate) fn width_of_stderr() -> usize {
    of_terminal(terminal_size::terminal_size_of(std::io::stderr()))
}

fn of_terminal(size: Option<(terminal_size::Width, terminal_size::Height)>) -> usize {
    size.map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0).max(MIN_WIDTH))
}

/// Beginning of a text as one line of at most `max` characters.
pub(crate) fn clip(text: &str, max: usize) -> String {
    let line = harmless(text).split_whitespace().collect::<Vec<_>>().join(" ");
    etude_core::report::clip(&line, max)
}

/// First line of a description, cut to fit behind `used` characters; not cut with `--verbose`.
pub(crate) fn description(text: &str, used: usize, is_verbose: bool) -> String {
    const MIN_SHOWN: usize = 20;
    let line = text.lines().next().unwrap_or_default();
    match is_verbose {
        true => harmless(line),
        false => clip(line, width().saturating_sub(used).max(MIN_SHOWN)),
    }
}

/// Wraps a text at `width` characters, between words if possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut out = Vec::new();
    for line in text.lines() {
        let mut rest = line.replace('\t', "    ");
        while let Some((limit, _)) = rest.char_indices().nth(width.max(1)) {
            let at = rest[..limit].rfind(' ').filter(|at| *at > limit / 2).unwrap_or(limit);
            let tail = rest.split_off(at);
            out.push(rest.trim_end().to_owned());
            rest = tail.trim_start().to_owned();
        }
        out.push(rest);
    }
    out
}

/// Beginning or end of a text that may be long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// Wrapped lines to show.
    pub(crate) lines: Vec<String>,
    /// Number of bytes not shown.
    pub(crate) hidden: usize,
}

/// First `max` lines of a text. A JSON document that fits is indented.
pub(crate) fn head(text: &str, max: usize, width: usize) -> Excerpt {
    let indented = indented(text);
    if let Some(lines) = indented.map(|text| wrap(&harmless(&text), width)).filter(|lines| lines.len() <= max) {
        return Excerpt { lines, hidden: 0 };
    }
    // More characters than this cannot be shown.
    let shown: String = text.chars().take(max * width).collect();
    let mut lines = wrap(&harmless(&shown), width);
    lines.truncate(max);
    let seen: usize = lines.iter().map(|line| line.len() + 1).sum();
    let is_whole = shown.len() == text.len() && wrap(&harmless(&shown), width).len() <= max;
    Excerpt { lines, hidden: if is_whole { 0 } else { text.len().saturating_sub(seen).max(1) } }
}

/// Indented form of a short JSON object or array. Its numbers stay as they are written.
fn indented(text: &str) -> Option<String> {
    const MAX_BYTES: usize = 4 * 1024;
    let is_nested = text.len() <= MAX_BYTES && text.trim_start().starts_with(['{', '[']);
    (is_nested && is_json(text)).then(|| etude_core::indent::indented(text, usize::MAX, usize::MAX))
}

/// US dollars: `$0.0123`, `$12.30`.
pub(crate) fn dollars(usd: f64) -> String {
    if usd >= 1.0 { format!("${usd:.2}") } else { format!("${usd:.4}") }
}

/// Formats a table. Each column is as wide as its widest cell, the last one as wide as the line allows. `right` lists the
/// right-aligned columns.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>], right: &[usize], width: usize) -> String {
    let chars = |text: &str| text.chars().count();
    let last = heads.len() - 1;
    let widths: Vec<usize> = heads
        .iter()
        .enumerate()
        .map(|(at, head)| rows.iter().map(|row| chars(&row[at])).max().unwrap_or(0).max(chars(head)))
        .collect();
    let used: usize = widths[..last].iter().map(|column| column + 2).sum();
    let room = width.saturating_sub(used).max(MIN_WIDTH / 4);
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for (at, cell) in cells.enumerate() {
            let cell = if at == last { clip(cell, room) } else { cell.to_owned() };
            let pad = " ".repeat(if at == last { 0 } else { widths[at].saturating_sub(chars(&cell)) });
            let is_right = right.contains(&at);
            out.push_str(&if is_right { format!("{pad}{cell}  ") } else { format!("{cell}{pad}  ") });
        }
        format!("{}\n", out.trim_end())
    };
    let mut out = line(&mut heads.iter().copied());
    for row in rows {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrap("one two three\nfour", 8), ["one two", "three", "four"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
    }

    #[test]
    fn an_excerpt_says_how_much_is_hidden() {
        let all = head("a\nb\nc\n", 3, 10);
        assert_eq!((all.lines, all.hidden), (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], 0));
        let part = head("a\nb\nc\n", 2, 10);
        assert_eq!((part.lines.len(), part.hidden), (2, 2));
        assert_eq!(head(r#"{"a":1}"#, 5, 80).lines, ["{", "  \"a\": 1", "}"]);
        assert_eq!(head(r#"{"a":1}"#, 2, 80).lines, [r#"{"a":1}"#]);
        assert_eq!(head(&"x".repeat(1000), 2, 100).hidden, 798);
    }

    /// A-3.3: people read numbers with all their digits, and letters instead of escapes.
    #[test]
    fn an_indented_value_keeps_its_digits() {
        let lines = ["[", "  12345678901234567890123,", r#"  "é\n""#, "]"];
        assert_eq!(head(r#"[12345678901234567890123,"\u00e9\n"]"#, 9, 80).lines, lines);
        assert_eq!(head("[1,", 9, 80).lines, ["[1,"]);
    }

    #[test]
    fn columns_are_aligned_and_the_last_one_is_cut_at_the_width() {
        let rows = [vec!["a".to_owned(), "10".to_owned(), "a long reason\nthat is cut".to_owned()]];
        assert_eq!(table(&["NAME", "N", "WHY"], &rows, &[1], 24), "NAME   N  WHY\na     10  a long reason…\n");
    }

    #[test]
    fn amounts_have_few_digits() {
        assert_eq!((dollars(0.01234), dollars(12.3)), ("$0.0123".into(), "$12.30".into()));
    }
}
