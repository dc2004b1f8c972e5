//! AlterPartition: a leader says which replicas are in sync. Checked, written, and answered once it is.
//! Source: `KafkaController.tryProcessAlterPartition`, KIP-497, KIP-841.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};

use crate::{
    answer::{Answer, Ticket},
    controller::Controller,
    election::Strategy,
    plan::{Applied, Outcome, Plan, Step, Write},
    request::Batch,
    states::Leadership,
};

/// The request of a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterPartition {
    /// Who asks.
    pub broker: BrokerId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// What it wants.
    pub partitions: Vec<NewIsr>,
    /// Whether a member that is about to stop, or gone, is refused.
    pub refuses_ineligible: bool,
}

/// How a request names a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicKey {
    /// By its name; before version 2.
    Name(Arc<str>),
    /// By its id.
    Id(Uuid),
}

/// A partition's new ISR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIsr {
    /// The topic.
    pub topic: TopicKey,
    /// The partition's number.
    pub index: i32,
    /// The leader's epoch, as it knows it.
    pub leader_epoch: LeaderEpoch,
    /// The state that it shall replace.
    pub partition_epoch: PartitionEpoch,
    /// The members, each with the registration that the leader saw; -1 where it does not say. Kafka takes no notice of it
    /// in ZooKeeper mode; here a member that has registered anew since is refused, as with KRaft (KIP-903).
    pub isr: Vec<(BrokerId, BrokerEpoch)>,
    /// Whether the leader still makes up for an unclean election.
    pub recovering: bool,
}

/// The answer: an error of the request as a whole, or one for each partition or its state now.
pub type Altered = Result<Vec<AlteredPartition>, ErrorCode>;

/// What became of one partition of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlteredPartition {
    /// The topic, as the request named it.
    pub topic: TopicKey,
    /// The partition's number.
    pub index: i32,
    /// Its state now, or why it was not changed.
    pub result: Result<Leadership, ErrorCode>,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Alteration {
    ticket: Ticket,
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    refuses_ineligible: bool,
    open: Vec<NewIsr>,
    done: Vec<AlteredPartition>,
    refused: Option<ErrorCode>,
}

/// What a check of one partition comes to.
enum Checked {
    /// To be written.
    Write(TopicPartition, Leadership),
    /// It is so already.
    Is(Leadership),
    /// It cannot be said yet.
    Later,
}

impl Controller {
    pub(crate) fn learn_alter_partition(&mut self, ticket: Ticket, request: AlterPartition) {
        let AlterPartition { broker, broker_epoch, partitions, refuses_ineligible } = request;
        // The last word on a partition counts, as in Kafka.
        let mut unique = BTreeMap::new();
        for partition in partitions {
            unique.insert((partition.topic.clone(), partition.index), partition);
        }
        let open = unique.into_values().collect();
        let (done, refused) = (Vec::new(), None);
        self.alterations.push(Alteration {
            ticket,
            broker,
            broker_epoch,
            refuses_ineligible,
            open,
            done,
            refused,
        });
    }

    /// Decides what leaders asked for. Partitions for which something else is decided in this turn wait for the next.
    pub(crate) fn plan_alterations(&mut self, plan: &mut Plan) {
        let mut alterations = std::mem::take(&mut self.alterations);
        for (number, alteration) in alterations.iter_mut().enumerate() {
            if !self.is_registered(alteration.broker, alteration.broker_epoch) {
                alteration.refused = Some(ErrorCode::StaleBrokerEpoch);
                continue;
            }
            let Alteration { broker, refuses_ineligible, .. } = *alteration;
            for wanted in std::mem::take(&mut alteration.open) {
                let (topic, index) = (wanted.topic.clone(), wanted.index);
                let result = match self.check(broker, &wanted, refuses_ineligible, plan) {
                    Ok(Checked::Write(partition, leadership)) => {
                        let expected = leadership.partition_epoch;
                        let write = plan.write(Write::SetLeadership {
                            partition: partition.clone(),
                            leadership,
                            expected,
                        });
                        let alteration = number;
                        plan.steps.push(Step::Alter { partition, write, alteration, wanted });
                        continue;
                    }
                    Ok(Checked::Later) => {
                        alteration.open.push(wanted);
                        continue;
                    }
                    Ok(Checked::Is(leadership)) => Ok(leadership),
                    Err(error) => Err(error),
                };
                alteration.done.push(AlteredPartition { topic, index, result });
            }
        }
        self.alterations = alterations;
    }

    fn check(
        &self,
        broker: BrokerId,
        wanted: &NewIsr,
        refuses_ineligible: bool,
        plan: &Plan,
    ) -> Result<Checked, ErrorCode> {
        let name = match &wanted.topic {
            TopicKey::Name(name) => name,
            TopicKey::Id(id) => self.names.get(id).ok_or(ErrorCode::UnknownTopicId)?,
        };
        let unknown = ErrorCode::UnknownTopicOrPartition;
        let topic = self.topics.get(&**name).ok_or(unknown)?;
        let id = TopicPartition::new(Arc::clone(name), wanted.index);
        if topic.stale || plan.changes(&id) {
            return Ok(Checked::Later);
        }
        let partition = topic.partitions.get(&wanted.index).ok_or(unknown)?;
        let known = partition.leadership.as_ref().ok_or(unknown)?;
        if partition.is_left_alone {
            return Err(ErrorCode::UnknownServerError);
        }
        if wanted.partition_epoch > known.partition_epoch
            || wanted.leader_epoch > known.leader_epoch
        {
            // Who knows more than this controller has heard it from another one.
            return Err(ErrorCode::NotController);
        }
        if wanted.leader_epoch < known.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        let isr: Vec<BrokerId> = wanted.isr.iter().map(|(broker, _)| *broker).collect();
        if known.leader == broker && known.isr == isr && known.recovering == wanted.recovering {
            return Ok(Checked::Is(known.clone()));
        }
        if wanted.partition_epoch < known.partition_epoch {
            return Err(ErrorCode::InvalidUpdateVersion);
        }
        if wanted.recovering && (isr.len() > 1 || !known.recovering) {
            return Err(ErrorCode::InvalidRequest);
        }
        // Kafka takes these at their word. None of them can come of a leader that is one.
        let held = |member: &BrokerId| partition.assignment.replicas.contains(member);
        let twice = (1..isr.len()).any(|at| isr[..at].contains(&isr[at]));
        if known.leader != broker || !isr.contains(&broker) || twice || !isr.iter().all(held) {
            return Err(ErrorCode::InvalidRequest);
        }
        // Kafka refuses members that are about to stop even where they are in: then their leader can throw out nobody.
        let may_join = |(member, epoch): &(BrokerId, BrokerEpoch)| {
            let lives = self.brokers.get(member).is_some_and(|live| {
                let same = *epoch == BrokerEpoch::NONE || *epoch == live.broker.epoch;
                !live.shutting_down && !live.offline.contains(&id) && same
            });
            lives || known.isr.contains(member)
        };
        if refuses_ineligible && !wanted.isr.iter().all(may_join) {
            return Err(ErrorCode::IneligibleReplica);
        }
        let leadership = Leadership {
            isr,
            recovering: wanted.recovering,
            controller_epoch: self.options.epoch,
            ..known.clone()
        };
        Ok(Checked::Write(id, leadership))
    }

    /// Takes over an ISR that was written. One that was not is looked at again once it is read again.
    pub(crate) fn apply_alteration(
        &mut self,
        id: TopicPartition,
        (write, outcome): (&Write, Outcome),
        request: (usize, NewIsr),
        batch: &mut Batch,
        applied: &mut Applied,
    ) {
        let Some(topic) = self.topics.get_mut(&id.topic) else { return };
        let Some(partition) = topic.partitions.get_mut(&id.partition) else { return };
        let (number, wanted) = request;
        if outcome == Outcome::Refused {
            let (topic, index) = (wanted.topic, wanted.index);
            let result = Err(ErrorCode::UnknownServerError);
            self.alterations[number].done.push(AlteredPartition { topic, index, result });
            return;
        }
        let (Outcome::Done { version }, Write::SetLeadership { leadership, .. }) = (outcome, write)
        else {
            topic.stale = true;
            applied.reread.insert(Arc::clone(&id.topic));
            self.alterations[number].open.push(wanted);
            // It may have been written all the same: then it has to be told, and a move may have arrived with it, or a
            // leader that is about to stop found somebody who can lead.
            let stops = self.is_shutting_down(self.alterations[number].broker);
            let todo = self.work(id);
            todo.hearers.everyone = true;
            if stops {
                todo.strategy.get_or_insert(Strategy::ControlledShutdown);
            }
            return;
        };
        let partition_epoch = PartitionEpoch(version);
        let leadership = Leadership { partition_epoch, ..leadership.clone() };
        partition.leadership = Some(leadership.clone());
        self.mention(batch, &id);
        batch.tell_all();
        self.look_for_arrival(&id, applied);
        self.relieve(&id, &leadership, applied);
        let (topic, index) = (wanted.topic, wanted.index);
        let altered = AlteredPartition { topic, index, result: Ok(leadership) };
        self.alterations[number].done.push(altered);
    }

    /// A leader that is about to stop has found somebody who can lead.
    fn relieve(&mut self, id: &TopicPartition, leadership: &Leadership, applied: &mut Applied) {
        let stops = self.is_shutting_down(leadership.leader);
        if stops && leadership.isr.iter().any(|member| self.online(id, *member)) {
            self.work(id.clone()).strategy.get_or_insert(Strategy::ControlledShutdown);
            applied.more = true;
        }
    }

    /// Answers the requests that are done.
    pub(crate) fn answer_alterations(&mut self, applied: &mut Applied) {
        for alteration in std::mem::take(&mut self.alterations) {
            if let Some(error) = alteration.refused {
                applied.answers.push((alteration.ticket, Answer::AlterPartition(Err(error))));
                continue;
            }
            if !alteration.open.is_empty() {
                applied.more = true;
                self.alterations.push(alteration);
                continue;
            }
            let answer = Answer::AlterPartition(Ok(alteration.done));
            applied.answers.push((alteration.ticket, answer));
        }
    }
}
