//! Faults that only the disk can show, and outcomes of commands: the words of C-1.19 beyond the file itself.

pub use crate::diagnose::applications::{
    contradiction, declined, denied, ended_by_signal, file_case, missing_app_dir, missing_app_file, missing_skills_dir,
    must_be_confirmed, no_json, no_such_command, no_such_package, not_confirmed_any_more, not_trusted, result_refused,
    scheduling_undocumented, scheduling_unsupported, schema_mismatch, sections, skill_name, skill_outside,
    skill_unlisted, skill_unresolved, slug_collision, slug_directory, spawn, timed_out, too_large, too_many,
    undecodable_body, unstructured_error,
};
