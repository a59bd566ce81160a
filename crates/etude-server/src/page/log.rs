//! A stream of an effect as lines. It is read by ranges of bytes, and may have any size.

use http::StatusCode;
use maud::{Markup, html};

use super::shell::{Section, Shell};
use super::text::{bytes, number, visible};
use super::{row, segment, source};
use crate::problem::Problem;
use crate::query::invalid;
use crate::request::{Call, Respond};

/// Bytes read per page.
const PAGE: u64 = 256 * 1024;

/// Maximum number of lines on a page.
const MAX_LINES: usize = 2_000;

/// Maximum number of bytes that one search reads.
const SEARCHED: u64 = 16 * 1024 * 1024;

/// Maximum number of lines that one search finds.
const FOUND: usize = 500;

/// Maximum number of marks on a page. A mark takes many times the bytes of a short text that it marks.
const MAX_MARKS: usize = 5_000;

/// A line, and the offset of its first byte.
struct Line {
    at: u64,
    text: String,
}

/// Whole lines of a range, and the offset of the next ones.
struct Lines {
    lines: Vec<Line>,
    next: u64,
    total: u64,
}

/// `GET /runs/{id}/log/{effect}/{stream}`.
pub(crate) async fn show(call: Call) -> Respond {
    let shell = Shell::new(&call).await?;
    let (id, effect, stream) = (call.param("id"), call.param("effect"), call.param("stream"));
    let place = format!("/runs/{}/effects/{}/{}", segment(id), segment(effect), segment(stream));
    let is_end = call.query.flag("end")?;
    let is_wrapped = call.query.get("wrap").is_none() || call.query.flag("wrap")?;
    let from = match call.query.get("from") {
        None => 0,
        Some(text) => text.parse().map_err(|_| invalid("from", "`from` must be a number of bytes"))?,
    };
    let to = call.query.get("to").map(|text| text.parse().map_err(|_| invalid("to", "`to` must be a number of bytes")));
    let wanted = call.query.get("q").filter(|text| !text.is_empty());
    let source = format!("/v1{place}");
    let read = match wanted {
        Some(text) => search(&call, &source, from, text).await?,
        None if is_end => {
            let (_, total) = source::range(&call, &source, 0, 1).await?;
            before(&call, &source, total).await?
        }
        None => match to.transpose()? {
            Some(to) => before(&call, &source, to).await?,
            None => lines(&call, &source, from).await?,
        },
    };
    let first = read.lines.first().map_or(from, |line| line.at);
    let path = format!("/runs/{}/log/{}/{}", segment(id), segment(effect), segment(stream));
    let link = |query: &str| shell.link(&format!("{path}?{query}{}", if is_wrapped { "" } else { "&wrap=false" }));
    let body = html! {
        div.head {
            nav.crumbs aria-label="Path" { a href=(shell.link("/")) { "Runs" } "/" a href=(shell.link(&format!("/runs/{}?at={}", segment(id), segment(effect)))) { code { (row::short(id)) } } "/" code { (visible(effect)) } }
            div.line { h1 { (visible(stream)) } span.second { (bytes(read.total)) } span.grow {}
                div.actions {
                    a.button href=(link("from=0")) { "Start" }
                    @if first > 0 && wanted.is_none() { a.button href=(link(&format!("to={first}"))) rel="prev" { "Earlier" } }
                    @if read.next < read.total { a.button href=(link(&format!("from={}{}", read.next, wanted.map(|text| format!("&q={}", segment(text))).unwrap_or_default()))) rel="next" { @if wanted.is_some() { "Search on" } @else { "Later" } } }
                    a.button href=(link("end=true")) { "End" }
                    a.button href=(shell.link(&format!("{path}?from={first}{}", if is_wrapped { "&wrap=false" } else { "" }))) { @if is_wrapped { "Do not wrap" } @else { "Wrap" } }
                    a.button href=(shell.link(&source)) download=(format!("{stream}.txt")) { "Download" }
                }
            }
            form.filters method="get" action=(shell.link(&path)) role="search" { input type="search" name="q" value=(wanted.unwrap_or_default()) placeholder="Search" aria-label="Search the text" data-search; button { "Search" } @if wanted.is_some() { a href=(link("from=0")) { "Clear" } } }
            @if let Some(text) = wanted { p.second role="status" { (number(read.lines.len() as u64)) " lines with “" (visible(text)) "” in bytes " (number(from)) " to " (number(read.next)) "." @if marks(&read, text) > MAX_MARKS { " Only the first " (number(MAX_MARKS as u64)) " places are marked." } } }
        }
        div.log id="log" data-live[is_end] class=[(!is_wrapped).then_some("nowrap")] tabindex="0" {
            @if read.lines.is_empty() { p.empty { @if wanted.is_some() { "No line contains this text." } @else { "The text is empty." } } }
            (list(&read, wanted, &link))
        }
    };
    let title = format!("{stream} of {effect}");
    Ok(shell.page(StatusCode::OK, &title, Section::Runs, body))
}

/// The number of places with the text, counted up to one more than the maximum number of marks.
fn marks(read: &Lines, wanted: &str) -> usize {
    read.lines.iter().flat_map(|line| line.text.matches(wanted)).take(MAX_MARKS + 1).count()
}

fn list(read: &Lines, wanted: Option<&str>, link: &dyn Fn(&str) -> String) -> Markup {
    let mut left = MAX_MARKS;
    html! {
        ol {
            @for line in &read.lines {
                li { span.at { @if wanted.is_some() { a href=(link(&format!("from={}", line.at))) { (number(line.at)) } } @else { (number(line.at)) } }
                    span { @match wanted { Some(wanted) => { (marked(&line.text, wanted, &mut left)) }, None => { (visible(&line.text)) } } } }
            }
        }
    }
}

/// A line with marks at the text, as long as marks are left.
fn marked(line: &str, wanted: &str, left: &mut usize) -> Markup {
    // The last part has the places without marks.
    let parts = line.splitn(left.saturating_add(1), wanted);
    html! {
        @for (nth, part) in parts.enumerate() {
            @if nth > 0 { mark { (visible(wanted)) } ({ *left -= 1; "" }) }
            (visible(part))
        }
    }
}

/// The lines of one page that begins at `from`.
async fn lines(call: &Call, source: &str, from: u64) -> Result<Lines, Problem> {
    let (bytes, total) = source::range(call, source, from, from.saturating_add(PAGE)).await?;
    let mut lines = split(&bytes, from, total);
    lines.truncate(MAX_LINES);
    let next = match lines.last() {
        None => total,
        Some(last) => bytes
            .get(usize::try_from(last.at - from).unwrap_or(0)..)
            .and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
            .map_or(from + bytes.len() as u64, |end| last.at + end as u64 + 1),
    };
    Ok(Lines { lines, next, total })
}

/// The lines of one page that ends at `to`.
async fn before(call: &Call, source: &str, to: u64) -> Result<Lines, Problem> {
    let from = to.saturating_sub(PAGE);
    let (mut bytes, total) = source::range(call, source, from, to.max(1)).await?;
    bytes.truncate(usize::try_from(to - from).unwrap_or(usize::MAX));
    Ok(Lines { lines: last(&bytes, from), next: to.min(total), total })
}

/// The last lines of `bytes`. A first line that may have begun earlier belongs to the previous page, unless it is the only one.
fn last(bytes: &[u8], from: u64) -> Vec<Line> {
    let mut lines = split(bytes, from, from + bytes.len() as u64);
    let excess = lines.len().saturating_sub(MAX_LINES).max(usize::from(from > 0 && lines.len() > 1));
    lines.drain(..excess);
    lines
}

/// The lines that contain `wanted`, from `from` on.
async fn search(call: &Call, source: &str, mut from: u64, wanted: &str) -> Result<Lines, Problem> {
    let end = from.saturating_add(SEARCHED);
    let mut found = Vec::new();
    loop {
        let (bytes, total) = source::range(call, source, from, from.saturating_add(16 * PAGE)).await?;
        let read = split(&bytes, from, total);
        let is_last = from + bytes.len() as u64 >= total || bytes.is_empty();
        // A line that goes beyond the range is read again with the next.
        let cut = if is_last {
            bytes.len()
        } else {
            bytes.iter().rposition(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1)
        };
        let limit = from + cut as u64;
        for line in read.into_iter().filter(|line| line.at < limit && line.text.contains(wanted)) {
            if found.len() >= FOUND {
                return Ok(Lines { next: line.at, lines: found, total });
            }
            found.push(line);
        }
        from = limit;
        if is_last || from >= end {
            return Ok(Lines { lines: found, next: from, total });
        }
    }
}

/// Splits bytes into lines. A line that began before `from` is shown from there.
fn split(bytes: &[u8], from: u64, total: u64) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut at = 0;
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = piece.strip_suffix(b"\n").unwrap_or(piece);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        lines.push(Line { at: from + at as u64, text: String::from_utf8_lossy(text).into_owned() });
        at += piece.len();
    }
    // An incomplete last line belongs to the next page, unless it is the only one.
    if from + (bytes.len() as u64) < total && !bytes.ends_with(b"\n") && lines.len() > 1 {
        lines.pop();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_places_of_their_bytes() {
        let places = |bytes: &[u8], total| {
            split(bytes, 10, total).into_iter().map(|line| (line.at, line.text)).collect::<Vec<_>>()
        };
        let line = |at: u64, text: &str| (at, text.to_owned());
        assert_eq!(places(b"a\r\nbc\n", 16), [line(10, "a"), line(13, "bc")]);
        assert_eq!(places(b"a\nbc", 14), [line(10, "a"), line(12, "bc")]);
        assert_eq!(places(b"a\nbc", 99), [line(10, "a")], "the rest of the line is on the next page");
        assert_eq!(places(b"abc", 99), [line(10, "abc")], "a line without an end is cut");
        assert!(places(b"", 0).is_empty());
    }

    /// S-132: a page of hits stays small, however often a line contains the text.
    #[test]
    fn a_page_has_a_limited_number_of_marks() {
        let line = |at: u64, text: String| Line { at, text };
        let long = "a".repeat(MAX_MARKS - 1);
        let lines = vec![line(0, format!("{long}b")), line(9, "aXa".to_owned()), line(12, "a".to_owned())];
        let mut read = Lines { lines, next: 13, total: 13 };
        let text = list(&read, Some("a"), &|_| String::new()).into_string();
        assert_eq!((text.matches("<mark>").count(), marks(&read, "a")), (MAX_MARKS, MAX_MARKS + 1));
        assert!(text.contains("<span><mark>a</mark>Xa</span>") && text.contains("<span>a</span>"), "the rest is text");
        read.lines.truncate(1);
        assert_eq!(marks(&read, "a"), MAX_MARKS - 1);
    }

    /// A page backwards ends at the beginning of the next page, and begins with a whole line.
    #[test]
    fn pages_backwards_leave_nothing_out() {
        let text: String = (0..MAX_LINES + 10).map(|n| format!("{n}\n")).collect();
        let of = |from: usize, to: usize| last(&text.as_bytes()[from..to], from as u64);
        let page = of(0, text.len());
        assert_eq!((page.len(), page[0].text.as_str()), (MAX_LINES, "10"));
        let page = of(0, usize::try_from(page[0].at).expect("a place"));
        assert_eq!(page.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join(" "), "0 1 2 3 4 5 6 7 8 9");
        let page = of(21, 30);
        assert_eq!(page[0].text, "11", "the rest of a line is no line");
        assert_eq!(last(b"abc", 7)[0].text, "abc");
    }
}
