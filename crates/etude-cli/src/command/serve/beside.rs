//! Server in the process of a command, for `etude run --web`.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use etude_server::listen::{Listening, Wanted};
use etude_server::token::Tokens;
use etude_server::{LogLine, Server, Settings, serve as accept};

use super::{apps, browser, clock, one_app};
use crate::context::Context;
use crate::paths;
use crate::problem::Problem;
use crate::runtime::block_on;

/// Server on a free loopback port that serves the one app of the command.
pub(crate) struct Beside {
    server: Arc<Server>,
    thread: JoinHandle<()>,
    dir: PathBuf,
}

impl Beside {
    /// Starts the server, and returns when it accepts requests.
    pub(crate) fn start(context: &Context) -> Result<Self, Problem> {
        let state = paths::state_dir().map_err(Problem::environment)?;
        let mut settings = Settings::new(&state, vec![one_app(context)?]);
        super::limit(&mut settings, context, None)?;
        let engine = context.engine(false)?;
        let apps = Box::new(apps::Configured::new(&context.global, Arc::clone(&engine)));
        let dir = state.join("serve");
        Tokens::new(&dir).owner().map_err(|error| Problem::environment(error.to_string()))?;
        let (ready, is_ready) = mpsc::channel();
        let serve_dir = dir.clone();
        let work = move || {
            let served = block_on(async {
                let listening = Listening::bind(Wanted::Loopback(0), &serve_dir, std::process::id()).await;
                let listening =
                    listening.map_err(|error| Problem::environment(format!("{error}: {}", error.source)))?;
                let log = Box::new(|_: &LogLine| ());
                let server = Server::new(settings, engine, apps, listening.addresses().clone(), clock(), log);
                // The receiver waits for this message.
                let _ = ready.send(Ok(Arc::clone(&server)));
                accept(server, listening).await;
                Ok(())
            });
            if let Err(problem) = served.and_then(|served| served) {
                let _ = ready.send(Err(problem));
            }
        };
        let thread = std::thread::Builder::new().name("serve".to_owned()).spawn(work);
        let thread = thread.map_err(|e| Problem::environment(format!("cannot start a thread: {e}")))?;
        let server = is_ready.recv().map_err(|_| Problem::environment("the server stopped before it was ready"))??;
        Ok(Self { server, thread, dir })
    }

    /// URL of a run's page.
    pub(crate) fn page(&self, run_id: &str) -> String {
        let address = self.server.addresses().urls().into_iter().next().unwrap_or_default();
        format!("{address}/runs/{run_id}")
    }

    /// Opens the page of a run in the user's browser, logged in.
    pub(crate) fn show(&self, run_id: &str) {
        browser::open(&self.server.login_link_to(&format!("/runs/{run_id}")).0, &self.dir);
    }

    /// Stops the server. Runs in progress continue in another server, or with `etude runs resume`.
    pub(crate) fn end(self) {
        self.server.drain();
        // A panic has already been printed.
        let _ = self.thread.join();
    }
}
