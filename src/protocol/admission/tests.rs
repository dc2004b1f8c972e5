//! The check against the codec, and against what a stranger may send.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestKind};

use super::{AdmissionError, Limits, Problem, admit, walk};
use crate::api::{self, Api};
use crate::sample;

/// Numbers that look random, the same for the same seed. Source: SplitMix64.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Every API in every version.
fn every_version() -> impl Iterator<Item = (&'static Api, i16)> {
    api::ALL.iter().flat_map(|api| (api.min..=api.max).map(move |version| (api, version)))
}

fn encoded(request: &RequestKind, version: i16) -> Bytes {
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes, version).unwrap();
    bytes.freeze()
}

fn default_limits() -> Limits {
    Limits { elements_max: 10_000 }
}

#[test]
fn the_table_describes_what_the_codec_reads_and_writes() {
    for (api, version) in every_version() {
        for seed in 0..60 {
            let body = sample::request_body(api, version, &mut random(seed)).freeze();
            let what = format!("{api} version {version} seed {seed}: {body:?}");
            assert_eq!(walk(api, version, &body, default_limits()), Ok(0), "{what}");
            let mut left = body.clone();
            let request = RequestKind::decode(api.key, &mut left, version).expect(&what);
            assert_eq!(left.len(), 0, "{what}");
            let again = encoded(&request, version);
            assert_eq!(walk(api, version, &again, default_limits()), Ok(0), "{what}");
            // The codec leaves out a tagged field that has its default.
            let has_tags = matches!(api.key, ApiKey::Fetch | ApiKey::UpdateMetadata);
            assert!(again == body || has_tags, "{what}: {again:?}");
            let twice = RequestKind::decode(api.key, &mut again.clone(), version).expect(&what);
            assert_eq!(encoded(&twice, version), again, "{what}");
        }
    }
}

#[test]
fn what_is_admitted_is_decoded_and_ends_at_the_same_byte() {
    let mut admitted = 0;
    for (api, version) in every_version() {
        for seed in 0..60 {
            let mut random = random(seed ^ 0xa5a5);
            let mut body = sample::request_body(api, version, &mut random);
            for _ in 0..=random() % 3 {
                mutate(&mut body, &mut random);
            }
            let body = body.freeze();
            let Ok(left_over) = walk(api, version, &body, default_limits()) else { continue };
            admitted += 1;
            let mut left = body.clone();
            let what = format!("{api} version {version} seed {seed}: {body:?}");
            RequestKind::decode(api.key, &mut left, version).expect(&what);
            assert_eq!(left.len(), left_over, "{what}");
        }
    }
    assert!(admitted > 2_000, "{admitted}");
}

fn mutate(body: &mut BytesMut, random: &mut impl FnMut() -> u64) {
    if body.is_empty() {
        return;
    }
    let at = random() as usize % body.len();
    match random() % 4 {
        0 => body[at] = random() as u8,
        1 => body[at] ^= 1 << (random() % 8),
        2 => body.truncate(at),
        _ => body[at] = [0, 1, 0x7f, 0x80, 0xff][random() as usize % 5],
    }
}

#[test]
fn a_request_cut_anywhere_is_not_admitted() {
    for (api, version) in every_version() {
        let body = sample::request_body(api, version, &mut random(1));
        for length in 0..body.len() {
            let cut = walk(api, version, &body[..length], default_limits());
            assert!(cut.is_err(), "{api} version {version} at {length} of {}", body.len());
        }
    }
}

#[test]
fn bytes_behind_the_last_field_are_left_over() {
    for (api, version) in every_version() {
        let mut body = sample::request_body(api, version, &mut random(2));
        body.extend_from_slice(&[0xff; 100]);
        assert_eq!(walk(api, version, &body, default_limits()), Ok(100), "{api} {version}");
    }
}

/// Refuses a body; the problem and the field.
fn check(key: ApiKey, version: i16, body: &[u8], problem: Problem, field: &'static str) {
    let api = api::find(key as i16).unwrap();
    let refused = admit(api, version, body, Limits { elements_max: 3 });
    assert_eq!(refused, Err(AdmissionError { field, problem }));
}

fn admitted(key: ApiKey, version: i16, body: &[u8]) {
    let api = api::find(key as i16).unwrap();
    assert_eq!(admit(api, version, body, Limits { elements_max: 3 }), Ok(()));
}

#[test]
fn eight_bytes_do_not_end_the_process() {
    check(ApiKey::Metadata, 1, &[0x7f, 0xff, 0xff, 0xff], Problem::Ends, "Topics");
    let body = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0];
    check(ApiKey::Metadata, 9, &body, Problem::Ends, "Topics");
    check(ApiKey::Metadata, 9, &[0xff; 8], Problem::Varint, "Topics");
}

#[test]
fn null_is_admitted_where_kafka_reads_it() {
    check(ApiKey::Metadata, 0, &[0xff; 4], Problem::Null, "Topics");
    admitted(ApiKey::Metadata, 1, &[0xff; 4]);
    check(ApiKey::Metadata, 1, &[0xff, 0xff, 0xff, 0xfe], Problem::Length(-2), "Topics");
    check(ApiKey::Metadata, 1, &[0, 0, 0, 1, 0xff, 0xff], Problem::Null, "Name");
    check(ApiKey::Metadata, 1, &[0, 0, 0, 1, 0xff, 0xfe], Problem::Length(-2), "Name");
    check(ApiKey::Metadata, 9, &[2, 0, 0, 1, 0, 0, 0], Problem::Null, "Name");
    admitted(
        ApiKey::Metadata,
        12,
        &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
    );
}

#[test]
fn strings_are_utf8_and_no_longer_than_kafka_reads() {
    check(ApiKey::Metadata, 1, &[0, 0, 0, 1, 0, 2, 0xc3, 0x28], Problem::NotUtf8, "Name");
    let mut long = vec![2, 0x81, 0x80, 2]; // 0x8000 and the one of compact lengths.
    long.extend_from_slice(&[b'a'; 0x8000]);
    long.extend_from_slice(&[0, 0, 0, 0, 0]);
    check(ApiKey::Metadata, 9, &long, Problem::Length(0x8000), "Name");
}

#[test]
fn elements_are_counted_over_the_whole_request() {
    let topic = [0, 1, b'a'];
    let body = [&[0, 0, 0, 3][..], &topic, &topic, &topic].concat();
    admitted(ApiKey::Metadata, 1, &body);
    let body = [&[0, 0, 0, 4][..], &topic, &topic, &topic, &topic].concat();
    check(ApiKey::Metadata, 1, &body, Problem::Elements, "Topics");
    // Three topics, and a tagged field that nobody knows.
    let topic = [2, b'a', 0];
    let body = [&[4][..], &topic, &topic, &topic, &[1, 0, 0, 1, 100, 0]].concat();
    check(ApiKey::Metadata, 9, &body, Problem::Elements, "Metadata");
}

#[test]
fn a_tag_of_a_later_version_is_refused_and_an_unknown_one_is_skipped() {
    // Fetch version 12: replica, wait, min, max, isolation, session, epoch, topics, forgotten, rack.
    let mut body = vec![0; 4 + 4 + 4 + 4 + 1 + 4 + 4];
    body.extend_from_slice(&[1, 1, 1]);
    let with = |tags: &[u8]| [&body, tags].concat();
    admitted(ApiKey::Fetch, 12, &with(&[0]));
    admitted(ApiKey::Fetch, 12, &with(&[2, 0, 1, 0, 9, 2, 7, 7]));
    check(ApiKey::Fetch, 12, &with(&[1, 1, 0]), Problem::Tag, "Fetch");
    check(ApiKey::Fetch, 12, &with(&[1, 9, 3, 7, 7]), Problem::Ends, "Fetch");
}

#[test]
fn versions_that_are_not_served_are_refused() {
    check(ApiKey::Metadata, 13, &[0; 100], Problem::Version, "Metadata");
    check(ApiKey::Metadata, -1, &[0; 100], Problem::Version, "Metadata");
}
