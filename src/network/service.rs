//! What the connections ask of the broker: the one function that starts a request, and what it may say.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use protocol::api::Api;

use crate::connection::Connection;

/// A request whose header is read, whose API and version are served, and whose body passed the admission check.
#[derive(Debug)]
pub struct Request {
    /// The API that is asked.
    pub api: &'static Api,
    /// The version of request and answer.
    pub api_version: i16,
    /// Stands first in the answer.
    pub correlation_id: i32,
    /// Empty where the client sent none.
    pub client_id: StrBytes,
    /// What follows the header. It may be a part of a larger buffer, which lives as long as this does.
    pub body: Bytes,
    /// Where it came from.
    pub connection: Arc<Connection>,
}

/// The broker, as connections see it.
pub trait Service: Send + Sync + 'static {
    /// Does what can be done at once: a produce appends here. Called in the order of the requests of a connection,
    /// on a thread of the runtime, so it must not block.
    fn start(&self, request: Request) -> Step;

    /// Starts the first of some produces that came one behind the other, and others behind it that may start as well: takes
    /// them out of the queue, and gives their steps in the same order. It ends at a step that lets nothing start beside it.
    fn start_run(&self, requests: &mut VecDeque<Request>) -> Vec<Step> {
        requests.pop_front().map(|request| self.start(request)).into_iter().collect()
    }
}

/// An answer that is not there yet. It is polled once all answers before it are sent, and always to its end,
/// even when its connection is gone.
pub type Waiting = Pin<Box<dyn Future<Output = Response> + Send>>;

/// What becomes of a request.
pub enum Step {
    /// The answer.
    Reply(Response),
    /// The answer comes later.
    Wait {
        /// Whether the next produce or fetch of the connection may start meanwhile. Anything else waits for its turn.
        overlap: bool,
        /// Gives the answer.
        reply: Waiting,
    },
    /// Closes the connection, once all answers before are sent, with one line in the log.
    Close(String),
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes of a file, which go to the socket without passing through here where it is not encrypted.
    File {
        /// Open for reading; it must not be shortened below the region while the answer is on its way.
        file: Arc<File>,
        /// Where the region starts.
        position: u64,
        /// Its length in bytes.
        length: usize,
    },
}

impl Step {
    /// Whether the next produce of the connection may start.
    pub fn lets_start(&self) -> bool {
        match self {
            Step::Reply(_) | Step::Wait { overlap: true, .. } => true,
            Step::Wait { overlap: false, .. } | Step::Close(_) => false,
        }
    }
}

impl Piece {
    /// How many bytes it sends.
    pub fn length(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::File { length, .. } => *length,
        }
    }
}

/// A whole answer: the size in front (`protocol::frame` writes it), the header, the body; or nothing at all.
#[derive(Debug)]
pub struct Response {
    pub(crate) pieces: Pieces,
}

/// Most answers are one piece and need no list.
#[derive(Debug)]
pub(crate) enum Pieces {
    None,
    One(Bytes),
    Many(Vec<Piece>),
}

impl Response {
    /// No answer is sent: a produce with acks=0.
    pub fn none() -> Response {
        Response { pieces: Pieces::None }
    }

    /// An answer in several pieces, sent one after the other.
    pub fn of_pieces(pieces: Vec<Piece>) -> Response {
        Response { pieces: Pieces::Many(pieces) }
    }
}

impl From<Bytes> for Response {
    /// An answer that is in memory as a whole.
    fn from(bytes: Bytes) -> Response {
        Response { pieces: Pieces::One(bytes) }
    }
}
