//! What holds for all values, and not only for those that somebody thought of. The interpreter's own properties (any plan, any
//! order, any crash, `max_parallel`) are tests of `etude-core`: `machine/tests/any_plan.rs`, `order.rs`, `crash.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::effect::EffectId;
use etude_core::extract;
use etude_core::outcome::{Completed, Conditions, Exit, Outcome, ProcessEnd, Stderr, Stdout};
use etude_core::template::{self, Reference, Segment};
use etude_runtime::blob::FileBlobs;
use etude_runtime::record;
use etude_spec::cascade::{Skill, Skills, Strategy, levels};
use etude_spec::source::{SourceFile, join};
use etude_spec::yaml;
use etude_tools::Roots;
use etude_tools::confine::Access;
use proptest::prelude::{Just, ProptestConfig, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;
use serde_json::{Map, Value, json};

/// Any JSON value, with texts of all kinds of characters.
fn any_json() -> impl Generator<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no such number", |n| n.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// A-3.3, A-3.4: a value is its text, whatever it passes through: a value, a record of the journal, an answer.
    #[test]
    fn values_come_back_as_they_were(value in any_json()) {
        let json = Json::of(&value);
        prop_assert_eq!(Json::parse(&json.text().unwrap()).unwrap(), json.clone());
        prop_assert_eq!(json.value().unwrap(), value);
        let stdout = Stdout::Value(json.clone());
        let (stderr, conditions) = (Stderr::default(), Conditions::default());
        let end = ProcessEnd { exit: Exit::Status(0), stdout, stderr, conditions };
        let completed = Completed { outcome: Outcome::Process(end), elapsed_ms: 1 };
        let request = etude_core::digest::Digest::of(b"x");
        let written = record::of_outcome(&EffectId::new("p/a"), request, &completed, None);
        let blobs = FileBlobs::new(std::path::Path::new("/nonexistent"), false);
        prop_assert_eq!(record::to_outcome(&written, &blobs).unwrap(), completed);
        if json.inline().is_some_and(|text| text.starts_with(['{', '['])) {
            let text = json.inline().unwrap();
            let answer = format!("Here: ```json\n{text}\n```");
            prop_assert_eq!(extract::json(&answer), Some(text));
        }
    }

    /// A-2.3: JSON is YAML, and is read as the same value. Depth beyond 128 is refused and not met here.
    #[test]
    fn json_is_read_as_yaml(value in any_json()) {
        // YAML 1.2 forbids some characters that JSON allows; escaped they mean the same.
        let text: String = value.to_string().chars().flat_map(|c| {
            let mut units = [0; 2];
            let plain = c.is_ascii() && c != '\u{7f}';
            let escaped: String = c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect();
            if plain { c.to_string() } else if c as u32 > 0xffff { format!("\\U{:08x}", c as u32) } else { escaped }.chars().collect::<Vec<_>>()
        }).collect();
        let file = SourceFile::new("x.yaml", text.as_str());
        let (root, found) = yaml::parse(&file);
        // Keys that are the same after all are refused, and numbers beyond doubles are texts of digits.
        if found.is_empty() {
            let read: Value = serde_json::from_str(&root.unwrap().to_json().unwrap()).unwrap();
            prop_assert_eq!(same_numbers(&read), same_numbers(&value));
        }
    }

    /// A-3.1: a reference is read as it is printed, and a text of references and literals is rendered piece by piece.
    #[test]
    fn templates_come_back_as_they_were(
        path in prop::collection::vec(prop_oneof![
            "[a-z_][a-z0-9_]{0,8}".prop_map(Segment::Field),
            any::<u16>().prop_map(|index| Segment::Index(index.into())),
        ], 0..5),
        before in "[^{\\\\]*",
        after in "[^{\\\\]*",
    ) {
        let reference = Reference::Output { step: "fetch".into(), path };
        let printed = reference.to_string();
        prop_assert_eq!(&printed.parse::<Reference>().expect("what is printed can be read"), &reference);
        let text = format!("{before}{{{{ {printed} }}}}{after}");
        let (template, problems) = template::parse(&text);
        prop_assert_eq!(problems.len(), 0);
        prop_assert_eq!(template.references().map(|(found, _)| found).collect::<Vec<_>>(), vec![&reference]);
    }

    /// A-2.2: whatever a path says, it stays in the app, by its name and by where it leads.
    #[test]
    fn paths_stay_inside(path in prop_oneof![
        any::<String>(),
        prop::collection::vec(prop_oneof![
            Just(".."), Just("."), Just(""), Just("out"), Just("in"), Just("file"), Just("back"), Just("\0"), Just("\\"), Just("..\u{200b}"),
        ], 0..8).prop_map(|parts| parts.join("/")),
        Just("/etc/passwd".to_owned()),
    ]) {
        if let Some(joined) = join("pipelines/p", &path) {
            prop_assert!(!joined.starts_with('/') && joined.split('/').all(|part| !matches!(part, "." | "..")), "{}", joined);
        }
        let (dir, roots) = &*APP;
        let inside = dir.path().canonicalize().unwrap().join("app");
        for access in [Access::Read, Access::Write] {
            if let Ok(place) = roots.existing(&path, access) {
                prop_assert!(place.real().starts_with(&inside), "{:?} leads to {:?}", path, place.real());
            }
        }
        if let Ok(place) = roots.target(&path) {
            prop_assert!(place.real().starts_with(&inside), "{:?} leads to {:?}", path, place.real());
        }
    }

    /// D-4.3: the levels of a tool are those of C3, as it is defined: an order that keeps the tool before its parents, the
    /// parents in their order, and each parent's own order, taking the earliest candidate; and none where none exists.
    #[test]
    fn levels_are_those_of_c3(edges in prop::collection::vec(prop::collection::vec(0..8_usize, 0..4), 1..8)) {
        let parents: Vec<Vec<usize>> = edges.iter().enumerate().map(|(at, all)| {
            let mut kept: Vec<usize> = Vec::new();
            for parent in all.iter().filter(|parent| **parent < at) {
                if !kept.contains(parent) {
                    kept.push(*parent);
                }
            }
            kept
        }).collect();
        let world = World::of(&parents);
        // What is remembered of one tool must be right for the next.
        let mut lines = levels::Lines::default();
        for tool in 0..parents.len() {
            let found = levels::of(&world, &world.0[&name(tool)], &Strategy::default(), &mut lines);
            let found = found.ok().map(|levels| levels.iter().map(|level| level.name.clone()).collect::<Vec<_>>());
            prop_assert_eq!(found, reference(tool, &parents).map(|order| order.into_iter().map(name).collect()));
        }
    }
}

/// Numbers as doubles: YAML's canonical forms print some of them differently.
fn same_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(format!("{:e}", number.as_f64().unwrap_or_default())),
        Value::Array(items) => items.iter().map(same_numbers).collect(),
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), same_numbers(value))).collect(),
        other => other.clone(),
    }
}

fn name(at: usize) -> String {
    format!("s{at}")
}

/// The definition, word by word: among all orders of the ancestors that keep every constraint, found by trying them all, the
/// one that C3 prefers. `None` if there is none, or none for an ancestor.
fn reference(tool: usize, parents: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut lists = Vec::new();
    for parent in &parents[tool] {
        lists.push(reference(*parent, parents)?);
    }
    lists.push(parents[tool].clone());
    let mut all: Vec<usize> = lists.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    let keeps = |order: &[usize]| {
        let at = |one: usize| order.iter().position(|other| *other == one);
        lists.iter().all(|list| list.windows(2).all(|pair| at(pair[0]) < at(pair[1])))
    };
    // Of two candidates C3 takes the one whose list comes first, at the earliest place where orders differ.
    let rank = |order: &[usize]| -> Vec<usize> {
        let mut rest = lists.clone();
        order
            .iter()
            .map(|one| {
                let rank = rest.iter().position(|list| list.first() == Some(one)).unwrap_or(usize::MAX);
                rest.iter_mut().for_each(|list| list.retain(|other| other != one));
                rank
            })
            .collect()
    };
    let mut best: Option<Vec<usize>> = None;
    permutations(&mut all.clone(), 0, &mut |order| {
        if keeps(order) && best.as_ref().is_none_or(|best| rank(order) < rank(best)) {
            best = Some(order.to_vec());
        }
    });
    Some([tool].into_iter().chain(best?).collect())
}

fn permutations(order: &mut [usize], from: usize, take: &mut dyn FnMut(&[usize])) {
    if from == order.len() {
        return take(order);
    }
    for at in from..order.len() {
        order.swap(from, at);
        permutations(order, from + 1, take);
        order.swap(from, at);
    }
}

/// Skills that inherit from each other and nothing else.
struct World(BTreeMap<String, Arc<Skill>>);

impl World {
    fn of(parents: &[Vec<usize>]) -> Self {
        let skill = |(at, parents): (usize, &Vec<usize>)| {
            let names: Vec<String> = parents.iter().map(|parent| name(*parent)).collect();
            let metadata = json!({ "$inherit": names }).as_object().cloned().unwrap_or_default();
            (name(at), Arc::new(Skill::programmatic(&name(at), "", metadata)))
        };
        Self(parents.iter().enumerate().map(skill).collect())
    }
}

impl Skills for World {
    fn find(&self, name: &str) -> Option<Arc<Skill>> {
        self.0.get(name).cloned()
    }

    fn authority(&self, _: &Skill) -> Option<Arc<Skill>> {
        None
    }

    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

/// An app with links in all directions.
static APP: std::sync::LazyLock<(tempfile::TempDir, Roots)> = std::sync::LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let app = dir.path().join("app");
    std::fs::create_dir_all(app.join("in/in")).expect("a directory can be made");
    std::fs::create_dir_all(dir.path().join("elsewhere")).expect("a directory can be made");
    for file in ["app/file", "app/in/file", "elsewhere/file"] {
        std::fs::write(dir.path().join(file), "x").expect("a file can be written");
    }
    #[cfg(unix)]
    for (link, target) in [
        ("app/out", "../elsewhere"),
        ("app/back", ".."),
        ("app/in/back", ".."),
        ("app/in/out", "/"),
        ("app/in/in/file", "../../../elsewhere/file"),
    ] {
        std::os::unix::fs::symlink(target, dir.path().join(link)).expect("a link can be made");
    }
    let roots = Roots::new(&app, &[], &[]).expect("the app is there");
    (dir, roots)
});
