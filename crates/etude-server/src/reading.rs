//! One reading of a run for all parts of a page, so that all show the same moment.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use etude::definition::Definition;
use etude_runs::document::Document;
use etude_runtime::engine::RunView;

use crate::context::Context;
use crate::problem::{Problem, engine_failed};
use crate::result::result_so_far;
use crate::story::Stories;
use crate::tree::Tree;

/// A run with all its records, and values derived from them for this request.
pub(crate) struct Reading {
    pub(crate) view: RunView,
    definition: OnceLock<Option<Arc<Definition>>>,
    result: OnceLock<Option<Document>>,
    tree: OnceLock<Tree>,
}

impl Reading {
    /// The definition with which the run was made, if it still exists.
    pub(crate) fn definition(&self, context: &Context) -> Option<&Definition> {
        self.definition.get_or_init(|| context.definition_of(&self.view)).as_deref()
    }

    /// The result of the run, or its state so far according to the journal.
    pub(crate) fn result(&self, context: &Context) -> Option<&Document> {
        self.result.get_or_init(|| result_so_far(context, &self.view)).as_ref()
    }

    /// The tree of the run.
    pub(crate) fn tree(&self, context: &Context, stories: &Stories) -> &Tree {
        self.tree.get_or_init(|| Tree::new(context, stories, &self.view, self.result(context)))
    }
}

/// The run that a request has read. The requests of a page for its parts share it: a run of 10,000 effects is read once per page,
/// not once per stream.
#[derive(Clone, Default)]
pub(crate) struct Readings(Arc<Mutex<Option<Arc<Reading>>>>);

impl Readings {
    /// The run with this id. The caller of this function has checked that the request may see it.
    pub(crate) fn of(&self, context: &Context, id: &str) -> Result<Arc<Reading>, Problem> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = last.as_ref().filter(|reading| reading.view.row.id == id) {
            return Ok(Arc::clone(reading));
        }
        let view = context.engine().view(id).map_err(|e| engine_failed(&e))?;
        let (definition, result, tree) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let reading = Arc::new(Reading { view, definition, result, tree });
        *last = Some(Arc::clone(&reading));
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use etude_runtime::conformance::{new_run, record};
    use etude_runtime::engine::Cause;
    use http::Request;

    use super::*;
    use crate::listen::Peer;
    use crate::local::{Entered, local};
    use crate::route;
    use crate::settings::ServedApp;
    use crate::token::Caller;
    use crate::work::tests::serving;

    /// S-131: the parts of a page are made of one reading of its run, even while the run continues.
    #[tokio::test]
    async fn the_parts_of_a_page_read_a_run_once() {
        let run = new_run("r-1", 1);
        let (_dir, server) = serving(false, vec![ServedApp { slug: "demo".to_owned(), dir: run.app.clone().into() }]);
        let session = server.engine().create(&run).await.expect("create");
        session.append(record("main/a", "1")).await.expect("append");
        let readings = Readings::default();
        let entered = Entered {
            server: Arc::clone(&server),
            router: route::router(),
            caller: Some(Caller::owner()),
            peer: Peer::Socket,
            cause: Cause::Api,
            readings: readings.clone(),
        };
        let page = Request::get("/runs/r-1").body(Body::empty()).expect("a request");
        local(entered, page).await.expect("a page");
        let seen = readings.0.lock().expect("no panic").clone().expect("the parts share what they read");
        session.append(record("main/b", "2")).await.expect("append");
        assert!(Arc::ptr_eq(&seen, &readings.of(server.context(), "r-1").expect("read")));
        assert_eq!(
            seen.view.records.len() + 1,
            Readings::default().of(server.context(), "r-1").expect("read").view.records.len()
        );
    }
}
