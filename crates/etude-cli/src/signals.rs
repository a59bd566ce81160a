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
    let (sender, receiver) = watch::channel(Stop::No);
    let mut signals = os::Signals::new()?;
    tokio::spawn(async move {
        for count in 1_u32.. {
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
