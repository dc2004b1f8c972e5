//! `kafka-server-start.sh`: the broker in the foreground. Source: `kafka.Kafka`.

use std::{collections::BTreeMap, path::Path};

use common::properties::parse_override;
use server::{logging::Options, run};

use crate::{
    VERSION,
    console::{Halt, complain},
};

const USAGE: &str = "USAGE: java [options] kafka.Kafka server.properties [--override property=value]*\n\
Option               Description\n\
------               -----------\n\
--override <String>  Sets a property over that of server.properties\n\
--version            Print version information and exit.";

/// Runs the broker of the properties until a signal or a fault ends it.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    let has = |option: &str| words.iter().any(|word| word == option);
    let Some(file) = words.first() else { return usage("") };
    if has("--help") {
        return usage("");
    }
    if has("--version") {
        println!("{VERSION}");
        return Ok(());
    }
    let mut overrides = BTreeMap::new();
    let mut rest = words[1..].iter();
    let mut strays = Vec::new();
    while let Some(word) = rest.next() {
        let given = match word.strip_prefix("--override") {
            Some("") => rest.next().map(String::as_str),
            Some(value) => value.strip_prefix('='),
            None if word.starts_with('-') && word.len() > 1 => {
                let name = word.trim_start_matches('-');
                return usage(&format!("{name} is not a recognized option"));
            }
            None => {
                strays.push(word.as_str());
                continue;
            }
        };
        let Some(given) = given else { return usage("Option override requires an argument") };
        let (key, value) = parse_override(given);
        overrides.insert(key, value);
    }
    if !strays.is_empty() {
        return usage(&format!("Found non argument parameters: {}", strays.join(",")));
    }
    let variable = |name: &str| std::env::var(name).ok();
    let options = Options::from_environment(Path::new("."), "log4j.properties", &variable);
    match run::run(Path::new(file), &overrides, &options) {
        0 => Ok(()),
        code => Err(Halt(code)),
    }
}

fn usage(problem: &str) -> Result<(), Halt> {
    if !problem.is_empty() {
        complain(problem);
    }
    complain(USAGE);
    Err(Halt(1))
}
