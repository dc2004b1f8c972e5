//! Data of znodes, read as each of Kafka's documents; what is read can be written and read again.

use std::collections::BTreeSet;
use std::path::Path;

use common::ids::BrokerId;
use serde::Deserialize;
use zk::documents::DocumentError;
use zk::documents::acl::{AclChange, acls_to_bytes, parse_acls};
use zk::documents::admin::{
    parse_partitions, parse_reassignment, partitions_to_bytes, reassignment_to_bytes,
};
use zk::documents::broker::BrokerDocument;
use zk::documents::cluster::{MigrationDocument, parse_cluster_id};
use zk::documents::config::{configs_to_bytes, parse_configs, parse_consumer_offset};
use zk::documents::controller::{ControllerDocument, parse_epoch};
use zk::documents::feature::FeatureDocument;
use zk::documents::notification::{ConfigChange, parse_log_dir_event, parse_token_change};
use zk::documents::producer_ids::ProducerIdBlock;
use zk::documents::topic::TopicDocument;

const PATH: &str = "/fuzz";

pub(crate) fn run(data: &[u8]) {
    let broker = |data: &[u8]| BrokerDocument::parse(BrokerId(1), data);
    // Older ones are read alone, and have no place for everything that can be read in them.
    if broker(data).is_ok_and(|document| document.version >= 4) {
        again(data, broker, BrokerDocument::to_bytes);
    }
    again(data, |data| TopicDocument::parse("t", data), TopicDocument::to_bytes);
    again(data, ControllerDocument::parse, ControllerDocument::to_bytes);
    again(data, FeatureDocument::parse, FeatureDocument::to_bytes);
    again(data, MigrationDocument::parse, MigrationDocument::to_bytes);
    again(data, |data| ConfigChange::parse(PATH, data), ConfigChange::to_bytes);
    again(data, |data| parse_configs(PATH, data), configs_to_bytes);
    again(data, |data| parse_acls(PATH, data), |acls| acls_to_bytes(acls));
    again(data, parse_reassignment, reassignment_to_bytes);
    again(data, |data| parse_partitions(PATH, data), partitions_to_bytes);
    // These are text, or are not written by us.
    let results = [
        parse_cluster_id(data).is_ok(),
        parse_epoch(data).is_ok(),
        parse_consumer_offset(PATH, data).is_ok(),
        parse_log_dir_event(PATH, data).is_ok(),
        parse_token_change(PATH, data).is_ok(),
        ProducerIdBlock::parse(data).is_ok(),
        AclChange::parse_literal(PATH, data).is_ok(),
        AclChange::parse_extended(PATH, data).is_ok(),
    ];
    std::hint::black_box(results);
}

/// What is read is written, and read again as the same bytes.
fn again<T>(
    data: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, DocumentError>,
    to_bytes: impl Fn(&T) -> Vec<u8>,
) {
    let Ok(document) = parse(data) else { return };
    let written = to_bytes(&document);
    match parse(&written) {
        Ok(read) => assert_eq!(to_bytes(&read), written, "written and read it is another"),
        Err(error) => {
            panic!("{error}: what we write: {}", String::from_utf8_lossy(&written))
        }
    }
}

/// All data of the recorded trees.
pub(crate) fn corpus() -> Vec<Vec<u8>> {
    #[derive(Deserialize)]
    struct Line {
        data: Option<String>,
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/znodes");
    let mut corpus = BTreeSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        corpus.extend(lines.filter_map(|line| line.data).map(String::into_bytes));
    }
    corpus.into_iter().collect()
}
