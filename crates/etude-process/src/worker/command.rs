//! Recognizes commands that are a single Python process, and the start of their interpreter.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::program::{self, Launch};
use etude_files::regular;

/// A single Python process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Python {
    /// The interpreter.
    pub(crate) program: PathBuf,
    /// The command as the interpreter sees it: its name, its flags, then the script, `-c` or `-m` with their arguments.
    pub(crate) words: Vec<String>,
    /// Number of the words after the first that are flags.
    pub(crate) flags: usize,
}

/// Flags without a value that only change how an interpreter starts, so that a server can be started with them.
const FLAGS: &str = "bBEIOPqsSu";

/// Maximum length of a first line, in bytes; the limit of the kernel.
const LINE: u64 = 256;

/// The Python process that `launch` starts in `dir`. `None` if it is anything else, or uses unusual options.
pub(crate) fn python(launch: &Launch, dir: &Path, path: Option<&OsStr>) -> Option<Python> {
    let (program, mut words) = if is_interpreter(&launch.name) {
        (launch.program.clone(), vec![launch.name.clone()])
    } else {
        script(launch, dir, path)?
    };
    words.extend(launch.args.iter().cloned());
    let flags = flags(&words[1..])?;
    Some(Python { program, words, flags })
}

fn is_interpreter(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    name.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The interpreter that the first line of a script names, and the words that come before the script's arguments.
fn script(launch: &Launch, dir: &Path, path: Option<&OsStr>) -> Option<(PathBuf, Vec<String>)> {
    let mut line = String::new();
    BufReader::new(regular::open(&launch.program).ok()?.take(LINE)).read_line(&mut line).ok()?;
    let (interpreter, rest) = match line.strip_prefix("#!")?.trim().split_once([' ', '\t']) {
        Some((interpreter, rest)) => (interpreter, Some(rest.trim())),
        None => (line.strip_prefix("#!")?.trim(), None),
    };
    let file = launch.program.to_str()?.to_owned();
    if interpreter.ends_with("/env") {
        let name = rest.filter(|name| is_interpreter(name) && !name.contains('/'))?;
        return Some((program::find(name, dir, path).ok()?, vec![name.to_owned(), file]));
    }
    let words = [Some(interpreter.to_owned()), rest.map(str::to_owned), Some(file)];
    is_interpreter(interpreter).then(|| (PathBuf::from(interpreter), words.into_iter().flatten().collect()))
}

/// Number of `words`, after the interpreter's name, that are flags. `None` if one of them changes more than the start, or if
/// nothing to run follows.
fn flags(words: &[String]) -> Option<usize> {
    let mut at = 0;
    loop {
        let word = words.get(at)?;
        match word.strip_prefix('-') {
            None => return Some(at),
            Some("c" | "m") => return words.get(at + 1).map(|_| at),
            Some("X" | "W") => at += 2,
            Some(letters) if letters.starts_with(['X', 'W']) => at += 1,
            Some(letters) if !letters.is_empty() && letters.chars().all(|c| FLAGS.contains(c)) => at += 1,
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(line: &str) -> Option<usize> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let launch = Launch { program: "/usr/bin/python3".into(), name: words[0].clone(), args: words[1..].to_vec() };
        python(&launch, Path::new("/"), None).map(|python| python.flags)
    }

    /// a command with flags that change more than the start of an interpreter runs in a new one.
    #[test]
    fn flags_of_the_start_are_distinguished_from_the_rest() {
        assert_eq!(position("python3 a.py -x"), Some(0));
        assert_eq!(position("/opt/bin/python3.12 -uB -X dev -Wignore a.py"), Some(4));
        assert_eq!(position("python -m json.tool"), Some(0));
        assert_eq!(position("python3 -I -c pass"), Some(1));
        for unusual in
            ["python3", "python3 -i a.py", "python3 -", "python3 --help", "python3 -c", "pythonic a.py", "sh a.py"]
        {
            assert_eq!(position(unusual), None, "{unusual}");
        }
    }

    /// a script names its interpreter in its first line.
    #[test]
    fn scripts_are_python_by_their_first_line() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("a");
        let words = |line: &str| {
            std::fs::write(&file, format!("{line}\nprint()\n")).expect("written");
            let launch = Launch { program: file.clone(), name: "./a".to_owned(), args: vec!["b".to_owned()] };
            python(&launch, dir.path(), Some(OsStr::new("/usr/bin:/bin"))).map(|python| python.words)
        };
        let script = file.display().to_string();
        assert_eq!(
            words("#!/usr/bin/python3 -u"),
            Some(["/usr/bin/python3", "-u", &script, "b"].map(str::to_owned).to_vec())
        );
        assert_eq!(words("#!/usr/bin/env -S python3 -u"), None);
        assert_eq!(words("#!/bin/sh"), None);
        assert_eq!(words("print()"), None);
    }
}
