//! Resolves the program of a command, and explains why it could not be started.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use etude_core::effect::Command;
use etude_files::regular;

use super::os;

/// Search path for programs without `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Interpreters of scripts by extension.
const INTERPRETERS: [(&str, &[&str]); 7] = [
    ("py", &["python3"]),
    ("sh", &["sh"]),
    ("js", &["node"]),
    ("mjs", &["node"]),
    ("ts", &["node", "--experimental-strip-types"]),
    ("rb", &["ruby"]),
    ("pl", &["perl"]),
];

/// A program with its arguments, ready to be started.
#[derive(Debug)]
pub(super) struct Launch {
    /// The file to execute.
    pub(super) program: PathBuf,
    /// Name of the program, in messages and as its own `argv[0]`.
    pub(super) name: String,
    pub(super) args: Vec<String>,
}

/// Finds the program of `command` for a process in `dir` whose `PATH` is `path`. The error is a sentence with a remedy.
pub(super) fn resolve(command: &Command, dir: &Path, path: Option<&OsStr>) -> Result<Launch, String> {
    match command {
        Command::Direct(words) => {
            let Some((name, args)) = words.split_first().filter(|(name, _)| !name.is_empty()) else {
                return Err("the command is empty".to_owned());
            };
            let program = find(name, dir, path)?;
            if name.contains('/') {
                has_usable_line(&program, name)?;
            }
            Ok(Launch { program, name: name.clone(), args: args.to_vec() })
        }
        Command::Shell(line) => {
            let args = vec!["-c".to_owned(), line.clone()];
            Ok(Launch { program: find("sh", dir, path)?, name: "sh".to_owned(), args })
        }
        Command::Script(script) => {
            let file = dir.join(script);
            if !file.is_file() {
                return Err(format!("the script `{script}` was not found in `{}`", dir.display()));
            }
            if os::is_executable(&file) {
                has_usable_line(&file, script)?;
                return Ok(Launch { program: file, name: script.clone(), args: Vec::new() });
            }
            interpreted(script, dir, path)
        }
    }
}

/// Launches a script with the interpreter of its extension.
pub(super) fn interpreted(script: &str, dir: &Path, path: Option<&OsStr>) -> Result<Launch, String> {
    let extension = Path::new(script).extension().and_then(OsStr::to_str).unwrap_or_default();
    let Some((_, words)) = INTERPRETERS.into_iter().find(|(known, _)| *known == extension) else {
        let known: Vec<String> = INTERPRETERS.iter().map(|(known, _)| format!(".{known}")).collect();
        return Err(format!(
            "the script `{script}` is not executable and has no extension that names its interpreter ({}); \
             give it a `#!` line and `chmod +x` it",
            known.join(" ")
        ));
    };
    let (name, flags) = (words[0], &words[1..]);
    let program = find(name, dir, path).map_err(|why| format!("{why}; it is needed for the script `{script}`"))?;
    // A name that starts with a dash would be read as an option.
    let file = if script.starts_with('-') { format!("./{script}") } else { script.to_owned() };
    let args = flags.iter().map(|flag| (*flag).to_owned()).chain([file]).collect();
    Ok(Launch { program, name: name.to_owned(), args })
}

/// Finds a program: a name with a slash is a path from `dir`, any other is searched on `path`.
pub(super) fn find(name: &str, dir: &Path, path: Option<&OsStr>) -> Result<PathBuf, String> {
    if name.contains('/') {
        return Ok(dir.join(name));
    }
    let default = OsString::from(DEFAULT_PATH);
    let mut blocked = None;
    for place in env::split_paths(path.unwrap_or(&default)) {
        let file = dir.join(place).join(name);
        match os::access(&file) {
            Ok(()) if !file.is_dir() => return Ok(file),
            // The result for nearly every directory of a `PATH`: nothing else needs to be checked there.
            Err(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(_) if blocked.is_none() && file.is_file() => blocked = Some(file),
            _ => {}
        }
    }
    if let Some(file) = blocked {
        return Err(format!("program `{}` has no execute permission; `chmod +x` it", file.display()));
    }
    let hint = if dir.join(name).is_file() {
        format!("; `{}` contains a file with this name: write `./{name}`", dir.display())
    } else {
        String::new()
    };
    Err(format!("program `{name}` was not found on PATH{hint}"))
}

/// Reason why a launch in `dir` failed, as a sentence with a remedy.
pub(super) fn explain(launch: &Launch, dir: &Path, error: &io::Error) -> String {
    let name = &launch.name;
    if !dir.is_dir() {
        return format!("the working directory `{}` does not exist", dir.display());
    }
    match error.kind() {
        io::ErrorKind::NotFound if launch.program.exists() => missing_interpreter(launch),
        io::ErrorKind::NotFound => format!("program `{name}` was not found in `{}`", dir.display()),
        io::ErrorKind::PermissionDenied if launch.program.is_dir() => format!("`{name}` is a directory, not a program"),
        io::ErrorKind::PermissionDenied if !os::is_executable(&launch.program) => {
            let other = interpreter_for(name).map(|line| format!(", or name an interpreter: `{line}`"));
            format!("program `{name}` has no execute permission; `chmod +x` it{}", other.unwrap_or_default())
        }
        io::ErrorKind::ArgumentListTooLong => {
            format!("the arguments and the environment of `{name}` are too long; pass large values on stdin")
        }
        io::ErrorKind::InvalidInput => {
            format!("an argument or a variable of `{name}` has a NUL character, which programs cannot receive")
        }
        _ if os::is_no_program(error) => no_program(launch),
        _ => format!("program `{name}` could not be started: {error}"),
    }
}

fn no_program(launch: &Launch) -> String {
    let name = &launch.name;
    if first_line(&launch.program).is_some_and(|line| line.starts_with("\u{feff}#!")) {
        return format!("a byte order mark precedes the `#!` line of `{name}`; save the file as UTF-8 without one");
    }
    let hint = interpreter_for(name).map(|line| format!("; name an interpreter: `{line}`")).unwrap_or_default();
    format!("`{name}` is neither a program of this machine nor a script with a `#!` line{hint}")
}

/// Refuses a script whose `env` line names a program that ends in a carriage return. Other interpreters may ignore one.
fn has_usable_line(file: &Path, name: &str) -> Result<(), String> {
    let line = first_line(file).unwrap_or_default();
    let words = line.strip_prefix("#!").and_then(|asked| asked.trim_start().split_once([' ', '\t']));
    let is_broken = |(interpreter, program): (&str, &str)| {
        let program = program.trim_start();
        interpreter.ends_with("/env") && !program.starts_with('-') && program.ends_with('\r')
    };
    if words.is_some_and(is_broken) { Err(carriage_return(name)) } else { Ok(()) }
}

fn carriage_return(name: &str) -> String {
    format!("the `#!` line of `{name}` ends in a carriage return; save the file with Unix line ends")
}

/// Resolves `launch` further for a sandbox, which becomes its program by `exec`. On a file that is neither a program nor a
/// script, that `exec` would have a shell read it. A script without a `#!` line is started by its extension, as the
/// system would do.
pub(super) fn in_place(launch: Launch, command: &Command, dir: &Path, path: Option<&OsStr>) -> Result<Launch, String> {
    match command {
        _ if !os::is_executable(&launch.program) || !is_plain_text(&launch.program) => Ok(launch),
        Command::Script(script) => interpreted(script, dir, path),
        Command::Direct(_) | Command::Shell(_) => Err(no_program(&launch)),
    }
}

/// Length of the start of a file that distinguishes text from a program, in bytes.
const LOOK: u64 = 256;

/// True if the file is text that names no interpreter. False if it cannot be read, which the system then judges.
fn is_plain_text(file: &Path) -> bool {
    let mut head = Vec::new();
    regular::open(file).and_then(|file| file.take(LOOK).read_to_end(&mut head)).is_ok()
        && !head.starts_with(b"#!")
        && !head.contains(&0)
}

/// The command line with the interpreter for the extension of `name`; `None` for other extensions.
fn interpreter_for(name: &str) -> Option<String> {
    let extension = Path::new(name).extension().and_then(OsStr::to_str).unwrap_or_default();
    let interpreter = match extension {
        // Most scripts with this extension are written for bash.
        "sh" => "bash",
        _ => INTERPRETERS.iter().find(|(known, _)| *known == extension).map(|(_, words)| words[0])?,
    };
    Some(format!("{interpreter} {name}"))
}

/// The first line of a file without its line feed; `None` if it cannot be read.
fn first_line(file: &Path) -> Option<String> {
    let mut line = Vec::new();
    let file = regular::open(file).ok()?;
    io::BufReader::with_capacity(LINE, file.take(LINE as u64)).read_until(b'\n', &mut line).ok()?;
    Some(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned())
}

/// Length of a first line that is read, in bytes.
const LINE: usize = 512;

/// Explains why an existing file cannot be started: the interpreter of its first line, its loader or a library is missing.
fn missing_interpreter(launch: &Launch) -> String {
    let name = &launch.name;
    let line = first_line(&launch.program).unwrap_or_default();
    let Some(asked) = line.strip_prefix("#!") else {
        return format!("program `{name}` needs a loader or a library that this machine does not have");
    };
    if asked.ends_with('\r') {
        return carriage_return(name);
    }
    let interpreter = asked.split_whitespace().next().unwrap_or_default();
    format!("`{name}` asks for the interpreter `{interpreter}`, which does not exist")
}

#[cfg(test)]
mod tests;
