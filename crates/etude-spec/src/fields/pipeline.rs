//! The fields of pipeline.yaml (protocol sections 3 and 4, X-1 to X-3).

use crate::fields::FieldKind::{
    Any, Bool, Condition, Duration, Either, Entries, Inputs, Integer, List, Literal, Number, Path, Prose, Schema,
    Steps, Template, Text, Word,
};
use crate::fields::{Field, FieldKind, Object};

/// Words for `type`, in the order in which they are listed.
pub const STEP_TYPES: &[&str] =
    &["code", "llm", "parallel", "pipeline", "approval", "skill", "stage", "machine", "application", "tool"];

/// Words for a parameter's type in the short form of `input`.
pub const INPUT_TYPES: &[&str] = &["string", "integer", "number", "boolean", "array", "object"];

/// Words for `model`.
pub const TIERS: &[&str] = &["lite", "standard", "reasoning"];

/// Maximum number of retries in a definition.
pub const MAX_RETRY: i64 = 1_000;

/// A shell, or an option parser, could interpret a value in a command line (ADR 0044).
const INSTEAD_IN_COMMAND: &str =
    "pass it in the environment: `env: {NAME: \"REF\"}`, then `\"$NAME\"` in the command; or read it from stdin";

/// Comparisons have a reference on one side only.
const INSTEAD_IN_COMPARISON: &str = "compare in a code step, and test its output";

/// A validator receives the same values as the prompt.
const INSTEAD_IN_VALIDATOR: &str = "write the path itself; the script reads `input` and `steps` from stdin";

/// Files must be known before a run.
const INSTEAD_IN_PATH: &str = "write the path itself; a code step can choose between files";

const COUNT: FieldKind = Integer(1, 100_000);

/// A whole pipeline.yaml.
pub static PIPELINE: Object = Object {
    name: "a pipeline",
    doc: "A pipeline: steps that run one after the other.",
    fields: &[fields! {
        required "name": Text, "code-review", "The pipeline's name; the same as its directory's.";
        required "description": Prose, "Review a change and report what is wrong",
            "Description; the router compares requests with it.";
        optional "triggers": List(&Prose), "[review this change]", "Example requests that routing compares with.";
        optional "input": Inputs, "{repo: string}",
            "The parameters, as `name: type`, or `name: {…}` with a JSON Schema.";
        required "steps": Steps, "[{name: fetch, type: code, command: bash steps/fetch.sh}]", "The steps, in order.";
        optional "fallback": Word(&["skill"]), "skill",
            "After a deviation the run continues in skill mode instead of failing." => extension "L-67";
        optional "output": Text, "report",
            "The step whose output is the pipeline's; by default the last one."
            => instead "write the name of a step: `output: report`";
    }],
};

/// Fields that identify a step.
const HEAD: &[Field] = fields! {
    required "name": Text, "fetch_diff", "The step's name, unique in the pipeline.";
    required "type": Word(STEP_TYPES), "code", "Type of the step.";
};

/// Fields of every step.
const EVERY_STEP: &[Field] = fields! {
    optional "timeout": Duration, "30s", "Maximum time for the step, including all attempts." => extension "X-1";
    optional "when": Condition, "\"{{checks.output.ok}}\"",
        "The step runs only if this is true; else its output is null." => extension "X-1";
    optional "require": Condition, "{value: \"{{order.output.status}}\", equals: delivered}",
        "Must be true before the step starts; else the run ends as `deviated`." => extension "L-46";
    optional "for_each": Template, "\"{{list.output.files}}\"",
        "An array; the step runs once per element, as `{{item}}` and `{{index}}`." => extension "X-1";
    optional "max_parallel": COUNT, "4",
        "Maximum number of elements at once; for a group without `for_each`, of children (by default all)." => default "1", extension "X-1";
    optional "max_items": Integer(1, 10_000_000), "5000",
        "A longer array is an error before anything runs." => default "1000", extension "X-1";
    optional "on_item_failure": Word(&["stop", "collect"]), "collect",
        "Behaviour after a failed element: the step ends or continues." => default "stop", extension "X-1";
    optional "cache": Either(&CACHE_FORMS), "true",
        "Reuse the output of an earlier run with the same content." => default "false", extension "X-1";
    optional "effects": Bool, "true", "The step changes the outside world." => default "false", extension "X-1";
};

static VALIDATE_FORMS: [FieldKind; 2] = [Path, FieldKind::Object(&VALIDATOR)];

static CACHE_FORMS: [FieldKind; 2] = [Bool, FieldKind::Object(&CACHE)];

static ENV_VALUE: FieldKind = Either(&[Template, FieldKind::Object(&FROM_ENV)]);

static RETRY_FORMS: [FieldKind; 2] = [Integer(0, MAX_RETRY), FieldKind::Object(&RETRY)];

/// A code step (protocol 4.1, X-2).
pub static CODE: Object = Object {
    name: "a code step",
    doc: "Runs a program: JSON on stdin, JSON on stdout.",
    fields: &[
        HEAD,
        fields! {
            required "command": Text, "bash steps/fetch_diff.sh",
                "The command to run in the pipeline's directory." => instead INSTEAD_IN_COMMAND;
            optional "env": Entries(&ENV_VALUE), "{REPO: \"{{input.repo}}\"}",
                "Environment variables for the command: a template, or `{from_env: NAME}`." => extension "X-2";
            optional "schema": Schema, "schemas/fetch_diff.json",
                "JSON Schema that the output must satisfy: a file, or the schema itself."
                => instead INSTEAD_IN_PATH, extension "X-2";
            optional "output": Word(&["json", "text"]), "text",
                "Format of stdout: an object with `output`, or text, whose last line break is removed."
                => default "json", extension "X-2";
            optional "allow_exit": List(&Integer(0, 255)), "[0, 1]",
                "Exit statuses that are results." => default "[0]", extension "X-2";
            optional "retry": Either(&RETRY_FORMS), "2",
                "Retries after a failed attempt." => default "0", extension "X-2";
            optional "worker": Word(&["python", "node"]), "python", "Run in a warm interpreter." => extension "X-2";
            optional "sandbox": FieldKind::Object(&SANDBOX), "{network: false}",
                "Resources that the process can access." => extension "X-2";
        },
        EVERY_STEP,
    ],
};

/// An llm step (protocol 4.2, X-3).
pub static LLM: Object = Object {
    name: "an llm step",
    doc: "Asks a model.",
    fields: &[
        HEAD,
        fields! {
            optional "model": Word(TIERS), "standard",
                "The capability level; the configuration maps it to a model." => default "standard";
            required "prompt": Template, "\"Summarise: {{fetch.output}}\"",
                "The prompt; `{{step.output}}` and `{{input.name}}` are filled in.";
            optional "schema": Schema, "{type: object, required: [title]}",
                "JSON Schema that the answer must satisfy: a file, or the schema itself." => instead INSTEAD_IN_PATH;
            optional "choose": FieldKind::Object(&CHOOSE), "{from: \"{{orders.output}}\", by: order_id}",
                "The answer is an element of a list, which is the output." => extension "L-47";
            optional "validate": Either(&VALIDATE_FORMS), "steps/validate.py",
                "Checks the content of the answer: the path of a script, or `{command: COMMAND}`."
                => instead INSTEAD_IN_VALIDATOR;
            optional "retry": Integer(0, MAX_RETRY), "3",
                "Maximum retries after a rejected response." => default "2";
            optional "system": Template, "You are a careful reviewer.", "System prompt." => extension "X-3";
            optional "temperature": Number(0.0, 2.0), "0.2", "Sampling temperature." => extension "X-3";
            optional "max_tokens": Integer(1, 10_000_000), "2000", "Maximum tokens of a response." => extension "X-3";
            optional "cache_prompt": Bool, "true",
                "Ask the provider to cache the start of the prompt." => default "false", extension "X-3";
            optional "images": List(&Template), "[\"{{shot.output.path}}\"]",
                "Image files to show, as paths." => extension "X-3";
        },
        EVERY_STEP,
    ],
};

/// A parallel group.
pub static PARALLEL: Object = Object {
    name: "a parallel group",
    doc: "Runs several steps at the same time; its output is `{child: output}`.",
    fields: &[
        HEAD,
        fields! {
            required "steps": Steps, "[{name: a, type: code, command: ./a}]",
                "The children. They see the steps before the group, not each other.";
            optional "on_failure": Word(&["stop", "wait"]), "wait",
                "Behaviour after the first failure: the other steps are cancelled or continue." => default "stop";
        },
        EVERY_STEP,
    ],
};

/// A step that runs another pipeline.
pub static SUB_PIPELINE: Object = Object {
    name: "a pipeline step",
    doc: "Runs the steps of another pipeline of this app.",
    fields: &[
        HEAD,
        fields! {
            required "pipeline": Text, "code-review", "The other pipeline's name.";
            optional "input": Entries(&Any), "{repo: \"{{input.repo}}\"}",
                "Its input: a template or a value per parameter.";
        },
        EVERY_STEP,
    ],
};

/// An approval.
pub static APPROVAL: Object = Object {
    name: "an approval step",
    doc: "Waits for a person's decision.",
    fields: &[
        HEAD,
        fields! {
            required "message": Template, "\"Publish {{draft.output.title}}?\"", "The question.";
            optional "schema": Schema, "{type: object}",
                "JSON Schema of a structured answer: a file, or the schema itself.";
            optional "approvers": List(&Text), "[alice, bob]", "Names of the approvers; by default anyone.";
            optional "on_timeout": Word(&["fail", "deny", "approve"]), "deny",
                "Result after `timeout` without a decision." => default "fail";
            optional "on_deny": Word(&["fail", "continue"]), "continue",
                "Behaviour after a denial: the step fails or succeeds." => default "fail";
        },
        EVERY_STEP,
    ],
};

/// A step that follows a skill.
pub static SKILL: Object = Object {
    name: "a skill step",
    doc: "Follows a skill with a model that calls tools.",
    fields: &[
        HEAD,
        fields! {
            required "skill": Text, "release-notes", "The skill: a folder of `skills/` with a SKILL.md.";
            required "request": Template, "\"Write notes for {{input.tag}}\"", "The task.";
            optional "model": Word(TIERS), "reasoning", "Capability level." => default "standard";
            optional "schema": Schema, "schemas/notes.json",
                "JSON Schema of the answer, an object: a file, or the schema itself.";
            optional "allowed_tools": List(&Text), "[Read, \"Bash(git log *)\"]",
                "Tools that it can call; by default those of the skill.";
            optional "max_turns": Integer(1, 10_000), "20", "Maximum responses of the model." => default "50";
        },
        EVERY_STEP,
    ],
};

/// A step that runs a command of an Agent Application.
pub static APPLICATION: Object = Object {
    name: "an application step",
    doc: "Runs a declared command of an Agent Application.",
    fields: &[
        HEAD,
        fields! {
            required "application": Text, "tool-shed", "The application, by its slug.";
            required "command": Text, "\"box list\"",
                "The declared command." => instead "pass it as an argument: `args: [\"REF\"]`";
            optional "args": List(&Template), "[\"--tag\", \"{{input.tag}}\"]",
                "Its arguments; each entry is passed as one argument.";
        },
        EVERY_STEP,
    ],
};

/// A step that calls a tool (L-43).
pub static TOOL: Object = Object {
    name: "a tool step",
    doc: "Calls a tool as an agent would: the same tools, checks and approvals.",
    fields: &[
        HEAD,
        fields! {
            required "tool": Text, "get_order",
                "The tool: one of `tools/`, a built-in one, or `mcp__SERVER__TOOL`."
                => instead "pass it as an argument: `args: {NAME: \"REF\"}`";
            optional "args": Entries(&Any), "{order_id: \"{{input.order_id}}\"}",
                "Its arguments: a template or a value each.";
        },
        EVERY_STEP,
    ],
};

/// A stage that runs alone.
pub static STAGE: Object = Object {
    name: "a stage step",
    doc: "Runs one stage: a model works until it submits the result of the stage.",
    fields: &[
        HEAD,
        fields! {
            required "stage": Path, "stages/plan.md", "The stage file.";
            optional "input": Entries(&Any), "{task: \"{{input.task}}\"}", "Its context: `{{ctx.task}}`.";
        },
        EVERY_STEP,
    ],
};

/// A stage machine.
pub static MACHINE: Object = Object {
    name: "a machine step",
    doc: "Runs the stages of a machine of this app.",
    fields: &[
        HEAD,
        fields! {
            required "machine": Text, "doc-update", "The machine's id.";
            optional "input": Entries(&Any), "{task: \"{{input.task}}\"}", "Its input.";
        },
        EVERY_STEP,
    ],
};

/// A variable of `env` that takes its value from etude's environment.
pub static FROM_ENV: Object = Object {
    name: "a variable from the environment",
    doc: "The value of a variable of etude's own environment.",
    fields: &[fields! {
        required "from_env": Text, "OPENAI_API_KEY",
            "The variable in etude's environment with the value. The run ends as `environment` if it is not set."
            => extension "X-2";
    }],
};

/// A closed question (L-47).
pub static CHOOSE: Object = Object {
    name: "a choice",
    doc: "The list from which a model chooses.",
    fields: &[fields! {
        required "from": Template, "\"{{orders.output}}\"", "The list; exactly one reference.";
        optional "by": Text, "order_id", "The field whose values are the answers; a list of scalars has none.";
        optional "many": Bool, "true", "The output is a list of elements." => default "false";
        optional "always": Bool, "true", "Call the model for a list of one element, too." => default "false";
    }],
};

/// The long form of `cache`.
pub static CACHE: Object = Object {
    name: "a cache setting",
    doc: "Conditions for reusing an earlier output.",
    fields: &[fields! {
        optional "ttl": Duration, "24h", "Maximum age of an output; by default any age.";
        optional "key": Template, "\"{{input.repo}}\"", "Values that the output depends on, instead of the whole input.";
    }],
};

/// The long form of `retry` in code steps.
pub static RETRY: Object = Object {
    name: "a retry setting",
    doc: "Conditions and limits of retries.",
    fields: &[fields! {
        required "max": Integer(0, MAX_RETRY), "3", "Maximum retries after the first attempt.";
        optional "backoff": Duration, "500ms", "Wait before the first retry." => default "1s";
        optional "factor": Number(1.0, 100.0), "2", "The wait grows by this factor with every retry." => default "2";
        optional "max_backoff": Duration, "1m", "Maximum wait." => default "30s";
        optional "jitter": Bool, "false", "Vary each wait a little." => default "true";
        optional "on": List(&Either(&[Integer(1, 255), Word(&["timeout", "signal"])])), "[75, signal]",
            "Exit statuses that are retried, and `signal`; by default all. `timeout` has no effect, because it covers all attempts.";
    }],
};

/// The long form of `validate`.
pub static VALIDATOR: Object = Object {
    name: "a validator",
    doc: "The check of the content of a response.",
    fields: &[fields! {
        required "command": Text, "python3 steps/check.py --strict",
            "The command to run in the pipeline's directory, as in a code step."
            => instead "the command reads `input` and `steps` from stdin", extension "X-3";
    }],
};

/// `sandbox`.
pub static SANDBOX: Object = Object {
    name: "a sandbox setting",
    doc: "Resources that the process can access.",
    fields: &[fields! {
        optional "network": Bool, "false", "True to permit network access.";
        optional "read": List(&Template), "[data]", "Readable paths, relative to the pipeline's directory; `~/` is home.";
        optional "write": List(&Template), "[out]", "Readable and writable paths.";
    }],
};

/// Fields that the long form of a parameter adds to its JSON Schema.
pub static PARAMETER: Object = Object {
    name: "a parameter",
    doc: "A parameter: a JSON Schema plus `required` and `default`.",
    fields: &[fields! {
        optional "required": Bool, "false",
            "True if the parameter is required; by default true without `default`." => extension "A-2.4";
        optional "default": Literal, "low", "The value if the input omits the parameter." => extension "A-2.4";
    }],
};

/// The right side of `in`; a template is allowed in `require` only.
static LIST_FORMS: [FieldKind; 2] = [List(&Literal), Template];

/// Conditions other than a template: exactly one comparison, or one of the combinations.
pub static COMPARISON: Object = Object {
    name: "a condition",
    doc: "A comparison of a value with a constant.",
    fields: &[fields! {
        optional "value": Template, "\"{{a.output.n}}\"", "The value that is compared.";
        optional "equals": Literal, "3", "The same JSON value." => instead INSTEAD_IN_COMPARISON;
        optional "not_equals": Literal, "3", "Another JSON value." => instead INSTEAD_IN_COMPARISON;
        optional "in": Either(&LIST_FORMS), "[a, b]", "One of these." => instead INSTEAD_IN_COMPARISON;
        optional "not_in": Either(&LIST_FORMS), "[a, b]", "None of these." => instead INSTEAD_IN_COMPARISON;
        optional "exists": Bool, "true", "There is such a value.";
        optional "matches": Text, "\"^v[0-9]+$\"",
            "A regular expression that is found in it." => instead INSTEAD_IN_COMPARISON;
        optional "gt": Literal, "3", "Greater than this." => instead INSTEAD_IN_COMPARISON;
        optional "gte": Literal, "3", "At least this." => instead INSTEAD_IN_COMPARISON;
        optional "lt": Literal, "3", "Less than this." => instead INSTEAD_IN_COMPARISON;
        optional "lte": Literal, "3", "At most this." => instead INSTEAD_IN_COMPARISON;
        optional "any": List(&Condition), "[\"{{a.output}}\", \"{{b.output}}\"]",
            "At least one of these conditions holds.";
        optional "not": Condition, "\"{{a.output}}\"", "This condition does not hold.";
    }],
};

/// The table for a word of `type`.
pub fn step(word: &str) -> Option<&'static Object> {
    Some(match word {
        "code" => &CODE,
        "llm" => &LLM,
        "parallel" => &PARALLEL,
        "pipeline" => &SUB_PIPELINE,
        "approval" => &APPROVAL,
        "skill" => &SKILL,
        "application" => &APPLICATION,
        "tool" => &TOOL,
        "stage" => &STAGE,
        "machine" => &MACHINE,
        _ => return None,
    })
}

/// The tables of all step types that this version has.
pub fn steps() -> impl Iterator<Item = (&'static str, &'static Object)> {
    STEP_TYPES.iter().filter_map(|word| Some((*word, step(word)?)))
}
