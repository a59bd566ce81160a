//! What a run is a run of, as the journal names it.

use std::fmt;

/// What a run is a run of. In the journal a pipeline is its name alone; everything else has a word before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A pipeline, by name.
    Pipeline(String),
    /// Skill mode: the app's own `SKILL.md`, by the name in it.
    Skill(String),
    /// A machine of stages, by id.
    Machine(String),
}

impl Target {
    /// The target that the journal's text names.
    pub fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some(("skill", name)) => Self::Skill(name.to_owned()),
            Some(("machine", name)) => Self::Machine(name.to_owned()),
            _ => Self::Pipeline(text.to_owned()),
        }
    }

    /// The pipeline, if it is one.
    pub fn pipeline(&self) -> Option<&str> {
        match self {
            Self::Pipeline(name) => Some(name),
            Self::Skill(_) | Self::Machine(_) => None,
        }
    }

    /// The machine, if it is one.
    pub fn machine(&self) -> Option<&str> {
        match self {
            Self::Machine(name) => Some(name),
            Self::Pipeline(_) | Self::Skill(_) => None,
        }
    }

    /// The word in `mode` of runs in skill mode.
    pub const SKILL: &'static str = "skill";

    /// The word in `mode` that `text` is; that of a pipeline if it is none.
    pub fn mode_of(text: &str) -> &'static str {
        match text {
            "skill" => Self::SKILL,
            "machine" => "machine",
            _ => "pipeline",
        }
    }

    /// The word in `mode` of result documents.
    pub const fn mode(&self) -> &'static str {
        match self {
            Self::Pipeline(_) => "pipeline",
            Self::Skill(_) => Self::SKILL,
            Self::Machine(_) => "machine",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipeline(name) => f.write_str(name),
            Self::Skill(name) => write!(f, "skill:{name}"),
            Self::Machine(name) => write!(f, "machine:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_survives_the_journal() {
        for target in [Target::Pipeline("a".into()), Target::Skill("b".into()), Target::Machine("c".into())] {
            assert_eq!(Target::parse(&target.to_string()), target);
        }
    }
}
