//! Numbers that must not be swapped, each with a type of its own.

use std::fmt;

macro_rules! number {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

number! {
    /// Position of a record in a partition's log; 0 or more, -1 where Kafka means "none".
    Offset(i64)
}
number! {
    /// Counts the leaders of a partition; 0 or more, -1 where Kafka means "unknown".
    LeaderEpoch(i32)
}
number! {
    /// Counts the controllers of a cluster; the first elected one has 1, and 0 means none yet.
    ControllerEpoch(i32)
}
number! {
    /// Names one registration of a broker: the czxid of its znode; -1 where not known.
    BrokerEpoch(i64)
}
number! {
    /// A broker's `broker.id`; 0 or more, -1 where Kafka means "none".
    BrokerId(i32)
}
number! {
    /// An idempotent or transactional producer; 0 or more, -1 for a batch without one.
    ProducerId(i64)
}
number! {
    /// Counts the incarnations of a producer id; 0 or more, -1 for a batch without one.
    ProducerEpoch(i16)
}
number! {
    /// Version of a partition's state znode, which fences its changes; 0 or more.
    PartitionEpoch(i32)
}
number! {
    /// Milliseconds since 1970 as records and files hold them; -1 where there is none.
    Timestamp(i64)
}

impl Offset {
    /// Kafka's "no offset".
    pub const NONE: Offset = Offset(-1);
    /// The first offset of a log.
    pub const ZERO: Offset = Offset(0);

    /// The offset `count` places on.
    ///
    /// # Panics
    /// Where the sum leaves 64 bits, which no log can reach; offsets from a peer are checked first.
    pub fn plus(self, count: i64) -> Offset {
        Offset(self.0.checked_add(count).expect("offsets stay below 2^63"))
    }
}

impl LeaderEpoch {
    /// Kafka's "unknown leader epoch".
    pub const NONE: LeaderEpoch = LeaderEpoch(-1);
}

impl BrokerEpoch {
    /// An epoch that is not told: it is not checked.
    pub const NONE: BrokerEpoch = BrokerEpoch(-1);
}

impl BrokerId {
    /// Kafka's "no broker".
    pub const NONE: BrokerId = BrokerId(-1);
}

impl ProducerId {
    /// A batch written without a producer id.
    pub const NONE: ProducerId = ProducerId(-1);
}

impl ProducerEpoch {
    /// A batch written without a producer id.
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl Timestamp {
    /// A record without a timestamp.
    pub const NONE: Timestamp = Timestamp(-1);
}
