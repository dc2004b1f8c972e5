//! One partition's replicas: in-sync set, high watermark, acks. Decides; does nothing.

pub mod leader;
