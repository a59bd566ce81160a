//! `etude serve`: serves runs over HTTP.

pub(crate) mod apps;
mod beside;
mod browser;
mod log;
mod mcp;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etude_core::failure::{Failure, FailureKind};
use etude_core::report::error_json;
use etude_runtime::driver::Stop;
use etude_runtime::engine::{self, Engine};
use etude_server::clock::Clock;
use etude_server::listen::{ListenAddress, Listening, Tls, Wanted, inherited};
use etude_server::token::Tokens;
use etude_server::{Event, LogLine, ServedApp, Server, Settings, client, serve as accept};
use etude_spec::application::{is_slug, slugified};
use serde_json::{Value, json};

use crate::args;
use crate::context::{Context, not_an_app};
use crate::exit::Exit;
use crate::problem::{Problem, line, located};
use crate::render::stopped::of_engine;
use crate::render::text::visible;
use crate::runtime::block_on;
use crate::{paths, signals, stdout, value};

pub(crate) use beside::Beside;
pub(crate) use mcp::mcp;

/// Environment variable that names the file of the test clock.
const TEST_CLOCK: &str = "ETUDE_TEST_CLOCK";

/// Interval at which the file of the test clock is read.
const TEST_CLOCK_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time in which a server must return a login link.
const LINK: Duration = Duration::from_secs(5);

/// Failed start of a server.
struct NotStarted {
    problem: Problem,
    /// The address that could not be bound.
    address: Option<String>,
}

impl From<Problem> for NotStarted {
    fn from(problem: Problem) -> Self {
        Self { problem, address: None }
    }
}

pub(crate) fn serve(context: &Context, args: &args::Serve) -> Exit {
    if args.link {
        return link(context).unwrap_or_else(|problem| context.report(None, &problem));
    }
    start(context, args).unwrap_or_else(|NotStarted { problem, address }| {
        let exit = problem.exit;
        let errors: Vec<Value> = problem.failures.iter().map(|failure| error(failure, address.as_deref())).collect();
        if !context.is_json() {
            return context.report(None, &problem);
        }
        context.say_problem(&problem);
        stdout::json(&json!({"addresses": [], "errors": errors}));
        exit
    })
}

/// Prints the document for an invalid command line.
pub(crate) fn usage_error(message: &str) {
    let failure = Failure::new(FailureKind::InputInvalid, message.trim_end());
    stdout::json(&json!({"addresses": [], "errors": [error(&failure, None)]}));
}

/// Applies the limits of the configuration, and its issuer of access tokens.
fn limit(settings: &mut Settings, context: &Context, drain_timeout_ms: Option<u64>) -> Result<(), Problem> {
    let [app, others @ ..] = settings.apps.as_slice() else { return Ok(()) };
    let (limits, auth) = crate::settings::serve(&context.global, &app.dir, others.is_empty())?;
    if let Some(auth) = auth.as_ref().filter(|_| !context.is_json() && !context.global.quiet) {
        // The user must know, since the file of the app may set this.
        crate::render::say!("access tokens of {} are accepted", visible(&auth.issuer));
    }
    settings.auth = auth;
    settings.max_runs = limits.max_runs.unwrap_or(settings.max_runs);
    settings.max_queued = limits.max_queued.unwrap_or(settings.max_queued);
    settings.max_cost_per_day_usd = limits.max_cost_per_day_usd;
    if let Some(ms) = drain_timeout_ms.or(limits.drain_timeout_ms) {
        settings.drain_timeout = Duration::from_millis(ms);
    }
    Ok(())
}

/// Error as in the JSON line of a server that did not start.
fn error(failure: &Failure, address: Option<&str>) -> Value {
    let whole = error_json(failure);
    let mut out = json!({"code": whole["code"], "kind": whole["kind"], "message": line(failure)});
    if let Some(address) = address {
        out["address"] = address.into();
    }
    out
}

/// The settings of a server whose files are in `state`.
fn settings(context: &Context, args: &args::Serve, state: &Path) -> Result<Settings, Problem> {
    let mut settings = Settings::new(state, served(context, args)?);
    settings.config.clone_from(&context.global.config);
    settings.names.clone_from(&args.host);
    settings.is_behind_proxy = args.behind_proxy;
    settings.base_path = base_path(args.base_path.as_deref())?;
    settings.allowed_origins = args.allow_origin.iter().map(|origin| allowed(origin)).collect::<Result<_, _>>()?;
    limit(&mut settings, context, args.drain_timeout)?;
    settings.adopts_all = args.adopt == args::Adopt::All;
    Ok(settings)
}

fn start(context: &Context, args: &args::Serve) -> Result<Exit, NotStarted> {
    let wanted = wanted(args)?;
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(Tls::load(cert, key).map_err(Problem::environment)?),
        _ => None,
    };
    let state = paths::state_dir().map_err(Problem::environment)?;
    let settings = settings(context, args, &state)?;
    let engine = engine_for(context, &settings)?;
    let dir = state.join("serve");
    Tokens::new(&dir).owner().map_err(|error| Problem::environment(error.to_string()))?;
    let is_quiet = context.global.quiet;
    let lines = log::RequestLog::start(|line| crate::render::say!("{line}"))
        .map_err(|e| Problem::environment(format!("cannot start threads: {e}")))?;
    let (of, noted) = (lines.clone(), lines.clone());
    let log = Box::new(move |line: &LogLine| {
        if !is_quiet {
            of.log(line);
        }
    });
    let events = Box::new(move |event: &Event| {
        if !is_quiet {
            noted.note(event);
        }
    });
    let clock = clock();
    watch_clock(clock.clone());
    block_on(async {
        let mut stop = signals::listen()?;
        let mut listening = Listening::bind(wanted, &dir, std::process::id()).await.map_err(|error| {
            let problem = Problem::environment(error.to_string());
            let hint = not_bound(&error.address, error.source.kind());
            NotStarted { problem: hint.into_iter().fold(problem, Problem::hint), address: Some(error.address) }
        })?;
        if let Some(tls) = tls {
            listening = listening.with_tls(tls);
        }
        let socket = listening.addresses().socket.clone();
        let apps = Box::new(apps::Configured::new(&context.global, Arc::clone(&engine)));
        let server = Server::new(settings, engine, apps, listening.addresses().clone(), clock, log);
        server.observe(events);
        announce(context, &server, &socket);
        if args.open {
            browser::open(&server.login_link().0, &dir);
        }
        let stopped = Arc::clone(&server);
        let signals = tokio::spawn(async move {
            if stop.wait_for(|stop| *stop != Stop::No).await.is_ok() {
                stopped.drain();
            }
            if stop.wait_for(|stop| matches!(stop, Stop::Kill(_))).await.is_ok() {
                // Nothing depends on the file: the next client finds no server behind it.
                let _ = std::fs::remove_file(&socket);
                std::process::exit(Exit::Done as i32);
            }
        });
        accept(server, listening).await;
        signals.abort();
        lines.flush();
        Ok(Exit::Done)
    })?
}

/// Opens the engine. Apps are not served if the database role may not drive runs: an accepted run would wait for ever. A
/// temporary fault, such as object storage that does not respond, does not stop the server.
fn engine_for(context: &Context, settings: &Settings) -> Result<Arc<dyn Engine>, Problem> {
    let engine = context.engine(false)?;
    if !settings.apps.is_empty()
        && let Err(error @ engine::Error::Refused { .. }) = engine.check_work()
    {
        return Err(of_engine(&error));
    }
    Ok(engine)
}

/// Prints the addresses of the server.
fn announce(context: &Context, server: &Arc<Server>, socket: &Path) {
    let urls = server.addresses().urls();
    if context.is_json() {
        stdout::json(&json!({
            "addresses": urls, "socket": socket.display().to_string(), "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
        }));
        return;
    }
    if !context.global.quiet {
        crate::render::say!("listening on {}", urls.join(" and "));
    }
    // A link in a log would not stay secret.
    match std::io::stdout().is_terminal() {
        true => stdout::line(&server.login_link().0),
        false if context.global.quiet => {}
        false => crate::render::say!("hint: print a login link: etude serve --link"),
    }
}

/// Wanted addresses, which must be loopback unless connections are encrypted here or by a proxy.
fn wanted(args: &args::Serve) -> Result<Wanted, Problem> {
    if args.listen.is_empty() {
        return Ok(Wanted::Loopback(args.port));
    }
    let places = places(&args.listen)?;
    let is_safe = args.tls_cert.is_some() || args.behind_proxy;
    if let Some(address) = places.iter().map(ListenAddress::address).find(|address| !address.ip().is_loopback()) {
        if !is_safe {
            let problem =
                Problem::usage(format!("`--listen {address}` is not a loopback address, so it needs encryption"));
            return Err(problem.hint("add `--tls-cert FILE --tls-key FILE`, or `--behind-proxy`"));
        }
        if args.host.is_empty() {
            let problem = Problem::usage(format!("`--listen {address}` needs the host name that clients use"));
            return Err(problem.hint("add `--host NAME`"));
        }
    }
    Ok(Wanted::Places(places))
}

/// Wanted addresses, with the sockets that a service manager has bound.
fn places(wanted: &[value::Place]) -> Result<Vec<ListenAddress>, Problem> {
    let is_handed = |place: &value::Place| matches!(place, value::Place::Descriptor(_));
    let mut handed = match wanted.iter().any(is_handed) {
        true => inherited().map_err(|e| Problem::environment(format!("the sockets of the service manager: {e}")))?,
        false => BTreeMap::new(),
    };
    let mut places = Vec::new();
    for place in wanted {
        places.push(match *place {
            value::Place::Address(address) => ListenAddress::Address(address),
            value::Place::Descriptor(at) => {
                let bound = handed.remove(&at).and_then(|socket| Some((socket.local_addr().ok()?, socket)));
                let Some((address, socket)) = bound else {
                    let problem =
                        Problem::environment(format!("`--listen fd:{at}` is not a TCP socket from a service manager"));
                    return Err(problem
                        .hint("systemd passes one with `ListenStream=PORT` in a `.socket` unit of the same name"));
                };
                ListenAddress::Bound(socket, address)
            }
        });
    }
    Ok(places)
}

fn base_path(given: Option<&str>) -> Result<String, Problem> {
    let Some(path) = given.map(|path| path.trim_end_matches('/')) else { return Ok(String::new()) };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
    let is_path = path.is_empty() || path.starts_with('/') && !path.contains("//") && path.chars().all(is_plain);
    if is_path {
        return Ok(path.to_owned());
    }
    Err(Problem::usage(format!("`--base-path {path}` is not a path")).hint("give one such as `/etude`"))
}

/// The way out if an address cannot be bound; none for a socket, whose error names its path.
fn not_bound(address: &str, kind: io::ErrorKind) -> Option<String> {
    let port = address.parse::<SocketAddr>().ok()?.port();
    Some(match kind {
        io::ErrorKind::AddrInUse => format!("port {port} is in use; choose another one: etude serve --port 0"),
        io::ErrorKind::AddrNotAvailable => {
            "name an address of this machine, such as `--listen 127.0.0.1:8080`".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            format!("port {port} needs privileges; choose one from 1024, or take a socket from systemd: --listen fd:3")
        }
        _ => "choose another address and port: etude serve --port 0".to_owned(),
    })
}

fn allowed(origin: &str) -> Result<String, Problem> {
    let rest = ["https://", "http://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
    let is_origin = rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['/', '?', '#', '@', '*']));
    if is_origin {
        return Ok(origin.to_ascii_lowercase());
    }
    Err(Problem::usage(format!("`--allow-origin {origin}` is not an origin"))
        .hint("give one such as `https://tool.example`"))
}

/// The apps to serve, with their slugs.
fn served(context: &Context, args: &args::Serve) -> Result<Vec<ServedApp>, Problem> {
    let given: Vec<(Option<&str>, PathBuf)> = match args.apps.is_empty() {
        true => vec![(None, context.app_dir()?)],
        false => args.apps.iter().map(|text| named(text)).collect::<Result<_, _>>()?,
    };
    apps_of(given, false)
}

/// Opens the apps in these directories. A single app may have any slug, and may still be created later.
fn apps_of(given: Vec<(Option<&str>, PathBuf)>, is_one: bool) -> Result<Vec<ServedApp>, Problem> {
    let mut apps: Vec<ServedApp> = Vec::new();
    for (slug, dir) in given {
        let dir = dir
            .canonicalize()
            .map_err(|e| Problem::usage(format!("the app `{}` cannot be opened: {e}", dir.display())))?;
        // Documents and the journal name an app by the path of its directory.
        if dir.to_str().is_none() {
            let problem = Problem::usage(format!("the path of the app `{}` is not UTF-8", dir.display()));
            return Err(problem.hint("rename the directory"));
        }
        if !is_one && !etude::app::is_app(&dir) {
            let hint = "an app has `SKILL.md`, `pipelines/` or `machines/`; make one with `etude new DIR`";
            return Err(not_an_app(&dir).hint(hint));
        }
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let slug = slug.map_or_else(|| slugified(&name), str::to_owned);
        let slug = if is_one && slug.is_empty() { "app".to_owned() } else { slug };
        if slug.is_empty() {
            let problem = Problem::usage(format!("cannot derive a slug from the directory name `{name}`"));
            return Err(problem.hint(format!("name the app: etude serve SLUG={}", dir.display())));
        }
        if let Some(other) = apps.iter().find(|app| app.slug == slug) {
            let message = format!("`{}` and `{}` have the slug `{slug}`", other.dir.display(), dir.display());
            return Err(Problem::usage(message).hint("name one of them: etude serve SLUG=DIR"));
        }
        apps.push(ServedApp { slug, dir });
    }
    Ok(apps)
}

/// The app that commands find, as the only one served. Without one, the directory itself, which may become an app: agents start
/// their servers in every project.
fn one_app(context: &Context) -> Result<ServedApp, Problem> {
    let dir = match context.app_dir() {
        Ok(dir) => dir,
        Err(problem) => {
            let dir = context.start_dir()?;
            // Files that other users add later must not run, since the user has not named the directory.
            let is_trusted = context.global.app.is_some() || etude::app::is_own(&dir);
            if !is_trusted || etude::app::of_others(&dir).is_some_and(|_| context.global.app.is_none()) {
                return Err(problem);
            }
            dir
        }
    };
    let mut apps = apps_of(vec![(None, dir)], true)?;
    apps.pop().ok_or_else(|| Problem::usage("no app to serve"))
}

/// Parses a directory with an optional slug: `SLUG=DIR`. The name of a directory may itself contain `=`.
fn named(text: &str) -> Result<(Option<&str>, PathBuf), Problem> {
    match text.split_once('=') {
        Some((slug, dir)) if is_slug(slug) => Ok((Some(slug), dir.into())),
        Some((slug, dir)) if !slug.contains(std::path::is_separator) && !Path::new(text).exists() => {
            let rule = "it has lower-case letters, digits, and single `-` between them";
            let problem = Problem::usage(format!("`{}` is not a slug: {rule}", visible(slug)));
            let near = slugified(slug);
            let near = if near.is_empty() { "SLUG" } else { &near };
            Err(problem.hint(format!("name the app: etude serve {near}={}", visible(dir))))
        }
        _ => Ok((None, text.into())),
    }
}

/// Prints a login link of the newest server of this user.
fn link(context: &Context) -> Result<Exit, Problem> {
    let dir = paths::state_dir().map_err(Problem::environment)?.join("serve");
    let none = || Problem::environment("no server of this user listens").hint("start one: etude serve");
    let sockets = client::sockets(&dir);
    if sockets.is_empty() {
        return Err(none());
    }
    let token = Tokens::new(&dir).owner().map_err(|error| Problem::environment(error.to_string()))?;
    let document: Option<Value> = block_on(async {
        let mut seen = BTreeSet::new();
        for socket in sockets.into_iter().filter(|socket| seen.insert(socket.clone())) {
            let post = client::post(&socket, "/v1/server/links", &token, "{}");
            // A server that does not respond is passed over.
            let Ok(Ok((status, body))) = tokio::time::timeout(LINK, post).await else { continue };
            if let (201, Ok(document)) = (status, serde_json::from_slice(&body)) {
                return Some(document);
            }
        }
        None
    })?;
    let document = document.ok_or_else(none)?;
    match context.is_json() {
        true => stdout::json(&document),
        false => stdout::line(document["url"].as_str().unwrap_or_default()),
    }
    Ok(Exit::Done)
}

/// Wall clock, shifted by the file of the test clock.
pub(crate) fn clock() -> Clock {
    let clock = Clock::default();
    clock.set_offset(test_offset().unwrap_or(0));
    clock
}

fn test_offset() -> Option<i64> {
    std::fs::read_to_string(std::env::var_os(TEST_CLOCK)?).ok()?.trim().parse().ok()
}

/// Follows the file of the test clock for as long as the process lives.
fn watch_clock(clock: Clock) {
    if std::env::var_os(TEST_CLOCK).is_none() {
        return;
    }
    let follow = move || {
        loop {
            if let Some(offset) = test_offset() {
                clock.set_offset(offset);
            }
            std::thread::sleep(TEST_CLOCK_INTERVAL);
        }
    };
    // Without the thread, the clock keeps its initial offset.
    let _ = std::thread::Builder::new().name("test-clock".to_owned()).spawn(follow);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 3: an app in a directory whose name is not UTF-8 is refused, since its runs could not find it.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_app_in_a_directory_that_is_not_utf_8_is_refused() {
        use std::os::unix::ffi::OsStrExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let app = dir.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        std::fs::create_dir_all(app.join("pipelines")).expect("an app");
        let problem = apps_of(vec![(None, app)], false).expect_err("it is refused");
        assert_eq!(problem.exit as i32, 2);
    }

    /// S-3: the way out of an address that cannot be bound fits its cause.
    #[test]
    fn an_address_that_cannot_be_bound_has_a_way_out() {
        let hint = |address: &str, kind| not_bound(address, kind).unwrap_or_default();
        assert!(hint("127.0.0.1:80", io::ErrorKind::AddrInUse).starts_with("port 80 is in use"));
        assert!(hint("192.0.2.1:80", io::ErrorKind::AddrNotAvailable).contains("address of this machine"));
        assert!(hint("127.0.0.1:80", io::ErrorKind::PermissionDenied).starts_with("port 80 needs privileges"));
        assert_eq!(not_bound("/run/etude.sock", io::ErrorKind::AddrInUse), None);
    }

    #[test]
    fn an_app_is_named_by_a_slug() {
        assert_eq!(named("shop=dir/x").ok(), Some((Some("shop"), PathBuf::from("dir/x"))));
        assert_eq!(named("dir/a b=c").ok(), Some((None, PathBuf::from("dir/a b=c"))));
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().join("A=b");
        std::fs::create_dir(&at).expect("made");
        let at = at.to_str().expect("UTF-8");
        assert_eq!(named(at).ok(), Some((None, PathBuf::from(at))));
        for (text, hint) in [("My App=x", "etude serve my-app=x"), ("=x", "etude serve SLUG=x")] {
            let problem = named(text).expect_err(text);
            assert!(problem.hints.iter().any(|given| given.contains(hint)), "{text}: {:?}", problem.hints);
        }
    }
}
