//! Offsets of the oldest consumers, which keep them in ZooKeeper: version 0 of OffsetCommit and OffsetFetch.
//! Source: `KafkaZkClient.getConsumerOffset`, `setOrCreateConsumerOffset`.

use common::ids::Offset;

use crate::{
    bootstrap,
    documents::config::{consumer_offset_to_bytes, parse_consumer_offset},
    error::ZnodeError,
    paths,
    store::{Expected, Watch, ZkError, ZkStore},
};

/// What a group has committed for a partition; none where it has nothing.
pub async fn get(
    zk: &dyn ZkStore,
    group: &str,
    topic: &str,
    partition: i32,
) -> Result<Option<Offset>, ZnodeError> {
    let path = paths::consumer_offset(group, topic, partition);
    let Some(node) = zk.get(&path, Watch::No).await? else { return Ok(None) };
    Ok(Some(parse_consumer_offset(&path, &node.data)?))
}

/// Commits an offset, over whatever is there.
pub async fn set(
    zk: &dyn ZkStore,
    group: &str,
    topic: &str,
    partition: i32,
    offset: Offset,
) -> Result<(), ZkError> {
    let path = paths::consumer_offset(group, topic, partition);
    let data = consumer_offset_to_bytes(offset);
    loop {
        match zk.set(&path, &data, Expected::Any).await {
            Ok(_) => return Ok(()),
            Err(ZkError::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
        match bootstrap::create_with_parents(zk, &path, &data).await {
            // Another consumer of the group was first: its offset is overwritten, as in Kafka.
            Err(ZkError::NodeExists { .. }) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeZooKeeper;

    #[tokio::test]
    async fn an_offset_is_read_as_it_was_set_last() {
        let zk = FakeZooKeeper::new().connect();
        assert_eq!(get(&*zk, "g", "t", 3).await, Ok(None));
        set(&*zk, "g", "t", 3, Offset(7)).await.unwrap();
        set(&*zk, "g", "t", 3, Offset(9)).await.unwrap();
        assert_eq!(get(&*zk, "g", "t", 3).await, Ok(Some(Offset(9))));
        let node = zk.get("/consumers/g/offsets/t/3", Watch::No).await.unwrap().unwrap();
        assert_eq!(node.data, b"9");
    }
}
