//! Topics as brokers other than the controller write them: created, given partitions, marked for deletion.
//! Source: `AdminZkClient`.

use crate::{
    bootstrap::create_missing,
    configs::controller_check,
    documents::{
        config::{Configs, configs_to_bytes},
        topic::TopicDocument,
    },
    error::ZnodeError,
    paths,
    store::{Expected, Op, Watch, ZkError, ZkStore, ZkVersion},
};

/// What came of creating a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicCreated {
    /// It is there; the controller sees to the rest.
    Created,
    /// Another one has the name; nothing was written.
    Exists,
}

/// What came of marking a topic for deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedForDeletion {
    /// The controller sees to the rest.
    Marked,
    /// It already was.
    Already,
    /// There is no such topic.
    Unknown,
}

/// Reads a topic and its version.
pub async fn read(
    zk: &dyn ZkStore,
    topic: &str,
    watch: Watch,
) -> Result<Option<(TopicDocument, ZkVersion)>, ZnodeError> {
    let Some(node) = zk.get(&paths::topic(topic), watch).await? else { return Ok(None) };
    Ok(Some((TopicDocument::parse(topic, &node.data)?, node.stat.version)))
}

/// Creates a topic, its configs first, both or none. The name has been checked.
pub async fn create(
    zk: &dyn ZkStore,
    topic: &str,
    configs: &Configs,
    document: &TopicDocument,
) -> Result<TopicCreated, ZnodeError> {
    let (path, config_path) = (paths::topic(topic), paths::topic_config(topic));
    let data = document.to_bytes();
    let mut unsure = false;
    loop {
        if let Some((found, _)) = read(zk, topic, Watch::No).await? {
            // Our own where its answer was lost: no other has this id.
            let ours = unsure && found.topic_id.is_some() && found == *document;
            return Ok(if ours { TopicCreated::Created } else { TopicCreated::Exists });
        }
        let config = match zk.exists(&config_path, Watch::No).await? {
            Some(_) => Op::set(&config_path, configs_to_bytes(configs), Expected::Any),
            None => Op::create(&config_path, configs_to_bytes(configs)),
        };
        let check = controller_check(zk, "topics", topic).await?;
        match zk.multi(vec![check, config, Op::create(&path, data.clone())]).await {
            Ok(_) => return Ok(TopicCreated::Created),
            Err(ZkError::MayHaveHappened { .. }) => unsure = true,
            Err(error) => match error.reason() {
                ZkError::NoNode { path: missing } if *missing != paths::CONTROLLER => {
                    create_missing(zk, &[paths::TOPICS, "/config/topics"]).await?;
                }
                _ if error.is_conflict() => {}
                _ => return Err(error.into()),
            },
        }
    }
}

/// Replaces a topic's partitions where its version is still the one that was read; `false` where it is not.
pub async fn replace(
    zk: &dyn ZkStore,
    topic: &str,
    document: &TopicDocument,
    version: ZkVersion,
) -> Result<bool, ZnodeError> {
    let (path, data) = (paths::topic(topic), document.to_bytes());
    match zk.set(&path, &data, Expected::Version(version)).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(ZkError::MayHaveHappened { .. }) => {
            Ok(read(zk, topic, Watch::No).await?.is_some_and(|(found, _)| found == *document))
        }
        Err(error) => Err(error.into()),
    }
}

/// Marks a topic for deletion.
pub async fn mark_for_deletion(
    zk: &dyn ZkStore,
    topic: &str,
) -> Result<MarkedForDeletion, ZkError> {
    let mark = paths::delete_topic(topic);
    let mut unsure = false;
    loop {
        if zk.exists(&paths::topic(topic), Watch::No).await?.is_none() {
            // Where the mark's answer was lost the topic may be gone already.
            return Ok(if unsure { MarkedForDeletion::Marked } else { MarkedForDeletion::Unknown });
        }
        match zk.multi(vec![Op::create(&mark, "")]).await {
            Ok(_) => return Ok(MarkedForDeletion::Marked),
            Err(ZkError::MayHaveHappened { .. }) => unsure = true,
            Err(error) => match error.reason() {
                ZkError::NodeExists { .. } if unsure => return Ok(MarkedForDeletion::Marked),
                ZkError::NodeExists { .. } => return Ok(MarkedForDeletion::Already),
                ZkError::NoNode { .. } => create_missing(zk, &[paths::DELETE_TOPICS]).await?,
                reason => return Err(reason.clone()),
            },
        }
    }
}

/// Whether a topic is marked for deletion.
pub async fn is_marked_for_deletion(zk: &dyn ZkStore, topic: &str) -> Result<bool, ZkError> {
    Ok(zk.exists(&paths::delete_topic(topic), Watch::No).await?.is_some())
}

#[cfg(test)]
mod tests {
    use common::{
        ids::{BrokerId, Timestamp},
        topic::Uuid,
    };

    use super::*;
    use crate::{
        bootstrap::{create_top_level_paths, create_with_parents},
        documents::{controller::ControllerDocument, topic::Assignment},
        fake::{FakeStore, FakeZooKeeper, Fault},
    };

    async fn cluster() -> (FakeZooKeeper, std::sync::Arc<FakeStore>) {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        create_top_level_paths(&*zk).await.unwrap();
        let office = ControllerDocument::elected(BrokerId(1), Timestamp(1)).to_bytes();
        create_with_parents(&*zk, paths::CONTROLLER, &office).await.unwrap();
        zk.take_writes();
        (server, zk)
    }

    fn document(id: u128) -> TopicDocument {
        let partitions = [(0, Assignment::of(vec![BrokerId(1)]))].into();
        TopicDocument { topic_id: Some(Uuid(id)), partitions }
    }

    fn configs(value: &str) -> Configs {
        [("retention.ms".to_owned(), value.to_owned())].into()
    }

    #[tokio::test]
    async fn a_topic_is_created_with_its_configs_first() {
        let (_server, zk) = cluster().await;
        let created = create(&*zk, "t", &configs("1"), &document(5)).await.unwrap();
        assert_eq!(created, TopicCreated::Created);
        let [ops] = &zk.take_writes()[..] else { panic!("one transaction") };
        let paths: Vec<&str> = ops.iter().map(Op::path).collect();
        assert_eq!(paths, ["/controller", "/config/topics/t", "/brokers/topics/t"]);
        let again = create(&*zk, "t", &configs("2"), &document(6)).await.unwrap();
        assert_eq!(again, TopicCreated::Exists);
        let config = zk.get("/config/topics/t", Watch::No).await.unwrap().unwrap();
        assert_eq!(config.data, configs_to_bytes(&configs("1")));
        let (found, version) = read(&*zk, "t", Watch::No).await.unwrap().unwrap();
        assert_eq!((found, version), (document(5), ZkVersion(0)));
    }

    #[tokio::test]
    async fn a_creation_whose_answer_is_lost_is_told_from_anothers() {
        for fault in [Fault::LostBefore, Fault::LostAfter] {
            let (_server, zk) = cluster().await;
            zk.fail_next_write(fault);
            let created = create(&*zk, "t", &configs("1"), &document(5)).await.unwrap();
            assert_eq!(created, TopicCreated::Created, "{fault:?}");
        }
    }

    #[tokio::test]
    async fn nothing_is_created_without_a_controller() {
        let (_server, zk) = cluster().await;
        zk.delete(paths::CONTROLLER, Expected::Any).await.unwrap();
        let error = create(&*zk, "t", &configs("1"), &document(5)).await.unwrap_err();
        assert!(matches!(error, ZnodeError::ControllerMoved(_)), "{error}");
    }

    #[tokio::test]
    async fn partitions_are_replaced_where_nobody_else_did() {
        let (_server, zk) = cluster().await;
        create(&*zk, "t", &configs("1"), &document(5)).await.unwrap();
        let mut more = document(5);
        more.partitions.insert(1, Assignment::of(vec![BrokerId(1)]));
        zk.fail_next_write(Fault::LostAfter);
        assert_eq!(replace(&*zk, "t", &more, ZkVersion(0)).await, Ok(true));
        assert_eq!(replace(&*zk, "t", &document(5), ZkVersion(0)).await, Ok(false));
        assert_eq!(read(&*zk, "t", Watch::No).await.unwrap().unwrap().0, more);
    }

    #[tokio::test]
    async fn a_topic_is_marked_for_deletion_once() {
        let (_server, zk) = cluster().await;
        assert_eq!(mark_for_deletion(&*zk, "t").await, Ok(MarkedForDeletion::Unknown));
        create(&*zk, "t", &configs("1"), &document(5)).await.unwrap();
        assert_eq!(is_marked_for_deletion(&*zk, "t").await, Ok(false));
        zk.fail_next_write(Fault::LostAfter);
        assert_eq!(mark_for_deletion(&*zk, "t").await, Ok(MarkedForDeletion::Marked));
        assert_eq!(mark_for_deletion(&*zk, "t").await, Ok(MarkedForDeletion::Already));
        assert_eq!(is_marked_for_deletion(&*zk, "t").await, Ok(true));
    }
}
