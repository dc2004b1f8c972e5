//! Produces that come in one piece are answered, and end in the log, as the same ones sent one after the other.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use client::{
    admin::{Admin, NewTopic},
    config::ConnectionConfig,
};
use common::{
    config::broker::BrokerConfig,
    ids::{ProducerEpoch, ProducerId, Timestamp},
    properties::Properties,
};
use kafka_protocol::{
    messages::{
        BrokerId, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse, TopicName,
        fetch_request::{FetchPartition, FetchTopic},
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::{Decodable, Encodable, StrBytes},
};
use record::{build::BatchBuilder, compression::Compression};
use security::java_options::JavaOptions;
use server::start::Running;
use tempfile::TempDir;
use tests::ports::quiet_port;
use zookeeper::{config::Config, server::Server};

const PRODUCE: (i16, i16) = (0, 7);
const FETCH: (i16, i16) = (1, 4);

/// A request without its topic: acks, and for each partition a producer with a sequence, or none, and how many records.
type Sent = (i16, Vec<(i32, Option<(i64, i16, i32)>, i32)>);

/// Producers that go on, repeat themselves, leave gaps, come with other epochs; partitions that do not exist.
fn requests() -> Vec<Sent> {
    let mut sequences = [0; 4];
    let mut sent = Vec::new();
    for number in 0..300_i32 {
        let producer = usize::try_from(number * 7 % 4).unwrap();
        let count = 1 + number % 3;
        let mut batch = |partition: i32| {
            let next = &mut sequences[producer];
            let (epoch, sequence) = match number % 23 {
                5 => (0, i32::max(*next - count, 0)),
                9 => (0, *next + 2),
                13 => (-1, 0),
                _ => (0, *next),
            };
            // Each producer keeps to one partition, or it would leave gaps.
            let is_its_own = usize::try_from(partition).is_ok_and(|own| own == producer % 2);
            if producer == 3 || !is_its_own {
                return (partition, None, count);
            }
            if (epoch, sequence) == (0, *next) {
                *next += count;
            }
            (partition, (epoch >= 0).then_some((producer as i64 + 70, epoch, sequence)), count)
        };
        let acks = if number % 11 == 4 { -1 } else { 1 };
        let batches = match number % 17 {
            3 => vec![batch(0), batch(9), batch(1)],
            8 => vec![batch(9)],
            partition if partition % 2 == 0 => vec![batch(0)],
            _ => vec![batch(1), batch(0)],
        };
        sent.push((acks, batches));
    }
    sent
}

fn produce(topic: &str, (acks, batches): &Sent) -> ProduceRequest {
    let partitions = batches.iter().map(|(partition, producer, count)| {
        let mut batch = BatchBuilder::new(Compression::None);
        if let Some((id, epoch, sequence)) = *producer {
            batch = batch.producer(ProducerId(id), ProducerEpoch(epoch), sequence);
        }
        for record in 0..*count {
            batch.append(Timestamp(1), Some(b"key"), Some(&record.to_be_bytes()), &[]).unwrap();
        }
        PartitionProduceData::default().with_index(*partition).with_records(Some(batch.finish()))
    });
    let data = TopicProduceData::default()
        .with_name(name(topic))
        .with_partition_data(partitions.collect());
    ProduceRequest::default().with_acks(*acks).with_timeout_ms(30_000).with_topic_data(vec![data])
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn frame((api_key, version): (i16, i16), correlation_id: i32, body: &impl Encodable) -> Bytes {
    let mut content = BytesMut::new();
    content.put_i16(api_key);
    content.put_i16(version);
    content.put_i32(correlation_id);
    content.put_i16(-1);
    body.encode(&mut content, version).unwrap();
    let mut frame = BytesMut::new();
    frame.put_u32(u32::try_from(content.len()).unwrap());
    frame.put(content);
    frame.freeze()
}

fn answer<T: Decodable>(socket: &mut TcpStream, correlation_id: i32, version: i16) -> T {
    let mut size = [0; 4];
    socket.read_exact(&mut size).unwrap();
    let mut content = vec![0; u32::from_be_bytes(size) as usize];
    socket.read_exact(&mut content).unwrap();
    let mut content = Bytes::from(content);
    assert_eq!(content.get_i32(), correlation_id);
    T::decode(&mut content, version).unwrap()
}

/// The answers as text, without the topic's name. `together` is how many requests go out at once.
fn send(address: SocketAddr, topic: &str, together: usize) -> Vec<String> {
    let mut socket = TcpStream::connect(address).unwrap();
    let mut answers = Vec::new();
    let requests: Vec<(i32, Sent)> = (0..).zip(requests()).collect();
    for requests in requests.chunks(together) {
        let frames = requests.iter().map(|(id, sent)| frame(PRODUCE, *id, &produce(topic, sent)));
        socket.write_all(&frames.collect::<Vec<_>>().concat()).unwrap();
        for (id, _) in requests {
            let answer: ProduceResponse = answer(&mut socket, *id, PRODUCE.1);
            answers.push(format!("{answer:?}").replace(topic, "TOPIC"));
        }
    }
    answers
}

/// All bytes of a partition.
fn fetch(address: SocketAddr, topic: &str, partition: i32) -> Bytes {
    let mut socket = TcpStream::connect(address).unwrap();
    let partition =
        FetchPartition::default().with_partition(partition).with_partition_max_bytes(10 << 20);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_bytes(10 << 20)
        .with_topics(vec![topic]);
    socket.write_all(&frame(FETCH, 1, &request)).unwrap();
    let mut answer: FetchResponse = answer(&mut socket, 1, FETCH.1);
    let partition = answer.responses.remove(0).partitions.remove(0);
    assert_eq!(partition.error_code, 0);
    partition.records.unwrap()
}

async fn create(address: SocketAddr, topics: &[&str]) {
    let properties = Properties::from([("bootstrap.servers".to_owned(), address.to_string())]);
    let admin = Admin::open(ConnectionConfig::admin(&properties).unwrap()).await.unwrap();
    let topics = topics.iter().map(|name| NewTopic {
        name: (*name).to_owned(),
        partition_count: Some(2),
        replication_factor: Some(1),
        ..NewTopic::default()
    });
    let created = admin.create_topics(&topics.collect::<Vec<_>>()).await.unwrap();
    created.into_values().for_each(|result| result.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn produces_that_come_together_end_as_those_that_come_alone() {
    let folder = TempDir::new().unwrap();
    let zookeeper = Server::start(Config::for_tests(folder.path().join("zookeeper"))).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], quiet_port()));
    let settings = [
        ("broker.id", "1".to_owned()),
        ("listeners", format!("PLAINTEXT://{address}")),
        ("zookeeper.connect", zookeeper.address().to_string()),
        ("log.dirs", folder.path().join("data").display().to_string()),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value));
    let config = BrokerConfig::parse(&Properties::from(settings)).unwrap();
    let broker = Running::start(Arc::new(config), &JavaOptions::default()).await.unwrap();
    create(address, &["alone", "five", "many"]).await;

    let [alone, five, many] = tokio::task::spawn_blocking(move || {
        [("alone", 1), ("five", 5), ("many", 100)].map(|(topic, together)| {
            let answers = send(address, topic, together);
            (answers, [0, 1].map(|partition| fetch(address, topic, partition)))
        })
    })
    .await
    .unwrap();
    for together in [five, many] {
        for (number, (expected, found)) in alone.0.iter().zip(&together.0).enumerate() {
            assert_eq!(expected, found, "request {number}");
        }
        assert_eq!(alone.1, together.1);
    }
    for error in ["error_code: 3", "error_code: 45", "error_code: 0"] {
        assert!(alone.0.iter().any(|answer| answer.contains(error)), "{error}");
    }
    broker.stop().await;
    zookeeper.stop();
}
