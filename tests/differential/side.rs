//! One of the two brokers: its connection, and what it calls things.

use std::{
    cell::Cell,
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, ResponseKind};
use protocol::{
    api::{self, Api},
    frame::SIZE_LENGTH,
};

use crate::{
    tree::{self, Tree},
    value::{SideValues, unhex},
};

/// How long an answer may take before the outcome is silence.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// An answer, decoded.
    Answer(Tree),
    /// The connection ended without one.
    Closed,
    /// None came, and the next request was answered.
    NoAnswer,
    /// Nothing came in time.
    Silence,
    /// An answer that the codec cannot read.
    Unreadable(String),
    /// Nobody listens any more: the broker has died.
    Dead,
}

/// A broker under comparison.
pub(crate) struct Side {
    pub(crate) address: SocketAddr,
    connections: Vec<Connection>,
    /// The connection that is used now.
    current: usize,
    /// The ids it gave to topics.
    topic_ids: BTreeMap<String, [u8; 16]>,
    session_id: Cell<i32>,
    /// What it calls the cluster.
    pub(crate) cluster_id: String,
    /// What stands in texts of this side alone, and what to read there instead.
    pub(crate) texts: Vec<(String, &'static str)>,
    /// The ids that it gave to members and producers since the case began, by name: `@m1`, `@p1`.
    learned: BTreeMap<String, String>,
    /// What the names of this case's groups and transactional ids begin with.
    pub(crate) scope: String,
}

#[derive(Default)]
struct Connection {
    stream: Option<TcpStream>,
    correlation_id: i32,
}

impl SideValues for Side {
    fn topic_id(&self, name: &str) -> [u8; 16] {
        self.topic_ids.get(name).copied().unwrap_or_default()
    }

    fn session_id(&self) -> i32 {
        self.session_id.get()
    }

    fn learned(&self, name: &str) -> &str {
        self.learned.get(name).map_or("", |id| id)
    }
}

impl Side {
    /// A broker at an address; nothing is sent yet.
    pub(crate) fn new(address: SocketAddr) -> Side {
        Side {
            address,
            connections: vec![Connection::default()],
            current: 0,
            topic_ids: BTreeMap::new(),
            session_id: Cell::new(0),
            cluster_id: String::new(),
            texts: vec![(address.to_string(), "<address>")],
            learned: BTreeMap::new(),
            scope: String::new(),
        }
    }

    /// Uses another connection from now on.
    pub(crate) fn switch(&mut self, connection: usize) {
        self.current = connection;
        if self.connections.len() <= connection {
            self.connections.resize_with(connection + 1, Connection::default);
        }
    }

    /// Begins a case: what was learned of members and producers is of no use any more.
    pub(crate) fn begin(&mut self, scope: &str) {
        scope.clone_into(&mut self.scope);
        self.learned.clear();
        self.switch(0);
        self.connections.truncate(1);
    }

    /// Closes all connections: an answer may still be on its way on one.
    pub(crate) fn hang_up_all(&mut self) {
        self.connections.iter_mut().for_each(|connection| connection.stream = None);
    }

    /// Sends a request. What came of it is read by `receive`, so that both sides work at the same time.
    pub(crate) fn send(&mut self, api: &Api, version: i16, body: &[u8], probe: bool) {
        let connection = &mut self.connections[self.current];
        connection.correlation_id = connection.correlation_id.wrapping_add(2);
        let correlation_id = connection.correlation_id;
        let mut out = request(api, version, correlation_id, body);
        if probe {
            let probed = api::find(ApiKey::ApiVersions as i16).expect("in the table");
            out.put_slice(&request(probed, 0, correlation_id + 1, &[]));
        }
        // A broken connection shows when the answer is read.
        let _ = self.connected().and_then(|mut stream| stream.write_all(&out));
    }

    fn connected(&mut self) -> std::io::Result<&TcpStream> {
        let address = self.address;
        let connection = &mut self.connections[self.current];
        if connection.stream.is_none() {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            connection.stream = Some(stream);
        }
        connection.stream.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Closes the connection; the next request opens another.
    pub(crate) fn hang_up(&mut self) {
        self.connections[self.current].stream = None;
    }

    /// Reads what came of the request that was sent last.
    pub(crate) fn receive(&mut self, api: &Api, version: i16, probe: bool) -> Outcome {
        let outcome = match self.frame() {
            Ok(frame) => {
                let outcome = self.read(api, version, frame);
                // The probe's answer follows the request's.
                if probe && !matches!(outcome, Outcome::NoAnswer) && self.frame().is_err() {
                    self.hang_up();
                }
                outcome
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Outcome::Silence
            }
            // The frame is asked of a new connection where the old one could not even be written to.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Outcome::Dead,
            Err(_) => Outcome::Closed,
        };
        // What cannot be read may belong to something else.
        let is_lost = matches!(outcome, Outcome::Closed | Outcome::Silence | Outcome::Dead);
        if is_lost || matches!(outcome, Outcome::Unreadable(_)) {
            self.hang_up();
        }
        outcome
    }

    fn frame(&mut self) -> std::io::Result<Bytes> {
        let mut stream = self.connected()?;
        let mut size = [0; SIZE_LENGTH];
        stream.read_exact(&mut size)?;
        let size = usize::try_from(i32::from_be_bytes(size)).map_err(std::io::Error::other)?;
        let mut frame = vec![0; size];
        stream.read_exact(&mut frame)?;
        Ok(frame.into())
    }

    fn read(&mut self, api: &Api, version: i16, mut frame: Bytes) -> Outcome {
        if frame.len() < 4 {
            return Outcome::Unreadable(crate::value::hex(&frame));
        }
        let correlation_id = frame.get_i32();
        let asked = self.connections[self.current].correlation_id;
        if correlation_id == asked + 1 {
            return Outcome::NoAnswer;
        }
        if correlation_id != asked {
            return Outcome::Unreadable("the answer to something else".to_owned());
        }
        // An ApiVersions of a version that is not known is answered in version 0.
        let version = if api.supports(version) { version } else { 0 };
        if api.response_header_version(version) == 1 && frame.get_u8() != 0 {
            return Outcome::Unreadable("tagged fields in the header".to_owned());
        }
        let whole = frame.clone();
        let decoded = match ResponseKind::decode(api.key, &mut frame, version) {
            Ok(decoded) => decoded,
            Err(error) => {
                return Outcome::Unreadable(format!("{error}: {}", crate::value::hex(&whole)));
            }
        };
        if !frame.is_empty() {
            return Outcome::Unreadable(format!("{} bytes left over", frame.len()));
        }
        match tree::parse(&format!("{decoded:?}")) {
            Ok(tree) => {
                self.learn(api.key, &tree);
                Outcome::Answer(tree)
            }
            Err(error) => Outcome::Unreadable(format!("{error} in {decoded:?}")),
        }
    }

    /// Keeps the ids that an answer tells.
    fn learn(&mut self, api: ApiKey, answer: &Tree) {
        if matches!(api, ApiKey::Metadata | ApiKey::CreateTopics) {
            let topics = answer.get("topics").map(Tree::items).unwrap_or_default();
            for topic in topics {
                let failed = topic.get("error_code").is_none_or(|code| code.as_text() != "0");
                let (name, id) = (topic.get("name").filter(|_| !failed), topic.get("topic_id"));
                let id = id.and_then(|id| id_bytes(id.as_text()));
                if let (Some(name), Some(id)) = (name, id.filter(|id| *id != [0; 16])) {
                    self.topic_ids.insert(name.as_text().to_owned(), id);
                }
            }
        }
        if api == ApiKey::Fetch {
            let failed = answer.get("error_code").is_none_or(|code| code.as_text() != "0");
            let id = answer.get("session_id").and_then(|id| id.as_text().parse().ok());
            if let Some(id) = id.filter(|_| !failed) {
                self.session_id.set(id);
            }
        }
        if api == ApiKey::JoinGroup
            && let Some(id) = answer.get("member_id")
            && is_made_up(id.as_text())
        {
            self.name('m', id.as_text());
        }
        if api == ApiKey::Metadata
            && let Some(id) = answer.get("cluster_id")
            && !id.as_text().is_empty()
        {
            self.cluster_id = id.as_text().to_owned();
        }
    }

    /// Keeps the producer id that a transactional id was given.
    pub(crate) fn learn_producer(&mut self, answer: &Tree) {
        let id = answer.get("producer_id").map(Tree::as_text).unwrap_or_default();
        if id.parse::<i64>().is_ok_and(|id| id >= 0) {
            self.name('p', id);
        }
    }

    /// Names an id that is new after its kind, and the order in which its kind appeared.
    fn name(&mut self, kind: char, id: &str) {
        if self.name_of(kind, id).is_none() {
            let known = self.learned.keys().filter(|name| name[1..].starts_with(kind)).count();
            self.learned.insert(format!("@{kind}{}", known + 1), id.to_owned());
        }
    }

    /// The name of a member, `m`, or a producer, `p`.
    pub(crate) fn name_of(&self, kind: char, id: &str) -> Option<&str> {
        let mut all = self.learned.iter();
        let found = all.find(|(name, known)| name[1..].starts_with(kind) && *known == id);
        found.map(|(name, _)| name.as_str())
    }

    /// The topic that the side gave an id to.
    pub(crate) fn topic_of(&self, id: &str) -> Option<&str> {
        let id = id_bytes(id)?;
        let mut topics = self.topic_ids.iter();
        topics.find(|(_, known)| **known == id).map(|(name, _)| name.as_str())
    }
}

/// Whether a member id is one that a broker made: something, a dash, and a UUID.
pub(crate) fn is_made_up(member_id: &str) -> bool {
    let start = member_id.len().checked_sub(37);
    let tail = start.and_then(|start| member_id.get(start..));
    tail.is_some_and(|tail| tail.starts_with('-') && id_bytes(tail).is_some())
}

fn id_bytes(id: &str) -> Option<[u8; 16]> {
    unhex(&id.replace('-', "")).try_into().ok()
}

/// A whole frame: size, header, body.
fn request(api: &Api, version: i16, correlation_id: i32, body: &[u8]) -> BytesMut {
    const CLIENT_ID: &[u8] = b"differential";
    let mut out = BytesMut::new();
    out.put_i32(0);
    out.put_i16(api.key as i16);
    out.put_i16(version);
    out.put_i32(correlation_id);
    let header_version = api.request_header_version(version);
    if header_version >= 1 {
        out.put_u16(12);
        out.put_slice(CLIENT_ID);
    }
    if header_version >= 2 {
        out.put_u8(0); // No tagged fields.
    }
    out.put_slice(body);
    let size = (out.len() - SIZE_LENGTH) as u32;
    out[..SIZE_LENGTH].copy_from_slice(&size.to_be_bytes());
    out
}
