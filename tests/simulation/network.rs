//! What brokers and clients send each other, and how the network treats it.
//!
//! A request is answered once or never; who asked gives up after a while and may ask again. A message that is late may
//! come after later ones, as one does that waits in the buffer of a connection that its sender has given up. What is sent
//! to a process that has died is lost, even where the next one is up by then.
//!
//! Only the words of one controller in one term do not overtake each other, since they come by one connection at a time. What
//! its system still sends of one that it has closed could come later than what the next has brought: an UpdateMetadata says
//! who lives and has no number, so that an old one counts until the next is sent. Kafka does not see to that either.

use std::collections::BTreeSet;

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId},
    topic::{TopicPartition, Uuid},
};
use controller::{
    alter_partition::{AlterPartition, Altered},
    request::BrokerRequest,
};
use partition::follower::FetchFrom;

use crate::{random::Random, world::Millis};

/// Names a request; every one has another number.
pub type RequestId = u64;

/// Who sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// A broker.
    Broker(BrokerId),
    /// A producer or consumer, by its number.
    Client(usize),
}

/// A follower's fetch of one partition. There are no fetch sessions here, and nobody waits at the leader.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// The topic's id.
    pub topic_id: Uuid,
    /// The partition.
    pub partition: i32,
    /// Who asks.
    pub replica: BrokerId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// Where it asks from.
    pub from: FetchFrom,
    /// Start of its log.
    pub log_start: Offset,
}

/// What a leader answers to a fetch.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The error, if there is one.
    pub error: ErrorCode,
    /// Where the logs part.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// Batches.
    pub records: Vec<u8>,
    /// The leader's high watermark.
    pub high_watermark: Offset,
    /// The start of the leader's log.
    pub log_start: Offset,
}

/// A batch to be appended.
#[derive(Clone, Debug)]
pub struct Produce {
    /// The partition.
    pub partition: i32,
    /// The batch.
    pub batch: Bytes,
    /// Whether acks=all is asked for; else acks=1.
    pub acks_all: bool,
    /// What it is of.
    pub origin: Origin,
}

/// Who produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client outside of a transaction.
    Client,
    /// A client in a transaction, with its producer and the batch's sequence.
    Transaction((ProducerId, ProducerEpoch), i32),
    /// The transaction coordinator: a marker.
    Coordinator,
}

/// What a consumer asks.
#[derive(Clone, Copy, Debug)]
pub struct Consume {
    /// The topic's id.
    pub topic_id: Uuid,
    /// The partition.
    pub partition: i32,
    /// The first offset that is wanted.
    pub offset: Offset,
    /// Whether only committed records are wanted.
    pub committed: bool,
}

/// What a consumer gets.
#[derive(Clone, Debug)]
pub struct Consumed {
    /// Batches.
    pub records: Vec<u8>,
    /// Aborted transactions: the producer, and the first offset.
    pub aborted: Vec<(ProducerId, Offset)>,
}

/// A message.
#[derive(Clone, Debug)]
pub enum Message {
    /// The controller's word to a broker, and how many it has sent before in its term.
    Control(Box<BrokerRequest>, u64),
    /// The answer, with the outcome for each partition.
    Controlled(ErrorCode, Vec<(TopicPartition, ErrorCode)>),
    /// A follower's fetch.
    Fetch(Fetch),
    /// The answer.
    Fetched(i32, Fetched),
    /// A follower asks for the ends of the leader's log, in an epoch.
    Ends(i32, LeaderEpoch),
    /// The answer.
    EndsAre(i32, Result<(Offset, Offset), ErrorCode>),
    /// A leader wants other in-sync sets.
    Alter(AlterPartition),
    /// The answer.
    Altered(Altered),
    /// A batch to be appended.
    Produce(Produce),
    /// The answer: the first offset.
    Produced(Result<Offset, ErrorCode>),
    /// A consumer's fetch.
    Consume(Consume),
    /// The answer.
    Consumed(Result<Consumed, ErrorCode>),
}

/// How the network is.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Brokers that do not reach each other, in this direction.
    pub cut: BTreeSet<(BrokerId, BrokerId)>,
    /// Messages lost, of a thousand.
    pub lost: u64,
    /// Messages that come twice, of a thousand.
    pub repeated: u64,
    /// Messages that are late, of a thousand.
    pub late: u64,
}

/// How long a message takes at most where it is not late.
const QUICK_MS_MAX: u64 = 4;
/// How late a message can be.
const LATE_MS_MAX: u64 = 2500;

impl Network {
    /// As it is while things may go wrong.
    pub fn unsteady() -> Network {
        Network { cut: BTreeSet::new(), lost: 4, repeated: 20, late: 20 }
    }

    /// After how long a message arrives: none where it is lost, twice where it is repeated.
    pub fn arrivals(&self, from: Node, to: Node, random: &mut Random) -> Vec<Millis> {
        if let (Node::Broker(from), Node::Broker(to)) = (from, to)
            && self.cut.contains(&(from, to))
        {
            return Vec::new();
        }
        // A broker's way to itself is no network.
        let within = from == to;
        if !within && random.chance(self.lost) {
            return Vec::new();
        }
        let count = if !within && random.chance(self.repeated) { 2 } else { 1 };
        let mut arrival = |number| match !within && (number > 0 || random.chance(self.late)) {
            true => random.between(QUICK_MS_MAX, LATE_MS_MAX),
            false => random.between(1, QUICK_MS_MAX),
        };
        (0..count).map(&mut arrival).collect()
    }
}
