use super::*;

fn values<'a>(arguments: Option<&'a str>, names: &'a [String]) -> Values<'a> {
    Values { arguments, names, skill_dir: "/s/x", project_dir: "/p", ..Values::default() }
}

fn text(body: &str, arguments: Option<&str>) -> String {
    let names = ["issue".to_owned(), "branch".to_owned()];
    let show = |piece| match piece {
        Piece::Text(text) => text,
        Piece::Command(line) => format!("<{line}>"),
    };
    render(body, &values(arguments, &names)).into_iter().map(show).collect()
}

/// C-3.3, SK-32: indices, the whole text and names are inserted; a missing argument stays as written, or is empty for a
/// name.
#[test]
fn arguments_are_put_in() {
    assert_eq!(text("$0 $1 $2 $ARGUMENTS", Some("\"a b\" c")), "a b c $2 \"a b\" c");
    assert_eq!(text("$ARGUMENTS[1]/$ARGUMENTS[7]", Some("a b")), "b/$ARGUMENTS[7]");
    assert_eq!(text("$issue/$branch|$issued $ARGUMENTSX", Some("7")), "7/|$issued $ARGUMENTSX");
    assert_eq!(text("$0.50, $5.00", Some("zero")), "zero.50, $5.00");
}

/// C-3.3: one backslash turns a placeholder into text; two are kept and do not escape it.
#[test]
fn backslashes_escape_in_pairs() {
    assert_eq!(text(r"\$1.00 \\$0 \\\$0 \$ARGUMENTS \$issue $0", Some("x")), r"$1.00 \\x \\$0 $ARGUMENTS $issue x");
    assert_eq!(
        text(r"\${CLAUDE_SKILL_DIR} {baseDir}/a ${CLAUDE_SESSION_ID} ${HOME}", None),
        r"\/s/x /s/x/a ${CLAUDE_SESSION_ID} ${HOME}"
    );
}

/// C-3.3, SK-33: inserted text is never scanned again.
#[test]
fn values_are_not_expanded_again() {
    assert_eq!(text("$0|", Some("$ARGUMENTS")), "$ARGUMENTS|");
    assert_eq!(text("say $ARGUMENTS", Some("!`id`")), "say !`id`");
}

/// C-3.3, C-0.4, SK-34: arguments without a placeholder are appended.
#[test]
fn arguments_without_a_place_are_appended() {
    assert_eq!(text("Do it.\n", Some("x y")), "Do it.\n\nARGUMENTS: x y");
    assert_eq!(text("Do $branch.\n", Some("x")), "Do .\n");
    assert_eq!(text("Do it.\n", Some("  ")), "Do it.\n");
    assert_eq!(text("!`run $0`\n", Some("x")), "<run 'x'>\n");
}

/// C-3.4, SK-28: a command begins a line or follows white space; a fence may hold one.
#[test]
fn commands_are_found_where_they_may_stand() {
    assert_eq!(
        text("!`echo hi` and !`echo there`\nKEY=!`x` `!`x` y\n", None),
        "<echo hi> and <echo there>\nKEY=!`x` `!`x` y\n"
    );
    assert_eq!(text("Add `!` before `:` and call `ensure!` now", None), "Add `!` before `:` and call `ensure!` now");
    assert_eq!(text("a\n```!\none\ntwo\n```\nb\n", None), "a\n<one\ntwo\n>\nb\n");
    assert_eq!(text("```!\nnever closed\n", None), "```!\nnever closed\n");
    assert_eq!(text("!`` !`a\nb`", None), "!`` !`a\nb`");
}

/// C-0.4: arguments in commands are words, whatever they contain.
#[test]
fn arguments_in_commands_are_quoted() {
    assert_eq!(text("!`grep $0 f`", Some("\"a'; rm -rf b\"")), r"<grep 'a'\''; rm -rf b' f>");
}

/// C-0.4: arguments inside of quotes and substitutions stay text, as a shell confirms.
#[test]
#[expect(clippy::disallowed_methods, reason = "a shell says what a command line means")]
fn arguments_in_quotes_stay_text() {
    let given = r#"x"; echo RUN; echo "$(echo RUN)'; echo RUN; ` "#.trim_end();
    for line in [
        r#"printf %s "$ARGUMENTS""#,
        r#"printf '%s' '$ARGUMENTS'"#,
        r#"printf '%s' "$(printf '%s' "$ARGUMENTS")""#,
        r#"printf '%s' `printf '%s' "$ARGUMENTS"`"#,
        r#"(printf '%s' $ARGUMENTS)"#,
        "cat <<END\n$ARGUMENTS\nEND",
        r#"printf '%s' "it's $ARGUMENTS""#,
        r#"printf '%s' \"$ARGUMENTS"#,
    ] {
        let body = format!("```!\n{line}\n```\n");
        let pieces = render(&body, &Values { arguments: Some(given), ..Values::default() });
        let Some(Piece::Command(command)) = pieces.first() else { panic!("{line}: {pieces:?}") };
        let ran = std::process::Command::new("sh").args(["-c", command]).output().expect("sh is there");
        let out = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && out.matches("RUN").count() == 3, "{line}: {out} {ran:?}");
        assert!(out.replace(' ', "").contains(&given.replace(' ', "")), "{line}: {out}");
    }
}

/// C-3.4, SK-29: status 1 of searches and comparisons is not a failure.
#[test]
fn searches_that_find_nothing_are_tolerated() {
    assert!(
        is_tolerated("grep x f", 1) && is_tolerated("cat f | /usr/bin/rg x", 1) && is_tolerated("git diff --quiet", 1)
    );
    assert!(!is_tolerated("grep x f", 2) && !is_tolerated("false", 1) && !is_tolerated("grep x f; false", 1));
}

/// C-3.1: the first paragraph serves as a missing description.
#[test]
fn the_first_paragraph_is_found_behind_headings() {
    assert_eq!(first_paragraph("\n# Title\n\nDo\nthis.\n\nThat.\n").as_deref(), Some("Do this."));
}
