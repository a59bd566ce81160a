//! Checks that doc comments begin with their subject, and that those of public items add something to the name.

use std::collections::BTreeSet;

use crate::language::parts;
use crate::rust::{line_of, occurrences};
use crate::tree::{Tree, Violation};

/// Words that add nothing to a name: articles, possessives, pronouns and what joins them.
const EMPTY: &[&str] = &[
    "a", "all", "an", "and", "any", "are", "as", "at", "be", "by", "each", "every", "for", "from", "her", "his", "how",
    "in", "is", "it", "its", "of", "on", "one", "or", "our", "s", "that", "the", "their", "these", "they", "this",
    "those", "to", "was", "what", "when", "where", "which", "who", "why", "with",
];

/// Finds doc comments of public items that consist only of empty words and words of the item: of its name, its parameters and
/// its type.
pub fn restated(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources() {
        let public = Public::parse(&source.code);
        for comment in comments(&source.text, "///") {
            let blanks = source.text[comment.end..].bytes().take_while(u8::is_ascii_whitespace).count();
            let Some(head) = public.head(&source.code, comment.end + blanks) else { continue };
            if restates(&comment.text, head) {
                let what = format!(
                    "`{}` says what `{}` says; write the meaning: unit, form, origin, order, what `None` means, or the \
                     clause. Or make the item private (docs/style.md, Documentation of items)",
                    comment.text,
                    head.trim()
                );
                found.push(Violation::at(&source.path, line_of(&source.text, comment.start), what));
            }
        }
    }
    found
}

/// First words of clauses without a head noun: `What a handler returns.`
const HEADLESS: &[&str] = &["What", "Whatever", "Who", "Whose", "Whom", "Whether", "How", "Which", "Where"];

/// Minimum number of words of a main clause: `a thread waits`.
const MIN_CLAUSE: usize = 3;

/// Finds doc comments that begin with a clause without a head noun (`language.md`, rules 2 and 3). A condition is allowed. A
/// main clause follows its comma: `Where the kernel has no pidfd, a thread waits.`
pub fn headless(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources() {
        for comment in comments(&source.text, "///").into_iter().chain(comments(&source.text, "//!")) {
            let sentence = comment.text.split(". ").next().unwrap_or_default();
            let first = sentence.split(' ').next().unwrap_or_default();
            let main = sentence.split_once(", ").map_or(0, |(_, clause)| clause.split(' ').count());
            let is_condition = first == "Where" && main >= MIN_CLAUSE;
            if HEADLESS.contains(&first) && !is_condition {
                let what =
                    format!("`{sentence}` begins without a subject; lead with a noun, or a verb in the third person");
                found.push(Violation::at(&source.path, line_of(&source.text, comment.start), what));
            }
        }
    }
    found
}

/// The doc comment in front of an item.
struct Comment {
    /// Start of its first line, as a byte offset.
    start: usize,
    /// End of its last line, as a byte offset.
    end: usize,
    /// Text of its lines, joined by blanks.
    text: String,
}

/// All blocks of lines that begin with `mark`, including those in literals and tests.
fn comments(text: &str, mark: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let (mut at, mut goes_on) = (0, false);
    for line in text.split_inclusive('\n') {
        match line.trim_start().strip_prefix(mark).map(str::trim) {
            Some(text) if goes_on => {
                if let Some(last) = found.last_mut() {
                    last.end = at + line.len();
                    last.text.extend([" ", text]);
                }
            }
            Some(text) => {
                goes_on = true;
                found.push(Comment { start: at, end: at + line.len(), text: text.to_owned() });
            }
            None => goes_on = false,
        }
        at += line.len();
    }
    found
}

/// Positions of the braces of public enums and traits, whose items are public without a `pub`.
struct Public(Vec<(usize, bool)>);

impl Public {
    fn parse(code: &str) -> Self {
        let (mut changes, mut open, mut head) = (Vec::new(), Vec::<Braces>::new(), 0);
        for (at, byte) in code.bytes().enumerate() {
            match byte {
                b'{' => {
                    let braces = Braces::of(&code[head..at], open.last());
                    open.push(braces);
                }
                b'}' => {
                    open.pop();
                }
                b';' => {}
                _ => continue,
            }
            head = at + 1;
            changes.push((at, open.last().is_some_and(|braces| *braces != Braces::Other)));
        }
        Self(changes)
    }

    /// Declaration of the item at `at`, up to its body or value. `None` if it is not public, or if `at` is in a literal or a
    /// test, which are blanked.
    fn head<'c>(&self, code: &'c str, at: usize) -> Option<&'c str> {
        let is_code = code.as_bytes().get(at).is_some_and(|byte| !byte.is_ascii_whitespace());
        let start = behind_attributes(code, at).filter(|_| is_code)?;
        let line = code.get(start..)?.lines().next()?;
        let after = self.0.partition_point(|(at, _)| *at < start);
        let is_inside = after.checked_sub(1).is_some_and(|before| self.0[before].1);
        let head = line.split(['{', ';']).next()?;
        let head = head.split_once(" = ").map_or(head, |(head, _)| head);
        (is_inside || line.starts_with("pub ")).then_some(head)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Braces {
    Enum,
    Trait,
    Other,
}

impl Braces {
    /// Kind of the braces behind `head`. The fields of an enum's variant are as public as the enum.
    fn of(head: &str, outer: Option<&Self>) -> Self {
        let is = |word: &str| occurrences(head, word).any(|at| head[..at].trim_end().ends_with("pub"));
        match (is("enum"), is("trait"), outer) {
            (true, _, _) | (_, _, Some(Self::Enum)) => Self::Enum,
            (_, true, _) => Self::Trait,
            _ => Self::Other,
        }
    }
}

/// Start of the item whose attributes begin at `at`; `None` if an attribute has no end.
fn behind_attributes(code: &str, mut at: usize) -> Option<usize> {
    loop {
        at += code[at..].bytes().take_while(u8::is_ascii_whitespace).count();
        if !code[at..].starts_with("#[") {
            return Some(at);
        }
        let mut depth = 0_usize;
        at += 1 + code[at..].bytes().skip(1).position(|byte| {
            depth = if byte == b'[' { depth + 1 } else { depth - usize::from(byte == b']') };
            depth == 0
        })?;
        at += 1;
    }
}

/// True if `comment` has words, and none of them is new to a reader of `head`.
fn restates(comment: &str, head: &str) -> bool {
    let known: BTreeSet<String> = words(head).flat_map(parts).map(|part| stem(&part)).collect();
    let is_known = |word: &str| {
        let mut parts = parts(word).into_iter();
        EMPTY.contains(&word.to_ascii_lowercase().as_str()) || parts.all(|part| known.contains(&stem(&part)))
    };
    words(comment).next().is_some() && words(comment).all(is_known)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// A word without the ending of a plural or a verb.
fn stem(word: &str) -> String {
    let endings = ["ings", "ing", "ies", "es", "ed", "s", "d", "y", "e"];
    let stems = endings.iter().filter_map(|end| word.strip_suffix(end)).find(|stem| stem.len() >= 3);
    stems.unwrap_or(word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Vec<usize> {
        let text = format!("//! A.\n{text}");
        restated(&Tree::made_up(&[("crates/a/src/a.rs", &text)])).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn comments_that_only_restate_are_seen_on_every_kind_of_public_item() {
        for text in [
            "/// A run.\npub struct Run;",
            "/// The run's rows.\n#[derive(Debug, Clone)]\n#[serde(rename_all = \"a]\")]\npub struct RunRow<'a> {\n",
            "/// Its id.\npub fn id(&self) -> &str {",
            "/// Starts the run.\npub async fn start_run() {}",
            "/// The value at a path.\npub fn at(value: &Value, path: &[String]) -> Value {}",
            "/// All targets.\npub const TARGETS: &[Target] = &[FIRST];",
            "/// `retryPolicy`.\npub static RETRY_POLICY: Object = Object { name: \"a\" };",
        ] {
            assert_eq!(seen(text), [2], "{text}");
        }
        assert_eq!(
            seen("pub struct S {\n    /// The run.\n    pub run_id: String,\n    /// Why.\n    pub why: W,\n}"),
            [3, 5]
        );
        assert_eq!(seen("pub struct S {\n    /// The\n    /// record.\n    pub inner: Record,\n}"), [3]);
    }

    #[test]
    fn what_is_in_public_enums_and_traits_is_public() {
        let variants = "    /// It failed.\n    Failed {\n        /// The key.\n        key: String,\n    },\n    /// Null.\n    Null,\n";
        assert_eq!(seen(&format!("pub enum E {{\n{variants}}}")), [3, 5, 8]);
        assert_eq!(seen(&format!("words! {{\n    #[derive(A, B)]\n    pub enum E {{\n{variants}}}\n}}")), [5, 7, 10]);
        assert_eq!(seen(&format!("pub(crate) enum E {{\n{variants}}}")), [0; 0]);
        assert_eq!(seen("pub trait T {\n    /// The name.\n    fn name(&self) -> &str;\n}"), [3]);
        assert_eq!(seen("impl T for S {\n    /// The name.\n    fn name(&self) -> &str {}\n}"), [0; 0]);
    }

    #[test]
    fn a_word_more_is_enough_and_private_items_and_tests_are_not_read() {
        for text in [
            "/// The id of the run that was refused.\npub run_id: String,",
            "/// The run (A-5.4).\npub run: Run,",
            "/// `${{ … }}`.\npub static EXPRESSION: A = B;",
            "/// The value of `retryPolicy`.\npub static RETRY_POLICY: Object = Object { name: \"value\" };",
            "/// The response.\n///\n/// # Errors\n/// The peer closed the connection.\npub fn response() {}",
            "/// The run.\nstruct Run;",
            "/// The run.\npub(crate) struct Run;",
            "const A: &str = \"\n/// The run.\npub struct Run;\n\";",
            "#[cfg(test)]\nmod tests {\n    /// The run.\n    pub struct Run;\n}",
            "/// The run.",
        ] {
            assert_eq!(seen(text), [0; 0], "{text}");
        }
    }

    #[test]
    fn comments_without_a_subject_are_seen_in_modules_and_on_private_items() {
        let seen = |text: &str| headless(&Tree::made_up(&[("crates/a/src/a.rs", text)])).len();
        for text in [
            "//! What a run reports.",
            "/// How often it is asked.\nconst TIMES: u8 = 3;",
            "    /// Where it ends, in bytes.\n    end: usize,",
            "/// Whether it follows.\nfn follows() {}",
        ] {
            assert_eq!(seen(text), 1, "{text}");
        }
        for text in [
            "//! Progress events of a run.",
            "/// Number of attempts.\n/// What comes later is ignored.\nconst TIMES: u8 = 3;",
            "/// Where the kernel has no pidfd, a thread waits.\nfn wait() {}",
            "/// Returns true if it follows.\nfn follows() {}",
        ] {
            assert_eq!(seen(text), 0, "{text}");
        }
    }

    #[test]
    fn the_message_says_what_to_write() {
        let tree = Tree::made_up(&[("crates/a/src/a.rs", "/// Why.\npub why: String,\n")]);
        let message = restated(&tree)[0].to_string();
        assert!(message.starts_with("crates/a/src/a.rs:1: `Why.` says what `pub why: String,` says"), "{message}");
        assert!(message.contains("what `None` means"), "{message}");
    }
}
