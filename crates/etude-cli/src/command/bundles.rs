//! `etude bundles`: the apps in the shared database.

use etude_runtime::clock;
use etude_tools::bundle::{Bundle, Content, Entry};
use serde_json::{Value, json};

use crate::args;
use crate::bundles::{self, Kept};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::commands::complete;
use crate::stdout;

pub(crate) fn bundles(context: &Context, command: &args::Bundles) -> Exit {
    let done = match command {
        args::Bundles::List(args) => list(context, args),
        args::Bundles::Show(args) => show(context, &args.bundle),
    };
    done.unwrap_or_else(|problem| context.report(None, &problem))
}

fn document(kept: &Kept) -> Value {
    json!({
        "bundle": kept.digest.to_string(), "name": kept.name, "files": kept.files, "bytes": kept.bytes,
        "pushed_at": clock::rfc3339(kept.pushed_at_ms),
    })
}

fn list(context: &Context, args: &args::BundlesList) -> Result<Exit, Problem> {
    super::engine::check_named(context)?;
    let (kept, next) = bundles::list(&*context.engine(false)?, args.after.as_deref(), args.limit)?;
    if context.is_json() {
        stdout::json(&json!({"bundles": kept.iter().map(document).collect::<Vec<_>>(), "next": next}));
        return Ok(Exit::Done);
    }
    for one in &kept {
        let digest = one.digest.to_string();
        stdout::line(&format!("{}  {}  {} files, {} bytes", &digest[..16], one.all_names(), one.files, one.bytes));
    }
    if let Some(next) = next.filter(|_| !context.global.quiet) {
        crate::render::say!("more: {}", complete(&format!("etude bundles list --after {next}")));
    }
    Ok(Exit::Done)
}

fn show(context: &Context, named: &str) -> Result<Exit, Problem> {
    super::engine::check_named(context)?;
    let engine = context.engine(false)?;
    let kept = bundles::find(&*engine, named)?;
    let bundle = Bundle::read(bundles::bytes(&*engine, kept.digest)?);
    let bundle = bundle.map_err(|error| Problem::environment(error.to_string()))?;
    if context.is_json() {
        let mut document = document(&kept);
        document["entries"] = bundle.entries().iter().map(entry).collect();
        stdout::json(&document);
        return Ok(Exit::Done);
    }
    stdout::line(&format!("{}  {}", kept.digest, kept.name));
    for entry in bundle.entries() {
        stdout::line(&format!("{:04o}  {:>10}  {}", entry.mode, entry.bytes, entry.path));
    }
    Ok(Exit::Done)
}

fn entry(entry: &Entry) -> Value {
    let mut out =
        json!({"path": entry.path, "mode": format!("{:04o}", entry.mode), "bytes": entry.bytes, "blake3": null});
    match &entry.content {
        Content::File(digest) => out["blake3"] = digest.to_string().into(),
        Content::Link(target) => out["link"] = target.as_str().into(),
    }
    out
}
