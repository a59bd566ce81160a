//! Tiers without a model, and tiers with several.

use etude_core::model::{CallFailureKind, Tier};
use etude_models::{ModelId, Models, ProviderKind, ProviderSettings, Settings};

use crate::server::{Reply, Server, unreachable_url};
use crate::setup::{ask, models, provider, response, settings};

const KIND: ProviderKind = ProviderKind::OpenAiCompatible;

fn two(first: ProviderSettings, second: &str) -> Vec<ProviderSettings> {
    vec![first, ProviderSettings { name: "q".to_owned(), ..provider(KIND, second) }]
}

/// the mapping is configuration, so a tier without a model is not the model's fault.
#[tokio::test]
async fn a_tier_without_a_model_is_an_environment_failure() {
    let failure = models(Vec::new()).call(&ask("hi")).await.expect_err("no model");
    assert_eq!(failure.kind, CallFailureKind::Environment);
    let expected = "no model is configured for the tier `standard`; set `model_mapping.standard` to provider/model";
    assert_eq!((failure.message.as_str(), failure.model), (expected, None));
}

#[tokio::test]
async fn the_next_model_responds_when_the_first_cannot() {
    let failing = Server::new([Reply::status(503, "down")]);
    let keyless = ProviderSettings::new("p", ProviderKind::Anthropic);
    for (first, failures) in
        [(provider(KIND, &failing.url()), 3), (provider(KIND, &unreachable_url()), 3), (keyless, 1)]
    {
        let server = Server::new([Reply::ok(response(KIND, "four"))]);
        let response = models(two(first, &server.url())).call(&ask("hi")).await.expect("an answer");
        assert_eq!(response.model, "q/m");
        assert_eq!(response.transport_failures.len(), failures, "{:?}", response.transport_failures);
        assert!(response.transport_failures[failures - 1].starts_with("`p/m`: "));
    }
}

/// The next model is called after a failure that concerns one provider alone, such as an unknown model.
#[tokio::test]
async fn the_next_model_responds_where_the_first_has_no_credit_permission_or_model() {
    for status in [402, 403, 404] {
        let refusing = Server::new([Reply::status(status, "no")]);
        let server = Server::new([Reply::ok(response(KIND, "four"))]);
        let models = models(two(provider(KIND, &refusing.url()), &server.url()));
        let response = models.call(&ask("hi")).await.expect("an answer");
        assert_eq!(response.model, "q/m");
        assert_eq!(response.transport_failures, [format!("`p/m`: status {status}: no")]);
    }
}

/// cli: an unknown model that etude chose by default is reported as such.
#[tokio::test]
async fn a_default_that_is_gone_says_that_it_is_one() {
    let server = Server::new([Reply::status(404, "no such model")]);
    let mut settings = settings(vec![provider(KIND, &server.url())]);
    settings.defaulted = vec![ModelId::parse("p/m").expect("an id")];
    let failure = Models::new(settings).expect("the settings hold").call(&ask("hi")).await.expect_err("it is gone");
    assert_eq!(
        failure.message,
        "`p/m`: status 404: no such model; etude chose this model because none is configured, and it may be \
         retired: set `model_mapping.standard` to another"
    );
}

#[tokio::test]
async fn a_refused_request_is_not_tried_on_another_model() {
    let refusing = Server::new([Reply::status(400, "too long")]);
    let server = Server::new([Reply::ok(response(KIND, "four"))]);
    let failure =
        models(two(provider(KIND, &refusing.url()), &server.url())).call(&ask("hi")).await.expect_err("it is refused");
    assert_eq!(failure.message, "`p/m`: status 400: too long");
    assert!(server.seen().is_empty());
}

#[test]
fn the_first_model_of_a_tier_describes_it() {
    let models = models(two(provider(KIND, "http://127.0.0.1:1"), "http://127.0.0.1:2"));
    assert_eq!(models.describe(Tier::Standard).as_deref(), Some("p/m"));
    assert_eq!(models.describe(Tier::Lite), None);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let message = |settings: Settings| Models::new(settings).err().map(|error| error.to_string()).unwrap_or_default();
    let twice = vec![provider(KIND, "http://127.0.0.1:1"), provider(KIND, "http://127.0.0.1:1")];
    assert_eq!(message(settings(twice)), "two providers are named `p`; rename one of them");
    for (kind, setting) in [
        (ProviderKind::OpenAiCompatible, "base_url"),
        (ProviderKind::Command, "command"),
        (ProviderKind::Recorded, "path"),
    ] {
        let expected = format!("provider `p` of kind `{kind}` needs `{setting}`");
        assert_eq!(message(settings(vec![ProviderSettings::new("p", kind)])), expected);
    }
    let mut recorded = ProviderSettings::new("p", ProviderKind::Recorded);
    recorded.path = Some("x".into());
    recorded.record_from = ModelId::parse("p/m");
    let expected = "provider `p` records `p/m`, which is itself recorded; name a model that answers";
    assert_eq!(message(settings(vec![recorded])), expected);
}
