//! The client's socket, under TLS or not: connecting, and frames.

use std::io::{self, Read, Write as _};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::client::SessionKey;
use crate::jute::Write;

/// The largest reply that is believed.
const REPLY_BYTES_MAX: usize = 64 << 20;
const CHUNK: usize = 16 << 10;

/// A connection; one thread may read while others write.
#[derive(Debug, Clone)]
pub(crate) struct Socket {
    stream: Arc<TcpStream>,
    tls: Option<Arc<Mutex<Tls>>>,
}

#[derive(Debug)]
struct Tls {
    connection: ClientConnection,
    /// What has come and was not asked for yet.
    received: Vec<u8>,
}

impl Socket {
    /// Connects to the first server of the list that can be reached.
    pub(crate) fn connect(
        hosts: &str,
        timeout: Duration,
        tls: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Socket> {
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
                    Ok(stream) => return Socket::new(stream, &host, timeout, tls),
                    Err(error) => last = error,
                }
            }
        }
        Err(last)
    }

    fn new(
        stream: TcpStream,
        host: &str,
        timeout: Duration,
        tls: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let tls = match tls {
            None => None,
            Some(config) => {
                let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
                let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name).map_err(io::Error::other)?;
                let mut connection =
                    ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                // A request is written as a whole.
                connection.set_buffer_limit(None);
                Some(Arc::new(Mutex::new(Tls { connection, received: Vec::new() })))
            }
        };
        Ok(Socket { stream: Arc::new(stream), tls })
    }

    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))
    }

    pub(crate) fn shutdown(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Both)
    }

    pub(crate) fn write_frame(&self, frame: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(4 + frame.len());
        bytes.buffer(Some(frame));
        match &self.tls {
            None => (&*self.stream).write_all(&bytes),
            Some(tls) => {
                let mut tls = tls.lock();
                tls.connection.writer().write_all(&bytes)?;
                tls.send(&self.stream)
            }
        }
    }

    fn read(&self, chunk: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return (&*self.stream).read(chunk) };
        loop {
            if let Some(length) = tls.lock().take(chunk) {
                return Ok(length);
            }
            // Not under the lock: others may write meanwhile.
            let mut raw = [0; CHUNK];
            let length = (&*self.stream).read(&mut raw)?;
            if length == 0 {
                return Ok(0);
            }
            tls.lock().receive(&raw[..length], &self.stream)?;
        }
    }

    /// Reads one frame; `idle` is called whenever nothing came for the socket's timeout.
    pub(crate) fn read_frame(
        &self,
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
            let mut chunk = [0; CHUNK];
            match self.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => buffer.extend_from_slice(&chunk[..length]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    idle()?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Tls {
    fn take(&mut self, chunk: &mut [u8]) -> Option<usize> {
        if self.received.is_empty() {
            return None;
        }
        let length = chunk.len().min(self.received.len());
        chunk[..length].copy_from_slice(&self.received[..length]);
        self.received.drain(..length);
        Some(length)
    }

    /// Takes bytes of the network in, and sends what they call for: the next step of the handshake, or why there is none.
    fn receive(&mut self, mut raw: &[u8], stream: &TcpStream) -> io::Result<()> {
        while !raw.is_empty() {
            self.connection.read_tls(&mut raw)?;
            let state = match self.connection.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The server may be gone already; what went wrong is told below.
                    let _ = self.send(stream);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            };
            let begin = self.received.len();
            self.received.resize(begin + state.plaintext_bytes_to_read(), 0);
            self.connection.reader().read_exact(&mut self.received[begin..])?;
        }
        self.send(stream)
    }

    fn send(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut stream)?;
        }
        Ok(())
    }
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
