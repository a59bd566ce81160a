//! Constants of the router.

/// Constants of features, training and decision, chosen on the train and validation parts of CLINC150.
#[derive(Debug, Clone)]
pub(crate) struct Tuning {
    /// Factor of a word on the stop list.
    pub(crate) stop: f32,
    /// Factor of a number.
    pub(crate) number: f32,
    /// Factor of a pair of words.
    pub(crate) pair: f32,
    /// Share of the words in the lexical similarity; the rest belongs to the letter sequences.
    pub(crate) words: f32,
    /// Power of the inverse route frequency.
    pub(crate) rarity: f32,
    /// Penalty of a training error (C of a squared-hinge machine).
    pub(crate) cost: f32,
    /// Penalty of a training error if all routes are trained at once.
    pub(crate) soft_cost: f32,
    /// Factor on the penalty of an error on one of the route's own texts.
    pub(crate) own: f32,
    /// Weight of a description as a training text.
    pub(crate) description: f32,
    /// Share of the semantic similarity, if there is one.
    pub(crate) semantic: f32,
    /// Weight of features that no route has in the length of a request.
    pub(crate) unknown: f32,
    /// Number of sweeps in training.
    pub(crate) sweeps: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            stop: 0.8,
            number: 0.5,
            pair: 0.8,
            words: 0.6,
            rarity: 0.6,
            cost: 0.5,
            soft_cost: 40.0,
            own: 5.0,
            description: 1.0,
            semantic: 0.7,
            unknown: 1.2,
            sweeps: 12,
        }
    }
}
