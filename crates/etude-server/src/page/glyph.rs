//! States: each has a glyph with its own outline, and a word.

use maud::{Markup, PreEscaped, html};

use super::text::sentence;

/// The drawings of a page. The class `cut` is for parts cut out of a filled outline; `turning` is for parts that move while a run
/// does.
const DRAWINGS: &[(&str, &str)] = &[
    (
        "succeeded",
        r#"<circle cx="8" cy="8" r="7" fill="currentColor"/><path class="cut" fill="none" stroke-width="1.6" d="M4.8 8.2l2.2 2.2 4.2-4.6"/>"#,
    ),
    (
        "failed",
        r#"<path fill="currentColor" d="M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1z"/><path class="cut" fill="none" stroke-width="1.6" d="M5.5 5.5l5 5m0-5l-5 5"/>"#,
    ),
    (
        "running",
        r#"<g class="turning" fill="none" stroke="currentColor" stroke-width="2"><circle cx="8" cy="8" r="6" opacity=".35"/><path d="M8 2a6 6 0 0 1 6 6"/></g><circle cx="8" cy="8" r="2" fill="currentColor"/>"#,
    ),
    (
        "waiting",
        r#"<path fill="none" stroke="currentColor" stroke-width="1.5" d="M8 1.2L14.8 8 8 14.8 1.2 8z"/><path stroke="currentColor" stroke-width="1.6" d="M8 4.8v4M8 10v1.6"/>"#,
    ),
    (
        "sleeping",
        r#"<circle cx="8" cy="8" r="6.25" fill="none" stroke="currentColor" stroke-width="1.5"/><path fill="none" stroke="currentColor" stroke-width="1.5" d="M5.6 5.2h4.8l-4.8 5.6h4.8"/>"#,
    ),
    (
        "rejected",
        r#"<rect x="1.75" y="1.75" width="12.5" height="12.5" rx="1" fill="none" stroke="currentColor" stroke-width="1.5"/><path stroke="currentColor" stroke-width="1.5" d="M5.3 5.3l5.4 5.4m0-5.4l-5.4 5.4"/>"#,
    ),
    (
        "queued",
        r#"<circle cx="8" cy="8" r="6.25" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2.8 2.11"/>"#,
    ),
    (
        "interrupted",
        r#"<path fill="none" stroke="currentColor" stroke-width="1.4" stroke-linejoin="round" d="M9.5 1.2L3 9h4l-1 5.8L13 7H8.7z"/>"#,
    ),
    (
        "cancelled",
        r#"<circle cx="8" cy="8" r="6.25" fill="none" stroke="currentColor" stroke-width="1.5"/><path stroke="currentColor" stroke-width="1.5" d="M3.7 12.3l8.6-8.6"/>"#,
    ),
    (
        "skipped",
        r#"<g fill="currentColor"><circle cx="3" cy="8" r="1.5"/><circle cx="8" cy="8" r="1.5"/><circle cx="13" cy="8" r="1.5"/></g>"#,
    ),
    (
        "active",
        r#"<circle cx="8" cy="8" r="6.25" fill="none" stroke="currentColor" stroke-width="1.5"/><path fill="none" stroke="currentColor" stroke-width="1.5" d="M8 4.2V8l2.6 1.8"/>"#,
    ),
    (
        "paused",
        r#"<circle cx="8" cy="8" r="6.25" fill="none" stroke="currentColor" stroke-width="1.5"/><path stroke="currentColor" stroke-width="1.6" d="M6.2 5.2v5.6M9.8 5.2v5.6"/>"#,
    ),
    ("not_started", r#"<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor"/>"#),
];

/// All drawings, for [`glyph`] to refer to.
pub(super) fn sprite() -> Markup {
    html! {
        svg.sprite width="0" height="0" aria-hidden="true" {
            @for (word, drawing) in DRAWINGS { symbol id={ "g-" (word) } viewBox="0 0 16 16" { (PreEscaped(drawing)) } }
            pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" { path.hatch-line d="M0 0v5" {} }
        }
    }
}

/// The name of a state's drawing. An unknown state has the drawing of `not_started`.
pub(super) fn lookup(word: &str) -> &'static str {
    DRAWINGS.iter().map(|(known, _)| *known).find(|known| *known == word).unwrap_or("not_started")
}

/// A drawing without its word.
pub(super) fn drawn(word: &str) -> Markup {
    let drawing = lookup(word);
    html! { svg class={ "glyph " (drawing) } aria-hidden="true" { use href={ "#g-" (drawing) } {} } }
}

/// The word of a state in readable form.
pub(super) fn word(state: &str) -> String {
    sentence(&state.replace('_', " "))
}

/// A drawing with a different word.
pub(super) fn named(drawing: &str, word: &str) -> Markup {
    html! { span.state { (drawn(drawing)) span.word { (word) } } }
}

/// A drawing with its word.
pub(super) fn state(state: &str) -> Markup {
    html! { span.state { (drawn(state)) span.word { (word(state)) } } }
}

/// A drawing, with its word for assistive technology.
pub(super) fn glyph(state: &str) -> Markup {
    html! { (drawn(state)) span.said { (word(state)) " " } }
}
