//! The APIs of Kafka 3.9 in ZooKeeper mode: keys, names, versions, and which of them this broker serves.

use std::fmt;

use kafka_protocol::messages::ApiKey;

/// One API of the wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// The key that stands first in a request.
    pub key: ApiKey,
    /// Kafka's name, such as `ListOffsets`.
    pub name: &'static str,
    /// The lowest version served.
    pub min: i16,
    /// The highest version served.
    pub max: i16,
    /// The first version with compact lengths and tagged fields.
    pub flexible_from: Option<i16>,
}

const fn api(
    key: ApiKey,
    name: &'static str,
    min: i16,
    max: i16,
    flexible_from: Option<i16>,
) -> Api {
    Api { key, name, min, max, flexible_from }
}

/// Every API of a 3.9 broker in ZooKeeper mode, by key.
#[rustfmt::skip]
pub const ALL: [Api; 62] = [
    api(ApiKey::Produce, "Produce", 0, 11, Some(9)),
    api(ApiKey::Fetch, "Fetch", 0, 17, Some(12)),
    api(ApiKey::ListOffsets, "ListOffsets", 0, 9, Some(6)),
    api(ApiKey::Metadata, "Metadata", 0, 12, Some(9)),
    api(ApiKey::LeaderAndIsr, "LeaderAndIsr", 0, 7, Some(4)),
    api(ApiKey::StopReplica, "StopReplica", 0, 4, Some(2)),
    api(ApiKey::UpdateMetadata, "UpdateMetadata", 0, 8, Some(6)),
    api(ApiKey::ControlledShutdown, "ControlledShutdown", 0, 3, Some(3)),
    api(ApiKey::OffsetCommit, "OffsetCommit", 0, 9, Some(8)),
    api(ApiKey::OffsetFetch, "OffsetFetch", 0, 9, Some(6)),
    api(ApiKey::FindCoordinator, "FindCoordinator", 0, 6, Some(3)),
    api(ApiKey::JoinGroup, "JoinGroup", 0, 9, Some(6)),
    api(ApiKey::Heartbeat, "Heartbeat", 0, 4, Some(4)),
    api(ApiKey::LeaveGroup, "LeaveGroup", 0, 5, Some(4)),
    api(ApiKey::SyncGroup, "SyncGroup", 0, 5, Some(4)),
    api(ApiKey::DescribeGroups, "DescribeGroups", 0, 5, Some(5)),
    api(ApiKey::ListGroups, "ListGroups", 0, 5, Some(3)),
    api(ApiKey::SaslHandshake, "SaslHandshake", 0, 1, None),
    api(ApiKey::ApiVersions, "ApiVersions", 0, 4, Some(3)),
    api(ApiKey::CreateTopics, "CreateTopics", 0, 7, Some(5)),
    api(ApiKey::DeleteTopics, "DeleteTopics", 0, 6, Some(4)),
    api(ApiKey::DeleteRecords, "DeleteRecords", 0, 2, Some(2)),
    api(ApiKey::InitProducerId, "InitProducerId", 0, 5, Some(2)),
    api(ApiKey::OffsetForLeaderEpoch, "OffsetForLeaderEpoch", 0, 4, Some(4)),
    api(ApiKey::AddPartitionsToTxn, "AddPartitionsToTxn", 0, 5, Some(3)),
    api(ApiKey::AddOffsetsToTxn, "AddOffsetsToTxn", 0, 4, Some(3)),
    api(ApiKey::EndTxn, "EndTxn", 0, 4, Some(3)),
    api(ApiKey::WriteTxnMarkers, "WriteTxnMarkers", 0, 1, Some(1)),
    api(ApiKey::TxnOffsetCommit, "TxnOffsetCommit", 0, 4, Some(3)),
    api(ApiKey::DescribeAcls, "DescribeAcls", 0, 3, Some(2)),
    api(ApiKey::CreateAcls, "CreateAcls", 0, 3, Some(2)),
    api(ApiKey::DeleteAcls, "DeleteAcls", 0, 3, Some(2)),
    api(ApiKey::DescribeConfigs, "DescribeConfigs", 0, 4, Some(4)),
    api(ApiKey::AlterConfigs, "AlterConfigs", 0, 2, Some(2)),
    api(ApiKey::AlterReplicaLogDirs, "AlterReplicaLogDirs", 0, 2, Some(2)),
    api(ApiKey::DescribeLogDirs, "DescribeLogDirs", 0, 4, Some(2)),
    api(ApiKey::SaslAuthenticate, "SaslAuthenticate", 0, 2, Some(2)),
    api(ApiKey::CreatePartitions, "CreatePartitions", 0, 3, Some(2)),
    api(ApiKey::CreateDelegationToken, "CreateDelegationToken", 0, 3, Some(2)),
    api(ApiKey::RenewDelegationToken, "RenewDelegationToken", 0, 2, Some(2)),
    api(ApiKey::ExpireDelegationToken, "ExpireDelegationToken", 0, 2, Some(2)),
    api(ApiKey::DescribeDelegationToken, "DescribeDelegationToken", 0, 3, Some(2)),
    api(ApiKey::DeleteGroups, "DeleteGroups", 0, 2, Some(2)),
    api(ApiKey::ElectLeaders, "ElectLeaders", 0, 2, Some(2)),
    api(ApiKey::IncrementalAlterConfigs, "IncrementalAlterConfigs", 0, 1, Some(1)),
    api(ApiKey::AlterPartitionReassignments, "AlterPartitionReassignments", 0, 0, Some(0)),
    api(ApiKey::ListPartitionReassignments, "ListPartitionReassignments", 0, 0, Some(0)),
    api(ApiKey::OffsetDelete, "OffsetDelete", 0, 0, None),
    api(ApiKey::DescribeClientQuotas, "DescribeClientQuotas", 0, 1, Some(1)),
    api(ApiKey::AlterClientQuotas, "AlterClientQuotas", 0, 1, Some(1)),
    api(ApiKey::DescribeUserScramCredentials, "DescribeUserScramCredentials", 0, 0, Some(0)),
    api(ApiKey::AlterUserScramCredentials, "AlterUserScramCredentials", 0, 0, Some(0)),
    api(ApiKey::AlterPartition, "AlterPartition", 0, 3, Some(0)),
    api(ApiKey::UpdateFeatures, "UpdateFeatures", 0, 1, Some(0)),
    api(ApiKey::Envelope, "Envelope", 0, 0, Some(0)),
    api(ApiKey::DescribeCluster, "DescribeCluster", 0, 1, Some(0)),
    api(ApiKey::DescribeProducers, "DescribeProducers", 0, 0, Some(0)),
    api(ApiKey::DescribeTransactions, "DescribeTransactions", 0, 0, Some(0)),
    api(ApiKey::ListTransactions, "ListTransactions", 0, 1, Some(0)),
    api(ApiKey::AllocateProducerIds, "AllocateProducerIds", 0, 0, Some(0)),
    api(ApiKey::ConsumerGroupHeartbeat, "ConsumerGroupHeartbeat", 0, 0, Some(0)),
    api(ApiKey::ConsumerGroupDescribe, "ConsumerGroupDescribe", 0, 0, Some(0)),
];

/// The APIs that have a handler: ApiVersions lists these, and a request for another closes its connection.
pub const BUILT: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::LeaderAndIsr,
    ApiKey::StopReplica,
    ApiKey::UpdateMetadata,
    ApiKey::ControlledShutdown,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::FindCoordinator,
    ApiKey::JoinGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::SyncGroup,
    ApiKey::DescribeGroups,
    ApiKey::ListGroups,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::InitProducerId,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::AddPartitionsToTxn,
    ApiKey::AddOffsetsToTxn,
    ApiKey::EndTxn,
    ApiKey::WriteTxnMarkers,
    ApiKey::TxnOffsetCommit,
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::DescribeLogDirs,
    ApiKey::CreatePartitions,
    ApiKey::DeleteGroups,
    ApiKey::ElectLeaders,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::AlterPartitionReassignments,
    ApiKey::ListPartitionReassignments,
    ApiKey::OffsetDelete,
    ApiKey::AlterPartition,
    ApiKey::UpdateFeatures,
    ApiKey::DescribeCluster,
    ApiKey::DescribeProducers,
    ApiKey::DescribeTransactions,
    ApiKey::ListTransactions,
    ApiKey::AllocateProducerIds,
];

/// Position in `ALL` by key; 255 where there is none.
const BY_KEY: [u8; 70] = {
    let mut by_key = [255; 70];
    let mut index = 0;
    while index < ALL.len() {
        by_key[ALL[index].key as usize] = index as u8;
        index += 1;
    }
    by_key
};

const BUILT_KEYS: u128 = {
    let mut keys = 0;
    let mut index = 0;
    while index < BUILT.len() {
        keys |= 1 << (BUILT[index] as u32);
        index += 1;
    }
    keys
};

/// The API with a key from the wire; none for keys of KRaft and unknown ones.
pub fn find(key: i16) -> Option<&'static Api> {
    let index = *BY_KEY.get(usize::try_from(key).ok()?)?;
    ALL.get(usize::from(index))
}

/// The APIs that are served, by key: what ApiVersions answers.
pub fn built() -> impl Iterator<Item = &'static Api> {
    ALL.iter().filter(|api| api.is_built())
}

impl Api {
    /// Whether this broker has a handler for it.
    pub fn is_built(&self) -> bool {
        BUILT_KEYS & (1 << (self.key as u32)) != 0
    }

    /// Whether the version is one that is served.
    pub fn supports(&self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }

    /// Whether the version has compact lengths and tagged fields.
    pub fn is_flexible(&self, version: i16) -> bool {
        self.flexible_from.is_some_and(|from| version >= from)
    }

    /// The version of the request's header, for any version of the request, known or not.
    pub fn request_header_version(&self, version: i16) -> i16 {
        match self.key {
            // The first request between brokers; it was written before client ids.
            ApiKey::ControlledShutdown if version == 0 => 0,
            _ if self.is_flexible(version) => 2,
            _ => 1,
        }
    }

    /// The version of the answer's header.
    pub fn response_header_version(&self, version: i16) -> i16 {
        match self.key {
            // A client that asks for versions does not know yet what the broker can write. Source: KIP-511.
            ApiKey::ApiVersions => 0,
            _ if self.is_flexible(version) => 1,
            _ => 0,
        }
    }
}

/// Kafka's constant, such as `LIST_OFFSETS`: how its log lines name an API.
impl fmt::Display for Api {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_constant(formatter, self.name)
    }
}

/// A key of Kafka that brokers in ZooKeeper mode do not serve: its constant, such as `VOTE`.
pub(crate) struct Foreign(pub(crate) ApiKey);

impl fmt::Display for Foreign {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_constant(formatter, &format!("{:?}", self.0))
    }
}

fn write_constant(formatter: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    for (position, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && position > 0 {
            formatter.write_str("_")?;
        }
        write!(formatter, "{}", letter.to_ascii_uppercase())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_the_codec() {
        for api in ALL {
            let versions = api.key.valid_versions();
            assert_eq!((versions.min, versions.max), (api.min, api.max), "{api}");
            assert_eq!(format!("{:?}", api.key), api.name);
            assert_eq!(find(api.key as i16), Some(&api));
            for version in api.min..=api.max {
                let request = api.key.request_header_version(version);
                assert_eq!(request, api.request_header_version(version), "{api} {version}");
                let response = api.key.response_header_version(version);
                assert_eq!(response, api.response_header_version(version), "{api} {version}");
            }
        }
    }

    #[test]
    fn keys_of_kraft_and_unknown_ones_are_not_found() {
        for key in [i16::MIN, -1, 52, 59, 62, 70, 1000, i16::MAX] {
            assert_eq!(find(key), None, "{key}");
        }
    }

    #[test]
    fn an_api_is_named_as_in_kafkas_log() {
        let name = |key| find(key).unwrap().to_string();
        assert_eq!(name(2), "LIST_OFFSETS");
        assert_eq!(name(4), "LEADER_AND_ISR");
        assert_eq!(name(23), "OFFSET_FOR_LEADER_EPOCH");
    }
}
