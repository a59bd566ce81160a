//! The process of a fork server: its socket, the file descriptors that go through it, and its end.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, setpgid, waitid};

use super::{Alarm, At, Launched, platform};
use crate::program::Launch;
use crate::sandbox;

/// Maximum time for a server to import its modules.
const START: Duration = Duration::from_secs(60);

/// Maximum time for a server to fork.
const FORK: Duration = Duration::from_secs(10);

/// Maximum length of a response, which is one line, in bytes.
const MAX_LENGTH: usize = 4096;

/// Length of the end of a server's stderr that is kept, in bytes.
const TAIL: usize = 4096;

/// Maximum number of reads from a stream in a row, so that a server that prints endlessly cannot hold up the timeout.
const MAX_READS: usize = 16;

/// A fork server. Dropping it ends the server and the process that waits for the next step.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    channel: UnixStream,
    /// The process that waits for the next step, if it was announced already.
    waiting: Option<Pid>,
    /// The end of the server's stderr.
    said: Vec<u8>,
}

/// Reason why a server cannot continue.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The alarm rang during the wait.
    Rung,
    /// The server failed, with the reason.
    Broken(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<Errno> for Trouble {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl Server {
    /// Starts `launch`, an interpreter, at `at` with the variables `env`. The interpreter reads its program and a first
    /// message from its stdin. Waits until it has forked the process of the first step.
    #[expect(clippy::disallowed_methods, reason = "how a host starts a warm interpreter")]
    pub(crate) fn start(
        launch: &Launch,
        at: At<'_>,
        env: Vec<(OsString, OsString)>,
        [program, message]: [&[u8]; 2],
        alarm: &Alarm,
    ) -> Result<Self, Trouble> {
        let (channel, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&launch.program);
        command.arg0(&launch.name).args(&launch.args);
        // Pipes, as for steps: the interpreter checks the kind of its streams.
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C at the terminal must not reach the server.
        command.env_clear().envs(env).process_group(0);
        match at {
            At::Path(dir) => _ = command.current_dir(dir),
            At::Given(given) => sandbox::send(&channel, &given.iter().map(AsFd::as_fd).collect::<Vec<_>>())?,
        }
        let mut server = Self { child: command.spawn()?, channel, waiting: None, said: Vec::new() };
        server.read_without_waiting()?;
        super::descriptors::give_back(super::id_of(&server.child));
        // Dropping the command closes this process's copy of the other end of the socket.
        drop(command);
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
        let reported = [program, &length, message].into_iter().try_for_each(|part| server.channel.write_all(part));
        match reported.map_err(Trouble::from).and_then(|()| server.announced(alarm, START)) {
            Ok(id) => {
                server.waiting = Some(id);
                Ok(server)
            }
            Err(Trouble::Broken(why)) => Err(Trouble::Broken(server.last_words().unwrap_or(why))),
            Err(Trouble::Rung) => Err(Trouble::Rung),
        }
    }

    /// Turns the waiting process into a step, which from then on counts as started here. It was forked before, and the server
    /// forks the next one meanwhile.
    pub(crate) fn fork(&mut self, request: &[u8], stdin: bool, alarm: &Alarm) -> Result<Launched, Trouble> {
        let id = match self.waiting.take() {
            Some(id) => id,
            None => self.announced(alarm, FORK)?,
        };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(id), look) {
            Ok(None) => {}
            Ok(Some(_)) => return Err(Trouble::Broken("it has ended".to_owned())),
            Err(Errno::CHILD) => {
                return Err(Trouble::Broken("this process does not become the parent of orphans here".to_owned()));
            }
            Err(error) => return Err(error.into()),
        }
        let end = platform::end_of(id)?;
        let (given, stdin) = if stdin {
            let (theirs, ours) = io::pipe()?;
            (OwnedFd::from(theirs), Some(OwnedFd::from(ours)))
        } else {
            (OwnedFd::from(File::open("/dev/null")?), None)
        };
        let ((stdout, out), (stderr, err)) = (io::pipe()?, io::pipe()?);
        setpgid(Some(id), Some(id))?;
        if let Err(trouble) = self.send(request, &[given.as_fd(), out.as_fd(), err.as_fd()]) {
            // The process has left the group that ends with the server, and has not begun its work.
            let _ = kill_process(id, Signal::KILL);
            let _ = waitid(WaitId::Pid(id), WaitIdOptions::EXITED);
            return Err(trouble);
        }
        Ok(Launched { id, end, stdin, stdout: stdout.into(), stderr: stderr.into() })
    }

    fn send(&mut self, request: &[u8], fds: &[BorrowedFd<'_>; 3]) -> Result<(), Trouble> {
        let length =
            u32::try_from(request.len()).map_err(|_| Trouble::Broken("its arguments are too long".to_owned()))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(fds));
        let length = length.to_be_bytes();
        // Four bytes are never sent in part. If they were, the server would wait for the rest until the timeout. `SIGPIPE` is
        // ignored (see the crate), and not every system has a flag against it.
        sendmsg(&self.channel, &[IoSlice::new(&length)], &mut control, SendFlags::empty())?;
        Ok(self.channel.write_all(request)?)
    }

    /// The id of the process that the server has forked for the next step. Waits at most `limit`.
    fn announced(&mut self, alarm: &Alarm, limit: Duration) -> Result<Pid, Trouble> {
        let line = self.answer(alarm, limit)?;
        let id = line.parse().ok().filter(|id| *id > 0).and_then(Pid::from_raw);
        id.ok_or_else(|| Trouble::Broken(format!("it printed `{line}`")))
    }

    /// The next line from the server. Waits at most `limit`. A line that begins with `!` is an error with its reason.
    fn answer(&mut self, alarm: &Alarm, limit: Duration) -> Result<String, Trouble> {
        let deadline = Instant::now() + limit;
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || line.len() > MAX_LENGTH {
                return Err(Trouble::Broken(format!("it did not respond within {} s", limit.as_secs())));
            }
            let mut fds = vec![PollFd::new(&self.channel, PollFlags::IN), PollFd::new(alarm, PollFlags::IN)];
            fds.extend(self.child.stdout.iter().map(|stdout| PollFd::new(stdout, PollFlags::IN)));
            fds.extend(self.child.stderr.iter().map(|stderr| PollFd::new(stderr, PollFlags::IN)));
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            let (has_answer, rang) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            let has_printed = fds[2..].iter().any(|fd| !fd.revents().is_empty());
            drop(fds);
            if rang {
                return Err(Trouble::Rung);
            }
            if has_printed {
                self.listen();
            }
            if has_answer {
                let mut piece = [0; 512];
                match self.channel.read(&mut piece)? {
                    0 => return Err(Trouble::Broken("it has ended".to_owned())),
                    got => line.extend_from_slice(&piece[..got]),
                }
            }
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        match line.strip_prefix('!') {
            Some(why) => Err(Trouble::Broken(why.to_owned())),
            None => Ok(line),
        }
    }

    /// Makes reads of its output non-blocking: the server may live on without printing anything.
    fn read_without_waiting(&self) -> Result<(), Errno> {
        self.child.stdout.iter().try_for_each(|stdout| ioctl_fionbio(stdout, true))?;
        self.child.stderr.iter().try_for_each(|stderr| ioctl_fionbio(stderr, true))
    }

    /// Reads the output of the server. An import may print more than a pipe holds, and would wait for a reader.
    fn listen(&mut self) {
        let mut nothing = Vec::new();
        if self.child.stdout.as_ref().is_some_and(|stdout| has_ended(stdout.as_fd(), &mut nothing)) {
            self.child.stdout = None;
        }
        let said = &mut self.said;
        if self.child.stderr.as_ref().is_some_and(|stderr| has_ended(stderr.as_fd(), said)) {
            self.child.stderr = None;
        }
    }

    /// The last line of the server's stderr.
    fn last_words(&mut self) -> Option<String> {
        self.listen();
        let said = String::from_utf8_lossy(&self.said);
        said.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(|line| format!("it has ended: {line}"))
    }
}

/// Reads the available bytes and keeps the end of them in `said`. True at the end of the stream.
fn has_ended(stream: BorrowedFd<'_>, said: &mut Vec<u8>) -> bool {
    let mut piece = [0; 1 << 13];
    for _ in 0..MAX_READS {
        match rustix::io::read(stream, &mut piece[..]) {
            Ok(0) => return true,
            Ok(got) => said.extend_from_slice(&piece[..got]),
            Err(Errno::INTR) => {}
            Err(error) => return error != Errno::AGAIN,
        }
        said.drain(..said.len().saturating_sub(TAIL));
    }
    false
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server and the waiting process hold nothing that could be lost. A process that has ended needs no signal.
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        while let Ok(Some(_)) = waitid(WaitId::Pgid(Some(group)), WaitIdOptions::EXITED) {}
    }
}
