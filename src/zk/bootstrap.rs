//! What a broker finds or makes in ZooKeeper before it registers: the top-level paths, the cluster's id, its own id.

use common::{
    ids::{BrokerEpoch, BrokerId},
    topic::Uuid,
};
use futures_util::future::try_join_all;
use metadata::broker::{Broker, Endpoint};

use crate::{
    documents::{broker::BrokerDocument, cluster},
    error::ZnodeError,
    paths,
    store::{Expected, Op, Watch, ZkError, ZkStore},
};

/// Creates what every broker expects to be there, parents first, in one transaction.
pub async fn create_top_level_paths(zk: &dyn ZkStore) -> Result<(), ZkError> {
    create_missing(zk, &paths::CREATED_AT_START).await
}

/// Creates those of the paths that are not there, empty, with their parents, in the given order.
pub async fn create_missing(zk: &dyn ZkStore, wanted: &[&str]) -> Result<(), ZkError> {
    let mut with_parents: Vec<&str> = Vec::new();
    for path in wanted {
        for (at, _) in path.match_indices('/').skip(1) {
            with_parents.push(&path[..at]);
        }
        with_parents.push(path);
    }
    loop {
        let stats = with_parents.iter().map(|path| zk.exists(path, Watch::No));
        let stats = try_join_all(stats).await?;
        let mut missing: Vec<&str> = Vec::new();
        for (path, stat) in with_parents.iter().zip(stats) {
            if stat.is_none() && !missing.contains(path) {
                missing.push(path);
            }
        }
        let ops = missing.into_iter().map(|path| Op::create(path, "")).collect();
        match zk.multi(ops).await {
            // Another broker starts too: look again.
            Err(error) if error.is_conflict() => {}
            Err(ZkError::MayHaveHappened { .. }) => {}
            result => return result.map(|_| ()).map_err(|error| error.reason().clone()),
        }
    }
}

/// Creates a node with data, and its parents where they are absent; an existing node is `NodeExists`.
pub async fn create_with_parents(zk: &dyn ZkStore, path: &str, data: &[u8]) -> Result<(), ZkError> {
    loop {
        match zk.multi(vec![Op::create(path, data)]).await {
            Ok(_) => return Ok(()),
            Err(error) => match (error.reason(), paths::parent(path)) {
                (ZkError::NoNode { .. }, Some(parent)) => create_missing(zk, &[parent]).await?,
                (reason, _) => return Err(reason.clone()),
            },
        }
    }
}

/// The cluster's id; the first broker of a cluster makes its proposal that.
pub async fn cluster_id(zk: &dyn ZkStore, proposal: Uuid) -> Result<String, ZnodeError> {
    loop {
        if let Some(node) = zk.get(paths::CLUSTER_ID, Watch::No).await? {
            return Ok(cluster::parse_cluster_id(&node.data)?);
        }
        let data = cluster::cluster_id_to_bytes(&proposal.to_string());
        match create_with_parents(zk, paths::CLUSTER_ID, &data).await {
            Ok(()) | Err(ZkError::NodeExists { .. } | ZkError::MayHaveHappened { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A broker id that nobody had: above `reserved_broker_id_max`. One may be lost where a connection is.
pub async fn generate_broker_id(
    zk: &dyn ZkStore,
    reserved_broker_id_max: i32,
) -> Result<BrokerId, ZkError> {
    loop {
        match zk.set(paths::BROKER_SEQUENCE_ID, b"", Expected::Any).await {
            Ok(stat) => return Ok(BrokerId(reserved_broker_id_max.saturating_add(stat.version.0))),
            Err(ZkError::NoNode { .. }) => create_missing(zk, &[paths::BROKER_SEQUENCE_ID]).await?,
            Err(ZkError::MayHaveHappened { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// All registered brokers, sorted by id. One whose registration cannot be read is an error.
pub async fn brokers(zk: &dyn ZkStore) -> Result<Vec<Broker>, ZnodeError> {
    let names = zk.children(paths::BROKER_IDS, Watch::No).await?;
    let mut ids: Vec<i32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    ids.sort_unstable();
    let paths: Vec<String> = ids.iter().map(|id| paths::broker_id(*id)).collect();
    let nodes = try_join_all(paths.iter().map(|path| zk.get(path, Watch::No))).await?;
    let mut brokers = Vec::new();
    for (id, node) in ids.into_iter().zip(nodes) {
        // Gone since the list was read.
        let Some(node) = node else { continue };
        let document = BrokerDocument::parse(BrokerId(id), &node.data)?;
        brokers.push(document.broker(BrokerId(id), BrokerEpoch(node.stat.czxid)));
    }
    Ok(brokers)
}

/// Another broker that has told clients one of our addresses, and which they are, as `host:port`.
pub fn address_taken(
    brokers: &[Broker],
    id: BrokerId,
    ours: &[Endpoint],
) -> Option<(BrokerId, Vec<String>)> {
    brokers.iter().filter(|broker| broker.id != id).find_map(|broker| {
        let same = |theirs: &&Endpoint| {
            ours.iter().any(|ours| ours.host == theirs.host && ours.port == theirs.port)
        };
        let address = |endpoint: &Endpoint| format!("{}:{}", endpoint.host, endpoint.port);
        let taken: Vec<String> = broker.endpoints.iter().filter(same).map(address).collect();
        (!taken.is_empty()).then_some((broker.id, taken))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeZooKeeper, Fault};

    #[tokio::test]
    async fn the_paths_are_those_of_kafka_in_its_order() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        zk.fail_next_write(Fault::LostAfter);
        create_top_level_paths(&*zk).await.unwrap();
        create_top_level_paths(&*zk).await.unwrap();
        let mut writes = zk.take_writes().into_iter();
        let created: Vec<String> =
            writes.next().unwrap().iter().map(|op| op.path().to_owned()).collect();
        let expected = [
            "/consumers",
            "/brokers",
            "/brokers/ids",
            "/brokers/topics",
            "/config",
            "/config/changes",
            "/admin",
            "/admin/delete_topics",
            "/brokers/seqid",
            "/isr_change_notification",
            "/log_dir_event_notification",
            "/config/topics",
            "/config/clients",
            "/config/users",
            "/config/brokers",
            "/config/ips",
        ];
        assert_eq!(created, expected);
        // The answer was lost, but all was there.
        assert_eq!(writes.flatten().count(), 0);
        assert_eq!(zk.exists(paths::PRODUCER_ID_BLOCK, Watch::No).await, Ok(None));
    }

    #[tokio::test]
    async fn all_brokers_agree_on_the_first_cluster_id() {
        let server = FakeZooKeeper::new();
        let (a, b) = (server.connect(), server.connect());
        a.fail_next_write(Fault::LostAfter);
        let id = cluster_id(&*a, Uuid(7)).await.unwrap();
        assert_eq!(id, Uuid(7).to_string());
        assert_eq!(cluster_id(&*b, Uuid(8)).await.unwrap(), id);
    }

    #[tokio::test]
    async fn generated_broker_ids_begin_above_the_reserved_ones() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        assert_eq!(generate_broker_id(&*zk, 1000).await, Ok(BrokerId(1001)));
        assert_eq!(generate_broker_id(&*zk, 1000).await, Ok(BrokerId(1002)));
    }

    #[tokio::test]
    async fn a_taken_address_is_named() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        let data = br#"{"version":5,"jmx_port":-1,"endpoints":["A://h:1","B://h:2"],
            "listener_security_protocol_map":{"A":"PLAINTEXT","B":"SSL"}}"#;
        create_with_parents(&*zk, "/brokers/ids/4", data).await.unwrap();
        let brokers = brokers(&*zk).await.unwrap();
        let ours = &brokers[0].endpoints[1..];
        assert_eq!(address_taken(&brokers, BrokerId(4), ours), None);
        let taken = (BrokerId(4), vec!["h:2".to_owned()]);
        assert_eq!(address_taken(&brokers, BrokerId(5), ours), Some(taken));
    }
}
