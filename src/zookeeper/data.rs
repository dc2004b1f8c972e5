//! What every part speaks of: Stat, ACL, and the kinds of nodes.

use crate::jute::{JuteError, Reader, Write};

/// The facts about a node that a client gets to see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// Transaction that created the node.
    pub czxid: i64,
    /// Transaction that wrote the data last.
    pub mzxid: i64,
    /// Creation time, milliseconds since 1970.
    pub ctime: i64,
    /// Time of the last write of the data, milliseconds since 1970.
    pub mtime: i64,
    /// How often the data was written.
    pub version: i32,
    /// How often children were created or deleted.
    pub cversion: i32,
    /// How often the ACL was set.
    pub aversion: i32,
    /// The session that owns an ephemeral node; marks container and TTL nodes too; else 0.
    pub ephemeral_owner: i64,
    /// Length of the data; null counts as 0.
    pub data_length: i32,
    /// Number of children.
    pub child_count: i32,
    /// Transaction that created or deleted a child last.
    pub pzxid: i64,
}

impl Stat {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.long(self.czxid);
        out.long(self.mzxid);
        out.long(self.ctime);
        out.long(self.mtime);
        out.int(self.version);
        out.int(self.cversion);
        out.int(self.aversion);
        out.long(self.ephemeral_owner);
        out.int(self.data_length);
        out.int(self.child_count);
        out.long(self.pzxid);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Stat, JuteError> {
        Ok(Stat {
            czxid: reader.long()?,
            mzxid: reader.long()?,
            ctime: reader.long()?,
            mtime: reader.long()?,
            version: reader.int()?,
            cversion: reader.int()?,
            aversion: reader.int()?,
            ephemeral_owner: reader.long()?,
            data_length: reader.int()?,
            child_count: reader.int()?,
            pzxid: reader.long()?,
        })
    }
}

/// Who: a scheme and an id in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// `world`, `auth`, `digest`, `ip`, `sasl` or `super`.
    pub scheme: String,
    /// What the scheme makes of it.
    pub id: String,
}

impl Id {
    /// An id.
    pub fn new(scheme: &str, id: &str) -> Id {
        Id { scheme: scheme.to_owned(), id: id.to_owned() }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.text(&self.scheme);
        out.text(&self.id);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Id, JuteError> {
        Ok(Id { scheme: reader.text()?, id: reader.string()?.unwrap_or_default() })
    }
}

/// Permissions, as bits.
pub mod perms {
    /// Read the data and list the children.
    pub const READ: i32 = 1;
    /// Write the data.
    pub const WRITE: i32 = 2;
    /// Create children.
    pub const CREATE: i32 = 4;
    /// Delete children.
    pub const DELETE: i32 = 8;
    /// Set the ACL.
    pub const ADMIN: i32 = 16;
    /// All of them.
    pub const ALL: i32 = 31;
}

/// One entry of an ACL: who may do what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    /// Bits of [`perms`].
    pub perms: i32,
    /// Who.
    pub id: Id,
}

impl Acl {
    /// Everybody may do everything.
    pub fn open() -> Vec<Acl> {
        vec![Acl { perms: perms::ALL, id: Id::new("world", "anyone") }]
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.int(self.perms);
        self.id.write(out);
    }

    pub(crate) fn write_all(acls: &[Acl], out: &mut Vec<u8>) {
        out.length(acls.len());
        for acl in acls {
            acl.write(out);
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Acl, JuteError> {
        Ok(Acl { perms: reader.int()?, id: Id::read(reader)? })
    }

    pub(crate) fn read_all(reader: &mut Reader<'_>) -> Result<Vec<Acl>, JuteError> {
        Ok(reader.vector(Acl::read)?.unwrap_or_default())
    }
}

/// What a node's `ephemeralOwner` says about its kind. Source: ZooKeeper's `EphemeralType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Persistent,
    /// Goes with its session.
    Ephemeral,
    /// Goes when its last child has gone.
    Container,
    /// Goes when it has no children and was not written for this many milliseconds.
    Ttl(i64),
}

const CONTAINER_OWNER: i64 = i64::MIN;
const TTL_MASK: u64 = 0xff00_0000_0000_0000;
const TTL_RESERVED_MASK: u64 = 0x00ff_ff00_0000_0000;

impl Kind {
    /// The longest time to live: 40 bits of milliseconds.
    pub(crate) const TTL_MAX: i64 = 0x00ff_ffff_ffff;

    /// `extended`: whether TTL nodes are enabled; their owners are session ids otherwise.
    pub(crate) fn of(owner: i64, extended: bool) -> Kind {
        let bits = owner.cast_unsigned();
        if extended && bits & TTL_MASK == TTL_MASK && bits & TTL_RESERVED_MASK == 0 {
            return Kind::Ttl(owner & Kind::TTL_MAX);
        }
        match owner {
            CONTAINER_OWNER => Kind::Container,
            0 => Kind::Persistent,
            _ => Kind::Ephemeral,
        }
    }

    /// The owner that stands for this kind; `session` is that of an ephemeral.
    pub(crate) fn owner(self, session: i64) -> i64 {
        match self {
            Kind::Persistent => 0,
            Kind::Ephemeral => session,
            Kind::Container => CONTAINER_OWNER,
            Kind::Ttl(ttl) => (TTL_MASK | ttl.cast_unsigned()).cast_signed(),
        }
    }
}

/// Checks a path as ZooKeeper's `PathUtils.validatePath` does; Java counts in UTF-16 units, where
/// everything beyond the basic plane is a surrogate and so refused.
pub fn check_path(path: &str) -> Result<(), String> {
    let refuse = |reason: String| Err(format!("Invalid path string \"{path}\" caused by {reason}"));
    if path.is_empty() {
        return Err("Path length must be > 0".to_owned());
    }
    if !path.starts_with('/') {
        return Err("Path must start with / character".to_owned());
    }
    if path.len() == 1 {
        return Ok(());
    }
    if path.ends_with('/') {
        return Err("Path must not end with / character".to_owned());
    }
    let mut at = 1;
    for name in path[1..].split('/') {
        if name.is_empty() {
            return refuse(format!("empty node name specified @{at}"));
        }
        if name == "." || name == ".." {
            return refuse(format!("relative paths not allowed @{}", at + name.len() - 1));
        }
        for character in name.chars() {
            match character {
                '\0' => return refuse(format!("null character not allowed @{at}")),
                '\u{1}'..='\u{1f}'
                | '\u{7f}'..='\u{9f}'
                | '\u{e000}'..='\u{f8ff}'
                | '\u{fff0}'..='\u{ffff}'
                | '\u{10000}'.. => return refuse(format!("invalid character @{at}")),
                _ => at += 1,
            }
        }
        at += 1;
    }
    Ok(())
}

/// The parent of a path with a slash; the root's own children have the parent `""`, as in the tree.
pub(crate) fn split_path(path: &str) -> Option<(&str, &str)> {
    path.rsplit_once('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_tell_the_kind() {
        for kind in [Kind::Persistent, Kind::Ephemeral, Kind::Container, Kind::Ttl(5000)] {
            assert_eq!(Kind::of(kind.owner(0x1234), true), kind);
        }
        assert_eq!(Kind::of(Kind::Ttl(5000).owner(0), false), Kind::Ephemeral);
    }

    #[test]
    fn paths_are_checked_as_java_does() {
        let refused = [
            ("", "Path length must be > 0"),
            ("a", "Path must start with / character"),
            ("/a/", "Path must not end with / character"),
            ("//a", "Invalid path string \"//a\" caused by empty node name specified @1"),
            ("/a//b", "Invalid path string \"/a//b\" caused by empty node name specified @3"),
            ("/a/./b", "Invalid path string \"/a/./b\" caused by relative paths not allowed @3"),
            ("/a/..", "Invalid path string \"/a/..\" caused by relative paths not allowed @4"),
            ("/a\0", "Invalid path string \"/a\0\" caused by null character not allowed @2"),
            ("/a\u{1}", "Invalid path string \"/a\u{1}\" caused by invalid character @2"),
            ("/\u{1f600}", "Invalid path string \"/\u{1f600}\" caused by invalid character @1"),
        ];
        for (path, reason) in refused {
            assert_eq!(check_path(path), Err(reason.to_owned()), "{path:?}");
        }
        for path in ["/", "/a", "/a/b", "/a.b", "/...", "/..a", "/ü/日本"] {
            assert_eq!(check_path(path), Ok(()), "{path:?}");
        }
    }
}
