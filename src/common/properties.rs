//! Java's `.properties` files and `--override` arguments. Source: `java.util.Properties.load`.

use std::collections::BTreeMap;

/// Keys and values; a later line replaces an earlier one.
pub type Properties = BTreeMap<String, String>;

/// What Java skips before a key, around a separator, and at the start of a continued line.
const BLANKS: [char; 3] = [' ', '\t', '\u{c}'];

/// Reads a file's bytes. As Java does, each byte is a character of Latin-1; others are written `\u20ac`.
pub fn parse(bytes: &[u8]) -> Properties {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let mut properties = Properties::new();
    for line in logical_lines(&text) {
        let (key, value) = split(&line);
        properties.insert(unescape(key), unescape(value));
    }
    properties
}

/// Reads `key=value`; without `=` the value is empty, as in Kafka.
pub fn parse_override(argument: &str) -> (String, String) {
    let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
    (key.to_owned(), value.to_owned())
}

/// Lines without comments and blank ones, with those put together that end in a backslash.
fn logical_lines(text: &str) -> Vec<String> {
    let mut logical: Vec<String> = Vec::new();
    let mut continues = false;
    // "\r\n" gives an empty line in between, which is no harm but after a continued one.
    let natural = text.replace("\r\n", "\n");
    for line in natural.split(['\n', '\r']) {
        let line = line.trim_start_matches(BLANKS);
        if !continues && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
        let kept = if backslashes % 2 == 1 { &line[..line.len() - 1] } else { line };
        match logical.last_mut() {
            Some(last) if continues => last.push_str(kept),
            _ => logical.push(kept.to_owned()),
        }
        continues = backslashes % 2 == 1;
    }
    logical
}

/// Key and value of a logical line, both still escaped: apart by blanks with at most one `=` or `:` among them.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|character: char| {
        let is_end = !escaped && (BLANKS.contains(&character) || matches!(character, '=' | ':'));
        escaped = character == '\\' && !escaped;
        is_end
    });
    let Some(end) = end else { return (line, "") };
    let rest = line[end..].trim_start_matches(BLANKS);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (&line[..end], rest.trim_start_matches(BLANKS))
}

/// Resolves `\t`, `\n`, `\r`, `\f`, `\uXXXX`; before any other character the backslash is dropped.
fn unescape(text: &str) -> String {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let resolved = if character == '\\' { characters.next() } else { Some(character) };
        let Some(resolved) = resolved else { break };
        let unit = match (character, resolved) {
            ('\\', 't') => u16::from(b'\t'),
            ('\\', 'n') => u16::from(b'\n'),
            ('\\', 'r') => u16::from(b'\r'),
            ('\\', 'f') => 0xc,
            ('\\', 'u') => {
                let digits: String = characters.clone().take(4).collect();
                match u16::from_str_radix(&digits, 16) {
                    Ok(unit) if digits.len() == 4 => {
                        characters.nth(3);
                        unit
                    }
                    // Java refuses the whole file here; a lone \u in a path is likelier than a wrong code.
                    _ => u16::from(b'u'),
                }
            }
            (_, other) => {
                units.extend_from_slice(other.encode_utf16(&mut [0; 2]));
                continue;
            }
        };
        units.push(unit);
    }
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        let lines: Vec<_> =
            parse(text.as_bytes()).into_iter().map(|(k, v)| format!("{k:?}={v:?}")).collect();
        lines.join(" ")
    }

    #[test]
    fn separators_and_comments() {
        assert_eq!(
            read("a=1\n b : 2\nc 3\nd\t=\t4 \ne"),
            r#""a"="1" "b"="2" "c"="3" "d"="4 " "e"="""#
        );
        assert_eq!(read("# x=1\n  ! y=2\n\n"), "");
        assert_eq!(read("a==b\nc= = d"), r#""a"="=b" "c"="= d""#);
        assert_eq!(read("a=1\na=2"), r#""a"="2""#);
    }

    #[test]
    fn a_line_of_slashes_is_a_key() {
        assert_eq!(read("// the listeners"), r#""//"="the listeners""#);
    }

    #[test]
    fn escapes_and_continued_lines() {
        assert_eq!(read("a\\ b\\=c=1"), r#""a b=c"="1""#);
        assert_eq!(
            read("list=x,\\\n   y,\\\n# not a comment\nnext=1"),
            r##""list"="x,y,# not a comment" "next"="1""##
        );
        assert_eq!(read("a=1\\\\\nb=2"), r#""a"="1\\" "b"="2""#);
        assert_eq!(read("a=\\t\\u20ac\\x"), "\"a\"=\"\\t€x\"");
        assert_eq!(read("a=\\ud83d\\ude00"), "\"a\"=\"😀\"");
        assert_eq!(read("a=1\\\r\n  2\r\nb=3\r\n"), r#""a"="12" "b"="3""#);
        assert_eq!(read("a=1\\"), r#""a"="1""#);
    }

    #[test]
    fn bytes_are_latin_1() {
        assert_eq!(parse(b"a=\xe9").get("a").map(String::as_str), Some("é"));
    }

    #[test]
    fn overrides() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(parse_override("a=b=c"), pair("a", "b=c"));
        assert_eq!(parse_override("a"), pair("a", ""));
    }
}
