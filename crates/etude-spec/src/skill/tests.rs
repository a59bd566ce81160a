use super::*;
use crate::frontmatter::Head;

fn reading(text: &str, directory: &str, profile: Profile) -> Reading {
    read(&Head::parse("SKILL.md", text.as_bytes()), directory, profile)
}

fn words(reading: &Reading) -> Vec<&'static str> {
    reading.diagnostics.iter().filter_map(|diagnostic| diagnostic.name).collect()
}

fn is_valid(reading: &Reading) -> bool {
    reading.skill.is_some() && !reading.diagnostics.iter().any(Diagnostic::is_error)
}

#[track_caller]
fn strict(fields: &str, valid: bool) -> Reading {
    let reading = reading(&format!("---\n{fields}\n---\n"), "tidy", Profile::Strict);
    assert_eq!(is_valid(&reading), valid, "{:#?}", reading.diagnostics);
    reading
}

/// C-2.2: all six fields are read back unchanged.
#[test]
fn fields_read_back_as_written() {
    let fields = "name: tidy\ndescription: true\nlicense: MIT\ncompatibility: git\nallowed-tools: Bash(git:*) Read\nmetadata:\n  version: 1.10\n  on: yes";
    let skill = strict(fields, true).skill.unwrap();
    assert_eq!(
        properties(&skill),
        json!({"name": "tidy", "description": "true", "license": "MIT", "compatibility": "git",
               "metadata": {"version": "1.10", "on": "yes"}, "allowed-tools": ["Bash(git:*)", "Read"]})
    );
}

/// C-2.9: each fault that the reference validator refuses has its word.
#[test]
fn strict_faults_have_their_words() {
    let good = "name: tidy\ndescription: d";
    for (fields, word) in [
        ("name: Tidy\ndescription: d", "SK_NAME_DIR"),
        ("description: d", "SK_NAME_FORMAT"),
        ("name: tidy", "SK_DESCRIPTION"),
        ("name: tidy\ndescription: \" \"", "SK_DESCRIPTION"),
        ("name: tidy\ndescription:", "SK_DESCRIPTION"),
        (&format!("{good}\nversion: 1"), "SK_UNKNOWN_FIELD"),
        (&format!("{good}\ncompatibility: \"\""), "SK_COMPATIBILITY"),
        (&format!("{good}\nname: tidy"), "SK_YAML"),
        (&format!("{good}\nlicense: &a MIT"), "SK_YAML"),
        (&format!("{good}\nlicense: !!str MIT"), "SK_YAML"),
        ("name: tidy\ndescription: Use when: x", "SK_YAML"),
        ("- tidy", "SK_YAML"),
        ("", "SK_YAML"),
    ] {
        let reading = strict(fields, false);
        assert!(words(&reading).contains(&word), "{fields}: {:?}", words(&reading));
    }
    for fields in ["metadata: [a]", "metadata:\n  a:\n    b: c", "metadata:\n  - a"] {
        strict(&format!("{good}\n{fields}"), false);
    }
}

/// C-2.2: lengths count characters, before trimming.
#[test]
fn lengths_are_bounded() {
    strict(&format!("name: tidy\ndescription: {}", "ä".repeat(1024)), true);
    strict(&format!("name: tidy\ndescription: \"{}     \"", "x".repeat(1020)), false);
    for (length, valid) in [(500, true), (501, false)] {
        strict(&format!("name: tidy\ndescription: d\ncompatibility: {}", "x".repeat(length)), valid);
    }
}

/// C-0.4: flow style is valid, with a warning.
#[test]
fn flow_style_is_a_warning() {
    assert_eq!(words(&strict("name: tidy\ndescription: d\nallowed-tools: [Read, Bash]", true)), ["SK_FLOW_STYLE"]);
}

/// C-2.4: the lenient profile loads every usable skill, and reports its faults.
#[test]
fn lenient_faults_are_warnings() {
    for (text, directory) in [
        ("---\nname: Tidy\ndescription: d\n---\n", "Tidy"),
        ("---\nname: right\ndescription: d\n---\n", "wrong"),
        ("---\ndescription: d\n---\n", "tidy"),
        ("---\nname: tidy\ndescription: d\nname: tidy\n---\n", "tidy"),
    ] {
        let reading = reading(text, directory, Profile::Lenient);
        assert!(is_valid(&reading) && !reading.diagnostics.is_empty(), "{text}: {:?}", reading.diagnostics);
    }
    assert!(reading("\u{feff}---\nname: tidy\ndescription: d\n---\n", "tidy", Profile::Lenient).diagnostics.is_empty());
    for text in ["---\nname: tidy\n---\n", "---\nname: [tidy\n---\n", "name: tidy\n"] {
        assert!(reading(text, "tidy", Profile::Lenient).skill.is_none(), "{text}");
    }
}

/// C-2.4: a value with a colon is recovered in full.
#[test]
fn unquoted_colons_are_recovered() {
    let text = "---\nname: tidy\ndescription: Use when: the user says: tidy # up\nversion: 1\n---\n";
    let reading = reading(text, "tidy", Profile::Lenient);
    let skill = reading.skill.unwrap();
    assert_eq!(skill.description, "Use when: the user says: tidy # up");
    assert_eq!(skill.extra["version"], "1");
    assert_eq!(reading.diagnostics[0].severity, crate::Severity::Warning);
}

/// C-2.5, C-3.1: the fields of Claude Code are read in every mode; booleans have many words.
#[test]
fn extensions_are_typed() {
    let text = "---\nname: tidy\ndescription: d\nargument-hint: [issue, branch]\narguments: issue branch\ndisable-model-invocation: Yes\nuser-invocable: 0\nallowed-tools: [\"Bash(git add *)\", Read]\npaths: src/**, docs/*.md\n---\n";
    let skill = reading(text, "tidy", Profile::Lenient).skill.unwrap();
    let extensions = &skill.extensions;
    assert_eq!(extensions.argument_hint.as_deref(), Some("[issue, branch]"));
    assert_eq!(extensions.arguments, ["issue", "branch"]);
    assert!(extensions.disable_model_invocation && !extensions.user_invocable);
    assert_eq!(extensions.paths, ["src/**", "docs/*.md"]);
    assert_eq!(skill.allowed_tools.as_deref(), Some(&["Bash(git add *)".to_owned(), "Read".to_owned()][..]));
    assert_eq!(properties(&skill)["disable-model-invocation"], true);
    assert!(skill.extra.is_empty());
}

/// C-2.4, X-3: a skill whose lists of tools cannot be read is not loaded, so that it never gets more than its author allows.
#[test]
fn unread_tools_keep_a_skill_out() {
    for key in ["allowed-tools", "disallowed-tools"] {
        for value in ["{Bash: x}", "[Read, {Bash: x}]", "[[Read]]"] {
            let text = format!("---\nname: tidy\ndescription: d\n{key}: {value}\n---\nTidy up.\n");
            let lenient = reading(&text, "tidy", Profile::Lenient);
            assert_eq!(lenient.skill, None, "{text}");
            let errors: Vec<_> = lenient.diagnostics.iter().filter(|fault| fault.is_error()).collect();
            let [fault] = errors.as_slice() else { panic!("{text}: {:?}", lenient.diagnostics) };
            assert_eq!(fault.path.as_deref(), Some(key));
            assert_eq!(fault.position().map(|at| at.0), Some(4), "{text}");
            assert!(fault.hint.is_some());
            assert!(!is_valid(&reading(&text, "tidy", Profile::Strict)));
            if key == "allowed-tools" {
                let followed = Instructions::parse(&crate::source::SourceFile::new("SKILL.md", text.as_str()));
                assert_eq!(followed.unwrap_err(), [(*fault).clone()], "{text}");
            }
        }
    }
}

/// C-2.4: both readers take a number as its text, which names no tool; nothing means no tool.
#[test]
fn both_readers_agree_on_scalars() {
    for (value, tools) in [("5", vec!["5"]), ("true", vec!["true"]), ("", vec![]), ("[Read, 5]", vec!["Read", "5"])] {
        let text = format!("---\nname: tidy\ndescription: d\nallowed-tools: {value}\n---\nTidy up.\n");
        let skill = reading(&text, "tidy", Profile::Lenient).skill.expect("a skill");
        let followed =
            Instructions::parse(&crate::source::SourceFile::new("SKILL.md", text.as_str())).expect("instructions");
        let patterns: Vec<String> = followed.allowed.iter().flatten().flat_map(|text| tool_list(text)).collect();
        assert_eq!(
            (skill.allowed_tools, patterns),
            (Some(tools.iter().map(|t| t.to_string()).collect()), tools.iter().map(|t| t.to_string()).collect()),
            "{value}"
        );
    }
}

/// C-3.1: an element of a list that is not text is reported at its place; the rest of the list is read.
#[test]
fn elements_that_are_not_text_are_reported() {
    for key in ["paths", "arguments"] {
        let text = format!("---\nname: tidy\ndescription: d\n{key}: [a, {{b: c}}]\n---\n");
        let found = reading(&text, "tidy", Profile::Lenient);
        assert_eq!(
            found.diagnostics.iter().map(|d| (d.path.as_deref(), d.is_error())).collect::<Vec<_>>(),
            [(Some(key), false)]
        );
        assert_eq!(found.skill.expect("a skill").extensions.given[key], json!(["a"]));
        assert!(!is_valid(&reading(&text, "tidy", Profile::Strict)));
    }
}
