//! System calls that a sandboxed process cannot make.

use libc::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUSER, CLONE_NEWUTS,
    c_int, c_long,
};

/// Calls with flags or files behind pointers, which no filter can read. They fail as on an older kernel. `io_uring` can create
/// sockets, and `clone3` namespaces.
pub(super) const MISSING: [c_long; 4] =
    [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Namespaces that `clone` may not create.
pub(super) const NAMESPACES: [c_int; 8] = [
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUSER, CLONE_NEWUTS,
];

/// Calls that reach other processes, the kernel, the machine, or files past their directories.
pub(super) const FORBIDDEN: &[c_long] = &[
    // Other processes: their memory, their files, their shared objects.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Keys of the user and of the session.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Other views of the file system.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_unshare,
    libc::SYS_setns,
    // The kernel and the machine.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Bit of the x32 interface. On x86-64, a kernel may accept calls of this second interface: the same numbers with this bit,
/// and some numbers of its own.
#[cfg(target_arch = "x86_64")]
const X32: c_long = 0x4000_0000;
#[cfg(target_arch = "x86_64")]
const OF_X32: [(c_long, c_long); 5] = [
    (libc::SYS_ptrace, 521),
    (libc::SYS_kexec_load, 528),
    (libc::SYS_move_pages, 533),
    (libc::SYS_process_vm_readv, 539),
    (libc::SYS_process_vm_writev, 540),
];

/// The numbers of a call in both ABIs that the kernel accepts here: its own and that of x32.
pub(super) fn numbers(call: c_long) -> Vec<c_long> {
    #[cfg(target_arch = "x86_64")]
    {
        let own = OF_X32.iter().filter(|(known, _)| *known == call).map(|(_, number)| number | X32);
        [call, call | X32].into_iter().chain(own).collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    vec![call]
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// a call with its own number in the second interface is refused under that number as well.
    #[test]
    fn calls_are_refused_under_all_their_numbers() {
        for (call, own) in [(libc::SYS_ptrace, 521), (libc::SYS_move_pages, 533), (libc::SYS_process_vm_writev, 540)] {
            assert!(FORBIDDEN.contains(&call));
            assert_eq!(numbers(call), [call, call | X32, own | X32]);
        }
    }
}
