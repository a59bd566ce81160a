//! An app in a temporary directory, and the tools over it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etude_process::blob::FileBlobs;
use etude_process::sandbox::SandboxPolicy;
use etude_process::{ChildEnvironment, HostSettings, ProcessHost, Redaction};
use etude_tools::mcp::{ServerConfig, Servers, Settings};
use etude_tools::{CallContext, Roots, ToolResult, ToolSet};
use serde_json::Value;

pub(crate) struct App {
    dir: tempfile::TempDir,
}

impl App {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        fs::create_dir(dir.path().join("app")).expect("made");
        Self { dir }
    }

    /// The app's directory without symbolic links.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().expect("there").join("app")
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("made");
        fs::write(path, content).expect("written");
        self
    }

    pub(crate) fn script(&self, path: &str, content: &str) -> &Self {
        self.write(path, content);
        fs::set_permissions(self.path().join(path), fs::Permissions::from_mode(0o755)).expect("set");
        self
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path().join(path)).expect("read")
    }

    pub(crate) fn host(&self) -> Arc<ProcessHost> {
        let settings = HostSettings {
            run_id: format!("test-{}", self.dir.path().display()),
            app_dir: self.path(),
            blobs: Arc::new(FileBlobs::new(self.dir.path().join("blobs"), false)),
        };
        let environment = ChildEnvironment::without_keys(&["ETUDE_TEST_SECRET".to_owned()]);
        let host = ProcessHost::builder(settings, environment, Redaction::NoSecrets, SandboxPolicy::Refused);
        Arc::new(host.grace(Duration::from_millis(200)).build())
    }

    pub(crate) fn tools(&self) -> ToolSet {
        ToolSet::built_in(Roots::new(&self.path(), &[], &[]).expect("roots"), self.host())
    }

    pub(crate) async fn call(&self, name: &str, args: Value) -> ToolResult {
        self.tools().call(name, &args.to_string(), CallContext::default()).await
    }

    /// The content of a result that must be a success.
    pub(crate) async fn ok(&self, name: &str, args: Value) -> String {
        let result = self.call(name, args).await;
        assert!(!result.is_error(), "{}", result.content);
        result.content
    }

    /// The code and the content of a result that must be an error.
    pub(crate) async fn error(&self, name: &str, args: Value) -> (String, String) {
        let result = self.call(name, args).await;
        let error = result.error.unwrap_or_else(|| panic!("no error: {}", result.content));
        (error.code, result.content)
    }
}

/// Calls a tool as a model writes it, without the checks of a caller.
pub(crate) trait Call {
    async fn call(&self, name: &str, arguments: &str, cx: CallContext) -> ToolResult;
}

impl Call for ToolSet {
    async fn call(&self, name: &str, arguments: &str, cx: CallContext) -> ToolResult {
        let found = match self.find(name).await {
            Ok(found) => found,
            Err(error) => return error.into(),
        };
        match found.tool.arguments(arguments) {
            Ok(args) => found.call(Arc::new(args), cx).await,
            Err(error) => error.into(),
        }
    }
}

/// Settings for the scripted server of the tests, in `python3`.
pub(crate) fn server(mode: &str) -> ServerConfig {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/server.py");
    let args = vec!["-S".to_owned(), script.to_string_lossy().into_owned(), mode.to_owned()];
    ServerConfig::stdio("python3", args, Vec::new())
}

/// Log lines as `server: line`.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

pub(crate) fn settings() -> (Settings, Log) {
    let log = Log::default();
    let lines = Arc::clone(&log);
    let on_log = move |server: &str, line: &str| lines.lock().expect("log").push(format!("{server}: {line}"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let settings =
        Settings { base_env: vec![("PATH".into(), path)], on_log: Some(Arc::new(on_log)), ..Settings::default() };
    (settings, log)
}

pub(crate) fn with_server(app: &App, config: ServerConfig) -> (ToolSet, Arc<Servers>, Log) {
    let (settings, log) = settings();
    let servers = Arc::new(Servers::new([("test".to_owned(), config)], settings));
    (app.tools().with_servers(Arc::clone(&servers)), servers, log)
}

/// Waits until `done` holds. The wait has no meaning of its own; it ends with a failure of the test.
pub(crate) async fn until(mut done: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not happen");
}
