//! One connection to a broker: version negotiation, several requests in flight, answers in order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use kafka_protocol::{messages::ApiKey, protocol::Request};
use network::outgoing::{self, OutgoingConfig, OutgoingError};

use crate::{
    config::ConnectionConfig,
    error::{ClientError, ErrorKind},
};

/// What the client says of itself in ApiVersions.
const SOFTWARE: (&str, &str) = ("odradek", env!("CARGO_PKG_VERSION"));

/// Versions a broker speaks: smallest and largest by API key.
pub type ApiVersions = outgoing::ApiVersions;

/// A connection; clones share it. Ends when the last clone is dropped.
#[derive(Clone)]
pub struct Connection {
    inner: outgoing::Connection,
    request_timeout: Duration,
    versions: Arc<ApiVersions>,
}

impl From<OutgoingError> for ClientError {
    fn from(error: OutgoingError) -> ClientError {
        let kind = match &error {
            OutgoingError::Socket(_) => ErrorKind::Kafka,
            OutgoingError::ConnectTimedOut => ErrorKind::Timeout,
            OutgoingError::Connect(_) | OutgoingError::Disconnected | OutgoingError::TimedOut => {
                ErrorKind::Disconnected
            }
            OutgoingError::Unwritable(_) => ErrorKind::UnsupportedVersion,
            OutgoingError::Malformed(_) => ErrorKind::Malformed,
            OutgoingError::NoVersions(code) => return ClientError::from_code(*code, None),
        };
        let message = match error {
            OutgoingError::Disconnected => {
                "The server disconnected before a response was received.".to_owned()
            }
            OutgoingError::TimedOut => "The request timed out.".to_owned(),
            OutgoingError::Socket(error) | OutgoingError::Connect(error) => error.to_string(),
            OutgoingError::Unwritable(reason) => reason,
            other => other.to_string(),
        };
        ClientError::new(kind, message)
    }
}

impl Connection {
    /// Connects and asks for the versions. The error says nothing of addresses; the caller knows them.
    pub async fn open(
        address: SocketAddr,
        config: &ConnectionConfig,
    ) -> Result<Connection, ClientError> {
        let outgoing = OutgoingConfig {
            client_id: config.client_id.clone(),
            setup_timeout: config.setup_timeout,
            send_buffer_bytes: config.send_buffer_bytes,
            receive_buffer_bytes: config.receive_buffer_bytes,
        };
        let inner = outgoing::Connection::open(address, &outgoing).await?;
        let versions = inner.negotiate(SOFTWARE, config.request_timeout).await?;
        let request_timeout = config.request_timeout;
        Ok(Connection { inner, request_timeout, versions: Arc::new(versions) })
    }

    /// Whether the peer is known to be gone.
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Versions the broker speaks.
    pub fn versions(&self) -> &ApiVersions {
        &self.versions
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
        self.call_as(request, version, self.request_timeout).await
    }

    /// Sends a request in a given version and waits for its answer, at most `limit`.
    pub async fn call_as<R: Request>(
        &self,
        request: R,
        version: i16,
        limit: Duration,
    ) -> Result<R::Response, ClientError> {
        Ok(self.inner.call(&request, version, limit).await?)
    }

    /// Queues a request; the answer's body comes from the returned handle. Requests go out in the order of these calls.
    pub async fn start<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<PendingAnswer, ClientError> {
        Ok(PendingAnswer(self.inner.start(request, version).await?))
    }

    /// Queues a request that the broker does not answer.
    pub async fn send_only<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<(), ClientError> {
        Ok(self.inner.send_only(request, version).await?)
    }
}

/// The answer that a request is owed.
pub struct PendingAnswer(outgoing::PendingAnswer);

impl PendingAnswer {
    /// Number of the request on its connection.
    pub fn correlation_id(&self) -> i32 {
        self.0.correlation_id
    }

    /// Waits for the body. A connection that lets the limit pass is given up, for its order is lost.
    pub async fn wait(self, limit: Duration) -> Result<Bytes, ClientError> {
        Ok(self.0.wait(limit).await?)
    }
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
