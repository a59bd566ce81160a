//! Who is next: one call at a time, and clients take turns.

use std::collections::VecDeque;

/// Calls that wait. A client with many does not keep others waiting for all of them.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// Clients in the order of their turns, each with its calls in the order of their arrival.
    turns: VecDeque<(String, VecDeque<T>)>,
}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Self {
        Self { turns: VecDeque::new() }
    }

    /// All calls that wait.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.turns.iter().flat_map(|(_, calls)| calls)
    }

    /// Adds a call of `client`.
    pub(crate) fn push(&mut self, client: String, call: T) {
        match self.turns.iter_mut().find(|(known, _)| *known == client) {
            Some((_, calls)) => calls.push_back(call),
            None => self.turns.push_back((client, VecDeque::from([call]))),
        }
    }

    /// Takes the next call; its client then comes last.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let (client, mut calls) = self.turns.pop_front()?;
        let call = calls.pop_front();
        if !calls.is_empty() {
            self.turns.push_back((client, calls));
        }
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_and_keep_their_own_order() {
        let mut queue = Queue::new();
        for (client, call) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)] {
            queue.push(client.to_owned(), call);
        }
        assert_eq!(queue.iter().count(), 6);
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [1, 4, 5, 2, 6, 3]);
    }
}
