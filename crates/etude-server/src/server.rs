//! The state that all requests and background tasks share.

use std::fmt;
use std::sync::Arc;

use etude_runtime::engine::Engine;
use http::HeaderMap;
use tokio::sync::watch;

use crate::admission::Admissions;
use crate::app::Apps;
use crate::body::Room;
use crate::clock::Clock;
use crate::context::Context;
use crate::forwarded;
use crate::in_progress::InProgress;
use crate::ledger::Ledger;
use crate::listen::Addresses;
use crate::log::{Log, LogLine};
use crate::metrics::Metrics;
use crate::names::Names;
use crate::notice::Notices;
use crate::oauth::Issuer;
use crate::protocol;
use crate::run::Runs;
use crate::schedule::Schedules;
use crate::session::{Sessions, Throttle};
use crate::settings::Settings;
use crate::story::{self, Stories};
use crate::token::Tokens;
use crate::webhook::Webhooks;
use crate::work::event::{Event, Events};
use crate::work::{self, Works};

/// The state that all requests and background tasks share.
pub struct Server {
    context: Arc<Context>,
    stories: Arc<Stories>,
    runs: Runs,
    works: Arc<Works>,
    admissions: Arc<Admissions>,
    protocol: protocol::Shared,
    schedules: Arc<Schedules>,
    notices: Arc<Notices>,
    webhooks: Webhooks,
    ledger: Arc<Ledger>,
    metrics: Arc<Metrics>,
    tokens: Tokens,
    issuer: Option<Arc<Issuer>>,
    sessions: Sessions,
    throttle: Throttle,
    room: Room,
    in_progress: InProgress,
    names: Names,
    log: Log,
    close: watch::Sender<bool>,
    /// True once all runs must be handed over immediately.
    leave: watch::Sender<bool>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("settings", self.context.settings()).finish_non_exhaustive()
    }
}

impl Server {
    /// A server that will accept connections at `addresses`.
    pub fn new(
        settings: Settings,
        engine: Arc<dyn Engine>,
        apps: Box<dyn Apps>,
        addresses: Addresses,
        clock: Clock,
        log: Log,
    ) -> Arc<Self> {
        let names = Names::new(&addresses.tcp, &settings.names, addresses.is_tls, settings.is_behind_proxy);
        let sessions = Sessions::new(&settings.state_dir.join("serve").join("sessions"));
        let tokens = Tokens::new(&settings.state_dir.join("serve"));
        let context = Arc::new(Context::new(settings, engine, apps, addresses, clock));
        let metrics = Arc::new(Metrics::default());
        let ledger = Arc::new(Ledger::new(&context, &metrics));
        let notices = Arc::new(Notices::new(&context, &ledger, &metrics));
        let stories = Arc::default();
        let works = Arc::new(Works::new(&context, &stories, &notices));
        let said = Arc::clone(&works);
        let say = move |event: &Event| said.observer.say(event);
        let issuer = context.settings().auth.as_ref().map(|auth| Issuer::new(auth, Box::new(say)));
        let admissions = Arc::new(Admissions::new(&context, &works));
        let schedules = Schedules::new(&context, &ledger, &metrics, &notices, &works, &admissions);
        let webhooks = Webhooks::new(&context, &ledger, &admissions);
        Arc::new(Self {
            stories,
            runs: Runs::new(&context),
            works,
            admissions,
            protocol: protocol::Shared::default(),
            schedules: Arc::new(schedules),
            notices,
            webhooks,
            ledger,
            metrics,
            context,
            tokens,
            issuer,
            sessions,
            throttle: Throttle::default(),
            room: Room::default(),
            in_progress: InProgress::default(),
            names,
            log,
            close: watch::Sender::new(false),
            leave: watch::Sender::new(false),
        })
    }

    /// The context of all parts of the server.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn settings(&self) -> &Settings {
        self.context.settings()
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        self.context.engine()
    }

    pub(crate) fn apps(&self) -> &dyn Apps {
        self.context.apps()
    }

    pub(crate) fn stories(&self) -> &Arc<Stories> {
        &self.stories
    }

    /// Looks for news in the journal until the server stops.
    pub(crate) fn look_for_news(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let server = Arc::clone(self);
        let of_tokens = Arc::clone(self);
        // The streams of a token that another process has revoked end (S-17).
        let look = move || {
            if of_tokens.stories().open_streams() > 0 {
                of_tokens.tokens().look();
            }
        };
        story::look_for_news(
            Arc::clone(&self.context),
            Arc::clone(&self.stories),
            move |run| server.works().has(run),
            look,
        )
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn works(&self) -> &Arc<Works> {
        &self.works
    }

    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    pub(crate) fn admissions(&self) -> &Arc<Admissions> {
        &self.admissions
    }

    pub(crate) fn protocol_shared(&self) -> &protocol::Shared {
        &self.protocol
    }

    pub(crate) fn schedules(&self) -> &Arc<Schedules> {
        &self.schedules
    }

    pub(crate) fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    pub(crate) fn webhooks(&self) -> &Webhooks {
        &self.webhooks
    }

    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// The issuer of access tokens that are accepted besides those of the server.
    pub(crate) fn issuer(&self) -> Option<&Arc<Issuer>> {
        self.issuer.as_ref()
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(crate) fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    pub(crate) fn in_progress(&self) -> &InProgress {
        &self.in_progress
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.context.clock()
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn log(&self, line: &LogLine) {
        self.metrics.count(line);
        (self.log)(line);
    }

    /// The name and attributes of the session cookie for a request with these headers.
    pub(crate) fn cookie(&self, headers: &HeaderMap) -> (String, &'static str) {
        let is_encrypted = self.addresses().is_tls || forwarded::is_https(self.settings(), headers);
        let port = self.addresses().tcp.first().map_or(0, std::net::SocketAddr::port);
        // `__Host-` needs the path `/`, and the cookie is then sent below any base path too.
        match is_encrypted {
            true => (format!("__Host-etude_{port}"), "; Path=/; HttpOnly; SameSite=Lax; Secure"),
            false => (format!("etude_{port}"), "; Path=/; HttpOnly; SameSite=Lax"),
        }
    }

    /// A new login link, and its expiry in milliseconds since 1970.
    pub fn login_link(&self) -> (String, i64) {
        self.login_link_to("/")
    }

    /// The same for the page at `path`, which begins with `/`.
    pub fn login_link_to(&self, path: &str) -> (String, i64) {
        self.login_link_of(None, path)
    }

    /// The same for a session of the token with this hash; `None`: the owner's.
    pub(crate) fn login_link_of(&self, token: Option<blake3::Hash>, path: &str) -> (String, i64) {
        let (code, expires_at_ms) = self.sessions.new_code(token, self.clock().now_ms());
        let address = self.addresses().urls().into_iter().next().unwrap_or_default();
        (format!("{address}{}{path}#login={code}", self.settings().base_path), expires_at_ms)
    }

    /// Registers the receiver of faults outside of requests, and of their ends. Call it once, before anything happens.
    pub fn observe(&self, events: Events) {
        self.works.observer.set(Box::new(move |event| {
            if event.is_notable() {
                events(event);
            }
        }));
    }

    /// Asks the server to stop. Runs continue later, in the next server.
    pub fn drain(&self) {
        self.context.drain();
        self.stories.wake();
    }

    /// Hands all runs over immediately: effects in progress are ended, and begin again elsewhere.
    pub fn leave(&self) {
        work::leave(&self.works);
        self.leave.send_replace(true);
    }

    /// A receiver that becomes true when all runs must be handed over immediately.
    pub(crate) fn leaving(&self) -> watch::Receiver<bool> {
        self.leave.subscribe()
    }

    /// Closes all connections after their current response.
    pub(crate) fn close(&self) {
        self.close.send_replace(true);
    }

    /// A receiver that becomes true when connections must end.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.close.subscribe()
    }

    /// The addresses on which the server accepts connections.
    pub fn addresses(&self) -> &Addresses {
        self.context.addresses()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use etude::Disk;
    use etude::definition::Definition;
    use etude::runner::Runner;
    use etude_runs::target::Target;
    use etude_runtime::engine::NewRun;

    use super::*;
    use crate::app::NotLoaded;

    struct NoApps;

    impl Apps for NoApps {
        fn load(&self, _: &Path, _: &Target) -> Result<(Disk, Definition), NotLoaded> {
            Err(NotLoaded::Unknown { known: Vec::new() })
        }

        fn runner(&self, _: &NewRun, _: &Disk, _: &Definition) -> Result<Runner, String> {
            Err("no app is served".to_owned())
        }

        fn list(&self, _: &Path) -> Result<serde_json::Value, String> {
            Err("no app is served".to_owned())
        }
    }

    /// A server without apps and addresses, with its state in `dir`.
    pub(crate) fn server(dir: &Path) -> Arc<Server> {
        logging(dir, Box::new(|_| ()))
    }

    /// The same, with a request log.
    pub(crate) fn logging(dir: &Path, log: Log) -> Arc<Server> {
        let journal = etude_sqlite::Settings { dir: dir.to_owned(), sync: etude_sqlite::Sync::Normal };
        let engine = Arc::new(etude_sqlite::Sqlite::open(journal).expect("a journal"));
        let settings = Settings::new(dir, Vec::new());
        Server::new(settings, engine, Box::new(NoApps), Addresses::default(), Clock::default(), log)
    }
}
