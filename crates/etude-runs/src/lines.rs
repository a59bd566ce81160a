//! Comparison of texts by line.

use std::fmt::Write;
use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

/// A line that only one of the texts has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'t> {
    /// A line of the text before.
    Removed(&'t str),
    /// A line of the text after.
    Added(&'t str),
}

/// The lines that differ, in order and without their line breaks; in a replacement, the removed lines come first.
pub fn changed<'t>(before: &'t str, after: &'t str) -> Vec<Line<'t>> {
    let texts = Comparison::new(before, after);
    let differing = texts.diff.hunks().flat_map(|hunk| {
        let removed = hunk.before.map(|at| Line::Removed(ended(texts.before(at))));
        removed.chain(hunk.after.map(|at| Line::Added(ended(texts.after(at)))))
    });
    differing.collect()
}

/// The differences in the unified format of `diff -u` and git, with `context` lines around each change. `names` are the
/// names of the two texts. Empty if the texts are equal.
pub fn unified(before: &str, after: &str, names: [&str; 2], context: u32) -> String {
    let texts = Comparison::new(before, after);
    let mut text = String::new();
    for change in texts.changes(context) {
        if text.is_empty() {
            text = format!("--- {}\n+++ {}\n", names[0], names[1]);
        }
        texts.write(&change, context, &mut text);
    }
    text
}

/// Two texts by line, and the lines in which they differ.
struct Comparison<'t> {
    lines: InternedInput<&'t str>,
    diff: Diff,
}

/// Changes that share lines of context: ranges of the lines before and after.
type Change = Vec<(Range<u32>, Range<u32>)>;

impl<'t> Comparison<'t> {
    fn new(before: &'t str, after: &'t str) -> Self {
        let lines = InternedInput::new(before, after);
        let mut diff = Diff::compute(Algorithm::Histogram, &lines);
        diff.postprocess_lines(&lines);
        Self { lines, diff }
    }

    /// The changes; changes that share lines of context are grouped.
    fn changes(&self, context: u32) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        for hunk in self.diff.hunks() {
            let near = |change: &&mut Change| {
                change.last().is_some_and(|(before, _)| hunk.before.start - before.end <= 2 * context)
            };
            match changes.last_mut().filter(near) {
                Some(change) => change.push((hunk.before, hunk.after)),
                None => changes.push(vec![(hunk.before, hunk.after)]),
            }
        }
        changes
    }

    fn write(&self, change: &[(Range<u32>, Range<u32>)], context: u32, text: &mut String) {
        let (Some(first), Some(last)) = (change.first(), change.last()) else { return };
        let lead = context.min(first.0.start);
        let end = (last.0.end + context).min(self.count());
        let before = first.0.start - lead..end;
        let after = first.1.start - lead..last.1.end + (end - last.0.end);
        let _ = writeln!(text, "@@ -{} +{} @@", lines_of(&before), lines_of(&after));
        let mut at = before.start;
        for (before, after) in change {
            (at..before.start).for_each(|at| line(' ', self.before(at), text));
            before.clone().for_each(|at| line('-', self.before(at), text));
            after.clone().for_each(|at| line('+', self.after(at), text));
            at = before.end;
        }
        (at..end).for_each(|at| line(' ', self.before(at), text));
    }

    /// Number of lines of the text before.
    fn count(&self) -> u32 {
        u32::try_from(self.lines.before.len()).unwrap_or(u32::MAX)
    }

    fn before(&self, at: u32) -> &'t str {
        self.lines.interner[self.lines.before[at as usize]]
    }

    fn after(&self, at: u32) -> &'t str {
        self.lines.interner[self.lines.after[at as usize]]
    }
}

fn ended(line: &str) -> &str {
    line.strip_suffix('\n').unwrap_or(line)
}

/// Range of lines in the form of a hunk header: the first line, from 1, and the number of lines unless it is one. An
/// empty range names the line before it.
fn lines_of(range: &Range<u32>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => (range.start + 1).to_string(),
        len => format!("{},{len}", range.start + 1),
    }
}

fn line(sign: char, content: &str, text: &mut String) {
    text.push(sign);
    text.push_str(ended(content));
    text.push_str(if content.ends_with('\n') { "\n" } else { "\n\\ No newline at end of file\n" });
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn numbers(range: Range<u32>) -> String {
        range.map(|number| format!("{number}\n")).collect()
    }

    #[test]
    fn equal_texts_have_no_diff() {
        assert_eq!(unified("a\nb", "a\nb", ["x", "y"], 3), "");
        assert_eq!(changed("", ""), []);
    }

    #[test]
    fn changes_are_together_where_they_share_context() {
        let before = numbers(1..21);
        let after = before.replace("2\n3\n", "2\nthree\n").replace("\n7\n", "\n").replace("19\n", "19\nnineteen\n");
        expect![[r"
            --- before
            +++ after
            @@ -1,9 +1,8 @@
             1
             2
            -3
            +three
             4
             5
             6
            -7
             8
             9
            @@ -18,3 +17,4 @@
             18
             19
            +nineteen
             20
        "]]
        .assert_eq(&unified(&before, &after, ["before", "after"], 2));
    }

    #[test]
    fn a_text_that_is_new_or_gone_is_compared_with_nothing() {
        expect![[r"
            --- x
            +++ y
            @@ -0,0 +1,2 @@
            +a
            +b
        "]]
        .assert_eq(&unified("", "a\nb\n", ["x", "y"], 3));
        expect![[r"
            --- x
            +++ y
            @@ -1 +0,0 @@
            -a
            \ No newline at end of file
        "]]
        .assert_eq(&unified("a", "", ["x", "y"], 3));
    }

    #[test]
    fn a_missing_line_break_at_the_end_is_a_change() {
        expect![[r"
            --- x
            +++ y
            @@ -1,2 +1,2 @@
             a
            -b
            +b
            \ No newline at end of file
        "]]
        .assert_eq(&unified("a\nb\n", "a\nb", ["x", "y"], 3));
    }

    /// The text after, rebuilt from the text before and a diff without context.
    fn applied(before: &str, diff: &str) -> String {
        let lines: Vec<&str> = before.split_inclusive('\n').collect();
        let mut at = 0;
        let mut text = String::new();
        for line in diff.lines().skip(2) {
            if let Some(header) = line.strip_prefix("@@ -") {
                let range = header.split(' ').next().unwrap();
                let (first, count) = range.split_once(',').unwrap_or((range, "1"));
                let start = first.parse::<usize>().unwrap() - usize::from(count != "0");
                text.extend(lines[at..start].iter().copied());
                at = start;
            } else if let Some(line) = line.strip_prefix('-') {
                assert_eq!(lines[at].trim_end_matches('\n'), line);
                at += 1;
            } else if let Some(line) = line.strip_prefix('+') {
                text.push_str(line);
                text.push('\n');
            } else {
                assert!(line.starts_with('\\'), "{line}");
            }
        }
        text.extend(lines[at..].iter().copied());
        text
    }

    #[test]
    fn a_diff_makes_one_text_from_the_other() {
        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2_000 {
            let [before, after] =
                [0; 2].map(|_| (0..random(12)).map(|_| format!("{}\n", random(4))).collect::<String>());
            let diff = unified(&before, &after, ["x", "y"], 0);
            assert_eq!(applied(&before, &diff), after, "{before:?}: {diff}");
        }
    }

    #[test]
    fn lines_that_differ_are_in_order() {
        assert_eq!(
            changed("a\nb\nc\n", "a\nx\ny\nc"),
            [Line::Removed("b"), Line::Removed("c"), Line::Added("x"), Line::Added("y"), Line::Added("c")]
        );
    }
}
