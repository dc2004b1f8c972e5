//! Order, overlap, and what arrives at the other end.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;

use super::support::{
    API_VERSIONS, Client, FETCH, METADATA, Order, Orders, PRODUCE, request, request_of_size, start,
    timely,
};
use crate::server::NetworkConfig;
use crate::service::Piece;

#[tokio::test]
async fn answers_come_in_the_order_of_the_requests() {
    let orders = Orders::of(&[Order::Hold("a"), Order::Hold("b")]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    client
        .send(&[request(PRODUCE, 1, "a"), request(FETCH, 2, "b"), request(PRODUCE, 3, "c")])
        .await;
    timely(orders.wait_for("c")).await; // All three started, though the first two wait.
    orders.release("b");
    orders.release("a");
    client.expect(1, "a").await;
    client.expect(2, "b").await;
    client.expect(3, "c").await;
}

#[tokio::test]
async fn what_is_neither_produce_nor_fetch_waits_for_its_turn() {
    let orders = Orders::of(&[Order::Hold("a"), Order::Hold("b")]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    let requests = [request(PRODUCE, 1, "a"), request(METADATA, 2, "b"), request(PRODUCE, 3, "c")];
    client.send(&requests).await;
    timely(orders.wait_for("a")).await;
    client.socket.write_all(&request(PRODUCE, 4, "d")).await.unwrap();
    assert_eq!(orders.happened(), ["a"]);
    orders.release("a");
    client.expect(1, "a").await;
    timely(orders.wait_for("b")).await;
    assert_eq!(orders.happened(), ["a", "done a", "b"]);
    orders.release("b");
    client.expect(2, "b").await;
    client.expect(3, "c").await;
    client.expect(4, "d").await;
}

#[tokio::test]
async fn produces_that_come_together_start_in_a_run_up_to_one_that_nothing_may_start_beside() {
    let orders = Orders::of(&[Order::HoldAlone("b"), Order::Hold("d")]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    let names = ["a", "b", "c", "d"].into_iter().zip(1..);
    let mut requests: Vec<Bytes> = names.map(|(name, id)| request(PRODUCE, id, name)).collect();
    requests.push(request(METADATA, 5, "e"));
    requests.push(request(PRODUCE, 6, "f"));
    client.send(&requests).await;
    client.expect(1, "a").await;
    assert_eq!((orders.happened(), orders.runs()), (vec!["a".to_owned(), "b".to_owned()], vec![4]));
    orders.release("b");
    client.expect(2, "b").await;
    client.expect(3, "c").await;
    timely(orders.wait_for("d")).await;
    assert_eq!(orders.happened()[2..], ["done b", "c", "d"]);
    assert_eq!(orders.runs(), [4, 2]);
    orders.release("d");
    for (id, name) in [(4, "d"), (5, "e"), (6, "f")] {
        client.expect(id, name).await;
    }
    assert_eq!(orders.happened()[5..], ["done d", "e", "f"]);
}

#[tokio::test]
async fn a_run_ends_before_what_is_no_request_and_at_a_close() {
    for bad in [Bytes::from_static(&[0xff, 0xff, 0xff, 0xff]), request(PRODUCE, 3, "close")] {
        let orders = Orders::of(&[Order::HoldAlone("a"), Order::Close("close")]);
        let server = start(&orders, NetworkConfig::default()).await;
        let mut client = Client::connect(&server).await;
        let behind = request(PRODUCE, 4, "never");
        client.send(&[request(PRODUCE, 1, "a"), request(PRODUCE, 2, "b"), bad, behind]).await;
        timely(orders.wait_for("a")).await;
        orders.release("a");
        client.expect(1, "a").await;
        client.expect(2, "b").await;
        client.expect_closed().await;
        assert!(!orders.happened().contains(&"never".to_owned()));
    }
}

#[tokio::test]
async fn frames_arrive_a_byte_at_a_time() {
    let server = start(&Orders::default(), NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    client.socket.set_nodelay(true).unwrap();
    for byte in [request(METADATA, 1, "one"), request(PRODUCE, 2, "two")].concat() {
        client.socket.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    client.expect(1, "one").await;
    client.expect(2, "two").await;
}

#[tokio::test]
async fn hundreds_of_requests_at_once_are_all_answered() {
    let server = start(&Orders::default(), NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    let requests: Vec<Bytes> = (0..500).map(|id| request(PRODUCE, id, "same")).collect();
    client.send(&requests).await;
    for id in 0..500 {
        client.expect(id, "same").await;
    }
}

#[tokio::test]
async fn frames_of_every_size_are_cut_right() {
    let server = start(&Orders::default(), NetworkConfig::default()).await;
    let client = Client::connect(&server).await;
    let sizes = [0, 400, 513, 16_000, 16_384, 16_500, 65_536, 200_000, 1_000_000, 3, 70_000];
    let requests: Vec<Bytes> =
        sizes.iter().zip(0..).map(|(size, id)| request_of_size(PRODUCE, id, "x", *size)).collect();
    let (mut reading, mut writing) = client.socket.into_split();
    let sender = tokio::spawn(async move {
        for request in requests {
            writing.write_all(&request).await.unwrap();
        }
        writing
    });
    for id in 0..sizes.len() {
        let mut answer = [0; 9];
        timely(tokio::io::AsyncReadExt::read_exact(&mut reading, &mut answer)).await.unwrap();
        assert_eq!(answer, [0, 0, 0, 5, 0, 0, 0, id as u8, b'x']);
    }
    sender.await.unwrap();
}

/// A file whose every byte tells its position.
fn counting_file(length: usize) -> (Arc<File>, Vec<u8>) {
    let contents: Vec<u8> = (0..length).map(|index| (index / 251 + index) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&contents).unwrap();
    (Arc::new(file), contents)
}

#[tokio::test]
async fn regions_of_files_arrive_whole_between_other_pieces() {
    let (file, contents) = counting_file(5_000_000);
    let region = |position: u64, length| Piece::File { file: Arc::clone(&file), position, length };
    let pieces = vec![
        Piece::Bytes(Bytes::from_static(b"head")),
        region(3, 4_000_000),
        Piece::Bytes(Bytes::new()),
        Piece::Bytes(Bytes::from_static(b"middle")),
        region(4_999_999, 1),
        region(17, 0),
        region(100, 300_000),
    ];
    let expected = [
        b"head",
        &contents[3..4_000_003],
        b"middle",
        &contents[4_999_999..],
        &contents[100..300_100],
    ]
    .concat();
    let orders = Orders::of(&[Order::Pieces("file", pieces)]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[request(FETCH, 1, "file"), request(FETCH, 2, "after")]).await;
    let (correlation_id, body) = timely(client.receive()).await;
    assert_eq!(correlation_id, 1);
    assert!(body == expected, "the contents differ");
    client.expect(2, "after").await;
}

#[tokio::test]
async fn an_answer_of_many_pieces_arrives_in_order() {
    let texts: Vec<String> = (0..200).map(|index| format!("<{index}>")).collect();
    let pieces = texts.iter().map(|text| Piece::Bytes(Bytes::from(text.clone()))).collect();
    let orders = Orders::of(&[Order::Pieces("many", pieces)]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[request(METADATA, 1, "many")]).await;
    client.expect(1, &texts.concat()).await;
}

#[tokio::test]
async fn a_request_without_an_answer_is_followed_by_the_next_answer() {
    let orders = Orders::of(&[Order::Silence("quiet")]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[request(PRODUCE, 1, "quiet"), request(PRODUCE, 2, "loud")]).await;
    client.expect(2, "loud").await;
}

#[tokio::test]
async fn api_versions_of_an_unknown_version_is_answered_in_version_0() {
    let server = start(&Orders::default(), NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    let mut unknown = request(API_VERSIONS, 9, "").to_vec();
    unknown[7] = 77; // The version; its header has tagged fields.
    unknown.push(0);
    unknown[3] += 1;
    client.send(&[unknown.into(), request(METADATA, 2, "next")]).await;
    let (correlation_id, body) = timely(client.receive()).await;
    assert_eq!((correlation_id, &body[..]), (9, &[0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4][..]));
    client.expect(2, "next").await;
}
