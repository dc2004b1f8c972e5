//! What the tests share.

pub mod deviations;
