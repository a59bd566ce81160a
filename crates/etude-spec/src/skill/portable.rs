//! YAML features that strict skills must not use although they have a meaning: anchors, aliases, tags, and, with a
//! warning only, flow style (C-2.9).

use std::sync::Arc;

use granit_parser::{Event, Parser, StructureStyle};

use crate::source::{SourceFile, Span};
use crate::yaml::MAX_DEPTH;

/// A YAML feature that the reference validator does not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Oddity {
    Anchor,
    Alias,
    Tag,
    Flow,
}

/// First place of each feature. Empty for a text with syntax errors, which are reported elsewhere.
pub(super) fn oddities(file: &Arc<SourceFile>, yaml: Span) -> Vec<(Oddity, Span)> {
    let text = file.slice(yaml);
    let mut options = granit_parser::options! {
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    let mut found: Vec<(Oddity, Span)> = Vec::new();
    for event in Parser::new_from_str_with_options(text, options) {
        let Ok((event, span)) = event else { return Vec::new() };
        let range = span.byte_range().unwrap_or_default();
        let place = Span::new(yaml.start as usize + range.start, yaml.start as usize + range.end);
        let is_flow = matches!(
            event,
            Event::SequenceStart(StructureStyle::Flow, ..) | Event::MappingStart(StructureStyle::Flow, ..)
        );
        let marks = [
            (Oddity::Anchor, event.anchor_id().is_some()),
            (Oddity::Tag, event.tag().is_some()),
            (Oddity::Alias, matches!(event, Event::Alias(..) | Event::UnresolvedAlias(..))),
            (Oddity::Flow, is_flow),
        ];
        for (oddity, _) in marks.into_iter().filter(|(_, is_there)| *is_there) {
            if !found.iter().any(|(known, _)| *known == oddity) {
                found.push((oddity, place));
            }
        }
    }
    found
}
