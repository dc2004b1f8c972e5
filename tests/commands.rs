//! The commands of `bin/` as a program of this package, which is where integration tests find programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    ExitCode::from(tools::run(&arguments))
}
