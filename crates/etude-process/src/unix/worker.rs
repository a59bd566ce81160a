//! A fork server as a process: its socket, the file descriptors that go through it, and its end.

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

/// How long a server may take to import what it was set to.
const START: Duration = Duration::from_secs(60);

/// How long a server may take to fork.
const FORK: Duration = Duration::from_secs(10);

/// An answer is a line, and no longer than this, in bytes.
const MAX_LENGTH: usize = 4096;

/// How much of what a server has printed last is kept, in bytes.
const TAIL: usize = 4096;

/// How often a stream is read in a row, so that a server that prints without an end keeps no one from the clock.
const MAX_READS: usize = 16;

/// A fork server. It ends when this is dropped, with the process that waits for the next step.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    channel: UnixStream,
    /// The process that waits for a step, if it is known already.
    waiting: Option<Pid>,
    /// The end of what it has printed on stderr.
    said: Vec<u8>,
}

/// Why a server can do no more.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The alarm rang while it was waited for.
    Rung,
    /// It does not work; why.
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
    /// Starts `launch`, an interpreter, at `at` with the variables `env`. It reads its program and a first message from
    /// its stdin. Waits until it has forked the process of the first step.
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
        // Pipes, as steps have them: the interpreter looks at what its streams are.
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C at the terminal is not for it.
        command.env_clear().envs(env).process_group(0);
        match at {
            At::Path(dir) => _ = command.current_dir(dir),
            At::Given(given) => sandbox::send(&channel, &given.iter().map(AsFd::as_fd).collect::<Vec<_>>())?,
        }
        let mut server = Self { child: command.spawn()?, channel, waiting: None, said: Vec::new() };
        server.read_without_waiting()?;
        super::descriptors::give_back(super::id_of(&server.child));
        // With the command goes our copy of the other end of the socket.
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

    /// Has a process become a step that is ours from then on, as if it had been started here. It was forked before, and the
    /// server forks the next one meanwhile.
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
                return Err(Trouble::Broken("orphans are not given to this process here".to_owned()));
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
            // It has left the group that ends with the server, and has not begun.
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
        // Four bytes that are not sent whole at once do not occur; if they do, the server waits for more, in vain.
        sendmsg(&self.channel, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(self.channel.write_all(request)?)
    }

    /// The process that the server has forked for the next step, within `limit`.
    fn announced(&mut self, alarm: &Alarm, limit: Duration) -> Result<Pid, Trouble> {
        let line = self.answer(alarm, limit)?;
        let id = line.parse().ok().filter(|id| *id > 0).and_then(Pid::from_raw);
        id.ok_or_else(|| Trouble::Broken(format!("it said `{line}`")))
    }

    /// The next line that the server sends, within `limit`; one that begins with `!` is the reason why it cannot.
    fn answer(&mut self, alarm: &Alarm, limit: Duration) -> Result<String, Trouble> {
        let deadline = Instant::now() + limit;
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || line.len() > MAX_LENGTH {
                return Err(Trouble::Broken(format!("it does not answer within {} s", limit.as_secs())));
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

    /// Lets nothing wait for what it prints: it may live on without another word.
    fn read_without_waiting(&self) -> Result<(), Errno> {
        self.child.stdout.iter().try_for_each(|stdout| ioctl_fionbio(stdout, true))?;
        self.child.stderr.iter().try_for_each(|stderr| ioctl_fionbio(stderr, true))
    }

    /// Reads what the server has printed. An import may print more than a pipe holds, and would wait for a reader.
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

    /// The last line that the server has printed on stderr.
    fn last_words(&mut self) -> Option<String> {
        self.listen();
        let said = String::from_utf8_lossy(&self.said);
        said.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(|line| format!("it has ended: {line}"))
    }
}

/// Reads what there is, of which `said` keeps the end. True at the end of the stream.
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
        // They hold nothing that they could lose. What has ended has got what it was to get.
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        while let Ok(Some(_)) = waitid(WaitId::Pgid(Some(group)), WaitIdOptions::EXITED) {}
    }
}
