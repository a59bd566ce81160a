//! Conversion of a skill to an app: its statements, their labels, the pipelines that a model drafts from them, and the files
//! of these pipelines (1.6).
//!
//! Pure: text and values in, text and values out. The completions of models come from steps of an ordinary run, whose
//! pipeline is [`definition`]. The caller reads and writes files.

pub mod case;
pub mod command;
pub mod compile;
pub mod definition;
pub mod draft;
pub mod import;
pub mod label;
pub mod report;
pub mod skill;
pub mod statement;
pub mod test_file;
pub mod yaml;
