//! The world of a run: the result and the time of each effect. Both depend only on the seed, on the effect's id and on its
//! request, so the model and the interpreter live in the same world independently.

use serde_json::{Value, json};

/// A moment of a run, or a duration, in nanoseconds. No two effects end at the same moment.
pub(crate) type Time = u64;

/// One millisecond.
pub(crate) const MS: Time = 1_000_000;

/// A request to the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Process {
        command: String,
        dir: String,
        env: Vec<(String, String)>,
        /// The idempotency key.
        key: String,
        stdin: String,
        /// Reader of its stdout: `step`, `text` or `document`.
        reads: &'static str,
    },
    Model {
        prompt: String,
        /// Later messages, one per line: `assistant: TEXT`, and `user` for a correction.
        turns: Vec<String>,
        schema: Option<Value>,
    },
    Gate {
        message: String,
    },
    Timer {
        ms: u64,
    },
}

/// The result of an effect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ended {
    /// A process exited; `printed` is its output, if the reader accepts it.
    Exit { status: i32, printed: Option<Value> },
    /// A signal ended the process.
    Signal,
    /// The process could not be started.
    NotStarted,
    /// A model responded; `means` is the JSON in the text, if there is any.
    Answer { text: String, means: Option<Value> },
    /// A model refused.
    Refusal,
    /// A completion was cut off.
    Cut,
    /// A model could not be called.
    NoAnswer,
    /// A person decided.
    Decided { approved: bool },
    /// The time of a timer passed.
    TimeUp,
    /// The effect was abandoned.
    GivenUp,
}

/// A seeded source of results and times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct World {
    pub(crate) seed: u64,
    /// Percentage of effects that end badly.
    pub(crate) trouble: u64,
}

impl World {
    /// A pseudorandom number from the seed, an id and a purpose.
    fn number(self, id: &str, purpose: &str) -> u64 {
        let mut hash = self.seed ^ 0xcbf2_9ce4_8422_2325;
        for byte in id.bytes().chain([0]).chain(purpose.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // All bytes must have the same influence.
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }

    fn pick<T: Clone>(self, id: &str, of: &[T]) -> T {
        of[self.number(id, "which") as usize % of.len()].clone()
    }

    /// Duration of an effect that is not abandoned.
    pub(crate) fn duration(self, id: &str, asked: &Asked) -> Time {
        let within = |first: Time, last: Time| first * MS + self.number(id, "duration") % ((last - first) * MS);
        match asked {
            Asked::Process { .. } => within(1, 100),
            Asked::Model { .. } => within(10, 200),
            // Some gates stay unanswered for a long time.
            Asked::Gate { .. } if self.number(id, "patience").is_multiple_of(4) => within(100_000, 200_000),
            Asked::Gate { .. } => within(10, 300),
            // A timer is never early, and slightly late.
            Asked::Timer { ms } => within(*ms, ms + 1),
        }
    }

    /// Time from the abandonment of an effect until everything that it has started is gone.
    pub(crate) fn grace(self, id: &str, asked: &Asked) -> Time {
        match asked {
            Asked::Process { .. } | Asked::Model { .. } => MS + self.number(id, "grace") % (40 * MS),
            Asked::Gate { .. } | Asked::Timer { .. } => 0,
        }
    }

    /// The result of an effect that is not abandoned.
    pub(crate) fn end(self, id: &str, asked: &Asked) -> Ended {
        let is_trouble = self.number(id, "trouble") % 100 < self.trouble;
        match asked {
            Asked::Process { reads: "document", .. } => self.verdict(id, is_trouble),
            Asked::Process { command, .. } => self.output(id, command, is_trouble),
            Asked::Model { schema: None, .. } => self.text(id, is_trouble),
            Asked::Model { schema: Some(schema), .. } => match schema.pointer("/properties/n") {
                Some(_) => self.object(id, is_trouble),
                None => self.choice(id, schema, is_trouble),
            },
            Asked::Gate { .. } => Ended::Decided { approved: self.number(id, "mind") % 100 >= self.trouble * 2 },
            Asked::Timer { .. } => Ended::TimeUp,
        }
    }

    fn output(self, id: &str, command: &str, is_trouble: bool) -> Ended {
        if is_trouble {
            let exit = |status| Ended::Exit { status, printed: None };
            return self.pick(
                id,
                &[
                    exit(1),
                    exit(75),
                    Ended::Exit { status: 1, printed: Some(json!("1")) },
                    Ended::Signal,
                    Ended::Signal,
                    Ended::NotStarted,
                    exit(0),
                ],
            );
        }
        let values = match command.split(' ').nth(1) {
            Some("list") => vec![
                json!([1, 2, 3]),
                json!([{"k": 1, "items": [1, {"k": 2}]}, {"k": "x"}]),
                json!([]),
                json!([true, null, "é"]),
                json!([[1], [2, 3]]),
                json!({"k": []}),
            ],
            Some("object") => vec![
                json!({"k": 1, "items": [{"k": 1}, {"k": 2}]}),
                json!({"k": null, "items": []}),
                json!({"k": {"k": "deep"}}),
                json!({}),
            ],
            Some("integer") => vec![json!(0), json!(7), json!(12345678901234567_u64), json!("7"), json!(1.5)],
            Some("words") => {
                vec![json!(["a", "b"]), json!(["a", "b", "c"]), json!(["a"]), json!([]), json!(["a", "a"])]
            }
            Some("records") => vec![
                json!([{"k": "a", "n": 1}, {"k": "b", "n": 2}]),
                json!([{"k": 1}, {"k": "b"}, {"k": true}]),
                json!([{"k": "a", "n": 1}]),
                json!([{"k": "a", "n": 1}, {"k": "a", "n": 2}]),
                json!([{"n": 1}, {"k": "a"}]),
                json!({"k": "a"}),
            ],
            Some("text") => vec![json!("one line"), json!(""), json!("{{input.n}} \"quoted\"\n")],
            _ => vec![json!(null), json!(true), json!(false), json!(0), json!("x"), json!(""), json!(-2.5), json!([0])],
        };
        // Exit status 3 is a result for steps that allow it.
        let status = if self.number(id, "status").is_multiple_of(8) { 3 } else { 0 };
        Ended::Exit { status, printed: Some(self.pick(id, &values)) }
    }

    fn verdict(self, id: &str, is_trouble: bool) -> Ended {
        let exit = |status, printed| Ended::Exit { status, printed };
        if !is_trouble {
            return exit(0, Some(json!({"valid": true})));
        }
        self.pick(
            id,
            &[
                exit(1, Some(json!({"valid": false, "errors": ["too small"]}))),
                exit(0, Some(json!({"valid": false, "errors": ["too small", "too plain"]}))),
                exit(1, Some(json!({"valid": false}))),
                exit(1, None),
                exit(0, None),
                exit(1, Some(json!({"valid": true}))),
                Ended::Signal,
            ],
        )
    }

    fn text(self, id: &str, is_trouble: bool) -> Ended {
        let text = |text: &str| Ended::Answer { text: text.to_owned(), means: None };
        match is_trouble {
            true => self.pick(id, &[text(""), text(" \n"), Ended::Refusal, Ended::Cut, Ended::NoAnswer]),
            false => self.pick(id, &[text("Well."), text("{{input.n}}"), text("{\"n\": 1}"), text("a\nb")]),
        }
    }

    fn object(self, id: &str, is_trouble: bool) -> Ended {
        let says = |text: &str, means: Value| Ended::Answer { text: text.to_owned(), means: Some(means) };
        let babbles = |text: &str| Ended::Answer { text: text.to_owned(), means: None };
        match is_trouble {
            true => self.pick(
                id,
                &[
                    says("{\"n\": \"one\"}", json!({"n": "one"})),
                    says("{}", json!({})),
                    babbles("I cannot count."),
                    babbles(""),
                    Ended::Refusal,
                    Ended::Cut,
                    Ended::NoAnswer,
                ],
            ),
            false => self.pick(
                id,
                &[
                    says("{\"n\": 1}", json!({"n": 1})),
                    says("Sure: {\"n\": 2, \"m\": []}", json!({"n": 2, "m": []})),
                    says("```json\n{\"n\": 3}\n```\n", json!({"n": 3})),
                    says("Is it {\"n\": 4}? No: {\"n\": 5}", json!({"n": 5})),
                ],
            ),
        }
    }

    /// An answer from the list of each question's schema, or several if the schema allows them.
    fn choice(self, id: &str, schema: &Value, is_trouble: bool) -> Ended {
        let questions = schema["properties"].as_object().expect("an object with a member per question");
        // Of several questions, one is in trouble.
        let troubled = self.number(id, "troubled") as usize % questions.len();
        let answer = |(at, (name, question)): (usize, (&String, &Value))| {
            let (id, is_trouble) = (format!("{id} {name}"), is_trouble && at == troubled);
            let answers = |of: &Value| of["enum"].as_array().expect("a list of answers").clone();
            let answer = match (question.get("items"), is_trouble) {
                (None, true) => self.pick(&id, &[json!("none"), json!("neither"), json!(null), json!([])]),
                (None, false) => self.pick(&id, &answers(question)),
                (Some(_), true) => self.pick(&id, &[json!([]), json!(["none"]), json!(["neither"]), json!("a")]),
                (Some(items), false) => {
                    let answers = answers(items);
                    let (first, second) = (self.pick(&id, &answers), self.pick(&format!("{id} more"), &answers));
                    self.pick(&format!("{id} both"), &[json!([first]), json!([second, first])])
                }
            };
            (name.clone(), answer)
        };
        let means: Value = questions.iter().enumerate().map(answer).collect::<serde_json::Map<_, _>>().into();
        Ended::Answer { text: means.to_string(), means: Some(means) }
    }
}
