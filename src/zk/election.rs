//! Who is the controller: one ephemeral znode, and an epoch whose version fences what the controller writes.
//! Source: `KafkaZkClient.registerControllerAndIncrementControllerEpoch`.

use common::ids::{BrokerId, ControllerEpoch, Timestamp};
use tracing::info;

use crate::{
    bootstrap::create_with_parents,
    documents::controller::{self, ControllerDocument},
    error::ZnodeError,
    paths,
    registration::Ghosts,
    store::{Expected, Op, OpResult, SessionId, Watch, ZkError, ZkStore, ZkVersion},
};

/// What a controller may write with: each `multi` begins with `check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The controller's epoch.
    pub epoch: ControllerEpoch,
    /// The version of `/controller_epoch` at its election; another one means another controller.
    pub version: ZkVersion,
}

impl Fence {
    /// The step that fails once another controller is elected.
    pub fn check(self) -> Op {
        Op::check(paths::CONTROLLER_EPOCH, self.version)
    }
}

/// The controller as it stands in ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// The broker, and whether KRaft has taken over.
    pub document: ControllerDocument,
    /// Its session; `None` for a KRaft controller.
    pub owner: Option<SessionId>,
    /// The znode's version.
    pub version: ZkVersion,
}

/// How an election ended. `/controller` is watched then, or already dirty (by our own creation of it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elected {
    /// By us.
    Us(Fence),
    /// By another one.
    Other(Controller),
}

/// Reads `/controller`; none between two elections.
pub async fn controller(zk: &dyn ZkStore, watch: Watch) -> Result<Option<Controller>, ZnodeError> {
    let Some(node) = zk.get(paths::CONTROLLER, watch).await? else { return Ok(None) };
    let document = ControllerDocument::parse(&node.data)?;
    let (owner, version) = (node.stat.ephemeral_owner, node.stat.version);
    Ok(Some(Controller { document, owner, version }))
}

/// Takes part in the election: becomes the controller unless there is one.
pub async fn elect(
    zk: &dyn ZkStore,
    broker: BrokerId,
    now: Timestamp,
    ghosts: &Ghosts<'_>,
) -> Result<Elected, ZnodeError> {
    let ours = ControllerDocument::elected(broker, now);
    // The epoch that the last try would have given us, and the session in which it was made.
    let mut tried: Option<(ControllerEpoch, SessionId)> = None;
    loop {
        // The epoch first: an election after this read makes all below fail.
        let (epoch, version) = epoch(zk).await?;
        let found = controller(zk, Watch::Yes).await?;
        if let Some(found) = found {
            let won = tried.filter(|&(tried, session)| {
                tried == epoch && found.owner == Some(session) && found.document.broker_id == broker
            });
            if won.is_some() {
                // Our try went through, though its answer was lost.
                return Ok(Elected::Us(Fence { epoch, version }));
            }
            let ghost = found.owner.filter(|&owner| {
                found.document.broker_id == broker
                    && (zk.session().session_id() == Some(owner) || (ghosts.is_ours)(owner))
            });
            let Some(owner) = ghost else { return Ok(Elected::Other(found)) };
            info!(session = %owner, "deleting the controller's znode of a dead session of this broker");
            resign(zk, Fence { epoch, version }).await?;
            continue;
        }
        let next = ControllerEpoch(epoch.0.wrapping_add(1));
        let ops = vec![
            Op::create_ephemeral(paths::CONTROLLER, ours.to_bytes()),
            Op::set(
                paths::CONTROLLER_EPOCH,
                controller::epoch_to_bytes(next),
                Expected::Version(version),
            ),
        ];
        tried = zk.session().session_id().map(|session| (next, session));
        match zk.multi(ops).await {
            Ok(results) => {
                if let Some(OpResult::Set(stat)) = results.last() {
                    return Ok(Elected::Us(Fence { epoch: next, version: stat.version }));
                }
            }
            Err(error) if error.is_conflict() => {}
            Err(ZkError::MayHaveHappened { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gives the office up, so that another election follows. Nothing happens where it is another's by now.
pub async fn resign(zk: &dyn ZkStore, fence: Fence) -> Result<(), ZkError> {
    loop {
        let ops = vec![fence.check(), Op::delete(paths::CONTROLLER, Expected::Any)];
        match zk.multi(ops).await {
            Err(ZkError::MayHaveHappened { .. }) => {}
            Err(error) if error.is_conflict() => return Ok(()),
            result => return result.map(|_| ()),
        }
    }
}

/// Reads `/controller_epoch`, and creates it where it is absent.
async fn epoch(zk: &dyn ZkStore) -> Result<(ControllerEpoch, ZkVersion), ZnodeError> {
    loop {
        if let Some(node) = zk.get(paths::CONTROLLER_EPOCH, Watch::No).await? {
            return Ok((controller::parse_epoch(&node.data)?, node.stat.version));
        }
        let first = controller::epoch_to_bytes(ControllerEpoch(0));
        match create_with_parents(zk, paths::CONTROLLER_EPOCH, &first).await {
            Ok(()) | Err(ZkError::NodeExists { .. } | ZkError::MayHaveHappened { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::fake::{FakeStore, FakeZooKeeper, Fault};

    const NOW: Timestamp = Timestamp(5);
    const US: BrokerId = BrokerId(1);

    async fn elect_broker(zk: &FakeStore, broker: BrokerId) -> Elected {
        let ghosts = Ghosts { is_ours: &|_| false, wait_at_most: Duration::ZERO };
        elect(zk, broker, NOW, &ghosts).await.unwrap()
    }

    fn won(elected: Elected) -> Fence {
        match elected {
            Elected::Us(fence) => fence,
            other => panic!("{other:?}"),
        }
    }

    async fn may_write(zk: &Arc<FakeStore>, fence: Fence) -> bool {
        zk.multi(vec![fence.check()]).await.is_ok()
    }

    #[tokio::test]
    async fn one_is_elected_and_the_others_watch() {
        let server = FakeZooKeeper::new();
        let (a, b) = (server.connect(), server.connect());
        let first = won(elect_broker(&a, US).await);
        assert_eq!(first.epoch, ControllerEpoch(1));
        let mut changes = b.changes();
        let Elected::Other(other) = elect_broker(&b, BrokerId(2)).await else { panic!("two") };
        assert_eq!(other.document.broker_id, US);
        assert_eq!(other.owner, a.session().session_id());
        changes.take();
        a.expire();
        assert!(changes.take().unwrap().node_is_dirty(paths::CONTROLLER));
        let second = won(elect_broker(&b, BrokerId(2)).await);
        assert_eq!(second.epoch, ControllerEpoch(2));
        assert!(!may_write(&a, first).await && may_write(&b, second).await);
    }

    #[tokio::test]
    async fn the_winner_sees_its_own_office_as_dirty() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        let mut changes = zk.changes();
        won(elect_broker(&zk, US).await);
        assert!(changes.take().is_some_and(|seen| seen.node_is_dirty(paths::CONTROLLER)));
        controller(&*zk, Watch::Yes).await.unwrap();
        zk.delete(paths::CONTROLLER, Expected::Any).await.unwrap();
        assert!(changes.take().is_some_and(|seen| seen.node_is_dirty(paths::CONTROLLER)));
    }

    #[tokio::test]
    async fn an_election_whose_answer_is_lost_is_won_once() {
        for fault in
            [Fault::LostBefore, Fault::LostAfter, Fault::ExpiredBefore, Fault::ExpiredAfter]
        {
            for writes in 0..2 {
                let server = FakeZooKeeper::new();
                let zk = server.connect();
                zk.fail_write_after(writes, fault);
                let fence = won(elect_broker(&zk, US).await);
                assert_eq!(zk.session().session_id(), owner(&zk).await, "{fault:?} {writes}");
                assert!(may_write(&zk, fence).await);
                let node = zk.get(paths::CONTROLLER_EPOCH, Watch::No).await.unwrap().unwrap();
                assert_eq!(node.data, fence.epoch.to_string().as_bytes());
            }
        }
    }

    async fn owner(zk: &Arc<FakeStore>) -> Option<SessionId> {
        controller(&**zk, Watch::No).await.unwrap().unwrap().owner
    }

    #[tokio::test]
    async fn a_ghost_of_ours_does_not_hold_the_office() {
        let server = FakeZooKeeper::new();
        let dead = server.open_ghost_session();
        let document = ControllerDocument::elected(US, NOW).to_bytes();
        let zk = server.connect();
        won(elect_broker(&zk, US).await);
        zk.delete(paths::CONTROLLER, Expected::Any).await.unwrap();
        let op = Op::create_ephemeral(paths::CONTROLLER, document);
        server.apply_as(dead, &[op]).unwrap();
        let is_ours = |session| session == dead;
        let ghosts = Ghosts { is_ours: &is_ours, wait_at_most: Duration::ZERO };
        let fence = won(elect(&*zk, US, NOW, &ghosts).await.unwrap());
        assert_eq!(fence.epoch, ControllerEpoch(2));
    }

    #[tokio::test]
    async fn resigning_leaves_the_office_of_another_alone() {
        let server = FakeZooKeeper::new();
        let (a, b) = (server.connect(), server.connect());
        let first = won(elect_broker(&a, US).await);
        resign(&*a, first).await.unwrap();
        assert_eq!(controller(&*a, Watch::No).await.unwrap(), None);
        won(elect_broker(&b, BrokerId(2)).await);
        resign(&*a, first).await.unwrap();
        assert_eq!(owner(&b).await, b.session().session_id());
    }

    #[tokio::test]
    async fn a_kraft_controller_is_left_in_office() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        let data = br#"{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":7}"#;
        create_with_parents(&*zk, paths::CONTROLLER, data).await.unwrap();
        let Elected::Other(other) = elect_broker(&zk, US).await else { panic!("took over") };
        assert!(other.document.is_kraft() && other.owner.is_none());
    }
}
