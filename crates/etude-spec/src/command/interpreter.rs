//! Command lines of interpreters: the code that they run.

/// Code that an interpreter runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code<'w> {
    /// A file, by its path.
    Script(&'w str),
    /// A Python module, by its dotted name.
    Module(&'w str),
    /// Text among the words, as in `sh -c TEXT`.
    Text,
    /// Standard input, or nothing.
    Stdin,
}

/// Options of one interpreter: the letters of short ones, and long ones without dashes. Options that change nothing about the
/// code are left out.
#[derive(Debug, Clone, Copy)]
struct Options {
    /// Options whose argument is evaluated.
    text: &'static str,
    long_text: &'static [&'static str],
    /// Options whose argument is the rest of the word, or the next word.
    takes: &'static str,
    long_takes: &'static [&'static str],
    /// Options whose argument is the rest of the word only.
    attached: &'static str,
    /// Options that read the code from standard input.
    stdin: &'static str,
    /// Options whose argument is a module.
    module: &'static str,
    /// True for programs with the subcommands `run FILE` and `eval TEXT`.
    has_subcommands: bool,
}

/// An interpreter that evaluates only `-e TEXT`, and the base of the others.
const PLAIN: Options = Options {
    text: "e",
    long_text: &[],
    takes: "",
    long_takes: &[],
    attached: "",
    stdin: "",
    module: "",
    has_subcommands: false,
};
const SHELL: Options = Options { text: "c", takes: "oO", long_takes: &["rcfile", "init-file"], stdin: "s", ..PLAIN };
const FISH: Options = Options { text: "cC", long_text: &["command", "init-command"], ..PLAIN };
const PYTHON: Options = Options { text: "c", takes: "WXQ", module: "m", ..PLAIN };
const NODE: Options = Options {
    text: "ep",
    long_text: &["eval", "print"],
    takes: "rC",
    long_takes: &["require", "import", "loader", "conditions", "env-file", "input-type", "title", "disable-warning"],
    ..PLAIN
};
const BUN: Options = Options { long_takes: &["preload"], has_subcommands: true, ..NODE };
const DENO: Options = Options { text: "", long_text: &["eval"], has_subcommands: true, ..PLAIN };
const LUA: Options = Options { takes: "l", ..PLAIN };
const PERL: Options = Options { text: "eE", takes: "I", attached: "CDFMVimx", ..PLAIN };
const RUBY: Options = Options { takes: "CEIr", attached: "FKTix", ..PLAIN };
const PHP: Options = Options {
    text: "BERr",
    long_text: &["run", "process-begin", "process-code", "process-end"],
    takes: "Sctdz",
    ..PLAIN
};

/// Returns the code that a command runs, also behind `env`; `None` if its program is not a known interpreter.
pub fn code(words: &[String]) -> Option<Code<'_>> {
    let (program, rest) = words.split_first()?;
    match name(program) {
        "env" => behind_env(rest),
        name => Some(options(name)?.code(rest)),
    }
}

/// The file name of a program without a version: `python` for `/usr/bin/python3.12`.
fn name(program: &str) -> &str {
    let name = program.rsplit('/').next().unwrap_or_default();
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

fn options(name: &str) -> Option<Options> {
    Some(match name {
        "ash" | "bash" | "dash" | "ksh" | "mksh" | "sh" | "zsh" => SHELL,
        "fish" => FISH,
        "python" | "pypy" => PYTHON,
        "node" => NODE,
        "bun" => BUN,
        "deno" => DENO,
        "lua" | "luajit" => LUA,
        "perl" => PERL,
        "ruby" => RUBY,
        "php" => PHP,
        "Rscript" | "elixir" | "julia" | "osascript" => Options { text: "Ee", takes: "Llprt", ..PLAIN },
        _ => return None,
    })
}

fn behind_env(words: &[String]) -> Option<Code<'_>> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += match word.as_str() {
            "-u" | "-C" | "--unset" | "--chdir" => 2,
            word if word.starts_with("-S") || word.starts_with("--split-string") => return Some(Code::Text),
            word if word.starts_with('-') || word.contains('=') => 1,
            _ => return code(&words[at..]),
        };
    }
    None
}

impl Options {
    fn code(self, words: &[String]) -> Code<'_> {
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if word == "--" {
                return words.next().map_or(Code::Stdin, Code::Script);
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, is_whole) = long.split_once('=').map_or((long, false), |(name, _)| (name, true));
                if self.long_text.contains(&name) {
                    return Code::Text;
                }
                if !is_whole && self.long_takes.contains(&name) {
                    words.next();
                }
            } else if let Some(letters) = word.strip_prefix(['-', '+']) {
                if letters.is_empty() {
                    return Code::Stdin;
                }
                if let Some(code) = self.short(letters, &mut words) {
                    return code;
                }
            } else {
                match word {
                    "run" if self.has_subcommands => {}
                    "eval" if self.has_subcommands => return Code::Text,
                    script => return Code::Script(script),
                }
            }
        }
        Code::Stdin
    }

    /// Reads one word of short options, and the argument of the last one from `words` if it takes one.
    fn short<'w>(self, letters: &'w str, words: &mut impl Iterator<Item = &'w str>) -> Option<Code<'w>> {
        for (at, letter) in letters.char_indices() {
            let rest = Some(&letters[at + letter.len_utf8()..]).filter(|rest| !rest.is_empty());
            match letter {
                _ if self.text.contains(letter) => return Some(Code::Text),
                _ if self.stdin.contains(letter) => return Some(Code::Stdin),
                _ if self.module.contains(letter) => {
                    return Some(rest.or_else(|| words.next()).map_or(Code::Stdin, Code::Module));
                }
                _ if self.takes.contains(letter) => {
                    if rest.is_none() {
                        words.next();
                    }
                    return None;
                }
                _ if self.attached.contains(letter) => return None,
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve_line(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        format!("{:?}", code(&words))
    }

    #[test]
    fn text_that_is_evaluated_is_found_among_options() {
        for line in [
            "sh -c x",
            "bash -ec x",
            "bash -o pipefail -c x",
            "python3.12 -W ignore -c x",
            "node --input-type module --eval=x",
            "node -pe x",
            "/usr/bin/perl -E x",
            "perl -lne x",
            "deno eval x",
            "php -d a=b -r x",
            "env -i A=b python3 -c x",
            "env -S sh",
        ] {
            assert_eq!(resolve_line(line), "Some(Text)", "{line}");
        }
    }

    #[test]
    fn script_ends_the_options_of_its_interpreter() {
        for line in [
            "sh a.x -c x",
            "bash +o posix a.x",
            "python3 -u -W ignore a.x -c x",
            "perl -Mwarnings a.x",
            "node --require b.js a.x --eval",
            "bun run a.x",
            "env -u A B=c ruby -- a.x",
        ] {
            assert_eq!(resolve_line(line), "Some(Script(\"a.x\"))", "{line}");
        }
        assert_eq!(resolve_line("python3 -um a.b -c x"), "Some(Module(\"a.b\"))");
        for line in ["sh", "sh -s a", "python3 -", "ruby --"] {
            assert_eq!(resolve_line(line), "Some(Stdin)", "{line}");
        }
        for line in ["make -e x", "env", "env A=b ./a.x", "./python-like a.x"] {
            assert_eq!(resolve_line(line), "None", "{line}");
        }
    }
}
