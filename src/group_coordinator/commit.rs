//! Commits of offsets, plain and transactional.
//! Source: `GroupCoordinator.handleCommitOffsets`, `handleTxnCommitOffsets`, `GroupMetadataManager.storeOffsets`.

use common::{error_code::ErrorCode, ids::ProducerId};

use crate::{
    action::{AppendKind, GroupState, Note, Reply},
    config::TEXT_BYTES_MAX,
    event::{AppendId, CommitRequest, OffsetToCommit, ReplyTo},
    group::Group,
    offsets::{Committed, Offsets},
    records::{GroupRecord, OffsetCommitValue},
    turn::{PendingCommit, PendingTransaction, Purpose, Turn},
};

/// Whether a commit to a group that does not exist makes one; else why not.
pub(crate) fn check_new_group(request: &CommitRequest) -> Result<(), ErrorCode> {
    match request.transaction {
        _ if request.member.generation < 0 => Ok(()),
        // It comes from a generation that is forgotten.
        None => Err(ErrorCode::IllegalGeneration),
        Some(_) => Err(ErrorCode::UnknownMemberId),
    }
}

/// What a client gets for a failed append of offsets. Source: `GroupMetadataManager.maybeConvertOffsetCommitError`.
pub(crate) fn commit_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::NetworkException => ErrorCode::CoordinatorLoadInProgress,
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge
        | ErrorCode::RecordListTooLarge
        | ErrorCode::InvalidFetchSize => ErrorCode::InvalidCommitOffsetSize,
        other => other,
    }
}

/// What a client gets for a failed append of a group. Source: `GroupMetadataManager.storeGroup`.
pub(crate) fn group_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::RequestTimedOut => ErrorCode::RebalanceInProgress,
        ErrorCode::MessageTooLarge
        | ErrorCode::RecordListTooLarge
        | ErrorCode::InvalidFetchSize => ErrorCode::UnknownServerError,
        other => other,
    }
}

impl Group {
    pub(crate) fn on_commit(&mut self, request: CommitRequest, reply: ReplyTo, turn: &mut Turn) {
        if let Err(error) = self.check_commit(&request, turn) {
            let codes = vec![error; request.offsets.len()];
            return turn.reply(reply, Reply::CommitOffsets(codes));
        }
        let codes: Vec<ErrorCode> =
            request.offsets.iter().map(|offset| check_offset(offset, turn)).collect();
        let good = request.offsets.into_iter().zip(&codes);
        let offsets: Vec<_> = good
            .filter(|(_, code)| **code == ErrorCode::None)
            .map(|(offset, _)| {
                let value = OffsetCommitValue {
                    offset: offset.offset,
                    leader_epoch: offset.leader_epoch,
                    metadata: offset.metadata,
                    commit_timestamp: offset.commit_timestamp,
                    expire_timestamp: offset.expire_timestamp,
                };
                (offset.topic_partition, value)
            })
            .collect();
        if offsets.is_empty() {
            return turn.reply(reply, Reply::CommitOffsets(codes));
        }
        let producer_id = request.transaction.map(|(producer_id, _)| producer_id);
        self.note_kind_of_commit(producer_id, turn);
        let target = match producer_id {
            Some(producer_id) => self.transactions.entry(producer_id).or_default(),
            None => &mut self.offsets,
        };
        for (partition, _) in &offsets {
            target.begin(partition);
        }
        let record =
            |(topic_partition, value): &(_, OffsetCommitValue)| GroupRecord::OffsetCommit {
                group: self.id.clone(),
                topic_partition: Clone::clone(topic_partition),
                value: Some(value.clone()),
            };
        let records = offsets.iter().map(record).collect();
        let transaction =
            producer_id.map(|producer_id| PendingTransaction { producer_id, decided: None });
        let purpose = Purpose::Offsets(PendingCommit { reply, offsets, codes, transaction });
        let pending = self.pending(purpose);
        turn.append(records, AppendKind::Offsets, request.transaction, pending);
    }

    fn check_commit(&mut self, request: &CommitRequest, turn: &mut Turn) -> Result<(), ErrorCode> {
        let member = &request.member;
        let state = self.state();
        let names_member = member.generation >= 0
            || !member.member_id.is_empty()
            || member.group_instance_id.is_some();
        let is_transactional = request.transaction.is_some();
        if state == GroupState::Dead {
            return Err(ErrorCode::CoordinatorNotAvailable);
        } else if member.generation < 0 && state == GroupState::Empty {
            // An administrator, or a consumer that assigns partitions to itself.
        } else if names_member {
            let instance = member.group_instance_id.as_deref();
            self.check_generation(&member.member_id, instance, member.generation)?;
        } else if !is_transactional && state != GroupState::Empty {
            // Transactional commits of older clients name no member.
            return Err(ErrorCode::UnknownMemberId);
        }
        match state {
            _ if is_transactional => {}
            GroupState::CompletingRebalance => return Err(ErrorCode::RebalanceInProgress),
            GroupState::PreparingRebalance | GroupState::Stable => {
                self.touch(&member.member_id, turn);
            }
            GroupState::Empty | GroupState::Dead => {}
        }
        Ok(())
    }

    fn note_kind_of_commit(&mut self, producer_id: Option<ProducerId>, turn: &mut Turn) {
        let commits = &mut self.commits;
        let was_mixed = commits.plain && commits.transactional;
        match producer_id {
            Some(_) => commits.transactional = true,
            None => commits.plain = true,
        }
        if commits.plain && commits.transactional && !was_mixed {
            turn.note(Note::MixedCommits { group: self.id.clone() });
        }
    }

    /// A commit is in the log, or is not. The answer is the caller's.
    pub(crate) fn on_offsets_stored(
        &mut self,
        position: AppendId,
        commit: &PendingCommit,
        is_committed: bool,
    ) {
        let Some(transaction) = &commit.transaction else {
            return finish(&mut self.offsets, position, commit, is_committed);
        };
        match transaction.decided {
            Some(true) if is_committed => {
                for (partition, value) in &commit.offsets {
                    let value = Some(value.clone());
                    self.offsets.apply(partition, Committed { position, value });
                }
            }
            Some(_) => {}
            None => {
                if let Some(offsets) = self.transactions.get_mut(&transaction.producer_id) {
                    finish(offsets, position, commit, is_committed);
                    if offsets.is_empty() {
                        self.transactions.remove(&transaction.producer_id);
                    }
                }
            }
        }
    }

    /// A transaction's marker is in the log.
    pub(crate) fn on_transaction_completed(&mut self, producer_id: ProducerId, committed: bool) {
        if let Some(offsets) = self.transactions.remove(&producer_id)
            && committed
        {
            offsets.commit_into(&mut self.offsets);
        }
    }

    /// Whether the group keeps anything that a tombstone of the group alone would not remove.
    pub(crate) fn has_offsets(&self) -> bool {
        !self.offsets.is_empty() || !self.transactions.is_empty()
    }
}

fn finish(offsets: &mut Offsets, position: AppendId, commit: &PendingCommit, is_committed: bool) {
    for (partition, value) in &commit.offsets {
        let value = Some(value.clone());
        offsets.finish(partition, is_committed.then_some(Committed { position, value }));
    }
}

fn check_offset(offset: &OffsetToCommit, turn: &Turn) -> ErrorCode {
    if offset.topic_partition.topic.len() > TEXT_BYTES_MAX {
        return ErrorCode::InvalidTopicException;
    }
    let metadata = &offset.metadata;
    if metadata.len() > TEXT_BYTES_MAX
        || metadata.encode_utf16().count() > turn.config.offset_metadata_max
    {
        return ErrorCode::OffsetMetadataTooLarge;
    }
    ErrorCode::None
}
