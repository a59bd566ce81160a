//! Opens the user's browser, logged in.

use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;

use etude_files::private;
use etude_process::{ChildEnvironment, detached};

/// Opens a login link. Other users can read the arguments of programs, so the browser gets a private file that leads to the
/// link. The server does not fail if no browser can be opened.
pub(super) fn open(link: &str, dir: &Path) {
    if let Err(error) = try_open(link, dir) {
        crate::render::say!("warning: cannot open a browser: {error}");
        crate::render::say!("hint: print a login link: etude serve --link");
    }
}

fn try_open(link: &str, dir: &Path) -> io::Result<()> {
    let file = dir.join("open.html");
    private::create(&file)?.write_all(etude_server::leading_to(link).as_bytes())?;
    let program = if std::env::consts::OS == "macos" { "open" } else { "xdg-open" };
    let mut command = detached(program, ChildEnvironment::without_keys(&[]));
    command.arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    // The program ends as soon as the browser has the address; the browser outlives the server.
    command.spawn().map(|child| etude_process::exempt(&child))
}
