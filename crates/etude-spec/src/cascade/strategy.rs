//! What the reference leaves open, as choices with names (`d-cascade`, its last paragraph).
//!
//! The first variant of each enum is what the reference infers and what [`Strategy::default`] takes. The tests that pin
//! a choice name it; `docs/spec/d-cascade.md` lists both.

/// All choices together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strategy {
    /// What `${path}` gives when there is nothing (D-5).
    pub undefined_interpolation: UndefinedInterpolation,
    /// When the text after `:-` is taken (D-5).
    pub empty_fallback: EmptyFallback,
    /// What a skill without `$inherit` inherits (D-4.3).
    pub missing_inherit: MissingInherit,
    /// For which levels a key is private (D-4.5).
    pub private_scope: PrivateScope,
    /// When `$remove` takes a key away (D-4.7).
    pub remove_timing: RemoveTiming,
    /// What comes first among entries that nothing orders (D-6.3).
    pub tie_break: TieBreak,
    /// What a denial is worth (D-3.1, D-10).
    pub deny_precedence: DenyPrecedence,
    /// What becomes of a call that somebody must allow when there is no one (D-13).
    pub trust_no_gateway: TrustNoGateway,
    /// What a chain entry is called with (D-7.2).
    pub entry_arguments: EntryArguments,
    /// What a swallowed throw leaves behind (D-7.5).
    pub swallowed_throw: SwallowedThrow,
    /// What the tools of `$hook` receive (D-4.7).
    pub hooks: Hooks,
    /// What `$resolve` in a schema does (D-3.3).
    pub schema_resolution: SchemaResolution,
    /// What `:eval[…]` gives (D-11).
    pub evaluation: Evaluation,
    /// What becomes of an event that was handed out and not acknowledged (D-15).
    pub unacknowledged: Unacknowledged,
}

/// What `${path}` gives when there is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UndefinedInterpolation {
    /// Null if the expression is the whole text, nothing inside a longer one.
    #[default]
    NullOrEmpty,
    /// The expression as it was written.
    Literal,
}

/// When the text after `:-` is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EmptyFallback {
    /// When there is nothing, null, or an empty text.
    #[default]
    NullAndEmpty,
    /// Only when there is nothing.
    UndefinedOnly,
}

/// What a skill without `$inherit` inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingInherit {
    /// Its authority, then `default`.
    #[default]
    Authority,
    /// `default` alone.
    DefaultOnly,
}

/// For which levels a key is private.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrivateScope {
    /// For the level that declares it and every level between that and the tool.
    #[default]
    Cumulative,
    /// For the level that declares it alone: nearer levels have the key as any other.
    DeclaringLevel,
}

/// When `$remove` takes a key away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RemoveTiming {
    /// At the level that says so: a nearer level may bring the key back.
    #[default]
    AtLevel,
    /// At the end: it is gone in every declaration.
    AtEnd,
}

/// What comes first among entries that nothing orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TieBreak {
    /// What was free to run first.
    #[default]
    Fifo,
    /// The entry that was declared first.
    Declaration,
}

/// What a denial is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DenyPrecedence {
    /// It wins, wherever it stands.
    #[default]
    DenyWins,
    /// The first pattern that holds decides.
    FirstMatch,
}

/// What becomes of a call that somebody must allow when there is no one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrustNoGateway {
    /// The call is refused, as if a person had denied it.
    #[default]
    Refuse,
    /// The call is made.
    Pass,
}

/// What a chain entry is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntryArguments {
    /// Nothing: it reads its value from the target's merged metadata.
    #[default]
    None,
    /// The value of its key.
    Value,
}

/// What a swallowed throw leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SwallowedThrow {
    /// A chain at its end: what was taken from it does not run.
    #[default]
    Ends,
    /// A chain that goes on with the entry after the one that threw.
    GoesOn,
}

/// What the tools of `$hook` receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hooks {
    /// Every entry of the chain: before it, and after it or of its throw.
    #[default]
    Entries,
    /// No event of the chain.
    Nothing,
}

/// What `{"$resolve": NAME}` in a schema does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaResolution {
    /// It stands for what the tool of that name gives when the stage of the schema runs.
    #[default]
    Invoke,
    /// Nothing: it is a keyword that no validator knows.
    Literal,
}

/// What `:eval[…]` in a prompt gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Evaluation {
    /// Nothing: it stays as it is written, since nothing evaluates expressions here.
    #[default]
    Off,
    /// What `${…}` would: a path of the context, with a text to fall back to.
    Path,
}

/// What becomes of an event that was handed out with `ack: false` and was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unacknowledged {
    /// It is kept for `event-ack`, whose `nack` puts it back to the front of its queue.
    #[default]
    Kept,
    /// It is gone.
    Dropped,
}
