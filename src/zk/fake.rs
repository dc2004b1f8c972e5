//! A ZooKeeper in memory for tests: several clients over one tree, and faults when asked for.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    changes::{Hub, SessionState, Watched, ZkChanges},
    paths,
    store::{
        CreateKind, Created, Expected, Node, Op, OpResult, SessionId, Stat, Watch, ZkError,
        ZkFuture, ZkStore,
    },
    tree::{ClientId, Fired, Tree},
};

/// Kafka's limit of a request.
const REQUEST_BYTES_MAX: usize = 4096 * 1024;

/// What goes wrong with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is lost before the write reaches the server; then it is back.
    LostBefore,
    /// The connection is lost after the server applied the write; then it is back.
    LostAfter,
    /// The session ends before the write reaches the server; then there is a new one.
    ExpiredBefore,
    /// The session ends after the server applied the write; then there is a new one.
    ExpiredAfter,
}

/// The server: a tree of znodes and the clients' sessions.
#[derive(Clone)]
pub struct FakeZooKeeper {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    tree: Tree,
    clients: Vec<Client>,
    chroot_is_gone: bool,
}

struct Client {
    hub: Arc<Hub>,
    session: SessionId,
    connected: bool,
    closed: bool,
    /// Changes with each of the above, to wake operations that wait.
    changed: watch::Sender<u64>,
    faults: VecDeque<(usize, Fault)>,
    log: Vec<Vec<Op>>,
}

impl Default for FakeZooKeeper {
    fn default() -> FakeZooKeeper {
        FakeZooKeeper::new()
    }
}

impl FakeZooKeeper {
    /// An empty tree.
    pub fn new() -> FakeZooKeeper {
        FakeZooKeeper {
            shared: Arc::new(Mutex::new(Shared {
                tree: Tree::new(),
                clients: Vec::new(),
                chroot_is_gone: false,
            })),
        }
    }

    /// A new client with a session of its own.
    pub fn connect(&self) -> Arc<FakeStore> {
        let mut shared = self.shared.lock();
        let session = shared.tree.open_session();
        let id = ClientId(shared.clients.len());
        let hub = Hub::new(SessionState::Connected(session));
        shared.clients.push(Client {
            hub: hub.clone(),
            session,
            connected: true,
            closed: false,
            changed: watch::Sender::new(0),
            faults: VecDeque::new(),
            log: Vec::new(),
        });
        Arc::new(FakeStore { shared: self.shared.clone(), id, hub })
    }

    /// A new session that no client has: what it creates are ghosts, until `expire_session`.
    pub fn open_ghost_session(&self) -> SessionId {
        self.shared.lock().tree.open_session()
    }

    /// Writes as a session that no client has.
    pub fn apply_as(&self, session: SessionId, ops: &[Op]) -> Result<Vec<OpResult>, ZkError> {
        self.shared.lock().apply(ops, session)
    }

    /// Ends any session on the server, with its ephemeral nodes.
    pub fn expire_session(&self, session: SessionId) {
        let mut shared = self.shared.lock();
        let owner = shared.clients.iter().position(|client| client.session == session);
        match owner {
            Some(index) => shared.expire(ClientId(index)),
            None => {
                let fired = shared.tree.end_session(session);
                shared.tell(fired);
            }
        }
    }

    /// Every path with its node, in order.
    pub fn dump(&self) -> Vec<(String, Node)> {
        self.shared.lock().tree.dump()
    }

    /// From now on nothing can be created at the top, as where the clients' chroot is gone.
    pub fn lose_chroot(&self) {
        self.shared.lock().chroot_is_gone = true;
    }

    /// Moves the server's clock, which gives `ctime`.
    pub fn advance_clock(&self, by: Duration) {
        self.shared.lock().tree.advance_clock(by);
    }
}

/// A client of a `FakeZooKeeper`.
pub struct FakeStore {
    shared: Arc<Mutex<Shared>>,
    id: ClientId,
    hub: Arc<Hub>,
}

impl FakeStore {
    /// The server ends the session. A client that is connected has a new one at once; another one learns of it at
    /// `reconnect`.
    pub fn expire(&self) {
        self.shared.lock().expire(self.id);
    }

    /// Cuts the connection: operations wait. The session stays alive.
    pub fn disconnect(&self) {
        self.shared.lock().disconnect(self.id);
    }

    /// Mends the connection.
    pub fn reconnect(&self) {
        self.shared.lock().reconnect(self.id);
    }

    /// Lets the next write go wrong. Several are for several writes.
    pub fn fail_next_write(&self, fault: Fault) {
        self.fail_write_after(0, fault);
    }

    /// Lets `writes` pass, counted from the fault before, and the next one go wrong.
    pub fn fail_write_after(&self, writes: usize, fault: Fault) {
        self.shared.lock().client(self.id).faults.push_back((writes, fault));
    }

    /// The writes sent so far, each as its steps; and forgets them.
    pub fn take_writes(&self) -> Vec<Vec<Op>> {
        std::mem::take(&mut self.shared.lock().client(self.id).log)
    }

    /// Waits until operations can go on in the session in which they began.
    async fn ready(&self) -> Result<SessionId, ZkError> {
        let mut begun_in = None;
        let mut changed = {
            let mut shared = self.shared.lock();
            shared.client(self.id).changed.subscribe()
        };
        loop {
            changed.borrow_and_update();
            {
                let mut shared = self.shared.lock();
                let client = shared.client(self.id);
                if client.closed {
                    return Err(ZkError::Closed);
                }
                let begun_in = *begun_in.get_or_insert(client.session);
                if begun_in != client.session {
                    return Err(ZkError::SessionExpired);
                }
                if client.connected {
                    return Ok(begun_in);
                }
            }
            changed.changed().await.map_err(|_| ZkError::Closed)?;
        }
    }

    async fn read<T>(
        &self,
        path: &str,
        read: impl FnOnce(&mut Tree, ClientId) -> T,
    ) -> Result<T, ZkError> {
        paths::check(path, false)?;
        self.ready().await?;
        Ok(read(&mut self.shared.lock().tree, self.id))
    }

    async fn write(&self, ops: Vec<Op>) -> Result<Vec<OpResult>, ZkError> {
        let first_path = ops.first().map(|op| op.path().to_owned()).unwrap_or_default();
        let size = ops.iter().map(Op::size).sum();
        if size > REQUEST_BYTES_MAX {
            return Err(ZkError::TooLarge { path: first_path, size, limit: REQUEST_BYTES_MAX });
        }
        let session = self.ready().await?;
        let mut shared = self.shared.lock();
        shared.client(self.id).log.push(ops.clone());
        let fault = shared.client(self.id).next_fault();
        if matches!(fault, None | Some(Fault::LostAfter | Fault::ExpiredAfter)) {
            let result = shared.apply(&ops, session);
            if fault.is_none() {
                return result;
            }
        }
        match fault {
            Some(Fault::LostBefore | Fault::LostAfter) => {
                shared.disconnect(self.id);
                shared.reconnect(self.id);
            }
            _ => shared.expire(self.id),
        }
        Err(ZkError::MayHaveHappened { path: first_path })
    }
}

impl ZkStore for FakeStore {
    fn get<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Option<Node>> {
        Box::pin(self.read(path, move |tree, client| {
            if watch == Watch::Yes {
                tree.watch(client, path, Watched::Node);
            }
            tree.get(path)
        }))
    }

    fn exists<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Option<Stat>> {
        Box::pin(async move { Ok(self.get(path, watch).await?.map(|node| node.stat)) })
    }

    fn children<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Vec<String>> {
        Box::pin(self.read(path, move |tree, client| {
            let children = tree.children(path);
            if watch == Watch::Yes {
                // Only a node that is there can have its children watched; else its creation is.
                let watched = if children.is_some() { Watched::Children } else { Watched::Node };
                tree.watch(client, path, watched);
            }
            children.unwrap_or_default()
        }))
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        kind: CreateKind,
    ) -> ZkFuture<'a, Created> {
        Box::pin(async move {
            let op = Op::Create { path: path.to_owned(), data: data.to_vec(), kind };
            let path = match self.write(vec![op]).await.map_err(single)?.pop() {
                Some(OpResult::Created(path)) => path,
                other => panic!("the fake gave {other:?} for a create"),
            };
            let node = self.shared.lock().tree.get(&path);
            let stat = node.expect("created in this poll, so still there").stat;
            Ok(Created { path, stat })
        })
    }

    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], expected: Expected) -> ZkFuture<'a, Stat> {
        Box::pin(async move {
            let op = Op::Set { path: path.to_owned(), data: data.to_vec(), expected };
            match self.write(vec![op]).await.map_err(single)?.pop() {
                Some(OpResult::Set(stat)) => Ok(stat),
                other => panic!("the fake gave {other:?} for a set"),
            }
        })
    }

    fn delete<'a>(&'a self, path: &'a str, expected: Expected) -> ZkFuture<'a, ()> {
        Box::pin(async move {
            let op = Op::Delete { path: path.to_owned(), expected };
            self.write(vec![op]).await.map_err(single)?;
            Ok(())
        })
    }

    fn multi(&self, ops: Vec<Op>) -> ZkFuture<'_, Vec<OpResult>> {
        Box::pin(async move {
            if ops.is_empty() {
                return Ok(Vec::new());
            }
            self.write(ops).await
        })
    }

    fn session(&self) -> SessionState {
        self.hub.session()
    }

    fn changes(&self) -> ZkChanges {
        self.hub.subscribe()
    }

    fn request_bytes_max(&self) -> usize {
        REQUEST_BYTES_MAX
    }

    fn close(&self) -> ZkFuture<'_, ()> {
        Box::pin(async move {
            self.shared.lock().close(self.id);
            Ok(())
        })
    }
}

/// The error of a write with one step, which is not a `multi` to its caller.
fn single(error: ZkError) -> ZkError {
    match error {
        ZkError::Multi { reason, .. } => *reason,
        other => other,
    }
}

impl Client {
    fn next_fault(&mut self) -> Option<Fault> {
        let (after, fault) = self.faults.front_mut()?;
        let fault = *fault;
        match after.checked_sub(1) {
            Some(left) => {
                *after = left;
                None
            }
            None => {
                self.faults.pop_front();
                Some(fault)
            }
        }
    }

    fn wake(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

impl Shared {
    fn client(&mut self, id: ClientId) -> &mut Client {
        &mut self.clients[id.0]
    }

    fn apply(&mut self, ops: &[Op], session: SessionId) -> Result<Vec<OpResult>, ZkError> {
        let at_the_top =
            |op: &Op| matches!(op, Op::Create { path, .. } if paths::parent(path).is_none());
        if let Some(index) = ops.iter().position(at_the_top).filter(|_| self.chroot_is_gone) {
            let reason = Box::new(ZkError::NoChroot { chroot: "/chroot".to_owned() });
            return Err(ZkError::Multi { index, reason });
        }
        match self.tree.apply(ops, session) {
            Ok((results, fired)) => {
                self.tell(fired);
                Ok(results)
            }
            Err((index, error)) => Err(ZkError::Multi { index, reason: Box::new(error) }),
        }
    }

    fn tell(&self, fired: Fired) {
        for (client, dirty) in fired {
            self.clients[client.0].hub.mark_dirty(&dirty.path, dirty.watched);
        }
    }

    fn lose_watches(&mut self, id: ClientId) {
        for dirty in self.tree.forget_watches(id) {
            self.client(id).hub.mark_dirty(&dirty.path, dirty.watched);
        }
    }

    fn disconnect(&mut self, id: ClientId) {
        let client = self.client(id);
        if client.connected && !client.closed {
            client.connected = false;
            client.hub.set_session(SessionState::Disconnected(client.session));
            client.wake();
        }
    }

    fn reconnect(&mut self, id: ClientId) {
        if self.client(id).connected || self.client(id).closed {
            return;
        }
        self.client(id).connected = true;
        let session = self.client(id).session;
        if self.tree.is_alive(session) {
            self.client(id).hub.set_session(SessionState::Connected(session));
            self.lose_watches(id);
            self.client(id).wake();
        } else {
            self.renew(id);
        }
    }

    fn expire(&mut self, id: ClientId) {
        let session = self.client(id).session;
        let fired = self.tree.end_session(session);
        self.tell(fired);
        if self.client(id).connected && !self.client(id).closed {
            self.renew(id);
        }
    }

    fn renew(&mut self, id: ClientId) {
        let expired = self.client(id).session;
        self.client(id).hub.set_session(SessionState::Expired(expired));
        let session = self.tree.open_session();
        self.client(id).session = session;
        self.client(id).hub.set_session(SessionState::Connected(session));
        self.lose_watches(id);
        self.client(id).wake();
    }

    fn close(&mut self, id: ClientId) {
        if self.client(id).closed {
            return;
        }
        let (session, connected) = (self.client(id).session, self.client(id).connected);
        // Without a connection the server hears nothing of it: the session stays, until it expires.
        if connected {
            let fired = self.tree.end_session(session);
            self.tell(fired);
        }
        self.tree.forget_watches(id);
        let client = self.client(id);
        client.closed = true;
        client.hub.set_session(SessionState::Closed);
        client.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ZkVersion;

    async fn create(store: &FakeStore, path: &str, kind: CreateKind) {
        store.create(path, b"x", kind).await.unwrap();
    }

    #[tokio::test]
    async fn an_expired_session_takes_its_nodes_and_leaves_every_watch_dirty() {
        let server = FakeZooKeeper::new();
        let (a, b) = (server.connect(), server.connect());
        create(&a, "/e", CreateKind::Ephemeral).await;
        create(&a, "/p", CreateKind::Persistent).await;
        let mut changes = b.changes();
        let mut own = a.changes();
        let (_, _) = (changes.take(), own.take());
        a.get("/p", Watch::Yes).await.unwrap();
        b.children("/", Watch::Yes).await.unwrap();
        let before = a.session().session_id();
        a.expire();
        assert!(changes.take().unwrap().children_are_dirty("/"));
        let seen = own.take().unwrap();
        assert!(seen.node_is_dirty("/p"));
        assert_eq!(seen.session, Some(a.session()));
        assert_ne!(a.session().session_id(), before);
        assert_eq!(b.get("/e", Watch::No).await.unwrap(), None);
    }

    #[tokio::test]
    async fn operations_wait_for_the_connection_and_end_with_the_session() {
        let server = FakeZooKeeper::new();
        let store = server.connect();
        store.disconnect();
        let waiting = store.clone();
        let read = tokio::spawn(async move { waiting.get("/", Watch::No).await });
        tokio::task::yield_now().await;
        assert!(!read.is_finished());
        store.reconnect();
        assert!(read.await.unwrap().unwrap().is_some());

        store.disconnect();
        let waiting = store.clone();
        let write = tokio::spawn(async move { waiting.delete("/x", Expected::Any).await });
        tokio::task::yield_now().await;
        store.expire();
        store.reconnect();
        assert_eq!(write.await.unwrap(), Err(ZkError::SessionExpired));
    }

    #[tokio::test]
    async fn a_write_may_have_happened_or_not() {
        let server = FakeZooKeeper::new();
        let store = server.connect();
        let lost = |path: &str| Err(ZkError::MayHaveHappened { path: path.to_owned() });
        store.fail_next_write(Fault::LostBefore);
        store.fail_write_after(1, Fault::LostAfter);
        let created = |result: Result<Created, ZkError>| result.map(|created| created.path);
        let first = store.create("/a", b"", CreateKind::Persistent).await;
        assert_eq!(created(first), lost("/a"));
        assert_eq!(store.get("/a", Watch::No).await.unwrap(), None);
        create(&store, "/b", CreateKind::Persistent).await;
        let third = store.create("/c", b"", CreateKind::Persistent).await;
        assert_eq!(created(third), lost("/c"));
        assert!(store.get("/c", Watch::No).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_failed_multi_changes_nothing() {
        let server = FakeZooKeeper::new();
        let store = server.connect();
        create(&store, "/a", CreateKind::Persistent).await;
        create(&store, "/a/b", CreateKind::Persistent).await;
        let before = server.dump();
        let ops = vec![
            Op::delete("/a/b", Expected::Any),
            Op::create("/a/c", b"1".to_vec()),
            Op::set("/a", b"2".to_vec(), Expected::Any),
            Op::check("/a", ZkVersion(7)),
        ];
        let error = store.multi(ops).await.unwrap_err();
        let reason = Box::new(ZkError::BadVersion { path: "/a".to_owned() });
        assert_eq!(error, ZkError::Multi { index: 3, reason });
        assert_eq!(server.dump(), before);
    }

    #[tokio::test]
    async fn a_close_without_connection_leaves_a_ghost() {
        let server = FakeZooKeeper::new();
        let (a, b) = (server.connect(), server.connect());
        create(&a, "/e", CreateKind::Ephemeral).await;
        let session = a.session().session_id().unwrap();
        a.disconnect();
        a.close().await.unwrap();
        assert_eq!(a.get("/e", Watch::No).await, Err(ZkError::Closed));
        assert!(b.get("/e", Watch::No).await.unwrap().is_some());
        server.expire_session(session);
        assert!(b.get("/e", Watch::No).await.unwrap().is_none());
    }
}
