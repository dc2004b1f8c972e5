//! The replica manager: partitions of this broker, acks and waiting fetches.

pub mod fetch_session;
