//! Configs of topics, brokers, clients, users and addresses: read, changed, and the change made known.
//! Source: `AdminZkClient.changeEntityConfig`, `KafkaZkClient.setOrCreateEntityConfigs`.

use futures_util::future::try_join_all;
use tracing::error;

use crate::{
    bootstrap::create_with_parents,
    documents::{
        config::{Configs, configs_to_bytes, parse_configs},
        notification::ConfigChange,
    },
    election::controller,
    error::ZnodeError,
    paths,
    store::{CreateKind, Expected, Op, Watch, ZkError, ZkStore},
};

/// Whose configs: a type and a name, or for a client of a user `users` and `alice/clients/c1`. Names are sanitized.
pub type Entity = ConfigChange;

impl Entity {
    /// An entity of a type: `topics`, `brokers`, `clients`, `users`, `ips`.
    pub fn new(entity_type: impl Into<String>, entity: impl Into<String>) -> Entity {
        ConfigChange { entity_type: entity_type.into(), entity: entity.into() }
    }

    /// The znode.
    pub fn path(&self) -> String {
        format!("{}/{}/{}", paths::CONFIG, self.entity_type, self.entity)
    }

    fn is_quota(&self) -> bool {
        matches!(self.entity_type.as_str(), "clients" | "users" | "ips")
    }
}

/// Reads an entity's configs. What cannot be read counts as none, as in Kafka, but is said.
pub async fn read(zk: &dyn ZkStore, entity: &Entity) -> Result<Configs, ZkError> {
    let path = entity.path();
    let Some(node) = zk.get(&path, Watch::No).await? else { return Ok(Configs::new()) };
    Ok(parse_configs(&path, &node.data).unwrap_or_else(|error| {
        error!(%error, "configs that cannot be read count as none");
        Configs::new()
    }))
}

/// Reads the configs of all entities of a type, by name; not those of users' clients.
pub async fn read_all(
    zk: &dyn ZkStore,
    entity_type: &str,
) -> Result<Vec<(Entity, Configs)>, ZkError> {
    let names = zk.children(&format!("{}/{entity_type}", paths::CONFIG), Watch::No).await?;
    let entities = names.into_iter().map(|name| Entity::new(entity_type, name));
    read_each(zk, entities.collect()).await
}

/// Reads the configs of all clients of all users.
pub async fn read_all_clients_of_users(
    zk: &dyn ZkStore,
) -> Result<Vec<(Entity, Configs)>, ZkError> {
    let users = zk.children("/config/users", Watch::No).await?;
    let paths: Vec<String> =
        users.iter().map(|user| format!("/config/users/{user}/clients")).collect();
    let clients = try_join_all(paths.iter().map(|path| zk.children(path, Watch::No))).await?;
    let entities = users.iter().zip(clients).flat_map(|(user, clients)| {
        let entity = move |client| Entity::new("users", format!("{user}/clients/{client}"));
        clients.into_iter().map(entity)
    });
    read_each(zk, entities.collect()).await
}

async fn read_each(
    zk: &dyn ZkStore,
    mut entities: Vec<Entity>,
) -> Result<Vec<(Entity, Configs)>, ZkError> {
    entities.sort_by(|a, b| a.entity.cmp(&b.entity));
    let configs = try_join_all(entities.iter().map(|entity| read(zk, entity))).await?;
    Ok(entities.into_iter().zip(configs).collect())
}

/// Replaces an entity's configs, and tells all brokers. An entity of quotas without any is deleted instead.
pub async fn change(
    zk: &dyn ZkStore,
    entity: &Entity,
    configs: &Configs,
) -> Result<(), ZnodeError> {
    let deleted =
        configs.is_empty() && entity.is_quota() && delete_if_childless(zk, entity).await?;
    if !deleted {
        write(zk, entity, configs).await?;
    }
    Ok(notify(zk, entity).await?)
}

/// Replaces an entity's configs, under the check that a ZooKeeper controller is in office.
pub async fn write(zk: &dyn ZkStore, entity: &Entity, configs: &Configs) -> Result<(), ZnodeError> {
    let (path, data) = (entity.path(), configs_to_bytes(configs));
    loop {
        let check = controller_check(zk, &entity.entity_type, &entity.entity).await?;
        let error = match zk.multi(vec![check, Op::set(&path, data.clone(), Expected::Any)]).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        match error.reason() {
            ZkError::NoNode { path: missing } if *missing == path => {
                match create_with_parents(zk, &path, &data).await {
                    Ok(()) => return Ok(()),
                    Err(ZkError::NodeExists { .. } | ZkError::MayHaveHappened { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            // Another controller since, or none: look again.
            ZkError::BadVersion { .. } | ZkError::NoNode { .. } => {}
            // Once more does no harm: it writes the same.
            ZkError::MayHaveHappened { .. } => {}
            reason => return Err(reason.clone().into()),
        }
    }
}

/// The step that holds while a ZooKeeper controller is in office.
pub(crate) async fn controller_check(
    zk: &dyn ZkStore,
    entity_type: &str,
    entity: &str,
) -> Result<Op, ZnodeError> {
    let refuse = |why: &str| {
        let what = format!("Cannot set entity configs for {entity_type} {entity} {why}");
        Err(ZnodeError::ControllerMoved(what))
    };
    match controller(zk, Watch::No).await? {
        None => refuse("when there is no controller."),
        Some(controller) if controller.document.is_kraft() => {
            refuse("directly when there is a KRaft controller.")
        }
        Some(controller) => Ok(Op::check(paths::CONTROLLER, controller.version)),
    }
}

/// Tells all brokers to read an entity's configs again. After a lost answer it is told twice, which does no harm.
pub async fn notify(zk: &dyn ZkStore, entity: &Entity) -> Result<(), ZkError> {
    let data = entity.to_bytes();
    loop {
        let kind = CreateKind::PersistentSequential;
        match zk.create(paths::CONFIG_CHANGE_PREFIX, &data, kind).await {
            Ok(_) => return Ok(()),
            Err(ZkError::MayHaveHappened { .. }) => {}
            Err(ZkError::NoNode { .. }) => {
                crate::bootstrap::create_missing(zk, &[paths::CONFIG_CHANGES]).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Deletes an entity without children, and what above it is empty then; `false` where it has children.
async fn delete_if_childless(zk: &dyn ZkStore, entity: &Entity) -> Result<bool, ZkError> {
    if !zk.children(&entity.path(), Watch::No).await?.is_empty() {
        return Ok(false);
    }
    // Each is deleted only where it is empty, so that nothing is lost to another change meanwhile.
    delete_empty(zk, &entity.path()).await?;
    if let Some((user, _)) = entity.entity.split_once("/clients/") {
        delete_empty(zk, &format!("/config/users/{user}/clients")).await?;
        let user = Entity::new("users", user);
        if let Some(node) = zk.get(&user.path(), Watch::No).await? {
            let none = parse_configs(&user.path(), &node.data).is_ok_and(|found| found.is_empty());
            let expected = Expected::Version(node.stat.version);
            if none {
                delete_unless_used(zk, &user.path(), expected).await?;
            }
        }
    }
    Ok(true)
}

async fn delete_empty(zk: &dyn ZkStore, path: &str) -> Result<(), ZkError> {
    delete_unless_used(zk, path, Expected::Any).await
}

async fn delete_unless_used(
    zk: &dyn ZkStore,
    path: &str,
    expected: Expected,
) -> Result<(), ZkError> {
    loop {
        match zk.delete(path, expected).await {
            Err(error) if error.is_conflict() => return Ok(()),
            Err(ZkError::MayHaveHappened { .. }) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use common::ids::{BrokerId, Timestamp};

    use super::*;
    use crate::{
        bootstrap::create_top_level_paths,
        documents::controller::ControllerDocument,
        fake::{FakeStore, FakeZooKeeper, Fault},
    };

    async fn cluster() -> std::sync::Arc<FakeStore> {
        let zk = FakeZooKeeper::new().connect();
        create_top_level_paths(&*zk).await.unwrap();
        let office = ControllerDocument::elected(BrokerId(1), Timestamp(1)).to_bytes();
        create_with_parents(&*zk, paths::CONTROLLER, &office).await.unwrap();
        zk
    }

    fn one() -> Configs {
        [("producer_byte_rate".to_owned(), "1024".to_owned())].into()
    }

    async fn notices(zk: &FakeStore) -> usize {
        zk.children(paths::CONFIG_CHANGES, Watch::No).await.unwrap().len()
    }

    #[tokio::test]
    async fn a_change_is_written_and_told() {
        let zk = cluster().await;
        let entity = Entity::new("topics", "t");
        assert_eq!(read(&*zk, &entity).await, Ok(Configs::new()));
        for fault in [None, Some(Fault::LostBefore), Some(Fault::LostAfter)] {
            fault.into_iter().for_each(|fault| zk.fail_next_write(fault));
            change(&*zk, &entity, &one()).await.unwrap();
        }
        assert_eq!(read(&*zk, &entity).await, Ok(one()));
        assert_eq!(notices(&zk).await, 3);
        let first = zk.get("/config/changes/config_change_0000000000", Watch::No).await;
        assert_eq!(first.unwrap().unwrap().data, br#"{"version":2,"entity_path":"topics/t"}"#);
        assert_eq!(read_all(&*zk, "topics").await.unwrap(), [(entity, one())]);
    }

    #[tokio::test]
    async fn quotas_without_any_leave_no_znodes() {
        let zk = cluster().await;
        let (user, client) =
            (Entity::new("users", "alice"), Entity::new("users", "alice/clients/c1"));
        change(&*zk, &client, &one()).await.unwrap();
        change(&*zk, &user, &one()).await.unwrap();
        let clients = read_all_clients_of_users(&*zk).await.unwrap();
        assert_eq!(clients, [(client.clone(), one())]);

        // The user has a client, so its znode stays, empty; it goes with the client.
        change(&*zk, &user, &Configs::new()).await.unwrap();
        assert_eq!(read(&*zk, &user).await, Ok(Configs::new()));
        assert_eq!(zk.children("/config/users", Watch::No).await.unwrap(), ["alice"]);
        change(&*zk, &client, &Configs::new()).await.unwrap();
        assert!(zk.children("/config/users", Watch::No).await.unwrap().is_empty());
        assert_eq!(notices(&zk).await, 4);
    }

    #[tokio::test]
    async fn a_users_own_quotas_outlive_its_last_client() {
        let zk = cluster().await;
        let (user, client) =
            (Entity::new("users", "alice"), Entity::new("users", "alice/clients/c1"));
        change(&*zk, &user, &one()).await.unwrap();
        change(&*zk, &client, &one()).await.unwrap();
        change(&*zk, &client, &Configs::new()).await.unwrap();
        assert_eq!(read(&*zk, &user).await, Ok(one()));
        assert!(zk.children("/config/users/alice", Watch::No).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn topics_keep_an_empty_config() {
        let zk = cluster().await;
        let entity = Entity::new("topics", "t");
        change(&*zk, &entity, &Configs::new()).await.unwrap();
        let node = zk.get(&entity.path(), Watch::No).await.unwrap().unwrap();
        assert_eq!(node.data, br#"{"config":{},"version":1}"#);
    }

    #[tokio::test]
    async fn nothing_is_written_without_a_zookeeper_controller() {
        let zk = cluster().await;
        let entity = Entity::new("brokers", "<default>");
        let kraft = br#"{"version":2,"brokerid":3,"timestamp":"1","kraftControllerEpoch":7}"#;
        zk.set(paths::CONTROLLER, kraft, Expected::Any).await.unwrap();
        let error = write(&*zk, &entity, &one()).await.unwrap_err();
        let expected = "Cannot set entity configs for brokers <default> directly when there is a KRaft controller.";
        assert_eq!(error.to_string(), expected);
        zk.delete(paths::CONTROLLER, Expected::Any).await.unwrap();
        let error = write(&*zk, &entity, &one()).await.unwrap_err();
        let expected =
            "Cannot set entity configs for brokers <default> when there is no controller.";
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test]
    async fn configs_that_cannot_be_read_count_as_none() {
        let zk = cluster().await;
        create_with_parents(&*zk, "/config/topics/t", b"{oops").await.unwrap();
        assert_eq!(read(&*zk, &Entity::new("topics", "t")).await, Ok(Configs::new()));
    }
}
