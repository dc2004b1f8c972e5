//! What the comparison overlooks: masks, each with its reason, and the deliberate differences of `deviations.toml`.

use common::clock;
use kafka_protocol::messages::ApiKey;
use protocol::api;
use tests::deviations::Deviations;

use crate::{
    records,
    side::{Side, is_made_up},
    tree::{Difference, Tree},
};

/// Values that cannot be the same on two clusters, and why; printed by the run.
pub(crate) const MASKS: &[(&str, &str)] = &[
    (
        "api_keys",
        "APIs that are not built are left out, as `apis-not-built` says; the others have equal versions",
    ),
    ("port", "each broker has its own; that it is the one that it listens on is checked"),
    ("cluster_id", "random for each cluster; that it is the same in each answer is checked"),
    ("topic_id", "random; that each names the topic it was given to is checked"),
    (
        "producer_id",
        "Kafka refuses a few requests before it has its first ids; that one is given or not is checked, and for \
         transactional ids that each has its own",
    ),
    (
        "member_id, leader",
        "ends with a random UUID; what stands before it is checked, and that each member has its own",
    ),
    (
        "groups and transactional ids of other cases, ListGroups and ListTransactions",
        "what one case leaves behind by a deliberate difference is not to be seen in all others",
    ),
    ("transaction_start_time_ms, last_timestamp", "a time since the run began is now"),
    ("session_id", "random; that it is zero or not is checked"),
    ("log_dir", "each broker has its own directory"),
    ("total_bytes, usable_bytes", "the file system changes meanwhile"),
    (
        "log_append_time_ms, timestamp, max_timestamp, record_timestamp",
        "a time since the run began is now",
    ),
    (
        "a batch cut off at the end, Fetch below version 4",
        "Kafka fills converted records up to the size of the unconverted with one; no reader looks at it",
    ),
    ("times in batch_index_error_message", "the bounds of timestamps are counted from now"),
    ("ports and directories in texts", "as above"),
    (
        "order of topics, partitions, configs and the like",
        "Kafka's hash tables, and Fetch's errors that stand last; records keep their order",
    ),
];

/// How far from now a time may be.
const NOW_MS: i64 = 3 * 3_600_000;
/// How far from now a bound of timestamps may be: Kafka's default is an hour.
const BOUND_MS: u64 = 2 * 3_600_000;

/// Replaces what cannot be the same, and sorts what has no order.
pub(crate) fn mask(asked: (ApiKey, i16), side: &Side, requested: &str, tree: &mut Tree) {
    let port = side.address.port().to_string();
    tree.visit("", &mut |field, value| {
        if field == "records"
            && let Tree::Bytes(bytes) = value
        {
            let keeps_cut_off = asked != (ApiKey::Fetch, asked.1.min(3));
            *value = records::describe(bytes, keeps_cut_off);
            // Times of the append are in there.
            value.visit("records", &mut |field, value| {
                if matches!(field, "max_timestamp" | "record_timestamp" | "producer_id") {
                    mask_value(side, requested, &port, field, value);
                }
            });
        }
        mask_value(side, requested, &port, field, value);
        if field == "api_keys"
            && let Tree::List(items) = value
        {
            items.retain(is_built);
        }
        let listed = match asked.0 {
            ApiKey::ListGroups => "group_id",
            ApiKey::ListTransactions => "transactional_id",
            _ => "",
        };
        if let Tree::List(items) = value {
            let is_of_case = |id: &Tree| id.as_text().starts_with(&side.scope);
            items.retain(|item| item.get(listed).is_none_or(is_of_case));
        }
        if let Tree::List(items) = value
            && !matches!(field, "records" | "headers")
        {
            items.sort_by_cached_key(sort_key);
        }
    });
}

fn is_built(api: &Tree) -> bool {
    let key = api.get("api_key").and_then(|key| key.as_text().parse().ok());
    key.and_then(api::find).is_some_and(api::Api::is_built)
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
        "producer_id" if text.parse::<i64>().is_ok_and(|id| id >= 0) => {
            match side.name_of('p', text) {
                Some(name) => format!("<{name}>"),
                None if requested.contains(&number_hex(text)) => return,
                None => "<producer id>".to_owned(),
            }
        }
        "member_id" | "leader" if is_made_up(text) => match side.name_of('m', text) {
            Some(name) => format!("<{}{name}>", &text[..text.len() - 36]),
            None => format!("<{}>", &text[..text.len() - 36]),
        },
        "session_id" if text != "0" => "<session>".to_owned(),
        "log_dir" => "<directory>".to_owned(),
        "total_bytes" | "usable_bytes" if text.parse::<i64>().is_ok_and(|bytes| bytes > 0) => {
            "<bytes>".to_owned()
        }
        "log_append_time_ms"
        | "max_timestamp"
        | "record_timestamp"
        | "timestamp"
        | "transaction_start_time_ms"
        | "last_timestamp" => {
            let is_now = |time: i64| (clock::wall_clock().0 - time).abs() < NOW_MS;
            if text.parse().is_ok_and(is_now) { "<now>".to_owned() } else { return }
        }
        _ => {
            if let Tree::Text(text) = value {
                if field == "batch_index_error_message" {
                    *text = without_now(text);
                }
                for (secret, name) in &side.texts {
                    *text = text.replace(secret, name);
                }
            }
            return;
        }
    };
    *value = Tree::Word(masked);
}

/// A number of eight bytes as it stands in a request.
fn number_hex(text: &str) -> String {
    crate::value::hex(&text.parse().unwrap_or(-1i64).to_be_bytes())
}

/// A text in which the times around now are told as such: the bounds that a timestamp had to keep.
fn without_now(text: &str) -> String {
    let number = regex::Regex::new(r"-?\d{13,19}").expect("a pattern");
    let now = clock::wall_clock().0;
    let is_near = |time: i64| now.abs_diff(time) < BOUND_MS;
    let name = |time: &regex::Captures| match time[0].parse::<i64>() {
        Ok(time) if is_near(time) => "<now>".to_owned(),
        // The default bound is the largest number, and the sum overflows, in Kafka and so here.
        Ok(time) if is_near(time.wrapping_sub(i64::MAX)) => "<now + max>".to_owned(),
        _ => time[0].to_owned(),
    };
    number.replace_all(text, &name).into_owned()
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
        "group_id",
        "member_id",
        "transactional_id",
        "producer_id",
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
    /// Of the case; a step after it may be of another.
    pub(crate) api: &'a str,
    /// API, version, scenario and what was changed.
    pub(crate) name: &'a str,
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
    let place = format!("differential/{}", asked.api);
    let accepted = deviations
        .accept(name, &place)
        .or_else(|| deviations.accept(name, &format!("{place}/{field}")));
    accepted.map(|deviation| deviation.name.clone())
}

type Rule = (&'static str, fn(&Asked, &Difference) -> bool);

/// How each deliberate difference shows.
const RULES: &[Rule] = &[
    ("strings-are-utf-8", |asked, difference| {
        // What the case would have changed is not changed.
        let is_after = asked.name.ends_with("and then");
        asked.name.contains("x61fffe62") && (is_closed(difference) || is_after)
    }),
    ("only-minus-one-is-null", |asked, difference| {
        let lengths = [": verbatim xfffe", ": verbatim xfffffffe"];
        let is_asked = lengths.iter().any(|length| asked.request.contains(length));
        let is_after = asked.name.contains("=verbatim") && asked.name.ends_with("and then");
        is_asked && is_closed(difference) || is_after
    }),
    ("session-ids-of-any-size", |asked, _| {
        asked.api == "Fetch"
            && asked.name.contains("SessionId=")
            && asked.name.contains("2147483647")
            || asked.api == "Fetch" && asked.name.contains("SessionId=-2147483648")
    }),
    ("failures-leave-no-group", |_, difference| {
        difference.path.ends_with("group_state")
            && (difference.kafka.as_str(), difference.ours.as_str()) == ("\"Empty\"", "\"Dead\"")
    }),
    ("texts-of-any-length", |asked, _| {
        // The id of a new member is longer yet: Kafka cannot write it, in the record or in an answer.
        let is_longest = asked.name.contains("GroupInstanceId='xxxxxxxx...' of 32767 bytes");
        asked.api == "JoinGroup" && is_longest
    }),
    ("repeated-places-are-marked-once", |asked, difference| {
        let repeats = asked.name.contains("Markers.Topics=[{")
            || asked.name.contains("Markers.Topics.PartitionIndexes=[0, 0]");
        repeats && difference.kafka == "Silence" && difference.ours.starts_with('{')
    }),
    ("nothing-has-not-begun", |asked, difference| {
        let is_start = difference.path.ends_with("transaction_start_time_ms");
        is_start && difference.ours == "-1" && asked.api == "DescribeTransactions"
    }),
    ("protocols-count-once", |asked, _| asked.name.contains("duplicate protocols")),
    ("null-topics-are-unreadable", |asked, _| asked.name.contains("null topics in metadata")),
    ("empty-batches-are-answered", |asked, difference| {
        let is_empty =
            asked.name.ends_with("/Transactions=[]") || asked.name.ends_with("/Groups=[]");
        is_empty && difference.kafka == "Silence" && difference.ours.starts_with('{')
    }),
    ("assignment-to-an-unknown-broker", |asked, _| {
        // Kafka's later answers are about the topic that it left behind.
        asked.name.contains("BrokerIds=[99]")
            || asked.name.contains("BrokerIds=[2147483647")
            || asked.name.contains("BrokerIds=[0, 1]")
            || asked.name.contains("BrokerIds=[1, 0, 2]")
    }),
    ("impossible-topics-are-unknown", |asked, difference| {
        let is_path = ["\"\"", "\".\"", "\"..\"", "\"nul\\0\""];
        let ends = |name: &&str| {
            let is_of = |field: &str| asked.name.ends_with(&format!("{field}={name}"));
            is_of("Topics.Name") || is_of("Resources.ResourceName")
        };
        let failed = matches!(difference.kafka.as_str(), "-1" | "40" | "null");
        let has_words = difference.kafka.contains("Invalid path string");
        is_path.iter().any(ends) && (failed || has_words)
    }),
    ("duplicate-resources-are-answered", |asked, difference| {
        asked.name.contains("Resources=[{") && difference.kafka == "Silence"
    }),
    ("malformed-batches-have-a-code", |asked, difference| {
        let is_sample = asked.name.ends_with("Records=varint without an end");
        is_sample && difference.kafka == "-1" && difference.ours == "87"
    }),
    ("unreadable-records-are-refused", |asked, difference| {
        let is_sample = asked.name.contains("Records=compressed record too ");
        // Kafka cannot even convert them afterwards; ours has to live on.
        is_sample && difference.ours != "Closed" && difference.ours != "Silence"
    }),
    ("plain-records-are-numbered", |asked, _| {
        let is_sample = |sample: &&str| asked.name.ends_with(&format!("Records={sample} and then"));
        ["offset deltas 0 and 0", "offset deltas 0 and 2"].iter().any(is_sample)
    }),
    ("records-before-zstd-are-converted", |asked, difference| {
        asked.name.ends_with("Records=zstd and then") && has_more_converted(difference)
    }),
    ("converted-records-are-whole", |_, difference| has_more_converted(difference)),
    ("null-records-are-answered", |asked, difference| {
        let is_null = asked.name.contains("Records=null")
            || asked.name.contains("Records=verbatim xfffffffe");
        is_null && (difference.kafka == "Silence" || asked.name.ends_with("and then"))
    }),
    ("nil-topic-ids-are-unknown", |asked, _| {
        let nil = "TopicId=x00000000000000000000000000000000";
        asked.api == "Fetch" && asked.name.contains("session/") && asked.name.contains(nil)
    }),
    ("negative-partitions-are-refused", |asked, _| {
        asked.name.contains("assigned/Topics.Assignments.PartitionIndex=-")
    }),
    ("compressed-sizes", |_, difference| {
        let size = |text: &str| text.parse::<i64>().unwrap_or(i64::MAX / 2);
        difference.path.ends_with("partition_size")
            && (size(&difference.kafka) - size(&difference.ours)).abs() < 16
    }),
    ("stopped-replicas-are-not-served", |asked, _| {
        let is_kept = ["DeletePartitions=0", "DeletePartition=0"];
        asked.api == "StopReplica"
            && asked.name.ends_with("and then")
            && is_kept.iter().any(|kept| asked.name.contains(kept))
    }),
    ("unknown-leaders-are-followed", |asked, _| {
        let is_other = asked.name.contains("States.Leader=");
        asked.api == "LeaderAndIsr" && is_other && asked.name.ends_with("and then")
    }),
    ("newer-states-of-an-epoch-are-taken", |asked, difference| {
        let field = asked.name.rsplit('.').next().unwrap_or_default();
        let of_field = match difference.ours.as_str() {
            "0" => field.starts_with("PartitionEpoch="),
            // Of a follower Kafka takes the topic's id away.
            "11" => field.starts_with("Leader="),
            _ => false,
        };
        asked.name.contains("of the epoch there is/") && of_field
    }),
    ("repeated-topics-are-told-once", |asked, _| {
        let twice = ["/TopicStates=[{", "/TopicStates.TopicName=\"unknown\""];
        asked.api == "LeaderAndIsr" && twice.iter().any(|twice| asked.name.contains(twice))
    }),
    ("impossible-endpoints-are-left-out", |asked, _| {
        let fields = ["V0Port=", "Endpoints.Port=", "Endpoints.SecurityProtocol=", "Endpoints=[{"];
        let of_broker = |field: &&str| asked.name.contains(&format!("LiveBrokers.{field}"));
        asked.api == "UpdateMetadata" && fields.iter().any(of_broker)
    }),
    ("ids-outlive-partitions", |asked, difference| {
        let is_gone = asked.name.contains("PartitionStates.Leader=-2 and then");
        asked.api == "UpdateMetadata" && is_gone && difference.path.ends_with("topic_id")
    }),
    ("stray-by-topic-id", |asked, _| {
        asked.api == "LeaderAndIsr" && asked.name.contains("TopicStates.TopicId=x")
    }),
    ("defaults-that-no-topic-takes", |asked, difference| {
        let is_below = asked.name.contains("broker/log.flush.interval.ms=\"-");
        is_below && matches!(difference.kafka.as_str(), "0" | "null")
    }),
    ("no-cleaner-threads", |asked, difference| {
        let is_none = asked.name.contains("broker/log.cleaner.threads=\"0\"");
        is_none && difference.kafka.contains("/ by zero")
    }),
    ("help-in-own-words", |_, difference| difference.path.ends_with("documentation")),
];

/// Ours has the converted records that Kafka has, and then more.
fn has_more_converted(difference: &Difference) -> bool {
    let (kafka, ours) = (&difference.kafka, &difference.ours);
    let is_converted = kafka.contains("magic: 0") || kafka.contains("magic: 1");
    let begins = kafka.strip_suffix(']').is_some_and(|begin| ours.starts_with(begin));
    difference.path.ends_with("records") && is_converted && !ours.contains("magic: 2") && begins
}

/// Kafka answers and ours closes the connection.
fn is_closed(difference: &Difference) -> bool {
    difference.path == "outcome" && difference.kafka.starts_with('{') && difference.ours == "Closed"
}
