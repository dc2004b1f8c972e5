//! ControlledShutdown: a broker is about to stop. Its leaderships move, its replicas leave the ISR.
//! Source: `KafkaController.doControlledShutdown`.

use std::collections::BTreeSet;

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId},
};

use crate::{
    answer::{Answer, Ticket},
    controller::Controller,
    election::Strategy,
    plan::{Applied, Todo},
};

/// A shutdown that is not answered yet.
#[derive(Debug)]
pub(crate) struct Shutdown {
    ticket: Ticket,
    broker: BrokerId,
    refused: Option<ErrorCode>,
}

impl Controller {
    pub(crate) fn learn_controlled_shutdown(
        &mut self,
        ticket: Ticket,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) {
        let refused = self.begin_shutdown(broker, broker_epoch).err();
        self.shutdowns.push(Shutdown { ticket, broker, refused });
    }

    /// Partitions with a single replica stay where they are.
    fn begin_shutdown(
        &mut self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Result<(), ErrorCode> {
        let is_known = broker_epoch != BrokerEpoch::NONE;
        let Some(live) = self.brokers.get_mut(&broker) else {
            // Kafka looks up the epoch first, and fails where there is none.
            let unknown = ErrorCode::UnknownServerError;
            return Err(if is_known { unknown } else { ErrorCode::BrokerNotAvailable });
        };
        if is_known && broker_epoch < live.broker.epoch {
            return Err(ErrorCode::StaleBrokerEpoch);
        }
        live.shutting_down = true;
        for (id, _) in self.held_by(&BTreeSet::from([broker])) {
            let Some(topic) = self.topics.get(&id.topic) else { continue };
            let Some(partition) = topic.partitions.get(&id.partition) else { continue };
            let Some(leadership) = &partition.leadership else { continue };
            if topic.deletion.is_some() || partition.assignment.replicas.len() < 2 {
                continue;
            }
            if leadership.leader == broker {
                self.work(id).strategy = Some(Strategy::ControlledShutdown);
            } else {
                self.work(id).hearers.stop.insert(broker);
            }
        }
        Ok(())
    }

    /// Answers shutdowns of which all is decided that can be.
    pub(crate) fn answer_shutdowns(&mut self, applied: &mut Applied) {
        for shutdown in std::mem::take(&mut self.shutdowns) {
            let Shutdown { ticket, broker, refused } = shutdown;
            let concerns = |todo: &Todo| {
                todo.strategy == Some(Strategy::ControlledShutdown)
                    || todo.hearers.stop.contains(&broker)
            };
            let result = match refused {
                Some(error) => Err(error),
                None if self.todo.values().any(concerns) => {
                    self.shutdowns.push(shutdown);
                    continue;
                }
                None => Ok(self.led_by(broker)),
            };
            applied.answers.push((ticket, Answer::ControlledShutdown(result)));
        }
    }
}
