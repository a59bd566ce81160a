//! Runs of the tools `Glob`, `Grep` and `List`.

use std::sync::Arc;

use etude_tools::pattern::{Subject, Verdict, Withheld};
use etude_tools::{AllowedTools, CallContext, Roots, ToolSet};
use serde_json::json;

use crate::fixture::App;

fn tree() -> App {
    let app = App::new();
    app.write(".gitignore", "target/\n*.log\n").write("src/main.rs", "fn main() {\n    run();\n}\n");
    app.write("src/lib/run.rs", "pub fn run() {}\n").write("README.md", "# Run\r\nrun it\r\n");
    app.write("target/x.rs", "fn run() {}\n").write("debug.log", "run\n").write(".hidden.rs", "run\n");
    app.write(".git/config", "run\n").write("image.bin", b"run\0run");
    app
}

/// files that `.gitignore` excludes are not found; the order is fixed.
#[tokio::test]
async fn glob_finds_files_in_a_fixed_order_without_ignored_ones() {
    let app = tree();
    let all = app.ok("Glob", json!({"pattern": "*.rs"})).await;
    assert_eq!(all, ".hidden.rs\nsrc/lib/run.rs\nsrc/main.rs");
    assert_eq!(app.ok("Glob", json!({"pattern": "src/*.rs"})).await, "src/main.rs");
    assert_eq!(app.ok("Glob", json!({"pattern": "**/{main,run}.rs", "path": "src/lib"})).await, "src/lib/run.rs");
    assert_eq!(app.ok("Glob", json!({"pattern": "*.log"})).await, "[no file matches]");
    assert_eq!(app.error("Glob", json!({"pattern": "[a"})).await.0, "InputInvalid");
}

/// A pattern of braces in braces is an error, not the end of the process. A line of an ignore file with one is skipped.
#[tokio::test]
async fn braces_in_braces_are_an_error() {
    let app = tree();
    let nested = format!("{}a{}", "{".repeat(10_000), "}".repeat(10_000));
    app.write(".gitignore", format!("{nested}\ntarget/\n*.log\n"));
    for (tool, args) in [("Glob", json!({"pattern": &nested})), ("Grep", json!({"pattern": "run", "glob": &nested}))] {
        let (code, content) = app.error(tool, args).await;
        assert!(code == "InputInvalid" && content.contains("more than 64 opening braces"), "{tool}");
    }
    assert_eq!(app.ok("Glob", json!({"pattern": "*.rs"})).await, ".hidden.rs\nsrc/lib/run.rs\nsrc/main.rs");
    assert_eq!(app.ok("Glob", json!({"pattern": "*.log"})).await, "[no file matches]");
}

#[tokio::test]
async fn glob_says_how_many_paths_it_left_out() {
    let app = App::new();
    for n in 0..510 {
        app.write(&format!("f{n:03}"), "");
    }
    let found = app.ok("Glob", json!({"pattern": "*"})).await;
    assert!(
        found.starts_with("f000\nf001\n") && found.ends_with("f499\n[10 files more; use a narrower pattern or `path`]")
    );
}

#[tokio::test]
async fn grep_shows_lines_files_and_counts() {
    let app = tree();
    let lines = app.ok("Grep", json!({"pattern": "run"})).await;
    assert_eq!(
        lines,
        ".hidden.rs:1: run\nREADME.md:2: run it\nsrc/lib/run.rs:1: pub fn run() {}\nsrc/main.rs:2:     run();\n\
         [1 file not searched: binary, too large or not readable]"
    );
    let files = app.ok("Grep", json!({"pattern": "RUN", "ignore_case": true, "mode": "files", "glob": "*.md"})).await;
    assert_eq!(files, "README.md");
    assert_eq!(app.ok("Grep", json!({"pattern": "r.n", "mode": "count", "path": "README.md"})).await, "README.md: 1");
    assert_eq!(app.ok("Grep", json!({"pattern": "it$", "path": "README.md"})).await, "README.md:2: run it");
    assert_eq!(app.ok("Grep", json!({"pattern": "nothing", "path": "src"})).await, "[no line matches]");
}

#[tokio::test]
async fn grep_shows_context_once() {
    let app = App::new();
    app.write("a", "1\n2\nx3\nx4\n5\n6\n7\n8\nx9\n");
    let shown = app.ok("Grep", json!({"pattern": "x", "context": 1})).await;
    assert_eq!(shown, "a-2- 2\na:3: x3\na:4: x4\na-5- 5\n--\na-8- 8\na:9: x9");
}

#[tokio::test]
async fn grep_is_bounded_and_refuses_bad_patterns() {
    let app = App::new();
    app.write("a", "x\n".repeat(1_000)).write("b", format!("{}x\n", "y".repeat(10_000)));
    let shown = app.ok("Grep", json!({"pattern": "x"})).await;
    assert!(
        shown.lines().count() == 401 && shown.contains("[cut after 400 lines, 1000 matches in 1 file so far"),
        "{shown}"
    );
    assert!(app.ok("Grep", json!({"pattern": "x", "path": "b"})).await.len() < 500);
    let (code, content) = app.error("Grep", json!({"pattern": "(?=x)"})).await;
    assert!(code == "InputInvalid" && content.contains("look-around"), "{content}");
}

#[tokio::test]
async fn list_shows_folders_files_and_links() {
    let app = tree();
    std::os::unix::fs::symlink("src/main.rs", app.path().join("link")).expect("linked");
    let shown = app.ok("List", json!({})).await;
    assert_eq!(
        shown,
        ".gitignore  14\n.hidden.rs  4\nREADME.md  15\ndebug.log  4\nimage.bin  7\nlink -> src/main.rs\nsrc/\ntarget/"
    );
    assert_eq!(app.ok("List", json!({"path": "src", "depth": 2})).await, "lib/\nlib/run.rs  16\nmain.rs  25");
    assert!(app.error("List", json!({"path": "README.md"})).await.1.contains("use `Read`"));
}

/// ADR 0054: a denial of paths applies to every file that a call would read, also for a call on a folder above them.
#[tokio::test]
async fn what_is_denied_is_left_out_of_searches_and_listings() {
    let app = App::new();
    app.write("src/a.rs", "run\n").write("secret/key.rs", "run\n").write("secret/deep/b.rs", "run\n");
    std::os::unix::fs::symlink("secret", app.path().join("link")).expect("a link");
    let call = async |name: &str, args: serde_json::Value, list: &str| {
        let (tools, list) = (app.tools(), AllowedTools::parse(list));
        let found = tools.find(name).await.expect("there");
        let arguments = args.as_object().expect("an object");
        let subject = Subject::new(&found.tool, arguments, tools.roots());
        let withheld = Arc::new(Withheld::new(&subject, list.patterns()));
        found.call(Arc::new(arguments.clone().into()), CallContext { withheld, ..CallContext::default() }).await.content
    };
    for (name, args, shown) in [
        ("Grep", json!({"pattern": "run"}), "src/a.rs:1: run"),
        ("Grep", json!({"pattern": "run", "path": "."}), "src/a.rs:1: run"),
        ("Grep", json!({"pattern": "run", "path": "secret"}), "[no line matches]"),
        ("Grep", json!({"pattern": "run", "path": "link"}), "[no line matches]"),
        ("Grep", json!({"pattern": "run", "path": "src/../link/key.rs"}), "[no line matches]"),
        ("Glob", json!({"pattern": "*.rs"}), "src/a.rs"),
        ("Glob", json!({"pattern": "*.rs", "path": "link"}), "[no file matches]"),
        ("List", json!({"path": "link"}), "[the folder is empty]"),
    ] {
        for list in ["Grep(secret/**, $deny) Glob(secret/**, $deny) List(secret/**, $deny)", "*(path=secret/**, $deny)"]
        {
            assert_eq!(call(name, args.clone(), list).await, shown, "{name} {args} {list}");
        }
    }
    // The result of an edit quotes the file, and its errors show what the file does not contain.
    for path in ["secret/key.rs", "link/key.rs", "./secret/../link/key.rs"] {
        for old in ["run", "not there"] {
            let args = json!({"path": path, "old_string": old, "new_string": "x"});
            let shown = call("Edit", args, "Read(secret/**, $deny)").await;
            assert!(shown.contains("is denied, and an edit would reveal"), "{shown}");
        }
    }
    let all = json!({"pattern": "run"});
    assert_eq!(call("Grep", all.clone(), "Read(secret/**, $deny)").await, "src/a.rs:1: run", "what may not be read");
    assert_eq!(call("Grep", all.clone(), "Grep(secret/**, $policy=ask)").await, "src/a.rs:1: run", "nothing was asked");
    assert!(call("Grep", all, "Grep(secret/**) Write(**, $deny)").await.contains("secret/key.rs"));
}

/// ADR 0054: a denial applies to a file by every name of it, in a search as in a call on the file itself.
#[tokio::test]
async fn what_is_denied_by_another_name_is_left_out_too() {
    let app = App::new();
    app.write("src/a.rs", "run\n").write("secret/key.rs", "run\n");
    let more = app.path().with_file_name("more");
    std::fs::create_dir_all(more.join("secret")).expect("made");
    std::fs::write(more.join("secret/key.rs"), "run\n").expect("written");
    for (target, link) in [(more.as_path(), "granted"), (&app.path(), "same")] {
        std::os::unix::fs::symlink(target, more.with_file_name(link)).expect("a link");
    }
    let (granted, same) = (more.with_file_name("granted"), more.with_file_name("same"));
    let tools = ToolSet::built_in(Roots::new(&same, std::slice::from_ref(&granted), &[]).expect("roots"), app.host());
    let call = async |name: &str, args: serde_json::Value, list: &str| {
        let found = tools.find(name).await.expect("there");
        let arguments = args.as_object().expect("an object");
        let list = AllowedTools::parse(list);
        let subject = Subject::new(&found.tool, arguments, tools.roots());
        if list.verdict(&subject) == Verdict::Deny {
            return "denied".to_owned();
        }
        let withheld = Arc::new(Withheld::new(&subject, list.patterns()));
        found.call(Arc::new(arguments.clone().into()), CallContext { withheld, ..CallContext::default() }).await.content
    };
    for (folder, dir) in
        [(".".to_owned(), app.path()), (".".to_owned(), same), (show(&granted), granted), (show(&more), more)]
    {
        let list = format!("Read({0}/secret/**, $deny) Glob({0}/secret/**, $deny)", dir.display());
        let file = json!({"path": format!("{folder}/secret/key.rs")});
        assert_eq!(call("Read", file, &list).await, "denied", "{list}");
        let searched = call("Grep", json!({"pattern": "run", "path": folder}), &list).await;
        let found = call("Glob", json!({"pattern": "*.rs", "path": folder}), &list).await;
        assert!(!searched.contains("secret") && !found.contains("secret"), "{list}: {searched} {found}");
    }
    // An invalid glob may mean any file.
    assert_eq!(call("Grep", json!({"pattern": "run"}), "Read([secret/**, $deny)").await, "[no line matches]");
}

fn show(path: &std::path::Path) -> String {
    path.display().to_string()
}
