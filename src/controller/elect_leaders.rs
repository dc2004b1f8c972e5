//! Elections that somebody asks for: a request, old tools, or the balance of the cluster.
//! Source: `KafkaController.processReplicaLeaderElection`, `checkAndTriggerAutoLeaderRebalance`, KIP-460.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use common::{error_code::ErrorCode, ids::BrokerId, topic::TopicPartition};

use crate::{
    answer::{Answer, Ticket},
    controller::Controller,
    election::Strategy,
    error::ApiError,
    plan::Applied,
    states::Partition,
};

/// Who shall lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionType {
    /// The first replica.
    Preferred,
    /// Anyone, where there is no leader: even one that is not in sync.
    Unclean,
}

/// The leader of each partition, or why there was no election.
pub type Elected = BTreeMap<TopicPartition, Result<BrokerId, ApiError>>;

/// Elections that are not answered yet.
#[derive(Debug)]
pub(crate) struct Election {
    ticket: Ticket,
    kind: ElectionType,
    open: BTreeSet<TopicPartition>,
    done: Elected,
}

impl ElectionType {
    fn strategy(self) -> Strategy {
        match self {
            ElectionType::Preferred => Strategy::Preferred,
            ElectionType::Unclean => Strategy::Offline { unclean: true },
        }
    }

    /// As Kafka names it in an error.
    fn strategy_name(self) -> &'static str {
        match self {
            ElectionType::Preferred => "PreferredReplicaPartitionLeaderElectionStrategy",
            ElectionType::Unclean => "OfflinePartitionLeaderElectionStrategy(true)",
        }
    }

    fn failure(self) -> ErrorCode {
        match self {
            ElectionType::Preferred => ErrorCode::PreferredLeaderNotAvailable,
            ElectionType::Unclean => ErrorCode::EligibleLeadersNotAvailable,
        }
    }
}

fn leader(partition: &Partition) -> Option<BrokerId> {
    partition.leadership.as_ref().map(|leadership| leadership.leader)
}

impl Controller {
    /// Elections for these partitions, or for all: then those that need none are not spoken of.
    pub(crate) fn learn_elect_leaders(
        &mut self,
        ticket: Ticket,
        kind: ElectionType,
        only: Option<BTreeSet<TopicPartition>>,
    ) {
        let (mut open, mut done) = (BTreeSet::new(), BTreeMap::new());
        let all = only.is_none();
        for id in only.unwrap_or_else(|| self.partitions()) {
            match self.check_election(&id, kind) {
                Ok(()) => {
                    // A shutdown of the leader goes before.
                    self.work(id.clone()).strategy.get_or_insert(kind.strategy());
                    open.insert(id);
                }
                Err(error) if all && error.code == ErrorCode::ElectionNotNeeded => {}
                Err(error) => {
                    done.insert(id, Err(error));
                }
            }
        }
        self.elections.push(Election { ticket, kind, open, done });
    }

    fn partitions(&self) -> BTreeSet<TopicPartition> {
        let mut all = BTreeSet::new();
        for (name, topic) in &self.topics {
            let ids = topic.partitions.keys();
            all.extend(ids.map(|index| TopicPartition::new(Arc::clone(name), *index)));
        }
        all
    }

    fn check_election(&self, id: &TopicPartition, kind: ElectionType) -> Result<(), ApiError> {
        let topic = self.topics.get(&id.topic);
        let Some((topic, partition)) =
            topic.and_then(|topic| Some((topic, topic.partitions.get(&id.partition)?)))
        else {
            let message = "The partition does not exist.";
            return Err(ApiError::new(ErrorCode::UnknownTopicOrPartition, message));
        };
        if topic.deletion.is_some() {
            let message = "The topic is being deleted";
            return Err(ApiError::new(ErrorCode::InvalidTopicException, message));
        }
        if self.has_leader(partition, kind) {
            return Err(ApiError::in_words(ErrorCode::ElectionNotNeeded));
        }
        Ok(())
    }

    /// Whether the partition has such a leader as the election is to give it.
    fn has_leader(&self, partition: &Partition, kind: ElectionType) -> bool {
        let leader = leader(partition);
        match kind {
            ElectionType::Preferred => {
                leader.is_some() && leader == partition.assignment.replicas.first().copied()
            }
            ElectionType::Unclean => leader
                .and_then(|leader| self.brokers.get(&leader))
                .is_some_and(|live| !live.shutting_down),
        }
    }

    /// Answers elections that were held, or could not be.
    pub(crate) fn answer_elections(&mut self, applied: &mut Applied) {
        for mut election in std::mem::take(&mut self.elections) {
            for id in std::mem::take(&mut election.open) {
                if self.todo.get(&id).is_some_and(|todo| todo.strategy.is_some()) {
                    election.open.insert(id);
                    continue;
                }
                let result = self.outcome(&id, election.kind);
                election.done.insert(id, result);
            }
            if election.open.is_empty() {
                let answer = Answer::ElectLeaders(election.done);
                applied.answers.push((election.ticket, answer));
            } else {
                self.elections.push(election);
            }
        }
    }

    fn outcome(&self, id: &TopicPartition, kind: ElectionType) -> Result<BrokerId, ApiError> {
        match self.check_election(id, kind) {
            Err(error) if error.code == ErrorCode::ElectionNotNeeded => {}
            Err(error) => return Err(error),
            Ok(()) => {
                let name = kind.strategy_name();
                let message =
                    format!("Failed to elect leader for partition {id} under strategy {name}");
                return Err(ApiError::new(kind.failure(), message));
            }
        }
        let topic = self.topics.get(&id.topic);
        let partition = topic.and_then(|topic| topic.partitions.get(&id.partition));
        partition.and_then(leader).ok_or(ApiError::code(kind.failure()))
    }

    /// Partitions that an old tool wants led by their first replica. Those that are need no election.
    pub(crate) fn learn_preferred(&mut self, partitions: BTreeSet<TopicPartition>) {
        for id in partitions {
            let topic = self.topics.get(&id.topic);
            let partition = topic.and_then(|topic| topic.partitions.get(&id.partition));
            let leader = partition.and_then(leader);
            if leader.is_some_and(|leader| !self.prefers(&id, leader)) {
                // A shutdown of the leader goes before.
                self.work(id).strategy.get_or_insert(Strategy::Preferred);
            }
        }
    }

    fn prefers(&self, id: &TopicPartition, leader: BrokerId) -> bool {
        let topic = self.topics.get(&id.topic);
        let partition = topic.and_then(|topic| topic.partitions.get(&id.partition));
        partition.is_some_and(|known| known.assignment.replicas.first() == Some(&leader))
    }

    /// Brings leaderships home where too many are elsewhere: more than `percentage` of those that a broker is to have.
    /// Looks at every partition.
    pub(crate) fn learn_rebalance(&mut self, percentage: i32) {
        let mut homes: HashMap<BrokerId, (usize, Vec<TopicPartition>)> = HashMap::new();
        for (name, topic) in self.topics.iter().filter(|(_, topic)| topic.deletion.is_none()) {
            for (index, partition) in &topic.partitions {
                let Some(&home) = partition.assignment.replicas.first() else { continue };
                let (count, elsewhere) = homes.entry(home).or_default();
                *count += 1;
                if leader(partition).is_some_and(|leader| leader != home) {
                    elsewhere.push(TopicPartition::new(Arc::clone(name), *index));
                }
            }
        }
        for (home, (count, elsewhere)) in homes {
            let is_out_of_balance =
                elsewhere.len() as f64 / count as f64 > f64::from(percentage) / 100.0;
            if !is_out_of_balance {
                continue;
            }
            for id in elsewhere {
                let isr = self.leadership(&id).map(|leadership| leadership.isr.contains(&home));
                if isr == Some(true) && self.online(&id, home) {
                    self.work(id).strategy.get_or_insert(Strategy::Preferred);
                }
            }
        }
    }
}
