//! Claims of several runs where tenants have limits, compared with claims of one run after the other.

use std::collections::BTreeMap;
use std::sync::Barrier;

use etude_postgres::Postgres;
use etude_runtime::conformance::block_on;
use etude_runtime::engine::{Fleet as _, Placement, QueueRules, RunState, Session, TenantRules};

use crate::claims::{during_claim, join, limits, statement_of, submit};
use crate::open;
use crate::server::Server;

const TENANTS: [&str; 4] = ["a", "b", "c", "d"];

/// Limits of a queue and of tenants.
#[derive(Debug, Clone, Default)]
struct Rules {
    limit: Option<u32>,
    per_tenant: Option<u32>,
    live: BTreeMap<&'static str, u32>,
}

impl Rules {
    fn apply(&self, engine: &Postgres) {
        let queue = QueueRules { limit: self.limit, per_tenant: self.per_tenant, ..QueueRules::default() };
        let of = |live| TenantRules { live: Some(live), ..TenantRules::default() };
        let tenants = self.live.iter().map(|(name, live)| ((*name).to_owned(), of(*live))).collect();
        engine.apply(Some(&BTreeMap::from([("default".to_owned(), queue)])), Some(&tenants)).expect("apply");
    }
}

/// A waiting run in the model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    rank: i64,
    number: u64,
    tenant: &'static str,
}

/// Model of the queue: the waiting runs in their order, and the tenants of live runs.
#[derive(Debug, Default)]
struct Model {
    waiting: Vec<Waiting>,
    live: Vec<(String, &'static str)>,
}

impl Model {
    /// The runs that claims of one run each would take, one after the other.
    fn claims(&self, rules: &Rules, count: usize) -> Vec<String> {
        let mut live: Vec<&str> = self.live.iter().map(|(_, tenant)| *tenant).collect();
        let mut claimed = Vec::new();
        for run in &self.waiting {
            let of_tenant = live.iter().filter(|tenant| **tenant == run.tenant).count();
            let is_below = |most: Option<u32>, count: usize| most.is_none_or(|most| count < most as usize);
            let most = rules.live.get(run.tenant).copied();
            if claimed.len() < count
                && is_below(rules.limit, live.len())
                && is_below(rules.per_tenant, of_tenant)
                && is_below(most, of_tenant)
            {
                live.push(run.tenant);
                claimed.push(id(run.number));
            }
        }
        claimed
    }

    fn take(&mut self, claimed: &str) {
        let at = self.waiting.iter().position(|run| id(run.number) == claimed).expect("it waits");
        self.live.push((claimed.to_owned(), self.waiting.remove(at).tenant));
    }
}

fn id(number: u64) -> String {
    format!("r-{number}")
}

/// Pseudorandom numbers, the same ones each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn maybe(&mut self, bound: u64) -> Option<u32> {
        let number = self.below(bound * 2);
        (number < bound).then_some(number as u32)
    }
}

fn claim(engine: &Postgres, count: usize) -> Vec<Box<dyn Session>> {
    engine.next_few(&limits(), count, 0).expect("next")
}

fn ids(sessions: &[Box<dyn Session>]) -> Vec<String> {
    sessions.iter().map(|session| session.run_id().to_owned()).collect()
}

/// A live run ends or waits, which frees its place.
fn leave(session: &dyn Session, waits: bool) {
    let left = match waits {
        true => session.suspend(RunState::Waiting, None, "{}"),
        false => session.set_state(RunState::Succeeded, Some("{}")),
    };
    block_on(left).expect("it leaves");
}

/// K-30, K-33: in every state of the queue, a claim of several takes the first runs that claims of one run each would
/// take, and at least one if they take one: no limit is exceeded, and no run passes another claimable one.
#[test]
fn a_claim_of_several_is_that_many_claims_of_one() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engines: Vec<Postgres> = (0..3).map(|_| open(&server, "etude", dir.path())).collect();
    // As workers, they search behind full tenants, each from the place of its last search.
    engines.iter().for_each(join);
    let (mut numbers, mut sizes) = (Numbers(1), BTreeMap::<usize, usize>::new());
    for _ in 0..12 {
        server.sql("delete from etude.runs; delete from etude.queue");
        let live = TENANTS.into_iter().filter_map(|tenant| Some((tenant, numbers.maybe(6)?)));
        let mut rules = Rules { live: live.collect(), ..Rules::default() };
        (rules.limit, rules.per_tenant) = (numbers.maybe(14), numbers.maybe(6));
        rules.apply(&engines[0]);
        let (mut model, mut held, mut next) = (Model::default(), Vec::<Box<dyn Session>>::new(), 0);
        for _ in 0..60 {
            let engine = &engines[numbers.below(3) as usize];
            match numbers.below(5) {
                0..=2 => {
                    for _ in 0..=numbers.below(4) {
                        let tenant = TENANTS[(numbers.below(16) as f64).sqrt() as usize];
                        let (at, number) = (numbers.below(30) as i64, next);
                        submit(
                            engine,
                            &id(number),
                            at,
                            Placement { tenant: Some(tenant.to_owned()), ..Placement::default() },
                        );
                        model.waiting.push(Waiting { rank: at, number, tenant });
                        model.waiting.sort();
                        next += 1;
                    }
                }
                3 => {
                    let count = 1 + numbers.below(10) as usize;
                    let expected = model.claims(&rules, count);
                    let claimed = claim(engine, count);
                    let found = ids(&claimed);
                    assert!(expected.starts_with(&found), "{rules:?} {model:?} {count}: {found:?}, not {expected:?}");
                    assert_eq!(found.is_empty(), expected.is_empty(), "{rules:?} {model:?} {count}: {expected:?}");
                    *sizes.entry(found.len()).or_default() += 1;
                    found.iter().for_each(|run| model.take(run));
                    held.extend(claimed);
                }
                _ if held.is_empty() => {}
                _ => {
                    let session = held.swap_remove(numbers.below(held.len() as u64) as usize);
                    leave(&*session, numbers.below(2) == 0);
                    model.live.retain(|(run, _)| run != session.run_id());
                }
            }
        }
    }
    // The claims included some of none, of one, and of several.
    let several: usize = sizes.range(2..).map(|(_, count)| count).sum();
    assert!(sizes[&0] > 5 && sizes[&1] > 5 && several > 20, "{sizes:?}");
}

/// K-33: a claim of several that waits for an uncommitted one counts that claim's runs, for the queue and for each tenant.
#[test]
fn a_claim_of_several_that_waited_counts_what_the_other_took() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    join(&engine);
    let by_queue = Rules { per_tenant: Some(3), ..Rules::default() };
    let by_tenant = Rules { live: BTreeMap::from([("a", 3), ("b", 3)]), ..Rules::default() };
    let with_limit = Rules { limit: Some(4), ..by_tenant.clone() };
    for (rules, expected) in [
        (by_queue, vec!["a-2", "b-0", "b-1", "b-2"]),
        (by_tenant, vec!["a-2", "b-0", "b-1", "b-2"]),
        (with_limit, vec!["a-2", "b-0"]),
    ] {
        server.sql("delete from etude.runs; delete from etude.queue");
        rules.apply(&engine);
        for (tenant, at) in [("a", 0), ("b", 10)] {
            for number in 0..4 {
                let placement = Placement { tenant: Some(tenant.to_owned()), ..Placement::default() };
                submit(&engine, &format!("{tenant}-{number}"), at + number, placement);
            }
        }
        let held = during_claim(&server, &statement_of("w", "array[7, 8]"), || claim(&engine, 10));
        assert_eq!(server.sql("select string_agg(id, ' ' order by id) from etude.runs where worker = 'w'"), "a-0 a-1");
        assert_eq!(ids(&held), expected, "{rules:?}");
    }
}

/// K-30, K-33: a waiting run of a dead worker counts already, and takes no room of its tenant a second time.
#[test]
fn a_run_of_a_dead_worker_takes_no_room_again() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    Rules { per_tenant: Some(2), ..Rules::default() }.apply(&engine);
    for at in 0..3 {
        submit(&engine, &id(at as u64), at, Placement::default());
    }
    // A signal put the run back into the queue before its worker died.
    server.sql("update etude.runs set state = 'running', rank = 0, epoch = 1, worker = 'dead' where id = 'r-0'");
    assert_eq!(ids(&claim(&engine, 10)), ["r-0", "r-1"]);
}

/// K-33: workers that claim several runs at once, and end some, never have more live runs than the limits allow, and
/// leave no claimable run.
#[test]
fn concurrent_claims_of_several_exceed_no_limit() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engines: Vec<Postgres> = (0..6).map(|_| open(&server, "etude", dir.path())).collect();
    engines.iter().for_each(join);
    let rules = Rules { limit: Some(17), per_tenant: Some(7), live: BTreeMap::from([("a", 2), ("b", 5)]) };
    rules.apply(&engines[0]);
    for at in 0..40 {
        for tenant in TENANTS {
            let placement = Placement { tenant: Some(tenant.to_owned()), ..Placement::default() };
            submit(&engines[0], &format!("{tenant}-{at}"), at, placement);
        }
    }
    // No state of the table ever exceeds a limit.
    server.sql(
        "set search_path = etude;
         create table seen (excess bigint);
         create function look() returns trigger language plpgsql as $$ begin
             insert into etude.seen select count(*) - max(max_live) from etude.counted, etude.queues where queues.queue = 'default'
             union all select count(*) - 7 from etude.counted group by tenant
             union all select count(*) - max(max_live) from etude.counted join etude.tenants using (tenant) group by tenant;
             return null; end $$;
         create constraint trigger looks after update on runs deferrable initially deferred for each row execute function look()",
    );
    let barrier = Barrier::new(engines.len());
    let held: Vec<Vec<Box<dyn Session>>> = std::thread::scope(|scope| {
        let work = |engine| {
            barrier.wait();
            let mut held = Vec::new();
            for round in 0..6 {
                held.extend(claim(engine, 10));
                held.drain(..held.len() / 2).for_each(|session: Box<dyn Session>| leave(&*session, round % 2 == 0));
            }
            held
        };
        let threads: Vec<_> = engines.iter().map(|engine| scope.spawn(move || work(engine))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut held: Vec<_> = held.into_iter().flatten().collect();
    let more = || Some(claim(&engines[0], 10)).filter(|few| !few.is_empty());
    held.extend(std::iter::from_fn(more).flatten());
    assert_eq!(server.sql("select max(excess) from etude.seen"), "0");
    assert_eq!(held.len(), 17);
}
