//! Produces that came one behind the other on a connection: what they have for a partition goes to its log together.

use std::sync::Arc;

use bytes::Bytes;
use common::{error_code::ErrorCode, ids::Offset};
use kafka_protocol::messages::{ProduceRequest, TopicName};
use network::service::Step;
use record::validate::Checked;
use replication::partition::Partition;

use crate::{
    broker::Broker,
    errors::Refusal,
    handlers::produce::{self, ANY_CODEC, How, NotWritten, Outcome, Produced, Ready},
    request_context::RequestContext,
};

/// A produce that is checked and not yet appended.
pub(super) struct Prepared {
    ctx: RequestContext,
    how: How,
    names: Vec<TopicName>,
    /// In their order; open where records are ready.
    outcomes: Vec<Outcome>,
    ready: Vec<(Place, Ready)>,
}

/// Which outcome of a produce, and how many bytes were sent for it.
struct Place {
    outcome: usize,
    bytes: usize,
}

/// What is appended together.
struct Group {
    partition: Arc<Partition>,
    in_sync_min: Option<usize>,
    batches: Vec<Checked>,
    /// The number of its produce, its place there, and its records.
    of: Vec<(usize, Place, i32)>,
}

/// Makes the checks of a produce that is as most are: of a version of today, answered, with no transaction, and with
/// records that need no memory which has to be waited for. Any other is not for a run.
pub(super) fn prepare(
    broker: &Broker,
    ctx: &RequestContext,
    request: &ProduceRequest,
) -> Option<Prepared> {
    let how = How::of(request);
    let is_plain = matches!(how.acks, 1 | -1)
        && ctx.api_version >= ANY_CODEC
        && request.transactional_id.is_none()
        && produce::refusal_of_all(request).is_none();
    if !is_plain {
        return None;
    }
    let (names, named) = produce::without_repeats(request);
    let mut outcomes = Vec::with_capacity(named.len());
    let mut ready = Vec::with_capacity(named.len());
    let mut refused = Vec::new();
    for (topic, data) in named {
        let place =
            Place { outcome: outcomes.len(), bytes: data.records.as_ref().map_or(0, Bytes::len) };
        outcomes.push(Outcome {
            topic,
            index: data.index,
            result: Err(Refusal::of(ErrorCode::None)),
            log_start_offset: Offset::NONE,
        });
        let produced = Produced { topic: &names[topic], data, guard: None, checked: None };
        match produce::check_all(broker, ctx, how.acks, produced) {
            Ok(one) => ready.push((place, one)),
            Err(NotWritten::Refused(refusal)) => refused.push((place, refusal)),
            Err(NotWritten::Unconverted(_)) => return None,
        }
    }
    for (Place { outcome, bytes }, refusal) in refused {
        let outcome = &mut outcomes[outcome];
        produce::settle(broker, &names[outcome.topic], bytes, Err(refusal), outcome);
    }
    Some(Prepared { ctx: ctx.clone(), how, names, outcomes, ready })
}

/// Appends produces in their order, and gives their steps.
pub(super) fn append(broker: &Arc<Broker>, mut run: Vec<Prepared>) -> Vec<Step> {
    let mut groups: Vec<Group> = Vec::new();
    for (number, prepared) in run.iter_mut().enumerate() {
        for (place, ready) in prepared.ready.drain(..) {
            add(&mut groups, number, place, ready);
        }
    }
    for Group { partition, in_sync_min, batches, of } in groups {
        let results = partition.append_run_as_leader(batches, in_sync_min);
        for ((number, place, record_count), result) in of.into_iter().zip(results) {
            let Prepared { names, outcomes, .. } = &mut run[number];
            let outcome = &mut outcomes[place.outcome];
            let written = produce::written(partition.clone(), record_count, result);
            produce::settle(broker, &names[outcome.topic], place.bytes, written, outcome);
        }
    }
    let answer = |Prepared { ctx, how, names, outcomes, .. }| {
        produce::answer(broker, ctx, how, names, outcomes)
    };
    run.into_iter().map(answer).collect()
}

/// Puts records to those for the same partition, which stay in their order.
fn add(groups: &mut Vec<Group>, number: usize, place: Place, ready: Ready) {
    let Ready { partition, records, in_sync_min } = ready;
    let of = (number, place, records.record_count());
    let last = groups.iter_mut().rev().find(|group| Arc::ptr_eq(&group.partition, &partition));
    match last.filter(|group| group.in_sync_min == in_sync_min) {
        Some(group) => {
            group.batches.push(records);
            group.of.push(of);
        }
        None => {
            let batches = vec![records];
            groups.push(Group { partition, in_sync_min, batches, of: vec![of] });
        }
    }
}
