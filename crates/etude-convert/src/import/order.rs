//! Order of steps and jobs that depend on each other.

use std::collections::{BTreeMap, BTreeSet};

/// Item to order: the names by which others need it, and the names that it needs.
pub(super) struct Dependent {
    /// Names by which others need it.
    pub(super) names: Vec<String>,
    /// Names that it needs.
    pub(super) needs: Vec<String>,
}

/// Indices of the items, each after all that it needs and otherwise in their order; then the indices of the items without an
/// order. Those need each other, or a name that no item has.
pub(super) fn in_order(items: &[Dependent]) -> (Vec<usize>, Vec<usize>) {
    let mut known: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        item.names.iter().for_each(|name| known.entry(name).or_default().push(index));
    }
    // Each item waits for its distinct names; a name is present once the first item with it is done.
    let needs: Vec<BTreeSet<&str>> = items.iter().map(|item| item.needs.iter().map(String::as_str).collect()).collect();
    let mut waiting: Vec<usize> = needs.iter().map(BTreeSet::len).collect();
    let mut dependants: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, names) in needs.iter().enumerate() {
        names
            .iter()
            .filter(|name| known.contains_key(*name))
            .for_each(|name| dependants.entry(name).or_default().push(index));
    }
    let mut ready: BTreeSet<usize> = (0..items.len()).filter(|index| waiting[*index] == 0).collect();
    let mut done = Vec::new();
    while let Some(next) = ready.pop_first() {
        done.push(next);
        for index in items[next].names.iter().filter_map(|name| dependants.remove(name.as_str())).flatten() {
            waiting[index] -= 1;
            if waiting[index] == 0 {
                ready.insert(index);
            }
        }
    }
    let placed: BTreeSet<usize> = done.iter().copied().collect();
    (done, (0..items.len()).filter(|index| !placed.contains(index)).collect())
}

/// The first item of `order` that does not need the item before it, after that item. It runs in the original even if the other
/// failed.
pub(super) fn independent(items: &[Dependent], order: &[usize]) -> Option<(usize, usize)> {
    let needs = |item: &Dependent, other: &Dependent| item.needs.iter().any(|name| other.names.contains(name));
    let pairs = order.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.into_iter().find(|(before, item)| !needs(&items[*item], &items[*before]))
}

/// Reason of the finding about an item that [`independent`] returns, with the names of both.
pub(super) fn after_failure([before, item]: [&str; 2]) -> String {
    format!("`{item}` does not need `{before}` and runs there even if `{before}` fails; here a failure ends the run")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependent(names: &[&str], needs: &[&str]) -> Dependent {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Dependent { names: texts(names), needs: texts(needs) }
    }

    #[test]
    fn items_come_after_what_they_need() {
        let items = [
            dependent(&["deploy"], &["test", "build", "test"]),
            dependent(&["test", "t"], &["build"]),
            dependent(&["build"], &[]),
            dependent(&["a"], &["b"]),
            dependent(&["b"], &["a"]),
            dependent(&["lost"], &["nothing"]),
            dependent(&["self"], &["self"]),
            dependent(&["last"], &["t"]),
        ];
        assert_eq!(in_order(&items), (vec![2, 1, 0, 7], vec![3, 4, 5, 6]));
    }

    #[test]
    fn items_that_run_after_a_failure_are_found() {
        let chain = [dependent(&["a"], &[]), dependent(&["b"], &["a"]), dependent(&["c"], &["a", "b"])];
        assert_eq!(independent(&chain, &[0, 1, 2]), None);
        let apart = [dependent(&["a"], &[]), dependent(&["b"], &["a"]), dependent(&["c"], &["a"])];
        assert_eq!(independent(&apart, &[0, 1, 2]), Some((1, 2)));
        assert_eq!(independent(&apart[..1], &[0]), None);
    }

    /// A file within its limits takes no time that grows with the square of its length.
    #[test]
    fn long_chains_are_put_in_order() {
        const COUNT: usize = 50_000;
        let items: Vec<Dependent> = (0..COUNT)
            .map(|n| dependent(&[&format!("s{n}")], &[&format!("s{}", n + 1)]))
            .chain([dependent(&[&format!("s{COUNT}")], &[])])
            .collect();
        let (done, left) = in_order(&items);
        assert_eq!((done.first(), done.len(), left.len()), (Some(&COUNT), COUNT + 1, 0));
    }
}
