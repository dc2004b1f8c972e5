//! Requests that the controller answers: from a handler into the loop of the term, and back.

use std::collections::{BTreeSet, HashMap};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId},
    topic::TopicPartition,
};
use controller::{
    alter_partition::{AlterPartition, Altered},
    answer::{Answer, Ticket},
    change::Change,
};
use tokio::sync::oneshot;

use super::{ControllerHandle, term::Command};

/// What is asked of the controller in office.
#[derive(Debug)]
pub(super) enum Ask {
    AlterPartition(AlterPartition),
    ControlledShutdown { broker: BrokerId, broker_epoch: BrokerEpoch },
}

impl Ask {
    fn into_change(self, ticket: Ticket) -> Change {
        match self {
            Ask::AlterPartition(request) => Change::AlterPartition { ticket, request },
            Ask::ControlledShutdown { broker, broker_epoch } => {
                Change::ControlledShutdown { ticket, broker, broker_epoch }
            }
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
