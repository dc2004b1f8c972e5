//! The states of a transactional id.

/// Where a transactional id stands, as stored. Two more names of Kafka are never stored: `Dead` (its tombstone is on the
/// way) and `PrepareEpochFence` (a fence is decided); here they are kinds of pending changes.
/// Source: Kafka's `TransactionState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransactionState {
    /// Has a producer and no transaction. Next: Empty, Ongoing, removed.
    Empty,
    /// Partitions take part. Next: Ongoing, PrepareCommit, PrepareAbort.
    Ongoing,
    /// Committed; markers are on their way. Requests get CONCURRENT_TRANSACTIONS. Next: CompleteCommit.
    PrepareCommit,
    /// Aborted; markers are on their way. Requests get CONCURRENT_TRANSACTIONS. Next: CompleteAbort.
    PrepareAbort,
    /// Every marker of a commit is written. Next: Empty, Ongoing, removed.
    CompleteCommit,
    /// Every marker of an abort is written. Next: Empty, Ongoing, removed.
    CompleteAbort,
}

impl TransactionState {
    /// Every state, by its number in the log.
    pub const ALL: [TransactionState; 6] = [
        TransactionState::Empty,
        TransactionState::Ongoing,
        TransactionState::PrepareCommit,
        TransactionState::PrepareAbort,
        TransactionState::CompleteCommit,
        TransactionState::CompleteAbort,
    ];

    /// The state for its number in the log; none for the two that are never stored, and for others.
    pub fn from_id(id: i8) -> Option<TransactionState> {
        TransactionState::ALL.into_iter().find(|state| state.id() == id)
    }

    /// The number in the log.
    pub fn id(self) -> i8 {
        self as i8
    }

    /// The name in DescribeTransactions and ListTransactions.
    pub fn name(self) -> &'static str {
        match self {
            TransactionState::Empty => "Empty",
            TransactionState::Ongoing => "Ongoing",
            TransactionState::PrepareCommit => "PrepareCommit",
            TransactionState::PrepareAbort => "PrepareAbort",
            TransactionState::CompleteCommit => "CompleteCommit",
            TransactionState::CompleteAbort => "CompleteAbort",
        }
    }

    /// Whether the decision is made and markers are outstanding.
    pub fn is_prepared(self) -> bool {
        matches!(self, TransactionState::PrepareCommit | TransactionState::PrepareAbort)
    }

    /// Whether an unused id may be forgotten in this state.
    pub fn may_expire(self) -> bool {
        self != TransactionState::Ongoing && !self.is_prepared()
    }
}
