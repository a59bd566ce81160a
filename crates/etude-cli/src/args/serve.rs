//! Commands of the server: `serve`, `mcp`, `token`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The apps to serve: directories, or `SLUG=DIR` [default: the nearest app]
    #[arg(value_name = "APP", value_hint = ValueHint::DirPath)]
    pub(crate) apps: Vec<String>,
    /// Listen on this address, or on this socket of a service manager (`fd:3`), instead of loopback. Repeatable
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "port", value_parser = crate::value::place)]
    pub(crate) listen: Vec<crate::value::Place>,
    /// Listen on this port of both loopback addresses; 0 takes a free one
    #[arg(
        long, value_name = "N", default_value_t = etude_server::listen::PORT, allow_negative_numbers = true,
        value_parser = crate::value::whole(0..=u16::MAX),
    )]
    pub(crate) port: u16,
    /// Accept this name in the `Host` header. Repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Encrypt connections with this certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Trust the `X-Forwarded-*` headers of a proxy in front of the server
    #[arg(long)]
    pub(crate) behind_proxy: bool,
    /// The path below which the proxy serves this server
    #[arg(long, value_name = "PATH")]
    pub(crate) base_path: Option<String>,
    /// Let pages of this origin call the server. Repeatable
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    /// The interrupted runs to continue: those of servers, or also those of the command line
    #[arg(long, value_name = "WHICH", default_value = "own")]
    pub(crate) adopt: Adopt,
    /// The time that runs have to finish their effects when the server stops [default: 30s]
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = crate::value::duration_ms)]
    pub(crate) drain_timeout: Option<u64>,
    /// Print a login link of the running server
    #[arg(long)]
    pub(crate) link: bool,
    /// Open the pages of the server in a browser, logged in
    #[arg(long, conflicts_with = "link")]
    pub(crate) open: bool,
}

/// The interrupted runs that a server continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Adopt {
    /// Runs that a server began
    Own,
    /// Runs of the command line too
    All,
}

#[derive(Debug, Args)]
#[cfg(feature = "postgres")]
pub(crate) struct Worker {
    /// Take runs from this queue. Repeatable; the first one comes first [default: default]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Vec<String>,
    /// Drive at most this many runs at once [default: 64 for each core]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = crate::value::whole(1..=u32::MAX))]
    pub(crate) places: Option<u32>,
    /// The time that runs have to finish their effects when the worker stops
    #[arg(
        long, value_name = "DURATION", default_value = "10m", allow_negative_numbers = true,
        value_parser = crate::value::duration_ms
    )]
    pub(crate) drain: u64,
    /// Stop after this time without a run [default: never]
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = crate::value::duration_ms)]
    pub(crate) idle: Option<u64>,
    /// Serve `/healthz`, `/readyz` and `/metrics` on this address; port 0 takes a free one
    #[arg(long, value_name = "ADDR", value_parser = crate::value::address)]
    pub(crate) health: Option<std::net::SocketAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct Mcp {
    /// List only the tools whose name matches, and the fixed ones
    #[arg(long, value_name = "GLOB")]
    pub(crate) tools: Option<String>,
    /// List `etude_find` and `etude_call` instead of a tool for each pipeline and machine
    #[arg(long)]
    pub(crate) compact: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create a token and print it, the only time
    New(TokenNew),
    /// List tokens by name
    List,
    /// Revoke a token at once
    Revoke(TokenRevoke),
}

#[derive(Debug, Args)]
pub(crate) struct TokenNew {
    /// The name of the token, which is recorded with its actions
    pub(crate) name: String,
    /// The permissions: `read`, `run`, `approve`, `admin`, separated by commas
    #[arg(long, value_name = "SCOPES", required = true, value_delimiter = ',', value_parser = scope)]
    pub(crate) scope: Vec<etude_server::token::Scope>,
    /// Limit the token to pipelines and machines whose name matches. Repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) only: Vec<String>,
    /// The validity of the token, such as `90d` [default: until it is revoked]
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = crate::value::long_duration_ms)]
    pub(crate) expires: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevoke {
    /// The name of the token
    pub(crate) name: String,
}

fn scope(text: &str) -> Result<etude_server::token::Scope, String> {
    etude_server::token::Scope::from_word(text)
        .ok_or_else(|| "the scopes are `read`, `run`, `approve` and `admin`".to_owned())
}
