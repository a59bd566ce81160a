//! The fields in the frontmatter of APP.md and SKILL.md (`c-applications`).

use crate::fields::FieldKind::{Data, Either, Entries, List, Prose, Text, Word};
use crate::fields::{FieldKind, Object};

/// The frontmatter of an APP.md.
pub static APPLICATION: Object = Object {
    name: "an application",
    doc: "An Agent Application: a program with declared commands, and skills that tell how to use it.",
    fields: &[fields! {
        required "name": Prose, "Tool shed", "Name for readers.";
        required "description": Prose, "Keeps a list of tools", "One sentence, for discovery.";
        required "version": Text, "\"1.0.0\"", "Version of the package: a semantic version.";
        required "entry": FieldKind::Object(&ENTRY), "{command: python3 app/main.py}", "The program.";
        required "commands": List(&Text), "[box list, box add]", "The commands that may be run.";
        required "skills": List(&Text), "[use-the-shed]", "Names of directories in `skills/`; may be empty.";
        optional "slug": Text, "tool-shed", "Identifier, lower case with `-`; by default the directory's name.";
        optional "schema": Word(&["agentapplications/v1"]), "agentapplications/v1",
            "Version of the format." => default "agentapplications/v1";
        optional "kind": Word(&["app"]), "app", "Kind of the package." => default "app";
        optional "confirmationRequired": List(&Text), "[box remove]",
            "Commands that a person confirms each time." => default "[]";
        optional "scheduling": Word(&["supported", "notSupported"]), "supported",
            "Support for commands on a schedule." => default "notSupported";
        optional "license": Prose, "MIT", "The license, for readers.";
        optional "authors": Either(&AUTHORS), "[Ada]", "The authors, for readers.";
        optional "tags": List(&Text), "[lists]", "Words to find it by.";
        optional "metadata": Entries(&Data), "{statePaths: [\"app/cache/**\"]}",
            "Values for tools; `statePaths` lists globs below `app/` that hold state." => default "{}";
    }],
};

static AUTHORS: [FieldKind; 2] = [List(&Data), Prose];

/// `entry` of an application.
pub static ENTRY: Object = Object {
    name: "an entry",
    doc: "The program of an application.",
    fields: &[fields! {
        required "command": Text, "python3 app/main.py",
            "The program; it runs in the package's directory, with the command and its arguments appended.";
    }],
};

/// The frontmatter of a SKILL.md: the complete list of the specification. Clients have fields of their own.
pub static SKILL: Object = Object {
    name: "a skill",
    doc: "A skill: instructions that an agent reads when it needs them.",
    fields: &[fields! {
        required "name": Text, "release-notes", "Its name, that of its directory: lower case with `-`.";
        required "description": Prose, "Writes release notes", "Description: purpose, and situations in which an agent should use it.";
        optional "license": Prose, "MIT", "The license, for readers.";
        optional "compatibility": Prose, "Needs git", "Requirements.";
        optional "metadata": Entries(&Text), "{author: Ada}", "Texts for tools.";
        optional "allowed-tools": Either(&TOOLS), "Read Bash(git:*)", "The tools that it may call; by default all.";
    }],
};

/// The forms of `allowed-tools`.
pub(crate) static TOOLS: [FieldKind; 2] = [Text, List(&Text)];
