//! Transactions begin, grow and end.

use kafka_protocol::messages::ApiKey;
use serde_json::{Value as Json, json};

use super::{Conversation, Line, ask, pinned};
use crate::{
    records,
    scenarios::{
        Names, create,
        group_bodies::{Join, consumer, join, sync},
    },
    value::hex,
};

const ALL: &[ApiKey] = &[
    ApiKey::InitProducerId,
    ApiKey::AddPartitionsToTxn,
    ApiKey::AddOffsetsToTxn,
    ApiKey::EndTxn,
    ApiKey::TxnOffsetCommit,
    ApiKey::WriteTxnMarkers,
    ApiKey::DescribeTransactions,
    ApiKey::ListTransactions,
    ApiKey::DescribeProducers,
];

pub(super) fn all() -> Vec<Conversation> {
    let of = |name, lines| Conversation { name, apis: ALL, rounds: (0, 5), lines };
    vec![
        of("unknown transaction", unknown),
        of("commit", commit),
        of("abort", abort),
        of("fencing", fencing),
        // Before, nobody could say who it believed to be.
        Conversation { rounds: (3, 5), ..of("expectations", expectations) },
        of("partitions", partitions),
        of("verification", verification),
        of("offsets", offsets),
        of("offsets of a member", offsets_of_a_member),
        of("markers by hand", markers),
    ]
}

/// The usual producer: requests of its transaction, in the version of the round.
struct Producer<'a> {
    names: &'a Names,
    round: i16,
    id: &'a str,
}

impl<'a> Producer<'a> {
    fn new(names: &'a Names, round: i16) -> Producer<'a> {
        Producer { names, round, id: &names.fresh }
    }

    fn ask(&self, label: &'static str, key: ApiKey, body: Json) -> Line {
        ask(self.round, label, key, body)
    }

    fn init(&self, label: &'static str) -> Line {
        self.init_as(label, json!(-1), -1)
    }

    fn init_as(&self, label: &'static str, producer: Json, epoch: i16) -> Line {
        let body = json!({"TransactionalId": self.id, "TransactionTimeoutMs": 900_000, "ProducerId": producer, "ProducerEpoch": epoch});
        self.ask(label, ApiKey::InitProducerId, body)
    }

    fn add(&self, label: &'static str, producer: &str, epoch: i16, partitions: &[i32]) -> Line {
        self.add_topics(
            label,
            producer,
            epoch,
            json!([{"Name": self.id, "Partitions": partitions}]),
        )
    }

    fn add_topics(&self, label: &'static str, producer: &str, epoch: i16, topics: Json) -> Line {
        let producer = match producer.parse::<i64>() {
            Ok(number) => json!(number),
            Err(_) => json!(producer),
        };
        let body = json!({
            "V3AndBelowTransactionalId": self.id, "V3AndBelowProducerId": producer,
            "V3AndBelowProducerEpoch": epoch, "V3AndBelowTopics": topics,
            "Transactions": [{
                "TransactionalId": self.id, "ProducerId": producer, "ProducerEpoch": epoch,
                "VerifyOnly": false, "Topics": topics,
            }],
        });
        self.ask(label, ApiKey::AddPartitionsToTxn, body)
    }

    /// Asks whether a partition is in the transaction, in a version of brokers.
    fn verify(&self, label: &'static str, epoch: i16, topics: Json) -> Line {
        let body = json!({"Transactions": [
            {"TransactionalId": self.id, "ProducerId": "@p1", "ProducerEpoch": epoch, "VerifyOnly": true, "Topics": topics},
            {"TransactionalId": "unknown", "ProducerId": "@p1", "ProducerEpoch": epoch, "VerifyOnly": true, "Topics": topics},
        ]});
        ask(self.round.max(4), label, ApiKey::AddPartitionsToTxn, body)
    }

    fn produce(&self, label: &'static str, partition: i32, epoch: i16, sequence: i32) -> Line {
        let batch = hex(&records::transactional_of(0, epoch, sequence, 2));
        let data = json!([{"Index": partition, "Records": format!("@p1:{batch}")}]);
        let body = json!({
            "TransactionalId": self.id, "Acks": -1, "TimeoutMs": 30000,
            "TopicData": [{"Name": self.id, "PartitionData": data}],
        });
        pinned(label, ApiKey::Produce, 6 + self.round, body)
    }

    fn end(&self, label: &'static str, epoch: i16, commits: bool) -> Line {
        let body = json!({"TransactionalId": self.id, "ProducerId": "@p1", "ProducerEpoch": epoch, "Committed": commits});
        self.ask(label, ApiKey::EndTxn, body)
    }

    fn describe(&self, label: &'static str) -> Line {
        self.ask(label, ApiKey::DescribeTransactions, json!({"TransactionalIds": [self.id]}))
    }

    fn list(&self, label: &'static str, states: &[&str], producers: Json, duration: i64) -> Line {
        let body = json!({"StateFilters": states, "ProducerIdFilters": producers, "DurationFilter": duration});
        self.ask(label, ApiKey::ListTransactions, body)
    }

    fn producers(&self, label: &'static str) -> Line {
        let topics = json!([{"Name": self.id, "PartitionIndexes": [0, 1, 7]}]);
        self.ask(label, ApiKey::DescribeProducers, json!({"Topics": topics}))
    }

    /// What readers see.
    fn read(&self, labels: [&'static str; 3]) -> Vec<Line> {
        let fetch = |label, isolation: i8| {
            let partition = |index: i32| json!({"Partition": index, "CurrentLeaderEpoch": -1, "FetchOffset": 0, "LastFetchedEpoch": -1, "LogStartOffset": -1, "PartitionMaxBytes": 1_000_000});
            let body = json!({
                "ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 50_000_000, "IsolationLevel": isolation,
                "SessionEpoch": -1, "Topics": [{"Topic": self.id, "Partitions": [partition(0), partition(1)]}],
            });
            pinned(label, ApiKey::Fetch, 6 + self.round, body)
        };
        let partition = |index: i32, timestamp: i64| json!({"PartitionIndex": index, "CurrentLeaderEpoch": -1, "Timestamp": timestamp, "MaxNumOffsets": 1});
        let by_time = records::FIRST_TIMESTAMP;
        let offsets = json!({
            "ReplicaId": -1, "IsolationLevel": 1,
            "Topics": [{"Name": self.id, "Partitions": [partition(0, -1), partition(1, by_time)]}],
        });
        vec![
            fetch(labels[0], 1),
            fetch(labels[1], 0),
            pinned(labels[2], ApiKey::ListOffsets, 2 + self.round, offsets),
        ]
    }

    /// A topic of two partitions, and the first epoch.
    fn begins(&self) -> Vec<Line> {
        let body = create(self.id, 2, &[]).body;
        vec![pinned("create", ApiKey::CreateTopics, 7, body), self.init("init")]
    }
}

fn unknown(names: &Names, round: i16) -> Vec<Line> {
    let producer = Producer::new(names, round);
    vec![
        producer.describe("describe"),
        producer.list("list", &[], json!([]), -1),
        producer.add("add without the topic", "1", 0, &[0]),
        pinned("create", ApiKey::CreateTopics, 7, create(producer.id, 2, &[]).body),
        producer.add("add", "1", 0, &[0]),
        producer.add("add of producer -1", "-1", -1, &[0]),
        producer.add("add nothing", "1", 0, &[]),
        producer.end("end", 0, true),
        producer.init_as("init with an id", json!(1), 0),
        producer.describe("describe then"),
    ]
}

fn commit(names: &Names, round: i16) -> Vec<Line> {
    let producer = Producer::new(names, round);
    let mut lines = producer.begins();
    lines.extend([
        producer.describe("describe empty"),
        producer.list("list empty", &["Empty"], json!([]), -1),
        producer.end("commit nothing", 0, true),
        producer.end("abort nothing", 0, false),
        producer.add("add", "@p1", 0, &[0]),
        producer.describe("describe ongoing"),
        producer.add("add again", "@p1", 0, &[0]),
        producer.add("add another", "@p1", 0, &[0, 1]),
        producer.describe("describe ongoing with two"),
        producer.list("list ongoing", &["Ongoing", "Empty"], json!(["@p1"]), -1),
        producer.list("list of another producer", &[], json!([1_000_000_000]), -1),
        producer.list("list the complete", &["CompleteCommit"], json!([]), -1),
        producer.list("list wrong states", &["nonsense", "ongoing", "Ongoing"], json!([]), -1),
        producer.list("list only wrong states", &["nonsense"], json!([]), -1),
        producer.list("list the long", &[], json!([]), 3_600_000),
        producer.list("list the short", &[], json!([]), 0),
        producer.produce("write", 0, 0, 0),
        producer.produce("write again", 0, 0, 0),
        producer.produce("write with a gap", 0, 0, 5),
        producer.produce("write to the other", 1, 0, 0),
        producer.producers("producers with an open one"),
    ]);
    lines.extend(producer.read(["committed of the open", "all of the open", "ends of the open"]));
    lines.extend([
        producer.end("commit with a wrong epoch", 1, true),
        producer.end("commit with epoch -1", -1, true),
        producer.end("commit", 0, true),
        producer.describe("describe committed").until("CompleteCommit"),
        producer.list("list committed", &["CompleteCommit"], json!([]), -1),
        producer.end("commit again", 0, true),
        producer.end("abort the committed", 0, false),
        producer.producers("producers with nothing open"),
    ]);
    lines.extend(producer.read(["committed", "all of the committed", "ends of the committed"]));
    lines.extend([
        producer.add("add to the next", "@p1", 0, &[1]),
        producer.produce("write to the next", 1, 0, 2),
        producer.describe("describe the next"),
        producer.end("commit the next", 0, true),
        producer.describe("describe the next committed").until("CompleteCommit"),
        producer.init("init again"),
        producer.describe("describe empty again"),
        producer.end("commit of the first epoch", 0, true),
    ]);
    lines
}

fn abort(names: &Names, round: i16) -> Vec<Line> {
    let producer = Producer::new(names, round);
    let mut lines = producer.begins();
    lines.extend([
        producer.add("add", "@p1", 0, &[0, 1]),
        producer.produce("write", 0, 0, 0),
        producer.end("abort", 0, false),
        producer.describe("describe aborted").until("CompleteAbort"),
        producer.end("abort again", 0, false),
        producer.end("commit the aborted", 0, true),
        producer.producers("producers"),
    ]);
    lines.extend(producer.read(["committed", "all", "ends"]));
    lines.extend([
        producer.produce("write without transaction", 0, 0, 2),
        producer.add("add to the next", "@p1", 0, &[0]),
        producer.produce("write to the next", 0, 0, 2),
    ]);
    lines.extend(producer.read(["committed of the next", "all of the next", "ends of the next"]));
    lines.extend([
        producer.end("commit the next", 0, true),
        producer.describe("describe committed").until("CompleteCommit"),
    ]);
    lines.extend(producer.read(["committed then", "all then", "ends then"]));
    lines
}

fn fencing(names: &Names, round: i16) -> Vec<Line> {
    let producer = Producer::new(names, round);
    let mut lines = producer.begins();
    lines.extend([
        producer.add("add", "@p1", 0, &[0]),
        producer.produce("write", 0, 0, 0),
        producer.init("init while it is open"),
        producer.describe("describe fenced").until("CompleteAbort"),
        producer.init("init once more"),
        producer.describe("describe the new epoch"),
        producer.add("add of the old", "@p1", 0, &[0]),
        producer.add("add of the one between", "@p1", 1, &[0]),
        producer.end("commit of the old", 0, true),
        producer.produce("write of the old", 0, 0, 2),
        producer.add("add of the new", "@p1", 2, &[0]),
        producer.produce("write of the old to the new", 0, 0, 2),
        producer.produce("write of the new with a sequence of the old", 0, 2, 2),
        producer.produce("write of the new", 0, 2, 0),
        producer.producers("producers"),
        producer.end("commit of the new", 2, true),
        producer.describe("describe committed").until("CompleteCommit"),
    ]);
    lines.extend(producer.read(["committed", "all", "ends"]));
    lines
}

/// A producer says who it believes to be.
fn expectations(names: &Names, round: i16) -> Vec<Line> {
    let producer = Producer::new(names, round);
    let p1 = || json!("@p1");
    let mut lines = producer.begins();
    let mut odd = Vec::new();
    for (label, timeout) in
        [("no time", 0), ("negative time", -1), ("too much time", 900_001), ("all time", i32::MAX)]
    {
        let mut line = producer.init(label);
        line.step.body["TransactionTimeoutMs"] = json!(timeout);
        odd.push(line);
    }
    let mut empty = producer.init("empty id");
    empty.step.body["TransactionalId"] = json!("");
    odd.push(empty);
    lines.extend(odd);
    lines.extend([
        producer.init_as("id without epoch", p1(), -1),
        producer.init_as("epoch without id", json!(-1), 0),
        producer.init_as("as it is", p1(), 0),
        producer.init_as("as it was", p1(), 0),
        producer.init_as("as it will be", p1(), 7),
        producer.init_as("as another", json!(1_000_000_000), 0),
        producer.init_as("as it is now", p1(), 1),
        producer.describe("describe"),
        producer.add("add of epoch 2", "@p1", 2, &[0]),
        producer.init_as("with one open, as it will be", p1(), 7),
        producer.describe("describe after the end").until("\"CompleteAbort"),
        producer.init_as("then as it was long ago", p1(), 1),
        producer.init_as("then as it was", p1(), 2),
        producer.init_as("then as it is", p1(), 3),
        producer.describe("describe in the end"),
    ]);
    lines
}

fn partitions(names: &Names, round: i16) -> Vec<Line> {
    let producer = Producer::new(names, round);
    let mut lines = producer.begins();
    let mixed = json!([
        {"Name": producer.id, "Partitions": [0, 9]},
        {"Name": "unknown", "Partitions": [0]},
        {"Name": names.world("orders"), "Partitions": [0, 1]},
    ]);
    let twice = json!([{"Name": producer.id, "Partitions": [0, 0]}, {"Name": producer.id, "Partitions": [0]}]);
    lines.extend([
        producer.add_topics("add some that are unknown", "@p1", 0, mixed),
        producer.describe("describe empty"),
        producer.add("add with a wrong epoch", "@p1", 1, &[0]),
        producer.add("add with an old epoch", "@p1", -2, &[0]),
        producer.add("add with a wrong id", "1000000000", 0, &[0]),
        producer.add("add nothing", "@p1", 0, &[]),
        producer.add_topics("add no topics", "@p1", 0, json!([])),
        producer.describe("describe after nothing"),
        producer.add_topics("add twice", "@p1", 0, twice),
        producer.describe("describe after twice"),
        producer.add_topics(
            "add internal topics",
            "@p1",
            0,
            json!([{"Name": "__transaction_state", "Partitions": [0]}]),
        ),
        producer.describe("describe after internal topics"),
        producer.end("abort", 0, false),
        producer.describe("describe aborted").until("CompleteAbort"),
    ]);
    lines
}

fn verification(names: &Names, round: i16) -> Vec<Line> {
    let producer = Producer::new(names, round);
    let both = || json!([{"Name": names.fresh, "Partitions": [0, 1]}]);
    let one = || json!([{"Name": names.fresh, "Partitions": [0]}]);
    let mut lines = producer.begins();
    lines.extend([
        producer.verify("nothing is in", 0, both()),
        producer.produce("write without adding", 0, 0, 0),
        producer.add("add", "@p1", 0, &[0]),
        producer.verify("one is in", 0, one()),
        producer.verify("one of two is in", 0, both()),
        producer.verify("wrong epoch", 1, both()),
        producer.verify("unknown topic", 0, json!([{"Name": "unknown", "Partitions": [0]}, {"Name": names.fresh, "Partitions": [0]}])),
        producer.produce("write", 0, 0, 0),
        producer.produce("write to what is not in", 1, 0, 0),
        producer.end("commit", 0, true),
        producer.describe("describe committed").until("CompleteCommit"),
        producer.verify("after the end", 0, both()),
        producer.produce("write after the end", 0, 0, 2),
    ]);
    lines.extend(producer.read(["committed", "all", "ends"]));
    lines
}

impl Producer<'_> {
    fn add_offsets(&self, label: &'static str, epoch: i16, group: &str) -> Line {
        let body = json!({"TransactionalId": self.id, "ProducerId": "@p1", "ProducerEpoch": epoch, "GroupId": group});
        self.ask(label, ApiKey::AddOffsetsToTxn, body)
    }

    fn commit_offsets(
        &self,
        label: &'static str,
        epoch: i16,
        member: &str,
        generation: i32,
    ) -> Line {
        let partition = |index: i32, offset: i64| json!({"PartitionIndex": index, "CommittedOffset": offset, "CommittedLeaderEpoch": 0, "CommittedMetadata": "in a transaction"});
        let body = json!({
            "TransactionalId": self.id, "GroupId": self.id, "ProducerId": "@p1", "ProducerEpoch": epoch,
            "GenerationId": generation, "MemberId": member, "GroupInstanceId": null,
            "Topics": [
                {"Name": self.names.world("orders"), "Partitions": [partition(0, 20), partition(1, 21), partition(9, 22)]},
                {"Name": "unknown", "Partitions": [partition(0, 23)]},
            ],
        });
        self.ask(label, ApiKey::TxnOffsetCommit, body)
    }

    fn fetch_offsets(&self, label: &'static str, is_stable: bool) -> Line {
        let topics = json!([{"Name": self.names.world("orders"), "PartitionIndexes": [0, 1, 2]}]);
        let group =
            json!({"GroupId": self.id, "Topics": topics, "MemberId": null, "MemberEpoch": -1});
        let body = json!({"GroupId": self.id, "Topics": topics, "Groups": [group], "RequireStable": is_stable});
        // From the first version that can ask for what is stable.
        ask(7 + self.round, label, ApiKey::OffsetFetch, body)
    }

    fn group(&self, label: &'static str, key: ApiKey, body: Json) -> Line {
        self.ask(label, key, body)
    }
}

fn offsets(names: &Names, round: i16) -> Vec<Line> {
    let producer = Producer::new(names, round);
    let mut lines = producer.begins();
    let group = || json!({"Groups": [names.fresh]});
    let groups = || json!({"GroupsNames": [names.fresh]});
    let mut all = producer.fetch_offsets("all that is stable", true);
    all.step.body["Topics"] = Json::Null;
    all.step.body["Groups"][0]["Topics"] = Json::Null;
    lines.extend([
        producer.add_offsets("add without a group", 0, ""),
        producer.add_offsets("add with a wrong epoch", 1, producer.id),
        producer.add_offsets("add", 0, producer.id),
        producer.describe("describe ongoing"),
        producer.add_offsets("add again", 0, producer.id),
        producer.commit_offsets("commit with a wrong epoch", 1, "", -1),
        producer.fetch_offsets("fetch nothing", true),
        producer.commit_offsets("commit", 0, "", -1),
        producer.fetch_offsets("fetch what is stable", true),
        all,
        producer.fetch_offsets("fetch what is there", false),
        producer.group("describe the group", ApiKey::DescribeGroups, group()),
        producer.group("delete the group", ApiKey::DeleteGroups, groups()),
    ]);
    // Whether the group is there is known: its offsets have to be written again.
    lines.extend([
        producer.commit_offsets("commit again", 0, "", -1),
        producer.end("end", 0, true),
        producer.describe("describe committed").until("CompleteCommit"),
        producer.fetch_offsets("fetch committed", true).until("committed_offset: 20"),
        producer.add_offsets("add to the next", 0, producer.id),
        producer.commit_offsets("commit in the next", 0, "", -1),
        producer.fetch_offsets("fetch before it ends", false),
        producer.end("abort", 0, false),
        producer.describe("describe aborted").until("CompleteAbort"),
        producer.fetch_offsets("fetch after it ended", true).until("committed_offset: 20"),
        producer.commit_offsets("commit without a transaction", 0, "", -1),
        producer.fetch_offsets("fetch in the end", true),
        producer.group("describe the group in the end", ApiKey::DescribeGroups, group()),
    ]);
    lines
}

fn offsets_of_a_member(names: &Names, round: i16) -> Vec<Line> {
    let producer = Producer::new(names, round);
    let orders = names.world("orders");
    let member = |member| Join { member, protocols: consumer(&orders), ..Join::default() };
    let mut lines = producer.begins();
    let mut fenced = producer.commit_offsets("commit as an unknown instance", 0, "@m1", 1);
    fenced.step.body["GroupInstanceId"] = json!("instance");
    lines.extend([
        producer.add_offsets("add", 0, producer.id),
        producer.commit_offsets("commit as a stranger of an unknown group", 0, "somebody", 1),
        producer.commit_offsets("commit of a generation of an unknown group", 0, "", 1),
        pinned("join", ApiKey::JoinGroup, 3, join(producer.id, &member(""))),
        producer.commit_offsets("commit before the assignment", 0, "@m1", 1),
        pinned("sync", ApiKey::SyncGroup, 3, sync(producer.id, "@m1", 1, &[])),
        producer.commit_offsets("commit as a member", 0, "@m1", 1),
        producer.commit_offsets("commit of the next generation", 0, "@m1", 2),
        producer.commit_offsets("commit as a stranger", 0, "somebody", 1),
        producer.commit_offsets("commit as nobody", 0, "", -1),
        producer.commit_offsets("commit without generation", 0, "@m1", -1),
        fenced,
        producer.group("delete offsets", ApiKey::OffsetDelete, json!({"GroupId": producer.id, "Topics": [{"Name": names.world("times"), "Partitions": [{"PartitionIndex": 0}]}]})),
        producer.end("commit the transaction", 0, true),
        producer.describe("describe committed").until("CompleteCommit"),
        producer.fetch_offsets("fetch", true).until("committed_offset: 20"),
        producer.group("leave", ApiKey::LeaveGroup, json!({"GroupId": producer.id, "MemberId": "@m1", "Members": [{"MemberId": "@m1"}]})),
        producer.add_offsets("add to the next", 0, producer.id),
        producer.commit_offsets("commit as a former member", 0, "@m1", 1),
        producer.end("abort", 0, false),
        producer.describe("describe aborted").until("CompleteAbort"),
    ]);
    lines
}

fn markers(names: &Names, round: i16) -> Vec<Line> {
    let producer = Producer::new(names, round);
    let mut lines = producer.begins();
    let marker = |producer: Json, epoch: i16, commits: bool, coordinator: i32, topics: Json| {
        json!({
            "ProducerId": producer, "ProducerEpoch": epoch, "TransactionResult": commits, "Topics": topics, "CoordinatorEpoch": coordinator,
        })
    };
    let write = |label, markers: Json| {
        producer.ask(label, ApiKey::WriteTxnMarkers, json!({"Markers": markers}))
    };
    let of = |partitions: &[i32]| json!([{"Name": names.fresh, "PartitionIndexes": partitions}]);
    let p1 = || json!("@p1");
    lines.extend([
        producer.add("add", "@p1", 0, &[0, 1]),
        producer.produce("write", 0, 0, 0),
        write("nothing", json!([])),
        write("no topics", json!([marker(p1(), 0, true, 0, json!([]))])),
        write("no partitions", json!([marker(p1(), 0, true, 0, of(&[]))])),
        write("unknown places", json!([marker(p1(), 0, true, 0, json!([
            {"Name": "unknown", "PartitionIndexes": [0]}, {"Name": names.fresh, "PartitionIndexes": [9, 1]},
        ]))])),
        producer.producers("producers after one of two"),
        write("an old epoch", json!([marker(p1(), -1, true, 0, of(&[0]))])),
        write("commit", json!([marker(p1(), 0, true, 3, of(&[0]))])),
        producer.producers("producers after it"),
        write("commit again", json!([marker(p1(), 0, true, 3, of(&[0]))])),
        write("an old coordinator", json!([marker(p1(), 0, false, 2, of(&[0]))])),
        write("a new epoch", json!([marker(p1(), 5, false, 3, of(&[0]))])),
        write("the old epoch then", json!([marker(p1(), 4, false, 3, of(&[0]))])),
        write("two producers", json!([
            marker(json!(1_000_000_001), 0, true, 3, of(&[0, 1])), marker(json!(1_000_000_002), 0, false, 3, of(&[1])),
        ])),
        write("one twice", json!([
            marker(json!(1_000_000_001), 0, true, 3, of(&[0])), marker(json!(1_000_000_001), 1, false, 3, of(&[0, 1])),
        ])),
        producer.producers("producers in the end"),
        producer.produce("write of the old epoch", 0, 0, 2),
    ]);
    lines.extend(producer.read(["committed", "all", "ends"]));
    lines
}
