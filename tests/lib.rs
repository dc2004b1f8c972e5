//! What the tests share.

pub mod deviations;
pub mod ports;
