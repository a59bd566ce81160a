//! Rendering of diagnostics for people and for programs.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};

use crate::diagnostic::{Diagnostic, Severity};
use crate::source::Span;
use crate::wording::visible as legible;

/// Number of lines shown above the place.
const CONTEXT: u32 = 2;

/// Maximum width of a drawn piece of a file, in bytes. Longer lines are unreadable and slow to draw.
const MAX_DRAWN_WIDTH: usize = 32 * 1024;

/// Renders a diagnostic as text: the message, the source lines and the hint (anchors §6.7). With `color`, it contains
/// ANSI escapes; colour never carries meaning alone.
pub fn text(diagnostic: &Diagnostic, color: bool) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let title = level.primary_title(diagnostic.message.as_str()).id(diagnostic.code.as_str());
    let path = legible(diagnostic.file.path());
    let mut groups = vec![match diagnostic.span {
        Some(span) if !diagnostic.file.text().is_empty() => match snippet(diagnostic, &path, span) {
            Some(snippet) => title.element(snippet),
            None => {
                let (line, column) = diagnostic.file.position(span.start);
                let origin = annotate_snippets::Origin::path(&*path).line(line as usize);
                title.element(origin.char_column(column as usize))
            }
        },
        _ => title.element(annotate_snippets::Origin::path(&*path)),
    }];
    if let Some(hint) = &diagnostic.hint {
        groups.push(Group::with_title(Level::HELP.with_name("hint").secondary_title(hint.as_str())));
    }
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    renderer.render(&groups)
}

/// Source lines of a diagnostic; `None` if they are too long to draw.
fn snippet<'d>(
    diagnostic: &'d Diagnostic,
    path: &'d str,
    span: Span,
) -> Option<Snippet<'d, annotate_snippets::Annotation<'d>>> {
    let file = &diagnostic.file;
    let place = visible(file.text(), span);
    let line = file.position(place.start).0;
    let mut first = line.saturating_sub(CONTEXT).max(1);
    let mut last = file.position(place.end.max(place.start + 1) - 1).0;
    for label in &diagnostic.related {
        first = first.min(file.position(label.span.start).0);
        last = last.max(file.position(label.span.end).0);
    }
    // Lines above serve only as context.
    if file.line_range(line).start - file.line_range(first).start > MAX_DRAWN_WIDTH {
        first = line;
    }
    let base = file.line_range(first).start;
    let window = &file.text()[base..file.line_range(last).end];
    if window.len() > MAX_DRAWN_WIDTH {
        return None;
    }
    let within = |span: Span| {
        let start = (span.start as usize).saturating_sub(base).min(window.len());
        start..(span.end as usize).saturating_sub(base).clamp(start, window.len())
    };
    let mut primary = AnnotationKind::Primary.span(within(place));
    if let Some(label) = &diagnostic.label {
        primary = primary.label(label.as_str());
    }
    let mut snippet = Snippet::source(window).line_start(first as usize).path(path).annotation(primary);
    for above in first.max(line.saturating_sub(CONTEXT))..line {
        let range = file.line_range(above);
        snippet = snippet.annotation(AnnotationKind::Visible.span(within(Span::new(range.start, range.end))));
    }
    for label in &diagnostic.related {
        let annotation = AnnotationKind::Context.span(within(visible(file.text(), label.span)));
        snippet = snippet.annotation(annotation.label(label.text.as_str()));
    }
    Some(snippet)
}

/// The underlined part of a span: its first line only, without trailing blanks.
fn visible(text: &str, span: Span) -> Span {
    let covered = text.get(span.range()).unwrap_or_default();
    let line = covered.lines().next().unwrap_or_default().trim_end();
    Span::new(span.start as usize, span.start as usize + line.len())
}

/// Renders a diagnostic as JSON (`design: cli`, `etude check`). `line`, `column` and their ends count from 1; they are
/// null if a file as a whole, or a directory, is at fault. `name` and `path` are present if the definition's own
/// specification has words for the fault and its place.
pub fn json(diagnostic: &Diagnostic) -> Value {
    let start = diagnostic.position();
    let end = diagnostic.span.map(|span| diagnostic.file.position(span.end));
    let mut document = json!({
        "code": diagnostic.code.as_str(),
        "severity": diagnostic.severity.word(),
        "message": diagnostic.message,
        "file": diagnostic.file.path(),
        "line": start.map(|(line, _)| line),
        "column": start.map(|(_, column)| column),
        "end_line": end.map(|(line, _)| line),
        "end_column": end.map(|(_, column)| column),
        "hint": diagnostic.hint,
    });
    if let Some(rule) = &diagnostic.rule {
        document["class"] = rule.class.into();
        document["name"] = rule.name.into();
        document["path"] = rule.path.as_str().into();
    }
    if let Some(name) = diagnostic.name {
        document["name"] = name.into();
    }
    if let Some(path) = &diagnostic.path {
        document["path"] = path.as_str().into();
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;
    use crate::source::SourceFile;

    /// control characters in file names never reach the terminal when a fault is drawn.
    #[test]
    fn names_of_files_steer_no_terminal() {
        for (text, span) in
            [("a: 1\n", Some(Span::new(0, 1))), ("", None), (&*"x".repeat(40_000), Some(Span::new(0, 1)))]
        {
            let file = SourceFile::new("c\u{1b}[31m\nache.yaml", text);
            let drawn = super::text(&Diagnostic::error(Code::Syntax, &file, span, "it is wrong".to_owned()), false);
            assert!(drawn.contains("c\\u{1b}[31m\\nache.yaml") && !drawn.contains('\u{1b}'), "{drawn:?}");
        }
    }
}
