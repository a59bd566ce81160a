//! The values that a step can see: the input, the outputs of earlier steps, the element of a `for_each`.

use std::sync::Arc;

use crate::data::Json;
use crate::digest::Digest;
use crate::effect::{Chunk, Stdin, StdinHash};
use crate::template::{Reference, Scope};

/// The values that a step can see. Cheap to clone; growing a shared one copies its lists, not its values.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    input: Json,
    outputs: Vec<(Arc<str>, Json)>,
    /// The members of `steps` as they stand in stdin, in pieces that are never copied again once they are full.
    frozen: Vec<Chunk>,
    growing: String,
    /// The hash of stdin up to here, so that the thousandth step does not hash again what the first ones printed.
    hash: StdinHash,
    item: Option<(Json, usize)>,
    /// Further members of stdin: `,"run":{…}`.
    tail: Arc<str>,
}

/// A piece of stdin is closed when it has grown to this size: small enough to copy per step, large enough that a
/// thousand steps make few pieces.
const PIECE: usize = 8 * 1024;

/// What stands between the input and the first member of `steps`.
const STEPS: &str = r#","steps":{"#;

impl Values {
    pub(crate) fn new(input: Json, tail: Arc<str>) -> Self {
        let mut hash = StdinHash::default();
        hash.text(r#"{"input":"#);
        hash.json(&input);
        hash.text(STEPS);
        Self { input, outputs: Vec::new(), frozen: Vec::new(), growing: String::new(), hash, item: None, tail }
    }

    /// What a sub-pipeline sees: its own input and nothing of the caller but the run.
    pub(crate) fn for_sub_pipeline(&self, input: Json) -> Self {
        Self::new(input, Arc::clone(&self.tail))
    }

    pub(crate) fn with_item(&self, item: Json, index: usize) -> Self {
        Self { item: Some((item, index)), ..self.clone() }
    }

    pub(crate) fn input(&self) -> &Json {
        &self.input
    }

    pub(crate) fn output(&self, step: &str) -> Option<&Json> {
        self.outputs.iter().rev().find(|(name, _)| &**name == step).map(|(_, output)| output)
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
                self.hash.json(&output);
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
        self.hash.text(text);
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

    /// The digest of [`Values::stdin`], without going through all of it.
    pub(crate) fn stdin_digest(&self) -> Digest {
        let mut hash = self.hash.clone();
        self.ending().iter().for_each(|chunk| hash.chunk(chunk));
        hash.finish()
    }

    /// The stdin of a content validator (A-4.7): the same with `output` first.
    pub(crate) fn validator_stdin(&self, output: &Json) -> Stdin {
        let Stdin(rest) = self.stdin_after(",");
        let mut chunks = vec![Chunk::Text(r#"{"output":"#.into()), Chunk::Json(output.clone())];
        chunks.extend(rest);
        Stdin(chunks)
    }

    fn stdin_after(&self, opening: &str) -> Stdin {
        let mut chunks = Vec::with_capacity(self.frozen.len() + 7);
        match self.input.inline() {
            Some(input) => chunks.push(Chunk::Text(format!(r#"{opening}"input":{input}{STEPS}"#).into())),
            None => {
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

    /// What follows the last member of `steps`.
    fn ending(&self) -> Vec<Chunk> {
        let tail = &self.tail;
        match &self.item {
            None => vec![Chunk::Text(format!("}}{tail}}}").into())],
            Some((item, index)) => vec![
                Chunk::Text(r#"},"item":"#.into()),
                Chunk::Json(item.clone()),
                Chunk::Text(format!(r#","index":{index}{tail}}}"#).into()),
            ],
        }
    }
}

impl Scope for Values {
    fn root(&self, reference: &Reference) -> Result<Json, String> {
        match reference {
            Reference::Input { .. } => Ok(self.input.clone()),
            Reference::Output { step, .. } => {
                self.output(step).cloned().ok_or_else(|| format!("step `{step}` has not run"))
            }
            Reference::Item { .. } => match &self.item {
                Some((item, _)) => Ok(item.clone()),
                None => Err("there is no `for_each` around".to_owned()),
            },
            Reference::Index => match &self.item {
                Some((_, index)) => Ok(Json::trusted(index.to_string())),
                None => Err("there is no `for_each` around".to_owned()),
            },
        }
    }
}

/// What the first code step of a pipeline gets on stdin: for dry runs.
pub fn stdin_for_first_step(input: &Json) -> Stdin {
    Values::new(input.clone(), "".into()).stdin()
}
