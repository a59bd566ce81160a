//! Decisions of the router about a request.

/// Confidence of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The pipeline may run without a question.
    Sure,
    /// Likely, but a model or the user should confirm.
    Doubtful,
    /// The request fits none of the routes.
    Rejected,
}

/// Route with its score.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Name of the route.
    pub name: String,
    /// Score in 0..1: for the first candidate that of the decision, for the others at most the rest up to one.
    pub score: f64,
}

/// Word of the request, with its effect on the score of the first candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The word or phrase from the request, in lower case.
    pub text: String,
    /// Part of the score: positive for the candidate, negative against it, zero for an unknown word.
    pub weight: f64,
}

/// Measures from which the confidence is computed. The score rises with each of them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Signals {
    /// Trained score of the first candidate: about 1 for a member, -1 if nothing is shared.
    pub fit: f64,
    /// Distance of its score to that of the second candidate.
    pub lead: f64,
    /// Similarity of the nearest single text of the first candidate, 0..1.
    pub nearest: f64,
    /// Share of the request that any route knows, 0..1. It is shown and not used, because `nearest` falls with it.
    pub coverage: f64,
    /// Similarity of meaning to the mean of the first candidate's texts, -1..1; 0 without meaning.
    pub central: f64,
    /// True if vectors of meaning were used.
    pub semantic: bool,
    /// True if the request is a trigger or a name, apart from case and punctuation.
    pub exact: bool,
}

/// Decision of the router about a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The chosen route; `None` if the request is rejected.
    pub best: Option<String>,
    /// Calibrated probability, 0..1, that the first candidate is right; also present for a rejected request.
    pub score: f64,
    /// Distance of the first two candidates' scores, 0..1; the score itself if there is one candidate.
    pub margin: f64,
    /// Confidence of the decision.
    pub verdict: Verdict,
    /// Best candidates first, at most ten.
    pub candidates: Vec<Candidate>,
    /// Words with the largest effect, strongest first.
    pub why: Vec<Evidence>,
    /// Measures behind the score.
    pub signals: Signals,
}
