//! Settings of the coordinator.

use std::time::Duration;

/// What operators set, and our own bounds. No time is longer than the 24 days that Kafka's configs can express.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_min: Duration,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_max: Duration,
    /// `group.initial.rebalance.delay.ms`: how long the first joiner of an empty group waits for others.
    pub initial_rebalance_delay: Duration,
    /// `group.max.size`: members of a group; 1 or more.
    pub group_size_max: usize,
    /// Bytes that the members of one group may take in memory: their names and what they sent as metadata.
    ///
    /// `group.max.size` does not bound memory, for each member may send as much as a request holds.
    /// A member that would exceed the bound gets GROUP_MAX_SIZE_REACHED. Not in Kafka.
    pub group_metadata_bytes_max: usize,
    /// `offset.metadata.max.bytes`: characters of a committed offset's metadata, counted as Java does.
    pub offset_metadata_max: usize,
    /// `offsets.commit.timeout.ms`: how long an append may take.
    pub append_timeout: Duration,
}

/// Members of one group that were given an id and have not come back with it. Not in Kafka, which has no bound:
/// there each JoinGroup request costs memory for a session timeout. Beyond it, GROUP_MAX_SIZE_REACHED.
pub const PENDING_MEMBERS_MAX: usize = 100_000;

/// Longest text that a stored record can hold: its length is a signed 16-bit number.
pub const TEXT_BYTES_MAX: usize = 32_767;

/// A new member's JoinGroup request waits no longer than this: it has no id yet, so it cannot heartbeat.
/// Source: `GroupCoordinator.NewMemberJoinTimeoutMs`.
pub const NEW_MEMBER_JOIN_TIMEOUT: Duration = Duration::from_secs(300);

/// Bytes of keys in one batch of tombstones; a group with more offsets takes several.
pub const TOMBSTONE_BATCH_BYTES_MAX: usize = 256 * 1024;

impl Default for GroupConfig {
    /// Kafka's defaults.
    fn default() -> GroupConfig {
        GroupConfig {
            session_timeout_min: Duration::from_secs(6),
            session_timeout_max: Duration::from_secs(1800),
            initial_rebalance_delay: Duration::from_secs(3),
            group_size_max: usize::MAX,
            group_metadata_bytes_max: 64 * 1024 * 1024,
            offset_metadata_max: 4096,
            append_timeout: Duration::from_secs(5),
        }
    }
}
