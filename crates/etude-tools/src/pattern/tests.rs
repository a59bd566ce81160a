use super::*;
use crate::confine::Roots;
use crate::tool::{ApprovalKey, Effect, Origin};
use serde_json::json;

fn tool(name: &str) -> Tool {
    let schema = match name {
        "Bash" => json!({"properties": {"command": {}, "timeout": {}}}),
        "Read" | "Write" => json!({"properties": {"path": {}}}),
        _ => json!({"type": "object"}),
    };
    let origin = match name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
        Some((server, tool)) => Origin::Mcp { server: server.to_owned(), tool: tool.to_owned() },
        None => Origin::BuiltIn,
    };
    let mut tool = Tool::new(name, "", schema, Effect::Executes, origin);
    tool.approval_key = match name {
        "Bash" => ApprovalKey::Command("command"),
        "Read" | "Write" => ApprovalKey::Path("path"),
        "deploy" => ApprovalKey::Template("deploy({{args.env}})".to_owned()),
        _ => ApprovalKey::Name,
    };
    tool.tags = if name == "shell" { vec!["danger".to_owned()] } else { Vec::new() };
    tool
}

fn roots() -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().expect("dir");
    let roots = Roots::new(dir.path(), &[], &[]).expect("roots");
    (dir, roots)
}

fn ask(list: &str, name: &str, args: Value) -> Verdict {
    let (_dir, roots) = roots();
    let (tool, args) = (tool(name), args.as_object().cloned().expect("object"));
    AllowedTools::parse(list).verdict(&Subject::new(&tool, &args, &roots))
}

fn bash(list: &str, line: &str) -> bool {
    ask(list, "Bash", json!({"command": line})) == Verdict::Allow
}

fn read(list: &str, path: &str) -> bool {
    ask(list, "Read", json!({"path": path})) == Verdict::Allow
}

/// `d-cascade` §3.1, `c-applications` 2.4: blanks and commas separate patterns, except within parentheses and braces.
#[test]
fn lists_are_parted_outside_parentheses() {
    let texts = |list: &str| AllowedTools::parse(list).patterns().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts("Bash(git *) Read, Write(a, b)  {x,y}-z"), ["Bash(git *)", "Read", "Write(a, b)", "{x,y}-z"]);
    assert_eq!(texts("Write([a, $deny) Wr[ite($deny) Read"), ["Write([a, $deny)", "Wr[ite($deny)", "Read"]);
    assert_eq!(texts("Bash(git *, Read"), ["Bash(git *, Read"]);
    assert_eq!(texts(""), Vec::<String>::new());
    assert_eq!(AllowedTools::from_list(&["Bash(git *)", "Read"]).patterns().len(), 2);
}

/// A glob beyond the limits is invalid: it allows nothing and denies everything.
#[test]
fn braces_in_braces_allow_nothing() {
    let nested = format!("{}a{}", "{".repeat(10_000), "}".repeat(10_000));
    assert_eq!(ask(&nested, "a", json!({})), Verdict::Unlisted);
    assert_eq!(ask(&format!("* {nested}($deny)"), "Read", json!({"path": "b"})), Verdict::Deny);
    for (list, verdict) in [("NAME(GLOB)", Verdict::Unlisted), ("* NAME(GLOB, $deny)", Verdict::Deny)] {
        for (name, key) in [("Read", "path"), ("Bash", "command")] {
            let list = list.replace("NAME", name).replace("GLOB", &nested);
            assert_eq!(ask(&list, name, json!({key: "a"})), verdict, "{name}");
        }
        let list = list.replace("NAME", "other").replace("GLOB", &format!("key={nested}"));
        assert_eq!(ask(&list, "other", json!({"key": "a"})), verdict);
    }
}

/// D-3.1, D-G01 to D-G04: names are globs on the whole name, or `#tag`.
#[test]
fn names_are_globs_and_tags() {
    for (list, name, listed) in [
        ("Read", "Read", true),
        ("Read", "Reader", false),
        ("*", "anything", true),
        ("file-*", "file-read", true),
        ("file-*", "shell", false),
        ("file-[rw]*", "file-read", true),
        ("file-[rw]*", "file-write", true),
        ("file-[rw]*", "file-glob", false),
        ("{file-read,file-write}", "file-read", true),
        ("{file-read,file-write}", "file-read-all", false),
        ("file?", "files", true),
        ("file?", "file", false),
        ("file?", "filesx", false),
        ("{a,b}c", "bc", true),
        ("[ab]*", "cx", false),
        ("?x", "ax", true),
        ("#danger", "shell", true),
        ("#danger", "Read", false),
        ("mcp__github", "mcp__github__create", true),
        ("mcp__github__*", "mcp__github__create", true),
        ("mcp__git", "mcp__github__create", false),
        ("mcp__*", "mcp__github__create", true),
        ("[", "[", false),
    ] {
        assert_eq!(AllowedTools::parse(list).lists(&tool(name)), listed, "{list} {name}");
    }
}

#[test]
fn servers_that_no_pattern_can_name_are_not_needed() {
    for (list, needed) in [
        ("Read Bash(git *)", false),
        ("Read mcp__github__create", true),
        ("mcp__github", true),
        ("mcp__gitlab__*", false),
        ("*", true),
        ("m*", true),
        ("{Read,mcp__github__x}", true),
        ("#tag", true),
        ("mcp__git", false),
    ] {
        assert_eq!(AllowedTools::parse(list).may_list_server("github"), needed, "{list}");
    }
}

/// `c-applications` 2.2: commands match by prefix, glob or exactly, as in `Bash(git:*) Read`.
#[test]
fn commands_are_matched_by_prefix_glob_and_exactly() {
    assert!(bash("Bash(git:*)", "git") && bash("Bash(git:*)", "git status -s") && !bash("Bash(git:*)", "gitk"));
    assert!(bash("Bash(git *)", "git log") && bash("Bash(git *)", "git") && !bash("Bash(git *)", "gitk x"));
    assert!(bash("Bash(npm run test)", "npm run test") && !bash("Bash(npm run test)", "npm run test2"));
    assert!(bash("Bash", "rm -rf /") && bash("Bash(*)", "a > b; c") && bash("*", "$(x)"));
    assert!(bash("Bash(FOO=1 make)", "FOO=1 make"), "no argument is called FOO");
}

/// A pattern for one command does not allow another command after it.
#[test]
fn every_command_of_a_line_must_be_let_through() {
    for line in [
        "git status; rm -rf x", "git status && rm x", "git log | sh", "git status & rm x", "git status\nrm x",
        "git $(rm x)", "git `rm x`", "git \"$(rm x)\"", "git log > /etc/passwd", "git <(rm x)", "git ${IFS}",
        "git 'unclosed",
    ] {
        assert!(!bash("Bash(git *)", line), "{line}");
    }
    assert!(bash("Bash(git *)", "git add . && git commit -m 'a; b'"));
    assert!(bash("Bash(git *) Bash(wc *)", "git log | wc -l"));
    assert!(!bash("Bash(git *)", ""));
}

#[test]
fn paths_are_matched_relative_to_the_app() {
    assert!(
        read("Read(src/**)", "src/a/b.rs") && read("Read(src/**)", "./src/../src/x") && !read("Read(src/**)", "lib/x")
    );
    assert!(read("Read(*.md)", "a.md") && !read("Read(*.md)", "docs/a.md"));
    assert!(!read("Read(src/**)", "src/../secret") && !read("Read(**/*.rs)", "x.py"));
    assert!(read("Read(path=src/*)", "src/x"), "by the name of the argument");
}

/// D-3.1, D-X13, D-X16: patterns match arguments by name, and denials win.
#[test]
fn arguments_are_matched_by_name_and_denials_win() {
    let shell = |list: &str, args: Value| ask(list, "shell", args);
    assert_eq!(shell("file-*", json!({})), Verdict::Unlisted);
    assert_eq!(shell("shell(cmd=ls,$deny) shell", json!({"cmd": "ls"})), Verdict::Deny);
    assert_eq!(shell("shell(cmd=ls,$deny) shell", json!({"cmd": "pwd"})), Verdict::Allow);
    assert_eq!(shell("shell shell(cmd=ls,$deny)", json!({"cmd": "ls"})), Verdict::Deny);
    assert_eq!(shell("shell(op={start,stop},n=1)", json!({"op": "stop", "n": 1})), Verdict::Allow);
    assert_eq!(shell("shell(op={start,stop},n=1)", json!({"op": "stop"})), Verdict::Unlisted);
    assert_eq!(shell("shell(a.b[0].c=x*)", json!({"a": {"b": [{"c": "xy"}]}})), Verdict::Allow);
    assert_eq!(shell("shell($policy=ask)", json!({})), Verdict::Ask);
    assert_eq!(shell("*($policy=deny)", json!({})), Verdict::Deny);
    assert_eq!(shell("shell($policy=allow)", json!({})), Verdict::Allow);
}

/// D-3.1: a denial matches if a list contains its value, and if nothing in the call shows whether it applies.
#[test]
fn a_denial_does_not_fail_open() {
    let denied = |list: &str, name: &str, args: Value| ask(list, name, args) == Verdict::Deny;
    for paths in [json!(["a", "secret/b"]), json!("secret/b"), json!(["x/../secret/b"])] {
        assert!(denied("fetch fetch(paths=secret/**,$deny)", "fetch", json!({"paths": paths})), "{paths}");
    }
    assert!(!denied("fetch fetch(paths=secret/**,$deny)", "fetch", json!({"paths": ["a", "b"]})));
    // A literal argument name that looks like a path does not hide the argument at that path.
    let two = json!({"target.env": "staging", "target": {"env": "prod"}});
    assert!(denied("ship ship(target.env=prod,$deny)", "ship", two.clone()));
    assert!(denied("ship ship(target.env=staging,$deny)", "ship", two.clone()));
    assert_eq!(ask("ship(target.env=staging)", "ship", two), Verdict::Unlisted);
    assert_eq!(ask("ship(target.env=staging)", "ship", json!({"target.env": "staging"})), Verdict::Allow);
    // The tool has no approval key, so its calls have no text.
    assert!(denied("ship ship(prod,$deny)", "ship", json!({"env": "prod"})));
    assert!(!denied("ship ship(env=prod,$deny)", "ship", json!({"env": "test"})));
}

/// D-3.1: only known directives are directives. A variable or a misspelled directive makes a pattern narrower, never wider.
#[test]
fn an_unknown_directive_does_not_open_a_pattern() {
    let bash = |list: &str, line: &str| ask(list, "Bash", json!({"command": line}));
    for specifier in ["$HOME/bin/x *", "${CLAUDE_SKILL_DIR}/x.sh *", "$Deny", "$policy=Deny", "$policy", "git *, $Deny"]
    {
        for line in ["rm -rf /", "git push", "$HOME/bin/x a", "'$HOME/bin/x' a"] {
            assert_eq!(bash(&format!("Bash({specifier})"), line), Verdict::Unlisted, "{specifier}: {line}");
        }
        let denied = format!("Bash Bash({specifier}, $deny)");
        assert_eq!(bash(&denied, "ls"), Verdict::Deny, "{specifier}");
    }
    assert_eq!(ask("Read(${HOME}/**)", "Read", json!({"path": "a"})), Verdict::Unlisted);
    assert_eq!(ask("Read Read($HOME/**, $deny)", "Read", json!({"path": "a"})), Verdict::Deny);
    assert_eq!(ask("shell($key=x)", "shell", json!({"$key": "x"})), Verdict::Unlisted);
    assert_eq!(bash("Bash(echo $HOME)", "rm x"), Verdict::Unlisted);
}

#[test]
fn a_denial_sees_every_part_of_a_command_line() {
    for line in ["rm x", "ls; rm x", "ls $(rm x)", "a | rm x"] {
        assert_eq!(ask("Bash Bash(rm *,$deny)", "Bash", json!({"command": line})), Verdict::Deny, "{line}");
    }
    assert_eq!(ask("Bash Bash(rm *,$deny)", "Bash", json!({"command": "ls"})), Verdict::Allow);
}

/// D-13: a guard rule matches a line as soon as it describes one of its commands.
#[test]
fn a_rule_that_guards_sees_every_command() {
    let (_dir, roots) = roots();
    let tool = tool("Bash");
    let rule = |pattern: &str, line: &str| {
        let args = json!({"command": line}).as_object().cloned().expect("object");
        Pattern::parse(pattern).rule(&Subject::new(&tool, &args, &roots))
    };
    assert_eq!(rule("Bash(rm *)", "ls; rm x"), Verdict::Allow);
    assert_eq!(rule("Bash(rm *)", "$(rm x)"), Verdict::Allow);
    assert_eq!(rule("Bash(rm *)", "ls"), Verdict::Unlisted);
    assert_eq!(rule("Bash(git *, $policy=allow)", "git log; rm x"), Verdict::Unlisted);
    assert_eq!(rule("Bash(git *, $policy=allow)", "git log"), Verdict::Allow);
    assert_eq!(rule("Bash(rm *, $deny)", "ls; rm x"), Verdict::Deny);
}

#[test]
fn a_tool_that_is_denied_altogether_is_not_listed() {
    assert!(!AllowedTools::parse("* shell($deny)").lists(&tool("shell")));
    assert!(AllowedTools::parse("* shell(cmd=ls,$deny)").lists(&tool("shell")));
    assert!(!AllowedTools::parse("shell(cmd=ls,$deny)").lists(&tool("shell")));
}

/// `b-stages` §20.5: `approvalKey` is a template over arguments.
#[test]
fn keys_are_made_of_arguments() {
    let (_dir, roots) = roots();
    let key = |name: &str, args: Value| {
        let (tool, args) = (tool(name), args.as_object().cloned().expect("object"));
        Subject::new(&tool, &args, &roots).key()
    };
    assert_eq!(key("Bash", json!({"command": " git status "})), "Bash(git status)");
    assert_eq!(key("Write", json!({"path": "./a/../b"})), "Write(b)");
    assert_eq!(key("deploy", json!({"env": "prod"})), "deploy(prod)");
    assert_eq!(key("deploy", json!({})), "deploy()");
    assert_eq!(key("mcp__a__b", json!({"x": 1})), "mcp__a__b");
    assert_eq!(ask("deploy(prod)", "deploy", json!({"env": "prod"})), Verdict::Allow);
    assert_eq!(ask("deploy(prod)", "deploy", json!({"env": "staging"})), Verdict::Unlisted);
    for (list, verdict) in [
        ("deploy deploy(prod, $deny)", Verdict::Deny),
        ("deploy deploy(prod,$policy=ask)", Verdict::Ask),
        ("deploy deploy(p*, $deny)", Verdict::Deny),
    ] {
        assert_eq!(ask(list, "deploy", json!({"env": "prod"})), verdict, "{list}");
        assert_eq!(ask(list, "deploy", json!({"env": "staging"})), Verdict::Allow, "{list}");
    }
}

/// An app where `notes/up` leads to the app itself, and `notes/in` to `src`.
fn linked() -> (tempfile::TempDir, Roots) {
    let (dir, roots) = roots();
    for made in ["notes", "src"] {
        std::fs::create_dir(dir.path().join(made)).expect("made");
    }
    for (target, link) in [("..", "notes/up"), ("../src", "notes/in")] {
        std::os::unix::fs::symlink(target, dir.path().join(link)).expect("linked");
    }
    std::fs::write(dir.path().join("etude.yaml"), "").expect("written");
    (dir, roots)
}

fn ask_linked(list: &str, tool: &Tool, args: Value) -> Verdict {
    let (_dir, roots) = linked();
    let args = args.as_object().cloned().expect("object");
    AllowedTools::parse(list).verdict(&Subject::new(tool, &args, &roots))
}

/// a pattern with a path means the target of the path. A denial also means the written path.
#[test]
fn patterns_are_judged_on_the_path_without_links() {
    let write = |list: &str, path: &str| ask_linked(list, &tool("Write"), json!({"path": path}));
    for (list, path, verdict) in [
        ("Write(notes/**)", "notes/new", Verdict::Allow),
        ("Write(notes/**)", "notes/up/notes/new", Verdict::Allow),
        ("Write(notes/**)", "notes/up/etude.yaml", Verdict::Unlisted),
        ("Write(notes/**)", "notes/in/main.rs", Verdict::Unlisted),
        ("Write(src/**)", "notes/in/main.rs", Verdict::Allow),
        ("Write(path=notes/*)", "notes/up/etude.yaml", Verdict::Unlisted),
        ("Write(path=notes/*)", "notes/../etude.yaml", Verdict::Unlisted),
        ("Write(path=notes/*)", "notes/new", Verdict::Allow),
        ("Write Write(etude.yaml, $deny)", "notes/up/etude.yaml", Verdict::Deny),
        ("Write Write(path=etude.yaml, $deny)", "notes/up/./etude.yaml", Verdict::Deny),
        ("Write Write(notes/up/**, $deny)", "notes/up/etude.yaml", Verdict::Deny),
        ("Write Write(src/**, $policy=ask)", "notes/up/notes/in/x", Verdict::Ask),
        // A limit with an invalid glob may mean any path, and one with an invalid name any tool.
        ("Write Write([src/**, $deny)", "notes/new", Verdict::Deny),
        ("Write Write(path=[src/**, $policy=ask)", "notes/new", Verdict::Ask),
        ("Write Wr[ite($deny)", "notes/new", Verdict::Deny),
        ("Write([notes/**)", "notes/new", Verdict::Unlisted),
    ] {
        assert_eq!(write(list, path), verdict, "{list} {path}");
    }
}

/// the same holds for arguments of foreign tools that are known to be paths.
#[test]
fn paths_of_tools_of_others_are_judged_where_they_are_known() {
    let schema =
        json!({"properties": {"path": {"type": "string"}, "at": {"type": "string", "format": "path"}, "q": {}}});
    let mut other = tool("mcp__files__write");
    other.input_schema = std::sync::Arc::new(schema);
    for key in ["path", "at"] {
        let ask = |list: &str, path: &str| ask_linked(list, &other, json!({key: path, "q": path}));
        let pattern = format!("mcp__files__write({key}=notes/*)");
        assert_eq!(ask(&pattern, "notes/new"), Verdict::Allow);
        for path in ["notes/up/etude.yaml", "notes/../etude.yaml"] {
            assert_eq!(ask(&pattern, path), Verdict::Unlisted, "{path}");
            assert_eq!(ask("mcp__files__write(q=notes/*)", path), Verdict::Allow, "what is no path is text");
            let denied = format!("mcp__files__write mcp__files__write({key}=etude.yaml, $deny)");
            assert_eq!(ask(&denied, path), Verdict::Deny, "{path}");
        }
    }
    let (dir, roots) = linked();
    let absolute = dir.path().canonicalize().expect("there").join("notes/new");
    for path in ["./notes/new", absolute.to_str().expect("UTF-8")] {
        let args = json!({"path": path}).as_object().cloned().expect("object");
        let call = Subject::new(&other, &args, &roots);
        let verdict = |list: &str| AllowedTools::parse(list).verdict(&call);
        assert_eq!(verdict("mcp__files__write mcp__files__write(path=notes/**, $deny)"), Verdict::Deny, "{path}");
        assert_eq!(verdict("mcp__files__write(path=notes/*)"), Verdict::Allow, "{path}");
    }
    let mut template = tool("save");
    template.approval_key = ApprovalKey::Template("save({{args.path}})".to_owned());
    let ask = |list: &str, path: &str| ask_linked(list, &template, json!({"path": path}));
    assert_eq!(ask("save(notes/*)", "notes/new"), Verdict::Allow);
    assert_eq!(ask("save(notes/*)", "notes/up/etude.yaml"), Verdict::Unlisted);
    assert_eq!(ask("save save(*etude.yaml*, $deny)", "notes/up/etude.yaml"), Verdict::Deny);
}

mod commands;
