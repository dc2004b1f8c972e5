//! The one binary: every command of `bin/`, and starting the servers.

fn main() {}
