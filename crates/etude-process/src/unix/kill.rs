//! Termination of process groups and of processes that left them.

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{Id, has_children, platform};

/// Maximum wait for killed processes. Only one that hangs inside the kernel takes longer than an instant.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// Maximum pause between two checks for living processes.
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// Maximum number of searches for new processes before the found ones are killed.
const FREEZE_ROUNDS: usize = 64;

/// Processes that are ended together.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "other systems find the leaders of groups only"))]
pub(super) struct Family {
    /// The groups in which the processes were started.
    pub(super) groups: HashSet<Pid>,
    /// Environment entries of members that left those groups. A member has all of them.
    pub(super) marks: Vec<String>,
    /// Children of this process that do not belong to the family, whatever their groups and marks.
    pub(super) exempted: HashSet<Pid>,
    /// Processes among which members are searched.
    pub(super) scope: Scope,
    /// Members that were seen alive, with their start times. A dead one shows neither its mark nor its ancestors, but this
    /// process must still reap it.
    pub(super) seen: HashMap<Pid, u64>,
}

impl Family {
    pub(super) fn new(groups: HashSet<Pid>, marks: Vec<String>, scope: Scope) -> Self {
        Self { groups, marks, scope, exempted: HashSet::new(), seen: HashMap::new() }
    }
}

/// Processes among which the members of a family are searched. Descendants of a member are members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Children of this process in one of the groups or with the marks.
    Marked,
    /// All children of this process, whatever their groups and marks.
    Children,
    /// All processes of this user with the marks.
    Everywhere,
}

/// A living process of a family.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) pid: Pid,
    /// True if the process is in one of the family's groups.
    pub(super) in_group: bool,
}

/// Ends the leftovers of a host's finished steps.
pub(crate) fn kill_leftovers(
    groups: HashSet<Id>,
    exempted: HashSet<Id>,
    marks: Vec<String>,
    exclusive: bool,
    grace: Duration,
) {
    if groups.is_empty() && !has_children() {
        return;
    }
    let scope = if exclusive { Scope::Children } else { Scope::Marked };
    end_all(&mut Family { exempted, ..Family::new(groups, marks, scope) }, grace);
}

/// Ends all processes of the user whose environment has all entries of `marks`.
pub(crate) fn reap_survivors(marks: Vec<String>, grace: Duration) {
    end_all(&mut Family::new(HashSet::new(), marks, Scope::Everywhere), grace);
}

fn end_all(family: &mut Family, grace: Duration) {
    let members = platform::members(family);
    if members.is_empty() {
        return;
    }
    signal_groups(family, &members, &[Signal::TERM, Signal::CONT]);
    for member in members.iter().filter(|member| !member.in_group) {
        signal(member.pid, &[Signal::TERM, Signal::CONT]);
    }
    let deadline = Instant::now() + grace;
    if !is_gone_by(family, deadline, &mut |_| {}, &mut thread::sleep) {
        kill(family, &mut thread::sleep);
    }
}

/// Ends the family of a cancelled step: `SIGTERM` to its group, later to those outside it, then `SIGKILL`. `pause` waits for
/// at most the given time and meanwhile reads the output of the step.
///
/// Members outside the group are signalled only when the group is gone. A process of the group may be their own supervisor,
/// such as a runner inside a step, and ends them in its own order.
pub(super) fn end_step(family: &mut Family, grace: Duration, pause: &mut dyn FnMut(Duration)) {
    let deadline = Instant::now() + grace;
    let members = platform::members(family);
    signal_groups(family, &members, &[Signal::TERM, Signal::CONT]);
    let mut reported = false;
    let mut emit = |members: &[Member]| {
        // Only once: processes that appear later clean up.
        if !reported && members.iter().all(|member| !member.in_group) {
            reported = true;
            for member in members {
                signal(member.pid, &[Signal::TERM, Signal::CONT]);
            }
        }
    };
    if !is_gone_by(family, deadline, &mut emit, pause) {
        kill(family, pause);
    }
}

/// Waits until no member is alive. False if `deadline` comes first. Calls `seen` with the living members at each check.
fn is_gone_by(
    family: &mut Family,
    deadline: Instant,
    seen: &mut dyn FnMut(&[Member]),
    pause: &mut dyn FnMut(Duration),
) -> bool {
    let mut wait = Duration::from_millis(1);
    loop {
        let members = platform::members(family);
        if members.is_empty() {
            return true;
        }
        seen(&members);
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        pause(wait.min(left));
        wait = (wait * 2).min(MAX_PAUSE);
    }
}

/// Stops the members one after the other until no new one appears, since a stopped process cannot fork, then kills them all.
/// Repeats until none is alive.
fn kill(family: &mut Family, pause: &mut dyn FnMut(Duration)) {
    let give_up = Instant::now() + LAST_WAIT;
    while Instant::now() < give_up {
        let mut known = HashSet::new();
        for _ in 0..FREEZE_ROUNDS {
            let members = platform::members(family);
            signal_groups(family, &members, &[Signal::STOP]);
            let before = known.len();
            for member in members {
                if known.insert(member.pid) && !member.in_group {
                    signal(member.pid, &[Signal::STOP]);
                }
            }
            if known.len() == before {
                break;
            }
        }
        let members = platform::members(family);
        signal_groups(family, &members, &[Signal::KILL]);
        for pid in known {
            signal(pid, &[Signal::KILL]);
        }
        if is_gone_by(family, Instant::now() + Duration::from_millis(500), &mut |_| {}, pause) {
            return;
        }
    }
}

/// Signals the groups of a family. A group without a living member is skipped: its number may belong to another group by now.
fn signal_groups(family: &Family, members: &[Member], signals: &[Signal]) {
    if members.iter().any(|member| member.in_group) {
        for group in &family.groups {
            for signal in signals {
                // If the group is gone, there is nothing left to signal.
                let _ = kill_process_group(*group, *signal);
            }
        }
    }
}

fn signal(pid: Pid, signals: &[Signal]) {
    for signal in signals {
        // If the process is gone, there is nothing left to signal.
        let _ = kill_process(pid, *signal);
    }
}
