//! Quotas: a node `/zookeeper/quota<path>/zookeeper_limits` limits what is below a path, and
//! `zookeeper_stats` beside it counts. Source: ZooKeeper's `Quotas`, `StatsTrack`, `checkQuota`.

use crate::code::Refusal;
use crate::tree::Tree;

const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "/zookeeper_limits";
const STATS: &str = "/zookeeper_stats";

/// Counts or limits; -1 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Track {
    count: i64,
    bytes: i64,
    count_hard_limit: i64,
    bytes_hard_limit: i64,
}

impl Track {
    /// Reads `count=1,bytes=2=;countHardLimit=3`; what is not a number counts as none.
    fn parse(data: Option<&[u8]>) -> Track {
        let mut track = Track { count: -1, bytes: -1, count_hard_limit: -1, bytes_hard_limit: -1 };
        let text = String::from_utf8_lossy(data.unwrap_or_default());
        for pair in text.split([',', ';']) {
            let mut parts = pair.split('=');
            let (Some(key), Some(value)) = (parts.next(), parts.next()) else { continue };
            let value = value.parse().unwrap_or(-1);
            match key {
                "count" => track.count = value,
                "bytes" => track.bytes = value,
                "countHardLimit" => track.count_hard_limit = value,
                "byteHardLimit" => track.bytes_hard_limit = value,
                _ => {}
            }
        }
        track
    }
}

/// The path that a limit node limits.
pub(crate) fn path_of_limit(path: &str) -> Option<&str> {
    path.strip_prefix(ROOT)?.strip_suffix(LIMITS).filter(|path| !path.is_empty())
}

fn path_of_stats(path: &str) -> Option<&str> {
    path.strip_prefix(ROOT)?.strip_suffix(STATS).filter(|path| !path.is_empty())
}

/// The nearest path at or above this one that has a quota.
fn limited_prefix(tree: &Tree, path: &str) -> Option<String> {
    if tree.quotas().is_empty() {
        return None;
    }
    let mut prefix = path;
    while !prefix.is_empty() {
        if tree.quotas().contains(prefix) {
            return Some(prefix.to_owned());
        }
        prefix = prefix.rsplit_once('/')?.0;
    }
    None
}

fn count(tree: &mut Tree, path: &str, bytes: i64, nodes: i64) {
    let Some(prefix) = limited_prefix(tree, path) else { return };
    let stats = format!("{ROOT}{prefix}{STATS}");
    let Some(node) = tree.get(&stats) else { return };
    let track = Track::parse(node.data.as_deref());
    let text = format!("count={},bytes={}", track.count + nodes, track.bytes + bytes);
    tree.replace_data(&stats, text.into_bytes());
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A node was created: it may be part of a quota, or count for one.
pub(crate) fn on_create(tree: &mut Tree, path: &str, bytes: usize) {
    if let Some(limited) = path_of_limit(path) {
        let limited = limited.to_owned();
        tree.add_quota(&limited);
    } else if let Some(limited) = path_of_stats(path) {
        let (nodes, bytes) = measure(tree, limited);
        tree.replace_data(path, format!("count={nodes},bytes={bytes}").into_bytes());
    }
    count(tree, path, signed(bytes), 1);
}

/// A node was deleted.
pub(crate) fn on_delete(tree: &mut Tree, path: &str, bytes: usize) {
    if let Some(limited) = path_of_limit(path) {
        let limited = limited.to_owned();
        tree.remove_quota(&limited);
    }
    count(tree, path, -signed(bytes), -1);
}

/// A node's data changed its length.
pub(crate) fn on_set(tree: &mut Tree, path: &str, before: usize, after: usize) {
    count(tree, path, signed(after) - signed(before), 0);
}

/// Nodes at and below a path, and the bytes of their data.
fn measure(tree: &Tree, path: &str) -> (usize, usize) {
    let (mut nodes, mut bytes) = (0, 0);
    let mut stack = vec![path.to_owned()];
    while let Some(path) = stack.pop() {
        let Some(node) = tree.get(&path) else { continue };
        nodes += 1;
        bytes += node.data.as_ref().map_or(0, |data| data.len());
        stack.extend(node.children.iter().map(|name| format!("{path}/{name}")));
    }
    (nodes, bytes)
}

/// Refuses what would exceed a hard limit.
pub(crate) fn check(tree: &Tree, path: &str, bytes: i64, nodes: i64) -> Result<(), Refusal> {
    let Some(prefix) = limited_prefix(tree, path) else { return Ok(()) };
    let read = |suffix: &str| {
        let node = tree.get(&format!("{ROOT}{prefix}{suffix}"))?;
        Some(Track::parse(node.data.as_deref()))
    };
    let (Some(limits), Some(stats)) = (read(LIMITS), read(STATS)) else { return Ok(()) };
    let exceeds = |limit: i64, now: i64, more: i64| more != 0 && limit > -1 && now + more > limit;
    if exceeds(limits.count_hard_limit, stats.count, nodes)
        || exceeds(limits.bytes_hard_limit, stats.bytes, bytes)
    {
        return Err(Refusal::QuotaExceeded);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_are_read_in_old_and_new_form() {
        let track = Track::parse(Some(b"count=5,bytes=-1=;byteHardLimit=9;countHardLimit=7"));
        assert_eq!(track, Track { count: 5, bytes: -1, count_hard_limit: 7, bytes_hard_limit: 9 });
        assert_eq!(Track::parse(Some(b"rubbish")).count, -1);
    }

    #[test]
    fn limit_nodes_name_what_they_limit() {
        assert_eq!(path_of_limit("/zookeeper/quota/a/b/zookeeper_limits"), Some("/a/b"));
        assert_eq!(path_of_limit("/zookeeper/quota/zookeeper_limits"), None);
        assert_eq!(path_of_limit("/a/zookeeper_limits"), None);
    }
}
