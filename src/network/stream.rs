//! A connected socket, plain or under TLS.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
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
}
