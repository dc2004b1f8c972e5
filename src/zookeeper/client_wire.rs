//! The client's socket: connecting, and frames.

use std::io::{self, Read, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::client::SessionKey;
use crate::jute::Write;

/// The largest reply that is believed.
const REPLY_BYTES_MAX: usize = 64 << 20;

pub(crate) fn connect_any(hosts: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no server is named");
    for host in hosts.split(',') {
        let host = host.trim();
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:2181") };
        let addresses = match host.to_socket_addrs() {
            Ok(addresses) => addresses,
            Err(error) => {
                last = error;
                continue;
            }
        };
        for address in addresses {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(timeout))?;
                    stream.set_write_timeout(Some(timeout))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

pub(crate) fn connect_request(timeout: Duration, session: Option<&SessionKey>) -> Vec<u8> {
    let mut out = Vec::new();
    out.int(0);
    out.long(0);
    out.int(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    match session {
        Some(session) => {
            out.long(session.id);
            out.buffer(Some(&session.password));
        }
        None => {
            out.long(0);
            out.buffer(Some(&[0; 16]));
        }
    }
    out.boolean(false);
    out
}

pub(crate) fn write_frame(stream: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(4 + frame.len());
    bytes.buffer(Some(frame));
    stream.write_all(&bytes)
}

/// Reads one frame; `idle` is called whenever nothing came for the stream's timeout.
pub(crate) fn read_frame(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    idle: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    loop {
        if let Some(head) = buffer.first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*head)).unwrap_or(usize::MAX);
            if length > REPLY_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "frame too large"));
            }
            if buffer.len() >= 4 + length {
                let rest = buffer.split_off(4 + length);
                let frame = std::mem::replace(buffer, rest);
                return Ok(frame[4..].to_vec());
            }
        }
        let mut chunk = [0; 16 << 10];
        match stream.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => buffer.extend_from_slice(&chunk[..length]),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                idle()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
