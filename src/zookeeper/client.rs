//! A small blocking client, for the shell and for tests: unlike the crate that the brokers use, it
//! sees null data, and every operation of the server.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConfig;
use security::jaas::Login;
use thiserror::Error;

use crate::client_wire::{Socket, connect_request};
use crate::code::{Refusal, op, xid};
use crate::data::{Acl, Id, Stat};
use crate::jute::{JuteError, Reader, Write};
use crate::sasl;

/// Why an operation has no result.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The server said no.
    #[error("{0}")]
    Refused(Refusal),
    /// The connection is lost; the operation may have happened.
    #[error("connection lost")]
    Lost,
    /// The server has ended the session.
    #[error("session expired")]
    Expired,
    /// No server of the list can be reached.
    #[error("no server can be reached")]
    Connect(#[source] io::Error),
    /// The login failed.
    #[error("login by SASL: {0}")]
    Login(&'static str),
    /// The server's answer makes no sense.
    #[error("the server's answer makes no sense: {0}")]
    Answer(String),
}

impl From<JuteError> for ClientError {
    fn from(error: JuteError) -> ClientError {
        ClientError::Answer(error.to_string())
    }
}

/// What a watch saw, or what became of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedEvent {
    /// `SyncConnected`, `Disconnected`, `Expired` or `Closed`.
    pub state: &'static str,
    /// `NodeCreated` and so on; `None` for the connection.
    pub kind: &'static str,
    /// The node, if it is about one.
    pub path: Option<String>,
}

/// How a node is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// Stays until it is deleted.
    Persistent,
    /// Stays, with a number behind its name.
    PersistentSequential,
    /// Goes with the session.
    Ephemeral,
    /// Goes with the session, with a number behind its name.
    EphemeralSequential,
    /// Goes when its last child has gone.
    Container,
    /// Goes when it was left alone for so many milliseconds.
    Ttl(i64),
    /// Like `Ttl`, with a number behind its name.
    TtlSequential(i64),
}

/// A part of a `multi`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates a node.
    Create {
        /// Its path.
        path: String,
        /// Its data.
        data: Option<Vec<u8>>,
        /// Whether it goes with the session.
        ephemeral: bool,
    },
    /// Deletes a node; version -1 for any.
    Delete {
        /// Its path.
        path: String,
        /// Expected.
        version: i32,
    },
    /// Writes a node's data; version -1 for any.
    SetData {
        /// Its path.
        path: String,
        /// New data.
        data: Option<Vec<u8>>,
        /// Expected.
        version: i32,
    },
    /// Checks a node's version.
    Check {
        /// Its path.
        path: String,
        /// Expected.
        version: i32,
    },
}

/// What became of a part of a `multi`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpResult {
    /// Created, under this path.
    Created(String),
    /// Deleted, or the check held.
    Done,
    /// Written.
    Set(Stat),
    /// Not done; the code, 0 where another part is to blame.
    Failed(i32),
}

/// A session, as it is taken to another connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKey {
    /// The session's id.
    pub id: i64,
    /// Proves that it is ours.
    pub password: Vec<u8>,
}

/// How a connection is kept safe, and who the client is.
#[derive(Clone, Default)]
pub struct ClientSecurity {
    /// TLS to every server, where set.
    pub tls: Option<Arc<ClientConfig>>,
    /// Login by SASL with DIGEST-MD5, where set.
    pub login: Option<Login>,
}

/// Replies on their way, and who waits for them.
#[derive(Debug, Default)]
struct Pending {
    waiting: HashMap<i32, Sender<Reply>>,
    lost: bool,
}

#[derive(Debug)]
struct Reply {
    zxid: i64,
    code: i32,
    body: Vec<u8>,
}

#[derive(Debug)]
struct Shared {
    socket: Socket,
    /// Held while a request is written: one is on the wire as a whole.
    order: Mutex<()>,
    pending: Mutex<Pending>,
    last_zxid: AtomicI64,
    events: Sender<WatchedEvent>,
}

/// A connection with its session. Dropping it leaves the session behind; see [`Client::close`].
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
    next_xid: AtomicI32,
    session: SessionKey,
    timeout: Duration,
    chroot: String,
}

impl Client {
    /// Connects to the first server of `host:port,host:port/chroot` that answers, and begins a
    /// session, or goes on with one. Watches and changes of the connection come out of the receiver.
    pub fn connect(
        servers: &str,
        timeout: Duration,
        session: Option<&SessionKey>,
    ) -> Result<(Client, Receiver<WatchedEvent>), ClientError> {
        Client::connect_as(servers, timeout, session, &ClientSecurity::default())
    }

    /// The same, under TLS or with a login.
    pub fn connect_as(
        servers: &str,
        timeout: Duration,
        session: Option<&SessionKey>,
        security: &ClientSecurity,
    ) -> Result<(Client, Receiver<WatchedEvent>), ClientError> {
        let (hosts, chroot) = match servers.split_once('/') {
            Some((hosts, chroot)) => (hosts, format!("/{}", chroot.trim_end_matches('/'))),
            None => (servers, String::new()),
        };
        let chroot = if chroot == "/" { String::new() } else { chroot };
        let socket =
            Socket::connect(hosts, timeout, security.tls.as_ref()).map_err(ClientError::Connect)?;
        let mut buffer = Vec::new();
        socket.write_frame(&connect_request(timeout, session)).map_err(ClientError::Connect)?;
        let mut silent = || Err(io::ErrorKind::TimedOut.into());
        let answer = socket.read_frame(&mut buffer, &mut silent).map_err(ClientError::Connect)?;
        let mut reader = Reader::new(&answer);
        let _protocol_version = reader.int()?;
        let agreed_ms = reader.int()?;
        let session = SessionKey {
            id: reader.long()?,
            password: reader.buffer()?.unwrap_or_default().to_vec(),
        };
        if agreed_ms <= 0 {
            return Err(ClientError::Expired);
        }
        let timeout = Duration::from_millis(u64::try_from(agreed_ms).unwrap_or(1));
        let (events, receiver) = channel();
        let shared = Arc::new(Shared {
            socket,
            order: Mutex::new(()),
            pending: Mutex::default(),
            last_zxid: AtomicI64::new(0),
            events,
        });
        shared.tell("SyncConnected");
        let reader = thread::spawn({
            let shared = shared.clone();
            move || read_replies(&shared, buffer, timeout)
        });
        let client = Client {
            shared,
            reader: Some(reader),
            next_xid: AtomicI32::new(1),
            session,
            timeout,
            chroot,
        };
        if let Some(login) = &security.login {
            client.log_in(login)?;
        }
        Ok((client, receiver))
    }

    /// Logs in by SASL with DIGEST-MD5, and makes sure that the server knows the password too.
    fn log_in(&self, login: &Login) -> Result<(), ClientError> {
        let say = |token: &[u8]| {
            let body = self.call(op::SASL, |out| out.buffer(Some(token)))?;
            Ok::<_, ClientError>(Reader::new(&body).buffer()?.unwrap_or_default().to_vec())
        };
        let challenge = say(&[])?;
        let cnonce = sasl::nonce().ok_or(ClientError::Login("the system has no randomness"))?;
        let response = sasl::respond(&challenge, login, &cnonce)
            .ok_or(ClientError::Login("the server does not offer DIGEST-MD5"))?;
        match say(&response.text)? == response.expected {
            true => Ok(()),
            false => {
                Err(ClientError::Login("the server does not prove that it knows the password"))
            }
        }
    }

    /// The session's id and password.
    pub fn session(&self) -> &SessionKey {
        &self.session
    }

    /// The timeout that the server agreed to.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The last transaction that the server told of.
    pub fn last_zxid(&self) -> i64 {
        self.shared.last_zxid.load(Ordering::Relaxed)
    }

    /// Ends the session, and with it the connection.
    pub fn close(mut self) -> Result<(), ClientError> {
        let result = self.call(op::CLOSE_SESSION, |_| {});
        self.disconnect();
        result.map(|_| ())
    }

    fn disconnect(&mut self) {
        // It fails where the connection is gone already.
        let _ = self.shared.socket.shutdown();
        if let Some(reader) = self.reader.take() {
            // The thread does not panic; if it did, there is nothing to save.
            let _ = reader.join();
        }
    }

    fn call(&self, op: i32, write: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u8>, ClientError> {
        let xid = self.next_xid.fetch_add(1, Ordering::Relaxed);
        self.call_as(xid, op, write)
    }

    fn call_as(
        &self,
        xid: i32,
        op: i32,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>, ClientError> {
        let waiting = self.send(xid, op, write)?;
        self.wait(&waiting)
    }

    fn send(
        &self,
        xid: i32,
        op: i32,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Receiver<Reply>, ClientError> {
        let mut frame = Vec::new();
        frame.int(xid);
        frame.int(op);
        write(&mut frame);
        let (sender, receiver) = channel();
        let _order = self.shared.order.lock();
        let mut pending = self.shared.pending.lock();
        if pending.lost {
            return Err(ClientError::Lost);
        }
        pending.waiting.insert(xid, sender);
        drop(pending);
        self.shared.socket.write_frame(&frame).map_err(|_| ClientError::Lost)?;
        Ok(receiver)
    }

    fn wait(&self, waiting: &Receiver<Reply>) -> Result<Vec<u8>, ClientError> {
        let reply = match waiting.recv_timeout(self.timeout) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(ClientError::Lost);
            }
        };
        if reply.zxid > 0 {
            self.shared.last_zxid.fetch_max(reply.zxid, Ordering::Relaxed);
        }
        match (reply.code, Refusal::from_code(reply.code)) {
            (0, _) => Ok(reply.body),
            (_, Some(refusal)) => Err(ClientError::Refused(refusal)),
            (code, None) => Err(ClientError::Answer(format!("unknown code {code}"))),
        }
    }

    fn full(&self, path: &str) -> String {
        match path {
            "/" if !self.chroot.is_empty() => self.chroot.clone(),
            path => format!("{}{path}", self.chroot),
        }
    }

    fn local(&self, path: String) -> String {
        match path.strip_prefix(&self.chroot) {
            Some("") => "/".to_owned(),
            Some(rest) => rest.to_owned(),
            None => path,
        }
    }

    /// Creates a node; gives its path, with its number if it has one.
    pub fn create(
        &self,
        path: &str,
        data: Option<&[u8]>,
        acl: &[Acl],
        mode: CreateMode,
    ) -> Result<(String, Stat), ClientError> {
        let (op, flags, ttl) = match mode {
            CreateMode::Persistent => (op::CREATE2, 0, None),
            CreateMode::Ephemeral => (op::CREATE2, 1, None),
            CreateMode::PersistentSequential => (op::CREATE2, 2, None),
            CreateMode::EphemeralSequential => (op::CREATE2, 3, None),
            CreateMode::Container => (op::CREATE_CONTAINER, 4, None),
            CreateMode::Ttl(ttl) => (op::CREATE_TTL, 5, Some(ttl)),
            CreateMode::TtlSequential(ttl) => (op::CREATE_TTL, 6, Some(ttl)),
        };
        let body = self.call(op, |out| {
            out.text(&self.full(path));
            out.buffer(data);
            Acl::write_all(acl, out);
            out.int(flags);
            if let Some(ttl) = ttl {
                out.long(ttl);
            }
        })?;
        let mut reader = Reader::new(&body);
        Ok((self.local(reader.text()?), Stat::read(&mut reader)?))
    }

    /// Deletes a node; version -1 for any.
    pub fn delete(&self, path: &str, version: i32) -> Result<(), ClientError> {
        self.call(op::DELETE, |out| {
            out.text(&self.full(path));
            out.int(version);
        })?;
        Ok(())
    }

    /// Looks whether a node is there; the watch waits for its creation too.
    pub fn exists(&self, path: &str, watch: bool) -> Result<Option<Stat>, ClientError> {
        let result = self.call(op::EXISTS, |out| {
            out.text(&self.full(path));
            out.boolean(watch);
        });
        match result {
            Ok(body) => Ok(Some(Stat::read(&mut Reader::new(&body))?)),
            Err(ClientError::Refused(Refusal::NoNode)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a node; its data may be null.
    pub fn get_data(
        &self,
        path: &str,
        watch: bool,
    ) -> Result<(Option<Vec<u8>>, Stat), ClientError> {
        let body = self.call(op::GET_DATA, |out| {
            out.text(&self.full(path));
            out.boolean(watch);
        })?;
        let mut reader = Reader::new(&body);
        let data = reader.buffer()?.map(<[u8]>::to_vec);
        Ok((data, Stat::read(&mut reader)?))
    }

    /// Writes a node's data; version -1 for any.
    pub fn set_data(
        &self,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
    ) -> Result<Stat, ClientError> {
        let body = self.call(op::SET_DATA, |out| {
            out.text(&self.full(path));
            out.buffer(data);
            out.int(version);
        })?;
        Ok(Stat::read(&mut Reader::new(&body))?)
    }

    /// Lists the names of a node's children, in the server's order.
    pub fn get_children(
        &self,
        path: &str,
        watch: bool,
    ) -> Result<(Vec<String>, Stat), ClientError> {
        let body = self.call(op::GET_CHILDREN2, |out| {
            out.text(&self.full(path));
            out.boolean(watch);
        })?;
        let mut reader = Reader::new(&body);
        let names = reader.texts()?;
        Ok((names, Stat::read(&mut reader)?))
    }

    /// Counts the nodes below a path.
    pub fn get_all_children_number(&self, path: &str) -> Result<i32, ClientError> {
        let body = self.call(op::GET_ALL_CHILDREN_NUMBER, |out| out.text(&self.full(path)))?;
        Ok(Reader::new(&body).int()?)
    }

    /// Lists the session's ephemeral nodes below a path.
    pub fn get_ephemerals(&self, prefix: &str) -> Result<Vec<String>, ClientError> {
        let body = self.call(op::GET_EPHEMERALS, |out| out.text(&self.full(prefix)))?;
        let paths = Reader::new(&body).texts()?;
        Ok(paths.into_iter().map(|path| self.local(path)).collect())
    }

    /// Reads a node's ACL.
    pub fn get_acl(&self, path: &str) -> Result<(Vec<Acl>, Stat), ClientError> {
        let body = self.call(op::GET_ACL, |out| out.text(&self.full(path)))?;
        let mut reader = Reader::new(&body);
        let acl = Acl::read_all(&mut reader)?;
        Ok((acl, Stat::read(&mut reader)?))
    }

    /// Sets a node's ACL; version -1 for any.
    pub fn set_acl(&self, path: &str, acl: &[Acl], version: i32) -> Result<Stat, ClientError> {
        let body = self.call(op::SET_ACL, |out| {
            out.text(&self.full(path));
            Acl::write_all(acl, out);
            out.int(version);
        })?;
        Ok(Stat::read(&mut Reader::new(&body))?)
    }

    /// Waits until the server has everything that happened before.
    pub fn sync(&self, path: &str) -> Result<(), ClientError> {
        self.call(op::SYNC, |out| out.text(&self.full(path)))?;
        Ok(())
    }

    /// Adds a watch that stays, for all below the path too if it is recursive.
    pub fn add_watch(&self, path: &str, recursive: bool) -> Result<(), ClientError> {
        self.call(op::ADD_WATCH, |out| {
            out.text(&self.full(path));
            out.int(i32::from(recursive));
        })?;
        Ok(())
    }

    /// Removes watches: 1 of children, 2 of data, 3 all.
    pub fn remove_watches(&self, path: &str, kind: i32) -> Result<(), ClientError> {
        self.call(op::REMOVE_WATCHES, |out| {
            out.text(&self.full(path));
            out.int(kind);
        })?;
        Ok(())
    }

    /// Who the server takes us for.
    pub fn who_am_i(&self) -> Result<Vec<Id>, ClientError> {
        let body = self.call(op::WHO_AM_I, |_| {})?;
        let ids = Reader::new(&body).vector(Id::read)?;
        Ok(ids.unwrap_or_default())
    }

    /// Adds an id, such as `digest` with `user:password`.
    pub fn add_auth(&self, scheme: &str, auth: Option<&[u8]>) -> Result<(), ClientError> {
        self.call_as(xid::AUTH, op::AUTH, |out| {
            out.int(0);
            out.text(scheme);
            out.buffer(auth);
        })?;
        Ok(())
    }

    /// Takes up watches of an earlier connection: of data, existence and children.
    pub fn set_watches(
        &self,
        relative_zxid: i64,
        data: &[&str],
        exist: &[&str],
        child: &[&str],
    ) -> Result<(), ClientError> {
        self.call_as(xid::SET_WATCHES, op::SET_WATCHES, |out| {
            out.long(relative_zxid);
            for paths in [data, exist, child] {
                out.texts(paths.iter().copied());
            }
        })?;
        Ok(())
    }

    /// Asks to change the ensemble, which one node refuses.
    pub fn reconfig(&self) -> Result<(), ClientError> {
        self.call(op::RECONFIG, |out| {
            for _ in 0..3 {
                out.buffer(None);
            }
            out.long(-1);
        })?;
        Ok(())
    }

    /// Does all or nothing. Where a part fails, the results say which.
    pub fn multi(&self, ops: &[Op]) -> Result<Vec<OpResult>, ClientError> {
        let body = self.call(op::MULTI, |out| {
            for part in ops {
                self.write_part(part, out);
            }
            write_part_header(-1, true, out);
        })?;
        read_multi(&mut Reader::new(&body))
    }

    fn write_part(&self, part: &Op, out: &mut Vec<u8>) {
        match part {
            Op::Create { path, data, ephemeral } => {
                write_part_header(op::CREATE, false, out);
                out.text(&self.full(path));
                out.buffer(data.as_deref());
                Acl::write_all(&Acl::open(), out);
                out.int(i32::from(*ephemeral));
            }
            Op::Delete { path, version } => {
                write_part_header(op::DELETE, false, out);
                out.text(&self.full(path));
                out.int(*version);
            }
            Op::SetData { path, data, version } => {
                write_part_header(op::SET_DATA, false, out);
                out.text(&self.full(path));
                out.buffer(data.as_deref());
                out.int(*version);
            }
            Op::Check { path, version } => {
                write_part_header(op::CHECK, false, out);
                out.text(&self.full(path));
                out.int(*version);
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.disconnect();
    }
}

fn write_part_header(op: i32, done: bool, out: &mut Vec<u8>) {
    out.int(op);
    out.boolean(done);
    out.int(-1);
}

fn read_multi(reader: &mut Reader<'_>) -> Result<Vec<OpResult>, ClientError> {
    let mut results = Vec::new();
    loop {
        let (op, done, _error) = (reader.int()?, reader.boolean()?, reader.int()?);
        if done {
            return Ok(results);
        }
        results.push(match op {
            op::CREATE => OpResult::Created(reader.text()?),
            op::CREATE2 => {
                let path = reader.text()?;
                Stat::read(reader)?;
                OpResult::Created(path)
            }
            op::DELETE | op::CHECK => OpResult::Done,
            op::SET_DATA => OpResult::Set(Stat::read(reader)?),
            op::ERROR => OpResult::Failed(reader.int()?),
            op => return Err(ClientError::Answer(format!("unknown operation {op}"))),
        });
    }
}

impl Shared {
    fn tell(&self, state: &'static str) {
        // Who dropped the receiver does not want to know.
        let _ = self.events.send(WatchedEvent { state, kind: "None", path: None });
    }

    fn ping(&self) -> io::Result<()> {
        let mut frame = Vec::new();
        frame.int(xid::PING);
        frame.int(op::PING);
        let _order = self.order.lock();
        self.socket.write_frame(&frame)
    }
}

/// Hands replies to those who wait, and keeps the session alive when nobody does.
fn read_replies(shared: &Shared, mut buffer: Vec<u8>, timeout: Duration) {
    // A zero would mean to wait for ever.
    let interval = (timeout / 3).max(Duration::from_millis(1));
    let mut unanswered_pings = 0;
    if shared.socket.set_read_timeout(interval).is_ok() {
        loop {
            let mut idle = || {
                unanswered_pings += 1;
                if unanswered_pings > 2 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                shared.ping()
            };
            let Ok(frame) = shared.socket.read_frame(&mut buffer, &mut idle) else { break };
            unanswered_pings = 0;
            if take_frame(shared, &frame).is_err() {
                break;
            }
        }
    }
    let mut pending = shared.pending.lock();
    pending.lost = true;
    // Who waits learns of it as the senders go.
    pending.waiting.clear();
    drop(pending);
    shared.tell("Disconnected");
}

fn take_frame(shared: &Shared, frame: &[u8]) -> Result<(), JuteError> {
    let mut reader = Reader::new(frame);
    let (xid, zxid, code) = (reader.int()?, reader.long()?, reader.int()?);
    match xid {
        xid::NOTIFICATION => {
            let kind = match reader.int()? {
                1 => "NodeCreated",
                2 => "NodeDeleted",
                3 => "NodeDataChanged",
                4 => "NodeChildrenChanged",
                _ => "None",
            };
            let _state = reader.int()?;
            let path = reader.string()?;
            let event = WatchedEvent { state: "SyncConnected", kind, path };
            // Who dropped the receiver does not want to know.
            let _ = shared.events.send(event);
        }
        xid::PING => {}
        xid => {
            let waiting = shared.pending.lock().waiting.remove(&xid);
            if let Some(waiting) = waiting {
                // Who gave up waiting has its answer already.
                let _ = waiting.send(Reply { zxid, code, body: reader.rest().to_vec() });
            }
        }
    }
    Ok(())
}
