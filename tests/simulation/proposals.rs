//! What leaders want of the controller: other in-sync sets. The glue of `server/alter_partition.rs`.

use std::{collections::BTreeMap, sync::Arc};

use common::ids::{BrokerEpoch, BrokerId};
use controller::alter_partition::{AlterPartition, Altered, NewIsr, TopicKey};
use partition::leader::{Answered, Proposal, Verdict};

use crate::{
    broker::{Process, Proposed},
    network::{Message, Node, RequestId},
    replica::Role,
    world::{Event, TOPIC, World},
};

/// Pause before what a leader proposes is sent, and sent again.
const PROPOSE_AFTER: u64 = 5;
const PROPOSE_AGAIN_AFTER: u64 = 50;

impl World {
    /// A broker looks at its in-sync sets.
    pub fn check_in_sync(&mut self, id: BrokerId) {
        let number = self.process_number(id);
        self.after(600, Event::CheckInSync(id, number));
        for partition in self.partitions.clone() {
            if self.replica(id, partition).is_none_or(|replica| !replica.has_disk()) {
                continue;
            }
            let proposal = self.with_leader(id, partition, |leader, now| leader.propose(now));
            self.put_proposal(id, partition, proposal.flatten());
        }
    }

    /// Takes what a leader wants, to be sent.
    pub fn put_proposal(&mut self, id: BrokerId, partition: i32, proposal: Option<Proposal>) {
        let Some(proposal) = proposal else { return };
        let isr = &proposal.isr;
        self.note(format_args!("leader {id} of {partition} wants isr {isr:?}"));
        let process = self.process(id);
        let Some(replica) = process.replicas.get(&partition) else { return };
        process.proposals.insert(partition, (replica.topic_id, proposal));
        self.propose_after(id, PROPOSE_AFTER);
    }

    fn propose_after(&mut self, id: BrokerId, delay: u64) {
        let number = self.process_number(id);
        self.after(delay, Event::Propose(id, number));
    }

    /// Sends what the leaders propose to the controller, one request at a time.
    pub fn send_proposals(&mut self, id: BrokerId) {
        let process = self.process(id);
        if process.proposed.is_some() || process.proposals.is_empty() {
            return;
        }
        let controller = match process.office {
            Some(_) => Some(id),
            None => process.metadata.load().controller(),
        };
        let Some(controller) = controller else {
            return self.propose_after(id, PROPOSE_AGAIN_AFTER);
        };
        let items: Vec<(i32, Proposed)> =
            std::mem::take(&mut process.proposals).into_iter().collect();
        let partitions = items.iter().map(|(partition, (topic_id, proposal))| NewIsr {
            // The controller's own broker names the topic.
            topic: match controller == id {
                true => TopicKey::Name(Arc::from(TOPIC)),
                false => TopicKey::Id(*topic_id),
            },
            index: *partition,
            leader_epoch: proposal.epoch,
            partition_epoch: proposal.partition_epoch,
            isr: members(process, id, *partition, proposal),
            recovering: false,
        });
        let request = AlterPartition {
            broker: id,
            broker_epoch: process.broker_epoch,
            partitions: partitions.collect(),
            refuses_ineligible: true,
        };
        let asked = self.ask(Node::Broker(id), Node::Broker(controller), Message::Alter(request));
        self.process(id).proposed = Some((asked, items));
    }

    /// The controller has answered, or has not: then it is asked again.
    pub fn take_altered(&mut self, id: BrokerId, request: RequestId, altered: Altered) {
        let process = self.process(id);
        let Some((_, items)) = process.proposed.take_if(|(asked, _)| *asked == request) else {
            return;
        };
        let mut verdicts: BTreeMap<i32, Verdict> = BTreeMap::new();
        for one in altered.into_iter().flatten() {
            let verdict = match one.result {
                Ok(state) => Verdict::Committed {
                    epoch: state.leader_epoch,
                    partition_epoch: state.partition_epoch,
                    isr: state.isr,
                },
                Err(error) => Verdict::Refused(error),
            };
            verdicts.insert(one.index, verdict);
        }
        for (partition, proposed) in items {
            match verdicts.remove(&partition) {
                Some(verdict) => self.proposal_answered(id, partition, proposed, verdict),
                None => {
                    // What the partition proposes by now goes before what it has proposed.
                    self.process(id).proposals.entry(partition).or_insert(proposed);
                }
            }
        }
        self.propose_after(id, PROPOSE_AGAIN_AFTER);
    }

    fn proposal_answered(
        &mut self,
        id: BrokerId,
        partition: i32,
        (topic_id, asked): Proposed,
        verdict: Verdict,
    ) {
        if self.replica(id, partition).is_none_or(|replica| replica.topic_id != topic_id) {
            return;
        }
        let answered =
            self.with_leader(id, partition, |leader, _| leader.answered(&asked, verdict));
        match answered {
            Some(Answered::Committed { .. }) => {
                self.move_high_watermark(id, partition);
                let next = self.with_leader(id, partition, |leader, now| leader.propose(now));
                self.wake(id, partition);
                self.put_proposal(id, partition, next.flatten());
            }
            Some(Answered::Retry) => {
                self.process(id).proposals.insert(partition, (topic_id, asked));
            }
            _ => {}
        }
    }
}

/// The wanted set, each member with the registration that it last fetched with.
fn members(
    process: &Process,
    local: BrokerId,
    partition: i32,
    proposal: &Proposal,
) -> Vec<(BrokerId, BrokerEpoch)> {
    let followers = match process.replicas.get(&partition).map(|replica| &replica.role) {
        Some(Role::Leader(leader)) => leader.followers(),
        _ => &[],
    };
    let epoch_of = |id: BrokerId| {
        if id == local {
            return process.broker_epoch;
        }
        let known = followers.iter().find(|follower| follower.id() == id);
        known.map_or(BrokerEpoch::NONE, |follower| follower.broker_epoch())
    };
    proposal.isr.iter().map(|id| (*id, epoch_of(*id))).collect()
}
