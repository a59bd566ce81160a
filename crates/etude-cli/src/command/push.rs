//! `etude push`: stores an app in the shared database.

use std::path::Path;

use etude::Disk;
use etude_spec::discover::PIPELINES;
use etude_spec::skill::SKILL_FILE;
use etude_spec::stage_machine::MACHINES;
use etude_tools::bundle::{Bundle, MAX_BYTES};
use serde_json::json;

use crate::args;
use crate::bundles::commit::Commit;
use crate::context::{Context, not_an_app};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::{bundles, stdout};

/// Hint for a directory or an archive that is not an app.
const OF_APP: &str = "an app has `SKILL.md`, `pipelines/` or `machines/`";

pub(crate) fn push(context: &Context, args: &args::Push) -> Exit {
    pushed(context, args).unwrap_or_else(|problem| context.report(None, &problem))
}

fn pushed(context: &Context, args: &args::Push) -> Result<Exit, Problem> {
    super::engine::check_named(context)?;
    let source = match &args.source {
        Some(source) => source.clone(),
        None => context.disk()?.root().to_owned(),
    };
    let commit = if source.exists() { None } else { Commit::parse(&source) };
    let checkout = commit.map(|commit| commit.check_out()).transpose()?;
    let source = checkout.as_ref().map_or(&source, |checkout| &checkout.app);
    let bundle = match source.is_file() {
        true => archive(source)?,
        false => app(source)?,
    };
    let own_name = || checkout.as_ref().map_or_else(|| bundles::name_of(source), |checkout| checkout.name.clone());
    let name = args.name.clone().unwrap_or_else(own_name);
    let dir = if source.is_file() { source.parent().unwrap_or(Path::new(".")) } else { source };
    let uploaded = bundles::push(context, &*context.engine(false)?, &bundle, dir, &name)?;
    let (digest, files, bytes) = (bundle.digest().to_string(), bundle.entries().len(), bundle.bytes().len());
    if context.is_json() {
        stdout::json(&json!({
            "bundle": digest, "name": name, "files": files, "bytes": bytes, "uploaded": uploaded,
        }));
    } else {
        stdout::line(&digest);
        if !context.global.quiet {
            let what = if uploaded { "is stored" } else { "was already stored" };
            crate::render::say!("{name}: {files} files, {bytes} bytes; the bundle {what}");
        }
    }
    Ok(Exit::Done)
}

/// Packs the app in a directory.
fn app(dir: &Path) -> Result<Bundle, Problem> {
    if !dir.is_dir() {
        return Err(Problem::usage(format!("there is no directory, archive or commit `{}`", dir.display())));
    }
    if !etude::app::is_app(dir) {
        return Err(not_an_app(dir).hint(OF_APP));
    }
    let disk = Disk::open(dir)
        .map_err(|error| Problem::environment(format!("`{}` cannot be opened: {error}", dir.display())))?;
    let bundle = Bundle::pack(dir).map_err(|error| bundles::refused(&error))?;
    bundles::left_out::check(&disk, &bundle, None)?;
    Ok(bundle)
}

/// Reads a bundle that was packed before (K-52).
fn archive(path: &Path) -> Result<Bundle, Problem> {
    use std::io::Read;
    let unreadable = |e| Problem::usage(format!("the archive `{}` cannot be read: {e}", path.display()));
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let bundle = Bundle::read(bytes).map_err(|error| bundles::refused(&error))?;
    let is_of_app = |path: &str| path == SKILL_FILE || matches!(path.split('/').next(), Some(PIPELINES | MACHINES));
    if !bundle.entries().iter().any(|entry| is_of_app(&entry.path)) {
        let problem = not_an_app(path).hint(OF_APP);
        return Err(problem.hint("its files are at the top of the archive; or push the directory: etude push DIR"));
    }
    bundles::left_out::check_archive(&bundle)?;
    Ok(bundle)
}
