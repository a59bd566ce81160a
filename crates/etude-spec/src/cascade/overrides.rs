//! Overrides of metadata from the command line and the environment (D-16).

use serde_json::Value;

use crate::cascade::path;

/// Values by path; later ones win over earlier ones.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    /// Overrides for the skill that is called from outside: `--local`.
    pub local: Vec<(String, Value)>,
    /// Overrides for every skill: `--global`.
    pub global: Vec<(String, Value)>,
    /// Overrides for `locals.config`: `--set`.
    pub config: Vec<(String, Value)>,
}

/// Prefixes of the environment variables.
const PREFIXES: &[&str] = &["ETUDE_", "AGENT_APPS_"];

impl Overrides {
    /// Applies the overrides to `merged`: those for every skill first, then, for the entry skill, its own.
    pub fn apply(&self, merged: &mut Value, is_entry: bool) {
        let local = if is_entry { self.local.as_slice() } else { &[] };
        for (path, value) in self.global.iter().chain(local) {
            path::set(merged, path, value.clone());
        }
    }

    /// Adds the override in an environment variable with a known prefix. `ETUDE_LOCAL_WEBHOOK__ROUTES__0__SECRET=s`
    /// sets `webhook.routes.0.secret` of the local overrides. Single underscores become dashes, which names of keys
    /// have.
    pub fn add_variable(&mut self, name: &str, value: &str) {
        let Some(rest) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) else { return };
        let layers = [("LOCAL_", &mut self.local), ("GLOBAL_", &mut self.global), ("CONFIG_", &mut self.config)];
        for (prefix, layer) in layers {
            if let Some(path) = rest.strip_prefix(prefix).filter(|path| !path.is_empty()) {
                let path = path.to_lowercase().replace("__", ".").replace('_', "-");
                layer.push((path, parsed(value)));
            }
        }
    }

    /// Parses a flag `K=V`. Flags come after the environment, so they win.
    ///
    /// # Errors
    /// The text has no `=`, or nothing before it.
    pub fn pair(text: &str) -> Result<(String, Value), String> {
        match text.split_once('=') {
            Some((path, value)) if !path.trim().is_empty() => Ok((path.trim().to_owned(), parsed(value))),
            _ => Err(format!("`{text}` must be KEY=VALUE")),
        }
    }
}

/// Parses a typed value: JSON if it is valid, otherwise text.
pub fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// D-16, D-L06: variables name a kind of override and a path; other variables are ignored.
    #[test]
    fn variables_are_paths_of_a_layer() {
        let mut overrides = Overrides::default();
        for (name, value) in [
            ("AGENT_APPS_LOCAL_WEBHOOK__ROUTES__0__SECRET", "s"),
            ("ETUDE_GLOBAL_RATE_LIMIT__RPM", "5"),
            ("ETUDE_CONFIG_WORKSPACE", "./build"),
            ("ETUDE_HOST", "x"),
            ("LOCAL_A", "x"),
        ] {
            overrides.add_variable(name, value);
        }
        assert_eq!(overrides.local, [("webhook.routes.0.secret".to_owned(), json!("s"))]);
        assert_eq!(overrides.global, [("rate-limit.rpm".to_owned(), json!(5))]);
        assert_eq!(overrides.config, [("workspace".to_owned(), json!("./build"))]);
    }

    /// D-16, D-0.1.8: local beats global, and only the entry skill gets local values.
    #[test]
    fn local_beats_global_for_the_entry_skill() {
        let overrides = Overrides {
            local: vec![("model.id".into(), json!("l"))],
            global: vec![("model.id".into(), json!("g")), ("x".into(), json!(1))],
            config: Vec::new(),
        };
        let merged = |is_entry| {
            let mut value = json!({"model": {"id": "m", "region": "r"}});
            overrides.apply(&mut value, is_entry);
            value
        };
        assert_eq!(merged(true), json!({"model": {"id": "l", "region": "r"}, "x": 1}));
        assert_eq!(merged(false), json!({"model": {"id": "g", "region": "r"}, "x": 1}));
        assert!(Overrides::pair("novalue").is_err());
    }
}
