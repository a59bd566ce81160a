use super::*;
use crate::frontmatter::Head;

const FRONT: &str = "schema: agentapplications/v1\nkind: app\nslug: echo-box\nname: Echo Box\ndescription: A box\nversion: 0.1.0\nentry:\n  command: python3 app/box.py\ncommands: [ping, wipe, \"box list\", box]\nskills: [usage]\nscheduling: notSupported\nconfirmationRequired: [wipe]\n";

fn reading(front: &str) -> Reading {
    read(&Head::parse("APP.md", format!("---\n{front}---\n# Box\n").as_bytes()), "echo-box")
}

fn faults(front: &str) -> Vec<(&'static str, Option<String>)> {
    reading(front).diagnostics.into_iter().filter_map(|d| Some((d.name?, d.path))).collect()
}

#[track_caller]
fn one(old: &str, new: &str, word: &str, path: Option<&str>, is_compatible: bool) -> Contract {
    assert!(FRONT.contains(old), "{old}");
    let front = FRONT.replacen(old, new, 1);
    let reading = reading(&front);
    let found = faults(&front);
    assert!(found.iter().any(|(name, at)| *name == word && at.as_deref() == path), "{old:?} -> {new:?}: {found:?}");
    assert_eq!(!reading.diagnostics.iter().any(Diagnostic::is_error), is_compatible, "{:?}", reading.diagnostics);
    reading.contract
}

/// C-1.4, AA-01: a valid contract is read in full and has no findings.
#[test]
fn a_good_contract_has_no_fault() {
    let reading = reading(FRONT);
    assert!(reading.diagnostics.is_empty(), "{:?}", reading.diagnostics);
    let contract = reading.contract;
    assert_eq!(
        (contract.slug.as_str(), contract.is_slug_derived, contract.version.as_str()),
        ("echo-box", false, "0.1.0")
    );
    assert_eq!(contract.commands, ["ping", "wipe", "box list", "box"]);
    assert!(contract.needs_confirmation("wipe", &[]) && !contract.needs_confirmation("box", &[]));
}

/// C-1.15, AA-63: a section that names an option or a command documents scheduling. So does a command's own subsection
/// with an option for a date.
#[test]
fn an_option_for_a_date_documents_scheduling() {
    let commands = ["put".to_owned(), "box list".to_owned()];
    let found = |body: &str| Body(body).scheduling(&commands);
    for section in ["Give `--due DATE` to it.", "`put --due DATE` sets it.", "Items of put get a date."] {
        assert_eq!(found(&format!("## Scheduling\n{section}\n\n## State\n")).as_deref(), Some(section));
    }
    let own = found("## Commands\n### put\n`put KEY [--due DATE]`\n### box list\nAll.\n## Scheduling\nSee above.\n");
    assert_eq!(own.as_deref(), Some("`put`: `put KEY [--due DATE]`"));
    for body in [
        "## Scheduling\nItems may be due.\n",
        "## Scheduling\nAn input is due.\n",
        "## Commands\n### put\n`put KEY [--force]`\n",
        "### other\n`other --due DATE`\n",
    ] {
        assert_eq!(found(body), None, "{body}");
    }
}

/// C-1.14: a guarded path stays guarded whichever of its words come as arguments, also if it is listed but not
/// declared.
#[test]
fn a_path_is_guarded_however_its_words_are_given() {
    let listed = |commands: &[&str], guarded: &[&str]| {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Contract { commands: texts(commands), confirmation_required: texts(guarded), ..Contract::default() }
    };
    let asks = |contract: &Contract, command: &str, args: &str| {
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        contract.needs_confirmation(command, &args)
    };
    for commands in [&["box", "box list", "box wipe"][..], &["box", "box list"]] {
        let contract = listed(commands, &["box wipe"]);
        assert!(asks(&contract, "box", "wipe") && asks(&contract, "box", "wipe --all"), "{commands:?}");
        for args in ["", "list", "list wipe", "wiped"] {
            assert!(!asks(&contract, "box", args), "{commands:?}: box {args}");
        }
    }
    let contract = listed(&["box", "box list"], &["box"]);
    assert!(asks(&contract, "box", "") && asks(&contract, "box", "other") && asks(&contract, "box", "list"));
    assert!(!asks(&contract, "box list", ""), "the beginning of a path is not the path");
}

/// C-1.19: errors make a package incompatible, and name the field (AA-04, AA-06 to AA-09, AA-11, AA-23, AA-24).
#[test]
fn errors_name_their_field() {
    one("name: Echo Box\n", "", "AA_MISSING_FIELD", Some("name"), false);
    one("description: A box\n", "description:\n", "AA_MISSING_FIELD", Some("description"), false);
    one("version: 0.1.0\n", "", "AA_MISSING_FIELD", Some("version"), false);
    one("entry:\n  command: python3 app/box.py\n", "entry: python3 app/box.py\n", "AA_BAD_TYPE", Some("entry"), false);
    one("entry:\n  command: python3 app/box.py\n", "", "AA_MISSING_FIELD", Some("entry.command"), false);
    one("[ping, wipe, \"box list\", box]", "[wipe, {name: ping}]", "AA_BAD_TYPE", Some("commands"), false);
    one("[ping, wipe, \"box list\", box]", "wipe", "AA_BAD_TYPE", Some("commands"), false);
    one("skills: [usage]\n", "", "AA_MISSING_FIELD", Some("skills"), false);
    one("[usage]", "[../usage]", "AA_SKILL_PATH", Some("skills"), false);
    one("kind: app", "kind: skill", "AA_KIND_MISMATCH", Some("kind"), false);
    one("applications/v1", "applications/v2", "AA_SCHEMA_UNSUPPORTED", Some("schema"), false);
}

/// C-1.11: globs of `metadata.statePaths` are read as written; one that selects no state is reported.
#[test]
fn state_paths_are_read_from_the_metadata() {
    let with = |paths: &str| format!("{FRONT}metadata: {{statePaths: {paths}}}\n");
    let reading = reading(&with("[\"app/cache/**\", app/x]"));
    assert_eq!(
        (reading.contract.state_paths(), reading.diagnostics.len()),
        (vec!["app/cache/**".into(), "app/x".into()], 0)
    );
    for odd in ["[cache]", "app/cache", "[app/**]", "[[app/x]]", "[\"skills/**\"]"] {
        assert_eq!(faults(&with(odd)), [("AA_STATE_PATH", Some("metadata.statePaths".to_owned()))], "{odd}");
    }
}

/// C-1.19: warnings leave a package usable (AA-03, AA-10, AA-11, AA-16 to AA-19).
#[test]
fn warnings_leave_a_package_usable() {
    assert_eq!(one("slug: echo-box\n", "", "AA_SLUG_DERIVED", Some("slug"), true).slug, "echo-box");
    assert_eq!(one("slug: echo-box", "slug: Echo Box", "AA_SLUG_FORMAT", Some("slug"), true).slug, "echo-box");
    assert_eq!(one("[ping, ", "[ping, ping, ", "AA_DUP_COMMAND", Some("commands"), true).commands.len(), 4);
    one("[usage]", "[]", "AA_NO_SKILLS", Some("skills"), true);
    for word in ["true", "maybe", "[a]"] {
        let contract = one("notSupported", word, "AA_SCHED_VALUE", Some("scheduling"), true);
        assert!(!contract.is_scheduling_supported);
    }
    let contract = one(
        "confirmationRequired: [wipe]",
        "confirmationRequired: wipe",
        "AA_CONFIRM_COERCED",
        Some("confirmationRequired"),
        true,
    );
    assert!(contract.needs_confirmation("wipe", &[]));
    let contract = one(
        "confirmationRequired: [wipe]",
        "confirmationRequired: [erase]",
        "AA_CONFIRM_UNKNOWN",
        Some("confirmationRequired"),
        true,
    );
    assert_eq!(contract.confirmation_required, ["erase"]);
    one("kind: app\n", "kind: app\npermissions: all\n", "AA_UNKNOWN_FIELD", Some("permissions"), true);
}

/// C-1.3, AA-20, AA-30: a file with unreadable frontmatter still yields a contract with a slug.
#[test]
fn unreadable_frontmatter_still_gives_a_record() {
    let words = |text: &str| {
        let reading = read(&Head::parse("APP.md", text.as_bytes()), "echo-box");
        assert_eq!(reading.contract.slug, "echo-box");
        reading.diagnostics.iter().filter_map(|d| d.name).collect::<Vec<_>>()
    };
    assert_eq!(words("# Box\n"), ["AA_NO_FRONTMATTER"]);
    assert_eq!(words("---\nname: x\n"), ["AA_NO_FRONTMATTER"]);
    assert_eq!(words("---\n- x\n---\n"), ["AA_NOT_MAPPING"]);
    assert_eq!(words("---\n---\n"), ["AA_NOT_MAPPING"]);
    assert_eq!(words("---\nname: [x\n---\n"), ["AA_BAD_YAML"]);
    assert_eq!(words(&format!("---\n{FRONT}name: again\n---\n")), ["AA_DUP_KEY"]);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", ")));
    }
    assert!(words(&format!("---\n{FRONT}{bomb}---\n")).contains(&"AA_BAD_YAML"));
}

/// C-1.3, AA-05, AA-25: versions stay text; a foreign dialect is distinguished from a broken contract.
#[test]
fn versions_are_text_and_dialects_are_distinguished() {
    assert_eq!(reading(&FRONT.replace("0.1.0", "1.10")).contract.version, "1.10");
    let foreign = reading("name: X\ndescription: d\nversion: 1.0.0\nstatus: ready\nappType: ui\n");
    assert_eq!(foreign.diagnostics.iter().filter_map(|d| d.name).collect::<Vec<_>>(), ["AA_FOREIGN_DIALECT"]);
}

/// C-1.13, AA-45: the longest declared path wins.
#[test]
fn the_longest_declared_path_wins() {
    let contract = reading(FRONT).contract;
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(contract.command(&words("box list x")), Some(("box list", 2)));
    assert_eq!(contract.command(&words("box other")), Some(("box", 1)));
    assert_eq!(contract.command(&words("pin")), None);
}

/// C-1.5, C-1.15: the body's sections on commands, state and scheduling are found by their headings.
#[test]
fn the_body_is_read_by_its_headings() {
    let text = "# Box\n## CLI\nx\n## Commands\n### wipe\n`wipe` clears.\n### fail, crash\nFor tests.\n## State\n`app/state/box.json`, `rm -rf`.\n## Scheduling\n`put --due DATE`\n";
    let body = Body(text);
    assert_eq!(body.about_command("wipe").as_deref(), Some("`wipe` clears."));
    assert_eq!(body.about_command("crash").as_deref(), Some("For tests."));
    assert_eq!(body.about_command("ping"), None);
    assert_eq!(body.state_files(), ["app/state/box.json"]);
    assert_eq!(body.scheduling(&["put".into()]).as_deref(), Some("`put --due DATE`"));
    assert_eq!(sections_missing(body, &reading(FRONT).contract), ["Purpose", "Output", "Confirmations", "Skills"]);
}

/// C-1.4: optional lists of a wrong kind are reported, not left out.
#[test]
fn optional_lists_of_a_wrong_kind_are_faults() {
    let slug = "slug: echo-box\n";
    for (field, path) in [
        ("tags: [a, {b: c}]", "tags"),
        ("tags: {a: b}", "tags"),
        ("tags: a", "tags"),
        ("authors: {name: A}", "authors"),
    ] {
        one(slug, &format!("{slug}{field}\n"), "AA_BAD_TYPE", Some(path), false);
    }
    let sound = format!("{FRONT}tags:\n  - a\n  - 2\nauthors: [A, {{name: B}}]\n");
    assert_eq!(faults(&sound), []);
    assert_eq!(reading(&sound).contract.tags, ["a", "2"]);
}
