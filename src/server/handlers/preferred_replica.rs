//! Which replica a consumer had better read from: one in its own rack, where `replica.selector.class` says so.
//! Source: KIP-392, `ReplicaManager.findPreferredReadReplica`, `RackAwareReplicaSelector`.

use common::ids::{BrokerId, Offset};
use replication::partition::Partition;

use crate::{broker::Broker, request_context::RequestContext};

/// The selector that Kafka comes with. Others are Java classes, which cannot be run here.
pub(crate) const RACK_AWARE: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// The other replica that a consumer in a rack is sent to for an offset, if this broker leads the partition and is not in
/// that rack itself. Among several it is the one that is furthest.
pub(crate) fn preferred(
    broker: &Broker,
    ctx: &RequestContext,
    partition: &Partition,
    rack: &str,
    offset: Offset,
) -> Option<BrokerId> {
    let is_aware = broker.config.replica_selector_class.as_deref() == Some(RACK_AWARE);
    if !is_aware || rack.is_empty() || broker.config.broker_rack.as_deref() == Some(rack) {
        return None;
    }
    let snapshot = broker.metadata.load();
    let is_in_rack = |id: BrokerId| {
        let known = snapshot.broker(id);
        known.is_some_and(|known| {
            known.rack.as_deref() == Some(rack)
                && known.endpoint(&ctx.connection.listener).is_some()
        })
    };
    partition.as_leader(|leader| {
        let followers = leader.followers().iter().filter(|follower| {
            let id = follower.id();
            let has_it = follower.end() >= offset && follower.start() <= offset;
            has_it && leader.isr().contains(&id) && is_in_rack(id)
        });
        let furthest = followers.max_by_key(|follower| (follower.end(), follower.id()));
        furthest.map(|follower| follower.id())
    })?
}
