//! How this broker's fetchers reach other brokers: a connection for each fetcher.

use std::{sync::Arc, time::Duration};

use common::ids::BrokerId;
use kafka_protocol::{
    messages::{FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse},
    protocol::Request,
};
use replication::leaders::{Leader, LeaderError, LeaderFuture, Leaders};

use crate::peers::{Peers, Purpose};

/// Reaches leaders over sockets.
pub(crate) struct PeerLeaders {
    pub peers: Arc<Peers>,
    /// `replica.socket.timeout.ms`: how long an answer may take.
    pub timeout: Duration,
}

struct PeerLeader {
    peers: Arc<Peers>,
    timeout: Duration,
    broker: BrokerId,
    purpose: Purpose,
}

impl Leaders for PeerLeaders {
    fn way_to(&self, leader: BrokerId, fetcher: usize) -> Box<dyn Leader> {
        Box::new(PeerLeader {
            peers: self.peers.clone(),
            timeout: self.timeout,
            broker: leader,
            purpose: Purpose::Fetcher(fetcher),
        })
    }
}

impl PeerLeader {
    async fn call<R: Request>(&self, request: R, version: i16) -> Result<R::Response, LeaderError> {
        let versions = version..=version;
        let call = self.peers.call(self.broker, self.purpose, &request, versions, self.timeout);
        Ok(call.await?.0)
    }
}

impl Leader for PeerLeader {
    fn fetch(&self, request: FetchRequest, version: i16) -> LeaderFuture<'_, FetchResponse> {
        Box::pin(self.call(request, version))
    }

    fn list_offsets(
        &self,
        request: ListOffsetsRequest,
        version: i16,
    ) -> LeaderFuture<'_, ListOffsetsResponse> {
        Box::pin(self.call(request, version))
    }
}
