//! Connections: framing, TLS, reply order, limits.
