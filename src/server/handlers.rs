//! From a request to its handler: decode, call, encode. One line per API, one file per handler.

pub(crate) mod add_offsets_to_txn;
pub(crate) mod add_partitions_to_txn;
pub(crate) mod allocate_producer_ids;
pub(crate) mod alter_configs;
pub(crate) mod alter_partition;
pub(crate) mod alter_partition_reassignments;
pub(crate) mod api_versions;
pub(crate) mod committed;
pub(crate) mod config_resources;
pub(crate) mod controlled_shutdown;
pub(crate) mod create_partitions;
pub(crate) mod create_topics;
pub(crate) mod delete_groups;
pub(crate) mod delete_records;
pub(crate) mod delete_topics;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_groups;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_transactions;
pub(crate) mod elect_leaders;
pub(crate) mod end_txn;
pub(crate) mod fetch;
pub(crate) mod fetch_response;
pub(crate) mod find_coordinator;
pub(crate) mod heartbeat;
pub(crate) mod incremental_alter_configs;
pub(crate) mod init_producer_id;
pub(crate) mod join_group;
pub(crate) mod leader_and_isr;
pub(crate) mod leave_group;
pub(crate) mod list_groups;
pub(crate) mod list_offsets;
pub(crate) mod list_partition_reassignments;
pub(crate) mod list_transactions;
pub(crate) mod metadata;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod preferred_replica;
pub(crate) mod produce;
mod produce_run;
pub(crate) mod produce_verification;
pub(crate) mod repeats;
pub(crate) mod stop_replica;
pub(crate) mod sync_group;
pub(crate) mod txn_offset_commit;
pub(crate) mod update_features;
pub(crate) mod update_metadata;
pub(crate) mod write_txn_markers;

use std::{
    collections::VecDeque,
    future::Future,
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use ::metadata::{
    broker::{Broker as KnownBroker, Endpoint},
    snapshot::ClusterSnapshot,
};
use bytes::{Bytes, BytesMut};
use common::{error_code::ErrorCode, ids::BrokerId, topic::Uuid};
use kafka_protocol::{
    messages::{ApiKey, ProduceRequest},
    protocol::{Decodable, Encodable, StrBytes},
};
use network::service::{Request, Response, Step};
use protocol::frame;
use storage::log_read::Region;
use tracing::debug;

use crate::{
    broker::Broker, handlers::fetch_response::NodeEndpoint, request_context::RequestContext,
};

/// Every operation of a cluster, as a bit field: what an open broker allows. Source: `AclEntry.supportedOperations`.
pub(crate) const CLUSTER_OPERATIONS: i32 = bits(&[5, 7, 8, 9, 10, 11, 12]);
/// Every operation of a topic.
pub(crate) const TOPIC_OPERATIONS: i32 = bits(&[3, 4, 5, 6, 7, 8, 10, 11]);
/// Every operation of a group.
pub(crate) const GROUP_OPERATIONS: i32 = bits(&[3, 6, 8]);
/// The bit field where the request did not ask for it.
pub(crate) const OPERATIONS_UNSET: i32 = i32::MIN;

const fn bits(operations: &[u32]) -> i32 {
    let (mut field, mut index) = (0, 0);
    while index < operations.len() {
        field |= 1 << operations[index];
        index += 1;
    }
    field
}

/// Starts a request. The network has checked that the API and version are served, and admitted the body.
pub(crate) fn start(broker: &Arc<Broker>, request: Request) -> Step {
    let (ctx, mut body) = arrived(broker, request);
    dispatch(broker, ctx, &mut body).unwrap_or_else(Step::Close)
}

/// Starts produces that came one behind the other, up to one that nothing may start beside.
pub(crate) fn start_run(broker: &Arc<Broker>, requests: &mut VecDeque<Request>) -> Vec<Step> {
    let mut steps = Vec::with_capacity(requests.len());
    let mut run = Vec::with_capacity(requests.len());
    while steps.last().is_none_or(Step::lets_start)
        && let Some(request) = requests.pop_front()
    {
        let (ctx, mut body) = arrived(broker, request);
        let decoded: Result<ProduceRequest, String> = decode(&ctx, &mut body);
        if let Ok(request) = &decoded
            && let Some(prepared) = produce_run::prepare(broker, &ctx, request)
        {
            run.push(prepared);
            continue;
        }
        // What came before goes first.
        steps.extend(produce_run::append(broker, mem::take(&mut run)));
        steps.push(match decoded {
            Ok(request) => produce::start(broker, ctx, request),
            Err(reason) => Step::Close(reason),
        });
    }
    steps.extend(produce_run::append(broker, run));
    steps
}

/// Notes that a request has come.
fn arrived(broker: &Arc<Broker>, request: Request) -> (RequestContext, Bytes) {
    let Request { api, api_version, correlation_id, client_id, body, connection } = request;
    let ctx = RequestContext { api, api_version, correlation_id, client_id, connection };
    broker.metrics.request(api);
    debug!(
        target: "kafka.request.logger",
        api = ctx.api.name,
        version = ctx.api_version,
        correlation_id = ctx.correlation_id,
        client_id = &*ctx.client_id,
        connection = ctx.connection.id,
        bytes = body.len(),
        "request"
    );
    (ctx, body)
}

/// Decodes and calls. An error is why the connection closes.
fn dispatch(broker: &Arc<Broker>, ctx: RequestContext, body: &mut Bytes) -> Result<Step, String> {
    let broker = broker.clone();
    Ok(match ctx.api.key {
        ApiKey::Produce => produce::start(&broker, ctx.clone(), decode(&ctx, body)?),
        ApiKey::Fetch => fetch::start(&broker, ctx.clone(), decode(&ctx, body)?),
        ApiKey::ListOffsets => list_offsets::start(&broker, ctx.clone(), decode(&ctx, body)?),
        ApiKey::OffsetForLeaderEpoch => {
            let request = decode(&ctx, body)?;
            Step::Reply(respond(&ctx, &offset_for_leader_epoch::handle(&broker, request)))
        }
        ApiKey::FindCoordinator => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &find_coordinator::handle(&broker, &ctx, request).await) },
            )
        }
        ApiKey::JoinGroup => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &join_group::handle(&broker, &ctx, request).await) })
        }
        ApiKey::SyncGroup => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &sync_group::handle(&broker, &ctx, request).await) })
        }
        ApiKey::Heartbeat => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &heartbeat::handle(&broker, request).await) })
        }
        ApiKey::LeaveGroup => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &leave_group::handle(&broker, &ctx, request).await) })
        }
        ApiKey::OffsetCommit => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &offset_commit::handle(&broker, &ctx, &request).await) })
        }
        ApiKey::OffsetFetch => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &offset_fetch::handle(&broker, &ctx, request).await) })
        }
        ApiKey::OffsetDelete => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &offset_delete::handle(&broker, request).await) })
        }
        ApiKey::DescribeGroups => {
            let request = decode(&ctx, body)?;
            Step::Reply(respond(&ctx, &describe_groups::handle(&broker, &ctx, request)))
        }
        ApiKey::ListGroups => {
            let request = decode(&ctx, body)?;
            Step::Reply(respond(&ctx, &list_groups::handle(&broker, &ctx, request)))
        }
        ApiKey::DeleteGroups => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &delete_groups::handle(&broker, request).await) })
        }
        ApiKey::ApiVersions => {
            let request = decode(&ctx, body)?;
            Step::Reply(respond(&ctx, &api_versions::handle(&broker, &ctx, request)))
        }
        ApiKey::Metadata => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &metadata::handle(&broker, &ctx, request).await) })
        }
        ApiKey::DescribeCluster => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &describe_cluster::handle(&broker, &ctx, request).await) },
            )
        }
        ApiKey::DeleteRecords => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &delete_records::handle(&broker, request).await) })
        }
        ApiKey::CreateTopics => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &create_topics::handle(&broker, &ctx, request).await) })
        }
        ApiKey::CreatePartitions => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &create_partitions::handle(&broker, request).await) })
        }
        ApiKey::DeleteTopics => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &delete_topics::handle(&broker, &ctx, request).await) })
        }
        ApiKey::DescribeConfigs => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &describe_configs::handle(&broker, &ctx, request).await) },
            )
        }
        ApiKey::AlterConfigs => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &alter_configs::handle(&broker, request).await) })
        }
        ApiKey::IncrementalAlterConfigs => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &incremental_alter_configs::handle(&broker, request).await) },
            )
        }
        ApiKey::DescribeLogDirs => {
            let request = decode(&ctx, body)?;
            Step::Reply(respond(&ctx, &describe_log_dirs::handle(&broker, &ctx, request)))
        }
        ApiKey::InitProducerId => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &init_producer_id::handle(&broker, &ctx, request).await) },
            )
        }
        ApiKey::AddPartitionsToTxn => {
            let request = decode(&ctx, body)?;
            run(async move {
                respond(&ctx, &add_partitions_to_txn::handle(&broker, &ctx, request).await)
            })
        }
        ApiKey::AddOffsetsToTxn => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &add_offsets_to_txn::handle(&broker, &ctx, request).await) },
            )
        }
        ApiKey::EndTxn => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &end_txn::handle(&broker, &ctx, request).await) })
        }
        ApiKey::WriteTxnMarkers => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &write_txn_markers::handle(&broker, request).await) })
        }
        ApiKey::TxnOffsetCommit => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &txn_offset_commit::handle(&broker, &ctx, request).await) },
            )
        }
        ApiKey::DescribeProducers => {
            let request = decode(&ctx, body)?;
            Step::Reply(respond(&ctx, &describe_producers::handle(&broker, request)))
        }
        ApiKey::DescribeTransactions => {
            let request = decode(&ctx, body)?;
            Step::Reply(respond(&ctx, &describe_transactions::handle(&broker, request)))
        }
        ApiKey::ListTransactions => {
            let request = decode(&ctx, body)?;
            Step::Reply(respond(&ctx, &list_transactions::handle(&broker, request)))
        }
        ApiKey::ControlledShutdown => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &controlled_shutdown::handle(&broker, &ctx, request).await) },
            )
        }
        ApiKey::AlterPartition => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &alter_partition::handle(&broker, &ctx, request).await) },
            )
        }
        ApiKey::LeaderAndIsr => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &leader_and_isr::handle(&broker, &ctx, request).await) })
        }
        ApiKey::StopReplica => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &stop_replica::handle(&broker, &ctx, request).await) })
        }
        ApiKey::UpdateMetadata => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &update_metadata::handle(&broker, &ctx, request).await) },
            )
        }
        ApiKey::ElectLeaders => {
            let request = decode(&ctx, body)?;
            run(async move { respond(&ctx, &elect_leaders::handle(&broker, &ctx, request).await) })
        }
        ApiKey::AlterPartitionReassignments => {
            let request = decode(&ctx, body)?;
            run(async move {
                respond(&ctx, &alter_partition_reassignments::handle(&broker, request).await)
            })
        }
        ApiKey::ListPartitionReassignments => {
            let request = decode(&ctx, body)?;
            run(async move {
                respond(&ctx, &list_partition_reassignments::handle(&broker, request).await)
            })
        }
        ApiKey::AllocateProducerIds => {
            let request = decode(&ctx, body)?;
            run(
                async move { respond(&ctx, &allocate_producer_ids::handle(&broker, request).await) },
            )
        }
        ApiKey::UpdateFeatures => {
            let request = decode(&ctx, body)?;
            Step::Reply(respond(&ctx, &update_features::handle(&broker, &ctx, request)))
        }
        _ => return Err(format!("{} has no handler", ctx.api)),
    })
}

fn decode<T: Decodable>(ctx: &RequestContext, body: &mut Bytes) -> Result<T, String> {
    T::decode(body, ctx.api_version).map_err(|error| {
        format!(
            "Error getting request for apiKey: {}, apiVersion: {}, connectionId: {}, listenerName: ListenerName({}): {error}",
            ctx.api.name, ctx.api_version, ctx.connection.id, ctx.connection.listener
        )
    })
}

/// Runs a handler that may have to wait; one that does not is answered at once.
fn run(reply: impl Future<Output = Response> + Send + 'static) -> Step {
    let mut reply = Box::pin(reply);
    // The network polls again with its own waker, so that nothing is lost by this one.
    match reply.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(response) => Step::Reply(response),
        Poll::Pending => Step::Wait { overlap: false, reply },
    }
}

/// Writes an answer.
///
/// # Panics
/// Where a handler set a field that the version does not have, which the differential run would show.
pub(crate) fn respond<T: Encodable>(ctx: &RequestContext, response: &T) -> Response {
    let bytes = frame::encode_response(ctx.api, ctx.api_version, ctx.correlation_id, response);
    Response::from(bytes.expect("handlers set only what the version has"))
}

/// Text as the codec wants it.
pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Text that may be null, as the codec wants it.
pub(crate) fn optional_text(text: Option<&str>) -> Option<StrBytes> {
    text.map(self::text)
}

/// Text of the codec's that may be null.
pub(crate) fn text_of(text: Option<&StrBytes>) -> Option<String> {
    text.map(|text| text.as_str().to_owned())
}

/// Whether a text is longer than any version can carry. Kafka finds out when it has done what was asked and writes the
/// answer: then all of it fails with UNKNOWN_SERVER_ERROR. A message that repeats a name from the request can be so long.
pub(crate) fn is_too_long(text: Option<&StrBytes>) -> bool {
    text.is_some_and(|text| text.len() > 0x7fff)
}

/// An id as the codec wants it.
pub(crate) fn wire_uuid(id: Uuid) -> uuid::Uuid {
    uuid::Uuid::from_u128(id.0)
}

/// The brokers that have an endpoint on a listener, in the order of their ids.
pub(crate) fn reachable_brokers<'a>(
    snapshot: &'a ClusterSnapshot,
    listener: &'a str,
) -> impl Iterator<Item = (&'a KnownBroker, &'a Endpoint)> {
    snapshot.brokers().filter_map(move |broker| Some((&**broker, broker.endpoint(listener)?)))
}

/// Where the named leaders are, each once; one that cannot be reached is left out.
pub(crate) fn node_endpoints(
    broker: &Broker,
    ctx: &RequestContext,
    leaders: &[BrokerId],
) -> Vec<NodeEndpoint> {
    let snapshot = broker.metadata.load();
    let mut unique = leaders.to_vec();
    unique.sort_unstable();
    unique.dedup();
    let found = unique.into_iter().filter_map(|id| {
        let known = snapshot.broker(id)?;
        let endpoint = known.endpoint(&ctx.connection.listener)?;
        Some(NodeEndpoint {
            id,
            host: endpoint.host.clone(),
            port: i32::from(endpoint.port),
            rack: known.rack.clone(),
        })
    });
    found.collect()
}

/// Reads file regions into memory: for answers that must be converted.
pub(crate) fn read_regions(regions: &[Region]) -> Result<Bytes, ErrorCode> {
    use std::os::unix::fs::FileExt;
    let length = regions.iter().map(|region| region.length).sum();
    let mut bytes = BytesMut::zeroed(length);
    let mut filled = 0;
    for region in regions {
        let part = &mut bytes[filled..filled + region.length];
        region.file.read_exact_at(part, region.position).map_err(|error| {
            tracing::error!(position = region.position, %error, "read records to convert them");
            ErrorCode::KafkaStorageError
        })?;
        filled += region.length;
    }
    Ok(bytes.freeze())
}
