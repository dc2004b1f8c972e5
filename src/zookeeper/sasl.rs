//! SASL with DIGEST-MD5, as Java's clients and servers speak it: the server sends a challenge, the
//! client proves that it knows the password, the server proves the same. Source: RFC 2831, and
//! what ZooKeeper's server sends.
//!
//! MD5 is as weak as it is old; it is here because ZooKeeper's clients know nothing else but
//! Kerberos.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use security::jaas::Login;

/// The realm of every ZooKeeper server.
const REALM: &str = "zk-sasl-md5";
const SERVICE: &str = "zookeeper/";

/// Users and their passwords.
pub(crate) type Users = BTreeMap<String, String>;

/// An exchange that has begun: the challenge is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exchange {
    nonce: String,
}

/// A proof that held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) user: String,
    /// The server's own proof, for the client.
    pub(crate) answer: Vec<u8>,
}

/// A number that nobody can guess. Fails only where the system has no randomness.
pub(crate) fn nonce() -> Option<String> {
    let mut bytes = [0; 30];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(STANDARD.encode(bytes))
}

impl Exchange {
    /// Begins with the challenge.
    pub(crate) fn begin(nonce: String) -> (Exchange, Vec<u8>) {
        let challenge =
            format!("realm=\"{REALM}\",nonce=\"{nonce}\",charset=utf-8,algorithm=md5-sess");
        (Exchange { nonce }, challenge.into_bytes())
    }

    /// Checks the client's response; `None` where it proves nothing.
    pub(crate) fn verify(&self, response: &[u8], users: &Users) -> Option<Proof> {
        let response = Directives::parse(std::str::from_utf8(response).ok()?)?;
        let user = response.get("username")?;
        let uri = response.get("digest-uri")?;
        let is_ours = response.get("nonce") == Some(&self.nonce)
            && response.get("nc") == Some("00000001")
            && response.get("qop").unwrap_or("auth") == "auth"
            && response.get("realm").unwrap_or_default() == REALM
            && uri.starts_with(SERVICE)
            // Nobody acts for another.
            && response.get("authzid").unwrap_or(user) == user;
        if !is_ours {
            return None;
        }
        let secret = Secret {
            user,
            password: users.get(user)?,
            nonce: &self.nonce,
            cnonce: response.get("cnonce")?,
            authzid: response.get("authzid"),
            uri,
        };
        let expected = secret.proof("AUTHENTICATE:");
        if !is_equal(expected.as_bytes(), response.get("response")?.as_bytes()) {
            return None;
        }
        let answer = format!("rspauth={}", secret.proof(":")).into_bytes();
        Some(Proof { user: user.to_owned(), answer })
    }
}

/// The client's half of an exchange: what it answers to a challenge, and what the server must answer then.
pub(crate) struct Response {
    pub(crate) text: Vec<u8>,
    pub(crate) expected: Vec<u8>,
}

/// Answers a challenge; `None` where it is not one, or asks for what there is not.
pub(crate) fn respond(challenge: &[u8], login: &Login, cnonce: &str) -> Option<Response> {
    let challenge = Directives::parse(std::str::from_utf8(challenge).ok()?)?;
    let nonce = challenge.get("nonce")?;
    let offers_auth =
        challenge.get("qop").unwrap_or("auth").split(',').any(|qop| qop.trim() == "auth");
    let is_known = challenge.get("realm").unwrap_or(REALM) == REALM
        && challenge.get("algorithm") == Some("md5-sess")
        && offers_auth;
    if !is_known {
        return None;
    }
    let uri = &format!("{SERVICE}{REALM}");
    let Login { username, password } = login;
    let secret = Secret { user: username, password, nonce, cnonce, authzid: None, uri };
    let text = format!(
        "charset=utf-8,username=\"{}\",realm=\"{REALM}\",nonce=\"{}\",nc=00000001,cnonce=\"{cnonce}\",\
         digest-uri=\"{uri}\",response={},qop=auth",
        quote(username),
        quote(nonce),
        secret.proof("AUTHENTICATE:"),
    );
    let expected = format!("rspauth={}", secret.proof(":"));
    Some(Response { text: text.into_bytes(), expected: expected.into_bytes() })
}

fn quote(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// What both sides put into their proofs.
struct Secret<'a> {
    user: &'a str,
    password: &'a str,
    nonce: &'a str,
    cnonce: &'a str,
    authzid: Option<&'a str>,
    uri: &'a str,
}

impl Secret<'_> {
    fn proof(&self, prefix: &str) -> String {
        let Secret { user, password, nonce, cnonce, authzid, uri } = self;
        let mut first = md5::compute(format!("{user}:{REALM}:{password}")).to_vec();
        first.extend(format!(":{nonce}:{cnonce}").as_bytes());
        if let Some(authzid) = authzid {
            first.extend(format!(":{authzid}").as_bytes());
        }
        let (first, second) = (md5::compute(first), md5::compute(format!("{prefix}{uri}")));
        let proof = md5::compute(format!("{first:x}:{nonce}:00000001:{cnonce}:auth:{second:x}"));
        format!("{proof:x}")
    }
}

/// Compares in a time that does not tell where they differ.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differ, (left, right)| differ | (left ^ right)) == 0
}

/// `name=value,name="quoted value"`.
struct Directives(BTreeMap<String, String>);

impl Directives {
    /// A name that comes twice makes the whole invalid.
    fn parse(text: &str) -> Option<Directives> {
        let mut directives = BTreeMap::new();
        let mut rest = text.trim_start_matches([',', ' ']);
        while !rest.is_empty() {
            let (name, after) = rest.split_once('=')?;
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => unquote(quoted)?,
                None => {
                    let end = after.find(',').unwrap_or(after.len());
                    (after[..end].trim().to_owned(), &after[end..])
                }
            };
            if directives.insert(name.trim().to_lowercase(), value).is_some() {
                return None;
            }
            rest = after.trim_start_matches([',', ' ']);
        }
        Some(Directives(directives))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// The text up to the closing quote, and what follows it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[position + 1..])),
            '\\' => value.push(characters.next()?.1),
            character => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        BTreeMap::from([("bob".to_owned(), "secret".to_owned())])
    }

    /// Made by PureSASL, which kazoo uses, for the nonce `abc` and the user bob.
    const RESPONSE: &str = "qop=auth,realm=\"zk-sasl-md5\",username=\"bob\",nonce=\"abc\",\
                            cnonce=\"5551212\",nc=00000001,digest-uri=\"zookeeper/zk-sasl-md5\",\
                            response=RESPONSE";

    fn exchange() -> Exchange {
        Exchange::begin("abc".to_owned()).0
    }

    #[test]
    fn the_challenge_is_that_of_the_original() {
        let (_, challenge) = Exchange::begin("abc".to_owned());
        let expected = "realm=\"zk-sasl-md5\",nonce=\"abc\",charset=utf-8,algorithm=md5-sess";
        assert_eq!(String::from_utf8(challenge).unwrap(), expected);
    }

    #[test]
    fn a_proof_holds_for_its_password_alone() {
        let response = RESPONSE.replace("RESPONSE", "469c83e24e0a33c58511025e23c7aaf0");
        let proof = exchange().verify(response.as_bytes(), &users()).unwrap();
        assert_eq!(proof.user, "bob");
        assert_eq!(
            String::from_utf8(proof.answer).unwrap(),
            "rspauth=6969d035c4af5b23799da2f520d36643"
        );
        let other = BTreeMap::from([("bob".to_owned(), "guess".to_owned())]);
        assert_eq!(exchange().verify(response.as_bytes(), &other), None);
        let late = Exchange::begin("abd".to_owned()).0;
        assert_eq!(late.verify(response.as_bytes(), &users()), None);
        for (from, to) in [
            ("bob", "eve"),
            ("00000001", "00000002"),
            ("zookeeper/", "kafka/"),
            ("qop=auth", "qop=auth-int"),
            ("cnonce=\"5551212\"", "cnonce=\"5551213\""),
            ("qop=auth,", "qop=auth,qop=auth,"),
            ("qop=auth,", "qop=auth,authzid=\"super\","),
        ] {
            let forged = response.replacen(from, to, 1);
            assert_ne!(forged, response);
            assert_eq!(exchange().verify(forged.as_bytes(), &users()), None, "{to}");
        }
    }

    #[test]
    fn both_halves_agree() {
        for (username, password) in [("bob", "secret"), ("a \"b\\", "p, =\"")] {
            let users = Users::from([(username.to_owned(), password.to_owned())]);
            let (exchange, challenge) = Exchange::begin("a+b/=".to_owned());
            let login = |password: &str| Login {
                username: username.to_owned(),
                password: password.to_owned(),
            };
            let response = respond(&challenge, &login(password), "5551212").unwrap();
            let proof = exchange.verify(&response.text, &users).unwrap();
            assert_eq!((proof.user.as_str(), proof.answer), (username, response.expected));
            let guess = respond(&challenge, &login("guess"), "5551212").unwrap();
            assert_eq!(exchange.verify(&guess.text, &users), None);
        }
        let login = Login { username: "bob".to_owned(), password: "secret".to_owned() };
        for noise in ["", "rspauth=1", "nonce=\"a\",algorithm=md5-sess,qop=\"auth-conf\""] {
            assert!(respond(noise.as_bytes(), &login, "c").is_none(), "{noise}");
        }
    }

    #[test]
    fn noise_proves_nothing() {
        for noise in ["", "=", "a", "a=\"", "a=\"\\", "username=\"bob\"", ",,,"] {
            assert_eq!(exchange().verify(noise.as_bytes(), &users()), None);
        }
        assert_eq!(exchange().verify(&[0xff, 0xfe], &users()), None);
    }
}
