//! Input of a pipeline from a request in words.

use std::sync::Arc;

use etude::Disk;
use etude::definition::Definition;
use etude_core::data::Json;
use etude_core::failure::{Failure, FailureKind, Phase};
use etude_core::model::{Tier, Usage};
use etude_request::{Extracted, From, Source, Stated, Trail, Unclear};
use etude_runtime::host::ModelPort;
use etude_spec::stage_machine::Rules;
use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Budget, bounded, failed};
use crate::args::Purpose;
use crate::command::run::coerce;
use crate::context::Context;
use crate::problem::{Problem, Refused};
use crate::render::text::harmless;
use crate::settings::{self, Need, Resolved};

/// Input given on the command line.
pub(crate) struct Given<'a> {
    pub(crate) pairs: &'a [(String, String)],
    pub(crate) json: Option<&'a str>,
}

/// A pipeline for a request, with the input from the request and the command line.
pub(crate) struct Found {
    pub(crate) definition: Definition,
    /// Values of `-i`, and each `NAME=VALUE` of the request.
    pub(crate) pairs: Vec<(String, String)>,
    /// JSON object with all other values of the request, and of `--input`.
    pub(crate) json: String,
    pub(crate) extracted: Extracted,
    pub(crate) spent: Usage,
    pub(crate) trail: Trail,
    given_pairs: Vec<(String, String)>,
    given_json: Option<String>,
}

impl Found {
    /// Values found in the request, as an object.
    pub(super) fn stated(&self) -> Value {
        let parsed = |source: &Source| (source.name.clone(), serde_json::from_str(&source.value).unwrap_or_default());
        self.extracted.sources.iter().map(parsed).collect::<serde_json::Map<_, _>>().into()
    }

    /// Sources of the values, if known.
    pub(super) fn sources(&self) -> Vec<Source> {
        match coerce(&self.definition.input, &self.pairs, Some(&self.json)) {
            Ok(input) => self.sources_of(&input),
            Err(_) => self.extracted.sources.clone(),
        }
    }

    /// Sources of the values of `input`.
    pub(crate) fn sources_of(&self, input: &Json) -> Vec<Source> {
        let (declared, json) = (&self.definition.input, self.given_json.as_deref());
        etude_request::sources(declared, input, &self.extracted.sources, &self.given_pairs, json)
    }
}

/// Finds the parameters of `definition` in the request, except those that the command line gives.
pub(super) fn find(
    request: &str,
    definition: Definition,
    disk: &Disk,
    given: &Given<'_>,
    lite: &mut Lite<'_>,
) -> Result<Found, Refused> {
    let rules = lite.resolved.machines.clone();
    read_parameters(request, definition, disk, given, rules, |stated, definition| extract(stated, definition, lite))
}

/// Like [`find`], but by code alone, for measurements of many requests.
pub(super) fn find_by_code(request: &str, definition: Definition, disk: &Disk, rules: Rules) -> Result<Found, Refused> {
    let given = Given { pairs: &[], json: None };
    read_parameters(request, definition, disk, &given, rules, |stated, _| Ok(stated.by_code()))
}

fn read_parameters(
    request: &str,
    definition: Definition,
    disk: &Disk,
    given: &Given<'_>,
    rules: Rules,
    extract: impl FnOnce(&Stated<'_>, &Definition) -> Result<Extracted, Refused>,
) -> Result<Found, Refused> {
    let typed = etude_request::typed(request, &definition.input).map_err(|(name, near)| {
        let problem = Problem::usage(format!("`{name}=…` in the request: parameter `{name}` is not declared"));
        problem.hint(format!("did you mean `{near}`?"))
    })?;
    let from_json: IndexMap<String, &RawValue> =
        given.json.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let names = given.pairs.iter().map(|(name, _)| name.as_str()).chain(from_json.keys().map(String::as_str));
    let on_command_line: Vec<&str> = names.collect();
    let counts = |name: &str| !on_command_line.contains(&name);
    let typed_pairs = typed.iter().filter(|pair| counts(&pair.name));
    let typed_pairs: Vec<_> = typed_pairs.map(|pair| (pair.name.clone(), pair.value.clone())).collect();
    let stated = Stated {
        request,
        about: &etude_request::about(disk, rules, &definition.plan.body.name),
        declared: &definition.input,
        given: on_command_line.iter().copied().chain(typed.iter().map(|pair| pair.name.as_str())).collect(),
        masked: typed.iter().map(|pair| pair.span.clone()).collect(),
    };
    let mut extracted = extract(&stated, &definition)?;
    let json = merge(&extracted.input, given.json).map_err(|problem| problem.spent(extracted.usage))?;
    let typed_sources = typed.iter().filter(|pair| counts(&pair.name)).map(|pair| Source {
        name: pair.name.clone(),
        value: definition
            .input
            .written(&pair.name, &pair.value)
            .unwrap_or_else(|| Value::from(&*pair.value).to_string()),
        from: From::Request,
        text: Some(request[pair.span.clone()].to_owned()),
        span: Some(pair.span.clone()),
    });
    extracted.sources.extend(typed_sources);
    Ok(Found {
        pairs: given.pairs.iter().cloned().chain(typed_pairs).collect(),
        json,
        spent: extracted.usage,
        trail: Trail::default(),
        given_pairs: given.pairs.to_vec(),
        given_json: given.json.map(str::to_owned),
        extracted,
        definition,
    })
}

/// Extracts parameters by code, and by a model if code leaves some open.
fn extract(stated: &Stated<'_>, definition: &Definition, lite: &mut Lite<'_>) -> Result<Extracted, Refused> {
    let by_code = stated.by_code();
    let questions = stated.questions();
    if questions.is_empty() {
        return Ok(by_code);
    }
    let names = stated.given.iter().copied().chain(by_code.sources.iter().map(|source| source.name.as_str()));
    let names: Vec<&str> = names.collect();
    // The user is asked to download weights only if the pipeline needs them.
    let is_needed = !definition.tiers().is_empty() || definition.input.has_required_beyond(&names);
    let need = if lite.need == Need::Ask && !is_needed { Need::Look } else { lite.need };
    let Some(models) = lite.models(need)? else {
        // Code steps would otherwise act on other parameters than the request gives.
        // A run with a withheld model reports so before anything happens, and so does this.
        if let Some(problem) = lite.withheld().filter(|_| lite.resolved.purpose == Purpose::Run) {
            return Err(problem.into());
        }
        if let Some(message) = lite.missing().filter(|_| !definition.tiers().is_empty() && lite.need != Need::Look) {
            return Err(Problem::environment(message).into());
        }
        lite.note_nothing_extracted(&questions);
        return Ok(by_code);
    };
    let extracted = bounded(lite.budget, async {
        let found = stated.extract(Some(&models)).await;
        Ok(found.map_err(|e| failed(e, Usage::default()))?)
    })?;
    if lite.context.global.quiet {
        return Ok(extracted);
    }
    if let Some(why) = &extracted.undelivered {
        let names: Vec<String> = questions.iter().map(|name| format!("`{name}`")).collect();
        crate::render::say!("warning: the value of {} in the request is not used: {}", names.join(", "), harmless(why));
        crate::render::say!("hint: set it: -i {}=…", questions[0]);
    }
    if !extracted.made_up.is_empty() {
        let values: Vec<String> = extracted.made_up.iter().map(|(name, json)| format!("{name}={json}")).collect();
        crate::render::say!(
            "note: the model returned {}; the request does not contain it, so it is not used",
            harmless(&values.join(", "))
        );
    }
    Ok(extracted)
}

/// Problem of a request whose values would be dropped for a default, although all required parameters are set. `None` if
/// nothing is unclear.
pub(crate) fn unclear(unclear: &[Unclear]) -> Option<Problem> {
    let first = unclear.first()?;
    let failures = unclear.iter().map(|one| {
        let texts: Vec<String> = one.texts.iter().map(|text| format!("`{text}`")).collect();
        let instead = match &one.default {
            Some(default) => format!("would take its default `{default}`"),
            None => "would be left out".to_owned(),
        };
        let message =
            format!("the request has {}, but `{}` did not receive it and {instead}", texts.join(" and "), one.name);
        let mut failure = Failure::new(FailureKind::InputInvalid, message);
        failure.phase = Some(Phase::Routing);
        failure
    });
    let value = first.example.as_deref().or(first.default.as_deref()).unwrap_or("…");
    let problem = Problem::of_failures(failures.collect());
    let pair = etude_core::shell::word(&format!("{}={value}", first.name));
    Some(problem.hint(format!("set the value with `-i {}`", harmless(&pair))))
}

/// Models of the lite tier, resolved at first use.
pub(super) struct Lite<'a> {
    context: &'a Context,
    pub(super) resolved: Resolved,
    pub(super) need: Need,
    /// Time budget of the run, if it has one.
    pub(super) budget: Option<Budget>,
}

impl<'a> Lite<'a> {
    pub(super) fn new(context: &'a Context, resolved: Resolved, need: Need) -> Self {
        Self { context, resolved, need, budget: None }
    }

    /// The configured models, a local server that responds, or the local model if its weights are present.
    pub(super) fn models(&mut self, need: Need) -> Result<Option<Arc<dyn ModelPort>>, Problem> {
        self.resolved = settings::ready(&self.context.global, self.resolved.clone(), &[Tier::Lite], need)?;
        Ok(self.resolved.has_model(Tier::Lite).then(|| settings::models(self.resolved.clone())))
    }

    /// Problem of a model that is withheld, if it is.
    pub(super) fn withheld(&self) -> Option<Problem> {
        let why = self.resolved.withheld(Tier::Lite)?;
        Some(Problem::environment(why).hint(settings::remedy(self.resolved.purpose)))
    }

    /// Notes the parameters that only a model could find, and how to get one.
    fn note_nothing_extracted(&self, questions: &[String]) {
        if self.context.global.quiet {
            return;
        }
        let names: Vec<String> = questions.iter().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        if let Some(why) = self.resolved.withheld(Tier::Lite) {
            crate::render::say!("note: cannot extract {names} from the request: {}", harmless(why));
            return;
        }
        let weights = self.resolved.first(Tier::Lite).and_then(|model| self.resolved.missing(model));
        let remedy =
            weights.map(|weights| format!(" (`{}`, {})", weights.command(), weights.size())).unwrap_or_default();
        crate::render::say!("note: cannot extract {names} from the request: no model is available{remedy}");
    }

    /// Message that the weights of the model are missing, if they are.
    fn missing(&self) -> Option<String> {
        let model = self.resolved.first(Tier::Lite).filter(|_| self.resolved.withheld(Tier::Lite).is_none())?;
        let weights = self.resolved.missing(model)?;
        Some(format!(
            "no model of the tier `{}` is available to extract parameters from the request: the weights of `{model}` are not \
             downloaded; run `{}` ({}), or {}",
            Tier::Lite,
            weights.command(),
            weights.size(),
            settings::REMEDIES
        ))
    }
}

/// Merges both objects; values of the command line win.
fn merge(extracted: &str, given: Option<&str>) -> Result<String, Problem> {
    let Some(given) = given else { return Ok(extracted.to_owned()) };
    // A value that is not an object is reported where the input is checked.
    let Ok(given_members) = serde_json::from_str::<IndexMap<String, &RawValue>>(given) else {
        return Ok(given.to_owned());
    };
    let mut members: IndexMap<String, &RawValue> = serde_json::from_str(extracted).unwrap_or_default();
    members.extend(given_members);
    serde_json::to_string(&members).map_err(|e| Problem::usage(e.to_string()))
}
