//! The broker: one handler per API, controller loop, start and stop.

pub mod logging;
