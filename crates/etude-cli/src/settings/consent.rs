//! Consent of the user: keys may go only to certain hosts, and an app's configuration may be used only in part (ADR 0052).
//!
//! Keys of the environment go to hosts that the user's configuration names, and to the hosts of the built-in kinds. Commands
//! that run the app use its configuration; a command that only looks at it starts and contacts none of it.

use std::collections::BTreeSet;

use etude_core::service_url::{Origin, ServiceUrl};
use etude_models::{ProviderKind, is_public_header};
use etude_spec::config::{Config, McpServer, Provider};

use super::grants::BASE;
use super::{Layer, SECRET_VARIABLES, secrets, secrets_in};
use crate::args::Purpose;
use crate::paths;

/// Variables with the hosts to which the user lets them be sent.
#[derive(Debug, Clone)]
pub(super) struct Consent {
    purpose: Purpose,
    /// A variable, and a host that gets its value.
    pairs: Vec<(String, Origin)>,
    /// Hosts that the user or a built-in kind names.
    hosts: Vec<Origin>,
    /// Variables that the user's configuration or a built-in kind names: programs of apps do not get them unasked.
    keys: BTreeSet<String>,
    /// Variables with which etude reaches its database and servers: no app gets one by its name.
    own: Vec<String>,
}

/// A host or program that an app wants to use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish<'a> {
    /// Configured entry, such as "provider `x`".
    pub(super) what: &'a str,
    /// Path of the file for messages.
    pub(super) file: &'a str,
    pub(super) line: u32,
    /// URL as written; `None` for programs and files.
    pub(super) url: Option<&'a str>,
    /// All texts that are sent there.
    pub(super) sent: &'a [&'a str],
    /// Variable that is sent if no text names one.
    pub(super) implied: Option<&'a str>,
}

impl Consent {
    /// Consent in the user's own files. `own` are etude's own variables.
    pub(super) fn of(layers: &[Layer], purpose: Purpose, own: &[String]) -> Self {
        let own = own.to_vec();
        let mut consent = Self { purpose, pairs: Vec::new(), hosts: Vec::new(), keys: BTreeSet::new(), own };
        for kind in ProviderKind::ALL {
            consent.lets(kind.default_base_url(), kind.key_variable().map(str::to_owned));
        }
        for config in layers.iter().filter(|layer| !layer.is_of_app).map(|layer| &layer.config) {
            consent.learn(config);
        }
        consent
    }

    /// Adds the consent in a file of the user.
    fn learn(&mut self, config: &Config) {
        for provider in config.providers.values() {
            let kind = ProviderKind::from_word(&provider.kind);
            let url = provider.base_url.as_deref().or(kind.and_then(ProviderKind::default_base_url));
            let implied = kind.filter(|_| provider.api_key.is_none()).and_then(|kind| customary(kind, provider));
            let named = variables(&texts_of_provider(provider)).into_iter();
            self.lets(url, named.chain(implied.map(str::to_owned)));
        }
        for server in config.mcp_servers.values() {
            let env = server.env.values().map(String::as_str).chain(server.args.iter().map(String::as_str));
            self.keys.extend(variables(&env.collect::<Vec<_>>()));
            self.lets(server.url.as_deref(), variables(&texts_of_server(server)));
        }
    }

    fn lets(&mut self, url: Option<&str>, variables: impl IntoIterator<Item = String>) {
        let origin = url.and_then(|url| ServiceUrl::new(secrets_in(url)).origin());
        for name in variables {
            self.pairs.extend(origin.clone().map(|origin| (name.clone(), origin)));
            self.keys.insert(name);
        }
        self.hosts.extend(origin);
    }

    /// Variables with the hosts to which the user lets them be sent.
    pub(super) fn pairs(&self) -> &[(String, Origin)] {
        &self.pairs
    }

    /// Variables that programs of apps do not get unasked.
    pub(super) fn keys(&self) -> impl Iterator<Item = &String> {
        self.keys.iter()
    }

    /// Keys that the user's configuration names, except variables that every program needs.
    pub(super) fn users_keys(&self) -> impl Iterator<Item = &String> {
        self.keys.iter().filter(|name| !SECRET_VARIABLES.contains(&name.as_str()) && !BASE.contains(&name.as_str()))
    }

    /// Reason why a provider that an app configures is not used; `None` if it may be.
    pub(super) fn provider(&self, name: &str, given: &Provider, kind: ProviderKind, file: &str) -> Option<String> {
        let what = format!("provider `{name}`");
        let url = given.base_url.as_deref().or(kind.default_base_url());
        let sent = texts_of_provider(given);
        // Without a header in place of the key, the provider needs the variable.
        let needed = kind.key_variable().filter(|_| given.headers.is_empty());
        let implied = customary(kind, given).or(needed).filter(|_| given.api_key.is_none());
        let wish = Wish { what: &what, file, line: given.line, url, sent: &sent, implied };
        let is_only_read = kind == ProviderKind::Recorded && given.record.is_none();
        // Hosts are irrelevant for weights, recordings and programs.
        let is_hosted = !matches!(kind, ProviderKind::Command | ProviderKind::Local | ProviderKind::Recorded);
        if let Some(why) = wish.routing_header(given.headers.keys()) {
            return Some(why);
        }
        match self.purpose {
            Purpose::Look if is_only_read || (is_hosted && given.command.is_none() && self.is_users_own(&wish)) => None,
            Purpose::Look => Some(wish.is_only_looked_at()),
            Purpose::Run => self.refusal(&wish),
        }
    }

    /// Reason why an MCP server that an app configures is not used; `None` if it may be.
    pub(super) fn server(&self, name: &str, given: &McpServer, file: &str) -> Option<String> {
        let what = format!("MCP server `{name}`");
        let sent = texts_of_server(given);
        let wish = Wish { what: &what, file, line: given.line, url: given.url.as_deref(), sent: &sent, implied: None };
        match self.purpose {
            Purpose::Look => Some(wish.is_only_looked_at()),
            Purpose::Run => wish
                .routing_header(given.headers.keys())
                .or_else(|| self.handed_over(&wish, given))
                .or_else(|| self.refusal(&wish)),
        }
    }

    /// Reason why a program that serves as an MCP server does not get a key of the user.
    fn handed_over(&self, wish: &Wish<'_>, given: &McpServer) -> Option<String> {
        let texts: Vec<&str> = given.env.values().chain(&given.args).map(String::as_str).collect();
        let is_set = |name: &String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_key = |name: &String| self.keys.contains(name) || self.own.contains(name);
        let is_kept = |name: &String| is_key(name) && !BASE.contains(&name.as_str()) && is_set(name);
        let key = variables(&texts).into_iter().find(is_kept)?;
        Some(format!(
            "`{key}` is not given to a program: line {} of the app's `{}` names it for {}, and your configuration does not",
            wish.line, wish.file, wish.what
        ))
    }

    /// Host to which an app sends prompts, if neither the user nor a built-in kind names it and it is not this machine.
    pub(super) fn redirect(&self, url: &ServiceUrl) -> Option<String> {
        let origin = url.origin().filter(|origin| !origin.is_loopback() && !self.hosts.contains(origin))?;
        Some(origin.to_string())
    }

    /// Host to which an app sends prompts with a literal key, so that they are in the account of its author.
    pub(super) fn account(&self, given: &Provider, kind: ProviderKind) -> Option<String> {
        let url = given.base_url.as_deref().or(kind.default_base_url());
        let origin = ServiceUrl::new(secrets_in(url?)).origin().filter(|origin| !origin.is_loopback())?;
        let headers = given.headers.iter().filter(|(name, _)| !is_public_header(name)).map(|(_, value)| value);
        let mut texts = given.api_key.iter().chain(headers);
        texts.any(|text| is_written_out(text)).then(|| format!("{origin} with a key of its own"))
    }

    /// True if the user has named the host, and it gets nothing but keys that the user sends there.
    fn is_users_own(&self, wish: &Wish<'_>) -> bool {
        let Some(origin) = wish.origin() else { return false };
        let is_variable = |text: &&str| text.starts_with("${env:") && text.find('}') == Some(text.len() - 1);
        let (url, others): (Vec<&str>, Vec<&str>) = wish.sent.iter().partition(|text| Some(**text) == wish.url);
        self.hosts.contains(&origin)
            && variables(&url).is_empty()
            && others.iter().all(is_variable)
            && wish.variables().iter().all(|name| self.pairs.iter().any(|(known, to)| known == name && *to == origin))
    }

    /// Reason why a key is not sent where the app wants it.
    fn refusal(&self, wish: &Wish<'_>) -> Option<String> {
        wish.url?;
        let origin = wish.origin();
        let is_set = |name: &&String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let variables = wish.variables();
        let refused = variables.iter().filter(is_set).find(|name| !self.may_go(name, origin.as_ref()))?;
        Some(format!(
            "`{refused}` is not sent to `{}`: line {} of the app's `{}` names this host for {}, and your configuration does \
             not",
            wish.host(),
            wish.line,
            wish.file,
            wish.what
        ))
    }

    fn may_go(&self, variable: &str, to: Option<&Origin>) -> bool {
        let Some(to) = to else { return false };
        let is_built_in = ProviderKind::ALL.iter().filter_map(|kind| kind.default_base_url()).any(|url| {
            // The services have no use for foreign keys, and apps have nothing to gain there.
            ServiceUrl::new(url).origin().as_ref() == Some(to)
        });
        let is_same = |known: &Origin| known == to || (known.is_loopback() && to.is_loopback());
        // Programs of the app have such a variable anyway, and could listen there.
        let is_own = self.own.iter().any(|own| own == variable);
        let is_open = to.is_loopback() && !self.keys.contains(variable);
        (is_built_in || is_open) && !is_own || self.pairs.iter().any(|(name, known)| name == variable && is_same(known))
    }
}

impl Wish<'_> {
    /// Reason why headers of an app are not sent: one of them would send a request, with its key, to another host.
    fn routing_header<'h>(&self, mut names: impl Iterator<Item = &'h String>) -> Option<String> {
        const ROUTING: [&str; 4] = ["host", "forwarded", "x-forwarded-host", "proxy-authorization"];
        let name = names.find(|name| ROUTING.iter().any(|routing| name.eq_ignore_ascii_case(routing)))?;
        Some(format!(
            "header `{name}` is not sent: line {} of the app's `{}` sets it for {}, and it may redirect the request",
            self.line, self.file, self.what
        ))
    }

    fn origin(&self) -> Option<Origin> {
        ServiceUrl::new(secrets_in(self.url?)).origin()
    }

    fn variables(&self) -> Vec<String> {
        let implied = self.implied.map(str::to_owned);
        variables(self.sent).into_iter().chain(implied).collect()
    }

    /// Host for messages. A name with variables is shown as written, because it may contain a key.
    fn host(&self) -> String {
        let url = self.url.unwrap_or_default();
        if variables(&[url]).is_empty() {
            return self.origin().map_or_else(|| "(invalid URL)".to_owned(), |origin| origin.host());
        }
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        authority.rsplit('@').next().unwrap_or_default().to_owned()
    }

    fn is_only_looked_at(&self) -> String {
        format!(
            "{} is not used: line {} of the app's `{}` defines it, and this command only inspects the app",
            self.what, self.line, self.file
        )
    }
}

/// Hint for an app that requests more than it may have.
pub(crate) fn remedy(purpose: Purpose) -> String {
    let users = paths::user_config().map_or_else(|| "your configuration".to_owned(), |path| path.display().to_string());
    match purpose {
        Purpose::Look => format!(
            "`etude run` uses what the app defines; to use it here too, define it in `{users}`, or pass `--config etude.yaml`"
        ),
        Purpose::Run => format!(
            "to allow it, define a provider or MCP server with this host and key in `{users}`, or pass `--config etude.yaml`"
        ),
    }
}

/// Variable whose value a provider of this configuration gets without naming it.
fn customary(kind: ProviderKind, given: &Provider) -> Option<&'static str> {
    let url = given.base_url.as_deref().map(|url| ServiceUrl::new(secrets_in(url)));
    kind.customary_key(url.as_ref(), given.headers.keys().map(String::as_str))
}

fn texts_of_provider(provider: &Provider) -> Vec<&str> {
    let own = [&provider.api_key, &provider.base_url].into_iter().flatten();
    own.map(String::as_str).chain(provider.headers.values().map(String::as_str)).collect()
}

fn texts_of_server(server: &McpServer) -> Vec<&str> {
    server.url.iter().map(String::as_str).chain(server.headers.values().map(String::as_str)).collect()
}

/// True if a text that is sent contains more than variables and the name of a scheme.
fn is_written_out(text: &str) -> bool {
    let mut rest = text.trim();
    for scheme in ["Bearer ", "Basic ", "bearer ", "basic "] {
        rest = rest.strip_prefix(scheme).unwrap_or(rest);
    }
    let is_variable = rest.starts_with("${env:") && rest.find('}') == Some(rest.len() - 1);
    !rest.is_empty() && !is_variable
}

/// Variables that texts name.
fn variables(texts: &[&str]) -> Vec<String> {
    texts.iter().flat_map(|text| secrets::expand(text, &mut Vec::new()).variables).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use etude_spec::config;
    use etude_spec::source::SourceFile;

    const APP: &str = "etude.yaml";

    fn layer(path: &str, text: &str, is_of_app: bool) -> Layer {
        let (config, found) = config::read(&SourceFile::new(path, text));
        assert!(found.is_empty(), "{found:?}");
        Layer { path: path.to_owned(), config, is_of_app }
    }

    /// Reason why the only provider of an app is not used. `PATH` stands for a key, since it is set everywhere.
    fn refused(app: &str, user: &str, purpose: Purpose) -> Option<String> {
        let layers =
            [layer(APP, &format!("providers: {{x: {app}}}\n"), true), layer("user", &format!("{user}\n"), false)];
        let consent = Consent::of(&layers, purpose, &[]);
        let given = &layers[0].config.providers["x"];
        consent.provider("x", given, ProviderKind::from_word(&given.kind).expect("a kind"), APP)
    }

    /// A provider that sends `PATH` to `url`.
    fn sends(url: &str) -> String {
        format!("{{kind: openai-compatible, base_url: \"{url}\", api_key: \"${{env:PATH}}\"}}")
    }

    fn named(url: &str) -> String {
        format!("providers: {{mine: {}}}", sends(url))
    }

    #[test]
    fn a_key_goes_to_hosts_that_the_user_names() {
        let far = sends("https://far.example/v1");
        let why = refused(&far, "{}", Purpose::Run).expect("the host is the app's");
        assert_eq!(
            why,
            "`PATH` is not sent to `far.example`: line 1 of the app's `etude.yaml` names this host for provider `x`, and \
             your configuration does not"
        );
        assert_eq!(refused(&far, &named("https://far.example/other"), Purpose::Run), None);
        for other in
            ["http://far.example/v1", "https://far.example:444", "https://far.example.net", "https://x.far.example"]
        {
            assert!(refused(&far, &named(other), Purpose::Run).is_some(), "{other}");
        }
        // A key other than the one that the user sends there.
        let another = "providers: {mine: {kind: openai-compatible, base_url: \"https://far.example\", api_key: k}}";
        assert!(refused(&far, another, Purpose::Run).is_some());
    }

    #[test]
    fn every_text_that_is_sent_counts() {
        for provider in [
            "{kind: openai-compatible, base_url: \"https://${env:PATH}.far.example\"}",
            "{kind: openai-compatible, base_url: \"https://${env:PATH}@far.example\"}",
            "{kind: openai-compatible, base_url: \"https://far.example/?k=${env:PATH}\"}",
            "{kind: openai-compatible, base_url: \"https://far.example\", headers: {X-A: \"a ${env:PATH}\"}}",
            "{kind: local, base_url: \"https://far.example/${env:PATH}\"}",
        ] {
            let why = refused(provider, "{}", Purpose::Run).expect(provider);
            assert!(why.contains("far.example") && !why.contains('/'), "{why}");
        }
        for harmless in [
            "{kind: openai-compatible, base_url: \"https://far.example\"}",
            "{kind: openai-compatible, base_url: \"https://far.example\", api_key: literal}",
            "{kind: openai-compatible, base_url: \"https://far.example\", api_key: \"${env:ETUDE_NO_SUCH}\"}",
            "{kind: openai, api_key: \"${env:PATH}\"}",
            "{kind: command, command: run}",
        ] {
            assert_eq!(refused(harmless, "{}", Purpose::Run), None, "{harmless}");
        }
    }

    /// SECURITY.md: prompts that go to a known host in the account of the app's author are reported as well.
    #[test]
    fn a_key_that_is_written_into_the_app_is_somebodys_account() {
        let account = |app: &str| {
            let layers = [layer(APP, &format!("providers: {{x: {app}}}\n"), true)];
            let given = &layers[0].config.providers["x"];
            Consent::of(&layers, Purpose::Run, &[])
                .account(given, ProviderKind::from_word(&given.kind).expect("a kind"))
        };
        for own in [
            "{kind: openai, api_key: sk-of-the-author}",
            "{kind: openai, api_key: \"${env:NO_SUCH}sk-of-the-author\"}",
            "{kind: openai, headers: {Authorization: Bearer sk-of-the-author}}",
        ] {
            assert_eq!(account(own).as_deref(), Some("https://api.openai.com with a key of its own"), "{own}");
        }
        for users in [
            "{kind: openai}",
            "{kind: openai, api_key: \"${env:OPENAI_API_KEY}\", headers: {X-Title: notes}}",
            "{kind: openai, headers: {Authorization: \"Bearer ${env:OPENAI_API_KEY}\"}}",
            "{kind: openai-compatible, base_url: \"http://127.0.0.1:1\", api_key: literal}",
            "{kind: command, command: run}",
        ] {
            assert_eq!(account(users), None, "{users}");
        }
    }

    #[test]
    fn loopback_gets_what_programs_of_the_app_have_anyway() {
        let near = sends("http://127.0.0.1:8000/v1");
        assert_eq!(refused(&near, "{}", Purpose::Run), None);
        // Once the user sends a variable to a host it is a key, which no program of an app gets unasked.
        assert!(refused(&near, &named("https://far.example"), Purpose::Run).is_some());
        assert_eq!(refused(&near, &named("http://localhost:1"), Purpose::Run), None);
    }

    #[test]
    fn what_is_only_looked_at_is_used_only_where_the_user_has_agreed_already() {
        let openai = "{kind: openai, api_key: \"${env:OPENAI_API_KEY}\"}";
        assert_eq!(refused(openai, "{}", Purpose::Look), None);
        let far = sends("https://far.example/v1");
        assert_eq!(refused(&far, &named("https://far.example"), Purpose::Look), None);
        assert_eq!(refused("{kind: recorded, path: r}", "{}", Purpose::Look), None);
        for other in [
            far.as_str(),
            &sends("http://127.0.0.1:8000/v1"),
            "{kind: openai-compatible, base_url: \"http://127.0.0.1:8000\"}",
            "{kind: openai, base_url: \"https://far.example\"}",
            // Requests would go through the account of the app's author.
            "{kind: openai, api_key: literal}",
            "{kind: openai, headers: {X-A: b}}",
            "{kind: openai, base_url: \"https://${env:PATH}@api.openai.com\"}",
            "{kind: openai, api_key: \"${env:PATH}\"}",
            "{kind: command, command: run}",
            "{kind: local, path: weights}",
            "{kind: recorded, path: r, record: openai/m}",
            // The host is irrelevant to a provider that reads weights.
            "{kind: local, path: weights, base_url: \"https://api.openai.com\"}",
        ] {
            let why = refused(other, &named("http://127.0.0.1:9"), Purpose::Look).expect(other);
            assert!(why.starts_with("provider `x` is not used: line 1 of the app's `etude.yaml` defines it"), "{why}");
        }
    }

    fn server_refused(server: &str, user: &str) -> Option<String> {
        server_refused_beside(server, user, &[])
    }

    /// Like [`server_refused`], with `own` as etude's own variables.
    fn server_refused_beside(server: &str, user: &str, own: &[String]) -> Option<String> {
        let app = layer(APP, &format!("mcp: {{servers: {{x: {server}}}}}\n"), true);
        let layers = [app, layer("user", &format!("{user}\n"), false)];
        Consent::of(&layers, Purpose::Run, own).server("x", &layers[0].config.mcp_servers["x"], APP)
    }

    /// K-53: variables with which etude reaches its own database go to no program and host that only an app names, loopback
    /// included. `CARGO_MANIFEST_DIR` stands for one.
    #[test]
    fn no_server_of_an_app_gets_etudes_own_variables() {
        let (key, own) = ("${env:CARGO_MANIFEST_DIR}", ["CARGO_MANIFEST_DIR".to_owned()]);
        for server in [
            format!("{{command: sh, env: {{T: \"a {key}\"}}}}"),
            format!("{{url: \"http://127.0.0.1:1/{key}\"}}"),
            format!("{{url: \"https://api.openai.com/v1\", headers: {{X-T: \"{key}\"}}}}"),
        ] {
            assert_eq!(server_refused_beside(&server, "", &[]), None, "{server}");
            let refused = server_refused_beside(&server, "", &own).expect("refused");
            assert!(refused.contains("`CARGO_MANIFEST_DIR` is not"), "{refused}");
        }
        let users = format!("mcp: {{servers: {{y: {{url: \"http://127.0.0.1:1/{key}\"}}}}}}");
        assert_eq!(server_refused_beside(&format!("{{url: \"http://127.0.0.1:1/{key}\"}}"), &users, &own), None);
    }

    /// SECURITY.md: a program of the app does not get a key of the user. `CARGO_MANIFEST_DIR` stands for one.
    #[test]
    fn a_server_that_is_a_program_gets_no_key_of_the_user() {
        let key = "${env:CARGO_MANIFEST_DIR}";
        let users = format!("providers: {{mine: {{kind: openai, api_key: \"{key}\"}}}}");
        for server in
            [format!("{{command: sh, args: [\"{key}\"]}}"), format!("{{command: sh, env: {{T: \"a {key}\"}}}}")]
        {
            let why = server_refused(&server, &users).expect("it is a key of the user");
            assert!(why.starts_with("`CARGO_MANIFEST_DIR` is not given to a program: line 1"), "{why}");
            assert_eq!(server_refused(&server, "{}"), None, "programs of the app have it anyway");
        }
    }

    /// SECURITY.md: a header of the app does not redirect a request with the user's key to another host.
    #[test]
    fn headers_of_an_app_do_not_redirect_requests() {
        let provider = "{kind: openai, headers: {hOsT: evil.example}}";
        for purpose in [Purpose::Look, Purpose::Run] {
            let why = refused(provider, "{}", purpose).expect("it is a redirect");
            assert!(why.contains("`hOsT`"), "{why}");
        }
        let server = "{url: \"https://far.example\", headers: {Host: evil.example}}";
        assert!(server_refused(server, "{}").is_some());
    }

    /// a variable that the user's configuration names stays a key, whatever the app configures under the same name.
    #[test]
    fn names_of_an_app_hide_no_keys_of_the_user() {
        let app = layer(APP, "providers: {mine: {kind: recorded, path: none}}\n", true);
        let user = layer("user", "providers: {mine: {kind: openai, api_key: \"${env:MINE}\"}}\n", false);
        let consent = Consent::of(&[app, user], Purpose::Run, &[]);
        assert_eq!(consent.users_keys().collect::<Vec<_>>(), ["MINE"]);
    }
}
