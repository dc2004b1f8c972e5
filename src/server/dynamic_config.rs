//! Listens for changed configs in ZooKeeper, and hands them to whoever they concern.
//! Source: `ZkConfigManager`.

use std::{sync::Arc, time::Duration};

use common::clock;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};
use zk::{
    configs::{self, Entity},
    documents::config::Configs,
    notifications::Notices,
    store::{SessionId, ZkError, ZkStore},
};

/// How long to wait after ZooKeeper gave an error.
const BACKOFF: Duration = Duration::from_secs(1);

/// Takes the configs of an entity (`topics`, `brokers` and so on, and the name as in ZooKeeper): all
/// that it sets. Called for each entity at the start, and whenever one changes; may find nothing new.
pub type Apply = dyn Fn(&Entity, &Configs) + Send + Sync;

/// Applies all configs, and then what changes, until `stop`. After a lost session all are applied
/// again, since notices of that time may have been cleaned up.
pub async fn listen(zk: Arc<dyn ZkStore>, apply: Arc<Apply>, stop: CancellationToken) {
    let mut notices = Notices::of_configs();
    let mut changes = zk.changes().under(&[notices.root()]);
    let mut applied_in = None;
    loop {
        match look(&*zk, &*apply, &mut notices, applied_in).await {
            Ok(session) => applied_in = session,
            Err(ZkError::Closed) => return,
            Err(error) => {
                warn!(%error, "could not read changed configs");
                applied_in = None;
                tokio::select! {
                    () = tokio::time::sleep(BACKOFF) => continue,
                    () = stop.cancelled() => return,
                }
            }
        }
        tokio::select! {
            next = changes.next() => if next.is_none() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Acts on new notices; in a new session on everything. Gives the session in which it did.
async fn look(
    zk: &dyn ZkStore,
    apply: &Apply,
    notices: &mut Notices,
    applied_in: Option<SessionId>,
) -> Result<Option<SessionId>, ZkError> {
    let session = zk.session().session_id();
    let new = notices.next(zk, clock::wall_clock()).await?;
    if session != applied_in {
        // What the notices say is among all there is.
        apply_all(zk, apply).await?;
        return Ok(session);
    }
    for notice in new {
        match Entity::parse(&notice.path, &notice.data) {
            Ok(entity) => apply(&entity, &configs::read(zk, &entity).await?),
            Err(error) => error!(%error, "a notice of a changed config cannot be read"),
        }
    }
    Ok(session)
}

async fn apply_all(zk: &dyn ZkStore, apply: &Apply) -> Result<(), ZkError> {
    for entity_type in ["users", "topics", "clients", "brokers", "ips"] {
        for (entity, configs) in configs::read_all(zk, entity_type).await? {
            apply(&entity, &configs);
        }
    }
    for (entity, configs) in configs::read_all_clients_of_users(zk).await? {
        apply(&entity, &configs);
    }
    Ok(())
}
