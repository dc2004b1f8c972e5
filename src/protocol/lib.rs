//! Frames, headers, the admission check, and the versions we serve.

pub mod api;
pub mod frame;
