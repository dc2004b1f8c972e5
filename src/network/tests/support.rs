//! A server on a port of the system's choice, a service that follows orders, a client of raw frames, and the log.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use common::security_protocol::SecurityProtocol;
use parking_lot::Mutex;
use protocol::api::Api;
use protocol::frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::quotas::ListenerLimits;
use crate::server::{ListenerConfig, NetworkConfig, SocketServer};
use crate::service::{Piece, Request, Response, Service, Step};

pub(crate) const PRODUCE: i16 = 0;
pub(crate) const FETCH: i16 = 1;
pub(crate) const METADATA: i16 = 3;
pub(crate) const API_VERSIONS: i16 = 18;

/// What to do with a request whose tail, behind its body, is this name. Others are answered with their tail.
#[derive(Clone)]
pub(crate) enum Order {
    /// Answer once `Orders::release` is called with this name.
    Hold(&'static str),
    /// The same, and start nothing of the connection meanwhile.
    HoldAlone(&'static str),
    /// Answer with these pieces.
    Pieces(&'static str, Vec<Piece>),
    /// No answer.
    Silence(&'static str),
    Close(&'static str),
}

impl Order {
    fn name(&self) -> &'static str {
        match self {
            Order::Hold(name)
            | Order::HoldAlone(name)
            | Order::Pieces(name, _)
            | Order::Silence(name)
            | Order::Close(name) => name,
        }
    }
}

/// What the requests of a test are told to do, by name, and what became of them.
#[derive(Clone, Default)]
pub(crate) struct Orders {
    orders: Arc<Mutex<HashMap<&'static str, Order>>>,
    held: Arc<Mutex<HashMap<&'static str, oneshot::Sender<()>>>>,
    /// Names in the order of their start, and `done NAME` when a held one ran to its end.
    happened: Arc<Mutex<Vec<String>>>,
    /// How many requests each run came with.
    runs: Arc<Mutex<Vec<usize>>>,
}

impl Orders {
    pub(crate) fn of(orders: &[Order]) -> Orders {
        let all = Orders::default();
        let named = orders.iter().map(|order| (order.name(), order.clone()));
        all.orders.lock().extend(named);
        all
    }

    pub(crate) fn release(&self, name: &str) {
        let held = self.held.lock().remove(name);
        held.expect("the request is held").send(()).expect("its answer is waited for");
    }

    pub(crate) fn happened(&self) -> Vec<String> {
        self.happened.lock().clone()
    }

    pub(crate) fn runs(&self) -> Vec<usize> {
        self.runs.lock().clone()
    }

    /// Waits until that happened; it then is as if it had not.
    pub(crate) async fn wait_again_for(&self, what: &str) {
        self.wait_for(what).await;
        self.happened.lock().retain(|happened| happened != what);
    }

    /// Waits until that happened.
    pub(crate) async fn wait_for(&self, what: &str) {
        while !self.happened.lock().iter().any(|happened| happened == what) {
            tokio::task::yield_now().await;
        }
    }
}

impl Service for Orders {
    fn start(&self, request: Request) -> Step {
        let tail = &request.body[body(request.api, request.api_version).len()..];
        let name = std::str::from_utf8(tail).unwrap();
        let name = name.trim_end_matches('.').to_owned();
        self.happened.lock().push(name.clone());
        let answer = |pieces: Vec<Piece>| {
            let following = pieces.iter().map(Piece::length).sum();
            let (api, version) = (request.api, request.api_version);
            let mut head = frame::start_response(api, version, request.correlation_id, 0);
            frame::finish_response(&mut head, following);
            let mut all = vec![Piece::Bytes(head.freeze())];
            all.extend(pieces);
            Response::of_pieces(all)
        };
        let echo = |name: &str| answer(vec![Piece::Bytes(Bytes::from(name.to_owned()))]);
        let order = self.orders.lock().get(name.as_str()).cloned();
        let is_alone = matches!(order, Some(Order::HoldAlone(_)));
        match order {
            None => Step::Reply(echo(&name)),
            Some(Order::Silence(_)) => Step::Reply(Response::none()),
            Some(Order::Pieces(_, pieces)) => Step::Reply(answer(pieces)),
            Some(Order::Close(name)) => Step::Close(format!("ordered by {name}")),
            Some(Order::Hold(name) | Order::HoldAlone(name)) => {
                let (sender, receiver) = oneshot::channel();
                self.held.lock().insert(name, sender);
                let response = echo(name);
                let happened = Arc::clone(&self.happened);
                let reply = Box::pin(async move {
                    let _ = receiver.await; // Dropped at the end of a test: as good as released.
                    happened.lock().push(format!("done {name}"));
                    response
                });
                let key = request.api.key as i16;
                Step::Wait { overlap: !is_alone && (key == PRODUCE || key == FETCH), reply }
            }
        }
    }

    fn start_run(&self, requests: &mut VecDeque<Request>) -> Vec<Step> {
        self.runs.lock().push(requests.len());
        let mut steps: Vec<Step> = Vec::new();
        while steps.last().is_none_or(Step::lets_start)
            && let Some(request) = requests.pop_front()
        {
            steps.push(self.start(request));
        }
        steps
    }
}

/// A request of an API without anything in it.
fn body(api: &Api, version: i16) -> &'static [u8] {
    match (api.key as i16, version) {
        (PRODUCE, 3) => &[0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0],
        (FETCH, 4) => &[255, 255, 255, 255, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        (METADATA, 1) => &[0xff, 0xff, 0xff, 0xff],
        (API_VERSIONS, 0) => &[],
        other => panic!("no body for {other:?}"),
    }
}

/// The frame of a request that carries an order.
pub(crate) fn request(api_key: i16, correlation_id: i32, order: &str) -> Bytes {
    request_of_size(api_key, correlation_id, order, 0)
}

/// The same, filled with dots.
pub(crate) fn request_of_size(
    api_key: i16,
    correlation_id: i32,
    order: &str,
    filling: usize,
) -> Bytes {
    let api = protocol::api::find(api_key).unwrap();
    let version = [(PRODUCE, 3), (FETCH, 4), (METADATA, 1)].into_iter();
    let version = version.into_iter().find(|(key, _)| *key == api_key).map_or(0, |(_, it)| it);
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    frame.put_i16(api_key);
    frame.put_i16(version);
    frame.put_i32(correlation_id);
    frame.put_i16(2);
    frame.put_slice(b"me");
    frame.put_slice(body(api, version));
    frame.put_slice(order.as_bytes());
    frame.put_bytes(b'.', filling);
    frame::finish_response(&mut frame, 0);
    frame.freeze()
}

pub(crate) fn listener(limits: ListenerLimits) -> ListenerConfig {
    ListenerConfig {
        name: "PLAINTEXT".to_owned(),
        security_protocol: SecurityProtocol::Plaintext,
        host: "127.0.0.1".to_owned(),
        port: 0,
        tls: None,
        limits,
    }
}

/// A server with one listener.
pub(crate) async fn start(orders: &Orders, config: NetworkConfig) -> SocketServer {
    let listeners = vec![listener(ListenerLimits::default())];
    let server = SocketServer::bind(listeners, config).await.unwrap();
    server.start(Arc::new(orders.clone())).unwrap();
    server
}

pub(crate) struct Client {
    pub(crate) socket: TcpStream,
}

impl Client {
    pub(crate) async fn connect(server: &SocketServer) -> Client {
        let address = server.local_address("PLAINTEXT").unwrap();
        Client { socket: TcpStream::connect(address).await.unwrap() }
    }

    pub(crate) async fn send(&mut self, frames: &[Bytes]) {
        self.socket.write_all(&frames.concat()).await.unwrap();
    }

    /// The next answer: correlation id and body.
    pub(crate) async fn receive(&mut self) -> (i32, Bytes) {
        let size = self.socket.read_i32().await.unwrap();
        let mut content = vec![0; usize::try_from(size).unwrap()];
        self.socket.read_exact(&mut content).await.unwrap();
        let mut content = Bytes::from(content);
        (content.get_i32(), content)
    }

    pub(crate) async fn expect(&mut self, correlation_id: i32, body: &str) {
        let received = timely(self.receive()).await;
        assert_eq!(received, (correlation_id, Bytes::copy_from_slice(body.as_bytes())));
    }

    /// Waits for the other end to close, without another byte.
    pub(crate) async fn expect_closed(&mut self) {
        let mut rest = Vec::new();
        // A reset is a close as well: it comes when we sent what was not read any more.
        let _ = timely(self.socket.read_to_end(&mut rest)).await;
        assert_eq!(rest, b"");
    }
}

/// Fails a test that would hang.
pub(crate) async fn timely<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("in time")
}

/// What was logged on this thread since `capture`, a line each: level and text.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn capture() -> (Log, tracing::subscriber::DefaultGuard) {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Lines about connections, with ports left out.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        let lines = text.lines().map(|line| line.trim().to_owned());
        lines.filter(|line| !line.contains("Awaiting socket connections")).map(mask).collect()
    }
}

/// Replaces `127.0.0.1:PORT` by `127.0.0.1:*`.
fn mask(line: String) -> String {
    let mut parts = line.split("127.0.0.1:");
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        masked.push_str("127.0.0.1:*");
        masked.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    }
    masked
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
