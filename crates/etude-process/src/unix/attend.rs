//! One thread attends one process: a single poll over its pipes, its end, and the cancellation.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use etude_core::outcome::Exit;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, ioctl_fionread};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::kill::{Family, Scope, end_step};
use super::terminal::Watch;
use super::{Alarm, Launched, is_group_alive, platform, signals};
use crate::cancel::{Cancel, Cancelled};
use crate::capture::{Capture, Diagnostics};
use crate::redactor::RedactedStream;
use crate::stdin::{Feed, Next};

/// Number of bytes per read: the default capacity of a pipe.
const BUFFER: usize = 64 * 1024;

/// Capacity that is requested for a pipe with much data, in bytes. It needs fewer switches between etude and the process.
const WIDE: usize = 1024 * 1024;

/// Stack size of a thread that only reads, in bytes.
const DRAIN_STACK: usize = 64 * 1024;

/// Input of a process, and the sinks of its output.
pub(crate) struct Step<'a> {
    pub(crate) feed: Feed<'a>,
    pub(crate) stdout: Capture<'a>,
    pub(crate) stderr: Diagnostics<'a>,
    pub(crate) on_stderr: &'a mut dyn FnMut(&[u8]),
    pub(crate) with_redactor: RedactedStream<'a>,
}

impl Step<'_> {
    /// Handles redacted bytes of stderr.
    fn on_stderr(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.stderr.push(bytes);
            (self.on_stderr)(bytes);
        }
    }

    /// Handles the bytes that the redactor held back.
    fn flush_stderr(&mut self) {
        let rest = self.with_redactor.rest();
        self.on_stderr(&rest);
    }
}

/// A process that has ended by itself or was ended.
#[derive(Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) exit: Exit,
    pub(crate) stdout: Capture<'a>,
    pub(crate) stderr: Diagnostics<'a>,
    /// True if something in its group continues.
    pub(crate) left_something: bool,
}

impl Launched {
    /// Writes, reads and waits until the process has ended or is cancelled. A process that the terminal has stopped is ended.
    pub(crate) fn attend<'a>(
        self,
        step: Step<'a>,
        cancel: &Cancel,
        alarm: &Alarm,
        grace: Duration,
        marks: Vec<String>,
    ) -> Result<Ended<'a>, Cancelled> {
        let Self { id, end, stdin, stdout, stderr } = self;
        let mut pipes = Pipes::of(stdin, stdout, stderr, step);
        let mut watch = Watch::new();
        let mut exited = false;
        let broken = loop {
            if let Err(why) = pipes.write() {
                break Some(Exit::NotStarted(format!("cannot read its stdin from the store: {why}")));
            }
            if cancel.is_cancelled() || pipes.step.stdout.is_over() {
                break None;
            }
            match pipes.wait(Some(&end), Some(alarm), watch.pause()) {
                Woken::Ended => {
                    exited = true;
                    break None;
                }
                Woken::Idle if let Some(stopped) = watch.look(id) => break Some(stopped),
                Woken::Idle | Woken::Ready => {}
            }
        };
        if !exited {
            let mut family = Family::new(HashSet::from([id]), marks, Scope::Marked);
            pipes.give_up(&end, &mut family, grace);
            pipes.step.flush_stderr();
            let exit = match broken {
                Some(exit) => exit,
                None if pipes.step.stdout.is_over() => Exit::NotStarted("it printed more than the limit".to_owned()),
                None => return Err(Cancelled(pipes.step.stderr.finish())),
            };
            return Ok(Ended { exit, stdout: pipes.step.stdout, stderr: pipes.step.stderr, left_something: false });
        }
        pipes.drain();
        pipes.step.flush_stderr();
        let exit = match wait(id) {
            Ok(status) => exit_of(status),
            Err(error) => Exit::NotStarted(format!("its exit status was lost: {error}")),
        };
        let left_something = is_group_alive(id);
        pipes.leave_to_others();
        Ok(Ended { exit, stdout: pipes.step.stdout, stderr: pipes.step.stderr, left_something })
    }
}

/// Reaps the child `id`, which has ended.
fn wait(id: Pid) -> Result<ExitStatus, Errno> {
    loop {
        match waitpid(Some(id), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(ExitStatus::from_raw(status.as_raw())),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Status(code),
        (None, Some(number)) => Exit::Signal { number, name: signals::name(number) },
        (None, None) => Exit::Status(status.into_raw()),
    }
}

/// This process's ends of the pipes. A closed one is `None`.
struct Pipes<'a> {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    step: Step<'a>,
    buffer: Vec<u8>,
    /// True once the pipe of stdout was widened.
    is_wide: bool,
    /// True once the pipe of stdin was full.
    is_stdin_wide: bool,
    /// True when stdout is of no further use.
    discard: bool,
}

/// Result of a wait.
#[derive(PartialEq, Eq)]
enum Woken {
    /// The process has ended.
    Ended,
    /// Something was read, can be written, or the alarm rang.
    Ready,
    /// The timeout expired.
    Idle,
}

/// Result of a read from a pipe.
enum Got {
    Bytes,
    NothingNow,
    End,
}

impl<'a> Pipes<'a> {
    fn of(stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd, step: Step<'a>) -> Self {
        let (stdout, stderr) = (Some(stdout), Some(stderr));
        let pipes = Self {
            stdin,
            stdout,
            stderr,
            step,
            buffer: Vec::with_capacity(BUFFER),
            is_wide: false,
            is_stdin_wide: false,
            discard: false,
        };
        for pipe in [&pipes.stdin, &pipes.stdout, &pipes.stderr].into_iter().flatten() {
            // This cannot fail for a pipe. Only the end of this process becomes non-blocking; the child's is another open
            // file.
            let _ = ioctl_fionbio(pipe, true);
        }
        pipes
    }

    /// Writes until the pipe is full. A process that closes its stdin early is fine; a stored value that cannot be
    /// read is an error.
    fn write(&mut self) -> Result<(), String> {
        while let Some(stdin) = &self.stdin {
            let written = match self.step.feed.next()? {
                Next::Slices(slices) => rustix::io::writev(stdin, &slices),
                Next::Done => {
                    self.stdin = None;
                    break;
                }
            };
            match written {
                Ok(count) => self.step.feed.advance(count),
                Err(Errno::AGAIN) if !self.is_stdin_wide => {
                    self.is_stdin_wide = true;
                    platform::widen(stdin, WIDE);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => self.stdin = None,
            }
        }
        Ok(())
    }

    /// Waits until something can be read or written, the process has ended, the alarm rings, or `timeout` expires. Reads the
    /// available output.
    fn wait(&mut self, end: Option<&OwnedFd>, alarm: Option<&Alarm>, timeout: Option<Duration>) -> Woken {
        let mut fds = Vec::with_capacity(5);
        let end_at = end.map(|end| push(&mut fds, end, PollFlags::IN));
        let stdout_at = self.stdout.as_ref().map(|pipe| push(&mut fds, pipe, PollFlags::IN));
        let stderr_at = self.stderr.as_ref().map(|pipe| push(&mut fds, pipe, PollFlags::IN));
        if let Some(stdin) = &self.stdin {
            push(&mut fds, stdin, PollFlags::OUT);
        }
        if let Some(alarm) = alarm {
            push(&mut fds, alarm, PollFlags::IN);
        }
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => return Woken::Idle,
            Ok(_) => {}
            // Interrupted, or short of memory: try again.
            Err(_) => return Woken::Ready,
        }
        let ready = |at: Option<usize>| at.is_some_and(|at| !fds[at].revents().is_empty());
        let (ended, out, err) = (ready(end_at), ready(stdout_at), ready(stderr_at));
        drop(fds);
        if out && matches!(self.read_stdout(usize::MAX), Got::Bytes) && self.buffer.len() == BUFFER {
            self.widen_stdout();
        }
        if err {
            self.read_stderr(usize::MAX);
        }
        if ended { Woken::Ended } else { Woken::Ready }
    }

    /// Widens the pipe of stdout after it was full, since it will be full again.
    fn widen_stdout(&mut self) {
        if !self.is_wide
            && let Some(stdout) = &self.stdout
        {
            platform::widen(stdout, WIDE);
            self.is_wide = true;
            self.buffer.reserve(WIDE);
        }
    }

    /// Reads the remaining output of the ended process, but no later output of others. The bytes that are in a pipe now are
    /// all that the process can have written.
    fn drain(&mut self) {
        for is_stdout in [true, false] {
            let pipe = if is_stdout { &self.stdout } else { &self.stderr };
            let Some(pipe) = pipe else { continue };
            let mut left = ioctl_fionread(pipe).map_or(BUFFER, |left| usize::try_from(left).unwrap_or(BUFFER));
            while left > 0 {
                let got = if is_stdout { self.read_stdout(left) } else { self.read_stderr(left) };
                match got {
                    Got::Bytes => left -= self.buffer.len().min(left),
                    Got::NothingNow | Got::End => break,
                }
            }
        }
    }

    /// Continues to read and discard the output of others in the pipes of the ended process. Else a server that the process
    /// started would be killed by its next log line, or would block.
    fn leave_to_others(&mut self) {
        let pipes: Vec<OwnedFd> = [self.stdout.take(), self.stderr.take()].into_iter().flatten().collect();
        if pipes.iter().any(is_held) {
            // If the thread cannot start, the pipes are closed, and the writers see that.
            let _ = thread::Builder::new().name("drain".to_owned()).stack_size(DRAIN_STACK).spawn(|| drain(pipes));
        }
    }

    fn read_stdout(&mut self, most: usize) -> Got {
        let got = read(&mut self.stdout, &mut self.buffer, most);
        if matches!(got, Got::Bytes) && !self.discard {
            self.step.stdout.push(&self.buffer);
        }
        got
    }

    fn read_stderr(&mut self, most: usize) -> Got {
        let got = read(&mut self.stderr, &mut self.buffer, most);
        if matches!(got, Got::Bytes) {
            let seen = self.step.with_redactor.piece(&self.buffer);
            self.step.on_stderr(&seen);
        }
        got
    }

    /// Ends the whole family of the process. It may still print meanwhile: a process that logs its shutdown must not block.
    fn give_up(&mut self, end: &OwnedFd, family: &mut Family, grace: Duration) {
        self.stdin = None;
        self.discard = true;
        let mut exited = false;
        end_step(family, grace, &mut |pause| {
            exited |= self.wait((!exited).then_some(end), None, Some(pause)) == Woken::Ended;
        });
        self.drain();
    }
}

/// True if another process holds the other end of the pipe.
fn is_held(pipe: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::IN)];
    let looked = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    looked.is_ok() && !fds[0].revents().contains(PollFlags::HUP)
}

/// Reads until all other ends are closed.
fn drain(pipes: Vec<OwnedFd>) {
    let mut buffer = Vec::with_capacity(4096);
    let mut pipes: Vec<Option<OwnedFd>> = pipes.into_iter().map(Some).collect();
    while pipes.iter().any(Option::is_some) {
        let mut fds: Vec<PollFd<'_>> = pipes.iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        let looked = poll(&mut fds, None);
        drop(fds);
        if !matches!(looked, Ok(_) | Err(Errno::INTR)) {
            return;
        }
        for pipe in &mut pipes {
            read(pipe, &mut buffer, usize::MAX);
        }
    }
}

fn push<'f>(fds: &mut Vec<PollFd<'f>>, fd: &'f impl AsFd, events: PollFlags) -> usize {
    fds.push(PollFd::new(fd, events));
    fds.len() - 1
}

/// Reads into `buffer`, replaces its content, and drops bytes beyond `most`. Closes the pipe at its end.
fn read(pipe: &mut Option<OwnedFd>, buffer: &mut Vec<u8>, most: usize) -> Got {
    buffer.clear();
    while let Some(fd) = pipe.as_ref() {
        match rustix::io::read(fd, spare_capacity(buffer)) {
            Ok(0) => *pipe = None,
            Ok(_) => {
                buffer.truncate(most);
                return Got::Bytes;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Got::NothingNow,
            Err(_) => *pipe = None,
        }
    }
    Got::End
}
