//! Signals that end a tool which would go on for ever.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::console::{Halt, halt};

/// Signals that end the tool, with the exit codes of a JVM.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn new() -> Result<Signals, Halt> {
        let open = |kind| signal(kind).or_else(|error| halt(&error.to_string()));
        Ok(Signals {
            interrupt: open(SignalKind::interrupt())?,
            terminate: open(SignalKind::terminate())?,
        })
    }

    /// Waits for one; gives the exit code.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }
}
