//! Processes on Linux: a file descriptor per process, adopted orphans, and the process tree of `/proc`.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit, WaitOptions, set_dumpable_behavior};

use super::kill::{Family, Member, Scope};
use super::waiter;

/// A descriptor that becomes readable when it is rung, and stays so.
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // This fails only after 2^64 rings.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Keeps other processes of the same user from reading the memory and the initial environment of this one. The programs that
/// it starts stay as open as ever.
pub fn keep_private() {
    // If this fails, the process is as open as on other systems.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Makes orphaned descendants children of this process instead of process 1, so that they can be found.
pub(crate) fn adopt_orphans() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without it, orphans that left their group go unnoticed; everything else works.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    });
}

/// A file descriptor that becomes readable when the child `id` has ended.
pub(super) fn end_of(id: Pid) -> io::Result<OwnedFd> {
    // Kernels before 5.3 and some sandboxes do not have such descriptors.
    rustix::process::pidfd_open(id, PidfdFlags::empty()).or_else(|_| waiter::end_of(id))
}

/// Limits the file descriptors of the process `id`.
pub(super) fn limit_descriptors(id: Pid, limit: Rlimit) {
    // A process that has ended, or that has become another user's, has no use for it.
    let _ = rustix::process::prlimit(Some(id), Resource::Nofile, limit);
}

/// Sets the capacity of a pipe in bytes, if the user's limit allows it.
pub(super) fn widen(pipe: &OwnedFd, bytes: usize) {
    // If that is refused, the pipe keeps its capacity.
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, bytes);
}

/// Maximum number of searches while processes begin or end during the search.
const LOOKS: usize = 64;

/// Pause before each search but the first two: a process that begins needs the processor for it.
const PAUSE: Duration = Duration::from_millis(1);

/// All living processes of `family`. Dead members that are children of this process are reaped.
pub(super) fn members(family: &mut Family) -> Vec<Member> {
    for earlier in 0..LOOKS {
        if earlier > 1 {
            thread::sleep(PAUSE);
        }
        let (members, is_unsettled) = look(family);
        if !members.is_empty() || !is_unsettled {
            return members;
        }
    }
    Vec::new()
}

/// The members from one search, and true if another search may find more. Children of a process that has just ended may become
/// children of this one after those were listed. A process that is just being started shows no environment.
fn look(family: &mut Family) -> (Vec<Member>, bool) {
    let mut is_unsettled = false;
    let us = rustix::process::getpid();
    let (roots, exempted) = match family.scope {
        Scope::Everywhere => (all_of_this_user(), lineage(us)),
        Scope::Children | Scope::Marked => (children_of(us), HashSet::from([us])),
    };
    let mut done = exempted;
    done.extend(&family.exempted);
    let mut members = Vec::new();
    let mut open = Vec::new();
    for root in roots {
        if done.contains(&root) {
            continue;
        }
        let Some(stat) = Stat::of(root) else {
            is_unsettled = true;
            continue;
        };
        if family.scope != Scope::Children && !is_known(family, root, &stat) {
            match environment_of(root) {
                Some(environment) if has_all(&environment, &family.marks) => {}
                environment => {
                    is_unsettled |= environment.is_some_and(|shown| shown.is_empty()) && stat.is_starting(root);
                    continue;
                }
            }
        }
        open.push(root);
        while let Some(pid) = open.pop() {
            if !done.insert(pid) {
                continue;
            }
            let Some(stat) = Stat::of(pid) else {
                is_unsettled = true;
                continue;
            };
            if stat.is_dead {
                // If this fails, the process is the child of another one, which must reap it.
                is_unsettled |= rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).is_ok();
                continue;
            }
            family.seen.insert(pid, stat.start);
            members.push(Member { pid, in_group: stat.group.is_some_and(|group| family.groups.contains(&group)) });
            open.extend(children_of(pid));
        }
    }
    (members, is_unsettled)
}

/// True if a process is a member regardless of its environment.
fn is_known(family: &Family, pid: Pid, stat: &Stat) -> bool {
    stat.group.is_some_and(|group| family.groups.contains(&group)) || family.seen.get(&pid) == Some(&stat.start)
}

/// The facts of `/proc/PID/stat` that matter here.
struct Stat {
    is_dead: bool,
    parent: Option<Pid>,
    group: Option<Pid>,
    /// Start time of the process, which together with its id identifies it.
    start: u64,
    /// End address of its environment. It is 0 until the kernel knows it, which may be after the call that started the process
    /// has returned. It is also 0 where this user may not read it.
    environment_end: u64,
}

impl Stat {
    fn of(pid: Pid) -> Option<Self> {
        let text = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(&text)
    }

    /// True if `pid`, which showed no environment after this was read, may still get one: its program is just being loaded.
    /// Threads of the kernel and dead processes have none.
    fn is_starting(&self, pid: Pid) -> bool {
        let has_one = !self.is_dead && self.group.is_some();
        let is_settled = |now: &Self| self.environment_end != 0 && now.environment_end == self.environment_end;
        has_one && !Self::of(pid).is_some_and(|now| is_settled(&now))
    }

    /// Parses the line. Its second field is the program's name in parentheses and may contain anything.
    fn parse(text: &[u8]) -> Option<Self> {
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let mut fields = std::str::from_utf8(&text[name_end + 1..]).ok()?.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = pid(fields.next()?);
        // Kernel threads are in no group. They have not ended, and belong to no family.
        let group = match fields.next()? {
            "0" => None,
            other => Some(pid(other)?),
        };
        // The start time is field 22 of the line; the group is field 5.
        let start = fields.nth(16)?.parse().ok()?;
        // The end of the environment is field 51.
        let environment_end = fields.nth(28).and_then(|end| end.parse().ok()).unwrap_or_default();
        Some(Self { is_dead: matches!(state, "Z" | "X"), parent, group, start, environment_end })
    }
}

fn pid(text: &str) -> Option<Pid> {
    // A process that is just being removed has the group -1.
    text.parse().ok().filter(|id| *id > 0).and_then(Pid::from_raw)
}

/// The initial environment of `pid`, if this process may read it.
fn environment_of(pid: Pid) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()
}

fn has_all(environment: &[u8], marks: &[String]) -> bool {
    marks.iter().all(|mark| environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()))
}

/// The children of all threads of `parent`.
fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())) else {
        return Vec::new();
    };
    let mut children = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => children.extend(list.split_ascii_whitespace().filter_map(pid)),
            // The thread has ended, or this kernel does not list children.
            Err(_) if task.path().exists() => return children_by_parent(parent),
            Err(_) => {}
        }
    }
    children
}

/// Finds the children of `parent` the slow way, by checking every process.
fn children_by_parent(parent: Pid) -> Vec<Pid> {
    processes()
        .filter(|(pid, _)| Stat::of(*pid).is_some_and(|stat| stat.parent == Some(parent)))
        .map(|(pid, _)| pid)
        .collect()
}

fn processes() -> impl Iterator<Item = (Pid, fs::DirEntry)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((pid(entry.file_name().to_str()?)?, entry)))
}

fn all_of_this_user() -> Vec<Pid> {
    let user = rustix::process::geteuid().as_raw();
    let ours = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|found| found.uid() == user);
    processes().filter(|(_, entry)| ours(entry)).map(|(pid, _)| pid).collect()
}

/// `pid` and all its ancestors.
fn lineage(pid: Pid) -> HashSet<Pid> {
    let mut line = HashSet::new();
    let mut next = Some(pid);
    while let Some(pid) = next {
        next = if line.insert(pid) { Stat::of(pid).and_then(|stat| stat.parent) } else { None };
    }
    line
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn program_name_with_parentheses_and_blanks_does_not_shift_the_fields() {
        let stat =
            Stat::parse(b"7 (a) Z 1 2) x) S 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23").expect("parsed");
        assert!(!stat.is_dead);
        assert_eq!((stat.parent, stat.group), (Pid::from_raw(5), Pid::from_raw(6)));
        assert_eq!(stat.start, 23, "the fields here are numbered one higher");
        let dead = Stat::parse(b"7 (a) Z 0 6 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 9").expect("parsed");
        assert!(dead.is_dead && dead.parent.is_none());
        assert!(Stat::parse(b"").is_none());
        let line = format!("7 (a) R 5 6{} 51 0", " 9".repeat(45));
        assert_eq!(Stat::parse(line.as_bytes()).expect("parsed").environment_end, 51);
    }

    /// K-5: a process that was just started is found, although the kernel shows no environment of it for a moment.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "no host attends a child of a test")]
    fn process_that_was_just_started_is_found_by_its_mark() {
        let name = format!("just-started-{}", std::process::id());
        for _ in 0..20 {
            let mut child = Command::new("sleep").arg("600").env("ETUDE_RUN_ID", &name).spawn().expect("sleep");
            let marks = vec![format!("ETUDE_RUN_ID={name}")];
            let found = members(&mut Family::new(HashSet::new(), marks, Scope::Marked));
            child.kill().expect("killed");
            child.wait().expect("ended");
            assert_eq!(found.len(), 1);
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "no host attends a child of a test")]
    fn both_ways_to_the_children_agree() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let id = Pid::from_child(&child);
        let us = rustix::process::getpid();
        // One search may miss a process while others begin and end.
        let agree = |_| children_of(us).contains(&id) && children_by_parent(us).contains(&id);
        assert!((0..100).any(agree));
        assert!(lineage(id).is_superset(&lineage(us)));
        drop(child.stdin.take());
        child.wait().expect("ended");
    }

    /// without pidfd the end of a process is still reported.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "no host attends a child of a test")]
    fn waiter_thread_reports_the_end_and_leaves_the_status() {
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().expect("sh");
        let end = waiter::end_of(Pid::from_child(&child)).expect("watched");
        let mut rest = Vec::new();
        fs::File::from(end).read_to_end(&mut rest).expect("closed at the end");
        assert_eq!(child.wait().expect("status").code(), Some(7));
    }
}
