//! Processes that use the terminal of the person who runs etude.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use etude_core::outcome::Exit;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::fixture::{Fixture, direct, in_own_process, shell, value};

/// a process that asks for input at the terminal is ended: the system has stopped it, and nothing would continue it.
#[test]
fn process_that_asks_the_terminal_is_ended() {
    let ran = in_own_process("terminal::ask_the_terminal", &[]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}

static CONTROLLER: OnceLock<OwnedFd> = OnceLock::new();

#[test]
#[ignore = "is run in a process of its own, which gets a terminal"]
fn ask_the_terminal() {
    rustix::process::setsid().expect("no group is led from here");
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
    // A terminal without its other end hangs up, which ends the leader of its session.
    let controller = CONTROLLER.get_or_init(|| controller);
    grantpt(controller).and_then(|()| unlockpt(controller)).expect("it is ours");
    let name = ptsname(controller, Vec::new()).expect("it has a name").into_string().expect("a plain name");
    let terminal = File::options().read(true).write(true).open(name).expect("the other side opens");
    rustix::process::ioctl_tiocsctty(terminal.as_fd()).expect("it becomes the terminal of this session");

    let [cold, warm] = Fixture::both();
    let read = direct(&["python3", "-c", "open('/dev/tty').readline()"]);
    assert_eq!(ended_by(&cold.run(&shell("read line </dev/tty")).exit), "SIGTTIN");
    assert_eq!(ended_by(&cold.run(&shell("sh -c 'stty -echo </dev/tty'; echo over")).exit), "SIGTTOU");
    assert_eq!(ended_by(&warm.run(&read).exit), "SIGTTIN");
    // A process that has opened the terminal without reading from it continues.
    assert_eq!(value(&cold.run(&shell("test -r /dev/tty; sleep 1; echo '{\"output\":1}'"))), "1");
}

fn ended_by(exit: &Exit) -> &str {
    match exit {
        Exit::Signal { name, .. } => name,
        exit => panic!("{exit:?}"),
    }
}
