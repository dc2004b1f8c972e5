//! Sends the changes of in-sync sets that this broker's leaders ask for to the controller: in batches, one at a time.
//! Source: `kafka.server.DefaultAlterPartitionManager`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};
use controller::{
    alter_partition::{AlterPartition, NewIsr, TopicKey},
    states::Leadership,
};
use kafka_protocol::messages::{
    self, AlterPartitionRequest, AlterPartitionResponse, TopicName,
    alter_partition_request::{BrokerState, PartitionData, TopicData},
};
use metadata::cache::MetadataCache;
use partition::leader::{Follower, Proposal, Verdict};
use replication::{partition::Partition, surroundings::Surroundings};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    controller::ControllerHandle,
    handlers::{text, wire_uuid},
    peers::{PeerError, Peers, Purpose},
};

const LOG: &str = "kafka.server.DefaultAlterPartitionManager";
/// Pause after the controller refused a request as a whole, or was not reached.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// Partitions in one request.
const BATCH_MAX: usize = 10_000;
/// First version that names topics by id.
const TOPIC_IDS: i16 = 2;
/// First version with the epoch of each member.
const MEMBER_EPOCHS: i16 = 3;

/// Where a change is to be sent, and what with it.
pub(crate) struct Sender {
    pub surroundings: Arc<Surroundings>,
    pub metadata: Arc<MetadataCache>,
    pub controller: ControllerHandle,
    pub peers: Arc<Peers>,
    /// The epoch of this broker's registration.
    pub broker_epoch: Arc<AtomicI64>,
}

/// A change that is on its way.
type Item = (Arc<Partition>, Proposal);

/// The controller's answer for each partition.
type Verdicts = HashMap<TopicPartition, Verdict>;

impl Sender {
    /// Sends what is proposed, until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.send_all()).await;
    }

    async fn send_all(&self) {
        loop {
            let mut items = self.surroundings.proposals.take().await;
            if items.len() > BATCH_MAX {
                self.surroundings.proposals.put_back(items.split_off(BATCH_MAX));
            }
            let sent = self.send(&items).await;
            let mut unanswered = Vec::new();
            let mut is_whole = true;
            let mut pauses = false;
            match sent {
                Ok(mut verdicts) => {
                    // What is refused may be proposed again at once.
                    pauses =
                        verdicts.values().any(|verdict| matches!(verdict, Verdict::Refused(_)));
                    for (partition, proposal) in items {
                        match verdicts.remove(partition.topic_partition()) {
                            Some(verdict) => partition.proposal_answered(&proposal, verdict),
                            None => unanswered.push((partition, proposal)),
                        }
                    }
                }
                Err(reason) => {
                    debug!(target: LOG, reason, "the controller did not take changed in-sync sets");
                    is_whole = false;
                    unanswered = items;
                }
            }
            if !unanswered.is_empty() {
                if is_whole {
                    warn!(target: LOG, count = unanswered.len(), "partitions were not answered by the controller");
                }
                // What the partition proposes by now goes before what it has proposed.
                self.surroundings.proposals.put_back(unanswered);
                pauses = true;
            }
            if pauses {
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }

    /// Sends one request. An error is why nothing of it was answered.
    async fn send(&self, items: &[Item]) -> Result<Verdicts, String> {
        let controller = self.metadata.load().controller();
        let local = self.surroundings.local;
        if self.controller.is_active() || controller == Some(local) {
            return self.send_here(items).await;
        }
        let Some(controller) = controller else {
            return Err("no controller is known".to_owned());
        };
        let has_ids = items.iter().all(|(partition, _)| partition.topic_id().is_some());
        let newest = if has_ids { MEMBER_EPOCHS } else { TOPIC_IDS - 1 };
        for version in (0..=newest).rev() {
            let request = self.request(items, version);
            let (purpose, versions) = (Purpose::AlterPartition, version..=version);
            // The controller writes to ZooKeeper before it answers.
            let limit = self.peers.controller_timeout();
            let sent = self.peers.call(controller, purpose, &request, versions, limit);
            match sent.await {
                Ok((answer, version)) => return verdicts(items, answer, version),
                Err(PeerError::UnsupportedVersion { .. }) => {}
                Err(error) => return Err(chain(&error)),
            }
        }
        Err(format!("the controller, broker {controller}, does not know AlterPartition"))
    }

    /// This broker is the controller: no socket lies between.
    async fn send_here(&self, items: &[Item]) -> Result<Verdicts, String> {
        let partitions = items.iter().map(|(partition, proposal)| {
            let name = partition.topic_partition();
            NewIsr {
                topic: TopicKey::Name(name.topic.clone()),
                index: name.partition,
                leader_epoch: proposal.epoch,
                partition_epoch: proposal.partition_epoch,
                isr: self.members(partition, proposal),
                recovering: false,
            }
        });
        let request = AlterPartition {
            broker: self.surroundings.local,
            broker_epoch: self.epoch(),
            partitions: partitions.collect(),
            refuses_ineligible: true,
        };
        let altered = self.controller.alter_partition(request).await;
        let altered = altered.map_err(|error| error.name().to_owned())?;
        let each = altered.into_iter().filter_map(|altered| {
            let TopicKey::Name(topic) = altered.topic else { return None };
            let verdict = match altered.result {
                Ok(Leadership { leader_epoch, partition_epoch, isr, .. }) => {
                    Verdict::Committed { epoch: leader_epoch, partition_epoch, isr }
                }
                Err(error) => Verdict::Refused(error),
            };
            Some((TopicPartition::new(topic, altered.index), verdict))
        });
        Ok(each.collect())
    }

    fn epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.broker_epoch.load(Ordering::Acquire))
    }

    /// The wanted set, each member with the registration that it last fetched with.
    fn members(&self, partition: &Partition, proposal: &Proposal) -> Vec<(BrokerId, BrokerEpoch)> {
        let epoch_of = |id: BrokerId| {
            if id == self.surroundings.local {
                return self.epoch();
            }
            let seen = partition.as_leader(|leader| {
                let mut followers = leader.followers().iter();
                followers.find(|follower| follower.id() == id).map(Follower::broker_epoch)
            });
            seen.flatten().unwrap_or(BrokerEpoch(-1))
        };
        proposal.isr.iter().map(|id| (*id, epoch_of(*id))).collect()
    }

    fn request(&self, items: &[Item], version: i16) -> AlterPartitionRequest {
        let mut topics: BTreeMap<&str, TopicData> = BTreeMap::new();
        for (partition, proposal) in items {
            let name = partition.topic_partition();
            let topic = topics.entry(&name.topic).or_insert_with(|| match version {
                TOPIC_IDS.. => {
                    let id = partition.topic_id().unwrap_or(Uuid::ZERO);
                    TopicData::default().with_topic_id(wire_uuid(id))
                }
                _ => TopicData::default().with_topic_name(TopicName(text(&name.topic))),
            });
            let members = self.members(partition, proposal).into_iter();
            let change = PartitionData::default()
                .with_partition_index(name.partition)
                .with_leader_epoch(proposal.epoch.0)
                .with_partition_epoch(proposal.partition_epoch.0);
            topic.partitions.push(match version {
                MEMBER_EPOCHS.. => {
                    let member = |(id, epoch): (BrokerId, BrokerEpoch)| {
                        BrokerState::default()
                            .with_broker_id(messages::BrokerId(id.0))
                            .with_broker_epoch(epoch.0)
                    };
                    change.with_new_isr_with_epochs(members.map(member).collect())
                }
                _ => {
                    let ids = members.map(|(id, _)| messages::BrokerId(id.0));
                    change.with_new_isr(ids.collect())
                }
            });
        }
        AlterPartitionRequest::default()
            .with_broker_id(messages::BrokerId(self.surroundings.local.0))
            .with_broker_epoch(self.epoch().0)
            .with_topics(topics.into_values().collect())
    }
}

/// Reads the answer of another broker.
fn verdicts(
    items: &[Item],
    answer: AlterPartitionResponse,
    version: i16,
) -> Result<Verdicts, String> {
    let error = ErrorCode::from_code(answer.error_code);
    if !error.is_none() {
        return Err(error.name().to_owned());
    }
    let names: HashMap<Uuid, &Arc<str>> = items
        .iter()
        .filter_map(|(partition, _)| {
            Some((partition.topic_id()?, &partition.topic_partition().topic))
        })
        .collect();
    let mut verdicts = HashMap::new();
    for topic in answer.topics {
        let name: Arc<str> = match version >= TOPIC_IDS {
            true => match names.get(&Uuid(topic.topic_id.as_u128())) {
                Some(name) => (*name).clone(),
                None => continue,
            },
            false => Arc::from(&*topic.topic_name.0),
        };
        for partition in topic.partitions {
            let error = ErrorCode::from_code(partition.error_code);
            let verdict = match error {
                ErrorCode::None => Verdict::Committed {
                    epoch: LeaderEpoch(partition.leader_epoch),
                    partition_epoch: PartitionEpoch(partition.partition_epoch),
                    isr: partition.isr.iter().map(|id| BrokerId(id.0)).collect(),
                },
                error => Verdict::Refused(error),
            };
            let name = TopicPartition::new(name.clone(), partition.partition_index);
            verdicts.insert(name, verdict);
        }
    }
    Ok(verdicts)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
