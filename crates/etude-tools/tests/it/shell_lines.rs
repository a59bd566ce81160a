//! Generated command lines: those of people, those of attackers, and those that neither would write.

use fastrand::Rng;

/// Programs of the sandbox. Policies name the first ones.
pub(crate) const PROGRAMS: &[&str] = &[
    "git", "wc", "touch", "rm", "canary", "make", "ls", "sh", "bash", "env", "xargs", "find", "nohup", "sudo", "time",
];

const WORDS: &[&str] = &[
    "status", "x", "a.b", "-l", "--all", "-c", "HEAD~1", "main", "1", "-", "--", "-exec", "{}", "A=1", "PATH=.", "~",
    "~x", "*", "?", "[a]", "{a,b}", "{1..3}", "$x", "${x}", "$1", "$@", "$", "$PATH", "!", "%1", "a#b", "@", "=", "^",
    "'", "\"", "in", "if", "then", "fi", "do", "done", "case", "esac", "[[", "]]", "[", "]", "{", "}", "function",
    "select", "coproc", "-v", "a[$(touch y)]", "'a[$(touch y)]'", "'x y'", "\"x y\"", "\u{e9}", "'\u{4f60}'",
    "x\u{a0}y",
];

const BUILTINS: &[&str] = &[
    "echo", "printf", "test", "[", "cd", "true", "false", ":", "eval", "exec", "command", "builtin", ".", "source",
    "alias", "export", "read", "set", "trap", "unset", "local", "declare", "let", "type", "wait", "hash", "shift",
    "return",
];

const JOINTS: &[&str] = &[
    ";", "&&", "||", "|", "\n", "&", " ; ", " && ", " || ", " | ", "\n\n", " & ", ";;", "|&", "&>", "\t;\t", " #",
    ";#", "\\\n", " \\\n", "#\n", " # '\n", " # \"\n", " # \\\n", " #`\n", " # $(\n", " # <<E\n", "\r\n", "\u{b}",
    "\u{c}", "\r",
];

/// Pieces that are inserted anywhere.
const PIECES: &[&str] = &[
    "'", "\"", "\\", "`", "$", "(", ")", "{", "}", "[", "]", "#", "\n", " ", "\t", ";", "&", "|", "<", ">", "!", "*",
    "?", "~", "=", ",", "$(", "$((", "))", "${", "<<", "<<E\n", "\nE\n", "<(", ">(", "$'", "$\"", "\\\n", "\\\\",
    "\\'", "\\\"", "''", "\"\"", "\r", "\u{b}", "\u{1}", "\u{7f}", "\u{a0}", "\u{85}", "\u{2028}", "\u{4f60}", "git",
    "touch x", "rm y", "canary", "2>", ">&", "&>", "<>", ">|", "|&", ";;", ";&", "#'", " #", "if ", " then ", " fi",
    "case ", " in ", " esac", "! ", "time ", "x=", "x+=", "x[0]=", "()", "((",
];

/// Lines that bypassed a policy once.
const SEEDS: &[&str] = &[
    "git status #'\ntouch x #'",
    "git status #\"\ntouch x #\"",
    "git status # \\\ntouch x",
    "git status 'a'#b'\ntouch x'\ntouch x",
    "git status; touch x",
    "git status \\\n&& touch x",
    "git \"a\\\" ; touch x \\\"\"",
    "git $'a\\'; touch x; #'",
    "git $\"a\"; touch x",
    "git ${x:-$(touch x)}",
    "git \"${x:-`touch x`}\"",
    "git $((a[$(touch x)]))",
    "git <(touch x) >(touch y)",
    "git &>x touch y",
    "git >&x touch y",
    "git <<E\n$(touch x)\nE\n",
    "git <<'E'\nE\ntouch x\nE",
    "git <<-E\n\tE\ntouch x",
    "git() { touch x; }; git status",
    "alias git=touch\ngit x",
    "g=touch; $g x",
    "if git; then touch x; fi",
    "for git in a; do touch x; done",
    "case git in git) touch x;; esac",
    "coproc touch x",
    "time touch x",
    "! touch x",
    "{ touch x; }",
    "(touch x)",
    "[[ a && touch x ]]",
    "command touch x",
    "exec touch x",
    "eval touch x",
    "test -v 'a[$(touch x)]'",
    "printf -v 'a[$(touch x)]' x",
    "wait -p 'a[$(touch x)]'",
    "read 'a[$(touch x)]'",
    "git a\u{a0}touch",
    "git \"\u{4f60}\\\"; touch x; \"",
    "{git,touch} x",
    "tou\\\nch x",
    "$(echo touch) x",
    "echo touch x | sh",
    "echo x | xargs touch",
    "find . -exec touch x {} ;",
    "env touch x",
    "hash -p touch git; git x",
    "trap 'touch x' EXIT",
    "set -- touch x; \"$@\"",
    "x='touch y'; $x",
    "git status|touch x",
    "git;touch x;#",
    "git ''#touch x",
    "git \\# ; touch x",
    "git \"\n\" ; touch x",
    "git 'a\\' ; touch x ; 'b'",
    "A=1 touch x",
    "A=(touch x) git",
    "a[0]=x touch y",
    "a+=x touch y",
    "99999999999>x touch y",
    "RANDOM='a[$(touch y)]'",
    "for SECONDS in 'a[$(touch y)]'; do git; done",
    "echo 'a[$(touch y)]' | { read OPTIND; git; }",
    "declare -i x; x='a[$(touch y)]'",
    "PS4='$(touch y)'; set -x; git",
    "jobs -x touch y",
];

/// Proportions of the parts of generated lines.
#[derive(Clone, Copy)]
pub(crate) struct Taste {
    /// Programs that most commands name.
    pub(crate) programs: &'static [&'static str],
    /// One in this number of commands is compound, computed or redirected.
    pub(crate) plain: u8,
}

/// Generates one line.
pub(crate) fn line(rng: &mut Rng, taste: Taste) -> String {
    let mut line = match rng.u8(..20) {
        0 => SEEDS[rng.usize(..SEEDS.len())].to_owned(),
        1..18 => list(rng, taste, 3),
        _ => (0..rng.usize(1..14)).map(|_| piece(rng)).collect(),
    };
    // Half of the lines stay unchanged, so that enough of them are allowed.
    for _ in 0..[0, 0, 0, 1, 1, 3][rng.usize(..6)] {
        mutate(&mut line, rng);
    }
    // A null character cannot be passed to a program, and paths outside the sandbox are not tried.
    line.retain(|c| c != '\0');
    line.replace('/', "_").replace("..", "._")
}

fn any<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

fn piece(rng: &mut Rng) -> &'static str {
    any(rng, PIECES)
}

/// Changes a line in one place.
fn mutate(line: &mut String, rng: &mut Rng) {
    let places: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
    let at = places[rng.usize(..places.len())];
    match rng.u8(..4) {
        0 if at < line.len() => drop(line.remove(at)),
        1 => {
            let to = places[rng.usize(..places.len())];
            let part = line[at.min(to)..at.max(to)].to_owned();
            line.insert_str(at, &part);
        }
        _ => line.insert_str(at, piece(rng)),
    }
}

fn list(rng: &mut Rng, taste: Taste, depth: u8) -> String {
    let mut text = command(rng, taste, depth);
    for _ in 0..[0, 0, 1, 1, 2, 3][rng.usize(..6)] {
        let joint = if rng.u8(..taste.plain) < 3 { any(rng, JOINTS) } else { any(rng, &JOINTS[..11]) };
        text = text + joint + &command(rng, taste, depth);
    }
    text
}

fn command(rng: &mut Rng, taste: Taste, depth: u8) -> String {
    if depth > 0 && rng.u8(..taste.plain) == 0 {
        let (one, other) = (list(rng, taste, depth - 1), list(rng, taste, depth - 1));
        return match rng.u8(..9) {
            0 => format!("if {one}; then {other}; fi"),
            1 => format!("for x in a {}; do {one}; done", word(rng, taste, 0)),
            2 => format!("while false; do {one}; done"),
            3 => format!("{{ {one}; }}"),
            4 => format!("({one})"),
            5 => format!("case x in {}) {one};; *) {other};; esac", word(rng, taste, 0)),
            6 => format!("until true; do {one}; done"),
            7 => format!("! {one}"),
            _ => format!("if false; then {one}; else {other}; fi"),
        };
    }
    let mut text = String::new();
    if rng.u8(..taste.plain) == 0 {
        text += any(rng, &["A=1 ", "PATH=. ", "x=touch ", "IFS=x ", "A=$(touch x) ", "A='a b' ", ">x ", "2>&1 "]);
    }
    text += &match rng.u8(..taste.plain) {
        0 => any(rng, PROGRAMS).to_owned(),
        1 => any(rng, BUILTINS).to_owned(),
        2 => word(rng, taste, depth),
        _ => any(rng, taste.programs).to_owned(),
    };
    for _ in 0..rng.usize(..4) {
        text = text
            + if rng.u8(..8) == 0 { any(rng, &["\t", "  ", " \\\n", "\\\n"]) } else { " " }
            + &word(rng, taste, depth);
    }
    if rng.u8(..taste.plain) == 0 {
        text += any(rng, &[" >x", " 2>&1", " <x", " >>x", " >&2", " &>x", " <<E\nx\nE\n", " <<<x", " #x", " # it's\n"]);
    }
    text
}

fn word(rng: &mut Rng, taste: Taste, depth: u8) -> String {
    let plain = |rng: &mut Rng| {
        any(rng, &["status", "x", "touch", "rm", "-l", "a b", "#", "a;b", "it", "$x", "\\", "*"]).to_owned()
    };
    match rng.u8(..24) {
        0..4 | 16.. if rng.u8(..taste.plain) > 2 => {
            any(rng, &["status", "x", "-l", "--all", "HEAD~1", "touch", "rm"]).to_owned()
        }
        4..7 => format!("'{}'", plain(rng).replace('\'', "")),
        7..9 => format!("\"{}\"", plain(rng)),
        9 => format!("{}\\{}", any(rng, &["", "x"]), any(rng, &["x", " ", "'", "\"", "\\", "#", "$", ";", "\n"])),
        10 if depth > 0 => format!("$({})", list(rng, taste, depth - 1)),
        11 if depth > 0 => format!("\"`{}`\"", list(rng, taste, 0)),
        12 => word(rng, taste, 0) + &word(rng, taste, 0),
        13 => any(rng, PROGRAMS).to_owned(),
        _ => any(rng, WORDS).to_owned(),
    }
}
