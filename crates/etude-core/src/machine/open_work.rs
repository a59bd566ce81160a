//! The parts of a run that began and did not succeed: another attempt restarts them.
//!
//! A part is named by the prefix of its effects' ids. A leaf (a process, a model step, a question, a stage) restarts as
//! a whole. A group, a `for_each` or a pipeline as a step consists of such parts; only its timer is a part of its own.

use std::collections::BTreeSet;
use std::task::Poll;

use super::{Cx, Path, Task};
use crate::data::Json;
use crate::failure::Failure;
use crate::report::is_below;

/// The parts that began and did not succeed.
#[derive(Debug, Default)]
pub(crate) struct OpenWork(BTreeSet<String>);

impl OpenWork {
    /// Records that `part` begins.
    pub(crate) fn begin(&mut self, part: &str) {
        self.0.insert(part.to_owned());
    }

    /// Records that `part` succeeded, whatever the state of the parts inside it.
    pub(crate) fn succeed(&mut self, part: &str) {
        self.0.retain(|open| !is_below(open, part));
    }

    /// The open parts below `root`, in the order of their names.
    pub(crate) fn below(&self, root: &str) -> Vec<String> {
        self.0.iter().filter(|open| is_below(open, root)).cloned().collect()
    }
}

/// The work of a step that restarts as a whole.
#[derive(Debug)]
pub(super) struct AtomicTask<T> {
    work: T,
    path: Path,
    has_begun: bool,
}

impl<T: Task> AtomicTask<T> {
    pub(super) fn new(work: T, path: &Path) -> Self {
        Self { work, path: path.clone(), has_begun: false }
    }
}

impl<T: Task> Task for AtomicTask<T> {
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if !self.has_begun {
            self.has_begun = true;
            cx.open_work.begin(self.path.as_str());
        }
        let polled = self.work.poll(cx);
        match &polled {
            Poll::Ready(Ok(_)) => cx.open_work.succeed(self.path.as_str()),
            // Applies even if all its effects succeeded.
            Poll::Ready(Err(_)) => cx.open_work.begin(self.path.as_str()),
            Poll::Pending => return Poll::Pending,
        }
        polled
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.work.stop(cx, why);
    }

    fn resumed(&mut self, cx: &mut Cx) {
        self.work.resumed(cx);
    }

    fn may_be_remembered(&self) -> bool {
        self.work.may_be_remembered()
    }
}
