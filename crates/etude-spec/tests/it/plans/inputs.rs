//! A-2.4: values are read by declared type, never by guessing.

use etude_spec::input::InputDecl;
use etude_spec::pipeline::App;
use etude_spec::source::MemorySources;

fn declared(input: &str) -> InputDecl {
    let text = format!("name: p\ndescription: d\ninput: {input}\nsteps:\n- {{name: a, type: code, command: 'true'}}\n");
    let sources = MemorySources::new().with("pipelines/p/pipeline.yaml", text);
    let (pipeline, diagnostics) = App::new(&sources).pipeline("p");
    assert_eq!(diagnostics, []);
    pipeline.unwrap().input
}

const TYPES: &str = "{s: string, i: integer, x: number, b: boolean, a: array, o: object}";

fn given(input: &InputDecl, pairs: &[&str], json: Option<&str>) -> Result<String, Vec<String>> {
    let pairs: Vec<_> = pairs.iter().map(|p| p.split_once('=').unwrap()).map(|(k, v)| (k.into(), v.into())).collect();
    let result = input.coerce(&pairs, json);
    result
        .map(|json| json.text().unwrap().to_string())
        .map_err(|all| all.into_iter().map(|p| format!("{} / {}", p.message, p.hint.unwrap_or_default())).collect())
}

/// A-2.4: command line values get the declared types, in the order of the declaration.
#[test]
fn values_become_what_is_declared() {
    let pairs = ["o={\"k\": 1e2}", "s=42", "i=-042", "x=1.50", "b=true", "a=[1]"];
    let expected = r#"{"s":"42","i":-42,"x":1.50,"b":true,"a":[1],"o":{"k": 1e2}}"#;
    assert_eq!(given(&declared(TYPES), &pairs, None).unwrap(), expected);
}

/// A-2.4: a string stays the same text.
#[test]
fn strings_are_never_guessed() {
    let input = declared("{s: string}");
    for text in ["true", "null", "007", "1e5", "", "a=b", "{\"k\": 1}", " padded ", "\"quoted\"", "ключ", "{{input.s}}"]
    {
        let found = given(&input, &[&format!("s={text}")], None).unwrap();
        assert_eq!(found, serde_json::json!({ "s": text }).to_string());
    }
}

/// A-3.3: numbers of any size and precision pass unchanged.
#[test]
fn numbers_keep_their_text() {
    let input = declared("{i: integer, x: number}");
    let big = "123456789012345678901234567890";
    let found = given(&input, &[&format!("i={big}"), "x=0.10000000000000000000001"], None).unwrap();
    assert_eq!(found, format!(r#"{{"i":{big},"x":0.10000000000000000000001}}"#));
    let json = format!(r#"{{"x": 1E400, "i": {big}.0}}"#);
    assert_eq!(given(&input, &[], Some(&json)).unwrap(), format!(r#"{{"i":{big}.0,"x":1E400}}"#));
}

/// S-38, A-2.4: the first hundred faults of an input are listed and the rest is counted; missing parameters are always
/// reported.
#[test]
fn faults_of_an_input_are_bounded() {
    let input = declared("{n: integer, s: string}");
    let members: Vec<String> = (0..2_000).map(|n| format!("\"m{n}\":{n}")).collect();
    let json = format!("{{{},\"n\":\"no\"}}", members.join(","));
    let faults = given(&input, &[], Some(&json)).unwrap_err();
    assert_eq!(faults.len(), 102);
    assert!(faults[99].contains("`m99` is not declared"), "{}", faults[99]);
    // `n` has a value that does not fit: its fault is not listed, but the parameter is not missing.
    assert!(faults[100].starts_with("required parameter `s` is missing"), "{}", faults[100]);
    assert!(faults[101].starts_with("1901 more errors are not listed"), "{}", faults[101]);
}

/// A-2.4: a value that does not fit is refused.
#[test]
fn what_does_not_fit_is_refused() {
    for pair in ["i=abc", "i=1.5", "i=", "x=ten", "x=0x1", "x=NaN", "b=yes", "b=1", "a=1,2", "a={}", "o=[1]", "o=null"]
    {
        let name = &pair[..1];
        let kind = ["string", "integer", "number", "boolean", "array", "object"];
        let kind = kind.iter().find(|kind| TYPES.contains(&format!("{name}: {kind}"))).unwrap();
        let problems = given(&declared(&format!("{{{name}: {kind}}}")), &[pair], None).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with(&format!("parameter `{name}` must be")), "{problems:?}");
    }
}

/// A-2.4: JSON keeps its types and is checked against the declared ones.
#[test]
fn json_keeps_its_types() {
    let input = declared(TYPES);
    let good = r#"{"s":"1","i":1.0,"x":2,"b":false,"a":[],"o":{}}"#;
    assert_eq!(given(&input, &[], Some(good)).unwrap(), good);
    let bad = r#"{"s":1,"i":"1","x":true,"b":1,"a":{},"o":[]}"#;
    assert_eq!(given(&input, &[], Some(bad)).unwrap_err().len(), 6);
    assert_eq!(
        given(&declared("{i: integer}"), &[], Some(r#"{"i":1.5}"#)).unwrap_err(),
        ["parameter `i` must be an integer, not `1.5` / "]
    );
    assert_eq!(given(&declared("{i: integer}"), &["i=3"], Some(r#"{"i":1}"#)).unwrap(), r#"{"i":3}"#);
}

/// A-2.4: undeclared parameters are refused from every source; all missing ones are named at once.
#[test]
fn everything_wrong_is_reported_at_once() {
    let input = declared("{first: string, second: string, third: string}");
    let problems = given(&input, &["frist=x", "second=y"], Some(r#"{"other": 1}"#)).unwrap_err();
    assert_eq!(
        problems,
        [
            "parameter `other` is not declared / declared parameters: `first`, `second` and `third`",
            "parameter `frist` is not declared / did you mean `first`?",
            "required parameters `first` and `third` are missing / give it with `-i first=…`",
        ]
    );
    assert_eq!(
        given(&input, &["second=1", "second=2", "first=", "third="], None).unwrap_err(),
        ["parameter `second` is given twice / "]
    );
    let object = r#"{"first": "1", "second": "2", "first": "3", "third": "4"}"#;
    assert_eq!(given(&input, &[], Some(object)).unwrap_err(), ["parameter `first` is given twice / "]);
    assert_eq!(
        given(&InputDecl::default(), &["a=b"], None).unwrap_err(),
        ["parameter `a` is not declared / the pipeline takes no input"]
    );
}

#[test]
fn input_that_is_no_object_is_refused() {
    for text in ["{", "[1]", "\"x\"", "", "{} {}"] {
        let problems = given(&InputDecl::default(), &[], Some(text)).unwrap_err();
        assert!(problems[0].starts_with("the input "), "{problems:?}");
    }
    assert_eq!(given(&InputDecl::default(), &[], Some(" {} ")).unwrap(), "{}");
}

/// A-2.4: the long form is a JSON Schema with `required` and `default`.
#[test]
fn the_long_form_is_validated() {
    let input = declared(
        "{level: {type: string, enum: [low, high], default: low}, n: {type: integer, minimum: 1, required: true}, note: {type: string, required: false}}",
    );
    assert_eq!(given(&input, &["n=2"], None).unwrap(), r#"{"level":"low","n":2}"#);
    assert_eq!(given(&input, &["note=x", "level=high", "n=2"], None).unwrap(), r#"{"level":"high","n":2,"note":"x"}"#);
    for pairs in [vec!["n=0"], vec!["n=2", "level=mid"], vec![]] {
        assert_eq!(given(&input, &pairs, None).unwrap_err().len(), 1, "{pairs:?}");
    }
}

#[test]
fn without_a_single_type_text_is_text_where_strings_are_allowed() {
    let input = declared(
        "{a: {enum: [x, y]}, b: {type: [string, 'null'], default: null}, c: {type: [integer, 'null'], default: null}, d: {type: object, required: [k], properties: {k: {type: integer}}, default: {k: 1}}}",
    );
    assert_eq!(
        given(&input, &["a=x", "b=null", "c=null"], None).unwrap(),
        r#"{"a":"x","b":"null","c":null,"d":{"k":1}}"#
    );
    assert_eq!(given(&input, &["a=x", "d={}"], None).unwrap_err().len(), 1);
}

/// A-2.4, A-3.3: a schema that accepts everything also accepts values that cannot be parsed.
#[test]
fn an_open_schema_looks_into_nothing() {
    let input = declared("{a: {}, n: number}");
    let text = r#"{"a":["\ud800",1e400],"n":1e400}"#;
    assert_eq!(given(&input, &["a=1e400"], Some(r#"{"n": 1e400}"#)).unwrap(), r#"{"a":1e400,"n":1e400}"#);
    assert_eq!(given(&input, &[], Some(text)).unwrap(), text);
}
