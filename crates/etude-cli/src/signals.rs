//! Ctrl-C and its relatives: the first one cancels and still runs the destructor, the second one kills.

#[cfg(unix)]
#[path = "signals/unix.rs"]
mod os;
#[cfg(windows)]
#[path = "signals/windows.rs"]
mod os;

use etude::runtime::driver::Stop;
use tokio::sync::watch;

/// Listens for signals from now on; what they mean arrives at the receiver.
///
/// # Errors
/// The operating system does not let us listen.
pub(crate) fn listen() -> std::io::Result<watch::Receiver<Stop>> {
    listen_after(Stop::No)
}

/// The same where the user has said something already: after a cancellation the next signal is the second one.
///
/// # Errors
/// The operating system does not let us listen.
pub(crate) fn listen_after(already: Stop) -> std::io::Result<watch::Receiver<Stop>> {
    let first = if already == Stop::No { 1_u32 } else { 2 };
    let (sender, receiver) = watch::channel(already);
    let mut signals = os::Signals::new()?;
    tokio::spawn(async move {
        for count in first.. {
            let name = signals.next().await;
            let stop = match count {
                1 => Stop::Cancel(format!("cancelled by {name}")),
                _ => Stop::Kill(format!("killed by a second {name}")),
            };
            if sender.send(stop).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}
