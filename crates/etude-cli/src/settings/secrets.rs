//! `${env:NAME}` in configured texts.

/// A text with its variables replaced.
pub(super) struct Expanded {
    pub(super) text: String,
    /// The variables that it named.
    pub(super) variables: Vec<String>,
}

/// Replaces every `${env:NAME}` by the variable's value, or by nothing if it is not set. The variables are noted in
/// `scrub_env`: what is a secret for a provider is one for scripts as well.
pub(super) fn expand(text: &str, scrub_env: &mut Vec<String>) -> Expanded {
    let mut out = String::with_capacity(text.len());
    let mut variables = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("${env:") {
        let Some(close) = rest[open..].find('}').map(|n| open + n) else { break };
        out.push_str(&rest[..open]);
        let name = &rest[open + 6..close];
        out.push_str(&std::env::var(name).unwrap_or_default());
        variables.push(name.to_owned());
        note(scrub_env, name);
        rest = &rest[close + 1..];
    }
    out.push_str(rest);
    Expanded { text: out, variables }
}

/// Notes a variable that scripts do not get.
pub(super) fn note(scrub_env: &mut Vec<String>, name: &str) {
    if !scrub_env.iter().any(|known| known == name) {
        scrub_env.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_and_kept_from_scripts() {
        let mut scrub = Vec::new();
        let home = std::env::var("PATH").unwrap();
        assert_eq!(expand("a ${env:PATH} b ${env:ETUDE_NO_SUCH}!", &mut scrub).text, format!("a {home} b !"));
        assert_eq!(scrub, ["PATH", "ETUDE_NO_SUCH"]);
        assert_eq!(expand("${env:unclosed", &mut scrub).text, "${env:unclosed");
    }
}
