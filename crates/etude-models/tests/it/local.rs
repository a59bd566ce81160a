//! A model that is handed in.

use std::sync::Arc;

use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Request, Stop, ToolCall, Usage};
use etude_models::{LocalCall, LocalModel, Models, ProviderKind, ProviderSettings};

use crate::server::Server;
use crate::setup::{answer, ask, models, provider, settings};

/// Tells what it was asked, or fails.
#[derive(Debug)]
struct Handed(Option<CallFailureKind>);

impl LocalModel for Handed {
    fn call(&self, name: &str, request: &Request) -> LocalCall {
        let usage = Usage { calls: 0, input_tokens: 10, output_tokens: 2, cached_tokens: 4, ..Usage::default() };
        let call = ToolCall { id: "1".into(), name: name.into(), arguments: "{}".into() };
        let text = format!("{} schema, {} tools", u8::from(request.schema.is_some()), request.tools.len());
        let result = match self.0 {
            None => Ok(ModelResponse {
                text,
                tool_calls: vec![call],
                stop: Stop::End,
                usage,
                model: "local/inner".into(),
                transport_failures: Vec::new(),
            }),
            Some(kind) => Err(CallFailure {
                kind,
                message: "no weights".into(),
                model: None,
                transport_failures: vec!["an earlier try".into()],
            }),
        };
        Box::pin(async move { result })
    }
}

fn handed(failure: Option<CallFailureKind>) -> ProviderSettings {
    let mut provider = ProviderSettings::new("p", ProviderKind::Local);
    provider.local = Some(Arc::new(Handed(failure)));
    provider
}

/// an answer of the user's own machine has its tokens counted, and costs nothing.
#[tokio::test]
async fn a_local_answer_goes_through_whole_and_costs_nothing() {
    let answer = models(vec![handed(None)]).call(&ask("hi")).await.expect("an answer");
    assert_eq!((answer.text.as_str(), answer.model.as_str()), ("0 schema, 0 tools", "p/m"));
    assert_eq!(answer.tool_calls[0].name, "m");
    assert_eq!((answer.usage.calls, answer.usage.input_tokens, answer.usage.cached_tokens), (1, 10, 4));
    assert_eq!(answer.usage.cost_usd, Some(0.0));
}

/// weights that are missing are the environment's fault, and the next model of the tier is asked.
#[tokio::test]
async fn without_weights_the_next_model_answers() {
    let environment = Some(CallFailureKind::Environment);
    let failure = models(vec![handed(environment)]).call(&ask("hi")).await.expect_err("no weights");
    assert_eq!((failure.kind, failure.message.as_str()), (CallFailureKind::Environment, "`p/m`: no weights"));
    let server = Server::new([crate::server::Reply::ok(answer(ProviderKind::OpenAiCompatible, "four"))]);
    let mut next = provider(ProviderKind::OpenAiCompatible, &server.url());
    next.name = "q".into();
    let answer = models(vec![handed(environment), next]).call(&ask("hi")).await.expect("an answer");
    assert_eq!(answer.transport_failures, ["an earlier try", "`p/m`: no weights"]);
}

#[test]
fn a_build_without_the_local_model_says_so() {
    let bare = ProviderSettings::new("p", ProviderKind::Local);
    let error = Models::new(settings(vec![bare])).err().expect("refused").to_string();
    assert!(error.starts_with("provider `p` is of kind `local`, and this program was built without"), "{error}");
}
