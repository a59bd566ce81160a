use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::compile::{Compiler, Scope, Skills};
use super::search::{Cache, Catalog, PathEntry, Roots};
use super::skill::Skill;
use super::strategy::{MissingInherit, PrivateScope, RemoveTiming, Strategy};
use super::{LIBRARY, Overrides, interpolate, library};
use crate::Diagnostic;
use crate::code::Code;
use crate::source::{MemorySources, SourceFile, Sources};

/// Cases of the reference, copied from it.
const CASES: &str = include_str!("../../testdata/cascade.json");

/// Skills of the library and of a case, from files in the usual notation.
struct Table {
    library: Catalog,
    skills: BTreeMap<String, Arc<Skill>>,
    authority: BTreeMap<String, String>,
}

struct OnlyLibrary;

impl Roots for OnlyLibrary {
    fn open(&self, dir: &str) -> Option<Arc<dyn Sources + Send + Sync>> {
        (dir == LIBRARY).then(|| Arc::new(library::Library) as Arc<dyn Sources + Send + Sync>)
    }

    fn module(&self, _: &str) -> Result<Value, String> {
        Err("there is no Node".to_owned())
    }
}

impl Table {
    fn new(skills: &Value, authority: &Value) -> Self {
        let library = Catalog::search(&OnlyLibrary, "/proj", &PathEntry::bootstrap(), &mut Cache::default());
        assert_eq!(library.diagnostics, []);
        let skill = |(name, metadata): (&String, &Value)| {
            // All skills of a directory have the same authority.
            let dir = format!("/p/{}", authority[name].as_str().unwrap_or_default());
            let (skill, found) = Skill::read(&SourceFile::new("x.skill.md", written(name, metadata)), &dir.into());
            let skill = skill.unwrap_or_else(|| panic!("{name}: {found:?}"));
            assert_eq!(Value::Object(skill.metadata().clone()), *metadata, "{name}");
            (name.clone(), Arc::new(skill))
        };
        let text = |(name, of): (&String, &Value)| (name.clone(), of.as_str().unwrap_or_default().to_owned());
        Self {
            library,
            skills: skills.as_object().into_iter().flatten().map(skill).collect(),
            authority: authority.as_object().into_iter().flatten().map(text).collect(),
        }
    }
}

/// Text of a skill's file.
fn written(name: &str, metadata: &Value) -> String {
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "$-_.".contains(c));
    let members = metadata.as_object().into_iter().flatten().map(|(key, value)| {
        let key = if is_word(key) { key.clone() } else { json!(key).to_string() };
        let word = value.as_str().filter(|text| is_word(text) && text.starts_with(|c: char| c.is_ascii_lowercase()));
        format!("  {key}: {}\n", word.map_or_else(|| value.to_string(), str::to_owned))
    });
    let members: String = members.collect();
    let metadata = if members.is_empty() { " {}\n".to_owned() } else { format!("\n{members}") };
    format!("---\nname: {name}\nmetadata:{metadata}---\n")
}

impl Skills for Table {
    fn find(&self, name: &str) -> Option<Arc<Skill>> {
        self.skills.get(name).cloned().or_else(|| self.library.find(name))
    }

    fn authority(&self, skill: &Skill) -> Option<Arc<Skill>> {
        match self.authority.get(&skill.name) {
            Some(name) => self.find(name),
            None if self.skills.contains_key(&skill.name) => None,
            None => self.find(library::DEFAULT),
        }
    }

    fn names(&self) -> Vec<String> {
        self.skills.keys().cloned().collect()
    }
}

/// Scope with the directories that the cases call `/proj` and `/lib`.
fn scope(config: &Value, strategy: Strategy) -> Scope {
    let mut all = Map::from_iter([("cwd".to_owned(), json!("/proj")), ("library".to_owned(), json!("/lib"))]);
    all.extend(config.as_object().cloned().unwrap_or_default());
    Scope::new(Value::Object(all), strategy, Overrides::default(), "")
}

/// Result of `explain`, or all messages without their back-quotes.
fn explained(case: &Value, strategy: Strategy) -> Result<Value, String> {
    let table = Table::new(&case["skills"], &case["authority"]);
    let scope = scope(&case["config"], strategy);
    let compiler = Compiler::new(&table, &scope);
    let tool = table.find(case["tool"].as_str().unwrap()).unwrap();
    match compiler.compile(&tool) {
        (Some(done), found) => {
            assert_eq!(found, []);
            Ok(json!({"levels": done.levels, "merged": done.merged, "chain": done.chain, "static": done.statics}))
        }
        (None, found) => Err(found.iter().map(|fault| fault.message.replace('`', "")).collect::<Vec<_>>().join("; ")),
    }
}

/// D-5, D-I01 to D-I10: the interpolation cases of the reference.
#[test]
fn the_interpolation_cases_hold() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    for case in cases["interpolation"].as_array().unwrap() {
        let input = case["input"].as_str().unwrap();
        let found = interpolate::text(input, &cases["interpolation_context"], &Strategy::default());
        assert_eq!(found, case["expect"], "{}", case["id"]);
    }
}

/// D-4, D-4.4, D-6, D-6.1, D-C01 to D-C11, D-M01 to D-M09, D-P01 to D-P04, D-R01 to D-R06, D-O01 to D-O12,
/// D-A01 to D-A06: the cascade cases of the reference hold with the built-in library.
#[test]
fn the_cascade_cases_hold() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    for case in cases["cascade"].as_array().unwrap() {
        let (id, expect) = (&case["id"], &case["expect"]);
        let found = explained(case, Strategy::default());
        if let Some(error) = expect.get("error") {
            assert_eq!(found.unwrap_err(), error.as_str().unwrap(), "{id}");
            continue;
        }
        let found = found.unwrap_or_else(|error| panic!("{id}: {error}"));
        for key in ["levels", "chain"] {
            assert_eq!(found[key], expect[key], "{id}: {key}");
        }
        for (key, value) in expect["merged"].as_object().unwrap() {
            assert_eq!(&found["merged"][key], value, "{id}: {key}");
        }
        for key in expect["absent"].as_array().unwrap() {
            assert!(found["merged"].get(key.as_str().unwrap()).is_none(), "{id}: {key} is there");
        }
        if let Some(statics) = expect.get("auto_static") {
            assert_eq!(&found["static"], statics, "{id}");
        }
    }
}

/// The copy of the cases equals the reference, if that lies beside the checkout.
#[test]
fn the_copy_of_the_cases_is_exact() {
    let original = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/conformance/cascade.json");
    if let Ok(original) = std::fs::read_to_string(original) {
        assert!(original == CASES, "copy it again, as docs/spec/d-cascade.md says");
    }
}

fn case(tool: &str, skills: Value, authority: Value) -> Value {
    json!({"tool": tool, "skills": skills, "authority": authority, "config": {}})
}

/// D-4.3: a skill without `$inherit` has its authority (`MissingInherit::Authority`), or `default` alone.
#[test]
fn a_skill_without_parents_has_its_authority() {
    let case = case("greet", json!({"app": {"role": "main"}, "greet": {}}), json!({"greet": "app"}));
    let levels = |missing_inherit| {
        let strategy = Strategy { missing_inherit, ..Strategy::default() };
        explained(&case, strategy).unwrap()["levels"].clone()
    };
    assert_eq!(levels(MissingInherit::Authority), json!(["greet", "app", "default"]));
    assert_eq!(levels(MissingInherit::DefaultOnly), json!(["greet", "default"]));
}

/// D-4.5: a private key stays private on the way down (`PrivateScope::Cumulative`), or only where it is declared.
#[test]
fn what_is_private_stays_private_below() {
    let skills = json!({"app": {"role": "main", "x": 1}, "greet": {}});
    let case = case("greet", skills, json!({"greet": "app"}));
    let role = |private_scope| {
        let strategy = Strategy { private_scope, ..Strategy::default() };
        explained(&case, strategy).unwrap()["merged"].get("role").cloned()
    };
    assert_eq!(role(PrivateScope::Cumulative), None);
    assert_eq!(role(PrivateScope::DeclaringLevel), Some(json!("main")));
}

/// D-4.7: a nearer level may bring back a key that a farther one removed (`RemoveTiming::AtLevel`), or not; paths reach
/// inside.
#[test]
fn what_is_removed_may_come_back_below() {
    let skills = json!({
        "app": {"role": "main", "$remove": ["include", "model.region"], "model": {"id": 1, "region": 2}},
        "greet": {"include": "a.md"},
    });
    let case = case("greet", skills, json!({"greet": "app"}));
    let merged = |remove_timing| {
        let strategy = Strategy { remove_timing, ..Strategy::default() };
        explained(&case, strategy).unwrap()["merged"].clone()
    };
    assert_eq!(merged(RemoveTiming::AtLevel)["include"], json!("a.md"));
    assert_eq!(merged(RemoveTiming::AtLevel)["model"], json!({"id": 1}));
    assert_eq!(merged(RemoveTiming::AtEnd).get("include"), None);
}

/// D-0.1.9: a nearer level cannot hide values from above, and `[$authority, a]` follows C3 even where that fails.
#[test]
fn what_is_settled_holds() {
    let skills = json!({
        "app": {"role": "main", "secret": 1}, "a": {"$private": "secret"}, "b": {},
        "greet": {"$inherit": "a"}, "late": {"$inherit": ["$authority", "a"]}, "both": {"$inherit": ["a", "$authority"]},
    });
    let authority = json!({"greet": "app", "late": "app", "both": "app", "a": "app"});
    let of = |tool: &str| explained(&case(tool, skills.clone(), authority.clone()), Strategy::default());
    assert_eq!(of("greet").unwrap()["merged"]["secret"], json!(1));
    assert_eq!(of("late").unwrap_err(), "inconsistent $inherit order for late");
    assert_eq!(of("both").unwrap()["levels"], json!(["both", "a", "app", "default"]));
}

/// D-4.7, D-0.1.6: `$dynamic` beats `$static`, and directives are never entries.
#[test]
fn declarations_decide_what_is_an_entry() {
    let skills = json!({"app": {"role": "main", "$static": true, "$dynamic": "model execute", "model": {}, "env": {"A": 1}},
        "greet": {}});
    let found = explained(&case("greet", skills, json!({"greet": "app"})), Strategy::default()).unwrap();
    assert_eq!(found["chain"], json!(["model", "execute"]));
    assert_eq!(found["merged"]["env"], json!({"A": 1}));
    assert!(!found["static"].as_array().unwrap().contains(&json!("env")));
}

/// D-4.6: an unknown policy is named with its skill and key; an annotation of the wrong shape is also a fault.
#[test]
fn unknown_policies_and_odd_annotations_are_faults() {
    let skills = json!({"greet": {"$merge": {"model": "shallw"}, "$order": {"a": 1}, "$private": {}}});
    let faults = explained(&case("greet", skills, json!({})), Strategy::default()).unwrap_err();
    assert!(faults.contains("greet: unknown merge policy shallw for the key model"), "{faults}");
    assert!(faults.contains("$order of greet") && faults.contains("$private of greet"), "{faults}");
    for side in [json!({"before": [{"x": 1}]}), json!({"after": {"x": 1}}), json!({"before": 3})] {
        let skills = json!({"greet": {"$order": {"a": side}}});
        let faults = explained(&case("greet", skills, json!({})), Strategy::default()).unwrap_err();
        assert!(faults.contains("$order of greet"), "{faults}");
    }
}

/// D-4, D-6: checking and compiling report the same, for tools that add nothing and for others, alone and together.
#[test]
fn a_check_reports_what_compiling_reports() {
    let skills = json!({
        "app": {"role": "main", "limit": 1, "paths": ["x"]}, "limit": {}, "plain": {}, "again": {"tags": ["a"]},
        "child": {"$inherit": "plain"}, "loop-a": {"$inherit": "loop-b"}, "loop-b": {"$inherit": "loop-a"},
        "lost": {"$inherit": "nobody"}, "more": {"audit": 1}, "audit": {"$order": {"audit": {"after": ["limit"], "before": ["limit"]}}},
        "odd": {"$merge": {"a": "b"}}, "lists": {"paths": ["y"]}, "off": {"$static": true}, "bad": {"$inherit": "odd"},
        "typed": {"params": {"type": "strin"}, "returns": 7}, "later": {"params": {"$resolve": "app"}, "returns": {"type": "${x}"}},
    });
    let names: Vec<String> = skills.as_object().unwrap().keys().cloned().collect();
    let authority: Map<String, Value> = names.iter().skip(1).map(|name| (name.clone(), json!("app"))).collect();
    let table = Table::new(&skills, &Value::Object(authority));
    let scope = scope(&json!({}), Strategy::default());
    let all: Vec<Arc<Skill>> = names.iter().map(|name| table.find(name).unwrap()).collect();
    assert!(all.iter().all(|skill| skill.outline().is_some()));
    let compiled: Vec<Vec<_>> = all.iter().map(|skill| Compiler::new(&table, &scope).compile(skill).1).collect();
    let together = Compiler::new(&table, &scope);
    let checked: Vec<Vec<_>> = all.iter().map(|skill| together.check(skill)).collect();
    assert_eq!(checked, compiled);
    assert_eq!(compiled.iter().filter(|found| !found.is_empty()).count(), 8, "{compiled:?}");
    assert_eq!(super::check(&table, &scope, &all), compiled.concat());
}

/// D-4.7: a fault of a middleware is a fault of every tool that has it.
#[test]
fn faults_of_middleware_are_faults_of_its_users() {
    let skills = json!({"app": {"role": "main", "limit": 1}, "limit": {"$inherit": "nope"}, "greet": {}});
    let case = case("greet", skills, json!({"greet": "app"}));
    assert_eq!(explained(&case, Strategy::default()).unwrap_err(), "unknown parent skill: nope");
}

/// D-6.4: a contradictory order of elements is a fault of every skill below, even of one without metadata.
#[test]
fn contradicting_element_orders_are_faults_of_every_skill_below() {
    let order = json!({
        "$.paths[?(@ == 'a')]": {"before": ["$.paths[?(@ == 'b')]"]},
        "$.paths[?(@ == 'b')]": {"before": ["$.paths[?(@ == 'a')]"]},
    });
    let skills = json!({
        "app": {"role": "main", "paths": ["a", "b"], "$order": order},
        "silent": {}, "tagged": {"tags": ["x"]}, "listed": {"paths": ["c"]}, "child": {"$inherit": "silent"},
    });
    let below = ["silent", "tagged", "listed", "child"];
    let authority: Map<String, Value> = below.map(|name| (name.to_owned(), json!("app"))).into_iter().collect();
    let table = Table::new(&skills, &Value::Object(authority));
    let scope = scope(&json!({}), Strategy::default());
    for name in below.iter().chain(&["app"]) {
        let skill = table.find(name).unwrap();
        let compiler = Compiler::new(&table, &scope);
        let (compiled, found) = compiler.compile(&skill);
        let codes: Vec<Code> = found.iter().map(|fault| fault.code).collect();
        assert_eq!((compiled.is_none(), codes), (true, vec![Code::OrderCycle]), "{name}");
        assert!(found[0].span.is_some(), "{name}: {:?}", found[0]);
        assert_eq!(compiler.check(&skill), found, "{name}");
    }
}

/// Files below directories, for searches.
struct Files(Vec<(&'static str, Arc<MemorySources>)>);

impl Roots for Files {
    fn open(&self, dir: &str) -> Option<Arc<dyn Sources + Send + Sync>> {
        let found = self.0.iter().find(|(known, _)| *known == dir);
        found
            .map(|(_, sources)| Arc::clone(sources) as Arc<dyn Sources + Send + Sync>)
            .or_else(|| OnlyLibrary.open(dir))
    }

    fn module(&self, path: &str) -> Result<Value, String> {
        Ok(json!({"description": path, "metadata": {"tags": ["js"]}}))
    }
}

fn search(files: &Files, paths: Value) -> Catalog {
    Catalog::search(files, "/p", &PathEntry::list(Some(&paths)), &mut Cache::default())
}

/// D-9, D-9.2, D-F01: the first entry of the path wins; ignored directories are not searched unless they are roots themselves.
#[test]
fn the_first_entry_of_the_path_wins() {
    let app = MemorySources::new()
        .with("app.skill.md", "---\nmetadata: {role: main}\n---\n")
        .with("skills/greet.skill.md", "later")
        .with("skills/code.skill.js", "")
        .with("workspace/greet.skill.md", "first")
        .with("dist/old.skill.md", "never");
    let workspace = MemorySources::new().with("greet.skill.md", "first");
    let files = Files(vec![("/p", Arc::new(app)), ("/p/workspace", Arc::new(workspace))]);
    let catalog = search(&files, json!(["./workspace", ".", {"ignore": "dist"}, {"ignore": "workspace"}]));
    let names: Vec<String> = catalog.list().iter().map(|skill| skill.name.clone()).collect();
    assert_eq!(names, ["greet", "app", "code"]);
    let greet = catalog.find("greet").unwrap();
    assert_eq!((greet.content(), &*greet.dir), ("first", "/p/workspace"));
    assert_eq!(catalog.authority(&greet).unwrap().name, "app");
    assert_eq!(catalog.find("code").unwrap().tags(), ["js"]);
}

/// D-4.1, D-0.1.4: an external directory does not belong to another root and has no authority outside itself.
#[test]
fn what_is_external_is_isolated() {
    let package =
        MemorySources::new().with("tool.skill.md", "x").with("own/main.skill.md", "---\nmetadata: {main: true}\n---\n");
    let app = MemorySources::new()
        .with("app.skill.md", "---\nmetadata: {role: main}\n---\n")
        .with("ext/tool.skill.md", "y")
        .with("apart/inner.skill.md", "z");
    let files = Files(vec![("/p", Arc::new(app)), ("/p/ext", Arc::new(package))]);
    let catalog = search(&files, json!([".", {"external": "ext"}, {"internal": "apart"}]));
    let tool = catalog.find("tool").unwrap();
    assert_eq!((tool.content(), catalog.authority(&tool).is_none()), ("x", true));
    assert!(catalog.authority(&catalog.find("main").unwrap()).is_none());
    let inner = catalog.find("inner").unwrap();
    assert_eq!(catalog.authority(&inner).unwrap().name, "app");
}

/// D-9.1, D-F02: a registered tool is found before a file of its name.
#[test]
fn registered_tools_come_first() {
    let app = MemorySources::new().with("greet.skill.md", "x");
    let mut catalog = search(&Files(vec![("/p", Arc::new(app))]), json!(["."]));
    catalog.register(Skill::programmatic("greet", "registered", Map::new()));
    assert_eq!(catalog.find("greet").unwrap().description, "registered");
    assert_eq!(catalog.list().len(), 1);
}

/// D-4.2, D-F06, D-F07: the only skill file of a directory is the main skill, or else the marked one.
#[test]
fn the_main_skill_is_the_only_one_or_the_marked_one() {
    let of = |sources: MemorySources| super::project_main(&sources, "/p");
    let plain = "x";
    let marked = "---\nmetadata: {role: main}\n---\n";
    assert_eq!(of(MemorySources::new().with("SKILL.md", plain)).skill.unwrap().name, "p");
    assert_eq!(of(MemorySources::new().with("a.skill.md", plain).with("b.skill.md", marked)).skill.unwrap().name, "b");
    let none = of(MemorySources::new().with("a.skill.md", plain).with("b.skill.md", plain));
    assert!(none.skill.is_none() && none.diagnostics.len() == 1);
    let both = of(MemorySources::new().with("a.skill.md", marked).with("b.skill.md", marked));
    assert!(both.diagnostics[0].is_error());
}

/// D-0.1.10: the middleware of the library declare their role and nothing else, so none of their values reach a chain.
#[test]
fn stages_carry_their_role_and_nothing_else() {
    let library = Catalog::search(&OnlyLibrary, "/proj", &PathEntry::bootstrap(), &mut Cache::default());
    let stages: Vec<Arc<Skill>> = library
        .list()
        .into_iter()
        .filter(|skill| skill.dir.ends_with("/pipeline") && skill.name != "default")
        .collect();
    assert_eq!(stages.len(), 22);
    for stage in stages {
        assert_eq!(Value::Object(stage.metadata().clone()), json!({"role": "middleware"}), "{}", stage.name);
    }
}

/// D-4.3: a skill inherits from at most 128 skills, on any path; a file with thousands is reported for each.
#[test]
fn skills_inherit_from_so_many_and_no_more() {
    let mut skills = Map::from_iter([("p0".to_owned(), json!({}))]);
    for at in 1..20_000 {
        skills.insert(format!("p{at}"), json!({"$inherit": format!("p{}", at - 1)}));
    }
    let names = |to: usize| -> Vec<String> { (0..to).map(|at| format!("q{at}")).collect() };
    skills.extend(names(129).into_iter().map(|name| (name, json!({"$inherit": false}))));
    skills.insert("wide".to_owned(), json!({"$inherit": names(128)}));
    skills.insert("wider".to_owned(), json!({"$inherit": names(129)}));
    let table = Table::new(&Value::Object(skills), &json!({}));
    let scope = scope(&json!({}), Strategy::default());
    let reported = |compiler: &Compiler<'_>, name: &str| -> Vec<String> {
        let found = compiler.compile(&table.skills[name]).1;
        found.into_iter().map(|fault| format!("{} {}", fault.code, fault.message)).collect()
    };
    let too_many = |name: &str| vec![format!("D0111 `{name}` inherits from more than 128 skills")];
    // From the far end, and with a filled cache.
    let compiler = Compiler::new(&table, &scope);
    assert_eq!(reported(&compiler, "p19999"), too_many("p19999"));
    assert_eq!(reported(&compiler, "p128"), Vec::<String>::new());
    assert_eq!(reported(&compiler, "p129"), too_many("p129"));
    assert_eq!(reported(&Compiler::new(&table, &scope), "p129"), too_many("p129"));
    assert_eq!((reported(&compiler, "wide"), reported(&compiler, "wider")), (Vec::new(), too_many("wider")));
    assert_eq!(compiler.check(&table.skills["p129"]).len(), 1);
}

/// D-4.3: an outline without values agrees with the values, or there is no outline.
#[test]
fn an_outline_says_what_values_say() {
    let of = |frontmatter: &str| {
        let text = format!("\u{feff}---\r\nname: é\r\n{frontmatter}\r\n---\r\n").replace("\r\n", "\n");
        let (skill, _) = Skill::read(&SourceFile::new("x.skill.md", text), &"/p".into());
        let skill = skill.unwrap_or_else(|| panic!("{frontmatter}"));
        let keys: Vec<String> = skill.metadata().keys().cloned().collect();
        let parent = skill.metadata().get("$inherit").cloned();
        let known =
            skill.outline().map(|(keys, parent)| (keys.map(str::to_owned).collect::<Vec<_>>(), parent.to_owned()));
        if let Some((known, named)) = &known {
            assert_eq!((known, named.as_str()), (&keys, parent.as_ref().map_or("", |parent| parent.as_str().unwrap())));
            assert!(parent.is_none() || !named.is_empty());
        }
        known.is_some()
    };
    for plain in [
        "",
        "metadata: {}",
        "metadata: {a: 1, b: {c: d}}",
        "metadata:\n  $inherit: up\n  ä: é\n  a b: 1",
        "license: MIT",
    ] {
        assert!(of(plain), "{plain}");
    }
    for odd in [
        "metadata:",
        "metadata: 5",
        "metadata: [a]",
        "metadata: {\"a\": 1}",
        "metadata: {'a''b': 1}",
        "metadata: {\"\\x61\": 1}",
        "metadata: {$inherit: \"up\"}",
        "metadata: {$inherit: ''}",
        "metadata: {$inherit: [a, b]}",
        "metadata: {$inherit: false}",
        "metadata: {$inherit: }",
        "metadata: {$inherit: 5}",
        "metadata:\n  $inherit: >\n    up",
    ] {
        assert!(!of(odd), "{odd}");
    }
    // An alias stands at its anchor, and has the same value.
    assert!(of("x: &x {a: 1}\nmetadata: *x"));
}

/// D-4.7, D-0.1.12: an unknown hook is a fault at its place, reported once for all tools below. A hook of a server or
/// at a path is looked up during the call.
#[test]
fn a_hook_that_is_no_skill_is_a_fault_at_its_place() {
    let found = |main: Value| {
        let table = Table::new(&json!({"top": main, "t": {"$inherit": "top"}, "look": {}}), &json!({}));
        let scope = scope(&json!({}), Strategy::default());
        let compiler = Compiler::new(&table, &scope);
        let reported = compiler.check(&table.skills["t"]);
        assert_eq!(reported, compiler.compile(&table.skills["t"]).1);
        let one = |fault: &Diagnostic| (fault.is_error(), fault.position().is_some(), fault.message.clone());
        reported.iter().map(one).collect::<Vec<_>>()
    };
    let message = |hook: &str| (true, true, format!("`$hook` of `top` names `{hook}`, which is not a skill"));
    assert_eq!(found(json!({"$hook": ["debug", "look", "no-such"]})), [message("debug"), message("no-such")]);
    assert_eq!(found(json!({"$hook": "look"})), []);
    assert_eq!(found(json!({"$hook": ["./h.skill.md", "git-log"], "mcp": {"git": {"command": "x"}}})), []);
}

/// D-10, D-16: unknown words of `log` are warnings at their place.
#[test]
fn unknown_words_of_log_are_warned_of() {
    let found = |log: Value| {
        let table = Table::new(&json!({"t": {"log": log}}), &json!({}));
        let scope = scope(&json!({}), Strategy::default());
        let reported = Compiler::new(&table, &scope).check(&table.skills["t"]);
        assert!(reported.iter().all(|fault| !fault.is_error() && fault.position().is_some()), "{reported:?}");
        reported.into_iter().map(|fault| fault.message).collect::<Vec<_>>()
    };
    assert_eq!(found(json!({"reporter": "json", "level": "trace", "scope": "events,tools"})), [""; 0]);
    assert_eq!(found(json!({"reporter": "${locals.config.r}", "scope": "full"})), [""; 0]);
    assert_eq!(
        found(json!({"reporter": "nonsense", "level": "loud", "scope": ["events", "x"]})),
        [
            "`t`: `loud` is not a level of `log`",
            "`t`: `x` is not a scope of `log`",
            "`t`: `nonsense` is not a reporter of `log`"
        ]
    );
    assert_eq!(found(json!("text")), ["`log` of `t` is not a mapping of `level`, `scope` and `reporter` to words"]);
}

/// D-4.3: checking and compiling report the same for a tool whose parent has an empty name.
#[test]
fn a_parent_of_no_name_is_not_none() {
    let table = Table::new(&json!({"a": {}, "b": {"$inherit": ""}}), &json!({}));
    let scope = scope(&json!({}), Strategy::default());
    let compiler = Compiler::new(&table, &scope);
    assert_eq!(compiler.check(&table.skills["a"]), []);
    let reported = compiler.check(&table.skills["b"]);
    assert_eq!(reported, Compiler::new(&table, &scope).compile(&table.skills["b"]).1);
    assert_eq!(reported[0].message, "unknown parent skill: ``");
}
