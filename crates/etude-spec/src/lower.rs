//! Plans of all definitions other than pipelines: skill mode, stage machines, prompt skills, questions of the router.
//!
//! Steps of pipelines are lowered in [`crate::pipeline`].

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::failure::Phase;
use etude_core::model::{Tier, Tool};
use etude_core::plan::stages::StageMachine;
use etude_core::plan::{
    Agent, Fallback, Llm, MachineCall, MachineInput, Origin, PipelineTool, Plan, Sequence, Step, StepKind,
};
use etude_core::schema::Schema;
use etude_core::template::{Reference, Segment, Template};
use etude_core::tool::ToolSelection;
use serde_json::Value;

use crate::Pipeline;
use crate::skill::Instructions;

/// Parameter of skill mode that holds the user's request.
pub const REQUEST: &str = "request";

/// First message to the model of a prompt skill, whose instructions are its system prompt.
const BEGIN: &str = "Do what your instructions say.";

/// Maximum number of turns of a prompt skill without `maxTurns`.
const MAX_TURNS: u32 = 30;

/// Maximum number of tool calls of a prompt skill without `maxSteps`.
const MAX_STEPS: u32 = 30;

/// Plan of a pipeline with constructor and destructor.
pub fn scope(before: Option<Arc<Sequence>>, body: Arc<Sequence>, after: Option<Arc<Sequence>>) -> Plan {
    Plan { before, body, after, phase: Phase::Business, fallback: None }
}

/// Skill mode after a deviation of a pipeline with this description (L-67). The agent of [`skill_mode`] gets the
/// request that the machine hands over.
pub fn fallback(name: &str, instructions: Instructions, (tier, max_turns): (Tier, u32), description: &str) -> Fallback {
    let (agent, origin) = app_agent(name, instructions, tier, max_turns, Template::reference(Reference::Request));
    let sequence = Arc::clone(&one_agent(agent, origin).body);
    Fallback { sequence, description: description.to_owned() }
}

/// Plan of an app's own `SKILL.md`, run by one agent. Its input is `{"request": TEXT}`. The agent may call
/// `pipelines` (L-77).
pub fn skill_mode(
    name: &str,
    instructions: Instructions,
    (tier, max_turns): (Tier, u32),
    pipelines: Vec<Arc<PipelineTool>>,
) -> Plan {
    let prompt = Template::reference(Reference::Input { path: vec![Segment::Field(REQUEST.to_owned())] });
    let (agent, origin) = app_agent(name, instructions, tier, max_turns, prompt);
    one_agent(Agent { pipelines, ..agent }, origin)
}

/// A pipeline as a tool of an agent, with its name, its description, and its parameters as the schema (L-77).
pub fn pipeline_tool(pipeline: &Pipeline) -> PipelineTool {
    let input = pipeline.input.compiled(&pipeline.name);
    let defaults = pipeline.input.parameters.iter().filter_map(|one| Some((one.name.clone(), one.default.clone()?)));
    PipelineTool {
        tool: Tool {
            name: pipeline.name.clone(),
            description: pipeline.description.clone(),
            parameters: Arc::new(pipeline.input.schema()),
        },
        sequence: Arc::clone(&pipeline.sequence),
        input,
        defaults: defaults.collect(),
    }
}

fn app_agent(name: &str, instructions: Instructions, tier: Tier, max_turns: u32, prompt: Template) -> (Agent, Origin) {
    let Instructions { allowed, body, origin, .. } = instructions;
    let agent = Agent {
        skill: name.to_owned(),
        tier,
        system: Template::literal(body),
        prompt,
        tool_selection: Arc::new(ToolSelection { allowed, lists_skills: true, tier, ..ToolSelection::default() }),
        schema: None,
        turn_cap: max_turns,
        step_cap: None,
        pipelines: Vec::new(),
    };
    (agent, origin)
}

/// Plan of a prompt skill of system D, run by an agent (D-14), from
/// `{"prompt", "name", "config", "returns", "allowedTools"}`. Without a name, messages name the tool that it serves.
///
/// # Errors
/// `prompt` is missing, or `returns` is not a schema.
pub fn prompt_skill(args: &Value, serves: Option<&str>) -> Result<Plan, String> {
    let text = |key: &str| args.get(key).and_then(Value::as_str);
    let prompt = text("prompt").ok_or("`agent` needs a `prompt`")?;
    let model = |key: &str| args.get("config").and_then(|config| config.get("model")?.get(key));
    let tier = ["tier", "id"].iter().find_map(|key| Tier::from_word(model(key)?.as_str()?)).unwrap_or_default();
    let number = |key: &str, usual: u32| match model(key).and_then(Value::as_u64) {
        Some(number) => u32::try_from(number).unwrap_or(u32::MAX),
        None => usual,
    };
    let schema = match args.get("returns").filter(|returns| !returns.is_null()) {
        None => None,
        Some(returns) => Some(Arc::new(Schema::compile("returns", returns.clone(), BTreeMap::new())?)),
    };
    let allowed = text("allowedTools").map(|patterns| vec![patterns.to_owned()]);
    let name = text("name").or(serves).unwrap_or("agent");
    let agent = Agent {
        skill: name.to_owned(),
        tier,
        system: Template::literal(prompt),
        prompt: Template::literal(BEGIN),
        tool_selection: Arc::new(ToolSelection { allowed, tier, ..ToolSelection::default() }),
        schema,
        turn_cap: number("maxTurns", MAX_TURNS).max(1),
        step_cap: Some(number("maxSteps", MAX_STEPS)),
        pipelines: Vec::new(),
    };
    Ok(one_agent(agent, Origin { file: name.to_owned(), line: 1, column: 1 }))
}

/// Model that a prompt skill names as `provider/name` (D-2.3).
pub fn named_model(args: &Value) -> Option<&str> {
    let id = args.get("config")?.get("model")?.get("id")?.as_str()?;
    id.contains('/').then_some(id)
}

fn one_agent(agent: Agent, origin: Origin) -> Plan {
    let step = Step::plain(agent.skill.clone(), StepKind::Skill(Box::new(agent)), origin);
    step.alone("skill".to_owned(), String::new(), Phase::Skill)
}

/// Plan that runs only the stages of a stage machine.
pub fn stage_machine(machine: Arc<StageMachine>) -> Plan {
    let (name, dir, origin) = (machine.id.clone(), machine.dir.clone(), machine.origin.clone());
    let call = MachineCall { machine, input: MachineInput::Same, is_stage: false, may_skip: true };
    Step::plain(name.clone(), StepKind::Machine(Box::new(call)), origin).alone(name, dir, Phase::Business)
}

/// Plan of one question to a model, with the retries of an llm step.
pub fn question(tier: Tier, name: &str, system: &str, prompt: String, schema: Value) -> Plan {
    let llm = Llm {
        choose: None,
        tier,
        system: Some(Template::literal(system)),
        prompt: Template::literal(prompt),
        schema: Some(Arc::new(Schema::lazy(name, schema, BTreeMap::new()))),
        validate: None,
        retry: 2,
        temperature: None,
        max_tokens: None,
        cache_prompt: false,
        images: Vec::new(),
    };
    let step = Step::plain(name.to_owned(), StepKind::Llm(Box::new(llm)), Origin::default());
    step.alone("routing".to_owned(), String::new(), Phase::Routing)
}
