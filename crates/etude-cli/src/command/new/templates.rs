//! Templates of `etude new`.

/// Template of a file.
pub(super) struct Template {
    /// Path below the directory that is created, with the placeholder `@NAME@`.
    path: &'static str,
    /// Text with the placeholders `@NAME@`, `@YAML_NAME@` and `@SKILL@`.
    text: &'static str,
    /// True for a script.
    executable: bool,
}

/// A file to write.
pub(super) struct File {
    /// Path below the directory that is created.
    pub(super) path: String,
    pub(super) text: String,
    /// True for a script.
    pub(super) executable: bool,
}

macro_rules! files {
    ($root:literal: $($path:literal)* ; scripts: $($script:literal)*) => {
        &[
            $(Template { path: $path, text: include_str!(concat!($root, "/", $path)), executable: false },)*
            $(Template { path: $script, text: include_str!(concat!($root, "/", $script)), executable: true },)*
        ]
    };
}

/// Files of a new app.
pub(super) const APP: &[Template] = files!("app":
    "SKILL.md"
    "README.md"
    "pipelines/hello/pipeline.yaml"
    "pipelines/explain/pipeline.yaml"
    "pipelines/explain/schemas/explain.json"
    "pipelines/_constructor/pipeline.yaml"
    "pipelines/_destructor/pipeline.yaml"
    "tests/greets-ada.yaml";
    scripts:
    "pipelines/hello/steps/greet.py"
    "pipelines/hello/steps/report.py"
    "pipelines/explain/steps/measure.py"
    "pipelines/explain/steps/validate_explain.py"
    "pipelines/explain/steps/report.py"
    "pipelines/_constructor/steps/check_tools.sh"
    "pipelines/_destructor/steps/say_how_it_ended.py"
);

/// Files of a new stage machine.
pub(super) const MACHINE: &[Template] = files!("machine":
    "machine.yaml"
    "stages/plan.md"
    "stages/do.md";
    scripts:
);

/// Files of a new skill.
pub(super) const SKILL: &[Template] = files!("skill":
    "SKILL.md";
    scripts:
    "scripts/count.py"
);

/// Files of a new Agent Application.
pub(super) const PACKAGE: &[Template] = &[
    Template { path: "APP.md", text: include_str!("package/APP.md"), executable: false },
    Template { path: "app/main.py", text: include_str!("package/app/main.py"), executable: true },
    Template { path: "skills/@NAME@-use/SKILL.md", text: include_str!("package/skills/USE.md"), executable: false },
];

/// Files of a new pipeline.
pub(super) const PIPELINE: &[Template] = files!("pipeline":
    "pipeline.yaml";
    scripts:
    "steps/prepare.py"
    "steps/report.py"
);

impl Template {
    /// Fills in the placeholders.
    pub(super) fn fill(&self, name: &str) -> File {
        // The name of a skill has lower-case letters, digits and single hyphens only.
        let lower = name.to_ascii_lowercase().replace('_', "-");
        let parts: Vec<&str> = lower.split('-').filter(|part| !part.is_empty()).collect();
        // YAML would not read these words as text.
        let is_word = matches!(lower.as_str(), "true" | "false" | "null");
        let quoted = if is_word { format!("\"{name}\"") } else { name.to_owned() };
        let text = self.text.replace("@SKILL@", &parts.join("-")).replace("@YAML_NAME@", &quoted);
        File {
            path: self.path.replace("@NAME@", name),
            text: text.replace("@NAME@", name),
            executable: self.executable,
        }
    }
}
