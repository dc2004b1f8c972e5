//! Integration tests.

mod configuration;
