//! Overhead of ten no-op middleware per invocation. Rounds with and without them alternate, so that both meet the same noise.
//! The target is 20 µs between the medians. `cargo bench -p etude-invoke`.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use etude_invoke::chain::{
    Command, Context, Machine, Middleware, Options, Resume, Step, Throw, Tool, ToolHandler, Tools, View,
};
use serde_json::{Value, json};

/// Runs the rest of the chain and gives nothing; real middleware would work before and after it.
struct NoOp;

impl Middleware for NoOp {
    fn step(&self, _: &mut View<'_>, resume: Resume) -> Step {
        match resume {
            Resume::Start => Step::Next,
            Resume::Next(Err(throw)) => Step::Throw(throw),
            _ => Step::Done(None),
        }
    }
}

struct Gives;

impl Middleware for Gives {
    fn step(&self, _: &mut View<'_>, _: Resume) -> Step {
        Step::Done(Some(Value::from(7)))
    }
}

struct Table(BTreeMap<String, Arc<Tool>>);

impl Tools for Table {
    fn find(&mut self, reference: &str, _: Option<&Context>) -> Result<Arc<Tool>, Throw> {
        Ok(Arc::clone(&self.0[reference]))
    }
}

/// Invocations per round.
const ROUND: u32 = 4_000;

/// Rounds of each kind.
const ROUNDS: usize = 31;

/// Microseconds of one invocation of `name`: the mean of a round.
fn measure(table: &mut Table, name: &str) -> f64 {
    let mut machine = Machine::new(json!({"config": {"cwd": "/p"}}));
    let start = Instant::now();
    for _ in 0..ROUND {
        let id = machine.invoke(table, name, json!({"who": "Ann"}), Options::default());
        match machine.poll(table) {
            Some(Command::Finished { outcome, .. }) => drop(black_box(outcome)),
            other => panic!("{other:?}"),
        }
        machine.take(id);
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUND)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let middleware: Vec<String> = (0..10).map(|n| format!("middleware-{n}")).collect();
    let no_op = |name: &String| (name.clone(), Arc::new(Tool::new(name, ToolHandler::Middleware(Arc::new(NoOp)))));
    let mut tools: BTreeMap<String, Arc<Tool>> = middleware.iter().map(no_op).collect();
    let gives = || ToolHandler::Middleware(Arc::new(Gives));
    tools.insert("bare".to_owned(), Arc::new(Tool::new("bare", gives())));
    tools.insert("ten".to_owned(), Arc::new(Tool::new("ten", gives()).with_chain(&middleware)));
    let mut table = Table(tools);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(measure(&mut table, "bare"));
        times[1].push(measure(&mut table, "ten"));
    }
    let [bare, ten] = times.map(median);
    println!(
        "bare invocation: {bare:.2} µs; with ten middleware: {ten:.2} µs ({:.1} times); the middleware adds {:.2} µs",
        ten / bare,
        ten - bare
    );
}
