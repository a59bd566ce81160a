//! stderr is for people: everything that goes there goes through here, and steers no one's terminal.

use std::fmt::Arguments;
use std::io::Write as _;

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
    put(format!("{}\n", screened(&words.to_string())));
}

/// Text with our own colours.
pub(crate) fn part(words: Arguments<'_>) {
    put(screened(&words.to_string()));
}

/// Writes it at once: a step may print a million lines, and stderr has no buffer.
fn put(text: String) {
    let mut stderr = std::io::stderr().lock();
    let text = match anstream::AutoStream::choice(&stderr) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
        _ => text,
    };
    // Anyone who has closed our stderr needs no message, and there is no one else to notify.
    let _ = stderr.write_all(text.as_bytes());
}
