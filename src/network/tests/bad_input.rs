//! What is no request, and what is none of ours.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;

use super::support::{
    Client, FETCH, Log, METADATA, Order, Orders, PRODUCE, request, start, timely,
};
use crate::server::NetworkConfig;
use crate::service::Piece;

/// Sends bytes behind a good request, which is answered; then the connection closes with these lines in the log.
async fn check(bytes: &[u8], lines: &[&str]) {
    let (log, _guard) = Log::capture();
    let server = start(&Orders::default(), NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[request(METADATA, 1, "good"), Bytes::copy_from_slice(bytes)]).await;
    client.expect(1, "good").await;
    client.expect_closed().await;
    assert_eq!(log.lines(), lines);
    assert_eq!(server.connection_count(), 0);
}

#[tokio::test]
async fn a_negative_size_closes_the_connection() {
    check(
        &[0xff, 0xff, 0xff, 0xfe],
        &["WARN Unexpected error from /127.0.0.1 (channelId=127.0.0.1:*-127.0.0.1:*-0); \
           closing connection: Invalid receive (size = -2)"],
    )
    .await;
}

#[tokio::test]
async fn a_size_that_is_too_large_closes_the_connection() {
    check(
        &[0x06, 0x40, 0, 1],
        &["WARN Unexpected error from /127.0.0.1 (channelId=127.0.0.1:*-127.0.0.1:*-0); \
           closing connection: Invalid receive (size = 104857601 larger than 104857600)"],
    )
    .await;
}

#[tokio::test]
async fn a_key_that_no_api_has_closes_the_connection() {
    check(
        &[0, 0, 0, 10, 7, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff],
        &["ERROR Exception while processing request from 127.0.0.1:*-127.0.0.1:*-0: \
           Error parsing request header. Our best guess of the apiKey is: 1792: Unexpected api key: 1792"],
    )
    .await;
}

#[tokio::test]
async fn a_version_that_is_not_served_closes_the_connection() {
    check(
        &[0, 0, 0, 10, 0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff, 0],
        &["ERROR Exception while processing request from 127.0.0.1:*-127.0.0.1:*-0: \
           Error parsing request header. Our best guess of the apiKey is: 3"],
    )
    .await;
    check(
        &[0, 0, 0, 11, 0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff, 0],
        &["ERROR Exception while processing request from 127.0.0.1:*-127.0.0.1:*-0: \
           Received request api key METADATA with version 99 which is not enabled"],
    )
    .await;
}

#[tokio::test]
async fn a_body_that_is_not_admitted_closes_the_connection() {
    check(
        &[0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff],
        &["ERROR Exception while processing request from 127.0.0.1:*-127.0.0.1:*-0: \
           Error getting request for apiKey: METADATA, apiVersion: 1, connectionId: \
           127.0.0.1:*-127.0.0.1:*-0, listenerName: ListenerName(PLAINTEXT), \
           principal: User:ANONYMOUS: the request ends in field Topics"],
    )
    .await;
}

#[tokio::test]
async fn an_empty_frame_closes_the_connection() {
    check(
        &[0, 0, 0, 0],
        &["ERROR Exception while processing request from 127.0.0.1:*-127.0.0.1:*-0: \
           Error parsing request header. Our best guess of the apiKey is: -1"],
    )
    .await;
}

#[tokio::test]
async fn another_protocol_is_named_in_one_line() {
    for (bytes, protocol) in [
        (&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], "1195725856): the peer speaks HTTP"),
        (&[0x16, 3, 1, 0, 0xa5, 1, 0, 0, 0xa1][..], "369295616): the peer speaks TLS"),
    ] {
        let (log, _guard) = Log::capture();
        let server = start(&Orders::default(), NetworkConfig::default()).await;
        let mut client = Client::connect(&server).await;
        client.socket.write_all(bytes).await.unwrap();
        client.expect_closed().await;
        let line = format!(
            "WARN Unexpected error from /127.0.0.1 (channelId=127.0.0.1:*-127.0.0.1:*-0); \
             closing connection: Invalid receive (size = {protocol} on this port"
        );
        assert_eq!(log.lines(), [line]);
    }
}

#[tokio::test]
async fn answers_before_a_bad_request_are_sent() {
    let (log, _guard) = Log::capture();
    let orders = Orders::of(&[Order::Hold("a")]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    let bad = Bytes::from_static(&[0xff; 8]);
    client.send(&[request(PRODUCE, 1, "a"), request(PRODUCE, 2, "b"), bad]).await;
    timely(orders.wait_for("b")).await;
    orders.release("a");
    client.expect(1, "a").await;
    client.expect(2, "b").await;
    client.expect_closed().await;
    assert_eq!(log.lines().len(), 1);
}

#[tokio::test]
async fn the_service_may_close_a_connection_after_the_answers_before() {
    let (log, _guard) = Log::capture();
    let orders = Orders::of(&[Order::Hold("a"), Order::Close("b")]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    let requests = [request(PRODUCE, 1, "a"), request(PRODUCE, 2, "b"), request(PRODUCE, 3, "c")];
    client.send(&requests).await;
    timely(orders.wait_for("b")).await;
    orders.release("a");
    client.expect(1, "a").await;
    client.expect_closed().await;
    assert_eq!(orders.happened(), ["a", "b", "done a"]);
    assert_eq!(log.lines(), ["INFO Closing connection 127.0.0.1:*-127.0.0.1:*-0: ordered by b"]);
}

#[tokio::test]
async fn a_file_that_is_too_short_closes_the_connection() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 1000]).unwrap();
    let pieces = vec![Piece::File { file: Arc::new(file), position: 500, length: 1000 }];
    let orders = Orders::of(&[Order::Pieces("short", pieces)]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[request(FETCH, 1, "short")]).await;
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut client.socket, &mut rest);
    timely(read).await.unwrap();
    assert!(rest.len() < 1008);
}
