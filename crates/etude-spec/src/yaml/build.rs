//! Construction of the tree from the parser's events.

use std::borrow::Cow;
use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, Tag};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::source::{SourceFile, Span};
use crate::yaml::node::{Entries, Node, Scalar, Style, Value};
use crate::yaml::{diagnose, simple, syntax};

/// Maximum nesting depth of values: that of JSON readers (`serde_json`), because many values become JSON.
pub const MAX_DEPTH: usize = 127;

/// Maximum number of values that aliases may add in all.
pub const MAX_EXPANSION: usize = 100_000;

/// Maximum size of the text that aliases may add in all, in bytes.
const MAX_EXPANDED_BYTES: usize = 4 << 20;

/// Parses a file with one document. Without a root there is at least one error.
pub fn parse(file: &Arc<SourceFile>) -> (Option<Node<'_>>, Vec<Diagnostic>) {
    parse_part(file, file.text(), 0)
}

/// Parses `text`, which begins at byte `base` of `file`.
pub(crate) fn parse_part<'s>(
    file: &'s Arc<SourceFile>,
    text: &'s str,
    base: usize,
) -> (Option<Node<'s>>, Vec<Diagnostic>) {
    match simple::read(text, base) {
        Some(root) => (Some(root), Vec::new()),
        None => parse_with_parser(file, text, base),
    }
}

/// Same as [`parse_part`], always with the full parser.
pub(super) fn parse_with_parser<'s>(
    file: &'s Arc<SourceFile>,
    text: &'s str,
    base: usize,
) -> (Option<Node<'s>>, Vec<Diagnostic>) {
    let mut options = granit_parser::options! {
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    let mut builder = Builder::new(file, text, base);
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((event, span)) => {
                let range = span.byte_range().unwrap_or_default();
                if builder.event(event, range.start, range.end, &span).is_err() {
                    break;
                }
            }
            Err(error) => {
                // After an unquoted template the parser is out of step, so the template is the fault.
                if !builder.diagnostics.iter().any(|diagnostic| diagnostic.code == Code::UnquotedTemplate) {
                    builder.diagnostics.push(syntax::diagnose(file, text, base, &error));
                }
                return (None, builder.diagnostics);
            }
        }
    }
    builder.finish()
}

struct Builder<'s> {
    file: &'s Arc<SourceFile>,
    text: &'s str,
    base: usize,
    open: Vec<Frame<'s>>,
    root: Option<Node<'s>>,
    documents: usize,
    anchors: BTreeMap<usize, Anchor<'s>>,
    open_anchors: usize,
    expansion: usize,
    /// Number of nodes kept for aliases.
    anchored: usize,
    expanded_bytes: usize,
    exhausted: bool,
    diagnostics: Vec<Diagnostic>,
}

/// A collection that is still open.
struct Frame<'s> {
    start: usize,
    anchor: usize,
    /// True if a diagnostic covers the collection, so that it needs no further report.
    spoilt: bool,
    items: Items<'s>,
}

enum Items<'s> {
    Seq(Vec<Node<'s>>),
    Map {
        entries: Vec<(Node<'s>, Node<'s>)>,
        key: Option<Node<'s>>,
        seen: Option<BTreeMap<String, Span>>,
        drop_value: bool,
    },
}

/// Target of an alias, with its size.
struct Anchor<'s> {
    node: Node<'s>,
    size: usize,
    bytes: usize,
    depth: usize,
}

/// Signal that the rest of the file is skipped.
struct Stop;

/// Minimum number of keys for which duplicates are found with a set.
const MANY_KEYS: usize = 16;

impl<'s> Builder<'s> {
    fn new(file: &'s Arc<SourceFile>, text: &'s str, base: usize) -> Self {
        Self {
            file,
            text,
            base,
            open: Vec::new(),
            root: None,
            documents: 0,
            anchors: BTreeMap::new(),
            open_anchors: 0,
            expansion: 0,
            anchored: 0,
            expanded_bytes: 0,
            exhausted: false,
            diagnostics: Vec::new(),
        }
    }

    fn span(&self, start: usize, end: usize) -> Span {
        // Some ends are guessed from the start, and must not fall within a character.
        let text = self.file.text();
        Span::new(self.base + start, text.floor_char_boundary((self.base + end).min(text.len())))
    }

    fn event(&mut self, event: Event<'s>, start: usize, end: usize, span: &granit_parser::Span) -> Result<(), Stop> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.diagnostics.push(diagnose::several_documents(self.file, self.span(start, start + 3)));
                    return Err(Stop);
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let style = self.tagged_style(style, tag.as_deref(), span);
                let mut end = end;
                if style == Style::Block {
                    // The parser counts the indentation of the following line as part of a block.
                    end = start + self.text[start..end].trim_end().len();
                }
                let node = Node { value: Value::Scalar(Scalar { text, style }), span: self.span(start, end) };
                self.anchor(anchor, &node);
                self.put(node);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), &["seq"], span);
                self.push(start, anchor, Items::Seq(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), &["map"], span);
                let items = Items::Map { entries: Vec::new(), key: None, seen: None, drop_value: false };
                self.push(start, anchor, items)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(start, end),
            Event::Alias(id) => self.alias(id, self.span(start, end)),
            Event::UnresolvedAlias(name) => {
                let span = self.span(start, end);
                self.diagnostics.push(diagnose::unknown_alias(self.file, span, &name));
                self.put(Node { value: Value::Invalid, span });
            }
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, start: usize, anchor: usize, items: Items<'s>) -> Result<(), Stop> {
        if self.open.len() >= MAX_DEPTH {
            self.diagnostics.push(diagnose::too_deep(self.file, self.span(start, start + 1), MAX_DEPTH));
            return Err(Stop);
        }
        self.open_anchors += usize::from(anchor != 0);
        self.open.push(Frame { start, anchor, spoilt: false, items });
        Ok(())
    }

    fn close(&mut self, start: usize, end: usize) {
        let Some(frame) = self.open.pop() else { return };
        let (value, last) = match frame.items {
            Items::Seq(items) => {
                let last = items.last().map(|node| node.span.end);
                (Value::Seq(items), last)
            }
            Items::Map { entries, .. } => {
                let last = entries.last().map(|(key, value)| value.span.end.max(key.span.end));
                (Value::Map(Entries(entries)), last)
            }
        };
        // A block collection ends with its last value, a flow collection with its bracket.
        let flow = self.text[start..].starts_with([']', '}']);
        let end = if flow { self.base + end } else { last.map_or(self.base + end, |end| end as usize) };
        let value = if frame.spoilt { Value::Invalid } else { value };
        let node = Node { value, span: Span::new(self.base + frame.start, end.max(self.base + frame.start)) };
        if frame.anchor != 0 {
            self.open_anchors -= 1;
            self.anchor(frame.anchor, &node);
        }
        self.put(node);
    }

    fn anchor(&mut self, id: usize, node: &Node<'s>) {
        // The node of an anchor is kept in addition to its place, so it counts like a use: anchors may be nested.
        if id != 0 && !self.exhausted {
            let (size, bytes, depth) = measure(node);
            self.anchored = self.anchored.saturating_add(size);
            if self.anchored > MAX_EXPANSION {
                self.exhausted = true;
                self.diagnostics.push(diagnose::expansion_too_large(self.file, node.span, MAX_EXPANSION));
                return;
            }
            self.anchors.insert(id, Anchor { node: node.clone(), size, bytes, depth });
        }
    }

    fn alias(&mut self, id: usize, span: Span) {
        let invalid = Node { value: Value::Invalid, span };
        let Some(anchor) = self.anchors.get(&id) else {
            // An alias inside its own anchor, or of an anchor over the budget.
            if !self.exhausted {
                self.diagnostics.push(diagnose::recursive_alias(self.file, span));
            }
            return self.put(invalid);
        };
        self.expansion = self.expansion.saturating_add(anchor.size);
        self.expanded_bytes = self.expanded_bytes.saturating_add(anchor.bytes);
        let fits = self.expansion <= MAX_EXPANSION && self.expanded_bytes <= MAX_EXPANDED_BYTES;
        if fits && self.open.len() + anchor.depth <= MAX_DEPTH {
            let node = anchor.node.clone();
            return self.put(node);
        }
        if !self.exhausted {
            self.exhausted = true;
            self.diagnostics.push(match fits {
                true => diagnose::too_deep(self.file, span, MAX_DEPTH),
                false => diagnose::expansion_too_large(self.file, span, MAX_EXPANSION),
            });
        }
        self.put(invalid);
    }

    /// Adds a finished node to the innermost open collection.
    fn put(&mut self, node: Node<'s>) {
        let Some(frame) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        match &mut frame.items {
            Items::Seq(items) => items.push(node),
            Items::Map { entries, key, seen, drop_value } => match key.take() {
                None => {
                    let (problem, usable) = check_key(self.file, &node, entries, seen);
                    frame.spoilt |= problem.as_ref().is_some_and(|problem| problem.code == Code::UnquotedTemplate);
                    self.diagnostics.extend(problem);
                    *drop_value = !usable;
                    *key = Some(node);
                }
                Some(_) if *drop_value => {}
                Some(key) => entries.push((key, node)),
            },
        }
    }

    fn tagged_style(&mut self, style: ScalarStyle, tag: Option<&Tag>, span: &granit_parser::Span) -> Style {
        let style = match style {
            ScalarStyle::Plain => Style::Plain,
            ScalarStyle::SingleQuoted => Style::Single,
            ScalarStyle::DoubleQuoted => Style::Double,
            ScalarStyle::Literal | ScalarStyle::Folded => Style::Block,
        };
        self.check_tag(tag, &["str", "int", "float", "bool", "null"], span);
        let is_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str") || tag.original() == "!");
        // `!!str 5` is the text `5`.
        if is_text && style == Style::Plain { Style::Single } else { style }
    }

    fn check_tag(&mut self, tag: Option<&Tag>, allowed: &[&str], span: &granit_parser::Span) {
        let Some(tag) = tag else { return };
        if tag.core_suffix().is_some_and(|suffix| allowed.contains(&suffix)) || tag.original() == "!" {
            return;
        }
        let place = span.tag_span().and_then(|span| span.byte_range()).or(span.byte_range()).unwrap_or_default();
        let place = self.span(place.start, place.end);
        self.diagnostics.push(diagnose::unknown_tag(self.file, place, &tag.original()));
    }

    fn finish(mut self) -> (Option<Node<'s>>, Vec<Diagnostic>) {
        let empty = match &self.root {
            None => self.diagnostics.is_empty(),
            Some(node) => matches!(&node.value, Value::Scalar(s) if s.style == Style::Plain) && node.span.is_empty(),
        };
        if empty {
            self.diagnostics.push(diagnose::empty_file(self.file));
            return (None, self.diagnostics);
        }
        (self.root, self.diagnostics)
    }
}

/// Reports a fault of a key; true if its value is kept.
fn check_key<'s>(
    file: &Arc<SourceFile>,
    node: &Node<'s>,
    entries: &[(Node<'s>, Node<'s>)],
    seen: &mut Option<BTreeMap<String, Span>>,
) -> (Option<Diagnostic>, bool) {
    let Value::Scalar(scalar) = &node.value else {
        let unquoted = file.slice(node.span).starts_with('{') && file.text()[..node.span.start as usize].ends_with('{');
        let problem = match (node.is_invalid(), unquoted) {
            (true, _) => None,
            (_, true) => {
                let closes = file.text()[node.span.end as usize..].starts_with('}');
                let braces = Span { start: node.span.start - 1, end: node.span.end + u32::from(closes) };
                Some(diagnose::unquoted_template(file, braces))
            }
            (_, false) => Some(diagnose::key_not_text(file, node.span, node.kind())),
        };
        return (problem, false);
    };
    if scalar.text == "<<" && scalar.style == Style::Plain {
        return (Some(diagnose::merge_key(file, node.span)), false);
    }
    let first = if entries.len() < MANY_KEYS {
        entries.iter().find(|(key, _)| key.key() == scalar.text).map(|(key, _)| key.span)
    } else {
        let earlier = || entries.iter().map(|(key, _)| (key.key().to_owned(), key.span)).collect();
        match seen.get_or_insert_with(earlier).entry(scalar.text.to_string()) {
            btree_map::Entry::Occupied(first) => Some(*first.get()),
            btree_map::Entry::Vacant(place) => {
                place.insert(node.span);
                None
            }
        }
    };
    match first {
        Some(first) => (Some(diagnose::duplicate_key(file, node.span, first, &scalar.text)), false),
        None => (None, true),
    }
}

/// Number of values in a node, bytes of text, and depth.
fn measure(node: &Node<'_>) -> (usize, usize, usize) {
    let all = |nodes: &mut dyn Iterator<Item = &Node<'_>>| {
        nodes.map(measure).fold((1, 0, 0), |(n, b, d), (size, bytes, depth)| (n + size, b + bytes, d.max(depth + 1)))
    };
    match &node.value {
        Value::Scalar(Scalar { text: Cow::Owned(text), .. }) => (1, text.len(), 0),
        Value::Scalar(_) | Value::Invalid => (1, 0, 0),
        Value::Seq(items) => all(&mut items.iter()),
        Value::Map(entries) => all(&mut entries.0.iter().flat_map(|(key, value)| [key, value])),
    }
}
