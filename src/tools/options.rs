//! Options as Kafka's scripts take them.
//!
//! Kafka reads them with joptsimple: a single dash before a long name, values that begin with a dash, and checks of a
//! value only where it is used. `clap` takes `-group` for a cluster of letters, so this small reader stands in its place.
//! Unlike Kafka's, it accepts unambiguous abbreviations everywhere.

use std::collections::HashMap;

use crate::{
    VERSION,
    console::{Halt, complain, halt, say},
};

/// One option of a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionSpec {
    name: &'static str,
    argument: Argument,
    kind: Kind,
    /// What the value is, in the usage text.
    label: &'static str,
    default: Option<&'static str>,
    /// The option must be given unless this one is.
    required_unless: Option<&'static str>,
    help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument {
    None,
    Required,
    Optional,
}

/// Type of a value; `Debug` gives Java's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    String,
    Integer,
    Long,
}

/// An option without a value.
pub(crate) const fn flag(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec {
        name,
        argument: Argument::None,
        kind: Kind::String,
        label: "",
        default: None,
        required_unless: None,
        help,
    }
}

/// An option with a text.
pub(crate) const fn value(
    name: &'static str,
    label: &'static str,
    help: &'static str,
) -> OptionSpec {
    OptionSpec { argument: Argument::Required, label, ..flag(name, help) }
}

impl OptionSpec {
    /// The value is a 32-bit number.
    pub(crate) const fn integer(self) -> OptionSpec {
        OptionSpec { kind: Kind::Integer, ..self }
    }

    /// The value is a 64-bit number.
    pub(crate) const fn long(self) -> OptionSpec {
        OptionSpec { kind: Kind::Long, ..self }
    }

    /// The value may be left out.
    pub(crate) const fn optional(self) -> OptionSpec {
        OptionSpec { argument: Argument::Optional, ..self }
    }

    /// The value when the option is not given.
    pub(crate) const fn default(self, default: &'static str) -> OptionSpec {
        OptionSpec { default: Some(default), ..self }
    }

    /// The option must be given unless the other one is.
    pub(crate) const fn required_unless(self, other: &'static str) -> OptionSpec {
        OptionSpec { required_unless: Some(other), ..self }
    }
}

const HELP: OptionSpec = flag("help", "Show this text.");
const VERSION_OPTION: OptionSpec = flag("version", "Show the version.");

/// Options that were given, with their values in order.
#[derive(Debug)]
pub(crate) struct Options {
    specs: Vec<OptionSpec>,
    /// A flag has no values; an optional value that was left out is `None`.
    given: HashMap<&'static str, Vec<Option<String>>>,
    /// Names of the options given, in the order in which they were first.
    pub(crate) names: Vec<&'static str>,
    count: usize,
    /// Words that are no options.
    pub(crate) rest: Vec<String>,
}

impl Options {
    /// Reads the words. The error is joptsimple's text.
    pub(crate) fn parse(specs: &[OptionSpec], words: &[String]) -> Result<Options, String> {
        let mut specs = specs.to_vec();
        specs.extend([HELP, VERSION_OPTION]);
        specs.sort_by_key(|spec| spec.name);
        let mut options = Options {
            specs,
            given: HashMap::new(),
            names: Vec::new(),
            count: words.len(),
            rest: Vec::new(),
        };
        options.read(words)?;
        options.check_required()?;
        Ok(options)
    }

    fn read(&mut self, words: &[String]) -> Result<(), String> {
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            if word == "--" {
                self.rest.extend(words.cloned());
                return Ok(());
            }
            let Some(dashed) = option_text(word) else {
                self.rest.push(word.clone());
                continue;
            };
            let (name, inline) = match dashed.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (dashed, None),
            };
            let spec = self.find(name).ok_or(format!("{name} is not a recognized option"))?;
            if !self.has(spec.name) {
                self.names.push(spec.name);
            }
            let values = self.given.entry(spec.name).or_default();
            match spec.argument {
                Argument::None => {}
                Argument::Required if inline.is_some() => values.push(inline),
                Argument::Required => {
                    let next = words.next();
                    let missing = || format!("Option {} requires an argument", spec.name);
                    values.push(Some(next.ok_or_else(missing)?.clone()));
                }
                Argument::Optional if inline.is_some() => values.push(inline),
                Argument::Optional => {
                    let next = words.next_if(|word| option_text(word).is_none());
                    values.push(next.cloned());
                }
            }
        }
        Ok(())
    }

    /// The option of that name, or the only one that begins so.
    fn find(&self, name: &str) -> Option<OptionSpec> {
        if let Some(spec) = self.specs.iter().find(|spec| spec.name == name) {
            return Some(*spec);
        }
        let mut matches = self.specs.iter().filter(|spec| spec.name.starts_with(name));
        match (matches.next(), matches.next()) {
            (Some(spec), None) if !name.is_empty() => Some(*spec),
            _ => None,
        }
    }

    fn check_required(&self) -> Result<(), String> {
        if self.has("help") || self.has("version") {
            return Ok(());
        }
        let missing: Vec<&str> = self
            .specs
            .iter()
            .filter(|spec| spec.required_unless.is_some_and(|other| !self.has(other)))
            .map(|spec| spec.name)
            .filter(|name| !self.has(name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("Missing required option(s) [{}]", missing.join(", ")))
    }

    /// Whether nothing at all was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the option was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The value given, or the default. Given twice is an error, as in joptsimple.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.given.get(name).map(Vec::as_slice) {
            None | Some([]) => Ok(self.spec(name).default.map(str::to_owned)),
            Some([value]) => Ok(value.clone()),
            Some(_) => Err(format!(
                "Found multiple arguments for option {name}, but you asked for only one"
            )),
        }
    }

    /// All values given.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        self.given.get(name).into_iter().flatten().flatten().cloned().collect()
    }

    /// The value as a 32-bit number.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i32>, String> {
        self.number(name)
    }

    /// The value as a 64-bit number.
    pub(crate) fn long(&self, name: &str) -> Result<Option<i64>, String> {
        self.number(name)
    }

    /// Checks that the value is of the option's type.
    pub(crate) fn check_number(&self, name: &str) -> Result<(), String> {
        match self.spec(name).kind {
            Kind::String => Ok(()),
            Kind::Integer => self.integer(name).map(drop),
            Kind::Long => self.long(name).map(drop),
        }
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, String> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let parsed = text.parse();
        parsed.map(Some).map_err(|_| format!("Cannot parse argument '{text}' of option {name}"))
    }

    fn spec(&self, name: &str) -> &OptionSpec {
        let found = self.specs.iter().find(|spec| spec.name == name);
        found.expect("tools ask for options of their own table")
    }

    /// Prints the text and the usage, and ends with 1.
    pub(crate) fn refuse<T>(&self, text: &str) -> Result<T, Halt> {
        complain(text);
        halt(&usage_of(&self.specs))
    }

    /// Ends the tool when help or the version was asked for, or nothing at all was said.
    /// Source: `CommandLineUtils.maybePrintHelpOrVersion`.
    pub(crate) fn answer_help_or_version(&self, purpose: &str) -> Result<(), Halt> {
        if self.is_empty() || self.has("help") {
            return self.refuse(purpose);
        }
        if self.has("version") {
            say(VERSION);
            return Err(Halt(0));
        }
        Ok(())
    }

    /// Ends the tool unless all of these were given. Source: `CommandLineUtils.checkRequiredArgs`.
    pub(crate) fn require(&self, names: &[&str]) -> Result<(), Halt> {
        match names.iter().find(|name| !self.has(name)) {
            Some(name) => self.refuse(&format!("Missing required argument \"[{name}]\"")),
            None => Ok(()),
        }
    }

    /// Ends the tool when `used` was given together with one of the others. Source: `CommandLineUtils.checkInvalidArgs`.
    pub(crate) fn exclude(&self, used: &str, others: &[&str]) -> Result<(), Halt> {
        if !self.has(used) {
            return Ok(());
        }
        match others.iter().find(|name| self.has(name)) {
            Some(name) => {
                self.refuse(&format!("Option \"[{used}]\" can't be used with option \"[{name}]\""))
            }
            None => Ok(()),
        }
    }
}

/// The word without its dashes, when it is an option.
fn option_text(word: &str) -> Option<&str> {
    let dashed = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    (!dashed.is_empty()).then_some(dashed)
}

/// The usage text for a table, for tools that failed before there were options.
pub(crate) fn usage(specs: &[OptionSpec]) -> String {
    let mut specs = specs.to_vec();
    specs.extend([HELP, VERSION_OPTION]);
    specs.sort_by_key(|spec| spec.name);
    usage_of(&specs)
}

/// Reads the options; a fault is told with the usage and ends with 1.
pub(crate) fn parse_or_refuse(specs: &[OptionSpec], words: &[String]) -> Result<Options, Halt> {
    Options::parse(specs, words).or_else(|error| {
        complain(&error);
        halt(&usage(specs))
    })
}

/// Ends with the text of an option that could not be read.
pub(crate) fn read<T>(result: Result<T, String>) -> Result<T, Halt> {
    result.or_else(|error| halt(&error))
}

/// Columns of the table of options.
const WIDTH: usize = 80;

fn usage_of(specs: &[OptionSpec]) -> String {
    let heads: Vec<String> = specs.iter().map(head).collect();
    let column = heads.iter().map(String::len).max().unwrap_or(0).min(40);
    let mut text = format!("{:column$}  Description\n{:column$}  -----------", "Option", "------");
    for (spec, head) in specs.iter().zip(heads) {
        let default = match spec.default {
            Some(default) => format!(" (default: {default})"),
            None => String::new(),
        };
        let left = wrap(&head, column);
        let right = wrap(&format!("{}{default}", spec.help), WIDTH - 2 - column);
        for line in 0..left.len().max(right.len()) {
            let cell = |lines: &[String]| lines.get(line).cloned().unwrap_or_default();
            text.push('\n');
            text.push_str(format!("{:column$}  {}", cell(&left), cell(&right)).trim_end());
        }
    }
    text
}

/// `--name <Type: label>`.
fn head(spec: &OptionSpec) -> String {
    let kind = format!("{:?}", spec.kind);
    let value = if spec.label.is_empty() { kind } else { format!("{kind}: {}", spec.label) };
    match spec.argument {
        Argument::None => format!("--{}", spec.name),
        Argument::Required => format!("--{} <{value}>", spec.name),
        Argument::Optional => format!("--{} [{value}]", spec.name),
    }
}

/// Breaks at blanks; lines after the first are indented.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().expect("there is always a line");
        if !line.trim().is_empty() && line.len() + 1 + word.len() > width {
            lines.push("  ".to_owned());
        }
        let line = lines.last_mut().expect("there is always a line");
        if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

/// `key=value` words as properties; without `=` the value is empty. Source: `CommandLineUtils.parseKeyValueArgs`.
pub(crate) fn key_values(words: &[String]) -> common::properties::Properties {
    let split = |word: &String| match word.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (word.clone(), String::new()),
    };
    words.iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::{Options, flag, key_values, usage, value};

    fn parse(line: &str) -> Result<Options, String> {
        let specs = [
            value("topic", "topic", "A topic."),
            value("time", "when", "A time.").long().default("7"),
            value("compression", "codec", "A codec.").optional(),
            value("bootstrap-server", "server", "A server.").required_unless("broker-list"),
            value("broker-list", "servers", "Servers."),
            flag("list", "List."),
        ];
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&specs, &words)
    }

    fn text(line: &str, name: &str) -> Option<String> {
        parse(&format!("--broker-list b {line}")).unwrap().text(name).unwrap()
    }

    #[test]
    fn values_come_in_every_form_that_joptsimple_reads() {
        for line in ["--topic a", "--topic=a", "-topic a", "-topic=a", "--top a", "-to=a"] {
            assert_eq!(text(line, "topic").as_deref(), Some("a"), "{line}");
        }
        assert_eq!(text("--topic=", "topic").as_deref(), Some(""));
        assert_eq!(text("--topic a=b", "topic").as_deref(), Some("a=b"));
        assert_eq!(text("--topic --list", "topic").as_deref(), Some("--list"));
    }

    #[test]
    fn numbers_may_be_negative_and_are_checked_where_they_are_used() {
        let long = |line: &str| parse(&format!("--broker-list b {line}")).unwrap().long("time");
        assert_eq!(long("--time -1"), Ok(Some(-1)));
        assert_eq!(long(""), Ok(Some(7)));
        assert_eq!(long("--time x"), Err("Cannot parse argument 'x' of option time".to_owned()));
        assert_eq!(
            long("--time 1 --time 2"),
            Err("Found multiple arguments for option time, but you asked for only one".to_owned())
        );
    }

    #[test]
    fn an_optional_value_is_not_an_option() {
        assert_eq!(text("--compression --list", "compression"), None);
        assert_eq!(text("--compression zstd --list", "compression").as_deref(), Some("zstd"));
    }

    #[test]
    fn faults_are_told_in_joptsimples_words() {
        let error = |line: &str| parse(line).unwrap_err();
        assert_eq!(error("--nonsense"), "nonsense is not a recognized option");
        assert_eq!(error("--b x"), "b is not a recognized option");
        assert_eq!(error("--topic"), "Option topic requires an argument");
        assert_eq!(error("--list"), "Missing required option(s) [bootstrap-server]");
        assert!(parse("--help").is_ok() && parse("--version").is_ok());
    }

    #[test]
    fn words_after_two_dashes_are_no_options() {
        let options = parse("--broker-list b x -- --topic a").unwrap();
        assert_eq!(options.rest, ["x", "--topic", "a"]);
        assert!(!options.has("topic"));
    }

    #[test]
    fn the_usage_names_every_option() {
        let text = usage(&[value("time", "when", "A time.").long().default("7")]);
        assert_eq!(
            text,
            "Option               Description\n\
             ------               -----------\n\
             --help               Show this text.\n\
             --time <Long: when>  A time. (default: 7)\n\
             --version            Show the version."
        );
    }

    #[test]
    fn pairs_may_lack_their_value() {
        let properties = key_values(&["a=b=c".to_owned(), "d".to_owned(), "e=".to_owned()]);
        let pairs: Vec<_> = properties.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("a", "b=c"), ("d", ""), ("e", "")]);
    }
}
