//! Patterns of commands match the commands that a line runs, in any spelling.

use super::*;

fn denied(list: &str, line: &str) -> bool {
    ask(list, "Bash", json!({"command": line})) == Verdict::Deny
}

/// ADR 0054: comments and continuations hide no command. Once, a comment hid the commands after it.
#[test]
fn comments_and_continuations_hide_no_command() {
    for line in [
        "git status #'\ntouch x #'",
        "git status #\"\ntouch x #\"",
        "git status # \\\ntouch x",
        "git status;#\ntouch x",
        "git status \\\n; touch x",
        "git status\\\\\ntouch x",
        "git status 'a'#b'\ntouch x'\ntouch x",
        "git status \\'\ntouch x #'",
    ] {
        assert!(!bash("Bash(git *)", line), "{line}");
        assert!(denied("Bash Bash(touch *, $deny)", line), "{line}");
    }
    assert!(bash("Bash(git *)", "git status # all of it\n\n# and\ngit log \\\n  --oneline"));
    assert!(!bash("Bash(git *)", "git status\r") && !bash("Bash(git *)", "git status\u{b}touch x"));
}

/// ADR 0054: `$deny` matches every spelling of a command. Once, it matched only one.
#[test]
fn a_denial_sees_a_command_however_it_is_written() {
    for line in [
        "git push origin",
        "git\tpush origin",
        "git  push origin",
        "git 'push' origin",
        "g\"i\"t push origin",
        "g\\it pu\\sh origin",
        "/usr/bin/git push origin",
        "command git push origin",
        "command -p git push origin",
        "A=1 git push origin",
        "! git push origin",
        "if true; then git push origin; fi",
        "for x in 1; do git push origin; done",
        "{ git push origin; }",
        "(cd x && git push origin)",
        "git \\\n push origin",
        "gi\\\nt push",
        "git push&",
        "sleep 1 & git push",
        "ls | git push > out 2>&1",
        "<in git push",
        "env -i A=1 git push",
        "env -S 'git push'",
        "nohup timeout 5 git push",
        "nice env -S 'git push'",
        "timeout 5 env '-Sgit push'",
        "find . -maxdepth 0 -exec env -S 'git push' ';'",
        "fd git /bin --exec {} push",
        "fd git /bin -Hx {} push",
        "fd . -xgit push",
        "fd . -HXgit push",
        "fd . --exec=git push",
        "strace -o '|git push' ls",
        "strace -f '-o!git push' ls",
        "start-stop-daemon --start --exec /usr/bin/git -- push",
        "runcon -t x git push",
        "x86_64 git push",
        "sg root 'git push'",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/git push",
        "ld.so /usr/bin/git push",
        "dpkg-architecture -c git push",
        "b='c[$(git push)]'; : {a[b]}>/dev/null",
        "b='a[$(git push)]'; echo $[b]",
        "echo $['a[$(git push)]']",
        "b='$(git push)'; true >&$b",
        "b='$(git push)'; true 2>&\"$b\"",
        "find . -name x -exec git push {} ;",
        "find / -name git -exec {} push ;",
        "sudo -u me git push",
        "eval 'git push'",
        "sh -c 'git push'",
        "timeout 5 /bin/bash -c 'git push'",
        "echo git push | sh",
        "echo push | xargs git",
        "echo push | gxargs git",
        "gnohup gstdbuf -o0 git push",
        "echo x | ifne git push",
        "torify git push",
        "$(echo git) push",
        "`echo git` push",
        "g=git; $g push",
        "g=push; git $g",
        "git p{us,}h",
        "{git,push}",
        "g?t push",
        "GIT push",
        "cat <<E\n$(git push)\nE",
        "echo \"$(git push)\"",
        "f() { git push; }; f",
        "alias x='git push'",
        "trap 'git push' EXIT",
        "test -v 'a[$(git push)]'",
        "printf -v 'a[$(git push)]' x",
        "RANDOM='a[$(git push)]'",
        "for SECONDS in 'a[$(git push)]'; do true; done",
        "declare -i x; x='a[$(git push)]'",
        "PS4='$(git push)'; set -x; true",
        "jobs -x git push",
    ] {
        assert!(denied("Bash Bash(git push *, $deny)", line), "{line}");
        assert!(denied("Bash Bash(git *, $deny)", line), "{line}");
        assert!(!bash("Bash(ls *) Bash(cd *) Bash(true)", line), "{line}");
    }
    for line in ["git pull", "echo git push", "grep -r 'git push' .", "ls > x; wc \"$f\"", "for f in *; do wc $f; done"]
    {
        assert!(bash("Bash Bash(git push *, $deny)", line), "{line}");
    }
}

/// The words of a pattern match the words that programs receive.
#[test]
fn words_are_compared_as_programs_get_them() {
    for (pattern, line, holds) in [
        ("git status", "git status", true),
        ("git status", "git  'status'", true),
        ("git status", "git status -s", false),
        ("git status", "git 'status -s'", false),
        ("git *", "git", true),
        ("git *", "git log --format=%H HEAD~1 -- a.rs", true),
        ("git *", "git commit -m 'a; b' -m \"c && \\\"d\\\"\"", true),
        ("git *", "git commit -m \"d\u{e9}j\u{e0} vu\"", true),
        ("git:*", "git log", true),
        ("npm run test:*", "npm run test --watch", true),
        ("npm run test:*", "npm run test:unit", false),
        ("npm run test*", "npm run test:unit", true),
        ("npm run test*", "npm run test --watch", false),
        ("npm * test", "npm run test", true),
        ("npm * test", "npm a b test", false),
        ("{npm,yarn} test", "yarn test", true),
        ("cargo {test,check} *", "cargo check --all", true),
        ("git commit -m \"a b\"", "git commit -m 'a b'", true),
        ("git add '*'", "git add '*'", true),
        ("git add '*'", "git add x", false),
        ("git *", "/usr/bin/git status", false),
        ("git *", "./git status", false),
        ("/usr/bin/git *", "/usr/bin/git status", true),
        ("./scripts/* *", "./scripts/build x", true),
        ("./scripts/* *", "./scripts/../x y", false),
        ("./scripts/** *", "./scripts/../x y", false),
        ("git *", "PATH=. git status", false),
        ("git *", "GIT_SSH_COMMAND=x git fetch", false),
        ("* status", "PATH=. status", false),
        ("FOO=1 make", "FOO=1 make", true),
        ("FOO=1 make", "FOO=2 make", false),
        ("FOO=1 make", "'FOO=1' make", false),
        ("make FOO=1", "make FOO=1", true),
        ("git *", "git add *.rs", false),
        ("git *", "git add $x", false),
        ("git *", "git log > x", false),
        ("git *", "git fetch &", false),
        ("git *", "! git fetch", false),
        ("git *", "(git fetch)", false),
        ("git *", "git ~", false),
        ("git *", "git -C ~user status", false),
        ("git *", "g{i,}t status", false),
        ("git *", "git \u{a0}status", false),
        ("git *", "git $'a'", false),
        ("git *", "git ((1))", false),
        ("git *", "git 'a\u{1}'", false),
        ("git *", "", false),
        ("git *", "# git", false),
        ("* --help", "sh --help", false),
        ("e* *", "env touch x", false),
        ("env *", "env touch x", true),
        ("eval *", "eval 'touch x'", false),
        ("alias *", "alias git=touch", false),
        ("export *", "export PATH=.", false),
        ("test *", "test -v 'a[$(touch x)]'", false),
        ("test *", "test -f x", true),
        ("[ *", "[ -f x ]", true),
        ("printf *", "printf -v 'a[$(touch x)]' x", false),
    ] {
        assert_eq!(bash(&format!("Bash({pattern})"), line), holds, "{pattern}: {line}");
    }
}

/// A pattern for an argument with a command line, in any tool, is a pattern for its commands.
#[test]
fn command_lines_in_arguments_are_judged_like_those_of_bash() {
    for (list, name) in
        [("Bash(command=git *)", "Bash"), ("shell(command=git *)", "shell"), ("mcp__a__b(command=git *)", "mcp__a__b")]
    {
        let verdict = |line: &str| ask(list, name, json!({"command": line}));
        assert_eq!(verdict("git status"), Verdict::Allow, "{list}");
        for line in ["git status; touch x", "git status\ntouch x", "git $(touch x)", "git status > x", "gitk"] {
            assert_eq!(verdict(line), Verdict::Unlisted, "{list}: {line}");
        }
    }
    for line in ["rm\tx", "ls; 'rm' x", "/bin/rm x", "$(rm x)"] {
        assert_eq!(ask("Bash Bash(command=rm *,$deny)", "Bash", json!({"command": line})), Verdict::Deny, "{line}");
        assert_eq!(ask("shell shell(cmd=rm *,$deny)", "shell", json!({"cmd": line})), Verdict::Deny, "{line}");
    }
    assert_eq!(
        ask("Bash(command=git *,timeout=5)", "Bash", json!({"command": "git log", "timeout": 5})),
        Verdict::Allow
    );
    assert_eq!(ask("Bash(command=git *,timeout=5)", "Bash", json!({"command": "git log"})), Verdict::Unlisted);
}

/// `b-stages` §20.5: a key that is made of a command line does not allow a second command.
#[test]
fn command_lines_in_keys_are_judged_as_well() {
    let (_dir, roots) = roots();
    let mut tool = tool("remote");
    tool.approval_key = ApprovalKey::Template("remote({{args.host}}: {{args.command}})".to_owned());
    let verdict = |list: &str, line: &str| {
        let args = json!({"host": "a", "command": line}).as_object().cloned().expect("object");
        AllowedTools::parse(list).verdict(&Subject::new(&tool, &args, &roots))
    };
    assert_eq!(verdict("remote(a: git *)", "git status"), Verdict::Allow);
    assert_eq!(verdict("remote(a: git *)", "git status; touch x"), Verdict::Unlisted);
    assert_eq!(verdict("remote(a: git *)", "git $(touch x)"), Verdict::Unlisted);
    assert_eq!(verdict("remote remote(rm *, $deny)", "git status; 'rm' x"), Verdict::Deny);
    assert_eq!(verdict("remote remote(a: rm *, $deny)", "rm x"), Verdict::Deny);
    // An argument beside the command is one word, and cannot be taken for the beginning of the command.
    for (host, line) in [("a: git", "touch x"), ("a: git x; ", "touch x"), ("", "a: git")] {
        let args = json!({"host": host, "command": line}).as_object().cloned().expect("object");
        let verdict = AllowedTools::parse("remote(a: git *)").verdict(&Subject::new(&tool, &args, &roots));
        assert_eq!(verdict, Verdict::Unlisted, "{host}");
    }
}

/// A command that is not text is neither allowed nor missed by a denial, because the tool may join a list in any way.
#[test]
fn commands_that_are_no_text_are_unreadable() {
    for command in [json!(["rm", "x"]), json!({"line": "rm x"})] {
        let verdict = |list: &str| ask(list, "mcp__fs__run", json!({"command": command}));
        assert_eq!(verdict("* mcp__fs__run(command=rm *, $deny)"), Verdict::Deny);
        assert_eq!(verdict("mcp__fs__run(command=*rm*)"), Verdict::Unlisted);
    }
}

/// A line that cannot be parsed is neither allowed nor exempt from denials, and takes no time.
#[test]
fn lines_that_are_made_to_hurt_the_parser_are_unreadable() {
    let deep = |unit: &str| unit.repeat(15_000 / unit.len());
    for line in [
        deep("("),
        deep("((("),
        deep("$("),
        deep("${"),
        deep("$(("),
        deep("`"),
        deep("{ "),
        deep("if "),
        deep("case a in a) "),
        deep("[[ ( "),
        deep("a() "),
        deep("<(a "),
        deep("\"$("),
        deep("<<a "),
        "$(a <<E\nx\nE\n\n)".to_owned(),
        "${a <<E\nx\nE\n\n}".to_owned(),
        deep("<<a\n"),
        "git ".repeat(5_000),
        "git 99999999999999999999>x".to_owned(),
        "git {99999999999999999999..1}".to_owned(),
        "git a[99999999999999999999]=x".to_owned(),
    ] {
        let start = &line[..line.len().min(20)];
        assert!(!bash("Bash(git *)", &line), "{start}");
    }
    assert!(denied("Bash Bash(rm *, $deny)", &deep("(")));
    assert!(bash("Bash", &deep("(")), "a pattern for every command");
}

/// SECURITY.md: the longest lines of all nested constructs are parsed with little stack left, or are unreadable.
#[test]
fn no_line_overflows_the_stack_of_its_caller() {
    const MAX_LENGTH: usize = 16 * 1024;
    let openings = [
        "(", "{ ", "! ", "a|", "a;", "a&&", "if ", "$((", "$((a+", "`", "\"$(", "${a:-", "{a,", "a=(", "<(", ">(",
        "[[ ! ", "[[ (", "case ", "for ", "while ", "a(){ ", "\"", "'", "\\\n", "[", "~/", "*", "${a[", "a&", "a\n",
        "$a", ">a ", "{a..b}", "A=1 ", "$'", "((", "until ", "else ", "#\n",
    ];
    let small = std::thread::Builder::new().stack_size(128 * 1024);
    let read = small.spawn(move || {
        for opening in openings {
            for count in [8, 32, MAX_LENGTH / opening.len()] {
                super::super::shell::read(&opening.repeat(count));
                super::super::shell::read(&format!(
                    "git {}",
                    opening.repeat(count.min((MAX_LENGTH - 4) / opening.len()))
                ));
            }
        }
    });
    read.expect("a thread").join().expect("no line ends it");
}
