//! Connections in and out: framing, TLS, reply order, limits.
//!
//! `SocketServer` owns the listeners and one task per connection. A task reads frames, starts requests in their
//! order by `Service::start`, and writes the answers in the same order. Nothing is handed from task to task.

mod accept;
pub mod connection;
pub mod contained;
mod frames;
pub mod outgoing;
mod output;
pub mod quotas;
mod request_memory;
pub mod server;
pub mod service;
mod stream;
mod task;
#[cfg(test)]
mod tests;
mod traffic;
