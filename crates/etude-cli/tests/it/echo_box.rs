//! The package `echo-box` and its variants.

use serde_json::Value;

use crate::ran::Ran;
use crate::test::Test;

const APP: &str = include_str!("../fixtures/echo-box/APP.md");
const BOX: &str = include_str!("../fixtures/echo-box/app/box.py");
const SKILL: &str = include_str!("../fixtures/echo-box/skills/echo-box-usage/SKILL.md");

/// Directory below the home, whose packages are approved. Those below the app are not.
pub(crate) const USER: &str = "home/.agents/apps";
pub(crate) const PROJECT: &str = "app/apps";

/// Writes the package below `root`, with pieces of its `APP.md` replaced.
pub(crate) fn put(test: &Test, root: &str, changes: &[(&str, &str)]) {
    let mut text = APP.to_owned();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replacen(old, new, 1);
    }
    test.put(&format!("{root}/echo-box/APP.md"), &text);
    test.put(&format!("{root}/echo-box/app/box.py"), BOX);
    test.put(&format!("{root}/echo-box/skills/echo-box-usage/SKILL.md"), SKILL);
}

/// A test with the user's own package, with pieces replaced.
pub(crate) fn with(changes: &[(&str, &str)]) -> Test {
    let test = Test::new();
    put(&test, USER, changes);
    test
}

/// Runs `etude apps run --format json FLAGS… echo-box WORDS…`.
pub(crate) fn run(test: &Test, flags: &[&str], words: &[&str]) -> Ran {
    test.run(&[&["apps", "run", "--format", "json"], flags, &["echo-box"], words].concat())
}

/// Words `AA_*` and `SK_*` of all diagnostics in a document.
pub(crate) fn words(document: &Value) -> Vec<String> {
    match document {
        Value::Array(items) => items.iter().flat_map(words).collect(),
        Value::Object(members) => {
            let own = members
                .get("name")
                .and_then(Value::as_str)
                .filter(|name| name.starts_with("AA_") || name.starts_with("SK_"));
            own.map(str::to_owned).into_iter().chain(members.values().flat_map(words)).collect()
        }
        _ => Vec::new(),
    }
}

/// Arguments with which the program was started, in the user's own package.
pub(crate) fn started(test: &Test) -> Vec<String> {
    test.read(&format!("{USER}/echo-box/app/state/started.log")).lines().map(str::to_owned).collect()
}

pub(crate) trait Judged {
    /// Checks the status, the exit status, and that words are among the diagnostics.
    fn is(self, status: &str, exit: i32, words: &[&str]) -> Self;
}

impl Judged for Ran {
    #[track_caller]
    fn is(self, status: &str, exit: i32, expected: &[&str]) -> Self {
        let ran = self.exit(exit).has("/status", status);
        let found = words(&ran.doc());
        for word in expected {
            assert!(found.iter().any(|name| name == word), "no {word} among {found:?}");
        }
        ran
    }
}
