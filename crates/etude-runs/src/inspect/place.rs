//! The place of an effect in its step: element, attempt and turn, parsed from its id.

/// The place of an effect in a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectPlace {
    /// Index of the element of a `for_each`, from 0.
    pub element: Option<usize>,
    /// Number of the attempt, or of the visit of a stage, from 1.
    pub attempt: u32,
    /// Number of the agent's turn, from 1.
    pub turn: Option<u32>,
    /// Part of the attempt, such as `validate`, `Read[0]` or `!backoff1`; empty for the step's own work.
    pub part: String,
}

impl EffectPlace {
    /// The place of the effect `id` in a step of this name, in any phase; `None` if it belongs to another step.
    pub fn of(id: &str, step: &str) -> Option<Self> {
        Self::below(id, step, |_| true)
    }

    /// The place of the effect `id` in the step `step` of a phase; `None` if it belongs to another step. Above the step are only
    /// groups, for which `is_group` is true: a step of a pipeline that another step runs belongs to that other step.
    pub fn in_phase(id: &str, phase: &str, step: &str, is_group: impl Fn(&str) -> bool) -> Option<Self> {
        let of_effect = match Segment::parse(id.split('/').next()?).name {
            "_constructor" => "constructor",
            "_destructor" => "destructor",
            _ => "business",
        };
        let is_scope = ["constructor", "destructor"].contains(&phase);
        let is_own = if is_scope { of_effect == phase } else { of_effect == "business" };
        Self::below(id, step, is_group).filter(|_| is_own)
    }

    fn below(id: &str, step: &str, is_above: impl Fn(&str) -> bool) -> Option<Self> {
        let mut segments = id.split('/');
        // The first segment is the pipeline.
        segments.next()?;
        let mut place = Self { attempt: 1, ..Self::default() };
        loop {
            let segment = Segment::parse(segments.next()?);
            place.element = segment.index.or(place.element);
            if segment.name == step {
                place.attempt = segment.attempt;
                place.part = segment.aside.map(|aside| format!("!{aside}")).unwrap_or_default();
                break;
            }
            if !is_above(segment.name) {
                return None;
            }
        }
        for segment in segments {
            match segment.strip_prefix("turn").and_then(|number| number.parse().ok()) {
                Some(turn) if place.turn.is_none() => place.turn = Some(turn),
                _ if place.part.is_empty() => segment.clone_into(&mut place.part),
                _ => place.part = format!("{}/{segment}", place.part),
            }
        }
        Some(place)
    }

    /// The place as a heading: `element 7, attempt 2, turn 3, validate`.
    pub fn title(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.element.map(|element| format!("element {element}")));
        match self.turn {
            Some(turn) => parts.push(format!("turn {turn}")),
            None => parts.push(format!("attempt {}", self.attempt)),
        }
        if !self.part.is_empty() {
            parts.push(self.part.trim_start_matches('!').to_owned());
        }
        parts.join(", ")
    }
}

/// One part of an effect's id: `NAME[INDEX]@INCARNATION#ATTEMPT!ASIDE`.
struct Segment<'a> {
    name: &'a str,
    index: Option<usize>,
    attempt: u32,
    aside: Option<&'a str>,
}

impl<'a> Segment<'a> {
    fn parse(text: &'a str) -> Self {
        let (text, aside) = match text.split_once('!') {
            Some((text, aside)) => (text, Some(aside)),
            None => (text, None),
        };
        let (text, attempt) = match text.split_once('#') {
            Some((text, attempt)) => (text, attempt.parse().unwrap_or(1)),
            None => (text, 1),
        };
        let text = text.split_once('@').map_or(text, |(text, _)| text);
        match text.split_once('[') {
            Some((name, index)) => {
                let last = index.trim_end_matches(']').rsplit("][").next().unwrap_or_default();
                Self { name, index: last.parse().ok(), attempt, aside }
            }
            None => Self { name: text, index: None, attempt, aside },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn title(id: &str, step: &str) -> Option<String> {
        EffectPlace::of(id, step).map(|place| place.title())
    }

    #[test]
    fn an_effect_is_named_by_element_attempt_and_turn() {
        assert_eq!(title("p/ask", "ask").as_deref(), Some("attempt 1"));
        assert_eq!(title("p/ask[7]#2/validate", "ask").as_deref(), Some("element 7, attempt 2, validate"));
        assert_eq!(title("p/group[3]/child#2", "child").as_deref(), Some("element 3, attempt 2"));
        assert_eq!(title("p/group[3]/child#2", "group").as_deref(), Some("element 3, attempt 1, child#2"));
        assert_eq!(title("skill/helper/turn2/Read[0]", "helper").as_deref(), Some("turn 2, Read[0]"));
        assert_eq!(title("p/bad!backoff1", "bad").as_deref(), Some("attempt 1, backoff1"));
        assert_eq!(title("p/other", "ask"), None);
        assert_eq!(title("ask/other", "ask"), None);
    }

    /// S-61: steps of the same name in other phases, and in a pipeline that a step runs, are other steps.
    #[test]
    fn an_effect_belongs_to_the_step_of_its_phase() {
        let is_of = |id: &str, phase: &str, step: &str| {
            EffectPlace::in_phase(id, phase, step, |name| name == "group").is_some()
        };
        for (id, phase) in [("_constructor/a", "constructor"), ("p/a#2", "business"), ("_destructor@2/a", "destructor")]
        {
            for other in ["constructor", "business", "destructor"] {
                assert_eq!(is_of(id, other, "a"), other == phase, "{id} in {other}");
            }
        }
        assert!(is_of("skill/helper/turn2/Read[0]", "skill", "helper"));
        assert!(is_of("p/sub/a", "business", "sub") && !is_of("p/sub/a", "business", "a"));
        let child = EffectPlace::in_phase("p/group[3]/child#2", "business", "child", |name| name == "group");
        assert_eq!(child.map(|place| place.title()).as_deref(), Some("element 3, attempt 2"));
        assert!(is_of("p/group[3]/child#2", "business", "group"));
    }
}
