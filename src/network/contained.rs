//! Knows whether a thread is just serving a connection: a panic there is that connection's end, elsewhere it is the
//! process's, for a part of the broker would be missing without anybody noticing.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

thread_local! {
    static SERVES_CONNECTION: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is serving a connection right now; for a panic hook.
pub fn serves_connection() -> bool {
    SERVES_CONNECTION.get()
}

/// The task of a connection.
pub(crate) struct Contained<F>(Pin<Box<F>>);

impl<F: Future> Contained<F> {
    pub(crate) fn new(task: F) -> Contained<F> {
        Contained(Box::pin(task))
    }
}

impl<F: Future> Future for Contained<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _serving = Serving::begin();
        self.0.as_mut().poll(context)
    }
}

/// While it lives, the thread serves a connection; a panic ends it too.
struct Serving;

impl Serving {
    fn begin() -> Serving {
        SERVES_CONNECTION.set(true);
        Serving
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVES_CONNECTION.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::{Contained, serves_connection};

    #[tokio::test]
    async fn a_thread_serves_a_connection_while_its_task_is_polled() {
        let inside = Contained::new(async {
            let before = serves_connection();
            tokio::task::yield_now().await;
            before && serves_connection()
        });
        assert!(inside.await);
        assert!(!serves_connection());
        let panicked = tokio::spawn(Contained::new(async { panic!("on purpose") })).await;
        assert!(panicked.is_err());
        assert!(!serves_connection());
    }
}
