//! A broker's registration, and what to do about a znode that is in its way.

use std::time::Duration;

use common::ids::{BrokerEpoch, BrokerId};
use tokio::time::timeout;
use tracing::info;

use crate::{
    documents::broker::BrokerDocument,
    paths,
    store::{Expected, Node, Op, OpResult, SessionId, Watch, ZkError, ZkStore, ZkVersion},
};

/// What a registration may do about a znode of another session.
pub struct Ghosts<'a> {
    /// Whether a session was this broker's and its process is dead: then its znode is deleted at once.
    pub is_ours: &'a (dyn Fn(SessionId) -> bool + Sync),
    /// How long to wait for another znode with our own addresses to expire.
    pub wait_at_most: Duration,
}

/// Why a broker is not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// ZooKeeper refused, or the session has ended: register in the next one.
    #[error(transparent)]
    ZooKeeper(#[from] ZkError),
    /// The id is another broker's.
    #[error(
        "KeeperErrorCode = NodeExists: {path} is registered by session {owner} with {endpoints}: another broker has this id, or this one ran a moment ago and its session is not over yet"
    )]
    Taken {
        /// The registration.
        path: String,
        /// Whose it is.
        owner: SessionId,
        /// The addresses in it.
        endpoints: String,
    },
    /// The znode is not one of a session.
    #[error("KeeperErrorCode = NodeExists: {path} is there and belongs to no session; delete it")]
    Persistent {
        /// The registration.
        path: String,
    },
}

/// Registers the broker for as long as the session lives. The epoch is the czxid of the znode.
pub async fn register(
    zk: &dyn ZkStore,
    id: BrokerId,
    document: &BrokerDocument,
    ghosts: &Ghosts<'_>,
) -> Result<BrokerEpoch, RegisterError> {
    let path = paths::broker_id(id.0);
    let data = document.to_bytes();
    loop {
        // Only the set tells the czxid: ZooKeeper 3.8 has no stat for a create in a `multi`.
        let ops = vec![
            Op::create_ephemeral(&path, ""),
            Op::set(&path, data.clone(), Expected::Version(ZkVersion(0))),
        ];
        let error = match zk.multi(ops).await {
            Ok(results) => match results.last() {
                Some(OpResult::Set(stat)) => return Ok(registered(id, document, stat.czxid)),
                _ => continue,
            },
            Err(error) => error,
        };
        match error.reason() {
            ZkError::NodeExists { .. } | ZkError::MayHaveHappened { .. } => {}
            ZkError::NoNode { .. } => {
                crate::bootstrap::create_missing(zk, &[paths::BROKER_IDS]).await?;
                continue;
            }
            _ => return Err(error.into()),
        }
        let Some(node) = zk.get(&path, Watch::Yes).await? else { continue };
        let Some(owner) = node.stat.ephemeral_owner else {
            return Err(RegisterError::Persistent { path });
        };
        if zk.session().session_id() == Some(owner) {
            if node.data == data {
                return Ok(registered(id, document, node.stat.czxid));
            }
            match zk.set(&path, &data, Expected::Version(node.stat.version)).await {
                Ok(stat) => return Ok(registered(id, document, stat.czxid)),
                Err(error) if error.is_conflict() => continue,
                Err(ZkError::MayHaveHappened { .. }) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        make_way(zk, id, document, &node, owner, ghosts).await?;
    }
}

/// Writes changed addresses into the registration; its epoch stays.
pub async fn update(
    zk: &dyn ZkStore,
    id: BrokerId,
    document: &BrokerDocument,
) -> Result<(), ZkError> {
    let (path, data) = (paths::broker_id(id.0), document.to_bytes());
    loop {
        match zk.set(&path, &data, Expected::Any).await {
            Err(ZkError::MayHaveHappened { .. }) => {}
            result => return result.map(|_| ()),
        }
    }
}

fn registered(id: BrokerId, document: &BrokerDocument, czxid: i64) -> BrokerEpoch {
    let path = paths::broker_id(id.0);
    let endpoints = endpoints(document);
    info!(
        "Registered broker {id} at path {path} with addresses: {endpoints}, czxid (broker epoch): {czxid}"
    );
    BrokerEpoch(czxid)
}

fn endpoints(document: &BrokerDocument) -> String {
    let endpoints: Vec<String> = document.endpoints.iter().map(ToString::to_string).collect();
    endpoints.join(",")
}

/// Deletes a ghost of ours, waits for one that may be ours, refuses a stranger's.
async fn make_way(
    zk: &dyn ZkStore,
    id: BrokerId,
    document: &BrokerDocument,
    node: &Node,
    owner: SessionId,
    ghosts: &Ghosts<'_>,
) -> Result<(), RegisterError> {
    let path = paths::broker_id(id.0);
    if (ghosts.is_ours)(owner) {
        info!(%path, session = %owner, "deleting the znode of a dead session of this broker");
        return match zk.delete(&path, Expected::Version(node.stat.version)).await {
            // Gone, or another's by now.
            Err(error) if error.is_conflict() => Ok(()),
            Err(ZkError::MayHaveHappened { .. }) => Ok(()),
            result => Ok(result?),
        };
    }
    let theirs = BrokerDocument::parse(id, &node.data).ok();
    let taken = || RegisterError::Taken {
        path: path.clone(),
        owner,
        endpoints: theirs.as_ref().map(endpoints).unwrap_or_else(|| "malformed data".to_owned()),
    };
    if !theirs.as_ref().is_some_and(|theirs| theirs.endpoints == document.endpoints) {
        return Err(taken());
    }
    info!(%path, session = %owner, "waiting for the znode of a former session to expire");
    match timeout(ghosts.wait_at_most, gone(zk, &path, owner)).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(taken()),
    }
}

/// Waits until a node is not this session's any more.
async fn gone(zk: &dyn ZkStore, path: &str, owner: SessionId) -> Result<(), ZkError> {
    let mut changes = zk.changes().under(&[path]);
    loop {
        let stat = zk.exists(path, Watch::Yes).await?;
        if stat.is_none_or(|stat| stat.ephemeral_owner != Some(owner)) {
            return Ok(());
        }
        if changes.next().await.is_none() {
            return Err(ZkError::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use common::ids::Timestamp;
    use common::security_protocol::SecurityProtocol;
    use metadata::broker::Endpoint;

    use super::*;
    use crate::fake::{FakeZooKeeper, Fault};

    const ID: BrokerId = BrokerId(1);
    const PATH: &str = "/brokers/ids/1";

    fn document(port: u16) -> BrokerDocument {
        let endpoint = Endpoint {
            listener: "PLAINTEXT".to_owned(),
            host: "kafka1".to_owned(),
            port,
            protocol: SecurityProtocol::Plaintext,
        };
        BrokerDocument {
            version: 5,
            endpoints: vec![endpoint],
            rack: None,
            jmx_port: -1,
            timestamp: Timestamp(1),
            features: BTreeMap::new(),
        }
    }

    fn ghosts(is_ours: &(dyn Fn(SessionId) -> bool + Sync)) -> Ghosts<'_> {
        Ghosts { is_ours, wait_at_most: Duration::from_secs(18) }
    }

    fn leave_ghost(server: &FakeZooKeeper, port: u16) -> SessionId {
        let session = server.open_ghost_session();
        let ops = [
            Op::create("/brokers", ""),
            Op::create("/brokers/ids", ""),
            Op::create_ephemeral(PATH, document(port).to_bytes()),
        ];
        server.apply_as(session, &ops).unwrap();
        session
    }

    #[tokio::test]
    async fn the_epoch_is_the_czxid_of_the_znode() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        let epoch = register(&*zk, ID, &document(1), &ghosts(&|_| false)).await.unwrap();
        let node = zk.get(PATH, Watch::No).await.unwrap().unwrap();
        assert_eq!(BrokerEpoch(node.stat.czxid), epoch);
        assert_eq!((node.stat.version, node.data), (ZkVersion(1), document(1).to_bytes()));
        assert_eq!(node.stat.ephemeral_owner, zk.session().session_id());

        // Again in the same session, with other addresses: the same registration.
        let again = register(&*zk, ID, &document(2), &ghosts(&|_| false)).await.unwrap();
        assert_eq!(again, epoch);
        let node = zk.get(PATH, Watch::No).await.unwrap().unwrap();
        assert_eq!(node.data, document(2).to_bytes());
        update(&*zk, ID, &document(3)).await.unwrap();
        let node = zk.get(PATH, Watch::No).await.unwrap().unwrap();
        assert_eq!((node.data, node.stat.czxid), (document(3).to_bytes(), epoch.0));
    }

    #[tokio::test]
    async fn a_lost_answer_is_found_out() {
        for fault in [Fault::LostBefore, Fault::LostAfter] {
            let server = FakeZooKeeper::new();
            let zk = server.connect();
            crate::bootstrap::create_top_level_paths(&*zk).await.unwrap();
            zk.fail_next_write(fault);
            let epoch = register(&*zk, ID, &document(1), &ghosts(&|_| false)).await.unwrap();
            let node = zk.get(PATH, Watch::No).await.unwrap().unwrap();
            assert_eq!(BrokerEpoch(node.stat.czxid), epoch);
        }
    }

    #[tokio::test]
    async fn a_hundred_expiries_end_with_one_registration() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        let mut last = BrokerEpoch(-1);
        for _ in 0..100 {
            let epoch = register(&*zk, ID, &document(1), &ghosts(&|_| false)).await.unwrap();
            assert!(epoch > last);
            last = epoch;
            zk.expire();
            zk.expire();
        }
        assert_eq!(zk.children("/brokers/ids", Watch::No).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_ghost_of_ours_is_deleted_at_once() {
        let server = FakeZooKeeper::new();
        let ghost = leave_ghost(&server, 7);
        let zk = server.connect();
        let is_ours = |session| session == ghost;
        register(&*zk, ID, &document(1), &ghosts(&is_ours)).await.unwrap();
        let node = zk.get(PATH, Watch::No).await.unwrap().unwrap();
        assert_eq!(node.stat.ephemeral_owner, zk.session().session_id());
    }

    #[tokio::test]
    async fn another_ghost_with_our_addresses_is_waited_for() {
        let server = FakeZooKeeper::new();
        let ghost = leave_ghost(&server, 1);
        let zk = server.connect();
        let waiting = zk.clone();
        let registration = tokio::spawn(async move {
            register(&*waiting, ID, &document(1), &ghosts(&|_| false)).await
        });
        while zk.take_writes().is_empty() {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        assert!(!registration.is_finished());
        server.expire_session(ghost);
        registration.await.unwrap().unwrap();
        let node = zk.get(PATH, Watch::No).await.unwrap().unwrap();
        assert_eq!(node.stat.ephemeral_owner, zk.session().session_id());
    }

    #[tokio::test(start_paused = true)]
    async fn a_ghost_that_does_not_go_and_a_stranger_are_refused_by_name() {
        let server = FakeZooKeeper::new();
        let ghost = leave_ghost(&server, 1);
        let zk = server.connect();
        for port in [1, 2] {
            let error = register(&*zk, ID, &document(port), &ghosts(&|_| false)).await.unwrap_err();
            let expected = format!(
                "KeeperErrorCode = NodeExists: {PATH} is registered by session {ghost} with PLAINTEXT://kafka1:1: another broker has this id, or this one ran a moment ago and its session is not over yet"
            );
            assert_eq!(error.to_string(), expected);
        }
    }

    #[tokio::test]
    async fn without_its_chroot_no_broker_registers() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        server.lose_chroot();
        let error = register(&*zk, ID, &document(1), &ghosts(&|_| false)).await.unwrap_err();
        assert!(error.to_string().starts_with("the chroot /chroot of"), "{error}");
        // The registration, and what is missing for it, once each.
        assert_eq!(zk.take_writes().len(), 2);
        crate::producer_ids::allocate_block(&*zk, ID).await.unwrap_err();
        crate::election::elect(&*zk, ID, Timestamp(1), &ghosts(&|_| false)).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_registration_without_a_session_is_named() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        crate::bootstrap::create_with_parents(&*zk, PATH, b"{}").await.unwrap();
        let error = register(&*zk, ID, &document(1), &ghosts(&|_| true)).await.unwrap_err();
        assert!(matches!(error, RegisterError::Persistent { .. }), "{error}");
    }
}
