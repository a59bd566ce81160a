//! Directives in Markdown: `:name[label]{key=value}`, `::name`, `:::name` (D-11).

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value};

/// A directive in a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Directive {
    /// Name of the directive, and of the tool that replaces it.
    pub name: String,
    /// Text in brackets; empty without brackets.
    pub label: String,
    /// Members in braces; empty without braces.
    pub attributes: Map<String, Value>,
    /// Byte range in the text; that of a container excludes its content.
    pub range: Range<usize>,
    /// Content of a container `:::name`, up to the line of colons that closes it.
    pub content: Option<Content>,
}

/// Content of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// The text between the lines that open and close it.
    pub text: String,
    /// End of the container, in bytes: after the colons that close it.
    pub end: usize,
}

/// Minimum number of colons of a container.
const CONTAINER: usize = 3;

/// Parses the directives of a text, in order; those in a container follow it. Code spans and fenced code contain no
/// directives.
pub fn parse(text: &str) -> Vec<Directive> {
    if !text.contains(':') {
        return Vec::new();
    }
    let code = code_ranges(text);
    let (brackets, fences) = (Brackets::find(text), Fences::find(text, &code));
    let mut found: Vec<Directive> = Vec::new();
    let (mut at, mut line, mut seen) = (0, 0, 0);
    while let Some(offset) = text[at..].find(':') {
        let start = at + offset;
        if let Some(range) = around(&code, start) {
            at = range.end;
            continue;
        }
        line = text[seen..start].rfind('\n').map_or(line, |end| seen + end + 1);
        seen = start;
        match one(text, start, line, &brackets) {
            Some(mut directive) => {
                at = directive.range.end;
                directive.content = fences.content(text, &directive.range);
                found.push(directive);
            }
            None => at = start + text[start..].bytes().take_while(|byte| *byte == b':').count(),
        }
    }
    found
}

/// The text from which a directive inserted a value, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Directives after the value, which ends here. The value is data.
    Value(usize),
    /// Directives in inserted text, which begins here, and after it.
    Text(usize),
}

/// Parses the directives of a text from a place on, as if the earlier text were one word. A backtick or bracket in an
/// inserted value changes no later directive.
pub fn parse_from(text: &str, from: From) -> Vec<Directive> {
    let (From::Value(start) | From::Text(start)) = from;
    let (Some(before), Some(after)) = (text.get(..start), text.get(start..)) else { return Vec::new() };
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let begins_line = matches!(from, From::Text(_)) && before[line..].trim().is_empty();
    // Neither a letter nor a blank, of no meaning in Markdown, and of one byte.
    let mut masked = ")".repeat(start);
    if begins_line && masked.pop().is_some() {
        masked.push('\n');
    }
    parse(&(masked + after))
}

/// The range that contains `at`; `ranges` are sorted and disjoint.
fn around(ranges: &[Range<usize>], at: usize) -> Option<&Range<usize>> {
    let after = ranges.partition_point(|range| range.start <= at);
    ranges[..after].last().filter(|range| range.contains(&at))
}

/// Closing positions of the brackets and braces of a text, each within its paragraph. One pass finds them all, so that
/// a text of open brackets takes linear time.
#[derive(Default)]
struct Brackets(BTreeMap<usize, usize>);

impl Brackets {
    fn find(text: &str) -> Self {
        let mut brackets = Self::default();
        let (mut square, mut curly) = (Vec::new(), Vec::new());
        for (at, c) in text.bytes().enumerate() {
            match c {
                b'[' => square.push(at),
                b'{' => curly.push(at),
                b']' => brackets.close(square.pop(), at),
                b'}' => brackets.close(curly.pop(), at),
                b'\n' if text[at + 1..].starts_with('\n') => {
                    square.clear();
                    curly.clear();
                }
                _ => {}
            }
        }
        brackets
    }

    fn close(&mut self, open: Option<usize>, at: usize) {
        self.0.extend(open.map(|open| (open, at)));
    }

    /// Text between the bracket at `open` and the one that closes it.
    fn inside<'t>(&self, text: &'t str, open: usize) -> Option<&'t str> {
        self.0.get(&open).map(|close| &text[open + 1..*close])
    }
}

/// Lines of nothing but colons, by their number of colons; they close containers.
struct Fences(BTreeMap<usize, Vec<Range<usize>>>);

impl Fences {
    fn find(text: &str, code: &[Range<usize>]) -> Self {
        let mut fences: BTreeMap<usize, Vec<Range<usize>>> = BTreeMap::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let colons = line.trim().len();
            if colons >= CONTAINER && line.trim().bytes().all(|byte| byte == b':') && around(code, at).is_none() {
                let start = at + line.len() - line.trim_start().len();
                fences.entry(colons).or_default().push(at..start + colons);
            }
            at += line.len();
        }
        Self(fences)
    }

    /// Content of the container opened at `open`; `None` if it is not a container or is not closed. The first line with
    /// at least as many colons closes it, so containers with fewer may be nested.
    fn content(&self, text: &str, open: &Range<usize>) -> Option<Content> {
        let colons = text[open.clone()].bytes().take_while(|byte| *byte == b':').count();
        let rest = text[open.end..].split_inclusive('\n').next().unwrap_or_default();
        if colons < CONTAINER || !rest.trim().is_empty() {
            return None;
        }
        let begin = open.end + rest.len();
        let after = |lines: &Vec<Range<usize>>| lines.get(lines.partition_point(|line| line.start < begin)).cloned();
        let close = self.0.range(colons..).filter_map(|(_, lines)| after(lines)).min_by_key(|line| line.start)?;
        let inside = text[begin..close.start].trim_end_matches(['\r', '\n']);
        Some(Content { text: inside.to_owned(), end: close.end })
    }
}

/// The directive at `start`, in the line that begins at `line`. `a:b` and `::` alone are not directives.
fn one(text: &str, start: usize, line: usize, brackets: &Brackets) -> Option<Directive> {
    let colons = text[start..].bytes().take_while(|byte| *byte == b':').count();
    let before = text[..start].chars().next_back();
    let is_inline = colons == 1;
    let starts_line = text[line..start].trim().is_empty();
    if (is_inline && before.is_some_and(|c| c.is_alphanumeric() || c == '\\')) || (!is_inline && !starts_line) {
        return None;
    }
    let mut at = start + colons;
    let name = text[at..].bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'-').count();
    let name_text = &text[at..at + name];
    if !name_text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    at += name;
    let mut label = String::new();
    let mut attributes = Map::new();
    let has_label = text[at..].starts_with('[');
    if has_label {
        label = brackets.inside(text, at)?.to_owned();
        at += label.len() + 2;
    }
    let has_attributes = text[at..].starts_with('{');
    if has_attributes && let Some(inside) = brackets.inside(text, at) {
        attributes = attributes_of(inside);
        at += inside.len() + 2;
    }
    // A bare `:word` is only a word after a colon.
    if is_inline && !has_label && !has_attributes {
        return None;
    }
    Some(Directive { name: name_text.to_owned(), label, attributes, range: start..at, content: None })
}

/// Parses `w=1 src="a b" .class #id on`; an attribute without a value is true.
fn attributes_of(text: &str) -> Map<String, Value> {
    let mut attributes = Map::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let key = &rest[..end];
        rest = &rest[end..];
        let value = match rest.strip_prefix('=') {
            None => Value::Bool(true),
            Some(after) => {
                let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
                let (value, left) = match quote {
                    Some(quote) => after[1..].split_once(quote).unwrap_or((&after[1..], "")),
                    None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
                };
                rest = left;
                Value::from(value)
            }
        };
        if !key.is_empty() {
            attributes.insert(key.to_owned(), value);
        }
        rest = rest.trim_start();
    }
    attributes
}

/// Ranges of fenced code and code spans, merged and sorted.
pub(super) fn code_ranges(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut at, mut fence): (usize, Option<(usize, Mark)>) = (0, None);
    for line in text.split_inclusive('\n') {
        match (&fence, Mark::parse(line)) {
            (None, Some(mark)) if mark.opens() => fence = Some((at, mark)),
            (Some((start, open)), Some(mark)) if mark.closes(open) => {
                ranges.push(*start..at + line.len());
                fence = None;
            }
            _ => {}
        }
        at += line.len();
    }
    if let Some((start, _)) = fence {
        ranges.push(start..text.len());
    }
    ranges.extend(spans(text, &ranges));
    ranges.sort_by_key(|range| range.start);
    // A span may reach into a fence; then both form one range.
    ranges.dedup_by(|later, first| {
        let touches = later.start < first.end;
        first.end = if touches { first.end.max(later.end) } else { first.end };
        touches
    });
    ranges
}

/// The line that opens or closes fenced code: at least three backticks or tildes, then other text.
struct Mark<'t> {
    sign: char,
    length: usize,
    rest: &'t str,
}

impl<'t> Mark<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let line = line.trim();
        let sign = line.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
        let rest = line.trim_start_matches(sign);
        let length = line.len() - rest.len();
        (length >= 3).then_some(Self { sign, length, rest })
    }

    /// A line of backticks with another backtick after them is a code span.
    fn opens(&self) -> bool {
        self.sign == '~' || !self.rest.contains('`')
    }

    /// A fence ends at a line of at least as many of its signs and nothing else.
    fn closes(&self, open: &Self) -> bool {
        self.sign == open.sign && self.length >= open.length && self.rest.is_empty()
    }
}

fn spans(text: &str, fences: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(offset) = text[at..].find('`') {
        let start = at + offset;
        if let Some(range) = around(fences, start) {
            at = range.end;
            continue;
        }
        let ticks = text[start..].bytes().take_while(|byte| *byte == b'`').count();
        let mark = &text[start..start + ticks];
        let mut end = start + ticks;
        let close = loop {
            let Some(next) = text[end..].find(mark) else { break None };
            let from = end + next;
            let length = text[from..].bytes().take_while(|byte| *byte == b'`').count();
            if length == ticks {
                break Some(from + length);
            }
            end = from + length;
        };
        at = close.unwrap_or(start + ticks);
        if let Some(close) = close {
            ranges.push(start..close);
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(text: &str) -> Vec<(String, String)> {
        parse(text).into_iter().map(|found| (found.name, found.label)).collect()
    }

    /// D-11, D-D02, D-D03: directives are found in prose but not in code.
    #[test]
    fn directives_stand_in_prose_only() {
        let text = "Hi :arg[who], `:arg[no]` and ``:arg[`no`]``.\n```\n:arg[no]\n```\n::inline[f.md]\n\n:env[HOME]";
        let of = |name: &str, label: &str| (name.to_owned(), label.to_owned());
        assert_eq!(names(text), [of("arg", "who"), of("inline", "f.md"), of("env", "HOME")]);
        assert_eq!(names("at 10:30[x], a:b[c], :word, https://x, \\:arg[x] ::"), []);
    }

    /// D-11: fenced code ends at a line of at least as many signs and nothing else, so code may show fences.
    #[test]
    fn fences_end_at_their_own_signs() {
        let of = |name: &str| (name.to_owned(), name.to_owned());
        for code in [
            "````md\n```\n:no[no]\n```\n````",
            "```\n```js\n:no[no]\n```",
            "~~~\n```\n:no[no]\n~~~",
            "```\n~~~\n:no[no]\n`````",
            "  ```sh\r\n:no[no]\r\n  ```\r",
            "```inline `` :no[no]```",
            "````\n:no[no]\n```",
        ] {
            assert_eq!(names(&format!(":a[a]\n{code}")), [of("a")], "{code}");
        }
        assert_eq!(names("````\n```\n````\n:a[a]\n```code``` :b[b]\n:c[c]"), [of("a"), of("b"), of("c")]);
    }

    /// D-11: an inserted value is data: it neither hides later directives nor reveals those in code.
    #[test]
    fn values_change_no_later_directive() {
        let of = |name: &str| (name.to_owned(), name.to_owned());
        for value in ["`", "``", "```\n", "[", ":x[", "Ann", "{", "\n", "é", ":::c\n", ""] {
            let text = format!("> {value}:b[b] `:no[no]`\n[x] :c[c]\n\n::d[d]");
            let found = parse_from(&text, From::Value(2 + value.len()));
            let names: Vec<_> = found.iter().map(|found| (found.name.clone(), found.label.clone())).collect();
            assert_eq!(names, [of("b"), of("c"), of("d")], "{value}");
            assert!(found.iter().all(|found| text[found.range.clone()].ends_with(']')), "{value}");
        }
        let begin = |text: &str, at| parse_from(text, From::Text(at)).len();
        assert_eq!(
            [begin("a `\n::d[d]", 4), begin("a `::d[d]", 3), begin("::d[d]", 0), begin("`:d[d]", 9)],
            [1, 0, 1, 0]
        );
    }

    /// D-11: a text of nothing but opening signs is read in one pass. Before, these took minutes.
    #[test]
    fn texts_of_beginnings_cost_no_square() {
        for piece in [
            ":a[", ":a{", "`a`", "`a:b", "::", ":::x", ":::x\n", ":::x\n:::\n", "::::x\n:::\n", ":a[b] ", "```\n", "[",
            "`:a[",
        ] {
            parse(&piece.repeat((1 << 18) / piece.len()));
        }
    }

    /// D-11: a line of at least as many colons closes a container; an unclosed container has no content.
    #[test]
    fn containers_have_content() {
        let text =
            ":::chart[b]{a=1}\ninside\n\n:x[y]\n:::\n\n::::outer\n:::inner\nz\n:::\n::::\n::leaf\n:::open\n`:::`\n";
        let contents: Vec<(String, Option<String>)> =
            parse(text).into_iter().map(|found| (found.name, found.content.map(|content| content.text))).collect();
        let of = |name: &str, content: Option<&str>| (name.to_owned(), content.map(str::to_owned));
        assert_eq!(
            contents,
            [
                of("chart", Some("inside\n\n:x[y]")),
                of("x", None),
                of("outer", Some(":::inner\nz\n:::")),
                of("inner", Some("z")),
                of("leaf", None),
                of("open", None),
            ]
        );
        let chart = parse(text).remove(0);
        assert_eq!(&text[chart.content.expect("a container").end..][..10], "\n\n::::oute");
    }

    /// D-11: attributes are texts; one without a value is true.
    #[test]
    fn attributes_are_read() {
        let found = parse("see :chart[a [b]]{w=1 src=\"x y\" on} now");
        assert_eq!(found[0].label, "a [b]");
        assert_eq!(Value::Object(found[0].attributes.clone()), json!({"w": "1", "src": "x y", "on": true}));
        assert_eq!(found[0].range, 4..35);
    }
}
