//! Named constructors of diagnostics, by subject. Messages are written only here, except for those of YAML itself:
//! `yaml/diagnose.rs`.

pub(crate) mod applications;
pub(crate) mod automation;
pub(crate) mod cascade;
pub(crate) mod fields;
pub(crate) mod files;
pub(crate) mod learn;
pub(crate) mod references;
pub(crate) mod skills;
pub(crate) mod stage_machine;
pub(crate) mod tools;
pub(crate) mod values;
