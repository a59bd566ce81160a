//! `etude mcp`: one client on a pair of streams, and the runs that it starts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use etude_mcp::{Selection, Transport};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::mcp::{self, beside};
use crate::route;
use crate::server::Server;
use crate::token::Caller;
use crate::work;

/// Maximum time in which the open calls of a server that stops return their runs.
const LAST_RESPONSES: Duration = Duration::from_secs(2);

/// Serves one client of the protocol as the owner, until the client closes its end or the server is asked to stop. Runs are
/// driven in this process, unless a server of the same user serves the app. The next process resumes runs that are unfinished at
/// the end.
///
/// # Errors
/// A stream, or the file of tokens, fails.
pub async fn stdio(
    server: Arc<Server>,
    selection: Selection,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let caller = Caller::owner();
    let service = mcp::protocol(&server, route::router(), caller, Transport::Stdio)
        .map_err(io::Error::other)?
        .selection(selection);
    let worker = tokio::spawn(beside::work(Arc::clone(&server)));
    let news = tokio::spawn(server.look_for_news());
    let changes = tokio::spawn(mcp::changes::look(Arc::clone(&server)));
    let mut stopping = server.context().stopping();
    let late = async {
        // The sender belongs to the server.
        let _ = stopping.wait_for(|stop| *stop).await.map(drop);
        tokio::time::sleep(LAST_RESPONSES).await;
    };
    let served = tokio::select! {
        served = etude_mcp::stdio::serve(Arc::new(service), input, output) => served,
        () = late => Ok(()),
    };
    server.drain();
    // A look that has begun may take one more run, which is then left too.
    let _ = worker.await;
    work::drain(server.works(), server.settings().drain_timeout).await;
    news.abort();
    changes.abort();
    served
}
