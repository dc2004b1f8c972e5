//! The ceilings: the least that any broker must do for the same work, each as a process of its own.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::FileExt,
};

use crate::{
    load::{ask, read_frame},
    requests,
};

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

/// Follows a partition as a plain consumer: fetches what a replica would, computes the CRC32C of each batch, appends them to a
/// file. Says its leader's address when it begins.
pub(crate) fn follow(leader: SocketAddr, topic: &str) -> io::Result<()> {
    /// Where records start in an answer of one topic and partition, less the topic's name. See `requests::Fetches`.
    const BEFORE_RECORDS: usize = 66;
    println!("{leader}");
    io::stdout().flush()?;
    let mut socket = TcpStream::connect(leader)?;
    socket.set_nodelay(true)?;
    let file = tempfile::tempfile()?;
    let (mut frame, mut offset, mut position) = (vec![0; 4 << 20], 0, 0);
    loop {
        socket.write_all(&requests::fetch(topic, 0, offset, 1 << 20))?;
        let mut size = [0; 4];
        socket.read_exact(&mut size)?;
        let answer = frame.get_mut(..u32::from_be_bytes(size) as usize).ok_or_else(too_large)?;
        socket.read_exact(answer)?;
        let at = BEFORE_RECORDS + topic.len();
        let error = answer.get(at - 38..at - 36).map(|code| i16::from_be_bytes([code[0], code[1]]));
        match error {
            Some(0) => {}
            // Retention was faster. What is counted is what was written.
            Some(1) => {
                let answer = ask(leader, &requests::earliest(topic))?;
                offset = number(&answer, answer.len().saturating_sub(8))?;
                continue;
            }
            other => return Err(io::Error::other(format!("fetch answered {other:?}"))),
        }
        let records = answer.get(at..).unwrap_or_default();
        let mut end = 0;
        while let Some(size) = records.get(end + 8..end + 12) {
            let size = 12 + u32::from_be_bytes([size[0], size[1], size[2], size[3]]) as usize;
            let Some(batch) = records.get(end..end + size).filter(|batch| batch.len() > 61) else {
                break;
            };
            let last = u32::from_be_bytes([batch[23], batch[24], batch[25], batch[26]]);
            let crc = u32::from_be_bytes([batch[17], batch[18], batch[19], batch[20]]);
            if crc32c::crc32c(&batch[21..]) != crc {
                return Err(io::Error::other("a batch with a wrong checksum"));
            }
            offset = number(batch, 0)? + i64::from(last) + 1;
            end += size;
        }
        file.write_all_at(&records[..end], position)?;
        position += end as u64;
        if position > 256 << 20 {
            file.set_len(0)?;
            position = 0;
        }
    }
}

fn too_large() -> io::Error {
    io::Error::other("an answer that is too large")
}

fn number(bytes: &[u8], at: usize) -> io::Result<i64> {
    let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map(i64::from_be_bytes).ok_or_else(|| io::Error::other("an answer that is too short"))
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
