//! A controller over the fake ZooKeeper, with a broker that does as it is told.

mod requests;
mod scale;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{
    config::{broker::BrokerConfig, dynamic::Scope},
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, Timestamp},
    properties::Properties,
    security_protocol::SecurityProtocol,
};
use controller::{
    error::ApiError,
    request::Body,
    topics::{NewPartitions, NewTopic},
};
use metadata::{broker::Endpoint, cache::MetadataCache};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use zk::{
    bootstrap::create_top_level_paths,
    documents::broker::BrokerDocument,
    fake::{FakeStore, FakeZooKeeper, Fault},
    paths,
    registration::{Ghosts, register},
    store::{CreateKind, Expected, SessionId, Watch, ZkStore},
};

use super::{
    ControllerHandle, Start,
    channels::{Answer, ToBroker},
    configs::{Alteration, Operation},
    metrics::ControllerMetrics,
    start,
    topics::{DeleteTopic, Request},
};
use crate::{broker_configs::BrokerConfigs, dynamic_config};

const BROKER: BrokerId = BrokerId(1);
const WAIT: Request = Request { timeout_ms: 60_000, validate_only: false };

struct Cluster {
    server: FakeZooKeeper,
    zk: Arc<FakeStore>,
    metadata: Arc<MetadataCache>,
    controller: ControllerHandle,
    registered: watch::Sender<Option<SessionId>>,
    /// Whether the broker leaves requests unanswered.
    deaf: Arc<AtomicBool>,
    metrics: ControllerMetrics,
    stop: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn config(lines: &[(&str, &str)]) -> Arc<BrokerConfig> {
    let mut properties = Properties::new();
    for (key, value) in lines.iter().chain(&[("zookeeper.connect", "x"), ("broker.id", "1")]) {
        properties.insert((*key).to_owned(), (*value).to_owned());
    }
    Arc::new(BrokerConfig::parse(&properties).unwrap())
}

async fn register_broker(zk: &FakeStore) -> Option<SessionId> {
    register_as(zk, BROKER).await
}

async fn register_as(zk: &FakeStore, broker: BrokerId) -> Option<SessionId> {
    register_at(zk, broker, 9092).await;
    zk.session().session_id()
}

/// Registers a broker that is reached at a port of this machine.
async fn register_at(zk: &FakeStore, broker: BrokerId, port: u16) -> BrokerEpoch {
    let endpoint = Endpoint {
        listener: "PLAINTEXT".into(),
        host: "127.0.0.1".into(),
        port,
        protocol: SecurityProtocol::Plaintext,
    };
    let document = BrokerDocument {
        version: 5,
        endpoints: vec![endpoint],
        rack: None,
        jmx_port: -1,
        timestamp: Timestamp(1),
        features: std::collections::BTreeMap::new(),
    };
    let ghosts = Ghosts { is_ours: &|_| false, wait_at_most: Duration::ZERO };
    register(zk, broker, &document, &ghosts).await.unwrap()
}

async fn obey(
    mut requests: mpsc::Receiver<ToBroker>,
    metadata: Arc<MetadataCache>,
    deaf: Arc<AtomicBool>,
) {
    while let Some(ToBroker { request, answer }) = requests.recv().await {
        if deaf.load(Ordering::Relaxed) {
            continue;
        }
        if let Body::UpdateMetadata(update) = &request.body {
            metadata.apply(update);
        }
        // A controller that is out of office does not listen.
        let _ = answer.send(Answer::done());
    }
}

async fn cluster_with(lines: &[(&str, &str)]) -> Cluster {
    let server = FakeZooKeeper::new();
    let zk = server.connect();
    create_top_level_paths(&*zk).await.unwrap();
    let session = register_broker(&zk).await;
    let (registered, registered_seen) = watch::channel(session);
    let (to_broker, requests) = mpsc::channel(1);
    let (metadata, deaf) = (Arc::new(MetadataCache::new()), Arc::default());
    tokio::spawn(obey(requests, Arc::clone(&metadata), Arc::clone(&deaf)));
    let stop = CancellationToken::new();
    let metrics = ControllerMetrics::default();
    let (controller, _) = start(Start {
        broker: BROKER,
        broker_configs: Arc::new(BrokerConfigs::of_file(BROKER, config(lines))),
        config: config(lines),
        zk: zk.clone(),
        metadata: Arc::clone(&metadata),
        registered: registered_seen,
        to_broker,
        is_ours: Arc::new(|_| false),
        metrics: metrics.clone(),
        stop: stop.clone(),
    });
    let cluster = Cluster { server, zk, metadata, controller, registered, deaf, metrics, stop };
    cluster.until(|cluster| cluster.metadata.load().controller().is_some()).await;
    cluster
}

async fn cluster() -> Cluster {
    cluster_with(&[]).await
}

impl Cluster {
    /// Waits while the clock is paused: it goes on whenever nobody else has anything to do.
    async fn until(&self, reached: impl Fn(&Cluster) -> bool) {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        for _ in 0..10_000 {
            if reached(self) {
                return;
            }
            looks.tick().await;
        }
        panic!("does not come about: {:?}", self.tree("/"));
    }

    /// The znodes below a path, with their data.
    fn tree(&self, root: &str) -> Vec<String> {
        let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
        let dump = self.server.dump().into_iter().filter(|(path, _)| path.starts_with(root));
        dump.map(|(path, node)| format!("{path} {}", text(&node.data))).collect()
    }

    async fn data(&self, path: &str) -> String {
        let node = self.zk.get(path, Watch::No).await.unwrap();
        String::from_utf8(node.unwrap_or_else(|| panic!("{path} is missing")).data).unwrap()
    }

    async fn exists(&self, path: &str) -> bool {
        self.zk.exists(path, Watch::No).await.unwrap().is_some()
    }

    async fn create(&self, topic: NewTopic) -> String {
        text(self.controller.create_topics(vec![topic], WAIT).await.remove(0).error)
    }

    async fn expand(&self, topic: &str, count: i32) -> String {
        let request = NewPartitions { topic: topic.into(), count, assignments: None };
        text(self.controller.create_partitions(vec![request], WAIT).await.remove(0).1)
    }

    async fn delete(&self, topic: &str) -> ErrorCode {
        let topic = DeleteTopic { name: Some(topic.into()), id: None };
        let results = self.controller.delete_topics(6, vec![topic], WAIT.timeout_ms).await;
        results.unwrap().remove(0).error
    }

    fn leads(&self, topic: &str, partition: i32) -> bool {
        let cluster = self.metadata.load();
        cluster.partition(topic, partition).is_some_and(|known| known.leader == BROKER)
    }
}

fn text(error: Option<ApiError>) -> String {
    let Some(ApiError { code, message }) = error else { return "done".to_owned() };
    format!("{code} {}", message.unwrap_or_default()).trim_end().to_owned()
}

fn topic(name: &str, partitions: i32) -> NewTopic {
    NewTopic { name: name.into(), partitions, replication_factor: 1, ..NewTopic::default() }
}

fn with_configs(topic: NewTopic, configs: &[(&str, &str)]) -> NewTopic {
    let configs = configs.iter().map(|(key, value)| ((*key).into(), Some((*value).into())));
    NewTopic { configs: configs.collect(), ..topic }
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_created_expanded_and_deleted() {
    let cluster = cluster().await;
    let new = with_configs(topic("t", 2), &[("retention.ms", "60000")]);
    let result = cluster.controller.create_topics(vec![new], WAIT).await.remove(0);
    let created = result.created.unwrap();
    assert_eq!((result.error, created.partitions, created.replication_factor), (None, 2, 1));
    assert!(cluster.leads("t", 0) && cluster.leads("t", 1));
    let id = cluster.metadata.load().topic("t").unwrap().id;
    assert_eq!(id, result.topic_id);
    assert_eq!(
        cluster.data("/config/topics/t").await,
        r#"{"config":{"retention.ms":"60000"},"version":1}"#
    );
    assert_eq!(
        cluster.data("/brokers/topics/t/partitions/1/state").await,
        r#"{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}"#
    );
    assert_eq!(cluster.expand("t", 4).await, "done");
    assert!(cluster.leads("t", 3));
    assert_eq!(cluster.delete("t").await, ErrorCode::None);
    assert!(cluster.metadata.load().topic("t").is_none());
    cluster.until(|cluster| cluster.tree("/brokers/topics").len() == 1).await;
    assert!(!cluster.exists("/config/topics/t").await);
    assert_eq!(cluster.tree("/admin/delete_topics").len(), 1);
    assert_eq!(cluster.create(topic("t", 1)).await, "done");
}

#[tokio::test(start_paused = true)]
async fn topics_that_may_not_be_are_refused() {
    let cluster = cluster().await;
    for name in ["t", "a.b"] {
        assert_eq!(cluster.create(topic(name, 1)).await, "done");
    }
    let cases = [
        (topic("t", 1), "TOPIC_ALREADY_EXISTS Topic 't' already exists."),
        (topic("a_b", 1), "INVALID_TOPIC_EXCEPTION Topic 'a_b' collides with existing topics: a.b"),
        (
            topic("../x", 1),
            "INVALID_TOPIC_EXCEPTION Topic name is invalid: '../x' contains one or more characters \
             other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (
            NewTopic { replication_factor: 3, ..topic("u", 1) },
            "INVALID_REPLICATION_FACTOR Replication factor: 3 larger than available brokers: 1.",
        ),
        (
            topic("__cluster_metadata", 1),
            "INVALID_REQUEST Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            with_configs(topic("u", 1), &[("no.such", "1")]),
            "INVALID_CONFIG Unknown topic config name: no.such",
        ),
        (
            with_configs(topic("u", 1), &[("retention.ms", "x")]),
            "INVALID_CONFIG Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            NewTopic {
                assignments: vec![(0, vec![BrokerId(7)])],
                replication_factor: -1,
                ..topic("u", -1)
            },
            "INVALID_REPLICA_ASSIGNMENT Unknown broker(s) in replica assignment: 7.",
        ),
    ];
    for (new, expected) in cases {
        assert_eq!(cluster.create(new).await, expected);
    }
    let twice = vec![topic("u", 1), topic("v", 1), topic("u", 2)];
    let results = cluster.controller.create_topics(twice, WAIT).await;
    let texts: Vec<String> = results.into_iter().map(|result| text(result.error)).collect();
    let duplicate = "INVALID_REQUEST Found multiple entries for this topic.";
    assert_eq!(texts, [duplicate, "done", duplicate]);
    assert!(!cluster.exists("/config/topics/u").await);
}

#[tokio::test(start_paused = true)]
async fn checking_alone_writes_nothing() {
    let cluster = cluster().await;
    let only_check = Request { validate_only: true, ..WAIT };
    let result = cluster.controller.create_topics(vec![topic("t", 3)], only_check).await.remove(0);
    assert_eq!((result.error, result.topic_id), (None, None));
    assert_eq!(result.created.unwrap().partitions, 3);
    assert!(!cluster.exists("/brokers/topics/t").await);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_in_time_is_on_its_way() {
    let cluster = cluster().await;
    let at_once = Request { timeout_ms: 0, validate_only: false };
    let result = cluster.controller.create_topics(vec![topic("t", 1)], at_once).await.remove(0);
    assert_eq!(text(result.error), "REQUEST_TIMED_OUT");
    assert!(result.topic_id.is_some() && result.created.is_none());
    cluster.until(|cluster| cluster.leads("t", 0)).await;
    cluster.deaf.store(true, Ordering::Relaxed);
    let soon = Request { timeout_ms: 500, validate_only: false };
    let result = cluster.controller.create_topics(vec![topic("u", 1)], soon).await.remove(0);
    assert_eq!(text(result.error), "REQUEST_TIMED_OUT");
    let name = || Some("t".to_owned());
    let doomed = vec![DeleteTopic { name: name(), id: None }];
    let results = cluster.controller.delete_topics(6, doomed, 500).await.unwrap();
    assert_eq!(results[0].error, ErrorCode::RequestTimedOut);
}

#[tokio::test(start_paused = true)]
async fn partitions_that_may_not_be_are_refused() {
    let cluster = cluster().await;
    assert_eq!(cluster.create(topic("t", 2)).await, "done");
    assert_eq!(cluster.expand("t", 2).await, "INVALID_PARTITIONS Topic already has 2 partitions.");
    assert_eq!(
        cluster.expand("x", 2).await,
        "UNKNOWN_TOPIC_OR_PARTITION The topic 'x' does not exist."
    );
    assert_eq!(
        cluster.expand("x/y", 2).await,
        "UNKNOWN_TOPIC_OR_PARTITION The topic 'x/y' does not exist."
    );
    let more = |count| NewPartitions { topic: "t".into(), count, assignments: None };
    let twice = vec![more(3), more(4)];
    let results = cluster.controller.create_partitions(twice, WAIT).await;
    assert_eq!(results.len(), 1);
    assert_eq!(text(results[0].1.clone()), "INVALID_REQUEST Duplicate topic in request.");
    cluster.deaf.store(true, Ordering::Relaxed);
    cluster.zk.create("/admin/delete_topics/t", &[], CreateKind::Persistent).await.unwrap();
    assert_eq!(
        cluster.expand("t", 3).await,
        "INVALID_TOPIC_EXCEPTION The topic is queued for deletion."
    );
}

#[tokio::test(start_paused = true)]
async fn topics_to_delete_are_named_in_one_way() {
    let cluster = cluster().await;
    assert_eq!(cluster.create(topic("t", 1)).await, "done");
    let id = cluster.metadata.load().topic("t").unwrap().id;
    let delete = |name: Option<&str>, id| vec![DeleteTopic { name: name.map(str::to_owned), id }];
    let both = cluster.controller.delete_topics(6, delete(Some("t"), id), 1000).await;
    assert_eq!(both, Err(ErrorCode::InvalidRequest));
    let unknown = Some(common::topic::Uuid(7));
    let results = cluster.controller.delete_topics(6, delete(None, unknown), 1000).await.unwrap();
    assert_eq!((results[0].error, &results[0].name), (ErrorCode::UnknownTopicId, &None));
    let results = cluster.controller.delete_topics(6, delete(None, id), 1000).await.unwrap();
    assert_eq!((results[0].error, results[0].name.as_deref()), (ErrorCode::None, Some("t")));
    assert_eq!(cluster.delete("t").await, ErrorCode::UnknownTopicOrPartition);
}

#[tokio::test(start_paused = true)]
async fn deletion_can_be_disabled() {
    let cluster = cluster_with(&[("delete.topic.enable", "false")]).await;
    assert_eq!(cluster.create(topic("t", 1)).await, "done");
    assert_eq!(cluster.delete("t").await, ErrorCode::TopicDeletionDisabled);
    let old = vec![DeleteTopic { name: Some("t".into()), id: None }];
    let results = cluster.controller.delete_topics(2, old, 1000).await.unwrap();
    assert_eq!(results[0].error, ErrorCode::InvalidRequest);
    cluster.zk.create("/admin/delete_topics/t", &[], CreateKind::Persistent).await.unwrap();
    cluster.until(|cluster| cluster.tree("/admin/delete_topics").len() == 1).await;
    assert!(cluster.leads("t", 0));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_a_client_asks_for_is_created() {
    let cluster = cluster_with(&[("num.partitions", "3")]).await;
    assert_eq!(cluster.controller.auto_create_topic("t").await, ErrorCode::LeaderNotAvailable);
    assert_eq!(cluster.controller.auto_create_topic("t").await, ErrorCode::LeaderNotAvailable);
    cluster.until(|cluster| cluster.leads("t", 2)).await;
    assert_eq!(cluster.controller.auto_create_topic("a b").await, ErrorCode::InvalidTopicException);
    // Its replication factor is 3 unless told otherwise.
    assert_eq!(
        cluster.controller.auto_create_topic("__consumer_offsets").await,
        ErrorCode::InvalidReplicationFactor
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_does_not_hold_up_the_topic_it_asked_for() {
    let cluster = cluster().await;
    cluster.zk.disconnect();
    let asked = cluster.controller.auto_create_topic("t");
    assert!(tokio::time::timeout(Duration::from_secs(1), asked).await.is_err());
    cluster.zk.reconnect();
    assert_eq!(cluster.controller.auto_create_topic("t").await, ErrorCode::LeaderNotAvailable);
}

#[tokio::test(start_paused = true)]
async fn the_offsets_topic_has_its_own_configs() {
    let one = [("offsets.topic.replication.factor", "1"), ("offsets.topic.num.partitions", "5")];
    let cluster = cluster_with(&one).await;
    let code = cluster.controller.auto_create_topic("__consumer_offsets").await;
    assert_eq!(code, ErrorCode::LeaderNotAvailable);
    cluster.until(|cluster| cluster.leads("__consumer_offsets", 4)).await;
    let configs = cluster.data("/config/topics/__consumer_offsets").await;
    for part in [
        r#""cleanup.policy":"compact""#,
        r#""compression.type":"producer""#,
        r#""segment.bytes":"104857600""#,
    ] {
        assert!(configs.contains(part), "{configs}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_term_follows_a_lost_session() {
    let cluster = cluster().await;
    assert_eq!(cluster.create(topic("t", 1)).await, "done");
    cluster.zk.expire();
    cluster.until(|cluster| !cluster.controller.is_active()).await;
    let refused = "NOT_CONTROLLER";
    assert_eq!(cluster.create(topic("u", 1)).await, refused);
    assert_eq!(cluster.expand("t", 2).await, refused);
    assert_eq!(cluster.delete("t").await, ErrorCode::NotController);
    let session = register_broker(&cluster.zk).await;
    cluster.registered.send_replace(session);
    cluster.until(|cluster| cluster.controller.is_active()).await;
    assert_eq!(cluster.data("/controller_epoch").await, "2");
    assert_eq!(cluster.create(topic("u", 1)).await, "done");
    assert_eq!(cluster.expand("t", 2).await, "done");
}

#[tokio::test(start_paused = true)]
async fn the_controller_counts_what_it_controls() {
    let cluster = cluster().await;
    assert_eq!(cluster.create(topic("t", 3)).await, "done");
    let shown = |cluster: &Cluster| {
        let ControllerMetrics { active_controller, active_brokers, .. } = &cluster.metrics;
        let ControllerMetrics { global_topics, global_partitions, .. } = &cluster.metrics;
        let gauges = [active_controller, active_brokers, global_topics, global_partitions];
        gauges.map(|gauge| gauge.value())
    };
    cluster.until(|cluster| shown(cluster) == [1, 1, 1, 3]).await;
    cluster.zk.expire();
    cluster.until(|cluster| shown(cluster) == [0, 0, 0, 0]).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_controller_znode_leads_to_another_term() {
    let cluster = cluster().await;
    for epoch in ["2", "3"] {
        cluster.zk.delete(paths::CONTROLLER, Expected::Any).await.unwrap();
        let again = |cluster: &Cluster| {
            let node = cluster.tree("/controller_epoch").remove(0);
            cluster.controller.is_active() && node.ends_with(&format!(" {epoch}"))
        };
        cluster.until(again).await;
    }
    assert_eq!(cluster.create(topic("t", 1)).await, "done");
    let state = cluster.data("/brokers/topics/t/partitions/0/state").await;
    assert!(state.contains(r#""controller_epoch":3"#), "{state}");
}

/// Somebody wrote nonsense over a partition's state: the next controller leaves it alone, serves the others, and sees when
/// it is mended.
#[tokio::test(start_paused = true)]
async fn a_state_that_cannot_be_read_holds_up_nobody() {
    let cluster = cluster().await;
    assert_eq!(cluster.create(topic("t", 2)).await, "done");
    let path = paths::partition_state("t", 0);
    let good = cluster.data(&path).await;
    cluster.zk.set(&path, b"nonsense", Expected::Any).await.unwrap();
    cluster.zk.delete(paths::CONTROLLER, Expected::Any).await.unwrap();
    cluster.until(|cluster| !cluster.leads("t", 0)).await;
    assert_eq!(cluster.create(topic("u", 1)).await, "done");
    assert!(cluster.leads("t", 1) && cluster.leads("u", 0));
    assert_eq!(cluster.data(&path).await, "nonsense");
    cluster.zk.set(&path, good.as_bytes(), Expected::Any).await.unwrap();
    cluster.until(|cluster| cluster.leads("t", 0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_fenced_writes_nothing() {
    let cluster = cluster().await;
    let other = cluster.server.connect();
    // Another controller, as far as the epoch tells; this one has not heard of it.
    other.set(paths::CONTROLLER_EPOCH, b"9", Expected::Any).await.unwrap();
    other.delete(paths::CONTROLLER, Expected::Any).await.unwrap();
    let at_once = Request { timeout_ms: 0, validate_only: false };
    cluster.controller.create_topics(vec![topic("t", 1)], at_once).await;
    cluster.until(|cluster| cluster.tree("/controller_epoch")[0].ends_with(" 10")).await;
    assert_eq!(cluster.create(topic("u", 1)).await, "done");
    let state = cluster.data("/brokers/topics/u/partitions/0/state").await;
    assert!(state.contains(r#""controller_epoch":10"#), "{state}");
}

/// One life, with a fault at the given write: in the end all is as without it.
async fn life_with_a_fault(writes: usize, fault: Fault) {
    let cluster = cluster().await;
    cluster.zk.fail_write_after(writes, fault);
    let keeper = {
        let (zk, registered) = (cluster.zk.clone(), cluster.registered.clone());
        let mut changes = zk.changes();
        tokio::spawn(async move {
            while changes.next().await.is_some() {
                if zk.session().session_id() != *registered.borrow() {
                    registered.send_replace(register_broker(&zk).await);
                }
            }
        })
    };
    let mut retries = tokio::time::interval(Duration::from_secs(1));
    for name in ["a", "b"] {
        // A request that the fault hit is sent again, as clients do.
        for _ in 0..4 {
            cluster.until(|cluster| cluster.controller.is_active()).await;
            let result = cluster.create(topic(name, 2)).await;
            if result == "done" || result.starts_with("TOPIC_ALREADY_EXISTS") {
                break;
            }
            retries.tick().await;
        }
    }
    cluster.until(|cluster| cluster.leads("a", 1) && cluster.leads("b", 1)).await;
    for _ in 0..4 {
        cluster.until(|cluster| cluster.controller.is_active()).await;
        if cluster.delete("a").await.is_none() {
            break;
        }
        retries.tick().await;
    }
    let gone = |cluster: &Cluster| {
        cluster.metadata.load().topic("a").is_none()
            && cluster.tree("/brokers/topics/a").is_empty()
            && cluster.tree("/config/topics/a").is_empty()
            && cluster.tree("/admin/delete_topics/a").is_empty()
    };
    cluster.until(gone).await;
    assert!(cluster.leads("b", 0), "{fault:?} at write {writes}");
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn no_fault_of_zookeeper_leaves_anything_undone() {
    for fault in [Fault::LostBefore, Fault::LostAfter, Fault::ExpiredBefore, Fault::ExpiredAfter] {
        for writes in 0..12 {
            life_with_a_fault(writes, fault).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn changed_configs_are_written_and_heard_of() {
    let cluster = cluster().await;
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let listener = {
        let heard = Arc::clone(&heard);
        let apply: Arc<dynamic_config::Apply> = Arc::new(move |entity, configs| {
            let text = format!("{}/{} {configs:?}", entity.entity_type, entity.entity);
            heard.lock().push(text);
        });
        tokio::spawn(dynamic_config::listen(cluster.zk.clone(), apply, cluster.stop.clone()))
    };
    assert_eq!(cluster.create(topic("t", 1)).await, "done");
    let alter = |alteration, validate_only| {
        cluster.controller.alter_topic_configs("t", alteration, validate_only)
    };
    let set = |key: &str, value: &str| {
        let change = (key.to_owned(), Operation::Set, Some(value.to_owned()));
        Alteration::Change(vec![change])
    };
    assert_eq!(alter(set("retention.ms", "5"), true).await, Ok(()));
    assert_eq!(alter(set("retention.ms", "7"), false).await, Ok(()));
    assert_eq!(alter(set("segment.bytes", "1000000"), false).await, Ok(()));
    let newest = r#"topics/t {"retention.ms": "7", "segment.bytes": "1000000"}"#;
    cluster.until(|_| heard.lock().last().is_some_and(|text| text == newest)).await;
    assert_eq!(alter(Alteration::Replace(Properties::new()), false).await, Ok(()));
    assert_eq!(cluster.data("/config/topics/t").await, r#"{"config":{},"version":1}"#);
    assert_eq!(
        text(alter(set("retention.ms", "x"), false).await.err()),
        "INVALID_CONFIG Invalid config value for resource ConfigResource(type=TOPIC, name='t'): \
         Invalid value x for configuration retention.ms: Not a number of type LONG"
    );
    let other = cluster.controller.alter_topic_configs("x", set("a", "b"), false).await;
    assert_eq!(text(other.err()), "UNKNOWN_TOPIC_OR_PARTITION The topic 'x' does not exist.");
    listener.abort();
}

#[tokio::test(start_paused = true)]
async fn configs_of_brokers_are_written_for_one_or_for_all() {
    let cluster = cluster().await;
    let alter = async |scope, alteration, validate_only| {
        let altered = cluster.controller.alter_broker_configs(scope, alteration, validate_only);
        text(altered.await.err())
    };
    let change = |key: &str, operation, value: &str| {
        Alteration::Change(vec![(key.to_owned(), operation, Some(value.to_owned()))])
    };
    let key = "leader.replication.throttled.rate";
    let set = |value| change(key, Operation::Set, value);
    assert_eq!(alter(Scope::This, set("100"), true).await, "done");
    assert_eq!(alter(Scope::This, set("200"), false).await, "done");
    assert_eq!(alter(Scope::All, set("300"), false).await, "done");
    let path = format!("/config/brokers/{BROKER}");
    let one = format!(r#"{{"config":{{"{key}":"200"}},"version":1}}"#);
    assert_eq!(cluster.data(&path).await, one);
    assert_eq!(cluster.data("/config/brokers/<default>").await, one.replace('2', "3"));
    assert_eq!(
        alter(Scope::This, set("-1"), false).await,
        format!(
            "INVALID_REQUEST Invalid value -1 for configuration {key}: Value must be at least 0"
        )
    );
    let append = |key| change(key, Operation::Append, "compact");
    assert_eq!(alter(Scope::This, append("log.cleanup.policy"), false).await, "done");
    let both = r#"{"config":{"KEY":"200","log.cleanup.policy":"delete,compact"},"version":1}"#;
    assert_eq!(cluster.data(&path).await, both.replace("KEY", key));
    assert_eq!(
        alter(Scope::This, append("message.max.bytes"), false).await,
        "INVALID_CONFIG Config value append is not allowed for config key: message.max.bytes"
    );
    assert_eq!(alter(Scope::This, append("no.such"), false).await, "UNKNOWN_SERVER_ERROR");
    assert_eq!(
        alter(Scope::All, change("num.partitions", Operation::Set, "5"), false).await,
        "INVALID_REQUEST Cannot update these configs dynamically: Set(num.partitions)"
    );
    assert_eq!(alter(Scope::This, Alteration::Replace(Properties::new()), false).await, "done");
    assert_eq!(cluster.data(&path).await, r#"{"config":{},"version":1}"#);
}
