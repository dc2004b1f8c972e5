//! Requests that the controller answers: from a handler into the loop of the term, and back.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId},
    topic::TopicPartition,
};
use controller::{
    alter_partition::{AlterPartition, Altered},
    answer::{Answer, Ticket},
    assignment::Assignment,
    change::Change,
    elect_leaders::ElectionType,
    error::ApiError,
    reassignment::{Moves, Reassigned},
};
use metadata::snapshot::ClusterSnapshot;
use tokio::sync::oneshot;

use super::{ControllerHandle, term::Command};

/// What became of elections, partition by partition.
pub type Elections = BTreeMap<TopicPartition, Result<(), ApiError>>;

/// What is asked of the controller in office.
#[derive(Debug)]
pub(super) enum Ask {
    AlterPartition(AlterPartition),
    ControlledShutdown { broker: BrokerId, broker_epoch: BrokerEpoch },
    ElectLeaders { kind: ElectionType, only: Option<BTreeSet<TopicPartition>> },
    Reassign(Moves),
}

impl Ask {
    fn into_change(self, ticket: Ticket) -> Change {
        match self {
            Ask::AlterPartition(request) => Change::AlterPartition { ticket, request },
            Ask::ControlledShutdown { broker, broker_epoch } => {
                Change::ControlledShutdown { ticket, broker, broker_epoch }
            }
            Ask::ElectLeaders { kind, only } => Change::ElectLeaders { ticket, kind, only },
            Ask::Reassign(moves) => Change::Reassign { ticket, moves },
        }
    }
}

/// Requests of one term that are not answered yet. Those that are left at its end hear that it is over.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    last: u64,
    replies: HashMap<Ticket, oneshot::Sender<Answer>>,
}

impl Waiting {
    /// What the controller learns of the request.
    pub(super) fn take(&mut self, ask: Ask, reply: oneshot::Sender<Answer>) -> Change {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.replies.insert(ticket, reply);
        ask.into_change(ticket)
    }

    /// Answers.
    pub(super) fn answer(&mut self, answers: Vec<(Ticket, Answer)>) {
        for (ticket, answer) in answers {
            if let Some(reply) = self.replies.remove(&ticket) {
                // Who asked may be gone; what was done stays done.
                let _ = reply.send(answer);
            }
        }
    }
}

impl ControllerHandle {
    /// Changes the ISR of partitions for their leader. Answered once the states are written.
    pub async fn alter_partition(&self, request: AlterPartition) -> Altered {
        match self.ask(Ask::AlterPartition(request)).await? {
            Answer::AlterPartition(altered) => altered,
            _ => Err(ErrorCode::UnknownServerError),
        }
    }

    /// Prepares for the stop of a broker: moves its leaderships, and takes its replicas out of the ISRs. Gives the
    /// partitions that it still leads though others hold them too. An epoch of -1 is not checked.
    pub async fn controlled_shutdown(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Result<BTreeSet<TopicPartition>, ErrorCode> {
        match self.ask(Ask::ControlledShutdown { broker, broker_epoch }).await {
            Ok(Answer::ControlledShutdown(led)) => led,
            Ok(_) => Err(ErrorCode::UnknownServerError),
            // Kafka's exception for it is that of a controller that has been replaced.
            Err(_) => Err(ErrorCode::StaleControllerEpoch),
        }
    }

    /// Holds elections for these partitions, or for all: then those that need none are not spoken of. Answered once this
    /// broker knows the new leaders, or with REQUEST_TIMED_OUT for those that it does not know in time.
    pub async fn elect_leaders(
        &self,
        kind: ElectionType,
        only: Option<BTreeSet<TopicPartition>>,
        timeout_ms: i32,
    ) -> Elections {
        let began = clock::now();
        let asked = only.clone();
        let not_controller = || Err(ApiError::code(ErrorCode::NotController));
        let Ok(Answer::ElectLeaders(elected)) = self.ask(Ask::ElectLeaders { kind, only }).await
        else {
            let asked = asked.unwrap_or_else(|| partitions(&self.inner.metadata.snapshot()));
            return asked.into_iter().map(|partition| (partition, not_controller())).collect();
        };
        let is_known = |cluster: &ClusterSnapshot, id: &TopicPartition, leader: BrokerId| {
            let known = cluster.partition(&id.topic, id.partition);
            known.is_some_and(|known| known.leader == leader)
        };
        let all_known = |cluster: &ClusterSnapshot| {
            elected.iter().all(|(id, result)| match result {
                Ok(leader) => is_known(cluster, id, *leader),
                Err(_) => true,
            })
        };
        let spent = i32::try_from((clock::now() - began).as_millis()).unwrap_or(i32::MAX);
        self.wait_for_metadata(timeout_ms.saturating_sub(spent), &all_known).await;
        let cluster = self.inner.metadata.snapshot();
        let result = |(id, result): (TopicPartition, Result<BrokerId, ApiError>)| {
            let result = match result {
                Ok(leader) if is_known(&cluster, &id, leader) => Ok(()),
                Ok(_) => Err(ApiError::code(ErrorCode::RequestTimedOut)),
                Err(error) => Err(error),
            };
            (id, result)
        };
        elected.into_iter().map(result).collect()
    }

    /// Moves partitions, or ends their moves. Answered once the orders are written; the moves go on.
    pub async fn alter_partition_reassignments(
        &self,
        moves: Moves,
    ) -> Result<Reassigned, ErrorCode> {
        match self.ask(Ask::Reassign(moves)).await? {
            Answer::Reassign(reassigned) => Ok(reassigned),
            _ => Err(ErrorCode::UnknownServerError),
        }
    }

    /// The moves that are going on, of all partitions or of these.
    pub async fn list_partition_reassignments(
        &self,
        only: Option<BTreeSet<TopicPartition>>,
    ) -> Result<BTreeMap<TopicPartition, Assignment>, ErrorCode> {
        self.ask_term(|reply| Command::Reassignments { only, reply }).await
    }

    /// Takes the next block of producer ids for a broker.
    pub async fn allocate_producer_ids(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Result<Range<i64>, ErrorCode> {
        self.ask_term(|reply| Command::ProducerIds { broker, broker_epoch, reply }).await?
    }

    async fn ask(&self, ask: Ask) -> Result<Answer, ErrorCode> {
        self.ask_term(|reply| Command::Ask { ask, reply }).await
    }

    /// Hands a command to the present term, and waits for its answer. NOT_CONTROLLER where there is no term, or it ends
    /// meanwhile: what was asked may have been done.
    pub(super) async fn ask_term<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, ErrorCode> {
        let mut office = self.inner.office.clone();
        let term = *office.borrow_and_update();
        if term.is_none() {
            return Err(ErrorCode::NotController);
        }
        let (reply, answer) = oneshot::channel();
        let asked = async {
            // Neither end of the channels fails while the broker runs but with the term.
            self.inner.commands.send(command(reply)).await.map_err(|_| ErrorCode::NotController)?;
            answer.await.map_err(|_| ErrorCode::NotController)
        };
        tokio::select! {
            biased;
            answered = asked => answered,
            _ = office.wait_for(|now| *now != term) => Err(ErrorCode::NotController),
        }
    }
}

/// All partitions that this broker knows of.
fn partitions(cluster: &ClusterSnapshot) -> BTreeSet<TopicPartition> {
    let each = cluster.topics().flat_map(|topic| {
        let id = |(index, _)| TopicPartition::new(Arc::clone(&topic.name), index);
        topic.partitions().map(id)
    });
    each.collect()
}
