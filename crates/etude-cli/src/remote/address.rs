//! Address of a server, and the token for it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etude_core::service_url::is_loopback;
use etude_models::Secret;
use etude_process::TOKEN_VARIABLE as TOKEN;
use reqwest::{Client, ClientBuilder, Url};
use serde_json::Value;

use crate::paths;
use crate::problem::Problem;

/// Environment variable that names a server, like `--server`.
pub(crate) const SERVER: &str = "ETUDE_SERVER";

/// Environment variable that names a file with the token.
const TOKEN_FILE: &str = "ETUDE_TOKEN_FILE";

/// Word for the user's own server on this machine.
const LOCAL: &str = "local";

/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// Maximum time in which the user's own servers must identify themselves.
const IDENTITY: Duration = Duration::from_secs(5);

/// The named server: from the command line, or else from the environment.
pub(super) fn named(flag: Option<&str>) -> Option<String> {
    let of_environment = || std::env::var(SERVER).ok();
    flag.map(str::to_owned).or_else(of_environment).filter(|text| !text.is_empty())
}

/// Address and token of a server.
#[derive(Debug)]
pub(super) struct Address {
    /// Base URL, which request paths follow.
    pub(super) base: String,
    /// Unix socket to connect to, whatever the base URL says.
    socket: Option<PathBuf>,
    pub(super) token: Secret,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(socket) => write!(f, "the server at `{}`", socket.display()),
            None => write!(f, "the server at `{}`", self.base),
        }
    }
}

impl Address {
    /// Resolves the server that `text` names, with its token.
    pub(super) async fn find(text: &str) -> Result<Self, Problem> {
        let token = token()?;
        if text == LOCAL {
            let own = Self::own(|_| true).await?;
            return Ok(Self { token: token.unwrap_or(own.token), ..own });
        }
        let (base, url) = base_of(text)?;
        let is_loopback = is_loopback(&url);
        if url.scheme() == "http" && !is_loopback {
            let problem = Problem::usage(format!("`--server {base}` would send the token without encryption"));
            return Err(problem.hint("use `https://`, or a tunnel to a port of this machine"));
        }
        if let Some(token) = token {
            return Ok(Self { base, socket: None, token });
        }
        // Anyone on this machine may listen at a port. The owner's token goes to the socket of the server that has
        // this address, never to the port.
        if is_loopback && let Some(own) = own_server(|server| is_among(&url, &addresses_of(server))).await? {
            return Ok(own);
        }
        let problem = Problem::environment(format!("there is no token for the server at `{base}`"));
        let problem = problem.hint(format!("set {TOKEN}, or {TOKEN_FILE} to the path of a file with it"));
        Err(problem.hint("create one on the server's machine: etude token new NAME --scope read,run"))
    }

    /// Address of the server in this process.
    pub(super) async fn of_process() -> Result<Self, Problem> {
        Self::own(|server| server["pid"] == std::process::id()).await
    }

    async fn own(fits: impl Fn(&Value) -> bool) -> Result<Self, Problem> {
        let own = own_server(fits).await?;
        own.ok_or_else(|| Problem::environment("no server of this user listens").hint("start one: etude serve"))
    }

    /// HTTP client for the server. It follows no redirects, which would carry the token elsewhere.
    pub(super) fn client(&self) -> Result<Client, Problem> {
        let url = Url::parse(&self.base).map_err(|error| Problem::environment(format!("{}: {error}", self.base)))?;
        let settings = |client: ClientBuilder| at_socket(client.connect_timeout(CONNECT), self.socket.as_deref());
        etude_http::client(&url, settings).map_err(Problem::environment)
    }
}

fn at_socket(client: ClientBuilder, socket: Option<&Path>) -> ClientBuilder {
    match socket {
        Some(socket) => client.unix_socket(etude_files::socket::short(socket)),
        None => client,
    }
}

/// Token from the environment. It is never an argument, since all users of the machine can read those.
fn token() -> Result<Option<Secret>, Problem> {
    let given = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    if let Some(token) = given(TOKEN) {
        return Ok(Some(Secret::new(token.trim())));
    }
    let Some(path) = given(TOKEN_FILE) else { return Ok(None) };
    read_token(Path::new(&path)).map(Some)
}

fn read_token(path: &Path) -> Result<Secret, Problem> {
    let text = etude_files::regular::read_text(path, 4096)
        .map_err(|error| Problem::environment(format!("cannot read the token file `{}`: {error}", path.display())))?;
    Ok(Secret::new(text.trim()))
}

/// Parses the URL, and removes a slash at its end.
fn base_of(text: &str) -> Result<(String, Url), Problem> {
    let wrong = |why: &str| {
        Problem::usage(format!("`--server {text}` is not a server address: {why}"))
            .hint("give one such as `http://127.0.0.1:3883`, or `local` for your own server")
    };
    let url = Url::parse(text).map_err(|_| wrong("it is not a URL"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(wrong("it begins with neither `http://` nor `https://`"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Problem::usage("`--server` takes no password").hint(format!("set {TOKEN}")));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it has a query"));
    }
    Ok((url.as_str().trim_end_matches('/').to_owned(), url))
}

/// True if a server with these addresses is at `url`.
fn is_among(url: &Url, addresses: &[Url]) -> bool {
    let port = |url: &Url| url.port_or_known_default();
    let is_same = |address: &Url| url.host_str() == address.host_str() || url.host_str() == Some("localhost");
    addresses.iter().any(|address| port(address) == port(url) && is_same(address))
}

fn addresses_of(server: &Value) -> Vec<Url> {
    let addresses = server["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
    addresses.filter_map(|url| Url::parse(url).ok()).collect()
}

/// The newest server of this user whose description fits, through its socket and with the owner's token.
async fn own_server(fits: impl Fn(&Value) -> bool) -> Result<Option<Address>, Problem> {
    let dir = paths::state_dir().map_err(Problem::environment)?.join("serve");
    let mut sockets: Vec<PathBuf> = std::fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        .collect();
    let age = |path: &PathBuf| std::fs::symlink_metadata(path).and_then(|meta| meta.modified()).ok();
    sockets.sort_by_key(|path| std::cmp::Reverse(age(path)));
    for socket in sockets {
        let token = read_token(&dir.join("owner.token"))?;
        let own = Address { base: "http://localhost".to_owned(), socket: Some(socket), token };
        let request = own.client()?.get("http://localhost/v1/server").bearer_auth(own.token.expose());
        // A killed server leaves its socket behind.
        let Ok(Ok(response)) = tokio::time::timeout(IDENTITY, request.send()).await else { continue };
        let Ok(text) = response.text().await else { continue };
        let server: Value = serde_json::from_str(&text).unwrap_or_default();
        if server["pid"].is_u64() && fits(&server) {
            // Only the network addresses have a base path.
            return Ok(Some(own));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_without_a_password_and_has_a_path() {
        for (text, base) in [
            ("http://127.0.0.1:3883", "http://127.0.0.1:3883"),
            ("http://127.0.0.1:3883/", "http://127.0.0.1:3883"),
            ("https://runs.example/etude/", "https://runs.example/etude"),
        ] {
            assert_eq!(base_of(text).expect("a URL").0, base, "{text}");
        }
        for text in ["x", "ftp://a", "http://u:p@127.0.0.1", "http://127.0.0.1/?a=b", "localhost:3883"] {
            assert!(base_of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_own_server_is_known_by_its_addresses() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let addresses = [url("http://127.0.0.1:3883"), url("http://[::1]:3883")];
        for (text, is_own) in [
            ("http://127.0.0.1:3883", true),
            ("http://localhost:3883", true),
            ("http://[::1]:3883", true),
            ("http://127.0.0.1:3884", false),
            ("http://127.0.0.2:3883", false),
        ] {
            assert_eq!(is_among(&url(text), &addresses), is_own, "{text}");
        }
    }
}
