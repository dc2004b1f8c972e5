//! `kafka-broker-api-versions`: which APIs each broker speaks. Source: `BrokerApiVersionsCommand`, `NodeApiVersions`.

use std::collections::BTreeMap;

use client::{
    admin::Admin, cluster::Topics, config::ConnectionConfig, connection::ApiVersions,
    error::ClientError, metadata::Node,
};
use common::{clock, properties::Properties};

use crate::{
    clients::{construction_failure, load, runtime},
    console::{Halt, halt, say},
    logging,
    options::{OptionSpec, Options, read, value},
};

const OPTIONS: &[OptionSpec] = &[
    value(
        "command-config",
        "command config property file",
        "File with properties for the admin client.",
    ),
    value(
        "bootstrap-server",
        "server(s) to use for bootstrapping",
        "REQUIRED: A broker of the cluster, as host:port; several with commas.",
    ),
];

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let options = crate::options::parse_or_refuse(OPTIONS, words)?;
    options.answer_help_or_version("This tool helps to retrieve broker version information.")?;
    options.require(&["bootstrap-server"])?;
    let properties = client_properties(&options)?;
    runtime()?.block_on(async {
        let opened = open(&properties).await;
        let admin = opened.or_else(|error| {
            halt(&construction_failure("Failed to create new KafkaAdminClient", &error))
        })?;
        let deadline = clock::now() + admin.cluster().config().request_timeout;
        let Ok(metadata) = admin.cluster().refresh(&Topics::None, deadline).await else {
            let tried: Vec<String> =
                admin.cluster().bootstrap().iter().map(Node::to_string).collect();
            return halt(&format!("Request METADATA failed on brokers List({})", tried.join(", ")));
        };
        for node in metadata.nodes.values() {
            match admin.api_versions(node).await {
                Ok(versions) => say(&format!("{node} -> {}", describe(&versions))),
                Err(error) => say(&format!("{node} -> ERROR: {}", error.with_class())),
            }
        }
        Ok(())
    })
}

/// Kafka has a client of its own for this, whose log lines have another head.
async fn open(properties: &Properties) -> Result<Admin, ClientError> {
    let mut config = ConnectionConfig::admin(properties)?;
    config.log_prefix = format!("[LegacyAdminClient clientId={}] ", config.client_id);
    Admin::open(config).await
}

fn client_properties(options: &Options) -> Result<Properties, Halt> {
    let mut properties = match read(options.text("command-config"))? {
        Some(path) => load(&path).or_else(|error| halt(&error))?,
        None => Properties::new(),
    };
    let servers = read(options.text("bootstrap-server"))?.unwrap_or_default();
    properties.insert("bootstrap.servers".to_owned(), servers);
    properties.entry("client.id".to_owned()).or_insert("admin-1".to_owned());
    Ok(properties)
}

/// Every API of Kafka 3.9's clients with its versions, then those that only the broker knows.
fn describe(versions: &ApiVersions) -> String {
    let mut lines: BTreeMap<i16, String> = BTreeMap::new();
    for (key, name, most, served) in KNOWN {
        let line = match versions.get(key) {
            None if *served == Served::ByControllers => continue,
            None => format!("{name}({key}): UNSUPPORTED"),
            Some((from, to)) if most < from => {
                format!("{name}({key}): {} [unusable: node too new]", range(*from, *to))
            }
            Some((from, to)) => {
                format!("{name}({key}): {} [usable: {}]", range(*from, *to), (*most).min(*to))
            }
        };
        lines.insert(*key, line);
    }
    for (key, (from, to)) in versions {
        let line = || format!("UNKNOWN({key}): {}", range(*from, *to));
        lines.entry(*key).or_insert_with(line);
    }
    let lines: Vec<String> = lines.into_values().map(|line| format!("\t{line}")).collect();
    format!("(\n{}\n)", lines.join(",\n"))
}

fn range(from: i16, to: i16) -> String {
    if from == to { from.to_string() } else { format!("{from} to {to}") }
}

/// Who answers an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    ByBrokers,
    ByControllers,
}

/// Every API of Kafka 3.9: key, name, largest version, and whether a broker serves it (controllers of KRaft have more).
/// Source: `ApiKeys`, and the message definitions.
const KNOWN: &[(i16, &str, i16, Served)] = &[
    (0, "Produce", 11, Served::ByBrokers),
    (1, "Fetch", 17, Served::ByBrokers),
    (2, "ListOffsets", 9, Served::ByBrokers),
    (3, "Metadata", 12, Served::ByBrokers),
    (4, "LeaderAndIsr", 7, Served::ByBrokers),
    (5, "StopReplica", 4, Served::ByBrokers),
    (6, "UpdateMetadata", 8, Served::ByBrokers),
    (7, "ControlledShutdown", 3, Served::ByBrokers),
    (8, "OffsetCommit", 9, Served::ByBrokers),
    (9, "OffsetFetch", 9, Served::ByBrokers),
    (10, "FindCoordinator", 6, Served::ByBrokers),
    (11, "JoinGroup", 9, Served::ByBrokers),
    (12, "Heartbeat", 4, Served::ByBrokers),
    (13, "LeaveGroup", 5, Served::ByBrokers),
    (14, "SyncGroup", 5, Served::ByBrokers),
    (15, "DescribeGroups", 5, Served::ByBrokers),
    (16, "ListGroups", 5, Served::ByBrokers),
    (17, "SaslHandshake", 1, Served::ByBrokers),
    (18, "ApiVersions", 4, Served::ByBrokers),
    (19, "CreateTopics", 7, Served::ByBrokers),
    (20, "DeleteTopics", 6, Served::ByBrokers),
    (21, "DeleteRecords", 2, Served::ByBrokers),
    (22, "InitProducerId", 5, Served::ByBrokers),
    (23, "OffsetForLeaderEpoch", 4, Served::ByBrokers),
    (24, "AddPartitionsToTxn", 5, Served::ByBrokers),
    (25, "AddOffsetsToTxn", 4, Served::ByBrokers),
    (26, "EndTxn", 4, Served::ByBrokers),
    (27, "WriteTxnMarkers", 1, Served::ByBrokers),
    (28, "TxnOffsetCommit", 4, Served::ByBrokers),
    (29, "DescribeAcls", 3, Served::ByBrokers),
    (30, "CreateAcls", 3, Served::ByBrokers),
    (31, "DeleteAcls", 3, Served::ByBrokers),
    (32, "DescribeConfigs", 4, Served::ByBrokers),
    (33, "AlterConfigs", 2, Served::ByBrokers),
    (34, "AlterReplicaLogDirs", 2, Served::ByBrokers),
    (35, "DescribeLogDirs", 4, Served::ByBrokers),
    (36, "SaslAuthenticate", 2, Served::ByBrokers),
    (37, "CreatePartitions", 3, Served::ByBrokers),
    (38, "CreateDelegationToken", 3, Served::ByBrokers),
    (39, "RenewDelegationToken", 2, Served::ByBrokers),
    (40, "ExpireDelegationToken", 2, Served::ByBrokers),
    (41, "DescribeDelegationToken", 3, Served::ByBrokers),
    (42, "DeleteGroups", 2, Served::ByBrokers),
    (43, "ElectLeaders", 2, Served::ByBrokers),
    (44, "IncrementalAlterConfigs", 1, Served::ByBrokers),
    (45, "AlterPartitionReassignments", 0, Served::ByBrokers),
    (46, "ListPartitionReassignments", 0, Served::ByBrokers),
    (47, "OffsetDelete", 0, Served::ByBrokers),
    (48, "DescribeClientQuotas", 1, Served::ByBrokers),
    (49, "AlterClientQuotas", 1, Served::ByBrokers),
    (50, "DescribeUserScramCredentials", 0, Served::ByBrokers),
    (51, "AlterUserScramCredentials", 0, Served::ByBrokers),
    (52, "Vote", 1, Served::ByControllers),
    (53, "BeginQuorumEpoch", 1, Served::ByControllers),
    (54, "EndQuorumEpoch", 1, Served::ByControllers),
    (55, "DescribeQuorum", 2, Served::ByBrokers),
    (56, "AlterPartition", 3, Served::ByBrokers),
    (57, "UpdateFeatures", 1, Served::ByBrokers),
    (58, "Envelope", 0, Served::ByBrokers),
    (59, "FetchSnapshot", 1, Served::ByControllers),
    (60, "DescribeCluster", 1, Served::ByBrokers),
    (61, "DescribeProducers", 0, Served::ByBrokers),
    (62, "BrokerRegistration", 4, Served::ByControllers),
    (63, "BrokerHeartbeat", 1, Served::ByControllers),
    (64, "UnregisterBroker", 0, Served::ByBrokers),
    (65, "DescribeTransactions", 0, Served::ByBrokers),
    (66, "ListTransactions", 1, Served::ByBrokers),
    (67, "AllocateProducerIds", 0, Served::ByBrokers),
    (68, "ConsumerGroupHeartbeat", 0, Served::ByBrokers),
    (69, "ConsumerGroupDescribe", 0, Served::ByBrokers),
    (70, "ControllerRegistration", 0, Served::ByControllers),
    (71, "GetTelemetrySubscriptions", 0, Served::ByBrokers),
    (72, "PushTelemetry", 0, Served::ByBrokers),
    (73, "AssignReplicasToDirs", 0, Served::ByControllers),
    (74, "ListClientMetricsResources", 0, Served::ByBrokers),
    (75, "DescribeTopicPartitions", 0, Served::ByBrokers),
    (76, "ShareGroupHeartbeat", 0, Served::ByBrokers),
    (77, "ShareGroupDescribe", 0, Served::ByBrokers),
    (78, "ShareFetch", 0, Served::ByBrokers),
    (79, "ShareAcknowledge", 0, Served::ByBrokers),
    (80, "AddRaftVoter", 0, Served::ByBrokers),
    (81, "RemoveRaftVoter", 0, Served::ByBrokers),
    (82, "UpdateRaftVoter", 0, Served::ByControllers),
    (83, "InitializeShareGroupState", 0, Served::ByBrokers),
    (84, "ReadShareGroupState", 0, Served::ByBrokers),
    (85, "WriteShareGroupState", 0, Served::ByBrokers),
    (86, "DeleteShareGroupState", 0, Served::ByBrokers),
    (87, "ReadShareGroupStateSummary", 0, Served::ByBrokers),
];
