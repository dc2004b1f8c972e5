//! One connection to a broker: version negotiation, several requests in flight, answers in order.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use common::error_code::ErrorCode;
use kafka_protocol::{
    messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse, RequestHeader, ResponseHeader},
    protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpSocket,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::{
    config::ConnectionConfig,
    error::{ClientError, ErrorKind},
};

/// Requests that may wait for the socket; a full queue makes `send` wait.
const QUEUED_REQUESTS_MAX: usize = 100;
/// Largest answer that is read.
const RESPONSE_BYTES_MAX: usize = 1 << 30;

/// Versions a broker speaks: smallest and largest by API key.
pub type ApiVersions = HashMap<i16, (i16, i16)>;

/// A connection; clones share it. Ends when the last clone is dropped.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Outgoing>,
}

struct Shared {
    client_id: StrBytes,
    request_timeout: Duration,
    correlation: AtomicI32,
    /// Set by whoever first sees that the connection cannot be used any more.
    closed: Arc<AtomicBool>,
    /// Set once `open` has asked.
    versions: OnceLock<ApiVersions>,
}

struct Outgoing {
    frame: Bytes,
    /// None for a request that has no answer (acks=0).
    waiter: Option<Waiter>,
}

struct Waiter {
    correlation_id: i32,
    reply: oneshot::Sender<Result<Bytes, ClientError>>,
}

/// Waiters in the order of their requests. The writer adds, the reader takes.
type Waiters = Arc<Mutex<VecDeque<Waiter>>>;

fn disconnected() -> ClientError {
    ClientError::new(
        ErrorKind::Disconnected,
        "The server disconnected before a response was received.",
    )
}

impl Connection {
    /// Connects and asks for the versions. The error says nothing of addresses; the caller knows them.
    pub async fn open(
        address: SocketAddr,
        config: &ConnectionConfig,
    ) -> Result<Connection, ClientError> {
        let socket = open_socket(address, config)?;
        let connecting = timeout(config.setup_timeout, socket.connect(address));
        let stream = connecting
            .await
            .map_err(|_| ClientError::new(ErrorKind::Timeout, "connection setup timed out"))?
            .map_err(|error| ClientError::new(ErrorKind::Disconnected, error.to_string()))?;
        // A small request must not wait for the answer of the one before.
        stream.set_nodelay(true).map_err(|_| disconnected())?;
        let (reader, writer) = stream.into_split();
        let (queue, requests) = mpsc::channel(QUEUED_REQUESTS_MAX);
        let waiters = Waiters::default();
        let closed = Arc::new(AtomicBool::new(false));
        let connection = Connection {
            shared: Arc::new(Shared {
                client_id: StrBytes::from_string(config.client_id.clone()),
                request_timeout: config.request_timeout,
                correlation: AtomicI32::new(0),
                closed: closed.clone(),
                versions: OnceLock::new(),
            }),
            queue,
        };
        tokio::spawn(write_requests(writer, requests, waiters.clone(), closed.clone()));
        tokio::spawn(read_responses(reader, waiters, closed));
        let versions = connection.negotiate().await?;
        connection.shared.versions.get_or_init(|| versions);
        Ok(connection)
    }

    /// Whether the peer is known to be gone.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed() || self.shared.closed.load(Ordering::Relaxed)
    }

    /// Versions the broker speaks.
    pub fn versions(&self) -> &ApiVersions {
        static NONE_YET: OnceLock<ApiVersions> = OnceLock::new();
        self.shared.versions.get().unwrap_or_else(|| NONE_YET.get_or_init(ApiVersions::new))
    }

    /// The largest version of a request that both sides speak, at most `cap`.
    pub fn version_of<R: Request>(&self, cap: i16) -> Result<i16, ClientError> {
        let name = ApiKey::try_from(R::KEY).map_or_else(|_| R::KEY.to_string(), api_name);
        let Some((least, most)) = self.versions().get(&R::KEY) else {
            return Err(ClientError::new(
                ErrorKind::UnsupportedVersion,
                format!("The node does not support {name}"),
            ));
        };
        let version = R::VERSIONS.max.min(cap).min(*most);
        if version < *least || version < R::VERSIONS.min {
            let (from, to) = (R::VERSIONS.min, R::VERSIONS.max.min(cap));
            return Err(ClientError::new(
                ErrorKind::UnsupportedVersion,
                format!(
                    "The node does not support {name} with version in range [{from},{to}]. The supported range is [{least},{most}]."
                ),
            ));
        }
        Ok(version)
    }

    /// Sends a request in the largest common version and waits for its answer.
    pub async fn call<R: Request>(&self, request: R) -> Result<R::Response, ClientError> {
        let version = self.version_of::<R>(i16::MAX)?;
        self.call_as(request, version, self.shared.request_timeout).await
    }

    /// Sends a request in a given version and waits for its answer, at most `limit`.
    pub async fn call_as<R: Request>(
        &self,
        request: R,
        version: i16,
        limit: Duration,
    ) -> Result<R::Response, ClientError> {
        let answer = self.start(&request, version).await?;
        let mut body = answer.wait(limit).await?;
        R::Response::decode(&mut body, version).map_err(malformed)
    }

    /// Queues a request; the answer's body comes from the returned handle. Requests go out in the order of these calls.
    pub async fn start<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<PendingAnswer, ClientError> {
        let correlation_id = self.shared.correlation.fetch_add(1, Ordering::Relaxed);
        let frame = self.encode(request, version, correlation_id)?;
        let (reply, answer) = oneshot::channel();
        let waiter = Some(Waiter { correlation_id, reply });
        self.queue.send(Outgoing { frame, waiter }).await.map_err(|_| disconnected())?;
        let header_version = R::Response::header_version(version);
        Ok(PendingAnswer { answer, header_version, correlation_id, shared: self.shared.clone() })
    }

    /// Queues a request that the broker does not answer.
    pub async fn send_only<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<(), ClientError> {
        let correlation_id = self.shared.correlation.fetch_add(1, Ordering::Relaxed);
        let frame = self.encode(request, version, correlation_id)?;
        self.queue.send(Outgoing { frame, waiter: None }).await.map_err(|_| disconnected())
    }

    fn encode<R: Request>(
        &self,
        request: &R,
        version: i16,
        correlation_id: i32,
    ) -> Result<Bytes, ClientError> {
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(correlation_id)
            .with_client_id(Some(self.shared.client_id.clone()));
        let unsupported = |error: String| ClientError::new(ErrorKind::UnsupportedVersion, error);
        let mut frame = BytesMut::new();
        frame.extend_from_slice(&[0; 4]);
        header
            .encode(&mut frame, R::header_version(version))
            .map_err(|error| unsupported(error.to_string()))?;
        request.encode(&mut frame, version).map_err(|error| unsupported(error.to_string()))?;
        let size = u32::try_from(frame.len() - 4)
            .map_err(|_| unsupported("The request is too large".to_owned()))?;
        frame[..4].copy_from_slice(&size.to_be_bytes());
        Ok(frame.freeze())
    }

    /// Asks for versions in the newest form; an older broker answers in version 0 and is asked again.
    async fn negotiate(&self) -> Result<ApiVersions, ClientError> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("odradek"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let newest = 4;
        let answer = self.start(&request, newest).await?;
        let mut body = answer.wait(self.shared.request_timeout).await?;
        let is_refused = body.len() >= 2
            && i16::from_be_bytes([body[0], body[1]]) == ErrorCode::UnsupportedVersion as i16;
        let response = if is_refused {
            let answer = self.start(&ApiVersionsRequest::default(), 0).await?;
            let mut body = answer.wait(self.shared.request_timeout).await?;
            ApiVersionsResponse::decode(&mut body, 0).map_err(malformed)?
        } else {
            ApiVersionsResponse::decode(&mut body, newest).map_err(malformed)?
        };
        let code = ErrorCode::from_code(response.error_code);
        if code != ErrorCode::None {
            return Err(ClientError::from_code(code, None));
        }
        let versions = response.api_keys.iter();
        Ok(versions.map(|api| (api.api_key, (api.min_version, api.max_version))).collect())
    }
}

fn malformed(error: impl std::fmt::Display) -> ClientError {
    ClientError::new(ErrorKind::Malformed, format!("the broker's answer is not readable: {error}"))
}

/// `LIST_OFFSETS` for `ListOffsets`, as Java's messages have it.
fn api_name(key: ApiKey) -> String {
    let camel = format!("{key:?}");
    let camel = camel.strip_suffix("Key").unwrap_or(&camel);
    let mut name = String::new();
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// The answer that a request is owed.
pub struct PendingAnswer {
    answer: oneshot::Receiver<Result<Bytes, ClientError>>,
    header_version: i16,
    /// Number of the request on its connection.
    pub correlation_id: i32,
    shared: Arc<Shared>,
}

impl PendingAnswer {
    /// Waits for the body. A connection that lets the limit pass is given up, for its order is lost.
    pub async fn wait(self, limit: Duration) -> Result<Bytes, ClientError> {
        let Ok(received) = timeout(limit, self.answer).await else {
            self.shared.closed.store(true, Ordering::Relaxed);
            return Err(ClientError::new(ErrorKind::Disconnected, "The request timed out."));
        };
        let mut frame = received.unwrap_or_else(|_| Err(disconnected()))?;
        ResponseHeader::decode(&mut frame, self.header_version).map_err(malformed)?;
        Ok(frame)
    }
}

fn open_socket(address: SocketAddr, config: &ConnectionConfig) -> Result<TcpSocket, ClientError> {
    let opened = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let fault = |error: std::io::Error| ClientError::new(ErrorKind::Kafka, error.to_string());
    let socket = opened.map_err(fault)?;
    if let Some(bytes) = config.send_buffer_bytes {
        socket.set_send_buffer_size(bytes).map_err(fault)?;
    }
    if let Some(bytes) = config.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes).map_err(fault)?;
    }
    Ok(socket)
}

/// Writes what is queued, and ends with the queue or the socket.
async fn write_requests(
    mut writer: OwnedWriteHalf,
    mut requests: mpsc::Receiver<Outgoing>,
    waiters: Waiters,
    closed: Arc<AtomicBool>,
) {
    while let Some(request) = requests.recv().await {
        if let Some(waiter) = request.waiter {
            waiters.lock().push_back(waiter);
        }
        if closed.load(Ordering::Acquire) || writer.write_all(&request.frame).await.is_err() {
            break;
        }
    }
    requests.close();
    // Without requests to come the reader only waits for what is owed; the peer sees the end of our stream.
    let _ = writer.shutdown().await; // The socket may be gone already, which is as good.
    if closed.load(Ordering::Acquire) {
        fail_all(&waiters);
    }
}

/// Reads answers until the socket ends, then fails whoever still waits.
async fn read_responses(mut reader: OwnedReadHalf, waiters: Waiters, closed: Arc<AtomicBool>) {
    while let Some(frame) = read_frame(&mut reader).await {
        let Some(waiter) = waiters.lock().pop_front() else { break };
        let matches = frame.get(..4).is_some_and(|id| id == waiter.correlation_id.to_be_bytes());
        if !matches {
            waiters.lock().push_front(waiter);
            break;
        }
        // The caller may have stopped waiting.
        let _ = waiter.reply.send(Ok(frame));
    }
    closed.store(true, Ordering::Release);
    fail_all(&waiters);
}

fn fail_all(waiters: &Waiters) {
    for waiter in waiters.lock().drain(..) {
        // The caller may have stopped waiting.
        let _ = waiter.reply.send(Err(disconnected()));
    }
}

/// One frame without its size; none at the end or at a fault. Memory follows the bytes received.
async fn read_frame(reader: &mut OwnedReadHalf) -> Option<Bytes> {
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
    debug_assert_eq!(frame.remaining(), size);
    Some(frame.freeze())
}
