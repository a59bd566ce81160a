//! Clauses that a comment cites: ids as in the lists, and the two short forms that prose uses.

use std::sync::LazyLock;

use super::list::clauses;

static IDS: LazyLock<Vec<&str>> = LazyLock::new(|| clauses().map(|clause| clause.id).collect());

/// Ids in a text, known or not: `A-3.3`, `B-GT5`, `AA-45`, `D-X01 to D-X06`, and after an id of system B also `case 93` for
/// `B-21.93`.
pub fn cited(text: &str) -> Vec<String> {
    let words: Vec<&str> = text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.')
        .map(|word| word.trim_end_matches(['.', '-']))
        .filter(|word| !word.is_empty())
        .collect();
    let mut found: Vec<String> = Vec::new();
    let (mut of_stages, mut cases) = (false, false);
    for (at, word) in words.iter().enumerate() {
        let id = if is_id(word) {
            cases = false;
            of_stages = word.starts_with("B-");
            Some((*word).to_owned())
        } else {
            cases = match *word {
                "case" | "cases" => of_stages,
                "and" | "to" => cases,
                word => cases && is_number(word),
            };
            (cases && is_number(word)).then(|| format!("B-21.{word}"))
        };
        let Some(id) = id else { continue };
        if at > 0
            && words[at - 1] == "to"
            && let Some(first) = found.last()
        {
            found.extend(between(first, &id));
        }
        found.push(id);
    }
    found
}

/// Ids of one kind between `first` and `last`, exclusive.
fn between(first: &str, last: &str) -> Vec<String> {
    let of_kind: Vec<&&str> = IDS.iter().filter(|id| kind(id) == kind(first)).collect();
    let place = |id: &str| of_kind.iter().position(|known| **known == id);
    match (place(first), place(last)) {
        (Some(from), Some(to)) if from < to => of_kind[from + 1..to].iter().map(|id| (**id).to_owned()).collect(),
        _ => Vec::new(),
    }
}

/// Common part of an id and its neighbours: `B-GT` of `B-GT5`, `B-` of `B-5.1`, `B-21.` of `B-21.93`.
fn kind(id: &str) -> &str {
    if id.starts_with("B-21.") {
        return "B-21.";
    }
    let number = id.find(|c: char| c.is_ascii_digit()).unwrap_or(id.len());
    &id[..number]
}

/// True for `A-3.3`, `X-2`, `B-20.3`, `B-GT5`, `C-1.13`, `AA-45`, `SK-22`, `S-36`, `K-16`, `D-4.3`, `D-X01`.
fn is_id(word: &str) -> bool {
    match word.split_once('-') {
        Some(("A", rest)) => rest.split('.').count() == 2 && rest.split('.').all(is_number),
        Some(("X" | "AA" | "SK" | "S" | "K", rest)) => is_number(rest),
        Some(("C", rest)) => rest.split('.').all(is_number),
        Some(("B" | "D", rest)) => {
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_uppercase());
            rest.split('.').all(is_number)
        }
        _ => false,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_every_system_are_seen() {
        for (text, expected) in [
            (" A-3.3, A-3.4: one document (see X-2).", vec!["A-3.3", "A-3.4", "X-2"]),
            (" B-GT5, case 93: the order.", vec!["B-GT5", "B-21.93"]),
            (" B-ST6, B-ID2, cases 120 and 121: killed", vec!["B-ST6", "B-ID2", "B-21.120", "B-21.121"]),
            (" B-20.3, B-21.141: a", vec!["B-20.3", "B-21.141"]),
            (
                " C-1.13, AA-45, SK-20; D-4.3, D-X01, D-0.1.9.",
                vec!["C-1.13", "AA-45", "SK-20", "D-4.3", "D-X01", "D-0.1.9"],
            ),
            (" K-12, K-40 to K-42: a fleet", vec!["K-12", "K-40", "K-41", "K-42"]),
            (" D-G01 to D-G04: globs", vec!["D-G01", "D-G02", "D-G03", "D-G04"]),
            (" B-5 to B-6.1: walks", vec!["B-5", "B-5.1", "B-5.2", "B-6", "B-6.1"]),
            (" B-P1, cases 99 to 101: walks", vec!["B-P1", "B-21.99", "B-21.100", "B-21.101"]),
            (" PA-1.1, A-1, X-1.2, B-tree, in case 3, UTF-8, C-c", vec![]),
        ] {
            assert_eq!(cited(text), expected, "{text}");
        }
    }
}
