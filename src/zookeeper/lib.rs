//! A standalone server that speaks ZooKeeper's protocol.
