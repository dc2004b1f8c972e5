//! Who a client is, and what an ACL lets it do: the schemes world, auth, digest, ip, sasl, x509 and super.
//! Source: ZooKeeper's `PrepRequestProcessor.fixupACL`, `ZooKeeperServer.checkACL` and its
//! authentication providers.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::code::Refusal;
use crate::data::{Acl, Id};
use crate::jute::java_text;

/// Entries that `auth` may stand for in one ACL, and far more than a request has by itself.
const EXPANDED_MAX: usize = 100_000;
/// What the ids of a connection may come to: every one is held, and compared with every entry of
/// every ACL that its requests meet.
const IDS_MAX: usize = 256;
const IDS_BYTES_MAX: usize = 256 << 10;

/// Adds what a client has proven to what it is. False where that is more than anybody can be.
pub(crate) fn add_ids(ids: &mut Vec<Id>, proven: Vec<Id>) -> bool {
    for id in proven {
        if ids.contains(&id) {
            continue;
        }
        let bytes: usize = ids.iter().chain([&id]).map(|id| id.id.len()).sum();
        if ids.len() >= IDS_MAX || bytes > IDS_BYTES_MAX {
            return false;
        }
        ids.push(id);
    }
    true
}

/// The id of a digest: the user, and SHA-1 over user and password, both as Java reads them.
pub(crate) fn digest_id(user_and_password: &[u8]) -> String {
    let text = java_text(user_and_password);
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    let user = text.split(':').next().unwrap_or_default();
    format!("{user}:{}", STANDARD.encode(hash.as_ref()))
}

/// What an auth packet makes of the client; `None` when the scheme is not ours, or says nothing.
///
/// `super_digest` is the digest id that makes a super user.
pub(crate) fn authenticate(
    scheme: &str,
    auth: Option<&[u8]>,
    address: IpAddr,
    super_digest: Option<&str>,
) -> Option<Vec<Id>> {
    match scheme {
        "digest" => {
            let id = digest_id(auth?);
            let mut ids = Vec::new();
            if super_digest == Some(id.as_str()) {
                ids.push(Id::new("super", ""));
            }
            ids.push(Id::new("digest", &id));
            Some(ids)
        }
        "ip" => Some(vec![ip_id(address)]),
        _ => None,
    }
}

/// The id that every connection has from its address.
pub(crate) fn ip_id(address: IpAddr) -> Id {
    Id::new("ip", &address.to_canonical().to_string())
}

/// The schemes that a server knows only where it is set up for them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Schemes {
    pub(crate) sasl: bool,
    pub(crate) x509: bool,
}

/// Checks an ACL that a client sends, and puts the client's own ids where it says `auth`.
pub(crate) fn resolve(acls: &[Acl], client: &[Id], schemes: Schemes) -> Result<Vec<Acl>, Refusal> {
    let mut resolved = Vec::new();
    let mut seen = HashSet::new();
    let mut expanded = 0;
    for acl in acls {
        if !seen.insert(acl) {
            continue;
        }
        match acl.id.scheme.as_str() {
            "world" if acl.id.id == "anyone" => resolved.push(acl.clone()),
            "auth" => {
                let before = resolved.len();
                let proven = |id: &&Id| matches!(id.scheme.as_str(), "digest" | "sasl" | "x509");
                for id in client.iter().filter(proven) {
                    resolved.push(Acl { perms: acl.perms, id: id.clone() });
                }
                expanded += resolved.len() - before;
                if resolved.len() == before || expanded > EXPANDED_MAX {
                    return Err(Refusal::InvalidAcl);
                }
            }
            "digest" if acl.id.id.trim_end_matches(':').split(':').count() == 2 => {
                resolved.push(acl.clone());
            }
            "sasl" if schemes.sasl && is_principal(&acl.id.id) => resolved.push(acl.clone()),
            "x509" if schemes.x509 && acl.id.id.contains('=') => resolved.push(acl.clone()),
            "ip" if parse_network(&acl.id.id).is_some() => resolved.push(acl.clone()),
            _ => return Err(Refusal::InvalidAcl),
        }
    }
    if resolved.is_empty() { Err(Refusal::InvalidAcl) } else { Ok(resolved) }
}

/// Whether the client may do what any of the bits of `wanted` names.
pub(crate) fn check(acls: &[Acl], wanted: i32, client: &[Id]) -> Result<(), Refusal> {
    if acls.is_empty() || client.iter().any(|id| id.scheme == "super") {
        return Ok(());
    }
    let permits = |acl: &Acl| {
        acl.perms & wanted != 0
            && (acl.id.scheme == "world" && acl.id.id == "anyone"
                || client.iter().any(|id| matches(&acl.id, id)))
    };
    if acls.iter().any(permits) { Ok(()) } else { Err(Refusal::NoAuth) }
}

/// What one client may do, in the parts of one request: tens of thousands of them may meet the same
/// long ACL, which is looked through once.
#[derive(Debug)]
pub(crate) struct Checks<'a> {
    client: &'a [Id],
    /// By where the ACL lies, and what was wanted.
    known: RefCell<HashMap<(*const Acl, i32), Checked>>,
}

#[derive(Debug)]
struct Checked {
    /// Held, so that no other ACL can lie there.
    _acls: Arc<[Acl]>,
    result: Result<(), Refusal>,
}

impl<'a> Checks<'a> {
    /// Shorter ACLs are looked through each time.
    const LONG: usize = 16;

    pub(crate) fn new(client: &'a [Id]) -> Checks<'a> {
        Checks { client, known: RefCell::default() }
    }

    /// As [`check`].
    pub(crate) fn check(&self, acls: &Arc<[Acl]>, wanted: i32) -> Result<(), Refusal> {
        if acls.len() < Checks::LONG {
            return check(acls, wanted, self.client);
        }
        let mut known = self.known.borrow_mut();
        let checked = known.entry((acls.as_ptr(), wanted)).or_insert_with(|| Checked {
            _acls: acls.clone(),
            result: check(acls, wanted, self.client),
        });
        checked.result
    }
}

fn matches(wanted: &Id, client: &Id) -> bool {
    if wanted.scheme != client.scheme {
        return false;
    }
    match wanted.scheme.as_str() {
        "digest" | "sasl" | "x509" => wanted.id == client.id,
        "ip" => {
            let address = client.id.parse::<Ipv4Addr>().map(u32::from);
            match (parse_network(&wanted.id), address) {
                (Some((network, mask)), Ok(address)) => network & mask == address & mask,
                _ => false,
            }
        }
        _ => false,
    }
}

/// Whether a name may be one of Kerberos: `name`, `name@realm` or `name/host@realm`, of which each may
/// be empty; without a realm it is what it likes.
fn is_principal(name: &str) -> bool {
    match name.split_once('@') {
        None => true,
        Some((name, realm)) => !realm.contains(['/', '@']) && name.matches('/').count() <= 1,
    }
}

/// An IPv4 address, with `/bits` for a network; ZooKeeper's scheme knows no IPv6.
fn parse_network(text: &str) -> Option<(u32, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, bits.parse().ok().filter(|bits| *bits <= 32)?),
        None => (text, 32_u32),
    };
    let mut octets = [0_u8; 4];
    let mut parts = address.split('.');
    for octet in &mut octets {
        *octet = parts.next()?.parse().ok()?;
    }
    if parts.next().is_some() {
        return None;
    }
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    Some((u32::from_be_bytes(octets), mask))
}

/// An ACL as a client sees it that may not administrate the node: without the passwords' hashes.
pub(crate) fn without_hashes(acls: &[Acl]) -> Vec<Acl> {
    let hide = |acl: &Acl| match acl.id.scheme.as_str() {
        "digest" => {
            let id = match acl.id.id.split_once(':') {
                Some((user, _)) => format!("{user}:x"),
                None => acl.id.id.clone(),
            };
            Acl { perms: acl.perms, id: Id::new("digest", &id) }
        }
        _ => acl.clone(),
    };
    acls.iter().map(hide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::perms;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn acl(perms: i32, scheme: &str, id: &str) -> Acl {
        Acl { perms, id: Id::new(scheme, id) }
    }

    #[test]
    fn a_digest_is_that_of_the_original() {
        // The example of ZooKeeper's documentation of super users.
        assert_eq!(digest_id(b"super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    }

    #[test]
    fn a_digest_is_of_text() {
        let id = digest_id(b"\xff:\xfe");
        assert_eq!(id, digest_id("\u{fffd}:\u{fffd}".as_bytes()));
        assert!(id.starts_with("\u{fffd}:"));
    }

    #[test]
    fn auth_stands_for_the_clients_own_ids() {
        let client = authenticate("digest", Some(b"u:p"), HOME, None).unwrap();
        let resolved =
            resolve(&[acl(perms::ALL, "auth", "")], &client, Schemes::default()).unwrap();
        assert_eq!(resolved, [acl(perms::ALL, "digest", &digest_id(b"u:p"))]);
        assert_eq!(check(&resolved, perms::READ, &client), Ok(()));
        assert_eq!(check(&resolved, perms::READ, &[ip_id(HOME)]), Err(Refusal::NoAuth));
        let stranger = [ip_id(HOME)];
        assert_eq!(
            resolve(&[acl(1, "auth", "")], &stranger, Schemes::default()),
            Err(Refusal::InvalidAcl)
        );
    }

    #[test]
    fn nobody_is_more_than_a_few() {
        let one = |number: usize| vec![Id::new("digest", &number.to_string())];
        let mut ids = Vec::new();
        assert!((0..IDS_MAX).all(|number| add_ids(&mut ids, one(number))));
        assert!(add_ids(&mut ids, one(7)), "it is that already");
        assert!(!add_ids(&mut ids, one(IDS_MAX)));
        // Each of its ids for each entry would be too much for anybody.
        let acls: Vec<Acl> = (0..100_000).map(|number| acl(number, "auth", "")).collect();
        assert_eq!(resolve(&acls[..100], &ids, Schemes::default()).unwrap().len(), 100 * IDS_MAX);
        assert_eq!(resolve(&acls, &ids, Schemes::default()), Err(Refusal::InvalidAcl));
        let long = "x".repeat(IDS_BYTES_MAX);
        let mut ids = vec![Id::new("digest", &long)];
        assert!(!add_ids(&mut ids, one(1)));
    }

    #[test]
    fn bad_acls_are_refused() {
        let bad = [
            vec![],
            vec![acl(1, "world", "nobody")],
            vec![acl(1, "digest", "nocolon")],
            vec![acl(1, "ip", "1.2.3")],
            vec![acl(1, "ip", "1.2.3.4/33")],
            vec![acl(1, "unheard", "of")],
        ];
        for acls in bad {
            assert_eq!(
                resolve(&acls, &[], Schemes::default()),
                Err(Refusal::InvalidAcl),
                "{acls:?}"
            );
        }
    }

    #[test]
    fn names_of_sasl_are_those_of_kerberos() {
        for good in ["", "bob", "a/b/c", "bob@x", "@", "bob/host@x", "/@"] {
            assert!(is_principal(good), "{good}");
        }
        for bad in ["bob@x/y", "bob@x@y", "a/b/c@x", "@@"] {
            assert!(!is_principal(bad), "{bad}");
        }
    }

    /// Takes minutes where each entry is looked for among all before it.
    #[test]
    fn a_long_acl_is_resolved_in_no_time_and_each_entry_stands_once() {
        let ip = |number: u32| acl(1, "ip", &Ipv4Addr::from(number).to_string());
        let once: Vec<Acl> = (0..100_000).map(ip).collect();
        let twice: Vec<Acl> = once.iter().chain(&once).cloned().collect();
        assert_eq!(resolve(&twice, &[], Schemes::default()), Ok(once));
    }

    #[test]
    fn networks_match_by_their_bits() {
        let client = [Id::new("ip", "10.1.2.3")];
        for (network, permitted) in [
            ("10.1.2.3", true),
            ("10.1.0.0/16", true),
            ("0.0.0.0/0", true),
            ("10.2.0.0/16", false),
            ("10.1.2.4", false),
        ] {
            let acls = [acl(perms::READ, "ip", network)];
            assert_eq!(check(&acls, perms::READ, &client).is_ok(), permitted, "{network}");
            assert_eq!(check(&acls, perms::WRITE, &client), Err(Refusal::NoAuth));
        }
    }

    #[test]
    fn the_super_user_may_do_everything() {
        let id = digest_id(b"super:secret");
        let client = authenticate("digest", Some(b"super:secret"), HOME, Some(&id)).unwrap();
        assert_eq!(check(&[acl(0, "digest", "x:y")], perms::ADMIN, &client), Ok(()));
        let other = authenticate("digest", Some(b"super:guess"), HOME, Some(&id)).unwrap();
        assert_eq!(check(&[acl(0, "digest", "x:y")], perms::ADMIN, &other), Err(Refusal::NoAuth));
    }
}
