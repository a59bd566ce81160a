//! `etude model`: lists, downloads, tests and serves models.

mod list;
mod test;

use serde_json::json;

use crate::args::{Model, ModelServe};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::settings::Resolved;
use crate::{local, settings, stdout};
use etude_models::ProviderKind;

pub(crate) fn model(context: &Context, model: &Model) -> Exit {
    let result = match model {
        Model::List => list::list(context),
        Model::Pull(args) => pull(context, args.name.as_deref()),
        Model::Test(args) => test::test(context, args.tier),
        Model::Serve(args) => serve(context, args),
        Model::Process(args) => local::serve(&context.global, args),
    };
    result.unwrap_or_else(|problem| context.report(None, &problem))
}

/// Resolves the configuration of the app, if there is one, and of the user.
fn resolve(context: &Context) -> Result<Resolved, Problem> {
    // The command also works where there is no app.
    let app = match &context.global.app {
        Some(_) => context.app_dir()?,
        None => context.app_dir().unwrap_or_default(),
    };
    context.settings(&app)
}

/// Prints how to use providers of the app here too, if some are not used.
fn hint_of_withheld(context: &Context, resolved: &Resolved) {
    let is_any = resolved.settings.providers.iter().any(|provider| provider.withheld.is_some());
    if is_any && !context.is_json() && !context.global.quiet {
        crate::render::say_hint!("{}", settings::remedy(resolved.purpose));
    }
}

/// The provider whose weights are used: the first local one.
fn local_provider(resolved: &Resolved) -> Result<etude_models::ProviderSettings, Problem> {
    let all = resolved.settings.providers.iter();
    let mut configured = all.filter(|provider| provider.kind == ProviderKind::Local && provider.withheld.is_none());
    configured.next().map_or_else(local::unconfigured, |provider| Ok(provider.clone()))
}

fn pull(context: &Context, name: Option<&str>) -> Result<Exit, Problem> {
    let resolved = resolve(context)?;
    let weights = local::wanted_by_name(&local_provider(&resolved)?, name)?;
    let fetched = local::fetch(&context.global, &weights)?;
    if context.is_json() {
        let mut document = weights.document();
        document["was_there"] = fetched.was_there.into();
        stdout::json(&json!({"model": document}));
    } else {
        if fetched.was_there && !context.global.quiet {
            crate::render::say!("already downloaded");
        }
        stdout::text(&format!("{}\n", fetched.path.display()));
    }
    Ok(Exit::Done)
}

/// Resolves the configuration, then turns this process into the model server.
fn serve(context: &Context, args: &ModelServe) -> Result<Exit, Problem> {
    let resolved = resolve(context)?;
    let provider = local_provider(&resolved)?;
    let given = resolved.local.get(&provider.name).cloned().unwrap_or_default();
    local::become_server(&context.global, args, &provider, &given)
}
