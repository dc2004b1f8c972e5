//! Connections to other brokers, against peers that behave and peers that do not.

use std::{net::SocketAddr, time::Duration};

use bytes::BytesMut;
use kafka_protocol::messages::{GroupId, HeartbeatRequest, HeartbeatResponse};
use kafka_protocol::protocol::Encodable;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::outgoing::{Connection, EncodedBody, OutgoingConfig, OutgoingError, open_socket};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn config() -> OutgoingConfig {
    OutgoingConfig {
        client_id: "1".to_owned(),
        setup_timeout: LONG,
        send_buffer_bytes: None,
        receive_buffer_bytes: None,
    }
}

async fn open(address: SocketAddr) -> Connection {
    Connection::open(address, &config()).await.unwrap()
}

#[tokio::test]
async fn a_socket_has_the_buffers_that_were_asked_for() {
    let config = OutgoingConfig { receive_buffer_bytes: Some(20_000), ..config() };
    let socket = open_socket("127.0.0.1:9".parse().unwrap(), &config).unwrap();
    // Linux takes as much again for itself.
    assert!([20_000, 40_000].contains(&socket.recv_buffer_size().unwrap()));
}

/// Reads a request; gives its correlation id.
async fn request(stream: &mut TcpStream) -> i32 {
    let size = stream.read_i32().await.unwrap();
    let mut frame = vec![0; usize::try_from(size).unwrap()];
    stream.read_exact(&mut frame).await.unwrap();
    i32::from_be_bytes(frame[4..8].try_into().unwrap())
}

/// Answers with a code, so that the asker can tell answers apart.
async fn answer(stream: &mut TcpStream, correlation_id: i32, code: i16) {
    let mut body = Vec::new();
    HeartbeatResponse::default().with_error_code(code).encode(&mut body, 3).unwrap();
    stream.write_i32(i32::try_from(body.len() + 4).unwrap()).await.unwrap();
    stream.write_i32(correlation_id).await.unwrap();
    stream.write_all(&body).await.unwrap();
}

#[tokio::test]
async fn answers_go_to_their_requests() {
    let (listener, address) = listener().await;
    let peer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let first = request(&mut stream).await;
        let second = request(&mut stream).await;
        answer(&mut stream, first, 1).await;
        answer(&mut stream, second, 2).await;
        stream
    };
    let asker = async {
        let connection = open(address).await;
        let heartbeat = HeartbeatRequest::default();
        tokio::join!(connection.call(&heartbeat, 3, LONG), connection.call(&heartbeat, 3, LONG))
    };
    let (_stream, (first, second)) = tokio::join!(peer, asker);
    assert_eq!((first.unwrap().error_code, second.unwrap().error_code), (1, 2));
}

#[tokio::test]
async fn a_body_that_is_encoded_already_is_the_same_on_the_wire() {
    let (listener, address) = listener().await;
    let heartbeat = HeartbeatRequest::default().with_group_id(GroupId("group".to_owned().into()));
    let mut whole = BytesMut::new();
    heartbeat.encode(&mut whole, 3).unwrap();
    let whole = whole.freeze();
    let parts = EncodedBody { own: whole.slice(..3), shared: whole.slice(3..) };
    let peer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut frames = Vec::new();
        for code in [1, 2] {
            let size = stream.read_i32().await.unwrap();
            let mut frame = vec![0; usize::try_from(size).unwrap()];
            stream.read_exact(&mut frame).await.unwrap();
            let correlation_id = i32::from_be_bytes(frame[4..8].try_into().unwrap());
            answer(&mut stream, correlation_id, code).await;
            frame.drain(4..8);
            frames.push(frame);
        }
        frames
    };
    let asker = async {
        let connection = open(address).await;
        let first = connection.call(&heartbeat, 3, LONG).await.unwrap();
        let second = connection.call_encoded::<HeartbeatRequest>(&parts, 3, LONG).await.unwrap();
        (first.error_code, second.error_code)
    };
    let (frames, codes) = tokio::join!(peer, asker);
    assert_eq!((codes, &frames[0]), ((1, 2), &frames[1]));
}

#[tokio::test]
async fn a_peer_that_stalls_is_let_go() {
    let (listener, address) = listener().await;
    let connection = open(address).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    let late = connection.call(&HeartbeatRequest::default(), 3, SHORT).await;
    assert!(matches!(late, Err(OutgoingError::TimedOut)));
    assert!(connection.is_closed());
    request(&mut stream).await;
    // The socket is closed, although the peer has said nothing and `connection` lives.
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    let next = connection.call(&HeartbeatRequest::default(), 3, LONG).await;
    assert!(matches!(next, Err(OutgoingError::Disconnected)));
}

#[tokio::test]
async fn an_answer_out_of_order_ends_the_connection() {
    let (listener, address) = listener().await;
    let connection = open(address).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    let peer = async {
        let id = request(&mut stream).await;
        answer(&mut stream, id + 7, 0).await;
    };
    let heartbeat = HeartbeatRequest::default();
    let ((), answered) = tokio::join!(peer, connection.call(&heartbeat, 3, LONG));
    assert!(matches!(answered, Err(OutgoingError::Disconnected)));
}

#[tokio::test]
async fn a_peer_that_closes_fails_whoever_waits() {
    let (listener, address) = listener().await;
    let connection = open(address).await;
    let peer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
    };
    let heartbeat = HeartbeatRequest::default();
    let ((), answered) = tokio::join!(peer, connection.call(&heartbeat, 3, LONG));
    assert!(matches!(answered, Err(OutgoingError::Disconnected)));
}
