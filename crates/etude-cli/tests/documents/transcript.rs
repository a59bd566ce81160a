//! Comparison of two texts, without parts that differ from run to run.

/// First line of `shown` that `seen` lacks at its place. A line `…` stands for any number of lines.
pub(crate) fn difference(shown: &str, seen: &str) -> Option<String> {
    let seen: Vec<String> = seen.lines().map(steady).collect();
    let mut at = 0;
    let mut may_skip = false;
    for line in shown.lines() {
        if line.trim() == "…" {
            may_skip = true;
            continue;
        }
        let wanted = steady(line);
        let ahead = if may_skip { seen[at..].iter().position(|line| *line == wanted) } else { Some(0) };
        match ahead {
            Some(ahead) if seen.get(at + ahead) == Some(&wanted) => at += ahead + 1,
            _ => return Some(format!("expected `{wanted}`, found `{}`", seen.get(at).map_or("the end", |line| line))),
        }
        may_skip = false;
    }
    (at < seen.len() && !may_skip).then(|| format!("expected the end, found `{}`", seen[at]))
}

/// Ids of runs in a text, in order, each once.
pub(crate) fn run_ids(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        if is_run_id(word) && !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
        }
    }
    found
}

/// A line without parts that differ from run to run: times, and the ids of runs.
fn steady(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.trim_end().split(' ') {
        let bare = word.trim_end_matches([',', '.', ':']);
        let is_unit = ["ms", "s", "min"].contains(&bare);
        let is_number = |word: &String| !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == '.');
        match words.last_mut() {
            Some(last) if is_unit && (is_number(last) || last == "TIME") => {
                *last = "TIME".to_owned();
                continue;
            }
            _ => {}
        }
        if is_of_a_clock(bare) {
            words.push("TIME".to_owned());
            continue;
        }
        words.push(run_ids(word).iter().fold(word.to_owned(), |word, id| word.replace(id.as_str(), "RUN")));
    }
    // A date and its time of day count as one time, like `1 min 5 s`.
    words.dedup_by(|next, last| next == "TIME" && last == "TIME");
    words.join(" ")
}

/// True for words such as `2026-11-22` and `00:07:26`.
fn is_of_a_clock(word: &str) -> bool {
    let digits: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    ["0000-00-00", "00:00:00"].contains(&digits.as_str())
}

/// True for an id of a run: sixteen digits and letters, of which four letters are excluded. One in 400 ids has no digit.
fn is_run_id(word: &str) -> bool {
    word.len() == 16 && word.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase() && !"ilou".contains(c))
}

#[test]
fn times_and_ids_of_runs_do_not_count() {
    let first = "  ✓ log 3 ms\n\nx succeeded in 1 min 2 s, run zgfmmqqsq2r2v7xc\n";
    let second = "  ✓ log 1.5 s\n\nx succeeded in 44 ms, run newprgerjbjteevv\n";
    assert_eq!(difference(first, second), None);
    assert_eq!(difference("at 2026-11-22 00:07:26, x\n", "at 2027-01-02 10:17:21, x\n"), None);
}

#[test]
fn other_words_count() {
    assert!(difference("a 3 files\n", "a 4 files\n").is_some());
    assert!(difference("a\n", "a\nb\n").is_some());
    assert!(difference("a\nb\n", "a\n").is_some());
    assert_eq!(difference("a\n…\nd\n", "a\nb\nc\nd\n"), None);
    assert_eq!(difference("a\n…\n", "a\nb\nc\n"), None);
    assert!(difference("a\n…\nd\n", "a\nb\n").is_some());
}
