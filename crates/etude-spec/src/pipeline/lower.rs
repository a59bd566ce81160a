//! Lowering of a valid definition to a plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use etude_core::effect::Command;
use etude_core::plan::{
    Agent, Application, Approval, Binding, Cache, Choose, Code, ForEach, Llm, MachineCall, MachineInput, Origin,
    OutputOf, Parallel, Sequence, Step, StepKind, SubPipeline, ToolStep,
};
use etude_core::schema::Schema;
use etude_core::template::{Reference, Template};
use etude_core::tool::ToolSelection;

use crate::input::{InputDecl, Parameter};
use crate::pipeline::called::CalledMachine;
use crate::pipeline::definition::{BindingDef, Body, Definition, LlmDef, SkillDef, StepDef, ValidatorDef};
use crate::pipeline::fingerprint;
use crate::pipeline::load::Loaded;
use crate::pipeline::skill::Skill;
use crate::source::{SourceFile, Sources, Span};

/// Parts of a step that come from outside its file.
#[derive(Default)]
pub(crate) struct Resolved {
    pub(crate) schema: Option<Arc<Schema>>,
    pub(crate) sub: Option<Arc<Loaded>>,
    pub(crate) skill: Option<Skill>,
    pub(crate) machine: Option<Arc<CalledMachine>>,
    /// Tools that the app's skill allows, for a step that calls a tool.
    pub(crate) allowed: Option<Vec<String>>,
    /// True if the tool that a step calls may change something.
    pub(crate) writes: bool,
    pub(crate) children: Vec<Self>,
}

/// Origin of the steps.
pub(crate) struct Context<'a> {
    pub(crate) sources: &'a dyn Sources,
    pub(crate) file: &'a SourceFile,
    pub(crate) dir: &'a str,
    /// Files that the pipeline depends on.
    pub(crate) files: &'a BTreeSet<String>,
    /// The steps of the pipeline.
    pub(crate) steps: &'a [StepDef<'a>],
}

/// Plan of a definition without errors. `None` never happens for such a definition; it replaces a panic.
pub(crate) fn sequence(
    context: &Context<'_>,
    name: &str,
    definition: &Definition<'_>,
    resolved: Vec<Resolved>,
) -> Option<Sequence> {
    let uses_request = definition.steps.iter().zip(&resolved).any(|(def, resolved)| uses_request(def, resolved));
    Some(Sequence {
        name: name.to_owned(),
        dir: context.dir.to_owned(),
        steps: steps(context, &definition.steps, resolved, &[], false)?,
        output: definition.output.map_or(OutputOf::Last, |output| OutputOf::Step(output.text.to_owned())),
        description: uses_request.then(|| definition.description.clone()),
    })
}

/// Lowers steps, before the steps `later`, which change the outside world. The children of a group do not precede each
/// other.
fn steps(
    context: &Context<'_>,
    steps: &[StepDef<'_>],
    resolved: Vec<Resolved>,
    later: &[String],
    is_group: bool,
) -> Option<Vec<Arc<Step>>> {
    let mut lowered: Vec<Arc<Step>> = Vec::with_capacity(steps.len());
    let mut later = later.to_vec();
    // In reverse order, so that a question knows the questions that share its call.
    for (at, (def, resolved)) in steps.iter().zip(resolved).enumerate().rev() {
        let mut step = step(context, def, resolved, &later)?;
        if let StepKind::Llm(llm) = &mut step.kind
            && let Some(choose) = &mut llm.choose
        {
            let after = || lowered.iter().rev();
            choose.together = after().take(asked_together(&steps[at..])).cloned().collect();
            let beside = || steps[at + 1..].iter().zip(after()).filter(|(other, _)| fits(def, other));
            choose.beside = is_group.then(|| beside().map(|(_, lowered)| Arc::clone(lowered)).collect());
        }
        match &step.kind {
            _ if is_group => {}
            // The next question names the steps after it.
            StepKind::Approval(_) => later.clear(),
            _ => later.splice(..0, changing(&step)).for_each(drop),
        }
        lowered.push(Arc::new(step));
    }
    lowered.reverse();
    Some(lowered)
}

/// Names of the step, or of the children of the group, that change the outside world.
fn changing(step: &Step) -> Vec<String> {
    fn changes(step: &Step) -> bool {
        step.effects || step.kind.inner().iter().any(|inner| changes(inner))
    }
    match &step.kind {
        StepKind::Parallel(group) if !step.effects => group.steps.iter().flat_map(|child| changing(child)).collect(),
        _ if changes(step) => vec![step.name.clone()],
        _ => Vec::new(),
    }
}

/// Number of the following questions that fit into the call of the first one, because they need nothing that is still
/// unknown (L-49).
fn asked_together(steps: &[StepDef<'_>]) -> usize {
    let Some((first, rest)) = steps.split_first() else { return 0 };
    let needs = |def: &StepDef<'_>, known: &[StepDef<'_>]| {
        let mut references = def.uses.iter().flat_map(|used| used.template.references());
        references.any(|(reference, _)| {
            matches!(reference, Reference::Output { step, .. } if known.iter().any(|def| def.name == step))
        })
    };
    let joins = |(nth, def): &(usize, &StepDef<'_>)| fits(first, def) && !needs(def, &steps[..=*nth]);
    rest.iter().enumerate().take_while(joins).count()
}

/// True if one call can ask both questions. Their conditions are decided before the call.
fn fits(first: &StepDef<'_>, other: &StepDef<'_>) -> bool {
    let is_plain = |def: &StepDef<'_>| def.for_each.is_none() && def.timeout_ms.is_none() && def.cache.is_none();
    let question = |def: &StepDef<'_>| match &def.body {
        Body::Llm(llm) if llm.choose.is_some() => {
            Some((llm.tier, llm.system.clone(), llm.retry, llm.temperature, llm.max_tokens, llm.images.len()))
        }
        _ => None,
    };
    is_plain(first) && is_plain(other) && question(first).is_some() && question(first) == question(other)
}

/// True if a template of the step, or of a child of its group, refers to `{{index}}`.
fn uses_index(def: &StepDef<'_>) -> bool {
    let is_index = |(reference, _): (&Reference, _)| *reference == Reference::Index;
    def.uses.iter().any(|used| used.template.references().any(is_index))
        || matches!(&def.body, Body::Parallel { steps, .. } if steps.iter().any(uses_index))
}

/// True if a template of the step, or of a step inside of it, refers to the request.
fn uses_request(def: &StepDef<'_>, resolved: &Resolved) -> bool {
    let is_request = |(reference, _): (&Reference, _)| *reference == Reference::Request;
    let in_sub =
        || resolved.sub.as_ref().and_then(|sub| sub.sequence.as_ref()).is_some_and(|sub| sub.description.is_some());
    def.uses.iter().any(|used| used.template.references().any(is_request))
        || in_sub()
        || matches!(&def.body, Body::Parallel { steps, .. }
            if steps.iter().zip(&resolved.children).any(|(child, resolved)| uses_request(child, resolved)))
}

/// Arrays that an element of `items` stands for in cache keys. These are the array itself and, if it is the output of
/// another fan-out, the array of that fan-out.
fn arrays(items: &Reference, steps: &[StepDef<'_>]) -> Vec<Reference> {
    let mut found = vec![items.clone()];
    while let Some(Reference::Output { step, path }) = found.last() {
        let of_step = steps.iter().find(|def| def.name == step.as_str());
        let child = of_step.and_then(|def| match (&def.body, path.first()) {
            (Body::Parallel { steps, .. }, Some(name)) => steps.iter().find(|def| def.name == name.to_string()),
            _ => None,
        });
        let over = [of_step, child].into_iter().flatten().find_map(|def| def.for_each.as_ref());
        match over {
            // References lead to earlier steps only; any other definition is never lowered.
            Some(over) if !found.contains(&over.items) => found.push(over.items.clone()),
            _ => break,
        }
    }
    found
}

fn origin(context: &Context<'_>, at: Span) -> Origin {
    let (line, column) = context.file.position(at.start);
    Origin { file: context.file.path().to_owned(), line, column }
}

fn step(context: &Context<'_>, def: &StepDef<'_>, resolved: Resolved, later: &[String]) -> Option<Step> {
    let cache = def.cache.as_ref().map(|cache| Cache {
        ttl_ms: cache.ttl_ms,
        key: cache.key.clone(),
        fingerprint: fingerprint::of(context.sources, def.node, context.files, context.file.path()),
        uses_index: uses_index(def),
    });
    Some(Step {
        name: def.name.to_owned(),
        kind: kind(context, def, resolved, later)?,
        when: def.when.clone(),
        require: def.require.clone(),
        for_each: def.for_each.as_ref().map(|over| ForEach {
            items: Binding::Reference(over.items.clone()),
            max_parallel: over.max_parallel,
            max_items: over.max_items,
            collect: over.collect,
            stands_for: arrays(&over.items, context.steps),
        }),
        timeout_ms: def.timeout_ms,
        cache,
        effects: def.effects,
        origin: origin(context, def.at),
    })
}

fn kind(context: &Context<'_>, def: &StepDef<'_>, resolved: Resolved, later: &[String]) -> Option<StepKind> {
    Some(match &def.body {
        Body::Code(code) => StepKind::Code(Code {
            command: code.command.clone()?,
            protocol: code.protocol,
            env: code.env.clone(),
            env_from: code.env_from.clone(),
            allow_exit: code.allow_exit.clone(),
            schema: resolved.schema,
            retry: code.retry.clone(),
            worker: code.worker,
            sandbox: code.sandbox.clone().map(Box::new),
        }),
        Body::Llm(llm) => StepKind::Llm(Box::new(ask(llm, def, resolved.schema)?)),
        Body::Parallel { steps: children, max_parallel, on_failure } => StepKind::Parallel(Parallel {
            steps: steps(context, children, resolved.children, later, true)?,
            max_parallel: *max_parallel,
            on_failure: *on_failure,
        }),
        Body::Pipeline { input, .. } => {
            let sub = resolved.sub?;
            StepKind::Pipeline(SubPipeline {
                sequence: Arc::clone(sub.sequence.as_ref()?),
                input: given(input, &sub.input),
                schema: sub.input_schema(),
            })
        }
        Body::Machine { is_stage, input, .. } => {
            let called = resolved.machine?;
            let values = given(input, &called.input);
            let input = MachineInput::Bound { values, schema: Arc::clone(&called.schema) };
            let machine = Arc::clone(&called.plan);
            StepKind::Machine(Box::new(MachineCall { machine, input, is_stage: *is_stage, may_skip: false }))
        }
        Body::Approval(approval) => StepKind::Approval(Box::new(Approval {
            message: approval.message.clone()?,
            schema: resolved.schema,
            approvers: approval.approvers.clone(),
            on_timeout: approval.on_timeout,
            continue_on_deny: approval.continue_on_deny,
            effects: later.to_vec(),
        })),
        Body::Skill(agent) => StepKind::Skill(Box::new(follow(agent, resolved)?)),
        Body::Application { application, command, args } => StepKind::Application(Box::new(Application {
            application: application.as_ref()?.text.to_owned(),
            command: command.as_ref()?.text.to_owned(),
            args: args.clone(),
        })),
        Body::Tool { tool, args } => StepKind::Tool(Box::new(ToolStep {
            tool: tool.as_ref()?.text.to_owned(),
            args: args.iter().map(|arg| (arg.name.text.to_owned(), arg.value.clone())).collect(),
            tool_selection: Arc::new(ToolSelection { allowed: resolved.allowed, ..ToolSelection::default() }),
            writes: resolved.writes,
        })),
        Body::Unknown => return None,
    })
}

/// Arguments of a step, per parameter, with defaults; if nothing is declared, all given arguments.
fn given(input: &[BindingDef<'_>], declared: &InputDecl) -> Vec<(String, Binding)> {
    if declared.is_open {
        return input.iter().map(|binding| (binding.name.text.to_owned(), binding.value.clone())).collect();
    }
    let written = |name: &str| input.iter().find(|binding| binding.name.text == name).map(|b| b.value.clone());
    let value =
        |parameter: &Parameter| written(&parameter.name).or_else(|| parameter.default.clone().map(Binding::Literal));
    declared.parameters.iter().filter_map(|p| Some((p.name.clone(), value(p)?))).collect()
}

fn follow(def: &SkillDef<'_>, resolved: Resolved) -> Option<Agent> {
    let skill = resolved.skill?;
    let tool_selection = ToolSelection {
        allowed: def.allowed.clone().or(skill.allowed),
        lists_skills: false,
        lists_in_tools: false,
        tier: def.tier,
        dir: skill.dir,
    };
    Some(Agent {
        skill: skill.name,
        tier: def.tier,
        system: Template::literal(skill.body),
        prompt: def.request.clone()?,
        tool_selection: Arc::new(tool_selection),
        schema: resolved.schema,
        turn_cap: def.max_turns,
        step_cap: None,
        pipelines: Vec::new(),
    })
}

fn ask(llm: &LlmDef<'_>, def: &StepDef<'_>, schema: Option<Arc<Schema>>) -> Option<Llm> {
    Some(Llm {
        tier: llm.tier,
        system: llm.system.clone(),
        prompt: llm.prompt.clone()?,
        schema,
        validate: match &def.validate {
            Some(ValidatorDef::Script(path)) => Some(Command::Script(path.text.to_owned())),
            Some(ValidatorDef::Command { command, .. }) => Some(command.clone()?),
            None => None,
        },
        retry: llm.retry,
        temperature: llm.temperature,
        max_tokens: llm.max_tokens,
        cache_prompt: llm.cache_prompt,
        images: llm.images.iter().map(|(template, _)| template.clone()).collect(),
        choose: llm.choose.as_ref().map(|choose| Choose {
            from: Binding::Reference(choose.from.clone()),
            by: choose.by.clone(),
            many: choose.many,
            always: choose.always,
            together: Vec::new(),
            beside: None,
        }),
    })
}
