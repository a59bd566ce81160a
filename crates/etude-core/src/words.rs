//! Closed sets of words: enums whose values are written as words in documents and definitions.

/// Declares an enum with a word for each value, and `ALL`, `word` and `from_word` for it:
///
/// ```
/// etude_core::words! {
///     /// A direction.
///     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
///     pub enum Direction {
///         /// Away from here.
///         Out = "out",
///         /// Towards here.
///         In = "in",
///     }
/// }
/// assert_eq!(Direction::from_word("in").map(Direction::word), Some("in"));
/// ```
#[macro_export]
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$doc:meta])* $value:ident = $word:literal,)+
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $name {
            $($(#[$doc])* $value,)+
        }

        #[allow(dead_code, unreachable_pub, reason = "not every set is read, and not every set is public")]
        impl $name {
            /// Every value, in order.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            /// The word for the value in documents.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }

            /// The value of a word; `None` if there is none.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.word() == word)
            }
        }
    };
}
