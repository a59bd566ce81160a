//! A child with everything that it starts.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::heard::Heard;
#[cfg(unix)]
use super::unix as platform;
#[cfg(windows)]
use super::windows as platform;

/// How long the output may stay open after the program and its group have ended: something that left the group holds
/// it.
const DRAIN: Duration = Duration::from_secs(2);

/// A running child. Dropping it kills the child and its descendants.
pub(super) struct Group {
    child: Child,
    id: Option<u32>,
}

/// A child that ended.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

impl Group {
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        platform::prepare(&mut command);
        command.kill_on_drop(true);
        let child = command.spawn()?;
        let id = child.id();
        Ok(Self { child, id })
    }

    /// Writes `input` and reads both outputs at once, since a child may fill one while it waits for another. The call
    /// is over when the program itself has ended: what it left behind is killed, and does not delay the answer.
    pub(super) async fn run(mut self, input: Vec<u8>, heard: &mut Heard<'_>) -> io::Result<Ended> {
        let stdin = self.child.stdin.take();
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = {
            let write = async move {
                if let Some(mut stdin) = stdin {
                    // A program that answers without reading everything closes its end, which is its own affair.
                    let _ = stdin.write_all(&input).await;
                    let _ = stdin.shutdown().await;
                }
            };
            let pipes = async { tokio::join!(write, hear(out, &mut stdout, heard), read_all(err, &mut stderr)) };
            tokio::pin!(pipes);
            let mut drained = None;
            let status = tokio::select! {
                ((), out, err) = &mut pipes => {
                    drained = Some(out.and(err));
                    self.child.wait().await?
                }
                status = self.child.wait() => status?,
            };
            platform::kill(self.id.take());
            let drained = match drained {
                Some(drained) => drained,
                None => match tokio::time::timeout(DRAIN, pipes).await {
                    Ok(((), out, err)) => out.and(err),
                    // What was printed until now is the output.
                    Err(_) => Ok(()),
                },
            };
            drained.map(|()| status)?
        };
        Ok(Ended { status, stdout, stderr })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        platform::kill(self.id.take());
    }
}

/// Reads to the end, and tells what comes.
async fn hear(pipe: Option<impl AsyncRead + Unpin>, bytes: &mut Vec<u8>, heard: &mut Heard<'_>) -> io::Result<()> {
    if let Some(mut pipe) = pipe {
        while pipe.read_buf(bytes).await? > 0 {
            heard.tell(bytes);
        }
    }
    Ok(())
}

async fn read_all(pipe: Option<impl AsyncRead + Unpin>, bytes: &mut Vec<u8>) -> io::Result<()> {
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(bytes).await?;
    }
    Ok(())
}
