//! Names of signals.

use rustix::process::Signal;

/// The first real-time signal that the C library leaves to programs.
#[cfg(target_os = "linux")]
const FIRST_REAL_TIME: i32 = if cfg!(target_env = "musl") { 35 } else { 34 };

/// The conventional name of a signal, such as `SIGKILL` or `SIGRTMIN+2`.
pub(super) fn name(number: i32) -> String {
    let known = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::CHILD, "SIGCHLD"),
        (Signal::CONT, "SIGCONT"),
        (Signal::STOP, "SIGSTOP"),
        (Signal::TSTP, "SIGTSTP"),
        (Signal::TTIN, "SIGTTIN"),
        (Signal::TTOU, "SIGTTOU"),
        (Signal::URG, "SIGURG"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::VTALARM, "SIGVTALRM"),
        (Signal::PROF, "SIGPROF"),
        (Signal::WINCH, "SIGWINCH"),
        (Signal::IO, "SIGIO"),
        (Signal::SYS, "SIGSYS"),
        #[cfg(target_os = "linux")]
        (Signal::POWER, "SIGPWR"),
    ];
    match known.iter().find(|(signal, _)| signal.as_raw() == number) {
        Some((_, name)) => (*name).to_owned(),
        #[cfg(target_os = "linux")]
        None if (FIRST_REAL_TIME..=64).contains(&number) => match number - FIRST_REAL_TIME {
            0 => "SIGRTMIN".to_owned(),
            above => format!("SIGRTMIN+{above}"),
        },
        None => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn signals_have_the_names_people_know() {
        assert_eq!(name(9), "SIGKILL");
        assert_eq!(name(15), "SIGTERM");
        assert_eq!(name(0), "signal 0");
        assert_eq!(name(1_000), "signal 1000");
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn real_time_signals_are_counted_from_the_first() {
        assert_eq!((name(34), name(36), name(64)), ("SIGRTMIN".into(), "SIGRTMIN+2".into(), "SIGRTMIN+30".into()));
    }
}
