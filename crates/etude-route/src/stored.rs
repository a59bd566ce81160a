//! Router as bytes, so that a large table is trained once and not for every request.
//!
//! Little-endian numbers and lengths, in the order of the fields. The caller must store a checksum with the bytes. Reading
//! checks only the numbers with which a decision could otherwise go out of bounds.

use crate::exact::Exact;
use crate::index::{Index, Text, Vocabulary};
use crate::router::Router;
use crate::semantic::Semantic;
use crate::spelling::Spelling;
use crate::train::Votes;
use crate::tuning::Tuning;

/// Version of the bytes and of everything that leads to them: features, tuning, training.
pub const FORMAT: u32 = 2;

impl Router {
    /// Bytes of the router. [`Router::from_bytes`] turns them into a router with the same decisions.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        out.number(FORMAT);
        out.number(self.names.len() as u32);
        for (name, thin) in self.names.iter().zip(&self.thin) {
            out.text(name);
            out.number(u32::from(*thin));
        }
        out.list(&self.exact.known, |out, (key, route)| {
            out.long(*key);
            out.number(*route);
        });
        out.list(&self.spelling.known, |out, (word, stem)| {
            out.text(&word.iter().collect::<String>());
            out.text(stem);
        });
        out.index(&self.index);
        out.votes(&self.votes);
        out.number(u32::from(self.semantic.is_some()));
        if let Some((semantic, votes)) = &self.semantic {
            out.number(semantic.width as u32);
            out.floats(&semantic.texts);
            out.floats(&semantic.routes);
            out.votes(votes);
        }
        out.0
    }

    /// Router from its bytes; `None` if they are something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        if from.number()? != FORMAT {
            return None;
        }
        let count = from.number()? as usize;
        let (mut names, mut thin) = (Vec::new(), Vec::new());
        for _ in 0..count {
            names.push(from.text()?);
            thin.push(from.number()? != 0);
        }
        let known = from.list(|from| Some((from.long()?, from.number()?)))?;
        let spelling = from.list(|from| Some((from.text()?.chars().collect(), from.text()?)))?;
        let index = from.index()?;
        let votes = from.votes()?;
        let semantic = match from.number()? {
            0 => None,
            _ => {
                let width = from.number()? as usize;
                let semantic = Semantic { width, texts: from.floats()?, routes: from.floats()? };
                Some((semantic, from.votes()?))
            }
        };
        let router = Self {
            names,
            thin,
            exact: Exact { known },
            spelling: Spelling { known: spelling },
            index,
            votes,
            semantic,
            tuning: Tuning::default(),
        };
        (from.0.is_empty() && router.is_sound()).then_some(router)
    }

    /// True if every index is within its list.
    fn is_sound(&self) -> bool {
        let (routes, texts) = (self.names.len() as u32, self.index.texts.len());
        let is_route = |route: u32| route < routes;
        let votes = |votes: &Votes| {
            is_steps(&votes.starts, texts, votes.all.len()) && votes.all.iter().all(|vote| is_route(vote.0))
        };
        let index = &self.index;
        let meaning = self.semantic.as_ref().is_none_or(|(semantic, by_meaning)| {
            semantic.texts.len() == semantic.width * texts
                && semantic.routes.len() == semantic.width * self.names.len()
                && votes(by_meaning)
        });
        // The search for the nearest word needs words of two letters or more.
        self.exact.known.iter().all(|known| is_route(known.1))
            && self.spelling.known.iter().all(|known| known.0.len() > 1)
            && index.texts.iter().all(|text| is_route(text.route))
            && is_steps(&index.starts, index.rarity.len(), index.postings.len())
            && index.postings.iter().all(|posting| (posting.0 as usize) < texts)
            && votes(&self.votes)
            && meaning
    }
}

/// True if `starts` are the starts of `count` consecutive lists with `total` members.
fn is_steps(starts: &[u32], count: usize, total: usize) -> bool {
    starts.len() == count + 1
        && starts.first() == Some(&0)
        && starts.last().is_some_and(|last| *last as usize == total)
        && starts.is_sorted()
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn long(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn list<T>(&mut self, all: &[T], write: impl Fn(&mut Self, &T)) {
        self.number(all.len() as u32);
        all.iter().for_each(|one| write(self, one));
    }

    fn numbers(&mut self, all: &[u32]) {
        self.list(all, |out, number| out.number(*number));
    }

    fn floats(&mut self, all: &[f32]) {
        self.list(all, |out, number| out.number(number.to_bits()));
    }

    fn pairs(&mut self, all: &[(u32, f32)]) {
        self.list(all, |out, (at, value)| {
            out.number(*at);
            out.number(value.to_bits());
        });
    }

    fn votes(&mut self, votes: &Votes) {
        self.numbers(&votes.starts);
        self.pairs(&votes.all);
    }

    fn index(&mut self, index: &Index) {
        let words = index.words.entries();
        self.list(&words, |out, (key, _)| out.long(*key));
        self.list(&words, |out, (_, number)| out.number(*number));
        self.floats(&index.rarity);
        self.number(index.unseen.to_bits());
        self.numbers(&index.starts);
        self.pairs(&index.postings);
        self.numbers(&index.texts.iter().map(|text| text.route).collect::<Vec<_>>());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Bytes of a list whose members have `size` bytes each.
    fn members(&mut self, size: usize) -> Option<&'a [u8]> {
        let count = self.number()? as usize;
        self.take(count.checked_mul(size)?)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4).map(number)
    }

    fn long(&mut self) -> Option<u64> {
        self.take(8).map(long)
    }

    fn text(&mut self) -> Option<String> {
        let bytes = self.members(1)?;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| read(self)).collect()
    }

    fn numbers(&mut self) -> Option<Vec<u32>> {
        Some(self.members(4)?.chunks_exact(4).map(number).collect())
    }

    fn floats(&mut self) -> Option<Vec<f32>> {
        Some(self.members(4)?.chunks_exact(4).map(|bytes| f32::from_bits(number(bytes))).collect())
    }

    fn pairs(&mut self) -> Option<Vec<(u32, f32)>> {
        let pair = |bytes: &[u8]| (number(&bytes[..4]), f32::from_bits(number(&bytes[4..])));
        Some(self.members(8)?.chunks_exact(8).map(pair).collect())
    }

    fn votes(&mut self) -> Option<Votes> {
        Some(Votes { starts: self.numbers()?, all: self.pairs()? })
    }

    fn index(&mut self) -> Option<Index> {
        let keys: Vec<u64> = self.members(8)?.chunks_exact(8).map(long).collect();
        let words = Vocabulary::sorted(keys, self.numbers()?)?;
        let (rarity, unseen) = (self.floats()?, f32::from_bits(self.number()?));
        let (starts, postings) = (self.numbers()?, self.pairs()?);
        let texts = self.numbers()?.into_iter().map(|route| Text { route, weight: 0.0, entries: Vec::new() }).collect();
        (words.len() == rarity.len()).then_some(Index { words, rarity, unseen, starts, postings, texts })
    }
}

/// Four bytes as a number; the callers take exactly that many.
fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
