//! The target of a run, as the journal names it.

use std::fmt;

/// The target of a run. In the journal a pipeline is its name alone; the other kinds have a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A pipeline, by name.
    Pipeline(String),
    /// Skill mode: the app's own `SKILL.md`, by the name in it.
    Skill(String),
    /// A stage machine, by id.
    Machine(String),
}

impl Target {
    /// Parses the text in the journal.
    pub fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some(("skill", name)) => Self::Skill(name.to_owned()),
            Some(("machine", name)) => Self::Machine(name.to_owned()),
            _ => Self::Pipeline(text.to_owned()),
        }
    }

    /// Name of the pipeline; `None` for another kind of target.
    pub fn pipeline(&self) -> Option<&str> {
        match self {
            Self::Pipeline(name) => Some(name),
            Self::Skill(_) | Self::Machine(_) => None,
        }
    }

    /// Id of the stage machine; `None` for another kind of target.
    pub fn machine(&self) -> Option<&str> {
        match self {
            Self::Machine(name) => Some(name),
            Self::Pipeline(_) | Self::Skill(_) => None,
        }
    }

    /// The value of `mode` for runs in skill mode.
    pub const SKILL: &'static str = "skill";

    /// The value of `mode` that equals `text`, or the one for pipelines if there is none.
    pub fn mode_of(text: &str) -> &'static str {
        match text {
            "skill" => Self::SKILL,
            "machine" => "machine",
            _ => "pipeline",
        }
    }

    /// The value of `mode` in result documents.
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
