//! An answer as a tree of named values: read from the `Debug` text of the codec's structs, so that no field is left out.

use std::fmt;

/// A value of an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tree {
    Null,
    /// A number, a flag, an id: as printed.
    Word(String),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Tree>),
    Fields(Vec<(String, Tree)>),
}

impl Tree {
    /// A word.
    pub(crate) fn word(text: impl fmt::Display) -> Tree {
        Tree::Word(text.to_string())
    }

    /// The field of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&Tree> {
        let Tree::Fields(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// The elements; none where it is no list.
    pub(crate) fn items(&self) -> &[Tree] {
        if let Tree::List(items) = self { items } else { &[] }
    }

    /// The text of a text or a word.
    pub(crate) fn as_text(&self) -> &str {
        if let Tree::Text(text) | Tree::Word(text) = self { text } else { "" }
    }

    /// Visits every value from the leaves up, with the name of the field it stands in.
    pub(crate) fn visit(&mut self, field: &str, change: &mut dyn FnMut(&str, &mut Tree)) {
        match self {
            Tree::List(items) => items.iter_mut().for_each(|item| item.visit(field, change)),
            Tree::Fields(fields) => {
                fields.iter_mut().for_each(|(name, value)| value.visit(name, change));
            }
            _ => {}
        }
        change(field, self);
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Null => write!(formatter, "null"),
            Tree::Word(word) => write!(formatter, "{word}"),
            Tree::Text(text) => write!(formatter, "{text:?}"),
            Tree::Bytes(bytes) => write!(formatter, "x{}", crate::value::hex(bytes)),
            Tree::List(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(formatter, "[{}]", items.join(", "))
            }
            Tree::Fields(fields) => {
                let shown = fields.iter().map(|(name, value)| format!("{name}: {value}"));
                write!(formatter, "{{{}}}", shown.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Reads what `{:?}` wrote.
pub(crate) fn parse(text: &str) -> Result<Tree, String> {
    let mut parser = Parser { rest: text };
    let tree = parser.value()?;
    if parser.rest.is_empty() { Ok(tree) } else { Err(format!("left over: {}", parser.rest)) }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn eat(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest;
        true
    }

    fn value(&mut self) -> Result<Tree, String> {
        if self.eat("[") {
            return Ok(Tree::List(self.list("]")?));
        }
        if self.eat("{") {
            return self.map();
        }
        if self.eat("b\"") {
            return Ok(Tree::Bytes(self.quoted()?));
        }
        if self.eat("\"") {
            let bytes = self.quoted()?;
            return String::from_utf8(bytes).map(Tree::Text).map_err(|error| error.to_string());
        }
        let end = self.rest.find([',', ' ', '(', ')', '{', '}', '[', ']', ':']);
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let word = word.to_owned();
        if self.eat("(") {
            // A tuple struct of one: a name for a type, or `Some`.
            let mut inside = self.list(")")?;
            return match inside.len() {
                1 => Ok(inside.remove(0)),
                _ => Ok(Tree::List(inside)),
            };
        }
        if self.eat(" {") {
            return self.fields();
        }
        Ok(if word == "None" { Tree::Null } else { Tree::Word(word) })
    }

    fn list(&mut self, end: &str) -> Result<Vec<Tree>, String> {
        let mut items = Vec::new();
        while !self.eat(end) {
            items.push(self.value()?);
            self.eat(", ");
        }
        Ok(items)
    }

    fn fields(&mut self) -> Result<Tree, String> {
        let mut fields = Vec::new();
        while !self.eat(" }") {
            self.eat(", ");
            self.eat(" ");
            let (name, rest) = self.rest.split_once(": ").ok_or("a field without a name")?;
            let name = name.to_owned();
            self.rest = rest;
            fields.push((name, self.value()?));
        }
        Ok(Tree::Fields(fields))
    }

    fn map(&mut self) -> Result<Tree, String> {
        let mut fields = Vec::new();
        while !self.eat("}") {
            let key = self.value()?;
            if !self.eat(": ") {
                return Err(format!("no value: {}", self.rest));
            }
            fields.push((key.to_string(), self.value()?));
            self.eat(", ");
        }
        Ok(Tree::Fields(fields))
    }

    /// Up to the closing quote; escapes are those of `str` and `Bytes`.
    fn quoted(&mut self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut characters = self.rest.char_indices();
        while let Some((index, character)) = characters.next() {
            match character {
                '"' => {
                    self.rest = &self.rest[index + 1..];
                    return Ok(bytes);
                }
                '\\' => {
                    let (_, escape) = characters.next().ok_or("a lone backslash")?;
                    match escape {
                        'n' => bytes.push(b'\n'),
                        'r' => bytes.push(b'\r'),
                        't' => bytes.push(b'\t'),
                        '0' => bytes.push(0),
                        'x' => {
                            let digits: String =
                                characters.by_ref().take(2).map(|(_, digit)| digit).collect();
                            let byte = u8::from_str_radix(&digits, 16);
                            bytes.push(byte.map_err(|error| error.to_string())?);
                        }
                        'u' => {
                            let digits = characters.by_ref().skip(1).map(|(_, digit)| digit);
                            let digits: String = digits.take_while(|digit| *digit != '}').collect();
                            let code = u32::from_str_radix(&digits, 16);
                            let code = code.map_err(|error| error.to_string())?;
                            let character = char::from_u32(code).ok_or("no character")?;
                            bytes.extend(character.to_string().bytes());
                        }
                        other => bytes.extend(other.to_string().bytes()),
                    }
                }
                other => bytes.extend(other.to_string().bytes()),
            }
        }
        Err("a quote that does not end".to_owned())
    }
}

/// Where two trees differ.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// Names of fields with dots between, without positions.
    pub(crate) path: String,
    pub(crate) kafka: String,
    pub(crate) ours: String,
}

/// Every place where the trees differ.
pub(crate) fn compare(kafka: &Tree, ours: &Tree) -> Vec<Difference> {
    let mut differences = Vec::new();
    walk("", kafka, ours, &mut differences);
    differences
}

fn walk(path: &str, kafka: &Tree, ours: &Tree, into: &mut Vec<Difference>) {
    match (kafka, ours) {
        _ if kafka == ours => {}
        (Tree::List(theirs), Tree::List(own)) if theirs.len() == own.len() => {
            theirs.iter().zip(own).for_each(|(kafka, ours)| walk(path, kafka, ours, into));
        }
        (Tree::Fields(theirs), Tree::Fields(own))
            if theirs.iter().map(|(name, _)| name).eq(own.iter().map(|(name, _)| name)) =>
        {
            for ((name, kafka), (_, ours)) in theirs.iter().zip(own) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                walk(&path, kafka, ours, into);
            }
        }
        _ => into.push(Difference {
            path: path.to_owned(),
            kafka: kafka.to_string(),
            ours: ours.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "read through Debug")]
    struct Inner(i32);

    #[derive(Debug)]
    #[expect(dead_code, reason = "read through Debug")]
    struct Outer {
        number: Inner,
        text: Option<&'static str>,
        nothing: Option<i32>,
        bytes: bytes::Bytes,
        list: Vec<Inner>,
        map: std::collections::BTreeMap<i32, bool>,
        empty: Vec<i32>,
    }

    #[test]
    fn debug_text_is_read_as_it_was_written() {
        let outer = Outer {
            number: Inner(-3),
            text: Some("a \"b\", {c: d}\u{1}\u{f6}\n"),
            nothing: None,
            bytes: bytes::Bytes::from_static(b"\x00\xff\"z\\"),
            list: vec![Inner(1), Inner(2)],
            map: [(7, true)].into(),
            empty: Vec::new(),
        };
        let tree = parse(&format!("{outer:?}")).unwrap();
        let word = |text: &str| Tree::Word(text.to_owned());
        let expected = Tree::Fields(vec![
            ("number".into(), word("-3")),
            ("text".into(), Tree::Text("a \"b\", {c: d}\u{1}\u{f6}\n".into())),
            ("nothing".into(), Tree::Null),
            ("bytes".into(), Tree::Bytes(b"\x00\xff\"z\\".to_vec())),
            ("list".into(), Tree::List(vec![word("1"), word("2")])),
            ("map".into(), Tree::Fields(vec![("7".into(), word("true"))])),
            ("empty".into(), Tree::List(Vec::new())),
        ]);
        assert_eq!(tree, expected);
    }
}
