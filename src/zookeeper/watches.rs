//! Who waits for which change. Source: ZooKeeper's `WatchManager`, of which a server has two: one
//! for the data of nodes (and their existence), one for their children.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::tree::EventKind;

/// Names a connection, never twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// How long a watch stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Goes when it fires.
    Once,
    Persistent,
    /// Persistent, and for everything below; it hears of nodes, not of lists of children.
    Recursive,
}

/// The watches of one kind.
#[derive(Debug, Default)]
pub(crate) struct WatchTable {
    by_path: HashMap<Arc<str>, BTreeMap<ConnectionId, Mode>>,
    by_connection: BTreeMap<ConnectionId, BTreeSet<Arc<str>>>,
    recursive_count: usize,
}

impl WatchTable {
    pub(crate) fn add(&mut self, path: &str, connection: ConnectionId, mode: Mode) {
        let path: Arc<str> = match self.by_path.get_key_value(path) {
            Some((path, _)) => path.clone(),
            None => path.into(),
        };
        let before = self.by_path.entry(path.clone()).or_default().insert(connection, mode);
        self.recursive_count -= usize::from(before == Some(Mode::Recursive));
        self.recursive_count += usize::from(mode == Mode::Recursive);
        self.by_connection.entry(connection).or_default().insert(path);
    }

    /// Takes the connections that an event is for; the watches that fire once are gone then.
    pub(crate) fn trigger(&mut self, path: &str, kind: EventKind) -> BTreeSet<ConnectionId> {
        let mut hit = BTreeSet::new();
        let mut gone = Vec::new();
        for (connection, mode) in self.by_path.get(path).into_iter().flatten() {
            match mode {
                Mode::Recursive if kind == EventKind::ChildrenChanged => {}
                Mode::Recursive | Mode::Persistent => {
                    hit.insert(*connection);
                }
                Mode::Once => {
                    hit.insert(*connection);
                    gone.push(*connection);
                }
            }
        }
        for connection in gone {
            self.remove(path, connection);
        }
        if self.recursive_count > 0 && kind != EventKind::ChildrenChanged {
            for above in ancestors(path) {
                let watching = self.by_path.get(above).into_iter().flatten();
                let recursive = watching.filter(|(_, mode)| **mode == Mode::Recursive);
                hit.extend(recursive.map(|(connection, _)| *connection));
            }
        }
        hit
    }

    /// Whether the connection watches exactly this path.
    pub(crate) fn contains(&self, path: &str, connection: ConnectionId) -> bool {
        self.by_path.get(path).is_some_and(|watching| watching.contains_key(&connection))
    }

    /// Removes a watch; false when there is none.
    pub(crate) fn remove(&mut self, path: &str, connection: ConnectionId) -> bool {
        if let Some(paths) = self.by_connection.get_mut(&connection) {
            paths.remove(path);
            if paths.is_empty() {
                self.by_connection.remove(&connection);
            }
        }
        self.remove_from_path(path, connection)
    }

    fn remove_from_path(&mut self, path: &str, connection: ConnectionId) -> bool {
        let Some(watching) = self.by_path.get_mut(path) else { return false };
        let removed = watching.remove(&connection);
        if watching.is_empty() {
            self.by_path.remove(path);
        }
        self.recursive_count -= usize::from(removed == Some(Mode::Recursive));
        removed.is_some()
    }

    /// Removes all watches of a connection.
    pub(crate) fn remove_connection(&mut self, connection: ConnectionId) {
        for path in self.by_connection.remove(&connection).unwrap_or_default() {
            self.remove_from_path(&path, connection);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.by_path.values().map(BTreeMap::len).sum()
    }

    pub(crate) fn path_count(&self) -> usize {
        self.by_path.len()
    }

    pub(crate) fn by_connection(&self) -> &BTreeMap<ConnectionId, BTreeSet<Arc<str>>> {
        &self.by_connection
    }

    pub(crate) fn by_path(&self) -> &HashMap<Arc<str>, BTreeMap<ConnectionId, Mode>> {
        &self.by_path
    }
}

/// The paths above a path, the root last.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = path;
    std::iter::from_fn(move || {
        let (above, _) = rest.rsplit_once('/')?;
        if rest == "/" {
            return None;
        }
        rest = if above.is_empty() { "/" } else { above };
        Some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    #[test]
    fn a_watch_fires_once_unless_it_is_persistent() {
        let mut table = WatchTable::default();
        table.add("/a", A, Mode::Once);
        table.add("/a", B, Mode::Persistent);
        assert_eq!(table.trigger("/a", EventKind::DataChanged), BTreeSet::from([A, B]));
        assert_eq!(table.trigger("/a", EventKind::DataChanged), BTreeSet::from([B]));
        assert_eq!(table.count(), 1);
    }

    #[test]
    fn a_recursive_watch_hears_of_nodes_below_but_not_of_lists() {
        let mut table = WatchTable::default();
        table.add("/", A, Mode::Recursive);
        table.add("/a", B, Mode::Recursive);
        assert_eq!(table.trigger("/a/b/c", EventKind::Created), BTreeSet::from([A, B]));
        assert_eq!(table.trigger("/b", EventKind::Created), BTreeSet::from([A]));
        assert!(table.trigger("/a", EventKind::ChildrenChanged).is_empty());
        table.remove_connection(A);
        assert!(table.trigger("/b", EventKind::Created).is_empty());
    }

    #[test]
    fn ancestors_end_at_the_root() {
        assert_eq!(ancestors("/a/b").collect::<Vec<_>>(), ["/a", "/"]);
        assert_eq!(ancestors("/a").collect::<Vec<_>>(), ["/"]);
        assert_eq!(ancestors("/").count(), 0);
    }
}
