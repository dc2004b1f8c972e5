//! Frames and the headers of requests and answers.
//!
//! A frame is a size of four bytes and that many bytes: a header and a body. Nothing here trusts a length.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use common::error_code::ErrorCode;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Encodable, StrBytes};
use thiserror::Error;

use crate::api::{self, Api, Foreign};

/// Bytes of the size that stands before each frame.
pub const SIZE_LENGTH: usize = 4;

/// What stands before the body of a request.
#[derive(Clone, Debug)]
pub struct RequestHeader {
    /// The API that is asked.
    pub api: &'static Api,
    /// The version of request and answer; for ApiVersions it may be one we do not know.
    pub api_version: i16,
    /// Sent back with the answer.
    pub correlation_id: i32,
    /// Empty where the client sent null or none, as in Kafka.
    pub client_id: StrBytes,
}

/// A request whose header cannot be read or names what we do not serve: its connection closes.
///
/// The texts are those of Kafka's log.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum HeaderError {
    /// No API of Kafka has this key.
    #[error(
        "Error parsing request header. Our best guess of the apiKey is: {0}: Unexpected api key: {0}"
    )]
    UnknownKey(i16),
    /// The bytes end within the header, or a length in it is wrong.
    #[error("Error parsing request header. Our best guess of the apiKey is: {0}")]
    Malformed(i16),
    /// An API or a version that this broker does not serve.
    #[error("Received request api key {api} with version {version} which is not enabled")]
    NotEnabled {
        /// Kafka's constant of the API.
        api: String,
        /// The version asked for.
        version: i16,
    },
}

/// Reads the header at the start of a frame's content and leaves `frame` at the body.
///
/// Every version of ApiVersions passes: a client that is newer gets its answer in version 0.
pub fn read_request_header(frame: &mut Bytes) -> Result<RequestHeader, HeaderError> {
    if frame.len() < 4 {
        return Err(HeaderError::Malformed(-1));
    }
    let key = frame.get_i16();
    let api_version = frame.get_i16();
    let Some(api) = api::find(key) else {
        return Err(match ApiKey::try_from(key) {
            Ok(key) => {
                HeaderError::NotEnabled { api: Foreign(key).to_string(), version: api_version }
            }
            Err(()) => HeaderError::UnknownKey(key),
        });
    };
    let header_version = api.request_header_version(api_version);
    let malformed = HeaderError::Malformed(key);
    if frame.len() < 4 {
        return Err(malformed);
    }
    let correlation_id = frame.get_i32();
    let client_id = match header_version {
        0 => StrBytes::default(),
        _ => read_client_id(frame).ok_or(HeaderError::Malformed(key))?,
    };
    if header_version == 2 {
        skip_tagged_fields(frame).ok_or(malformed)?;
    }
    let served = api.is_built() && (api.supports(api_version) || api.key == ApiKey::ApiVersions);
    if !served {
        return Err(HeaderError::NotEnabled { api: api.to_string(), version: api_version });
    }
    Ok(RequestHeader { api, api_version, correlation_id, client_id })
}

/// The client id has a length of two bytes in every version; null reads as empty.
fn read_client_id(frame: &mut Bytes) -> Option<StrBytes> {
    if frame.len() < 2 {
        return None;
    }
    let Ok(length) = usize::try_from(frame.get_i16()) else {
        return Some(StrBytes::default()); // Any negative length is null to Kafka's readers.
    };
    if length > frame.len() {
        return None;
    }
    let bytes = frame.split_to(length);
    Some(match StrBytes::from_utf8(bytes.clone()) {
        Ok(client_id) => client_id,
        // As Java decodes: what is not UTF-8 is replaced, not refused.
        Err(_) => StrBytes::from_string(String::from_utf8_lossy(&bytes).into_owned()),
    })
}

/// The header has no tagged fields that we know.
fn skip_tagged_fields(frame: &mut Bytes) -> Option<()> {
    let count = read_varint(frame)?;
    for _ in 0..count {
        let _tag = read_varint(frame)?;
        let length = usize::try_from(read_varint(frame)?).ok()?;
        if length > frame.len() {
            return None;
        }
        frame.advance(length);
    }
    Some(())
}

/// An unsigned varint of at most five bytes. Source: `ByteUtils.readUnsignedVarint`.
fn read_varint(frame: &mut Bytes) -> Option<u32> {
    let mut value = 0;
    for shift in [0, 7, 14, 21, 28] {
        let byte = frame.first().copied()?;
        frame.advance(1);
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A message that the codec cannot write in this version: a bug of the broker, not of the peer.
#[derive(Debug, Error)]
#[error("encode the answer to {api} version {version}: {reason}")]
pub struct EncodeError {
    /// The API of the request.
    pub api: &'static Api,
    /// Its version.
    pub version: i16,
    /// What the codec said.
    pub reason: String,
}

/// Writes a whole answer: the size, the header, and the message.
pub fn encode_response(
    api: &'static Api,
    api_version: i16,
    correlation_id: i32,
    message: &impl Encodable,
) -> Result<Bytes, EncodeError> {
    let failed = |error: &dyn std::fmt::Display| EncodeError {
        api,
        version: api_version,
        reason: error.to_string(),
    };
    let size = message.compute_size(api_version).map_err(|error| failed(&error))?;
    let mut frame = start_response(api, api_version, correlation_id, size);
    message.encode(&mut frame, api_version).map_err(|error| failed(&error))?;
    finish_response(&mut frame, 0);
    Ok(frame.freeze())
}

/// Starts an answer: room for the size, then the header. The body follows, then `finish_response`.
pub fn start_response(
    api: &Api,
    api_version: i16,
    correlation_id: i32,
    body_size: usize,
) -> BytesMut {
    let mut frame = BytesMut::with_capacity(SIZE_LENGTH + 5 + body_size);
    frame.put_i32(0);
    frame.put_i32(correlation_id);
    if api.response_header_version(api_version) == 1 {
        frame.put_u8(0); // No tagged fields.
    }
    frame
}

/// Writes the size in front: what `frame` holds, and `following` bytes that are sent after it.
///
/// # Panics
/// When the answer is 2 GiB or more: its writer has to keep below.
pub fn finish_response(frame: &mut BytesMut, following: usize) {
    let size = frame.len() - SIZE_LENGTH + following;
    let size = i32::try_from(size).expect("an answer is smaller than 2 GiB");
    frame[..SIZE_LENGTH].copy_from_slice(&size.to_be_bytes());
}

/// Whether a request asks ApiVersions in a version that we do not know; its body is not to be read.
pub fn is_unknown_api_versions(header: &RequestHeader) -> bool {
    header.api.key == ApiKey::ApiVersions && !header.api.supports(header.api_version)
}

/// The answer to ApiVersions in an unknown version: version 0, `UNSUPPORTED_VERSION`, and the versions of
/// ApiVersions alone, so that the client asks again. Source: KIP-511.
pub fn unknown_api_versions_response(header: &RequestHeader) -> Bytes {
    let mut frame = start_response(header.api, 0, header.correlation_id, 12);
    frame.put_i16(ErrorCode::UnsupportedVersion as i16);
    frame.put_i32(1);
    frame.put_i16(header.api.key as i16);
    frame.put_i16(header.api.min);
    frame.put_i16(header.api.max);
    finish_response(&mut frame, 0);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{
        ApiVersionsResponse, RequestHeader as CodecHeader, ResponseHeader,
    };
    use kafka_protocol::protocol::Decodable;

    use super::*;

    fn encoded(api: &Api, version: i16, client_id: Option<&'static str>) -> Bytes {
        let header = CodecHeader::default()
            .with_request_api_key(api.key as i16)
            .with_request_api_version(version)
            .with_correlation_id(77)
            .with_client_id(client_id.map(StrBytes::from_static_str));
        let mut bytes = BytesMut::new();
        header.encode(&mut bytes, api.request_header_version(version)).unwrap();
        bytes.put_slice(b"body");
        bytes.freeze()
    }

    #[test]
    fn every_header_that_the_codec_writes_is_read() {
        for api in api::built() {
            for version in api.min..=api.max {
                for client_id in [None, Some(""), Some("me")] {
                    let mut frame = encoded(api, version, client_id);
                    let header = read_request_header(&mut frame).unwrap();
                    assert_eq!((header.api, header.api_version), (api, version));
                    assert_eq!(header.correlation_id, 77);
                    let has_client_id = api.request_header_version(version) > 0;
                    let expected = client_id.filter(|_| has_client_id).unwrap_or("");
                    assert_eq!(&*header.client_id, expected);
                    assert_eq!(&frame[..], b"body");
                }
            }
        }
    }

    #[test]
    fn a_header_cut_anywhere_is_refused() {
        let api = api::find(3).unwrap();
        let whole = encoded(api, 9, Some("client"));
        for length in 0..whole.len() - b"body".len() {
            let mut cut = whole.slice(..length);
            assert!(
                matches!(read_request_header(&mut cut), Err(HeaderError::Malformed(_))),
                "{length}"
            );
        }
    }

    #[test]
    fn what_is_not_served_is_refused_in_kafkas_words() {
        let refused = |bytes: &'static [u8]| {
            read_request_header(&mut Bytes::from_static(bytes)).unwrap_err().to_string()
        };
        assert_eq!(
            refused(&[3, 231, 0, 0, 0, 0, 0, 1, 0, 0]),
            "Error parsing request header. Our best guess of the apiKey is: 999: Unexpected api key: 999"
        );
        assert_eq!(
            refused(&[0, 3, 0, 99, 0, 0, 0, 1, 0, 0, 0]),
            "Received request api key METADATA with version 99 which is not enabled"
        );
        assert_eq!(
            refused(&[0, 52, 0, 0, 0, 0, 0, 1, 0, 0, 0]),
            "Received request api key VOTE with version 0 which is not enabled"
        );
    }

    #[test]
    fn a_client_id_that_is_not_utf8_is_replaced() {
        let mut frame = Bytes::from_static(&[0, 18, 0, 0, 0, 0, 0, 1, 0, 2, b'a', 0xff]);
        assert_eq!(&*read_request_header(&mut frame).unwrap().client_id, "a\u{fffd}");
    }

    #[test]
    fn an_overlong_varint_in_the_header_is_refused() {
        let mut frame = Bytes::from_static(&[
            0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
        ]);
        assert_eq!(read_request_header(&mut frame).unwrap_err(), HeaderError::Malformed(18));
    }

    #[test]
    fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
        let mut frame = encoded(api::find(18).unwrap(), 4, None).to_vec();
        frame[3] = 9;
        let header = read_request_header(&mut Bytes::from(frame)).unwrap();
        assert!(is_unknown_api_versions(&header));
        let mut answer = unknown_api_versions_response(&header);
        assert_eq!(answer.get_i32() as usize, answer.len());
        assert_eq!(ResponseHeader::decode(&mut answer, 0).unwrap().correlation_id, 77);
        let body = ApiVersionsResponse::decode(&mut answer, 0).unwrap();
        assert_eq!(body.error_code, 35);
        assert_eq!(body.api_keys.len(), 1);
        let versions = &body.api_keys[0];
        assert_eq!((versions.api_key, versions.min_version, versions.max_version), (18, 0, 4));
        assert!(answer.is_empty());
    }
}
