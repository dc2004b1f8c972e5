//! What reads the bytes of strangers and of disks, without a server around it: for tests that throw noise at it.

use std::path::Path;

use crate::jute::Reader;
use crate::request::{ConnectRequest, Request, RequestHeader, is_known};
use crate::{snapshot, txn_log};

/// Reads a frame as the first of a connection. Says whether it is one.
pub fn read_connect(frame: &[u8]) -> bool {
    ConnectRequest::read(frame).is_ok()
}

/// Reads a frame as a request: header and body. Says whether it is one.
pub fn read_request(frame: &[u8]) -> bool {
    let mut reader = Reader::new(frame);
    match RequestHeader::read(&mut reader) {
        Ok(header) => is_known(header.op) && Request::read(header.op, &mut reader).is_ok(),
        Err(_) => false,
    }
}

/// Reads a transaction log. Says how many transactions it has.
pub fn read_log(bytes: &[u8]) -> usize {
    let mut count = 0;
    match txn_log::scan(Path::new("log"), bytes, |_, _| count += 1) {
        Ok(_) | Err(_) => count,
    }
}

/// Reads a snapshot. Says whether it is whole.
pub fn read_snapshot(bytes: &[u8]) -> bool {
    snapshot::parse(bytes, 0, true).is_ok()
}
