//! `etude model serve`: the model server, for the runs of the user and for other programs.

use std::path::Path;
use std::time::Duration;

use etude::local::{self, Ended, Listen, Ready, Serving, Settings, WhenIdle};
use etude_files::regular;
use etude_models::ProviderSettings;
use etude_process::standalone;
use etude_spec::config::Provider;
use serde_json::json;

use super::built::{local_of, threads, wanted_by_name};
use super::process;
use crate::args::{Global, ModelListen, ModelProcess, ModelServe};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::stdout;

/// Maximum size of a token file, in bytes.
const MAX_TOKEN_BYTES: u64 = 4096;

/// Replaces this process by the model server, whose environment has no keys and names the number of threads.
pub(crate) fn become_server(
    global: &Global,
    args: &ModelServe,
    provider: &ProviderSettings,
    given: &Provider,
) -> Result<Exit, Problem> {
    listen(&args.tcp)?;
    let local = local_of(provider, given)?;
    let name = match (&args.name, &local.weights) {
        (Some(name), _) => name.strip_prefix("local/").unwrap_or(name).to_owned(),
        (None, Some(file)) => file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        (None, None) => local::DEFAULT_MODEL.to_owned(),
    };
    if local.weights.is_none() {
        wanted_by_name(provider, Some(&name))?;
    }
    let settings = local
        .settings(&name)
        .map_err(|why| Problem::environment(format!("the local model `{name}` cannot be served: {why}")))?;
    let mut command = process::command(standalone, &settings, threads(given)).map_err(failed)?;
    command.arg("--foreground");
    let embedding = local::find(local::EMBEDDING_MODEL);
    if let Some(dir) = embedding.and_then(|entry| local::installed(entry, &local.models_dir)) {
        command.arg("--embedding").arg(dir);
    }
    if let Some(address) = args.tcp.listen {
        command.args(["--listen", &address.to_string()]);
    }
    if let Some(file) = &args.tcp.token_file {
        command.arg("--token-file").arg(file);
    }
    if global.is_json() {
        command.args(["--format", "json"]);
    }
    if global.quiet {
        command.arg("--quiet");
    }
    Err(failed(etude_process::replace(command)))
}

/// Runs in the process of the model server: responds to clients until it has been idle.
pub(crate) fn serve(global: &Global, process: &ModelProcess) -> Result<Exit, Problem> {
    let mut served = Settings::new(&process.id, &process.weights, &process.runtime_dir);
    served.context_tokens = process.context_tokens;
    served.idle = Duration::from_millis(process.idle_ms);
    let serving = Serving {
        listen: listen(&process.tcp)?,
        when_idle: if process.foreground { WhenIdle::Unload } else { WhenIdle::End },
        embedding: process.embedding.clone(),
    };
    let show = |ready: &Ready| {
        if process.foreground {
            show(global, &process.id, ready);
        }
    };
    match local::serve(&served, &serving, &show) {
        Ok(Ended::AlreadyServed) if process.foreground => {
            let problem = Problem::environment(format!("another process of this user already serves `{}`", process.id));
            Err(problem.hint("add `--listen ADDR` to serve it at a TCP address too"))
        }
        Ok(_) => Ok(Exit::Done),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: std::io::Error) -> Problem {
    Problem::environment(format!("the local model cannot be served: {error}"))
}

/// TCP address to listen on, with its token.
fn listen(args: &ModelListen) -> Result<Option<Listen>, Problem> {
    let Some(address) = args.listen else { return Ok(None) };
    let token = args.token_file.as_deref().map(token).transpose()?;
    if token.is_none() && !address.ip().is_loopback() {
        let problem =
            Problem::usage(format!("{address} is not a loopback address: other machines could use the model"));
        return Err(problem.hint("add `--token-file FILE`, or listen on 127.0.0.1"));
    }
    Ok(Some(Listen { address, token }))
}

fn token(file: &Path) -> Result<String, Problem> {
    let text = regular::read_text(file, MAX_TOKEN_BYTES)
        .map_err(|error| Problem::environment(format!("the token in {} cannot be read: {error}", file.display())))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let problem = Problem::usage(format!("{} has no token", file.display()));
        return Err(problem.hint("write one line of visible ASCII characters, such as from `openssl rand -hex 32`"));
    }
    Ok(token.to_owned())
}

/// Prints the address of the model: a URL if it has one, otherwise the socket.
fn show(global: &Global, model: &str, ready: &Ready) {
    let url = ready.address.map(|address| format!("http://{address}/v1"));
    let socket = ready.socket.as_ref().map(|path| path.display().to_string());
    if global.is_json() {
        stdout::json(&json!({"model": model, "url": url, "socket": socket}));
        return;
    }
    if !global.quiet {
        let note = match (&url, &socket) {
            (Some(_), None) => "; another process serves the runs of this user, so the weights are loaded twice",
            _ => "",
        };
        crate::render::say!("serving `{model}` with OpenAI's API until Ctrl-C{note}");
    }
    stdout::line(&url.or(socket).unwrap_or_default());
}
