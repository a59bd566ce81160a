//! Incoming webhooks of an app.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use etude_core::exact::Comparand;
use serde_json::{Map, Value};

use super::{Broken, Entry, Target, template};
use crate::diagnose::automation as diagnose;
use crate::diagnostic::Diagnostic;
use crate::yaml::{Entries, Node, text, texts};

/// An incoming webhook, as written in the file.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Key under `webhooks`, which is part of the address: `[A-Za-z0-9._-]{1,64}`.
    pub name: String,
    /// Pipeline or stage machine to run; `None` if it is missing.
    pub target: Option<Target>,
    /// Verification of the sender; `None` if it is missing.
    pub verify: Option<Verify>,
    /// Paths with their required values.
    pub when: Vec<(String, Comparand)>,
    /// Input of the runs, with references; `None` means the whole body.
    pub input: Option<Map<String, Value>>,
    /// True if equal bodies with different ids are different deliveries.
    pub repeats: bool,
    /// Errors of the webhook. A webhook with errors accepts nothing.
    pub broken: Vec<Diagnostic>,
}

/// Verification of a webhook's sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verify {
    /// The scheme, which decides the headers and the signed text.
    pub kind: VerifyKind,
    /// Secrets, one of which must match; may hold `${env:NAME}`.
    pub secrets: Vec<String>,
    /// The header with the signature or secret, in lower case.
    pub header: Option<String>,
    /// Use SHA-512 instead of SHA-256.
    pub is_sha512: bool,
    /// Use base64 instead of hexadecimal digits.
    pub is_base64: bool,
    /// The text before the signature.
    pub prefix: String,
    /// The header with the id of the delivery, in lower case.
    pub id_header: Option<String>,
}

etude_core::words! {
    /// Schemes of signatures.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum VerifyKind {
        /// `X-Hub-Signature-256`: an HMAC over the body.
        Github = "github",
        /// `X-Gitlab-Token`: the secret itself.
        Gitlab = "gitlab",
        /// Standard Webhooks: an HMAC over id, time and body.
        Standard = "standard",
        /// `Stripe-Signature`: an HMAC over the time and the body.
        Stripe = "stripe",
        /// `X-Slack-Signature`: an HMAC over the time and the body.
        Slack = "slack",
        /// An HMAC of the body in a header.
        Hmac = "hmac",
        /// The secret itself in a header.
        Token = "token",
    }
}

impl Broken for Webhook {
    fn set_broken(&mut self, errors: Vec<Diagnostic>) {
        self.broken = errors;
    }
}

pub(super) fn read(entry: &mut Entry<'_, '_>) -> Webhook {
    let target = entry.target();
    let forms = "`{{body.PATH}}`, `{{header.NAME}}` and `{{raw}}`";
    let input = entry.input(template::is_of_request, forms);
    let mut when = Vec::new();
    for (path, key, node) in entry.entries.get("when").and_then(Node::as_map).into_iter().flat_map(Entries::iter) {
        if !template::is_of_request(path) {
            entry.found.push(diagnose::unknown_reference(entry.found.file, key.span, path, forms));
        }
        let value = node.to_json().ok().and_then(|json| Comparand::parse(&json).ok());
        when.push((path.to_owned(), value.unwrap_or(Comparand::Plain(Value::Null))));
    }
    Webhook {
        name: entry.name.to_owned(),
        target,
        verify: verify(entry),
        when,
        input,
        repeats: entry.word("repeat") == Some("allow"),
        broken: Vec::new(),
    }
}

fn verify(entry: &mut Entry<'_, '_>) -> Option<Verify> {
    let file = entry.found.file;
    let Some((key, node)) = entry.entries.entry("verify") else {
        entry.found.push(diagnose::not_verified(file, entry.at, entry.name, "has no `verify`"));
        return None;
    };
    let entries = node.as_map()?;
    let kind = VerifyKind::from_word(text(entries, "kind")?.text)?;
    let secrets = texts(entries, "secrets");
    if secrets.is_empty() && entries.get("secrets").is_none_or(|node| node.as_seq().is_some_and(<[_]>::is_empty)) {
        entry.found.push(diagnose::not_verified(file, key.span, entry.name, "has no `verify.secrets`"));
    }
    if kind == VerifyKind::Standard {
        standard_secrets(entry, entries);
    }
    let word = |field: &str| text(entries, field).map(|text| text.text.to_owned());
    let header = |field: &str| word(field).map(|name| name.to_ascii_lowercase());
    if kind == VerifyKind::Hmac && entries.get("header").is_none() {
        entry.found.push(diagnose::no_signature_header(file, key.span, entry.name));
    }
    Some(Verify {
        kind,
        secrets,
        header: header("header"),
        is_sha512: word("algorithm").as_deref() == Some("sha512"),
        is_base64: word("encoding").as_deref() == Some("base64"),
        prefix: word("prefix").unwrap_or_default(),
        id_header: header("id_header"),
    })
}

/// Reports secrets of Standard Webhooks that no sender signs with. A secret whose variable has no value is skipped.
fn standard_secrets(entry: &mut Entry<'_, '_>, entries: &Entries<'_>) {
    let nodes = entries.get("secrets").and_then(Node::as_seq).unwrap_or_default();
    let secrets: Vec<_> =
        nodes.iter().map(|node| (node.span, node.as_text().and_then(|text| (entry.expand)(text)))).collect();
    let is_key = |secret: &str| is_base64(secret.strip_prefix("whsec_").unwrap_or(secret));
    // If one of them may fit, the webhook accepts deliveries.
    let may_fit = secrets.iter().any(|(_, secret)| secret.as_deref().is_none_or(is_key));
    for (at, secret) in &secrets {
        let Some(secret) = secret.as_deref().filter(|secret| !(secret.starts_with("whsec_") && is_key(secret))) else {
            continue;
        };
        let fault = diagnose::no_standard_secret(entry.found.file, *at, entry.name, is_key(secret), may_fit);
        entry.found.push(fault);
    }
}

/// True for standard base64 of at least one byte, with its padding.
fn is_base64(text: &str) -> bool {
    STANDARD.decode(text).is_ok_and(|key| !key.is_empty())
}
