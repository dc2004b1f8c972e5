//! The task of one connection: reads frames, starts requests in order, sends the answers in the same order.
//!
//! It alone owns the socket, the buffer and the queue. A produce or a fetch that only waits lets the next produce or
//! fetch start; everything else takes its turn. While answers cannot be sent nothing is read, so a peer that does
//! not read its answers holds no more than one turn of them.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use common::clock;
use kafka_protocol::messages::ApiKey;
use protocol::admission::{self, AdmissionError};
use protocol::frame::{self, RequestHeader};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;

use crate::connection::{Connection, Ending, JavaHost};
use crate::frames::{FrameError, Frames};
use crate::output::Output;
use crate::quotas::Registered;
use crate::request_memory::{Held, freed};
use crate::server::Shared;
use crate::service::{Request, Response, Step, Waiting};
use crate::stream::Stream;
use crate::traffic::{Counted, Traffic};

/// Requests that start before their answers are sent and other tasks get the thread.
const STARTS_PER_TURN: u64 = 32;

/// Produces that came together, and their bytes, that the service is given at once.
const RUN_MAX: usize = 32;
const RUN_BYTES_MAX: usize = 64 << 10;

/// Parts of a long answer that are sent before other tasks get the thread.
const SENDS_PER_TURN: usize = 8;

/// How long a drained connection waits for the peer to read its last answers and to end its side.
const LINGER: Duration = Duration::from_millis(500);

/// A connection that is silent this long gives its buffer back.
const BUFFER_KEPT: Duration = Duration::from_secs(1);

/// Longer than any process runs; stands for no limit.
const FOREVER: Duration = Duration::from_secs(86_400 * 365);

/// Why a connection ends.
#[derive(Debug, Error)]
enum End {
    /// The peer closed, or the network did: nothing more can be read.
    #[error("disconnected")]
    Disconnected(#[source] Option<io::Error>),
    /// The peer takes no more answers.
    #[error("send")]
    Send(#[source] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A request that is not one, in the words of Kafka's log.
    #[error("{0}")]
    Refused(String),
    /// The service said so.
    #[error("{0}")]
    Closed(String),
    #[error("idle")]
    Idle,
    /// The server stops, and all is answered.
    #[error("stopping")]
    Drained,
    /// The server said: now.
    #[error("told to close")]
    Told,
}

/// A request that is started and not answered.
enum Slot {
    Waiting {
        reply: Waiting,
        request_bytes: usize,
    },
    Ready(Response),
    /// The connection ends here: what came before is answered, as in Kafka, which reads one request at a time.
    End(End),
}

struct Task {
    connection: Arc<Connection>,
    shared: Arc<Shared>,
    frames: Frames,
    /// Produces that came together and are not started.
    run: VecDeque<Request>,
    /// What was found behind them: the connection ends once they are answered.
    run_end: Option<End>,
    slots: VecDeque<Slot>,
    request_bytes_in_flight: usize,
    /// Whether a request is under way that nothing may start beside.
    exclusive: bool,
    /// Whether a slot ends the connection: nothing after it is read or started.
    ended: bool,
    output: Output,
    held: Held,
    traffic: Arc<Traffic>,
    active_at: Instant,
    timer: Pin<Box<Sleep>>,
}

/// A connection that just came.
pub(crate) struct Accepted {
    pub(crate) socket: TcpStream,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) connection: Arc<Connection>,
    pub(crate) registered: Registered,
    pub(crate) counted: Counted,
}

/// Serves a connection to its end, and the requests that it leaves to theirs.
pub(crate) async fn run(accepted: Accepted, shared: Arc<Shared>) {
    let Accepted { socket, tls, connection, registered, counted } = accepted;
    let idle_max = shared.config.idle_max.unwrap_or(FOREVER);
    let stream = match tls {
        None => Stream::Plain(socket),
        Some(tls) => match tokio::time::timeout(idle_max, tls.accept(socket)).await {
            Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
            Ok(Err(error)) => {
                let peer = JavaHost(connection.peer.ip());
                let id = &connection.id;
                tracing::info!(%error, "Failed authentication with {peer} (channelId={id}) (SSL handshake failed)");
                return;
            }
            Err(_) => return,
        },
    };
    let mut task = Task {
        frames: Frames::new(shared.config.request_bytes_max),
        run: VecDeque::new(),
        run_end: None,
        slots: VecDeque::new(),
        request_bytes_in_flight: 0,
        exclusive: false,
        ended: false,
        output: Output::new(shared.cold_reads.clone()),
        held: Held::new(shared.request_memory.clone()),
        traffic: Arc::clone(&counted.0),
        active_at: clock::now(),
        timer: Box::pin(tokio::time::sleep(idle_max)),
        connection,
        shared,
    };
    task.touch();
    let mut stream = stream;
    let end = match task.serve(&mut stream).await {
        Ok(()) => End::Drained,
        Err(end) => end,
    };
    task.log(&end);
    if matches!(end, End::Drained) {
        stream.linger(LINGER).await;
    }
    drop(stream);
    drop((registered, counted));
    let starts_the_rest = matches!(end, End::Disconnected(_));
    task.finish_without_peer(starts_the_rest).await;
}

impl Task {
    async fn serve(&mut self, stream: &mut Stream) -> Result<(), End> {
        loop {
            let more = self.start_requests();
            self.send_all(stream).await?;
            if matches!(self.slots.front(), Some(Slot::End(_)))
                && let Some(Slot::End(end)) = self.slots.pop_front()
            {
                return Err(end);
            }
            match self.connection.ending() {
                Ending::Close => return Err(End::Told),
                Ending::Drain if self.slots.is_empty() => return Ok(()),
                Ending::None if more => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Ending::None | Ending::Drain => {}
            }
            self.wait(stream).await?;
        }
    }

    /// Starts what has come and may start now. Says whether a turn's worth was started and more may be there.
    fn start_requests(&mut self) -> bool {
        let mut count = 0;
        while count < STARTS_PER_TURN {
            match self.start_next() {
                0 => break,
                started => count += started,
            }
        }
        if count > 0 {
            self.traffic.requests.mark(count);
        }
        count >= STARTS_PER_TURN
    }

    /// How many requests were there that may start.
    fn start_next(&mut self) -> u64 {
        if self.ended || self.connection.ending() != Ending::None {
            return 0;
        }
        let waits = !self.slots.is_empty() && self.exclusive;
        let has_next = !self.run.is_empty() || self.run_end.is_some();
        match if has_next { !waits } else { self.gather() } {
            true => self.start_run(),
            false => 0,
        }
    }

    /// Takes the next request out of the buffer, and with a produce those that have come right behind it. Says whether
    /// there was one that may start.
    fn gather(&mut self) -> bool {
        let mut bytes = 0;
        loop {
            let frame = match self.frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => return bytes > 0,
                Err(error) => {
                    self.run_end = Some(End::Frame(error));
                    return true;
                }
            };
            bytes += frame.size;
            let is_produce = frame.api_key == ApiKey::Produce as i16;
            let is_behind = !self.run.is_empty();
            let joins = is_produce && self.run.len() < RUN_MAX && bytes <= RUN_BYTES_MAX;
            if is_behind && !joins || !self.may_start(frame.api_key, bytes) {
                return is_behind;
            }
            let content = self.frames.take(frame);
            match self.request(content) {
                Ok(Some(request)) => self.run.push_back(request),
                Ok(None) => {}
                Err(end) => self.run_end = Some(end),
            }
            if !is_produce || self.run_end.is_some() {
                return true;
            }
        }
    }

    /// Starts what was gathered, or as much of it as may start; how many that were.
    fn start_run(&mut self) -> u64 {
        if self.run.len() < 2 {
            if let Some(request) = self.run.pop_front() {
                let request_bytes = request.body.len();
                let step = self.shared.service.start(request);
                self.take_step(step, request_bytes);
            } else if let Some(end) = self.run_end.take() {
                self.end(end);
            }
            return 1;
        }
        let sizes: Vec<usize> = self.run.iter().map(|request| request.body.len()).collect();
        let steps = self.shared.service.start_run(&mut self.run);
        let started = steps.len();
        for (step, request_bytes) in steps.into_iter().zip(sizes) {
            self.take_step(step, request_bytes);
        }
        started as u64
    }

    fn take_step(&mut self, step: Step, request_bytes: usize) {
        match step {
            Step::Reply(response) => self.answer(Slot::Ready(response)),
            Step::Close(reason) => self.end(End::Closed(reason)),
            Step::Wait { overlap, reply } => {
                self.exclusive = !overlap;
                self.request_bytes_in_flight += request_bytes;
                self.answer(Slot::Waiting { reply, request_bytes });
            }
        }
    }

    fn end(&mut self, end: End) {
        self.ended = true;
        self.run.clear();
        self.slots.push_back(Slot::End(end));
    }

    /// Whether the next request may start beside those that are under way, and those of the run. `size` counts the run.
    fn may_start(&self, api_key: i16, size: usize) -> bool {
        if self.slots.is_empty() && self.run.is_empty() {
            return true;
        }
        let overlaps = api_key == ApiKey::Produce as i16 || api_key == ApiKey::Fetch as i16;
        let config = &self.shared.config;
        overlaps
            && !self.exclusive
            && self.slots.len() + self.run.len() < config.requests_in_flight_max
            && self.request_bytes_in_flight + size <= config.request_bytes_in_flight_max
    }

    /// Reads the header, and admits the body. Nothing for a request that is answered without the service.
    fn request(&mut self, mut content: bytes::Bytes) -> Result<Option<Request>, End> {
        let header = frame::read_request_header(&mut content)
            .map_err(|error| End::Refused(error.to_string()))?;
        if frame::is_unknown_api_versions(&header) {
            let response = frame::unknown_api_versions_response(&header);
            self.answer(Slot::Ready(response.into()));
            return Ok(None);
        }
        let limits = admission::Limits::of(header.api);
        admission::admit(header.api, header.api_version, &content, limits)
            .map_err(|error| End::Refused(self.not_a_request(&header, error)))?;
        Ok(Some(Request {
            api: header.api,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: header.client_id,
            body: content,
            connection: Arc::clone(&self.connection),
        }))
    }

    /// Source: `RequestContext.parseRequest`.
    fn not_a_request(&self, header: &RequestHeader, error: AdmissionError) -> String {
        let Connection { id, listener, .. } = &*self.connection;
        format!(
            "Error getting request for apiKey: {}, apiVersion: {}, connectionId: {id}, \
             listenerName: ListenerName({listener}), principal: User:ANONYMOUS: {error}",
            header.api, header.api_version,
        )
    }

    /// Puts an answer in its place: behind those that are not there yet.
    fn answer(&mut self, slot: Slot) {
        match slot {
            Slot::Ready(response) if self.slots.is_empty() => self.output.push(response),
            slot => self.slots.push_back(slot),
        }
    }

    /// Waits for the next answer, for bytes, for time to pass, or for the word to end.
    async fn wait(&mut self, stream: &mut Stream) -> Result<(), End> {
        // Bytes behind a request that may not start yet stay in the socket.
        let reads = !self.ended
            && self.run.is_empty()
            && self.run_end.is_none()
            && self.connection.ending() == Ending::None
            && self.frames.make_room_for_next();
        let connection = Arc::clone(&self.connection);
        let mut told = std::pin::pin!(connection.told_to_end());
        let memory = self.shared.request_memory.clone();
        let mut freed = std::pin::pin!(freed(memory.clone()));
        let unstarted: usize = self.run.iter().map(|request| request.body.len()).sum();
        self.held.set(self.frames.buffer.len() + unstarted + self.request_bytes_in_flight);
        // A request that has begun goes on; a new one waits for room.
        let memory = memory.filter(|_| self.frames.buffer.is_empty());
        std::future::poll_fn(|context| {
            if self.poll_reply(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            // Asked to be told first, then whether there is room: none that comes between is missed.
            if memory.is_some() && freed.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let has_room = memory.as_ref().is_none_or(|memory| memory.has_room());
            if reads
                && has_room
                && let Poll::Ready(read) = self.poll_read(stream, context)
            {
                return Poll::Ready(read);
            }
            self.poll_timer(context)?;
            told.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Takes every answer from the front that is there.
    fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut progress = Poll::Pending;
        loop {
            match self.slots.front_mut() {
                Some(Slot::Waiting { reply, request_bytes }) => {
                    let Poll::Ready(response) = reply.as_mut().poll(context) else {
                        return progress;
                    };
                    self.request_bytes_in_flight -= *request_bytes;
                    self.output.push(response);
                    self.slots.pop_front();
                }
                Some(Slot::Ready(_)) => {
                    if let Some(Slot::Ready(response)) = self.slots.pop_front() {
                        self.output.push(response);
                    }
                }
                Some(Slot::End(_)) => return Poll::Ready(()),
                None => {
                    self.exclusive = false;
                    return progress;
                }
            }
            progress = Poll::Ready(());
        }
    }

    fn poll_read(
        &mut self,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), End>> {
        match stream.poll_read(context, &mut self.frames.buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(0)) => Poll::Ready(Err(End::Disconnected(None))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(End::Disconnected(Some(error)))),
            Poll::Ready(Ok(count)) => {
                self.traffic.bytes_in.mark(count as u64);
                self.touch();
                let look_at = self.active_at + BUFFER_KEPT;
                // An active connection's timer comes up sooner: the tick is not looked for.
                if self.timer.deadline() > look_at.into() {
                    let look_at = clock::next_tick(look_at).into();
                    if self.timer.deadline() > look_at {
                        self.timer.as_mut().reset(look_at);
                    }
                }
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Sends all answers that are there. A peer that takes nothing for the idle time is closed.
    async fn send_all(&mut self, stream: &mut Stream) -> Result<(), End> {
        let mut sends = 0;
        while !self.output.is_empty() {
            let connection = Arc::clone(&self.connection);
            let mut told = std::pin::pin!(connection.told_to_end());
            std::future::poll_fn(|context| {
                loop {
                    if let Poll::Ready(sent) = self.output.poll_send(stream, context) {
                        return Poll::Ready(sent.map_err(End::Send));
                    }
                    self.poll_timer(context)?;
                    if told.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    if self.connection.ending() == Ending::Close {
                        return Poll::Ready(Err(End::Told));
                    }
                    told.set(connection.told_to_end());
                }
            })
            .await?;
            sends += 1;
            if sends % SENDS_PER_TURN == 0 {
                self.touch();
                tokio::task::yield_now().await;
            }
        }
        if sends > 0 {
            self.touch();
            let sent = self.output.take_sent();
            self.traffic.bytes_out.mark(sent.bytes);
            self.traffic.responses.mark(sent.responses);
        }
        Ok(())
    }

    /// Acts on the time that passed in silence: first the buffer goes, then the connection.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Result<(), End> {
        while self.timer.as_mut().poll(context).is_ready() {
            let idle_max = self.shared.config.idle_max.unwrap_or(FOREVER);
            let silent = clock::now().saturating_duration_since(self.active_at);
            let stuck = !self.output.is_empty();
            if silent >= idle_max && (stuck || self.slots.is_empty()) {
                return Err(End::Idle);
            }
            if silent >= BUFFER_KEPT {
                self.frames.release();
            }
            // An active connection is looked at each second, a silent one when its time is over.
            let next = match silent {
                _ if silent < BUFFER_KEPT => {
                    clock::next_tick(self.active_at + Duration::min(BUFFER_KEPT, idle_max))
                }
                _ if silent < idle_max => self.active_at + idle_max,
                _ => clock::now() + idle_max,
            };
            self.timer.as_mut().reset(next.into());
        }
        Ok(())
    }

    fn touch(&mut self) {
        self.active_at = clock::now();
        self.shared.quotas.touch(&self.connection, self.active_at);
    }

    /// Lets everything that was started run to its end, and starts what came whole before the peer went, as Kafka does.
    async fn finish_without_peer(&mut self, starts_the_rest: bool) {
        loop {
            while let Some(slot) = self.slots.pop_front() {
                if let Slot::Waiting { reply, .. } = slot {
                    reply.await;
                }
            }
            if !starts_the_rest {
                return;
            }
            if self.run.is_empty() && (self.run_end.is_some() || !self.gather()) {
                return;
            }
            self.start_run();
            if self.ended {
                return;
            }
        }
    }

    /// One line for what an operator wants to know; nothing for what is usual.
    fn log(&self, end: &End) {
        let id = &self.connection.id;
        match end {
            End::Frame(error) => {
                let peer = JavaHost(self.connection.peer.ip());
                tracing::warn!(
                    "Unexpected error from {peer} (channelId={id}); closing connection: {error}"
                );
            }
            End::Refused(reason) => {
                tracing::error!("Exception while processing request from {id}: {reason}");
            }
            End::Closed(reason) => tracing::info!("Closing connection {id}: {reason}"),
            End::Disconnected(Some(error)) | End::Send(error) => {
                tracing::debug!(%error, "Connection with {id} disconnected")
            }
            End::Disconnected(None) | End::Drained | End::Told => {
                tracing::debug!("Closing connection {id}: {end}");
            }
            End::Idle => {
                tracing::debug!("Closing connection {id}: idle for connections.max.idle.ms")
            }
        }
    }
}
