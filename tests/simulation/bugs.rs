//! Bugs that are put in on purpose, so that it is known that the simulator finds such bugs. They sit in the glue around
//! the decision crates, which is the simulator's own: the product has no line for them.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The leader commits whatever is in its own log.
    WatermarkIsTheLeadersEnd,
    /// A leader counts who it wants out of the in-sync set as out before the controller has agreed.
    ShrinkIsNotAwaited,
    /// A leader does not look whether a follower's log and its own part.
    LogsMayPart,
    /// A leader that takes over tells the high watermark to followers whose logs it has not compared. It was a bug of the
    /// broker's once.
    TakeoverTellsTheWatermark,
    /// A follower cuts its log to its own high watermark, not to where the logs part. Source: KIP-101.
    TruncatesToTheWatermark,
    /// A controller writes whether or not another one has been elected.
    WritesWithoutTheFence,
    /// A broker takes the controllers' words in any order.
    StaleWordsAreTaken,
    /// acks=all is answered as soon as the leader has the records.
    AnswersBeforeTheWatermark,
    /// acks=all is promised however few are in sync.
    TooFewInSyncAreEnough,
    /// Consumers read to the end of the log.
    ConsumersReadToTheEnd,
    /// Readers of committed records get those of open transactions.
    OpenTransactionsAreRead,
    /// Of a transaction one partition's marker is the other one.
    OneMarkerIsWrong,
    /// A marker of a former transaction coordinator is taken, however late.
    FormerCoordinatorsAreObeyed,
    /// A broker does not tell the controller of a log directory that has failed. It was a bug of the broker's once.
    FailedDirectoriesAreNotTold,
    /// A broker leads and follows on until StopReplica, though all are told that its replica is elsewhere. It was a bug of the
    /// broker's once.
    MovedReplicasGoOn,
    /// A broker takes the log of a former topic of the same name for its own.
    TopicIdsAreNotCompared,
    /// A broker says that it has deleted a log though its directory has failed. It was a bug of the broker's once.
    FailedDirectoriesAreTakenForDeleted,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 17] = [
        Bug::WatermarkIsTheLeadersEnd,
        Bug::ShrinkIsNotAwaited,
        Bug::LogsMayPart,
        Bug::TakeoverTellsTheWatermark,
        Bug::TruncatesToTheWatermark,
        Bug::WritesWithoutTheFence,
        Bug::StaleWordsAreTaken,
        Bug::AnswersBeforeTheWatermark,
        Bug::TooFewInSyncAreEnough,
        Bug::ConsumersReadToTheEnd,
        Bug::OpenTransactionsAreRead,
        Bug::OneMarkerIsWrong,
        Bug::FormerCoordinatorsAreObeyed,
        Bug::FailedDirectoriesAreNotTold,
        Bug::MovedReplicasGoOn,
        Bug::TopicIdsAreNotCompared,
        Bug::FailedDirectoriesAreTakenForDeleted,
    ];

    /// The bug of a name.
    pub fn from_name(name: &str) -> Option<Bug> {
        Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }
}
