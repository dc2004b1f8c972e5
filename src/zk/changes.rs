//! What a store tells its users: which paths are dirty, and how the session is.
//!
//! Nothing here queues events. A subscriber has a set of dirty paths and the latest state of the session, so a slow one
//! costs memory by the number of paths at most.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::SessionId;

/// How the session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// There has been no session yet. Next: `Connected`, `AuthFailed`, `Closed`.
    Connecting,
    /// The session serves. Next: `Disconnected`, `Expired`, `Closed`.
    Connected(SessionId),
    /// The connection is lost, the session perhaps not. Next: `Connected` with the same session, `Expired`.
    Disconnected(SessionId),
    /// This session is gone, with its ephemeral nodes; a new one is being built. Next: `Connected` with another session.
    /// A subscriber may see that one without having seen this.
    Expired(SessionId),
    /// ZooKeeper refused the credentials; it is tried again. Next: `Connected`, `Closed`.
    AuthFailed,
    /// The store was closed. The last state.
    Closed,
}

impl SessionState {
    /// The session that may hold ephemeral nodes, if any.
    pub fn session_id(self) -> Option<SessionId> {
        match self {
            SessionState::Connected(id) | SessionState::Disconnected(id) => Some(id),
            _ => None,
        }
    }
}

/// What of a path was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Watched {
    /// Its data, its being there or not.
    Node,
    /// The list of its children.
    Children,
}

/// A path to read again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dirty {
    /// The path as it was watched.
    pub path: String,
    /// What of it was watched.
    pub watched: Watched,
}

/// What changed since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Paths whose watch fired, or was lost with the connection.
    pub dirty: BTreeSet<Dirty>,
    /// The session's latest state, where it changed.
    pub session: Option<SessionState>,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.session.is_none()
    }

    /// Whether a path's node is to be read again.
    pub fn node_is_dirty(&self, path: &str) -> bool {
        self.contains(path, Watched::Node)
    }

    /// Whether a path's children are to be listed again.
    pub fn children_are_dirty(&self, path: &str) -> bool {
        self.contains(path, Watched::Children)
    }

    fn contains(&self, path: &str, watched: Watched) -> bool {
        self.dirty.contains(&Dirty { path: path.to_owned(), watched })
    }
}

#[derive(Default)]
struct Subscriber {
    pending: Mutex<Changes>,
    wake: Notify,
    /// Only paths that are one of these or below one; empty for all.
    under: Vec<String>,
}

impl Subscriber {
    fn wants(&self, path: &str) -> bool {
        self.under.is_empty()
            || self.under.iter().any(|root| {
                path.strip_prefix(root.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }
}

/// A subscription to a store's changes.
pub struct ZkChanges {
    subscriber: Arc<Subscriber>,
    hub: Arc<Hub>,
    ended: bool,
}

impl ZkChanges {
    /// Waits for changes and takes all there are; `None` after `Closed` was given.
    pub async fn next(&mut self) -> Option<Changes> {
        if self.ended {
            return None;
        }
        loop {
            if let Some(changes) = self.take() {
                return Some(changes);
            }
            self.subscriber.wake.notified().await;
        }
    }

    /// Takes what there is, without waiting.
    pub fn take(&mut self) -> Option<Changes> {
        let changes = std::mem::take(&mut *self.subscriber.pending.lock());
        if changes.session == Some(SessionState::Closed) {
            self.ended = true;
        }
        (!changes.is_empty()).then_some(changes)
    }

    /// Narrows the subscription to these paths and all below them. States of the session come as before.
    pub fn under(self, roots: &[&str]) -> ZkChanges {
        let under = roots.iter().map(|&root| root.to_owned()).collect();
        self.hub.subscribe_under(under)
    }
}

/// Spreads changes to all subscribers; each store has one.
pub(crate) struct Hub {
    inner: Mutex<HubInner>,
}

struct HubInner {
    session: SessionState,
    subscribers: Vec<Weak<Subscriber>>,
}

impl Hub {
    pub(crate) fn new(session: SessionState) -> Arc<Hub> {
        Arc::new(Hub { inner: Mutex::new(HubInner { session, subscribers: Vec::new() }) })
    }

    pub(crate) fn session(&self) -> SessionState {
        self.inner.lock().session
    }

    pub(crate) fn subscribe(self: &Arc<Hub>) -> ZkChanges {
        self.subscribe_under(Vec::new())
    }

    fn subscribe_under(self: &Arc<Hub>, under: Vec<String>) -> ZkChanges {
        let subscriber = Arc::new(Subscriber { under, ..Subscriber::default() });
        let mut inner = self.inner.lock();
        subscriber.pending.lock().session = Some(inner.session);
        inner.subscribers.retain(|other| other.strong_count() > 0);
        inner.subscribers.push(Arc::downgrade(&subscriber));
        ZkChanges { subscriber, hub: self.clone(), ended: false }
    }

    pub(crate) fn set_session(&self, session: SessionState) {
        let mut inner = self.inner.lock();
        if inner.session == session || inner.session == SessionState::Closed {
            return;
        }
        inner.session = session;
        for subscriber in inner.subscribers.iter().filter_map(Weak::upgrade) {
            subscriber.pending.lock().session = Some(session);
            subscriber.wake.notify_one();
        }
    }

    pub(crate) fn mark_dirty(&self, path: &str, watched: Watched) {
        let inner = self.inner.lock();
        for subscriber in inner.subscribers.iter().filter_map(Weak::upgrade) {
            if subscriber.wants(path) {
                let dirty = Dirty { path: path.to_owned(), watched };
                subscriber.pending.lock().dirty.insert(dirty);
                subscriber.wake.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_subscriber_gets_each_dirty_path_once_and_the_latest_state() {
        let hub = Hub::new(SessionState::Connecting);
        let mut changes = hub.subscribe();
        hub.set_session(SessionState::Connected(SessionId(1)));
        hub.set_session(SessionState::Disconnected(SessionId(1)));
        hub.mark_dirty("/a", Watched::Node);
        hub.mark_dirty("/a", Watched::Node);
        hub.mark_dirty("/a", Watched::Children);
        let first = changes.next().await.unwrap();
        assert_eq!(first.session, Some(SessionState::Disconnected(SessionId(1))));
        assert_eq!(first.dirty.len(), 2);
        assert!(first.node_is_dirty("/a") && first.children_are_dirty("/a"));
        assert_eq!(changes.take(), None);
    }

    #[tokio::test]
    async fn a_narrowed_subscription_sees_its_own_paths_alone() {
        let hub = Hub::new(SessionState::Connected(SessionId(1)));
        let mut changes = hub.subscribe().under(&["/brokers/topics", "/controller"]);
        assert!(changes.take().unwrap().dirty.is_empty());
        hub.mark_dirty("/controller_epoch", Watched::Node);
        hub.mark_dirty("/brokers/topicsx", Watched::Node);
        assert_eq!(changes.take(), None);
        hub.mark_dirty("/brokers/topics/t", Watched::Node);
        hub.mark_dirty("/controller", Watched::Node);
        let paths: Vec<_> = changes.take().unwrap().dirty.into_iter().map(|d| d.path).collect();
        assert_eq!(paths, ["/brokers/topics/t", "/controller"]);
    }

    #[tokio::test]
    async fn closed_is_told_once_and_ends_the_subscription() {
        let hub = Hub::new(SessionState::Connected(SessionId(1)));
        let mut changes = hub.subscribe();
        hub.set_session(SessionState::Closed);
        hub.set_session(SessionState::Connected(SessionId(2)));
        assert_eq!(changes.next().await.unwrap().session, Some(SessionState::Closed));
        assert_eq!(changes.next().await, None);
    }
}
