//! How fetchers reach leaders: by a socket in a broker, directly in a test.

use std::{future::Future, pin::Pin};

use common::ids::BrokerId;
use kafka_protocol::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
};

/// Why a leader did not answer; for the log alone.
pub type LeaderError = Box<dyn std::error::Error + Send + Sync>;

/// A leader's answer to come.
pub type LeaderFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, LeaderError>> + Send + 'a>>;

/// Reaches the leaders of a cluster.
pub trait Leaders: Send + Sync {
    /// A way to a broker, for one of the fetchers that it has. It may not be open yet, and opens again by itself.
    fn way_to(&self, leader: BrokerId, fetcher: usize) -> Box<dyn Leader>;
}

/// A way to one broker.
pub trait Leader: Send + Sync {
    /// Fetches, in a version.
    fn fetch(&self, request: FetchRequest, version: i16) -> LeaderFuture<'_, FetchResponse>;
    /// Asks for offsets, in a version.
    fn list_offsets(
        &self,
        request: ListOffsetsRequest,
        version: i16,
    ) -> LeaderFuture<'_, ListOffsetsResponse>;
}
