//! A server as a child process: messages are lines on its stdin and stdout.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use etude_process::{kill_group, terminate_group};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// Time for a server to end after its stdin was closed, and again after `SIGTERM`.
const GRACE: Duration = Duration::from_secs(3);

/// A running server. Dropping it kills the server and its children.
pub(super) struct ServerProcess {
    child: Child,
    /// The process group of the server, until it was killed.
    group: Option<u32>,
    lines: AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>,
}

impl ServerProcess {
    /// Starts a [`detached`](etude_process::detached) program, so that etude decides about a Ctrl-C at the terminal, and
    /// children of the server end with it. The caller reads its stderr.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(mut program: Command) -> io::Result<(Self, ChildStderr)> {
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = tokio::process::Command::from(program).kill_on_drop(true).spawn()?;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => {
                let group = child.id();
                Ok((Self { child, group, lines: AsyncRwTransport::new(stdout, stdin) }, stderr))
            }
            _ => Err(io::Error::other("its pipes are missing")),
        }
    }

    /// Ends the server as the protocol describes it: closed stdin, then `SIGTERM`, then `SIGKILL`. Processes that remain in
    /// its group are killed in each case.
    async fn end(&mut self, after_stdin: Duration, after_term: Duration) -> io::Result<ExitStatus> {
        self.lines.close().await?;
        let status = self.ended(after_stdin, after_term).await;
        self.kill();
        status
    }

    async fn ended(&mut self, after_stdin: Duration, after_term: Duration) -> io::Result<ExitStatus> {
        if let Ok(status) = tokio::time::timeout(after_stdin, self.child.wait()).await {
            return status;
        }
        terminate_group(self.child.id());
        if let Ok(status) = tokio::time::timeout(after_term, self.child.wait()).await {
            return status;
        }
        self.kill();
        self.child.wait().await
    }

    /// Kills the group, once: its number may be reused after its last process is gone.
    fn kill(&mut self) {
        kill_group(self.group.take());
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Transport<RoleClient> for ServerProcess {
    type Error = io::Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.lines.send(item)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.lines.receive()
    }

    async fn close(&mut self) -> io::Result<()> {
        self.end(GRACE, GRACE).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use etude_process::{ChildEnvironment, detached};
    use tokio::io::AsyncReadExt;

    use super::*;

    const NEVER: Duration = Duration::from_secs(600);

    /// A server that has installed its signal handlers, with a child in its group that holds its stderr.
    async fn started(trap: &str) -> (ServerProcess, ChildStderr) {
        let ready = r#"echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'"#;
        let mut program = detached("sh", ChildEnvironment::named(&["PATH"]));
        program.args(["-c", &format!("{trap}\nsleep 600 &\n{ready}\nwhile :; do wait; done")]);
        let (mut process, stderr) = ServerProcess::start(program).expect("a server");
        process.receive().await.expect("a message");
        (process, stderr)
    }

    /// Returns when no process of the group is left.
    async fn no_one_holds(mut stderr: ChildStderr) {
        stderr.read_to_end(&mut Vec::new()).await.expect("its end");
    }

    #[tokio::test]
    async fn a_server_that_stays_is_asked_to_end() {
        let (mut process, stderr) = started("trap 'exit 7' TERM").await;
        assert_eq!(process.end(Duration::ZERO, NEVER).await.expect("its end").code(), Some(7));
        no_one_holds(stderr).await;
    }

    /// A child that ignores the signal, or that is just being started, does not outlive its server.
    #[tokio::test]
    async fn a_server_that_ends_leaves_no_child() {
        let (mut process, stderr) = started("(trap '' TERM; exec sleep 600) &\ntrap 'exit 7' TERM").await;
        assert_eq!(process.end(Duration::ZERO, NEVER).await.expect("its end").code(), Some(7));
        no_one_holds(stderr).await;
    }

    #[tokio::test]
    async fn a_server_that_refuses_to_end_is_killed_with_its_children() {
        let (mut process, stderr) = started("trap '' TERM").await;
        assert_eq!(process.end(Duration::ZERO, Duration::ZERO).await.expect("its end").signal(), Some(9));
        no_one_holds(stderr).await;
    }

    #[tokio::test]
    async fn a_server_that_is_forgotten_is_killed_with_its_children() {
        let (process, stderr) = started("trap '' TERM").await;
        drop(process);
        no_one_holds(stderr).await;
    }
}
