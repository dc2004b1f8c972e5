//! Carries out a plan's writes: many in one `multi`, each `multi` under the check that this controller
//! is still the one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use controller::{
    plan::{Outcome, Write},
    states::Leadership,
};
use futures_util::{StreamExt, stream::FuturesOrdered};
use tracing::error;
use zk::{
    documents::{
        admin,
        partition_state::{LeaderRecoveryState, PartitionStateDocument},
        topic::TopicDocument,
    },
    election::Fence,
    paths,
    store::{Expected, Op, OpResult, Watch, ZkError, ZkStore, ZkVersion},
};

use crate::reads::to_document;

/// Bytes of one `multi`: half of what a ZooKeeper server takes unless told otherwise.
const MULTI_BYTES_MAX: usize = 512 * 1024;
/// Steps of one `multi`: ZooKeeper takes them in one go, and others wait.
const MULTI_STEPS_MAX: usize = 1000;
/// `multi`s that are under way at a time; the store holds back those above `zookeeper.max.in.flight.requests`.
const MULTIS_IN_FLIGHT_MAX: usize = 16;
/// How often the znodes of a topic are listed again when something still hangs on to them.
const DELETE_ATTEMPTS_MAX: usize = 5;

/// Why a commit ended early.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Another controller has been elected: nothing more was written.
    #[error("another controller has been elected")]
    Moved,
    /// ZooKeeper does not do it; the session has ended, as a rule.
    #[error("write to ZooKeeper")]
    ZooKeeper(#[from] ZkError),
}

/// A step, and the write that it belongs to; a shared parent belongs to none.
struct Step {
    write: Option<usize>,
    op: Op,
}

/// Makes the writes. A write whose outcome is not known counts as a conflict: it is read again.
pub async fn commit(
    zk: &dyn ZkStore,
    fence: Fence,
    writes: &[Write],
) -> Result<Vec<Outcome>, CommitError> {
    let is_deletion = |write: &Write| matches!(write, Write::DeleteTopic { .. });
    let mut outcomes = vec![Outcome::Conflict; writes.len()];
    let mut first = 0;
    for group in writes.chunk_by(|one, next| is_deletion(one) == is_deletion(next)) {
        if group.first().is_some_and(is_deletion) {
            for (index, outcome) in (first..).zip(delete_topics(zk, fence, group).await) {
                outcomes[index] = outcome?;
            }
        } else {
            send_all(zk, fence, batches(first, group), &mut outcomes).await?;
        }
        first += group.len();
    }
    Ok(outcomes)
}

/// What the writes come to, in as few `multi`s as may be. `first` is the number of the first write.
fn batches(first: usize, writes: &[Write]) -> Vec<Vec<Step>> {
    let mut parents = BTreeSet::new();
    let (mut batches, mut batch, mut size) = (Vec::new(), Vec::new(), 0);
    for (index, write) in (first..).zip(writes) {
        let steps = steps(index, write, &mut parents);
        let more: usize = steps.iter().map(|step| step.op.size()).sum();
        let full = size + more > MULTI_BYTES_MAX || batch.len() + steps.len() > MULTI_STEPS_MAX;
        if full && !batch.is_empty() {
            batches.push(std::mem::take(&mut batch));
            size = 0;
        }
        size += more;
        batch.extend(steps);
    }
    batches.push(batch);
    batches
}

fn steps(index: usize, write: &Write, parents: &mut BTreeSet<String>) -> Vec<Step> {
    let own = |op: Op| Step { write: Some(index), op };
    match write {
        Write::CreateLeadership { partition, leadership } => {
            let (topic, number) = (&partition.topic, partition.partition);
            let mut steps = Vec::new();
            for parent in [paths::partitions(topic), paths::partition(topic, number)] {
                if parents.insert(parent.clone()) {
                    steps.push(Step { write: None, op: Op::create(parent, []) });
                }
            }
            let path = paths::partition_state(topic, number);
            steps.push(own(Op::create(path, state(leadership))));
            steps
        }
        Write::SetLeadership { partition, leadership, expected } => {
            let path = paths::partition_state(&partition.topic, partition.partition);
            let expected = Expected::Version(ZkVersion(expected.0));
            vec![own(Op::set(path, state(leadership), expected))]
        }
        Write::SetTopic { name, id, partitions, expected } => {
            let document = TopicDocument {
                topic_id: *id,
                partitions: partitions
                    .iter()
                    .map(|(index, assignment)| (*index, to_document(assignment)))
                    .collect(),
            };
            let expected = Expected::Version(ZkVersion(*expected));
            vec![own(Op::set(paths::topic(name), document.to_bytes(), expected))]
        }
        Write::ForgetDeletion { name } => {
            vec![own(Op::delete(paths::delete_topic(name), Expected::Any))]
        }
        Write::SetOrders { moves, .. } if moves.is_empty() => {
            vec![own(Op::delete(paths::REASSIGN_PARTITIONS, Expected::Any))]
        }
        Write::SetOrders { moves, expected } => {
            let expected = Expected::Version(ZkVersion(*expected));
            let data = admin::reassignment_to_bytes(moves);
            vec![own(Op::set(paths::REASSIGN_PARTITIONS, data, expected))]
        }
        Write::DeleteTopic { .. } => Vec::new(),
    }
}

fn state(leadership: &Leadership) -> Vec<u8> {
    let recovering = leadership.recovering;
    PartitionStateDocument {
        leader: leadership.leader,
        leader_epoch: leadership.leader_epoch,
        controller_epoch: leadership.controller_epoch,
        isr: leadership.isr.clone(),
        leader_recovery_state: if recovering {
            LeaderRecoveryState::Recovering
        } else {
            LeaderRecoveryState::Recovered
        },
    }
    .to_bytes()
}

/// Sends each batch as one `multi`, without waiting for one before the next: ZooKeeper takes them in this order. Those
/// that meet a conflict are sent again, one after another, once it is known what became of all.
async fn send_all(
    zk: &dyn ZkStore,
    fence: Fence,
    batches: Vec<Vec<Step>>,
    outcomes: &mut [Outcome],
) -> Result<(), CommitError> {
    let (mut under_way, mut results) = (FuturesOrdered::new(), Vec::new());
    for batch in &batches {
        if under_way.len() == MULTIS_IN_FLIGHT_MAX {
            results.extend(under_way.next().await);
        }
        under_way.push_back(zk.multi(under(fence, batch)));
    }
    results.extend(under_way.collect::<Vec<_>>().await);
    let mut left = Vec::new();
    for (batch, result) in batches.into_iter().zip(results) {
        match result {
            Ok(results) => note(&batch, results, outcomes),
            Err(ZkError::Multi { index, reason })
                if index > 0
                    && (reason.is_conflict() || is_refused(&batch, index - 1, &reason)) =>
            {
                left.push(batch);
            }
            Err(error) => gone_wrong(error)?,
        }
    }
    for batch in left {
        send(zk, fence, batch, outcomes).await?;
    }
    Ok(())
}

fn under(fence: Fence, batch: &[Step]) -> Vec<Op> {
    std::iter::once(fence.check()).chain(batch.iter().map(|step| step.op.clone())).collect()
}

/// Notes what was written; the first result is the check's.
fn note(batch: &[Step], results: Vec<OpResult>, outcomes: &mut [Outcome]) {
    for (step, result) in batch.iter().zip(results.into_iter().skip(1)) {
        let version = match result {
            OpResult::Set(stat) => stat.version.0,
            OpResult::Created(_) | OpResult::Checked | OpResult::Deleted => 0,
        };
        if let Some(write) = step.write {
            outcomes[write] = Outcome::Done { version };
        }
    }
}

/// Whether the commit can go on after an error that is no conflict.
fn gone_wrong(error: ZkError) -> Result<(), CommitError> {
    match error {
        ZkError::Multi { index: 0, .. } => Err(CommitError::Moved),
        // It was written, or not: the outcomes say conflict, so all of it is read again.
        ZkError::MayHaveHappened { .. } => Ok(()),
        error => Err(error.into()),
    }
}

/// Sends the steps as one `multi`; again without the culprit, as long as there is one.
async fn send(
    zk: &dyn ZkStore,
    fence: Fence,
    mut batch: Vec<Step>,
    outcomes: &mut [Outcome],
) -> Result<(), CommitError> {
    while batch.iter().any(|step| step.write.is_some()) {
        match zk.multi(under(fence, &batch)).await {
            Ok(results) => {
                note(&batch, results, outcomes);
                return Ok(());
            }
            Err(ZkError::Multi { index, reason }) if index > 0 && reason.is_conflict() => {
                drop_culprit(&mut batch, index - 1, &reason, outcomes);
            }
            Err(ZkError::Multi { index, reason })
                if index > 0 && is_refused(&batch, index - 1, &reason) =>
            {
                drop_refused(&mut batch, index - 1, &reason, outcomes);
            }
            Err(error) => return gone_wrong(error),
        }
    }
    Ok(())
}

fn drop_culprit(batch: &mut Vec<Step>, at: usize, reason: &ZkError, outcomes: &mut [Outcome]) {
    let exists = matches!(reason, ZkError::NodeExists { .. });
    let missing = matches!(reason, ZkError::NoNode { .. });
    let Some(culprit) = batch.get(at) else { return batch.clear() };
    match culprit.write {
        // A parent that is there already is as good.
        None if exists => {
            batch.remove(at);
        }
        // Its topic is gone, and so is all below.
        None => {
            let gone = culprit.op.path().to_owned();
            batch.retain(|step| !is_at_or_below(&gone, step.op.path()));
        }
        Some(write) => {
            if missing && matches!(culprit.op, Op::Delete { .. }) {
                outcomes[write] = Outcome::Done { version: 0 };
            }
            batch.retain(|step| step.write != Some(write));
        }
    }
}

/// Whether a partition's znodes may not be written, which is no reason to do nothing for others.
fn is_refused(batch: &[Step], at: usize, reason: &ZkError) -> bool {
    let is_state = |path: &str| {
        let below = path.strip_prefix(paths::TOPICS).and_then(|rest| rest.strip_prefix('/'));
        below.is_some_and(|below| below.contains('/'))
    };
    matches!(reason, ZkError::NoAuth { .. })
        && batch.get(at).is_some_and(|step| is_state(step.op.path()))
}

/// Leaves out what may not be written, and all below it.
fn drop_refused(batch: &mut Vec<Step>, at: usize, reason: &ZkError, outcomes: &mut [Outcome]) {
    error!(%reason, "the state of a partition may not be written: it stays as it is");
    let refused = batch[at].op.path().to_owned();
    let is_refused = |step: &Step| is_at_or_below(&refused, step.op.path());
    let writes: BTreeSet<usize> =
        batch.iter().filter(|step| is_refused(step)).filter_map(|step| step.write).collect();
    for &write in &writes {
        outcomes[write] = Outcome::Refused;
    }
    let is_left =
        |step: &Step| !is_refused(step) && step.write.is_none_or(|one| !writes.contains(&one));
    batch.retain(is_left);
}

fn is_at_or_below(parent: &str, path: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Deletes topics, several at a time; none has to do with another.
async fn delete_topics(
    zk: &dyn ZkStore,
    fence: Fence,
    writes: &[Write],
) -> Vec<Result<Outcome, CommitError>> {
    let (mut under_way, mut outcomes) = (FuturesOrdered::new(), Vec::new());
    for write in writes {
        let Write::DeleteTopic { name, partitions } = write else { continue };
        if under_way.len() == MULTIS_IN_FLIGHT_MAX {
            outcomes.extend(under_way.next().await);
        }
        under_way.push_back(delete_topic(zk, fence, name, partitions));
    }
    outcomes.extend(under_way.collect::<Vec<_>>().await);
    outcomes
}

/// Deletes a topic's znodes, children first, then its configs, then its mark. First as the controller
/// knows them, at one stroke; where something is missing or left over, as they are listed.
async fn delete_topic(
    zk: &dyn ZkStore,
    fence: Fence,
    name: &str,
    partitions: &BTreeMap<i32, bool>,
) -> Result<Outcome, CommitError> {
    let mut doomed = VecDeque::new();
    let mut any = false;
    for (index, _) in partitions.iter().filter(|(_, has_state)| **has_state) {
        doomed.push_back(paths::partition_state(name, *index));
        doomed.push_back(paths::partition(name, *index));
        any = true;
    }
    if any {
        doomed.push_back(paths::partitions(name));
    }
    for _ in 0..DELETE_ATTEMPTS_MAX {
        doomed.extend([paths::topic(name), paths::topic_config(name), paths::delete_topic(name)]);
        match delete_all(zk, fence, doomed).await {
            Ok(()) => return Ok(Outcome::Done { version: 0 }),
            Err(CommitError::ZooKeeper(ZkError::MayHaveHappened { .. })) => {}
            Err(CommitError::ZooKeeper(error)) if error.is_conflict() => {}
            Err(CommitError::ZooKeeper(error))
                if matches!(error.reason(), ZkError::NoAuth { .. }) =>
            {
                error!(%error, topic = name, "the topic's znodes may not be deleted: they stay");
                return Ok(Outcome::Refused);
            }
            Err(error) => return Err(error),
        }
        doomed = below(zk, &paths::topic(name)).await?;
    }
    Ok(Outcome::Conflict)
}

/// Everything below a node, children first.
async fn below(zk: &dyn ZkStore, path: &str) -> Result<VecDeque<String>, ZkError> {
    let mut found = VecDeque::new();
    let mut open = vec![path.to_owned()];
    while let Some(parent) = open.pop() {
        for name in zk.children(&parent, Watch::No).await? {
            let child = format!("{parent}/{name}");
            found.push_front(child.clone());
            open.push(child);
        }
    }
    Ok(found)
}

/// Deletes the nodes in this order; one that is missing is passed over.
async fn delete_all(
    zk: &dyn ZkStore,
    fence: Fence,
    mut doomed: VecDeque<String>,
) -> Result<(), CommitError> {
    while !doomed.is_empty() {
        let count = doomed.len().min(MULTI_STEPS_MAX);
        let deletes = doomed.iter().take(count);
        let deletes = deletes.map(|path| Op::delete(path, Expected::Any));
        match zk.multi(std::iter::once(fence.check()).chain(deletes).collect()).await {
            Ok(_) => {
                doomed.drain(..count);
            }
            Err(ZkError::Multi { index: 0, .. }) => return Err(CommitError::Moved),
            Err(ZkError::Multi { index, reason }) if matches!(*reason, ZkError::NoNode { .. }) => {
                doomed.remove(index - 1);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
