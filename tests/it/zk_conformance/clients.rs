//! Clients whose connections and sessions can be made to fail.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};
use zk::{
    changes::{Changes, ZkChanges},
    fake::{FakeStore, FakeZooKeeper},
    real::{RealStore, ZkConfig},
    store::{CreateKind, SessionId, Watch, ZkStore},
};

/// Nothing here takes long; a wait that ends by this has failed.
pub(super) const AT_MOST: Duration = Duration::from_secs(20);
/// Long enough for a busy machine, short enough to wait for its end. Apache's ticks of two seconds make it four.
pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) enum Backend {
    Fake(FakeZooKeeper),
    Server(SocketAddr),
}

/// Two clients and a folder that nobody else uses.
pub(super) struct Clients {
    pub(super) a: Client,
    pub(super) b: Client,
    pub(super) root: String,
}

pub(super) struct Client {
    pub(super) store: Arc<dyn ZkStore>,
    faults: Faults,
}

enum Faults {
    Fake(Arc<FakeStore>),
    Proxy(Proxy),
}

impl Backend {
    pub(super) async fn clients(&self) -> Clients {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (a, b) = (self.client().await, self.client().await);
        let root =
            format!("/conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        a.store.create(&root, b"", CreateKind::Persistent).await.unwrap();
        Clients { a, b, root }
    }

    pub(super) async fn client(&self) -> Client {
        match self {
            Backend::Fake(server) => {
                let store = server.connect();
                Client { store: store.clone(), faults: Faults::Fake(store) }
            }
            Backend::Server(address) => {
                let proxy = Proxy::start(*address).await;
                let store = RealStore::connect(config(&proxy.address.to_string())).await.unwrap();
                Client { store, faults: Faults::Proxy(proxy) }
            }
        }
    }
}

pub(super) fn config(connect: &str) -> ZkConfig {
    ZkConfig {
        session_timeout: SESSION_TIMEOUT,
        connection_timeout: AT_MOST,
        ..ZkConfig::new(connect)
    }
}

impl Client {
    pub(super) fn session_id(&self) -> SessionId {
        self.store.session().session_id().expect("connected")
    }

    pub(super) fn cut(&self) {
        match &self.faults {
            Faults::Fake(store) => {
                store.disconnect();
                store.reconnect();
            }
            Faults::Proxy(proxy) => {
                proxy.block();
                proxy.let_through();
            }
        }
    }

    /// Ends the session on the server; `other` sees when, by an ephemeral node.
    pub(super) async fn expire(&self, other: &Client, marker: &str) {
        self.store.create(marker, b"", CreateKind::Ephemeral).await.unwrap();
        match &self.faults {
            Faults::Fake(store) => store.expire(),
            Faults::Proxy(proxy) => {
                let mut changes = other.store.changes();
                proxy.block();
                while other.store.exists(marker, Watch::Yes).await.unwrap().is_some() {
                    timeout(AT_MOST, changes.next()).await.expect("the session to expire");
                }
                proxy.let_through();
            }
        }
    }
}

/// A TCP proxy whose connections can be cut.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    open: watch::Sender<Link>,
}

/// What becomes of connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Open,
    /// Those there are end, and new ones end at once.
    Cut,
    /// Those there are stay without a word; new ones are served.
    Stalled,
}

impl Proxy {
    pub(super) async fn start(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, is_open) = watch::channel(Link::Open);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut is_open = is_open.clone();
                if *is_open.borrow_and_update() == Link::Cut {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    // Small packets go at once, as without a proxy.
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = is_open.changed() => {}
                    }
                    if *is_open.borrow_and_update() == Link::Stalled {
                        // Neither end hears anything, until the proxy ends.
                        while is_open.changed().await.is_ok() {}
                    }
                });
            }
        });
        Proxy { address, open }
    }

    pub(super) fn block(&self) {
        self.open.send_replace(Link::Cut);
    }

    pub(super) fn stall(&self) {
        self.open.send_replace(Link::Stalled);
    }

    pub(super) fn let_through(&self) {
        self.open.send_replace(Link::Open);
    }
}

/// Collects changes until `enough` says so.
pub(super) async fn until(
    changes: &mut ZkChanges,
    what: &str,
    enough: impl Fn(&Changes) -> bool,
) -> Changes {
    let mut seen = Changes::default();
    let wait = async {
        while !enough(&seen) {
            let more = changes.next().await.expect("the store is open");
            seen.dirty.extend(more.dirty);
            seen.session = more.session.or(seen.session);
        }
    };
    assert!(timeout(AT_MOST, wait).await.is_ok(), "no sign of {what}");
    seen
}
