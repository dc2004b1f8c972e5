//! One connection: reads frames and hands them to the core, writes what the core sends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tracing::{debug, info};

use crate::core::Peer;
use crate::server::Shared;
use crate::traffic::Traffic;
use crate::watches::ConnectionId;
use crate::words;

/// How long a connection may take to ask for a session. Source: ZooKeeper's
/// `zookeeper.nio.sessionlessCnxnTimeout`.
pub(crate) const SESSIONLESS_MAX: Duration = Duration::from_secs(10);
/// What an idle connection keeps; a busy one grows with what it receives.
const IDLE_BUFFER_BYTES: usize = 512;
/// A frame of more than this counts against [`LARGE_FRAMES_KB_MAX`] while it arrives.
const LARGE_FRAME_BYTES: usize = 64 << 10;
/// A connect request has 45 bytes; nobody gets more memory than this before there is a session.
const CONNECT_BYTES_MAX: usize = LARGE_FRAME_BYTES;
/// What large frames of all connections may take while they arrive; others wait to be read. Who
/// sends half of one and no more loses its session, for it cannot ping, and so makes room.
pub(crate) const LARGE_FRAMES_KB_MAX: u32 = 256 << 10;
/// Replies that go into one write.
const WRITE_BYTES: usize = 64 << 10;

/// A frame on its way out.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    /// When the request came that it answers; notifications answer none.
    pub(crate) received: Option<Instant>,
}

/// Where the core's replies go: closed to close the connection behind the last of them.
pub(crate) type Outlet = mpsc::UnboundedSender<Frame>;

/// Serves a connection to its end.
pub(crate) async fn serve<R, W>(
    shared: &Arc<Shared>,
    connection: ConnectionId,
    peer: Peer,
    mut reader: R,
    mut writer: W,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let address = peer.address;
    let mut buffer = BytesMut::with_capacity(IDLE_BUFFER_BYTES);
    let first = timeout(SESSIONLESS_MAX, read_first(&mut reader, &mut buffer)).await;
    let frame = match first {
        Ok(Ok(First::Frame(frame))) => frame,
        Ok(Ok(First::Word(word))) => {
            let answer = words::answer(&word, address, shared);
            // The peer may be gone already, which takes nothing from anybody.
            let _ = timeout(SESSIONLESS_MAX, writer.write_all(answer.as_bytes())).await;
            let _ = timeout(SESSIONLESS_MAX, writer.shutdown()).await;
            return;
        }
        Ok(Ok(First::End)) => return,
        Ok(Err(error)) => return info!(%address, %error, "closing connection"),
        Err(_) => return debug!(%address, "connection asked for no session in time, closing"),
    };
    let traffic =
        Arc::new(Traffic::new(common::clock::wall_clock().0, shared.queued_bytes.clone()));
    // Its length is bounded by `traffic`.
    let (outlet, inlet) = mpsc::unbounded_channel();
    shared.attach(connection, peer, outlet, traffic.clone());
    received(shared, &traffic);
    shared.submit(|core, now| core.connect(connection, &frame, now));
    let reading = read_requests(&mut reader, &mut buffer, shared, connection, &traffic);
    let writing = write_frames(&mut writer, inlet, &traffic);
    // Whichever ends first ends the connection: what is cut off is this connection's alone.
    tokio::select! {
        result = reading => debug!(%address, ?result, "connection ended by the client"),
        result = writing => debug!(%address, ?result, "connection ended by the server"),
    }
    shared.detach(connection);
    // Sends the end of the stream; that it cannot be sent says that it is there already.
    let _ = timeout(SESSIONLESS_MAX, writer.shutdown()).await;
}

fn received(shared: &Shared, traffic: &Traffic) {
    traffic.received();
    shared.statistics.received.fetch_add(1, Ordering::Relaxed);
}

enum First {
    Frame(Bytes),
    /// A four-letter word.
    Word(String),
    End,
}

async fn read_first<R: AsyncRead + Unpin>(
    reader: &mut R,
    buffer: &mut BytesMut,
) -> io::Result<First> {
    while buffer.len() < 4 {
        if reader.read_buf(buffer).await? == 0 {
            return Ok(First::End);
        }
    }
    if words::is_word(&buffer[..4]) {
        return Ok(First::Word(String::from_utf8_lossy(&buffer[..4]).into_owned()));
    }
    let hint = match &buffer[..] {
        [b'G', b'E', b'T', b' ', ..] | [b'P', b'O', b'S', b'T', ..] => " (is this HTTP?)",
        [0x16, 3, ..] => " (is this TLS?)",
        _ => "",
    };
    // No frame so small waits for room.
    let room = Semaphore::new(0);
    match read_frame(reader, buffer, CONNECT_BYTES_MAX, &room).await {
        Ok(Some(frame)) => Ok(First::Frame(frame)),
        Ok(None) => Ok(First::End),
        Err(error) => Err(io::Error::new(error.kind(), format!("{error}{hint}"))),
    }
}

/// Reads one frame; `None` at the end of the stream. Memory follows the bytes received.
async fn read_frame<R: AsyncRead + Unpin>(
    reader: &mut R,
    buffer: &mut BytesMut,
    bytes_max: usize,
    large_frames: &Semaphore,
) -> io::Result<Option<Bytes>> {
    let mut room = None;
    loop {
        if let Some(head) = buffer.first_chunk::<4>() {
            let claimed = i32::from_be_bytes(*head);
            let length = usize::try_from(claimed).ok().filter(|length| *length <= bytes_max);
            let Some(length) = length else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "a frame of {claimed} bytes, of which {bytes_max} may be (see jute.maxbuffer)"
                    ),
                ));
            };
            if buffer.len() >= 4 + length {
                buffer.advance(4);
                let frame = buffer.split_to(length).freeze();
                if buffer.is_empty() {
                    *buffer = BytesMut::with_capacity(IDLE_BUFFER_BYTES);
                }
                return Ok(Some(frame));
            }
            if length > LARGE_FRAME_BYTES && room.is_none() {
                let kilobytes = u32::try_from(length >> 10).unwrap_or(u32::MAX);
                let kilobytes = kilobytes.min(LARGE_FRAMES_KB_MAX);
                room = large_frames.acquire_many(kilobytes).await.ok();
            }
        }
        if reader.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

async fn read_requests<R: AsyncRead + Unpin>(
    reader: &mut R,
    buffer: &mut BytesMut,
    shared: &Arc<Shared>,
    connection: ConnectionId,
    traffic: &Traffic,
) -> io::Result<()> {
    while let Some(frame) =
        read_frame(reader, buffer, shared.frame_bytes_max, &shared.large_frames).await?
    {
        received(shared, traffic);
        shared.submit(|core, now| core.request(connection, &frame, now));
        traffic.wait_for_room().await;
    }
    Ok(())
}

async fn write_frames<W: AsyncWrite + Unpin>(
    writer: &mut W,
    mut inlet: mpsc::UnboundedReceiver<Frame>,
    traffic: &Traffic,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while let Some(frame) = inlet.recv().await {
        let mut replies = usize::from(frame.received.is_some());
        let mut frames = 1;
        if inlet.is_empty() {
            writer.write_all(&frame.bytes).await?;
            traffic.sent(frames, replies, frame.bytes.len());
            continue;
        }
        buffer.extend_from_slice(&frame.bytes);
        while buffer.len() < WRITE_BYTES
            && let Ok(frame) = inlet.try_recv()
        {
            buffer.extend_from_slice(&frame.bytes);
            replies += usize::from(frame.received.is_some());
            frames += 1;
        }
        writer.write_all(&buffer).await?;
        traffic.sent(frames, replies, buffer.len());
        buffer.clear();
    }
    Ok(())
}
