//! Keys, certificates and logins as Java's files hold them, without input or output: the caller reads the files.

pub mod jaas;
pub mod java_options;
pub mod key_store;
pub mod tls;
