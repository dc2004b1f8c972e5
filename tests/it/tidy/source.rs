//! Rust files as the rules look at them: code without comments and texts, and without its tests.

/// One line of code, and whether a comment stands on it or alone above it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: usize,
    /// The code; comments and the insides of texts are blanks.
    pub(super) code: String,
    /// A comment on this line, or on the lines right above it.
    pub(super) has_comment: bool,
}

/// A file with its texts and comments blanked out, line for line.
#[derive(Debug)]
pub(super) struct Source {
    /// Every line.
    pub(super) lines: Vec<Line>,
}

impl Source {
    /// Reads Rust code. Line ends stay where they are.
    pub(super) fn parse(text: &str) -> Source {
        let (code, comments) = blank(text);
        let mut lines = Vec::new();
        let mut above = false;
        for (index, (code, comment)) in code.split('\n').zip(comments.split('\n')).enumerate() {
            let is_commented = !comment.trim().is_empty();
            let has_comment = is_commented || above;
            above = has_comment && code.trim().is_empty();
            lines.push(Line { number: index + 1, code: code.to_owned(), has_comment });
        }
        Source { lines }
    }

    /// The lines up to the first `#[cfg(test)]` that opens a module of tests.
    pub(super) fn without_tests(&self) -> &[Line] {
        &self.lines[..self.tests_begin()]
    }

    /// The lines of the module of tests.
    pub(super) fn tests(&self) -> &[Line] {
        &self.lines[self.tests_begin()..]
    }

    fn tests_begin(&self) -> usize {
        let opens_module = |index: usize| {
            let mut rest = self.lines[index + 1..].iter().map(|line| line.code.trim());
            let next = rest.find(|code| !code.is_empty() && !code.starts_with("#["));
            next.is_some_and(|code| {
                code.ends_with('{') && code.split_whitespace().any(|word| word == "mod")
            })
        };
        (0..self.lines.len())
            .find(|index| self.lines[*index].code.trim() == "#[cfg(test)]" && opens_module(*index))
            .unwrap_or(self.lines.len())
    }
}

/// Whether the word stands in the code by itself, not as a part of another.
pub(super) fn has_word(code: &str, word: &str) -> bool {
    let is_part =
        |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(word).any(|(start, _)| {
        !is_part(code[..start].chars().next_back())
            && !is_part(code[start + word.len()..].chars().next())
    })
}

/// The code with comments and texts blanked, and the comments alone; both with all line ends.
fn blank(text: &str) -> (String, String) {
    let characters: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::new(), String::new());
    let mut index = 0;
    while index < characters.len() {
        let end = token_end(&characters, index);
        let token = &characters[index..end];
        let is_comment = token.starts_with(&['/', '/']) || token.starts_with(&['/', '*']);
        let is_text = token.len() > 1 && token.contains(&'"') || is_character(token);
        for character in token {
            let blank = if *character == '\n' { '\n' } else { ' ' };
            code.push(if is_comment || is_text { blank } else { *character });
            comments.push(if is_comment { *character } else { blank });
        }
        index = end;
    }
    (code, comments)
}

fn is_character(token: &[char]) -> bool {
    token.len() > 2 && token[0] == '\'' && token[token.len() - 1] == '\''
}

/// The end of a comment, a text, a character, or of one other character.
fn token_end(text: &[char], start: usize) -> usize {
    let rest = &text[start..];
    let find = |from: usize, wanted: &[char]| {
        (from..rest.len()).find(|at| rest[*at..].starts_with(wanted)).unwrap_or(rest.len())
    };
    let length = match rest {
        ['/', '/', ..] => find(0, &['\n']),
        ['/', '*', ..] => comment_length(rest),
        ['"', ..] => text_length(rest, 0),
        ['r', '#' | '"', ..] if !continues_word(text, start) => raw_length(rest, 1).unwrap_or(1),
        ['b', '"', ..] if !continues_word(text, start) => text_length(rest, 1),
        ['b', 'r', '#' | '"', ..] if !continues_word(text, start) => {
            raw_length(rest, 2).unwrap_or(1)
        }
        ['\'', '\\', ..] => find(3, &['\'']) + 1,
        ['\'', _, '\'', ..] => 3,
        _ => 1,
    };
    start + length.min(rest.len())
}

fn continues_word(text: &[char], start: usize) -> bool {
    start > 0 && (text[start - 1].is_alphanumeric() || text[start - 1] == '_')
}

/// Comments nest.
fn comment_length(rest: &[char]) -> usize {
    let (mut depth, mut index) = (0_usize, 0);
    while index < rest.len() {
        match rest[index..] {
            ['/', '*', ..] => (depth, index) = (depth + 1, index + 2),
            ['*', '/', ..] => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
        if depth == 0 {
            return index;
        }
    }
    rest.len()
}

/// A text from its quote at `quote` to the closing one.
fn text_length(rest: &[char], quote: usize) -> usize {
    let mut index = quote + 1;
    while index < rest.len() {
        match rest[index] {
            '\\' => index += 2,
            '"' => return index + 1,
            _ => index += 1,
        }
    }
    rest.len()
}

/// A raw text whose hashes begin at `from`; `None` for a raw name such as `r#type`.
fn raw_length(rest: &[char], from: usize) -> Option<usize> {
    let hashes = rest[from..].iter().take_while(|character| **character == '#').count();
    if rest.get(from + hashes) != Some(&'"') {
        return None;
    }
    let mut close = vec!['"'];
    close.extend(std::iter::repeat_n('#', hashes));
    let body = from + hashes + 1;
    let end = (body..rest.len()).find(|at| rest[*at..].starts_with(&close));
    Some(end.map_or(rest.len(), |at| at + close.len()))
}

#[test]
fn comments_and_texts_are_blanked() {
    let code = |text: &str| blank(text).0;
    assert_eq!(code("a // b\nc"), "a     \nc");
    assert_eq!(code("a /* b /* c */ d */ e"), "a                   e");
    assert_eq!(code(r#"f("x // \" y") g"#), r"f(           ) g");
    assert_eq!(code("f(r#\"a\" b\"#) g"), "f(         ) g");
    assert_eq!(code("let r#type = 'a' + '\\'' + b\"x\";"), "let r#type =     +      +     ;");
    assert_eq!(code("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
}

#[test]
fn a_comment_counts_for_its_line_and_the_next_code() {
    let source = Source::parse("a;\n// why\n\nb;\nc; // why\nd;");
    let commented: Vec<_> =
        source.lines.iter().filter(|line| line.has_comment).map(|line| line.number).collect();
    assert_eq!(commented, [2, 3, 4, 5]);
}

#[test]
fn tests_are_told_from_code() {
    let source =
        Source::parse("a;\n#[cfg(test)]\nuse x;\nb;\n#[cfg(test)]\npub(super) mod tests {\nc;\n}");
    assert_eq!(source.without_tests().len(), 4);
    assert_eq!(source.tests().len(), 4);
    assert!(has_word("let x = unsafe {", "unsafe") && !has_word("forbid(unsafe_code)", "unsafe"));
}
