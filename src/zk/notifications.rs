//! Sequential notices: each is acted upon once by every broker, and deleted by whoever sees it when it is old.
//! Source: `kafka.common.ZkNodeChangeNotificationListener`.

use std::{collections::BTreeMap, time::Duration};

use common::ids::Timestamp;
use futures_util::future::try_join_all;
use tracing::debug;

use crate::{
    paths,
    store::{Expected, Watch, ZkError, ZkStore},
};

/// Age at which a notice is deleted.
pub const KEPT_FOR: Duration = Duration::from_secs(15 * 60);

/// A notice to act upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its znode.
    pub path: String,
    /// What it says.
    pub data: Vec<u8>,
}

/// Remembers which notices of a folder have been seen. All are new at first.
#[derive(Debug)]
pub struct Notices {
    root: &'static str,
    name_prefix: &'static str,
    last: i64,
    created: BTreeMap<String, Timestamp>,
}

impl Notices {
    /// Of changed configs.
    pub fn of_configs() -> Notices {
        Notices::new(paths::CONFIG_CHANGES, "config_change_")
    }

    /// Of changed literal rules.
    pub fn of_acls() -> Notices {
        Notices::new(paths::ACL_CHANGES, paths::ACL_CHANGE_NAME)
    }

    /// Of changed prefixed rules.
    pub fn of_extended_acls() -> Notices {
        Notices::new(paths::EXTENDED_ACL_CHANGES, paths::ACL_CHANGE_NAME)
    }

    /// Of changed delegation tokens.
    pub fn of_tokens() -> Notices {
        Notices::new(paths::TOKEN_CHANGES, "token_change_")
    }

    fn new(root: &'static str, name_prefix: &'static str) -> Notices {
        Notices { root, name_prefix, last: -1, created: BTreeMap::new() }
    }

    /// The folder whose children are watched: call `next` when they are dirty, and after each new session.
    pub fn root(&self) -> &'static str {
        self.root
    }

    /// The notices not seen before, in order; and deletes those that are old by `now`, the time of day.
    pub async fn next(&mut self, zk: &dyn ZkStore, now: Timestamp) -> Result<Vec<Notice>, ZkError> {
        let mut names = zk.children(self.root, Watch::Yes).await?;
        names.sort_unstable();
        self.created.retain(|name, _| names.binary_search(name).is_ok());
        let unread = names.iter().filter(|name| !self.created.contains_key(*name));
        let unread: Vec<(String, String)> =
            unread.map(|name| (name.clone(), format!("{}/{name}", self.root))).collect();
        let nodes = try_join_all(unread.iter().map(|(_, path)| zk.get(path, Watch::No))).await?;
        let mut notices = Vec::new();
        for ((name, path), node) in unread.into_iter().zip(nodes) {
            // Gone since the list was read: another broker found it old.
            let Some(node) = node else { continue };
            self.created.insert(name.clone(), node.stat.ctime);
            let Some(number) = paths::sequence_number(&name, self.name_prefix) else { continue };
            if number > self.last {
                self.last = number;
                notices.push(Notice { path, data: node.data });
            }
        }
        if let Err(error) = self.delete_old(zk, now).await {
            // Whoever lists them next deletes them; the new ones must not be lost for it.
            debug!(%error, root = self.root, "old notices stay");
        }
        Ok(notices)
    }

    async fn delete_old(&mut self, zk: &dyn ZkStore, now: Timestamp) -> Result<(), ZkError> {
        let kept_for = i64::try_from(KEPT_FOR.as_millis()).unwrap_or(i64::MAX);
        let old = self.created.iter().filter(|(_, created)| now.0 - created.0 > kept_for);
        let paths: Vec<String> = old.map(|(name, _)| format!("{}/{name}", self.root)).collect();
        let delete = |path| async move {
            match zk.delete(path, Expected::Any).await {
                Err(error) if error.is_conflict() => Ok(()),
                result => result,
            }
        };
        try_join_all(paths.iter().map(|path| delete(path))).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use common::clock;

    use super::*;
    use crate::{
        bootstrap::create_top_level_paths,
        configs::{Entity, notify},
        documents::notification::ConfigChange,
        fake::FakeZooKeeper,
    };

    fn entities(notices: &[Notice]) -> Vec<String> {
        let entity = |notice: &Notice| ConfigChange::parse(&notice.path, &notice.data).unwrap();
        notices.iter().map(|notice| entity(notice).entity).collect()
    }

    #[tokio::test]
    async fn each_notice_is_given_once_in_order_and_all_again_after_a_restart() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        create_top_level_paths(&*zk).await.unwrap();
        let mut notices = Notices::of_configs();
        let mut changes = zk.changes();
        let now = clock::wall_clock();
        assert!(notices.next(&*zk, now).await.unwrap().is_empty());
        changes.take();
        for topic in ["a", "b"] {
            notify(&*zk, &Entity::new("topics", topic)).await.unwrap();
        }
        assert!(changes.take().unwrap().children_are_dirty(notices.root()));
        assert_eq!(entities(&notices.next(&*zk, now).await.unwrap()), ["a", "b"]);
        notify(&*zk, &Entity::new("topics", "c")).await.unwrap();
        assert_eq!(entities(&notices.next(&*zk, now).await.unwrap()), ["c"]);
        assert!(notices.next(&*zk, now).await.unwrap().is_empty());
        let again = Notices::of_configs().next(&*zk, now).await.unwrap();
        assert_eq!(entities(&again), ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn notices_older_than_a_quarter_of_an_hour_are_deleted_once_seen() {
        let server = FakeZooKeeper::new();
        let zk = server.connect();
        create_top_level_paths(&*zk).await.unwrap();
        notify(&*zk, &Entity::new("topics", "old")).await.unwrap();
        server.advance_clock(KEPT_FOR + Duration::from_secs(1));
        notify(&*zk, &Entity::new("topics", "new")).await.unwrap();
        let later = Timestamp(clock::wall_clock().0 + 1000 * (15 * 60 + 1) + 500);
        let seen = Notices::of_configs().next(&*zk, later).await.unwrap();
        assert_eq!(entities(&seen), ["old", "new"]);
        let left = zk.children(paths::CONFIG_CHANGES, Watch::No).await.unwrap();
        assert_eq!(left, ["config_change_0000000001"]);
    }
}
