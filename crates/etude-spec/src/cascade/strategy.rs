//! Choices that the reference leaves open, with names (`d-cascade`, its last paragraph).
//!
//! The first variant of each enum follows the reference's inference, and [`Strategy::default`] takes it. The tests that
//! pin a choice name it; `docs/spec/d-cascade.md` lists both.

/// All choices together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strategy {
    /// Value of `${path}` if the path leads nowhere (D-5).
    pub undefined_interpolation: UndefinedInterpolation,
    /// Condition for the text after `:-` (D-5).
    pub empty_fallback: EmptyFallback,
    /// Levels of a skill without `$inherit` (D-4.3).
    pub missing_inherit: MissingInherit,
    /// Levels for which a key is private (D-4.5).
    pub private_scope: PrivateScope,
    /// Time at which `$remove` removes a key (D-4.7).
    pub remove_timing: RemoveTiming,
    /// Order of entries that no `$order` orders (D-6.3).
    pub tie_break: TieBreak,
    /// Precedence of a denial (D-3.1, D-10).
    pub deny_precedence: DenyPrecedence,
    /// Handling of a call that needs approval without a person to ask (D-13).
    pub trust_no_gateway: TrustNoGateway,
    /// Arguments of a chain entry (D-7.2).
    pub entry_arguments: EntryArguments,
    /// State of a chain after a swallowed throw (D-7.5).
    pub swallowed_throw: SwallowedThrow,
    /// Events that the tools of `$hook` receive (D-4.7).
    pub hooks: Hooks,
    /// Meaning of `$resolve` in a schema (D-3.3).
    pub schema_resolution: SchemaResolution,
    /// Value of `:eval[…]` (D-11).
    pub evaluation: Evaluation,
    /// Handling of a delivered event without an acknowledgement (D-15).
    pub unacknowledged: Unacknowledged,
}

/// Value of `${path}` if the path leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UndefinedInterpolation {
    /// Null if the expression is the whole text, empty inside a longer one.
    #[default]
    NullOrEmpty,
    /// The expression as written.
    Literal,
}

/// Condition for the text after `:-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EmptyFallback {
    /// The value is missing, null, or an empty text.
    #[default]
    NullAndEmpty,
    /// The value is missing.
    UndefinedOnly,
}

/// Levels of a skill without `$inherit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingInherit {
    /// Its authority, then `default`.
    #[default]
    Authority,
    /// `default` alone.
    DefaultOnly,
}

/// Levels for which a key is private.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrivateScope {
    /// The declaring level and every level between it and the tool.
    #[default]
    Cumulative,
    /// The declaring level alone: nearer levels treat the key like any other.
    DeclaringLevel,
}

/// Time at which `$remove` removes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RemoveTiming {
    /// At the level with `$remove`: a nearer level may bring the key back.
    #[default]
    AtLevel,
    /// At the end: the key is removed from every declaration.
    AtEnd,
}

/// Order of entries that no `$order` orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TieBreak {
    /// The entry that was free to run first.
    #[default]
    Fifo,
    /// The entry that was declared first.
    Declaration,
}

/// Precedence of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DenyPrecedence {
    /// A denial wins, wherever it stands.
    #[default]
    DenyWins,
    /// The first matching pattern decides.
    FirstMatch,
}

/// Handling of a call that needs approval without a person to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrustNoGateway {
    /// The call is refused, as if a person had denied it.
    #[default]
    Refuse,
    /// The call is made.
    Pass,
}

/// Arguments of a chain entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntryArguments {
    /// No arguments: the entry reads its value from the target's merged metadata.
    #[default]
    None,
    /// The value of its key.
    Value,
}

/// State of a chain after a swallowed throw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SwallowedThrow {
    /// The chain ends: its remaining entries do not run.
    #[default]
    Ends,
    /// The chain continues with the entry after the one that threw.
    GoesOn,
}

/// Events that the tools of `$hook` receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hooks {
    /// Every entry of the chain: before it, and after it or its throw.
    #[default]
    Entries,
    /// No event of the chain.
    Nothing,
}

/// Meaning of `{"$resolve": NAME}` in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaResolution {
    /// It stands for the result of that tool when the middleware of the schema runs.
    #[default]
    Invoke,
    /// It is a keyword that no validator knows.
    Literal,
}

/// Value of `:eval[…]` in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Evaluation {
    /// The directive as written, since expressions are not evaluated here.
    #[default]
    Off,
    /// Same as `${…}`: a path of the context, with a fallback text.
    Path,
}

/// Handling of an event that was delivered with `ack: false` and not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unacknowledged {
    /// The event is kept for `event-ack`, whose `nack` puts it back to the front of its queue.
    #[default]
    Kept,
    /// The event is lost.
    Dropped,
}
