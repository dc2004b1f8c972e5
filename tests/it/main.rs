//! Integration tests.

mod configuration;
mod deviations;
mod tidy;
