//! What the comparison overlooks: masks, each with its reason, and the deliberate differences of `deviations.toml`.

use common::clock;
use kafka_protocol::messages::ApiKey;
use tests::deviations::Deviations;

use crate::{
    records,
    side::Side,
    tree::{Difference, Tree},
};

/// Values that cannot be the same on two clusters, and why; printed by the run.
pub(crate) const MASKS: &[(&str, &str)] = &[
    ("port", "each broker has its own; that it is the one that it listens on is checked"),
    ("cluster_id", "random for each cluster; that it is the same in each answer is checked"),
    ("topic_id", "random; that each names the topic it was given to is checked"),
    ("session_id", "random; that it is zero or not is checked"),
    ("log_dir", "each broker has its own directory"),
    ("total_bytes, usable_bytes", "the file system changes meanwhile"),
    (
        "log_append_time_ms, max_timestamp, record_timestamp",
        "a time within the last minutes is now",
    ),
    ("ports and directories in texts", "as above"),
    (
        "order of topics, partitions, configs and the like",
        "Kafka's hash tables; Fetch keeps its order",
    ),
];

/// How far from now a time may be.
const NOW_MS: i64 = 600_000;

/// Replaces what cannot be the same, and sorts what has no order.
pub(crate) fn mask(api: ApiKey, side: &Side, requested: &str, tree: &mut Tree) {
    let port = side.address.port().to_string();
    tree.visit("", &mut |field, value| {
        if field == "records"
            && let Tree::Bytes(bytes) = value
        {
            *value = records::describe(bytes);
            // Times of the append are in there.
            value.visit("records", &mut |field, value| {
                mask_value(side, requested, &port, field, value)
            });
        }
        mask_value(side, requested, &port, field, value);
        if api != ApiKey::Fetch
            && let Tree::List(items) = value
        {
            items.sort_by_cached_key(sort_key);
        }
    });
}

fn mask_value(side: &Side, requested: &str, port: &str, field: &str, value: &mut Tree) {
    let text = value.as_text();
    let masked = match field {
        "port" if text == port => "<port>".to_owned(),
        "cluster_id" if !text.is_empty() && text == side.cluster_id => "<cluster id>".to_owned(),
        "topic_id" => match side.topic_of(text) {
            Some(name) => format!("<id of {name}>"),
            None if text.starts_with("00000000-0000-0000-0000") => return,
            None if requested.contains(&text.replace('-', "")) => return,
            None => "<id>".to_owned(),
        },
        "session_id" if text != "0" => "<session>".to_owned(),
        "log_dir" => "<directory>".to_owned(),
        "total_bytes" | "usable_bytes" if text.parse::<i64>().is_ok_and(|bytes| bytes > 0) => {
            "<bytes>".to_owned()
        }
        "log_append_time_ms" | "max_timestamp" | "record_timestamp" => {
            let is_now = |time: i64| (clock::wall_clock().0 - time).abs() < NOW_MS;
            if text.parse().is_ok_and(is_now) { "<now>".to_owned() } else { return }
        }
        _ => {
            if let Tree::Text(text) = value {
                for (secret, name) in &side.texts {
                    *text = text.replace(secret, name);
                }
            }
            return;
        }
    };
    *value = Tree::Word(masked);
}

/// Names and numbers first, so that elements meet their like.
fn sort_key(tree: &Tree) -> (Vec<Tree>, Tree) {
    const KEYS: &[&str] = &[
        "name",
        "topic",
        "resource_type",
        "resource_name",
        "partition_index",
        "partition",
        "index",
        "node_id",
        "key",
        "api_key",
    ];
    let keys = KEYS.iter().map(|key| match tree.get(key) {
        Some(Tree::Word(word)) => Tree::Word(format!("{word:>20}")),
        Some(other) => other.clone(),
        None => Tree::Null,
    });
    (keys.collect(), tree.clone())
}

/// A case in which both were asked the same, as rules see it.
pub(crate) struct Asked<'a> {
    pub(crate) api: ApiKey,
    pub(crate) name: &'a str,
    pub(crate) version: i16,
    /// The request as shown.
    pub(crate) request: &'a str,
}

/// The deliberate difference that a difference is, if it is one.
pub(crate) fn accepted(
    deviations: &Deviations,
    asked: &Asked,
    difference: &Difference,
) -> Option<String> {
    let field = difference.path.rsplit('.').next().unwrap_or_default();
    let name = RULES.iter().find(|(_, covers)| covers(asked, difference))?.0;
    let place = format!("differential/{:?}", asked.api);
    let accepted = deviations
        .accept(name, &place)
        .or_else(|| deviations.accept(name, &format!("{place}/{field}")));
    accepted.map(|deviation| deviation.name.clone())
}

type Rule = (&'static str, fn(&Asked, &Difference) -> bool);

/// How each deliberate difference shows.
const RULES: &[Rule] = &[
    ("strings-are-utf-8", |asked, difference| {
        asked.request.contains("x61fffe62") && is_closed(difference)
    }),
    ("only-minus-one-is-null", |asked, difference| {
        let lengths = [": verbatim xfffe", ": verbatim xfffffffe"];
        lengths.iter().any(|length| asked.request.contains(length)) && is_closed(difference)
    }),
    ("apis-not-built", |asked, difference| {
        asked.api == ApiKey::ApiVersions && difference.path == "api_keys"
    }),
    ("no-coordinators-yet", |asked, difference| {
        asked.api == ApiKey::FindCoordinator && difference.path != "outcome"
    }),
    ("help-in-own-words", |_, difference| difference.path.ends_with("documentation")),
];

/// Kafka answers and ours closes the connection.
fn is_closed(difference: &Difference) -> bool {
    difference.path == "outcome" && difference.kafka.starts_with('{') && difference.ours == "Closed"
}
