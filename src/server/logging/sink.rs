//! Takes lines to one destination on a thread of its own, so that a slow or full disk holds up nobody.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// Bytes that may wait for the thread; lines beyond are counted and lost.
const PENDING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The standard streams. Unlike `println!`, a closed one is an error and no panic.
#[derive(Debug)]
pub(super) enum Console {
    Stdout,
    Stderr,
}

impl Write for Console {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match self {
            Console::Stdout => io::stdout().write(lines),
            Console::Stderr => io::stderr().write(lines),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Console::Stdout => io::stdout().flush(),
            Console::Stderr => io::stderr().flush(),
        }
    }
}

enum Command {
    Line(Arc<str>),
    /// Answers when all before it is written.
    Flush(SyncSender<()>),
}

/// The sending end; the thread ends with it.
#[derive(Debug)]
pub(super) struct Sink {
    commands: Sender<Command>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    pending_bytes: AtomicUsize,
    lost_lines: AtomicU64,
}

impl Sink {
    /// Starts the thread.
    pub(super) fn spawn(name: &str, destination: impl Write + Send + 'static) -> io::Result<Sink> {
        let (commands, receiver) = channel();
        let state = Arc::new(State::default());
        let shared = state.clone();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&receiver, destination, &shared))?;
        Ok(Sink { commands, state })
    }

    /// Hands a line over; never waits.
    pub(super) fn send(&self, line: Arc<str>) {
        let length = line.len();
        let pending = self.state.pending_bytes.fetch_add(length, Ordering::Relaxed);
        let is_over = pending + length > PENDING_BYTES_MAX;
        if is_over || self.commands.send(Command::Line(line)).is_err() {
            self.state.pending_bytes.fetch_sub(length, Ordering::Relaxed);
            self.state.lost_lines.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines before are written or lost, for `limit` at most.
    pub(super) fn flush(&self, limit: Duration) {
        let (done, wait) = sync_channel(1);
        if self.commands.send(Command::Flush(done)).is_ok() {
            // A disk that hangs must not hang an exit; the lines are lost then.
            let _written_or_late = wait.recv_timeout(limit);
        }
    }
}

fn run(commands: &Receiver<Command>, mut destination: impl Write, state: &State) {
    let mut is_torn = false;
    while let Ok(command) = commands.recv() {
        match command {
            Command::Line(line) => {
                state.pending_bytes.fetch_sub(line.len(), Ordering::Relaxed);
                match write(&mut destination, &line, is_torn, state) {
                    Ok(()) => is_torn = false,
                    Err(error) => {
                        if !is_torn {
                            complain(&error);
                        }
                        is_torn = true;
                        state.lost_lines.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Command::Flush(done) => {
                // A failure was counted with its line, and whoever waited may have gone.
                let _ = (destination.flush(), done.send(()));
            }
        }
    }
}

/// Writes a line; after a gap, first what is missing.
fn write(destination: &mut impl Write, line: &str, is_torn: bool, state: &State) -> io::Result<()> {
    let lost = state.lost_lines.load(Ordering::Relaxed);
    if lost == 0 {
        destination.write_all(line.as_bytes())?;
    } else {
        let end_of_torn = if is_torn { "\n" } else { "" };
        let gap = format!("{end_of_torn}{lost} log lines were lost before this one\n{line}");
        destination.write_all(gap.as_bytes())?;
        state.lost_lines.fetch_sub(lost, Ordering::Relaxed);
    }
    destination.flush()
}

/// Once per outage: the only place left to say it.
fn complain(error: &io::Error) {
    // Standard error may be closed, and there is nobody else to tell.
    let _ = writeln!(io::stderr(), "log lines are lost: {error}");
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A disk that can be full, and holds up writers while `gate` is locked.
    #[derive(Clone, Default)]
    struct Disk {
        written: Arc<Mutex<String>>,
        is_full: Arc<Mutex<bool>>,
        gate: Arc<Mutex<()>>,
    }

    impl Write for Disk {
        fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
            let _open = self.gate.lock().unwrap();
            if *self.is_full.lock().unwrap() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.lock().unwrap().push_str(std::str::from_utf8(lines).unwrap());
            Ok(lines.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn flush(sink: &Sink) {
        sink.flush(Duration::from_secs(60));
    }

    #[test]
    fn a_full_disk_loses_lines_and_says_how_many() {
        let disk = Disk::default();
        let sink = Sink::spawn("test", disk.clone()).unwrap();
        sink.send("a\n".into());
        flush(&sink);
        *disk.is_full.lock().unwrap() = true;
        sink.send("b\n".into());
        sink.send("c\n".into());
        flush(&sink);
        *disk.is_full.lock().unwrap() = false;
        sink.send("d\n".into());
        sink.send("e\n".into());
        flush(&sink);
        let written = disk.written.lock().unwrap().clone();
        assert_eq!(written, "a\n\n2 log lines were lost before this one\nd\ne\n");
    }

    #[test]
    fn a_disk_that_hangs_holds_up_nobody() {
        let disk = Disk::default();
        let hang = disk.gate.lock().unwrap();
        let sink = Sink::spawn("test", disk.clone()).unwrap();
        let line: Arc<str> = format!("{}\n", "x".repeat(1023)).into();
        for _ in 0..10_000 {
            sink.send(line.clone());
        }
        assert!(sink.state.pending_bytes.load(Ordering::Relaxed) <= PENDING_BYTES_MAX);
        let lost = sink.state.lost_lines.load(Ordering::Relaxed);
        assert!((1_700..1_900).contains(&lost), "{lost}");
        drop(hang);
        flush(&sink);
        sink.send("end\n".into());
        flush(&sink);
        let written = disk.written.lock().unwrap();
        assert!(written.ends_with("end\n"));
        // The writer may have come late to the first line, and then tells of the losses in two parts.
        let told = written
            .lines()
            .filter_map(|line| line.strip_suffix(" log lines were lost before this one"));
        assert_eq!(told.map(|count| count.parse::<u64>().unwrap()).sum::<u64>(), lost);
    }

    #[test]
    fn a_device_without_room_is_survived() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let sink = Sink::spawn("test", full).unwrap();
        sink.send("a\n".into());
        flush(&sink);
        assert_eq!(sink.state.lost_lines.load(Ordering::Relaxed), 1);
    }
}
