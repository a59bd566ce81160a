//! A thousand runs at once in one process, each with ten model calls of 100 ms: their cost beyond the 10 × 100 ms that they
//! must wait.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use etude::Disk;
use etude::definition::{Definition, load};
use etude::runner::{Request, Runner, Watch};
use etude_core::data::Json;
use etude_core::model::{self, Tier};
use etude_models::{ModelId, Models, ProviderKind, ProviderSettings, Secret, Settings};
use etude_runtime::driver::Stop;
use etude_runtime::host::{Boxed, ModelPort};
use etude_sqlite::{Sqlite, Sync};
use serde_json::{Value, json};

use crate::apps::{KEY, llm, of_steps};
use crate::calls::bare;
use crate::client::Plain;
use crate::measure::{Pair, Report, quartiles};
use crate::server;

const RUNS: usize = 1_000;
const CALLS: usize = 10;
const LATENCY: Duration = Duration::from_millis(100);

pub(crate) fn concurrent(report: &mut Report, home: &Path) {
    let address = server::start(LATENCY).to_string();
    of_steps(home, "talk", (0..CALLS).map(|at| llm(&format!("s{at}"))));
    let place = home.display().to_string();
    let rounds = report.rounds(5);
    let (mut ours, mut baselines, mut last, mut bare) = (Vec::new(), Vec::new(), Value::Null, Value::Null);
    let (mut plains, mut plain) = (Vec::new(), Value::Null);
    // The model server shares the processors, so its time is missing to the caller.
    let mut served_ms = 0;
    for _ in 0..rounds {
        last = of_child(&["--child-runs", &address, &place]);
        ours.push(Duration::from_secs_f64(last["wall_ms"].as_f64().unwrap_or_default() / 1e3));
        let before = used().0;
        bare = of_child(&["--child-calls", &address, &place]);
        served_ms = used().0 - before;
        baselines.push(Duration::from_secs_f64(bare["wall_ms"].as_f64().unwrap_or_default() / 1e3));
        plain = of_child(&["--child-plain", &address, &place]);
        plains.push(Duration::from_secs_f64(plain["wall_ms"].as_f64().unwrap_or_default() / 1e3));
    }
    let [_, plain_wall, _] = quartiles(plains).map(|time| time.as_secs_f64() * 1e3);
    let pair = Pair {
        key: "concurrent",
        what: "1,000 runs at once, 10 calls of 100 ms each",
        baseline: "the same 10,000 calls by a bare client",
    };
    report.pair(&pair, ours, baselines);
    let figure = |name: &str| last[name].as_f64().unwrap_or_default();
    report.figure("concurrent/ideal", "what they have to wait", (LATENCY * CALLS as u32).as_secs_f64() * 1e3, "ms");
    report.figure("concurrent/cpu", "processor time of all 1,000 runs", figure("cpu_ms"), "ms");
    report.figure(
        "concurrent/bare-cpu",
        "processor time of the bare client",
        bare["cpu_ms"].as_f64().unwrap_or_default(),
        "ms",
    );
    let plain_cpu = plain["cpu_ms"].as_f64().unwrap_or_default();
    report.figure("concurrent/plain", "an ordinary client that writes a row for each answer", plain_wall, "ms");
    report.figure("concurrent/plain-cpu", "its processor time", plain_cpu, "ms");
    report.figure("concurrent/server-cpu", "processor time of the server that answers", served_ms as f64, "ms");
    report.figure("concurrent/memory", "memory at its highest", figure("peak_kb") / 1024.0, "MiB");
}

/// A tenth of the runs, a number for which peers are measured as well.
pub(crate) fn hundred(report: &mut Report, home: &Path) {
    let address = server::start(LATENCY).to_string();
    of_steps(home, "talk", (0..CALLS).map(|at| llm(&format!("s{at}"))));
    let place = home.display().to_string();
    let one = || of_child(&["--child-runs", &address, &place, "100"])["wall_ms"].as_f64().unwrap_or_default();
    let times = (0..report.rounds(5)).map(|_| Duration::from_secs_f64(one() / 1e3)).collect();
    let wall = quartiles(times)[1].as_secs_f64() * 1e3;
    report.figure("concurrent/100", "100 runs at once, 10 calls of 100 ms each", wall, "ms");
}

fn of_child(args: &[&str]) -> Value {
    let own = std::env::current_exe().expect("a path");
    let reported = Command::new(own).args(args).stderr(Stdio::inherit()).output().expect("a process");
    serde_json::from_slice(&reported.stdout).expect("figures")
}

/// Entry point of a child of this program: `--child-runs ADDRESS DIR [RUNS]`, `--child-calls ADDRESS DIR` or
/// `--child-plain ADDRESS DIR`.
pub(crate) fn child(what: &str, args: &[String]) {
    let address: SocketAddr = args[0].parse().expect("an address");
    let home = Path::new(&args[1]);
    let runs = args.get(2).map_or(RUNS, |runs| runs.parse().expect("a number"));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let since = Instant::now();
    if what == "--child-runs" {
        let definition = Arc::new(definition(home));
        let runner = Arc::new(runner(home, address));
        runtime.block_on(all(runs, |_| one_run(Arc::clone(&runner), Arc::clone(&definition), home.join("app"))));
    } else if what == "--child-plain" {
        let plain = runtime.block_on(async { Plain::new(address, home) });
        runtime.block_on(all(runs, |run| plain.clone().talk(run, CALLS)));
    } else {
        runtime.block_on(all(runs, |_| bare(address, CALLS, || {})));
    }
    let wall = since.elapsed();
    let (cpu_ms, peak_kb) = used();
    println!("{}", json!({"wall_ms": wall.as_secs_f64() * 1e3, "cpu_ms": cpu_ms, "peak_kb": peak_kb}));
}

async fn all<F: Future<Output = ()> + Send + 'static>(runs: usize, one: impl Fn(usize) -> F) {
    let tasks: Vec<_> = (0..runs).map(|run| tokio::spawn(one(run))).collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

fn definition(home: &Path) -> Definition {
    let disk = Disk::open(&home.join("app")).expect("an app");
    load(&disk, "talk", &etude::definition::Configuration::default()).expect("a pipeline")
}

/// Model port of the runs.
struct Port(Arc<Models>);

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Port")
    }
}

impl ModelPort for Port {
    fn call(&self, request: model::Request) -> Boxed<Result<model::ModelResponse, model::CallFailure>> {
        let models = Arc::clone(&self.0);
        Box::pin(async move { models.call(&request).await })
    }
}

fn runner(home: &Path, address: SocketAddr) -> Runner {
    let mut provider = ProviderSettings::new("near", ProviderKind::OpenAiCompatible);
    provider.base_url = Some(format!("http://{address}/v1").into());
    provider.api_key = Some(Secret::new(KEY));
    let model = ModelId { provider: "near".to_owned(), model: "m".to_owned() };
    let settings = Settings {
        providers: vec![provider],
        mapping: [(Tier::Standard, vec![model])].into(),
        app_dir: home.join("app"),
        ..Settings::default()
    };
    let journal = etude_sqlite::Settings { dir: home.join("journal"), sync: Sync::Normal };
    let engine = Arc::new(Sqlite::open(journal).expect("a journal"));
    let models = Arc::new(Port(Arc::new(Models::new(settings).expect("models"))));
    Runner::new(engine, models, std::env::temp_dir())
}

async fn one_run(runner: Arc<Runner>, definition: Arc<Definition>, app: std::path::PathBuf) {
    let disk = Disk::open(&app).expect("an app");
    let (_stop, stop) = tokio::sync::watch::channel(Stop::No);
    let request = Request::new(Json::trusted("{}"), String::new());
    let mut emit = |_: etude_runtime::driver::Progress<'_>| {};
    let watch = Watch { emit: &mut emit, stop, streams_completions: false, observes_invocations: false };
    let ended = runner.start(&definition, &disk, request, watch).await.expect("a run");
    assert_eq!(ended.document.status(), "succeeded", "{:?}", ended.errors);
}

/// Processor time of this process in ms, and its peak memory in KiB, if the system reports them.
fn used() -> (u64, u64) {
    const TICK_MS: u64 = 10;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    ((ticks(11) + ticks(12)) * TICK_MS, peak.unwrap_or(0))
}
