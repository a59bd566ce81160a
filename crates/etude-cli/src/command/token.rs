//! `etude token`: creates, lists and revokes access tokens of `etude serve`.

use etude_server::token::{Error, NewToken, Tokens};
use serde_json::{Value, json};

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::harmless;
use crate::{paths, stdout};

pub(crate) fn token(context: &Context, command: &args::Token) -> Exit {
    let done = match command {
        args::Token::New(args) => new(context, args),
        args::Token::List => list(context),
        args::Token::Revoke(args) => revoke(context, &args.name),
    };
    done.unwrap_or_else(|problem| context.report(None, &problem))
}

fn tokens() -> Result<Tokens, Problem> {
    let state = paths::state_dir().map_err(Problem::environment)?;
    Ok(Tokens::new(&state.join("serve")))
}

fn problem(error: &Error) -> Problem {
    match error {
        Error::Io { .. } => Problem::environment(error.to_string()),
        Error::Exists(name) => {
            Problem::usage(error.to_string()).hint(format!("revoke it first: etude token revoke {name}"))
        }
        Error::Unknown(_) => Problem::usage(error.to_string()).hint("list the tokens: etude token list"),
        _ => Problem::usage(error.to_string()),
    }
}

fn new(context: &Context, args: &args::TokenNew) -> Result<Exit, Problem> {
    let now = super::serve::clock().now_ms();
    let after = |ms: u64| now.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX));
    let mut scopes = Vec::new();
    for scope in &args.scope {
        if !scopes.contains(scope) {
            scopes.push(*scope);
        }
    }
    let new =
        NewToken { name: args.name.clone(), scopes, only: args.only.clone(), expires_at_ms: args.expires.map(after) };
    let token = tokens()?.create(&new, now).map_err(|error| problem(&error))?;
    if context.is_json() {
        let scopes: Vec<&str> = new.scopes.iter().map(|scope| scope.word()).collect();
        stdout::json(&json!({
            "name": new.name, "token": token, "scopes": scopes, "only": new.only,
            "expires_at": new.expires_at_ms.map(etude_runtime::clock::rfc3339),
        }));
        return Ok(Exit::Done);
    }
    stdout::line(&token);
    if !context.global.quiet {
        crate::render::say!("note: the token is not shown again; etude keeps only its hash");
    }
    Ok(Exit::Done)
}

fn list(context: &Context) -> Result<Exit, Problem> {
    let tokens = tokens()?.list().map_err(|error| problem(&error))?;
    if context.is_json() {
        stdout::json(&json!({ "tokens": tokens }));
        return Ok(Exit::Done);
    }
    let words = |value: &Value| {
        let words: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        words.join(",")
    };
    for token in &tokens {
        let only = match words(&token["only"]) {
            only if only.is_empty() => String::new(),
            only => format!("  only {}", harmless(&only)),
        };
        let end = token["expires_at"].as_str().map(|end| format!("  until {end}")).unwrap_or_default();
        stdout::line(&format!(
            "{:<20} {:<24}{only}{end}",
            token["name"].as_str().unwrap_or_default(),
            words(&token["scopes"])
        ));
    }
    if tokens.is_empty() && !context.global.quiet {
        crate::render::say!("no tokens; create one: etude token new NAME --scope read");
    }
    Ok(Exit::Done)
}

fn revoke(context: &Context, name: &str) -> Result<Exit, Problem> {
    tokens()?.revoke(name).map_err(|error| problem(&error))?;
    match context.is_json() {
        true => stdout::json(&json!({"name": name, "revoked": true})),
        false if context.global.quiet => {}
        false => crate::render::say!("revoked `{name}`"),
    }
    Ok(Exit::Done)
}
