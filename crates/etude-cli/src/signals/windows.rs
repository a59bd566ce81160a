//! Stop signals on Windows.

pub(super) struct Signals(tokio::signal::windows::CtrlC);

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    /// Waits for the next signal. Returns its human-readable name.
    pub(super) async fn next(&mut self) -> &'static str {
        self.0.recv().await;
        "Ctrl-C"
    }
}
