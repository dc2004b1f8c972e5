//! Lines for people. A closed pipe ends nothing: Java's `System.out` goes on as well.

use std::io::{Write, stderr, stdout};

/// Prints a line to standard output.
pub(crate) fn say(text: &str) {
    // Nobody can be told that nobody listens.
    let _ = writeln!(stdout(), "{text}");
}

/// Prints a line to standard error.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(stderr(), "{text}"); // As above.
}

/// A tool has said why it ends; this is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halt(pub(crate) u8);

/// Prints to standard error and ends with 1.
pub(crate) fn halt<T>(text: &str) -> Result<T, Halt> {
    complain(text);
    Err(Halt(1))
}

/// Prints to standard output, without an end of line.
pub(crate) fn put(text: &str) {
    let _ = write!(stdout(), "{text}"); // As above.
    let _ = stdout().flush(); // As above.
}

/// An error and its sources, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}
