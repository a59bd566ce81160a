//! `steps/bindings.py`: one function for each binding that templates cannot express (L-42).

use serde_json::Value;

use crate::program::{Program, StepKind};
use crate::term::{Func, List, Part, Ref, Source, Term};
use crate::value::{Collection, Kind, Path};

/// Beginning of the file: access to values. A missing value is `None`, and the run deviates.
const HEAD: &str = include_str!("head.py");
/// End of the file: evaluation of the binding that the step names.
const TAIL: &str = include_str!("tail.py");

/// Content of the file; `None` if templates suffice.
pub(super) fn file(program: &Program) -> Option<String> {
    let mut functions = String::new();
    let mut names = Vec::new();
    for step in &program.steps {
        if let StepKind::Code { func, provenance } = &step.kind {
            let body = body(func);
            let name = format!("bind_{}", step.name);
            functions.push_str(&format!(
                "\n\ndef {name}(run):\n    # {}: {provenance}\n{body}",
                of_argument(func).unwrap_or_else(|| "no source".to_owned())
            ));
            names.push(format!("    {}: {name},\n", literal(&step.name.as_str().into())));
        }
    }
    (!names.is_empty()).then(|| format!("{HEAD}{functions}\n\nBINDINGS = {{\n{}}}\n{TAIL}", names.concat()))
}

/// The provenance of a binding: the outputs that it reads.
fn of_argument(func: &Func) -> Option<String> {
    let mut refs: Vec<String> = func.refs().into_iter().map(|of| of.template().replace(['{', '}'], "")).collect();
    refs.dedup();
    (!refs.is_empty()).then(|| format!("from {}", refs.join(", ")))
}

fn body(func: &Func) -> String {
    match func {
        Func::Records(list) => format!("    return {} or None\n", elements(list)),
        Func::Column { list, field } => {
            format!("    values = [at(one{}) for one in {}]\n    return whole(values)\n", below(field), elements(list))
        }
        Func::Only { list, field, as_list } => {
            let value = format!("at(all_of[0]{})", below(field));
            let value = if *as_list { format!("whole([{value}])") } else { value };
            format!("    all_of = {}\n    return {value} if len(all_of) == 1 else None\n", elements(list))
        }
        Func::Lookup { list, key, is } => format!(
            "    wanted = {}\n    return only([one for one in {} if same(at(one{}), wanted)])\n",
            term(is),
            elements(list),
            below(key)
        ),
        Func::LookupAll { list, key, are } => format!(
            "    all_of, names = {}, listed({})\n    return whole([only([one for one in all_of if same(at(one{}), name)]) for name in names])\n",
            elements(list),
            term(are),
            below(key)
        ),
        Func::Common { list, field } => format!(
            "    values = [at(one{}) for one in {}]\n    return values[0] if values and all(same(one, values[0]) for one in values) else None\n",
            below(field),
            elements(list)
        ),
        Func::FirstOf(refs) => {
            let all: Vec<String> = refs.iter().map(reference).collect();
            format!(
                "    found = [value for value in ({},) if value is not None]\n    return found[0] if found else None\n",
                all.join(", ")
            )
        }
        Func::Sum { list, field } => {
            format!("    values = [at(one{}) for one in {}]\n    return total(values)\n", below(field), elements(list))
        }
        Func::Arithmetic { op, left, right } => format!(
            "    left, right = {}, {}\n    return number(left {} right) if are_numbers([left, right]) else None\n",
            reference(left),
            reference(right),
            op.sign()
        ),
        Func::Branch { on, cases } => {
            let cases = cases
                .iter()
                .map(|(is, value)| format!("    if same(on, {}):\n        return {}\n", literal(is), term(value)));
            format!("    on = {}\n{}    return None\n", reference(on), cases.collect::<String>())
        }
        Func::Values(values) => format!("    return {}\n", literal(&Value::from(values.clone()))),
        Func::Options { over, results, list } => options(over, results, list),
        Func::Build(built) => {
            let parts: Vec<String> = built.refs().into_iter().map(reference).collect();
            let value = term(built);
            match parts.is_empty() {
                true => format!("    return {value}\n"),
                false => format!("    return {value} if whole([{}]) else None\n", parts.join(", ")),
            }
        }
        Func::Rows { list, fields } => rows(list, fields),
        Func::Open(names) => {
            let members: Vec<String> =
                names.iter().map(|name| format!("{}: None", literal(&name.as_str().into()))).collect();
            format!("    return {{{}}}\n", members.join(", "))
        }
    }
}

/// Code for the options of each element that a question is about.
fn options(over: &Ref, results: &Ref, list: &Collection) -> String {
    format!(
        "    over, results = listed({}), listed({})\n    lists = [elements({}, {}) for one in results]\n    pairs = [{{\"of\": of, \"options\": options}} for of, options in zip(over, lists)]\n    return pairs if len(over) == len(results) and all(lists) else None\n",
        reference(over),
        reference(results),
        format_args!("at(one{})", below(&list.path)),
        kind(list),
    )
}

/// Code for one mapping per element; its result is `None` if a value is missing.
fn rows(list: &List, fields: &[(String, Term)]) -> String {
    let parts = fields.iter().flat_map(|(_, part)| part.refs()).map(reference).collect::<Vec<_>>().join(", ");
    let members = fields.iter().map(|(name, part)| format!("{}: {}", literal(&name.as_str().into()), term(part)));
    let row = format!("{{{}}}", members.collect::<Vec<_>>().join(", "));
    let row = if parts.is_empty() { row } else { format!("{row} if whole([{parts}]) else None") };
    format!("    return whole([{row} for one in {}])\n", elements(list))
}

fn elements(list: &List) -> String {
    let kind = kind(&Collection { path: Path::new(), kind: list.kind });
    format!("elements({}, {kind})", reference(&list.of))
}

fn kind(list: &Collection) -> &'static str {
    match list.kind {
        Kind::List => "\"list\"",
        Kind::Members => "\"members\"",
        Kind::Records => "\"records\"",
    }
}

fn reference(of: &Ref) -> String {
    let head = match &of.source {
        Source::Param(name) => format!("run[\"input\"], {}", literal(&name.as_str().into())),
        Source::Step(name) => format!("run[\"steps\"], {}, \"output\"", literal(&name.as_str().into())),
        // The element of the list in the loop.
        Source::Item => "one".to_owned(),
        Source::Node(_) | Source::Var(_) => "None".to_owned(),
    };
    format!("at({head}{})", below(&of.path))
}

fn below(path: &Path) -> String {
    path.iter().map(|name| format!(", {}", literal(&name.as_str().into()))).collect()
}

fn term(term: &Term) -> String {
    match term {
        Term::Const(value) => literal(value),
        Term::Ref(of) => reference(of),
        Term::Text(parts) => {
            let parts: Vec<String> = parts
                .iter()
                .map(|part| match part {
                    Part::Plain(text) => literal(&text.as_str().into()),
                    Part::Ref(of) => reference(of),
                })
                .collect();
            format!("text([{}])", parts.join(", "))
        }
        Term::List(items) => format!("[{}]", items.iter().map(self::term).collect::<Vec<_>>().join(", ")),
        Term::Object(members) => {
            let members = members
                .iter()
                .map(|(name, inner)| format!("{}: {}", literal(&name.as_str().into()), self::term(inner)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A value as Python writes it. A JSON string is a Python string.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members =
                members.iter().map(|(name, value)| format!("{}: {}", literal(&name.as_str().into()), literal(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use serde_json::json;

    use super::*;
    use crate::program::Step;
    use crate::term::{Op, Scope};

    struct Output(Value);

    impl Scope for Output {
        fn get(&self, _: &Source) -> Option<&Value> {
            Some(&self.0)
        }
    }

    fn of(path: &str) -> Ref {
        Ref::new(Source::Step("a".to_owned()), path.split('.').map(str::to_owned).collect())
    }

    fn list() -> List {
        List { of: of("list"), kind: Kind::List }
    }

    fn functions() -> Vec<Func> {
        let (key, field) = (vec!["k".to_owned()], vec!["n".to_owned()]);
        let branch = |value: Value, text: &str| (value, Term::Const(text.into()));
        vec![
            Func::Column { list: list(), field: field.clone() },
            Func::Only { list: list(), field: field.clone(), as_list: true },
            Func::Lookup { list: list(), key: key.clone(), is: Term::Ref(of("is")) },
            Func::LookupAll { list: list(), key, are: Term::Ref(of("are")) },
            Func::Common { list: list(), field: field.clone() },
            Func::Sum { list: list(), field },
            Func::Arithmetic { op: Op::Multiply, left: of("x"), right: of("y") },
            Func::Arithmetic { op: Op::Subtract, left: of("x"), right: of("y") },
            Func::Build(Term::Object(vec![
                ("a".to_owned(), Term::List(vec![Term::Ref(of("x")), Term::Const(json!({"{{": null}))])),
                ("b".to_owned(), Term::Text(vec![Part::Plain("{{n}} ".to_owned()), Part::Ref(of("is"))])),
            ])),
            Func::Rows {
                list: list(),
                fields: vec![
                    ("k".to_owned(), Term::Ref(Ref::new(Source::Item, vec!["k".to_owned()]))),
                    (
                        "to".to_owned(),
                        Term::Object(vec![
                            ("n".to_owned(), Term::Ref(Ref::new(Source::Item, vec!["n".to_owned()]))),
                            ("is".to_owned(), Term::Ref(of("is"))),
                        ]),
                    ),
                ],
            },
            Func::Branch { on: of("is"), cases: vec![branch(json!(1), "one"), branch(json!(true), "true")] },
        ]
    }

    /// The output of every binding of a file for every run.
    #[expect(clippy::disallowed_methods, reason = "the interpreter that runs this code computes the same")]
    fn run(file: &std::path::Path, runs: &Value) -> Value {
        const ALL: &str = "import json, runpy, sys; of = runpy.run_path(sys.argv[1]); print(json.dumps([[of['output'](bind, run) for bind in of['BINDINGS'].values()] for run in json.load(sys.stdin)]))";
        let mut child = Command::new("python3")
            .args(["-c", ALL])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python is there");
        child.stdin.take().expect("piped").write_all(runs.to_string().as_bytes()).expect("written");
        let done = child.wait_with_output().expect("ended");
        serde_json::from_slice(&done.stdout).expect("a document, and no exception")
    }

    /// L-12, L-70: generated code computes the same as the replay that checked it, also if a value is missing, occurs twice
    /// or has another type.
    #[test]
    fn code_computes_the_same_as_the_replay() {
        let kind = |func| StepKind::Code { func, provenance: String::new() };
        let steps = functions().into_iter().enumerate().map(|(n, func)| Step::new(&format!("f{n}"), kind(func)));
        let program = Program { steps: steps.collect(), ..Program::default() };
        let path = std::env::temp_dir().join(format!("etude-bindings-{}.py", std::process::id()));
        std::fs::write(&path, file(&program).expect("code")).expect("written");
        let outputs = [
            json!({"list": [{"k": 1, "n": 0.125}, {"k": 2, "n": 0.25}], "is": 1, "are": [2, 1], "x": 0.5, "y": 0.25}),
            json!({"list": [{"k": 1, "n": 3}, {"k": 1, "n": 4}], "is": 1.0, "are": [1], "x": 1.005, "y": 1}),
            json!({"list": [{"k": [1], "n": "3"}], "is": [1], "are": 5, "x": -0.125, "y": 1}),
            json!({"list": [{"k": {"a": 1}, "n": null}], "is": true, "are": [], "x": "1", "y": 2}),
            json!({"list": [{"k": 2.0, "n": 0.0045}, {"k": 7, "n": -0.001}], "is": 2, "are": [7.0], "x": 1.125, "y": 1.0}),
            json!({"list": [{"k": true, "n": 1e15}, {"k": [1.0], "n": 0.01}], "is": true, "are": [[1]], "x": 1e9, "y": 0.125}),
            json!({"list": [{"k": 1, "n": 0.1}, {"k": 2, "n": 0.2}], "is": 1, "are": [2], "x": 19.99, "y": 3}),
            json!({"list": [{"k": 1, "n": 2}, {"k": 2, "n": 2.0}], "is": 1, "are": [2], "x": 1, "y": 1}),
            json!({"list": [{"k": 1, "n": "on"}, {"k": 2}], "is": 1, "are": [2], "x": 1, "y": 1}),
            json!({"list": {"k": 1}, "is": null, "are": [null], "x": 9_007_199_254_740_991_u64, "y": 3}),
            json!({"list": [{"k": "a", "n": 1e308}, {"k": "b", "n": 1e308}], "is": "b", "are": ["b", 7], "x": 1e308, "y": 1e308}),
        ];
        let runs = outputs.iter().map(|output| json!({"input": {}, "steps": {"a": {"output": output}}})).collect();
        let found = run(&path, &runs);
        for (k, output) in outputs.iter().enumerate() {
            for (n, func) in functions().into_iter().enumerate() {
                let wanted = func.eval(&Output(output.clone())).unwrap_or_default();
                assert_eq!(found[k][n], wanted, "{func:?} of {output}");
            }
        }
        std::fs::remove_file(path).expect("removed");
    }
}
