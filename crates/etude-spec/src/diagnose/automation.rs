//! P0801 to P0805, and other faults of schedules, webhooks and notices.

use std::sync::Arc;

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{SourceFile, Span};
use crate::wording::{list, meant, plain, quoted};

type File = Arc<SourceFile>;

pub(crate) fn not_a_section(file: &File, at: Span, name: &str, wanted: &str, kind: &str) -> Diagnostic {
    let message = format!("{} must be {wanted}, not {kind}", quoted(name));
    Diagnostic::error(Code::WrongType, file, at, message).hint("see docs/schedules.md and docs/webhooks.md")
}

pub(crate) fn no_target(file: &File, at: Span, name: &str) -> Diagnostic {
    Diagnostic::error(Code::MissingField, file, at, format!("{} runs nothing", quoted(name)))
        .label("needs `pipeline` or `machine`")
        .hint("name the pipeline: `pipeline: NAME`")
}

pub(crate) fn unknown_machine(file: &File, at: Span, name: &str, machines: &[&str]) -> Diagnostic {
    let label = match machines {
        [] => "the app has no stage machine".to_owned(),
        machines => format!("available: {}", list(machines)),
    };
    Diagnostic::error(Code::UnknownMachine, file, at, format!("there is no stage machine {}", quoted(name)))
        .label(label)
        .maybe_hint(meant(name, machines.iter().copied()))
}

pub(crate) fn unknown_reference(file: &File, at: Span, reference: &str, forms: &str) -> Diagnostic {
    let message = format!("`{}` is not a valid reference here", plain(reference));
    Diagnostic::error(Code::NotAReference, file, at, message).label(format!("references are {forms}"))
}

pub(crate) fn no_pattern(file: &File, at: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        Code::BadSchedule,
        file,
        at,
        format!("the schedule {} has no `cron` and no `every`", quoted(name)),
    )
    .label("never ticks")
    .hint("for example: `cron: \"30 2 * * *\", timezone: UTC`, or `every: 6h`")
}

pub(crate) fn bad_cron(file: &File, at: Span, pattern: &str, why: &str) -> Diagnostic {
    Diagnostic::error(
        Code::BadSchedule,
        file,
        at,
        format!("the cron pattern {} cannot be read: {why}", quoted(pattern)),
    )
    .hint("for example: `30 2 * * *` for half past two each day, `*/15 * * * *` for each quarter of an hour")
}

pub(crate) fn interval_too_short(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::BadSchedule, file, at, "the interval of `every` is shorter than a second".to_owned())
        .label("must be at least `1s`")
}

pub(crate) fn no_zone(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::NoTimeZone, file, at, "a schedule with `cron` has no `timezone`".to_owned())
        .label("the times depend on the time zone")
        .hint("add `timezone: Europe/Berlin`, `timezone: UTC`, or `timezone: local` for the zone of the server")
}

pub(crate) fn unknown_zone(file: &File, at: Span, name: &str) -> Diagnostic {
    Diagnostic::error(Code::UnknownTimeZone, file, at, format!("there is no time zone {}", quoted(name)))
        .label("must be a name of the IANA database, `UTC` or `local`")
        .hint("for example: `Europe/Berlin`, `America/New_York`")
}

/// The input of a schedule does not fit its target.
pub(crate) fn misfit(file: &File, at: Span, name: &str, why: &str, hint: Option<String>) -> Diagnostic {
    let message = format!("the input of the schedule {} is not valid: {why}", quoted(name));
    Diagnostic::error(Code::BadBinding, file, at, message).maybe_hint(hint)
}

/// The target of a schedule cannot be prepared.
pub(crate) fn unready(file: &File, at: Span, name: &str, why: &str) -> Diagnostic {
    let message = format!("the target of the schedule {} cannot start: {why}", quoted(name));
    Diagnostic::error(Code::BrokenPipeline, file, at, message)
}

pub(crate) fn not_read(file: &File, why: &str) -> Diagnostic {
    Diagnostic::error(Code::BrokenPipeline, file, Span::default(), format!("the configuration cannot be read: {why}"))
}

pub(crate) fn not_verified(file: &File, at: Span, name: &str, why: &str) -> Diagnostic {
    Diagnostic::error(Code::NotVerified, file, at, format!("the webhook {} {why}", quoted(name)))
        .label("anyone could start runs")
        .hint("for example: `verify: {kind: github, secrets: [\"${env:HOOK_SECRET}\"]}`")
}

/// A secret is not `whsec_` and base64. `is_key`: it is base64 alone, so it may still fit. `may_fit`: another one may.
pub(crate) fn no_standard_secret(file: &File, at: Span, name: &str, is_key: bool, may_fit: bool) -> Diagnostic {
    let what = if is_key { "does not begin with `whsec_`" } else { "is not `whsec_` and base64" };
    let message = format!("a secret of the webhook {} {what}", quoted(name));
    let found = Diagnostic::error(Code::NotVerified, file, at, message)
        .label(if is_key { "is used as the base64 after `whsec_`" } else { "no delivery can be signed with it" })
        .hint("copy the whole secret from the sender: `whsec_` and what follows it");
    if may_fit { found.severity(Severity::Warning) } else { found }
}

pub(crate) fn no_signature_header(file: &File, at: Span, name: &str) -> Diagnostic {
    Diagnostic::error(Code::NotVerified, file, at, format!("`verify` of the webhook {} has no `header`", quoted(name)))
        .label("`hmac` needs the header that carries the signature")
        .hint("for example: `header: X-Signature`")
}

pub(crate) fn receiver(file: &File, at: Span, is_http: bool) -> Diagnostic {
    let message = match is_http {
        true => "the receiver of a notice has no `https://`",
        false => "the receiver of a notice is not an `https://` address",
    };
    Diagnostic::error(Code::UnsafeReceiver, file, at, message.to_owned())
        .label("must begin with `https://`")
        .hint("for a receiver in a private network, add `allow_private: true`, which permits `http://`")
}

pub(crate) fn variable_in_receiver(file: &File, at: Span) -> Diagnostic {
    let message = "a variable is only a part of the address of a notice".to_owned();
    Diagnostic::error(Code::UnsafeReceiver, file, at, message)
        .label("the variable would be sent to a host named in this file")
        .hint("put the whole address into the variable: `url: \"${env:CHAT_URL}\"`")
}

pub(crate) fn no_limit(file: &File, at: Span, name: &str, field: &str) -> Diagnostic {
    let message = format!("{} has `{field}` but no `max_runs`", quoted(name));
    Diagnostic::error(Code::MissingField, file, at, message)
        .label("has no effect")
        .hint("add how many of its runs may be in progress at once: `max_runs: 1`")
}
