//! The ceilings: the least that any broker must do for the same work, each as a process of its own.

use std::{
    fs::File,
    io::{self, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt,
};

use crate::load::read_frame;

/// Listens, says where, and hands every connection to a thread.
fn serve(
    connection: impl Fn(TcpStream) -> io::Result<()> + Copy + Send + 'static,
) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    io::stdout().flush()?;
    for socket in listener.incoming() {
        let socket = socket?;
        socket.set_nodelay(true)?;
        std::thread::spawn(move || connection(socket));
    }
    Ok(())
}

/// Receives frames, computes their CRC32C, appends them to a file, answers with 40 bytes.
pub(crate) fn append() -> io::Result<()> {
    serve(|mut socket| {
        let file = tempfile::tempfile()?;
        let (mut frame, mut position) = (Vec::new(), 0);
        let mut answer = [0; 40];
        answer[..4].copy_from_slice(&36u32.to_be_bytes());
        loop {
            read_frame(&mut socket, &mut frame)?;
            let crc = crc32c::crc32c(&frame);
            answer[4..8].copy_from_slice(&crc.to_be_bytes());
            file.write_all_at(&frame, position)?;
            position += frame.len() as u64;
            // As a log would roll: the page cache of a whole run is not the point.
            if position > 1 << 30 {
                file.set_len(0)?;
                position = 0;
            }
            socket.write_all(&answer)?;
        }
    })
}

/// Size of an answer of the sendfile floor.
pub(crate) const SENDFILE_BYTES: usize = 1 << 20;

/// Answers every frame with 1 MiB of a cached file by `sendfile`.
pub(crate) fn sendfile() -> io::Result<()> {
    serve(|mut socket| {
        let mut file: File = tempfile::tempfile()?;
        file.write_all(&vec![7; 64 << 20])?;
        let mut frame = Vec::new();
        let mut position = 0u64;
        loop {
            read_frame(&mut socket, &mut frame)?;
            socket.write_all(&(SENDFILE_BYTES as u32).to_be_bytes())?;
            let mut left = SENDFILE_BYTES;
            while left > 0 {
                left -= rustix::fs::sendfile(&socket, &file, Some(&mut position), left)?;
            }
            if position >= 64 << 20 {
                position = 0;
            }
        }
    })
}

/// A bare tokio echo: reads frames, answers each with 40 bytes, one task per connection.
pub(crate) fn echo() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        io::stdout().flush()?;
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            tokio::spawn(echo_connection(socket));
        }
    })
}

async fn echo_connection(mut socket: tokio::net::TcpStream) -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut answer = [0; 40];
    answer[..4].copy_from_slice(&36u32.to_be_bytes());
    let mut buffer = Vec::with_capacity(64 << 10);
    let mut answers = Vec::new();
    loop {
        if socket.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let mut from = 0;
        while let Some(size) = buffer.get(from..from + 4) {
            let size = u32::from_be_bytes([size[0], size[1], size[2], size[3]]) as usize;
            if buffer.len() < from + 4 + size {
                break;
            }
            from += 4 + size;
            answers.extend_from_slice(&answer);
        }
        buffer.drain(..from);
        socket.write_all(&answers).await?;
        answers.clear();
    }
}
