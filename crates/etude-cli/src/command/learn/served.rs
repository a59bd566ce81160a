//! Learned pipelines of a server: the documents of `etude learn status`, `show`, `promote` and `demote`.

use std::sync::Arc;

use etude_runtime::engine::Engine;
use etude_spec::learned::LearnedState;
use serde_json::{Value, json};

use super::promote::{Promotion, Wanted};
use super::{Learnt, demote, promote, show, status};
use crate::context::Context;
use crate::problem::{Problem, Refused};

/// Learned pipelines of an app whose journal is already open.
pub(crate) struct Served<'c> {
    context: &'c Context,
    learnt: Learnt,
}

impl<'c> Served<'c> {
    /// Opens the app of `context`; the journal does not change (S-30).
    ///
    /// # Errors
    /// The app cannot be read, or learning is switched off.
    pub(crate) fn open(context: &'c Context, engine: &Arc<dyn Engine>) -> Result<Self, Problem> {
        let learnt = Learnt::look(context, || Ok(Arc::clone(engine)))?;
        Ok(Self { context, learnt })
    }

    /// Lists pipelines as `etude learn status` prints them: `{"pipelines": [row]}`.
    pub(crate) fn list(&self) -> Result<Value, Problem> {
        Ok(json!({"pipelines": status::rows(self.context, &self.learnt)?}))
    }

    /// Document of `etude learn show` for a pipeline, with the members of its row; `None` if there is no such pipeline.
    pub(crate) fn show(&self, name: &str) -> Result<Option<Value>, Problem> {
        if !self.has(name)? {
            return Ok(None);
        }
        let standing = show::standing(&self.learnt, name)?;
        let mut document = status::row(self.context, &self.learnt, &standing)?;
        let of_files = show::document(&self.learnt.disk, &standing, None);
        if let (Some(members), Value::Object(more)) = (document.as_object_mut(), of_files) {
            members.extend(more.into_iter().filter(|(name, _)| name != "diff"));
        }
        Ok(Some(document))
    }

    /// True if there is a learned pipeline of this name.
    pub(crate) fn has(&self, name: &str) -> Result<bool, Problem> {
        Ok(self.learnt.standings()?.iter().any(|standing| standing.located.name == name))
    }

    /// Records the outcomes of runs, which precedes every move.
    pub(crate) fn settle(&self) -> Result<(), Problem> {
        self.learnt.settle(self.context)
    }

    /// Promotes a pipeline in the name of `by`, to the state `to` or one state up.
    pub(crate) fn promote(
        &self,
        name: &str,
        to: Option<LearnedState>,
        accepts_risk: bool,
        by: String,
    ) -> Result<Promotion, Refused> {
        let promotion = promote::decide(self.context, &self.learnt, &Wanted { name, to, accepts_risk, by })?;
        // A repeated request with the same idempotency key has the same response.
        promote::end(&self.learnt, &promotion)?;
        Ok(promotion)
    }

    /// Demotes a pipeline.
    pub(crate) fn demote(&self, name: &str, reason: Option<&str>) -> Result<Value, Problem> {
        demote::apply(&self.learnt, name, reason)
    }
}
