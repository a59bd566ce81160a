//! Output on stderr, which is for people: everything passes through here, so that no text controls the terminal.

use std::fmt::Arguments;
use std::io::Write as _;

use super::commands;
use super::text::screened;

/// Prints a line on stderr.
macro_rules! say {
    ($($words:tt)*) => { $crate::render::screen::line(::std::format_args!($($words)*)) };
}

/// Prints on stderr, without a line break after it.
macro_rules! say_part {
    ($($words:tt)*) => { $crate::render::screen::part(::std::format_args!($($words)*)) };
}

/// Prints a hint on stderr. Its commands repeat the options of this command line.
macro_rules! say_hint {
    ($($words:tt)*) => { $crate::render::screen::hint(::std::format_args!($($words)*)) };
}

pub(crate) use {say, say_hint, say_part};

/// Prints a line with etude's own colours.
pub(crate) fn line(words: Arguments<'_>) {
    put(format!("{}\n", screened(&words.to_string())));
}

/// Prints a line that begins with the word of hints.
pub(crate) fn hint(words: Arguments<'_>) {
    line(format_args!("hint: {}", commands::complete(&words.to_string())));
}

/// Prints text with etude's own colours.
pub(crate) fn part(words: Arguments<'_>) {
    put(screened(&words.to_string()));
}

/// Writes the text in one call: a step may print a million lines, and stderr is unbuffered.
fn put(text: String) {
    let mut stderr = std::io::stderr().lock();
    let text = match anstream::AutoStream::choice(&stderr) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
        _ => text,
    };
    // A closed stderr means that the user wants no messages, and there is no other recipient.
    let _ = stderr.write_all(text.as_bytes());
}
