//! Properties that hold for all values. Those of the interpreter (any plan, any order, any crash, `max_parallel`) are tests of
//! `etude-core`: `machine/tests/any_plan.rs`, `order.rs`, `crash.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::effect::EffectId;
use etude_core::extract;
use etude_core::outcome::{Completed, Conditions, Exit, Outcome, ProcessEnd, Stderr, Stdout};
use etude_core::placeholder::{Body, Space};
use etude_core::template::{self, Reference, Scope, Segment};
use etude_process::blob::FileBlobs;
use etude_runtime::record;
use etude_spec::cascade::{Skill, Skills, Strategy, levels};
use etude_spec::source::{SourceFile, join};
use etude_spec::yaml;
use etude_tools::Roots;
use etude_tools::confine::Access;
use proptest::prelude::{Just, ProptestConfig, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;
use proptest::test_runner::TestRunner;
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

    /// A-3.3, A-3.4: a value survives its conversion to text, to a journal record and to a completion.
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
        let written = record::of_outcome(&EffectId::new("p/a"), request, &completed, None, 1);
        let blobs = FileBlobs::new(std::path::Path::new("/nonexistent"), false);
        prop_assert_eq!(record::to_outcome(&written, &blobs).unwrap(), completed);
        if json.inline().is_some_and(|text| text.starts_with(['{', '['])) {
            let text = json.inline().unwrap();
            let answer = format!("Here: ```json\n{text}\n```");
            prop_assert_eq!(extract::json(&answer), Some(text));
        }
    }

    /// A-3.1: printed references of every kind can be parsed. A text of references and literals, with braces, backslashes and
    /// escapes in the literals, is rendered piece by piece.
    #[test]
    fn templates_come_back_as_they_were(pieces in prop::collection::vec(any_piece(any_reference()), 0..8)) {
        let mut pieces = joined(pieces, &['{', '\\']);
        // Equal references get equal values.
        for at in 1..pieces.len() {
            let (before, rest) = pieces.split_at_mut(at);
            if let Piece::Reference(reference, value) = &mut rest[0] {
                let same = before.iter().find(|piece| piece.reference() == Some(&*reference));
                if let Some(Piece::Reference(_, first)) = same {
                    *value = first.clone();
                }
            }
        }
        let text: String = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.replace("{{", "\\{{"),
            Piece::Reference(reference, _) => format!("{{{{ {reference} }}}}"),
        }).collect();
        let (template, problems) = template::parse(&text);
        prop_assert!(problems.is_empty(), "{}: {:?}", text, problems);
        let expected: Vec<&Reference> = pieces.iter().filter_map(Piece::reference).collect();
        let found: Vec<&Reference> = template.references().map(|(found, _)| found).collect();
        prop_assert_eq!(found, expected);
        for (_, place) in template.references() {
            prop_assert!(text[place.clone()].starts_with("{{ ") && text[place].ends_with(" }}"));
        }
        prop_assert_eq!(template.render(&Values(&pieces)).unwrap(), rendered(&pieces), "{}", text);
        let unknown: String = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Reference(reference, _) => format!("{{{{{reference}}}}}"),
        }).collect();
        prop_assert_eq!(template.render_partly(&Values::<Reference>(&[]), usize::MAX), unknown);
    }

    /// B-T1, B-T8, B-T9: the same holds for bodies of stages, which have another parser: no escapes, and nothing for `null`.
    #[test]
    fn bodies_of_stages_come_back_as_they_were(pieces in prop::collection::vec(any_piece(any_placeholder()), 0..8)) {
        let mut pieces = joined(pieces, &['{']);
        for piece in &mut pieces {
            if let Piece::Text(text) = piece {
                *text = text.replace("{{", "{ { ");
            }
        }
        let (mut ctx, mut stage) = (Map::new(), Map::new());
        let mut text = String::new();
        for (at, piece) in pieces.iter().enumerate() {
            match piece {
                Piece::Text(literal) => text.push_str(literal),
                Piece::Reference((space, path), value) => {
                    // Unique names prevent two placeholders from leading into the same value.
                    let (word, values) = match space {
                        Space::Ctx => ("ctx", &mut ctx),
                        Space::Stage => ("stage", &mut stage),
                    };
                    let way: String = path.iter().map(|segment| match segment {
                        Segment::Field(name) => format!(".{name}"),
                        Segment::Index(index) => format!("[{index}]"),
                    }).collect();
                    text.push_str(&format!("{{{{ {word}.v{at}{way} }}}}"));
                    values.insert(format!("v{at}"), nested(path, value.clone()));
                }
            }
        }
        let (body, malformed) = Body::parse(&text);
        prop_assert!(malformed.is_empty(), "{}: {:?}", text, malformed);
        let found: Vec<(Space, &[Segment])> = body.placeholders().map(|found| (found.space, &found.path[1..])).collect();
        let expected: Vec<_> = pieces.iter().filter_map(Piece::reference).map(|(space, path)| (*space, path.as_slice())).collect();
        prop_assert_eq!(found, expected);
        let expected = rendered(&pieces.into_iter().map(|piece| match piece {
            Piece::Reference(_, Value::Null) => Piece::Text(String::new()),
            piece => piece,
        }).collect::<Vec<_>>());
        prop_assert_eq!(body.render(&Value::Object(ctx), &Value::Object(stage)), expected, "{}", text);
    }

    /// A-2.2: any path stays in the app, by its name and after its links are resolved.
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

    /// D-4.3: the levels of a tool are those of C3 by its definition. C3 keeps the tool before its parents, the parents in
    /// their order, and each parent's own order, and takes the earliest candidate. Without such an order there are no levels.
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
        // Levels that are cached for one tool must be right for the next.
        let mut lines = levels::Lines::default();
        for tool in 0..parents.len() {
            let found = levels::resolve(&world, &world.0[&name(tool)], &Strategy::default(), &mut lines);
            let found = found.ok().map(|levels| levels.iter().map(|level| level.name.clone()).collect::<Vec<_>>());
            prop_assert_eq!(found, reference(tool, &parents).map(|order| order.into_iter().map(name).collect()));
        }
    }
}

/// A part of a text to render: a literal, or a reference in braces with its value.
#[derive(Debug, Clone)]
enum Piece<R> {
    Text(String),
    Reference(R, Value),
}

impl<R> Piece<R> {
    fn reference(&self) -> Option<&R> {
        match self {
            Self::Text(_) => None,
            Self::Reference(reference, _) => Some(reference),
        }
    }
}

/// Any piece; literals often contain the syntax of templates.
fn any_piece<R: Clone + std::fmt::Debug + 'static>(
    reference: impl Generator<Value = R> + 'static,
) -> impl Generator<Value = Piece<R>> {
    let words =
        ["{", "{{", "{{{", "}", "}}", "\\", "\\{{", "{{ input.q }}", "{{ctx.a}}", " ", "\n", "é"].map(str::to_owned);
    let word = prop_oneof![prop::sample::select(words.to_vec()), any::<String>()];
    let text = prop::collection::vec(word, 0..6).prop_map(|words| Piece::Text(words.concat()));
    prop_oneof![text, (reference, any_json()).prop_map(|(reference, value)| Piece::Reference(reference, value))]
}

fn any_path() -> impl Generator<Value = Vec<Segment>> {
    let segment =
        prop_oneof!["[a-z_][a-zA-Z0-9_-]{0,8}".prop_map(Segment::Field), (0..4_usize).prop_map(Segment::Index),];
    prop::collection::vec(segment, 0..5)
}

/// A reference of any kind. Names of steps with another meaning are excluded.
fn any_reference() -> impl Generator<Value = Reference> {
    let step = "[A-Za-z_][A-Za-z0-9_-]{0,8}"
        .prop_filter("it is a word", |step| !["input", "item", "index"].contains(&step.as_str()));
    prop_oneof![
        any_path()
            .prop_filter("it names a parameter", |path| !path.is_empty())
            .prop_map(|path| Reference::Input { path }),
        (step, any_path()).prop_map(|(step, path)| Reference::Output { step, path }),
        any_path().prop_map(|path| Reference::Item { path }),
        Just(Reference::Index),
    ]
}

fn any_placeholder() -> impl Generator<Value = (Space, Vec<Segment>)> {
    (prop_oneof![Just(Space::Ctx), Just(Space::Stage)], any_path())
}

/// The pieces with neighbouring literals joined. A literal before a brace must not end with a character that would belong to
/// it.
fn joined<R>(pieces: Vec<Piece<R>>, never_last: &[char]) -> Vec<Piece<R>> {
    let mut all: Vec<Piece<R>> = Vec::new();
    for piece in pieces {
        match (all.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
            (Some(Piece::Text(before)), piece) => {
                if before.ends_with(never_last) {
                    before.push('.');
                }
                all.push(piece);
            }
            (_, piece) => all.push(piece),
        }
    }
    all
}

/// The rendered pieces: literals and strings unchanged, other values as compact JSON.
fn rendered<R>(pieces: &[Piece<R>]) -> String {
    let text = |piece: &Piece<R>| match piece {
        Piece::Text(text) | Piece::Reference(_, Value::String(text)) => text.clone(),
        Piece::Reference(_, value) => value.to_string(),
    };
    pieces.iter().map(text).collect()
}

/// A value in which `path` leads to `value`.
fn nested(path: &[Segment], value: Value) -> Value {
    path.iter().rev().fold(value, |value, segment| match segment {
        Segment::Field(name) => json!({ name: value, "~": null }),
        Segment::Index(index) => {
            let mut items = vec![json!("other"); *index];
            items.push(value);
            Value::from(items)
        }
    })
}

/// A scope with the value of each reference.
struct Values<'a, R>(&'a [Piece<R>]);

impl Scope for Values<'_, Reference> {
    fn root(&self, asked: &Reference) -> Result<Json, String> {
        let found = self.0.iter().find_map(|piece| match piece {
            Piece::Reference(reference, value) if reference == asked => Some(nested(reference.path(), value.clone())),
            _ => None,
        });
        found.map(|value| Json::of(&value)).ok_or_else(|| "it did not run".to_owned())
    }
}

/// JSON text with escapes for the characters that YAML 1.2 forbids.
fn escaped(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match c {
            c if c.is_ascii() && c != '\u{7f}' => text.push(c),
            c if c as u32 > 0xffff => text.push_str(&format!("\\U{:08x}", c as u32)),
            c => text.push_str(&format!("\\u{:04x}", c as u32)),
        }
    }
    text
}

/// A-2.3: JSON is read as YAML, with the same value. Input that YAML cannot represent may be refused with a reason, which is
/// rare: deep nesting, which is not generated here, and keys that are equal in YAML.
#[test]
fn json_is_read_as_yaml() {
    const CASES: u32 = 256;
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let clean = std::cell::Cell::new(0);
    let read = |value: Value| {
        let file = SourceFile::new("x.yaml", escaped(&value).as_str());
        let (root, found) = yaml::parse(&file);
        if found.is_empty() {
            let read: Value = serde_json::from_str(&root.unwrap().to_json().unwrap()).unwrap();
            prop_assert_eq!(same_numbers(&read), same_numbers(&value));
            clean.set(clean.get() + 1);
        }
        Ok(())
    };
    TestRunner::new(config).run(&any_json(), read).unwrap();
    // A failing test does not get here while its input shrinks.
    assert!(clean.get() * 100 >= CASES * 95, "only {} of {CASES} were read", clean.get());
}

/// Numbers as doubles, because YAML's canonical forms print some of them differently.
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

/// The definition of C3 by brute force: of all orders of the ancestors that keep every constraint, the one that C3 prefers.
/// `None` if there is no such order, or none for an ancestor.
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
    // At the earliest difference of two orders, C3 takes the candidate whose list comes first.
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

/// Skills that only inherit from each other.
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
