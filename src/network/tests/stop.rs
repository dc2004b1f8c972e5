//! Ends: of a connection by its peer, of all by the server.

use std::time::Duration;

use super::support::{Client, METADATA, Order, Orders, PRODUCE, request, start, timely};
use crate::server::NetworkConfig;

const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_request_runs_to_its_end_though_its_client_left() {
    let orders = Orders::of(&[Order::Hold("a")]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[request(METADATA, 1, "a")]).await;
    timely(orders.wait_for("a")).await;
    drop(client);
    timely(async {
        while server.connection_count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    orders.release("a");
    timely(orders.wait_for("done a")).await;
}

#[tokio::test]
async fn what_a_client_sent_before_it_left_is_started() {
    let orders = Orders::of(&[Order::Hold("a"), Order::Silence("b"), Order::Silence("c")]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    let requests = [request(METADATA, 1, "a"), request(PRODUCE, 2, "b"), request(PRODUCE, 3, "c")];
    client.send(&requests).await;
    timely(orders.wait_for("a")).await;
    drop(client);
    orders.release("a");
    timely(orders.wait_for("c")).await;
    assert_eq!(orders.happened(), ["a", "done a", "b", "c"]);
}

#[tokio::test]
async fn a_stop_lets_answers_in_flight_be_sent() {
    let orders = Orders::of(&[Order::Hold("a"), Order::Hold("b")]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut busy = Client::connect(&server).await;
    let mut idle = Client::connect(&server).await;
    busy.send(&[request(PRODUCE, 1, "a"), request(PRODUCE, 2, "b")]).await;
    idle.send(&[request(METADATA, 1, "x")]).await;
    idle.expect(1, "x").await;
    timely(orders.wait_for("b")).await;
    let clients = async {
        idle.expect_closed().await;
        orders.release("a");
        orders.release("b");
        busy.expect(1, "a").await;
        busy.expect(2, "b").await;
        busy.expect_closed().await;
    };
    timely(async { tokio::join!(server.stop(LONG), clients) }).await;
    let address = server.local_address("PLAINTEXT").unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_stop_ends_at_its_deadline() {
    let orders = Orders::of(&[Order::Hold("a")]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[request(PRODUCE, 1, "a")]).await;
    timely(orders.wait_for("a")).await;
    timely(server.stop(Duration::ZERO)).await;
    assert_eq!(server.connection_count(), 0);
    client.expect_closed().await;
}

#[tokio::test]
async fn nobody_is_served_before_the_start() {
    let listeners = vec![super::support::listener(Default::default())];
    let bound = crate::server::SocketServer::bind(listeners, NetworkConfig::default()).await;
    let address = bound.as_ref().unwrap().local_address("PLAINTEXT").unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
