//! What brokers ask of the controller.

use common::{
    ids::{BrokerEpoch, LeaderEpoch, PartitionEpoch},
    topic::TopicPartition,
};
use controller::{
    alter_partition::{AlterPartition, Altered, NewIsr, TopicKey},
    elect_leaders::ElectionType,
};

use super::{
    Arc, BROKER, BrokerId, Cluster, CreateKind, ErrorCode, Expected, FakeStore, Fault, NewTopic,
    Watch, ZkStore, cluster, cluster_with, paths, register_as, topic,
};
use crate::{
    controller::{
        configs::{Alteration, Operation},
        requests::Elections,
    },
    dynamic_config,
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
        self.alter_from(0, 0, isr).await
    }

    /// As one that knows these epochs.
    async fn alter_from(&self, leader_epoch: i32, partition_epoch: i32, isr: &[i32]) -> Altered {
        let partition = NewIsr {
            topic: TopicKey::Name("t".into()),
            index: 0,
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            isr: isr.iter().map(|id| (BrokerId(*id), BrokerEpoch::NONE)).collect(),
            recovering: false,
        };
        let request = AlterPartition {
            broker: BROKER,
            broker_epoch: self.epoch_of(BROKER).await,
            partitions: vec![partition],
            refuses_ineligible: true,
        };
        self.controller.alter_partition(request).await
    }

    fn state_is(&self, part: &str) -> bool {
        self.tree("/brokers/topics/t/partitions/0/state").iter().any(|node| node.contains(part))
    }

    async fn state(&self) -> String {
        self.data("/brokers/topics/t/partitions/0/state").await
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_broker_are_counted() {
    let (cluster, other) = two_brokers().await;
    for name in ["t", "u", "v"] {
        cluster.create(topic(name, 1)).await;
    }
    cluster.until(|cluster| cluster.metrics.queued_requests.value() > 0).await;
    other.expire();
    cluster.until(|cluster| cluster.metrics.queued_requests.value() == 0).await;
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
        refuses_ineligible: true,
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

fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

#[tokio::test(start_paused = true)]
async fn a_partition_moves_to_another_broker() {
    let (cluster, _other) = two_brokers().await;
    assert_eq!(cluster.create(on(&[1])).await, "done");
    let moves = [(partition(), Some(vec![OTHER]))].into();
    let ordered = cluster.controller.alter_partition_reassignments(moves).await.unwrap();
    assert_eq!(ordered[&partition()], Ok(()));
    let list = || cluster.controller.list_partition_reassignments(None);
    let going_on = list().await.unwrap();
    assert_eq!(going_on[&partition()].adding, [OTHER]);
    let topic = cluster.data("/brokers/topics/t").await;
    assert!(topic.contains(r#""partitions":{"0":[2,1]}"#), "{topic}");
    let begun = |cluster: &Cluster| cluster.state_is(r#""leader":1,"version":1,"leader_epoch":1"#);
    cluster.until(begun).await;
    let altered = cluster.alter_from(1, 1, &[1, 2]).await.unwrap().remove(0).result;
    assert_eq!(altered.unwrap().isr, [BROKER, OTHER]);
    cluster
        .until(|cluster| cluster.state_is(r#""leader":2,"version":1,"leader_epoch":2,"isr":[2]"#))
        .await;
    let done = |cluster: &Cluster| {
        let topic = cluster.tree("/brokers/topics/t");
        topic.iter().any(|node| node.contains(r#""partitions":{"0":[2]}"#))
    };
    cluster.until(done).await;
    assert_eq!(list().await.unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_order_of_old_tools_is_followed_and_taken_away() {
    let (cluster, other) = two_brokers().await;
    assert_eq!(cluster.create(on(&[1])).await, "done");
    let order = br#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]},{"topic":"x","partition":0,"replicas":[2]}]}"#;
    for _ in 0..2 {
        other.create(paths::REASSIGN_PARTITIONS, order, CreateKind::Persistent).await.unwrap();
        let left = |cluster: &Cluster| {
            let order = cluster.tree(paths::REASSIGN_PARTITIONS);
            order.iter().all(|node| !node.contains(r#""topic":"x""#))
        };
        cluster.until(left).await;
        if cluster.state_is(r#""leader":1"#) {
            cluster.until(|cluster| cluster.state_is(r#""leader_epoch":1"#)).await;
            cluster.alter_from(1, 1, &[1, 2]).await.unwrap();
        }
        cluster.until(|cluster| cluster.tree(paths::REASSIGN_PARTITIONS).is_empty()).await;
        cluster.until(|cluster| cluster.state_is(r#""leader":2"#)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn elections_are_waited_for_until_this_broker_knows() {
    let (cluster, other) = two_brokers().await;
    assert_eq!(cluster.create(on(&[2, 1])).await, "done");
    other.close().await.unwrap();
    cluster.until(|cluster| cluster.leads("t", 0)).await;
    let other = cluster.server.connect();
    register_as(&other, OTHER).await;
    cluster.until(|cluster| cluster.metadata.load().brokers().count() == 2).await;
    let preferred = |timeout_ms| {
        let only = Some([partition()].into());
        cluster.controller.elect_leaders(ElectionType::Preferred, only, timeout_ms)
    };
    let code = |elections: Elections| elections[&partition()].clone().map_err(|error| error.code);
    let unavailable = Err(ErrorCode::PreferredLeaderNotAvailable);
    assert_eq!(code(preferred(60_000).await), unavailable);
    cluster.alter_from(1, 1, &[1, 2]).await.unwrap();
    assert_eq!(code(preferred(60_000).await), Ok(()));
    assert!(!cluster.leads("t", 0));
    assert_eq!(code(preferred(60_000).await), Err(ErrorCode::ElectionNotNeeded));
    cluster.zk.expire();
    cluster.until(|cluster| !cluster.controller.is_active()).await;
    assert_eq!(code(preferred(60_000).await), Err(ErrorCode::NotController));
    let all = cluster.controller.elect_leaders(ElectionType::Preferred, None, 60_000).await;
    assert_eq!(code(all), Err(ErrorCode::NotController));
}

#[tokio::test(start_paused = true)]
async fn leaderships_go_home_by_themselves() {
    let cluster = cluster_with(&[("leader.imbalance.check.interval.seconds", "30")]).await;
    let other = cluster.server.connect();
    register_as(&other, OTHER).await;
    cluster.until(|cluster| cluster.metadata.load().brokers().count() == 2).await;
    assert_eq!(cluster.create(on(&[2, 1])).await, "done");
    other.close().await.unwrap();
    cluster.until(|cluster| cluster.leads("t", 0)).await;
    let other = cluster.server.connect();
    register_as(&other, OTHER).await;
    cluster.until(|cluster| cluster.metadata.load().brokers().count() == 2).await;
    cluster.alter_from(1, 1, &[1, 2]).await.unwrap();
    cluster.until(|cluster| cluster.state_is(r#""leader":2"#)).await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_allows_it_is_led_by_a_replica_out_of_sync() {
    let (cluster, other) = two_brokers().await;
    let apply: Arc<dynamic_config::Apply> = cluster.controller.told_of(Arc::new(|_, _| {}));
    tokio::spawn(dynamic_config::listen(cluster.zk.clone(), apply, cluster.stop.clone()));
    assert_eq!(cluster.create(on(&[2, 1])).await, "done");
    let state = br#"{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2]}"#;
    other.set("/brokers/topics/t/partitions/0/state", state, Expected::Any).await.unwrap();
    other.close().await.unwrap();
    cluster.until(|cluster| cluster.state_is(r#""leader":-1"#)).await;
    let change = ("unclean.leader.election.enable".into(), Operation::Set, Some("true".into()));
    let change = Alteration::Change(vec![change]);
    assert_eq!(cluster.controller.alter_topic_configs("t", change, false).await, Ok(()));
    cluster.until(|cluster| cluster.state_is(r#""leader":1"#)).await;
}

#[tokio::test(start_paused = true)]
async fn producer_ids_are_for_registered_brokers() {
    let (cluster, _other) = two_brokers().await;
    let epoch = cluster.epoch_of(OTHER).await;
    let take = |broker, epoch| cluster.controller.allocate_producer_ids(broker, epoch);
    assert_eq!(take(OTHER, epoch).await, Ok(0..1000));
    assert_eq!(take(OTHER, epoch).await, Ok(1000..2000));
    assert_eq!(take(BROKER, epoch).await, Err(ErrorCode::StaleBrokerEpoch));
    assert_eq!(take(BrokerId(9), epoch).await, Err(ErrorCode::BrokerIdNotRegistered));
}

#[tokio::test(start_paused = true)]
async fn leaders_of_old_say_so_when_they_change_an_isr() {
    let (cluster, other) = two_brokers().await;
    assert_eq!(cluster.create(on(&[1, 2])).await, "done");
    let state = br#"{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}"#;
    let path = "/brokers/topics/t/partitions/0/state";
    other.set(path, state, Expected::Any).await.unwrap();
    let notice = br#"{"version":1,"partitions":[{"topic":"t","partition":0}]}"#;
    let kind = CreateKind::PersistentSequential;
    other.create(paths::ISR_CHANGE_PREFIX, notice, kind).await.unwrap();
    let heard = |cluster: &Cluster| {
        cluster.metadata.load().partition("t", 0).is_some_and(|known| known.isr[..] == [BROKER])
    };
    cluster.until(heard).await;
    assert_eq!(cluster.tree(paths::ISR_CHANGES).len(), 1);
}
