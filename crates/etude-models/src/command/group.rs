//! A child process with all its descendants.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use etude_process::{is_stopped_by_terminal, kill_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::stdout_deltas::StdoutDeltas;
use crate::wire::MAX_BODY_BYTES;

/// Maximum time that the output stays open after the program and its group have ended, because a process that left the group
/// holds it.
const DRAIN: Duration = Duration::from_secs(2);

/// Length of the end of stderr that is kept, in bytes. It is far longer than the quoted part, so that a key in that part is
/// not cut in two before redaction.
const STDERR_BYTES: usize = 64 * 1024;

/// Pause between two checks whether a running program waits for a terminal.
const LOOK: Duration = Duration::from_secs(1);

/// Number of bytes per read from stderr.
const PIECE: usize = 16 * 1024;

/// A running child. Dropping it kills the child and its descendants.
pub(super) struct Group {
    child: Child,
    id: Option<u32>,
}

/// A child that ended.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    /// The end of stderr.
    pub(super) stderr: Vec<u8>,
}

impl Group {
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        command.kill_on_drop(true);
        let child = command.spawn()?;
        let id = child.id();
        Ok(Self { child, id })
    }

    /// Writes `input` and reads both outputs at once, since a child may fill one while it waits for another. The call ends
    /// with the program itself. Processes that it left behind are killed, and do not delay the response.
    ///
    /// # Errors
    /// A pipe fails; [`io::ErrorKind::FileTooLarge`] if the output is larger than a response may be;
    /// [`io::ErrorKind::WouldBlock`] if the program waits for a terminal. The group is killed.
    pub(super) async fn run(mut self, input: Vec<u8>, stdout_deltas: &mut StdoutDeltas<'_>) -> io::Result<Ended> {
        let stdin = self.child.stdin.take();
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = {
            let write = async move {
                if let Some(mut stdin) = stdin {
                    // A program may respond without reading all of its input. Then it closes its end, which is not a failure.
                    let _ = stdin.write_all(&input).await;
                    let _ = stdin.shutdown().await;
                }
                Ok(())
            };
            let read = read_pipe(out, &mut stdout, stdout_deltas);
            // The first failure ends the call: a program that prints endlessly may never read its input.
            let pipes = async { tokio::try_join!(write, read, keep_end(err, &mut stderr)).map(|_| ()) };
            tokio::pin!(pipes);
            let mut drained = None;
            let status = tokio::select! {
                piped = &mut pipes => {
                    piped?;
                    drained = Some(Ok(()));
                    self.child.wait().await?
                }
                status = self.child.wait() => status?,
                () = stopped_by_terminal(self.id) => return Err(io::ErrorKind::WouldBlock.into()),
            };
            kill_group(self.id.take());
            let drained = match drained {
                Some(drained) => drained,
                None => match tokio::time::timeout(DRAIN, pipes).await {
                    Ok(piped) => piped,
                    // The output is what was printed until now.
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
        kill_group(self.id.take());
    }
}

/// Returns when a terminal has stopped the program `id`.
async fn stopped_by_terminal(id: Option<u32>) {
    while !is_stopped_by_terminal(id) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Reads to the end, and reports deltas. More output than a response may have is an error.
async fn read_pipe(
    pipe: Option<impl AsyncRead + Unpin>,
    bytes: &mut Vec<u8>,
    stdout_deltas: &mut StdoutDeltas<'_>,
) -> io::Result<()> {
    if let Some(mut pipe) = pipe {
        while pipe.read_buf(bytes).await? > 0 {
            if bytes.len() > MAX_BODY_BYTES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            stdout_deltas.emit(bytes);
        }
    }
    Ok(())
}

/// Reads to the end, and keeps the last bytes.
async fn keep_end(pipe: Option<impl AsyncRead + Unpin>, bytes: &mut Vec<u8>) -> io::Result<()> {
    if let Some(mut pipe) = pipe {
        bytes.reserve(2 * STDERR_BYTES + PIECE);
        while (&mut pipe).take(PIECE as u64).read_buf(bytes).await? > 0 {
            if bytes.len() > 2 * STDERR_BYTES {
                bytes.drain(..bytes.len() - STDERR_BYTES);
            }
        }
    }
    Ok(())
}
