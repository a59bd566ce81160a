//! The values that a step can see: the input, the outputs of earlier steps, the element of a `for_each`.

use std::sync::Arc;

use crate::data::Json;
use crate::effect::{Chunk, Stdin};
use crate::template::{Reference, Scope};

/// The values that a step can see. Cheap to clone; growing a shared one copies its lists, not its values.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    input: Json,
    outputs: Vec<(Arc<str>, Json)>,
    /// The members of `steps` as they stand in stdin, in pieces that are never copied again once they are full.
    frozen: Vec<Chunk>,
    growing: String,
    item: Option<(Json, usize)>,
    /// Further members of stdin: `,"run":{…}`.
    tail: Arc<str>,
}

/// A piece of stdin is closed when it has grown to this size: small enough to copy per step, large enough that a
/// thousand steps make few pieces.
const PIECE: usize = 32 * 1024;

impl Values {
    pub(crate) fn new(input: Json, tail: Arc<str>) -> Self {
        Self { input, outputs: Vec::new(), frozen: Vec::new(), growing: String::new(), item: None, tail }
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
            self.growing.push(',');
        }
        self.growing.push_str(&serde_json::Value::from(step).to_string());
        self.growing.push_str(r#":{"output":"#);
        match output.inline() {
            Some(text) if text.len() < PIECE => self.growing.push_str(text),
            _ => {
                self.freeze();
                self.frozen.push(Chunk::Json(output.clone()));
            }
        }
        self.growing.push('}');
        if self.growing.len() >= PIECE {
            self.freeze();
        }
        self.outputs.push((step.into(), output));
    }

    fn freeze(&mut self) {
        if !self.growing.is_empty() {
            self.frozen.push(Chunk::Text(std::mem::take(&mut self.growing).into()));
        }
    }

    /// The stdin of a code step (A-3.3): `{"input":…,"steps":{…}}`, with `item` and `index` inside a `for_each`.
    pub(crate) fn stdin(&self) -> Stdin {
        self.stdin_after("{")
    }

    /// The stdin of a content validator (A-4.7): the same with `output` first.
    pub(crate) fn validator_stdin(&self, output: &Json) -> Stdin {
        let Stdin(rest) = self.stdin_after(",");
        let mut chunks = vec![Chunk::Text(r#"{"output":"#.into()), Chunk::Json(output.clone())];
        chunks.extend(rest);
        Stdin(chunks)
    }

    fn stdin_after(&self, opening: &str) -> Stdin {
        let mut chunks = Vec::with_capacity(self.frozen.len() + 3);
        let steps = r#","steps":{"#;
        match self.input.inline() {
            Some(input) => {
                chunks.push(Chunk::Text(format!(r#"{opening}"input":{input}{steps}"#).into()));
            }
            None => {
                chunks.push(Chunk::Text(format!(r#"{opening}"input":"#).into()));
                chunks.push(Chunk::Json(self.input.clone()));
                chunks.push(Chunk::Text(steps.into()));
            }
        }
        chunks.extend(self.frozen.iter().cloned());
        let mut end = format!("{}}}", self.growing);
        if let Some((item, index)) = &self.item {
            end.push_str(r#","item":"#);
            chunks.push(Chunk::Text(std::mem::take(&mut end).into()));
            chunks.push(Chunk::Json(item.clone()));
            end = format!(r#","index":{index}"#);
        }
        end.push_str(&self.tail);
        end.push('}');
        chunks.push(Chunk::Text(end.into()));
        Stdin(chunks)
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
