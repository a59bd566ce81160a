//! Rules of 2.2 to 2.6: steps, sources of values, and questions.

use etude_learn::{Candidate, Trace};
use serde_json::{Value, json};

use crate::shop::{Run, Shop, User, binding, learned, one, returning};

/// L-9: a family needs three runs with different requests; two runs, or three with the same request, are too few.
#[test]
fn three_requests_are_needed() {
    let outcome = |runs: &[Run]| learned(runs, &Shop::default()).families[0].outcome.clone();
    assert_eq!(outcome(&[returning(0), returning(1), returning(2)]), Ok("return-items".to_owned()));
    assert_eq!(outcome(&[returning(0), returning(1)]), Err("too_few_requests"));
    let same = || returning(0).with("run", json!("other"));
    assert_eq!(outcome(&[returning(0), same(), same()]), Err("too_few_requests"));
}

/// L-13, L-14, L-15, L-19: words first, with the other source as alternative; results instead of constants; a check stays.
#[test]
fn values_are_bound_to_their_sources() {
    let candidate = one(&[returning(0), returning(1), returning(2)]);
    assert_eq!(candidate.reads, ["get_order", "get_user"]);
    assert_eq!(candidate.parameters.len(), 2);
    let row = candidate.bindings.iter().rfind(|row| row.argument == "/order_id").expect("a row");
    assert_eq!((row.source, row.why, row.expression.as_str()), ("input", "words_first", "{{input.order_id}}"));
    assert_eq!(row.alternatives, ["{{get_order.output.order_id}}"]);
    let read = candidate.bindings.iter().find(|row| row.step == "get_order").expect("a row");
    assert_eq!((read.argument.as_str(), &read.alternatives[..]), ("/order_id", &[][..]), "not from its own result");
    assert_eq!(binding(&candidate, "/item_ids").0, "computed");
    assert!(candidate.holes.is_empty() && candidate.not_covered.is_empty(), "{:?}", candidate.holes);
    assert_eq!(candidate.leave_one_out.agreed, 3);
}

/// L-14: a value that was the same in all runs but is in the request is a parameter; otherwise it is a constant.
#[test]
fn a_value_in_the_request_is_a_parameter() {
    let run = |n: usize, words: &str| {
        let user = User(n);
        Run::new(n, &format!("I am {}. {words} {}", user.email(), user.order(0))).user(&user, 2).call(
            "tag_order",
            json!({"order_id": user.order(0), "tag": "gold"}),
            json!("ok"),
        )
    };
    let said: Vec<Run> = (0..4).map(|n| run(n, "Tag as gold")).collect();
    assert_eq!(binding(&one(&said), "/tag").0, "input");
    let unsaid: Vec<Run> = (0..4).map(|n| run(n, "Tag")).collect();
    assert_eq!(binding(&one(&unsaid), "/tag"), ("constant".into(), "gold".into(), "only_alternative".into()));
}

/// L-21, L-24: a value that most users said is a parameter, unless it is one of a fixed set: then it is asked for if the user
/// did not say it.
#[test]
fn one_of_a_fixed_set_is_asked() {
    let run = |n: usize, tag: &str, is_said: bool| {
        let user = User(n);
        let words = if is_said { format!(" as {tag}") } else { String::new() };
        Run::new(n, &format!("I am {}. Tag {}{words}", user.email(), user.order(0))).user(&user, 2).call(
            "tag_order",
            json!({"order_id": user.order(0), "tag": tag}),
            json!("ok"),
        )
    };
    let fixed: Vec<Run> = (0..7).map(|n| run(n, ["gold", "blue"][n % 2], n < 5)).collect();
    let candidate = one(&fixed);
    assert_eq!((&candidate.holes[0].set, candidate.covers.len()), (&json!(["blue", "gold"]), 7));
    let free: Vec<Run> = (0..7).map(|n| run(n, &format!("label{n}99"), n < 5)).collect();
    let candidate = one(&free);
    assert_eq!((binding(&candidate, "/tag").0.as_str(), candidate.covers.len()), ("input", 5));
}

fn paying(n: usize, cards: usize, card: usize, words: &str) -> Run {
    let user = User(n);
    Run::new(n, &format!("I am {}. Pay {} {words}", user.email(), user.order(0)))
        .user(&user, cards)
        .order(&user, 0)
        .call("pay_order", json!({"order_id": user.order(0), "card_id": user.card(card)}), json!("ok"))
}

/// L-23, L-21: one of several cards is asked for, with the list as closed set; the only card is not.
#[test]
fn a_choice_is_asked_and_the_only_alternative_is_not() {
    let several = one(&[paying(0, 2, 0, ""), paying(1, 2, 0, ""), paying(2, 2, 0, "")]);
    assert_eq!(several.questions, ["card_id"]);
    assert_eq!(several.holes[0].set, json!("{{get_user.output.cards}}"));
    assert_eq!((several.holes[0].by.as_deref(), several.holes[0].why), (Some("card_id"), "choice"));
    let only = one(&[paying(0, 1, 0, ""), paying(1, 1, 0, ""), paying(2, 1, 0, "")]);
    assert_eq!((only.questions.len(), only.holes.len()), (0, 0));
}

/// L-24: a card that one user named is never filled in for another, even if there is only one.
#[test]
fn what_one_user_said_is_asked_of_all() {
    let said = format!("with {}", User(0).card(0));
    let candidate = one(&[paying(0, 1, 0, &said), paying(1, 1, 0, ""), paying(2, 1, 0, ""), paying(3, 1, 0, "")]);
    assert_eq!(candidate.questions, ["card_id"]);
    assert_eq!(candidate.holes[0].why, "default_not_universal");
    assert!(candidate.files["pipeline.yaml"].contains("always: true"));
}

/// L-24: a field with the argument's own name is a default as well.
#[test]
fn a_field_of_the_same_name_is_no_default_for_what_one_user_said() {
    let run = |n: usize, words: &str| {
        let user = User(n);
        let mut order = user.order_document(0, "delivered");
        order["card_id"] = json!(user.card(0));
        Run::new(n, &format!("I am {}. Pay {} {words}", user.email(), user.order(0)))
            .call("get_order", json!({"order_id": user.order(0)}), order)
            .call("pay_order", json!({"order_id": user.order(0), "card_id": user.card(0)}), json!("ok"))
    };
    let said = format!("with {}", User(0).card(0));
    let candidate = one(&[run(0, &said), run(1, ""), run(2, ""), run(3, "")]);
    assert_eq!(binding(&candidate, "/card_id").0, "question");
    let unsaid = one(&[run(0, ""), run(1, ""), run(2, ""), run(3, "")]);
    assert_eq!(binding(&unsaid, "/card_id").0, "result");
}

/// L-14, L-24: a value too short to prove anything cannot be a constant if the request has it; it is asked.
#[test]
fn a_short_value_in_the_request_is_asked() {
    let run = |n: usize, words: &str| {
        let user = User(n);
        let arguments = json!({"order_id": user.order(0), "quantity": 2});
        Run::new(n, &format!("I am {}. Tag {words} of {}", user.email(), user.order(0))).user(&user, 2).call(
            "tag_order",
            arguments,
            json!("ok"),
        )
    };
    let said: Vec<Run> = (0..3).map(|n| run(n, "2 boxes")).collect();
    let candidate = one(&said);
    assert_eq!(binding(&candidate, "/quantity").0, "question");
    assert!(candidate.files["pipeline.yaml"].contains("always: true"), "also if it is the only value that was seen");
    let unsaid: Vec<Run> = (0..3).map(|n| run(n, "boxes")).collect();
    assert_eq!(binding(&one(&unsaid), "/quantity").0, "constant");
}

/// L-23: a short value that is one of several is not derived.
#[test]
fn a_short_value_that_is_one_of_several_is_not_derived() {
    let run = |n: usize, slots: &[usize]| {
        let user = User(n);
        let mut document = user.document(2);
        document["default_slot"] = json!(slots[0]);
        document["slots"] = slots.iter().map(|slot| json!({"slot": slot})).collect();
        let arguments = json!({"order_id": user.order(0), "slot": slots[0]});
        Run::new(n, &format!("I am {}. Tag {}", user.email(), user.order(0)))
            .call("get_user", json!({"email": user.email()}), document)
            .call("tag_order", arguments, json!("ok"))
    };
    let several = one(&[run(0, &[7, 1]), run(1, &[4, 2]), run(2, &[9, 3])]);
    assert_eq!(binding(&several, "/slot").0, "question");
    let single = one(&[run(0, &[7]), run(1, &[4]), run(2, &[9])]);
    assert_eq!(binding(&single, "/slot").1, "{{get_user.output.default_slot}}");
}

/// L-22: a value that nothing determines is an open hole with `set: null`.
#[test]
fn what_nothing_determines_is_an_open_hole() {
    let runs: Vec<Run> = (0..4)
        .map(|n| {
            let user = User(n);
            Run::new(n, &format!("I am {}. Tag {}", user.email(), user.order(0))).user(&user, 2).call(
                "tag_order",
                json!({"order_id": user.order(0), "tag": format!("made up {}", n * 7919)}),
                json!("ok"),
            )
        })
        .collect();
    let candidate = one(&runs);
    assert_eq!((&candidate.holes[0].set, candidate.holes[0].argument.as_str()), (&json!(null), "/tag"));
    assert_eq!(candidate.covers.len(), 0);
    let difference = &candidate.not_covered[0]["difference"];
    assert_eq!((&difference["got"], &difference["argument"]), (&json!("open_hole"), &json!("/tag")));
    let expected = difference["expected"].as_str();
    assert!(expected.is_some_and(|tag| tag.starts_with("made up ")), "the value of the argument: {difference}");
}

/// L-27: the first difference is the argument that differs, with its value in the run: for a choice that no list has, for a
/// read that the run did not make, and for a write with another value.
#[test]
fn the_first_difference_names_the_argument_that_differs() {
    let difference = |odd: &dyn Fn(&User) -> (Run, Value)| {
        let usual = |n: usize| {
            let user = User(n);
            let asked = Run::new(n, &format!("I am {}. Pay {} as usual", user.email(), user.order(0)));
            asked.user(&user, 2).call(
                "pay_order",
                json!({"card_id": user.card(n % 2), "order_id": user.order(0)}),
                json!("ok"),
            )
        };
        let (odd, expected) = odd(&User(11));
        let mut runs: Vec<Run> = (0..11).map(usual).collect();
        runs.push(odd);
        let candidate = one(&runs);
        assert_eq!(candidate.not_covered.len(), 1, "{:?}", candidate.not_covered);
        let difference = candidate.not_covered[0]["difference"].clone();
        assert_eq!(difference["expected"], expected, "{difference}");
        (difference["argument"].clone(), difference["got"].clone())
    };
    let pay = |user: &User, card: String| {
        let asked = Run::new(11, &format!("I am {}. Pay {} as usual", user.email(), user.order(0)));
        asked.user(user, 2).call("pay_order", json!({"card_id": card, "order_id": user.order(0)}), json!("ok"))
    };
    let none = difference(&|user| (pay(user, user.card(7)), json!(user.card(7))));
    assert_eq!(none, (json!("/card_id"), json!("choose_none")));
}

/// L-7: members of another type make a trace malformed; arguments that were not JSON are a text, as in an export.
#[test]
fn members_of_another_type_are_malformed() {
    let call = |arguments: Value| json!({"tool": "look", "arguments": arguments});
    let read = |judged: Value, event: Value| {
        let document = json!({"trace": 1, "run": "r", "request": "q", "judged": judged, "events": [event]});
        Trace::from_json(&document).map(|_| ()).map_err(|why| why.to_string())
    };
    let is_malformed = |judged: Value, event: Value, member: &str| {
        assert!(read(judged, event).is_err_and(|why| why.contains(member)), "{member}");
    };
    assert_eq!(read(json!("good"), call(json!({}))), Ok(()));
    assert_eq!(read(json!(null), call(json!("{\"a\":"))), Ok(()));
    is_malformed(json!("so"), call(json!({})), "judged");
    is_malformed(json!(true), call(json!({})), "judged");
    is_malformed(json!("good"), call(json!([])), "arguments");
    is_malformed(json!("good"), json!({"said": "user"}), "text");
}

/// L-16: calls over a list of an earlier result are one `for_each`.
#[test]
fn calls_over_a_list_are_one_step() {
    let runs: Vec<Run> = (0..4)
        .map(|n| {
            let user = User(n);
            let run = Run::new(n, &format!("I am {}. Cancel the newest", user.email())).user(&user, 2);
            run.order(&user, 0).order(&user, 1).call("cancel_order", json!({"order_id": user.order(1)}), json!("ok"))
        })
        .collect();
    let candidate = one(&runs);
    let yaml = &candidate.files["pipeline.yaml"];
    assert!(yaml.contains("for_each: \"{{get_user.output.orders}}\""), "{yaml}");
    assert_eq!(candidate.questions, ["order_id"], "which of the two is a choice");
}

/// L-16: writes over values that the user said are one `for_each` over a list parameter, also if a user said a single value.
#[test]
fn writes_over_what_the_user_said_take_a_list() {
    let runs: Vec<Run> = (0..4)
        .map(|n| {
            let user = User(n);
            let orders: Vec<String> = (0..=n % 2).map(|k| user.order(k)).collect();
            let run = Run::new(n, &format!("Cancel {}, please", orders.join(" and ")));
            orders.iter().fold(run, |run, order| run.call("cancel_order", json!({"order_id": order}), json!("ok")))
        })
        .collect();
    let candidate = one(&runs);
    let yaml = &candidate.files["pipeline.yaml"];
    assert!(yaml.contains("for_each: \"{{input.order_id}}\""), "{yaml}");
    let declared = &candidate.definition["input"]["order_id"];
    assert_eq!((&declared["type"], &declared["items"]), (&json!("array"), &json!({"type": "string"})), "{yaml}");
    assert_eq!(candidate.covers.len(), 4);
}

/// L-18, L-19: a read that feeds nothing is left out; two tools that do the same are one role, selected by the parameter that
/// is present.
#[test]
fn substitutes_are_one_role_and_exploration_is_left_out() {
    let runs: Vec<Run> = (0..6)
        .map(|n| {
            let user = User(n);
            let (who, tool, argument) = if n % 2 == 0 {
                (user.email(), "get_user", json!({"email": user.email()}))
            } else {
                (user.name(), "find_user", json!({"name": user.name()}))
            };
            let mut run = Run::new(n, &format!("I am {who}. Return {}", user.order(0)));
            if n == 3 {
                run = run.call("look", json!({}), json!({"open": true}));
            }
            run.call(tool, argument, user.document(2)).order(&user, 0).call(
                "return_items",
                json!({"order_id": user.order(0), "item_ids": user.items(0)}),
                json!("ok"),
            )
        })
        .collect();
    let candidate = one(&runs);
    assert_eq!(candidate.reads, ["find_user", "get_order", "get_user"]);
    assert_eq!(candidate.parameters.len(), 3, "{:?}", candidate.parameters);
    assert_eq!(candidate.covers.len(), 6);
    let steps = candidate.definition["steps"].as_array().expect("steps");
    let not_made =
        json!({"value": format!("{{{{{}.output}}}}", steps[0]["name"].as_str().expect("a name")), "equals": null});
    assert_eq!(steps[1]["when"], not_made, "the second is made if the first is not");
}

/// L-19: a check that all runs of a family made in one way also gets the ways of other families, if their results are used
/// alike.
#[test]
fn a_check_has_the_ways_of_other_families() {
    let by_mail = |n: usize| (format!("I am {}.", User(n).email()), "get_user", json!({"email": User(n).email()}));
    let by_name = |n: usize| (format!("I am {}.", User(n).name()), "find_user", json!({"name": User(n).name()}));
    let cancelling = |n: usize, (who, tool, arguments): (String, &str, serde_json::Value)| {
        let user = User(n);
        let write = json!({"order_id": user.order(0), "user_id": user.document(2)["user_id"]});
        let run = Run::new(n, &format!("{who} Cancel {}", user.order(0))).call(tool, arguments, user.document(2));
        run.call("cancel_order", write, json!("ok"))
    };
    let learned_with = |others: Vec<Run>| {
        let runs: Vec<Run> = (0..4).map(returning).chain(others).collect();
        let found = learned(&runs, &Shop::default());
        found.candidates.into_iter().find(|one| one.name == "return-items").expect("a candidate")
    };
    let mails = || (10..13).map(|n| cancelling(n, by_mail(n)));
    let both = learned_with(mails().chain((20..23).map(|n| cancelling(n, by_name(n)))).collect());
    assert_eq!(both.reads, ["find_user", "get_order", "get_user"]);
    assert_eq!((both.parameters.len(), both.covers.len()), (3, 4), "{:?}", both.parameters);
    let two = learned_with(mails().chain((20..22).map(|n| cancelling(n, by_name(n)))).collect());
    assert_eq!(two.reads, ["get_order", "get_user"], "two requests prove nothing");
}

/// L-25: fields of an address come from one record.
#[test]
fn fields_of_a_record_are_chosen_together() {
    let runs: Vec<Run> = (0..6)
        .map(|n| {
            let user = User(n);
            let mut arguments = user.address(if n % 2 == 0 { "home" } else { "work" });
            arguments["user_id"] = json!(format!("u_{}", n + 10));
            let run = Run::new(n, &format!("I am {}. Send to the other place", user.email())).user(&user, 2);
            run.call("set_address", arguments, json!("ok"))
        })
        .collect();
    let candidate = one(&runs);
    assert_eq!(candidate.questions.len(), 1, "{:?}", candidate.questions);
    let of = |argument: &str| binding(&candidate, argument).1;
    assert_eq!(
        [of("/street"), of("/city"), of("/code")],
        ["street", "city", "code"].map(|field| format!("{{{{street.output.{field}}}}}"))
    );
}

/// L-26: a branch needs two runs on each side and a condition that distinguishes them.
#[test]
fn a_branch_needs_two_runs_on_each_side() {
    let run = |n: usize, status: &str, tag: &str| {
        let user = User(n);
        let run = Run::new(n, &format!("I am {}. Tag {}", user.email(), user.order(0))).user(&user, 2);
        run.call("get_order", json!({"order_id": user.order(0)}), user.order_document(0, status)).call(
            "tag_order",
            json!({"order_id": user.order(0), "tag": tag}),
            json!("ok"),
        )
    };
    let both: Vec<Run> =
        (0..8).map(|n| if n % 2 == 0 { run(n, "pending", "late") } else { run(n, "delivered", "done") }).collect();
    let candidate = one(&both);
    assert_eq!(binding(&candidate, "/tag").0, "computed");
    assert_eq!(candidate.covers.len(), 8);
    let odd: Vec<Run> =
        (0..4).map(|n| if n == 0 { run(n, "pending", "late") } else { run(n, "delivered", "done") }).collect();
    assert_ne!(binding(&one(&odd), "/tag").0, "computed");
}

/// 2.6: a condition that held in all runs and is violated by a failed run is a guard; one that holds everywhere is not.
#[test]
fn guards_are_conditions_that_are_violated_elsewhere() {
    let failed = User(9);
    let late = Run::new(9, &format!("I am {}. Return {}", failed.email(), failed.order(0)))
        .user(&failed, 2)
        .call("get_order", json!({"order_id": failed.order(0)}), failed.order_document(0, "pending"))
        .with("status", json!("failed"));
    let candidate = one(&[returning(0), returning(1), returning(2), late]);
    let guards: Vec<_> = candidate.guards.iter().map(|guard| (guard.condition.clone(), guard.violated)).collect();
    assert_eq!(guards, [(json!({"value": "{{get_order.output.status}}", "equals": "delivered"}), 1)]);
    assert!(one(&[returning(0), returning(1), returning(2)]).guards.is_empty());
}

/// L-70, 2.6: a value that a write copies from a result must have its type, unless the tool's schema types the argument.
#[test]
fn a_value_of_a_result_keeps_its_type() {
    let run = |n: usize| {
        let user = User(n);
        let mut document = user.order_document(0, "delivered");
        document["total"] = json!(100 + n);
        document["gift"] = json!(n.is_multiple_of(2));
        let arguments = json!({"order_id": user.order(0), "tag": document["user_id"], "sum": document["total"], "gift": document["gift"]});
        Run::new(n, &format!("Tag {}", user.order(0)))
            .call("get_order", json!({"order_id": user.order(0)}), document)
            .call("tag_order", arguments, json!("ok"))
    };
    let runs: Vec<Run> = (0..4).map(run).collect();
    let require = |shop: &Shop| {
        let candidate = learned(&runs, shop).candidates.remove(0);
        let steps = candidate.definition["steps"].as_array().cloned().unwrap_or_default();
        steps.last().map(|step| step["require"].clone()).unwrap_or_default()
    };
    let is = |field: &str| format!("{{{{get_order.output.{field}}}}}");
    let allowed = json!({"value": "{{allowed.output.allowed}}", "equals": "yes"});
    let text = json!({"value": is("user_id"), "matches": "^"});
    let number = json!({"any": [{"value": is("total"), "gte": 0}, {"value": is("total"), "lt": 0}]});
    let truth = json!({"value": is("gift"), "in": [true, false]});
    assert_eq!(require(&Shop::default()), json!([text, number, truth, allowed]));
    let schema = json!({"type": "object", "properties": {"tag": {"type": "string"}, "sum": {}, "gift": {"enum": [true, false]}}});
    assert_eq!(require(&Shop { schema, ..Shop::default() }), json!([number, allowed]));
}

/// L-30: a text of a result in a guard is not a template.
#[test]
fn a_text_in_a_guard_is_no_template() {
    let run = |n: usize, status: &str| {
        let user = User(n);
        Run::new(n, &format!("I am {}. Return {}", user.email(), user.order(0))).user(&user, 2).call(
            "get_order",
            json!({"order_id": user.order(0)}),
            user.order_document(0, status),
        )
    };
    let good = |n: usize| {
        let arguments = json!({"order_id": User(n).order(0), "item_ids": User(n).items(0)});
        run(n, "{{input.order_id}}").call("return_items", arguments, json!("ok"))
    };
    let candidate = one(&[good(0), good(1), good(2), run(9, "pending").with("status", json!("failed"))]);
    let conditions: Vec<_> = candidate.guards.iter().map(|guard| guard.condition.clone()).collect();
    assert_eq!(conditions, [json!({"value": "{{get_order.output.status}}", "equals": "\\{{input.order_id}}"})]);
    assert_eq!(candidate.covers.len(), 3);
}

/// L-31: an excluded tool is in no candidate, and its family is listed with it.
#[test]
fn excluded_tools_are_not_learned() {
    let shop = Shop { exclude: vec!["get_user"], ..Shop::default() };
    let found = learned(&[returning(0), returning(1), returning(2)], &shop);
    assert_eq!(
        (&found.families[0].outcome, &found.families[0].tools),
        (&Err("excluded"), &vec!["get_user".to_owned()])
    );
}

fn running(n: usize, request: &str, command: &str) -> Run {
    let arguments = json!({"command": command, "description": format!("call {n}")});
    Run::new(n, request).call("Bash", arguments, json!("ok"))
}

/// L-33: a command line that differs in anything but whole words with an origin is not learned; one that is the same is a constant.
#[test]
fn nothing_is_put_into_a_command_line() {
    let outcome = |of: &dyn Fn(usize) -> (String, String)| {
        let runs: Vec<Run> = (0..3)
            .map(|n| {
                let (request, command) = of(n);
                running(n, &request, &command)
            })
            .collect();
        learned(&runs, &Shop::default()).families[0].outcome.clone()
    };
    let of_tag = |n: usize, command: String| (format!("Please run it for tag{n}00"), command);
    let cases: [&dyn Fn(usize) -> (String, String); 8] = [
        &|n| of_tag(n, format!("make --tag=tag{n}00")),
        &|n| of_tag(n, format!("tag{n}00 all")),
        &|n| of_tag(n, format!("make tag{n}00 > log")),
        &|n| of_tag(n, format!("make tag{n}00{}", " all".repeat(n))),
        &|n| of_tag(n, format!("make{}tag{n}00", " ".repeat(n + 1))),
        &|n| of_tag(n, format!("sh tag{n}00")),
        &|n| of_tag(n, format!("make other{n}00")),
        &|n| (format!("Please run it for -tag{n}00"), format!("make -tag{n}00")),
    ];
    for (n, case) in cases.into_iter().enumerate() {
        assert_eq!(outcome(case), Err("no_program"), "{n}");
    }
    let same: Vec<Run> = (0..3).map(|n| running(n, &format!("Run it for {n}00: make all"), "make all")).collect();
    assert_eq!(binding(&one(&same), "/command").0, "constant");
    assert!(!one(&same).files["pipeline.yaml"].contains("description: call"));
}

/// L-33: words that differ and come from the user or from a result are arguments beside the line. They must have the form of
/// the words in the runs.
#[test]
fn words_of_a_command_line_are_arguments_beside_it() {
    let runs: Vec<Run> = (0..3)
        .map(|n| {
            let user = User(n);
            let command = format!("git tag {} -m {}", user.order(0), user.card(0));
            Run::new(n, &format!("I am {}. Tag {}", user.email(), user.order(0))).user(&user, 1).call(
                "Bash",
                json!({"command": command}),
                json!("ok"),
            )
        })
        .collect();
    let candidate = one(&runs);
    assert_eq!(candidate.parameters, ["email", "argument_1"]);
    assert_eq!(binding(&candidate, "/argument_1").1, "{{input.argument_1}}");
    assert_eq!(binding(&candidate, "/argument_2").0, "element");
    let write = candidate.definition["steps"].as_array().and_then(|steps| steps.last()).expect("a write");
    assert_eq!(write["args"]["command"], "git tag \"$1\" -m \"$2\"");
    assert_eq!(write["args"]["argument_1"], "{{input.argument_1}}");
    let form = write["require"].as_array().into_iter().flatten().find(|one| one["value"] == "{{input.argument_1}}");
    assert_eq!(form.expect("a form")["matches"], r"\A[\p{Alphabetic}\p{N}_](?:\.?[\p{Alphabetic}\p{N}_-])*\.?\z");
    assert_eq!(
        candidate.definition["input"]["argument_1"]["description"],
        "The word `\"$1\"` of the command line: git tag \"$1\" -m \"$2\""
    );
    assert_eq!(candidate.covers.len(), 3);
}

/// L-6, L-8, 2.1: runs that failed, were denied or judged bad do not count.
#[test]
fn runs_that_did_not_go_well_do_not_count() {
    let denied = returning(5)
        .with("run", json!("a"))
        .with("events", json!([{"tool": "look", "arguments": {}, "approval": "denied"}]));
    let runs = [returning(0), returning(1), returning(2).with("judged", json!("bad")), denied];
    let found = learned(&runs, &Shop::default());
    let reasons: Vec<(&str, &str)> = found.unusable.iter().map(|one| (one.run.as_str(), one.reason)).collect();
    assert_eq!((found.usable, reasons), (2, vec![("a", "denied"), ("run2", "judged_bad")]));
}

/// L-2, L-14: in a request without blanks, the values beside other letters are the words of the user.
#[test]
fn words_of_scripts_without_blanks_are_parameters() {
    let run = |n: usize| {
        let user = User(n);
        let request = format!("注文{}を全部返品したい。メールは{}です。", user.order(0), user.email());
        returning(n).with("request", json!(request))
    };
    let candidate = one(&[run(0), run(1), run(2)]);
    assert_eq!((candidate.parameters.len(), candidate.not_covered.len()), (2, 0));
    assert_eq!(binding(&candidate, "/order_id").0, "input");
    let definition = &candidate.files["pipeline.yaml"];
    assert!(definition.contains("注文{order_id}を全部返品したい。メールは{email}です。"), "{definition}");
}

/// 2.6, 2.8 (d): a run that read a list and wrote nothing gives a guard on the element that the write names, also if nothing
/// but the user's words shows which element that run was about.
#[test]
fn a_run_that_declined_guards_the_elements_of_a_list() {
    let orders = |user: &User, states: [&str; 2]| {
        let of = |k: usize| json!({"order_id": user.order(k), "state": states[k], "carrier": format!("carrier{k}")});
        json!({"orders": [of(0), of(1)]})
    };
    let run = |n: usize, states: [&str; 2], words: &str| {
        let user = User(n);
        Run::new(n, &format!("I am {}. Return the {words}", user.email())).call(
            "look",
            json!({"email": user.email()}),
            orders(&user, states),
        )
    };
    let returned = |n: usize, states: [&str; 2], k: usize| {
        run(n, states, "lamp").call("return_items", json!({"order_id": User(n).order(k)}), json!("ok"))
    };
    let wrote = || {
        let new = |n: usize| returned(n, ["delivered", "pending"], 0);
        let last = returned(4, ["pending", "delivered"], 1);
        vec![new(1), new(2), new(3), last]
    };
    let learned_with = |declined: Run| {
        let mut runs = wrote();
        runs.push(declined);
        one(&runs)
    };
    let states = |candidate: &Candidate| -> Vec<(Value, usize)> {
        candidate.guards.iter().map(|guard| (guard.condition["equals"].clone(), guard.violated)).collect()
    };
    let declined = |request: &str| {
        let request = format!("I am {}. Return {request}", User(5).email());
        run(5, ["pending", "delivered"], "lamp").with("request", json!(request))
    };
    let candidate = learned_with(declined("the lamp"));
    assert_eq!(states(&candidate), [(json!("delivered"), 1)]);
    assert!(candidate.files["pipeline.yaml"].contains("equals: delivered"));
    assert_eq!(states(&learned_with(declined(&User(5).order(0)))), [(json!("delivered"), 1)]);
    assert_eq!(states(&learned_with(declined(&User(5).order(1)))), [], "the run is about an element like the others");
    let said = declined("the lamp").with("answer", json!(format!("{} is not delivered", User(5).order(0))));
    assert_eq!(states(&learned_with(said)), [(json!("delivered"), 1)], "the field itself names no element");
    assert_eq!(states(&one(&wrote())), [], "no other run violates a condition");
    let mut reversed = wrote();
    reversed.insert(0, declined("the lamp"));
    reversed.reverse();
    assert_eq!(one(&reversed).files, candidate.files);
}
