//! Blocks of producer ids. Source: `ZkProducerIdManager`.

use std::ops::Range;

use common::ids::BrokerId;

use crate::{
    documents::producer_ids::ProducerIdBlock,
    error::ZnodeError,
    paths,
    store::{CreateKind, Expected, Watch, ZkError, ZkStore},
};

/// Takes the next block for a broker. Where an answer is lost, a block may be left out.
pub async fn allocate_block(zk: &dyn ZkStore, broker: BrokerId) -> Result<Range<i64>, ZnodeError> {
    const PATH: &str = paths::PRODUCER_ID_BLOCK;
    loop {
        let node = zk.get(PATH, Watch::No).await?;
        let last = match &node {
            Some(node) => ProducerIdBlock::parse(&node.data)?,
            None => None,
        };
        let Some(next) = ProducerIdBlock::after(last, broker) else {
            let message = "all producer ids have been given out".to_owned();
            return Err(ZkError::Other { path: PATH.to_owned(), message }.into());
        };
        let written = match node {
            Some(node) => {
                let expected = Expected::Version(node.stat.version);
                zk.set(PATH, &next.to_bytes(), expected).await.map(|_| ())
            }
            None => zk.create(PATH, &next.to_bytes(), CreateKind::Persistent).await.map(|_| ()),
        };
        match written {
            Ok(()) => return Ok(next.first.0..next.last.0 + 1),
            Err(error) if error.is_conflict() => {}
            Err(ZkError::MayHaveHappened { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeZooKeeper, Fault};

    #[tokio::test]
    async fn no_two_blocks_share_an_id() {
        let server = FakeZooKeeper::new();
        let (a, b) = (server.connect(), server.connect());
        assert_eq!(allocate_block(&*a, BrokerId(1)).await, Ok(0..1000));
        assert_eq!(allocate_block(&*b, BrokerId(2)).await, Ok(1000..2000));
        a.fail_next_write(Fault::LostBefore);
        assert_eq!(allocate_block(&*a, BrokerId(1)).await, Ok(2000..3000));
        a.fail_next_write(Fault::LostAfter);
        assert_eq!(allocate_block(&*a, BrokerId(1)).await, Ok(4000..5000));
        let node = a.get(paths::PRODUCER_ID_BLOCK, Watch::No).await.unwrap().unwrap();
        let expected = br#"{"version":1,"broker":1,"block_start":"4000","block_end":"4999"}"#;
        assert_eq!(node.data, expected);
    }

    #[tokio::test]
    async fn what_a_java_broker_created_empty_is_no_block_yet() {
        let zk = FakeZooKeeper::new().connect();
        zk.create(paths::PRODUCER_ID_BLOCK, b"", CreateKind::Persistent).await.unwrap();
        assert_eq!(allocate_block(&*zk, BrokerId(1)).await, Ok(0..1000));
        zk.set(paths::PRODUCER_ID_BLOCK, b"{", Expected::Any).await.unwrap();
        let error = allocate_block(&*zk, BrokerId(1)).await.unwrap_err();
        assert!(error.to_string().contains(paths::PRODUCER_ID_BLOCK), "{error}");
    }
}
