//! State and content of a learned pipeline at one moment.

use std::sync::Arc;

use super::{Contents, LearnedState, Located, find};
use crate::source::Sources;
use crate::tool::AppTool;

/// A learned pipeline as pinned at the start of a run, in the run's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The effective state: `active` becomes `assisted` if the content differs from that in learn.yaml (L-65).
    pub state: LearnedState,
    /// Content hash of the pipeline.
    pub content: String,
}

impl Pinned {
    /// Pins the pipeline in the directory `base/name`; `None` if it is not learned, or its learn.yaml has errors.
    /// `tools` are those of the app.
    pub fn find(sources: &dyn Sources, base: &'static str, name: &str, tools: &Arc<[AppTool]>) -> Option<Self> {
        let located = find(sources, base, name)?;
        let content = Contents::of_tools(sources, Arc::clone(tools)).read(&located.dir()).hash;
        Some(Self { state: located.state_with(&content)?, content })
    }
}

impl Located {
    /// Effective state of the files if their content has the hash `content` (L-65).
    pub fn state_with(&self, content: &str) -> Option<LearnedState> {
        let learned = self.learned.as_ref()?;
        let is_edited = learned.content.as_deref().is_some_and(|known| known != content);
        Some(if is_edited && learned.state == LearnedState::Active { LearnedState::Assisted } else { learned.state })
    }
}
