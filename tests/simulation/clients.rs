//! Clients: producers of every kind, a transactional one with a coordinator that is reduced to its markers, consumers.
//!
//! The coordinator is not simulated: it never fails, and decides at once; all that can happen is that it moves. What it
//! sends, and what leaders ask it, takes time like everything else.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{BrokerId, Offset, ProducerEpoch, ProducerId, Timestamp},
    topic::Uuid,
};
use record::{
    build::BatchBuilder,
    compression::Compression,
    control::{EndTransactionMarker, TransactionResult, marker_batch},
};

use crate::{
    bugs::Bug,
    copies::{Content, Stored, parse},
    history::Sent,
    network::{Consume, Consumed, Message, Node, Origin, Produce, RequestId},
    world::{Envelope, Event, IN_SYNC_MIN, Millis, TOPIC, World},
};

/// How long a client waits between two batches at most.
const PAUSE_MAX: Millis = 160;
/// How often a batch of a transaction is sent before the transaction is aborted.
const ATTEMPTS_MAX: u32 = 8;
/// How late a marker of a former coordinator can be.
const LATE_MARKER_MAX: Millis = 2500;

/// All clients.
#[derive(Default)]
pub struct Clients {
    /// By their numbers.
    pub all: Vec<Client>,
    /// The transactions, in the order of their beginnings.
    pub transactions: Vec<Transaction>,
    /// The epoch of the transaction coordinator, which is the leader's of its partition.
    coordinator_epoch: i32,
    /// Whether the coordinator moves while the next marker is on its way.
    coordinator_moves: bool,
    next_value: u64,
    next_producer: i64,
}

/// A client.
pub enum Client {
    /// Sends, and sends nothing again.
    Plain {
        /// Whether acks=all is asked for; else acks=1.
        acks_all: bool,
        /// The request that is under way.
        asked: Option<RequestId>,
        /// How many batches were acknowledged.
        acknowledged: u64,
    },
    /// Sends again until it hears something.
    Idempotent(Idempotent),
    /// Sends in transactions.
    Transactional(Transactional),
    /// Reads all partitions.
    Consumer(Consumer),
}

/// A producer with an id.
pub struct Idempotent {
    /// The topic that it writes to with this id.
    topic_id: Option<Uuid>,
    producer: ProducerId,
    sequences: BTreeMap<i32, i32>,
    /// What is to be stored: the partition, the values.
    batch: Option<(i32, Vec<u64>)>,
    asked: Option<RequestId>,
    /// How many batches were acknowledged.
    pub acknowledged: u64,
}

/// A producer with a transactional id.
pub struct Transactional {
    producer: ProducerId,
    epoch: ProducerEpoch,
    /// The topic that it writes to in this epoch.
    topic_id: Option<Uuid>,
    sequences: BTreeMap<i32, i32>,
    /// Its transaction, by its place in `Clients::transactions`.
    current: Option<usize>,
    /// Batches still to be sent in it.
    left: u32,
    batch: Option<(i32, Vec<u64>)>,
    attempts: u32,
    /// Partitions whose markers are not acknowledged yet.
    markers: BTreeSet<i32>,
    asked: Option<RequestId>,
    /// How many transactions have ended.
    pub ended: u64,
}

/// A transaction.
pub struct Transaction {
    /// The topic, as its producer knew it in the beginning.
    pub topic_id: Option<Uuid>,
    /// Its producer.
    pub producer: ProducerId,
    /// The producer's epoch in it.
    pub epoch: ProducerEpoch,
    /// Its partitions, each with the values that were acknowledged.
    pub partitions: BTreeMap<i32, Vec<u64>>,
    /// All of its values, acknowledged or not.
    pub values: BTreeSet<u64>,
    /// How it ends; none while it goes on.
    pub result: Option<TransactionResult>,
    /// Whether all of its markers are acknowledged.
    pub is_complete: bool,
}

/// Reads all partitions, from any replica.
pub struct Consumer {
    /// Whether it reads committed records only.
    pub committed: bool,
    positions: BTreeMap<(Uuid, i32), Offset>,
    asked: Option<(RequestId, Uuid, i32)>,
}

impl Idempotent {
    /// Takes another id, and gives up what it has not stored.
    fn begin_anew(&mut self, producer: ProducerId) {
        self.producer = producer;
        self.batch = None;
        self.sequences.clear();
    }
}

impl Clients {
    /// Whether a partition is part of a producer's transaction now.
    pub fn is_in_transaction(
        &self,
        producer: ProducerId,
        epoch: ProducerEpoch,
        partition: i32,
    ) -> bool {
        self.transactions.iter().any(|one| {
            one.producer == producer
                && one.epoch == epoch
                && one.result.is_none()
                && one.partitions.contains_key(&partition)
        })
    }

    /// Whether a transactional client waits for the answer.
    pub fn waits_for(&self, node: Node, request: RequestId) -> bool {
        let Node::Client(client) = node else { return false };
        match self.all.get(client) {
            Some(Client::Transactional(producer)) => producer.asked == Some(request),
            _ => false,
        }
    }

    fn new_producer(&mut self) -> ProducerId {
        self.next_producer += 1;
        ProducerId(self.next_producer)
    }

    fn new_values(&mut self, count: u64) -> Vec<u64> {
        let first = self.next_value;
        self.next_value += count;
        (first..self.next_value).collect()
    }

    fn transactional(&mut self, client: usize) -> Option<&mut Transactional> {
        match self.all.get_mut(client) {
            Some(Client::Transactional(producer)) => Some(producer),
            _ => None,
        }
    }
}

/// A batch of values.
fn batch(
    now: Timestamp,
    values: &[u64],
    producer: Option<(ProducerId, ProducerEpoch, i32)>,
    in_transaction: bool,
) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None);
    if let Some((id, epoch, sequence)) = producer {
        builder = builder.producer(id, epoch, sequence);
    }
    if in_transaction {
        builder = builder.transactional();
    }
    for value in values {
        let value = value.to_be_bytes();
        builder.append(now, None, Some(&value), &[]).expect("a small record fits");
    }
    builder.finish()
}

impl World {
    /// Makes the clients, and lets them begin.
    pub fn begin_clients(&mut self) {
        let clients = &mut self.clients;
        let (first, second) = (clients.new_producer(), clients.new_producer());
        let plain = |acks_all| Client::Plain { acks_all, asked: None, acknowledged: 0 };
        let consumer = |committed| {
            Client::Consumer(Consumer { committed, positions: BTreeMap::new(), asked: None })
        };
        clients.all = vec![
            plain(true),
            plain(true),
            plain(false),
            Client::Idempotent(Idempotent {
                topic_id: None,
                producer: first,
                sequences: BTreeMap::new(),
                batch: None,
                asked: None,
                acknowledged: 0,
            }),
            Client::Transactional(Transactional {
                producer: second,
                epoch: ProducerEpoch(0),
                topic_id: None,
                sequences: BTreeMap::new(),
                current: None,
                left: 0,
                batch: None,
                attempts: 0,
                markers: BTreeSet::new(),
                asked: None,
                ended: 0,
            }),
            consumer(false),
            consumer(true),
        ];
        for client in 0..self.clients.all.len() {
            self.client_after(client, 400);
        }
    }

    fn client_after(&mut self, client: usize, at_most: Millis) {
        let delay = self.random.between(1, at_most);
        self.after(delay, Event::Client(client));
    }

    /// The leader of a partition, as some broker knows it.
    fn leader_of(&mut self, partition: i32) -> Option<BrokerId> {
        let running: Vec<BrokerId> = self.running();
        let asked = self.random.pick(&running)?;
        let snapshot = self.process(asked).metadata.snapshot();
        let leader = snapshot.partition(TOPIC, partition)?.leader;
        (leader != BrokerId::NONE).then_some(leader)
    }

    /// The id of the topic, as some broker knows it.
    fn topic_id(&mut self) -> Option<Uuid> {
        let running: Vec<BrokerId> = self.running();
        let asked = self.random.pick(&running)?;
        self.process(asked).metadata.snapshot().topic(TOPIC)?.id
    }

    /// The brokers that run.
    pub fn running(&self) -> Vec<BrokerId> {
        let runs = |id: &BrokerId| self.brokers[id].process.is_some();
        self.brokers.keys().copied().filter(runs).collect()
    }

    fn random_partition(&mut self) -> i32 {
        let partitions = self.partitions.clone();
        self.random.pick(&partitions).unwrap_or(0)
    }

    /// Lets a client do what comes next.
    pub fn act_as_client(&mut self, client: usize) {
        match &self.clients.all[client] {
            Client::Plain { asked: None, acks_all, .. } => self.send_plain(client, *acks_all),
            Client::Idempotent(Idempotent { asked: None, .. }) => self.send_idempotent(client),
            Client::Transactional(Transactional { asked: None, .. }) => {
                self.send_transactional(client);
            }
            Client::Consumer(Consumer { asked: None, .. }) => self.fetch_as_consumer(client),
            _ => {}
        }
    }

    fn send_produce(
        &mut self,
        client: usize,
        produce: Produce,
        values: Vec<u64>,
    ) -> Option<RequestId> {
        let partition = produce.partition;
        let leader = self.leader_of(partition)?;
        let request =
            self.ask(Node::Client(client), Node::Broker(leader), Message::Produce(produce));
        self.history.sent.insert(request, Sent { partition, values });
        Some(request)
    }

    fn send_plain(&mut self, client: usize, acks_all: bool) {
        let now = self.wall_clock();
        let partition = self.random_partition();
        let count = self.random.between(1, 3);
        let values = self.clients.new_values(count);
        let batch = batch(now, &values, None, false);
        let produce = Produce { partition, batch, acks_all, origin: Origin::Client };
        let sent = self.send_produce(client, produce, values);
        if let Client::Plain { asked, .. } = &mut self.clients.all[client] {
            *asked = sent;
        }
        if sent.is_none() {
            self.client_after(client, PAUSE_MAX);
        }
    }

    fn send_idempotent(&mut self, client: usize) {
        let (now, topic_id) = (self.wall_clock(), self.topic_id());
        let (partition, count) = (self.random_partition(), self.random.between(1, 3));
        let values = self.clients.new_values(count);
        let new_producer = self.clients.new_producer();
        let Client::Idempotent(producer) = &mut self.clients.all[client] else { return };
        if topic_id > producer.topic_id {
            producer.begin_anew(new_producer);
            producer.topic_id = topic_id;
        }
        let (partition, values) = producer.batch.get_or_insert((partition, values)).clone();
        let sequence = producer.sequences.get(&partition).copied().unwrap_or(0);
        let with = (producer.producer, ProducerEpoch(0), sequence);
        let batch = batch(now, &values, Some(with), false);
        let produce = Produce { partition, batch, acks_all: true, origin: Origin::Client };
        let sent = self.send_produce(client, produce, values);
        if let Client::Idempotent(producer) = &mut self.clients.all[client] {
            producer.asked = sent;
        }
        if sent.is_none() {
            self.client_after(client, PAUSE_MAX);
        }
    }

    fn send_transactional(&mut self, client: usize) {
        let (now, topic_id) = (self.wall_clock(), self.topic_id());
        let (partition, count) = (self.random_partition(), self.random.between(1, 2));
        let (length, aborts) = (self.random.between(1, 4), self.random.chance(350));
        let clients = &mut self.clients;
        let Some(producer) = clients.transactional(client) else { return };
        if !producer.markers.is_empty() {
            return self.send_marker(client);
        }
        if producer.current.is_some() && producer.left == 0 && producer.batch.is_none() {
            let former = producer.topic_id;
            let aborts = aborts || self.is_of_former_topic(former);
            let result = if aborts { TransactionResult::Abort } else { TransactionResult::Commit };
            return self.end_transaction(client, result);
        }
        if producer.current.is_none() {
            if topic_id > producer.topic_id {
                // What comes late is refused: the new topic's logs do not know what came before.
                producer.epoch = ProducerEpoch(producer.epoch.0 + 1);
                producer.sequences.clear();
                producer.topic_id = topic_id;
            }
            let (id, epoch, topic_id) = (producer.producer, producer.epoch, producer.topic_id);
            producer.left = u32::try_from(length).unwrap_or(1);
            let number = clients.transactions.len();
            clients.transactions.push(Transaction {
                topic_id,
                producer: id,
                epoch,
                partitions: BTreeMap::new(),
                values: BTreeSet::new(),
                result: None,
                is_complete: false,
            });
            if let Some(producer) = clients.transactional(client) {
                producer.current = Some(number);
            }
        }
        let values = clients.new_values(count);
        let Some(producer) = clients.transactional(client) else { return };
        if producer.batch.is_none() {
            producer.batch = Some((partition, values));
            producer.attempts = 0;
            producer.left -= 1;
        }
        let Some((partition, values)) = producer.batch.clone() else { return };
        producer.attempts += 1;
        let sequence = producer.sequences.get(&partition).copied().unwrap_or(0);
        let with = (producer.producer, producer.epoch);
        let current = producer.current;
        if let Some(transaction) = current.and_then(|at| clients.transactions.get_mut(at)) {
            transaction.partitions.entry(partition).or_default();
            transaction.values.extend(values.iter().copied());
        }
        let batch = batch(now, &values, Some((with.0, with.1, sequence)), true);
        let origin = Origin::Transaction(with, sequence);
        let produce = Produce { partition, batch, acks_all: true, origin };
        let sent = self.send_produce(client, produce, values);
        if let Some(producer) = self.clients.transactional(client) {
            producer.asked = sent;
        }
        if sent.is_none() {
            self.client_after(client, PAUSE_MAX);
        }
    }

    /// The coordinator decides; markers follow.
    fn end_transaction(&mut self, client: usize, result: TransactionResult) {
        let clients = &mut self.clients;
        let Some(producer) = clients.transactional(client) else { return };
        let Some(number) = producer.current else { return };
        let is_uncertain = producer.batch.take().is_some();
        if is_uncertain {
            // As InitProducerId does: the markers have the next epoch, so that what comes late is refused.
            producer.epoch = ProducerEpoch(producer.epoch.0 + 1);
            producer.sequences.clear();
        }
        let transaction = &mut clients.transactions[number];
        transaction.result = Some(result);
        let partitions: BTreeSet<i32> = transaction.partitions.keys().copied().collect();
        if let Some(producer) = clients.transactional(client) {
            producer.markers = partitions;
        }
        self.note(format_args!("transaction {number} ends with {result:?}"));
        self.client_after(client, PAUSE_MAX);
    }

    fn send_marker(&mut self, client: usize) {
        let now = self.wall_clock();
        let bug = self.options.bug;
        let clients = &mut self.clients;
        let Some(producer) = clients.transactional(client) else { return };
        let Some(partition) = producer.markers.first().copied() else { return };
        let (id, epoch, current) = (producer.producer, producer.epoch, producer.current);
        let Some(transaction) = current.and_then(|at| clients.transactions.get(at)) else { return };
        let mut result = transaction.result.unwrap_or(TransactionResult::Abort);
        let is_last = transaction.partitions.keys().next_back() == Some(&partition);
        if bug == Some(Bug::OneMarkerIsWrong) && is_last && transaction.partitions.len() > 1 {
            result = match result {
                TransactionResult::Abort => TransactionResult::Commit,
                TransactionResult::Commit => TransactionResult::Abort,
            };
        }
        let mut coordinator_epoch = clients.coordinator_epoch;
        let marker = |coordinator_epoch| {
            let content = EndTransactionMarker { result, coordinator_epoch };
            let batch = marker_batch(id, epoch, now, content);
            Produce { partition, batch, acks_all: true, origin: Origin::Coordinator }
        };
        if std::mem::take(&mut clients.coordinator_moves) {
            // The next coordinator does not know which markers are written.
            let partitions = transaction.partitions.keys().copied().collect();
            if let Some(producer) = clients.transactional(client) {
                producer.markers = partitions;
            }
            let late = marker(coordinator_epoch);
            coordinator_epoch += 1;
            self.clients.coordinator_epoch = coordinator_epoch;
            self.note(format_args!(
                "FAULT the coordinator moves; its marker for {partition} is late"
            ));
            self.send_late_marker(client, late);
        }
        let produce = marker(coordinator_epoch);
        let sent = self.send_produce(client, produce, Vec::new());
        if let Some(producer) = self.clients.transactional(client) {
            producer.asked = sent;
        }
        if sent.is_none() {
            self.client_after(client, PAUSE_MAX);
        }
    }

    /// The transaction coordinator is to move at the worst time.
    pub fn move_coordinator(&mut self) {
        self.clients.coordinator_moves = true;
    }

    fn send_late_marker(&mut self, client: usize, produce: Produce) {
        let Some(leader) = self.leader_of(produce.partition) else { return };
        let (from, to) = (Node::Client(client), Node::Broker(leader));
        let Some(to_process) = self.process_of(to) else { return };
        let (request, delay) = (self.new_request(), self.random.between(1, LATE_MARKER_MAX));
        let message = Message::Produce(produce);
        let envelope = Envelope { from, from_process: 0, to, to_process, request, message };
        self.after(delay, Event::Deliver(Box::new(envelope)));
    }

    fn fetch_as_consumer(&mut self, client: usize) {
        let partition = self.random_partition();
        let running = self.running();
        let asked = self.random.pick(&running);
        let topic_id = self.topic_id();
        let Client::Consumer(consumer) = &mut self.clients.all[client] else { return };
        let sent = asked.zip(topic_id).map(|(broker, topic_id)| {
            let position = consumer.positions.get(&(topic_id, partition)).copied();
            let (offset, committed) = (position.unwrap_or(Offset::ZERO), consumer.committed);
            (broker, Consume { topic_id, partition, offset, committed })
        });
        let sent = sent.map(|(broker, consume)| {
            let message = Message::Consume(consume);
            let request = self.ask(Node::Client(client), Node::Broker(broker), message);
            (request, consume.topic_id, partition)
        });
        if let Client::Consumer(consumer) = &mut self.clients.all[client] {
            consumer.asked = sent;
        }
        if sent.is_none() {
            self.client_after(client, PAUSE_MAX);
        }
    }

    /// A client does not wait any longer.
    pub fn client_gives_up(&mut self, client: usize, request: RequestId) {
        let timed_out = Message::Produced(Err(ErrorCode::RequestTimedOut));
        self.client_is_answered(client, Node::Client(client), request, timed_out);
    }

    /// A client is answered.
    pub fn client_is_answered(
        &mut self,
        client: usize,
        from: Node,
        request: RequestId,
        message: Message,
    ) {
        let result = match &message {
            Message::Produced(Err(
                ErrorCode::OutOfOrderSequenceNumber | ErrorCode::InvalidProducerEpoch,
            )) if self.is_out_of_office(client, from) => Err(ErrorCode::NotLeaderOrFollower),
            Message::Produced(result) => *result,
            _ => Err(ErrorCode::UnknownServerError),
        };
        match &mut self.clients.all[client] {
            Client::Plain { asked, acknowledged, .. } if *asked == Some(request) => {
                *asked = None;
                *acknowledged += u64::from(result.is_ok());
            }
            Client::Idempotent(producer) if producer.asked == Some(request) => {
                producer.asked = None;
                self.idempotent_is_answered(client, result);
            }
            Client::Transactional(producer) if producer.asked == Some(request) => {
                producer.asked = None;
                self.transactional_is_answered(client, result);
            }
            Client::Consumer(consumer)
                if consumer.asked.is_some_and(|(asked, ..)| asked == request) =>
            {
                let asked = consumer.asked.take();
                if let (Some((_, topic_id, partition)), Message::Consumed(Ok(consumed))) =
                    (asked, message)
                {
                    self.take_consumed((client, from), (topic_id, partition), &consumed);
                }
            }
            _ => return,
        }
        self.client_after(client, PAUSE_MAX);
    }

    /// Whether who answers does not lead the partition that the client writes to, whatever it believes: then it may not
    /// have what came before.
    fn is_out_of_office(&self, client: usize, from: Node) -> bool {
        let batch = match &self.clients.all[client] {
            Client::Idempotent(producer) => &producer.batch,
            Client::Transactional(producer) => &producer.batch,
            _ => return false,
        };
        let leader = batch.as_ref().and_then(|(partition, _)| self.leader_in_office(*partition));
        leader.map(Node::Broker) != Some(from)
    }

    fn idempotent_is_answered(&mut self, client: usize, result: Result<Offset, ErrorCode>) {
        let new_producer = self.clients.new_producer();
        let Client::Idempotent(producer) = &self.clients.all[client] else { return };
        let is_of_former = self.is_of_former_topic(producer.topic_id);
        let Client::Idempotent(producer) = &mut self.clients.all[client] else { return };
        match result {
            Ok(_) => {
                producer.acknowledged += 1;
                let Some((partition, values)) = producer.batch.take() else { return };
                let sent = i32::try_from(values.len()).unwrap_or(0);
                *producer.sequences.entry(partition).or_default() += sent;
            }
            Err(
                error @ (ErrorCode::OutOfOrderSequenceNumber | ErrorCode::InvalidProducerEpoch),
            ) => {
                producer.begin_anew(new_producer);
                if !is_of_former {
                    self.is_refused_in_order(client, error);
                }
            }
            Err(_) => {}
        }
    }

    fn transactional_is_answered(&mut self, client: usize, result: Result<Offset, ErrorCode>) {
        let clients = &mut self.clients;
        let Some(producer) = clients.transactional(client) else { return };
        let current = producer.current;
        if producer.batch.is_none() {
            if result.is_ok() {
                producer.markers.pop_first();
                if producer.markers.is_empty() {
                    producer.current = None;
                    producer.ended += 1;
                    if let Some(number) = current {
                        clients.transactions[number].is_complete = true;
                    }
                }
            }
            return;
        }
        let topic_id = producer.topic_id;
        let gives_up = producer.attempts >= ATTEMPTS_MAX;
        match result {
            Ok(_) => {
                let Some((partition, values)) = producer.batch.take() else { return };
                let sent = i32::try_from(values.len()).unwrap_or(0);
                *producer.sequences.entry(partition).or_default() += sent;
                if let Some(number) = current {
                    let partitions = &mut clients.transactions[number].partitions;
                    partitions.entry(partition).or_default().extend(values);
                }
            }
            Err(
                error @ (ErrorCode::OutOfOrderSequenceNumber | ErrorCode::InvalidProducerEpoch),
            ) => match self.is_of_former_topic(topic_id) {
                true => self.end_transaction(client, TransactionResult::Abort),
                false => self.is_refused_in_order(client, error),
            },
            Err(_) if gives_up => self.end_transaction(client, TransactionResult::Abort),
            Err(_) => {}
        }
    }

    /// Whether the topic that a producer writes to by its name is another one by now, or about to go: what was sent to it
    /// late may have come to the new one first, which does not know what came before.
    fn is_of_former_topic(&self, topic_id: Option<Uuid>) -> bool {
        !self.must_be_kept() || self.topic_in_office() != topic_id
    }

    fn is_refused_in_order(&mut self, client: usize, error: ErrorCode) {
        let what = format!("client {client} was refused with {error} although it sends in order");
        self.violate("once", what);
    }

    fn take_consumed(
        &mut self,
        (client, broker): (usize, Node),
        (topic_id, partition): (Uuid, i32),
        consumed: &Consumed,
    ) {
        let Client::Consumer(consumer) = &self.clients.all[client] else { return };
        let of = (topic_id, partition);
        let (committed, from) =
            (consumer.committed, consumer.positions.get(&of).copied().unwrap_or(Offset::ZERO));
        let read = parse(&consumed.records);
        let seen: Vec<(Offset, Stored)> =
            read.iter().copied().filter(|(offset, _)| *offset >= from).collect();
        self.check_observed(client, of, from, &seen);
        self.check_incarnation((client, broker), of, &seen);
        if committed {
            let visible = without_aborted(&seen, &consumed.aborted);
            self.check_committed(client, partition, &visible);
        }
        if let (Some((last, _)), Client::Consumer(consumer)) =
            (seen.last(), &mut self.clients.all[client])
        {
            consumer.positions.insert(of, last.plus(1));
        }
    }

    /// How many in-sync copies acks=all stands for.
    pub fn copies_promised(&self) -> usize {
        IN_SYNC_MIN
    }
}

/// What a reader of committed records is left with. Source: `CompletedFetch.nextFetchedRecord`.
pub fn without_aborted(
    records: &[(Offset, Stored)],
    aborted: &[(ProducerId, Offset)],
) -> Vec<(Offset, u64)> {
    let mut open: BTreeSet<ProducerId> = BTreeSet::new();
    let mut aborted: Vec<(Offset, ProducerId)> =
        aborted.iter().map(|(producer, first)| (*first, *producer)).collect();
    aborted.sort_unstable();
    let mut aborted = aborted.into_iter().peekable();
    let mut visible = Vec::new();
    for (offset, stored) in records {
        while let Some((_, producer)) = aborted.next_if(|(first, _)| first <= offset) {
            open.insert(producer);
        }
        match stored.content {
            Content::Marker(TransactionResult::Abort, _) => {
                open.remove(&stored.producer);
            }
            Content::Marker(TransactionResult::Commit, _) => {}
            Content::Value(value) => {
                if !(stored.is_transactional && open.contains(&stored.producer)) {
                    visible.push((*offset, value));
                }
            }
        }
    }
    visible
}
