//! What the router says about a request.

/// How far a decision can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The pipeline may run without a question.
    Sure,
    /// Likely, but a model or the user should confirm.
    Doubtful,
    /// The request fits none of the routes.
    Rejected,
}

/// A route and its score.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Name of the route.
    pub name: String,
    /// For the first one the decision's score, for the others at most what that leaves to one; 0..1.
    pub score: f64,
}

/// A word of the request and what it did for the first candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The word or phrase as it stands in the request, folded to lower case.
    pub text: String,
    /// Its part of the score: above zero for, below zero against. An unknown word has zero.
    pub weight: f64,
}

/// The measures that the confidence is computed from. The higher each is, the higher the score, all else equal.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Signals {
    /// Trained score of the first candidate: about 1 inside, -1 where nothing is shared.
    pub fit: f64,
    /// Its distance to the second candidate.
    pub lead: f64,
    /// Similarity of the nearest single text of the first candidate, 0..1.
    pub nearest: f64,
    /// Share of what the request says that any route knows, 0..1. Shown, not used: `nearest` falls with it already.
    pub coverage: f64,
    /// Similarity of meaning to the middle of the first candidate's texts, -1..1; 0 where meaning took no part.
    pub central: f64,
    /// Whether vectors of meaning took part.
    pub semantic: bool,
    /// Whether the request is, but for case and punctuation, a trigger or a name.
    pub exact: bool,
}

/// The answer of the router.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The chosen route; nothing where the request is rejected.
    pub best: Option<String>,
    /// Calibrated probability, 0..1, that the first candidate is right; also given where it is rejected.
    pub score: f64,
    /// Distance of the first two candidates' scores, 0..1; the score itself where there is one candidate.
    pub margin: f64,
    /// How far this can be trusted.
    pub verdict: Verdict,
    /// Best first, at most ten.
    pub candidates: Vec<Candidate>,
    /// The words that decided, strongest first.
    pub why: Vec<Evidence>,
    /// What the score was computed from.
    pub signals: Signals,
}
