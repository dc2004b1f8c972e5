//! Integration tests.

mod configuration;
mod zk_conformance;
