//! Recorded responses.

use std::path::Path;

use etude_core::model::{CallFailure, CallFailureKind, Message, ModelResponse, Request, Stop, Tier};
use etude_models::{ModelId, Models, ProviderKind, ProviderSettings, Settings};
use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::setup::{KEY, ask, ask_for, provider, response, settings};

fn recorded(path: &Path, record_from: Option<&str>) -> ProviderSettings {
    let mut provider = ProviderSettings::new("tape", ProviderKind::Recorded);
    provider.path = Some(path.to_owned());
    provider.record_from = record_from.and_then(ModelId::parse);
    provider
}

fn make(providers: Vec<ProviderSettings>) -> Models {
    let only = ModelId { provider: "tape".to_owned(), model: "m".to_owned() };
    let mapping = Tier::ALL.map(|tier| (tier, vec![only.clone()])).into();
    Models::new(Settings { mapping, ..settings(providers) }).expect("the settings hold")
}

fn write(dir: &Path, name: &str, request: Value, rest: Value) {
    let mut recording = json!({ "format": "etude-recording/1", "request": request });
    recording.as_object_mut().expect("an object").extend(rest.as_object().expect("an object").clone());
    std::fs::write(dir.join(name), recording.to_string()).expect("it is writable");
}

async fn replay(dir: &Path, request: &Request) -> Result<ModelResponse, CallFailure> {
    make(vec![recorded(dir, None)]).call(request).await
}

/// Recording: concurrent calls write into one file, and each recording is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn recordings_of_calls_at_once_are_all_kept() {
    let kind = ProviderKind::Anthropic;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tape.json");
    let server = Server::new([Reply::ok(response(kind, "x"))]);
    let models = std::sync::Arc::new(make(vec![recorded(&path, Some("p/real")), provider(kind, &server.url())]));
    let calls: Vec<_> = (0..40)
        .map(|at| {
            let models = std::sync::Arc::clone(&models);
            tokio::spawn(async move { models.call(&ask(&format!("question {at}"))).await })
        })
        .collect();
    for call in calls {
        call.await.expect("it does not panic").expect("an answer");
    }
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect("it is there")).expect("JSON");
    assert_eq!(kept["recordings"].as_array().map(Vec::len), Some(40));
}

#[tokio::test]
async fn a_recording_matches_the_request_that_it_was_made_of() {
    let dir = tempfile::tempdir().expect("a directory");
    let request = json!({
        "tier": "lite", "system": ["be", "brief"],
        "messages": [{ "text": "hi" }, { "role": "assistant", "text": "?" }, { "role": "user", "text": "yes" }],
        "schema": { "b": 1, "a": 2 },
    });
    let said = json!({ "json": { "n": 1 }, "usage": { "input_tokens": 5, "cost_usd": 0.25 } });
    write(dir.path(), "one.json", request, json!({ "answer": said }));
    let asked = Request {
        tier: Tier::Lite,
        system: Some("be\nbrief".into()),
        messages: vec![Message::user("hi"), Message::assistant("?"), Message::user("yes")],
        cache_prompt: true,
        ..ask_for(json!({ "a": 2, "b": 1 }))
    };
    let response = replay(dir.path(), &asked).await.expect("it is recorded");
    assert_eq!((response.text.as_str(), response.stop, response.model.as_str()), ("{\"n\":1}", Stop::End, "tape/m"));
    assert_eq!((response.usage.input_tokens, response.usage.cost_usd), (5, Some(0.25)));
}

/// A key in a response is neither recorded nor returned from an existing recording.
#[tokio::test]
async fn recordings_hold_and_give_no_keys() {
    let dir = tempfile::tempdir().expect("a directory");
    let kind = ProviderKind::OpenAiCompatible;
    let server = Server::new([Reply::ok(response(kind, &format!("key is {KEY}")))]);
    let both = |from| vec![recorded(dir.path(), from), provider(kind, &server.url())];
    let fresh = make(both(Some("p/m"))).call(&ask("hi")).await.expect("an answer");
    let files: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").flatten().collect();
    let [file] = &files[..] else { panic!("one recording") };
    let written = std::fs::read_to_string(file.path()).expect("it is readable");
    assert!(written.contains("key is ***") && !written.contains(KEY), "{written}");
    std::fs::write(file.path(), written.replace("***", KEY)).expect("it is writable");
    let replayed = make(both(None)).call(&ask("hi")).await.expect("it is recorded");
    assert_eq!((fresh.text.as_str(), replayed.text.as_str()), ("key is ***", "key is ***"));
}

#[tokio::test]
async fn a_miss_names_the_first_difference_to_the_nearest_recording() {
    let dir = tempfile::tempdir().expect("a directory");
    let long = "x".repeat(120);
    let then = format!("{long} recorded text");
    let say = json!({ "answer": { "text": "ok" } });
    write(
        dir.path(),
        "far.json",
        json!({ "tier": "lite", "system": "s", "messages": [{ "text": "else" }] }),
        say.clone(),
    );
    write(dir.path(), "near.json", json!({ "messages": [{ "text": then }] }), say);
    let failure = replay(dir.path(), &ask(&format!("{long} asked text"))).await.expect_err("it is not recorded");
    assert_eq!(failure.kind, CallFailureKind::NotRecorded);
    let expected = "the closest is `near.json`: messages[0].text differs at character 121: \
                    recorded \"…xxxxxxxxxxxxxxxxxxx recorded text\", requested \"…xxxxxxxxxxxxxxxxxxx asked text\"";
    assert!(failure.message.ends_with(expected), "{}", failure.message);

    let warmer = Request { temperature: Some(0.5), ..ask(&then) };
    let failure = replay(dir.path(), &warmer).await.expect_err("it is not recorded");
    let expected = "`near.json`: temperature is missing in the recording: requested \"0.5\"";
    assert!(failure.message.ends_with(expected), "{}", failure.message);
}

#[tokio::test]
async fn a_place_without_recordings_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let failure = replay(&dir.path().join("none"), &ask("hi")).await.expect_err("nothing is recorded");
    assert_eq!(failure.kind, CallFailureKind::NotRecorded);
    assert!(failure.message.ends_with("matches: it has no recordings"), "{}", failure.message);
}

#[tokio::test]
async fn several_responses_are_given_in_order_and_the_last_one_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let responses = json!([{ "text": "one" }, { "refusal": "no" }, { "text": "cut", "stop": "length" }]);
    write(dir.path(), "a.json", json!({ "messages": [{ "text": "hi" }] }), json!({ "answers": responses }));
    let models = make(vec![recorded(dir.path(), None)]);
    let mut stops = Vec::new();
    for _ in 0..4 {
        stops.push(models.call(&ask("hi")).await.expect("it is recorded").stop);
    }
    assert_eq!(stops, [Stop::End, Stop::Refusal("no".into()), Stop::Length, Stop::Length]);
}

#[tokio::test]
async fn a_recording_with_a_misspelled_field_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "a.json", json!({ "mesages": [] }), json!({ "answer": { "text": "x" } }));
    let failure = replay(dir.path(), &ask("hi")).await.expect_err("it cannot be read");
    assert_eq!(failure.kind, CallFailureKind::Environment);
    assert!(failure.message.contains("a.json` cannot be read: unknown field `mesages`"), "{}", failure.message);
}

/// Recording: a miss calls the named model once. From then on the recording responds, also in another process.
#[tokio::test]
async fn a_miss_is_recorded_and_then_replayed() {
    let kind = ProviderKind::Anthropic;
    let dir = tempfile::tempdir().expect("a directory");
    for path in [dir.path().join("tapes"), dir.path().join("tape.json")] {
        let server = Server::new([Reply::ok(response(kind, "line 1\nline 2"))]);
        let live = || vec![recorded(&path, Some("p/real")), provider(kind, &server.url())];
        let models = make(live());
        let first = models.call(&ask("hi")).await.expect("an answer");
        let second = models.call(&ask("hi")).await.expect("an answer");
        let other = models.call(&ask("ho")).await.expect("an answer");
        let third = make(vec![recorded(&path, None)]).call(&ask("ho")).await.expect("it is recorded");
        assert_eq!(first, second);
        assert_eq!(other, third);
        assert_eq!((first.text.as_str(), server.seen().len()), ("line 1\nline 2", 2));
        let file = if path.is_dir() {
            std::fs::read_dir(&path).expect("a directory").next().expect("a file").expect("a file").path()
        } else {
            path
        };
        let text = std::fs::read_to_string(file).expect("it is readable");
        assert!(text.contains("\"line 1\",\n") && text.contains("\"model\": \"p/real\""), "{text}");
    }
}

/// An app's own recordings are read and written inside the app only, links included.
#[tokio::test]
async fn recordings_of_an_app_stay_inside_it() {
    let kind = ProviderKind::Anthropic;
    let parent = tempfile::tempdir().expect("a directory");
    let (app, outside) = (parent.path().join("app"), parent.path().join("outside"));
    for dir in [&app, &app.join("tapes"), &outside] {
        std::fs::create_dir(dir).expect("it is writable");
    }
    write(&outside, "a.json", json!({ "messages": [{ "role": "user", "text": "hi" }] }), json!({ "answer": "x" }));
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, app.join(name)).expect("a link");
    link("../outside", "out");
    link("../../outside/a.json", "tapes/a.json");
    link("tapes", "inside");
    let server = Server::new([Reply::ok(response(kind, "live"))]);
    let call = async |path: &Path, app_dir: &Path| {
        let tape = ProviderSettings { is_path_of_app: true, ..recorded(path, Some("p/real")) };
        let only = ModelId { provider: "tape".to_owned(), model: "m".to_owned() };
        let mapping = Tier::ALL.map(|tier| (tier, vec![only.clone()])).into();
        let providers = settings(vec![tape, provider(kind, &server.url())]);
        let models = Models::new(Settings { mapping, app_dir: app_dir.to_owned(), ..providers });
        models.expect("the settings hold").call(&ask("hi")).await
    };
    for path in [&outside.join("a.json"), Path::new("../outside"), Path::new("out/new.json"), Path::new("tapes")] {
        let failure = call(path, &app).await.expect_err("it leads out of the app");
        assert!(failure.message.contains("leads out of the app"), "{}: {}", path.display(), failure.message);
    }
    assert_eq!((server.seen().len(), std::fs::read_dir(&outside).expect("a directory").count()), (0, 1));
    std::fs::remove_file(app.join("tapes/a.json")).expect("it is there");
    assert_eq!(call(Path::new("inside"), &app).await.expect("an answer").text, "live");
    assert_eq!(std::fs::read_dir(app.join("tapes")).expect("a directory").count(), 1);
}
