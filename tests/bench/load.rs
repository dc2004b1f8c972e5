//! The load generator: pre-encoded frames over plain sockets, so that it costs little beside what it measures.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use common::clock;

/// What a run of requests took.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Bytes of interest: sent by a produce, received by a fetch.
    pub(crate) bytes: u64,
    /// From the first to the last.
    pub(crate) elapsed: Duration,
    /// Each request's time to its answer, in microseconds, sorted.
    pub(crate) latencies_us: Vec<u32>,
}

impl Load {
    /// The latency that this share of requests keeps below.
    pub(crate) fn percentile_us(&self, share: f64) -> u32 {
        let last = self.latencies_us.len().saturating_sub(1);
        let index = (last as f64 * share).round() as usize;
        self.latencies_us.get(index).copied().unwrap_or(0)
    }

    /// Megabytes (10^6) a second.
    pub(crate) fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Requests a second.
    pub(crate) fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// How the requests go out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Connections, each with a thread.
    pub(crate) connections: usize,
    /// Requests of a connection that wait for answers at once.
    pub(crate) in_flight: usize,
    /// How long to go on.
    pub(crate) duration: Duration,
}

/// What one connection sends.
pub(crate) trait Requests: Send {
    /// The next frame, size in front.
    fn next(&mut self) -> &[u8];
    /// Looks at the answer, without its size; gives the bytes of interest.
    fn answered(&mut self, answer: &[u8]) -> Result<u64, String>;
}

/// Sends requests over every connection until the time is up, and waits for the last answers.
pub(crate) fn run(
    address: SocketAddr,
    shape: Shape,
    requests: &dyn Fn(usize) -> Box<dyn Requests>,
) -> Result<Load, String> {
    let started = clock::now();
    let end = started + shape.duration;
    let threads: Vec<_> = (0..shape.connections)
        .map(|index| {
            let requests = requests(index);
            std::thread::spawn(move || connection(address, shape.in_flight, end, requests))
        })
        .collect();
    let mut load = Load::default();
    for thread in threads {
        let one = thread.join().map_err(|_| "a load thread panicked".to_owned())?;
        let one = one.map_err(|error| format!("load on {address}: {error}"))?;
        load.requests += one.requests;
        load.bytes += one.bytes;
        load.latencies_us.extend(one.latencies_us);
    }
    load.elapsed = started.elapsed();
    load.latencies_us.sort_unstable();
    Ok(load)
}

fn connection(
    address: SocketAddr,
    in_flight: usize,
    end: Instant,
    mut requests: Box<dyn Requests>,
) -> io::Result<Load> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let mut load = Load::default();
    let mut sent_at = std::collections::VecDeque::new();
    let mut answer = Vec::new();
    let mut answers = io::BufReader::with_capacity(1 << 16, socket.try_clone()?);
    loop {
        while sent_at.len() < in_flight && clock::now() < end {
            sent_at.push_back(clock::now());
            socket.write_all(requests.next())?;
        }
        let Some(sent) = sent_at.pop_front() else { return Ok(load) };
        read_frame(&mut answers, &mut answer)?;
        let taken = u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX);
        load.latencies_us.push(taken);
        load.requests += 1;
        load.bytes += requests.answered(&answer).map_err(io::Error::other)?;
    }
}

/// Reads a frame's content; `into` keeps its memory.
pub(crate) fn read_frame(from: &mut impl Read, into: &mut Vec<u8>) -> io::Result<()> {
    let mut size = [0; 4];
    from.read_exact(&mut size)?;
    into.resize(u32::from_be_bytes(size) as usize, 0);
    from.read_exact(into)
}

/// Sends one frame and gives its answer.
pub(crate) fn ask(address: SocketAddr, frame: &[u8]) -> io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.write_all(frame)?;
    let mut answer = Vec::new();
    read_frame(&mut socket, &mut answer)?;
    Ok(answer)
}
