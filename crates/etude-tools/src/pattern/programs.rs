//! Programs and builtins whose arguments decide what runs.

use super::shell::Word;

/// Programs that run text from an argument, a file or their input, or that give names another meaning.
const RUN_TEXT: &[&str] = &[
    ".", "alias", "ash", "at", "bash", "batch", "bind", "capsh", "chpst", "compgen", "complete", "compopt", "csh",
    "daemonize", "dash", "dtach", "emacs", "enable", "entr", "eval", "ex", "expect", "fc", "fish", "flock", "gdb",
    "gxargs", "hash", "hush", "hyperfine", "ksh", "loksh", "machinectl", "mapfile", "mksh", "nsjail", "nvim", "oksh",
    "parallel", "pkexec", "posh", "rbash", "readarray", "rksh", "rsh", "run0", "runuser", "rzsh", "screen", "script",
    "sem", "set", "sg", "sh", "shopt", "source", "ssh", "start-stop-daemon", "su", "tclsh", "tcsh", "tmux", "trap",
    "unalias", "vi", "view", "vim", "watch", "xargs", "yash", "zsh",
];

/// Programs that run their arguments.
const RUN_ARGUMENTS: &[&str] = &[
    "aa-exec", "arch", "builtin", "busybox", "bwrap", "caffeinate", "catchsegv", "cgexec", "choom", "chronic",
    "chroot", "chrt", "command", "coresched", "cpulimit", "dbus-run-session", "doas", "dpkg-architecture", "dumb-init",
    "eatmydata", "env", "envdir", "exec", "fakeroot", "faketime", "fd", "fdfind", "find", "firejail", "gchroot",
    "genv", "gfind", "gnice", "gnohup", "gosu", "gruncon", "gstdbuf", "gtime", "gtimeout", "i386", "i486", "i586",
    "i686", "ifne", "ionice", "jobs", "linux32", "linux64", "logsave", "ltrace", "nice", "nocorrect", "noglob",
    "nohup", "nsenter", "numactl", "perf", "pipesz", "prlimit", "proot", "proxychains", "proxychains4", "rlwrap",
    "runcon", "schedtool", "setarch", "setpriv", "setsid", "setuidgid", "softlimit", "ssh-agent", "sshpass", "stdbuf",
    "strace", "su-exec", "sudo", "systemd-inhibit", "systemd-run", "taskset", "time", "timeout", "tini", "torify",
    "torsocks", "toybox", "tsocks", "uclampset", "uname26", "unbuffer", "unshare", "valgrind", "winpty", "x86_64",
    "xvfb-run",
];

/// Shells, which run the script that their first word names.
const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "mksh", "sh", "yash", "zsh"];

/// Programs that run code of their own language, from their first arguments or options.
const INTERPRETERS: &[&str] = &[
    "awk", "bc", "bun", "dc", "deno", "ed", "gawk", "gsed", "guile", "irb", "jq", "js", "julia", "lua", "luajit", "m4",
    "mariadb", "mawk", "mysql", "nawk", "node", "nodejs", "octave", "osascript", "perl", "php", "psql", "pwsh", "pypy",
    "python", "r", "rscript", "ruby", "sed", "sqlite3", "swipl", "wish", "yq",
];

/// Builtins that change the meaning of later commands in a line.
const CHANGE_SHELL: &[&str] = &[
    ".", "alias", "bind", "builtin", "caller", "command", "compgen", "complete", "compopt", "declare", "disown",
    "enable", "eval", "exec", "export", "fc", "getopts", "hash", "history", "jobs", "let", "local", "logout",
    "mapfile", "popd", "pushd", "read", "readarray", "readonly", "set", "shopt", "source", "suspend", "trap",
    "typeset", "unalias", "unset",
];

/// Variables whose values `bash` evaluates as numbers: assigning `a[$(command)]` runs the command.
const NUMBERS: &[&str] = &[
    "BASHPID", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "HISTCMD", "LINENO", "OPTIND", "PPID", "RANDOM", "SECONDS",
    "SRANDOM", "UID",
];

/// The last part of a program's path, in lower case: some file systems do not distinguish `RM` from `rm`.
pub(super) fn name(program: &str) -> String {
    program.rsplit('/').next().unwrap_or_default().to_lowercase()
}

/// True for programs that run text.
pub(super) fn runs_text(name: &str) -> bool {
    RUN_TEXT.contains(&name)
}

/// True for a shell that runs a script with arguments, without options: it reads no text from elsewhere.
pub(super) fn runs_script(name: &str, words: &[Word]) -> bool {
    let script = words.get(1).and_then(|word| word.text.as_deref());
    SHELLS.contains(&name) && script.is_some_and(|script| !script.is_empty() && !script.starts_with(['-', '+']))
}

/// True for interpreters of a language, such as `python3.12`.
pub(super) fn is_interpreter(name: &str) -> bool {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name) || INTERPRETERS.contains(&bare)
}

/// True for programs that run their arguments.
pub(super) fn runs_arguments(name: &str) -> bool {
    // The loader of programs, `ld.so` or such as `ld-linux-x86-64.so.2`, runs its argument.
    RUN_ARGUMENTS.contains(&name) || name == "ld.so" || name.starts_with("ld-") && name.contains(".so")
}

/// True for an option of `find` or `fd` that precedes a program.
pub(super) fn takes_program(option: &str) -> bool {
    let is_short = option.starts_with('-') && !option.starts_with("--") && option.ends_with(['x', 'X']);
    is_short || ["-exec", "-ok", "--exec"].iter().any(|start| option.starts_with(start))
}

/// True for builtins that change the meaning of later commands, or run another in their place.
pub(super) fn changes_shell(program: &str) -> bool {
    CHANGE_SHELL.contains(&program)
}

/// True if an option turns a program that runs its arguments into one that runs text.
pub(super) fn splits_text(name: &str, words: &[Word]) -> bool {
    let is_option = |long: &[&str], short: &[char]| {
        words[1..].iter().filter_map(|word| word.text.as_deref()).any(|text| match text.strip_prefix("--") {
            Some(text) => long.iter().any(|long| text.starts_with(long)),
            None => text.starts_with('-') && text.contains(short),
        })
    };
    match name {
        "env" | "genv" => is_option(&["s"], &['S']),
        "sudo" | "doas" => is_option(&["s", "l", "e"], &['s', 'i', 'e']),
        // A program may follow within the word of its option.
        "fd" | "fdfind" => {
            words[1..].iter().filter_map(|word| word.text.as_deref()).any(|text| match text.strip_prefix("--") {
                Some(text) => text.starts_with("exec") && text.contains('='),
                None => text.starts_with('-') && text.find(['x', 'X']).is_some_and(|at| at + 1 < text.len()),
            })
        }
        // The output may go to a command.
        "ltrace" | "strace" => words[1..].iter().filter_map(|word| word.text.as_deref()).any(|text| {
            let output = text.strip_prefix("--output=").or_else(|| text.strip_prefix("-o")).unwrap_or(text);
            output.starts_with(['|', '!'])
        }),
        "unshare" | "nsenter" | "chroot" | "fakeroot" | "proot" => words.len() < 3,
        _ => false,
    }
}

/// True if `bash` may evaluate an argument of this builtin: `test -v 'a[$(command)]'` runs the command.
pub(super) fn evaluates(name: &str, words: &[Word]) -> bool {
    let mut arguments = words[1..].iter().map(|word| word.text.as_deref());
    match name {
        "printf" => arguments.any(|text| text.is_some_and(|text| text.starts_with("-v"))) || is_computed(words.get(1)),
        "test" | "[" => arguments.any(|text| matches!(text, None | Some("-v" | "-R"))),
        "wait" => arguments.any(|text| text.is_none_or(|text| text.starts_with('-'))),
        "declare" | "let" | "local" | "typeset" => true,
        "export" | "getopts" | "read" | "readonly" | "unset" => arguments.any(|text| {
            text.is_none_or(|text| text.contains('[') || is_number(text.split('=').next().unwrap_or_default()))
        }),
        _ => false,
    }
}

/// True for a variable whose values `bash` evaluates.
pub(super) fn is_number(variable: &str) -> bool {
    NUMBERS.contains(&variable)
}

fn is_computed(word: Option<&Word>) -> bool {
    word.is_some_and(|word| word.text.is_none())
}
