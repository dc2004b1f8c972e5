//! What brokers ask of the controller.

use common::ids::{BrokerEpoch, LeaderEpoch, PartitionEpoch};
use controller::alter_partition::{AlterPartition, Altered, NewIsr, TopicKey};

use super::{
    Arc, BROKER, BrokerId, Cluster, ErrorCode, Expected, FakeStore, Fault, NewTopic, Watch,
    ZkStore, cluster, paths, register_as, topic,
};

const OTHER: BrokerId = BrokerId(2);

/// A cluster with a second broker, which is registered and never answers.
async fn two_brokers() -> (Cluster, Arc<FakeStore>) {
    let cluster = cluster().await;
    let other = cluster.server.connect();
    register_as(&other, OTHER).await;
    cluster.until(|cluster| cluster.metadata.load().brokers().count() == 2).await;
    (cluster, other)
}

fn on(replicas: &[i32]) -> NewTopic {
    let replicas = replicas.iter().copied().map(BrokerId).collect();
    NewTopic { assignments: vec![(0, replicas)], replication_factor: -1, ..topic("t", -1) }
}

impl Cluster {
    async fn epoch_of(&self, broker: BrokerId) -> BrokerEpoch {
        let path = paths::broker_id(broker.0);
        BrokerEpoch(self.zk.exists(&path, Watch::No).await.unwrap().unwrap().czxid)
    }

    /// The leader's wish for `t-0`, as one that knows the first state of it.
    async fn alter(&self, isr: &[i32]) -> Altered {
        let partition = NewIsr {
            topic: TopicKey::Name("t".into()),
            index: 0,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
            isr: isr.iter().map(|id| (BrokerId(*id), BrokerEpoch::NONE)).collect(),
            recovering: false,
        };
        let request = AlterPartition {
            broker: BROKER,
            broker_epoch: self.epoch_of(BROKER).await,
            partitions: vec![partition],
            ineligible: ErrorCode::IneligibleReplica,
        };
        self.controller.alter_partition(request).await
    }

    async fn state(&self) -> String {
        self.data("/brokers/topics/t/partitions/0/state").await
    }
}

#[tokio::test(start_paused = true)]
async fn an_isr_is_written_before_the_leader_hears_of_it() {
    let (cluster, _other) = two_brokers().await;
    assert_eq!(cluster.create(on(&[1, 2])).await, "done");
    let altered = cluster.alter(&[1]).await.unwrap().remove(0).result.unwrap();
    assert_eq!((altered.isr, altered.partition_epoch), (vec![BROKER], PartitionEpoch(1)));
    let state = r#"{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}"#;
    assert_eq!(cluster.state().await, state);
    let refused = cluster.alter(&[1, 2]).await.unwrap().remove(0).result;
    assert_eq!(refused, Err(ErrorCode::InvalidUpdateVersion));
}

#[tokio::test(start_paused = true)]
async fn an_isr_whose_answer_from_zookeeper_is_lost_is_answered_all_the_same() {
    for fault in [Fault::LostBefore, Fault::LostAfter] {
        let (cluster, _other) = two_brokers().await;
        assert_eq!(cluster.create(on(&[1, 2])).await, "done");
        cluster.zk.fail_next_write(fault);
        let altered = cluster.alter(&[1]).await.unwrap().remove(0).result.unwrap();
        assert_eq!(altered.partition_epoch, PartitionEpoch(1), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_may_stop_once_others_lead() {
    let (cluster, _other) = two_brokers().await;
    assert_eq!(cluster.create(on(&[2, 1])).await, "done");
    let epoch = cluster.epoch_of(OTHER).await;
    let led = cluster.controller.controlled_shutdown(OTHER, epoch).await;
    assert_eq!(led.unwrap().len(), 0);
    let state = r#"{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":1,"isr":[1]}"#;
    assert_eq!(cluster.state().await, state);
    let stale = cluster.controller.controlled_shutdown(OTHER, BrokerEpoch(epoch.0 - 1)).await;
    assert_eq!(stale, Err(ErrorCode::StaleBrokerEpoch));
    let unknown = cluster.controller.controlled_shutdown(BrokerId(9), BrokerEpoch::NONE).await;
    assert_eq!(unknown, Err(ErrorCode::BrokerNotAvailable));
}

#[tokio::test(start_paused = true)]
async fn who_is_not_in_office_says_so() {
    let (cluster, _other) = two_brokers().await;
    assert_eq!(cluster.create(on(&[1, 2])).await, "done");
    let epoch = cluster.epoch_of(BROKER).await;
    cluster.zk.expire();
    cluster.until(|cluster| !cluster.controller.is_active()).await;
    let led = cluster.controller.controlled_shutdown(BROKER, epoch).await;
    assert_eq!(led, Err(ErrorCode::StaleControllerEpoch));
    let request = AlterPartition {
        broker: BROKER,
        broker_epoch: epoch,
        partitions: Vec::new(),
        ineligible: ErrorCode::IneligibleReplica,
    };
    assert_eq!(cluster.controller.alter_partition(request).await, Err(ErrorCode::NotController));
}

#[tokio::test(start_paused = true)]
async fn a_request_under_way_when_the_office_is_lost_is_answered() {
    let (cluster, other) = two_brokers().await;
    assert_eq!(cluster.create(on(&[1, 2])).await, "done");
    // Another controller, of which this one has not heard.
    other.set(paths::CONTROLLER_EPOCH, b"9", Expected::Any).await.unwrap();
    let before = cluster.state().await;
    assert_eq!(cluster.alter(&[1]).await, Err(ErrorCode::NotController));
    assert_eq!(cluster.state().await, before);
}
