//! The values that a step can see: the input, the outputs of earlier steps, the element of a `for_each`.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::TYPES_KEYS;
use crate::data::Json;
use crate::digest::{Digest, Hasher};
use crate::effect::{Chunk, Stdin, StdinHash};
use crate::template::{Reference, Scope, Segment};

/// The values that a step can see. Cheap to clone; pushing to a shared one copies its lists, not its values.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    input: Json,
    outputs: Vec<(Arc<str>, Json)>,
    /// The members of `steps` for stdin, in pieces that are never copied again once they are full.
    frozen: Vec<Chunk>,
    growing: String,
    /// Hash of stdin up to here, so that a late step does not hash the outputs of all earlier ones again. The elements of a
    /// `for_each` share it: it has two kilobytes.
    hash: Arc<StdinHash>,
    item: Option<Element>,
    /// Further members of stdin: `,"run":{…}`.
    tail: Arc<str>,
    /// The request, if a step refers to it.
    request: Option<Arc<str>>,
    /// The version of the interpreter that began the run.
    abi: u32,
}

/// The element of a `for_each`.
#[derive(Debug, Clone)]
struct Element {
    value: Json,
    index: usize,
    /// Hash of everything but the element, if the element's output is cached.
    rest: Option<Digest>,
}

/// Size at which a piece of stdin is closed, in bytes: small enough to copy per step, large enough that a thousand
/// steps make few pieces.
const PIECE: usize = 8 * 1024;

/// Text between the input and the first member of `steps`.
const STEPS: &str = r#","steps":{"#;

/// Text between the last member of `steps` and the element.
const ITEM: &str = r#"},"item":"#;

/// Text between the element and its index.
const INDEX: &str = r#","index":"#;

impl Values {
    pub(crate) fn new(input: Json, tail: Arc<str>) -> Self {
        let mut hash = StdinHash::default();
        hash.text(r#"{"input":"#);
        hash.json(&input);
        hash.text(STEPS);
        Self {
            input,
            outputs: Vec::new(),
            frozen: Vec::new(),
            growing: String::new(),
            hash: Arc::new(hash),
            item: None,
            tail,
            request: None,
            abi: super::ABI,
        }
    }

    /// The same values, in a run that version `abi` of the interpreter began.
    pub(crate) fn begun_by(self, abi: u32) -> Self {
        Self { abi, ..self }
    }

    /// The same values, with the request that steps refer to.
    pub(crate) fn with_request(self, request: Option<Arc<str>>) -> Self {
        Self { request, ..self }
    }

    /// The values of a sub-pipeline: its own input, and of the caller only the run and the request.
    pub(crate) fn for_sub_pipeline(&self, input: Json) -> Self {
        Self::new(input, Arc::clone(&self.tail)).with_request(self.request.clone()).begun_by(self.abi)
    }

    pub(crate) fn with_item(&self, value: Json, index: usize, rest: Option<Digest>) -> Self {
        Self { item: Some(Element { value, index, rest }), ..self.clone() }
    }

    /// The element of the innermost `for_each`.
    pub(crate) fn element(&self) -> Option<&Json> {
        self.item.as_ref().map(|element| &element.value)
    }

    /// Digest of the values that an output depends on, for its cache key (X-1). An element replaces the arrays that it
    /// came from, so its key stays the same when other elements change. Its index counts only if it is used.
    pub(crate) fn cache_digest(&self, uses_index: bool) -> Digest {
        let digest = self.digest_of_inputs(uses_index);
        let Some(request) = &self.request else { return digest };
        let mut hasher = Hasher::new("request");
        hasher.field(digest.as_bytes()).field(request.as_bytes());
        hasher.finish()
    }

    fn digest_of_inputs(&self, uses_index: bool) -> Digest {
        let Some((element, rest)) = self.item.as_ref().and_then(|element| Some((element, element.rest?))) else {
            return self.stdin_digest();
        };
        let mut hasher = Hasher::new("element");
        hasher.field(rest.as_bytes()).field(element.value.digest().as_bytes());
        if uses_index {
            hasher.field(&element.index.to_le_bytes());
        }
        hasher.finish()
    }

    /// Digest of these values without the ones that `left_out` refers to.
    pub(crate) fn digest_without(&self, left_out: &[Reference]) -> Digest {
        let without = |json: &Json, references: &[&Reference]| match self.abi >= TYPES_KEYS {
            true => without(json, references),
            false => without_in_tree(json, references),
        };
        let mut hasher = Hasher::new("rest");
        let of_input = |path: &Reference| matches!(path, Reference::Input { .. });
        let left = |is: &dyn Fn(&Reference) -> bool| left_out.iter().filter(|path| is(path)).collect::<Vec<_>>();
        let input = without(&self.input, &left(&of_input));
        hasher.field(input.as_bytes()).field(self.tail.as_bytes());
        for (name, output) in &self.outputs {
            let of_step = |path: &Reference| matches!(path, Reference::Output { step, .. } if **step == **name);
            let output = without(output, &left(&of_step));
            hasher.field(name.as_bytes()).field(output.as_bytes());
        }
        if let Some(element) = &self.item {
            let of_item = |path: &Reference| matches!(path, Reference::Item { .. });
            let value = without(&element.value, &left(&of_item));
            hasher.field(value.as_bytes());
        }
        hasher.finish()
    }

    pub(crate) fn input(&self) -> &Json {
        &self.input
    }

    pub(crate) fn output(&self, step: &str) -> Option<&Json> {
        self.outputs.iter().rev().find(|(name, _)| &**name == step).map(|(_, output)| output)
    }

    /// The outputs of all steps so far.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.outputs.iter().map(|(step, output)| (&**step, output))
    }

    pub(crate) fn push(&mut self, step: &str, output: Json) {
        if !self.outputs.is_empty() {
            self.grow(",");
        }
        self.grow(&serde_json::Value::from(step).to_string());
        self.grow(r#":{"output":"#);
        match output.inline() {
            Some(text) if text.len() < PIECE => self.grow(text),
            _ => {
                self.freeze();
                Arc::make_mut(&mut self.hash).json(&output);
                self.frozen.push(Chunk::Json(output.clone()));
            }
        }
        self.grow("}");
        if self.growing.len() >= PIECE {
            self.freeze();
        }
        self.outputs.push((step.into(), output));
    }

    fn grow(&mut self, text: &str) {
        self.growing.push_str(text);
        Arc::make_mut(&mut self.hash).text(text);
    }

    fn freeze(&mut self) {
        if !self.growing.is_empty() {
            self.frozen.push(Chunk::Text(self.growing.as_str().into()));
            self.growing.clear();
        }
    }

    /// The stdin of a code step (A-3.3): `{"input":…,"steps":{…}}`, with `item` and `index` inside a `for_each`.
    pub(crate) fn stdin(&self) -> Stdin {
        self.stdin_after("{")
    }

    /// The digest of [`Values::stdin`], without hashing all of it.
    pub(crate) fn stdin_digest(&self) -> Digest {
        let mut hash = StdinHash::clone(&self.hash);
        match &self.item {
            None => hash.text("}"),
            Some(Element { value: item, index, .. }) => {
                hash.text(ITEM);
                hash.json(item);
                hash.text(&format!("{INDEX}{index}"));
            }
        }
        hash.text(&self.tail);
        hash.text("}");
        hash.finish()
    }

    /// The stdin of a content validator (A-4.7): that of a code step, with `output` first.
    pub(crate) fn validator_stdin(&self, output: &Json) -> Stdin {
        let Stdin(rest) = self.stdin_after(",");
        let mut chunks = vec![Chunk::Text(r#"{"output":"#.into()), Chunk::Json(output.clone())];
        chunks.extend(rest);
        Stdin(chunks)
    }

    fn stdin_after(&self, opening: &str) -> Stdin {
        let mut chunks = Vec::with_capacity(self.frozen.len() + 7);
        match self.input.inline() {
            Some(input) if input.len() < PIECE => {
                chunks.push(Chunk::Text(format!(r#"{opening}"input":{input}{STEPS}"#).into()));
            }
            _ => {
                chunks.push(Chunk::Text(format!(r#"{opening}"input":"#).into()));
                chunks.push(Chunk::Json(self.input.clone()));
                chunks.push(Chunk::Text(STEPS.into()));
            }
        }
        chunks.extend(self.frozen.iter().cloned());
        chunks.push(Chunk::Text(self.growing.as_str().into()));
        chunks.extend(self.ending());
        Stdin(chunks)
    }

    /// The end of stdin after the last member of `steps`.
    fn ending(&self) -> Vec<Chunk> {
        let tail = &self.tail;
        match &self.item {
            None => vec![Chunk::Text(format!("}}{tail}}}").into())],
            Some(Element { value: item, index, .. }) => vec![
                Chunk::Text(ITEM.into()),
                Chunk::Json(item.clone()),
                Chunk::Text(format!("{INDEX}{index}{tail}}}").into()),
            ],
        }
    }
}

impl Scope for Values {
    fn abi(&self) -> u32 {
        self.abi
    }

    fn root(&self, reference: &Reference) -> Result<Json, String> {
        match reference {
            Reference::Input { .. } => Ok(self.input.clone()),
            Reference::Output { step, .. } => {
                self.output(step).cloned().ok_or_else(|| format!("step `{step}` has not run"))
            }
            Reference::Item { .. } => match &self.item {
                Some(element) => Ok(element.value.clone()),
                None => Err("the step has no `for_each`".to_owned()),
            },
            Reference::Index => match &self.item {
                Some(element) => Ok(Json::trusted(element.index.to_string())),
                None => Err("the step has no `for_each`".to_owned()),
            },
            Reference::Request => match &self.request {
                Some(request) => Ok(Json::string(request)),
                None => Err("the run has no request".to_owned()),
            },
        }
    }
}

/// Digest of a value without the parts that these references point to: the rest counts as it is written.
fn without(json: &Json, left_out: &[&Reference]) -> Digest {
    let Some(text) = json.text().ok().filter(|_| !left_out.is_empty()) else { return json.digest() };
    let mut parts: Vec<Range<usize>> =
        left_out.iter().filter_map(|reference| part(&text, 0..text.len(), reference.path())).collect();
    // A part comes before the parts inside of it.
    parts.sort_by_key(|part| (part.start, Reverse(part.end)));
    if parts.first().is_some_and(|part| part.len() == text.len()) {
        // As in earlier versions, whose entries remain.
        return Digest::of(b"null");
    }
    let mut hasher = Hasher::new("rest of a value");
    let mut at = 0;
    for part in parts.into_iter().filter(|part| part.start < part.end) {
        if part.start >= at {
            hasher.field(text[at..part.start].as_bytes());
            at = part.end;
        }
    }
    hasher.field(text[at..].as_bytes());
    hasher.finish()
}

/// Position in `text` of the part to which `path` leads, from the value at `within`.
fn part(text: &str, within: Range<usize>, path: &[Segment]) -> Option<Range<usize>> {
    let Some((segment, rest)) = path.split_first() else { return Some(within) };
    let value = &text[within.clone()];
    let found: &RawValue = match (value.as_bytes().first()?, segment) {
        (b'[', Segment::Index(index)) => serde_json::from_str::<Vec<&RawValue>>(value).ok()?.get(*index)?,
        (b'{', segment) => {
            let members: IndexMap<String, &RawValue> = serde_json::from_str(value).ok()?;
            members.get(&segment.to_string())?
        }
        _ => return None,
    };
    let start = within.start + (found.get().as_ptr().addr() - value.as_ptr().addr());
    part(text, start..start + found.get().len(), rest)
}

/// As [`without`], in runs that a version before [`TYPES_KEYS`] began: numbers lose the digits that a tree does not keep.
fn without_in_tree(json: &Json, left_out: &[&Reference]) -> Digest {
    if left_out.is_empty() {
        return json.digest();
    }
    let Ok(mut tree) = json.value() else { return json.digest() };
    for reference in left_out {
        let mut place = Some(&mut tree);
        for segment in reference.path() {
            place = place.and_then(|value| match (value, segment) {
                (serde_json::Value::Array(items), Segment::Index(index)) => items.get_mut(*index),
                (serde_json::Value::Object(members), segment) => members.get_mut(&segment.to_string()),
                _ => None,
            });
        }
        if let Some(value) = place {
            *value = serde_json::Value::Null;
        }
    }
    Digest::of(tree.to_string().as_bytes())
}
