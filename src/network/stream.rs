//! A connected socket, plain or under TLS.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::frames::READ_SIZE;

pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Reads what has come. An empty buffer gets its memory only when there is something to put into it.
    ///
    /// Gives the number of bytes; zero is the end.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(socket) => {
                if buffer.capacity() == 0 {
                    ready!(socket.poll_read_ready(context))?;
                    buffer.reserve(READ_SIZE);
                }
                pin!(socket.read_buf(buffer)).poll(context)
            }
            Stream::Tls(stream) if buffer.capacity() == 0 => {
                // TLS cannot say that something is there without giving it.
                let mut bytes = [0; 1024];
                let mut read = ReadBuf::new(&mut bytes);
                ready!(pin!(stream).poll_read(context, &mut read))?;
                let read = read.filled();
                if !read.is_empty() {
                    buffer.reserve(READ_SIZE);
                    buffer.put_slice(read);
                }
                Poll::Ready(Ok(read.len()))
            }
            Stream::Tls(stream) => pin!(stream.read_buf(buffer)).poll(context),
        }
    }

    /// Ends our side, and throws away what the peer still sends until it ends its own: a socket that is closed with
    /// bytes unread resets the connection, and the peer loses answers that it had not read yet.
    pub(crate) async fn linger(&mut self, at_most: Duration) {
        let ended = async {
            let mut ignored = [0; 4096];
            match self {
                Stream::Plain(socket) => {
                    socket.shutdown().await?;
                    while socket.read(&mut ignored).await? > 0 {}
                }
                Stream::Tls(stream) => {
                    stream.shutdown().await?;
                    while stream.read(&mut ignored).await? > 0 {}
                }
            }
            Ok::<_, io::Error>(())
        };
        // However it ends, the socket is closed next.
        let _ = tokio::time::timeout(at_most, ended).await;
    }
}
