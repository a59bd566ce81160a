//! What a new app and a new pipeline consist of.

/// A file to write.
pub(super) struct Template {
    /// Where, relative to the app's or the pipeline's directory.
    pub(super) path: &'static str,
    /// What; `@NAME@` and `@SKILL@` are filled in.
    text: &'static str,
    /// It is a script.
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

/// A new app.
pub(super) const APP: &[Template] = files!("app":
    "SKILL.md"
    "README.md"
    "pipelines/hello/pipeline.yaml"
    "pipelines/explain/pipeline.yaml"
    "pipelines/explain/schemas/explain.json"
    "pipelines/_constructor/pipeline.yaml"
    "pipelines/_destructor/pipeline.yaml";
    scripts:
    "pipelines/hello/steps/greet.py"
    "pipelines/hello/steps/report.py"
    "pipelines/explain/steps/measure.py"
    "pipelines/explain/steps/validate_explain.py"
    "pipelines/explain/steps/report.py"
    "pipelines/_constructor/steps/check_tools.sh"
    "pipelines/_destructor/steps/say_how_it_ended.py"
);

/// A new pipeline.
pub(super) const PIPELINE: &[Template] = files!("pipeline":
    "pipeline.yaml";
    scripts:
    "steps/prepare.py"
    "steps/report.py"
);

impl Template {
    /// The text for an app or pipeline of that name.
    pub(super) fn fill(&self, name: &str) -> String {
        // The name of a skill has lower-case letters, digits and single hyphens only.
        let lower = name.to_ascii_lowercase().replace('_', "-");
        let parts: Vec<&str> = lower.split('-').filter(|part| !part.is_empty()).collect();
        // YAML would take these for something else than text.
        let is_word = matches!(lower.as_str(), "true" | "false" | "null");
        let quoted = if is_word { format!("\"{name}\"") } else { name.to_owned() };
        self.text.replace("@SKILL@", &parts.join("-")).replace("@YAML_NAME@", &quoted).replace("@NAME@", name)
    }
}
