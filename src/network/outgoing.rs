//! A connection to a broker: several requests in flight, answers in order.
//!
//! Two tasks hold the socket's halves; a connection is a queue in front of them. It ends when its last clone is dropped,
//! the peer closes, or an answer is out of order or too late: then the order is lost, and every request that waits fails.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use common::error_code::ErrorCode;
use kafka_protocol::{
    messages::{ApiVersionsRequest, ApiVersionsResponse, RequestHeader, ResponseHeader},
    protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpSocket,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Requests that may wait for the socket; a full queue makes `start` wait.
const QUEUED_REQUESTS_MAX: usize = 100;
/// Largest answer that is read.
const RESPONSE_BYTES_MAX: usize = 1 << 30;
/// Room for one read: a small answer takes no more. What is larger than the room goes to its place directly.
const READ_SIZE: usize = 4 << 10;
/// Newest version of ApiVersions that is asked in.
const API_VERSIONS_MAX: i16 = 4;

/// Versions a broker speaks: smallest and largest by API key.
pub type ApiVersions = HashMap<i16, (i16, i16)>;

/// How a connection is made.
#[derive(Clone, Debug)]
pub struct OutgoingConfig {
    /// Name in request headers.
    pub client_id: String,
    /// Longest time of a TCP connect.
    pub setup_timeout: Duration,
    /// Socket's send buffer; none leaves it to the system.
    pub send_buffer_bytes: Option<u32>,
    /// Socket's receive buffer; none leaves it to the system.
    pub receive_buffer_bytes: Option<u32>,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {
    /// The system gives no such socket.
    #[error("open a socket")]
    Socket(#[source] io::Error),
    /// The peer did not take the connection in time.
    #[error("connection setup timed out")]
    ConnectTimedOut,
    /// The peer did not take the connection.
    #[error("connect")]
    Connect(#[source] io::Error),
    /// The connection ended before the answer came.
    #[error("the server disconnected before a response was received")]
    Disconnected,
    /// The answer did not come in time. The connection is given up.
    #[error("the request timed out")]
    TimedOut,
    /// The request cannot be written in its version.
    #[error("write the request: {0}")]
    Unwritable(String),
    /// The answer cannot be read.
    #[error("the broker's answer is not readable: {0}")]
    Malformed(String),
    /// The broker refuses to say which versions it speaks.
    #[error("the broker refuses ApiVersions: {0}")]
    NoVersions(ErrorCode),
}

/// A connection; clones share it.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Outgoing>,
}

struct Shared {
    client_id: StrBytes,
    correlation: AtomicI32,
    /// Cancelled by whoever first sees that the connection cannot be used any more: both halves are let go then, whatever
    /// the peer does.
    closed: CancellationToken,
}

/// A request's body in its version, encoded already: what is this request's own, and what follows it.
#[derive(Clone, Debug)]
pub struct EncodedBody {
    /// The beginning.
    pub own: Bytes,
    /// The rest, of which other requests hold the same bytes.
    pub shared: Bytes,
}

struct Outgoing {
    frame: Bytes,
    /// What follows the frame's own bytes, and is held by others too; empty as a rule.
    shared: Bytes,
    /// None for a request that has no answer (acks=0).
    waiter: Option<Waiter>,
}

struct Waiter {
    correlation_id: i32,
    reply: oneshot::Sender<Bytes>,
}

/// Waiters in the order of their requests. The writer adds, the reader takes.
type Waiters = Arc<Mutex<VecDeque<Waiter>>>;

impl Connection {
    /// Connects. The error says nothing of addresses; the caller knows them.
    pub async fn open(
        address: SocketAddr,
        config: &OutgoingConfig,
    ) -> Result<Connection, OutgoingError> {
        let socket = open_socket(address, config).map_err(OutgoingError::Socket)?;
        let connecting = timeout(config.setup_timeout, socket.connect(address));
        let stream = connecting
            .await
            .map_err(|_| OutgoingError::ConnectTimedOut)?
            .map_err(OutgoingError::Connect)?;
        // A small request must not wait for the answer of the one before.
        stream.set_nodelay(true).map_err(|_| OutgoingError::Disconnected)?;
        let (reader, writer) = stream.into_split();
        let (queue, requests) = mpsc::channel(QUEUED_REQUESTS_MAX);
        let waiters = Waiters::default();
        let closed = CancellationToken::new();
        tokio::spawn(write_requests(writer, requests, waiters.clone(), closed.clone()));
        tokio::spawn(read_responses(reader, waiters, closed.clone()));
        Ok(Connection {
            shared: Arc::new(Shared {
                client_id: StrBytes::from_string(config.client_id.clone()),
                correlation: AtomicI32::new(0),
                closed,
            }),
            queue,
        })
    }

    /// Whether the peer is known to be gone.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed() || self.shared.closed.is_cancelled()
    }

    /// Sends a request in a given version and waits for its answer, at most `limit`.
    pub async fn call<R: Request>(
        &self,
        request: &R,
        version: i16,
        limit: Duration,
    ) -> Result<R::Response, OutgoingError> {
        let answer = self.start(request, version).await?;
        let mut body = answer.wait(limit).await?;
        R::Response::decode(&mut body, version).map_err(malformed)
    }

    /// As `call`, for requests that may be large: one is let go once it is encoded, not when it is answered.
    pub async fn call_with<R: Request>(
        &self,
        request: R,
        version: i16,
        limit: Duration,
    ) -> Result<R::Response, OutgoingError> {
        let answer = self.start(&request, version).await?;
        drop(request);
        let mut body = answer.wait(limit).await?;
        R::Response::decode(&mut body, version).map_err(malformed)
    }

    /// As `call`, for a body that is encoded already. What it shares with others is not copied.
    pub async fn call_encoded<R: Request>(
        &self,
        body: &EncodedBody,
        version: i16,
        limit: Duration,
    ) -> Result<R::Response, OutgoingError> {
        let correlation_id = self.next_correlation_id();
        let mut frame = self.header::<R>(version, correlation_id)?;
        frame.extend_from_slice(&body.own);
        let frame = finish(frame, body.shared.len())?;
        let answer = self.queue::<R>(frame, body.shared.clone(), version, correlation_id).await?;
        let mut body = answer.wait(limit).await?;
        R::Response::decode(&mut body, version).map_err(malformed)
    }

    /// Queues a request; the answer's body comes from the returned handle. Requests go out in the order of these calls.
    pub async fn start<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<PendingAnswer, OutgoingError> {
        let correlation_id = self.next_correlation_id();
        let frame = self.encode(request, version, correlation_id)?;
        self.queue::<R>(frame, Bytes::new(), version, correlation_id).await
    }

    async fn queue<R: Request>(
        &self,
        frame: Bytes,
        shared: Bytes,
        version: i16,
        correlation_id: i32,
    ) -> Result<PendingAnswer, OutgoingError> {
        let (reply, answer) = oneshot::channel();
        let waiter = Some(Waiter { correlation_id, reply });
        let queued = self.queue.send(Outgoing { frame, shared, waiter }).await;
        queued.map_err(|_| OutgoingError::Disconnected)?;
        let header_version = R::Response::header_version(version);
        let closed = self.shared.closed.clone();
        Ok(PendingAnswer { answer, header_version, correlation_id, closed })
    }

    /// Queues a request that the broker does not answer.
    pub async fn send_only<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<(), OutgoingError> {
        let frame = self.encode(request, version, self.next_correlation_id())?;
        let queued = self.queue.send(Outgoing { frame, shared: Bytes::new(), waiter: None }).await;
        queued.map_err(|_| OutgoingError::Disconnected)
    }

    /// Asks which versions the broker speaks, in the newest form; an older broker answers in version 0 and is asked again.
    /// `software` is the client's name and version.
    pub async fn negotiate(
        &self,
        software: (&'static str, &'static str),
        limit: Duration,
    ) -> Result<ApiVersions, OutgoingError> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str(software.0))
            .with_client_software_version(StrBytes::from_static_str(software.1));
        let answer = self.start(&request, API_VERSIONS_MAX).await?;
        let mut body = answer.wait(limit).await?;
        let is_refused = body.len() >= 2
            && i16::from_be_bytes([body[0], body[1]]) == ErrorCode::UnsupportedVersion as i16;
        let response = if is_refused {
            self.call(&ApiVersionsRequest::default(), 0, limit).await?
        } else {
            ApiVersionsResponse::decode(&mut body, API_VERSIONS_MAX).map_err(malformed)?
        };
        let code = ErrorCode::from_code(response.error_code);
        if code != ErrorCode::None {
            return Err(OutgoingError::NoVersions(code));
        }
        let versions = response.api_keys.iter();
        Ok(versions.map(|api| (api.api_key, (api.min_version, api.max_version))).collect())
    }

    fn next_correlation_id(&self) -> i32 {
        self.shared.correlation.fetch_add(1, Ordering::Relaxed)
    }

    fn encode<R: Request>(
        &self,
        request: &R,
        version: i16,
        correlation_id: i32,
    ) -> Result<Bytes, OutgoingError> {
        let mut frame = self.header::<R>(version, correlation_id)?;
        request.encode(&mut frame, version).map_err(unwritable)?;
        finish(frame, 0)
    }

    /// Room for the frame's size, and the request's header.
    fn header<R: Request>(
        &self,
        version: i16,
        correlation_id: i32,
    ) -> Result<BytesMut, OutgoingError> {
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(correlation_id)
            .with_client_id(Some(self.shared.client_id.clone()));
        let mut frame = BytesMut::new();
        frame.extend_from_slice(&[0; 4]);
        header.encode(&mut frame, R::header_version(version)).map_err(unwritable)?;
        Ok(frame)
    }
}

/// Writes the size of a frame into its beginning; so many bytes are to follow it.
fn finish(mut frame: BytesMut, more: usize) -> Result<Bytes, OutgoingError> {
    let size = u32::try_from(frame.len() - 4 + more)
        .map_err(|_| unwritable("The request is too large"))?;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    Ok(frame.freeze())
}

fn unwritable(error: impl std::fmt::Display) -> OutgoingError {
    OutgoingError::Unwritable(error.to_string())
}

fn malformed(error: impl std::fmt::Display) -> OutgoingError {
    OutgoingError::Malformed(error.to_string())
}

/// The answer that a request is owed.
pub struct PendingAnswer {
    answer: oneshot::Receiver<Bytes>,
    header_version: i16,
    /// Number of the request on its connection.
    pub correlation_id: i32,
    closed: CancellationToken,
}

impl PendingAnswer {
    /// Waits for the body. A connection that lets the limit pass is given up, for its order is lost.
    pub async fn wait(self, limit: Duration) -> Result<Bytes, OutgoingError> {
        let Ok(received) = timeout(limit, self.answer).await else {
            self.closed.cancel();
            return Err(OutgoingError::TimedOut);
        };
        let mut frame = received.map_err(|_| OutgoingError::Disconnected)?;
        ResponseHeader::decode(&mut frame, self.header_version).map_err(malformed)?;
        Ok(frame)
    }
}

pub(crate) fn open_socket(address: SocketAddr, config: &OutgoingConfig) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(bytes) = config.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = config.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(socket)
}

/// Writes what is queued, and ends with the queue or the socket.
async fn write_requests(
    mut writer: OwnedWriteHalf,
    mut requests: mpsc::Receiver<Outgoing>,
    waiters: Waiters,
    closed: CancellationToken,
) {
    while let Some(Some(request)) = closed.run_until_cancelled(requests.recv()).await {
        if let Some(waiter) = request.waiter {
            waiters.lock().push_back(waiter);
        }
        let mut bytes = request.frame.chain(request.shared);
        let written = closed.run_until_cancelled(writer.write_all_buf(&mut bytes)).await;
        if !matches!(written, Some(Ok(()))) {
            closed.cancel();
            break;
        }
    }
    requests.close();
    // Without requests to come the reader only waits for what is owed; the peer sees the end of our stream.
    let _ = writer.shutdown().await; // The socket may be gone already, which is as good.
    if closed.is_cancelled() || waiters.lock().is_empty() {
        closed.cancel();
        waiters.lock().clear();
    }
}

/// Reads answers until the socket ends, then fails whoever still waits.
async fn read_responses(reader: OwnedReadHalf, waiters: Waiters, closed: CancellationToken) {
    let mut reader = BufReader::with_capacity(READ_SIZE, reader);
    while let Some(Some(frame)) = closed.run_until_cancelled(read_frame(&mut reader)).await {
        let Some(waiter) = waiters.lock().pop_front() else { break };
        let matches = frame.get(..4).is_some_and(|id| id == waiter.correlation_id.to_be_bytes());
        if !matches {
            break;
        }
        // The caller may have stopped waiting.
        let _ = waiter.reply.send(frame);
    }
    closed.cancel();
    waiters.lock().clear();
}

/// One frame without its size; none at the end or at a fault. Memory follows the bytes received.
async fn read_frame(reader: &mut BufReader<OwnedReadHalf>) -> Option<Bytes> {
    let mut size = [0; 4];
    reader.read_exact(&mut size).await.ok()?;
    let size = usize::try_from(i32::from_be_bytes(size)).ok()?;
    if size > RESPONSE_BYTES_MAX {
        return None;
    }
    let mut frame = BytesMut::with_capacity(size.min(64 << 10));
    let mut limited = reader.take(u64::try_from(size).ok()?);
    while frame.len() < size {
        if limited.read_buf(&mut frame).await.ok()? == 0 {
            return None;
        }
    }
    debug_assert_eq!(frame.len(), size);
    Some(frame.freeze())
}
