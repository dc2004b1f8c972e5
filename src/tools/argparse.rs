//! Options as Kafka's argparse4j tools take them: `--opt value`, `--opt=value`, unambiguous abbreviations, lists.

use std::collections::HashMap;

use crate::console::{Halt, complain, halt, say};

/// An option of a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    /// What the value is called; none for a flag.
    pub(crate) metavar: Option<&'static str>,
    pub(crate) is_required: bool,
    /// Whether one or more values may follow.
    pub(crate) takes_many: bool,
    /// One of those that exclude each other, of which one must be given.
    pub(crate) is_choice: bool,
    pub(crate) help: &'static str,
}

/// The arguments of a tool.
pub(crate) struct Parser {
    pub(crate) program: &'static str,
    pub(crate) purpose: &'static str,
    pub(crate) arguments: &'static [Argument],
}

/// What was given: the values of each option, none for a flag.
#[derive(Debug)]
pub(crate) struct Arguments(HashMap<&'static str, Vec<String>>);

impl Arguments {
    /// Whether the option was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The last value.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.last().map(String::as_str)
    }

    /// All values of an option that takes many.
    pub(crate) fn texts(&self, name: &str) -> Option<&[String]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// The value as a number; `class` is Java's name of the type.
    pub(crate) fn number<N: std::str::FromStr>(
        &self,
        name: &str,
        class: &str,
    ) -> Result<Option<N>, String> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            format!(
                "argument {name}: could not convert '{text}' to {class} (For input string: \"{text}\")"
            )
        })
    }
}

impl Parser {
    /// Reads the words. Help, and no words at all, print the help and end the tool.
    pub(crate) fn parse(&self, words: &[String]) -> Result<Arguments, Halt> {
        if words.is_empty() {
            say(&self.help());
            return Err(Halt(0));
        }
        if words.iter().any(|word| word == "-h" || word == "--help") {
            say(&self.help());
            return Err(Halt(1));
        }
        self.read(words).or_else(|error| self.refuse(&error))
    }

    /// Reads the words of a command that others precede: no words are none too few, and help is its own.
    pub(crate) fn parse_command(&self, words: &[String]) -> Result<Arguments, Halt> {
        if words.iter().any(|word| word == "-h" || word == "--help") {
            say(&self.help());
            return Err(Halt(1));
        }
        self.read(words).or_else(|error| self.refuse(&error))
    }

    /// Reads the options before a command; gives them, and the command with what follows it. The options that must be
    /// there are looked for once the command is known to be.
    pub(crate) fn parse_before_command<'w>(
        &self,
        words: &'w [String],
    ) -> Result<(Arguments, &'w [String]), Halt> {
        let mut end = 0;
        while let Some(word) = words.get(end).filter(|word| word.starts_with('-')) {
            if matches!(word.as_str(), "-h" | "--help") {
                say(&self.help());
                return Err(Halt(1));
            }
            let (name, is_inline) = match word.split_once('=') {
                Some((name, _)) => (name, true),
                None => (word.as_str(), false),
            };
            let argument = self.find(name).or_else(|error| self.refuse(&error))?;
            end += if argument.metavar.is_some() && !is_inline { 2 } else { 1 };
        }
        let (before, rest) = words.split_at(end.min(words.len()));
        if rest.is_empty() {
            return self.refuse("too few arguments");
        }
        let arguments = self.read(before).or_else(|error| self.refuse(&error))?;
        Ok((arguments, rest))
    }

    /// Ends the tool with the usage and an error.
    pub(crate) fn refuse<T>(&self, error: &str) -> Result<T, Halt> {
        complain(&self.usage());
        let tool = self.program.split(' ').next().unwrap_or_default();
        halt(&format!("{tool}: error: {error}"))
    }

    fn read(&self, words: &[String]) -> Result<Arguments, String> {
        let mut given: HashMap<&'static str, Vec<String>> = HashMap::new();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) if name.starts_with('-') => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            let argument = self.find(name)?;
            let values: Vec<String> = match (argument.metavar, inline) {
                (None, _) => Vec::new(),
                (Some(_), Some(value)) => vec![value],
                (Some(_), None) if argument.takes_many => {
                    let mut values = Vec::new();
                    while let Some(value) = words.next_if(|word| is_value(word)) {
                        values.push(value.clone());
                    }
                    if values.is_empty() {
                        return Err(format!("argument {}: expected 1 argument(s)", argument.name));
                    }
                    values
                }
                (Some(_), None) => {
                    let value = words.next_if(|word| is_value(word));
                    let missing = || format!("argument {}: expected one argument", argument.name);
                    vec![value.ok_or_else(missing)?.clone()]
                }
            };
            self.check_choice(argument, &given)?;
            given.insert(argument.name, values);
        }
        self.check_required(&given)?;
        Ok(Arguments(given))
    }

    /// The option of that name, or the only one that begins so.
    fn find(&self, name: &str) -> Result<Argument, String> {
        if let Some(argument) = self.arguments.iter().find(|argument| argument.name == name) {
            return Ok(*argument);
        }
        let is_long = name.starts_with("--") && name.len() > 2;
        let matches: Vec<&Argument> = self
            .arguments
            .iter()
            .filter(|argument| is_long && argument.name.starts_with(name))
            .collect();
        match matches.as_slice() {
            [argument] => Ok(**argument),
            [] => Err(format!("unrecognized arguments: '{name}'")),
            several => {
                let names: Vec<&str> = several.iter().map(|argument| argument.name).collect();
                Err(format!("ambiguous option: {name} could match {}", names.join(", ")))
            }
        }
    }

    fn check_choice(
        &self,
        argument: Argument,
        given: &HashMap<&'static str, Vec<String>>,
    ) -> Result<(), String> {
        let other = self.arguments.iter().find(|other| {
            argument.is_choice
                && other.is_choice
                && other.name != argument.name
                && given.contains_key(other.name)
        });
        match other {
            Some(other) => {
                Err(format!("argument {}: not allowed with argument {}", argument.name, other.name))
            }
            None => Ok(()),
        }
    }

    fn check_required(&self, given: &HashMap<&'static str, Vec<String>>) -> Result<(), String> {
        let mut required = self.arguments.iter().filter(|argument| argument.is_required);
        if let Some(missing) = required.find(|argument| !given.contains_key(argument.name)) {
            return Err(format!("argument {} is required", missing.name));
        }
        let choices: Vec<&str> = self
            .arguments
            .iter()
            .filter(|argument| argument.is_choice)
            .map(|argument| argument.name)
            .collect();
        if !choices.is_empty() && !choices.iter().any(|choice| given.contains_key(choice)) {
            return Err(format!("one of the arguments {} is required", choices.join(" ")));
        }
        Ok(())
    }

    fn usage(&self) -> String {
        let mut lines = vec![format!("usage: {} [-h]", self.program)];
        let indent = " ".repeat("usage: ".len() + self.program.len());
        for argument in self.arguments.iter().filter(|argument| !argument.is_choice) {
            let form = form(argument);
            let form = if argument.is_required { form } else { format!("[{form}]") };
            lines.push(format!("{indent} {form}"));
        }
        let choices: Vec<String> =
            self.arguments.iter().filter(|argument| argument.is_choice).map(form).collect();
        if !choices.is_empty() {
            lines.push(format!("{indent} ({})", choices.join(" | ")));
        }
        lines.join("\n")
    }

    fn help(&self) -> String {
        let mut text = format!("{}\n\n{}\n\noptional arguments:\n", self.usage(), self.purpose);
        text.push_str("  -h, --help             show this help message and exit\n");
        for argument in self.arguments {
            let form = match argument.metavar {
                Some(metavar) => format!("{} {metavar}", argument.name),
                None => argument.name.to_owned(),
            };
            text.push_str(&format!("  {form}\n                         {}\n", argument.help));
        }
        text.pop();
        text
    }
}

fn form(argument: &Argument) -> String {
    let name = argument.name;
    match argument.metavar {
        None => name.to_owned(),
        Some(metavar) if argument.takes_many => format!("{name} {metavar} [{metavar} ...]"),
        Some(metavar) => format!("{name} {metavar}"),
    }
}

/// Whether the word is a value: no option, but a negative number is none.
fn is_value(word: &str) -> bool {
    !word.starts_with('-') || word.parse::<f64>().is_ok() || word == "-"
}

#[cfg(test)]
mod tests {
    use super::{Argument, Parser};

    const fn argument(name: &'static str, metavar: Option<&'static str>) -> Argument {
        Argument {
            name,
            metavar,
            is_required: false,
            takes_many: false,
            is_choice: false,
            help: "",
        }
    }

    const PARSER: Parser = Parser {
        program: "p",
        purpose: "",
        arguments: &[
            Argument { is_required: true, ..argument("--topic", Some("TOPIC")) },
            argument("--throughput", Some("T")),
            Argument { takes_many: true, ..argument("--props", Some("P")) },
            Argument { is_choice: true, ..argument("--size", Some("S")) },
            Argument { is_choice: true, ..argument("--file", Some("F")) },
        ],
    };

    fn read(line: &str) -> Result<super::Arguments, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        PARSER.read(&words)
    }

    #[test]
    fn options_are_read_as_argparse4j_does() {
        let arguments = read("--topic=a --thr -1 --props a=b c=d --size 5").unwrap();
        assert_eq!(arguments.text("--topic"), Some("a"));
        assert_eq!(arguments.number("--throughput", "Double"), Ok(Some(-1.0)));
        assert_eq!(arguments.texts("--props").unwrap(), ["a=b", "c=d"]);
    }

    #[test]
    fn faults_are_told_in_its_words() {
        let error = |line: &str| read(line).unwrap_err();
        assert_eq!(error("--nonsense"), "unrecognized arguments: '--nonsense'");
        assert_eq!(error("--t x"), "ambiguous option: --t could match --topic, --throughput");
        assert_eq!(error("--topic"), "argument --topic: expected one argument");
        assert_eq!(error("--size 1"), "argument --topic is required");
        assert_eq!(error("--topic a"), "one of the arguments --size --file is required");
        assert_eq!(
            error("--topic a --size 1 --file f"),
            "argument --file: not allowed with argument --size"
        );
        assert_eq!(error("--topic a b"), "unrecognized arguments: 'b'");
        assert_eq!(error("--topic a --props --size 1"), "argument --props: expected 1 argument(s)");
        assert_eq!(
            read("--topic a --size x").unwrap().number::<i32>("--size", "Integer"),
            Err("argument --size: could not convert 'x' to Integer (For input string: \"x\")"
                .to_owned())
        );
    }
}
