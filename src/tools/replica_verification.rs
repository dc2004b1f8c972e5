//! `kafka-replica-verification`: reads all replicas of partitions side by side, and tells where they differ. Source:
//! `ReplicaVerificationTool`.
//!
//! Deprecated in Kafka, and told so at start. All brokers with replicas must be up when it begins.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use client::{
    admin::{
        Admin,
        replicas::{ReplicaFetchLimits, ReplicaRecords},
    },
    error::ClientError,
    metadata::{Metadata, Node},
    offsets::Partitions,
};
use common::{clock, ids::Offset, properties::Properties, topic::TopicPartition};
use jiff::tz::TimeZone;
use record::batch::{Batch, Batches};
use tokio::task::JoinSet;

use crate::{
    clients::{construction_failure, open_admin, runtime},
    console::{Halt, halt, say},
    date_format::DateFormat,
    get_offsets::check_servers,
    java_order::by_partition,
    logging,
    options::{OptionSpec, Options, parse_or_refuse, read, value},
    signals::Signals,
    topics::topic_pattern,
};

const CLASS: &str = "org.apache.kafka.tools.ReplicaVerificationTool";

const OPTIONS: &[OptionSpec] = &[
    value(
        "broker-list",
        "hostname:port,...,hostname:port",
        "REQUIRED: A broker of the cluster, as host:port; several with commas.",
    ),
    value("fetch-size", "bytes", "Bytes of one partition that one answer holds.")
        .integer()
        .default("1048576"),
    value("max-wait-ms", "ms", "Milliseconds that a broker may wait for new records.")
        .integer()
        .default("1000"),
    value(
        "topic-white-list",
        "Java regex (String)",
        "DEPRECATED: the former name of --topics-include, which wins.",
    )
    .default(".*"),
    value("topics-include", "Java regex (String)", "Regular expression for the topics.")
        .default(".*"),
    value(
        "time",
        "timestamp/-1(latest)/-2(earliest)",
        "Where to begin: the first record at or after this time.",
    )
    .long()
    .default("-1"),
    value("report-interval-ms", "ms", "Milliseconds between two reports.").long().default("30000"),
];

/// A broker that could not be asked is asked again after this time.
const BACKOFF: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    tracing::warn!(
        class = CLASS,
        "This tool is deprecated and may be removed in a future major release."
    );
    let options = parse_or_refuse(OPTIONS, words)?;
    options.answer_help_or_version(
        "Validate that all replicas for a set of topics have the same data.",
    )?;
    options.require(&["broker-list"])?;
    options.exclude("topics-include", &["topic-white-list"])?;
    let servers = read(options.text("broker-list"))?.unwrap_or_default();
    check_servers(&options, &servers)?;
    let job = read(Job::read(&options))?;
    let properties = Properties::from([("bootstrap.servers".to_owned(), servers)]);
    runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        let opened = open_admin(&properties).await;
        let admin = opened.or_else(|error| {
            halt(&construction_failure("Failed to create new KafkaAdminClient", &error))
        })?;
        tokio::select! {
            ended = job.run(&admin) => ended,
            code = signals.next() => Err(Halt(code)),
        }
    })
}

/// What is compared, and how.
struct Job {
    topics: String,
    begin: i64,
    report_interval: Duration,
    limits: ReplicaFetchLimits,
}

impl Job {
    fn read(options: &Options) -> Result<Job, String> {
        let list =
            if options.has("topics-include") { "topics-include" } else { "topic-white-list" };
        let report_interval_ms = options.long("report-interval-ms")?.unwrap_or_default();
        Ok(Job {
            topics: options.text(list)?.unwrap_or_default(),
            begin: options.long("time")?.unwrap_or(-1),
            report_interval: Duration::from_millis(u64::try_from(report_interval_ms).unwrap_or(0)),
            limits: ReplicaFetchLimits {
                partition_bytes_max: options.integer("fetch-size")?.unwrap_or_default(),
                wait_max_ms: options.integer("max-wait-ms")?.unwrap_or_default(),
            },
        })
    }

    /// Compares until a replica has another offset than the others.
    async fn run(&self, admin: &Admin) -> Result<(), Halt> {
        let mut brokers = self.brokers(admin).await?;
        let mut comparison = Comparison {
            offsets: told(self.offsets(admin, &brokers).await)?,
            dates: DateFormat::new("yyyy-MM-dd HH:mm:ss,SSS", TimeZone::system())
                .expect("the pattern is one of Java's"),
        };
        say(&format!("{}: verification process is started", comparison.now()));
        let mut reported = clock::now();
        loop {
            let answers = self.fetch(admin, &mut brokers, &comparison.offsets).await;
            let lag = comparison.compare(&answers).map_err(|Mismatch(text)| {
                say(&text);
                Halt(1)
            })?;
            reported = self.report(&comparison, lag, reported);
        }
    }

    /// The partitions of each broker.
    async fn brokers(&self, admin: &Admin) -> Result<Brokers, Halt> {
        let pattern = topic_pattern(&self.topics).or_else(|failure| halt(&failure.message))?;
        told(admin.list_topics().await)?;
        let metadata = admin.cluster().metadata();
        let nodes = told(admin.describe_cluster().await)?.nodes;
        let mut partitions: BTreeMap<i32, BTreeSet<TopicPartition>> = BTreeMap::new();
        for topic in metadata.topics.values().filter(|topic| pattern.is_match(&topic.name)) {
            for partition in &topic.partitions {
                let name = TopicPartition::new(topic.name.as_str(), partition.index);
                for broker in &partition.replicas {
                    partitions.entry(*broker).or_default().insert(name.clone());
                }
            }
        }
        if partitions.is_empty() {
            logging::error(
                CLASS,
                "No topics found. [topics-include] if specified, is either filtering out all topics or there is no topic.",
            );
            return Err(Halt(1));
        }
        let mut brokers = Vec::new();
        for (id, partitions) in partitions {
            let Some(node) = nodes.iter().find(|node| node.id == id) else {
                return halt(&format!(
                    "Broker {id} has replicas, but is not up: all of them must be, to begin"
                ));
            };
            brokers.push((node.clone(), partitions));
        }
        Ok(Brokers { brokers, metadata })
    }

    /// Where the comparison begins.
    async fn offsets(
        &self,
        admin: &Admin,
        brokers: &Brokers,
    ) -> Result<Partitions<Offset>, ClientError> {
        let names = brokers.brokers.iter().flat_map(|(_, partitions)| partitions.clone());
        let wanted = names.map(|name| (name, self.begin)).collect();
        let mut offsets = Partitions::new();
        for (name, listed) in admin.list_offsets(&wanted).await? {
            // Behind the last record there is nothing to compare yet; the walk begins at the end then.
            let listed = match listed?.offset {
                offset if offset >= 0 => offset,
                _ => {
                    let end = admin.list_offsets(&[(name.clone(), -1)].into()).await?;
                    let end = end.into_values().next().transpose()?;
                    end.map_or(0, |end| end.offset)
                }
            };
            offsets.insert(name, Offset(listed));
        }
        Ok(offsets)
    }

    /// What each broker holds of its partitions; nothing of a broker that does not answer.
    async fn fetch(
        &self,
        admin: &Admin,
        brokers: &mut Brokers,
        offsets: &Partitions<Offset>,
    ) -> Answers {
        let mut calls = JoinSet::new();
        for (node, partitions) in &brokers.brokers {
            let wanted: Partitions<Offset> =
                partitions.iter().map(|name| (name.clone(), offsets[name])).collect();
            let (admin, node, limits) = (admin.clone(), node.clone(), self.limits);
            let metadata = Arc::clone(&brokers.metadata);
            calls.spawn(async move {
                let fetched = admin.fetch_from_replica(&node, &metadata, &wanted, limits).await;
                (node.id, wanted, fetched)
            });
        }
        let mut answers = Answers::new();
        let mut is_whole = true;
        for (broker, wanted, fetched) in calls.join_all().await {
            let mut held = fetched.unwrap_or_else(|error| {
                tracing::debug!(broker, %error, "no answer");
                is_whole = false;
                Partitions::new()
            });
            for name in wanted.into_keys() {
                let nothing = ReplicaRecords { high_watermark: -1, ..ReplicaRecords::default() };
                let records = held.remove(&name).unwrap_or(nothing);
                answers.entry(name).or_default().insert(broker, records);
            }
        }
        if !is_whole {
            tokio::time::sleep(BACKOFF).await;
        }
        answers
    }

    /// Tells of the largest lag, when it is time; gives the time of the last report.
    fn report(&self, comparison: &Comparison, lag: Option<Lag>, last: Instant) -> Instant {
        let now = clock::now();
        let Some(lag) = lag.filter(|_| now.duration_since(last) > self.report_interval) else {
            return last;
        };
        say(&format!(
            "{}: max lag is {} for partition {} at offset {} among {} partitions",
            comparison.now(),
            lag.records,
            lag.partition,
            lag.offset.0,
            comparison.offsets.len()
        ));
        now
    }
}

/// Ends with the error of a call.
fn told<T>(result: Result<T, ClientError>) -> Result<T, Halt> {
    result.or_else(|error| halt(&format!("{error}\n{}", error.with_class())))
}

/// Brokers with the partitions of each, and the names of topic ids.
struct Brokers {
    brokers: Vec<(Node, BTreeSet<TopicPartition>)>,
    metadata: Arc<Metadata>,
}

/// What the replicas of each partition hold, by broker.
type Answers = BTreeMap<TopicPartition, BTreeMap<i32, ReplicaRecords>>;

/// How far a partition is compared.
#[derive(Debug, PartialEq, Eq)]
struct Lag {
    partition: TopicPartition,
    offset: Offset,
    /// What is left up to the largest high watermark.
    records: i64,
}

/// Replicas are at different offsets; the line that tells so.
#[derive(Debug, PartialEq, Eq)]
struct Mismatch(String);

/// What is compared already.
struct Comparison {
    offsets: Partitions<Offset>,
    dates: DateFormat,
}

impl Comparison {
    fn now(&self) -> String {
        self.dates.show(clock::wall_clock().0)
    }

    /// Compares what came, and goes on behind what is equal; gives the largest lag.
    fn compare(&mut self, answers: &Answers) -> Result<Option<Lag>, Mismatch> {
        let mut worst: Option<Lag> = None;
        for (name, replicas) in by_partition(answers.iter().collect(), |(name, _)| name) {
            let offset = self.compare_partition(name, replicas)?;
            self.offsets.insert(name.clone(), offset);
            let end = replicas.values().map(|held| held.high_watermark).max().unwrap_or(-1);
            let records = end - offset.0;
            if records > worst.as_ref().map_or(-1, |lag| lag.records) {
                worst = Some(Lag { partition: name.clone(), offset, records });
            }
        }
        Ok(worst)
    }

    /// Batch by batch, as long as every replica has one below its high watermark. Gives where to go on.
    fn compare_partition(
        &self,
        name: &TopicPartition,
        replicas: &BTreeMap<i32, ReplicaRecords>,
    ) -> Result<Offset, Mismatch> {
        let mut walks: Vec<(i32, i64, Batches<'_>)> = replicas
            .iter()
            .map(|(id, held)| (*id, held.high_watermark, Batches::new(&held.records)))
            .collect();
        let mut reached = self.offsets[name];
        loop {
            let mut is_everywhere = true;
            let mut first: Option<(i32, Batch<'_>)> = None;
            for (broker, high_watermark, walk) in &mut walks {
                // An entry that makes no sense ends the walk, as one does that is cut off.
                let batch = walk.next().and_then(Result::ok);
                let committed = batch.filter(|batch| batch.header.last_offset.0 < *high_watermark);
                match (committed, &first) {
                    (None, _) => is_everywhere = false,
                    (Some(batch), None) => first = Some((*broker, batch)),
                    (Some(batch), Some(first)) => {
                        self.compare_batch(name, first, &(*broker, batch))?;
                    }
                }
            }
            match first {
                Some((_, batch)) if is_everywhere => {
                    reached = Offset(batch.header.last_offset.0 + 1);
                }
                _ => return Ok(reached),
            }
        }
    }

    fn compare_batch(
        &self,
        name: &TopicPartition,
        first: &(i32, Batch<'_>),
        other: &(i32, Batch<'_>),
    ) -> Result<(), Mismatch> {
        let ((first_id, first), (id, batch)) = (first, other);
        let (first, batch) = (&first.header, &batch.header);
        if first.last_offset != batch.last_offset {
            return Err(Mismatch(format!(
                "{}: partition {name}: replica {first_id}'s offset {} doesn't match replica {id}'s offset {}",
                self.now(),
                first.last_offset.0,
                batch.last_offset.0
            )));
        }
        if first.crc != batch.crc {
            say(&format!(
                "{}: partition {name} has unmatched checksum at offset {}; replica {first_id}'s checksum {}; replica {id}'s checksum {}",
                self.now(),
                batch.last_offset.0,
                first.crc,
                batch.crc
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use client::{admin::replicas::ReplicaRecords, offsets::Partitions};
    use common::{
        ids::{Offset, Timestamp},
        topic::TopicPartition,
    };
    use jiff::tz::TimeZone;
    use record::{build::BatchBuilder, compression::Compression};

    use super::{Answers, Comparison, DateFormat, Lag, Mismatch};

    fn name() -> TopicPartition {
        TopicPartition::new("t", 0)
    }

    /// A batch a list of values.
    fn batches(first: i64, values: &[&[&str]]) -> Bytes {
        let mut bytes = BytesMut::new();
        let mut offset = first;
        for batch in values {
            let mut builder = BatchBuilder::new(Compression::None).base_offset(Offset(offset));
            for value in *batch {
                builder.append(Timestamp(0), None, Some(value.as_bytes()), &[]).unwrap();
                offset += 1;
            }
            bytes.extend_from_slice(&builder.finish());
        }
        bytes.freeze()
    }

    fn compare(from: i64, replicas: &[(i64, Bytes)]) -> Result<(Option<Lag>, i64), Mismatch> {
        let mut comparison = Comparison {
            offsets: Partitions::from([(name(), Offset(from))]),
            dates: DateFormat::new("yyyy", TimeZone::UTC).unwrap(),
        };
        let held = (1..).zip(replicas).map(|(broker, (high_watermark, records))| {
            let high_watermark = *high_watermark;
            (broker, ReplicaRecords { high_watermark, records: records.clone() })
        });
        let answers = Answers::from([(name(), held.collect())]);
        let lag = comparison.compare(&answers)?;
        Ok((lag, comparison.offsets[&name()].0))
    }

    fn lag(offset: i64, records: i64) -> Option<Lag> {
        Some(Lag { partition: name(), offset: Offset(offset), records })
    }

    #[test]
    fn the_comparison_goes_as_far_as_all_replicas() {
        let two = batches(5, &[&["a", "b"], &["c"]]);
        assert_eq!(compare(5, &[(8, two.clone()), (8, two.clone())]), Ok((lag(8, 0), 8)));
        // One replica is a batch behind, one has nothing yet.
        let one = batches(5, &[&["a", "b"]]);
        assert_eq!(compare(5, &[(8, two.clone()), (7, one)]), Ok((lag(7, 1), 7)));
        assert_eq!(compare(5, &[(8, two.clone()), (-1, Bytes::new())]), Ok((lag(5, 3), 5)));
        // What is not committed is not compared.
        assert_eq!(compare(5, &[(7, two.clone()), (8, two)]), Ok((lag(7, 1), 7)));
    }

    #[test]
    fn other_bytes_are_told_and_other_offsets_end_it() {
        let (one, other) = (batches(0, &[&["a"]]), batches(0, &[&["b"]]));
        assert_eq!(compare(0, &[(1, one), (1, other)]), Ok((lag(1, 0), 1)));
        let (one, other) = (batches(0, &[&["a"]]), batches(0, &[&["a", "b"]]));
        let Mismatch(text) = compare(0, &[(2, one), (2, other)]).unwrap_err();
        assert!(
            text.ends_with(
                ": partition t-0: replica 1's offset 0 doesn't match replica 2's offset 1"
            )
        );
    }
}
