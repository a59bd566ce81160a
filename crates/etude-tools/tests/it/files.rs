//! Runs of the tools `Read`, `Write` and `Edit`.

use serde_json::json;

use crate::fixture::App;

#[tokio::test]
async fn read_shows_lines_with_their_numbers() {
    let app = App::new();
    app.write("a.txt", "one\r\ntwo\nthree");
    let shown = app.ok("Read", json!({"path": "a.txt"})).await;
    assert_eq!(shown, "     1\tone\n     2\ttwo\n     3\tthree\n[lines end in CR LF]\n");
    let shown = app.ok("Read", json!({"path": "a.txt", "offset": 2, "limit": 1})).await;
    assert_eq!(shown, "     2\ttwo\n[lines 2 to 2 of 3; go on with `offset`: 3]\n");
    assert_eq!(app.error("Read", json!({"path": "a.txt", "offset": 9})).await.0, "ToolExecutionFailed");
}

/// results are bounded, and say where they were cut and how to continue.
#[tokio::test]
async fn a_long_file_is_read_in_pages_without_losing_a_line() {
    let app = App::new();
    let text: String = (1..=5_000).map(|n| format!("line {n} {}\n", "x".repeat(40))).collect();
    app.write("long.txt", &text);
    let (mut offset, mut seen) = (1, Vec::new());
    loop {
        let page = app.ok("Read", json!({"path": "long.txt", "offset": offset})).await;
        assert!(page.len() <= etude_tools::tool::MAX_CONTENT);
        seen.extend(page.lines().filter_map(|line| Some(line.split_once('\t')?.1.to_owned())));
        match page.lines().last().and_then(|line| line.rsplit_once("`offset`: ")) {
            Some((_, next)) => offset = next.trim_end_matches(']').parse().expect("number"),
            None => break,
        }
    }
    assert_eq!(seen.join("\n") + "\n", text);
}

#[tokio::test]
async fn one_endless_line_is_cut() {
    let app = App::new();
    app.write("wide.txt", format!("x{}\nend\n", "é".repeat(3 << 20)));
    let shown = app.ok("Read", json!({"path": "wide.txt"})).await;
    assert!(
        shown.contains("… [line cut]\n") && !shown.contains("not UTF-8") && shown.contains("     2\tend\n"),
        "{}",
        &shown[shown.len() - 200..]
    );
}

#[tokio::test]
async fn what_is_no_text_is_reported() {
    let app = App::new();
    app.write("bin", b"\x7fELF\0\0").write("latin", b"caf\xe9\n").write("empty", "").write("dir/x", "");
    let (_, binary) = app.error("Read", json!({"path": "bin"})).await;
    assert!(binary.contains("`bin` is a binary file of 6 bytes"), "{binary}");
    let latin = app.ok("Read", json!({"path": "latin"})).await;
    assert!(latin.contains("caf\u{fffd}") && latin.contains("not UTF-8"), "{latin}");
    assert_eq!(app.ok("Read", json!({"path": "empty"})).await, "[the file is empty]");
    assert!(app.error("Read", json!({"path": "dir"})).await.1.contains("use `List`"));
    assert_eq!(app.error("Read", json!({"path": "none"})).await.0, "NotFound");
    assert_eq!(app.error("Read", json!({"path": "../x"})).await.0, "PathRefused");
}

#[tokio::test]
async fn write_makes_folders_and_replaces() {
    let app = App::new();
    assert_eq!(
        app.ok("Write", json!({"path": "a/b/c.txt", "content": "x\ny\n"})).await,
        "created `a/b/c.txt` (4 bytes, 2 lines)"
    );
    assert_eq!(
        app.ok("Write", json!({"path": "a/b/c.txt", "content": "z"})).await,
        "replaced `a/b/c.txt` (1 bytes, 1 line)"
    );
    assert_eq!(app.read("a/b/c.txt"), "z");
    assert_eq!(app.error("Write", json!({"path": "../out.txt", "content": "x"})).await.0, "PathRefused");
    assert!(!app.path().join("../out.txt").exists());
    assert_eq!(app.error("Write", json!({"path": "a/b", "content": "x"})).await.0, "ToolExecutionFailed");
}

/// A link inside the app that leads out is not followed.
#[tokio::test]
async fn no_tool_follows_a_link_out_of_the_app() {
    let app = App::new();
    let secret = app.path().join("../secret");
    std::fs::create_dir(&secret).expect("made");
    std::fs::write(secret.join("key"), "hunter2").expect("written");
    std::os::unix::fs::symlink(&secret, app.path().join("out")).expect("linked");
    for (name, args) in [
        ("Read", json!({"path": "out/key"})),
        ("Write", json!({"path": "out/key", "content": "x"})),
        ("Write", json!({"path": "out/new/deep", "content": "x"})),
        ("Edit", json!({"path": "out/key", "old_string": "hunter2", "new_string": "x"})),
        ("Glob", json!({"pattern": "*", "path": "out"})),
        ("Grep", json!({"pattern": "hunter2", "path": "out"})),
        ("List", json!({"path": "out"})),
    ] {
        let (code, content) = app.error(name, args).await;
        assert!(code == "PathRefused" && !content.contains("hunter2"), "{name}: {content}");
    }
    assert_eq!(app.ok("Grep", json!({"pattern": "hunter2"})).await, "[no line matches]");
    assert_eq!(app.ok("Glob", json!({"pattern": "**/key"})).await, "[no file matches]");
    assert_eq!(std::fs::read_to_string(secret.join("key")).expect("read"), "hunter2");
    assert!(!secret.join("new").exists());
}

#[tokio::test]
async fn edit_replaces_one_passage_and_shows_it() {
    let app = App::new();
    app.write("a.rs", "fn a() {}\nfn b() {}\nfn c() {}\n");
    let shown = app.ok("Edit", json!({"path": "a.rs", "old_string": "fn b() {}", "new_string": "fn b() {\n}"})).await;
    assert_eq!(app.read("a.rs"), "fn a() {}\nfn b() {\n}\nfn c() {}\n");
    assert_eq!(
        shown,
        "replaced 1 passage in `a.rs`; around the first it reads now:\n     1\tfn a() {}\n     2\tfn b() {\n     3\t}\n     4\tfn c() {}"
    );
}

#[tokio::test]
async fn edit_demands_a_unique_passage_and_reports_the_candidates() {
    let app = App::new();
    app.write("a.txt", "x = 1\ny = 2\nx = 1\n");
    let (code, content) =
        app.error("Edit", json!({"path": "a.txt", "old_string": "x = 1", "new_string": "x = 3"})).await;
    assert_eq!(code, "NotUnique");
    assert!(content.contains("2 times") && content.contains("     1\tx = 1\n     3\tx = 1"), "{content}");
    assert_eq!(app.read("a.txt"), "x = 1\ny = 2\nx = 1\n");
    let all = json!({"path": "a.txt", "old_string": "x = 1", "new_string": "x = 3", "replace_all": true});
    assert!(app.ok("Edit", all).await.starts_with("replaced 2 passages"));
    assert_eq!(app.read("a.txt"), "x = 3\ny = 2\nx = 3\n");
}

/// A short request of a model cannot exhaust the memory.
#[tokio::test]
async fn edit_makes_no_file_that_could_not_be_read_again() {
    let app = App::new();
    app.write("a.txt", "a".repeat(10_000));
    let all = json!({"path": "a.txt", "old_string": "a", "new_string": "b".repeat(10_000), "replace_all": true});
    let (code, content) = app.error("Edit", all).await;
    assert_eq!(code, "InputInvalid");
    assert!(content.contains("100000000 bytes"), "{content}");
    assert_eq!(app.read("a.txt").len(), 10_000);
}

#[tokio::test]
async fn edit_that_misses_reports_lines_that_are_near() {
    let app = App::new();
    app.write("a.rs", "fn main() {\n    let total = count + 1;\n}\n");
    let miss = json!({"path": "a.rs", "old_string": "let  total = count+1;", "new_string": "x"});
    let (code, content) = app.error("Edit", miss).await;
    assert_eq!(code, "NotFound");
    assert!(content.contains("     2\t    let total = count + 1;"), "{content}");
    let far = json!({"path": "a.rs", "old_string": "completely different text", "new_string": "x"});
    assert!(app.error("Edit", far).await.1.contains("read the file again"));
}

#[tokio::test]
async fn edit_that_misses_reports_what_was_meant() {
    let app = App::new();
    app.write("a.rs", "fn main() {\n    one(2);\n}\n");
    let advice = async |old: &str, new: &str| {
        let args = json!({"path": "a.rs", "old_string": old, "new_string": new});
        app.error("Edit", args).await.1.lines().last().unwrap_or_default().to_owned()
    };
    assert!(advice("one(1);", "one(2);").await.ends_with("the change may have been made already"));
    assert!(advice("fn new() {", "fn new() {\n}").await.starts_with("to add lines, give"));
    assert!(advice("one(3);", "").await.contains("    one(2);"));
    assert!(advice("one(3);", "one(4);").await.contains("    one(2);"));
}

#[tokio::test]
async fn edit_keeps_the_line_ends_of_the_file() {
    let app = App::new();
    app.write("a.txt", "a\r\nb\r\nc\r\n");
    app.ok("Edit", json!({"path": "a.txt", "old_string": "a\nb", "new_string": "a\nx\nb"})).await;
    assert_eq!(app.read("a.txt"), "a\r\nx\r\nb\r\nc\r\n");
    app.write("bin", b"a\0b").write("latin", b"\xe9");
    assert!(app.error("Edit", json!({"path": "bin", "old_string": "a", "new_string": "b"})).await.1.contains("binary"));
    assert!(
        app.error("Edit", json!({"path": "latin", "old_string": "a", "new_string": "b"})).await.1.contains("not UTF-8")
    );
}
