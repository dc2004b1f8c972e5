//! What a consumer subscribes to, from the metadata of its JoinGroup request.

use crate::{records::RecordError, wire::Reader};

/// The protocol type of consumers. Source: `ConsumerProtocol.PROTOCOL_TYPE`.
pub(crate) const CONSUMER: &str = "consumer";

/// Topics of a `ConsumerProtocolSubscription`. Its version does not matter: each begins with the fields of version 0.
pub(crate) fn topics(metadata: &[u8]) -> Result<Vec<&str>, RecordError> {
    let mut reader = Reader::new(metadata);
    let version = reader.int16("subscription version")?;
    if version < 0 {
        return Err(RecordError::UnknownVersion { value: "ConsumerProtocolSubscription", version });
    }
    let count = reader.count(2, "subscribed topics")?;
    (0..count).map(|_| reader.text("subscribed topic")).collect()
}
