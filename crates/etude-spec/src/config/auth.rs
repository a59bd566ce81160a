//! `auth`: the authorization server whose access tokens a server accepts besides its own.

use etude_core::service_url::ServiceUrl;

use crate::check::Findings;
use crate::diagnose::values;
use crate::yaml::{Entries, Node, text};

/// Settings of the authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// URL of the issuer, exactly as in the `iss` of its tokens.
    pub issuer: String,
    /// Value that the `aud` of a token must contain.
    pub audience: String,
}

/// Reads `auth` of a configuration file, whose types have been checked. `None` without `auth`.
pub(super) fn read(root: &Entries<'_>) -> Option<Auth> {
    let entries = root.get("auth").and_then(Node::as_map)?;
    let of = |field: &str| text(entries, field).map(|text| text.text.to_owned());
    Some(Auth { issuer: of("issuer")?, audience: of("audience")? })
}

/// Reports faults that the field tables do not express.
pub(super) fn check(found: &mut Findings<'_>, root: &Entries<'_>) {
    let Some(entries) = root.get("auth").and_then(Node::as_map) else { return };
    if let Some(issuer) = text(entries, "issuer").filter(|issuer| !issuer.text.trim().is_empty())
        && let Some((why, hint)) = fault(issuer.text)
    {
        found.push(values::unusable_configuration(found.file, issuer.at, &format!("`auth.issuer` {why}"), Some(hint)));
    }
}

/// Reason why a text is not the URL of an issuer (RFC 8414, 2), with a correct form.
fn fault(issuer: &str) -> Option<(&'static str, &'static str)> {
    let url = ServiceUrl::new(issuer);
    let Some(origin) = url.origin().filter(|_| !issuer.contains(char::is_whitespace)) else {
        return Some(("is not a URL", "for example `https://id.example.com/realms/team`"));
    };
    if issuer.contains(['?', '#', '@']) {
        return Some(("has a user, a query or a fragment", "an issuer has only scheme, host, port and path"));
    }
    match (issuer.split_once("://").map(|(scheme, _)| scheme), origin.is_loopback()) {
        (Some("https"), _) | (Some("http"), true) => None,
        _ => Some(("is not `https`", "only an issuer on this machine can use `http://`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Diagnostic;
    use crate::source::SourceFile;

    fn parse(text: &str) -> (Option<Auth>, Vec<Diagnostic>) {
        let (config, found) = crate::config::read(&SourceFile::new("config.yaml", text));
        (config.auth, found)
    }

    #[test]
    fn an_issuer_is_read_as_written() {
        for issuer in [
            "https://id.example.com/",
            "https://id.example.com:8443/realms/a",
            "http://127.0.0.1:9/",
            "http://[::1]:9",
            "http://localhost",
        ] {
            let expected = Auth { issuer: issuer.to_owned(), audience: "etude".to_owned() };
            assert_eq!(
                parse(&format!("auth: {{issuer: \"{issuer}\", audience: etude}}\n")),
                (Some(expected), Vec::new())
            );
        }
        assert_eq!(parse("{}\n"), (None, Vec::new()));
    }

    /// serve: both fields are required, and a remote issuer needs TLS. Each fault has its place.
    #[test]
    fn faults_of_an_issuer_have_their_places() {
        for (text, place, words) in [
            ("auth: {issuer: \"https://a.example\"}\n", (1, 7), "audience"),
            ("auth: {audience: etude}\n", (1, 7), "issuer"),
            ("auth:\n  issuer: http://a.example\n  audience: etude\n", (2, 11), "is not `https`"),
            ("auth:\n  audience: etude\n  issuer: http://127.0.0.1.a.example\n", (3, 11), "is not `https`"),
            ("auth: {issuer: \"ftp://localhost\", audience: etude}\n", (1, 16), "is not `https`"),
            ("auth: {issuer: id.example, audience: etude}\n", (1, 16), "is not a URL"),
            ("auth: {issuer: \"https://a.example?x=1\", audience: etude}\n", (1, 16), "a query"),
            ("auth: {issuer: \"https://a@b.example\", audience: etude}\n", (1, 16), "a user"),
            ("auth: {issuer: \"https://a.example\", audience: \" \"}\n", (1, 47), "`audience` is empty"),
            ("auth: {issuer: \"\", audience: etude}\n", (1, 16), "`issuer` is empty"),
            ("auth: {issuer: \"https://a.example\", audience: etude, audiense: x}\n", (1, 54), "audiense"),
            ("auth: https://a.example\n", (1, 7), "auth"),
        ] {
            let found = parse(text).1;
            let [one] = &found[..] else { panic!("{text}: {found:?}") };
            assert!(one.is_error() && one.message.contains(words), "{text}: {one:?}");
            assert_eq!(one.position(), Some(place), "{text}: {one:?}");
        }
    }
}
