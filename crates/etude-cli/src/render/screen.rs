//! stderr is for people: everything that goes there goes through here, and steers nobody's terminal.

use std::fmt::Arguments;

use super::text::screened;

/// Prints a line on stderr.
macro_rules! say {
    ($($words:tt)*) => { $crate::render::screen::line(::std::format_args!($($words)*)) };
}

/// Prints on stderr, without a line break after it.
macro_rules! say_part {
    ($($words:tt)*) => { $crate::render::screen::part(::std::format_args!($($words)*)) };
}

pub(crate) use {say, say_part};

/// A line of text with our own colours.
pub(crate) fn line(words: Arguments<'_>) {
    anstream::eprintln!("{}", screened(&words.to_string()));
}

/// Text with our own colours.
pub(crate) fn part(words: Arguments<'_>) {
    anstream::eprint!("{}", screened(&words.to_string()));
}
