//! What the controller answers to requests that want to hear what became of them.

use std::collections::BTreeSet;

use common::{error_code::ErrorCode, topic::TopicPartition};

use crate::{alter_partition::Altered, elect_leaders::Elected, reassignment::Reassigned};

/// Which request an answer belongs to; chosen by the one who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of `Change::AlterPartition`.
    AlterPartition(Altered),
    /// Of `Change::ControlledShutdown`: the partitions that the broker still leads though others hold them too.
    ControlledShutdown(Result<BTreeSet<TopicPartition>, ErrorCode>),
    /// Of `Change::ElectLeaders`.
    ElectLeaders(Elected),
    /// Of `Change::Reassign`.
    Reassign(Reassigned),
}
