//! Logins of a JAAS file: sections of login modules with their options, such as
//! `Client { ...DigestLoginModule required username="alice" password="secret"; };`.
//! Source: Java's `javax.security.auth.login.Configuration`, and ZooKeeper's `DigestLoginModule`.

use std::collections::BTreeMap;

use thiserror::Error;

/// Why a file gives no login.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JaasError {
    /// The file is not written as JAAS files are.
    #[error("the file ends or goes wrong behind \"{0}\"")]
    Syntax(String),
    /// The section is not in the file.
    #[error("there is no section \"{0}\"")]
    NoSection(String),
    /// The section names another mechanism.
    #[error("{0} is not supported: only DigestLoginModule is")]
    Module(String),
    /// The login module lacks an option.
    #[error("the section \"{section}\" has no {option}")]
    NoOption {
        /// The section.
        section: String,
        /// What it lacks.
        option: &'static str,
    },
}

/// A user of ZooKeeper, as a client logs in.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub username: String,
    /// The user's password.
    pub password: String,
}

/// Users and passwords of a section, which is `Server` for a ZooKeeper server.
pub fn users(text: &str, section: &str) -> Result<BTreeMap<String, String>, JaasError> {
    let options = digest_options(text, section)?;
    let user = |(key, value): (String, String)| {
        key.strip_prefix("user_").map(|user| (user.to_owned(), value))
    };
    Ok(options.into_iter().filter_map(user).collect())
}

/// The login of a section, which is `Client` for a client of ZooKeeper.
pub fn login(text: &str, section: &str) -> Result<Login, JaasError> {
    let mut options = digest_options(text, section)?;
    let mut take = |option| {
        let missing = || JaasError::NoOption { section: section.to_owned(), option };
        options.remove(option).ok_or_else(missing)
    };
    Ok(Login { username: take("username")?, password: take("password")? })
}

/// The options of a section's DigestLoginModule; of several in one section they count together.
fn digest_options(text: &str, section: &str) -> Result<BTreeMap<String, String>, JaasError> {
    let mut words = Words { rest: text, last: "the beginning".to_owned() };
    while let Some(name) = words.next()? {
        words.expect("{")?;
        let mut options = BTreeMap::new();
        loop {
            let module = words.need()?;
            if module == "}" {
                words.expect(";")?;
                break;
            }
            if name == section && !module.ends_with("DigestLoginModule") {
                return Err(JaasError::Module(module));
            }
            // `required` and its like.
            words.need()?;
            loop {
                let key = words.need()?;
                if key == ";" {
                    break;
                }
                words.expect("=")?;
                options.insert(key, words.need()?);
            }
        }
        if name == section {
            return Ok(options);
        }
    }
    Err(JaasError::NoSection(section.to_owned()))
}

/// Words, quoted texts, and the four signs.
struct Words<'a> {
    rest: &'a str,
    last: String,
}

impl Words<'_> {
    fn next(&mut self) -> Result<Option<String>, JaasError> {
        self.skip_comments();
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let word = match first {
            '{' | '}' | ';' | '=' => {
                self.rest = &self.rest[1..];
                first.to_string()
            }
            '"' => {
                let (word, rest) = quoted(&self.rest[1..]);
                self.rest = rest;
                word
            }
            _ => {
                let is_end = |character: char| {
                    character.is_whitespace() || matches!(character, '{' | '}' | ';' | '=' | '"')
                };
                let end = self.rest.find(is_end).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                word.to_owned()
            }
        };
        // A password is nothing for a message.
        let is_value = self.last == "=";
        self.last = if is_value { "a value".to_owned() } else { word.clone() };
        Ok(Some(word))
    }

    fn skip_comments(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            let end = match self.rest.as_bytes() {
                [b'/', b'/', ..] | [b'#', ..] => self.rest.find('\n'),
                [b'/', b'*', ..] => self.rest.find("*/").map(|end| end + 2),
                _ => return,
            };
            self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
        }
    }

    fn need(&mut self) -> Result<String, JaasError> {
        self.next()?.ok_or_else(|| JaasError::Syntax(self.last.clone()))
    }

    fn expect(&mut self, sign: &str) -> Result<(), JaasError> {
        let before = self.last.clone();
        match self.need()? {
            word if word == sign => Ok(()),
            _ => Err(JaasError::Syntax(before)),
        }
    }
}

/// What a quote that has begun holds, and what is behind it. It ends with its line at the latest.
/// Source: Java's `StreamTokenizer`.
fn quoted(text: &str) -> (String, &str) {
    let mut word = String::new();
    let mut rest = text.chars();
    loop {
        let behind = rest.as_str();
        match rest.next() {
            None | Some('\n' | '\r') => return (word, behind),
            Some('"') => return (word, rest.as_str()),
            Some('\\') => word.extend(escaped(&mut rest)),
            Some(character) => word.push(character),
        }
    }
}

/// The character that a backslash and what follows it stand for.
fn escaped(rest: &mut std::str::Chars<'_>) -> Option<char> {
    Some(match rest.next()? {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        first @ '0'..='7' => {
            // Octal, up to \377.
            let mut code = first.to_digit(8)?;
            let most = if first <= '3' { 2 } else { 1 };
            for _ in 0..most {
                let mut ahead = rest.clone();
                let Some(digit) = ahead.next().and_then(|digit| digit.to_digit(8)) else { break };
                code = code * 8 + digit;
                *rest = ahead;
            }
            char::from_u32(code)?
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        // Users of ZooKeeper.
        KafkaServer {
            org.apache.kafka.common.security.plain.PlainLoginModule required
            username="admin" password="x" user_admin="x";
        };
        /* The server's
           own section. */
        Server {
            org.apache.zookeeper.server.auth.DigestLoginModule required
            user_super="super secret"
            user_kafka=plain;
        };
    "#;

    #[test]
    fn the_users_of_the_section_are_found() {
        let expected = [("kafka", "plain"), ("super", "super secret")]
            .map(|(user, password)| (user.to_owned(), password.to_owned()));
        assert_eq!(users(FILE, "Server"), Ok(BTreeMap::from(expected)));
        assert_eq!(users(FILE, "Client"), Err(JaasError::NoSection("Client".to_owned())));
        assert!(matches!(users(FILE, "KafkaServer"), Err(JaasError::Module(_))));
    }

    #[test]
    fn the_login_of_the_section_is_found() {
        let text = r#"Client {
            org.apache.zookeeper.server.auth.DigestLoginModule required
            username="kafka" password="kafka secret";
        };"#;
        let Ok(Login { username, password }) = login(text, "Client") else { panic!("no login") };
        assert_eq!((username.as_str(), password.as_str()), ("kafka", "kafka secret"));
        let error = login(FILE, "Server").err().unwrap();
        assert_eq!(error.to_string(), "the section \"Server\" has no username");
        let kerberos =
            "Client { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };";
        let error = login(kerberos, "Client").err().unwrap();
        let expected = "com.sun.security.auth.module.Krb5LoginModule is not supported: only DigestLoginModule is";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn backslashes_escape_as_in_java() {
        let user = |text: &str| {
            let file = format!("Server {{ DigestLoginModule required user_a=\"{text}\"; }};");
            users(&file, "Server").unwrap().remove("a").unwrap()
        };
        for (text, password) in [
            (r#"k\"q,\\x"#, r#"k"q,\x"#),
            (r"\a\b\f\n\r\t\v\q", "\u{7}\u{8}\u{c}\n\r\t\u{b}q"),
            (r"\1018\477\0\377", "A8'7\0\u{ff}"),
            ("\\\n", "\n"),
        ] {
            assert_eq!(user(text), password, "{text}");
        }
        // A quote ends with its line.
        let text = "Server { DigestLoginModule required user_a=\"b\n; };";
        assert_eq!(users(text, "Server").unwrap()["a"], "b");
    }

    #[test]
    fn a_broken_file_is_refused_without_its_passwords() {
        let module = "Server { a.b.DigestLoginModule";
        for text in
            ["", " required", " required user_a", " required user_a=", " required user_a=\"b"]
        {
            let text = format!("{module}{text}");
            assert!(matches!(users(&text, "Server"), Err(JaasError::Syntax(_))), "{text}");
        }
        for text in ["Server", "Server {", "a b"] {
            assert!(matches!(users(text, "Server"), Err(JaasError::Syntax(_))), "{text}");
        }
        let text = "Server { DigestLoginModule required user_a=\"secret\" x";
        assert_eq!(users(text, "Server"), Err(JaasError::Syntax("x".to_owned())));
        let text = "Server { DigestLoginModule required user_a=\"secret\"";
        assert_eq!(users(text, "Server"), Err(JaasError::Syntax("a value".to_owned())));
    }
}
