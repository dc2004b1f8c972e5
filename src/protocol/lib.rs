//! Frames, headers, the admission check, and the versions we serve.

pub mod admission;
pub mod api;
pub mod frame;
pub mod sample;
pub mod schema;
mod shapes;
