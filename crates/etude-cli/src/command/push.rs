//! `etude push`: keeps an app in the database that machines share.

use serde_json::json;

use crate::context::{Context, Problem};
use crate::exit::Exit;
use crate::{bundles, stdout};

pub(crate) fn push(context: &Context) -> Exit {
    pushed(context).unwrap_or_else(|problem| context.report(None, &problem))
}

fn pushed(context: &Context) -> Result<Exit, Problem> {
    super::engine::check_named(context)?;
    let dir = context.disk()?.root().to_owned();
    let pushed = bundles::push(&*context.engine(false)?, &dir)?;
    let (digest, name) = (pushed.digest.to_string(), &pushed.name);
    if context.is_json() {
        stdout::json(&json!({
            "bundle": digest, "name": name, "files": pushed.files, "bytes": pushed.bytes, "uploaded": pushed.uploaded,
        }));
    } else {
        stdout::line(&digest);
        if !context.global.quiet {
            let what = if pushed.uploaded { "is kept now" } else { "was kept already" };
            crate::render::say!("{name}: {} files, {} bytes; the bundle {what}", pushed.files, pushed.bytes);
        }
    }
    Ok(Exit::Done)
}
