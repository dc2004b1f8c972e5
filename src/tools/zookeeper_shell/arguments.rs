//! How the shell reads a line and a command's options: ZooKeeper's two patterns, and Apache Commons CLI's
//! `DefaultParser` for options of one letter.

/// Splits a line at blanks; a part may be quoted with `"` or `'`, without escapes.
pub(super) fn split_line(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let quoted = matches!(first, '"' | '\'')
            .then(|| rest[1..].find(first).map(|end| (&rest[1..1 + end], &rest[end + 2..])))
            .flatten();
        let (word, after) = match quoted {
            Some(parts) => parts,
            // A quote without its pair counts for nothing.
            None => {
                let rest = rest.trim_start_matches(['"', '\'']);
                rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()))
            }
        };
        if quoted.is_some() || !word.is_empty() {
            words.push(word.to_owned());
        }
        rest = after.trim_start();
    }
    words
}

/// A command's options and the words that are none; the first is the command itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    options: Vec<(String, Option<String>)>,
    pub(super) words: Vec<String>,
}

impl Parsed {
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|(name, _)| name == option)
    }

    /// Of a group, one option at most may be given. A refusal is the text of Java's exception.
    pub(super) fn one_of(&self, group: &[&str]) -> Result<Option<&str>, String> {
        let mut given =
            self.options.iter().map(|(name, _)| name.as_str()).filter(|name| group.contains(name));
        let first = given.next();
        match given.find(|name| Some(*name) != first) {
            Some(second) => Err(format!(
                "org.apache.commons.cli.AlreadySelectedException: The option '{second}' was specified but an option \
                 from this group has already been selected: '{}'",
                first.unwrap_or_default()
            )),
            None => Ok(first),
        }
    }

    /// The value of an option, where it is given first.
    pub(super) fn value(&self, option: &str) -> Option<&str> {
        let found = self.options.iter().find(|(name, _)| name == option);
        found.and_then(|(_, value)| value.as_deref())
    }
}

/// Reads options: `flags` stand alone, `valued` take the next word. A refusal is the text of Java's exception.
pub(super) fn parse(
    arguments: &[String],
    flags: &[&str],
    valued: &[&str],
) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    let mut arguments = arguments.iter();
    let mut only_words = false;
    while let Some(argument) = arguments.next() {
        let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
        let name = match name {
            Some(name) if !only_words && !name.is_empty() && !is_number(argument) => name,
            _ if argument == "--" && !only_words => {
                only_words = true;
                continue;
            }
            _ => {
                parsed.words.push(argument.clone());
                continue;
            }
        };
        let (name, attached) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        if valued.contains(&name) {
            let mut next = || {
                arguments.next().filter(|next| !next.starts_with('-') || is_number(next)).cloned()
            };
            let Some(value) = attached.or_else(&mut next) else {
                return Err(format!(
                    "org.apache.commons.cli.MissingArgumentException: Missing argument for option: {name}"
                ));
            };
            parsed.options.push((name.to_owned(), Some(value)));
        } else if flags.contains(&name) {
            parsed.options.push((name.to_owned(), None));
        } else if !read_cluster(name, flags, valued, &mut parsed) {
            return Err(format!(
                "org.apache.commons.cli.UnrecognizedOptionException: Unrecognized option: {argument}"
            ));
        }
    }
    Ok(parsed)
}

/// Reads `-sw` as two flags, and `-v3` as an option with its value.
fn read_cluster(name: &str, flags: &[&str], valued: &[&str], parsed: &mut Parsed) -> bool {
    let mut options = Vec::new();
    for (position, letter) in name.char_indices() {
        let after = position + letter.len_utf8();
        let letter = letter.to_string();
        if valued.contains(&letter.as_str()) && after < name.len() {
            options.push((letter, Some(name[after..].to_owned())));
            break;
        }
        if !flags.contains(&letter.as_str()) {
            return false;
        }
        options.push((letter, None));
    }
    parsed.options.append(&mut options);
    true
}

/// `-1` is a value, not an option.
fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_line_is_split_at_blanks_and_quotes() {
        for (line, expected) in [
            ("ls /", &["ls", "/"][..]),
            ("  create  /a \"two words\"  ", &["create", "/a", "two words"]),
            ("set /a 'x \"y\" z'", &["set", "/a", "x \"y\" z"]),
            ("set /a {\"v\":1}", &["set", "/a", "{\"v\":1}"]),
            ("set /a ''", &["set", "/a", ""]),
            ("set /a \"open", &["set", "/a", "open"]),
            ("   ", &[]),
        ] {
            assert_eq!(split_line(line), words(expected), "{line}");
        }
    }

    #[test]
    fn options_are_read_as_commons_cli_does() {
        let read = |line: &str| parse(&split_line(line), &["s", "w"], &["v"]);
        let parsed = read("set -s -v 3 /a data").unwrap();
        assert!(parsed.has("s") && !parsed.has("w"));
        assert_eq!(parsed.value("v"), Some("3"));
        assert_eq!(parsed.words, words(&["set", "/a", "data"]));
        assert_eq!(read("set -v -1 /a").unwrap().value("v"), Some("-1"));
        assert_eq!(read("set -v3 /a").unwrap().value("v"), Some("3"));
        assert!(read("get -sw /a").unwrap().has("w"));
        assert_eq!(read("set -- -s").unwrap().words, words(&["set", "-s"]));
        assert_eq!(
            read("set -z /a").unwrap_err(),
            "org.apache.commons.cli.UnrecognizedOptionException: Unrecognized option: -z"
        );
        assert_eq!(
            read("set /a b -v").unwrap_err(),
            "org.apache.commons.cli.MissingArgumentException: Missing argument for option: v"
        );
    }
}
