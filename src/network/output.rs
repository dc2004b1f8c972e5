//! Answers on their way to the socket: many small ones in one call, regions of files by `sendfile`.
//!
//! `sendfile` cannot say that it will wait for the disk, so each stretch of a file is probed first; what is not in
//! the page cache is read on another thread before it is sent, so that a reader of old data slows nobody else.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::server::TlsStream;

use crate::service::{Piece, Pieces, Response};
use crate::stream::Stream;

/// Pieces in one call. More of them gain nothing.
const SLICES_MAX: usize = 32;

/// Bytes of a file that are probed and sent at a time.
const STRETCH: usize = 256 * 1024;

/// Bytes of a file that a read from the disk brings in, ahead of what is sent.
const COLD_STRETCH: usize = 1024 * 1024;

/// Bytes of a file that pass through memory at a time under TLS.
const TLS_STRETCH: usize = 64 * 1024;

/// Reads from the disk at a time, for all connections: enough to keep a disk busy.
const COLD_READS_MAX: usize = 8;

/// The threads' places for reads that wait for the disk. A full house makes the next cold reader wait.
#[derive(Clone)]
pub(crate) struct ColdReads(Arc<Semaphore>);

impl ColdReads {
    pub(crate) fn new() -> ColdReads {
        ColdReads(Arc::new(Semaphore::new(COLD_READS_MAX)))
    }
}

/// Counts of what went out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) bytes: u64,
    pub(crate) responses: u64,
}

type ColdRead = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// What is to be sent, in order.
pub(crate) struct Output {
    pieces: VecDeque<Piece>,
    /// What went out since it was last asked.
    sent: Sent,
    /// The end of what is known to be in the page cache of the file at the front.
    warm_until: u64,
    cold_reads: ColdReads,
    cold_read: Option<ColdRead>,
    /// What was brought in from the disk for this connection last: it goes out again once the next is in.
    behind: Option<(Arc<File>, Range<u64>)>,
}

impl Output {
    pub(crate) fn new(cold_reads: ColdReads) -> Output {
        Output {
            pieces: VecDeque::new(),
            sent: Sent::default(),
            warm_until: 0,
            cold_reads,
            cold_read: None,
            behind: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn push(&mut self, response: Response) {
        self.sent.responses += u64::from(!matches!(response.pieces, Pieces::None));
        match response.pieces {
            Pieces::None => {}
            Pieces::One(bytes) => self.pieces.push_back(Piece::Bytes(bytes)),
            Pieces::Many(pieces) => self.pieces.extend(pieces),
        }
    }

    /// Sends some of it. Ready when something went out or nothing is left; pending while the socket or a disk is busy.
    pub(crate) fn poll_send(
        &mut self,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(cold_read) = &mut self.cold_read {
            let read = ready!(cold_read.as_mut().poll(context));
            self.cold_read = None;
            read?;
        }
        match stream {
            Stream::Plain(socket) => self.poll_send_plain(socket, context),
            Stream::Tls(stream) => self.poll_send_tls(stream, context),
        }
    }

    fn poll_send_plain(
        &mut self,
        socket: &mut TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let sent = match self.pieces.front() {
                None => return Poll::Ready(Ok(())),
                Some(Piece::Bytes(_)) => {
                    socket.try_io(Interest::WRITABLE, || self.send_bytes(socket))
                }
                Some(Piece::File { file, position, length }) => {
                    let (mut position, length) = (*position, usize::min(*length, STRETCH));
                    let file = Arc::clone(file);
                    if self.is_cold(&file, position, length)? {
                        return self.poll_cold(context);
                    }
                    socket.try_io(Interest::WRITABLE, || {
                        Ok(rustix::fs::sendfile(&*socket, &*file, Some(&mut position), length)?)
                    })
                }
            };
            match sent {
                Ok(0) if self.front_length() > 0 => return Poll::Ready(Err(file_ended())),
                Ok(count) => {
                    self.sent.bytes += count as u64;
                    self.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(socket.poll_write_ready(context))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends the pieces in memory at the front, as one packet with the file that follows.
    fn send_bytes(&self, socket: &TcpStream) -> io::Result<usize> {
        // Most answers are alone and one piece, for which the kernel need not copy and check a list of pieces.
        if self.pieces.len() == 1
            && let Some(Piece::Bytes(bytes)) = self.pieces.front()
        {
            return Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let mut flags = SendFlags::NOSIGNAL;
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) if count < SLICES_MAX => {
                    slices[count] = IoSlice::new(bytes);
                    count += 1;
                }
                _ => {
                    flags |= SendFlags::MORE;
                    break;
                }
            }
        }
        let no_control = &mut SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(socket, &slices[..count], no_control, flags)?)
    }

    fn poll_send_tls(
        &mut self,
        stream: &mut TlsStream<TcpStream>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.pieces.is_empty() {
            return pin!(stream).poll_flush(context);
        }
        if let Some(Piece::File { file, position, length }) = self.pieces.front() {
            let (file, position) = (Arc::clone(file), *position);
            let length = usize::min(*length, TLS_STRETCH);
            if self.is_cold(&file, position, length)? {
                return self.poll_cold(context);
            }
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, position)?;
            self.advance(length);
            self.pieces.push_front(Piece::Bytes(bytes.into()));
        }
        let Some(Piece::Bytes(bytes)) = self.pieces.front() else {
            return Poll::Ready(Ok(()));
        };
        let count = ready!(pin!(&mut *stream).poll_write(context, bytes))?;
        self.sent.bytes += count as u64;
        self.advance(count);
        match self.pieces.is_empty() {
            true => pin!(stream).poll_flush(context),
            false => Poll::Ready(Ok(())),
        }
    }

    fn front_length(&self) -> usize {
        self.pieces.front().map_or(0, Piece::length)
    }

    /// What went out since the last call.
    pub(crate) fn take_sent(&mut self) -> Sent {
        std::mem::take(&mut self.sent)
    }

    /// Takes `count` bytes from the front, and empty pieces with them.
    fn advance(&mut self, mut count: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            let length = piece.length();
            if count < length {
                match piece {
                    Piece::Bytes(bytes) => bytes.advance(count),
                    Piece::File { position, length, .. } => {
                        *position += count as u64;
                        *length -= count;
                    }
                }
                return;
            }
            if matches!(piece, Piece::File { .. }) {
                self.warm_until = 0;
            }
            count -= length;
            self.pieces.pop_front();
        }
    }

    /// Whether a stretch of the file at the front has to come from the disk. Remembers what was found.
    fn is_cold(&mut self, file: &File, position: u64, length: usize) -> io::Result<bool> {
        let end = position + length as u64;
        if end <= self.warm_until || length == 0 {
            return Ok(false);
        }
        let warm = is_cached(file, position)? && is_cached(file, end - 1)?;
        if warm {
            self.warm_until = end;
        }
        Ok(!warm)
    }

    /// Starts to read the file at the front from the disk.
    fn poll_cold(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(Piece::File { file, position, length }) = self.pieces.front() else {
            return Poll::Ready(Ok(()));
        };
        let range = *position..*position + usize::min(*length, COLD_STRETCH) as u64;
        self.warm_until = range.end;
        let behind = self.behind.replace((Arc::clone(file), range.clone()));
        let file = Arc::clone(file);
        let places = Arc::clone(&self.cold_reads.0);
        let cold_read = async move {
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            let read = tokio::task::spawn_blocking(move || {
                let _place = place;
                if let Some((file, range)) = behind {
                    forget(&file, &range);
                }
                bring_in(&file, range)
            });
            read.await.map_err(io::Error::other)?
        };
        let cold_read = self.cold_read.insert(Box::pin(cold_read));
        let read = ready!(cold_read.as_mut().poll(context));
        self.cold_read = None;
        Poll::Ready(read)
    }
}

/// Whether the page of a byte is in the page cache. A file system that cannot say counts as a fast one.
fn is_cached(file: &File, position: u64) -> io::Result<bool> {
    let mut byte = [0];
    let mut buffers = [IoSliceMut::new(&mut byte)];
    match rustix::io::preadv2(file, &mut buffers, position, ReadWriteFlags::NOWAIT) {
        Ok(0) => Err(file_ended()),
        Ok(_) | Err(Errno::OPNOTSUPP) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads a range, so that it is in the page cache.
fn bring_in(file: &File, range: Range<u64>) -> io::Result<()> {
    let length = usize::try_from(range.end - range.start).unwrap_or(COLD_STRETCH);
    let mut buffer = vec![0; usize::min(length, STRETCH)];
    let mut position = range.start;
    while position < range.end {
        let left = usize::try_from(range.end - position).unwrap_or(STRETCH);
        let part = usize::min(left, buffer.len());
        match file.read_at(&mut buffer[..part], position) {
            Ok(0) => return Err(file_ended()),
            Ok(count) => position += count as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Lets the kernel drop a range that came from the disk for one reader, before it drops what others use.
fn forget(file: &File, range: &Range<u64>) {
    let length = std::num::NonZeroU64::new(range.end - range.start);
    let advice = rustix::fs::fadvise(file, range.start, length, Advice::DontNeed);
    // Advice may be refused, and nothing depends on it.
    let _ = advice;
}

fn file_ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a file is shorter than the region to send")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    /// A file that is on the disk and not in the page cache; none where the file system keeps everything.
    fn cold_file(contents: &[u8]) -> Option<Arc<File>> {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(contents).unwrap();
        file.sync_all().unwrap();
        forget(&file, &(0..contents.len() as u64));
        (!is_cached(&file, 0).unwrap()).then(|| Arc::new(file))
    }

    #[tokio::test]
    async fn what_is_cold_is_read_on_another_thread_and_arrives_whole() {
        let contents: Vec<u8> = (0..3_000_000).map(|index| (index / 251 + index) as u8).collect();
        let Some(file) = cold_file(&contents) else { return };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut receiver, _) = listener.accept().await.unwrap();
        let reader = tokio::spawn(async move {
            let mut received = Vec::new();
            receiver.read_to_end(&mut received).await.unwrap();
            received
        });
        let mut output = Output::new(ColdReads::new());
        let region = Piece::File { file: Arc::clone(&file), position: 0, length: contents.len() };
        output.push(Response::of_pieces(vec![region]));
        let mut stream = Stream::Plain(client);
        let mut waited_for_the_disk = false;
        while !output.is_empty() {
            std::future::poll_fn(|context| {
                let sent = output.poll_send(&mut stream, context);
                waited_for_the_disk |= output.cold_read.is_some();
                sent
            })
            .await
            .unwrap();
        }
        drop(stream);
        assert!(waited_for_the_disk);
        assert!(reader.await.unwrap() == contents, "the contents differ");
    }
}
