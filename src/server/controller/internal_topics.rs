//! The brokers' own topics, as they are created on demand.
//! Source: `AutoTopicCreationManager.creatableTopic`, `GroupCoordinator.groupMetadataTopicConfigs`.

use common::{
    config::broker::BrokerConfig,
    topic::{GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC},
};
use controller::topics::NewTopic;

/// What a topic of this name looks like when nobody says how.
pub(super) fn on_demand(name: &str, config: &BrokerConfig) -> NewTopic {
    let mut topic = NewTopic {
        name: name.to_owned(),
        partitions: config.num_partitions,
        replication_factor: i16::try_from(config.default_replication_factor).unwrap_or(i16::MAX),
        ..NewTopic::default()
    };
    let mut set = |key: &str, value: String| topic.configs.push((key.to_owned(), Some(value)));
    match name {
        GROUP_METADATA_TOPIC => {
            set("cleanup.policy", "compact".to_owned());
            set("segment.bytes", config.offsets_topic_segment_bytes.to_string());
            set("compression.type", "producer".to_owned());
            topic.partitions = config.offsets_topic_num_partitions;
            topic.replication_factor = config.offsets_topic_replication_factor;
        }
        TRANSACTION_STATE_TOPIC => {
            set("unclean.leader.election.enable", "false".to_owned());
            set("compression.type", "uncompressed".to_owned());
            set("cleanup.policy", "compact".to_owned());
            set("min.insync.replicas", config.transaction_state_log_min_isr.to_string());
            set("segment.bytes", config.transaction_state_log_segment_bytes.to_string());
            topic.partitions = config.transaction_state_log_num_partitions;
            topic.replication_factor = config.transaction_state_log_replication_factor;
        }
        _ => {}
    }
    topic
}
