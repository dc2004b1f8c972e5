//! The transaction coordinator as a shard runs it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    counters::{Gauge, MetricName, Registry},
    error_code::ErrorCode,
    ids::{LeaderEpoch, ProducerEpoch, ProducerId},
    topic::TopicPartition,
};
use tracing::{error, info};
use transaction_coordinator::{
    action::{Action, AllocationId, AppendId, MarkerConsequence, Reply},
    coordinator::{TransactionConfig, TransactionCoordinator},
    event::{Event, Now, TransactionResult},
    query::Queues,
    records::TransactionRecord,
};

use crate::{
    log::{Loaded, LogRecord},
    shard::{Append, AppendFailure, Coordinator, Step, Steps, Time},
};

/// What Kafka logs of transactions under.
const LOGGER: &str = "kafka.coordinator.transaction.TransactionCoordinator";

/// The transactional ids of one partition of `__transaction_state`.
#[derive(Debug)]
pub struct Transactions {
    coordinator: TransactionCoordinator,
    /// The protocol's code for an append that failed.
    code: fn(&AppendFailure) -> ErrorCode,
    /// `request.timeout.ms`.
    append_timeout: Duration,
    gauges: TransactionGauges,
    /// What of the gauges is this coordinator's.
    queues: Queues,
    actions: Vec<Action>,
}

/// What the coordinators of a broker show, together, under Kafka's names. Source: `TransactionMarkerChannelManager`.
#[derive(Clone, Debug)]
pub struct TransactionGauges {
    unknown_destinations: Arc<Gauge>,
    log_appends: Arc<Gauge>,
}

impl TransactionGauges {
    /// The gauges, in a registry.
    pub fn of_broker(registry: &Registry) -> TransactionGauges {
        let gauge = |name| {
            let package = "kafka.coordinator.transaction";
            registry.gauge(MetricName::new(package, "TransactionMarkerChannelManager", name))
        };
        TransactionGauges {
            unknown_destinations: gauge("UnknownDestinationQueueSize"),
            log_appends: gauge("LogAppendRetryQueueSize"),
        }
    }

    /// One coordinator's part has changed.
    fn change(&self, from: Queues, to: Queues) {
        let by = |from: usize, to: usize| to as i64 - from as i64;
        self.unknown_destinations.add(by(from.unknown_destination, to.unknown_destination));
        self.log_appends.add(by(from.log_append, to.log_append));
    }
}

/// What a transaction coordinator has done by the broker.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Take a producer id, and report it.
    AllocateProducerId(AllocationId),
    /// Write markers, and report how it went.
    SendMarkers(Markers),
}

/// Markers to write.
#[derive(Clone, Debug)]
pub struct Markers {
    /// For the report.
    pub transactional_id: Arc<str>,
    /// Whose transaction ends.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: ProducerEpoch,
    /// The coordinator's.
    pub coordinator_epoch: LeaderEpoch,
    /// How it ends.
    pub result: TransactionResult,
    /// Where.
    pub partitions: Vec<TopicPartition>,
}

impl Transactions {
    /// No ids yet. `code` gives the protocol's code for an append that failed.
    pub fn new(
        config: TransactionConfig,
        epoch: LeaderEpoch,
        append_timeout: Duration,
        code: fn(&AppendFailure) -> ErrorCode,
        gauges: TransactionGauges,
    ) -> Transactions {
        let coordinator = TransactionCoordinator::new(epoch, config);
        let (queues, actions) = (Queues::default(), Vec::new());
        Transactions { coordinator, code, append_timeout, gauges, queues, actions }
    }

    /// The ids themselves, to ask.
    pub fn coordinator(&self) -> &TransactionCoordinator {
        &self.coordinator
    }

    fn steps(&mut self, steps: &mut Steps<Transactions>) {
        let queues = self.coordinator.queues();
        if queues != self.queues {
            self.gauges.change(self.queues, queues);
            self.queues = queues;
        }
        for action in self.actions.drain(..) {
            let step = match action {
                Action::Append { append, records, timeout } => {
                    let each = records.iter().map(|record| LogRecord {
                        key: record.encoded_key(),
                        value: record.encoded_value(),
                    });
                    Step::Append(Append {
                        append: append.0,
                        records: each.collect(),
                        transaction: None,
                        timeout: timeout.unwrap_or(self.append_timeout),
                    })
                }
                Action::Reply(reply, answer) => Step::Reply(reply.0, answer),
                Action::AllocateProducerId { allocation } => {
                    Step::Effect(Effect::AllocateProducerId(allocation))
                }
                Action::SendMarkers {
                    transactional_id,
                    producer_id,
                    producer_epoch,
                    coordinator_epoch,
                    result,
                    partitions,
                } => Step::Effect(Effect::SendMarkers(Markers {
                    transactional_id,
                    producer_id,
                    producer_epoch,
                    coordinator_epoch,
                    result,
                    partitions,
                })),
                Action::MarkerRefused { transactional_id, partition, error, consequence } => {
                    log_refusal(&transactional_id, &partition, error, consequence);
                    continue;
                }
            };
            steps.push_back(step);
        }
    }
}

fn log_refusal(
    transactional_id: &str,
    partition: &TopicPartition,
    code: ErrorCode,
    consequence: MarkerConsequence,
) {
    match consequence {
        MarkerConsequence::Stops => {
            info!(target: LOGGER, transactional_id, %partition, %code, "a marker was refused; no more are sent for the transaction");
        }
        MarkerConsequence::Retries => {
            error!(target: LOGGER, transactional_id, %partition, %code, "a marker was refused; it is sent again");
        }
    }
}

fn now(time: Time) -> Now {
    Now { monotonic: time.now, wall: time.wall_clock }
}

impl Coordinator for Transactions {
    type Event = Event;
    type Reply = Reply;
    type Effect = Effect;

    fn load(&mut self, loaded: &Loaded<'_>, _: Time) -> Result<(), String> {
        if let Loaded::Record { record, .. } = loaded {
            let decoded = TransactionRecord::decode(record.key, record.value);
            let decoded = decoded.map_err(|error| error.to_string())?;
            self.coordinator.replay(&decoded);
        }
        Ok(())
    }

    fn loaded(&mut self, time: Time, steps: &mut Steps<Transactions>) {
        self.coordinator.loaded(now(time), &mut self.actions);
        self.steps(steps);
    }

    fn on_event(&mut self, event: Event, time: Time, steps: &mut Steps<Transactions>) {
        self.coordinator.on_event(event, now(time), &mut self.actions);
        self.steps(steps);
    }

    fn on_appended(
        &mut self,
        append: u64,
        result: Result<(), AppendFailure>,
        time: Time,
        steps: &mut Steps<Transactions>,
    ) {
        let error = result.map_or_else(|failure| (self.code)(&failure), |()| ErrorCode::None);
        let event = Event::Appended { append: AppendId(append), error };
        self.on_event(event, time, steps);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.coordinator.next_wake()
    }

    fn on_wake(&mut self, time: Time, steps: &mut Steps<Transactions>) {
        self.coordinator.on_wake(now(time), &mut self.actions);
        self.steps(steps);
    }

    fn resign(&mut self, time: Time, steps: &mut Steps<Transactions>) {
        self.on_event(Event::Resign, time, steps);
    }
}
