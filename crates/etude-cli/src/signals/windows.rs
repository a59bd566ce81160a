//! The signals that ask a program to end, on Windows.

pub(super) struct Signals(tokio::signal::windows::CtrlC);

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    /// Waits for the next one; its name for people.
    pub(super) async fn next(&mut self) -> &'static str {
        self.0.recv().await;
        "Ctrl-C"
    }
}
