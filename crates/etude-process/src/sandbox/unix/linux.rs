//! Linux: Landlock for files, TCP and signals, seccomp for everything else, and no capabilities.

mod calls;
mod given;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::thread::{CapabilitySet, CapabilitySets, secure_computing_mode, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use crate::sandbox::Given;
use crate::sandbox::wire::Rules;

pub(crate) use given::send;
pub(in crate::sandbox) use given::{open, receive};

/// Landlock versions from which TCP connections and signals can be confined.
const TCP: u32 = 4;
pub(in crate::sandbox) const SIGNALS: u32 = 6;

/// Files of `/dev` that open no way out of the sandbox.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Landlock versions that enforce more than the one before, with the name of each in the library.
const VERSIONS: [(u32, ABI); 7] =
    [(9, ABI::V9), (6, ABI::V6), (5, ABI::V5), (4, ABI::V4), (3, ABI::V3), (2, ABI::V2), (1, ABI::V1)];

/// The Landlock version of this kernel, at most the newest that is used here; 0 without Landlock.
pub(in crate::sandbox) fn landlock() -> Result<u32, String> {
    arch()?;
    if secure_computing_mode().is_err() {
        return Err("this kernel has no seccomp".to_owned());
    }
    Ok(VERSIONS.into_iter().find(|(version, _)| handled(*version, false).is_ok()).map_or(0, |(version, _)| version))
}

fn arch() -> Result<TargetArch, String> {
    let name = std::env::consts::ARCH;
    TargetArch::try_from(name).map_err(|_| format!("no system call filter supports {name} processors"))
}

/// The first descriptor after the three standard streams.
const FIRST: std::os::fd::RawFd = 3;

/// Gives up rights of this process and of everything that it starts. The process has one thread.
pub(in crate::sandbox) fn restrict(rules: &Rules, given: &Given) -> Result<(), String> {
    rustix::process::fchdir(&given.dir).map_err(|error| format!("cannot enter its directory: {error}"))?;
    confine(rules, given).map_err(|error| format!("cannot restrict file access: {error}"))?;
    // With capabilities, root bypasses file permissions.
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(|error| format!("cannot drop capabilities: {error}"))?;
    // None of these rules apply to open descriptors: the caller may have left files and connections open.
    close_fds::set_fds_cloexec(FIRST, &[]);
    filter(rules).map_err(|error| format!("cannot filter system calls: {error}"))
}

fn handled(version: u32, network: bool) -> Result<Ruleset, RulesetError> {
    let abi = VERSIONS.into_iter().find(|(known, _)| *known == version).map_or(ABI::V1, |(_, abi)| abi);
    // Features that the probe found must be there.
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset = ruleset.handle_access(AccessFs::from_all(abi))?;
    if version >= TCP && !network {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    if version >= SIGNALS {
        ruleset = ruleset.scope(Scope::from_all(ABI::V6))?;
    }
    Ok(ruleset)
}

fn confine(rules: &Rules, given: &Given) -> Result<(), String> {
    let abi = VERSIONS.into_iter().find(|(known, _)| *known == rules.landlock).map_or(ABI::V1, |(_, abi)| abi);
    let read = AccessFs::from_read(abi);
    let no_file = AccessFs::MakeChar | AccessFs::MakeBlock;
    let write = AccessFs::from_all(abi) & !no_file;
    let create = || -> Result<_, RulesetError> {
        handled(rules.landlock, rules.network)?
            .create()?
            .add_rules(path_beneath_rules(&rules.system, read))?
            .add_rules(beneath(&given.read, read, abi))?
            .add_rules(beneath(&given.write, write, abi))?
            .add_rules(path_beneath_rules(DEVICES, write & !AccessFs::Execute))?
            .restrict_self()
    };
    let status = create().map_err(|error| error.to_string())?;
    match status.ruleset {
        RulesetStatus::FullyEnforced if status.no_new_privs => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Rules for the paths behind the descriptors.
fn beneath(
    given: &[OwnedFd],
    access: BitFlags<AccessFs>,
    abi: ABI,
) -> impl Iterator<Item = Result<PathBeneath<&OwnedFd>, RulesetError>> {
    given.iter().map(move |fd| {
        let is_dir = rustix::fs::fstat(fd).is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir());
        Ok(PathBeneath::new(fd, if is_dir { access } else { access & AccessFs::from_file(abi) }))
    })
}

fn filter(rules: &Rules) -> Result<(), String> {
    // For a missing call, programs fall back to the older one. The arguments of the newer one are invisible to a filter.
    apply(calls::MISSING.iter().map(|call| (*call, Vec::new())), libc::ENOSYS)?;
    let forbidden = calls::FORBIDDEN.iter().map(|call| (*call, Vec::new()));
    let mut some = vec![
        (libc::SYS_socket, sockets(rules.network)?),
        (libc::SYS_socketpair, pairs()?),
        (libc::SYS_clone, namespaces()?),
    ];
    // Forbids setting the limits of other processes.
    some.push((libc::SYS_prlimit64, vec![rule(vec![condition(0, SeccompCmpOp::Ne, 0)?])?]));
    apply(forbidden.chain(some), libc::EPERM)
}

/// Rules for sockets that cannot be created. With the network, these are all but internet sockets and kernel routing sockets,
/// which name lookups use; without it, all of them. Sockets of the file system lead to other programs on this machine.
fn sockets(network: bool) -> Result<Vec<SeccompRule>, String> {
    if !network {
        return Ok(Vec::new());
    }
    let families =
        [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(|family| condition(0, SeccompCmpOp::Ne, family as u64));
    Ok(vec![rule(families.into_iter().collect::<Result<_, _>>()?)?])
}

/// Rules for socket pairs that cannot be created: all that send to an address, because one end could then reach the sockets of
/// the file system. The ends of the other two kinds, `SOCK_STREAM` and `SOCK_SEQPACKET`, stay connected for good.
fn pairs() -> Result<Vec<SeccompRule>, String> {
    // The bits above are flags. For this family a raw socket is a datagram socket.
    let kinds = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(|kind| condition(1, SeccompCmpOp::MaskedEq(0xf), kind as u64));
    let family = condition(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64);
    kinds.into_iter().chain([family]).map(|condition| rule(vec![condition?])).collect()
}

/// Rules against new namespaces, in which a process would be root.
fn namespaces() -> Result<Vec<SeccompRule>, String> {
    let of = |flag: &libc::c_int| {
        let flag = *flag as u64;
        rule(vec![condition(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    };
    calls::NAMESPACES.iter().map(of).collect()
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).map_err(|error| error.to_string())
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, String> {
    SeccompRule::new(conditions).map_err(|error| error.to_string())
}

/// Makes the system calls `calls` fail with `error`: always, or where one of their rules matches.
fn apply(calls: impl Iterator<Item = (libc::c_long, Vec<SeccompRule>)>, error: libc::c_int) -> Result<(), String> {
    let mut rules = BTreeMap::new();
    for (call, of_call) in calls {
        for number in calls::numbers(call) {
            rules.insert(number, of_call.clone());
        }
    }
    let action = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch()?).map_err(|error| error.to_string())?;
    let program: BpfProgram = filter.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    apply_filter(&program).map_err(|error| error.to_string())
}
