//! What a panic leads to. In the task of a connection it ends that connection, as any request that fails does. Anywhere else a
//! part of the broker would be gone while the rest goes on as if it were there; so the process ends, and recovery begins.

use std::{panic::PanicHookInfo, sync::Arc, thread};

use network::contained;
use tracing::error;

use crate::logging::Logging;

/// Exit code of a process that a panic has ended.
const PANICKED: i32 = 1;

/// Makes it so for this process.
pub(crate) fn install(logging: Arc<Logging>) {
    std::panic::set_hook(Box::new(move |panic| {
        let what = describe(panic);
        if contained::serves_connection() {
            error!(target: "kafka.server.KafkaApis", "Unexpected error, the connection is closed: {what}");
            return;
        }
        error!(target: "kafka.Kafka$", "Halting: {what}");
        logging.flush();
        std::process::exit(PANICKED);
    }));
}

/// One line: where, in which thread, and why.
fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let place = panic.location().map_or_else(|| "nowhere".to_owned(), ToString::to_string);
    let text = panic.payload_as_str().unwrap_or("no message").replace('\n', " ");
    format!("thread {} panicked at {place}: {text}", thread.name().unwrap_or("without a name"))
}
