//! How the `multi`s of a commit go out, over a ZooKeeper whose answers take time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use common::{
    clock,
    ids::{BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch},
    topic::TopicPartition,
};
use controller::{
    plan::{Outcome, Write},
    states::Leadership,
};
use zk::{
    bootstrap::create_top_level_paths,
    changes::{SessionState, ZkChanges},
    election::{self, Elected},
    fake::{FakeStore, FakeZooKeeper},
    registration::Ghosts,
    store::{
        CreateKind, Created, Expected, Node, Op, OpResult, Stat, Watch, ZkError, ZkFuture, ZkStore,
    },
};

use crate::commit::commit;

/// How long the answer to a `multi` takes to arrive.
const DELAY: Duration = Duration::from_millis(5);

/// The fake ZooKeeper with slow `multi`s, which are counted.
struct Slow {
    store: Arc<FakeStore>,
    multis: AtomicU64,
    /// Those whose answers are on their way, and the most there were at a time.
    under_way: AtomicU64,
    under_way_max: AtomicU64,
    /// What may not be written.
    forbidden: Option<String>,
}

impl ZkStore for Slow {
    fn get<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Option<Node>> {
        self.store.get(path, watch)
    }

    fn exists<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Option<Stat>> {
        self.store.exists(path, watch)
    }

    fn children<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Vec<String>> {
        self.store.children(path, watch)
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        kind: CreateKind,
    ) -> ZkFuture<'a, Created> {
        self.store.create(path, data, kind)
    }

    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], expected: Expected) -> ZkFuture<'a, Stat> {
        self.store.set(path, data, expected)
    }

    fn delete<'a>(&'a self, path: &'a str, expected: Expected) -> ZkFuture<'a, ()> {
        self.store.delete(path, expected)
    }

    fn multi(&self, ops: Vec<Op>) -> ZkFuture<'_, Vec<OpResult>> {
        self.multis.fetch_add(1, Ordering::AcqRel);
        let forbidden = self.forbidden.as_deref();
        if let Some(index) = ops.iter().position(|op| Some(op.path()) == forbidden) {
            let reason = Box::new(ZkError::NoAuth { path: ops[index].path().to_owned() });
            return Box::pin(async move { Err(ZkError::Multi { index, reason }) });
        }
        let done = self.store.multi(ops);
        Box::pin(async move {
            let under_way = self.under_way.fetch_add(1, Ordering::AcqRel) + 1;
            self.under_way_max.fetch_max(under_way, Ordering::AcqRel);
            let done = done.await;
            // It is done, and the answer is on its way.
            tokio::time::timeout(DELAY, std::future::pending::<()>()).await.unwrap_err();
            self.under_way.fetch_sub(1, Ordering::AcqRel);
            done
        })
    }

    fn session(&self) -> SessionState {
        self.store.session()
    }

    fn changes(&self) -> ZkChanges {
        self.store.changes()
    }

    fn request_bytes_max(&self) -> usize {
        self.store.request_bytes_max()
    }

    fn close(&self) -> ZkFuture<'_, ()> {
        self.store.close()
    }
}

/// Creates the states of a topic's partitions, for so many that it takes this many `multi`s.
fn creations(multis: i32) -> Vec<Write> {
    let leadership = Leadership {
        leader: BrokerId(0),
        leader_epoch: LeaderEpoch(0),
        isr: vec![BrokerId(0)],
        recovering: false,
        controller_epoch: ControllerEpoch(1),
        partition_epoch: PartitionEpoch(0),
    };
    // Two steps each, and one more for all.
    let creation = |index| Write::CreateLeadership {
        partition: TopicPartition::new("t", index),
        leadership: leadership.clone(),
    };
    (0..multis * 499).map(creation).collect()
}

/// What a commit gives under a controller's check, with its `multi`s and the most that were under way.
async fn committed(
    server: &FakeZooKeeper,
    writes: &[Write],
    forbidden: Option<&str>,
) -> (Vec<Outcome>, u64, u64) {
    let store = server.connect();
    let ghosts = Ghosts { is_ours: &|_| true, wait_at_most: Duration::ZERO };
    let elected = election::elect(&*store, BrokerId(0), clock::wall_clock(), &ghosts).await;
    let Ok(Elected::Us(fence)) = elected else { panic!("{elected:?}") };
    let slow = Slow {
        store,
        multis: AtomicU64::new(0),
        under_way: AtomicU64::new(0),
        under_way_max: AtomicU64::new(0),
        forbidden: forbidden.map(str::to_owned),
    };
    let outcomes = commit(&slow, fence, writes).await.unwrap();
    (outcomes, slow.multis.into_inner(), slow.under_way_max.into_inner())
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_a_commit_do_not_wait_for_each_other() {
    let server = FakeZooKeeper::new();
    let store = server.connect();
    create_top_level_paths(&*store).await.unwrap();
    store.create("/brokers/topics/t", b"", CreateKind::Persistent).await.unwrap();
    let writes = creations(8);
    let (outcomes, multis, at_once) = committed(&server, &writes, None).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Done { version: 0 }));
    assert_eq!((multis, at_once), (8, 8));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_in_a_commit_costs_no_other_write_its_turn() {
    let server = FakeZooKeeper::new();
    let store = server.connect();
    create_top_level_paths(&*store).await.unwrap();
    store.create("/brokers/topics/t", b"", CreateKind::Persistent).await.unwrap();
    // The topic's node of partitions is made by the first, which fails, and the others need it.
    let mut writes = creations(3);
    writes.insert(
        0,
        Write::SetTopic { name: "gone".into(), id: None, partitions: BTreeMap::new(), expected: 0 },
    );
    let (outcomes, ..) = committed(&server, &writes, None).await;
    assert_eq!(outcomes[0], Outcome::Conflict);
    assert!(outcomes[1..].iter().all(|outcome| *outcome == Outcome::Done { version: 0 }));
}

#[tokio::test(start_paused = true)]
async fn a_state_that_may_not_be_written_costs_no_other_write_its_turn() {
    for (forbidden, refused) in [
        ("/brokers/topics/t/partitions/7/state", 7..8),
        ("/brokers/topics/t/partitions/9", 9..10),
        ("/brokers/topics/t/partitions", 0..499),
    ] {
        let server = FakeZooKeeper::new();
        let store = server.connect();
        create_top_level_paths(&*store).await.unwrap();
        store.create("/brokers/topics/t", b"", CreateKind::Persistent).await.unwrap();
        let (outcomes, ..) = committed(&server, &creations(1), Some(forbidden)).await;
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let is_refused = outcome == Outcome::Refused;
            assert_eq!(is_refused, refused.contains(&index), "{forbidden} {index}");
        }
    }
}
