//! Frames of requests: header, admission check, and what is admitted is decoded to the same byte.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::RequestKind;
use protocol::admission::{Limits, admit};
use protocol::api;
use protocol::frame::read_request_header;
use protocol::sample;

use crate::mutate::Random;

/// Samples of each version: enough that every field is there once.
const SAMPLES: u64 = 3;

/// The content of a frame. The key of an API that is not served yet is tried as well, behind its header.
pub(crate) fn run(data: &[u8]) {
    let mut content = Bytes::copy_from_slice(data);
    if let Ok(header) = read_request_header(&mut content) {
        decode_admitted(header.api, header.api_version, &content);
    }
    let [key_high, key_low, _, version, body @ ..] = data else { return };
    let Some(api) = api::find(i16::from_be_bytes([*key_high, *key_low])) else { return };
    decode_admitted(api, i16::from(*version), &Bytes::copy_from_slice(body));
    // The body as it was before the mutation moved it: behind key, version, correlation id and client id.
    if let Some(body) = body.get(header_rest(api, i16::from(*version))..) {
        decode_admitted(api, i16::from(*version), &Bytes::copy_from_slice(body));
    }
}

fn decode_admitted(api: &api::Api, version: i16, body: &Bytes) {
    if admit(api, version, body, Limits::of(api)).is_err() {
        return;
    }
    let decoded = RequestKind::decode(api.key, &mut body.clone(), version);
    decoded.unwrap_or_else(|error| panic!("{api} {version} was admitted: {error}"));
}

/// Bytes between the version and the body in a frame of the corpus.
fn header_rest(api: &api::Api, version: i16) -> usize {
    match api.request_header_version(version) {
        0 => 4,
        1 => 4 + 2 + CLIENT_ID.len(),
        _ => 4 + 2 + CLIENT_ID.len() + 1,
    }
}

const CLIENT_ID: &[u8] = b"rdkafka";

/// Requests of every API in every version, as the codec writes them.
pub(crate) fn corpus() -> Vec<Vec<u8>> {
    let mut corpus = Vec::new();
    for api in api::ALL {
        for version in api.min..=api.max {
            for sample in 0..SAMPLES {
                let mut random = Random::of(sample, 0);
                let body = sample::request_body(&api, version, &mut || random.next()).freeze();
                let request = RequestKind::decode(api.key, &mut body.clone(), version);
                let request = request.expect("a sample is a request");
                let mut frame = BytesMut::new();
                frame.put_i16(api.key as i16);
                frame.put_i16(version);
                frame.put_i32(7);
                let header_version = api.request_header_version(version);
                if header_version > 0 {
                    frame.put_i16(CLIENT_ID.len() as i16);
                    frame.put_slice(CLIENT_ID);
                }
                if header_version > 1 {
                    frame.put_u8(0);
                }
                request.encode(&mut frame, version).expect("what was decoded can be encoded");
                corpus.push(frame.to_vec());
            }
        }
    }
    corpus
}
