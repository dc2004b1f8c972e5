//! UpdateMetadata of a batch: the same for every broker but for the epoch of its registration, so it is encoded once,
//! and all connections send the same bytes.

use ::controller::request::BrokerRequest;
use bytes::{Bytes, BytesMut};
use common::ids::BrokerEpoch;
use kafka_protocol::protocol::Encodable;
use metadata::snapshot::Update;
use network::outgoing::{EncodedBody, OutgoingError};

use super::update_metadata_request;

/// From this version on UpdateMetadata says whether the controller is one of KRaft, in a byte before the epochs.
const SAYS_KRAFT: i16 = 8;
/// Size of a broker epoch.
const EPOCH_BYTES: usize = 8;

/// An encoded UpdateMetadata without the epoch of a registration. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SharedUpdate {
    /// What comes before the epoch: the controller and its epoch.
    before: Bytes,
    /// What follows it: all topics and brokers.
    after: Bytes,
}

impl SharedUpdate {
    /// Encodes the update in a version from 6 on. What `head` says of its broker does not matter.
    pub(crate) fn encode(
        head: &BrokerRequest,
        update: &Update,
        version: i16,
    ) -> Result<SharedUpdate, OutgoingError> {
        let mut whole = BytesMut::new();
        update_metadata_request(head, update, version)
            .encode(&mut whole, version)
            .map_err(|error| OutgoingError::Unwritable(error.to_string()))?;
        let epoch_at = if version >= SAYS_KRAFT { 9 } else { 8 };
        let (before, rest) = whole.split_at(epoch_at);
        // Copies: the buffer has grown by doubling, and what is left of it may be held for a while.
        let copy = Bytes::copy_from_slice;
        Ok(SharedUpdate { before: copy(before), after: copy(&rest[EPOCH_BYTES..]) })
    }

    /// The body for the broker of this registration.
    pub(crate) fn for_registration(&self, epoch: BrokerEpoch) -> EncodedBody {
        let own = [&self.before[..], &epoch.0.to_be_bytes()].concat();
        EncodedBody { own: own.into(), shared: self.after.clone() }
    }
}
