//! Texts of all routes as weighted vectors, and lists that find the texts which share a feature with a request.

use crate::features::{Block, Feature};
use crate::tuning::Tuning;

/// Maximum number of texts of an indexed feature in a large table: more frequent features decide nothing and cost the most.
const COMMON: usize = 1024;

/// Text of a route.
#[derive(Debug)]
pub(crate) struct Text {
    /// Index of its route.
    pub route: u32,
    /// Weight of an error on it in training.
    pub weight: f32,
    /// Feature and value, in order of the feature. Only training needs them: a router that was stored has none.
    pub entries: Vec<(u32, f32)>,
}

/// Request in the same space.
#[derive(Debug)]
pub(crate) struct Query {
    /// Feature, value, and index of the token that it came from.
    pub entries: Vec<(u32, f32, u32)>,
}

/// All texts, by text and by feature.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) words: Vocabulary,
    pub(crate) rarity: Vec<f32>,
    pub(crate) unseen: f32,
    pub(crate) starts: Vec<u32>,
    pub(crate) postings: Vec<(u32, f32)>,
    /// Texts in order of their routes.
    pub texts: Vec<Text>,
}

impl Index {
    /// Builds the index of texts given as (route, weight, features), in order of their routes.
    pub(crate) fn new(routes: usize, raw: Vec<(u32, f32, Vec<Feature>)>, tuning: &Tuning) -> Self {
        let mut words = Vocabulary::default();
        let mut held = Vec::new();
        let mut last = Vec::new();
        for (route, _, features) in &raw {
            for feature in features {
                let id = words.insert(feature.id) as usize;
                if id == held.len() {
                    held.push(0_u32);
                    last.push(u32::MAX);
                }
                if last[id] != *route {
                    last[id] = *route;
                    held[id] += 1;
                }
            }
        }
        let rarity = |held: u32| (1.0 + (routes as f32 + 0.5) / (held as f32 + 0.5)).ln().powf(tuning.rarity);
        let mut index = Self {
            rarity: held.iter().map(|h| rarity(*h)).collect(),
            unseen: rarity(0),
            words,
            starts: Vec::new(),
            postings: Vec::new(),
            texts: Vec::with_capacity(raw.len()),
        };
        for (route, weight, features) in raw {
            let mut entries: Vec<(u32, f32)> =
                index.query(&features, tuning).entries.into_iter().map(|(id, value, _)| (id, value)).collect();
            entries.sort_unstable_by_key(|e| e.0);
            index.texts.push(Text { route, weight, entries });
        }
        index.invert();
        index
    }

    fn invert(&mut self) {
        let mut sizes = vec![0_u32; self.rarity.len() + 1];
        for (id, _) in self.texts.iter().flat_map(|t| &t.entries) {
            sizes[*id as usize + 1] += 1;
        }
        if self.texts.len() > 2 * COMMON {
            for size in &mut sizes {
                if *size as usize > COMMON {
                    *size = 0;
                }
            }
        }
        for at in 1..sizes.len() {
            sizes[at] += sizes[at - 1];
        }
        self.starts = sizes;
        let mut next = self.starts.clone();
        self.postings = vec![(0, 0.0); *self.starts.last().unwrap_or(&0) as usize];
        for (at, text) in self.texts.iter().enumerate() {
            for (id, value) in &text.entries {
                let id = *id as usize;
                if next[id] < self.starts[id + 1] {
                    self.postings[next[id] as usize] = (at as u32, *value);
                    next[id] += 1;
                }
            }
        }
    }

    /// Texts with a feature, each with its value there.
    pub(crate) fn holders(&self, id: u32) -> &[(u32, f32)] {
        let id = id as usize;
        &self.postings[self.starts[id] as usize..self.starts[id + 1] as usize]
    }

    /// Projects features into the space. Features that no route has count only in the length.
    pub(crate) fn query(&self, features: &[Feature], tuning: &Tuning) -> Query {
        let mut length = [0.0_f32; 2];
        let mut entries = Vec::with_capacity(features.len());
        for feature in features {
            let block = usize::from(feature.block == Block::Letters);
            if let Some(id) = self.words.get(feature.id) {
                let value = feature.weight * self.rarity[id as usize];
                length[block] += value * value;
                entries.push((id, value, feature.token, block));
            } else {
                let value = feature.weight * self.unseen * tuning.unknown;
                length[block] += value * value;
            }
        }
        let share = match (length[0] > 0.0, length[1] > 0.0) {
            (true, true) => [tuning.words, 1.0 - tuning.words],
            _ => [1.0, 1.0],
        };
        let scale = [0, 1].map(|b| if length[b] > 0.0 { (share[b] / length[b]).sqrt() } else { 0.0 });
        Query {
            entries: entries.into_iter().map(|(id, value, token, block)| (id, value * scale[block], token)).collect(),
        }
    }

    /// Number of features.
    pub(crate) fn features(&self) -> usize {
        self.rarity.len()
    }

    /// Rarity of a feature, and true if any route has it.
    pub(crate) fn rarity(&self, id: u64) -> (f32, bool) {
        self.words.get(id).map_or((self.unseen, false), |at| (self.rarity[at as usize], true))
    }

    /// Adds the similarity of every text to `into`, which has one entry per text.
    pub(crate) fn similarities(&self, entries: impl Iterator<Item = (u32, f32)>, into: &mut [f32]) {
        for (id, value) in entries {
            for (text, held) in self.holders(id) {
                into[*text as usize] += value * held;
            }
        }
    }
}

/// Open-addressing table from hashes to small numbers, in order of first appearance.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    slots: Vec<(u64, u32)>,
    count: u32,
    /// Sorted hashes and their numbers, in place of slots: a read-only table needs less memory.
    sorted: (Vec<u64>, Vec<u32>),
}

impl Vocabulary {
    fn place(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = key as usize & mask;
        while self.slots[at].1 != u32::MAX && self.slots[at].0 != key {
            at = (at + 1) & mask;
        }
        at
    }

    /// Table of these sorted hashes with their numbers; `None` if they are not sorted or a number is too large.
    pub(crate) fn sorted(keys: Vec<u64>, numbers: Vec<u32>) -> Option<Self> {
        let is_table = keys.len() == numbers.len()
            && keys.is_sorted_by(|a, b| a < b)
            && numbers.iter().all(|number| (*number as usize) < keys.len());
        is_table.then(|| Self { slots: Vec::new(), count: keys.len() as u32, sorted: (keys, numbers) })
    }

    /// Number of hashes.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// Sorted hashes, each with its number.
    pub(crate) fn entries(&self) -> Vec<(u64, u32)> {
        let (keys, numbers) = &self.sorted;
        let sorted = keys.iter().copied().zip(numbers.iter().copied());
        let mut entries: Vec<(u64, u32)> =
            self.slots.iter().copied().filter(|slot| slot.1 != u32::MAX).chain(sorted).collect();
        entries.sort_unstable();
        entries
    }

    fn get(&self, key: u64) -> Option<u32> {
        if self.slots.is_empty() {
            let (keys, numbers) = &self.sorted;
            return keys.binary_search(&key).ok().map(|at| numbers[at]);
        }
        let slot = self.slots[self.place(key)];
        (slot.1 != u32::MAX).then_some(slot.1)
    }

    fn insert(&mut self, key: u64) -> u32 {
        if self.slots.len() <= self.count as usize * 2 {
            self.grow();
        }
        let at = self.place(key);
        if self.slots[at].1 == u32::MAX {
            self.slots[at] = (key, self.count);
            self.count += 1;
        }
        self.slots[at].1
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(1024);
        let old = std::mem::replace(&mut self.slots, vec![(0, u32::MAX); size]);
        for slot in old.into_iter().filter(|slot| slot.1 != u32::MAX) {
            let at = self.place(slot.0);
            self.slots[at] = slot;
        }
    }
}
