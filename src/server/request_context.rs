//! What a handler knows of a request besides its body.

use std::sync::Arc;

use network::connection::Connection;
use protocol::api::Api;

/// The header of a request and the connection it came by.
#[derive(Clone)]
pub(crate) struct RequestContext {
    /// Which API.
    pub api: &'static Api,
    /// In which version.
    pub api_version: i16,
    /// The client's number for the request.
    pub correlation_id: i32,
    /// The client's name for itself; empty where it gave none.
    pub client_id: kafka_protocol::protocol::StrBytes,
    /// Where it came from, and by which listener.
    pub connection: Arc<Connection>,
}

impl RequestContext {
    /// The client's address as Java prints it, such as `/127.0.0.1`.
    pub(crate) fn java_peer(&self) -> String {
        network::connection::JavaHost(self.connection.peer.ip()).to_string()
    }
}
